"""config.json's quantisation section, or ModelOpt's hf_quant_config.json, -> Quantization.

Owns the spellings of the methods. A method that it does not know is refused by name: its bytes would be a guess.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from model_catalog.config_view import ConfigView
from model_catalog.conversion import BLOCKS_ONLY, ConversionRule, Quantization
from model_catalog.quantization_groups import (
    check_modelopt_keys,
    read_compressed_tensors,
    read_modelopt,
    read_quark,
    rules_by_layer,
)
from model_catalog.quantization_keys import IGNORE_KEYS, group_size, ignored_modules, unsupported, weight_bits
from model_catalog.quantization_schemes import (
    WHOLE,
    BitsAndBytes4,
    Scheme,
    awq,
    fp8,
    gptq,
    int8_rows,
    mxfp4,
)

_SECTIONS: Final = ("quantization_config", "compression_config")
_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")


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
        if view is not None and not view.has("quant_algo", "quantized_layers"):
            return None  # the side file may be about the KV cache alone
    if view is None:
        if top.section("quantization") is not None:
            raise unsupported(top, "quantization", "mlx")
        return None
    method = view.text("quant_method", default="").lower().replace("_", "-")
    if not method and view.has("quant_algo"):
        method = "modelopt"
    reader = _READERS.get(method)
    if reader is None:
        raise unsupported(view, "quant_method", method or "without a quant_method")
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
        if (view := top.section(key)) is not None and view.unread_keys():
            return view
    for nested in _NESTED:
        inner = top.section(nested)
        for key in _SECTIONS:
            if inner is not None and (view := inner.section(key)) is not None:
                return view
    return None


def _gptq(view: ConfigView) -> Quantization:
    bits = weight_bits(view, "bits", allowed=(2, 3, 4, 8))
    dynamic = view.section("dynamic")
    skipped: list[str] = []
    if dynamic is not None:
        for key in dynamic.unread_keys():
            if not key.startswith("-:"):
                raise unsupported(view, "dynamic", "GPTQ with bits that differ by module")
            skipped.append(f"re:{key[2:]}")
    return Quantization(
        method="gptq",
        rules=(ConversionRule(scheme=gptq(bits, group_size(view))),),
        ignored=ignored_modules(view, skipped),
        components=BLOCKS_ONLY,
        converts_head=view.boolean("lm_head", default=False),
    )


def _awq(view: ConfigView) -> Quantization:
    bits = weight_bits(view, "bits", "w_bit", allowed=(4, 8))
    group = group_size(view, "group_size", "q_group_size")
    zeros = view.boolean("zero_point", default=True)
    return Quantization(
        method="awq",
        rules=(ConversionRule(scheme=awq(bits, group, zero_points=zeros)),),
        ignored=ignored_modules(view),
        components=BLOCKS_ONLY,
    )


def _auto_round(view: ConfigView) -> Quantization:
    packing = view.text("packing_format", default="auto_round:auto_gptq")
    extra = view.section("extra_config")
    if extra is not None and extra.unread_keys():
        raise unsupported(view, "extra_config", "auto-round with bits that differ by module")
    return _awq(view) if "awq" in packing else _gptq(view)


def _fp8(view: ConfigView) -> Quantization:
    rules: list[ConversionRule] = []
    if (layers := view.section("quantized_layers")) is not None:
        rules += rules_by_layer(layers)
        check_modelopt_keys(view)
    block = view.integers("weight_block_size", minimum=1, maximum=4096)
    static = view.text("activation_scheme", default="dynamic") == "static"
    if block is not None and len(block) != 2:
        raise view.fail("weight_block_size", "must be two numbers")
    group = (WHOLE, WHOLE) if block is None else (block[0], block[1])
    rules.append(ConversionRule(scheme=fp8(group, scale="F32", scalars=int(static))))
    # Beside quantized_layers, ``ignore`` tells what those leave to FP8, not what FP8 leaves alone.
    keys = ("modules_to_not_convert", "ignored_layers") if layers is not None else IGNORE_KEYS
    return Quantization(method="fp8", rules=tuple(rules), ignored=ignored_modules(view, keys=keys))


def _fbgemm_fp8(view: ConfigView) -> Quantization:
    return Quantization(
        method="fbgemm_fp8",
        rules=(ConversionRule(scheme=fp8((1, WHOLE), scale="F32", scalars=1)),),
        ignored=ignored_modules(view),
    )


def _mxfp4(view: ConfigView) -> Quantization:
    rule = ConversionRule(scheme=mxfp4(), experts_only=True)
    return Quantization(method="mxfp4", rules=(rule,), ignored=ignored_modules(view))


def _bitsandbytes(view: ConfigView) -> Quantization:
    scheme: Scheme
    if view.boolean("load_in_4bit", default=False) or view.boolean("_load_in_4bit", default=False):
        scheme = BitsAndBytes4(double=view.boolean("bnb_4bit_use_double_quant", default=False))
    else:
        scheme = int8_rows("bitsandbytes 8 bit")
    return Quantization(
        method="bitsandbytes", rules=(ConversionRule(scheme=scheme),), ignored=ignored_modules(view)
    )


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
    "compressed-tensors": read_compressed_tensors,
    "modelopt": read_modelopt,
    "modelopt-fp4": read_modelopt,
    "modelopt-mixed": read_modelopt,
    "modelopt-mxfp8": read_modelopt,
    "quark": read_quark,
}
