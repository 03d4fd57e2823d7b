"""What the child loads, from real files, and what it refuses; dummy weights against the library's own models."""

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'specplan[trial]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

from planner.trial.worker import placement  # noqa: E402 - only where torch is
from planner.trial.worker.dummy import build_dummy, dummy_bytes  # noqa: E402 - as above
from planner.trial.worker.folder import FolderError, read_config, weight_files  # noqa: E402 - as above
from planner.trial.worker.loading import load_model, load_tokenizer, model_bytes  # noqa: E402 - as above

CPU = {"device_map": {"": "cpu"}}
SHAPE: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}
LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def configs() -> dict[str, Any]:
    return {
        "llama": transformers.LlamaConfig(**SHAPE, tie_word_embeddings=False, rope_parameters=LLAMA_3_ROPE),
        "qwen3": transformers.Qwen3Config(**SHAPE, tie_word_embeddings=True),
        "gemma3": transformers.Gemma3TextConfig(
            **SHAPE,
            sliding_window=16,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        ),
        "qwen2_moe": transformers.Qwen2MoeConfig(
            **SHAPE,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=24,
        ),
        "deepseek_v3": transformers.DeepseekV3Config(
            **{**SHAPE, "num_key_value_heads": 4},
            moe_intermediate_size=16,
            n_routed_experts=8,
            n_group=2,
            topk_group=1,
            num_experts_per_tok=2,
            q_lora_rank=16,
            kv_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
            first_k_dense_replace=1,
        ),
        "gpt2": transformers.GPT2Config(
            vocab_size=160, n_embd=32, n_layer=3, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2
        ),
    }


FAMILIES = ["llama", "qwen3", "gemma3", "qwen2_moe", "deepseek_v3", "gpt2"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    import warnings

    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' own, about their future
        yield


def folder_of(config: Any, root: Path) -> str:
    config.save_pretrained(root)
    return str(root)


def saved(root: Path, config: Any = None, **options: Any) -> Path:
    """A folder with the weights of a small Llama, or of another configuration."""
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(configs()["llama"] if config is None else config)
    model.save_pretrained(root, **options)
    return root


def refused(folder: Path | str, code: str = "weights") -> str:
    with pytest.raises(FolderError) as raised:
        load_model(str(folder), "float32", CPU)
    assert raised.value.code == code
    return str(raised.value)


# Dummy weights.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_dummy_is_the_architecture_in_every_byte(family: str, dtype: str, tmp_path: Path) -> None:
    """The library's ``from_config`` builds the same on the host: sizes, types, buffers and ties agree."""
    folder = folder_of(configs()[family], tmp_path)
    model = build_dummy(folder, dtype, CPU)
    reference = transformers.AutoModelForCausalLM.from_config(configs()[family], dtype=getattr(torch, dtype))
    ours, theirs = dict(model.named_parameters()), dict(reference.named_parameters())
    assert {name: (one.shape, one.dtype) for name, one in ours.items()} == {
        name: (one.shape, one.dtype) for name, one in theirs.items()
    }
    count = sum(one.numel() for one in theirs.values())
    kept = sum(one.numel() for one in theirs.values() if one.dtype is torch.float32)
    width = 4 if dtype == "float32" else 2
    # DeepSeek-V3 keeps the bias of its router in float32.
    expected = count * width + (kept * 2 if width == 2 else 0)
    assert dummy_bytes(folder, dtype) == expected
    buffers = sum(one.numel() * one.element_size() for one in model.buffers())
    assert model_bytes(model) == expected + buffers
    for name, buffer in reference.named_buffers():
        assert torch.equal(model.get_buffer(name), buffer), name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_dummy_says_something_finite_and_depends_on_where_a_token_stands(family: str, tmp_path: Path) -> None:
    model = build_dummy(folder_of(configs()[family], tmp_path), "bfloat16", CPU)
    ids = torch.arange(80).reshape(2, 40)
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=True).logits
        turned = model(input_ids=ids.flip(1), use_cache=True).logits
    assert torch.isfinite(logits).all()
    assert float(logits.float().std()) > 0
    # The same tokens in another order end in other logits: positions count.
    assert not torch.equal(logits[:, -1], turned[:, -1])


@pytest.mark.parametrize(("family", "tied"), [("llama", False), ("qwen3", True), ("gemma3", True), ("gpt2", True)])
def test_tied_weights_stay_tied(family: str, tied: bool, tmp_path: Path) -> None:
    model = build_dummy(folder_of(configs()[family], tmp_path), "bfloat16", CPU)
    inputs, outputs = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert (inputs.data_ptr() == outputs.data_ptr()) is tied


