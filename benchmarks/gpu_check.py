"""What the plan says against what one GPU does: bytes, step times and a trial. Needs no network and no weights.

    python benchmarks/gpu_check.py --json check.json             one large GPU, under ten minutes
    python benchmarks/gpu_check.py --device cpu --tiny --json …  the same path with tiny shapes, about a minute

Models come from the embedded catalogue, with random weights: bytes and step times are those of the real ones,
acceptance is not, so speedups here are *predicted* from measured step times and published acceptance. The trial of
the embedded pair is measured throughout. Each part runs in a process of its own; one that fails is reported, and
the rest goes on. Prints markdown; the JSON holds every figure.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from checkout import ROOT
from gpu_plan import DTYPE, K, Pair, Settings, bytes_rows, models_of, needed_bytes, planned, step_row
from gpu_tables import markdown

from planner.declared_gpus import parse_gpu_option
from planner.devices import Device
from planner.errors import HardwareError
from planner.nvml import read_devices
from planner.trial.embedded import TINY_DRAFT, TINY_TARGET, embedded_folder, make_embedded
from planner.trial.protocol import Event, TrialRequest
from planner.trial.runner import Deadlines, run_trial
from planner.trial.statistics import measure

SCHEMA: Final = 1
#: What a part is not begun without, and what it may take at most, in seconds.
_LEAST_SECONDS: Final = 40.0
_MOST_SECONDS: Final = 200.0

PAIRS: Final = (
    Pair(name="qwen3-8b", target="Qwen/Qwen3-8B", draft="Qwen/Qwen3-0.6B"),
    Pair(name="qwen3-32b", target="Qwen/Qwen3-32B", draft="Qwen/Qwen3-0.6B"),
    Pair(
        name="llama-70b-fp8",
        target="meta-llama/Llama-3.1-70B-Instruct",
        draft="meta-llama/Llama-3.2-1B-Instruct",
        fp8=True,
    ),
)


class SkippedError(Exception):
    """A part that this machine cannot run; the text says why."""


def main() -> int:
    """Run the parts, print the tables; 1 where a part failed."""
    arguments = _arguments()
    end = time.monotonic() + arguments.budget_seconds
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin disturb each other on a small host
    with tempfile.TemporaryDirectory() as folder:
        device, about = _device(arguments.device, arguments.gpu)
        settings = Settings(
            device_kind=arguments.device,
            device=device,
            tiny=arguments.tiny,
            batches=(1, 4) if arguments.tiny else (1, 8, 32),
            context=64 if arguments.tiny else 512,
            seconds_a_step=0.1 if arguments.tiny else 1.5,
            trial_seconds=2.0 if arguments.tiny else 20.0,
            folder=Path(folder),
        )
        document: dict[str, Any] = {"schema": SCHEMA, **about, "tiny": arguments.tiny, "k": K, "parts": []}
        for name, part in _parts(settings):
            if arguments.only and name not in arguments.only:
                continue
            print(f"{name} …", file=sys.stderr, flush=True)
            document["parts"].append(_guarded(name, part, end - time.monotonic()))
            if arguments.json:
                Path(arguments.json).write_text(json.dumps(document, indent=1), encoding="utf-8")
    print(markdown(document))
    return int(any(part["status"] == "failed" for part in document["parts"]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--gpu", metavar="NAME", help="plan for this GPU where the driver cannot be asked")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes: checks this script, not the plan")
    parser.add_argument("--json", help="where every figure is written, again after each part")
    parser.add_argument("--only", action="append", help="run this part alone; may be given again")
    parser.add_argument(
        "--budget-seconds", type=float, default=560.0, help="no part begins that cannot end within"
    )
    return parser.parse_args()


def _device(kind: str, declared: str | None) -> tuple[Device, dict[str, Any]]:
    """The device that is planned for, the first of the driver's, and what is said of it.

    Raises:
        HardwareError: the driver cannot be asked, and no GPU was named instead.
    """
    if kind == "cpu":
        return parse_gpu_option("l4")[0], {"device": "CPU (planned as if it were an L4)", "driver": None}
    try:
        reading = read_devices()
    except HardwareError as error:
        if declared is None:
            raise
        device = parse_gpu_option(declared)[0]
        return device, {"device": f"{device.name} (declared)", "driver": None, "notes": [error.message]}
    device = reading.devices[0]
    return device, {
        "device": device.name,
        "driver": reading.driver_version,
        "total_bytes": device.total_bytes,
        "free_bytes": device.free_bytes,
        "notes": [*reading.notes, *device.notes],
    }


def _parts(settings: Settings) -> Iterator[tuple[str, Callable[[float], dict[str, Any]]]]:
    """Each part by name; it is given the seconds that are left."""
    yield "embedded-trial", lambda left: embedded_trial(settings, left)
    for pair in PAIRS:
        yield pair.name, lambda left, pair=pair: check_pair(pair, settings, left)
        if pair is PAIRS[0]:
            yield "dummy-trial", lambda left: dummy_trial(PAIRS[0], settings, left)


def _guarded(name: str, part: Callable[[float], dict[str, Any]], left: float) -> dict[str, Any]:
    """The part's figures, or why there are none."""
    start = time.monotonic()
    try:
        if left < _LEAST_SECONDS:
            raise SkippedError("no time was left for it")
        found = part(min(left, _MOST_SECONDS))
        found["status"] = "partly" if found.get("measured", {}).get("errors") else "ok"
    except SkippedError as error:
        found = {"status": "skipped", "reason": str(error)}
    except Exception as error:  # whatever it is, the other parts go on
        found = {"status": "failed", "reason": f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"}
    return {"name": name, "seconds": round(time.monotonic() - start, 1), **found}


def check_pair(pair: Pair, settings: Settings, left: float) -> dict[str, Any]:
    """Planned and measured bytes, step times, and the speedup that follows from them."""
    target, draft, target_folder, draft_folder = models_of(pair, settings)
    _require_room(needed_bytes(target, draft, settings), settings)
    raw = _measure_steps(
        {
            "target_folder": str(target_folder),
            "draft_folder": str(draft_folder),
            "fp8": pair.fp8,
            "device": settings.device_kind,
            "dtype": DTYPE,
            "k": K,
            "context": settings.context,
            "batches": settings.batches,
            "seconds_a_step": settings.seconds_a_step,
        },
        settings.folder / pair.name,
        left,
    )
    found: dict[str, Any] = {"pair": asdict(pair), "measured": raw, "bytes": [], "steps": []}
    for row in raw["batches"]:
        found["bytes"] += bytes_rows(target, draft, settings, raw, row)
        found["steps"] += [
            step_row(target, draft, settings, row["batch"], way, row[way])
            for way in ("eager", "graphs", "static")
            if way in row
        ]
    return found


def _require_room(needed: int, settings: Settings) -> None:
    free = settings.device.free_bytes
    if settings.device_kind == "cuda" and free is not None and needed > free:
        raise SkippedError(f"it may need {needed:,} bytes at batch {max(settings.batches)}; {free:,} are free")


def _measure_steps(request: Mapping[str, Any], folder: Path, left: float) -> dict[str, Any]:
    asked, answered = folder / "request.json", folder / "result.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    reason = ""
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / "gpu_steps.py"), str(asked), str(answered)],
            capture_output=True,
            text=True,
            timeout=left,
            check=False,
        )
        if done.returncode:
            reason = f"exit code {done.returncode}: {done.stderr.strip()[-400:]}"
    except subprocess.TimeoutExpired:
        reason = f"not done after {left:.0f} s"
    if not answered.exists():
        raise RuntimeError(reason or "nothing was measured")
    result: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    if reason:
        result["errors"].append(reason)
    return result


