"""A configuration is untrusted: every field of many kinds holding what it must not, and files that are none."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from injected.config import CONFIG_CASES, SHAPES, VALUES, ConfigCase
from test_faults import Ran, held

from model_catalog.catalogue import find_row
from model_catalog.errors import ModelError, SpecplanError, UsageError
from model_catalog.model import describe
from model_catalog.snapshot import ModelSnapshot
from planner.cli.main import main
from planner.declared_gpus import parse_gpu_option
from planner.engines.base import Serving
from planner.engines.registry import engine_profile
from planner.planning import make_plan
from planner.workload import Workload

Lines = tuple[tuple[str, int, int], ...]
Path_ = tuple[str | int, ...]
#: A false that becomes true, and what a known kind of model may leave out or have none of.
MEANINGFUL = {
    ("attention_bias", "true"),
    ("mlp_bias", "true"),
    ("mamba_proj_bias", "true"),
    ("use_bias", "true"),
    ("tie_word_embeddings", "true"),
    ("sliding_window", "null"),
    ("sliding_window", "0"),
    ("qk_nope_head_dim", "0"),
    ("qk_rope_head_dim", "0"),
    ("num_experts_per_tok", "0"),  # dense models of Granite's mixture kind say so
    ("topk_method", "a string"),
    ("topk_method", "a string of a million characters"),
    ("weight_block_size", "a list"),
    ("text_config", "an object nested 900 deep"),  # the defaults of Gemma 3's class, each told as an assumption
}
PLACE = ["--gpu", "l4", "--context", "128", "--offline", "--draft", "none"]


def key_paths(value: object, path: Path_ = ()) -> Iterator[Path_]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from key_paths(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield (*path, 0)
        yield from key_paths(value[0], (*path, 0))


def with_value(config: Mapping[str, Any], path: Path_, *value: object) -> Mapping[str, Any]:
    """A copy with the value at that place, or without the place where no value is given."""
    copy: Any = json.loads(json.dumps(config))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if value:
        place[path[-1]] = value[0]
    else:
        del place[path[-1]]
    changed: Mapping[str, Any] = copy
    return changed


def planned(snapshot: ModelSnapshot, config: Mapping[str, Any]) -> Lines | None:
    """The lines of a plan, or None where it is refused as it should be. Whatever else is raised is a fault."""
    try:
        model = describe(replace(snapshot, config=config, commit=None))
        work = Workload(context_tokens=128, tp=1)
        plan = make_plan(Serving(target=model, draft=None, workload=work), GPUS, ENGINE)
    except SpecplanError as error:
        assert isinstance(error, ModelError | UsageError)
        assert error.message.isprintable()
        assert len(error.message) < 1000
        assert error.hint
        return None
    return tuple((item.label, item.low_bytes, item.high_bytes) for item in plan.ranks[0].breakdown.items)


GPUS, ENGINE = parse_gpu_option("h200"), engine_profile("vllm")


@pytest.mark.parametrize("name", SHAPES)
def test_every_field_with_every_value(name: str) -> None:
    """Each is refused, or the plan is that of the model as it is, or of one that does not say this at all."""
    snapshot = find_row(name)
    assert snapshot is not None
    honest = planned(snapshot, snapshot.config)
    assert honest is not None
    refused = 0
    for path in key_paths(snapshot.config):
        unsaid = planned(snapshot, with_value(snapshot.config, path))
        for called, value in VALUES.items():
            found = planned(snapshot, with_value(snapshot.config, path, value))
            refused += found is None
            key = next(part for part in reversed(path) if isinstance(part, str))
            if found is not None and (key, called) not in MEANINGFUL:
                assert found in (honest, unsaid), f"{path} = {called}"
    assert refused > 4 * len(VALUES)


@pytest.mark.parametrize("case", CONFIG_CASES, ids=lambda case: case.id)
def test_what_a_configuration_may_be(case: ConfigCase, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_bytes(case.text)
    code = main(["fit", str(tmp_path), *PLACE, "--json", "-"])
    out, err = capfd.readouterr()
    held(Ran(exit_code=code, out=out, err=err), case)
    assert len(err) < 2000
    if case.code is not None:
        assert "config.json" in err
