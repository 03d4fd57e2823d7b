"""Pairs that vLLM refuses before it allocates anything, and those that it takes."""

from dataclasses import replace
from typing import Any

import made_models
import pytest
from pair_plans import DFLASH, EAGLE3, WORK, head_of, known, plan, several_mtp_layers, small, starts

from model_catalog.drafts import METHOD_OF_HEAD, DraftMethod
from model_catalog.errors import UsageError
from model_catalog.families.heads import draft_head_method
from planner.engines.base import Serving
from planner.engines.registry import engine_profile
from planner.engines.vllm import VllmProfile
from planner.engines.vllm_checks import check_parallelism
from planner.errors import ParallelismError
from planner.planning import make_plan


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_a_k_that_mtp_layers_can_draft(k: int) -> None:
    assert starts(plan(several_mtp_layers(), None, DraftMethod.MTP, k=k))


@pytest.mark.parametrize(("k", "use"), [(4, 3), (5, 3), (8, 6)])
def test_a_k_that_is_no_multiple_of_the_mtp_layers(k: int, use: int) -> None:
    """config/speculative.py: num_speculative_tokens must be divisible by n_predict once it is larger."""
    with pytest.raises(UsageError, match="no multiple of its 3 MTP layers") as caught:
        plan(several_mtp_layers(), None, DraftMethod.MTP, k=k)
    assert caught.value.hint == f"use --num-speculative-tokens {use}"


@pytest.mark.parametrize(
    ("method", "tokens", "refused"),
    [
        (DraftMethod.DFLASH, 8, True),
        (DraftMethod.DFLASH, 9, False),
        (DraftMethod.EAGLE3, 7, True),
        (DraftMethod.EAGLE3, 8, False),
        (DraftMethod.NGRAM, 1, False),
    ],
)
def test_a_token_budget_below_the_slots(method: DraftMethod, tokens: int, refused: bool) -> None:
    """config/vllm.py, _set_max_num_scheduled_tokens: k 7 reserves 7 slots, with DFlash 8."""
    head = None if method is DraftMethod.NGRAM else head_of(DFLASH if method is DraftMethod.DFLASH else EAGLE3)
    if not refused:
        assert starts(plan(small(), head, method, k=7, work=replace(WORK, max_num_batched_tokens=tokens)))
        return
    with pytest.raises(UsageError, match="max_num_batched_tokens") as caught:
        plan(small(), head, method, k=7, work=replace(WORK, max_num_batched_tokens=tokens))
    assert f"--max-num-batched-tokens {tokens + 1}" in caught.value.hint


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        (EAGLE3, False),
        (EAGLE3 | {"hidden_size": 256}, True),
        (EAGLE3 | {"hidden_size": 256, "target_hidden_size": 512}, False),
        (EAGLE3 | {"target_hidden_size": 768}, True),
    ],
)
def test_a_head_for_another_width(config: dict[str, Any], refused: bool) -> None:
    """llama_eagle3.py: the projection takes the target's hidden states, target_hidden_size wide."""
    if not refused:
        assert starts(plan(small(), head_of(config), DraftMethod.EAGLE3))
        return
    with pytest.raises(UsageError, match="made/model has 512") as caught:
        plan(small(), head_of(config), DraftMethod.EAGLE3)
    assert "for this target" in caught.value.hint


def test_the_draft_is_split_over_the_targets_ranks() -> None:
    """vllm-project/vllm#9394 took a draft tp of 1; 0.33.0 splits all the same, and 4 does not divide 14 heads."""
    with pytest.raises(ParallelismError, match="14 attention heads"):
        plan(
            known("Qwen/Qwen3-8B"),
            known("Qwen/Qwen2.5-0.5B-Instruct"),
            DraftMethod.DRAFT_MODEL,
            work=replace(WORK, tp=4),
        )