def embedded_trial(settings: Settings, left: float) -> dict[str, Any]:
    """The trial of the embedded pair, as ``specplan trial`` runs it."""
    make_embedded(settings.folder)
    folders = [str(embedded_folder(settings.folder, name)) for name in (TINY_TARGET, TINY_DRAFT)]
    return _trial(
        TrialRequest(
            target_folder=folders[0],
            draft_folder=folders[1],
            device=settings.device_kind,
            dtype="float32",  # there both ways agree token for token
            num_speculative_tokens=K,
            new_tokens=64,
            seconds=settings.trial_seconds,
        ),
        left,
    )


def dummy_trial(pair: Pair, settings: Settings, left: float) -> dict[str, Any]:
    """A trial of real shapes with random weights, under a cap: memory and step times are real."""
    target, draft, target_folder, draft_folder = models_of(pair, settings)
    tokens = 1024 + K + 1
    high = [planned(model, settings, 1, tokens) for model in (target, draft)]
    limit = sum(part.high_bytes for parts in high for part in parts.values())
    return _trial(
        TrialRequest(
            target_folder=str(target_folder),
            draft_folder=str(draft_folder),
            device=settings.device_kind,
            dtype=DTYPE,
            weights="dummy",
            num_speculative_tokens=K,
            new_tokens=64,
            seconds=settings.trial_seconds,
            device_limits_bytes=() if settings.device_kind == "cpu" else (limit,),
        ),
        left,
    )


def _trial(request: TrialRequest, left: float) -> dict[str, Any]:
    loaded: dict[str, Any] = {}

    def watch(event: Event) -> None:
        if event.name == "loaded":
            loaded.update(event.content)

    outcome = run_trial(request, deadlines=Deadlines(whole=left, silence=left), watch=watch)
    return {
        "trial": {
            "loaded": loaded,
            "memory": dict(outcome.memory),
            "stopped_by": outcome.stopped_by,
            "failures": list(outcome.failures),
            "limit_bytes": sum(request.device_limits_bytes) or None,
            **asdict(measure(outcome.runs)),
        }
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HardwareError as error:
        sys.exit(f"no GPU to check: {error.message}; {error.hint}")
