"""Memory of target and draft together in vLLM, for every draft method: weights, caches, buffers and peaks."""

from dataclasses import replace
from typing import Any

import made_models
import pytest
from pair_plans import (
    DFLASH,
    DSPARK,
    EAGLE3,
    TABLE_BYTES,
    VLLM,
    WORK,
    bounds,
    head_of,
    known,
    lines,
    plan,
    several_mtp_layers,
    small,
    stored,
    tensor,
)

from model_catalog.architecture import Role
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model
from model_catalog.units import GIB
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Draft, Serving
from planner.engines.vllm_drafting import lookahead_tokens
from planner.errors import ParallelismError
from planner.memory.breakdown import Group, Owner
from planner.planning import make_plan
from planner.workload import Workload

# --- slots in the cache -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "config", "slots"),
    [
        (DraftMethod.NGRAM, {}, 0),
        (DraftMethod.DRAFT_MODEL, {}, 5),
        (DraftMethod.EAGLE, {}, 5),
        (DraftMethod.EAGLE3, {}, 5),
        (DraftMethod.MTP, {}, 5),
        (DraftMethod.DFLASH, {}, 6),
        (DraftMethod.DSPARK, {}, 5),
        (DraftMethod.DSPARK, {"sample_from_anchor": False}, 6),
        (DraftMethod.DSPARK, {"speculators_model_type": "dspark"}, 6),
        (DraftMethod.DSPARK, {"speculators_model_type": "dspark", "sample_from_anchor": True}, 5),
    ],
)
def test_slots_past_the_scheduled_tokens(method: DraftMethod, config: dict[str, Any], slots: int) -> None:
    """vLLM 0.33.0 config/vllm.py, num_lookahead_tokens; transformers_utils/configs/speculators/algos.py."""
    model = head_of(DSPARK | config) if method is DraftMethod.DSPARK else None
    assert lookahead_tokens(Draft(method=method, num_speculative_tokens=5, model=model)) == slots


def test_slots_never_go_past_the_longest_sequence() -> None:
    """1,024 tokens are 64 blocks of 16; DFlash's k + 1 slots would start a 65th, but no sequence is longer."""
    pair = plan(small(), head_of(DFLASH), DraftMethod.DFLASH, k=15, work=replace(WORK, batch=4))
    # 2 of 6 layers are the head's: 2 KV heads x 64 x keys and values x 16 tokens in 16 bits.
    assert bounds(lines(pair)["draft_kv_cache"]) == ((4 * 64 + 1) * 2 * 8192,) * 2


# --- recurrent targets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "k", "tp", "context", "blocks", "tokens"),
    [
        # vLLM 0.32.0's own grouping and alignment functions
        pytest.param("Qwen/Qwen3-Next-80B-A3B-Instruct", 0, 1, 32768, 3212, 1_570_907, id="Qwen3-Next"),
        pytest.param("Qwen/Qwen3-Next-80B-A3B-Instruct", 2, 1, 32768, 2880, 1_329_180, id="Qwen3-Next, k 2"),
        pytest.param("Qwen/Qwen3.5-27B", 0, 2, 65536, 1671, 1_216_785, id="Qwen3.5-27B"),
        pytest.param("Qwen/Qwen3.5-27B", 3, 2, 65536, 1542, 1_041_819, id="Qwen3.5-27B, k 3"),
        # By hand: a state of 2 x (524,288 + 8,192 x (3 + k)) B is the page of 544 or 560 tokens x 2,048 B; 13
        # pages a block; 3 x (2 + k) states and ceil(32,768 / page) blocks a request.
        pytest.param("Qwen/Qwen3-Next-80B-A3B-Instruct", 1, 1, 32768, 2965, 1_387_958, id="Qwen3-Next, k 1"),
        pytest.param("Qwen/Qwen3-Next-80B-A3B-Instruct", 3, 1, 32768, 2880, 1_275_295, id="Qwen3-Next, k 3"),
    ],
)
def test_states_multiply_with_k(target: str, k: int, tp: int, context: int, blocks: int, tokens: int) -> None:
    work = Workload(context_tokens=context, tp=tp, kv_cache_memory_bytes=40 * GIB, max_num_batched_tokens=8192)
    draft = Draft(method=DraftMethod.MTP, num_speculative_tokens=k) if k else None
    serving = Serving(target=known(target), draft=draft, workload=work)
    made = make_plan(serving, parse_gpu_option(f"h200:{tp}"), VLLM).cache
    assert made is not None
    assert (made.blocks, made.tokens) == (blocks, tokens)


