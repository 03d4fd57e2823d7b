"""What people see in a real terminal: colours, narrow panes, progress that leaves nothing, TAB in bash.

The screens are kept in tests/golden/terminal_*.txt, colours as escape sequences (``less -R`` shows them).
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_server import Fault, HubRepo, HubServer
from made_repos import sharded_repo
from real_terminal import Terminal

from planner.report.plain import without_color

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux: no terminal to test in")

FIT = "specplan fit Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B --gpu l4 --batch 4 --context 4096 --offline"
DRAFTS = "specplan drafts Qwen/Qwen3-32B --gpu h100-80gb:2 --offline"
Golden = Callable[[str, str], None]


def test_a_plan_on_eighty_columns_in_colour(tmp_path: Path, golden: Golden) -> None:
    with Terminal(tmp_path, 80) as terminal:
        colored = terminal.run(FIT, colored=True)
        plain = terminal.run(f"NO_COLOR=1 {FIT}", colored=True)
        never = terminal.run(f"{FIT} --color never", colored=True)
    assert "\x1b[" in colored
    # Colour says nothing by itself: without it every word is still there.
    assert without_color(colored) == plain == never
    golden("terminal_fit.txt", f"$ {FIT}\n{colored}")


def test_a_plan_on_sixty_columns(tmp_path: Path, golden: Golden) -> None:
    with Terminal(tmp_path, 60) as terminal:
        shown = terminal.run(DRAFTS)
    golden("terminal_narrow.txt", f"$ {DRAFTS}\n{shown}")
    # What is wider than the pane is broken anywhere: then a line begins in the middle of a word.
    assert [line for line in shown.splitlines() if len(line) >= 60] == []


def test_an_error_is_broken_at_blanks(tmp_path: Path) -> None:
    with Terminal(tmp_path, 60) as terminal:
        shown = terminal.run("specplan trial x")
        piped = terminal.run("specplan trial x 2>&1 | wc -l")
    assert shown == (
        "error: specplan trial: missing argument 'DRAFT'\n"
        "hint: for example: specplan trial specplan/tiny-target\n"
        "  specplan/tiny-draft --devices cpu; `specplan trial --help`\n"
        "  lists what it takes\n"
    )
    assert piped.strip() == "2"


def test_a_wide_pane_is_not_filled(tmp_path: Path) -> None:
    with Terminal(tmp_path, 200) as terminal:
        shown = terminal.run(DRAFTS)
    assert max(map(len, shown.splitlines())) <= 80


def test_a_pipe_gets_neither_colour_nor_progress(tmp_path: Path) -> None:
    with Terminal(tmp_path, 80) as terminal:
        shown = terminal.run(f"{FIT} 2>&1 | cat -v", colored=True)
        forced = terminal.run(f"{FIT} --color always | cat -v | grep -c '^^.1;3.mFITS\\|\\[1;3.mFITS'")
    assert "^[" not in shown
    assert "FITS: " in shown
    assert forced.strip() == "1"


def test_progress_is_shown_and_leaves_nothing(tmp_path: Path) -> None:
    with HubServer() as server:
        server.add(HubRepo(repo_id="org/tiny", files=sharded_repo(shards=3)))
        server.fail("/revision/", Fault(delay_seconds=1.6), times=1)
        surroundings = {"HF_ENDPOINT": server.url, "HF_HUB_OFFLINE": ""}
        with Terminal(tmp_path, 80, surroundings) as terminal:
            terminal.begin("specplan models --add org/tiny")
            terminal.wait_for(lambda screen: "asking the Hub about org/tiny (1 s)" in screen)
            shown = terminal.finished()
    assert shown.startswith("Added org/tiny: ")
    assert shown.count("\n") <= 3
    assert "asking" not in shown


def test_tab_completes_in_bash(tmp_path: Path) -> None:
    with Terminal(tmp_path, 80) as terminal:
        terminal.run('eval "$(specplan completion bash)"')
        for typed, completed in (
            ("specplan dr", "specplan drafts "),
            ("specplan fit Qwen/Qwen3-32B --draft ngr", "--draft ngram "),
            ("specplan fit x --gpu rtx-4090-l", "--gpu rtx-4090-laptop-16gb "),
            ("specplan fit x --draft-b", "--draft-budget "),
        ):
            terminal.keys(typed)
            terminal.keys("Tab")
            terminal.wait_for(lambda screen, wanted=completed: wanted.rstrip() in screen)  # type: ignore[misc]
            terminal.keys("C-u", "Enter")
        terminal.keys("specplan fit x --task ")
        terminal.keys("Tab")
        terminal.wait_for(lambda screen: screen.rstrip().endswith("--task"))
        terminal.keys("Tab")
        shown = terminal.wait_for(lambda screen: "summarise" in screen)
    assert [word for word in ("chat", "code", "translate", "math", "rag", "mixed") if word not in shown] == []
