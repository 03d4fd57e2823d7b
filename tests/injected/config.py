"""Faults of a configuration: what one field, or the whole file, may hold, and what has to come of it."""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from made_repos import TINY_LLAMA

from injected.record import Fault


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


#: What every field of every shape is set to, by what it is called in the table of faults.
VALUES: Final[dict[str, Any]] = {
    "null": None,
    "a string": "x",
    "a string of a million characters": "y" * 1_000_000,
    "an empty list": [],
    "a list": [1, 2],
    "an empty object": {},
    "an object nested 900 deep": _nested(900),
    "NaN": math.nan,
    "Infinity": math.inf,
    "true": True,
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "10^18": 10**18,
    "1e18": 1e18,
    "10^400": 10**400,
}
#: Rows of the catalogue of unlike kinds: dense, latent attention with FP8 blocks, two stacks with windows and a
#: tower, recurrent states, sink attention with MXFP4, FP8, GPTQ, mixture of experts, Mamba beside attention
#: with and without NVFP4. All 124 kinds of the catalogue held once (45,344 tries); these are tried in every run.
SHAPES: Final = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "google/gemma-3-27b-it",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3-32B-FP8",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4",
    "Qwen/Qwen3-30B-A3B",
    "ibm-granite/granite-4.0-h-tiny",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
)


@dataclass(frozen=True, kw_only=True)
class ConfigCase(Fault):
    """A folder whose config.json is this text."""

    text: bytes


def _tiny(**changes: object) -> bytes:
    return json.dumps({**TINY_LLAMA, **changes}).encode()


def _refused(name: str, what: str, text: bytes, says: str, *, code: str = "config") -> ConfigCase:
    return ConfigCase(id=name, what=what, text=text, exit_code=5, code=code, says=says)


_TEXT = _tiny()
_NAMED = {name: f"hidden_size is {name}" for name in VALUES}
CONFIG_CASES = [
    _refused("empty", "config.json is empty", b"", "is not JSON"),
    _refused("cut", "config.json ends in its midst", _TEXT[:-20], "is not JSON"),
    _refused("more", "config.json goes on after its end", _TEXT + b"}", "is not JSON"),
    _refused("binary", "config.json is no text", b"\xff\xfe\x00{}", "is not JSON"),
    _refused("deep", "config.json is nested a hundred thousand deep", b'{"a":' * 100_000, "is not JSON"),
    _refused("digits", "a number of 5,000 digits", _TEXT[:-1] + b', "x": 1' + b"0" * 5000 + b"}", "is not JSON"),
    _refused("number", "config.json is a number", b"3", "is not a JSON object"),
    _refused("huge", "config.json of 100 MB", b" " * 100_000_000 + _TEXT, "is longer than"),
    ConfigCase(
        id="twice",
        what="a key that is there twice: the last counts, as for the engines",
        text=b'{"hidden_size": -1, ' + _TEXT[1:],
        exit_code=0,
        code=None,
    ),
    _refused(
        "twice-bad",
        "a key that is there twice, the last time with what cannot be",
        _TEXT[:-1] + b', "hidden_size": -1}',
        "hidden_size: must lie between",
    ),
    *(
        _refused(f"hidden-size-{number}", what, _tiny(hidden_size=VALUES[name]), "hidden_size: ")
        for number, (name, what) in enumerate(_NAMED.items())
    ),
    _refused(
        "vocabulary", "a vocabulary of 10^18 words", _tiny(vocab_size=10**18), "vocab_size: must lie between"
    ),
    _refused("layers", "a million layers", _tiny(num_hidden_layers=10**6), "num_hidden_layers: must lie between"),
    _refused("kind", "a model type that is a list", _tiny(model_type=["llama"]), "model_type: must be a string"),
    _refused(
        "sliding",
        "a window whose length is a word",
        _tiny(sliding_window="long", model_type="mistral"),
        "sliding_window: ",
    ),
    _refused(
        "quantised-how",
        "a quantisation that nobody knows",
        _tiny(quantization_config={"quant_method": "magic"}),
        "quant",
        code="config_unsupported",
    ),
    _refused(
        "quantised-by",
        "a quantisation to -4 bits",
        _tiny(quantization_config={"quant_method": "gptq", "bits": -4, "group_size": 128}),
        "bits: ",
    ),
]