# --- weights ----------------------------------------------------------------------------------------------


def test_a_dflash_head_is_its_checkpoint_and_one_joined_projection() -> None:
    """Hub count of z-lab/Qwen3-8B-DFlash-b16; five layers' keys and values (8 heads of 128) over 4,096 again."""
    pair = plan(known("Qwen/Qwen3-8B"), known("z-lab/Qwen3-8B-DFlash-b16"), DraftMethod.DFLASH, k=15)
    found = pair.ranks[0].breakdown.of_group(Group.DRAFT_WEIGHTS)
    joined = 5 * 2 * 8 * 128 * 4096 * 2
    assert bounds(lines(pair)["draft_context_projection"]) == (joined, joined)
    assert found.low_bytes == found.high_bytes == 1_048_626_432 * 2 + joined


def test_a_heads_projection_is_whole_on_every_rank() -> None:
    """llama_eagle3.py: fc is a ReplicatedLinear. Three states of 512 into 512, and four norms."""
    pair = plan(small(), head_of(EAGLE3), DraftMethod.EAGLE3, work=replace(WORK, tp=2))
    assert bounds(lines(pair)["draft_norms_and_other"]) == (2 * (3 * 512 * 512 + 4 * 512),) * 2


@pytest.mark.parametrize(
    ("head", "work", "expected"),
    [
        pytest.param(head_of(EAGLE3), WORK, (0, TABLE_BYTES), id="nobody told whether it stores one"),
        pytest.param(stored(EAGLE3), WORK, None, id="headers without one"),
        pytest.param(stored(EAGLE3, tensor(Role.EMBEDDING, 1000)), WORK, (0, TABLE_BYTES), id="headers with one"),
        pytest.param(
            head_of(EAGLE3, published_parameters=head_of(EAGLE3).architecture.parameters()),
            WORK,
            None,
            id="count without",
        ),
        pytest.param(
            head_of(EAGLE3, published_parameters=head_of(EAGLE3).architecture.parameters() + 512_000),
            WORK,
            (0, TABLE_BYTES),
            id="count with",
        ),
        pytest.param(head_of(EAGLE3), replace(WORK, tp=2), (0, TABLE_BYTES // 2), id="split"),
        pytest.param(head_of(EAGLE3), replace(WORK, pp=2), (TABLE_BYTES, TABLE_BYTES), id="last of two stages"),
    ],
)
def test_a_heads_token_table(head: Model, work: Workload, expected: tuple[int, int] | None) -> None:
    """eagle/utils.py: shared unless stored and different; nothing to share on a later stage."""
    line = lines(plan(small(), head, DraftMethod.EAGLE3, work=work)).get("draft_token_table")
    assert (bounds(line) if line else None) == expected


def test_a_stage_with_a_tied_table_can_share_it() -> None:
    pair = plan(small(tie_word_embeddings=True), head_of(EAGLE3), DraftMethod.EAGLE3, work=replace(WORK, pp=2))
    assert bounds(lines(pair)["draft_token_table"]) == (0, TABLE_BYTES)


def test_a_head_without_a_table_does_not_start_on_stages() -> None:
    with pytest.raises(ParallelismError, match="stores no token table") as caught:
        plan(small(), stored(EAGLE3), DraftMethod.EAGLE3, work=replace(WORK, pp=2))
    assert "--pp 1" in caught.value.hint


def test_an_output_table_of_the_targets_size_may_be_shared() -> None:
    full = made_models.llama(architectures=["LlamaForCausalLMEagle3"], num_hidden_layers=1, draft_vocab_size=1000)
    reduced = lines(plan(small(), head_of(EAGLE3), DraftMethod.EAGLE3))["draft_output_head"]
    whole = lines(plan(small(), head_of(full), DraftMethod.EAGLE3))["draft_output_head"]
    assert reduced.low_bytes == reduced.high_bytes
    assert whole.low_bytes == 0
    assert whole.high_bytes == TABLE_BYTES


def test_a_draft_model_shares_nothing() -> None:
    """speculator.py of standalone_ar: its own embedding and head, on the last stage alone."""
    target = small()
    pair = plan(target, small(), DraftMethod.DRAFT_MODEL, work=replace(WORK, pp=2))
    found = lines(pair)
    assert bounds(found["draft_embedding"]) == bounds(found["draft_output_head"]) == (TABLE_BYTES, TABLE_BYTES)
    assert pair.ranks[0].breakdown.of_owner(Owner.DRAFT).high_bytes == 0


@pytest.mark.parametrize("pp", [1, 2])
def test_mtp_layers_are_used_again_not_loaded_again(pp: int) -> None:
    target = known("Qwen/Qwen3-Next-80B-A3B-Instruct")
    once, thrice = (
        lines(plan(target, None, DraftMethod.MTP, k=k, work=replace(WORK, tp=2, pp=pp))) for k in (1, 3)
    )
    weights = [label for label in once if label.startswith("draft_") and once[label].group is Group.DRAFT_WEIGHTS]
    assert "draft_mtp_layers" in weights
    assert [bounds(once[label]) for label in weights] == [bounds(thrice[label]) for label in weights]
    # Its checkpoint stores no table in the MTP layer, so a later stage needs one: 151,936 x 2,048 in bfloat16.
    table = once.get("draft_token_table")
    assert (bounds(table) if table else None) == (None if pp == 1 else (151_936 * 2048,) * 2)


def test_ngram_has_neither_weights_nor_cache() -> None:
    found = plan(small(), None, DraftMethod.NGRAM).ranks[0].breakdown
    assert found.of_group(Group.DRAFT_WEIGHTS).high_bytes == 0
    assert lines(plan(small(), None, DraftMethod.NGRAM))["draft_kv_cache"].high_bytes == 0


# --- buffers, peaks and graphs ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [DraftMethod.DFLASH, DraftMethod.DSPARK])
def test_buffers_of_a_parallel_head(method: DraftMethod) -> None:
    """dflash/speculator.py: 28 B a drafted token, 8 B a batched one, and the staged states of three layers."""
    head = head_of(DFLASH if method is DraftMethod.DFLASH else DSPARK)
    work = replace(WORK, max_num_batched_tokens=2048, max_num_seqs=256)
    found = lines(plan(small(), head, method, k=7, work=work))
    assert bounds(found["draft_hidden_states"]) == (2048 * 512 * 2,) * 2
    assert bounds(found["draft_query_buffers"]) == (28 * 256 * 7 + 8 * 2048,) * 2
    assert bounds(found["draft_staged_states"]) == (0, 2048 * 3 * 512 * 2)
    assert "draft_staged_states" not in lines(
        plan(small(), head, method, k=7, work=replace(work, enforce_eager=True))
    )


def test_a_parallel_head_samples_k_rows_of_each_sequence() -> None:
    """8,192 tokens hold blocks of 16 for 512 sequences: 512 x 15 rows x 151,936 words in bfloat16 are 2.17 GiB.

    A head that drafts one token after another needs a row of each sequence.
    """
    target = known("Qwen/Qwen3-8B")
    work = replace(WORK, max_num_batched_tokens=8192, max_num_seqs=1024)
    block = lines(plan(target, known("z-lab/Qwen3-8B-DFlash-b16"), DraftMethod.DFLASH, k=15, work=work))
    logits = 512 * 15 * 151_936 * 2
    held = 8192 * 4096 * 2
    assert block["activation_peak"].low_bytes == logits + held
    assert block["activation_peak"].high_bytes >= logits + 6 * held
    one = lines(plan(target, known("AngelSlim/Qwen3-8B_eagle3"), DraftMethod.EAGLE3, k=15, work=work))
    assert one["activation_peak"].high_bytes < block["activation_peak"].low_bytes * 1.2
    # Its graphs record sampling: a row for each of the 512 captured tokens.
    assert f"{512 * 151_936 * 2:,} B of drafted logits" in block["cuda_graphs"].formula
    assert "drafted logits" not in one["cuda_graphs"].formula


def test_a_chain_of_mtp_modules_keeps_its_inputs() -> None:
    """multi_module_mtp/speculator.py: two int64 and a hidden state for each of k - 1 steps of each sequence."""
    target = several_mtp_layers()
    found = lines(plan(target, None, DraftMethod.MTP, k=3, work=replace(WORK, max_num_seqs=256)))
    hidden = target.architecture.hidden_size
    assert bounds(found["draft_module_states"]) == (256 * 2 * (16 + hidden * 2),) * 2
    assert "draft_module_states" not in lines(
        plan(target, None, DraftMethod.MTP, k=1, work=replace(WORK, max_num_seqs=256))
    )


def test_a_heads_position_table_follows_the_served_length() -> None:
    """config/speculative.py, _maybe_override_draft_max_position_embeddings: 64 dimensions in bfloat16."""
    head = head_of(EAGLE3 | {"max_position_embeddings": 2048})
    found = lines(plan(small(), head, DraftMethod.EAGLE3, work=replace(WORK, context_tokens=32_768)))
    assert found["draft_rotary_table"].high_bytes == 32_768 * 64 * 2
