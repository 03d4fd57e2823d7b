"""The example pictures of the guide are what the code draws."""

from pathlib import Path

import matplotlib as mpl
import pytest
from write_example_pictures import FOLDER, PINNED, example_pictures


def test_the_examples_are_up_to_date(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if mpl.__version__ != PINNED:
        pytest.skip(f"the examples are drawn by matplotlib {PINNED}; this is {mpl.__version__}")
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    drawn = example_pictures()
    assert {path.name for path in FOLDER.glob("example-*.svg")} == set(drawn)
    for name, text in drawn.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, "run: make pictures"
