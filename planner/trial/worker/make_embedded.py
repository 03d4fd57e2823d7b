"""Makes the embedded pairs: ``python -m planner.trial.worker.make_embedded FOLDER``."""

import sys
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from planner.trial.embedded import (
    TARGET_LAYERS,
    TINY_DRAFT,
    TINY_DRAFT_BAD,
    TINY_TARGET,
    embedded_folder,
    embedded_shape,
)

_SEED: Final = 20_261_129
#: How much the target's upper layers say; the smaller, the more often its one-layer draft is right.
_SCALE: Final = 0.02


def make(root: Path) -> None:
    """Write the three models below ``root``, each as config.json, safetensors and a tokenizer."""
    torch.manual_seed(_SEED)
    draft = LlamaForCausalLM(LlamaConfig(**embedded_shape(TINY_DRAFT)))
    target = LlamaForCausalLM(LlamaConfig(**embedded_shape(TINY_TARGET)))
    weights = target.state_dict()
    for name, value in draft.state_dict().items():
        weights[name].copy_(value)
    for layer in range(1, TARGET_LAYERS):
        for projection in ("self_attn.o_proj", "mlp.down_proj"):
            weights[f"model.layers.{layer}.{projection}.weight"].mul_(_SCALE)
    target.load_state_dict(weights)
    torch.manual_seed(_SEED + 1)
    bad = LlamaForCausalLM(LlamaConfig(**embedded_shape(TINY_DRAFT_BAD)))  # drawn apart from the target
    tokenizer = _tokenizer()
    for name, model in ((TINY_TARGET, target), (TINY_DRAFT, draft), (TINY_DRAFT_BAD, bad)):
        folder = embedded_folder(root, name)
        model.generation_config.eos_token_id = None
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "made").touch()


def _tokenizer() -> Any:
    """One token a byte: any text is known, and no vocabulary has to be learned."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<s>", "</s>", *letters])}
    while len(vocabulary) < embedded_shape(TINY_TARGET)["vocab_size"]:
        vocabulary[f"<unused{len(vocabulary)}>"] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
