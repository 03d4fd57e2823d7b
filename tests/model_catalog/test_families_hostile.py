"""Whatever one key of a configuration holds, reading it ends in an architecture or in a ConfigError, and soon."""

import copy
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError

TABLE = Path(__file__).with_name("parameter_counts_hybrid.jsonl")
HOSTILE: list[Any] = [None, "8", [], [None], {"a": 1}, True, math.nan, -1, 0, 1.5, 4097, 10**400]
SECONDS_FOR_ONE_READING = 2.0


def smallest_of_each_kind() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        config = json.loads(line)["config"]
        kept = found.setdefault(config["model_type"], config)
        if len(json.dumps(config)) < len(json.dumps(kept)):
            found[config["model_type"]] = config
    return found


def key_paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from key_paths(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield (*path, 0)
        yield from key_paths(value[0], (*path, 0))


def with_value(config: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


CONFIGS = smallest_of_each_kind()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_one_hostile_value_ends_in_a_config_error_at_worst(config: dict[str, Any]) -> None:
    refused = 0
    for path in key_paths(config):
        for value in HOSTILE:
            started = time.monotonic()
            try:
                read_architecture(with_value(config, path, value), subject="hostile").parameters(with_mtp=True)
            except ConfigError as error:
                refused += 1
                assert error.key_path
            assert time.monotonic() - started < SECONDS_FOR_ONE_READING
    assert refused > len(HOSTILE)
