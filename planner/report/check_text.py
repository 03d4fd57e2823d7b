"""What a check found, in words. Every name in it comes from a file or a driver, so each is made safe."""

import re
from typing import Final

from planner.recheck.records import Code, Difference, Level, RankNow, Standing
from planner.report.check_document import Checked
from planner.report.plain import Style, paint, safe_line
from planner.report.tables import table
from planner.report.words import LINE_LENGTH, need_bytes, room, wrapped

_WORDS: Final[dict[Standing, tuple[str, Style]]] = {
    Standing.HOLDS: ("HOLDS", "good"),
    Standing.CANNOT_TELL: ("CANNOT TELL", "unsure"),
    Standing.DOES_NOT_HOLD: ("DOES NOT HOLD", "bad"),
}
_LEVELS: Final[dict[Level, tuple[str, Style | None]]] = {
    Level.BREAKS: ("breaks", "bad"),
    Level.DOUBT: ("doubt", "unsure"),
    Level.NOTE: ("note", None),
}
_WORST_FIRST: Final = (Level.BREAKS, Level.DOUBT, Level.NOTE)
#: A name beyond this length says nothing to people; whatever is longer was made to fill a terminal.
_LONGEST: Final = 300
#: A card's UUID at the end of a subject; its first group tells cards of one machine apart.
_UUID: Final = re.compile(r"\(((?:GPU|MIG)-[0-9a-f]{8})[0-9a-f-]*\)$")
_NUMBER: Final = re.compile(r"\((device \d+)\)$")


def verdict_line(checked: Checked) -> str:
    """``HOLDS: ...``, the whole answer in a line."""
    word, style = _WORDS[checked.standing]
    return f"{paint(word, style)}: {_why(checked)}"


def quiet_line(checked: Checked) -> str:
    """The answer, and of a plan that does not hold the worst reason: who took the memory, where that is it."""
    if checked.standing is Standing.HOLDS:
        return verdict_line(checked)
    word, style = _WORDS[checked.standing]
    worst = min(checked.differences, key=lambda found: _WORST_FIRST.index(found.level))
    text = _holder(checked).removeprefix("; ") or _shown(worst.text)
    short = _UUID.search(worst.subject)
    if short is None and len(f"{word}: {worst.subject}: {text}") > LINE_LENGTH:
        short = _NUMBER.search(worst.subject)
    return f"{paint(word, style)}: {_shown(worst.subject if short is None else short[1])}: {text}"


def check_text(checked: Checked) -> str:
    """The plan, the answer, each rank beside what was planned, and every difference, the worst first."""
    saved = checked.saved
    draft = "" if saved.draft is None else f" with {_shown(saved.draft)}"
    planned = (
        f"Plan     {_shown(saved.target.repo_id)}{draft}, for {_shown(saved.engine)} "
        f"{_shown(saved.engine_version)}, of {_shown(saved.created_at)}"
    )
    blocks = ["\n".join(wrapped(planned, indent=9)), "\n".join(wrapped(verdict_line(checked), indent=2))]
    blocks.append(_ranks(checked.found.ranks))
    if checked.differences:
        lines = [paint("Findings:", "heading")]
        for difference in sorted(checked.differences, key=lambda found: _WORST_FIRST.index(found.level)):
            lines += _difference(difference)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def waiting_text(text: str) -> str:
    """What is waited for."""
    return f"waiting: {_shown(text)}"


def reason_of(checked_differences: tuple[Difference, ...]) -> str:
    """The worst difference in a line; empty where there is none."""
    worst = sorted(checked_differences, key=lambda found: _WORST_FIRST.index(found.level))
    return f"{_shown(worst[0].subject)}: {_shown(worst[0].text)}" if worst else ""


def _why(checked: Checked) -> str:
    if checked.standing is not Standing.HOLDS:
        serious = [found for found in checked.differences if found.level is not Level.NOTE]
        more = f"; and {len(serious) - 1} more" if len(serious) > 1 else ""
        return f"{reason_of(checked.differences)}{_holder(checked)}{more}"
    tightest = checked.found.tightest
    headroom = None if tightest is None else tightest.headroom_bytes
    planned = checked.saved.plan.headroom_bytes
    before = "" if planned is None else f" (planned: {_signed(planned)})"
    now = "no rank could be judged" if headroom is None else f"{_signed(headroom)} of headroom{before}"
    return f"{now} on {len(checked.found.ranks)} rank{'s' if len(checked.found.ranks) != 1 else ''}"


def _holder(checked: Checked) -> str:
    """Who took the memory of the device that the line is about."""
    worst = min(checked.differences, key=lambda found: _WORST_FIRST.index(found.level))
    taken = [
        found
        for found in checked.found.differences
        if found.code is Code.MEMORY_TAKEN and found.subject == worst.subject
    ]
    return f"; {_shown(taken[0].text)}" if taken else ""


def _ranks(ranks: tuple[RankNow, ...]) -> str:
    rows = [
        (
            str(now.rank),
            f"{_shown(now.saved.name, 22)} {_shown(now.saved.uuid or '', 9)}".rstrip(),
            _size(now.saved.free_bytes),
            "not here" if now.device is None else _size(now.device.free_bytes),
            "unknown" if now.headroom_bytes is None else _signed(now.headroom_bytes),
        )
        for now in ranks
    ]
    return table(rows, ["#", "Device", "Free then", "Free now", "Headroom"], "llrrr", fold=1)


def _difference(difference: Difference) -> list[str]:
    word, style = _LEVELS[difference.level]
    shown = (paint(word, style) if style else word) + " " * (8 - len(word))
    return wrapped(f"  {shown}{_shown(difference.subject)}: {_shown(difference.text)}", indent=10)


def _shown(text: str, longest: int = _LONGEST) -> str:
    line = safe_line(text[: 4 * longest])
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else room(size_bytes)


def _signed(headroom_bytes: int) -> str:
    """Room rounded down; what is missing rounded up."""
    return room(headroom_bytes) if headroom_bytes >= 0 else f"-{need_bytes(-headroom_bytes)}"
