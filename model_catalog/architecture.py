"""What a model is made of: its tensors by layer, and what each layer keeps per token or per sequence.

An ArchitectureSpec is what a configuration says once a family's defaults are filled in. It holds tensor
*templates* (shapes and roles), never weights, so that sizes, sharding and quantisation are all computed from
one description. It knows nothing of engines: page sizes, padding and budgets are the planner's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from model_catalog.dtypes import DType


class Component(StrEnum):
    """The part of a model that a tensor belongs to."""

    TEXT = "text"  #: the decoder that generates
    ENCODER = "encoder"  #: the encoder of an encoder-decoder model
    VISION = "vision"
    AUDIO = "audio"
    PROJECTOR = "projector"  #: between a tower and the decoder
    MTP = "mtp"  #: multi-token-prediction layers, loaded only when speculation uses them
    OTHER = "other"


class Role(StrEnum):
    """What a tensor does; tensor parallelism and quantisation follow from it."""

    EMBEDDING = "embedding"  #: token table, split over the vocabulary
    HEAD = "head"  #: output projection, split over the vocabulary
    POSITION = "position"  #: learned positions; replicated
    NORM = "norm"  #: replicated
    QUERY = "query"  #: split by attention heads (column)
    KEY_VALUE = "key_value"  #: split by KV heads, replicated when ranks outnumber them
    QKV = "qkv"  #: fused query, key and value
    ATTENTION_OUTPUT = "attention_output"  #: split by attention heads (row)
    LATENT = "latent"  #: MLA down-projections, indexers: replicated on every rank
    MLP = "mlp"  #: dense feed-forward, split
    EXPERT = "expert"  #: routed experts: split inside (TP) or dealt out whole (EP)
    SHARED_EXPERT = "shared_expert"  #: always-on expert, split like an MLP
    ROUTER = "router"  #: replicated
    STATE_MIXER = "state_mixer"  #: recurrent or convolutional mixer, split by heads
    STATE_REPLICATED = "state_replicated"  #: the part of such a mixer that every rank keeps
    TOWER = "tower"  #: vision or audio tower, or projector
    BUFFER = "buffer"  #: stored but rebuilt or ignored by engines (causal masks, inv_freq)
    OTHER = "other"  #: unknown tensors: counted whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTemplate:
    """One tensor, or ``count`` equal ones (experts).

    ``name`` is the checkpoint's name inside its layer (``self_attn.q_proj.weight``, ``*`` for the expert
    number); ``shape`` follows the checkpoint (out, in). ``linear`` marks matrices that weight quantisation
    schemes convert.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    count: int = 1
    linear: bool = False

    @property
    def parameters(self) -> int:
        """Elements of all ``count`` tensors together."""
        product = self.count
        for extent in self.shape:
            product *= extent
        return product


# --- what a layer keeps: one case of a closed union ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention:
    """Keys and values of every token: ``kv_heads * (key_dim + value_dim)`` elements per token."""

    kv_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """Keys and values of the last ``window_tokens`` tokens."""

    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedAttention:
    """Keys and values of the tokens in the current chunk (Llama 4): at most ``chunk_tokens``."""

    kv_heads: int
    key_dim: int
    value_dim: int
    chunk_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: one compressed row per token, the same on every TP rank.

    ``latent_dim`` is ``kv_lora_rank``, ``rope_dim`` is ``qk_rope_head_dim``. ``indexer_bytes_per_token`` is
    the sparse-attention indexer's own cache (DeepSeek V3.2: 128 fp8 keys + one fp32 scale = 132 B), 0 without.
    """

    latent_dim: int
    rope_dim: int
    indexer_bytes_per_token: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """A state per sequence, whatever the context: convolution history plus a recurrent matrix.

    ``conv_elements_per_step`` elements for each of ``conv_steps`` remembered steps (kernel - 1), in the
    model's dtype; ``state_elements`` in ``state_dtype`` (None: engines differ, plan fp32 with the model's
    dtype as the low bound). ``kind`` is the mixer (``mamba1``, ``mamba2``, ``gated_delta``, ``kda``,
    ``short_conv``, ``rwkv``). ``heads`` bounds how far tensor parallelism can split it.
    """

    kind: str
    conv_elements_per_step: int
    conv_steps: int
    state_elements: int
    state_dtype: DType | None
    heads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention:
    """Keys and values of the encoder's output: ``encoder_tokens`` per sequence at most (None: as prompted)."""

    kv_heads: int
    key_dim: int
    value_dim: int
    encoder_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCache:
    """Reads the cache of an earlier layer; keeps nothing of its own (Gemma 3n, Gemma 4)."""

    source_layer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCache:
    """Keeps nothing (MLP-only layers, encoder layers)."""


CacheRule = (
    FullAttention
    | SlidingWindow
    | ChunkedAttention
    | LatentAttention
    | RecurrentState
    | CrossAttention
    | SharedCache
    | NoCache
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer: its tensors and all that it keeps (an encoder-decoder layer keeps two things)."""

    component: Component
    tensors: tuple[TensorTemplate, ...]
    caches: tuple[CacheRule, ...]
    attention_heads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A default that a family's code supplies because the config is silent: key, value used, why."""

    key: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureSpec:
    """A model's structure. ``layers`` holds decoder layers first, then MTP and encoder layers.

    ``root_tensors`` are those outside layers (embedding, final norm, head, position table).
    ``tower_parameters_known`` is False when a vision or audio tower exists whose size the config does not give.
    ``tied_head``: the output projection is the embedding table; a stored copy is not resident.
    ``max_context_tokens`` is None where the config states no limit.
    """

    name: str
    model_type: str
    hidden_size: int
    vocabulary_size: int
    intermediate_size: int
    attention_heads: int
    kv_heads: int
    tied_head: bool
    dtype: DType
    max_context_tokens: int | None
    layers: tuple[LayerSpec, ...]
    root_tensors: tuple[tuple[Component, TensorTemplate], ...]
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    tower_parameters_known: bool = True
    multimodal: bool = False
    assumptions: tuple[Assumption, ...] = ()

    @property
    def decoder_layers(self) -> tuple[LayerSpec, ...]:
        """Layers of the text decoder, in order, without MTP."""
        return tuple(layer for layer in self.layers if layer.component is Component.TEXT)

    @property
    def mtp_layers(self) -> tuple[LayerSpec, ...]:
        """Multi-token-prediction layers stored with the model."""
        return tuple(layer for layer in self.layers if layer.component is Component.MTP)

    def tensors(self) -> Iterator[tuple[Component, int | None, TensorTemplate]]:
        """Every template with its component and layer number (None outside layers)."""
        for component, tensor in self.root_tensors:
            yield component, None, tensor
        for number, layer in enumerate(self.layers):
            for tensor in layer.tensors:
                yield layer.component, number, tensor

    def parameters(self, *, with_mtp: bool = False) -> int:
        """Elements of every template; the tied head counts once."""
        return sum(
            tensor.parameters
            for component, _, tensor in self.tensors()
            if with_mtp or component is not Component.MTP
        )
