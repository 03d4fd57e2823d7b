"""What family modules share: their signature, the context a builder gets, and the usual way to assemble a spec."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from model_catalog.architecture import (
    ArchitectureSpec,
    Assumption,
    CacheRule,
    Component,
    FullAttention,
    LayerSpec,
    SlidingWindow,
    TensorTemplate,
)
from model_catalog.config_view import MAX_LAYERS, ConfigView
from model_catalog.dtypes import BFLOAT16, DType

#: Where a config states its longest context; the first key rules (Command R trains on less than it takes).
#: Source: vLLM 0.33.0 transformers_utils/model_arch_config_convertor.py, ``derive_max_model_len_and_key``.
MAX_CONTEXT_KEYS: Final = (
    "model_max_length",
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
    "n_ctx",
)


@dataclass(slots=True, kw_only=True)
class Reading:
    """One reading of a configuration: the view that holds the decoder's keys, the top view, what was assumed.

    ``text`` and ``top`` are the same object for flat configs; for multimodal ones ``text`` is the nested
    ``text_config`` (or ``llm_config`` ...), and a key missing there may be looked up in ``top``.
    """

    text: ConfigView
    top: ConfigView
    assumptions: list[Assumption] = field(default_factory=list)

    def assume(self, key: str, value: object, reason: str) -> None:
        """Record a default that the family's code supplies."""
        self.assumptions.append(Assumption(key=self.text.key_path(key), value=str(value), reason=reason))

    def dtype(self) -> DType:
        """The checkpoint's floating type (``torch_dtype`` or ``dtype``); bfloat16 is assumed where silent."""
        found = self.text.dtype("dtype", "torch_dtype") or self.top.dtype("dtype", "torch_dtype")
        if found is None:
            self.assume("dtype", "bfloat16", "the config names no dtype")
            return BFLOAT16
        return found

    def tied(self, *, default: bool) -> bool:
        """``tie_word_embeddings``; the family's own default where absent (transformers' default is true)."""
        for view in (self.text, self.top):
            if view.has("tie_word_embeddings"):
                return view.boolean("tie_word_embeddings", default=default)
        self.assume("tie_word_embeddings", default, "the family's default")
        return default

    def layer_count(self, *keys: str) -> int:
        """Number of decoder layers."""
        return self.text.integer(*(keys or ("num_hidden_layers", "n_layer")), maximum=MAX_LAYERS)


Builder = Callable[[Reading], ArchitectureSpec]


def attention_cache(
    kv_heads: int, key_dim: int, value_dim: int, window_tokens: int | None = None
) -> FullAttention | SlidingWindow:
    """Full attention, or a sliding window where ``window_tokens`` is given."""
    if window_tokens is None:
        return FullAttention(kv_heads=kv_heads, key_dim=key_dim, value_dim=value_dim)
    return SlidingWindow(kv_heads=kv_heads, key_dim=key_dim, value_dim=value_dim, window_tokens=window_tokens)


def text_layer(tensors: Iterable[TensorTemplate], *caches: CacheRule, attention_heads: int = 0) -> LayerSpec:
    """One decoder layer."""
    return LayerSpec(
        component=Component.TEXT, tensors=tuple(tensors), caches=caches, attention_heads=attention_heads
    )


def assemble(
    reading: Reading,
    *,
    hidden_size: int,
    vocabulary_size: int,
    intermediate_size: int,
    attention_heads: int,
    kv_heads: int,
    tied_head: bool,
    layers: Sequence[LayerSpec],
    root_tensors: tuple[tuple[Component, TensorTemplate], ...],
    experts: int = 0,
    experts_per_token: int = 0,
    expert_intermediate_size: int = 0,
    max_context_keys: tuple[str, ...] = MAX_CONTEXT_KEYS,
) -> ArchitectureSpec:
    """Put the parts together with what every config spells alike (name, dtype, longest context)."""
    names = reading.top.texts("architectures") or ()
    return ArchitectureSpec(
        name=names[0] if names else "",
        model_type=reading.text.text("model_type", default=reading.top.text("model_type", default="")),
        hidden_size=hidden_size,
        vocabulary_size=vocabulary_size,
        intermediate_size=intermediate_size,
        attention_heads=attention_heads,
        kv_heads=kv_heads,
        tied_head=tied_head,
        dtype=reading.dtype(),
        max_context_tokens=reading.text.optional_integer(*max_context_keys),
        layers=tuple(layers),
        root_tensors=root_tensors,
        experts=experts,
        experts_per_token=experts_per_token,
        expert_intermediate_size=expert_intermediate_size,
        assumptions=tuple(reading.assumptions),
    )
