"""Small repos with real configuration, index and safetensors files, made in memory for tests."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hub_server import Sparse

#: Bytes per element, from the safetensors format.
_ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U8": 1}

Tensor = tuple[str, tuple[int, ...], str]

TINY_LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
#: Counted by hand: two tables of 256 x 64, and per layer q, o (64 x 64), k, v (32 x 64), three MLP
#: matrices (128 x 64) and two norms; one last norm.
TINY_LLAMA_PARAMETERS = 2 * 256 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64) + 64


def safetensors(tensors: Sequence[Tensor], *, sparse: bool = False) -> bytes | Sparse:
    """A file of these tensors, all zeros; ``sparse`` keeps only its header in memory."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, shape, dtype in tensors:
        size = math.prod(shape) * _ELEMENT_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    raw = json.dumps(header).encode()
    head = struct.pack("<Q", len(raw)) + raw
    return Sparse(head=head, size=len(head) + position) if sparse else head + bytes(position)


def llama_tensors(config: Mapping[str, Any] = TINY_LLAMA) -> list[Tensor]:
    hidden, mlp, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    key_value = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    tensors: list[Tensor] = [("model.embed_tokens.weight", (vocabulary, hidden), "BF16")]
    for layer in range(config["num_hidden_layers"]):
        inside = {
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (key_value, hidden),
            "self_attn.v_proj": (key_value, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (mlp, hidden),
            "mlp.up_proj": (mlp, hidden),
            "mlp.down_proj": (hidden, mlp),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        tensors += [(f"model.layers.{layer}.{name}.weight", shape, "BF16") for name, shape in inside.items()]
    return [*tensors, ("model.norm.weight", (hidden,), "BF16"), ("lm_head.weight", (vocabulary, hidden), "BF16")]


def single_file_repo(config: Mapping[str, Any] = TINY_LLAMA, *, sparse: bool = False) -> dict[str, bytes | Sparse]:
    """config.json, model.safetensors and a tokenizer."""
    return {
        "README.md": b"# tiny\n",
        "config.json": json.dumps(config).encode(),
        "model.safetensors": safetensors(llama_tensors(config), sparse=sparse),
        "tokenizer.json": b'{"version": "1.0"}',
    }


def sharded_repo(
    config: Mapping[str, Any] = TINY_LLAMA, *, shards: int = 3, sparse: bool = False
) -> dict[str, bytes | Sparse]:
    """config.json, an index and so many safetensors files."""
    tensors = llama_tensors(config)
    edges = [number * len(tensors) // shards for number in range(shards + 1)]
    parts = [tensors[start:end] for start, end in pairwise(edges)]
    files: dict[str, bytes | Sparse] = {"config.json": json.dumps(config).encode()}
    weight_map = {}
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        files[name] = safetensors(part, sparse=sparse)
        weight_map.update({tensor: name for tensor, _, _ in part})
    total = sum(math.prod(shape) * _ELEMENT_BYTES[dtype] for _, shape, dtype in tensors)
    return with_index(files, weight_map, total)


def with_index(
    files: Mapping[str, bytes | Sparse], weight_map: Mapping[str, str], total: int | None = None
) -> dict[str, bytes | Sparse]:
    """The files with this index."""
    index = {"metadata": {} if total is None else {"total_size": total}, "weight_map": dict(weight_map)}
    return {**files, "model.safetensors.index.json": json.dumps(index).encode()}


def weight_map_of(files: Mapping[str, bytes | Sparse]) -> dict[str, str]:
    """The tensor-to-file table of a sharded repo's index."""
    index = files["model.safetensors.index.json"]
    assert isinstance(index, bytes)
    table: dict[str, str] = json.loads(index)["weight_map"]
    return table


def write_folder(folder: Path, files: Mapping[str, bytes | Sparse]) -> Path:
    """The files as a folder on disk."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Sparse):
            with place.open("wb") as file:
                file.write(content.head)
                file.truncate(content.size)
        else:
            place.write_bytes(content)
    return folder
