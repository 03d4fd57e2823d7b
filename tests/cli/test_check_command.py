"""`specplan check-command`: what becomes of a command, what to change, exit codes, secrets, hostile input.

Held to `fit` of the same settings, which is tested on its own.
"""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import nvml
from planner.cli.main import main
from planner.errors import NvmlMissingError

CANARY = "sk-canary-abcdefghijkl"
GPU = ["--gpu", "h100-80gb"]
QWEN = ["vllm", "serve", "Qwen/Qwen3-8B"]
PAIR = '{"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 5}'
Run = Callable[..., tuple[int, dict[str, Any]]]


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
def check(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(words: list[str], *options: str) -> tuple[int, dict[str, Any]]:
        code = main(["check-command", "--offline", "--json", "-", *(options or GPU), "--", *words])
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert document["schema"] == "specplan.check_command/1"
        assert document["exit_code"] == code
        return code, document

    return run


def fit(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    main(["fit", "Qwen/Qwen3-8B", "--offline", "--json", "-", *GPU, *options])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_it_is_the_plan_of_fit(check: Run, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--max-model-len", "8192", "--gpu-memory-utilization", "0.8", "--max-num-seqs", "64"]
    code, document = check([*QWEN, *limits])
    report = fit(capsys, "--draft", "none", *limits)
    assert (code, document["answer"]) == (0, "fits")
    assert document["report"]["memory"] == report["memory"]
    assert document["report"]["engine_cache"] == report["engine_cache"]


def test_the_pair_is_the_pair_of_fit(check: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = check([*QWEN, "--max-model-len", "8192", "--speculative-config", PAIR])
    given = ["--draft", "Qwen/Qwen3-0.6B", "--num-speculative-tokens", "5", "--gpu-memory-utilization", "0.92"]
    report = fit(capsys, "--context", "8192", "--draft-budget", "100%", *given)
    assert code == 0
    assert document["report"]["memory"] == report["memory"]
    assert document["speedup"] is not None


def test_what_is_not_said_is_the_engines_default(check: Run) -> None:
    """Qwen3-8B's config: 40,960 positions. vLLM since 0.20 takes 0.92 (engines.md A2)."""
    _, document = check(QWEN)
    request = document["report"]["request"]
    assert request["context_tokens"] == 40_960
    assert request["gpu_memory_utilization"] == 0.92
    assert check(QWEN, *GPU, "--engine", "vllm==0.15.0")[1]["report"]["request"]["gpu_memory_utilization"] == 0.9


def test_a_shorter_draft_caps_the_context(check: Run) -> None:
    """As engines.md A5 has it for 0.33: the draft's 32,768 positions cap a target with 131,072."""
    pair = '{"method": "draft_model", "model": "Qwen/Qwen2.5-0.5B-Instruct", "num_speculative_tokens": 3}'
    _, document = check(["vllm", "serve", "Qwen/Qwen2.5-3B-Instruct", "--speculative-config", pair])
    assert document["report"]["request"]["context_tokens"] == 32_768


def test_a_fraction_that_is_too_high_is_changed(check: Run) -> None:
    words = ["vllm", "serve", "Qwen/Qwen3-32B", "--max-model-len", "16k", "--gpu-memory-utilization", "0.99"]
    code, document = check(words)
    [[change]] = document["corrections"]
    assert code == 4
    assert (change["action"], change["option"], change["before"]) == ("change", "--gpu-memory-utilization", "0.99")
    # The change holds: the same command with it starts.
    assert check([*words[:-1], change["after"]])[0] == 0


def test_a_pinned_pool_that_is_too_small_is_let_go(check: Run) -> None:
    code, document = check([*QWEN, "--kv-cache-memory-bytes", "1G"])
    assert code == 3
    # One change is enough, and the fraction that is then taken is the engine's own.
    [[change]] = document["corrections"]
    assert (change["action"], change["option"]) == ("remove", "--kv-cache-memory-bytes")


def test_every_correction_starts(check: Run) -> None:
    words = ["vllm", "serve", "Qwen/Qwen3-14B", "--max-model-len", "40960", "--max-num-seqs", "1024"]
    code, document = check(words, "--gpu", "38GiB")
    assert code in {3, 4}
    assert document["corrections"]
    for changes in document["corrections"]:
        added: list[str] = []
        for change in changes:
            assert change["action"] in {"add", "change"}
            added += [change["option"], *([change["after"]] if change["after"] else [])]
        tp = added[added.index("--tensor-parallel-size") + 1] if "--tensor-parallel-size" in added else "1"
        assert check([*words, *added], "--gpu", f"38GiB:{tp}")[0] == 0, added


def test_the_corrected_command_starts(check: Run) -> None:
    code, document = check([*QWEN, "--max-model-len", "1M"])
    assert (code, document["report"]) == (3, None)
    assert "40,960" in document["refused"]["message"]
    assert check(document["corrected_command"]["argv"])[0] == 0


def test_longest_is_what_fits(check: Run) -> None:
    code, document = check([*QWEN, "--max-model-len", "auto"], "--gpu", "l4")
    most = document["report"]["request"]["context_tokens"]
    assert code == 0
    assert most < 40_960
    assert check([*QWEN, "--max-model-len", str(most + 256)], "--gpu", "l4")[0] != 0


def test_what_is_not_planned_may_turn_the_answer(check: Run) -> None:
    assert check([*QWEN, "--max-model-len", "8192", "--enable-lora"])[0] == 4
    assert check([*QWEN, "--max-model-len", "8192", "--cpu-offload-gb", "4"])[0] == 0
    assert check([*QWEN, "--cpu-offload-gb", "20"], "--gpu", "8GiB")[0] == 4
    assert check([*QWEN, "--enable-lora"], "--gpu", "8GiB")[0] == 3


@pytest.mark.parametrize(
    "words",
    [
        ["python", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B", "--context-length", "8192"],
        ["llama-server", "-m", "/models/Qwen3-8B-Q4_K_M.gguf", "-c", "16384", "-np", "2", "-ngl", "99"],
        ["docker", "run", "--gpus", "all", "vllm/vllm-openai:v0.20", "--model", "Qwen/Qwen3-8B"],
    ],
    ids=["sglang", "llama.cpp", "docker"],
)
def test_other_commands_are_planned(words: list[str], check: Run) -> None:
    code, document = check(words)
    assert (code, document["answer"]) == (0, "fits")
    assert document["report"]["target"]["repo_id"] == "Qwen/Qwen3-8B"


def test_an_unknown_option_is_an_error_unless_allowed(check: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*QWEN, "--max-model-len", "8192", "--max-num-sequs", "8"]
    code = main(["check-command", "--offline", *GPU, "--", *words])
    told = capsys.readouterr().err
    assert code == 2
    assert "--max-num-seqs" in told
    assert check(words, *GPU, "--allow-unknown")[0] == 0


def test_another_engine_than_the_commands_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-command", "--offline", *GPU, "--engine", "sglang==0.5.23", "--", *QWEN]) == 2
    error = capsys.readouterr().err
    assert "names sglang, and the command starts vllm" in error
    assert main(["check-command", "--offline", *GPU, "--engine", "vllm==0.19.0", "--quiet", "--", *QWEN]) == 0


def test_llama_server_starts_beyond_the_models_longest(check: Run) -> None:
    # Qwen3-8B goes up to 40,960 tokens. llama-server caps a slot there and allocates what --ctx-size says.
    server = ["llama-server", "-m", "Qwen3-8B-Q4_K_M.gguf", "-ngl", "99", "-np", "1", "-c"]
    code, document = check([*server, "131072"])
    assert (code, document["answer"]) == (0, "fits")
    _, shorter = check([*server, "32768"])
    caches = [
        sum(
            item["high_bytes"]
            for item in found["report"]["memory"]["per_rank"][0]["items"]
            if item["group"] == "kv_cache"
        )
        for found in (document, shorter)
    ]
    assert caches[0] == 4 * caches[1]
    # vLLM refuses such a context.
    code, document = check([*QWEN, "--max-model-len", "131072"])
    assert code == 3
    assert document["refused"] is not None


def test_more_sequences_than_the_pool_holds_do_not_keep_it_from_starting(
    check: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [*QWEN, "--max-model-len", "8192"]
    _, alone = check(long)
    code, document = check(long, *GPU, "--batch", "100")
    assert (code, document["answer"]) == (3, "does_not_fit")
    # The text of one sequence's start, and that it is not enough.
    assert document["text"] == f"{alone['text']}, where 100 are asked for"
    main(["check-command", "--offline", *GPU, "--batch", "100", "--quiet", "--", *long])
    assert capsys.readouterr().out.startswith("STARTS, HOLDS TOO FEW: ")
    # Where not even one is held, it does not start.
    main(["check-command", "--offline", "--gpu", "l4", "--batch", "100", "--quiet", "--", *QWEN])
    assert capsys.readouterr().out.startswith("FAILS AT START: ")


def test_a_wider_spread_says_on_how_many_devices(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "131072"]
    assert main(["check-command", "--offline", "--gpu", "l4:1", "--", *words]) == 3
    told = " ".join(capsys.readouterr().out.split())
    assert "add --tensor-parallel-size 4 (on 4 such devices)" in told


def test_a_command_may_come_from_a_file_or_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "# start\nexport HF_HOME=/x\nCUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-8B \\\n  --max-model-len 8192\n"
    )
    (tmp_path / "start.sh").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    for source in (["--file", "start.sh"], ["-"]):
        assert main(["check-command", "--offline", "--quiet", *GPU, *source]) == 0
        assert capsys.readouterr().out.startswith("STARTS: ")
    (tmp_path / "start.txt").write_text(text, encoding="utf-16")
    assert main(["check-command", "--offline", "--quiet", *GPU, "--file", "start.txt"]) == 0
    assert main(["check-command", "--file", "none.sh"]) == 2
    assert main(["check-command"]) == 2


def test_a_configuration_file_is_read_where_it_is_given_here_too(check: Run, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("max-model-len: 8192\nmax-num-seqs: 64\n", encoding="utf-8")
    words = [*QWEN, "--config", "c.yaml", "--max-num-seqs", "32"]
    code, document = check(words, *GPU, "--config-file", "c.yaml")
    assert (code, document["command"]["unplanned"]) == (0, [])
    assert document["command"]["settings"]["context_tokens"] == 8192
    assert document["command"]["settings"]["max_num_seqs"] == 32
    # Without it the file is not opened, and the answer is open.
    code, document = check(words)
    assert code == 4
    assert "--config-file" in document["command"]["remarks"][0]["text"]
    assert main(["check-command", "--config-file", "none.yaml", "--", *words]) == 2
    assert main(["check-command", "--config-file", "c.yaml", "--", "llama-server", "-m", "a.gguf"]) == 2


def test_tensorrt_llm_is_planned_with_its_file_as_fit_plans_it(
    check: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "kv_cache_config:\n  free_gpu_memory_fraction: 0.8\n  dtype: fp8\n"
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    words = ["trtllm-serve", "Qwen/Qwen3-8B", "--max_seq_len", "8192", "--config", "c.yaml"]
    code, document = check(words, *GPU, "--config-file", "c.yaml")
    assert code == 0
    own = fit(
        capsys,
        *("--engine", "tensorrt-llm", "--draft", "none", "--context", "8192"),
        *("--gpu-memory-utilization", "0.8", "--kv-cache-dtype", "fp8"),
    )
    assert document["report"]["memory"] == own["memory"]
    assert document["report"]["engine_cache"] == own["engine_cache"]


def test_what_to_change_under_tensorrt_llm_starts(check: Run, tmp_path: Path) -> None:
    code, document = check(["trtllm-serve", "Qwen/Qwen3-32B", "--free_gpu_memory_fraction", "0.9"])
    assert code in {3, 4}
    assert document["corrections"]
    corrected = document["corrected_command"]
    [(name, content)] = corrected["files"].items()
    (tmp_path / name).write_text(content, encoding="utf-8")
    code, _ = check(corrected["argv"], "--gpu", "h100-80gb:8", "--config-file", name)
    assert code == 0


def test_secrets_are_shown_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"HF_TOKEN={CANARY}", *QWEN, "--max-model-len", "8192", "--api-key", CANARY, "--hf-overrides", CANARY]
    for options in (["--verbose", "--explain"], ["--json", "-"], ["--debug"]):
        main(["check-command", "--offline", *GPU, *options, "--", *words])
        shown = capsys.readouterr()
        assert CANARY not in shown.out + shown.err
    for bad in (["--max-model-len", CANARY], ["--speculative-config", CANARY], [f"--api-kye={CANARY}"], [CANARY]):
        assert main(["check-command", "--offline", *GPU, "--", *QWEN, *bad]) == 2
        shown = capsys.readouterr()
        assert CANARY not in shown.out + shown.err


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(max_size=60),
    start=st.sampled_from(["", "vllm serve Qwen/Qwen3-8B ", "llama-server -m ", "vllm serve "]),
)
def test_nothing_is_a_bug(text: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check-command", "--offline", "--quiet", *GPU, "--", start + text + " "])
    capsys.readouterr()
    assert code in {0, 2, 3, 4, 5, 8}


def test_no_file_that_the_command_names_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-command", *GPU, "--", *QWEN, "--json", "made.json", "--debug"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
