"""Writes the example pictures of ``docs/images/``, drawn by specplan itself of the plan that the README shows.

Run from the repository's root: ``make pictures``. ``test_example_pictures`` holds them to the code.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from planner import plan
from planner.pictures import draw, svg_text

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs" / "images"
#: The version of matplotlib that the pictures were drawn with: another one places text elsewhere.
PINNED: Final = next(
    line.partition("==")[2].strip()
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line.startswith("matplotlib==")
)


def example_pictures() -> dict[str, str]:
    """File names and SVG texts: Qwen3 32B with Qwen3 0.6B for 16 sequences on two H100."""
    found = plan(
        "Qwen/Qwen3-32B", drafts="Qwen/Qwen3-0.6B", context=8192, batch=16, gpu="h100-80gb:2", tp=2, offline=True
    )
    return {f"example-{picture.name}.svg": svg_text(picture) for picture in draw(found.findings)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as nothing_cached:
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
            os.environ[name] = nothing_cached
        FOLDER.mkdir(parents=True, exist_ok=True)
        for file_name, text in example_pictures().items():
            (FOLDER / file_name).write_text(text, encoding="utf-8")
