"""The console script. Ctrl-C ends it without a traceback also while it still loads, or already ends."""

import _thread
import signal
import sys
import time
from typing import NoReturn

_INTERRUPTED = 130  # planner.service.exit_codes says so, too; nothing is imported before Ctrl-C is seen to

_MAIN = _thread.get_ident()


def _again_when_swallowed(swallowed: "sys.UnraisableHookArgs") -> None:
    """Ctrl-C that struck where Python can only print it (in a callback of its own) strikes once more."""
    if isinstance(swallowed.exc_value, KeyboardInterrupt):
        _thread.start_new_thread(_again, ())
    else:
        sys.__unraisablehook__(swallowed)


def _again() -> None:
    time.sleep(0.02)  # until the callback is left
    signal.pthread_kill(_MAIN, signal.SIGINT)


def run() -> NoReturn:
    """Run the command line of this process."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where Ctrl-C is ignored

    def while_idle() -> None:
        if usual:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # there is nothing to tell and nothing to clean up

    while_idle()
    sys.unraisablehook = _again_when_swallowed
    from planner.cli.main import main  # noqa: PLC0415 - what takes time has to come after the line before

    try:
        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
        while_idle()
    except KeyboardInterrupt:  # a second one, while the first was told
        code = _INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    run()
