"""Every child of a trial that does not behave, through the command: exit code, two lines, one whole document.

Nothing of the child stays, and no secret of its surroundings or its log is told.
"""

import json
import os
import time
from pathlib import Path

import pytest
from injected.child import CHILD_CASES, PASSPHRASE, TOKEN, ChildCase
from test_trial_interrupted import CONFIG, is_gone
from trial_children import use_child
from write_reference import documented_exits

from planner.cli import pair_trial
from planner.cli.main import main
from planner.trial.runner import Deadlines

#: What a user may have set for other programs.
SECRETS = {
    "HF_TOKEN": TOKEN,
    "AWS_SECRET_ACCESS_KEY": PASSPHRASE,
    "MY_PASSWORD": PASSPHRASE,
    "X_API_KEY": PASSPHRASE,
}


@pytest.mark.parametrize("case", CHILD_CASES, ids=lambda case: case.id)
def test_a_child_that_does_not_behave(
    case: ChildCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    for name, layers in (("target", 2), ("draft", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    limits = Deadlines(whole=case.whole_seconds, silence=case.silence_seconds)
    monkeypatch.setattr(pair_trial, "_patience", lambda *_: limits)
    use_child(monkeypatch, "open('child.pid', 'w').write(str(os.getpid()))\n" + case.script)
    place = ["--devices", "cpu", "--offline", "--trial-weights", "dummy", "--json", "report.json"]
    start = time.monotonic()
    exit_code = main(["trial", "./target", "./draft", *place])
    assert time.monotonic() - start < 20
    out, err = capsys.readouterr()
    written = (tmp_path / "report.json").read_text(encoding="ascii")
    document = json.loads(written)
    assert exit_code == case.exit_code == document["exit_code"]
    assert exit_code in documented_exits("trial")
    error = document["error"]
    assert error["code"] == case.code
    assert case.says in error["message"]
    assert err.splitlines()[-2:] == [f"error: {error['subject']}: {error['message']}", f"hint: {error['hint']}"]
    assert out == ""
    assert all(character.isprintable() or character == "\n" for character in err)
    for secret in (TOKEN[3:15], PASSPHRASE, *([case.never_says] if case.never_says else ())):
        assert secret not in err + written
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".report")]
    pid = int((tmp_path / "child.pid").read_text())
    assert is_gone(pid)
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)
