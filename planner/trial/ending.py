"""Ends a trial's child with its whole process group, also where the parent itself is told to end."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

from planner.errors import Terminated

#: What asks a process to end and, left alone, ends it at once: a child in a group of its own would not hear of it.
_REQUESTS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows knows no SIGHUP
_POLITE_SECONDS: Final = 3.0


@contextmanager
def raising_on_signals() -> Iterator[None]:
    """Inside the block SIGTERM and SIGHUP raise ``Terminated``, so that clean-up runs; once.

    Only where the process would die of them: one that ignores them (nohup), or has a handler of its own, keeps
    that. Only the main thread can do it; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in _REQUESTS if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> NoReturn:
        for other in taken:  # a second request must not stop the clean-up that the first one began
            signal.signal(other, signal.SIG_IGN)
        raise Terminated(number)

    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def end_group(child: "subprocess.Popen[bytes]") -> None:
    """End a child that leads a group, and whatever is in the group: nothing stays on the device.

    It is asked first; who presses Ctrl-C meanwhile has it killed at once.
    """
    try:
        if _tell(child, signal.SIGTERM):
            with suppress(subprocess.TimeoutExpired):
                child.wait(_POLITE_SECONDS)
    finally:
        _tell(child, signal.SIGKILL)
        child.wait()


def _tell(child: "subprocess.Popen[bytes]", number: int) -> bool:
    """Whether there was anybody in the group to hear it."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return False
    return True