def test_two_dummies_of_one_seed_are_alike_and_of_two_are_not(tmp_path: Path) -> None:
    folder = folder_of(configs()["llama"], tmp_path)

    def first_weight(seed: int) -> Any:
        torch.manual_seed(seed)
        return build_dummy(folder, "float32", CPU).get_input_embeddings().weight

    assert torch.equal(first_weight(1), first_weight(1))
    assert not torch.equal(first_weight(1), first_weight(2))


def test_a_dummy_of_a_quantised_checkpoint_is_refused(tmp_path: Path) -> None:
    folder_of(configs()["llama"], tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FolderError, match="quantised") as raised:
        build_dummy(str(tmp_path), "bfloat16", CPU)
    assert raised.value.code == "weights"


# Real weights.


def test_weights_are_loaded_as_they_were_saved_in_one_file_or_in_many(tmp_path: Path) -> None:
    one = load_model(str(saved(tmp_path / "one")), "float32", CPU)
    many = load_model(str(saved(tmp_path / "many", max_shard_size="20KB")), "float32", CPU)
    assert len(weight_files(str(tmp_path / "many"))) > 1
    torch.manual_seed(3)
    original = transformers.AutoModelForCausalLM.from_config(configs()["llama"])
    for name, value in original.named_parameters():
        assert torch.equal(one.get_parameter(name), value)
        assert torch.equal(many.get_parameter(name), value)


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "gpt2", "qwen2_moe"])
def test_a_checkpoint_of_each_kind_is_complete(family: str, tmp_path: Path) -> None:
    """A tied head has no tensor of its own, fused experts have others than the file: neither is missing."""
    load_model(str(saved(tmp_path, configs()[family])), "float32", CPU)


def test_a_folder_without_weights_says_what_is_there_instead(tmp_path: Path) -> None:
    assert "holds no config.json" in refused(tmp_path / "nowhere")
    folder_of(configs()["llama"], tmp_path)
    assert "no weights" in refused(tmp_path)
    (tmp_path / "part-1.safetensors").write_bytes(b"")
    assert "neither model.safetensors nor" in refused(tmp_path)
    (tmp_path / "part-1.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    assert "only .bin files" in refused(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"vocab_size": 3}', '{"model_type": "llama", "hidden_size": "a"}']
)
def test_a_configuration_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FolderError) as raised:
        read_config(str(tmp_path))
    assert raised.value.code == "weights"


@pytest.mark.parametrize("cut", [1, 1000, 4, 8, 0])
def test_a_file_that_is_cut_short_is_told_before_a_library_reads_it(cut: int, tmp_path: Path) -> None:
    """By one byte, by a kilobyte, and down to 4, 8 and no bytes."""
    file = saved(tmp_path) / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:cut] if cut in {4, 8, 0} else whole[:-cut])
    assert "model.safetensors" in refused(tmp_path)


def test_headers_that_promise_nonsense_are_refused(tmp_path: Path) -> None:
    file = saved(tmp_path) / "model.safetensors"
    for content in (
        struct.pack("<Q", 1 << 40) + b"{}",
        struct.pack("<Q", 7) + b"not one",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    ):
        file.write_bytes(content)
        refused(tmp_path)
    assert "git lfs pull" in refused(tmp_path)


