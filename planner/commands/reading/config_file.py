"""The YAML file that an engine reads beside its command (``--config``): its content, and as words of the command.

Source: vLLM 0.32.0 ``utils/argparse_utils.py`` (``load_config_file``, ``_pull_args_from_config``: the command line
goes before the file); SGLang ``srt/server_args_config_parser.py`` (the same rule); TensorRT-LLM
``commands/serve.py`` (the file goes before the command line).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from model_catalog.errors import UsageError
from planner.commands.reading.options import options_of

MOST_CHARACTERS: Final = 64 << 10
_SUBJECT: Final = "the configuration file"
_DEEPEST: Final = 8
_MOST_VALUES: Final = 2000
#: By engine: the options that name such a file.
CONFIG_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("--config",),
    "sglang": ("--config",),
    "tensorrt-llm": ("--config", "--extra_llm_api_options"),
}


class _PlainLoader(yaml.SafeLoader):
    """Plain YAML: no aliases, with which a small file can stand for a huge one."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """As in the library, but for aliases."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases")
        return super().compose_node(parent, index)


def read_config(text: str) -> dict[str, Any]:
    """The file's keys and values: plain YAML, a few levels deep.

    Raises:
        UsageError: it is no mapping of names, too long, too deep, or no YAML.
    """
    if len(text) > MOST_CHARACTERS:
        _refuse(f"is longer than {MOST_CHARACTERS >> 10} KiB")
    try:
        content = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        raise UsageError(
            "is not plain YAML", subject=_SUBJECT, hint="look at its colons, blanks and quotes; no anchors or tags"
        ) from cause
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        _refuse("is not a mapping of names to values")
    if not _is_small(content):
        _refuse("is nested beyond reason")
    found: dict[str, Any] = content
    return found


def with_config(engine: str, words: tuple[str, ...], config: Mapping[str, Any]) -> tuple[str, ...]:
    """The words with the file's settings before them, so that what the command says goes before the file.

    For TensorRT-LLM the words without the file's name: its settings are no options.
    """
    left = tuple(_without(words, CONFIG_OPTIONS[engine]))
    if engine == "tensorrt-llm":
        return left
    named = bool(left) and not left[0].startswith("-")
    own = {key: value for key, value in config.items() if not (named and key in {"model", "model-path"})}
    added = tuple(_words(own, engine))
    return (left[0], *added, *left[1:]) if named else (*added, *left)


def _without(words: tuple[str, ...], options: tuple[str, ...]) -> Iterator[str]:
    skipped = False
    for word in words:
        if skipped:
            skipped = False
        elif word in options:
            skipped = True
        elif word.partition("=")[0] not in options:
            yield word


def _words(config: Mapping[str, Any], engine: str) -> Iterator[str]:
    known = options_of(engine)
    for key, value in config.items():
        name = f"--{key}"
        if isinstance(value, bool):
            negated = f"--no-{key.replace('_', '-')}"
            if value:
                yield name
            elif negated in known:
                yield negated
        elif isinstance(value, list):
            if value:
                yield name
                yield from map(str, value)
        elif isinstance(value, dict):
            yield from (name, json.dumps(value))
        else:
            yield f"{name}={value}"


def _is_small(content: object) -> bool:
    left, seen = [(content, 1)], 0
    while left:
        value, level = left.pop()
        seen += 1
        if level > _DEEPEST or seen > _MOST_VALUES:
            return False
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        left.extend((entry, level + 1) for entry in inner)
    return True


def _refuse(message: str) -> None:
    raise UsageError(message, subject=_SUBJECT, hint="give the YAML file that the engine reads with --config")
