"""Mixers that keep a state per sequence instead of keys and values per token: their tensors and their cache rule.

Owns Mamba 1, Mamba 2, gated delta nets (Qwen3-Next), Kimi delta attention, lightning attention (MiniMax-01) and
short convolutions (LFM2). How a family spells the sizes is that family's business. A convolution of kernel ``k``
remembers the last ``k - 1`` steps (vLLM's state shapes; transformers keeps one step more).
Shapes follow the modeling code of transformers 5.24.
"""

from dataclasses import dataclass

from model_catalog.architecture import RecurrentState, Role, TensorTemplate
from model_catalog.dtypes import DType
from model_catalog.families.blocks import Tensors, linear, norm


def parameter(name: str, *shape: int, role: Role = Role.STATE_MIXER) -> TensorTemplate:
    """A tensor that is no projection: decay, step bias, convolution kernel."""
    return TensorTemplate(name=name, shape=shape, role=role)


def convolution(name: str, channels: int, kernel: int, *, bias: bool) -> Tensors:
    """A depthwise causal convolution."""
    weight = parameter(f"{name}.weight", channels, 1, kernel)
    return (weight, parameter(f"{name}.bias", channels)) if bias else (weight,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Sizes of a Mamba 1 mixer. ``inner`` channels, each with ``state`` elements; ``rank`` of the time step."""

    hidden: int
    inner: int
    state: int
    rank: int
    kernel: int
    conv_bias: bool
    proj_bias: bool
    inner_norms: bool = False  #: Jamba normalises the time step, B and C

    def tensors(self, prefix: str) -> Tensors:
        """All tensors under ``prefix``."""
        norms: Tensors = ()
        if self.inner_norms:
            norms = (
                *norm(f"{prefix}.dt_layernorm", self.rank),
                *norm(f"{prefix}.b_layernorm", self.state),
                *norm(f"{prefix}.c_layernorm", self.state),
            )
        return (
            parameter(f"{prefix}.A_log", self.inner, self.state),
            parameter(f"{prefix}.D", self.inner),
            *convolution(f"{prefix}.conv1d", self.inner, self.kernel, bias=self.conv_bias),
            *linear(f"{prefix}.in_proj", 2 * self.inner, self.hidden, Role.STATE_MIXER, bias=self.proj_bias),
            *linear(f"{prefix}.x_proj", self.rank + 2 * self.state, self.inner, Role.STATE_MIXER),
            *linear(f"{prefix}.dt_proj", self.inner, self.rank, Role.STATE_MIXER, bias=True),
            *linear(f"{prefix}.out_proj", self.hidden, self.inner, Role.STATE_MIXER, bias=self.proj_bias),
            *norms,
        )

    def cache(self, state_dtype: DType | None = None) -> RecurrentState:
        """Convolution history of every channel, and ``state`` elements for each."""
        return RecurrentState(
            kind="mamba1",
            conv_elements_per_step=self.inner,
            conv_steps=self.kernel - 1,
            state_elements=self.inner * self.state,
            state_dtype=state_dtype,
            heads=self.inner,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Sizes of a Mamba 2 mixer: ``heads`` of ``head_dim`` channels and ``state`` elements, B and C by group."""

    hidden: int
    inner: int
    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    conv_bias: bool
    proj_bias: bool
    output_bias: bool
    gated_norm: bool = True

    @property
    def channels(self) -> int:
        """Channels under the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    def tensors(self, prefix: str) -> Tensors:
        """All tensors under ``prefix``."""
        inputs = self.inner + self.channels + self.heads
        gated = (parameter(f"{prefix}.norm.weight", self.inner),) if self.gated_norm else ()
        return (
            parameter(f"{prefix}.A_log", self.heads),
            parameter(f"{prefix}.D", self.heads),
            parameter(f"{prefix}.dt_bias", self.heads),
            *convolution(f"{prefix}.conv1d", self.channels, self.kernel, bias=self.conv_bias),
            *linear(f"{prefix}.in_proj", inputs, self.hidden, Role.STATE_MIXER, bias=self.proj_bias),
            *gated,
            *linear(f"{prefix}.out_proj", self.hidden, self.inner, Role.STATE_MIXER, bias=self.output_bias),
        )

    def cache(self, state_dtype: DType | None = None) -> RecurrentState:
        """Convolution history of x, B and C, and one ``head_dim x state`` matrix a head."""
        return RecurrentState(
            kind="mamba2",
            conv_elements_per_step=self.channels,
            conv_steps=self.kernel - 1,
            state_elements=self.heads * self.head_dim * self.state,
            state_dtype=state_dtype,
            heads=self.heads,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta:
    """Sizes of a gated delta net: ``key_heads`` of ``key_dim`` (query and key), ``value_heads`` of ``value_dim``.

    ``fused``: Qwen3-Next stores query, key, value and gate as one matrix and the two decay inputs as another;
    Qwen3.5 stores the same rows under four names.
    """

    hidden: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int
    fused: bool

    @property
    def channels(self) -> int:
        """Channels under the convolution: query, key and value."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def tensors(self, prefix: str = "linear_attn") -> Tensors:
        """All tensors under ``prefix``."""
        values = self.value_heads * self.value_dim
        if self.fused:
            inputs = {"in_proj_qkvz": self.channels + values, "in_proj_ba": 2 * self.value_heads}
        else:
            inputs = {
                "in_proj_qkv": self.channels,
                "in_proj_z": values,
                "in_proj_b": self.value_heads,
                "in_proj_a": self.value_heads,
            }
        projections = tuple(
            tensor
            for name, outputs in inputs.items()
            for tensor in linear(f"{prefix}.{name}", outputs, self.hidden, Role.STATE_MIXER)
        )
        return (
            parameter(f"{prefix}.A_log", self.value_heads),
            parameter(f"{prefix}.dt_bias", self.value_heads),
            *convolution(f"{prefix}.conv1d", self.channels, self.kernel, bias=False),
            *projections,
            *norm(f"{prefix}.norm", self.value_dim),
            *linear(f"{prefix}.out_proj", self.hidden, values, Role.STATE_MIXER),
        )

    def cache(self, state_dtype: DType | None = None) -> RecurrentState:
        """Convolution history of query, key and value, and one ``value_dim x key_dim`` matrix a value head."""
        return RecurrentState(
            kind="gated_delta",
            conv_elements_per_step=self.channels,
            conv_steps=self.kernel - 1,
            state_elements=self.value_heads * self.value_dim * self.key_dim,
            state_dtype=state_dtype,
            heads=self.value_heads,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta:
    """Sizes of Kimi delta attention: ``heads`` of ``head_dim``; a low-rank or full-rank output gate."""

    hidden: int
    heads: int
    head_dim: int
    kernel: int
    full_rank_gate: bool

    def tensors(self, prefix: str = "self_attn") -> Tensors:
        """All tensors under ``prefix``."""
        width = self.heads * self.head_dim
        mixer = Role.STATE_MIXER
        wide = [
            tensor
            for letter in "qkv"
            for tensor in (
                *linear(f"{prefix}.{letter}_proj", width, self.hidden, mixer),
                *convolution(f"{prefix}.{letter}_conv1d", width, self.kernel, bias=False),
            )
        ]
        if self.full_rank_gate:
            gate = linear(f"{prefix}.g_proj", width, self.hidden, mixer)
        else:
            gate = (
                *linear(f"{prefix}.g_a_proj", self.head_dim, self.hidden, Role.STATE_REPLICATED),
                *linear(f"{prefix}.g_b_proj", width, self.head_dim, mixer),
            )
        # Checkpoints pad the decay to a power of two (Kimi K3: 96 heads, 128 elements).
        padded = 1 << (self.heads - 1).bit_length()
        return (
            parameter(f"{prefix}.A_log", padded),
            parameter(f"{prefix}.dt_bias", width),
            *wide,
            *linear(f"{prefix}.f_a_proj", self.head_dim, self.hidden, Role.STATE_REPLICATED),
            *linear(f"{prefix}.f_b_proj", width, self.head_dim, mixer),
            *linear(f"{prefix}.b_proj", self.heads, self.hidden, mixer),
            *gate,
            *norm(f"{prefix}.o_norm", self.head_dim),
            *linear(f"{prefix}.o_proj", self.hidden, width, mixer),
        )

    def cache(self, state_dtype: DType | None = None) -> RecurrentState:
        """Convolution history of query, key and value, and one square matrix a head."""
        return RecurrentState(
            kind="kda",
            conv_elements_per_step=3 * self.heads * self.head_dim,
            conv_steps=self.kernel - 1,
            state_elements=self.heads * self.head_dim * self.head_dim,
            state_dtype=state_dtype,
            heads=self.heads,
        )


def lightning(hidden: int, heads: int, head_dim: int, prefix: str = "self_attn") -> tuple[Tensors, RecurrentState]:
    """Lightning attention (MiniMax-01): fused projections, an output gate, and one square matrix a head."""
    width = heads * head_dim
    mixer = Role.STATE_MIXER
    tensors = (
        *linear(f"{prefix}.qkv_proj", 3 * width, hidden, mixer),
        *linear(f"{prefix}.output_gate", width, hidden, mixer),
        *norm(f"{prefix}.norm", width),
        *linear(f"{prefix}.out_proj", hidden, width, mixer),
    )
    cache = RecurrentState(
        kind="lightning",
        conv_elements_per_step=0,
        conv_steps=0,
        state_elements=heads * head_dim * head_dim,
        state_dtype=None,
        heads=heads,
    )
    return tensors, cache


def short_convolution(hidden: int, kernel: int, *, bias: bool) -> tuple[Tensors, RecurrentState]:
    """LFM2's gated short convolution: three gates in, one out; nothing but the convolution's history is kept."""
    tensors = (
        *convolution("conv.conv", hidden, kernel, bias=bias),
        *linear("conv.in_proj", 3 * hidden, hidden, Role.STATE_MIXER, bias=bias),
        *linear("conv.out_proj", hidden, hidden, Role.STATE_MIXER, bias=bias),
    )
    cache = RecurrentState(
        kind="short_conv",
        conv_elements_per_step=hidden,
        conv_steps=kernel - 1,
        state_elements=0,
        state_dtype=None,
        heads=hidden,
    )
    return tensors, cache
