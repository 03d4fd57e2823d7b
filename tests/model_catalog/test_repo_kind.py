import pytest

from model_catalog.errors import NotAModelError
from model_catalog.repo_kind import PIPELINE_INDEX, repo_kind, require_model
from model_catalog.snapshot import ModelSnapshot, RepoFile, RepoKind, SnapshotSource

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
#: As yuhuili/EAGLE3-LLaMA3.1-Instruct-8B publishes it.
EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "draft_vocab_size": 32000}


def kind_of(config: dict[str, object], *paths: str) -> RepoKind:
    return repo_kind([RepoFile(path=path, size_bytes=1) for path in paths], config)


@pytest.mark.parametrize(
    ("config", "paths", "kind"),
    [
        (LLAMA, ["config.json", "model.safetensors"], RepoKind.MODEL),
        (LLAMA, ["config.json", "model-00001-of-00002.safetensors"], RepoKind.MODEL),
        (LLAMA, ["config.json", "model.safetensors", "pytorch_model.bin"], RepoKind.MODEL),
        (LLAMA, ["config.json", "model.safetensors", "model.Q8_0.gguf"], RepoKind.MODEL),
        (LLAMA, ["config.json", "model.safetensors", "adapter_config.json"], RepoKind.MODEL),
        ({}, ["params.json", "consolidated.safetensors"], RepoKind.MODEL),
        (EAGLE3, ["config.json", "model.safetensors"], RepoKind.DRAFT_HEAD),
        (EAGLE3, ["config.json", "pytorch_model.bin"], RepoKind.DRAFT_HEAD),
        ({}, ["adapter_config.json", "adapter_model.safetensors"], RepoKind.ADAPTER),
        ({}, ["adapter_config.json", "adapter_model.bin"], RepoKind.ADAPTER),
        (LLAMA, ["config.json", "adapter_config.json", "adapter_model.safetensors"], RepoKind.ADAPTER),
        ({}, ["model.Q4_K_M.gguf", "README.md"], RepoKind.GGUF_ONLY),
        (LLAMA, ["config.json", "model.Q4_K_M.gguf"], RepoKind.GGUF_ONLY),
        (LLAMA, ["config.json", "pytorch_model-00001-of-00002.bin"], RepoKind.PICKLE_ONLY),
        ({}, ["original/consolidated.00.pth"], RepoKind.PICKLE_ONLY),
        (LLAMA, ["config.json", "training_args.bin", "optimizer.pt", "rng_state_0.pth"], RepoKind.EMPTY),
        (LLAMA, ["config.json", "onnx/model.onnx"], RepoKind.EMPTY),
        ({}, [], RepoKind.EMPTY),
    ],
)
def test_what_a_repo_holds(config: dict[str, object], paths: list[str], kind: RepoKind) -> None:
    assert kind_of(config, *paths) is kind


def snapshot(kind: RepoKind, config: dict[str, object] | None = None, *paths: str) -> ModelSnapshot:
    return ModelSnapshot(
        repo_id="org/name",
        revision="main",
        commit="a" * 40,
        source=SnapshotSource.HUB,
        kind=kind,
        config=config or {},
        files=tuple(RepoFile(path=path, size_bytes=1) for path in paths),
    )


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (snapshot(RepoKind.DRAFT_HEAD, EAGLE3), "is a draft head (eagle3)", "--draft org/name"),
        (
            snapshot(RepoKind.ADAPTER, {"base_model_name_or_path": "meta-llama/Llama-3.1-8B"}),
            "is an adapter",
            "plan its base model: meta-llama/Llama-3.1-8B",
        ),
        (snapshot(RepoKind.ADAPTER), "is an adapter", "plan the base model"),
        (
            snapshot(RepoKind.ADAPTER, {"base_model_name_or_path": "a\x1b[2J"}),
            "is an adapter",
            "plan the base model",
        ),
        (snapshot(RepoKind.GGUF_ONLY), "GGUF files only", "made from"),
        (snapshot(RepoKind.PICKLE_ONLY), "pickle files, which are never opened", "refs/pr/N"),
        (snapshot(RepoKind.EMPTY), "holds no weights", "local folder"),
        (snapshot(RepoKind.EMPTY, None, PIPELINE_INDEX), "diffusion pipeline", "language model"),
    ],
)
def test_what_is_no_model_is_refused_with_a_way_out(given: ModelSnapshot, message: str, hint: str) -> None:
    with pytest.raises(NotAModelError) as caught:
        require_model(given)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.subject == "org/name"


def test_models_pass_and_draft_heads_where_they_are_wanted() -> None:
    require_model(snapshot(RepoKind.MODEL))
    require_model(snapshot(RepoKind.DRAFT_HEAD, EAGLE3), draft_heads=True)
    with pytest.raises(NotAModelError):
        require_model(snapshot(RepoKind.ADAPTER), draft_heads=True)
