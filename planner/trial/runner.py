"""The parent of a trial: starts the child, listens to it, and ends it, whatever happens.

The child answers on a pipe of its own; whatever libraries print goes to a log, whose tail is quoted on failure. It
leads a process group, so that nothing of it is left behind.
"""

import os
import re
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
from planner.trial.ending import end_group, raising_on_signals
from planner.trial.failures import MEANINGS, hint_of
from planner.trial.protocol import Event, PromptRun, ProtocolError, TrialRequest, is_count

#: Loading and warming come before the measuring that ``seconds`` bounds.
_START_SECONDS: Final = 300.0
_SILENCE_SECONDS: Final = 180.0
_LINE_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 1500
_QUOTED_CHARACTERS: Final = 300
#: Names of what never gets into the child's environment, where its log could tell it: it needs no network.
_SECRET: Final = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_?KEY)(?:_|$)", re.IGNORECASE
)
#: More proposals at once than any draft makes.
_MOST_TOKENS: Final = 1024


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
        KeyboardInterrupt, Terminated: after the child has been ended.
    """
    limits = deadlines or Deadlines.of(request)
    surroundings = {**_environment(), **(environment or {})}
    with (
        raising_on_signals(),
        tempfile.TemporaryFile() as log,
        _child(command or worker_command(), log, surroundings) as (child, pipe),
    ):
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
            end_group(child)
    finally:
        os.close(reading)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
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
    loaded: Mapping[str, Any] | None = None
    try:
        for line in _lines(pipe, limits):
            event = Event.from_json(line.decode("utf-8", "replace"))
            watch(event)
            if event.name == "loaded":
                loaded = event.content
            elif event.name == "progress":
                runs.append(PromptRun.of(event.content["run"]))
            elif event.name == "error":
                raise _error(_code(event), str(event.content.get("text", "")), log)
            elif event.name == "result" and loaded is None:
                raise ProtocolError("a result of models that were never loaded")
            elif event.name == "result" and loaded is not None:
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
    k, spread = content["num_speculative_tokens"], content.get("repeats_spread")
    deepest = max(len(run.accepted_counts) for run in runs) - 1
    doubts = {
        "num_speculative_tokens": not is_count(k) or not max(1, deepest) <= k <= _MOST_TOKENS,
        "repeats_spread": spread is not None and (not isinstance(spread, int | float) or spread < 0),
        "memory": not all(value is None or is_count(value) for value in _mapping(content["memory"]).values()),
    }
    impossible = [name for name, doubtful in doubts.items() if doubtful]
    if impossible:
        raise ProtocolError(f"a result whose {impossible[0]} cannot be")
    return Outcome(
        runs=tuple(runs),
        num_speculative_tokens=k,
        stopped_by=str(content["stopped_by"]),
        failures=_texts(content["failures"]),
        device=str(loaded.get("device", "unknown")),
        versions={name: str(version) for name, version in _mapping(loaded.get("versions", {})).items()},
        memory=_mapping(content["memory"]),
        how=str(content.get("how", "eager")),
        repeats_spread=spread,
        notes=_texts(content.get("notes", ())),
        engine=_mapping(content.get("engine", {})),
        log=_tail(log),
    )


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ProtocolError(f"no object where one belongs: {value!r:.80}")
    return dict(value)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ProtocolError(f"no list of texts where one belongs: {value!r:.80}")
    return tuple(value)


def _code(event: Event) -> str:
    code = event.content.get("code", "failed")
    if not isinstance(code, str) or code not in MEANINGS:
        raise ProtocolError(f"an unknown kind of error: {code!r:.80}")
    return code


def _how_it_ended(child: subprocess.Popen[bytes]) -> str:
    try:
        code = child.wait(5)
    except subprocess.TimeoutExpired:
        return "its pipe is closed, but it runs on"
    if code >= 0:
        # What starts programs for others, a shell or a container, tells a signal so.
        signalled = {128 + number: number.name for number in signal.Signals}
        return f"exit code {code}" + (f", as of {signalled[code]}" if code in signalled else "")
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        name = f"signal {-code}"
    return f"{name}, as the kernel does when memory runs out" if code == -signal.SIGKILL else name


def _error(code: str, text: str, log: IO[bytes]) -> TrialError:
    message = text.strip().rstrip(".") or "no reason was given"
    tail = _tail(log)
    if tail and code in {"killed", "failed", "protocol"}:
        message += f"; its log ends: {_quoted(tail)!r}"
    return TrialError(message, subject="trial", hint=hint_of(code), code=f"trial_{code}")


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _TAIL_BYTES))
    text = log.read().decode("utf-8", "replace")
    return (text if size <= _TAIL_BYTES else _whole_words(text)).strip()


def _quoted(tail: str) -> str:
    return tail if len(tail) <= _QUOTED_CHARACTERS else _whole_words(tail[-_QUOTED_CHARACTERS:])


def _whole_words(text: str) -> str:
    """A text that was cut at its start, without its first word: of half a token nobody knows what it is."""
    _, *words = re.split(r"(?<=\s)", text, maxsplit=1)
    return "".join(words)
