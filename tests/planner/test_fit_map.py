"""The map of context and batch: edges worked out by hand, held against single answers, and laws of all maps."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from linear_engine import LinearEngine, made_device, made_model
from pair_plans import known

from model_catalog.drafts import DraftMethod
from planner.cli.main import main
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.fit_map import FitEdges, FitMap, map_fit, shortest_context
from planner.workload import Workload

#: Of the made target: what its config states.
LONGEST = 131_072


@pytest.fixture
def alone(llama_8b: Mapping[str, Any]) -> Serving:
    """8,192 tokens at 1 MiB each."""
    return Serving(target=made_model("target", llama_8b), draft=None, workload=Workload())


def pair(engine_context: int = 8192, batch: int = 2) -> Serving:
    draft = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=3, model=known("Qwen/Qwen3-0.6B"))
    workload = Workload(context_tokens=engine_context, batch=batch)
    return Serving(target=known("Qwen/Qwen3-8B"), draft=draft, workload=workload)


def edges(found: FitMap, batch: int) -> FitEdges:
    return next(row for row in found.rows if row.batch == batch)


# A card of 40 GiB: 1 GiB lies outside the budget, 16 GiB are weights, so 23 GiB are left for a cache of 1 MiB a
# token: 23,552 tokens. Where 2 GiB more may be needed, 21,504 are certain.


def test_edges_worked_out_by_hand(alone: Serving) -> None:
    found = map_fit(alone, (made_device(40),), LinearEngine(target_gib=16, unsure_gib=2))
    for row in found.rows:
        assert (row.fits_tokens, row.possible_tokens) == (21_504 // row.batch, 23_552 // row.batch), row
        assert row.share_tokens == LONGEST
    # 46 sequences of 512 tokens are possible, so 64 lie beyond the map's edge.
    assert [row.batch for row in found.rows] == [1, 2, 4, 8, 16, 32, 64]
    assert (found.shortest_tokens, found.longest_tokens, found.unknown, found.most_batch) == (
        512,
        LONGEST,
        False,
        None,
    )


def test_where_an_edge_bends_and_what_was_asked_are_rows(alone: Serving) -> None:
    # 2 MiB for 1,024 tokens: the longest context is 256 MiB a sequence, and 23 GiB hold 92 of them.
    asked = replace(alone, workload=Workload(batch=7))
    found = map_fit(asked, (made_device(40),), LinearEngine(target_gib=16, cache_bytes_per_token=2048))
    assert {7, 92, 93} <= {row.batch for row in found.rows}
    assert edges(found, 92).fits_tokens == LONGEST
    # 23 GiB of 2 KiB are 12,058,624 tokens: 129,662 for each of 93.
    assert edges(found, 93).fits_tokens == 12_058_624 // 93 == 129_662


def test_what_fits_nowhere(alone: Serving) -> None:
    found = map_fit(alone, (made_device(40),), LinearEngine(target_gib=50))
    assert [(row.fits_tokens, row.possible_tokens) for row in found.rows] == [(None, None)] * len(found.rows)
    assert found.rows
    assert not found.unknown


def test_a_missing_reading_is_never_a_fit(alone: Serving) -> None:
    device = replace(made_device(40), free_bytes=None)
    found = map_fit(alone, (device,), LinearEngine(target_gib=16))
    assert found.unknown
    assert {row.fits_tokens for row in found.rows} == {None}
    assert {row.possible_tokens for row in found.rows} == {LONGEST}


def test_the_share_is_an_edge_of_its_own(alone: Serving, llama_1b: Mapping[str, Any]) -> None:
    """15 % of 40 GiB are 6 GiB, whatever the context: of this engine's drafts only weights count."""
    draft = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=3, model=made_model("d", llama_1b))
    serving = replace(alone, draft=draft)
    within = map_fit(serving, (made_device(40),), LinearEngine(target_gib=16, draft_gib=6))
    over = map_fit(serving, (made_device(40),), LinearEngine(target_gib=16, draft_gib=7))
    assert {row.share_tokens for row in within.rows} == {LONGEST}
    assert {row.share_tokens for row in over.rows} == {None}
    assert edges(over, 1).fits_tokens == 16 * 1024


@pytest.mark.parametrize(("engine", "batch", "most"), [("transformers", 1, 1), ("llama.cpp", 3, 256)])
def test_more_sequences_than_the_engine_takes_are_no_answer_about_memory(
    engine: str, batch: int, most: int
) -> None:
    """Assisted generation takes one sequence; llama.cpp's server 256 (LLAMA_MAX_SEQ)."""
    devices = tuple(parse_gpu_option("b200"))
    found = map_fit(pair(512, batch), devices, engine_profile(engine))
    assert found.most_batch == most
    assert found.rows[-1].batch == most
    assert found.rows[-1].fits_tokens is not None


@pytest.mark.parametrize("asked", [1, 2, 700, 8192, 100_000])
def test_the_map_begins_below_what_was_asked(alone: Serving, asked: int) -> None:
    begins = shortest_context(replace(alone, workload=Workload(context_tokens=asked)))
    assert 1 <= begins <= min(512, asked)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("with_draft", [False, True])
def test_edges_only_fall_as_the_batch_grows(engine: str, with_draft: bool) -> None:
    serving = pair() if with_draft else replace(pair(), draft=None)
    found = map_fit(serving, tuple(parse_gpu_option("l40s")), engine_profile(engine))
    assert len(found.rows) > 5
    for before, after in pairwise(found.rows):
        for name in ("fits_tokens", "possible_tokens", "share_tokens"):
            assert (getattr(after, name) or 0) <= (getattr(before, name) or 0), (name, before, after)
    for row in found.rows:
        assert (row.fits_tokens or 0) <= (row.possible_tokens or 0)


@pytest.mark.parametrize("batch", [1, 2, 16])
@pytest.mark.parametrize("draft", [None, "Qwen/Qwen3-0.6B"])
def test_just_inside_and_just_outside_fit_says_the_same(
    batch: int,
    draft: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Every edge of a map on one L4 against `specplan fit` at that very context and one token more."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    serving = pair() if draft else replace(pair(), draft=None)
    row = edges(map_fit(serving, tuple(parse_gpu_option("l4")), engine_profile("vllm")), batch)

    def single(context: int) -> tuple[str, bool]:
        arguments = ["fit", "Qwen/Qwen3-8B", "--gpu", "l4", "--batch", str(batch), "--context", str(context)]
        arguments += ["--draft", draft or "none", "--num-speculative-tokens", "3", "--offline", "--json", "-"]
        main(arguments)
        report = json.loads(capsys.readouterr().out)
        if draft is None:
            return report["verdict"]["answer"], True
        candidate = report["candidates"][0]
        return candidate["verdict"]["answer"], candidate["budget"]["share"] <= 0.15

    assert row.fits_tokens is not None
    assert row.possible_tokens is not None
    assert row.fits_tokens < row.possible_tokens
    assert single(row.fits_tokens)[0] == "fits"
    assert single(row.fits_tokens + 1)[0] == "tight"
    if row.possible_tokens < 40_960:  # what the models allow
        assert single(row.possible_tokens)[0] == "tight"
        assert single(row.possible_tokens + 1)[0] == "does_not_fit"
    if draft is not None:
        assert row.share_tokens is not None
        assert single(row.share_tokens)[1]
        assert not single(row.share_tokens + 1)[1]
