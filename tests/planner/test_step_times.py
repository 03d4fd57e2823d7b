"""Step times from structure: what is read, what is not, and the cost ratios that others measured."""

from dataclasses import replace

import pytest
from made_models import llama, mixture, model_of

from model_catalog.bounds import Basis
from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from planner.declared_gpus import find_gpu
from planner.devices import Device
from planner.engines.base import Draft
from planner.speculation.prediction import StepTimes
from planner.speculation.step_times import covered_tokens, draft_passes, model_step_times, prefill_seconds
from planner.speculation.traffic import draft_traffic, model_traffic
from planner.workload import Workload

H100 = find_gpu("h100-80gb").device()


def described(name: str) -> Model:
    row = find_row(name)
    assert row is not None
    return describe(row)


def drafted(name: str | None, method: DraftMethod = DraftMethod.DRAFT_MODEL) -> Draft:
    return Draft(method=method, num_speculative_tokens=3, model=None if name is None else described(name))


def times(
    target: str, draft: Draft, device: Device | None = H100, k: int = 3, workload: Workload | None = None
) -> StepTimes:
    found = model_step_times(described(target), draft, device, workload or Workload(context_tokens=1024), k)
    assert found is not None
    assert found.cost_ratio is not None
    assert found.cycle_ratio is not None
    return found


def test_an_untied_embedding_is_looked_up_not_read() -> None:
    # Qwen3-8B: 8,190,735,360 parameters (Hub), of which the embedding is 151,936 x 4,096.
    found = model_traffic(described("Qwen/Qwen3-8B"), context_tokens=1)
    assert found.dense_bytes == (8_190_735_360 - 151_936 * 4096) * 2
    assert found.layers == 36
    # 36 layers x 8 KV heads x 128 x 2 x 2 bytes.
    assert found.cache_bytes == 36 * 8 * 128 * 2 * 2


def test_a_tied_embedding_is_read_once_as_the_head() -> None:
    # Qwen3-0.6B: 596,049,920 parameters (Hub).
    found = model_traffic(described("Qwen/Qwen3-0.6B"), context_tokens=1)
    assert found.dense_bytes == 596_049_920 * 2


def test_experts_are_read_as_far_as_they_are_touched() -> None:
    # Qwen3-30B-A3B: 128 experts, 8 a token; uniform routing of 6 tokens touches 5.1 times what one does.
    found = model_traffic(described("Qwen/Qwen3-30B-A3B"), context_tokens=1)
    assert found.expert_share(1) == pytest.approx(8 / 128)
    assert found.expert_share(6) / found.expert_share(1) == pytest.approx(5.1, abs=0.05)
    assert found.expert_bytes > 10 * found.dense_bytes
    # "A3B": 3.3 billion parameters work on one token, the model card says; the embedding is not among them.
    assert found.parameters_per_token == pytest.approx(3.3e9 - 151_936 * 2048, rel=0.05)


def test_a_head_without_a_table_reads_the_target_s() -> None:
    target = described("Qwen/Qwen3-8B")
    own = described("z-lab/Qwen3-8B-DFlash-b16")
    draft = Draft(method=DraftMethod.DFLASH, num_speculative_tokens=7, model=own)
    borrowed = draft_traffic(target, draft, context_tokens=1).dense_bytes
    assert borrowed - model_traffic(own, context_tokens=1).dense_bytes == 151_936 * 4096 * 2


def test_an_mtp_layer_costs_one_layer_and_the_table() -> None:
    target = described("Qwen/Qwen3.6-27B")
    whole = model_traffic(target, context_tokens=1)
    one = draft_traffic(target, drafted(None, DraftMethod.MTP), context_tokens=1)
    table = 248_320 * 5120 * 2
    assert one.layers == 1
    assert table < one.dense_bytes < table + 3 * whole.dense_bytes / whole.layers


def test_ngram_costs_nothing_to_draft() -> None:
    found = times("Qwen/Qwen3-8B", drafted(None, DraftMethod.NGRAM))
    assert found.draft_seconds.high == 0
    assert draft_passes(DraftMethod.NGRAM, 5) == 0


@pytest.mark.parametrize(
    ("method", "passes"),
    [(DraftMethod.DRAFT_MODEL, 5), (DraftMethod.EAGLE3, 5), (DraftMethod.MTP, 5), (DraftMethod.DFLASH, 1)],
)
def test_passes(method: DraftMethod, passes: int) -> None:
    assert draft_passes(method, 5) == passes
    assert draft_passes(method, 0) == 0


# t_draft / t_target as measured in vLLM 0.10.1 on H100 (arXiv:2601.11580): 0.375 for Qwen3-0.6B with an 8B target,
# about 0.125 for a small draft with a 70B target on four. Bytes alone would say 0.08 and 0.02.
@pytest.mark.parametrize(
    ("target", "draft", "tp", "measured"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", 1, 0.375),
        ("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct", 4, 0.125),
    ],
)
def test_cost_ratio_holds_what_was_measured(target: str, draft: str, tp: int, measured: float) -> None:
    found = times(target, drafted(draft), workload=Workload(context_tokens=1024, tp=tp)).cost_ratio
    assert found is not None
    assert found.low <= measured <= found.high * 1.01


