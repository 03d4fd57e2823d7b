"""config.json's quantisation section, or ModelOpt's hf_quant_config.json, -> Quantization.

Owns the spellings of the methods. A method that it does not know is refused by name: its bytes would be a guess.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from model_catalog.config_view import ConfigView
from model_catalog.conversion import BLOCKS_ONLY, ConversionRule, Quantization, on_the_fly
from model_catalog.errors import ConfigError, UnsupportedConfigError
from model_catalog.module_patterns import ModulePatterns
from model_catalog.quantization_schemes import (
    WHOLE,
    BitsAndBytes4,
    Scheme,
    awq,
    fp8,
    gptq,
    int8_rows,
    mxfp4,
    mxfp8,
    nvfp4,
    packed_integer,
)

__all__ = ["Quantization", "on_the_fly", "read_quantization"]

_SECTIONS: Final = ("quantization_config", "compression_config")
_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")
_IGNORE_KEYS: Final = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)


def read_quantization(
    config: Mapping[str, Any], quantization_file: Mapping[str, Any] | None, *, subject: str
) -> Quantization | None:
    """The checkpoint's quantisation, or None for an unquantised one.

    ``quantization_file`` is hf_quant_config.json where the repo has one; config.json's own section goes first.

    Raises:
        ConfigError: when a value has the wrong type or is out of range.
        UnsupportedConfigError: for a method, format or option whose storage we do not know.
    """
    top = ConfigView(config, subject=subject)
    view = _section(top)
    if view is None and quantization_file is not None:
        view = ConfigView(quantization_file, subject=subject, path="hf_quant_config").section("quantization")
    if view is None:
        if top.section("quantization") is not None:
            raise _unsupported(top, "quantization", "mlx")
        return None
    method = view.text("quant_method", default="").lower().replace("_", "-")
    if not method and view.has("quant_algo"):
        method = "modelopt"
    reader = _READERS.get(method)
    if reader is None:
        raise _unsupported(view, "quant_method", method or "without a quant_method")
    return _with_packed_experts(reader(view), top)


def _with_packed_experts(found: Quantization, top: ConfigView) -> Quantization:
    """DeepSeek V4 keeps its routed experts in MXFP4 beside FP8 (``expert_dtype``), where no rule names them."""
    if found.method != "fp8" or top.text("expert_dtype", default="") != "fp4":
        return found
    named = tuple(rule for rule in found.rules if rule.targets is not None)
    others = tuple(rule for rule in found.rules if rule.targets is None)
    experts = ConversionRule(scheme=mxfp4(), experts_only=True)
    return replace(found, rules=(*named, experts, *others))


def _section(top: ConfigView) -> ConfigView | None:
    for key in _SECTIONS:
        if (view := top.section(key)) is not None:
            return view
    for nested in _NESTED:
        inner = top.section(nested)
        for key in _SECTIONS:
            if inner is not None and (view := inner.section(key)) is not None:
                return view
    return None


def _gptq(view: ConfigView) -> Quantization:
    bits = _bits(view, "bits", allowed=(2, 3, 4, 8))
    dynamic = view.section("dynamic")
    skipped: list[str] = []
    if dynamic is not None:
        for key in dynamic.unread_keys():
            if not key.startswith("-:"):
                raise _unsupported(view, "dynamic", "GPTQ with bits that differ by module")
            skipped.append(f"re:{key[2:]}")
    return Quantization(
        method="gptq",
        rules=(ConversionRule(scheme=gptq(bits, _group(view))),),
        ignored=_ignored(view, skipped),
        components=BLOCKS_ONLY,
        converts_head=view.boolean("lm_head", default=False),
    )


def _awq(view: ConfigView) -> Quantization:
    bits = _bits(view, "bits", "w_bit", allowed=(4, 8))
    group = _group(view, "group_size", "q_group_size")
    zeros = view.boolean("zero_point", default=True)
    return Quantization(
        method="awq",
        rules=(ConversionRule(scheme=awq(bits, group, zero_points=zeros)),),
        ignored=_ignored(view),
        components=BLOCKS_ONLY,
    )


def _auto_round(view: ConfigView) -> Quantization:
    packing = view.text("packing_format", default="auto_round:auto_gptq")
    extra = view.section("extra_config")
    if extra is not None and extra.unread_keys():
        raise _unsupported(view, "extra_config", "auto-round with bits that differ by module")
    return _awq(view) if "awq" in packing else _gptq(view)


def _fp8(view: ConfigView) -> Quantization:
    rules: list[ConversionRule] = []
    if (layers := view.section("quantized_layers")) is not None:
        rules += _by_layer(layers)
    block = view.integers("weight_block_size", minimum=1, maximum=4096)
    static = view.text("activation_scheme", default="dynamic") == "static"
    if block is not None and len(block) != 2:
        raise view.fail("weight_block_size", "must be two numbers")
    group = (WHOLE, WHOLE) if block is None else (block[0], block[1])
    rules.append(ConversionRule(scheme=fp8(group, scale="F32", scalars=int(static))))
    # Beside quantized_layers, ``ignore`` tells what those leave to FP8, not what FP8 leaves alone.
    keys = ("modules_to_not_convert", "ignored_layers") if layers is not None else _IGNORE_KEYS
    return Quantization(method="fp8", rules=tuple(rules), ignored=_ignored(view, keys=keys))


def _fbgemm_fp8(view: ConfigView) -> Quantization:
    return Quantization(
        method="fbgemm_fp8",
        rules=(ConversionRule(scheme=fp8((1, WHOLE), scale="F32", scalars=1)),),
        ignored=_ignored(view),
    )


def _mxfp4(view: ConfigView) -> Quantization:
    rule = ConversionRule(scheme=mxfp4(), experts_only=True)
    return Quantization(method="mxfp4", rules=(rule,), ignored=_ignored(view))


def _bitsandbytes(view: ConfigView) -> Quantization:
    scheme: Scheme
    if view.boolean("load_in_4bit", default=False) or view.boolean("_load_in_4bit", default=False):
        scheme = BitsAndBytes4(double=view.boolean("bnb_4bit_use_double_quant", default=False))
    else:
        scheme = int8_rows("bitsandbytes 8 bit")
    return Quantization(method="bitsandbytes", rules=(ConversionRule(scheme=scheme),), ignored=_ignored(view))


def _compressed_tensors(view: ConfigView) -> Quantization:
    file_format = view.text("format", default="")
    groups = view.section("config_groups")
    if groups is None:
        raise view.fail("config_groups", "missing")
    rules: list[ConversionRule] = []
    for key in groups.unread_keys():
        group = groups.section(key)
        weights = None if group is None else group.section("weights")
        if group is None or weights is None:
            continue
        inputs = group.section("input_activations")
        scheme = _compressed_scheme(weights, group.text("format", default=file_format), static=_static(inputs))
        rules.append(
            ConversionRule(scheme=scheme, targets=_patterns(view, f"config_groups.{key}", group, "targets"))
        )
    if not rules:
        raise _unsupported(view, "config_groups", "compressed-tensors without quantised weights")
    return Quantization(method="compressed-tensors", rules=tuple(rules), ignored=_ignored(view))


def _compressed_scheme(weights: ConfigView, file_format: str, *, static: bool) -> Scheme:
    bits = _bits(weights, "num_bits", allowed=(2, 3, 4, 8))
    kind = weights.text("type", default="int")
    strategy = weights.text("strategy", default="tensor")
    if "sparse" in file_format or "24" in file_format:
        raise _unsupported(weights, "format", file_format)
    group = weights.optional_integer("group_size", minimum=-1) or WHOLE
    group = WHOLE if group < 0 else group
    if kind == "float" and bits == 4:
        return nvfp4(scalars=1 + static) if group == 16 else mxfp4()
    if kind == "float":
        block = weights.integers("block_structure", minimum=1, maximum=4096)
        shapes = {"tensor": (WHOLE, WHOLE), "channel": (1, WHOLE), "group": (1, group)}
        if strategy == "block" and block is not None and len(block) == 2:
            return fp8((block[0], block[1]), scale=None, scalars=int(static))
        if strategy not in shapes:
            raise _unsupported(weights, "strategy", f"compressed-tensors {strategy}")
        return fp8(shapes[strategy], scale=None, scalars=int(static))
    symmetric = weights.boolean("symmetric", default=True)
    if file_format in {"int-quantized", "naive-quantized"}:
        return int8_rows("INT8, one scale a row", scale=None)
    return packed_integer(bits, group, zero_points=not symmetric, input_index=_reordered(weights))


def _modelopt(view: ConfigView) -> Quantization:
    rules: list[ConversionRule] = []
    if (layers := view.section("quantized_layers")) is not None:
        rules += _by_layer(layers)
    algorithm = view.text("quant_algo", default="")
    if algorithm.upper() != "MIXED_PRECISION":
        rules.append(ConversionRule(scheme=_modelopt_scheme(view, algorithm)))
    if not rules:
        raise _unsupported(view, "quant_algo", "MIXED_PRECISION without quantized_layers")
    return Quantization(method="modelopt", rules=tuple(rules), ignored=_ignored(view))


def _by_layer(layers: ConfigView) -> list[ConversionRule]:
    """One rule for each algorithm of ModelOpt's ``quantized_layers``, with the modules it lists."""
    modules: dict[str, list[str]] = {}
    for name in layers.unread_keys():
        entry = layers.section(name)
        modules.setdefault("" if entry is None else entry.text("quant_algo", default=""), []).append(name)
    return [
        ConversionRule(
            scheme=_modelopt_scheme(layers, algorithm),
            targets=ModulePatterns(names, subject=layers.subject, key_path=layers.path),
        )
        for algorithm, names in modules.items()
    ]


