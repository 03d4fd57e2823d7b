"""Parameter counts of published models with latent attention, states, towers or MTP layers, element for element.

``parameter_counts_hybrid.jsonl`` holds one model a row: its published count and the configuration keys that were
read. ``with_mtp``: the repo stores the multi-token-prediction layers too. Some counts include or leave out small
tensors that the architecture does not hold; these are computed here from what the checkpoint's format says.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from model_catalog.architecture import ArchitectureSpec, Component, Role
from model_catalog.config_reader import read_architecture
from model_catalog.units import ceil_div

TABLE = Path(__file__).with_name("parameter_counts_hybrid.jsonl")
ROWS: list[dict[str, Any]] = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
UNQUANTISED_ROLES = {Role.EMBEDDING, Role.HEAD, Role.ROUTER, Role.TOWER}


def block_scales(spec: ArchitectureSpec, block: int, unquantised: list[str]) -> int:
    """Scales of fp8 checkpoints: one for each ``block x block`` tile of every quantised projection."""
    return sum(
        tensor.count * ceil_div(tensor.shape[0], block) * ceil_div(tensor.shape[1], block)
        for _, _, tensor in spec.tensors()
        if tensor.linear
        and tensor.role not in UNQUANTISED_ROLES
        and not any(name in tensor.name for name in unquantised)
    )


def expected_surplus(row: dict[str, Any], spec: ArchitectureSpec) -> int:
    """Elements that the published count has beyond the architecture's; negative where it leaves some out."""
    if "fp8_block" in row:
        return block_scales(spec, row["fp8_block"], row["unquantised"])
    if "per_tensor_scales" in row:
        linears = [t for layer in spec.decoder_layers for t in layer.tensors if t.linear]
        return int(row["per_tensor_scales"]) * len(linears)
    if row.get("router_biases_left_out"):
        biases = [t.parameters for _, _, t in spec.tensors() if t.name.endswith("e_score_correction_bias")]
        return -sum(biases)
    return 0


@pytest.mark.parametrize("row", ROWS, ids=[row["repo_id"] for row in ROWS])
def test_count_is_the_published_one(row: dict[str, Any]) -> None:
    spec = read_architecture(row["config"], subject=row["repo_id"])
    counted = spec.parameters(with_mtp=bool(row.get("with_mtp")))
    assert counted + expected_surplus(row, spec) == row["parameters"]
    assert spec.tower_parameters_known


def row_of(repo_id: str) -> ArchitectureSpec:
    config = next(row["config"] for row in ROWS if row["repo_id"] == repo_id)
    return read_architecture(config, subject=repo_id)


def component_bytes(spec: ArchitectureSpec, component: Component, block: int) -> int:
    """Stored bytes of one component in DeepSeek's fp8 format: fp8 tiles with fp32 scales, the rest bf16."""
    total = 0
    for part, _, tensor in spec.tensors():
        if part is not component:
            continue
        if tensor.linear and tensor.role not in UNQUANTISED_ROLES:
            tiles = tensor.count * ceil_div(tensor.shape[0], block) * ceil_div(tensor.shape[1], block)
            total += tensor.parameters + 4 * tiles
        else:
            total += tensor.parameters * (4 if tensor.name.endswith("correction_bias") else 2)
    return total


def test_deepseek_v3_stored_bytes() -> None:
    """688,574,839,360 B is the total_size of DeepSeek-V3's safetensors index; one layer in it is MTP."""
    spec = row_of("deepseek-ai/DeepSeek-V3")
    decoder, mtp = (component_bytes(spec, part, 128) for part in (Component.TEXT, Component.MTP))
    assert decoder + mtp == 688_574_839_360
    assert f"{mtp / 2**30:.2f}" == "14.36"


def test_qwen3_next_stored_and_resident() -> None:
    """151.48 GiB stored, of which 3.07 GiB are ``mtp.*`` tensors that only speculation loads."""
    spec = row_of("Qwen/Qwen3-Next-80B-A3B-Instruct")
    stored, resident = 2 * spec.parameters(with_mtp=True), 2 * spec.parameters()
    assert f"{stored / 2**30:.2f}" == "151.48"
    assert f"{(stored - resident) / 2**30:.2f}" == "3.07"