# Plain decoding at batch 1 in vLLM: 128.64 tok/s, Llama-3-8B on H100 (vllm-project/vllm#16035); 78.43 tok/s,
# Llama-3.1-8B on A100 (AMD-AGI/PARD README).
@pytest.mark.parametrize(
    ("target", "gpu", "tokens_per_second"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "h100-80gb", 128.64),
        ("meta-llama/Llama-3.1-8B-Instruct", "a100-80gb", 78.43),
    ],
)
def test_target_s_own_step_holds_what_was_measured(target: str, gpu: str, tokens_per_second: float) -> None:
    found = times(target, drafted(None, DraftMethod.NGRAM), find_gpu(gpu).device()).target_seconds
    assert found.low <= 1 / tokens_per_second <= found.high


# S = L / (A + B k) on SpecForge chain rows (SGLang): A + 3 B for an EAGLE-3 head of Llama-3.1-8B at batch 1.
def test_cycle_of_a_head_holds_what_was_measured() -> None:
    head = drafted("lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge", DraftMethod.EAGLE3)
    found = times("meta-llama/Llama-3.1-8B-Instruct", head, device=None).cycle_ratio
    assert found is not None
    assert found.low <= 1.15 + 3 * 0.066 <= found.high


def test_depth_sets_the_draft_s_cost_without_graphs() -> None:
    # transformers spends a time per layer: a 28-layer draft for a 28-layer target costs about a whole step.
    found = times(
        "Qwen/Qwen2.5-7B-Instruct",
        drafted("Qwen/Qwen2.5-1.5B-Instruct"),
        workload=Workload(context_tokens=1024, enforce_eager=True),
    ).cost_ratio
    assert found is not None
    assert found.low > 0.6


def test_verification_never_costs_less_than_a_step() -> None:
    for k in (1, 5, 16):
        found = times("Qwen/Qwen3-30B-A3B", drafted(None, DraftMethod.NGRAM), k=k)
        assert found.cycle_ratio is not None
        assert found.cycle_ratio.low > 1
        assert found.verify_seconds.high > found.target_seconds.high


def test_more_experts_make_verification_dearer_than_in_a_dense_model() -> None:
    dense = times("Qwen/Qwen3-8B", drafted(None, DraftMethod.NGRAM), k=5).cycle_ratio
    mixed = times("Qwen/Qwen3-30B-A3B", drafted(None, DraftMethod.NGRAM), k=5).cycle_ratio
    assert dense is not None
    assert mixed is not None
    assert mixed.high > 1.3 * dense.high


def test_nothing_is_told_beyond_the_measured_tokens() -> None:
    target, draft = model_of(llama()), Draft(method=DraftMethod.NGRAM, num_speculative_tokens=3)
    covered = covered_tokens()
    edge = Workload(batch=covered // 4, context_tokens=100)
    assert model_step_times(target, draft, H100, edge, 3) is not None
    assert model_step_times(target, draft, H100, edge, 4) is None
    assert model_step_times(target, draft, H100, replace(edge, batch=covered // 4 + 1), 3) is None


def test_an_unknown_device_gives_wider_ratios_that_hold_a_known_one_s() -> None:
    known, unknown = (
        times("Qwen/Qwen3-8B", drafted("Qwen/Qwen3-0.6B"), device).cost_ratio for device in (H100, None)
    )
    assert known is not None
    assert unknown is not None
    assert unknown.low <= known.low < known.high <= unknown.high
    assert "no device" in times("Qwen/Qwen3-8B", drafted("Qwen/Qwen3-0.6B"), None).source


def test_a_device_without_a_known_bandwidth_is_like_an_unknown_one() -> None:
    blind = replace(H100, bandwidth_bytes_per_second=None)
    draft = drafted("Qwen/Qwen3-0.6B")
    assert times("Qwen/Qwen3-8B", draft, blind).cost_ratio == times("Qwen/Qwen3-8B", draft, None).cost_ratio


def test_low_bit_weights_widen_the_cost_of_verifying() -> None:
    plain = times("Qwen/Qwen2.5-32B-Instruct", drafted(None, DraftMethod.NGRAM), k=4)
    packed = times("Qwen/Qwen2.5-32B-Instruct-AWQ", drafted(None, DraftMethod.NGRAM), k=4)
    assert packed.target_seconds.high < plain.target_seconds.high
    assert packed.cycle_ratio is not None
    assert plain.cycle_ratio is not None
    assert packed.cycle_ratio.high > plain.cycle_ratio.high


def test_prefill_is_proportional_to_the_prompt_and_split_by_tensor_parallelism() -> None:
    target = model_of(mixture())
    one = prefill_seconds(target, H100, Workload(), 1000)
    assert prefill_seconds(target, H100, Workload(), 2000).low == pytest.approx(2 * one.low)
    assert prefill_seconds(target, H100, Workload(tp=2), 1000).high == pytest.approx(one.high / 2)


def test_sources_are_named() -> None:
    found = times("Qwen/Qwen3-8B", drafted("Qwen/Qwen3-0.6B"))
    assert found.basis is Basis.CALIBRATED
    assert "H100" in found.source
