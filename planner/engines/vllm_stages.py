"""How vLLM deals layers to pipeline stages. Source: vLLM 0.33.0 ``distributed/utils.py`` (get_pp_indices)."""

import itertools
from collections.abc import Sequence


def stage_sizes(layers: int, stages: int) -> tuple[int, ...]:
    """Decoder layers of each pipeline stage: even, the remainder from the last but one stage backwards."""
    sizes = [layers // stages] * stages
    for offset in range(layers % stages):
        sizes[-2 - offset] += 1
    return tuple(sizes)


def deal_layers(positions: Sequence[int], stages: int) -> tuple[tuple[int, ...], ...]:
    """The layers at these positions, by pipeline stage."""
    edges = itertools.accumulate(stage_sizes(len(positions), stages), initial=0)
    return tuple(tuple(positions[first:last]) for first, last in itertools.pairwise(edges))
