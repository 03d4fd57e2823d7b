"""Choosing a draft on the command line, on models of the embedded catalogue without a network."""

import json
from typing import Any

import pytest

from planner.cli.main import main


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("home")
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(place / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def document(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    exit_code = main([*arguments.split(), "--json", "-"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == exit_code
    return exit_code, found


def test_fit_finds_judges_and_recommends(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, found = document("fit Qwen/Qwen3-32B --gpu h100-80gb:2", capsys)
    assert exit_code == 0
    names = [row["repo_id"] or row["method"] for row in found["candidates"]]
    assert {"Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "ngram"} <= set(names)
    assert any(row["method"] == "eagle3" for row in found["candidates"])
    accepted = [row for row in found["candidates"] if row["accepted"]]
    assert [row["rank"] for row in accepted] == list(range(1, len(accepted) + 1))
    for row in accepted:
        speedup = row["prediction"]["speedup"]
        assert 0 < speedup["low"] < speedup["high"] <= row["prediction"]["mean_acceptance_length"]["high"]
        assert row["prediction"]["acceptance"]["source"]
        assert row["budget"]["share"] <= 0.15
    best = found["recommendation"]
    assert best["draft"] == names[0]
    config = json.loads(best["command"][best["command"].index("--speculative-config") + 1])
    assert config["num_speculative_tokens"] == best["num_speculative_tokens"]
    assert config["method"] == best["method"]
    assert found["worthwhile"]["answer"] in {"yes", "depends"}
    assert found["verdict"]["answer"] == "fits"


def test_drafts_shows_the_table_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafts", "Qwen/Qwen3-32B", "--gpu", "h100-80gb:2"]) == 0
    shown = capsys.readouterr().out
    assert "Qwen/Qwen3-0.6B" in shown
    assert "Worth it?" in shown
    assert "KV cache" not in shown


@pytest.mark.parametrize(
    ("target", "draft", "reason"),
    [
        # vLLM's own rule: config vocab_size must be equal (152,064 and 151,936; 262,208 and 262,144)
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct --tp 2", "152,064"),
        ("google/gemma-3-27b-it", "google/gemma-3-1b-it", "262,208"),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "no smaller"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "its own draft"),
    ],
)
def test_a_draft_that_cannot_serve_is_refused_with_its_figures(
    target: str, draft: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code, found = document(f"fit {target} --draft {draft} --gpu h200-141gb:2", capsys)
    assert exit_code == 3
    assert found["recommendation"] is None
    texts = " ".join(remark["text"] for remark in found["candidates"][0]["reasons"])
    assert reason in texts
    assert main(["fit", target, "--draft", *draft.split(), "--gpu", "h200-141gb:2", "--quiet"]) == 3
    assert capsys.readouterr().out.startswith("DRAFT REFUSED")


def test_equal_sizes_with_other_tokens_are_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    # The example that guides print: equal vocab_size, four ids that the draft does not have.
    _, found = document("drafts Qwen/Qwen3-8B --draft Qwen/Qwen2.5-0.5B-Instruct --gpu h100-80gb", capsys)
    (row,) = found["candidates"]
    assert row["compatibility"]["verdict"] == "accepted_with_warning"
    assert any("4 ids differ" in check["text"] for check in row["compatibility"]["checks"])


def test_other_engines_say_what_they_make_of_a_pair(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "fit Qwen/Qwen3-8B --draft Qwen/Qwen2.5-0.5B-Instruct --gpu h100-80gb --also-for sglang"
    _, found = document(f"{arguments} --also-for tensorrt-llm", capsys)
    sglang, tensorrt = found["elsewhere"]
    assert (sglang["compatibility"]["verdict"], sglang["command"]) == ("refused", None)
    assert sglang["why_not"]
    assert tensorrt["command"][0] == "trtllm-serve"
    assert "Draft_Target" in next(iter(tensorrt["files"].values()))


def test_an_unknown_engine_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "Qwen/Qwen3-8B", "--gpu", "h100-80gb", "--also-for", "llamafile"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: --also-for: no engine 'llamafile' is known\n")
    assert "sglang" in told


def test_a_share_of_nothing_is_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    # TensorRT-LLM's fraction is of what is free after loading, and here the draft's buffers take it all.
    pair = "fit Qwen/Qwen3-8B --draft z-lab/Qwen3-8B-DFlash-b16 --gpu h100-80gb --offline --engine tensorrt-llm"
    assert main(pair.split()) == 3
    told = " ".join(capsys.readouterr().out.split())
    assert "no gpu_memory_utilization works: nothing is free that it would be a share of" in told
    assert "needs at least" not in told


@pytest.mark.parametrize("option", ["--engine", "--also-for"])
def test_a_build_of_llama_cpp_is_named_by_its_tag(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fit", "Qwen/Qwen3-8B", "--draft", "none", "--gpu", "h100-80gb", "--offline", option]
    assert main([*arguments, "llama.cpp==b11434"]) == 0
    assert "llama.cpp 11434" in capsys.readouterr().out
    assert main([*arguments, "sglang==new"]) == 2
    # The hint names a version of the same engine.
    assert "sglang==0.5." in capsys.readouterr().err


def test_off_may_win_where_zero_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    # gpt-oss-20b for 120b: 24 layers for 36, both mixtures: slower at every k, so no speculation is best.
    arguments = "fit openai/gpt-oss-120b --draft openai/gpt-oss-20b --gpu h100-80gb:2 --num-speculative-tokens 0-4"
    exit_code, found = document(arguments, capsys)
    assert exit_code == 3
    assert [remark["code"] for remark in found["candidates"][0]["reasons"]] == ["off_wins"]


def test_nothing_found_names_what_was_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "l4", "--batch", "16", "--quiet"]) == 3
    assert capsys.readouterr().out.startswith("NO DRAFT: none of those found will do.")


def test_a_named_draft_that_cannot_be_split_is_refused_beside_the_targets_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Qwen2.5-0.5B has 14 attention heads by its published config; llama.cpp does not split heads."""
    named = "fit Qwen/Qwen2.5-72B-Instruct --draft Qwen/Qwen2.5-0.5B-Instruct --gpu h100-80gb:4 --tp 4"
    assert main([*named.split(), "--also-for", "llama.cpp"]) == 3
    shown = capsys.readouterr().out
    assert "DRAFT REFUSED: the draft's 14 attention heads do not divide by tp 4" in shown
    assert "use_heterogeneous_vocab" in shown
    assert "The target alone: FITS" in shown
    assert "--spec-draft-model" in shown
    assert main([*named.split(), "--quiet"]) == 3
    assert capsys.readouterr().out.startswith("DRAFT REFUSED")
    exit_code, found = document(named, capsys)
    assert exit_code == 3
    assert found["recommendation"] is None
    (only,) = found["candidates"]
    assert only["verdict"] is None
    assert [reason["code"] for reason in only["reasons"]] == ["incompatible", "incompatible"]


def test_a_target_that_cannot_be_split_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "Qwen/Qwen2.5-0.5B-Instruct", "--draft", "none", "--gpu", "h100-80gb:4", "--tp", "4"]) == 2
    assert "14 attention heads" in capsys.readouterr().err


def test_mtp_layers_are_run_in_whole_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    # vLLM takes k up to the three layers of this target, or a multiple of three.
    code, report = document("fit XiaomiMiMo/MiMo-V2-Flash --gpu h200:8 --draft mtp", capsys)
    assert code == 0
    assert report["recommendation"]["num_speculative_tokens"] % 3 == 0


def codes_of(remarks: list[dict[str, str]]) -> set[str]:
    return {remark["code"] for remark in remarks}


def test_one_unsuitable_draft_does_not_hide_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    # A head for hidden states of 5,120 beside a model that will do; alone it is a wrong request.
    head = "fit Qwen/Qwen3-8B --gpu h100-80gb --draft AngelSlim/Qwen3-14B_eagle3"
    exit_code, found = document(f"{head} --draft ngram", capsys)
    assert exit_code == 0
    assert found["recommendation"]["method"] == "ngram"
    refused = found["candidates"][1]
    assert [remark["text"] for remark in refused["reasons"] if "5,120" in remark["text"]] == [
        "the head reads hidden states of 5,120; the target's are 4,096 wide"
    ]
    assert main(head.split()) == 2


def test_transformers_says_once_that_it_takes_one_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = document("fit Qwen/Qwen3-8B --gpu h100-80gb --batch 4 --engine transformers", capsys)
    for row in found["candidates"]:
        if row["compatibility"] is None:  # nothing about it is on disk
            continue
        assert sum("one sequence at a time" in remark["text"] for remark in row["reasons"]) == 1
    assert "ngram_is_free" not in codes_of(found["worthwhile"]["reasons"])  # it takes one sequence as well


@pytest.mark.parametrize(
    ("named", "remedies"),
    [
        ("Qwen/Qwen3-8B --draft Qwen/Qwen3-8B", False),  # refused for what it is
        ("Qwen/Qwen3-32B --draft Qwen/Qwen3-8B --draft-budget 1%", True),  # takes more than 1 %, and nothing else
    ],
)
def test_more_room_is_offered_only_where_room_is_all_that_lacks(
    named: str, remedies: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code, found = document(f"fit {named} --gpu h200", capsys)
    assert exit_code == 3
    assert bool(found["candidates"][0]["verdict"]["remedies"]) is remedies


def test_a_target_that_does_not_fit_is_said_to_be_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = document("fit zai-org/GLM-5.3 --gpu h200:8", capsys)
    assert codes_of(found["worthwhile"]["reasons"]) == {"target_does_not_fit"}
    assert "mtp_not_loaded" not in codes_of(found["problems"])  # it stands among the candidates


@pytest.mark.parametrize(
    ("lengths", "exit_code"),
    [
        ("--output-tokens 16000", 2),
        ("--prompt-tokens 5000 --output-tokens 5000", 2),
        ("--prompt-tokens 8000", 0),  # the other length is what is left
        ("--prompt-tokens 8000 --output-tokens 192", 0),
    ],
)
def test_prompt_and_output_must_fit_the_context(
    lengths: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    named = f"fit Qwen/Qwen3-32B --draft ngram --gpu h200 --context 8192 --quiet {lengths}"
    assert main(named.split()) == exit_code
    assert ("exceed the context of 8,192" in capsys.readouterr().err) is (exit_code == 2)


def test_built_in_drafts_are_known_in_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = document("fit Qwen/Qwen3-8B --gpu h100-80gb --draft NGRAM", capsys)
    assert [row["method"] for row in found["candidates"]] == ["ngram"]


def test_a_block_shorter_than_k_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    # Blocks of 16 by the name and its config: one token is the target's own, 15 are drafted.
    named = "fit Qwen/Qwen3-8B --gpu h100-80gb --draft z-lab/Qwen3-8B-DFlash-b16 --num-speculative-tokens"
    _, found = document(f"{named} 16", capsys)
    assert "k_lowered" in codes_of(found["warnings"])
    assert "15 are planned" in " ".join(warning["text"] for warning in found["warnings"])
    _, found = document(f"{named} 8-16", capsys)
    assert "k_lowered" not in codes_of(found["warnings"])