@pytest.mark.parametrize(
    ("seqs", "tokens", "refused"),
    [
        (200, 100, "100 tokens"),
        (100, 100, None),
        (None, 100, None),
        (2048, None, None),
        (20_000, None, "tokens a step are fewer than the 20,000 sequences"),
    ],
)
def test_a_step_of_fewer_tokens_than_sequences(seqs: int | None, tokens: int | None, refused: str | None) -> None:
    """SchedulerConfig: max_num_batched_tokens must be greater than or equal to max_num_seqs."""
    work = replace(WORK, max_num_seqs=seqs, max_num_batched_tokens=tokens)
    serving, card = Serving(target=small(), draft=None, workload=work), made_models.device(80 * 2**30)
    if refused is None:
        defaults = VllmProfile().defaults(serving, card)
        assert defaults.max_num_batched_tokens >= defaults.max_num_seqs
        return
    with pytest.raises(UsageError, match=refused) as caught:
        VllmProfile().defaults(serving, card)
    assert f"use --max-num-batched-tokens {seqs} or more, or --max-num-seqs" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "cache", "refused"),
    [
        ("Qwen/Qwen3-8B", "fp8_ds_mla", True),
        ("Qwen/Qwen3-8B", "fp8", False),
        ("deepseek-ai/DeepSeek-V3", "fp8_ds_mla", False),
        ("deepseek-ai/DeepSeek-V3", "nvfp4_ds_mla", False),
    ],
)
def test_packed_latent_rows_need_latent_attention(name: str, cache: str, refused: bool) -> None:
    serving = Serving(target=known(name), draft=None, workload=replace(WORK, kv_cache_dtype=cache))
    if not refused:
        VllmProfile().check(serving)
        return
    with pytest.raises(UsageError, match="multi-head latent attention"):
        VllmProfile().check(serving)


@pytest.mark.parametrize(("version", "refused"), [("0.7.3", True), ("0", True), ("0.8.0", False), ("1", False)])
def test_releases_before_the_v1_engine_are_refused(version: str, refused: bool) -> None:
    """Its release notes: V1 is the default since v0.8.0."""
    if not refused:
        assert engine_profile(f"vllm=={version}").version == version
        return
    with pytest.raises(UsageError, match="V1 replaced") as caught:
        engine_profile(f"vllm=={version}")
    assert caught.value.hint == "plan for vllm==0.8.0 or newer"


@pytest.mark.parametrize("version", ["", "²", "9" * 5000, "1..2", "0.33.0rc1"])
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        engine_profile(f"vllm=={version}")


def test_a_version_of_one_number_can_be_planned() -> None:
    serving = Serving(target=small(), draft=None, workload=WORK)
    assert make_plan(serving, [made_models.device(24 * 2**30)], engine_profile("vllm==1")).engine.version == "1"


@pytest.mark.parametrize(
    ("name", "tp", "message", "degrees"),
    [
        # 40 heads, 10 KV heads: 4 ranks would hold two and a half KV heads, 8 ranks 1.25.
        ("microsoft/phi-4", 8, "10 KV heads", "1 or 2"),
        ("microsoft/phi-4", 3, "40 attention heads", "1 or 2"),
        # 128 heads over one latent: no KV head is dealt.
        ("deepseek-ai/DeepSeek-V3", 3, "128 attention heads", "1 or 2 or 4 or 8 or 16 or 32"),
    ],
)
def test_the_hint_names_only_degrees_that_work(name: str, tp: int, message: str, degrees: str) -> None:
    with pytest.raises(ParallelismError, match=message) as caught:
        check_parallelism(known(name), tp, 1)
    assert caught.value.hint == f"use --tp {degrees}"


@pytest.mark.parametrize(
    ("method", "rope", "capped"),
    [
        (DraftMethod.DRAFT_MODEL, None, True),
        (DraftMethod.EAGLE3, None, False),
        (DraftMethod.EAGLE3, {"rope_type": "llama3", "factor": 8.0}, False),
        (DraftMethod.EAGLE3, {"rope_type": "yarn", "factor": 4.0}, True),
        (DraftMethod.EAGLE3, {"type": "dynamic", "factor": 4.0}, True),
    ],
)
def test_a_shorter_draft(method: DraftMethod, rope: dict[str, Any] | None, capped: bool) -> None:
    """config/vllm.py, _limit_max_model_len_to_draft; config/speculative.py, _CACHE_ONLY_ROPE_TYPES."""
    config = made_models.llama() if method is DraftMethod.DRAFT_MODEL else EAGLE3
    draft = head_of(config | {"max_position_embeddings": 2048, "rope_scaling": rope})
    limit = draft.architecture.max_context_tokens
    assert limit is not None
    assert starts(plan(small(), draft, method, work=replace(WORK, context_tokens=limit)))
    if not capped:
        assert starts(plan(small(), draft, method, work=replace(WORK, context_tokens=limit + 1)))
        return
    with pytest.raises(UsageError, match=f"exceeds its limit of {limit:,}"):
        plan(small(), draft, method, work=replace(WORK, context_tokens=limit + 1))


def test_every_head_of_the_catalogue_has_a_method() -> None:
    for repo_id in ("z-lab/Qwen3-8B-DFlash-b16", "AngelSlim/Qwen3-8B_eagle3", "yuhuili/EAGLE-llama2-chat-7B"):
        assert METHOD_OF_HEAD[draft_head_method(known(repo_id).snapshot.config) or ""] in set(
            METHOD_OF_HEAD.values()
        )
    assert "medusa" not in METHOD_OF_HEAD
