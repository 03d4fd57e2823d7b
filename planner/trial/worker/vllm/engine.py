"""One phase of a trial in vLLM: one engine, with or without a draft, and the prompts run through it.

Run by the engine's own interpreter, as a process of its own, for an engine leaves the device only when its process
ends. Needs nothing but vLLM and the standard library: the job comes as JSON on standard input, what happened goes
out as one JSON line each on the pipe named by the first argument. Sources: vLLM 0.32.0 ``v1/metrics/stats.py``
(times of a request), ``v1/metrics/loggers.py`` and ``v1/spec_decode/metrics.py`` (counters).
"""

import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

#: The request says these itself, or the house does: real weights from safetensors alone, and no remote code.
OURS = frozenset(
    {
        *("model", "tokenizer", "skip_tokenizer_init", "dtype", "seed", "load_format"),
        *("disable_log_stats", "trust_remote_code", "allow_deprecated_quantization_remote_code"),
    }
)
OURS_OF_SPECULATION = frozenset({"model", "num_speculative_tokens"})
WARM_TOKENS = 32


class PhaseError(Exception):
    """Why the phase cannot go on; ``kind`` is a code of the protocol, or the class of the engine's exception."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def engine_arguments(job: Mapping[str, Any], known: frozenset[str], *, on_cpu: bool) -> dict[str, Any]:
    """What ``LLM`` is called with, the speculative part aside. ``known``: the names that this vLLM takes.

    Raises:
        PhaseError: "engine_options", for a name that is unknown or not the user's to set.
    """
    options = dict(job["options"])
    speculation = options.pop("speculative_config", {})
    if not isinstance(speculation, Mapping):
        raise PhaseError("engine_options", "speculative_config must be a mapping")
    if unknown := sorted(set(options) - known):
        raise PhaseError("engine_options", f"this vLLM knows no {', '.join(unknown)}")
    taken = sorted((set(options) & OURS) | (set(speculation) & OURS_OF_SPECULATION))
    if taken:
        raise PhaseError("engine_options", f"the trial itself sets {', '.join(taken)}")
    if options.get("max_num_seqs", job["batch"]) < job["batch"]:
        raise PhaseError("engine_options", f"max_num_seqs is below the batch of {job['batch']}")
    defaults = {
        # A prompt that is repeated for warming must not find its prefill done.
        "enable_prefix_caching": False,
        "max_num_seqs": job["batch"],
        # Text never has more tokens than bytes, but for a few that mark its start.
        "max_model_len": job["longest_bytes"] + 8 + job["new_tokens"] + job["k"] + 1,
    }
    if on_cpu:
        defaults["enforce_eager"] = True  # compiling takes minutes on a CPU
    return {
        **defaults,
        **options,
        "model": job["target"],
        "dtype": job["dtype"],
        "seed": job["seed"],
        "load_format": "dummy" if job["dummy"] else "safetensors",
        "skip_tokenizer_init": job["dummy"],
        "trust_remote_code": False,
        "disable_log_stats": False,
    }


def speculative_arguments(job: Mapping[str, Any]) -> dict[str, Any]:
    """The draft's part: a draft model unless the options name another method."""
    given = job["options"].get("speculative_config", {})
    return {"method": "draft_model", **given, "model": job["draft"], "num_speculative_tokens": job["k"]}


def limited(arguments: dict[str, Any], limits: Sequence[int], totals: Sequence[int]) -> dict[str, Any]:
    """The arguments with the fraction that keeps every device within its limit, in bytes of CUDA's total."""
    if not limits:
        return arguments
    shares = [limit / total for limit, total in zip(limits, totals, strict=False) if total]
    fraction = int(min(shares, default=1.0) * 1000) / 1000
    given = arguments.get("gpu_memory_utilization", 1.0)
    return {**arguments, "gpu_memory_utilization": min(fraction, given)} if fraction < 1 else arguments


