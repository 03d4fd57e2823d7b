"""`specplan explain-log`: real start-up logs beside their plans, what is told, kept and refused."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_catalog.bounds import ByteRange
from planner import nvml
from planner.cli.main import main
from planner.devices import Device, DeviceSource
from planner.errors import NvmlMissingError
from planner.nvml import DeviceReading

LOGS = Path(__file__).parents[1] / "measured" / "logs"
LLAMA = LOGS / "vllm-0.19-llama-3.1-8b-h100.log"
QWEN = LOGS / "vllm-0.19-qwen2.5-72b-2xh100.log"
FULL = LOGS / "vllm-0.19-gpt-oss-20b-out-of-memory.log"
ON_CPU = LOGS / "vllm-0.32-cpu-draft.log"
GIB = 2**30
SET_UP = ["meta-llama/Llama-3.1-8B-Instruct", "--draft", "none", "--offline", "--engine", "vllm==0.19.0"]
CARD = ["--gpu", "h100-80gb"]
Explain = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def no_driver() -> object:
        raise NvmlMissingError("no NVIDIA library", subject="NVML", hint="install the driver")

    monkeypatch.setattr(nvml, "read_devices", no_driver)


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Explain:
    def run(log: Path, *options: str) -> tuple[int, dict[str, Any]]:
        code = main(["explain-log", str(log), "--offline", "--json", "-", *options])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert document["schema"] == "specplan.explain_log/1"
        assert document["exit_code"] == code
        return code, document

    return run


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def run(*options: str) -> dict[str, Any]:
        main(["fit", *SET_UP, "--json", "-", *options])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


def lines(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {line["code"]: line for line in document["lines"]}


def overheads(report: dict[str, Any]) -> dict[str, tuple[int, int, str]]:
    items = report["memory"]["per_rank"][0]["items"]
    return {item["label"]: (item["low_bytes"], item["high_bytes"], item["source"]) for item in items}


@pytest.mark.parametrize("log", [LLAMA, QWEN], ids=["one H100", "two H100"])
def test_a_real_start_agrees_line_by_line(log: Path, explain: Explain) -> None:
    code, document = explain(log, *CARD)
    assert (code, document["answer"]) == (0, "agrees")
    assert {line["side"] for line in document["lines"]} == {"inside"}
    assert len(document["lines"]) == 8


def test_a_start_deep_in_a_journal_is_read_whole(explain: Explain, tmp_path: Path) -> None:
    noise = "(proxy) INFO 10.0.0.1 GET /v1/chat/completions 200 OK\n" * 90_000
    journal = tmp_path / "journal.log"
    journal.write_text(noise + LLAMA.read_text(encoding="utf-8") + noise[:100_000], encoding="utf-8")
    _, alone = explain(LLAMA)
    code, document = explain(journal)
    assert code == 0
    assert document["lines"] == alone["lines"]


def test_a_log_that_a_windows_shell_wrote_is_read(explain: Explain, tmp_path: Path) -> None:
    told = explain(LLAMA)
    for encoding in ("utf-16", "utf-8-sig"):
        (tmp_path / "start.log").write_text(LLAMA.read_text(encoding="utf-8"), encoding=encoding)
        assert explain(tmp_path / "start.log")[1]["lines"] == told[1]["lines"]


def test_the_figures_are_those_of_the_log(explain: Explain) -> None:
    """As they stand in the file: 14.99, 1.89, 0.25, 0.84, 0.91 and 58.11 GiB, 476,016 tokens."""
    _, document = explain(LLAMA)
    found = {code: line["measured"] for code, line in lines(document).items()}
    assert found["weights"] == pytest.approx(14.99 * GIB)
    assert found["activation_peak"] == pytest.approx(1.89 * GIB)
    assert found["non_torch"] == pytest.approx(0.25 * GIB)
    assert found["cuda_graph_estimate"] == pytest.approx(0.84 * GIB)
    assert found["cuda_graphs"] == pytest.approx(0.91 * GIB)
    assert found["kv_cache_memory"] == pytest.approx(58.11 * GIB)
    assert found["kv_cache_tokens"] == 476_016
    assert found["before_loading"] == pytest.approx(0.51 * GIB, rel=1e-6)
    said = document["settings"]
    assert (said["max_num_seqs"], said["gpu_memory_utilization"]) == (1024, 0.95)


def test_the_card_need_not_be_named_where_its_size_is_printed(explain: Explain) -> None:
    code, document = explain(LLAMA)
    assert (code, document["plan"]["device"]) == (0, "the log's device")


def test_another_model_than_was_started_is_seen(explain: Explain) -> None:
    """Llama 3.1 8B loads 14.99 GiB; a plan of Qwen3 0.6B (0.75 B parameters stored, 1.4 GiB) has not a tenth."""
    code, document = explain(LLAMA, "--model", "Qwen/Qwen3-0.6B")
    weights = lines(document)["weights"]
    assert (code, document["answer"], weights["side"]) == (3, "differs", "above")
    assert weights["off_by"] > 12 * GIB
    assert "more was loaded" in weights["meaning"]


def test_a_narrower_cache_is_recognised(explain: Explain, tmp_path: Path) -> None:
    text = LLAMA.read_text(encoding="utf-8").replace("size: 476,016 tokens", "size: 952,032 tokens")
    (tmp_path / "fp8.log").write_text(text, encoding="utf-8")
    code, document = explain(tmp_path / "fp8.log")
    tokens = lines(document)["kv_cache_tokens"]
    assert (code, tokens["side"]) == (3, "above")
    assert "narrower" in tokens["meaning"]


def test_out_of_memory_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-log", str(FULL), "--offline"]) == 0
    shown = capsys.readouterr().out
    assert "OUT OF MEMORY: the log ends with RuntimeError: CUDA out of memory" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_memory_that_others_held_is_seen(explain: Explain, tmp_path: Path) -> None:
    """The words of a start that was refused (the same source, codellama-34b): 18.32 GiB were in use already."""
    said = (
        "Free memory on device cuda:1 (60.87/79.19 GiB) on startup is less than desired GPU memory utilization "
        "(0.95, 75.23 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    head = [line for line in LLAMA.read_text(encoding="utf-8").splitlines() if "GiB" not in line]
    (tmp_path / "refused.log").write_text("\n".join([*head, f"ValueError: {said}"]), encoding="utf-8")
    code, document = explain(tmp_path / "refused.log")
    assert (code, document["failure"]["code"]) == (3, "out_of_memory")
    assert "another process" in lines(document)["before_loading"]["meaning"]


def test_a_speculating_start_on_a_cpu(explain: Explain, capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM 0.32 itself printed 41,856 tokens for 1 GiB: 24 and 1 layers of 4 KV heads of 64 elements in fp32."""
    pair = ["--model", "specplan/tiny-target", "--draft", "specplan/tiny-draft"]
    code, document = explain(ON_CPU, *pair)
    assert code == 0
    assert lines(document)["kv_cache_tokens"]["measured"] == 41_856
    assert (document["plan"]["method"], document["plan"]["num_speculative_tokens"]) == ("draft_model", 4)


