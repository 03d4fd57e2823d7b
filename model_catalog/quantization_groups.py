"""Formats whose configs describe weights scheme by scheme: compressed-tensors, ModelOpt and Quark."""

from model_catalog.config_view import ConfigView
from model_catalog.conversion import ConversionRule, Quantization
from model_catalog.errors import ConfigError
from model_catalog.module_patterns import ModulePatterns
from model_catalog.quantization_keys import cache_dtype, group_size, ignored_modules, unsupported, weight_bits
from model_catalog.quantization_schemes import (
    WHOLE,
    Scheme,
    fp8,
    int8_rows,
    mxfp4,
    mxfp8,
    nvfp4,
    packed_integer,
)


def read_compressed_tensors(view: ConfigView) -> Quantization:
    """compressed-tensors: one scheme for each of ``config_groups``."""
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
        raise unsupported(view, "config_groups", "compressed-tensors without quantised weights")
    return Quantization(
        method="compressed-tensors",
        rules=tuple(rules),
        ignored=ignored_modules(view),
        cache_dtype=cache_dtype(view, "kv_cache_scheme"),
    )


def _compressed_scheme(weights: ConfigView, file_format: str, *, static: bool) -> Scheme:
    bits = weight_bits(weights, "num_bits", allowed=(2, 3, 4, 8))
    kind = weights.text("type", default="int")
    strategy = weights.text("strategy", default="tensor")
    if "sparse" in file_format or "24" in file_format:
        raise unsupported(weights, "format", file_format)
    group = group_size(weights)
    if kind == "float" and bits == 4:
        return nvfp4(scalars=1 + static) if group == 16 else mxfp4()
    if kind == "float":
        block = weights.integers("block_structure", minimum=1, maximum=4096)
        shapes = {"tensor": (WHOLE, WHOLE), "channel": (1, WHOLE), "group": (1, group)}
        if strategy == "block" and block is not None and len(block) == 2:
            return fp8((block[0], block[1]), scale=None, scalars=int(static))
        if strategy not in shapes:
            raise unsupported(weights, "strategy", f"compressed-tensors {strategy}")
        return fp8(shapes[strategy], scale=None, scalars=int(static))
    if kind != "int":
        raise unsupported(weights, "type", f"compressed-tensors weights of type {kind}")
    if strategy not in {"tensor", "channel", "group"}:
        raise unsupported(weights, "strategy", f"compressed-tensors {strategy}")
    symmetric = weights.boolean("symmetric", default=True)
    if file_format in {"int-quantized", "naive-quantized"}:
        return int8_rows("INT8, one scale a row", scale=None)
    return packed_integer(bits, group, zero_points=not symmetric, input_index=_reordered(weights))


def read_modelopt(view: ConfigView) -> Quantization:
    """NVIDIA ModelOpt: one algorithm, or one for each module of ``quantized_layers``."""
    rules: list[ConversionRule] = []
    if (layers := view.section("quantized_layers")) is not None:
        rules += rules_by_layer(layers)
    algorithm = view.text("quant_algo", default="")
    if algorithm.upper() != "MIXED_PRECISION":
        rules.append(ConversionRule(scheme=_modelopt_scheme(view, algorithm)))
    if not rules:
        raise unsupported(view, "quant_algo", "MIXED_PRECISION without quantized_layers")
    check_modelopt_keys(view)
    return Quantization(
        method="modelopt",
        rules=tuple(rules),
        ignored=ignored_modules(view),
        cache_dtype=cache_dtype(view, "kv_cache_scheme", "kv_cache_quant_algo"),
    )


def check_modelopt_keys(view: ConfigView) -> None:
    """Refuse malformed values of keys that say again what follows from the algorithm.

    Raises:
        ConfigError: naming the key.
    """
    group_size(view)
    view.section("config_groups")
    view.texts("ignore")


def rules_by_layer(layers: ConfigView) -> list[ConversionRule]:
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
        raise unsupported(view, "quant_algo", f"ModelOpt {algorithm or 'without an algorithm'}")
    return schemes[name]


def read_quark(view: ConfigView) -> Quantization:
    """AMD Quark with one scheme for the whole model."""
    layers = view.section("layer_quant_config")
    if layers is not None and layers.unread_keys():
        raise unsupported(view, "layer_quant_config", "Quark with schemes that differ by module")
    common = view.section("global_quant_config")
    weight = None if common is None else common.section("weight")
    if common is None or weight is None:
        raise unsupported(view, "global_quant_config", "Quark without a weight scheme")
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
        raise unsupported(weight, "dtype", f"Quark {dtype} {granularity}")
    return Quantization(method="quark", rules=(ConversionRule(scheme=scheme),), ignored=ignored_modules(view))


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


def _patterns(view: ConfigView, path: str, group: ConfigView, key: str) -> ModulePatterns | None:
    listed = group.texts(key)
    return None if listed is None else ModulePatterns(listed, subject=view.subject, key_path=f"{path}.{key}")
