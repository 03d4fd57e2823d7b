"""Shares of a rank, by hand: the expected bytes are written out from the shapes."""

import made_models
import pytest

from model_catalog.bounds import ByteRange
from model_catalog.model import Model
from planner.memory.sharding import Placement, padded_vocabulary, resident_share

LAYER = {
    # bf16, hidden 512, 8 heads of 64, 2 KV heads, intermediate 1024
    "query": 512 * 512 * 2,
    "output": 512 * 512 * 2,
    "key_value": 2 * (2 * 64) * 512 * 2,
    "mlp": 3 * 512 * 1024 * 2,
    "norms": 2 * 512 * 2,
}
TABLE = 512 * 2  # one row of a vocabulary table


def placement(
    tp: int = 1, *, layers: range = range(4), first: bool = True, last: bool = True, ep: bool = False
) -> Placement:
    return Placement(
        tp=tp,
        layers=frozenset(layers),
        holds_embedding=first,
        holds_head=last,
        holds_mtp=False,
        holds_towers=first,
        expert_parallel=ep,
    )


def share(model: Model, where: Placement) -> int:
    size = resident_share(model.weights.resident, model.architecture, where)
    assert size.low_bytes == size.high_bytes
    return size.high_bytes


def test_vocabulary_rows_are_padded_to_64() -> None:
    # vLLM 0.33.0 vocab_parallel_embedding.py: DEFAULT_VOCAB_PADDING_SIZE
    assert (padded_vocabulary(1000), padded_vocabulary(1024), padded_vocabulary(151_936)) == (1024, 1024, 151_936)


def test_one_rank_holds_everything() -> None:
    model = made_models.model_of(made_models.llama())
    assert share(model, placement()) == 4 * sum(LAYER.values()) + 2 * 1024 * TABLE + 512 * 2


@pytest.mark.parametrize(("tp", "kv_ranks"), [(2, 2), (4, 2), (8, 2)])
def test_keys_and_values_are_replicated_once_ranks_outnumber_heads(tp: int, kv_ranks: int) -> None:
    model = made_models.model_of(made_models.llama())
    layer = (
        (LAYER["query"] + LAYER["output"] + LAYER["mlp"]) // tp + LAYER["key_value"] // kv_ranks + LAYER["norms"]
    )
    assert share(model, placement(tp)) == 4 * layer + 2 * 1024 * TABLE // tp + 512 * 2


def test_stages_hold_their_layers_and_one_table_each() -> None:
    model = made_models.model_of(made_models.llama())
    layer = sum(LAYER.values())
    assert share(model, placement(layers=range(2), last=False)) == 2 * layer + 1024 * TABLE
    assert share(model, placement(layers=range(2, 4), first=False)) == 2 * layer + 1024 * TABLE + 512 * 2


def test_a_tied_table_stands_on_both_ends() -> None:
    model = made_models.model_of(made_models.llama(tie_word_embeddings=True))
    layer = sum(LAYER.values())
    assert share(model, placement()) == 4 * layer + 1024 * TABLE + 512 * 2
    assert share(model, placement(layers=range(2, 4), first=False)) == 2 * layer + 1024 * TABLE + 512 * 2


def test_experts_are_cut_or_dealt_out() -> None:
    model = made_models.model_of(made_models.mixture())
    router, experts = 8 * 512 * 2, 8 * LAYER["mlp"]
    rest = (LAYER["query"] + LAYER["output"]) // 2 + LAYER["key_value"] // 2 + LAYER["norms"] + router
    tables = 2 * 1024 * TABLE // 2 + 512 * 2
    assert share(model, placement(2)) == 4 * (rest + experts // 2) + tables
    assert share(model, placement(2, ep=True)) == 4 * (rest + experts // 2) + tables


def test_three_ranks_of_eight_experts_hold_three() -> None:
    model = made_models.model_of(made_models.mixture())
    groups = [group for group in model.weights.resident if group.role.value == "expert"]
    dealt = resident_share(groups, model.architecture, placement(3, ep=True))
    assert dealt == ByteRange.point(4 * 3 * LAYER["mlp"])


def test_latent_projections_are_whole_on_every_rank() -> None:
    model = made_models.model_of(made_models.latent())
    groups = [group for group in model.weights.resident if group.role.value == "latent"]
    whole = resident_share(groups, model.architecture, placement(1)).high_bytes
    # kv_a_proj_with_mqa: (64 + 16) x 512, in bf16, in 4 layers
    assert whole == 4 * 80 * 512 * 2
    assert resident_share(groups, model.architecture, placement(8)).high_bytes == whole
