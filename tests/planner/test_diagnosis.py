"""Each known problem is seen where it is, and not where it is not; the page in the docs is the table."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_models import device, llama, model_of

from model_catalog.architecture import ChunkedAttention
from model_catalog.bounds import Basis
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model
from model_catalog.units import GIB
from planner.devices import Device, DeviceProcess
from planner.engines.base import Draft, EngineProfile, Serving
from planner.engines.sglang import SglangProfile
from planner.engines.vllm import VllmProfile
from planner.planning import Plan, make_plan
from planner.speculation.compatibility import Check, Compatibility, CompatibilityVerdict
from planner.speculation.diagnosis import KNOWN_PROBLEMS, KnownProblem, diagnose
from planner.speculation.prediction import Acceptance, Prediction
from planner.speculation.ranges import Range
from planner.workload import Workload

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "common-problems.md"
INTRODUCTION = """# Common problems

What goes wrong when a model is served with speculative decoding, how it shows, and what helps. `specplan fit`
prints those that the plan itself shows, with the plan's own figures. This page is the table in
`planner/speculation/diagnosis.py`, and a test holds the two together.
"""

ROOMY = device(80 * GIB)
#: The target: 4 layers, 2 KV heads of 64, so 2,048 B of cache a token; weights of a few MiB.
TARGET = model_of(llama(), "made/target")
DRAFT = model_of(llama(num_hidden_layers=1), "made/draft")
MIMO = model_of(
    llama(architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1), "made/mtp"
)
MAMBA = model_of(
    {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "hidden_size": 256,
        "intermediate_size": 512,
        "state_size": 16,
        "conv_kernel": 4,
        "num_hidden_layers": 4,
        "vocab_size": 1000,
        "time_step_rank": 16,
        "torch_dtype": "bfloat16",
    },
    "made/mamba",
)


def plan_of(
    draft: Model | DraftMethod | None = None,
    *,
    target: Model = TARGET,
    card: Device = ROOMY,
    version: str = "0.33.0",
    engine: EngineProfile | None = None,
    **work: object,
) -> Plan:
    values: dict[str, Any] = dict(work)
    chosen = None
    if isinstance(draft, DraftMethod):
        chosen = Draft(method=draft, num_speculative_tokens=3)
    elif draft is not None:
        chosen = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=3, model=draft)
    serving = Serving(target=target, draft=chosen, workload=replace(Workload(), **values))
    return make_plan(serving, [card], engine or VllmProfile(version=version))


def pair(verdict: CompatibilityVerdict, **check: object) -> Compatibility:
    given: dict[str, Any] = {"passed": False, "text": "what differs", **check}
    return Compatibility(engine="vllm", verdict=verdict, checks=(Check(**given),))


def predicted(**changes: object) -> Prediction:
    values: dict[str, Any] = {
        "num_speculative_tokens": 3,
        "acceptance": Acceptance(rate=Range(low=0.6, high=0.8), source="made", basis=Basis.ASSUMED),
        "mean_acceptance_length": Range(low=2.2, high=3.0),
        "cost_ratio": Range(low=0.05, high=0.1),
        "cost_source": "made",
        "speedup": Range(low=1.2, high=1.9),
        "end_to_end_speedup": None,
        "ceiling_speedup": 5.0,
        "break_even_acceptance": 0.3,
        "stops_paying_at_batch": None,
        **changes,
    }
    return Prediction(**values)


def codes(
    plan: Plan, compatibility: Compatibility | None = None, prediction: Prediction | None = None
) -> set[str]:
    return {problem.code for problem in diagnose(plan, compatibility, prediction)}


def test_a_roomy_plan_has_no_problems() -> None:
    compatible = Compatibility(
        engine="vllm",
        verdict=CompatibilityVerdict.ACCEPTED,
        checks=(Check(name="vocab_size", passed=True, text="equal"),),
    )
    assert diagnose(plan_of(), None, None) == ()
    assert diagnose(plan_of(DRAFT, card=device(800 * GIB)), compatible, predicted()) == ()


def chunked(model: Model) -> Model:
    """The model with Llama 4's chunks in every layer."""
    rule = ChunkedAttention(kv_heads=2, key_dim=64, value_dim=64, chunk_tokens=1024)
    layers = tuple(replace(layer, caches=(rule,)) for layer in model.architecture.layers)
    return replace(model, architecture=replace(model.architecture, layers=layers))


