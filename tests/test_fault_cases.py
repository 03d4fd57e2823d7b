"""Reported faults about drafts and duplicate weights: the figures a planner should have given, with their source.

The smallest pool over ranks (nano-vllm#259) is in ``planner/test_draft_cost.py``. Left out, because no figure is
given or nothing here can give it: sglang#6875, sglang#28855 and vllm-metal#447 (no figures); sglang#4330 (no model
named); llama.cpp#29208 (slots of a unified cache), tabbyAPI#471 (an unnamed mixture's head) and unsloth#9929 (GGUF
tables), whose engines are not planned; vllm#5239 and tensai#44 (sizes against the target, not the device, and
speeds); vllm#9394 and kaito#1529 (rules without figures).
"""

from dataclasses import replace
from functools import cache

import pytest

from model_catalog.architecture import Role
from model_catalog.bounds import ByteRange
from model_catalog.catalogue import find_row
from model_catalog.checkpoint_files import checkpoint_files
from model_catalog.drafts import DraftMethod
from model_catalog.dtypes import BFLOAT16
from model_catalog.model import Model, describe
from model_catalog.snapshot import RepoFile, WeightsKnownFrom
from model_catalog.units import GIB, MIB
from model_catalog.weight_derivation import derive_groups
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.memory.breakdown import Group, Owner, sum_items
from planner.memory.kv_cache import cache_bytes_per_token
from planner.memory.working_set import logits_bytes
from planner.planning import Plan, make_plan
from planner.speculation.draft_cost import DraftCost, draft_cost
from planner.workload import Workload

SMALLEST = Workload(context_tokens=32_768)


@cache
def known(repo_id: str) -> Model:
    snapshot = find_row(repo_id)
    assert snapshot is not None, f"{repo_id} has no row in the catalogue"
    return describe(snapshot)


def plan(
    target: str,
    draft: str | None = None,
    *,
    method: DraftMethod | None = None,
    gpu: str,
    work: Workload = SMALLEST,
) -> Plan:
    chosen = None
    if draft is not None or method is not None:
        model = known(draft) if draft else None
        chosen = Draft(method=method or DraftMethod.DRAFT_MODEL, num_speculative_tokens=1, model=model)
    serving = Serving(target=known(target), draft=chosen, workload=work)
    return make_plan(serving, parse_gpu_option(gpu), engine_profile("vllm"))


def cost(target: str, draft: str) -> DraftCost:
    return draft_cost(plan(target, gpu="h200"), plan(target, draft, gpu="h200"))


def token_bytes(repo_id: str, *, tp: int = 1) -> int:
    found = cache_bytes_per_token(known(repo_id).architecture.decoder_layers, model_dtype=BFLOAT16, tp=tp)
    assert found.low_bytes == found.high_bytes
    return found.low_bytes


def weights_gib(made: Plan, group: Group) -> float:
    found = made.ranks[0].breakdown.of_group(group)
    assert found.low_bytes == found.high_bytes
    return found.low_bytes / GIB


# --- what a draft costs -----------------------------------------------------------------------------------


def test_a_whole_draft_on_one_rank_and_what_vllm_does_now() -> None:
    """vllm-project/vllm#9995: 32.854 GiB and 81,920 B a token on each rank, beside a whole draft of 14.958 GiB."""
    target, draft = "meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"
    work = replace(SMALLEST, tp=4)
    pair = plan(target, draft, gpu="h100-80gb:4", work=work)
    assert weights_gib(pair, Group.TARGET_WEIGHTS) == pytest.approx(32.854, abs=0.002)
    assert token_bytes(target, tp=4) == 81_920
    whole = plan(draft, gpu="h100-80gb")
    assert weights_gib(whole, Group.TARGET_WEIGHTS) == pytest.approx(14.958, abs=0.0005)
    assert token_bytes(draft) == 131_072
    # The draft is split over the target's ranks since (config/speculative.py of vLLM 0.33.0).
    assert weights_gib(pair, Group.DRAFT_WEIGHTS) == pytest.approx(14.958 / 4, abs=0.002)
    assert token_bytes(draft, tp=4) == 131_072 // 4


