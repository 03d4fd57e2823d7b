"""From a config.json mapping to an ArchitectureSpec: finds the decoder's section and the family.

Owns no family and no default; those are in ``model_catalog.families``. A memory-relevant key that no family read
stops the plan. Never executes remote code: ``auto_map`` is ignored. Reading is bounded (layers, extents, list
lengths), whatever the file says.
"""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from model_catalog.architecture import ArchitectureSpec
from model_catalog.config_view import ConfigView
from model_catalog.errors import ConfigError, UnsupportedConfigError
from model_catalog.families.common import Builder, Reading
from model_catalog.families.registry import MTP_KEYS, TEXT_SECTIONS, TOWER_KEYS, module_of
from model_catalog.families.unread import refuse_unlike_llama, refuse_unread_keys


def read_architecture(config: Mapping[str, Any], *, subject: str) -> ArchitectureSpec:
    """What this configuration says the model is made of, defaults filled in and recorded as assumptions.

    ``subject`` names the repo or folder in errors.

    Raises:
        ConfigError: a key is missing, malformed or contradicts another; the error names its path.
        UnsupportedConfigError: the family is unknown, or a memory-relevant key is not understood.
    """
    reading, text_values = open_reading(config, subject=subject)
    builder = find_builder(reading)
    spec = builder(reading) if builder is not None else _as_llama(reading, text_values)
    spec = _with_mtp_layers(spec, reading)
    spec = _with_towers(spec, reading)
    refuse_unread_keys(reading.text, text_values, spec)
    return replace(spec, assumptions=tuple(reading.assumptions))


def open_reading(config: Mapping[str, Any], *, subject: str) -> tuple[Reading, Mapping[str, Any]]:
    """The views of a configuration, and the raw section that holds the decoder's keys.

    Raises:
        ConfigError: the file is not an object, or a decoder section is not one.
    """
    if not isinstance(config, Mapping):
        raise ConfigError("config.json is not a JSON object", subject=subject, hint="check the repo's config.json")
    top = ConfigView(config, subject=subject)
    for path in TEXT_SECTIONS:
        view: ConfigView | None = top
        values: Any = config
        for key in path:
            view = view.section(key) if view is not None and view.has(key) else None
            values = values.get(key) if isinstance(values, Mapping) else None
        if view is not None and values:
            return Reading(text=view, top=top), values
    return Reading(text=top, top=top), config


def find_builder(reading: Reading) -> Builder | None:
    """The builder of the family that this configuration names, or None where it names none that is known."""
    for name in family_names(reading):
        module = module_of(name)
        if module is not None:
            families: Mapping[str, Builder] = _family_module(module).FAMILIES
            return families[name]
    return None


def family_names(reading: Reading) -> tuple[str, ...]:
    """The names under which the family is looked up, in order: class names first, as they are the more specific.

    Raises:
        ConfigError: ``architectures`` or ``model_type`` is malformed.
    """
    names = (
        *(reading.top.texts("architectures") or ()),
        *(reading.text.texts("architectures") or ()),
        reading.text.text("model_type", default=""),
        reading.top.text("model_type", default=""),
    )
    return tuple(name for name in dict.fromkeys(names) if name)


def _as_llama(reading: Reading, text_values: Mapping[str, Any]) -> ArchitectureSpec:
    text, names = reading.text, family_names(reading)
    standard = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    causal = any(name.endswith("ForCausalLM") for name in names)
    if not causal or not all(text.has(key) for key in standard):
        shown = ", ".join(names) or "no model_type"
        raise UnsupportedConfigError(
            f"config.json: model_type: this kind of model is not known: {ascii(shown)[:160]}",
            subject=text.subject,
            hint="plan a model of a known family; a text-generation repo with safetensors weights is needed",
            key_path=text.key_path("model_type"),
        )
    families: Mapping[str, Builder] = _family_module("dense").FAMILIES
    spec = families["llama"](reading)
    refuse_unread_keys(text, text_values, spec)
    refuse_unlike_llama(text, text_values)
    reading.assume(
        "model_type", "llama-like", f"{ascii(names[-1])[:80]} is not known; its keys are those of Llama"
    )
    return spec


def _with_mtp_layers(spec: ArchitectureSpec, reading: Reading) -> ArchitectureSpec:
    stated = [view for view in (reading.text, reading.top) if view.has(*MTP_KEYS)]
    if spec.mtp_layers or not stated:
        return spec
    return replace(spec, layers=(*spec.layers, *_family_module("mtp").mtp_layers(reading, spec)))


def _with_towers(spec: ArchitectureSpec, reading: Reading) -> ArchitectureSpec:
    thinker = reading.top.section("thinker_config") if reading.top.has("thinker_config") else None
    views = (reading.top, reading.text, *((thinker,) if thinker is not None else ()))
    if spec.multimodal or not any(view.has(*TOWER_KEYS) for view in views):
        return spec
    templates, known = _family_module("towers").tower_tensors(reading)
    return replace(
        spec, multimodal=True, tower_parameters_known=known, root_tensors=(*spec.root_tensors, *templates)
    )


def _family_module(name: str) -> ModuleType:
    return importlib.import_module(f"model_catalog.families.{name}")
