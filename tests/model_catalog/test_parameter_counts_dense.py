"""Parameter counts of published transformers, element for element.

``parameter_counts_dense.jsonl`` holds one published model a row: the count that its repo states (the Hub's
parameter count, or an index's total size over the dtype's) and the configuration keys that were read. Where a
checkpoint stores more than the model needs, ``stored_beside`` names it and the surplus is computed here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from published_configs import WHISPER_TINY

from model_catalog.architecture import ArchitectureSpec
from model_catalog.config_reader import read_architecture

TABLE = Path(__file__).with_name("parameter_counts_dense.jsonl")
ROWS: list[dict[str, Any]] = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def stored_surplus(kind: str | None, spec: ArchitectureSpec, config: Mapping[str, Any]) -> int:
    """Elements that the checkpoint stores beside the model's own.

    A copy of the tied head; the inverse frequencies of rotary embeddings (half of the rotated dimensions, in every
    layer of 2023's checkpoints); GPT-2's and GPT-NeoX's boolean causal masks (positions squared, in every layer).
    """
    layers = len(spec.decoder_layers)
    head_dim = spec.hidden_size // spec.attention_heads
    context = spec.max_context_tokens or 0
    frequencies = layers * int(head_dim * ROTATED_SHARE.get(config["model_type"], 1.0)) // 2
    return {
        None: 0,
        "lm_head": spec.vocabulary_size * spec.hidden_size,
        "inv_freq": layers * head_dim // 2,
        "causal_masks": layers * context**2,
        "causal_masks+inv_freq": layers * context**2 + frequencies,
    }[kind]


#: ``rotary_pct`` of every GPT-NeoX in the table.
ROTATED_SHARE = {"gpt_neox": 0.25}


@pytest.mark.parametrize("row", ROWS, ids=[row["repo_id"] for row in ROWS])
def test_count_is_the_published_one(row: dict[str, Any]) -> None:
    spec = read_architecture(row["config"], subject=row["repo_id"])
    counted = spec.parameters(with_mtp=bool(row.get("with_mtp")))
    assert counted + stored_surplus(row.get("stored_beside"), spec, row["config"]) == row["parameters"]


#: Counts that ``model.num_parameters()`` prints for the released model (tied weights once), as quoted in public
#: model cards and logs; the configurations are the released ones, cut to the keys that matter.
PRINTED = [
    (
        "openai/whisper-tiny",
        37_760_640,
        WHISPER_TINY,
    ),
    (
        "openai/whisper-large-v3",
        1_543_490_560,
        {
            "model_type": "whisper",
            "d_model": 1280,
            "encoder_layers": 32,
            "decoder_layers": 32,
            "encoder_attention_heads": 20,
            "decoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "decoder_ffn_dim": 5120,
            "vocab_size": 51866,
            "num_mel_bins": 128,
        },
    ),
    (
        "google-t5/t5-base",
        222_903_552,
        {"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
        | {"vocab_size": 32128, "feed_forward_proj": "relu"},
    ),
    (
        "google/flan-t5-base",
        247_577_856,
        {"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12}
        | {"vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    (
        "facebook/opt-125m",
        125_239_296,
        {"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12}
        | {"num_attention_heads": 12, "vocab_size": 50272, "max_position_embeddings": 2048},
    ),
    (
        "facebook/opt-350m",
        331_196_416,
        {"model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24}
        | {"num_attention_heads": 16, "vocab_size": 50272, "max_position_embeddings": 2048}
        | {"word_embed_proj_dim": 512, "do_layer_norm_before": False},
    ),
    (
        "openai-community/gpt2",
        124_439_808,
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
    ),
    (
        "EleutherAI/gpt-neo-125m",
        125_198_592,
        {"model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12, "num_heads": 12, "vocab_size": 50257}
        | {"max_position_embeddings": 2048},
    ),
    (
        "EleutherAI/gpt-j-6b",
        6_050_882_784,
        {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400}
        | {"tie_word_embeddings": False},
    ),
    (
        "tiiuae/falcon-rw-1b",
        1_311_625_216,
        {"model_type": "falcon", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32}
        | {"vocab_size": 50304, "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
    ),
    (
        "THUDM/chatglm3-6b",
        6_243_584_000,
        {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32}
        | {"kv_channels": 128, "ffn_hidden_size": 13696, "padded_vocab_size": 65024, "add_qkv_bias": True}
        | {"multi_query_attention": True, "multi_query_group_num": 2, "tie_word_embeddings": False},
    ),
    (
        "THUDM/chatglm-6b",
        6_173_286_400,
        {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32}
        | {"inner_hidden_size": 16384, "vocab_size": 130528},
    ),
]


@pytest.mark.parametrize(("repo_id", "parameters", "config"), PRINTED, ids=[row[0] for row in PRINTED])
def test_count_is_the_one_the_model_prints(repo_id: str, parameters: int, config: dict[str, Any]) -> None:
    assert read_architecture(config, subject=repo_id).parameters() == parameters
