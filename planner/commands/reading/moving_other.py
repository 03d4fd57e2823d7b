"""As ``moving``, for SGLang and llama.cpp."""

from collections.abc import Mapping
from typing import Final

from planner.commands.reading.records import Effect

_NONE: Final = frozenset({"0", "0.0", "none", "None"})
_ONE: Final = frozenset({"1"})


def _effects(effect: Effect, *names: str) -> dict[str, Effect]:
    return dict.fromkeys(names, effect)


SGLANG_MOVING: Final[Mapping[str, Effect]] = {
    **_effects(
        "more",
        *(
            "--enable-lora",
            "--lora-paths",
            "--max-loras-per-batch",
            "--max-lora-rank",
            "--enable-two-batch-overlap",
        ),
        *("--enable-torch-compile", "--enable-eplb", "--ep-num-redundant-experts", "--chunked-prefill-size"),
        *("--disable-hybrid-swa-memory", "--enable-return-hidden-states", "--enable-single-batch-overlap"),
    ),
    **_effects("less", "--cpu-offload-gb", "--offload-group-size", "--language-only", "--enable-memory-saver"),
    **_effects(
        "either",
        *(
            "--config",
            "--max-total-tokens",
            "--dp-size",
            "--enable-dp-attention",
            "--attn-dp-size",
            "--load-format",
        ),
        *("--json-model-override-args", "--swa-full-tokens-ratio", "--mamba-full-memory-ratio", "--attn-cp-size"),
        *("--cuda-graph-max-bs-decode", "--cuda-graph-bs-decode"),
        *("--cuda-graph-config", "--max-prefill-tokens", "--disaggregation-mode", "--enable-hierarchical-cache"),
        *("--max-mamba-cache-size", "--encoder-only", "--dcp-size", "--moe-dp-size", "--moe-dense-tp-size"),
        *("--speculative-draft-model-quantization", "--speculative-adaptive", "--speculative-draft-window-size"),
        *("--is-embedding", "--model-loader-extra-config", "--decoupled-spec-role"),
    ),
    **_effects(
        "slight",
        *("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend", "--model-impl"),
        *(
            "--moe-runner-backend",
            "--moe-a2a-backend",
            "--disable-custom-all-reduce",
            "--disable-overlap-schedule",
        ),
        *("--disable-cuda-graph-padding", "--enable-mixed-chunk", "--fp8-gemm-backend", "--sampling-backend"),
    ),
}
SGLANG_NEUTRAL: Final[Mapping[str, frozenset[str]]] = {
    "--cpu-offload-gb": _NONE,
    "--dp-size": _ONE,
    "--attn-dp-size": _ONE,
    "--attn-cp-size": _ONE,
    "--dcp-size": _ONE,
    "--moe-dp-size": _ONE,
    "--load-format": frozenset({"auto", "safetensors"}),
    "--disaggregation-mode": frozenset({"null"}),
}
SGLANG_REMOVED: Final[dict[str, tuple[str, str]]] = {
    "--enable-ep-moe": ("0", "an option of old releases: --ep-size"),
    "--enable-flashinfer-mla": ("0", "an option of old releases: --attention-backend"),
    "--disable-mla": ("0", "an option of old releases"),
    "--cuda-graph-max-bs": ("1", "an option of other releases: --cuda-graph-max-bs-decode"),
    "--cuda-graph-bs": ("+", "an option of other releases: --cuda-graph-bs-decode"),
    "--disable-flashinfer": ("0", "an option of old releases: --attention-backend"),
}
LLAMA_MOVING: Final[Mapping[str, Effect]] = {
    **_effects(
        "more",
        *("--mmproj", "--mmproj-url", "--lora", "--lora-scaled", "--swa-full", "--control-vector", "--embedding"),
        *("--models-dir", "--models-preset", "--control-vector-scaled"),
    ),
    **_effects(
        "less",
        *("--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn", "--no-kv-offload", "-nkvo", "--spec-draft-cpu-moe"),
        *("--spec-draft-n-cpu-moe", "--lazy-mode"),
    ),
    **_effects(
        "either",
        *("--override-tensor", "--override-kv", "--split-mode", "--main-gpu", "--rpc", "--spec-default"),
        *(
            "--spec-draft-override-tensor",
            "--kv-unified-per-slot",
            "--model-url",
            "--docker-repo",
            "--tensor-split",
        ),
    ),
    **_effects("slight", "--flash-attn", "--load-mode", "--no-host", "--no-op-offload", "--mmproj-device"),
}
LLAMA_NEUTRAL: Final[Mapping[str, frozenset[str]]] = {
    "--split-mode": frozenset({"layer"}),
    "--n-cpu-moe": _NONE,
    "--n-cpu-ffn": _NONE,
    "--spec-draft-n-cpu-moe": _NONE,
    "--main-gpu": _NONE,
    "--tensor-split": frozenset({",".join(["1"] * count) for count in range(1, 17)}),
}
LLAMA_REMOVED: Final[dict[str, tuple[str, str]]] = {
    "--draft": ("1", "removed: --spec-draft-n-max"),
    "--draft-n": ("1", "removed: --spec-draft-n-max"),
    "--draft-max": ("1", "removed: --spec-draft-n-max"),
    "--draft-min": ("1", "removed: --spec-draft-n-min"),
    "--draft-n-min": ("1", "removed: --spec-draft-n-min"),
    "--ctx-size-draft": ("1", "removed: the draft's context is the target's"),
    "--mlock": ("0", "an option of other builds: --load-mode"),
    "--no-mmap": ("0", "an option of other builds: --load-mode"),
    "-cd": ("1", "removed: the draft's context is the target's"),
    "--spec-ngram-size-n": ("1", "removed: --spec-ngram-simple-size-n"),
    "--spec-ngram-size-m": ("1", "removed: --spec-ngram-simple-size-m"),
    "--spec-ngram-min-hits": ("1", "removed: --spec-ngram-simple-min-hits"),
}