def test_second_vocabulary_tables_while_loading() -> None:
    """sgl-project/sglang#36452 and vllm-project/vllm#53887: 248,320 x 5,120 in bfloat16 is 2.368 GiB, both 4.736.

    The second user had 1.38 GiB left, and the draft did not load.
    """
    pair = plan("Qwen/Qwen3.5-27B", method=DraftMethod.MTP, gpu="h200").ranks[0].loading
    alone = plan("Qwen/Qwen3.5-27B", gpu="h200").ranks[0].loading
    assert pair is not None
    assert alone is not None
    copies = pair.extra.high_bytes - alone.extra.high_bytes
    assert copies == 2 * 2_542_796_800
    assert round(copies / 2 / GIB, 3) == 2.368
    assert round(copies / GIB, 3) == 4.736
    assert pair.extra.high_bytes > 1.38 * GIB


def test_a_private_copy_of_the_targets_embedding() -> None:
    """vllm-project/vllm#17326: sharing the table of Llama-3.1-8B saves 1,050,673,152 B, 0.979 GiB."""
    head = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    pair = plan("meta-llama/Llama-3.1-8B-Instruct", head, method=DraftMethod.EAGLE3, gpu="h100-80gb")
    table = {line.label: line for line in pair.ranks[0].breakdown.items}["draft_token_table"]
    assert (table.low_bytes, table.high_bytes) == (0, 1_050_673_152)
    assert round(table.high_bytes / GIB, 3) == 0.979


@pytest.mark.parametrize(
    ("repo_id", "bytes_per_token"),
    [
        # NVIDIA/TensorRT-LLM#9279: 10 to 1 with a 1B draft for a 70B target
        ("meta-llama/Llama-3.1-70B-Instruct", 327_680),
        ("meta-llama/Llama-3.2-1B-Instruct", 32_768),
        # NVIDIA/TensorRT-LLM#2789: 1,121,536 tokens took 29.95 GiB before the target was loaded
        ("Qwen/Qwen2.5-1.5B-Instruct", 28_672),
        # ggml-org/llama.cpp#11200: the same class of size, 9.3 times the cache
        ("Qwen/Qwen3-0.6B", 114_688),
        ("Qwen/Qwen2.5-0.5B-Instruct", 12_288),
    ],
)
def test_cache_of_one_token(repo_id: str, bytes_per_token: int) -> None:
    assert token_bytes(repo_id) == bytes_per_token


@pytest.mark.parametrize(
    ("repo_id", "tokens", "gib"),
    [
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_121_536, 29.95),  # NVIDIA/TensorRT-LLM#2789
        ("Qwen/Qwen3-0.6B", 32_768, 3.5),  # ggml-org/llama.cpp#11200
        ("Qwen/Qwen2.5-0.5B-Instruct", 32_768, 0.375),
        ("Qwen/Qwen2.5-1.5B-Instruct", 8_192, 224 / 1024),  # ggml-org/llama.cpp#10664
    ],
)
def test_cache_of_a_draft(repo_id: str, tokens: int, gib: float) -> None:
    assert token_bytes(repo_id) * tokens / GIB == pytest.approx(gib, abs=0.005)


def test_the_drafts_cache_is_a_line_of_its_own() -> None:
    """vllm-project/vllm-metal#447 left it out; 8 x 32,768 tokens of Qwen3-0.6B are 28 GiB (llama.cpp#11200)."""
    pair = plan("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", gpu="h200", work=replace(SMALLEST, batch=8))
    items = pair.ranks[0].breakdown.items
    cached = sum_items(item for item in items if item.group is Group.KV_CACHE and item.owner is Owner.DRAFT)
    # One reserved block of 16 tokens beside them.
    assert cached == ByteRange.point((8 * 32_768 + 16) * 114_688)
    assert cached.low_bytes // GIB == 28


@pytest.mark.parametrize(
    ("target", "draft", "weights", "kv"),
    [
        # Configurations on the Hub; the symptom is in ggml-org/llama.cpp#11200
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", 0.0728, 0.7778),
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-0.6B", None, 0.4375),
        # vllm-project/vllm#8439: 1,235,814,400 of 8,030,261,248 parameters, half of the layers
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct", 0.1539, 0.25),
    ],
)
def test_a_draft_against_its_target(target: str, draft: str, weights: float | None, kv: float) -> None:
    found = cost(target, draft)
    assert found.weights_to_target is not None
    assert found.cache_to_target is not None
    if weights is not None:
        assert round(found.weights_to_target.high, 4) == weights
    assert round(found.cache_to_target.low, 4) == round(found.cache_to_target.high, 4) == kv


