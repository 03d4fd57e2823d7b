"""Asks vLLM's own cache planner for blocks, tokens and concurrency of every row in ``vllm_cache_answers.jsonl``.

Run it with a Python that has vLLM (the CPU build will do; no GPU, no weights): ``make oracle`` writes the answers
and the version into the table, ``--check`` only compares. A row is its settings and its layers in words; new rows
need no answer. Everything but the layers' shapes is the engine's: grouping, pages, alignment, charge, concurrency.
Imports nothing of this project, so that no figure here can come from it.
"""

import argparse
import contextlib
import importlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

#: vLLM's own types are unknown where this file is checked.
Foreign = Any

TABLE: Final = Path(__file__).parent / "measured" / "vllm_cache_answers.jsonl"
ANSWERS: Final = ("blocks", "tokens", "max_concurrency", "groups")
#: What most models with grouped heads resolve to on a GPU; the CPU platform would choose another.
LAYOUT: Final = "LBNHC"
#: Mixers whose convolution history grows by a step for each drafted token (mamba_utils.py).
GROWING: Final = frozenset({"mamba2", "gated_delta", "kda", "short_conv"})
HYBRID_LATENT_BLOCK: Final = 64
KERNEL_BLOCK: Final = 16


def module(name: str) -> Foreign:
    """A module of the environment that has vLLM."""
    return importlib.import_module(name)


def runs(text: str) -> Iterator[tuple[int, list[str]]]:
    """``12 times: 3 gated_delta 8192x3 524288, 1 full 2x256`` -> each run in order, repeated."""
    for part in filter(None, text.split("; ")):
        times, _, pattern = part.rpartition(" times: ")
        for _ in range(int(times or 1)):
            for run in pattern.split(", "):
                count, *words = run.split()
                yield int(count), words


