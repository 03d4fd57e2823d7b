"""`specplan fit` from the command line to the exit code, in this process, without a network."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from model_catalog.snapshot import ModelSnapshot, RepoKind, SnapshotSource
from model_catalog.snapshot_store import SnapshotStore, add_user_snapshot
from planner import nvml
from planner.cli.main import main
from planner.errors import NvmlMissingError
from planner.report.document import Report, read_report

Folder = Callable[[str, Mapping[str, Any]], Path]


@pytest.fixture(autouse=True)
def here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model_folder: Folder,
    llama_8b: Mapping[str, Any],
    llama_1b: Mapping[str, Any],
) -> None:
    """Two models in the current folder; caches of our own; no driver."""
    model_folder("llama-8b", llama_8b)
    model_folder("llama-1b", llama_1b)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def no_driver() -> object:
        raise NvmlMissingError("no NVIDIA library", subject="NVML", hint="install the driver")

    monkeypatch.setattr(nvml, "read_devices", no_driver)


@pytest.mark.parametrize(
    ("options", "exit_code"),
    [
        pytest.param("--draft none --gpu h100-80gb", 0, id="fits"),
        pytest.param("--draft ./llama-1b --gpu h100-80gb", 0, id="pair-fits"),
        pytest.param("--draft none --gpu 16GiB", 3, id="weights-alone-are-14.96-GiB"),
        pytest.param("--draft ./llama-1b --gpu h100-80gb --draft-budget 1%", 3, id="draft-over-budget"),
        pytest.param("--draft none --gpu h100-80gb --memory-limit 10GiB", 3, id="memory-limit"),
        pytest.param("--draft none --gpu l4 --context 200000", 2, id="beyond-the-models-context"),
        pytest.param("--draft mtp --gpu h100-80gb", 2, id="no-mtp-layers"),
        pytest.param("--draft none --gpu l4:2 --tp 3", 2, id="too-few-devices"),
        pytest.param("--draft none --gpu l4 --kv-cache-dtype fp99", 2, id="unknown-cache-dtype"),
        pytest.param("--draft ./nowhere --gpu h100-80gb", 2, id="no-such-draft-folder"),
        pytest.param("--draft nobody/nothing --gpu h100-80gb --offline", 8, id="draft-not-on-disk"),
        pytest.param("--draft none", 6, id="no-driver"),
        pytest.param("--draft none --devices 0", 6, id="no-driver-for-the-device"),
        pytest.param("--draft none --fallback-gpu h100-80gb", 0, id="fallback"),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], options: str, exit_code: int) -> None:
    arguments = ["fit", "./llama-8b", *options.split()]
    assert main(arguments) == exit_code
    in_words = capsys.readouterr()
    assert main([*arguments, "--json", "-"]) == exit_code
    as_json = capsys.readouterr()
    document = json.loads(as_json.out)
    report = read_report(document)
    assert report.exit_code == exit_code
    assert isinstance(report, Report) is (exit_code in {0, 3, 4})
    assert as_json.err == in_words.err
    assert ("error: " in in_words.err) is (exit_code not in {0, 3, 4})


def test_a_tight_plan_is_exit_4(capsys: pytest.CaptureFixture[str]) -> None:
    """Between a card that is certainly too small and one that is certainly enough lies one where it depends."""
    codes = [
        main(["fit", "./llama-8b", "--draft", "none", "--gpu", f"{gib}GiB", "--quiet"]) for gib in range(16, 25)
    ]
    assert codes[0] == 3
    assert codes[-1] == 0
    assert 4 in codes
    assert codes == sorted(codes, key=[3, 4, 0].index)
    capsys.readouterr()


def test_a_model_that_is_nowhere_offline_is_exit_8(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "nobody/nothing", "--gpu", "l4", "--offline"]) == 8
    assert "nobody/nothing: offline" in capsys.readouterr().err


def test_offline_takes_the_users_own_snapshot_and_says_so(
    capsys: pytest.CaptureFixture[str], llama_8b: Mapping[str, Any]
) -> None:
    add_user_snapshot(made("me/mine", llama_8b))
    assert main(["fit", "me/mine", "--gpu", "h100-80gb", "--draft", "none", "--offline", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["target"]["source"] == "catalogue"


def test_offline_takes_our_store_before_the_catalogue(
    capsys: pytest.CaptureFixture[str], llama_8b: Mapping[str, Any], llama_1b: Mapping[str, Any]
) -> None:
    add_user_snapshot(made("me/mine", llama_8b))
    commit = "0123456789abcdef0123456789abcdef01234567"
    store = SnapshotStore()
    store.put(made("me/mine", llama_1b, commit))
    store.remember_commit("me/mine", "main", "https://huggingface.co", commit)
    assert main(["fit", "me/mine", "--gpu", "h100-80gb", "--draft", "none", "--offline", "--json", "-"]) == 0
    target = json.loads(capsys.readouterr().out)["target"]
    assert (target["source"], target["revision"]) == ("cache", commit)
    assert target["parameters"] == 1_235_814_400  # Hub parameter count of Llama 3.2 1B


def test_devices_follow_from_tp_and_pp_where_no_count_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["fit", "./llama-8b", "--draft", "none", "--gpu", "l4", "--tp", "2", "--pp", "2", "--json", "-"]) == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert [device["index"] for device in document["devices"]] == [0, 1, 2, 3]
    assert [rank["rank"] for rank in document["memory"]["per_rank"]] == [0, 2]


def test_tp_follows_from_the_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "./llama-8b", "--draft", "none", "--gpu", "l4:4", "--pp", "2", "--json", "-"]) == 0
    request = json.loads(capsys.readouterr().out)["request"]
    assert (request["tp"], request["pp"]) == (2, 2)


@pytest.mark.parametrize(("asked", "least", "most"), [(None, 3, 8), ("2-7", 2, 7), ("4", 4, 4), ("12", 12, 12)])
def test_k_is_chosen_from_the_range(
    asked: str | None, least: int, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["fit", "./llama-8b", "--draft", "ngram", "--gpu", "h100-80gb", "--json", "-"]
    main([*base, *(["--num-speculative-tokens", asked] if asked else [])])
    candidate = json.loads(capsys.readouterr().out)["candidates"][0]
    assert least <= candidate["num_speculative_tokens"] <= most
    assert candidate["num_speculative_tokens"] == candidate["prediction"]["num_speculative_tokens"]


def test_every_named_draft_is_a_candidate_once(capsys: pytest.CaptureFixture[str]) -> None:
    drafts = ["--draft", "ngram", "--draft", "./llama-1b", "--draft", "ngram"]
    assert main(["fit", "./llama-8b", *drafts, "--gpu", "h100-80gb", "--json", "-"]) == 0
    candidates = json.loads(capsys.readouterr().out)["candidates"]
    assert [(row["method"], row["repo_id"]) for row in candidates] == [
        ("ngram", None),
        ("draft_model", "llama-1b"),
    ]
    assert main(["fit", "./llama-8b", *drafts, "--gpu", "h100-80gb"]) == 0
    assert " 1  ngram     n-gram" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("class_name", "method"), [("LlamaForCausalLMEagle3", "eagle3"), ("EagleLlamaForCausalLM", "eagle")]
)
def test_heads_are_drafts_but_no_targets(
    capsys: pytest.CaptureFixture[str],
    model_folder: Folder,
    llama_8b: Mapping[str, Any],
    class_name: str,
    method: str,
) -> None:
    model_folder("head", {**llama_8b, "architectures": [class_name], "num_hidden_layers": 1})
    assert main(["fit", "./llama-8b", "--draft", "./head", "--gpu", "h100-80gb", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"][0]["method"] == method
    assert main(["fit", "./head", "--gpu", "h100-80gb"]) == 5
    assert "is a draft head" in capsys.readouterr().err


def test_heads_that_are_not_planned_are_said_to_be_none(
    capsys: pytest.CaptureFixture[str], model_folder: Folder, llama_8b: Mapping[str, Any]
) -> None:
    model_folder("medusa", {**llama_8b, "architectures": ["MedusaModel"], "medusa_num_heads": 4})
    assert main(["fit", "./llama-8b", "--draft", "./medusa", "--gpu", "h100-80gb"]) == 5
    assert "medusa: " in capsys.readouterr().err


def test_a_remedy_that_is_printed_holds(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fit", "./llama-8b", "--draft", "none", "--gpu", "l4", "--batch", "16"]
    assert main([*arguments, "--json", "-"]) == 3
    remedies = json.loads(capsys.readouterr().out)["verdict"]["remedies"]
    assert {remedy["option"] for remedy in remedies} >= {"--context", "--batch", "--tp"}
    for remedy in remedies:
        assert main([*arguments, *remedy["option"].split(), *remedy["value"].split(), "--quiet"]) == 0
    capsys.readouterr()


def made(repo_id: str, config: Mapping[str, Any], commit: str | None = None) -> ModelSnapshot:
    return ModelSnapshot(
        repo_id=repo_id,
        revision=None,
        commit=commit,
        source=SnapshotSource.HUB,
        kind=RepoKind.MODEL,
        config=config,
    )


@pytest.mark.parametrize(("engine", "element_bytes"), [("vllm", 2), ("transformers", 4)])
def test_a_float32_checkpoint_as_each_engine_loads_it(
    engine: str,
    element_bytes: int,
    model_folder: Folder,
    llama_8b: Mapping[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """vLLM casts it to 16 bits under ``auto``, transformers does not: weights and cache alike."""
    model_folder("wide", {**llama_8b, "torch_dtype": "float32"})
    main(["fit", "./wide", "--draft", "none", "--gpu", "h100-80gb", "--engine", engine, "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    # The Hub's parameter count; norms may stay in float32.
    assert report["target"]["resident_bytes"] == pytest.approx(8_030_261_248 * element_bytes, rel=1e-4)
    per_token = 32 * 8 * 128 * 2 * element_bytes  # layers, KV heads, their width, keys and values
    assert report["target"]["kv_bytes_per_token"] == {"low": per_token, "high": per_token}
    lines = {item["label"]: item["low_bytes"] for item in report["memory"]["per_rank"][0]["items"]}
    assert lines["target_kv_cache"] >= 8192 * per_token
    assert lines["target_kv_cache"] < 8192 * per_token * 1.01


def test_weights_of_unknown_size_are_why_it_cannot_be_told(
    model_folder: Folder, llama_8b: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model_folder(
        "towered",
        {"model_type": "a_wrapper", "text_config": llama_8b, "vision_config": {"model_type": "unheard_of"}},
    )
    code = main(["fit", "./towered", "--draft", "none", "--gpu", "h100-80gb", "--quiet"])
    assert code == 4
    assert capsys.readouterr().out.startswith("CANNOT TELL: a part of the weights has no known size on rank 0")
    assert main(["gpus", "./towered", "--draft", "none", "--quiet"]) == 4


@pytest.mark.parametrize(("name", "plain"), [("Qwen/Qwen3-8B", True), ("google/gemma-3-27b-it", False)])
def test_blocks_are_multiplied_out_only_where_that_gives_the_tokens(
    name: str, plain: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six groups of gemma's layers share the blocks; a plain model's tokens are its blocks times 16."""
    main(["fit", name, "--draft", "none", "--gpu", "h200-141gb", "--offline", "--context", "8192"])
    text = " ".join(capsys.readouterr().out.split())
    found = re.search(r"at least ([\d,]+) blocks(?: of (\d+) =|, room for) ([\d,]+) tokens", text)
    assert found is not None
    blocks, size, tokens = (group and int(group.replace(",", "")) for group in found.groups())
    assert (size is not None) == plain
    assert not plain or (blocks or 0) * (size or 0) == tokens


@pytest.mark.parametrize(
    ("pinned", "helps"),
    [("1GiB", True), ("70GiB", True), (None, False)],
    ids=["too-small", "too-large", "not-pinned"],
)
def test_a_pinned_pool_of_the_wrong_size_may_be_left_out(
    pinned: str | None, helps: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four sequences of 8,192 tokens of 128 KiB are 4 GiB; beside 15 of weights there are no 70 on such a card."""
    request = ["fit", "./llama-8b", "--draft", "none", "--gpu", "h100-80gb", "--batch", "4", "--json", "-"]
    code = main([*request, *(("--kv-cache-memory", pinned) if pinned else ())])
    remedies = json.loads(capsys.readouterr().out)["verdict"]["remedies"]
    assert code == (3 if pinned else 0)
    assert ("without --kv-cache-memory" in [remedy["option"] for remedy in remedies]) == helps
