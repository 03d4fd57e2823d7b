"""What a model's quantisation converts, and how the converted matrices are stored.

Owns the meaning of a quantisation once read: which templates it converts and into which parts. Reading the
configuration is ``quantization``'s; the arithmetic of storage formats ``quantization_schemes``'.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.architecture import Component, Role, TensorTemplate
from model_catalog.dtypes import DType
from model_catalog.errors import UsageError
from model_catalog.module_patterns import ModulePatterns
from model_catalog.quantization_schemes import (
    WHOLE,
    BitsAndBytes4,
    GroupedScheme,
    Scheme,
    StoredPart,
    fp8,
    int8_rows,
    mxfp8,
    part,
)

_DECODERS: Final = frozenset({Component.TEXT, Component.ENCODER})
#: Methods that convert by class of module also reach MTP layers and towers, unless their lists say otherwise.
ALL_COMPONENTS: Final = frozenset(Component)
#: GPTQ and AWQ walk the decoder's blocks only.
BLOCKS_ONLY: Final = _DECODERS
_SPELLINGS: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
#: Kept in the model's type by every published FP8 and FP4 checkpoint that has them.
_NEVER_CONVERTED: Final = frozenset({"self_attn.indexer.weights_proj", "eh_proj", "mtp.fc", "fc", "input_proj"})
_NO_PATTERNS: Final = ModulePatterns((), subject="", key_path="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionRule:
    """A scheme and the modules it is for; ``targets`` None: every matrix of the ``components``."""

    scheme: Scheme
    targets: ModulePatterns | None = None
    experts_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a checkpoint, or an engine while loading, quantises a model. The first rule that fits a matrix holds.

    The output projection and MoE routers are converted only where a rule names them; embeddings never.
    ``cache_dtype`` is the type that the checkpoint has scales for in its KV cache (``fp8``, ``nvfp4``), if any.
    """

    method: str
    rules: tuple[ConversionRule, ...]
    ignored: ModulePatterns = _NO_PATTERNS
    components: frozenset[Component] = ALL_COMPONENTS
    converts_head: bool = False
    cache_dtype: str | None = None

    @property
    def label(self) -> str:
        """The method and its schemes, for people."""
        return f"{self.method} ({'; '.join(dict.fromkeys(rule.scheme.label for rule in self.rules))})"

    def scheme_for(
        self, component: Component, layer: int | None, template: TensorTemplate, *, decoder_layers: int
    ) -> Scheme | None:
        """The scheme that converts this template, or None where it stays in the model's type."""
        if not template.linear or len(template.shape) < 2 or component not in self.components:
            return None
        module = template.name.removesuffix(".weight")
        if template.role is Role.EMBEDDING or module in _NEVER_CONVERTED:
            return None
        paths = tuple(_module_paths(component, layer, module, decoder_layers))
        if self.ignored.mean(paths):
            return None
        for rule in self.rules:
            if rule.targets is not None and rule.targets.mean(paths):
                return rule.scheme
            if rule.targets is not None and not rule.targets.names_every_linear:
                continue
            if template.role is Role.ROUTER or (template.role is Role.HEAD and not self.converts_head):
                continue
            if rule.experts_only and template.role is not Role.EXPERT:
                continue
            return rule.scheme
        return None

    def parts(
        self,
        component: Component,
        layer: int | None,
        template: TensorTemplate,
        *,
        decoder_layers: int,
        dtype: DType,
    ) -> tuple[StoredPart, ...]:
        """What the checkpoint stores for this template: one plain part, or the scheme's."""
        scheme = self.scheme_for(component, layer, template, decoder_layers=decoder_layers)
        if scheme is None:
            return plain_parts(template, dtype)
        *batch, outputs, inputs = template.shape
        count = template.count
        for extent in batch:
            count *= extent
        stored = scheme.parts(outputs, inputs, count, storage_name(dtype))
        if not batch:
            return stored
        # Experts fused into one tensor have one companion of each kind.
        return tuple(replace(item, tensors=ceil_tensors(item.tensors, count, template.count)) for item in stored)

    def block_scales_as(self, dtype: str) -> "Quantization | None":
        """The same with FP8 block scales of another type; None where it has no block scales."""
        rules = tuple(replace(rule, scheme=_rescaled(rule.scheme, dtype)) for rule in self.rules)
        return None if rules == self.rules else replace(self, rules=rules)


