"""Weighs a configuration as a snapshot would be weighed that knows nothing else, or one figure more."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from model_catalog.config_reader import read_architecture
from model_catalog.quantization import read_quantization
from model_catalog.snapshot import ModelSnapshot, RepoFile, RepoKind, SnapshotSource, WeightGroup, WeightsKnownFrom
from model_catalog.weights import WeightTable, weigh


class Known(TypedDict, total=False):
    """What a snapshot knows of weights."""

    files: tuple[RepoFile, ...]
    weights_from: WeightsKnownFrom
    weight_groups: tuple[WeightGroup, ...]
    index_total_bytes: int
    published_parameters: int


def snapshot(config: Mapping[str, Any], **known: Unpack[Known]) -> ModelSnapshot:
    return ModelSnapshot(
        repo_id="org/model",
        revision=None,
        commit=None,
        source=SnapshotSource.HUB,
        kind=RepoKind.MODEL,
        config=config,
        **known,
    )


def weighed(
    config: Mapping[str, Any], dtype: str = "auto", on_the_fly: str | None = None, **known: Unpack[Known]
) -> WeightTable:
    architecture = read_architecture(config, subject="org/model")
    quantization = read_quantization(config, None, subject="org/model")
    return weigh(snapshot(config, **known), architecture, quantization, dtype=dtype, on_the_fly=on_the_fly)
