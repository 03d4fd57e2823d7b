"""What lies inside a cache of transformers: its tensors, copies of it, and rows shifted within it."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def tensors_of(thing: Any) -> Iterator[torch.Tensor]:
    """All tensors inside lists, mappings and the library's cache objects, each as often as it is named."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors_of(value)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from tensors_of(value)
    elif type(thing).__module__.startswith("transformers.") and hasattr(thing, "__dict__"):
        yield from tensors_of(vars(thing))


def bytes_of(thing: Any) -> int:
    """Bytes that these tensors keep, shared storage once."""
    sizes = {
        (tensor.device, tensor.untyped_storage().data_ptr()): tensor.untyped_storage().nbytes()
        for tensor in tensors_of(thing)
    }
    return sum(sizes.values())


def copied(cache: Any) -> Any:
    """A copy that no later forward changes. Keys and values are shared: they grow by concatenation."""
    shared = {
        id(tensor): tensor
        for layer in getattr(cache, "layers", ())
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None))
        if isinstance(tensor, torch.Tensor)
    }
    return copy.deepcopy(cache, dict(shared))


def shift_rows(cache: Any, surplus: Sequence[int], width: int) -> None:
    """Drop each row's surplus at the right and let all rows end at slot ``width``, the longest row's length.

    For caches of keys and values alone, [rows, heads, slots, size], whose rows all end at the last slot.
    """
    lost = torch.tensor(surplus)
    lines: dict[tuple[torch.device, int, int, int], torch.Tensor] = {}
    for layer in cache.layers:
        if getattr(layer, "keys", None) is None or not layer.keys.numel():
            continue  # a layer that uses another's keys
        kept = width
        if hasattr(layer, "sliding_window"):
            kept = min(width, layer.sliding_window - 1)
            layer.cumulative_length = width
        where = (layer.keys.device, layer.keys.shape[1], layer.keys.shape[2], kept)
        if where not in lines:
            lines[where] = _lines_kept(lost.to(where[0]), *where[1:])
        layer.keys = _taken(layer.keys, lines[where], kept)
        layer.values = _taken(layer.values, lines[where], kept)


def _lines_kept(lost: torch.Tensor, heads: int, slots: int, kept: int) -> torch.Tensor:
    """Which lines to keep of keys flattened to [rows x heads x slots, size]: a row ends before its lost ones.

    Slots left of a row's first are padding, which no mask shows: any line stands in for them.
    """
    rows = lost.shape[0]
    wanted = (slots - kept + torch.arange(kept, device=lost.device) - lost[:, None]).clamp(min=0)
    first = torch.arange(rows * heads, device=lost.device).view(rows, heads, 1) * slots
    return (first + wanted[:, None]).flatten()


def _taken(states: torch.Tensor, lines: torch.Tensor, kept: int) -> torch.Tensor:
    # Picking whole lines is as fast as the copy that every step makes; gathering takes ten times as long.
    rows, heads, slots, size = states.shape
    return states.reshape(rows * heads * slots, size).index_select(0, lines).view(rows, heads, kept, size)
