"""`specplan trial --download`: real files over the real client from a stand-in Hub into a real trial."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubRepo, HubServer

from planner.trial.embedded import TINY_DRAFT, TINY_TARGET, embedded_folder, make_embedded

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "accelerate")),
    reason="the trial's libraries are not installed: pip install 'specplan[trial]'",
)
ROOT = Path(__file__).resolve().parents[2]


def files_of(folder: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "made"}
    return {**found, "pytorch_model.bin": b"never fetched", "modeling_odd.py": b"raise SystemExit"}


def trial(home: Path, server: HubServer, *options: str) -> tuple[int, Mapping[str, Any], str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    quick = ["--trial-seconds", "6", "--new-tokens", "40", "--num-speculative-tokens", "4"]
    short = ["--devices", "cpu", "--json", "-", *quick]
    done = subprocess.run(
        [sys.executable, "-m", "planner.cli.main", "trial", "org/big", "org/small", *short, *options],
        env={**kept, "PYTHONPATH": str(ROOT), "HOME": str(home), "HF_ENDPOINT": server.url, "LC_ALL": "C.UTF-8"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_weights_are_fetched_when_asked_for_and_then_tried(tmp_path: Path, server: HubServer) -> None:
    make_embedded(tmp_path / "made")
    for repo_id, name in (("org/big", TINY_TARGET), ("org/small", TINY_DRAFT)):
        server.add(HubRepo(repo_id=repo_id, files=files_of(embedded_folder(tmp_path / "made", name))))
    home = tmp_path / "home"
    home.mkdir()
    exit_code, without, _ = trial(home, server)
    assert exit_code == 4
    assert without["trial"]["weights"] == "dummy"
    exit_code, found, told = trial(home, server, "--download")
    assert exit_code in {0, 4}, told  # on a busy machine so short a trial may not be sure
    assert found["trial"]["weights"] == "real"
    assert found["trial"]["acceptance_rate"] > 0.5
    assert found["trial"]["target_revision"] is not None
    assert "fetching org/big, 0.06 GiB" in told
    fetched = {path.name for path in home.rglob("snapshots/*/*")}
    assert "model.safetensors" in fetched
    assert not fetched & {"pytorch_model.bin", "modeling_odd.py"}
