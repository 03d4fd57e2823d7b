"""The child's entry point: ``python -m planner.trial.worker PIPE``. Reads its request from standard input."""

import os
import platform
import sys
import time
from importlib.metadata import version

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
            import torch  # noqa: PLC0415 - a missing library must be told, not die
            import transformers  # noqa: PLC0415 - as above

            from planner.trial.worker.decoding import CachedModel, UncroppableCacheError  # noqa: PLC0415
            from planner.trial.worker.loading import FolderError, load_model, load_tokenizer  # noqa: PLC0415
            from planner.trial.worker.measuring import Trial  # noqa: PLC0415
        except ImportError as error:
            return fail("missing_import", str(error))
        transformers.utils.logging.disable_progress_bar()
        torch.manual_seed(request.seed)
        if request.threads is not None:
            torch.set_num_threads(request.threads)
        stage = "load"
        try:
            start = time.monotonic()
            models = [
                CachedModel(model=load_model(folder, request.device, request.dtype), device=request.device)
                for folder in (request.target_folder, request.draft_folder)
            ]
            tokenizer = load_tokenizer(request.target_folder)
            send(
                Event(
                    name="loaded",
                    content={
                        "seconds": time.monotonic() - start,
                        "device": _device_name(request.device),
                        "versions": {
                            "python": platform.python_version(),
                            **{name: version(name) for name in ("torch", "transformers", "accelerate")},
                        },
                    },
                )
            )
            stage = "run"
            with torch.inference_mode():
                Trial(models[0], models[1], tokenizer, request, send).run()
        except FolderError as error:
            return fail("weights", str(error))
        except UncroppableCacheError as error:
            return fail("cache", f"the model's cache ({error}) cannot take rejected tokens back")
        except (torch.OutOfMemoryError, MemoryError) as error:
            return fail("out_of_memory", f"while {'loading' if stage == 'load' else 'running'}: {error}")
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            return fail("failed", f"{type(error).__name__}: {error}")
    return 0


def _device_name(device: str) -> str:
    import torch  # noqa: PLC0415 - imported by now

    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