def ceil_tensors(tensors: int, matrices: int, stored: int) -> int:
    """Tensors of ``stored`` fused matrices where ``matrices`` single ones would have ``tensors``."""
    return max(1, tensors * stored // max(matrices, 1))


def storage_name(dtype: DType) -> str:
    """A floating type in the spelling of safetensors headers."""
    return _SPELLINGS.get(dtype.name, dtype.name)


def plain_parts(template: TensorTemplate, dtype: DType) -> tuple[StoredPart, ...]:
    """An unconverted template in the model's type."""
    return (part(storage_name(dtype), template.parameters, template.count),)


#: What vLLM offers for an unquantised checkpoint (``--quantization``), as kept in memory.
_ON_THE_FLY: Final[dict[str, ConversionRule]] = {
    "fp8": ConversionRule(scheme=fp8((WHOLE, WHOLE), scale="F32")),
    "fp8_per_tensor": ConversionRule(scheme=fp8((WHOLE, WHOLE), scale="F32")),
    "fp8_per_block": ConversionRule(scheme=fp8((128, 128), scale="F32")),
    "int8_per_channel_weight_only": ConversionRule(scheme=int8_rows("INT8, one scale a row")),
    "ptpc_fp8": ConversionRule(scheme=fp8((1, WHOLE), scale="F32")),
    "mxfp8": ConversionRule(scheme=mxfp8()),
    "bitsandbytes": ConversionRule(scheme=BitsAndBytes4(double=False)),
    "experts_int8": ConversionRule(scheme=int8_rows("INT8 experts, one scale a row"), experts_only=True),
}


def on_the_fly(method: str, *, subject: str) -> Quantization:
    """What an engine makes of an unquantised checkpoint while loading it.

    Decoder matrices are converted; towers, MTP layers, embeddings, heads and routers are planned in the model's
    type, which is never too little.

    Raises:
        UsageError: when the method needs a checkpoint that is quantised already, or is not known.
    """
    rule = _ON_THE_FLY.get(method.lower())
    if rule is None:
        raise UsageError(
            f"quantization {method!r} cannot be made from an unquantised checkpoint",
            subject=subject,
            hint=f"choose one of {', '.join(sorted(_ON_THE_FLY))}, or name a checkpoint in that format",
        )
    return Quantization(method=f"{method.lower()} while loading", rules=(rule,), components=_DECODERS)


def _rescaled(scheme: Scheme, dtype: str) -> Scheme:
    is_block = isinstance(scheme, GroupedScheme) and scheme.bits == 8 and scheme.group[0] > 1
    return replace(scheme, scale=dtype) if isinstance(scheme, GroupedScheme) and is_block else scheme


def _module_paths(component: Component, layer: int | None, module: str, decoder_layers: int) -> Iterator[str]:
    """The names that lists may use for a module, without what stands before ``layers``."""
    # A fused expert matrix is listed under its first expert's parts as well.
    names = [module.replace("*", "0")]
    if ".experts." in module and "*" not in module:
        fused = module.replace(".experts.", ".experts.0.")
        names += [fused.replace("gate_up_proj", "gate_proj"), fused]
    for name in names:
        bare = name.removeprefix("model.").removeprefix("language_model.")
        if layer is None:
            yield bare
            continue
        yield f"layers.{layer}.{bare}"
        if component is Component.MTP:
            yield f"mtp.layers.{max(layer - decoder_layers, 0)}.{bare}"
            yield f"mtp.{bare}"
