"""``from planner import plan`` answers what `specplan fit` answers, and nothing else happens."""

import doctest
import inspect
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubRepo, HubServer
from made_repos import single_file_repo

import planner
from planner import (
    FitResult,
    HardwareError,
    ModelError,
    NetworkError,
    SpecplanError,
    UsageError,
    nvml,
    plan,
)
from planner.cli.fit import command
from planner.cli.main import main
from planner.cli.options import split_options
from planner.errors import NvmlMissingError
from planner.service.exit_codes import EXIT_OF_ERROR, exit_code_of
from planner.service.request import PlanOptions

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "python-api.md"
#: Options of `fit` that are about printing, pictures, trials or a cluster.
NOT_PYTHONS = {
    *("json_target", "quiet", "no_progress", "color", "debug", "verbose", "explain", "plot", "html"),
    *("trial", "trial_top", "trial_backend", "trial_seconds", "trial_weights", "download", "engine_python"),
    *("ray", "ray_timeout"),
}
Asked = Mapping[str, Any]

#: The same request in Python and on the command line.
REQUESTS = [
    pytest.param(
        {"drafts": ["Qwen/Qwen3-0.6B"], "gpu": "h100-80gb:2", "tp": 2, "context": 8192, "batch": 16},
        "--draft Qwen/Qwen3-0.6B --gpu h100-80gb:2 --tp 2 --context 8192 --batch 16",
        id="pair",
    ),
    pytest.param({"gpu": "h100-80gb:2"}, "--gpu h100-80gb:2", id="drafts-are-searched"),
    pytest.param({"drafts": "none", "gpu": "l4"}, "--draft none --gpu l4", id="does-not-fit"),
    pytest.param(
        {"drafts": ("ngram", "Qwen/Qwen3-1.7B"), "gpu": "80GiB:2", "draft_budget": 0.01},
        "--draft ngram --draft Qwen/Qwen3-1.7B --gpu 80GiB:2 --draft-budget 1%",
        id="drafts-are-refused",
    ),
    pytest.param(
        {
            "gpu": "h200-141gb:2",
            "engine": "sglang",
            "num_speculative_tokens": (2, 4),
            "task": "code",
            "prompt_tokens": 512,
            "output_tokens": 256,
            "memory_limit": "100GiB",
            "kv_cache_dtype": "fp8",
            "also_for": "vllm",
            "max_num_seqs": 32,
            "pp": 1,
        },
        "--gpu h200-141gb:2 --engine sglang --num-speculative-tokens 2-4 --task code --prompt-tokens 512 "
        "--output-tokens 256 --memory-limit 100GiB --kv-cache-dtype fp8 --also-for vllm --max-num-seqs 32 --pp 1",
        id="many-options",
    ),
    pytest.param(
        {"drafts": "ngram", "fallback_gpu": "h100-80gb:2", "gpu_memory_utilization": 0.9, "enforce_eager": True},
        "--draft ngram --fallback-gpu h100-80gb:2 --gpu-memory-utilization 0.9 --enforce-eager",
        id="a-note-is-a-remark",
    ),
]


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No GPU, no network, no settings and caches of the user's."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def no_driver() -> object:
        raise NvmlMissingError("no NVIDIA library", subject="NVML", hint="install the driver")

    monkeypatch.setattr(nvml, "read_devices", no_driver)


def undated(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "created_at"}


