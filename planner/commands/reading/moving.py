"""Options that move device memory and that no plan knows, with what each does; and options of other releases.

An option that is in an engine's table and neither read nor listed here hardly moves device memory.
"""

from collections.abc import Mapping
from typing import Final

from planner.commands.reading.records import Effect

_NONE: Final = frozenset({"0", "0.0", "None"})
_ONE: Final = frozenset({"1"})


def _effects(effect: Effect, *names: str) -> dict[str, Effect]:
    return dict.fromkeys(names, effect)


VLLM_MOVING: Final[Mapping[str, Effect]] = {
    **_effects(
        "more",
        *(
            "--enable-lora",
            "--max-loras",
            "--max-lora-rank",
            "--lora-modules",
            "--default-mm-loras",
            "--enable-dbo",
        ),
        *(
            "--enable-eplb",
            "--eplb-config",
            "--mm-ipc-gpu-memory-gb",
            "--kv-transfer-config",
            "--enable-elastic-ep",
        ),
        *("--disable-hybrid-kv-cache-manager", "--kv-cache-dtype-skip-layers", "--no-enable-chunked-prefill"),
        *("--enable-prompt-embeds", "--disable-sliding-window", "--ubatch-size"),
    ),
    **_effects(
        "less",
        *("--cpu-offload-gb", "--offload-group-size", "--offload-num-in-group", "--language-model-only"),
        *("--decode-context-parallel-size", "--prefill-context-parallel-size", "--enable-ep-weight-filter"),
        *("--swa-bounded-replay", "--kv-sharing-fast-prefill"),
    ),
    **_effects(
        "either",
        *("--config", "--num-gpu-blocks-override", "--data-parallel-size", "--hf-overrides", "--hf-config-path"),
        *("--compilation-config", "--cudagraph-capture-sizes", "--max-cudagraph-capture-size", "--load-format"),
        *("--optimization-level", "--quantization-config", "--model-class-overrides", "--limit-mm-per-prompt"),
        *("--mamba-block-size", "--mamba-cache-dtype", "--mamba-ssm-cache-dtype", "--mamba-cache-mode"),
        *("--max-num-active-seqs", "--runner", "--convert", "--mm-encoder-only", "--additional-config"),
        *("--performance-mode", "--diffusion-config", "--model-loader-extra-config", "--worker-cls"),
    ),
    **_effects(
        "slight",
        *("--attention-backend", "--attention-config", "--moe-backend", "--linear-backend", "--kernel-config"),
        *("--disable-custom-all-reduce", "--model-impl", "--enable-sleep-mode", "--enable-cumem-allocator"),
        *("--max-num-scheduled-tokens", "--skip-mm-profiling", "--mm-encoder-tp-mode", "--mm-processor-kwargs"),
        *("--enable-batch-sharded-sampling", "--max-logprobs", "--additional-config"),
    ),
}
VLLM_NEUTRAL: Final[Mapping[str, frozenset[str]]] = {
    "--cpu-offload-gb": _NONE,
    "--offload-group-size": _NONE,
    "--mm-ipc-gpu-memory-gb": _NONE,
    "--ubatch-size": _NONE,
    "--data-parallel-size": _ONE,
    "--decode-context-parallel-size": _ONE,
    "--prefill-context-parallel-size": _ONE,
    "--load-format": frozenset({"auto", "safetensors", "runai_streamer", "fastsafetensors", "instanttensor"}),
    "--runner": frozenset({"auto", "generate"}),
    "--convert": frozenset({"auto", "none"}),
    "--mamba-cache-dtype": frozenset({"auto"}),
    "--mamba-ssm-cache-dtype": frozenset({"auto"}),
    "--optimization-level": frozenset({"2"}),
    "--performance-mode": frozenset({"balanced"}),
}
_SPEC: Final = 'its place is --speculative-config \'{"method": ..., "model": ..., "num_speculative_tokens": ...}\''
#: By name: how many words follow, and what is known. Older releases had them; 0.32.0 refuses them.
VLLM_REMOVED: Final[dict[str, tuple[str, str]]] = {
    "--speculative-model": ("1", f"an option of old releases: {_SPEC}"),
    "--num-speculative-tokens": ("1", f"an option of old releases: {_SPEC}"),
    "--speculative-draft-tensor-parallel-size": ("1", f"an option of old releases: {_SPEC}"),
    "--speculative-max-model-len": ("1", f"an option of old releases: {_SPEC}"),
    "--speculative-disable-by-batch-size": ("1", f"an option of old releases: {_SPEC}"),
    "--speculative-model-quantization": ("1", f"an option of old releases: {_SPEC}"),
    "--ngram-prompt-lookup-max": ("1", f"an option of old releases: {_SPEC}"),
    "--ngram-prompt-lookup-min": ("1", f"an option of old releases: {_SPEC}"),
    "--swap-space": ("1", "an option of old releases: nothing is swapped to the host any more"),
    "--use-v2-block-manager": ("0", "an option of the engine that V1 replaced"),
    "--num-scheduler-steps": ("1", "an option of the engine that V1 replaced"),
    "--num-lookahead-slots": ("1", "an option of the engine that V1 replaced"),
    "--max-seq-len-to-capture": ("1", "an option of old releases: --max-cudagraph-capture-size counts tokens"),
    "--max-context-len-to-capture": ("1", "an option of old releases"),
    "--cuda-graph-sizes": ("+", "an option of old releases: --cudagraph-capture-sizes"),
    "--disable-log-requests": ("0", "an option of old releases: requests are not logged by default"),
    "--disable-frontend-multiprocessing": ("0", "an option of old releases"),
    "--guided-decoding-backend": ("1", "an option of old releases: --structured-outputs-config"),
    "--enable-reasoning": ("0", "an option of old releases: --reasoning-parser alone does it"),
    "--rope-scaling": ("1", "an option of old releases: --hf-overrides '{\"rope_parameters\": ...}'"),
    "--rope-theta": ("1", "an option of old releases: --hf-overrides '{\"rope_parameters\": ...}'"),
    "--device": ("1", "an option of old releases: the platform is found"),
    "--task": ("1", "an option of old releases: --runner, and --convert"),
    "--worker-use-ray": ("0", "an option of old releases: --distributed-executor-backend ray"),
    "--engine-use-ray": ("0", "an option of old releases"),
    "--preemption-mode": ("1", "an option of the engine that V1 replaced"),
    "--disable-async-output-proc": ("0", "an option of the engine that V1 replaced"),
    "--multi-step-stream-outputs": ("1", "an option of the engine that V1 replaced"),
    "--quantization-param-path": ("1", "an option of old releases"),
    "--enable-auto-tool": ("0", "did you mean --enable-auto-tool-choice?"),
    "--max-num-partial-prefills": ("1", "an option of other releases"),
    "--max-long-partial-prefills": ("1", "an option of other releases"),
}