def test_logits_of_one_micro_batch() -> None:
    """ggml-org/llama.cpp#10664: 8,192 tokens x 151,936 words in float32 are 4,748 MiB."""
    words = known("Qwen/Qwen2.5-1.5B-Instruct").architecture.vocabulary_size
    assert logits_bytes(rows=8192, vocabulary_size=words, bytes_per_logit=4) == 4748 * MIB


def test_mtp_costs_a_fixed_part_and_one_that_grows() -> None:
    """sudoingX/qwen38-mtp#13 measured 1,356 and 1,996 MiB at two contexts of a 27B: 5,120 B for each token.

    4,096 of them are the layer's keys and values (4 heads of 256 in 16 bits); the rest is llama.cpp's own.
    """
    layers = known("Qwen/Qwen3.5-27B").architecture.mtp_layers
    slope = cache_bytes_per_token(layers, model_dtype=BFLOAT16).low_bytes
    assert slope == 4096
    measured = (1996 - 1356) * MIB / 131_072
    assert slope <= measured == 5120


# --- vocabularies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen/Qwen2.5-Coder-0.5B-Instruct"),  # vllm-project/vllm#10913
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"),  # vllm#42775
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-0.5B"),  # huggingface/transformers#45307
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"),  # vllm#24322, there with the VL target
    ],
)
def test_tables_padded_differently(target: str, draft: str) -> None:
    rows = tuple(known(name).architecture.vocabulary_size for name in (target, draft))
    assert rows == (152_064, 151_936)


# --- weights that are stored twice ------------------------------------------------------------------------


def test_a_stored_copy_of_a_tied_head_is_not_resident() -> None:
    """Hub header of Qwen/Qwen3-0.6B: 751,632,384 elements; llm-d-planner measured 1.12 GiB loaded, not 1.40."""
    plain = known("Qwen/Qwen3-0.6B")
    table = next(group for group in derive_groups(plain.architecture, None) if group.role is Role.EMBEDDING)
    copy = replace(table, role=Role.HEAD)
    stored = (*derive_groups(plain.architecture, None), copy)
    snapshot = replace(plain.snapshot, weights_from=WeightsKnownFrom.HEADERS, weight_groups=stored)
    weights = describe(snapshot).weights
    assert weights.stored == ByteRange.point(751_632_384 * 2)
    assert weights.parameters == 596_049_920
    resident = weights.resident_bytes()
    assert round(resident.high_bytes / GIB, 2) == 1.11
    assert round(weights.stored.high_bytes / GIB, 2) == 1.40


@pytest.mark.parametrize(
    ("files", "stored_gb", "loaded_gb"),
    [
        pytest.param(  # FlashML-org/FreeToken#336: the glob took the copy in original/
            {
                **{f"model-{number:05}-of-00014.safetensors": 65e9 / 15 for number in range(15)},
                **{f"original/model--{number:05}-of-00007.safetensors": 65e9 / 7 for number in range(1, 8)},
            },
            130,
            65,
            id="openai/gpt-oss-120b",
        ),
        pytest.param(  # unslothai/unsloth#10558: pickles and a float32 variant beside the weights
            {
                "model.safetensors": 3.09e9,
                "model.fp32-00001-of-00002.safetensors": 4.99e9,
                "model.fp32-00002-of-00002.safetensors": 1.18e9,
                "pytorch_model.bin": 3.09e9,
                "pytorch_model.fp32-00001-of-00002.bin": 4.99e9,
                "pytorch_model.fp32-00002-of-00002.bin": 1.18e9,
            },
            18.52,
            3.09,
            id="openai/whisper-large-v3",
        ),
    ],
)
def test_one_copy_of_the_weights_is_loaded(files: dict[str, float], stored_gb: float, loaded_gb: float) -> None:
    listed = [RepoFile(path=path, size_bytes=round(size)) for path, size in files.items()]
    assert sum(files.values()) / 1e9 == pytest.approx(stored_gb)
    chosen = checkpoint_files(listed, {})
    assert sum(file.size_bytes or 0 for file in chosen) / 1e9 == pytest.approx(loaded_gb)
