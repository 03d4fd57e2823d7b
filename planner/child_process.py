"""A child process that answers on a pipe of its own: started, listened to, and ended with all that it started.

Whatever its libraries print goes to a log. It leads a process group, so that nothing of it is left behind. What
parent and child say to each other is not known here.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Final

from planner.trial.ending import end_group

_LINE_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 1500
#: Names of what never gets into a child's environment, where its log could tell it.
SECRET: Final = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_?KEY)(?:_|$)", re.IGNORECASE
)


class EndlessLineError(Exception):
    """The child wrote more without a line's end than any message has."""


@contextmanager
def started_child(
    command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A started child and the reading end of its pipe; its whole group is dead afterwards.

    The number of the pipe's other end is appended to ``command``.
    """
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


def hand_over(child: subprocess.Popen[bytes], text: str) -> None:
    """Write the one thing that the child reads from stdin; a child that died at once tells by its silence."""
    if child.stdin is None:  # pragma: no cover - it was asked for
        return
    try:
        child.stdin.write(text.encode())
        child.stdin.close()
    except BrokenPipeError:
        return


def lines_of(
    pipe: int, *, whole_seconds: float, silence_seconds: float, line_bytes: int = _LINE_BYTES
) -> Iterator[bytes]:
    """Whole lines as they come.

    Raises:
        TimeoutError: "deadline" after ``whole_seconds``, "silent" after ``silence_seconds`` without a word.
        EndlessLineError: a line of more than ``line_bytes``.
    """
    end = time.monotonic() + whole_seconds
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("deadline")
            if not selector.select(min(left, silence_seconds)):
                raise TimeoutError("deadline" if silence_seconds >= left else "silent")
            read = os.read(pipe, 1 << 16)
            if not read:
                return
            *whole, buffer = (buffer + read).split(b"\n")
            yield from whole
            if len(buffer) > line_bytes:
                raise EndlessLineError(f"a line of more than {line_bytes:,} bytes")


def how_it_ended(child: subprocess.Popen[bytes]) -> str:
    """Its exit code or signal, in words."""
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


def tail_of(log: IO[bytes]) -> str:
    """The end of what it printed."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _TAIL_BYTES))
    text = log.read().decode("utf-8", "replace")
    return (text if size <= _TAIL_BYTES else whole_words(text)).strip()


def whole_words(text: str) -> str:
    """A text that was cut at its start, without its first word: of half a token nobody knows what it is."""
    _, *words = re.split(r"(?<=\s)", text, maxsplit=1)
    return "".join(words)
