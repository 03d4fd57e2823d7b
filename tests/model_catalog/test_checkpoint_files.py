"""Of the files in a repo, an engine loads one complete set."""

import pytest

from model_catalog.checkpoint_files import checkpoint_files
from model_catalog.snapshot import RepoFile


def shards(stem: str, count: int) -> list[str]:
    return [f"{stem}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("paths", "chosen"),
    [
        (["config.json", "model.safetensors"], ["model.safetensors"]),
        (shards("model", 3), shards("model", 3)),
        ([*shards("model", 2), "consolidated.safetensors"], shards("model", 2)),  # Mistral
        (["model.safetensors", "original/model.safetensors", "onnx/model.safetensors"], ["model.safetensors"]),
        (["consolidated.safetensors", "params.json"], ["consolidated.safetensors"]),
        (["model.fp16.safetensors", "model.safetensors"], ["model.safetensors"]),
        (["adapter_model.safetensors"], []),
        (["model.safetensors", "adapter_model.safetensors", "optimizer.safetensors"], ["model.safetensors"]),
        (shards("model", 3)[:2], []),
        (["pytorch_model.bin", "model.gguf"], []),
        ([*shards("model", 2), *shards("model", 3)[:1]], shards("model", 2)),
        (["gptq_model-4bit-128g.safetensors", "config.json"], ["gptq_model-4bit-128g.safetensors"]),  # TheBloke
        ([], []),
    ],
)
def test_checkpoint_files(paths: list[str], chosen: list[str]) -> None:
    files = [RepoFile(path=path, size_bytes=1) for path in reversed(paths)]
    assert [file.path for file in checkpoint_files(files, {})] == chosen


def test_a_config_may_name_its_file() -> None:
    files = [RepoFile(path=path, size_bytes=1) for path in ("model.safetensors", "other.safetensors")]
    (chosen,) = checkpoint_files(files, {"transformers_weights": "other.safetensors"})
    assert chosen.path == "other.safetensors"
    (usual,) = checkpoint_files(files, {"transformers_weights": "missing.safetensors"})
    assert usual.path == "model.safetensors"
