"""`specplan fit` with trials, from command line to report; the child is scripted, so no torch is needed."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from trial_children import LOADED, behaving, use_child

from planner.cli.main import main
from planner.report.document import Report, read_report

Folder = Callable[[str, Mapping[str, Any]], Path]
ON_CPU = ["--devices", "cpu", "--engine", "transformers", "--context", "512", "--offline"]


@pytest.fixture(autouse=True)
def here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model_folder: Folder,
    llama_8b: Mapping[str, Any],
    llama_1b: Mapping[str, Any],
) -> None:
    """Two small models with weight files of their names in the current folder, and places of our own."""
    small: dict[str, Any] = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 96, "num_hidden_layers": 4}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320, "torch_dtype": "float32"}
    for name, base in (("target", llama_8b), ("draft", llama_1b), ("other", llama_1b)):
        model_folder(name, {**base, **small, "num_hidden_layers": 4 if name == "target" else 1})
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))


def fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Report, str]:
    exit_code = main(["fit", "./target", *ON_CPU, *arguments, "--json", "report.json"])
    printed = capsys.readouterr()
    report = read_report(json.loads(Path("report.json").read_text(encoding="utf-8")))
    assert isinstance(report, Report)
    assert report.exit_code == exit_code
    return exit_code, report, printed.out + printed.err


def test_a_pair_that_helps_is_confirmed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_child(monkeypatch, behaving(1.5))
    exit_code, report, shown = fit(capsys, "--draft", "./draft", "--trial", "--trial-weights", "dummy")
    assert exit_code == 0
    trial = report.candidates[0].trial
    assert trial is not None
    # Weights were random: no speedup, no acceptance, but step times: 1.8 s / 18 steps and 0.2 s / 20 draft steps.
    assert (trial.weights, trial.speedup, trial.acceptance_rate) == ("dummy", None, None)
    assert trial.t_target_seconds == pytest.approx(0.1)
    assert trial.t_draft_seconds == pytest.approx(0.01)
    assert "STEP TIMES ONLY" in shown


class TestRealWeights:
    """The embedded pairs, made by a stand-in for their maker: the files are never opened by a scripted child."""

    @pytest.fixture(autouse=True)
    def made(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        folder = tmp_path / "weights"
        folder.mkdir()
        monkeypatch.setattr("planner.cli.trial_weights.make_embedded", lambda root: None)
        monkeypatch.setattr("planner.cli.trial_weights.embedded_folder", lambda root, name: folder)

    def run(
        self, capsys: pytest.CaptureFixture[str], *arguments: str
    ) -> tuple[int, Mapping[str | None, Any], Report, str]:
        exit_code = main(["fit", "specplan/tiny-target", *ON_CPU, *arguments, "--json", "report.json"])
        printed = capsys.readouterr()
        report = read_report(json.loads(Path("report.json").read_text(encoding="utf-8")))
        assert isinstance(report, Report)
        assert report.exit_code == exit_code
        return exit_code, {found.repo_id: found for found in report.candidates}, report, printed.out + printed.err

    def test_the_measured_speedup_is_told_and_becomes_the_prediction(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_child(monkeypatch, behaving(1.5))
        exit_code, found, report, shown = self.run(capsys, "--draft", "specplan/tiny-draft", "--trial")
        assert exit_code == 0
        draft = found["specplan/tiny-draft"]
        assert draft.trial.answer == "helps"
        assert draft.trial.outcome == "confirms"
        assert draft.trial.speedup.value == pytest.approx(1.5)
        assert draft.trial.acceptance_rate == pytest.approx(8 / 15)
        assert draft.num_speculative_tokens == 2  # the k that was measured
        assert draft.prediction.speedup.low == pytest.approx(1.5)
        assert report.recommendation is not None
        assert report.recommendation.num_speculative_tokens == 2
        assert "HELPS: 1.50 (1.50 – 1.50) ×" in shown
        assert "measured" in report.worthwhile.reasons[0].code if report.worthwhile else False

    def test_a_draft_that_hurts_is_turned_down_and_stops_a_pipeline(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_child(monkeypatch, behaving(0.6))
        exit_code, found, report, shown = self.run(capsys, "--draft", "specplan/tiny-draft-bad", "--trial")
        assert exit_code == 3
        bad = found["specplan/tiny-draft-bad"]
        assert not bad.accepted
        assert [reason.code for reason in bad.reasons] == ["slower"]
        assert "measured here" in bad.reasons[0].text
        assert report.recommendation is None
        assert "HURTS: 0.60" in shown

    def test_the_ranking_follows_what_was_measured(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second draft is the faster one: the script tells them apart by the folder it is given."""
        slow, fast = behaving(1.1), behaving(1.7)
        script = f"exec({fast!r} if 'bad' in request['draft_folder'] else {slow!r})\n"
        monkeypatch.setattr(
            "planner.cli.trial_weights.embedded_folder", lambda root, name: root / name.rpartition("/")[2]
        )
        monkeypatch.setattr("planner.cli.trial_weights.identity", lambda model, folder: model.snapshot.repo_id)
        use_child(monkeypatch, script)
        exit_code, found, report, _ = self.run(capsys, "--trial")
        assert exit_code == 0
        assert (found["specplan/tiny-draft-bad"].rank, found["specplan/tiny-draft"].rank) == (1, 2)
        assert report.recommendation is not None
        assert report.recommendation.draft == "specplan/tiny-draft-bad"

    def test_more_memory_than_planned_contradicts_the_plan(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_child(monkeypatch, behaving(1.5, tensor_bytes=2**30, longest_tokens=300))
        exit_code, found, _, shown = self.run(capsys, "--draft", "specplan/tiny-draft", "--trial")
        trial = found["specplan/tiny-draft"].trial
        assert exit_code == 7
        assert trial.outcome == "contradicts"
        assert [item.name for item in trial.comparisons if item.agrees is False] == ["memory"]
        assert "contradicts the plan: memory" in " ".join(shown.split())

    def test_what_was_measured_is_remembered_until_a_fresh_start(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_child(monkeypatch, behaving(1.5))
        self.run(capsys, "--draft", "specplan/tiny-draft", "--trial")
        use_child(monkeypatch, behaving(1.2))
        _, found, _, shown = self.run(capsys, "--draft", "specplan/tiny-draft")
        assert found["specplan/tiny-draft"].trial.speedup.value == pytest.approx(1.5)
        assert "Measured on 20" in shown
        _, found, _, _ = self.run(capsys, "--draft", "specplan/tiny-draft", "--fresh")
        assert found["specplan/tiny-draft"].trial.speedup.value == pytest.approx(1.2)
        _, found, _, _ = self.run(capsys, "--draft", "specplan/tiny-draft", "--no-trial")
        assert found["specplan/tiny-draft"].trial is None

    def test_another_version_of_a_library_forgets(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_child(monkeypatch, behaving(1.5))
        self.run(capsys, "--draft", "specplan/tiny-draft", "--trial")
        use_child(monkeypatch, behaving(1.2))
        newer = {"torch": "10", "transformers": "9", "accelerate": "9"}
        for place in ("planner.cli.pair_trial", "planner.cli.trials"):
            monkeypatch.setattr(f"{place}.installed_versions", lambda: newer)
        _, found, _, _ = self.run(capsys, "--draft", "specplan/tiny-draft")
        assert found["specplan/tiny-draft"].trial.speedup.value == pytest.approx(1.2)

    def test_what_was_measured_with_another_k_is_not_taken(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first trial chose k = 2 by itself; asked for 4, another one runs."""
        use_child(monkeypatch, behaving(1.5))
        self.run(capsys, "--draft", "specplan/tiny-draft", "--trial")
        asked = ("--draft", "specplan/tiny-draft", "--num-speculative-tokens", "4")
        use_child(monkeypatch, 'send(event="error", code="failed", text=str(request["num_speculative_tokens"]))\n')
        exit_code, found, _, _ = self.run(capsys, *asked)
        assert exit_code == 7
        assert found["specplan/tiny-draft"].trial.error.message.startswith("4")

    @pytest.mark.parametrize(
        ("script", "code"),
        [
            ("sys.exit(3)\n", "trial_killed"),
            ('send(event="error", code="out_of_memory", text="while loading")\n', "trial_out_of_memory"),
            (LOADED + "pipe.write('nonsense')\npipe.write(chr(10))\n", "trial_protocol"),
            (
                behaving(1.7).replace('"accepted_counts": [5, 2, 3]', '"accepted_counts": [10, 0, 0]'),
                "trial_mismatch",
            ),
        ],
        ids=["died", "out of memory", "nonsense", "faster than can be"],
    )
    def test_a_failed_trial_keeps_the_plan_and_says_why(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: str, code: str
    ) -> None:
        use_child(monkeypatch, script)
        exit_code, found, report, shown = self.run(capsys, "--draft", "specplan/tiny-draft", "--trial")
        trial = found["specplan/tiny-draft"].trial
        assert exit_code == 7
        assert trial.outcome == "failed"
        assert trial.error.code == code
        assert trial.error.hint
        assert report.verdict.answer == "fits"
        assert "TRIAL FAILED" in shown

    def test_without_its_libraries_a_trial_is_a_warning_unless_it_was_asked_for(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("planner.cli.pair_trial.installed_versions", dict)
        exit_code, found, report, shown = self.run(capsys, "--draft", "specplan/tiny-draft")
        assert (exit_code, found["specplan/tiny-draft"].trial) == (0, None)
        assert "no_trial" in {warning.code for warning in report.warnings}
        assert "pip install 'specplan[trial]'" in shown
        exit_code, found, _, _ = self.run(capsys, "--draft", "specplan/tiny-draft", "--trial")
        assert exit_code == 7
        assert found["specplan/tiny-draft"].trial.error.code == "trial_missing_import"


def test_a_trial_needs_devices_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "./target", "--gpu", "l4", "--trial", "--offline"]) == 2
    assert "--devices cpu" in capsys.readouterr().err


def test_no_weights_and_real_ones_wanted_says_how_to_get_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_child(monkeypatch, behaving(1.5))
    exit_code, report, _ = fit(capsys, "--draft", "./draft", "--trial", "--trial-weights", "real")
    assert exit_code == 7
    trial = report.candidates[0].trial
    assert trial is not None
    assert trial.error is not None
    assert trial.error.code == "trial_weights_missing"
    assert "*.safetensors" in trial.error.hint
