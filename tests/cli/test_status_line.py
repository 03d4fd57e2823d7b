"""The line that says what takes so long: on a terminal, in a log, nested, wiped. The clock is ours."""

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from made_repos import sharded_repo

from planner.cli.output import Output
from planner.cli.status_line import STATUS_LINE, StatusLine
from planner.service.model_source import find_snapshot
from planner.service.remarks import CollectedRemarks, Step, UnseenStep

WIPE = "\r\x1b[2K"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    # Its own redrawing would interfere: the tests call ``draw``.
    monkeypatch.setattr(StatusLine, "_redraw", lambda *_: None)
    return Terminal()


def shown(stream: io.StringIO) -> str:
    """What a terminal would show: what comes after the last wiping."""
    return stream.getvalue().rpartition(WIPE)[2]


def test_what_is_quick_shows_nothing(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    with line.step("asking"):
        clock.now += 0.5
        line.draw()
    assert terminal.getvalue() == ""


def test_a_step_is_told_with_its_time_and_wiped(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    with line.step("asking the Hub"):
        clock.now += 3
        line.draw()
        assert shown(terminal) == "asking the Hub (3 s)"
    assert terminal.getvalue() == f"{WIPE}asking the Hub (3 s){WIPE}"


def test_a_count_tells_the_time_that_is_left(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    with line.step("reading the drafts") as step, line.step("asking the Hub"):
        step.count(3, 12)
        clock.now += 6
        line.draw()
        # 3 in 6 seconds: 9 more in 18.
        assert shown(terminal) == "reading the drafts, 3 of 12: asking the Hub (6 s, about 18 s left)"
        step.count(12, 12)
        line.draw()
        assert shown(terminal) == "reading the drafts, 12 of 12: asking the Hub (6 s)"


def test_a_deadline_is_told_as_one(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    with line.step("trial"), line.step("loading") as step:
        clock.now += 5
        step.say("measuring")
        step.at_most(60)
        clock.now += 20
        line.draw()
        assert shown(terminal) == "trial: measuring (25 s, at most 40 s left)"
        step.say("something else")
        line.draw()
        assert shown(terminal) == "trial: something else (25 s)"


def test_no_line_is_longer_than_the_terminal(
    terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    line = StatusLine(terminal, clock)
    with line.step("a" * 100 + "\x1b[31m\n"):
        clock.now += 1
        line.draw()
        assert shown(terminal) == "a" * 39


def test_a_log_gets_a_plain_line_seldom(clock: Clock) -> None:
    log = io.StringIO()
    line = StatusLine(log, clock)
    with line.step("loading"):
        for _ in range(200):
            clock.now += 1
            line.draw()
    lines = log.getvalue().splitlines()
    assert lines == ["progress: loading (30 s)", "progress: loading (90 s)", "progress: loading (150 s)"]


def test_a_dumb_terminal_is_a_log(terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    line = StatusLine(terminal, clock)
    with line.step("loading"):
        clock.now += 31
        line.draw()
    assert terminal.getvalue() == "progress: loading (31 s)\n"


def test_notes_stand_above_the_line(terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(STATUS_LINE, "_clock", clock)
    output = Output()
    with output.step("asking"):
        clock.now += 2
        STATUS_LINE.draw()
        output.note("n", "beside")
        STATUS_LINE.draw()
    assert terminal.getvalue() == f"{WIPE}asking (2 s){WIPE}note: beside\n{WIPE}asking (2 s){WIPE}"


@pytest.mark.parametrize("output", [Output(progress=False), Output(quiet=True)])
def test_nobody_who_does_not_want_it_sees_it(
    output: Output, terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(STATUS_LINE, "_clock", clock)
    with output.step("asking") as step:
        step.count(1, 2)
        clock.now += 5
        STATUS_LINE.draw()
    assert terminal.getvalue() == ""


def test_an_error_leaves_no_line(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    with pytest.raises(KeyboardInterrupt), line.step("trial"), line.step("loading"):
        clock.now += 2
        line.draw()
        raise KeyboardInterrupt
    assert shown(terminal) == ""


def test_it_redraws_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("planner.cli.status_line._FIRST_SECONDS", 0.01)
    monkeypatch.setattr("planner.cli.status_line._REDRAW_SECONDS", 0.01)
    drawn = threading.Event()

    class Watched(Terminal):
        def write(self, text: str) -> int:
            if self.getvalue().count("asking") >= 2:
                drawn.set()
            return super().write(text)

    stream = Watched()
    with StatusLine(stream).step("asking"):
        assert drawn.wait(20)
    assert shown(stream) == ""


class Recorder(CollectedRemarks):
    """Keeps what is said of the steps."""

    told: ClassVar[list[str]] = []

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        recorded = self.told

        class Recorded(UnseenStep):
            def say(self, text: str) -> None:
                recorded.append(text)

            def count(self, done: int, total: int) -> None:
                recorded.append(f"{done} of {total}")

        recorded.append(text)
        yield Recorded()


def test_reading_a_folder_counts_its_weight_headers(tmp_path: Path) -> None:
    for name, content in sharded_repo(shards=3).items():
        assert isinstance(content, bytes)
        (tmp_path / name).write_bytes(content)
    find_snapshot(str(tmp_path), offline=True, output=Recorder())
    first, *told = Recorder.told
    assert first.startswith("reading ")
    assert told[0].startswith("reading the weight headers of ")
    counts = [text for text in told if " of 3" in text]
    assert max(counts) == "3 of 3"
    assert len(counts) >= 3