@pytest.mark.parametrize(("asked", "typed"), REQUESTS)
def test_the_report_is_the_command_lines(asked: Asked, typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = plan("Qwen/Qwen3-32B", **asked, offline=True)
    silent = capsys.readouterr()
    assert (silent.out, silent.err) == ("", "")
    code = main(["fit", "Qwen/Qwen3-32B", *typed.split(), "--offline", "--json", "-"])
    printed = capsys.readouterr()
    assert result.exit_code == code
    assert undated(result.report()) == undated(json.loads(printed.out))
    # The same text, too, but for the line of the time.
    differing = [
        line
        for line, other in zip(result.to_json().splitlines(), printed.out.splitlines(), strict=True)
        if line != other
    ]
    assert all('"created_at"' in line for line in differing)
    said = [line.partition(": ")[2] for line in printed.err.splitlines()]
    assert said == [remark.text for remark in result.remarks]


@pytest.mark.parametrize(("asked", "typed"), REQUESTS)
def test_the_text_is_the_command_lines(asked: Asked, typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = plan("Qwen/Qwen3-32B", **asked, offline=True)
    for options in ((), ("verbose",), ("explain",)):
        shown = result.text(**dict.fromkeys(options, True))
        main(["fit", "Qwen/Qwen3-32B", *typed.split(), "--offline", *(f"--{name}" for name in options)])
        assert shown + "\n" == capsys.readouterr().out


@pytest.mark.parametrize(("asked", "typed"), REQUESTS)
def test_what_comes_back_is_what_is_reported(asked: Asked, typed: str) -> None:
    result = plan("Qwen/Qwen3-32B", **asked, offline=True)
    report = result.report()
    assert result.verdict.answer == report["verdict"]["answer"]
    assert result.verdict.headroom_bytes == report["verdict"]["headroom_bytes"]
    totals = [
        {"total_low_bytes": total.low_bytes, "total_high_bytes": total.high_bytes}
        for total in (rank.breakdown.total for rank in result.ranks)
    ]
    assert totals == [
        {name: rank[name] for name in ("total_low_bytes", "total_high_bytes")}
        for rank in report["memory"]["per_rank"]
    ]
    names = [candidate["repo_id"] or candidate["method"] for candidate in report["candidates"]]
    assert [judged.name for judged in result.candidates] == names[: len(result.candidates)]
    advised = report["recommendation"]
    command_there = None if advised is None else advised["command"]
    assert (
        None if result.recommended is None or result.command is None else list(result.command.argv)
    ) == command_there
    assert str(result.answer) in repr(result)
    assert len(repr(result)) < 100


def test_every_option_is_an_argument_and_means_the_same_when_left_out() -> None:
    options = {parameter.name for parameter in command.params if parameter.name != "target"} - NOT_PYTHONS
    arguments = inspect.signature(plan).parameters
    assert set(arguments) - {"target"} == options
    left_out = command.make_context("fit", ["Qwen/Qwen3-32B", "--gpu", "h100-80gb:2", "--offline"]).params
    of_command_line, _ = split_options(left_out)
    assert plan("Qwen/Qwen3-32B", gpu="h100-80gb:2", offline=True).options == of_command_line
    assert isinstance(of_command_line, PlanOptions)
    assert left_out["fresh"] == arguments["fresh"].default


@pytest.mark.parametrize(
    ("asked", "branch", "subject"),
    [
        ({"context": 0}, UsageError, "context"),
        ({"context": "8k"}, UsageError, "context"),
        ({"batch": True}, UsageError, "batch"),
        ({"tp": -1}, UsageError, "tp"),
        ({"memory_limit": "24G"}, UsageError, "memory_limit"),
        ({"gpu_memory_utilization": 1.5}, UsageError, "gpu_memory_utilization"),
        ({"draft_budget": 0.0}, UsageError, "draft_budget"),
        ({"num_speculative_tokens": (8, 3)}, UsageError, "num_speculative_tokens"),
        ({"num_speculative_tokens": 0}, UsageError, "num_speculative_tokens"),
        ({"task": "poetry"}, UsageError, "task"),
        ({"engine": "nothing"}, UsageError, "--engine"),
        ({"gpu": "h1000"}, UsageError, "h1000"),
        ({"gpu": "l4", "devices": "0"}, UsageError, "--gpu and --devices"),
        ({"drafts": ["none", "ngram"]}, UsageError, "--draft none"),
        ({"drafts": "nobody/nothing"}, NetworkError, "nobody/nothing"),
        ({"gpu": None}, HardwareError, "NVML"),
    ],
)
def test_what_cannot_be_answered_raises(
    asked: Asked, branch: type[SpecplanError], subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(branch) as caught:
        plan("Qwen/Qwen3-32B", **{"gpu": "h100-80gb:2", **asked}, offline=True)
    assert caught.value.subject == subject
    assert caught.value.hint
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_a_folder_is_a_path_and_a_broken_one_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError):
        plan(tmp_path, gpu="l4", offline=True)


def test_the_branches_of_errors_have_the_exit_codes_that_the_page_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for branch, code in EXIT_OF_ERROR:
        if branch.__name__ != "TrialError":  # there are no trials here
            assert f"| `{branch.__name__}` | {code} |" in text
            assert getattr(planner, branch.__name__) is branch
    assert exit_code_of(UsageError("no", subject="x", hint="y")) == 2


def test_the_pictures_are_the_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = plan("Qwen/Qwen3-8B", drafts="none", gpu="l40s", offline=True)
    missing = result.save_pictures(tmp_path / "called.svg")
    asked = ["fit", "Qwen/Qwen3-8B", "--draft", "none", "--gpu", "l40s", "--offline"]
    assert main([*asked, "--plot", str(tmp_path / "typed.svg")]) == 0
    assert (tmp_path / "called.svg").read_bytes() == (tmp_path / "typed.svg").read_bytes()
    said = capsys.readouterr().err
    assert missing
    assert all(why in said for why in missing)
    with pytest.raises(UsageError) as caught:
        result.save_pictures(tmp_path / "plan.bmp")
    assert caught.value.subject == "save_pictures"


def in_new_process(script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", script, "--json", "-", "no-such-command"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "", "PYTHONPATH": str(ROOT), **environment},
    )


def test_the_import_alone_is_light() -> None:
    done = in_new_process(
        "import sys; before = {*sys.modules}; import planner; dir(planner); new = {*sys.modules} - before;"
        "print(sorted(name for name in new if name.partition('.')[0] not in sys.stdlib_module_names))"
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "['planner']"


def test_a_plan_needs_no_command_line() -> None:
    """Neither click nor our own command line is loaded, and sys.argv is nobody's business."""
    done = in_new_process(
        "import sys; from planner import plan; plan('Qwen/Qwen3-8B', gpu='l40s', offline=True).to_json();"
        "print([name for name in sys.modules if name.partition('.')[0] == 'click' or 'planner.cli' in name])"
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("[]", "", 0)


def test_the_hub_is_asked_in_silence(tmp_path: Path) -> None:
    script = (
        "from planner import NetworkError, plan\n"
        "result = plan('org/tiny', gpu='h100-80gb', drafts='none', context=64)\n"
        "print(result, result.facts.source)\n"
        "try:\n    plan('org/absent', gpu='l4')\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
    )
    with HubServer() as server:
        server.add(HubRepo(repo_id="org/tiny", files=single_file_repo()))
        done = in_new_process(
            script, HF_ENDPOINT=server.url, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache")
        )
    assert done.stdout.splitlines() == ["<FitResult org/tiny: fits> hub", "ModelNotFoundError"]
    assert done.stderr == ""


def test_names_are_found_and_others_are_not() -> None:
    assert set(planner.__all__) <= set(dir(planner))
    for name in planner.__all__:
        assert getattr(planner, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        getattr(planner, "plans")  # noqa: B009 - mypy knows that it is not there
    assert planner.FitResult is FitResult


def test_the_version_is_the_distributions() -> None:
    assert planner.__version__ == version("specplan")


def examples(page: Path) -> Sequence[doctest.Example]:
    return doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8"))


def test_the_examples_of_the_page_are_true() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted == len(examples(PAGE)) >= 15
    assert result.failed == 0
