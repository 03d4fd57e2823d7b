"""What is read of llama.cpp: its figures as rounds, its help, its files, its log."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.trial.worker.llama_cpp import log
from planner.trial.worker.llama_cpp.answer import Answer, fitted_counts, told_counts
from planner.trial.worker.llama_cpp.options import Help, OptionsError, file_bytes, gguf_file

MIB = 1 << 20


@given(st.integers(1, 12), st.integers(1, 300), st.data())
def test_a_fit_keeps_both_totals_and_touches_two_neighbours(k: int, rounds: int, data: st.DataObject) -> None:
    accepted = data.draw(st.integers(0, k * rounds))
    counts = fitted_counts(rounds, accepted, k)
    assert len(counts) == k + 1
    assert sum(counts) == rounds
    assert sum(i * count for i, count in enumerate(counts)) == accepted
    used = [i for i, count in enumerate(counts) if count]
    assert len(used) <= 2
    assert used[-1] - used[0] <= 1


@pytest.mark.parametrize(("rounds", "accepted"), [(0, 0), (3, 13), (3, -1)])
def test_totals_that_cannot_be_are_no_rounds(rounds: int, accepted: int) -> None:
    with pytest.raises(ValueError, match="accepted"):
        fitted_counts(rounds, accepted, 4)


def answer(accepted: int, rounds: int | None, *accepted_to: int) -> Answer:
    return Answer(
        tokens=(),
        predicted=64,
        seconds=1.0,
        prefill_seconds=0.1,
        drafted=66,
        accepted=accepted,
        rounds=rounds,
        accepted_to=accepted_to,
    )


def test_counters_by_position_become_rounds_by_accepted_proposals() -> None:
    """Read from a real server: 17 rounds, of which 16, 12, 10 and 8 accepted at least 1, 2, 3 and 4."""
    assert told_counts(answer(46, 17, 16, 12, 10, 8), 4) == (1, 4, 2, 2, 8)


def test_a_draft_that_is_never_right_is_told_without_positions() -> None:
    assert told_counts(answer(0, 63), 4) == (63, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "told", [answer(46, None), answer(46, 17), answer(46, 17, 16, 12, 10, 7), answer(46, 15, 16, 12, 10, 8)]
)
def test_counters_that_are_missing_or_disagree_are_not_taken(told: Answer) -> None:
    assert told_counts(told, 4) is None


def test_names_that_were_removed_are_not_known() -> None:
    known = Help.of(
        "--spec-draft-model, -md, --model-draft FNAME\n"
        "                                        a draft, unlike --draft-model-of-old\n"
        "-c,    --ctx-size N                     size of the context, see --fit\n"
        "--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max\n"
        "--spec-draft-replace, --spec-replace TARGET DRAFT\n"
        "                                        the argument has been removed.\n"
    )
    assert known.names == {"--spec-draft-model", "-md", "--model-draft", "-c", "--ctx-size"}


@pytest.mark.parametrize(
    ("names", "chosen", "files"),
    [
        (["a.gguf", "config.json", "mmproj-F16.gguf"], "a.gguf", 1),
        (["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"], "m-00001-of-00002.gguf", 2),
    ],
)
def test_the_one_file_of_a_folder_is_found(tmp_path: Path, names: list[str], chosen: str, files: int) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"GGUF")
    found = gguf_file(str(tmp_path))
    assert found.name == chosen
    assert file_bytes(found) == files * len(b"GGUF")


@pytest.mark.parametrize(
    ("names", "words"), [([], "no *.gguf"), (["a.gguf", "b.gguf"], "holds 2: a.gguf, b.gguf")]
)
def test_no_file_or_several_are_refused_unless_one_is_named(tmp_path: Path, names: list[str], words: str) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(OptionsError, match="GGUF") as raised:
        gguf_file(str(tmp_path))
    assert words in str(raised.value)
    assert raised.value.code == "weights"
    if names:
        assert gguf_file(str(tmp_path), "b.gguf").name == "b.gguf"


def test_buffers_on_gpus_are_told_apart_from_the_host() -> None:
    """Lines as issues of 2025 show them."""
    found = log.buffers(
        "load_tensors:   CPU_Mapped model buffer size =   532.31 MiB\n"
        "load_tensors:        CUDA0 model buffer size =  4685.30 MiB\n"
        "llama_kv_cache_unified:      CUDA0 KV buffer size =   512.00 MiB\n"
        "llama_context:      CUDA0 compute buffer size =   258.50 MiB\n"
        "llama_context:  CUDA_Host compute buffer size =    16.01 MiB\n"
    )
    assert set(found) == {"CPU_Mapped", "CUDA0", "CUDA_Host"}
    assert log.on_device(found) == {
        "weights_bytes": round(4685.30 * MIB),
        "kv_cache_bytes": 512 * MIB,
        "compute_bytes": round(258.50 * MIB),
    }


def test_a_server_that_translates_has_not_refused() -> None:
    """As a server of 2026-08 printed it."""
    text = (
        "common_speculative_are_compatible: draft model special tokens must match target model to use "
        "speculation\n"
        "the target and draft vocabs are not compatible - tokens will be translated between the two\n"
    )
    assert log.refusal(text) is None
    assert log.translates(text)
    assert log.refusal(text.splitlines()[0]) is not None


@pytest.mark.parametrize(
    ("printed", "release"),
    [
        ("version: 5142 (80f19b4)\nbuilt with AMD clang version 17.0.6", "5142 (80f19b4)"),
        ("version: 0.1.0-dev (build 1, commit 7e4c0a9)\nbuilt with GNU", "0.1.0-dev (build 1, commit 7e4c0a9)"),
        ("nothing of the kind", None),
    ],
)
def test_the_release_is_read(printed: str, release: str | None) -> None:
    assert log.version(printed) == release


@given(st.text(max_size=300))
def test_no_log_makes_the_reader_fail(text: str) -> None:
    log.buffers(text)
    log.read_counters(text)
    assert log.failure(text)[0] in {"failed", "weights", "out_of_memory", "engine_options", "engine_refused"}
