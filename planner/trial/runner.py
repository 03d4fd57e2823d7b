"""The parent of a trial: starts the child, listens to it, and ends it, whatever happens.

The child answers on a pipe of its own; whatever libraries print goes to a log, whose tail is quoted on failure. It
leads a process group, so that nothing of it is left behind.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final

from planner.child_process import (
    SECRET,
    EndlessLineError,
    hand_over,
    how_it_ended,
    lines_of,
    started_child,
    tail_of,
    whole_words,
)
from planner.errors import TrialError
from planner.trial.ending import raising_on_signals
from planner.trial.failures import MEANINGS, hint_of
from planner.trial.protocol import Event, PromptRun, ProtocolError, TrialRequest, is_count

#: Loading and warming come before the measuring that ``seconds`` bounds.
_START_SECONDS: Final = 300.0
_SILENCE_SECONDS: Final = 180.0
_QUOTED_CHARACTERS: Final = 300
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
        started_child(command or worker_command(), log, surroundings) as (child, pipe),
    ):
        try:
            started(child.pid)
            hand_over(child, request.to_json())
            return _listen(child, pipe, limits, watch, log)
        except (ProtocolError, EndlessLineError) as error:
            raise _error("protocol", f"the child spoke out of turn: {error}", log) from error


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not SECRET.search(name)}
    # A thread that spins while it waits starves whatever else runs on the machine, and is starved by it.
    return {"OMP_WAIT_POLICY": "PASSIVE", **kept, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


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
        for line in lines_of(pipe, whole_seconds=limits.whole, silence_seconds=limits.silence):
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
    raise _error("killed", f"the child ended without a result ({how_it_ended(child)})", log)


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
        log=tail_of(log),
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


def _error(code: str, text: str, log: IO[bytes]) -> TrialError:
    message = text.strip().rstrip(".") or "no reason was given"
    tail = tail_of(log)
    if tail and code in {"killed", "failed", "protocol"}:
        message += f"; its log ends: {_quoted(tail)!r}"
    return TrialError(message, subject="trial", hint=hint_of(code), code=f"trial_{code}")


def _quoted(tail: str) -> str:
    return tail if len(tail) <= _QUOTED_CHARACTERS else whole_words(tail[-_QUOTED_CHARACTERS:])
