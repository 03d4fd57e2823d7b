"""vLLM's own parser reads the same commands: our options are its options, and the settings are its settings.

Opt-in, as ``test_real_vllm``: SPECPLAN_VLLM_PYTHON names a python with vLLM.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from planner.commands.reading.options import options_of
from planner.commands.reading.read_vllm import read_vllm
from planner.commands.reading.records import CommandSettings
from planner.commands.reading.split import find_engine, split_text

PYTHON: Final = os.environ.get("SPECPLAN_VLLM_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not PYTHON or shutil.which(PYTHON) is None,
    reason="SPECPLAN_VLLM_PYTHON does not name the python of an environment with vLLM",
)
PARSER: Final = Path(__file__).with_name("parse_vllm.py")
COMMANDS: Final = (
    "vllm serve org/m",
    "vllm serve org/m --max-model-len 16k -tp 2",
    "vllm serve org/m --max_model_len=16K --pipeline-parallel-size=2",
    "vllm serve org/m --max-model-len 25.6k --max-num-batched-tokens 8k",
    "vllm serve org/m --max-model-len auto",
    "vllm serve --model org/m --gpu-memory-util 0.95 --max-num-seqs 64",
    "vllm serve org/m --kv-cache-memory-bytes 8G --kv-cache-dtype fp8 --dtype bfloat16 -q fp8",
    "vllm serve org/m --block-size 32 --enforce-eager --enable-expert-parallel --no-async-scheduling",
    "vllm serve org/m --enforce-eager --no-enforce-eager --api-key a b --port 80 -O3 --revision abc",
    "vllm serve org/m --served-model-name a b --max-num-seqs 8 --enable-lora --max-loras 2",
    """vllm serve org/m -sc '{"method": "eagle3", "model": "org/h", "num_speculative_tokens": 3}'""",
    "vllm serve org/m --speculative-config.method mtp --speculative-config.num_speculative_tokens 2",
    "vllm serve org/m --speculative-config.model org/d --speculative-config.num_speculative_tokens=4",
    "vllm serve org/m --max-model-len 1.5K",
    "vllm serve org/m --max-modle-len 8",
    "vllm serve org/m stray",
    "vllm serve org/m --swap-space 4",
    "vllm serve org/m --tensor-parallel-size",
)
#: Ours, and the attribute of vLLM's namespace.
FIELDS: Final = {
    "model": "model",
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "context_tokens": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "kv_cache_dtype": "kv_cache_dtype",
    "dtype": "dtype",
    "quantization": "quantization",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "block_size": "block_size",
    "enforce_eager": "enforce_eager",
    "expert_parallel": "enable_expert_parallel",
    "revision": "revision",
}
SPECULATIVE: Final = {"method": "method", "draft": "model", "num_speculative_tokens": "num_speculative_tokens"}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("parsed") / "parsed.json"
    subprocess.run(
        [PYTHON, str(PARSER), str(place)],
        input=json.dumps([list(split_text(text)) for text in COMMANDS]),
        env={**os.environ, "VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return found


def test_our_table_has_all_of_its_options(answers: dict[str, Any]) -> None:
    table = options_of("vllm")
    assert [name for name in answers["options"] if name not in table and name not in {"-h", "--help"}] == []


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=COMMANDS)
def test_it_is_read_alike(number: int, answers: dict[str, Any]) -> None:
    theirs = answers["parsed"][number]
    try:
        reading = read_vllm(find_engine(split_text(COMMANDS[number])).words)
    except Exception:
        if theirs is None:
            return
        raise
    assert (reading.unknown == ()) is (theirs is not None)
    if theirs is None:
        return
    ours, unsaid = reading.settings, CommandSettings(engine="vllm")
    for name, attribute in FIELDS.items():
        if getattr(ours, name) != getattr(unsaid, name):
            assert getattr(ours, name) == theirs[attribute], name
    assert ours.longest is (theirs["max_model_len"] == -1)
    said = theirs["speculative_config"] or {}
    for name, key in SPECULATIVE.items():
        if key in said:
            assert getattr(ours, name) == said[key], name