def with_head(target: Model) -> Plan:
    """The plan of the target, with a head put in: only the draft's kind is looked at."""
    plan = plan_of(target=target)
    head = Draft(method=DraftMethod.EAGLE3, num_speculative_tokens=3, model=DRAFT)
    return replace(plan, serving=replace(plan.serving, draft=head))


CHUNKED = chunked(TARGET)
DESKTOP = replace(ROOMY, used_by_others_bytes=GIB // 4)
REFUSED, WARNED = CompatibilityVerdict.REFUSED, CompatibilityVerdict.ACCEPTED_WITH_WARNING
BUSY = replace(
    ROOMY,
    free_bytes=30 * GIB,
    used_by_others_bytes=50 * GIB,
    processes=(DeviceProcess(pid=4711, name="python", used_bytes=50 * GIB),),
)

#: code -> (plan, compatibility, prediction) that shows it, and a part of the evidence: figures by hand.
SHOWN: dict[str, tuple[Plan, Compatibility | None, Prediction | None, str]] = {
    "reading_missing": (plan_of(card=replace(ROOMY, free_bytes=None)), None, None, "made GPU"),
    # 2,048 B x 131,072 tokens x 400 sequences = 100 GiB of cache on a card of 80 GiB.
    "out_of_memory_at_start": (plan_of(context_tokens=131_072, batch=400), None, None, "target_kv_cache"),
    "utilization_window_empty": (
        plan_of(card=BUSY, context_tokens=131_072, batch=150),
        None,
        None,
        "no gpu_memory_utilization",
    ),
    "fraction_not_free": (plan_of(card=BUSY, gpu_memory_utilization=0.9), None, None, "0.9 of made GPU"),
    # 0.99 of what is free before loading leaves less than 0.8 GiB for the working peak.
    "fraction_leaves_too_little": (
        plan_of(engine=SglangProfile(), gpu_memory_utilization=0.99),
        None,
        None,
        "0.99 leaves",
    ),
    # 4 layers of 2 KV heads of 64 are 2,048 B a token, a layer 512 B; the draft's layer of 8 heads 2,048 B.
    "draft_cache_miscounted": (
        plan_of(model_of(llama(num_hidden_layers=1, num_key_value_heads=8), "made/wide"), engine=SglangProfile()),
        None,
        None,
        "keeps 2,048 B a token on each rank and is charged 512 B",
    ),
    # One sequence of 131,072 tokens needs 0.25 GiB; 0.1 GiB was pinned.
    "no_cache_blocks": (
        plan_of(context_tokens=131_072, kv_cache_memory_bytes=GIB // 10),
        None,
        None,
        "one sequence may have 131,072",
    ),
    # 1 GiB holds 1 GiB / (2,048 B x 131,072) = 4 such sequences.
    "pool_below_batch": (
        plan_of(context_tokens=131_072, batch=8, kv_cache_memory_bytes=GIB),
        None,
        None,
        "8 were asked for",
    ),
    "other_processes": (plan_of(card=BUSY), None, None, "50.00 GiB of made GPU are held by others: python (4711)"),
    "graph_capture": (plan_of(version="0.15.0"), None, None, "vLLM 0.15.0 captures graphs"),
    "draft_over_budget": (plan_of(DRAFT, draft_budget_share=0.0001), None, None, "allowed"),
    "draft_caps_context": (
        plan_of(model_of(llama(num_hidden_layers=1, max_position_embeddings=16_384), "made/short")),
        None,
        None,
        "the draft takes 16,384 tokens, the target 131,072",
    ),
    "state_multiplied": (plan_of(DraftMethod.NGRAM, target=MAMBA), None, None, "4 recurrent layers keep 4 states"),
    "chunks_kept_whole": (with_head(CHUNKED), None, None, "4 chunked layers keep the whole context beside eagle3"),
    "vocabulary_refused": (plan_of(DRAFT), pair(REFUSED, name="vocab_size"), None, "what differs"),
    "tokens_differ": (plan_of(DRAFT), pair(WARNED, name="same tokens", by_engine=False), None, "what differs"),
    "pair_unknown": (
        plan_of(DRAFT),
        pair(CompatibilityVerdict.UNKNOWN, name="same tokens", passed=None),
        None,
        "what differs",
    ),
    "method_flipped": (plan_of(DRAFT), pair(REFUSED, name="path"), None, "what differs"),
    "mtp_not_loaded": (plan_of(target=MIMO), None, None, "ships 1 multi-token"),
    "low_acceptance": (
        plan_of(DRAFT),
        None,
        predicted(break_even_acceptance=0.7),
        "from an acceptance of 0.70 on; 0.60 to 0.80",
    ),
    "slower_than_baseline": (
        plan_of(DRAFT),
        None,
        predicted(speedup=Range(low=0.8, high=1.3)),
        "0.80 to 1.30 times",
    ),
    "stops_paying_under_load": (plan_of(DRAFT), None, predicted(stops_paying_at_batch=64), "about 64 sequences"),
}


def test_every_sign_has_a_case() -> None:
    assert set(SHOWN) == {known.code for known in KNOWN_PROBLEMS if known.sign is not None}


@pytest.mark.parametrize("code", list(SHOWN))
def test_a_problem_is_seen_with_its_figures(code: str) -> None:
    plan, compatibility, prediction, words = SHOWN[code]
    found = {problem.code: problem for problem in diagnose(plan, compatibility, prediction)}
    assert code in found
    assert words in found[code].evidence


@pytest.mark.parametrize(
    ("code", "plan", "compatibility", "prediction"),
    [
        pytest.param("fraction_not_free", plan_of(card=BUSY), None, None, id="a-fraction-of-ours-is-free"),
        pytest.param("graph_capture", plan_of(version="0.21.0"), None, None, id="graphs-are-charged"),
        pytest.param("graph_capture", plan_of(version="0.15.0", enforce_eager=True), None, None, id="no-graphs"),
        pytest.param("graph_capture", plan_of(version="0.15.0", kv_cache_memory_bytes=1), None, None, id="pinned"),
        pytest.param("other_processes", plan_of(card=DESKTOP), None, None, id="a-desktop"),
        pytest.param("state_multiplied", plan_of(target=MAMBA), None, None, id="no-draft"),
        pytest.param("chunks_kept_whole", with_head(TARGET), None, None, id="no-chunks"),
        pytest.param("mtp_not_loaded", plan_of(DraftMethod.MTP, target=MIMO), None, None, id="mtp-is-used"),
        pytest.param("vocabulary_refused", plan_of(DRAFT), pair(REFUSED, name="kind"), None, id="other-reason"),
        pytest.param(
            "stops_paying_under_load",
            plan_of(DRAFT, max_num_seqs=32),
            None,
            predicted(stops_paying_at_batch=64),
            id="never-so-busy",
        ),
        pytest.param(
            "low_acceptance", plan_of(DRAFT), None, predicted(break_even_acceptance=0.6), id="just-enough"
        ),
        pytest.param("slower_than_baseline", plan_of(DRAFT), None, predicted(speedup=None), id="not-predicted"),
    ],
)
def test_a_problem_is_not_seen_where_it_is_not(
    code: str, plan: Plan, compatibility: Compatibility | None, prediction: Prediction | None
) -> None:
    assert code not in codes(plan, compatibility, prediction)


def test_codes_are_unique_and_every_row_helps() -> None:
    assert len({known.code for known in KNOWN_PROBLEMS}) == len(KNOWN_PROBLEMS)
    assert all(known.remedies and known.symptom and known.seen_by for known in KNOWN_PROBLEMS)


def marked(text: str) -> str:
    """Options and commands of ours as code."""
    text = re.sub(r"(specplan (?:doctor|drafts TARGET))", r"`\1`", text)
    return re.sub(r"(--[a-z][a-z-]+(?: (?:fp8|ngram|mtp|none|h100-80gb|80GiB|2|1-3))?)", r"`\1`", text)


def section(known: KnownProblem) -> str:
    seen = "Seen by specplan" if known.sign else "Seen by specplan: no"
    remedies = "".join(f"- {marked(remedy)}\n" for remedy in known.remedies)
    seen_by = (
        f"**{seen}:** {marked(known.seen_by)} (`{known.code}`)." if known.sign else f"**{seen}** (`{known.code}`)."
    )
    return f"## {known.title}\n\n{marked(known.symptom)}\n\n{seen_by}\n\n{remedies}"


def test_the_page_is_the_table(request: pytest.FixtureRequest) -> None:
    page = "\n".join((INTRODUCTION, *map(section, KNOWN_PROBLEMS)))
    if request.config.getoption("--update-golden"):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page
