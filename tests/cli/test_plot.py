"""`specplan fit --plot`: files that are whole or not there, and errors before any work."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from planner.cli.main import main

FIT = ["fit", "./llama-8b", "--draft", "./llama-1b", "--gpu", "h100-80gb", "--offline", "--quiet"]


@pytest.fixture(autouse=True)
def here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model_folder: Callable[[str, Mapping[str, Any]], Path],
    llama_8b: Mapping[str, Any],
    llama_1b: Mapping[str, Any],
) -> None:
    """Two models in the current folder, and caches of our own."""
    model_folder("llama-8b", llama_8b)
    model_folder("llama-1b", llama_1b)
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_the_ending_says_what_is_written(name: str, begins: bytes, tmp_path: Path) -> None:
    assert main([*FIT, "--plot", name]) == 0
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("options", "exit_code"), [("--draft-budget 1%", 3), ("--memory-limit 10GiB", 3), ("--memory-limit 22GiB", 4)]
)
def test_the_answer_stays_the_same(
    options: str, exit_code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        [*FIT, *options.split(), "--draft-budget", "30%"] if "memory" in options else [*FIT, *options.split()]
    )
    assert main(arguments) == exit_code
    before = capsys.readouterr()
    assert main([*arguments, "--plot", "a.svg"]) == exit_code
    assert capsys.readouterr() == before
    assert (tmp_path / "a.svg").stat().st_size > 10_000


def test_pictures_of_the_target_alone_say_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["fit", "./llama-8b", "--draft", "none", "--gpu", "l4", "--offline", "--plot", "a.svg"]) == 0
    assert "note: no pictures of speed and of KV tokens: no draft was asked for\n" in capsys.readouterr().err
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert 'id="memory"' in text
    assert 'id="fit-map"' in text
    assert 'id="speedup"' not in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.gif", "no picture is written as .gif"),
        ("picture", "'picture' has no ending"),
        ("-", "'-' has no ending"),
        ("nowhere/a.png", "there is no such folder"),
    ],
)
def test_a_wrong_place_is_told_before_any_work(
    name: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.service.fitting.plan_fit", lambda *_, **__: pytest.fail("work was done"))
    assert main([*FIT, "--plot", name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "hint: " in err


def test_without_matplotlib_the_hint_is_what_to_install(clean_environment: Mapping[str, str]) -> None:
    code = "import sys; sys.modules['matplotlib'] = None; from planner.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *FIT, "--plot", "a.png"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**clean_environment, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--plot: pictures need matplotlib" in done.stderr
    assert "hint: pip install 'specplan[plot]'" in done.stderr


def test_a_full_disk_is_told_once_and_leaves_the_old_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """/dev/full takes nothing; a link to it stands where the picture should."""
    (tmp_path / "a.png").symlink_to("/dev/full")
    assert main([*FIT, "--plot", "a.png", "--json", "-"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["message"] == "the picture cannot be written: No space left on device"
    assert err.count("error: ") == 1
    assert (tmp_path / "a.png").is_symlink()


def test_a_picture_that_cannot_be_drawn_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "a.svg"
    old.write_text("old", encoding="utf-8")

    def torn(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.pictures.files.svg_text", torn)
    monkeypatch.setattr("planner.pictures.files._svg", torn)
    assert main([*FIT, "--plot", "a.svg"]) == 130
    assert old.read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a.svg"]
