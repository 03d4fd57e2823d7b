"""The parent of a trial: starts the child, listens to it, and ends it, whatever happens.

The child answers on a pipe of its own; whatever libraries print goes to a log, whose tail is quoted on failure. It
leads a process group, so that nothing of it is left behind.
"""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Final

from planner.errors import TrialError
from planner.trial.failures import hint_of
from planner.trial.protocol import Event, PromptRun, ProtocolError, TrialRequest

#: Loading and warming come before the measuring that ``seconds`` bounds.
_START_SECONDS: Final = 300.0
_SILENCE_SECONDS: Final = 180.0
_LINE_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 1500
#: Never in the child's environment: it needs no network.
_SECRETS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a child may take for the whole, and how long it may be silent, in seconds."""

    whole: float
    silence: float = _SILENCE_SECONDS

    @classmethod
    def of(cls, request: TrialRequest) -> "Deadlines":
        """Generous ones, for this request."""
        return cls(whole=_START_SECONDS + 3 * request.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a trial that ended with a result said."""

    runs: tuple[PromptRun, ...]
    num_speculative_tokens: int
    stopped_by: str
    failures: tuple[str, ...]
    device: str
    versions: Mapping[str, str]
    memory: Mapping[str, int | None]
    how: str = "eager"  #: how forwards were launched: "eager" or "graphs"
    repeats_spread: float | None = None  #: of the speedup between the halves of the runs, relative
    notes: tuple[str, ...] = ()
    engine: Mapping[str, Any] = field(default_factory=dict)  #: what a serving engine said of itself at start
    log: str = field(default="", repr=False)


def worker_command() -> list[str]:
    """How the built-in child is started; the number of its pipe is appended."""
    return [sys.executable, "-m", "planner.trial.worker"]


def run_trial(
    request: TrialRequest,
    *,
    deadlines: Deadlines | None = None,
    command: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[Event], None] = lambda _: None,
    started: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Run one trial to its end. ``watch`` sees every event as it comes, ``started`` the child's process id.

    ``environment`` is set for the child on top of ours.

    Raises:
        TrialError: its code is ``trial_`` and what the child said, or what became of it: ``killed``, ``silent``,
            ``deadline`` or ``protocol``. ``planner.trial.failures`` lists them.
        KeyboardInterrupt: after the child has been ended.
    """
    limits = deadlines or Deadlines.of(request)
    surroundings = {**_environment(), **(environment or {})}
    with tempfile.TemporaryFile() as log, _child(command or worker_command(), log, surroundings) as (child, pipe):
        try:
            started(child.pid)
            _hand_over(child, request)
            return _listen(child, pipe, limits, watch, log)
        except ProtocolError as error:
            raise _error("protocol", f"the child spoke out of turn: {error}", log) from error


@contextmanager
def _child(
    command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A started child and the reading end of its pipe; its whole group is dead afterwards."""
    reading, writing = os.pipe()
    try:
        try:
            child = subprocess.Popen(
                [*command, str(writing)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writing],
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            yield child, reading
        finally:
            _end(child)
    finally:
        os.close(reading)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    # A thread that spins while it waits starves whatever else runs on the machine, and is starved by it.
    return {"OMP_WAIT_POLICY": "PASSIVE", **kept, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def _hand_over(child: subprocess.Popen[bytes], request: TrialRequest) -> None:
    if child.stdin is None:  # pragma: no cover - it was asked for
        return
    try:
        child.stdin.write(request.to_json().encode())
        child.stdin.close()
    except BrokenPipeError:
        return  # it died at once; its silence on the pipe tells


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child's group: nothing stays on the device."""
    for sign, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(child.pid, sign)
        except ProcessLookupError:
            break
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    child.wait()


def _lines(pipe: int, limits: Deadlines) -> Iterator[bytes]:
    """Whole lines as they come.

    Raises:
        TimeoutError: "deadline" or "silent".
        ProtocolError: a line without end.
    """
    end = time.monotonic() + limits.whole
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("deadline")
            if not selector.select(min(left, limits.silence)):
                raise TimeoutError("deadline" if limits.silence >= left else "silent")
            read = os.read(pipe, 1 << 16)
            if not read:
                return
            *whole, buffer = (buffer + read).split(b"\n")
            yield from whole
            if len(buffer) > _LINE_BYTES:
                raise ProtocolError(f"a line of more than {_LINE_BYTES:,} bytes")


def _listen(
    child: subprocess.Popen[bytes],
    pipe: int,
    limits: Deadlines,
    watch: Callable[[Event], None],
    log: IO[bytes],
) -> Outcome:
    runs: list[PromptRun] = []
    loaded: Mapping[str, Any] = {}
    try:
        for line in _lines(pipe, limits):
            event = Event.from_json(line.decode("utf-8", "replace"))
            watch(event)
            if event.name == "loaded":
                loaded = event.content
            elif event.name == "progress":
                runs.append(PromptRun.of(event.content["run"]))
            elif event.name == "error":
                raise _error(str(event.content.get("code", "failed")), str(event.content.get("text", "")), log)
            elif event.name == "result":
                return _outcome(event.content, runs, loaded, log)
    except KeyError as error:
        raise ProtocolError(f"a field is missing: {error}") from error
    except TimeoutError as error:
        code = str(error)
        text = (
            f"said nothing for {limits.silence:.0f} s"
            if code == "silent"
            else f"not done after {limits.whole:.0f} s"
        )
        raise _error(code, text, log) from error
    raise _error("killed", f"the child ended without a result ({_how_it_ended(child)})", log)


def _outcome(
    content: Mapping[str, Any], runs: Sequence[PromptRun], loaded: Mapping[str, Any], log: IO[bytes]
) -> Outcome:
    if not runs:
        raise ProtocolError("a result without any prompt's run")
    return Outcome(
        runs=tuple(runs),
        num_speculative_tokens=int(content["num_speculative_tokens"]),
        stopped_by=str(content["stopped_by"]),
        failures=tuple(content["failures"]),
        device=str(loaded.get("device", "unknown")),
        versions=dict(loaded.get("versions", {})),
        memory=dict(content["memory"]),
        how=str(content.get("how", "eager")),
        repeats_spread=content.get("repeats_spread"),
        notes=tuple(content.get("notes", ())),
        engine=dict(content.get("engine", {})),
        log=_tail(log),
    )


def _how_it_ended(child: subprocess.Popen[bytes]) -> str:
    try:
        code = child.wait(5)
    except subprocess.TimeoutExpired:
        return "its pipe is closed, but it runs on"
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, as the kernel does when memory runs out" if code == -signal.SIGKILL else name


def _error(code: str, text: str, log: IO[bytes]) -> TrialError:
    message = text.strip().rstrip(".") or "no reason was given"
    tail = _tail(log)
    if tail and code in {"killed", "failed", "protocol"}:
        message += f"; its log ends: {tail[-300:]!r}"
    return TrialError(message, subject="trial", hint=hint_of(code), code=f"trial_{code}")


def _tail(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _TAIL_BYTES))
    return log.read().decode("utf-8", "replace").strip()
