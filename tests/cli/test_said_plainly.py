"""Requests that contradict themselves, and answers that used to need explaining: each is said in plain words."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.cli.main import main

PAIR = ("fit", "Qwen/Qwen3-8B", "--draft", "z-lab/Qwen3-8B-DFlash-b16", "--gpu", "h200-141gb", "--offline")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main([*arguments, "--json", "-"])
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not a report", "is not a report: it is not JSON (line 1, column 1)"),
        (b'{"schema": 1,\n oops}', "it is not JSON (line 2, column 2)"),
        (b"  \n", "it is empty"),
        (b"", "it is empty"),
        (b"[1]", "it is not a JSON object"),
        (b'{"a": "\xff"}', "it is not text"),
    ],
)
def test_a_file_that_is_no_report(
    content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "file"
    place.write_bytes(content)
    assert main(["check", str(place)]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "char" not in told
    assert "hint: write a report with: specplan fit TARGET --json report.json" in told


@pytest.mark.parametrize("command", ["fit", "drafts", "gpus"])
def test_more_sequences_than_the_engine_is_told_to_hold(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = [] if command == "gpus" else ["--gpu", "h100-80gb"]
    asked = [command, "Qwen/Qwen3-8B", "--draft", "ngram", *where, "--offline", "--max-num-seqs", "16"]
    assert main([*asked, "--batch", "17"]) == 2
    assert capsys.readouterr().err == (
        "error: --batch and --max-num-seqs: the engine would hold 16 sequences at once, and 17 are asked for\n"
        "hint: use --max-num-seqs 17 or more, or --batch 16: the others wait\n"
    )
    assert main([*asked, "--batch", "16", "--quiet"]) == 0


def test_a_draft_without_a_model_costs_nothing_that_could_be_rounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "Qwen/Qwen3-8B", "--draft", "ngram", "--gpu", "l40s", "--offline"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Draft's cost next to nothing: no model runs" in told
    assert "0.00 – 0.00" not in told


def test_the_planned_engine_is_not_told_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PAIR, "--also-for", "vllm"]) == 0
    out, err = capsys.readouterr()
    assert out.count("vllm serve") == 1
    assert "note: --also-for vllm is the engine that is planned for: its command is there\n" in err
    # Another release of it is another answer; the same one asked for twice is one.
    assert main([*PAIR, "--also-for", "vllm==0.20.0", "--also-for", "vllm==0.20.0"]) == 0
    out, err = capsys.readouterr()
    assert out.count("Under vllm 0.20.0") == 1
    assert "planned for" not in err


def test_another_engines_memory_is_told_where_it_does_not_do(capsys: pytest.CaptureFixture[str]) -> None:
    """TensorRT-LLM keeps a DFlash draft's context for every slot that it may hold, vLLM does not."""
    (other,) = document(capsys, *PAIR, "--also-for", "tensorrt-llm")["elsewhere"]
    planned = document(capsys, *PAIR, "--engine", "tensorrt-llm")
    missing = [row["verdict"]["headroom_bytes"] for row in planned["candidates"]]
    assert planned["exit_code"] == 3
    assert len(missing) == 1
    assert missing[0] < 0
    (note,) = [note for note in other["notes"] if "memory" in note and "missing" in note]
    assert f"at worst {-(missing[0] * 100 // 2**30) / 100:.2f} GiB is missing" in note
    # One slot would do, and then nothing is said.
    (fitting,) = document(capsys, *PAIR, "--max-num-seqs", "1", "--also-for", "tensorrt-llm")["elsewhere"]
    assert document(capsys, *PAIR, "--max-num-seqs", "1", "--engine", "tensorrt-llm")["exit_code"] == 0
    assert not [note for note in fitting["notes"] if "missing" in note]


def test_a_trial_takes_fresh_for_the_sake_of_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "--fresh As in fit; changes nothing here: a trial measures anew anyway." in told