def test_a_shard_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    saved(tmp_path, max_shard_size="20KB")
    gone = weight_files(str(tmp_path))[1]
    gone.unlink()
    assert f"{gone.name} is missing" in refused(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert "no weight_map" in refused(tmp_path)


def test_weights_of_fewer_layers_than_the_configuration_has_are_not_filled_up(tmp_path: Path) -> None:
    """The library would fill the rest with random numbers and only log it."""
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    assert "model.layers.3." in refused(tmp_path)


def test_code_from_a_folder_is_never_run(tmp_path: Path) -> None:
    saved(tmp_path)
    trap = tmp_path / "modeling_made.py"
    trap.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"AutoConfig": "modeling_made.MadeConfig", "AutoModelForCausalLM": "modeling_made.Made"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "made_up", "auto_map": own}))
    with pytest.raises(FolderError) as raised:
        read_config(str(tmp_path))
    assert raised.value.code == "remote_code"
    # Of a type that the library knows, its own class is taken and the folder's left alone.
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": own}))
    load_model(str(tmp_path), "float32", CPU)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "made_up"}))
    with pytest.raises(FolderError, match="knows no model type 'made_up'"):
        read_config(str(tmp_path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("method", "package"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "gptqmodel"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "optimum"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
    ],
    ids=["awq", "gptq", "bitsandbytes", "compressed-tensors"],
)
def test_a_quantisation_without_its_package_names_the_package(
    method: dict[str, Any], package: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": method}))
    assert package in refused(tmp_path)


# Tokenizers.


def tokenizer_in(root: Path, tokens: int, special: tuple[str, ...] = ()) -> str:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({f"w{number}": number for number in range(tokens)}))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens([AddedToken(text, special=True) for text in special])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(root)
    return str(root)


def test_a_tokenizer_must_be_there_and_readable(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(FolderError, match="no tokenizer") as raised:
        load_tokenizer(str(tmp_path), [160])
    assert raised.value.code == "tokenizer"
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(FolderError, match="cannot be read") as raised:
        load_tokenizer(str(tmp_path), [160])
    assert raised.value.code == "tokenizer"


def test_a_tokenizer_speaks_only_of_ids_that_both_models_know(tmp_path: Path) -> None:
    folder = tokenizer_in(tmp_path / "plain", 160)
    assert load_tokenizer(folder, [160, 160])("w3 w159")["input_ids"] == [3, 159]
    with pytest.raises(FolderError, match="ids up to 159, and a model of the pair knows 158") as raised:
        load_tokenizer(folder, [160, 158])
    assert raised.value.code == "tokenizer"


def test_a_special_token_beyond_the_vocabulary_does_no_harm(tmp_path: Path) -> None:
    """Gemma 3's text models know 262,144 ids and their tokenizer one more, for images."""
    load_tokenizer(tokenizer_in(tmp_path, 160, special=("<image>",)), [160])


# Placement, against stand-ins for the driver's figures: this is arithmetic, the hardware is not here.


class Gpus:
    """Figures of two GPUs of 100 bytes, of which the first has 30 free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shares: dict[int, float] = {}
        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: 2,
            "mem_get_info": lambda device: ((30, 80)[device.index], 100),
            "memory_reserved": lambda device: (20, 0)[device.index],
            "memory_allocated": lambda device: (15, 0)[device.index],
            "get_device_name": lambda _: "NVIDIA H100",
            "set_per_process_memory_fraction": lambda share, device: self.shares.update({device.index: share}),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


def test_all_visible_gpus_are_used_or_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpus(monkeypatch)
    both = placement.usable_devices("cuda")
    assert [device.index for device in both] == [0, 1]
    assert placement.name_of(both) == "2 x NVIDIA H100"
    assert placement.name_of(placement.usable_devices("cuda:1")) == "NVIDIA H100"
    with pytest.raises(placement.NoCudaError, match="sees 2 GPUs, cuda:2 is none of them"):
        placement.usable_devices("cuda:2")


def test_the_allocator_is_capped_at_what_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(monkeypatch)
    placement.cap_allocator(placement.usable_devices("cuda"), (60, 250))
    assert gpus.shares == {0: 0.6, 1: 1.0}
    with pytest.raises(ValueError, match="none for cuda:1"):
        placement.cap_allocator(placement.usable_devices("cuda"), (60,))
    gpus.shares.clear()
    placement.cap_allocator(placement.usable_devices("cuda"), ())
    assert not gpus.shares


def test_room_is_what_is_free_and_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpus(monkeypatch)
    first, second = placement.usable_devices("cuda")
    # Free 30 and reserved but unused 5; with a limit of 40, of which 15 are taken, 25.
    assert placement.room_of(first, ()) == 35
    assert placement.room_of(first, (40, 50)) == 25
    assert placement.room_of(second, (40, 50)) == 50
    assert placement.spread((first, second), (40, 50)) == {"device_map": "balanced", "max_memory": {0: 25, 1: 50}}
    assert placement.spread((second,), ()) == {"device_map": {"": second}}


def test_the_draft_goes_to_the_first_gpu_with_room() -> None:
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    rooms = {first: 10, second: 20}
    assert placement.first_with_room(10, rooms) == first
    assert placement.first_with_room(11, rooms) == second
    assert placement.first_with_room(99, rooms) == second


def test_what_was_put_into_host_memory_did_not_fit(tmp_path: Path) -> None:
    model = build_dummy(folder_of(configs()["llama"], tmp_path), "float32", CPU)
    placement.require_on_devices(model, "a model")
    assert placement.input_device(model) == "cpu"
    model.hf_device_map = {"model.embed_tokens": 0, "model.layers.0": "disk"}
    with pytest.raises(torch.OutOfMemoryError, match="a model does not fit"):
        placement.require_on_devices(model, "a model")


def test_a_model_is_dealt_evenly_to_devices_by_whole_layers(tmp_path: Path) -> None:
    """accelerate's own map for two devices, from the figures that ``spread`` hands over: no layer is divided."""
    from transformers.integrations.accelerate import _get_device_map

    config = read_config(folder_of(configs()["llama"], tmp_path))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    size = sum(one.numel() * 4 for one in model.parameters())
    places = _get_device_map(model, "balanced", {0: math.ceil(0.8 * size), 1: size}, None)
    layers = {name: place for name, place in places.items() if ".layers." in name}
    assert set(layers.values()) == {0, 1}
    assert all(name.count(".") == 2 for name in layers)
