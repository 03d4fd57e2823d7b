"""The exit codes, what each means, and which answer or error gives which: a promise to scripts."""

from typing import Final

from model_catalog.errors import ModelError, NetworkError, SpecplanError, UsageError
from planner.errors import HardwareError, TrialError
from planner.verdict import Answer

EXIT_OK: Final = 0
EXIT_BUG: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO: Final = 3
EXIT_UNSURE: Final = 4
EXIT_MODEL: Final = 5
EXIT_HARDWARE: Final = 6
EXIT_TRIAL: Final = 7
EXIT_NETWORK: Final = 8
EXIT_HUNG_UP: Final = 129  # 128 + SIGHUP, as a shell reports it; so are the next ones
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
EXIT_TERMINATED: Final = 143

EXIT_OF_ERROR: Final[tuple[tuple[type[SpecplanError], int], ...]] = (
    (UsageError, EXIT_USAGE),
    (ModelError, EXIT_MODEL),
    (HardwareError, EXIT_HARDWARE),
    (TrialError, EXIT_TRIAL),
    (NetworkError, EXIT_NETWORK),
)
EXIT_OF_ANSWER: Final = {
    Answer.FITS: EXIT_OK,
    Answer.TIGHT: EXIT_UNSURE,
    Answer.UNKNOWN: EXIT_UNSURE,
    Answer.DOES_NOT_FIT: EXIT_NO,
}
#: What an exit code means whichever command gives it.
MEANING_OF_EXIT: Final = {
    EXIT_OK: "yes",
    EXIT_BUG: "a bug of specplan",
    EXIT_USAGE: "the request itself is wrong, or the answer cannot be written where it was asked for",
    EXIT_NO: "no",
    EXIT_UNSURE: "it cannot be told: tight, or something that it depends on is not known",
    EXIT_MODEL: "the model cannot be read: missing, gated or malformed",
    EXIT_HARDWARE: "the hardware cannot be read",
    EXIT_TRIAL: "a trial failed, or was worse than the plan",
    EXIT_NETWORK: "the Hub cannot be asked, and nothing is cached",
    EXIT_HUNG_UP: "the terminal was closed (SIGHUP)",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_BROKEN_PIPE: "whoever read the answer left before its end",
    EXIT_TERMINATED: "told to end (SIGTERM)",
}
#: Exit codes that every command may give.
EXITS_OF_ALL: Final = (EXIT_BUG, EXIT_USAGE, EXIT_HUNG_UP, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE, EXIT_TERMINATED)


def exit_code_of(error: SpecplanError) -> int:
    """The exit code of its branch; of no branch it is our bug."""
    return next((code for branch, code in EXIT_OF_ERROR if isinstance(error, branch)), EXIT_BUG)