@pytest.mark.parametrize("text", ["", "nothing of an engine\n" * 3, "Traceback (most recent call)\nValueError: x"])
def test_too_little_is_no_answer(text: str, explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "little.log").write_text(text, encoding="utf-8")
    code, document = explain(tmp_path / "little.log")
    assert (code, document["answer"], document["lines"]) == (4, "unknown", [])


def test_a_line_without_its_settings_is_not_judged(explain: Explain, tmp_path: Path) -> None:
    """Only the figures were pasted: the peak follows settings that nobody said, the weights do not."""
    pasted = "Model loading took 14.99 GiB memory and 9 seconds\n1.89 GiB for peak activation\n"
    (tmp_path / "pasted.log").write_text(pasted, encoding="utf-8")
    code, document = explain(tmp_path / "pasted.log", "--model", "meta-llama/Llama-3.1-8B-Instruct")
    found = lines(document)
    assert (code, found["weights"]["side"], found["activation_peak"]["side"]) == (0, "inside", "not_compared")
    assert "max_num_seqs" in found["activation_peak"]["why_not"]


@pytest.mark.parametrize("model", ["/data/models/mine", "no-such/model", "../../etc", "a b"])
def test_a_model_that_is_not_known_here_is_asked_for(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "other.log"
    log.write_text(f"Initializing a V1 LLM engine (v0.19.0) with config: model='{model}', max_seq_len=8\n")
    assert main(["explain-log", str(log), "--offline"]) == 5
    assert "--model" in capsys.readouterr().err


def test_a_folder_of_the_hubs_cache_names_its_repo(explain: Explain, tmp_path: Path) -> None:
    place = "/root/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f"
    text = LLAMA.read_text(encoding="utf-8").replace("'meta-llama/Llama-3.1-8B-Instruct'", f"'{place}'")
    (tmp_path / "cached.log").write_text(text, encoding="utf-8")
    code, document = explain(tmp_path / "cached.log")
    assert (code, document["plan"]["target"]) == (0, "meta-llama/Llama-3.1-8B-Instruct")


def test_settings_that_the_plan_refuses_are_no_answer(explain: Explain, tmp_path: Path) -> None:
    text = LLAMA.read_text(encoding="utf-8").replace("tensor_parallel_size=1", "tensor_parallel_size=5")
    (tmp_path / "five.log").write_text(text, encoding="utf-8")
    code, document = explain(tmp_path / "five.log")
    assert (code, document["plan"]) == (4, None)
    assert "cannot be planned" in document["text"]


def test_a_missing_file_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-log", "no\x1b[2Jsuch.log"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_stdin_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(LLAMA.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["explain-log", "-", "--offline", "--quiet"]) == 0
    assert capsys.readouterr().out == "AGREES: 8 of 8 lines inside the planned bounds.\n"


def test_control_characters_never_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "meta-llama/Llama-3.1-8B-Instruct\x1b]0;x\x07\u202e\u2066"
    text = LLAMA.read_text(encoding="utf-8").replace("dtype=torch.bfloat16", f"dtype=torch.{hostile}")
    text += f"\nValueError: CUDA out of memory \x1b[2J\u202e{'x' * 5000}\nRuntimeError: out of memory\x9b31m\x00\n"
    (tmp_path / "hostile.log").write_text(text, encoding="utf-8")
    main(
        ["explain-log", str(tmp_path / "hostile.log"), "--offline", "--model", "meta-llama/Llama-3.1-8B-Instruct"]
    )
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert all(character.isprintable() or character == "\n" for character in text)


def test_saved_overheads_stand_in_later_plans_of_the_same_set_up(
    explain: Explain, fit: Callable[..., dict[str, Any]]
) -> None:
    """Within 3 % and half a hundredth of a GiB of what the log says: 1.89, 0.25 and (beside the budget) 0.91."""
    before = overheads(fit(*CARD, "--driver", "580.1"))
    code, document = explain(LLAMA, *CARD, "--driver", "580.1", "--save")
    assert (code, document["not_saved"]) == (0, None)
    report = fit(*CARD, "--driver", "580.1")
    after = overheads(report)
    for label, gib in (("activation_peak", 1.89), ("driver_growth", 0.25), ("cuda_graphs", 0.91)):
        low, high, source = after[label]
        assert low < gib * GIB < high
        assert high - low <= (0.06 * gib + 0.011) * GIB
        assert high - low < before[label][1] - before[label][0]
        assert source.startswith("measured here on 20")
        assert source.endswith(LLAMA.name)
    assert {label: size for label, size in after.items() if "measured here" not in size[2]}.keys() == (
        before.keys() - {"activation_peak", "driver_growth", "cuda_graphs", "cuda_graph_excess"}
    )
    items = {item["label"]: item for item in report["memory"]["per_rank"][0]["items"]}
    assert items["activation_peak"]["basis"] == "calibrated"
    assert "calibrated" in {warning["code"] for warning in report["warnings"]}


def test_fresh_plans_without_them(explain: Explain, fit: Callable[..., dict[str, Any]]) -> None:
    bare = overheads(fit(*CARD))
    explain(LLAMA, *CARD, "--save")
    assert overheads(fit(*CARD)) != bare
    assert overheads(fit(*CARD, "--fresh")) == bare


@pytest.mark.parametrize(
    "other",
    [
        ["--gpu", "h200", "--driver", "580.1"],
        ["--gpu", "h100-80gb"],
        ["--gpu", "h100-80gb", "--driver", "580.2"],
        ["--gpu", "h100-80gb:2", "--driver", "580.1"],
        [*CARD, "--driver", "580.1", "--max-num-seqs", "64"],
        [*CARD, "--driver", "580.1", "--max-num-batched-tokens", "4096"],
        [*CARD, "--driver", "580.1", "--enforce-eager"],
        [*CARD, "--driver", "580.1", "--kv-cache-dtype", "fp8"],
        [*CARD, "--driver", "580.1", "--dtype", "float32"],
        [*CARD, "--driver", "580.1", "--quantization", "fp8"],
        [*CARD, "--driver", "580.1", "--engine", "vllm==0.20.0"],
        [*CARD, "--driver", "580.1", "--no-async-scheduling"],
        [*CARD, "--driver", "580.1", "--draft", "ngram"],
    ],
    ids=lambda options: " ".join(options[-2:]),
)
def test_unlike_set_ups_never_mix(
    other: list[str], explain: Explain, fit: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    explain(LLAMA, *CARD, "--driver", "580.1", "--save")
    arguments = [word for word in SET_UP if word not in {"--draft", "none"}] if "--draft" in other else SET_UP
    main(["fit", *arguments, "--json", "-", *other])
    report = json.loads(capsys.readouterr().out)
    assert not any("measured here" in size[2] for size in overheads(report).values())


def test_a_driver_that_nobody_named_is_asked_for(explain: Explain, fit: Callable[..., dict[str, Any]]) -> None:
    explain(LLAMA, *CARD, "--driver", "580.1", "--save")
    told = {warning["code"]: warning["text"] for warning in fit(*CARD)["warnings"]}
    assert "580.1" in told["calibration_driver"]


LIVE = Device(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    source=DeviceSource.NVML,
    total_bytes=81_559 * 2**20,
    engine_total_bytes=ByteRange(low_bytes=round(79.18 * GIB), high_bytes=round(79.2 * GIB)),
    free_bytes=round(79.1 * GIB),
    uuid="GPU-aaaa",
    used_by_others_bytes=0,
)


def live(monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    reading = DeviceReading(devices=(LIVE,), driver_version=driver, nvml_version=None, cuda_version=None)
    monkeypatch.setattr(nvml, "read_devices", lambda: reading)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_on_a_live_card_its_own_driver_decides(
    explain: Explain, fit: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log prints the size of this machine's card, so it is taken for its; another driver never mixes."""
    live(monkeypatch, "570.1")
    code, document = explain(LLAMA, "--save")
    assert (code, document["not_saved"], document["plan"]["device"]) == (0, None, LIVE.name)
    assert "measured here" in overheads(fit("--no-trial"))["activation_peak"][2]
    live(monkeypatch, "580.1")
    assert "measured here" not in overheads(fit("--no-trial"))["activation_peak"][2]


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (("", ""), [], "does not name the card"),
        (("", ""), ["--gpu", "l4"], "not the one of the log"),
        (("", ""), [*CARD, "--model", "Qwen/Qwen3-0.6B"], "weights or cache are off"),
        (("(v0.19.0)", "(v0.19.1rc1.dev8+g4b7f5ea1a)"), CARD, "not of a release"),
        (("'enable_prefix_caching'", "'enable_lora': True, 'x'"), CARD, "enable_lora"),
    ],
    ids=["no card", "another card", "another model", "a build", "adapters"],
)
def test_what_is_not_certain_is_not_kept(
    change: tuple[str, str],
    options: list[str],
    reason: str,
    explain: Explain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = LLAMA.read_text(encoding="utf-8").replace(*change) if change[0] else LLAMA.read_text(encoding="utf-8")
    (tmp_path / "some.log").write_text(text, encoding="utf-8")
    code, document = explain(tmp_path / "some.log", "--save", *options)
    assert reason in document["not_saved"]
    assert code in {3, 4}
    assert document["saved"] == []
    assert not (tmp_path / "XDG_DATA_HOME" / "specplan" / "calibrations").exists()


def test_a_folder_that_cannot_be_written_is_told(
    explain: Explain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    code, document = explain(LLAMA, *CARD, "--save")
    assert code == 4
    assert "calibrations" in document["not_saved"]


PIECES = ["0", "-1", "99999999999", "1e9", "'", "{", "(", "\x00", "\n", "None", "=7,"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_change_of_a_real_log_is_our_bug(
    data: st.DataObject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures, names and brackets of a real log in disorder: an answer or a refusal, never a crash."""
    text = LLAMA.read_text(encoding="utf-8")
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.sampled_from([0, 1, 5, 200]))
        piece = data.draw(
            st.sampled_from(["0", "-1", "99999999999", "1e9", "'", "{", "(", "\x00", "\n", "None", "=7,"])
        )
        text = text[:place] + piece + text[place + length :]
    (tmp_path / "changed.log").write_text(text, encoding="utf-8")
    options = data.draw(st.sampled_from([[], CARD, ["--save", *CARD], ["--max-num-seqs", "1"], ["--tp", "3"]]))
    code = main(["explain-log", str(tmp_path / "changed.log"), "--offline", *options])
    assert code in {0, 2, 3, 4, 5}, capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor_parallel_size", "1024"),
        ("pipeline_parallel_size", "1000"),
        ("max_seq_len", "999999999"),
        ("kv_cache_dtype", "int3_magic"),
        ("dtype", "torch.float7"),
        ("quantization", "magic"),
        ("speculative_config", "SpeculativeConfig(method='suffix', model=None, num_spec_tokens=9)"),
        ("speculative_config", "SpeculativeConfig(method='mtp', model='x', num_spec_tokens=2)"),
        ("speculative_config", "SpeculativeConfig(method='eagle3', model='Qwen/Qwen3-0.6B', num_spec_tokens=2)"),
    ],
)
def test_settings_that_no_plan_takes_end_in_an_answer(
    name: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = re.sub(rf"{name}=[^,]+(?=, )", f"{name}={value}", LLAMA.read_text(encoding="utf-8"), count=1)
    (tmp_path / "odd.log").write_text(text, encoding="utf-8")
    assert main(["explain-log", str(tmp_path / "odd.log"), "--offline"]) in {0, 3, 4, 5}
    capsys.readouterr()
