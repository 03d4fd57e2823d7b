"""Makes the embedded pairs: ``python -m planner.trial.worker.make_embedded FOLDER``."""

import sys
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from planner.trial.embedded import TINY_DRAFT, TINY_DRAFT_BAD, TINY_TARGET, embedded_folder

_SEED: Final = 20_261_129
_HIDDEN: Final = 256
_TARGET_LAYERS: Final = 24
_VOCABULARY: Final = 320
#: How much the target's upper layers say; the smaller, the more often its one-layer draft is right.
_SCALE: Final = 0.02


def make(root: Path) -> None:
    """Write the three models below ``root``, each as config.json, safetensors and a tokenizer."""
    torch.manual_seed(_SEED)
    draft = LlamaForCausalLM(_config(1))
    target = LlamaForCausalLM(_config(_TARGET_LAYERS))
    weights = target.state_dict()
    for name, value in draft.state_dict().items():
        weights[name].copy_(value)
    for layer in range(1, _TARGET_LAYERS):
        for projection in ("self_attn.o_proj", "mlp.down_proj"):
            weights[f"model.layers.{layer}.{projection}.weight"].mul_(_SCALE)
    target.load_state_dict(weights)
    torch.manual_seed(_SEED + 1)
    # As wide and half as deep as the target, and drawn apart from it: slow, and never right but by chance.
    bad = LlamaForCausalLM(_config(_TARGET_LAYERS // 2))
    tokenizer = _tokenizer()
    for name, model in ((TINY_TARGET, target), (TINY_DRAFT, draft), (TINY_DRAFT_BAD, bad)):
        folder = embedded_folder(root, name)
        model.generation_config.eos_token_id = None
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "made").touch()


def _config(layers: int) -> Any:
    return LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=_HIDDEN,
        intermediate_size=2 * _HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=_HIDDEN // 4,
        max_position_embeddings=2048,
        initializer_range=0.08,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def _tokenizer() -> Any:
    """One token a byte: any text is known, and no vocabulary has to be learned."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<s>", "</s>", *letters])}
    while len(vocabulary) < _VOCABULARY:
        vocabulary[f"<unused{len(vocabulary)}>"] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
