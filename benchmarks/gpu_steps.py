"""One pair on one device, measured from outside the trial: bytes and step times. Started by ``gpu_check``.

    python gpu_steps.py REQUEST.json RESULT.json

The request names two folders with a config.json; weights are random. The result is written again after every
step, so that what was measured before a failure is kept. Steps are a forward and the choice of a token, both
synchronised, so a time holds what the host adds when it launches kernels one by one. Two ways of running:

* ``eager``: the cache of transformers that grows by concatenation, kernels launched one by one;
* ``graphs``: a cache of fixed size, the whole forward captured once as a CUDA graph and replayed. Without a GPU
  the same forward runs uncaptured (``static``), which checks the code and times nothing of use.
"""

import copy
import gc
import inspect
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import transformers

from planner.errors import HardwareError
from planner.nvml import read_devices
from planner.trial.worker import placement
from planner.trial.worker.cache_states import bytes_of
from planner.trial.worker.dummy import build_dummy
from planner.trial.worker.loading import model_bytes

_WARM: Final = 3
_LEAST_TIMED: Final = 5
#: vLLM pads as much before torch._scaled_mm, which is slow on fewer rows (its fp8_utils.py).
_FP8_ROWS: Final = 17
_FP8: Final = torch.float8_e4m3fn


class Fp8Linear(torch.nn.Module):
    """A projection stored in fp8 (one scale a tensor, activations cast with scale 1), as an fp8 engine runs it."""

    def __init__(self, plain: torch.nn.Linear) -> None:
        super().__init__()
        weight = plain.weight.detach()
        largest = weight.abs().max().float().clamp(min=1e-6) / torch.finfo(_FP8).max
        self.weight = torch.nn.Buffer((weight / largest).to(_FP8))
        self.scale = torch.nn.Buffer(largest.reshape(()))
        self.one = torch.nn.Buffer(torch.ones((), device=weight.device))
        self.in_features, self.out_features = plain.in_features, plain.out_features

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """The product, in the type of what is given."""
        rows = given.reshape(-1, self.in_features)
        count = rows.shape[0]
        if count < _FP8_ROWS:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, _FP8_ROWS - count))
        product = torch._scaled_mm(
            rows.to(_FP8), self.weight.t(), scale_a=self.one, scale_b=self.scale, out_dtype=given.dtype
        )
        return product[:count].reshape(*given.shape[:-1], self.out_features)


def build_fp8(folder: str, placing: Mapping[str, Any]) -> torch.nn.Module:
    """A model whose decoder layers lie in fp8: copies of one layer, so that no 16-bit model is ever held."""
    path = Path(folder) / "config.json"
    given = json.loads(path.read_text(encoding="utf-8"))
    layers = int(given["num_hidden_layers"])
    path.write_text(json.dumps({**given, "num_hidden_layers": 1}), encoding="utf-8")
    try:
        model = build_dummy(folder, "bfloat16", placing)
    finally:
        path.write_text(json.dumps(given), encoding="utf-8")
    first = model.model.layers[0]
    for name, child in list(first.named_modules()):
        if isinstance(child, torch.nn.Linear):
            first.set_submodule(name, Fp8Linear(child))
    for number in range(1, layers):
        layer = copy.deepcopy(first)
        layer.self_attn.layer_idx = number
        model.model.layers.append(layer)
    model.config.num_hidden_layers = layers
    gc.collect()
    return model