def _modelopt_scheme(view: ConfigView, algorithm: str) -> Scheme:
    name = algorithm.upper()
    schemes: dict[str, Scheme] = {
        "FP8": fp8((WHOLE, WHOLE), scale="F32", scalars=1),
        "FP8_PER_CHANNEL_PER_TOKEN": fp8((1, WHOLE), scale="F32"),
        "FP8_PB_WO": fp8((128, 128), scale="F32"),
        "NVFP4": nvfp4(scalars=2),
        "NVFP4_AWQ": nvfp4(scalars=2),
        "W4A16_NVFP4": nvfp4(scalars=1),
        "MXFP8": mxfp8(),
        "W4A16_MXFP4": mxfp4(),
        "W4A8_MXFP4_FP8": mxfp4(),
    }
    if name not in schemes:
        raise _unsupported(view, "quant_algo", f"ModelOpt {algorithm or 'without an algorithm'}")
    return schemes[name]


def _quark(view: ConfigView) -> Quantization:
    layers = view.section("layer_quant_config")
    if layers is not None and layers.unread_keys():
        raise _unsupported(view, "layer_quant_config", "Quark with schemes that differ by module")
    common = view.section("global_quant_config")
    weight = None if common is None else common.section("weight")
    if common is None or weight is None:
        raise _unsupported(view, "global_quant_config", "Quark without a weight scheme")
    dtype, granularity = weight.text("dtype", default=""), weight.text("qscheme", default="per_tensor")
    static = _quark_static(common.section("input_tensors"))
    if dtype == "fp8_e4m3" and granularity in {"per_tensor", "per_channel"}:
        group = (WHOLE, WHOLE) if granularity == "per_tensor" else (1, WHOLE)
        scheme = fp8(group, scale="F32", scalars=int(static))
    elif (
        dtype == "fp4" and granularity == "per_group" and weight.integer("group_size", default=0, minimum=0) == 32
    ):
        scheme = mxfp4()
    else:
        raise _unsupported(weight, "dtype", f"Quark {dtype} {granularity}")
    return Quantization(method="quark", rules=(ConversionRule(scheme=scheme),), ignored=_ignored(view))