class Engine:
    """vLLM's planner behind the words of a row; imports vLLM when it is made."""

    def __init__(self) -> None:
        os.environ.update(
            HF_HUB_OFFLINE="1",
            VLLM_NO_USAGE_STATS="1",
            VLLM_LOGGING_LEVEL="ERROR",
            VLLM_CPU_KVCACHE_SPACE="1",
        )
        self.torch, self.interface = module("torch"), module("vllm.v1.kv_cache_interface")
        self.planner = module("vllm.v1.core.kv_cache_utils")
        self.version = str(module("vllm").__version__).partition("+")[0]
        self._args = module("vllm.engine.arg_utils").EngineArgs
        self._indices = module("vllm.distributed.utils").get_pp_indices
        self._config_type = module("vllm.config").VllmConfig
        self._pack = module("vllm.v1.attention.backends.triton_attn").TritonAttentionBackend.customize_spec
        self._folder = Path(tempfile.mkdtemp())

    def answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The four answers to one row."""
        config = self._config(row)
        latent = "latent" in row["target_layers"]
        block = row["block_size"] or (HYBRID_LATENT_BLOCK if latent else KERNEL_BLOCK)
        block = self._align(config, row, block)
        stages = self._stages(row, config, block)
        # the runner that a GPU gets; the CPU platform has the one before, which overlaps fewer steps
        with mock.patch.object(self._config_type, "use_v2_model_runner", True):
            found = self.planner.get_kv_cache_configs(config, stages, [row["pool_bytes"]] * len(stages))
            first = found[0]
            tokens, concurrency = self.planner.get_kv_cache_capacity(config, first)
        return {
            "blocks": first.num_blocks,
            "tokens": tokens,
            "max_concurrency": round(concurrency, 6),
            "groups": self._spell(found),
        }

    def _config(self, row: Mapping[str, Any]) -> Foreign:
        """The engine's configuration of a small stand-in model with the row's length and batch settings."""
        length = row["max_model_len"]
        stand_in = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 512,
            "max_position_embeddings": length,
            "torch_dtype": "bfloat16",
        }
        (self._folder / "config.json").write_text(json.dumps(stand_in), encoding="utf-8")
        config = self._args(
            model=str(self._folder),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=length,
            max_num_seqs=min(256, row["max_num_batched_tokens"]),
            max_num_batched_tokens=row["max_num_batched_tokens"],
            enforce_eager=True,
        ).create_engine_config()
        config.cache_config.kv_cache_layout = LAYOUT
        config.cache_config.mamba_cache_mode = "align" if row.get("prefix_caching", True) else "none"
        config.scheduler_config.async_scheduling = row["async_scheduling"]
        config.scheduler_config.max_num_batched_tokens = row["max_num_batched_tokens"]
        config.scheduler_config.disable_hybrid_kv_cache_manager = not row.get("hybrid_manager", True)
        config.parallel_config.pipeline_parallel_size = row.get("pp", 1)
        return config

    def _align(self, config: Foreign, row: Mapping[str, Any], block: int) -> int:
        """The block size after the engine's alignment of attention and state pages, which sets the padding too."""
        words = [words for _, words in runs(row["target_layers"])]
        states = [found for found in words if self._is_state(found)]
        cache = config.cache_config
        cache.block_size, cache.mamba_page_size_padded, cache.mamba_block_size = block, None, row["max_model_len"]
        if not states:
            return block
        platforms, backends = module("vllm.platforms.interface"), module("vllm.v1.attention.backend")
        attention = next(found for found in words if found[0] in ("full", "latent"))
        heads, size = self._numbers(attention[1])
        latent = attention[0] == "latent"
        shapes, dtypes = self._state(states[0], row)
        backend = SimpleNamespace(
            get_supported_kernel_block_sizes=lambda: [backends.MultipleOf(KERNEL_BLOCK)], customize_spec=self._pack
        )
        model = SimpleNamespace(
            dtype=self.torch.bfloat16,
            use_mla=latent,
            architecture="stand-in",
            get_num_kv_heads=lambda _: 1 if latent else max(1, heads // row["tp"]),
            get_head_size=lambda: heads + size if latent else size,
        )
        stand_in = SimpleNamespace(cache_config=cache, model_config=model, parallel_config=config.parallel_config)
        cache.cache_dtype = row["kv_dtype"]
        states_of = SimpleNamespace(
            get_mamba_state_shape_from_config=lambda _: shapes, get_mamba_state_dtype_from_config=lambda _: dtypes
        )
        with (
            mock.patch("vllm.config.vllm.set_current_vllm_config", lambda _: contextlib.nullcontext()),
            mock.patch(
                "vllm.model_executor.models.ModelRegistry.resolve_model_cls",
                lambda *_, **__: (states_of, "stand-in"),
            ),
            mock.patch.object(platforms.Platform, "_find_non_ssm_backends", lambda _: [backend]),
        ):
            platforms.Platform._align_hybrid_block_size(stand_in, backend)
        return int(cache.block_size)

    def _stages(self, row: Mapping[str, Any], config: Foreign, block: int) -> list[dict[str, Any]]:
        """Layers by pipeline stage, as the engine deals them; drafts live on the last."""
        target = [words for count, words in runs(row["target_layers"]) for _ in range(count)]
        draft = [words for count, words in runs(row.get("draft_layers", "")) for _ in range(count)]
        pp = row.get("pp", 1)
        stages = []
        for rank in range(pp):
            start, end = self._indices(len(target), rank, pp)
            specs = {
                name: spec
                for number in range(start, end)
                for name, spec in self._specs(f"target.{number}", target[number], row, config, block)
            }
            if rank == pp - 1:
                for number, words in enumerate(draft):
                    specs.update(self._specs(f"draft.{number}", words, row, config, block))
            stages.append(specs)
        return stages

    def _specs(
        self, name: str, words: list[str], row: Mapping[str, Any], config: Foreign, block: int
    ) -> Iterator[tuple[str, Any]]:
        """The engine's own specification of one layer (two for latent attention with an indexer).

        Scales of a quantised cache are the backend's doing: Triton's, which alone takes a scale for each head.
        """
        kind, shape, *rest = words
        first, second = self._numbers(shape)
        dtype, mode = self._dtype(row["kv_dtype"])
        common = {"block_size": block, "dtype": dtype}
        heads = {"num_kv_heads": max(1, first // row["tp"]), "head_size": second, "kv_quant_mode": mode}
        match kind:
            case "full":
                yield name, self._pack(self.interface.FullAttentionSpec(**common, **heads))
            case "sliding":
                yield (
                    name,
                    self._pack(self.interface.SlidingWindowSpec(**common, **heads, sliding_window=int(rest[0]))),
                )
            case "chunked":
                chunk = int(rest[0])
                yield (
                    name,
                    self._pack(
                        self.interface.ChunkedLocalAttentionSpec(**common, **heads, attention_chunk_size=chunk)
                    ),
                )
            case "latent":
                yield name, self.interface.MLAAttentionSpec(**common, num_kv_heads=1, head_size=first + second)
                if rest:
                    yield (
                        f"{name}.indexer",
                        self.interface.MLAAttentionSpec(
                            block_size=block, dtype=self.torch.uint8, num_kv_heads=1, head_size=int(rest[0])
                        ),
                    )
            case _:
                shapes, dtypes = self._state(words, row)
                cache = config.cache_config
                yield (
                    name,
                    self.interface.MambaSpec(
                        shapes=shapes,
                        dtypes=dtypes,
                        block_size=cache.mamba_block_size,
                        page_size_padded=cache.mamba_page_size_padded,
                        mamba_cache_mode=cache.mamba_cache_mode,
                        num_speculative_blocks=row.get("num_speculative_tokens", 0),
                    ),
                )

    def _state(
        self, words: list[str], row: Mapping[str, Any]
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[Any, ...]]:
        kind, shape, elements, *dtype = words
        width, steps = self._numbers(shape)
        history = steps + (row.get("num_speculative_tokens", 0) if kind in GROWING else 0)
        state = getattr(self.torch, dtype[0]) if dtype else self.torch.bfloat16
        tp = row["tp"]
        return ((width // tp, history), (int(elements) // tp,)), (self.torch.bfloat16, state)

    def _dtype(self, name: str) -> tuple[Any, Any]:
        modes = self.interface.KVQuantMode
        if name == "int8_per_token_head":
            return self.torch.int8, modes.INT8_PER_TOKEN_HEAD
        if name == "fp8":
            return self.torch.float8_e4m3fn, modes.NONE
        return getattr(self.torch, name), modes.NONE

    def _spell(self, found: list[Any]) -> str:
        """Groups of all stages: layers, kind, tokens a block; equal neighbours counted."""
        names = []
        for group in zip(*(config.kv_cache_groups for config in found), strict=True):
            spec = group[0].kv_cache_spec
            layers = sum(len(stage.layer_names) for stage in group)
            names.append(f"{layers} {self._kind(spec)} @{spec.block_size}")
        return ", ".join(f"{len(list(same))} x {name}" for name, same in groupby(names))

    def _kind(self, spec: Foreign) -> str:
        interface = self.interface
        if isinstance(spec, interface.UniformTypeKVCacheSpecs):
            return "mixed"
        for kind, name in (
            (interface.MLAAttentionSpec, "latent"),
            (interface.ChunkedLocalAttentionSpec, "chunked"),
            (interface.SlidingWindowSpec, "sliding"),
            (interface.MambaSpec, "state"),
        ):
            if isinstance(spec, kind):
                return name
        return "full"

    @staticmethod
    def _is_state(words: list[str]) -> bool:
        return words[0] not in ("full", "sliding", "chunked", "latent")

    @staticmethod
    def _numbers(shape: str) -> tuple[int, int]:
        first, second = re.split(r"[x+]", shape)
        return int(first), int(second)


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the table instead of writing it")
    check = parser.parse_args().check
    engine = Engine()
    rows = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    differing = 0
    for number, row in enumerate(rows, start=1):
        answer = engine.answer(row)
        recorded = {key: row.get(key) for key in ANSWERS}
        if recorded != answer:
            differing += 1
            print(f"row {number}, {row['target']}: recorded {recorded}, now {answer}", file=sys.stderr)
        row.update(answer)
        if recorded != answer or "source" not in row:
            row["source"] = f"vLLM {engine.version}'s own cache planner"
    print(f"{len(rows)} rows asked of vLLM {engine.version}, {differing} differ", file=sys.stderr)
    if not check:
        TABLE.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return int(check and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