class Steps:
    """Steps of one model: how long they take, and what its cache holds."""

    def __init__(self, model: torch.nn.Module, device: torch.device, seconds: float) -> None:
        self._model, self._device, self._seconds = model, device, seconds
        known = inspect.signature(type(model).forward).parameters
        self._argument = "cache" if "cache" in known else "past_key_values"
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])

    def eager(self, batch: int, context: int, lengths: tuple[int, ...]) -> tuple[dict[int, float], int]:
        """Seconds of a step on 1, or k + 1 tokens a sequence after ``context``; and the cache's bytes there."""
        cache = self._forward(self._tokens(batch, context), None)[1]
        found = {}
        for length in lengths:
            ids = self._tokens(batch, length)

            def step(ids: torch.Tensor = ids) -> None:
                self._forward(ids, cache)

            found[length] = self._time(step, lambda length=length: cache.crop(-length))
        # One more token: cropping leaves the longer tensors in place until the next step copies.
        self._forward(self._tokens(batch, 1), cache)
        return found, bytes_of(cache)

    def fixed(self, batch: int, context: int, lengths: tuple[int, ...]) -> dict[int, float]:
        """The same over a cache of fixed size, as a CUDA graph where there is a GPU."""
        return {length: self._fixed(batch, context, length) for length in lengths}

    def static_forward(
        self, batch: int, context: int, length: int, cache: transformers.StaticCache
    ) -> Callable[[], torch.Tensor]:
        """A forward on ``length`` tokens at position ``context``, of which nothing is decided by the host."""
        ids = self._tokens(batch, length)
        places = context + torch.arange(length, device=self._device)
        slots = torch.arange(cache.layers[0].max_cache_len, device=self._device)
        mask = (slots[None, :] <= places[:, None])[None, None].expand(batch, 1, -1, -1).contiguous()
        positions = places[None].expand(batch, -1).contiguous()

        def forward() -> torch.Tensor:
            return self._forward(ids, cache, attention_mask=mask, position_ids=positions)[0]

        return forward

    def _fixed(self, batch: int, context: int, length: int) -> float:
        cache = transformers.StaticCache(config=self._model.config, max_cache_len=context + length)
        forward = self.static_forward(batch, context, length, cache)

        def rewind() -> None:
            for layer in cache.layers:
                layer.cumulative_length.fill_(context)

        self._forward(self._tokens(batch, 1), cache)  # allocates the cache
        for layer in cache.layers:
            layer.keys.normal_()
            layer.values.normal_()
        rewind()
        if self._device.type != "cuda":
            return self._time(forward, rewind)
        beside = torch.cuda.Stream(self._device)
        beside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(beside):
            for _ in range(_WARM):
                forward()
                rewind()
        torch.cuda.current_stream(self._device).wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            forward()
        rewind()
        return self._time(graph.replay, rewind)

    def _forward(self, ids: torch.Tensor, cache: object, **given: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The chosen tokens of the last positions (one, or as many as a verification judges), and the cache."""
        keep = ids.shape[1] if ids.shape[1] <= 16 else 1
        out = self._model(input_ids=ids, use_cache=True, logits_to_keep=keep, **{self._argument: cache}, **given)
        return out.logits.argmax(dim=-1), out[self._argument]

    def _tokens(self, batch: int, length: int) -> torch.Tensor:
        return torch.randint(0, self._vocabulary, (batch, length), device=self._device)

    def _time(self, step: Callable[[], object], after: Callable[[], object]) -> float:
        """Median seconds of a step; ``after`` undoes it and is not timed."""
        settle = torch.cuda.synchronize if self._device.type == "cuda" else (lambda: None)
        taken: list[float] = []
        end = time.perf_counter() + self._seconds
        for number in range(10_000):
            settle()
            start = time.perf_counter()
            step()
            settle()
            if number >= _WARM:
                taken.append(time.perf_counter() - start)
            after()
            if len(taken) >= _LEAST_TIMED and time.perf_counter() > end:
                break
        return statistics.median(taken)


def driver_used(uuid: str | None) -> int | None:
    """Bytes that the driver says are in use on the GPU of this UUID; None where it does not say."""
    try:
        devices = read_devices().devices
    except HardwareError:
        return None
    same = [device for device in devices if uuid is not None and device.uuid is not None and uuid in device.uuid]
    chosen = same[0] if same else devices[0]
    return chosen.used_by_others_bytes


def main(request_path: str, result_path: str) -> None:
    """Measure what the request asks for, step by step."""
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    result: dict[str, Any] = {"batches": [], "errors": []}

    @contextmanager
    def guarded(what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            result["errors"].append(f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
        finally:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            Path(result_path).write_text(json.dumps(result), encoding="utf-8")

    transformers.utils.logging.disable_progress_bar()
    devices = placement.usable_devices(request["device"])[:1]
    device = devices[0]
    on_gpu = device.type == "cuda"
    uuid = str(torch.cuda.get_device_properties(device).uuid) if on_gpu else None
    before = driver_used(uuid) if on_gpu else None
    placing = {"device_map": {"": device}}
    torch.manual_seed(0)
    start = time.monotonic()
    build = build_fp8 if request["fp8"] else lambda folder, where: build_dummy(folder, request["dtype"], where)
    target, draft = (
        build(request["target_folder"], placing),
        build_dummy(request["draft_folder"], request["dtype"], placing),
    )
    placement.forget_peaks(devices)
    result |= {
        "device": placement.name_of(devices),
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "cuda": torch.version.cuda,
        },
        "load_seconds": time.monotonic() - start,
        "weights_bytes": {"target": model_bytes(target), "draft": model_bytes(draft)},
        "allocated_after_load_bytes": torch.cuda.memory_allocated(device) if on_gpu else None,
        "driver_used_before_bytes": before,
    }
    k, context, seconds = int(request["k"]), int(request["context"]), float(request["seconds_a_step"])
    big, small = Steps(target, device, seconds), Steps(draft, device, seconds)
    rows = {batch: {"batch": batch} for batch in request["batches"]}
    result["batches"] = list(rows.values())
    with torch.inference_mode():
        for batch, row in rows.items():
            with guarded(f"eager, batch {batch}"):
                placement.forget_peaks(devices)
                of_target, held = big.eager(batch, context, (1, k + 1))
                row["allocated_peak_bytes"] = torch.cuda.max_memory_allocated(device) if on_gpu else None
                row["reserved_peak_bytes"] = torch.cuda.max_memory_reserved(device) if on_gpu else None
                row["driver_used_bytes"] = driver_used(uuid) if on_gpu else None
                of_draft, held_by_draft = small.eager(batch, context, (1,))
                row["cache_bytes"] = {"target": held, "draft": held_by_draft}
                row["eager"] = {"target": of_target[1], "verify": of_target[k + 1], "draft": of_draft[1]}
        for batch, row in rows.items():
            with guarded(f"graphs, batch {batch}"):
                of_target = big.fixed(batch, context, (1, k + 1))
                of_draft = small.fixed(batch, context, (1,))
                row["graphs" if on_gpu else "static"] = {
                    "target": of_target[1],
                    "verify": of_target[k + 1],
                    "draft": of_draft[1],
                }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