_READERS: Final[dict[str, Callable[[ConfigView], Quantization]]] = {
    "gptq": _gptq,
    "gptq-marlin": _gptq,
    "awq": _awq,
    "awq-marlin": _awq,
    "auto-round": _auto_round,
    "inc": _auto_round,
    "fp8": _fp8,
    "fbgemm-fp8": _fbgemm_fp8,
    "mxfp4": _mxfp4,
    "gpt-oss-mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
    "modelopt-mxfp8": _modelopt,
    "quark": _quark,
}


def _bits(view: ConfigView, *keys: str, allowed: tuple[int, ...]) -> int:
    bits = view.integer(*keys, maximum=64)
    if bits not in allowed:
        raise _unsupported(view, keys[0], f"{bits}-bit weights")
    return bits


def _group(view: ConfigView, *keys: str) -> int:
    """``group_size``; -1 means one group for the whole input."""
    value = view.optional_integer(*(keys or ("group_size",)), minimum=-1)
    return WHOLE if value in {None, -1} else int(value or WHOLE)


def _quark_static(inputs: ConfigView | None) -> bool:
    return inputs is not None and not inputs.boolean("is_dynamic", default=False)


def _static(inputs: ConfigView | None) -> bool:
    """Whether a scale for the layer's input is stored: ``dynamic`` is true, false or ``local`` (global scale)."""
    if inputs is None:
        return False
    try:
        return not inputs.boolean("dynamic", default=False)
    except ConfigError:
        return inputs.text("dynamic") == "local"


def _reordered(weights: ConfigView) -> bool:
    """Whether an input index is stored: ``actorder`` is null, false, ``static``, ``weight``, ``group`` or true."""
    try:
        return weights.boolean("actorder", default=False)
    except ConfigError:
        return weights.text("actorder") == "group"


def _ignored(
    view: ConfigView, more: Iterable[str] = (), *, keys: tuple[str, ...] = _IGNORE_KEYS
) -> ModulePatterns:
    patterns = [*more]
    for key in keys:
        patterns += view.texts(key) or ()
    return ModulePatterns(patterns, subject=view.subject, key_path=view.key_path("ignore"))


def _patterns(view: ConfigView, path: str, group: ConfigView, key: str) -> ModulePatterns | None:
    listed = group.texts(key)
    return None if listed is None else ModulePatterns(listed, subject=view.subject, key_path=f"{path}.{key}")


def _unsupported(view: ConfigView, key: str, what: str) -> UnsupportedConfigError:
    path = view.key_path(key)
    return UnsupportedConfigError(
        f"config.json: {path}: quantisation {ascii(what)[1:-1][:80]} is not supported",
        subject=view.subject,
        hint="plan the unquantised model, or a GPTQ, AWQ, FP8, NVFP4, MXFP4 or compressed-tensors version of it",
        key_path=path,
    )
