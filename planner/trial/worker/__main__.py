"""The child's entry point: ``python -m planner.trial.worker PIPE``. Reads its request from standard input.

Whatever goes wrong ends as one ``error`` event with a code; only a child that is killed says nothing.
"""

import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from planner.trial.protocol import Event, ProtocolError, TrialRequest


def main(pipe: int) -> int:
    """Run one trial; 0 where it ended with a result, else 1 after an ``error`` event."""
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as stream:

        def send(event: Event) -> None:
            stream.write(event.to_json() + "\n")

        def fail(code: str, text: str) -> int:
            send(Event(name="error", content={"code": code, "text": text[:2000]}))
            return 1

        try:
            request = TrialRequest.from_json(sys.stdin.read())
        except ProtocolError as error:
            return fail("protocol", str(error))
        try:
            import torch  # noqa: F401, PLC0415 - a missing library must be told, not die
            import transformers  # noqa: F401, PLC0415 - as above

            from planner.trial.worker import measuring  # noqa: F401, PLC0415 - as above
        except (ImportError, OSError) as error:  # OSError: a shared library of torch that is not there
            return fail("missing_import", str(error))
        return _tell(request, send, fail)


def _tell(request: TrialRequest, send: Callable[[Event], None], fail: Callable[[str, str], int]) -> int:
    """Run, and put a name to what stopped it."""
    from planner.trial.worker import faults  # noqa: PLC0415 - needs torch, which is there by now
    from planner.trial.worker.decoding import UncroppableCacheError  # noqa: PLC0415 - as above
    from planner.trial.worker.folder import FolderError  # noqa: PLC0415 - as above
    from planner.trial.worker.placement import NoCudaError  # noqa: PLC0415 - as above

    stage = faults.LOADING

    def watched(event: Event) -> None:
        nonlocal stage
        stage = {"loaded": faults.WARMING, "warmed": faults.RUNNING}.get(event.name, stage)
        send(event)

    try:
        _run(request, watched)
    except BrokenPipeError:
        return 1  # the parent has gone
    except FolderError as error:
        return fail(error.code, str(error))
    except NoCudaError as error:
        return fail("no_cuda", str(error))
    except UncroppableCacheError as error:
        return fail("cache", f"the model's cache ({error}) cannot take rejected tokens back")
    except Exception as error:  # every other end needs its one event too
        return fail(*faults.describe(error, stage))
    return 0


def _run(request: TrialRequest, send: Callable[[Event], None]) -> None:
    """Load, say what was loaded, and measure.

    Raises:
        FolderError, NoCudaError, UncroppableCacheError: as their modules say.
        RuntimeError: out of memory, a lost device, or every prompt failed.
    """
    import torch  # noqa: PLC0415 - there by now
    import transformers  # noqa: PLC0415 - as above

    from planner.trial.worker import loading, placement  # noqa: PLC0415 - as above
    from planner.trial.worker.decoding import CachedModel  # noqa: PLC0415 - as above
    from planner.trial.worker.measuring import Trial  # noqa: PLC0415 - as above

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(request.seed)
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    devices = placement.usable_devices(request.device)
    start = time.monotonic()
    pair = loading.load_pair(request, devices)
    tokenizer = None
    if request.weights == "real":
        tokenizer = loading.load_tokenizer(request.target_folder, [loading.vocabulary_of(model) for model in pair])
    target_bytes, draft_bytes = (loading.model_bytes(model) for model in pair)
    send(
        Event(
            name="loaded",
            content={
                "seconds": time.monotonic() - start,
                "device": placement.name_of(devices),
                "versions": _versions(torch),
                "weights_bytes": {"target": target_bytes, "draft": draft_bytes},
            },
        )
    )
    target, draft = (CachedModel(model=model, device=placement.input_device(model)) for model in pair)
    with torch.inference_mode():
        Trial(target, draft, tokenizer, request, send).run()


def _versions(torch: Any) -> dict[str, str]:
    found = {
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "accelerate")},
    }
    return {**found, "cuda": str(torch.version.cuda)} if torch.version.cuda else found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