def accepted_counts(drafts: int, accepted_to: Sequence[int]) -> list[int]:
    """From "accepted at least i + 1" to "accepted exactly i": the counters are of the first kind."""
    reached = [drafts, *accepted_to]
    return [high - low for high, low in zip(reached, [*reached[1:], 0], strict=True)]


class Counters:
    """The engine's counters at one moment; those it does not have are None."""

    def __init__(self, metrics: Sequence[Any]) -> None:
        self.drafts = self.drafted = 0
        self.accepted_to: list[int] = []
        self.iterations: int | None = None
        for metric in metrics:
            if metric.name == "vllm:spec_decode_num_drafts":
                self.drafts += metric.value
            elif metric.name == "vllm:spec_decode_num_draft_tokens":
                self.drafted += metric.value
            elif metric.name == "vllm:spec_decode_num_accepted_tokens_per_pos":
                self.accepted_to = list(metric.values)
            elif metric.name == "vllm:iteration_tokens_total":
                self.iterations = (self.iterations or 0) + metric.count


class Phase:
    """An engine and the prompts that go through it; what it says goes to ``say``."""

    def __init__(self, job: Mapping[str, Any], say: Callable[..., None]) -> None:
        self._job, self._say = job, say
        self._vllm: Any = importlib.import_module("vllm")
        self._llm: Any = None

    def start(self) -> None:
        """Start the engine.

        Raises:
            PhaseError: an option that is unknown, or another device than this vLLM was built for.
            Exception: whatever vLLM refuses with.
        """
        arg_utils: Any = importlib.import_module("vllm.engine.arg_utils")
        here: Any = importlib.import_module("vllm.platforms").current_platform
        job, kind = self._job, here.device_type
        if kind != job["device"].partition(":")[0]:
            raise PhaseError("engine_refused", f"this vLLM runs on {kind}, not on {job['device']}")
        known = frozenset(field.name for field in dataclasses.fields(arg_utils.EngineArgs))
        arguments = engine_arguments(job, known, on_cpu=kind == "cpu")
        if kind == "cuda" and job["limits"]:
            totals = [here.get_device_total_memory(index) for index in range(len(job["limits"]))]
            arguments = limited(arguments, job["limits"], totals)
        speculation = speculative_arguments(job)
        if not job["speculative"]:
            # Whether the pair is taken shows here, before anything is loaded.
            arg_utils.EngineArgs(**arguments, speculative_config=speculation).create_engine_config()
        begin = time.monotonic()
        self._llm = self._vllm.LLM(**arguments, speculative_config=speculation if job["speculative"] else None)
        self._say(
            "loaded",
            seconds=time.monotonic() - begin,
            device=self._device_name(here),
            versions={"python": platform.python_version(), "vllm": self._vllm.__version__, **library_versions()},
        )

    def run(self) -> None:
        """Warm the engine, then run group after group until the seconds are over."""
        groups, job = self._job["groups"], self._job
        self._warm()
        self._say("warmed")
        begin, stopped_by = time.monotonic(), "prompts"
        for group in groups:
            try:
                run = self._measure(group)
            except ValueError as error:  # how vLLM refuses one request
                self._say("failure", name=group["name"], text=str(error)[:300])
                continue
            self._say("run", name=group["name"], **run)
            if time.monotonic() - begin > job["seconds"]:
                stopped_by = "time"
                break
        self._say("done", stopped_by=stopped_by, how=self._how(), memory=self._peaks())

    def _warm(self) -> None:
        """Run the first group that the engine does not refuse.

        Raises:
            ValueError: it refuses all of them.
        """
        for last, group in enumerate(self._job["groups"], start=1 - len(self._job["groups"])):
            try:
                self._generate(group["texts"], min(WARM_TOKENS, self._job["new_tokens"]))
            except ValueError:
                if last == 0:
                    raise
            else:
                return

    def _generate(self, texts: Sequence[str], tokens: int) -> list[Any]:
        job = self._job
        params = self._vllm.SamplingParams(
            temperature=job["temperature"], max_tokens=tokens, ignore_eos=True, detokenize=not job["dummy"]
        )
        # Random weights need no tokenizer: any ids do. Four bytes make about one token.
        prompts = [{"prompt_token_ids": list(text.encode()[::4])} if job["dummy"] else text for text in texts]
        outputs: list[Any] = self._llm.generate(prompts, params, use_tqdm=False)
        return outputs

    def _measure(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """One group, timed and counted. Seconds run from the first token to the last of the whole group."""
        before = Counters(self._llm.get_metrics())
        begin = time.perf_counter()
        outputs = self._generate(group["texts"], self._job["new_tokens"])
        wall = time.perf_counter() - begin
        after = Counters(self._llm.get_metrics())
        prefill, seconds = request_times(outputs)
        if seconds is None:
            begin = time.perf_counter()
            self._generate(group["texts"], 1)
            prefill = time.perf_counter() - begin
            seconds = wall - prefill
        drafts = after.drafts - before.drafts
        old = before.accepted_to or [0] * len(after.accepted_to)
        return {
            "tokens": [list(output.outputs[0].token_ids) for output in outputs],
            "seconds": seconds,
            "prefill_seconds": prefill,
            # The first iteration is prefill.
            "passes": None if after.iterations is None else after.iterations - (before.iterations or 0) - 1,
            "rounds": drafts,
            "drafted": after.drafted - before.drafted,
            "accepted_counts": accepted_counts(
                drafts, [new - past for new, past in zip(after.accepted_to, old, strict=True)]
            ),
        }

    def _device_name(self, here: Any) -> str:
        if here.device_type != "cpu":
            return str(here.get_device_name(0))
        threads: int = importlib.import_module("torch").get_num_threads()
        return f"CPU, {threads} thread{'s' if threads > 1 else ''}"

    def _how(self) -> str:
        """Either "graphs", where CUDA graphs are replayed, or "eager"."""
        config: Any = self._llm.llm_engine.vllm_config.compilation_config
        mode = getattr(config, "cudagraph_mode", None)
        return "eager" if getattr(mode, "name", "NONE") == "NONE" else "graphs"

    def _peaks(self) -> dict[str, int | None]:
        """The allocator's peaks, where the engine runs in this very process."""
        cuda: Any = importlib.import_module("torch").cuda
        if not cuda.is_initialized() or not cuda.max_memory_allocated():
            return {}
        return {
            "allocated_peak_bytes": cuda.max_memory_allocated(),
            "reserved_peak_bytes": cuda.max_memory_reserved(),
        }


def request_times(outputs: Sequence[Any]) -> tuple[float | None, float | None]:
    """Seconds of prefill and of decoding, by the engine's own clock; None where it does not tell."""
    stats = [output.metrics for output in outputs]
    try:
        first = min(entry.first_token_ts for entry in stats)
        last = max(entry.last_token_ts for entry in stats)
        begin = min(entry.scheduled_ts for entry in stats)
    except AttributeError:
        return None, None
    return (first - begin, last - first) if 0 < begin <= first < last else (None, None)


def library_versions() -> dict[str, str]:
    """The releases that shape the figures, as far as they are installed."""
    found = {}
    for name in ("torch", "transformers"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def main(pipe: int) -> int:
    """Run one phase; 0 where it came to its end, else 1 after an ``error``."""
    # This folder is no place to import from: its names are not meant for an engine.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent.resolve()]
    os.set_inheritable(pipe, False)
    job = json.loads(sys.stdin.read())
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as stream:

        def say(kind: str, **content: object) -> None:
            stream.write(json.dumps({"kind": kind, **content}) + "\n")

        try:
            phase = Phase(job, say)
            phase.start()
            phase.run()
        except PhaseError as error:
            say("error", type=error.kind, text=str(error))
        except Exception as error:
            say("error", type=type(error).__name__, text=str(error)[:4000])
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
