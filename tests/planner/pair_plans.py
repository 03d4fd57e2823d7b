"""Targets, draft heads and plans of pairs, for tests of what vLLM does with them."""

from dataclasses import replace
from functools import cache
from typing import Any

import made_models

from model_catalog.architecture import Component, Role
from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from model_catalog.snapshot import RepoKind, WeightGroup, WeightsKnownFrom
from model_catalog.weight_derivation import derive_groups
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Draft, Serving
from planner.engines.registry import engine_profile
from planner.memory.breakdown import LineItem
from planner.planning import Plan, make_plan
from planner.workload import Workload

VLLM = engine_profile("vllm")
EAGLE3 = made_models.llama(architectures=["LlamaForCausalLMEagle3"], num_hidden_layers=1, draft_vocab_size=500)
DFLASH = made_models.llama(
    architectures=["DFlashDraftModel"],
    model_type="qwen3",
    num_hidden_layers=2,
    dflash_config={"target_layer_ids": [0, 1, 2]},
)
DSPARK = DFLASH | {"architectures": ["DSparkDraftModel"]}
WORK = Workload(context_tokens=1024)
TABLE_BYTES = 1024 * 512 * 2  # 1,000 tokens padded to 64, 512 wide, in bfloat16


@cache
def known(repo_id: str) -> Model:
    snapshot = find_row(repo_id)
    assert snapshot is not None, f"{repo_id} has no row in the catalogue"
    return describe(snapshot)


def head_of(
    config: dict[str, Any],
    *,
    published_parameters: int | None = None,
    weight_groups: tuple[WeightGroup, ...] = (),
) -> Model:
    """A draft head of this configuration, with what else is known of its checkpoint."""
    plain = made_models.model_of(config, "made/head").snapshot
    return describe(
        replace(
            plain,
            kind=RepoKind.DRAFT_HEAD,
            published_parameters=published_parameters,
            weight_groups=weight_groups,
            weights_from=WeightsKnownFrom.HEADERS if weight_groups else WeightsKnownFrom.CONFIG,
        )
    )


def stored(config: dict[str, Any], *extra: WeightGroup) -> Model:
    """The head with headers: what its configuration says, and more."""
    groups = derive_groups(head_of(config).architecture, None)
    return head_of(config, weight_groups=(*groups, *extra))


def tensor(role: Role, rows: int) -> WeightGroup:
    size = rows * 512
    return WeightGroup(
        component=Component.TEXT,
        layer=None,
        role=role,
        dtype="BF16",
        parameters=size,
        stored_bytes=2 * size,
        tensors=1,
    )


def plan(
    target: Model,
    draft: Model | None,
    method: DraftMethod,
    *,
    k: int = 3,
    work: Workload = WORK,
) -> Plan:
    chosen = Draft(method=method, num_speculative_tokens=k, model=draft)
    places = parse_gpu_option(f"h100-80gb:{work.tp * work.pp}")
    return make_plan(Serving(target=target, draft=chosen, workload=work), places, VLLM)


def lines(made: Plan) -> dict[str, LineItem]:
    """The lines of the rank that drafts."""
    return {item.label: item for item in made.ranks[-1].breakdown.items}


def starts(made: Plan) -> bool:
    """Nothing was refused, and the pair was planned."""
    return made.draft_budget is not None


def bounds(line: LineItem) -> tuple[int, int]:
    return line.low_bytes, line.high_bytes


def small(**changes: object) -> Model:
    return made_models.model_of(made_models.llama(**changes))


def several_mtp_layers() -> Model:
    config = made_models.llama(
        architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=3, tie_word_embeddings=False
    )
    target = made_models.model_of(config)
    assert len(target.architecture.mtp_layers) == 3
    return target
