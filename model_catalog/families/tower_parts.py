"""Building blocks of vision and audio towers: projections and norms with a prefix, and the usual encoder.

Every tensor has the role TOWER; equal tensors of all layers are one template with a count.
"""

from dataclasses import dataclass, field
from typing import Literal

from model_catalog.architecture import Component, Role, TensorTemplate
from model_catalog.families.blocks import linear

Templates = tuple[tuple[Component, TensorTemplate], ...]
NormKind = Literal["layer", "rms"]


@dataclass(slots=True)
class TowerParts:
    """Collects the templates of one tower under a name prefix."""

    component: Component
    prefix: str
    templates: list[tuple[Component, TensorTemplate]] = field(default_factory=list)

    def raw(self, name: str, *shape: int, count: int = 1) -> None:
        """A parameter that is no projection: position table, class token, convolution, layer scale."""
        tensor = TensorTemplate(name=f"{self.prefix}{name}", shape=shape, role=Role.TOWER, count=count)
        self.templates.append((self.component, tensor))

    def linear(self, name: str, outputs: int, inputs: int, *, bias: bool, count: int = 1) -> None:
        """A projection with its bias where it has one."""
        for tensor in linear(f"{self.prefix}{name}", outputs, inputs, Role.TOWER, bias=bias, count=count):
            self.templates.append((self.component, tensor))

    def norm(self, name: str, size: int, kind: NormKind, *, count: int = 1) -> None:
        """A LayerNorm (weight and bias) or an RMSNorm (weight)."""
        self.raw(f"{name}.weight", size, count=count)
        if kind == "layer":
            self.raw(f"{name}.bias", size, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A pre-norm transformer encoder. ``attention_width`` is heads times head dimension where not ``hidden``."""

    depth: int
    hidden: int
    intermediate: int
    norm: NormKind
    gated: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    kv_width: int | None = None
    attention_width: int | None = None
    key_bias: bool | None = None

    def add(self, parts: TowerParts, prefix: str) -> None:
        """Add ``depth`` layers under ``prefix`` (which ends with the layer wildcard and a dot)."""
        count, hidden = self.depth, self.hidden
        if not count:
            return
        width = hidden if self.attention_width is None else self.attention_width
        kv_width = width if self.kv_width is None else self.kv_width
        key_bias = self.qkv_bias if self.key_bias is None else self.key_bias
        for name in ("norm1", "norm2"):
            parts.norm(f"{prefix}{name}", hidden, self.norm, count=count)
        parts.linear(f"{prefix}attn.q_proj", width, hidden, bias=self.qkv_bias, count=count)
        parts.linear(f"{prefix}attn.k_proj", kv_width, hidden, bias=key_bias, count=count)
        parts.linear(f"{prefix}attn.v_proj", kv_width, hidden, bias=self.qkv_bias, count=count)
        parts.linear(f"{prefix}attn.out_proj", hidden, width, bias=self.output_bias, count=count)
        ups = ("mlp.gate_proj", "mlp.up_proj") if self.gated else ("mlp.fc1",)
        for name in ups:
            parts.linear(f"{prefix}{name}", self.intermediate, hidden, bias=self.mlp_bias, count=count)
        down = "mlp.down_proj" if self.gated else "mlp.fc2"
        parts.linear(f"{prefix}{down}", hidden, self.intermediate, bias=self.mlp_bias, count=count)
