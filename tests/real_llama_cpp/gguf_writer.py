"""A small Llama folder (float32 safetensors, byte-level tokenizer) rewritten as one GGUF file.

Standard library only. Sources: the GGUF specification (ggml ``docs/gguf.md``): magic, version 3, counts, typed
key-value pairs, tensor infos with reversed dimensions, data aligned to 32 bytes; llama.cpp's converter
(``LlamaModel.permute``): rows of the query and key projections are interleaved, for ggml rotates neighbours where
transformers rotates halves.
"""

import json
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_ALIGNMENT: Final = 32
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9
_INT32: Final = 5
_NORMAL, _CONTROL = 1, 3
_BLOCK: Final = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
#: How byte-level vocabularies write the space and the line feed.
_KEPT: Final = "ĠĊ"
_OUTER: Final = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def convert(folder: Path, file: Path, *, renamed: Mapping[int, str] | None = None) -> None:
    """Write ``file`` from a Llama folder. ``renamed``: other texts by token id, so that vocabularies differ."""
    config = json.loads((folder / "config.json").read_text())
    pairs = {**_sizes(config), **_vocabulary(folder, config["vocab_size"], renamed or {})}
    tensors = _tensors(folder / "model.safetensors", config)
    with file.open("wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)))
        for key, value in pairs.items():
            out.write(_text(key) + value)
        offset = 0
        for name, shape, data in tensors:
            dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
            out.write(_text(name) + dimensions + struct.pack("<IQ", 0, offset))
            offset += _padded(len(data))
        out.write(b"\0" * (_padded(out.tell()) - out.tell()))
        for _, _, data in tensors:
            out.write(data + b"\0" * (_padded(len(data)) - len(data)))


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _typed(kind: int, packing: str, value: float) -> bytes:
    return struct.pack("<I" + packing, kind, value)


def _string(value: str) -> bytes:
    return struct.pack("<I", _STRING) + _text(value)


def _strings(values: Sequence[str]) -> bytes:
    return struct.pack("<IIQ", _ARRAY, _STRING, len(values)) + b"".join(_text(value) for value in values)


def _sizes(config: Mapping[str, Any]) -> dict[str, bytes]:
    head = config["head_dim"]
    rope = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
    whole = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": head,
        "vocab_size": config["vocab_size"],
    }
    return {
        "general.architecture": _string("llama"),
        "general.name": _string("embedded"),
        "general.file_type": _typed(_UINT32, "I", 0),
        **{f"llama.{key}": _typed(_UINT32, "I", value) for key, value in whole.items()},
        "llama.attention.layer_norm_rms_epsilon": _typed(_FLOAT32, "f", config["rms_norm_eps"]),
        "llama.rope.freq_base": _typed(_FLOAT32, "f", rope),
    }


def _vocabulary(folder: Path, size: int, renamed: Mapping[int, str]) -> dict[str, bytes]:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    # Bytes beyond ASCII text get names: some releases (b10434) answer 500 where the output is no UTF-8.
    texts = {
        index: text if all(" " < letter < "\x7f" or letter in _KEPT for letter in text) else f"<byte{index}>"
        for text, index in tokenizer["model"]["vocab"].items()
    } | dict(renamed)
    special = {added["id"] for added in tokenizer["added_tokens"] if added["special"]}
    kinds = [_CONTROL if index in special else _NORMAL for index in range(size)]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    # llama.cpp refuses a vocabulary without merges; this one never applies, for its parts are no single letters.
    merges = merges or [f"{texts[size - 2]} {texts[size - 1]}"]
    return {
        "tokenizer.ggml.model": _string("gpt2"),
        "tokenizer.ggml.pre": _string("gpt-2"),
        "tokenizer.ggml.tokens": _strings([texts[index] for index in range(size)]),
        "tokenizer.ggml.token_type": struct.pack(f"<IIQ{size}i", _ARRAY, _INT32, size, *kinds),
        "tokenizer.ggml.merges": _strings(merges),
        "tokenizer.ggml.padding_token_id": _typed(_UINT32, "I", 0),
        "tokenizer.ggml.bos_token_id": _typed(_UINT32, "I", 1),
        "tokenizer.ggml.eos_token_id": _typed(_UINT32, "I", 2),
        "tokenizer.ggml.add_bos_token": struct.pack("<I?", _BOOL, False),
    }


def _tensors(file: Path, config: Mapping[str, Any]) -> list[tuple[str, list[int], bytes]]:
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    found = []
    for key, info in header.items():
        if key == "__metadata__":
            continue
        if info["dtype"] != "F32":
            raise ValueError(f"{key} is {info['dtype']}, not F32")
        begin, end = (8 + length + place for place in info["data_offsets"])
        data, name = content[begin:end], _name(key)
        kind = name.split(".")[-2]
        if kind in heads:
            data = _interleaved(data, info["shape"][0], heads[kind])
        found.append((name, info["shape"], data))
    return found


def _name(key: str) -> str:
    stem = key.removesuffix(".weight")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_BLOCK[part]}.weight"


def _interleaved(data: bytes, rows: int, heads: int) -> bytes:
    width, half = len(data) // rows, rows // heads // 2
    order = (
        head * 2 * half + side * half + row for head in range(heads) for row in range(half) for side in (0, 1)
    )
    return b"".join(data[row * width : (row + 1) * width] for row in order)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
