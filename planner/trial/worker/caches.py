"""A model and its cache, read forward and taken back: what speculation needs of a cache.

Three ways back. Keys and values are cropped. Rows of a batch that go back by different numbers are shifted
besides, so that all of them end at the same slot and only the left is padded, as after a padded prompt: positions,
masks and sliding windows then are what they would be without speculation. State that no crop restores (that of
recurrent layers, say) is kept in snapshots, for one row only.
"""

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from planner.trial.worker.cache_states import bytes_of, copied, shift_rows, tensors_of

#: Layers of ``transformers.cache_utils`` that hold nothing but keys and values, one slot a token.
_KEYS_ALONE: Final = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer"})
#: Of these, those that forget nothing of their own accord.
_UNTRIMMED: Final = frozenset({"DynamicLayer", "DummyLayer"})
#: Those that can be cropped, if not shifted. Names, for older versions of the library lack some.
_CROPPED: Final = _KEYS_ALONE | {"DynamicIndexedLayer"}
_CONVOLUTION: Final = "LinearAttentionLayer"
_PROBED_TOKENS: Final = 4
#: How far logits and states of one pass of several tokens may lie from those of single steps, relative to the
#: largest of each tensor. Rounding stays below; a state that is not carried on shows in the states themselves.
_PROBE_TOLERANCES: Final = {torch.float32: 1e-3, torch.float64: 1e-6}
_ROUGH_TOLERANCE: Final = 0.05


class UncroppableCacheError(Exception):
    """The model's cache cannot forget rejected tokens; the text names the model's type and the reason."""


@dataclass(slots=True, kw_only=True)
class CachedModel:
    """A model with the cache of one batch. Row r holds ``width - padding[r]`` tokens, all rows end at ``width``.

    ``device``: where its tokens go; the model may reach over others.

    Raises:
        UncroppableCacheError: the model's forward takes no cache.
    """

    model: Any
    device: str
    cache: Any = None
    width: int = 0
    padding: list[int] = field(default_factory=lambda: [0])
    #: Tokens are taken back by snapshots, not by cropping. Known once ``prepare`` was called.
    by_snapshot: bool = False
    _cache_argument: str = field(init=False)
    _arguments: frozenset[str] = field(init=False)
    _gpus: tuple[torch.device, ...] = field(init=False)
    _pads: torch.Tensor | None = None  #: ``padding`` on the device, None where it is zero
    _marks: list[tuple[int, Any]] = field(default_factory=list)
    _trims: bool = False
    _continues: bool | None = None

    def __post_init__(self) -> None:
        self._arguments = frozenset(inspect.signature(type(self.model).forward).parameters)
        # Renamed in transformers 5; the old names warn on every call.
        names = [name for name in ("cache", "past_key_values", "cache_params") if name in self._arguments]
        if not names:
            raise UncroppableCacheError(f"{self.model_type}: its forward takes no cache")
        self._cache_argument = names[0]
        devices = {parameter.device for parameter in self.model.parameters()}
        self._gpus = tuple(device for device in devices if device.type == "cuda")

    @property
    def model_type(self) -> str:
        """As the configuration names it."""
        return str(self.model.config.model_type)

    @property
    def vocabulary(self) -> int:
        """How many ids it can read."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row that lie in the cache."""
        return [self.width - pad for pad in self.padding]

    @property
    def gpus(self) -> tuple[torch.device, ...]:
        """Those that hold a part of it."""
        return self._gpus

    @property
    def state_bytes(self) -> int:
        """Bytes of all tensors that the cache and its snapshots hold."""
        return bytes_of([self.cache, *(saved for _, saved in self._marks)])

    def settle(self) -> None:
        """Wait for its devices, which work behind the host's back: before the clock is read."""
        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)

    def quickly(self) -> AbstractContextManager[Any]:
        """The library's own setting for decoding: experts of a mixture are called another way than in prefill."""
        setting = getattr(self.model, "_optimize_model_for_decode", None)
        return setting() if setting else nullcontext()

    def read_prompts(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Forget everything and read one prompt a row, padded at the left.

        Returns the logits of each prompt's last token: [rows, vocabulary].
        """
        longest = max(len(prompt) for prompt in prompts)
        self.cache, self.width, self._marks = None, 0, []
        self.by_snapshot = self._trims = False
        self._pad([longest - len(prompt) for prompt in prompts])
        filled = [[0] * pad + list(prompt) for pad, prompt in zip(self.padding, prompts, strict=True)]
        return self.read(torch.tensor(filled, device=self.device))[:, -1]

    def read(self, ids: torch.Tensor, *, keep: int = 1) -> torch.Tensor:
        """Read tokens [rows, n] into the cache; logits of the last ``keep`` of them: [rows, keep, vocabulary].

        Raises:
            UncroppableCacheError: the model keeps its state where it cannot be reached.
        """
        given: dict[str, Any] = {self._cache_argument: self.cache}
        if "logits_to_keep" in self._arguments:
            given["logits_to_keep"] = keep
        # How far a slot lies behind the row's first token.
        places = torch.arange(self.width + ids.shape[1], device=self.device)[None]
        if self._pads is not None:
            places = places - self._pads
            given["attention_mask"] = (places >= 0).long()
        if "position_ids" in self._arguments:
            given["position_ids"] = places[:, self.width :].clamp(min=0).expand(ids.shape[0], -1)
        out = self.model(input_ids=ids, use_cache=True, **given)
        self.cache = out.get(self._cache_argument)
        if self.cache is None:
            raise UncroppableCacheError(f"{self.model_type}: it keeps its state elsewhere than in a cache")
        self.width += ids.shape[1]
        logits: torch.Tensor = out.logits[:, -keep:].to(self.device)
        return logits

    def prepare(self, *, reads_several: bool) -> None:
        """After the prompts: see to it that tokens read from now on can be taken back.

        ``reads_several``: several tokens will be read in one pass, which recurrent layers may do another way.

        Raises:
            UncroppableCacheError: they cannot be taken back, or not read so.
        """
        names = {type(layer).__name__ for layer in getattr(self.cache, "layers", ())}
        known = type(self.cache).__name__ == "DynamicCache"
        if len(self.padding) > 1 and not (known and names <= _KEYS_ALONE):
            raise UncroppableCacheError(
                f"{self.model_type}: rows of a batch accept different lengths, and what it keeps beside keys and "
                "values goes back for one row only; a batch of 1 may do"
            )
        # Convolutions without a recurrent state can be cropped, which the library tells after a first pass.
        cropped = _CROPPED | ({_CONVOLUTION} if getattr(self.cache, "is_croppable", False) else set())
        self.by_snapshot = not (known and names <= cropped)
        if self.by_snapshot:
            if reads_several:
                self._check_continuation()
            return
        self._trims = not names <= _UNTRIMMED
        if self._trims and hasattr(self.cache, "activate_past_recording"):
            # Else layers of a fixed size drop what they will not need if nothing is taken back.
            self.cache.activate_past_recording()

    def mark(self) -> None:
        """Remember this state where only a snapshot can bring it back."""
        if self.by_snapshot:
            self._marks.append((self.width, copied(self.cache)))

    def rewind(self, lengths: Sequence[int]) -> None:
        """Keep the first ``lengths[r]`` tokens of row r; by snapshot, those of the last mark that is no longer.

        Raises:
            ValueError: a row never had that many, or no mark is short enough.
        """
        surplus = [have - wanted for have, wanted in zip(self.lengths, lengths, strict=True)]
        least = min(surplus)
        if least < 0:
            raise ValueError(f"of {self.lengths} tokens, {list(lengths)} cannot be kept")
        if self.by_snapshot:
            self._restore(lengths[0])
        elif least < max(surplus):
            self.width = max(lengths)
            shift_rows(self.cache, surplus, self.width)
            self._pad([self.width - length for length in lengths])
        elif least or self._trims:
            self.cache.crop(-least)
            self.width -= least

    def _pad(self, padding: list[int]) -> None:
        self.padding = padding
        self._pads = torch.tensor(padding, device=self.device)[:, None] if any(padding) else None

    def _restore(self, length: int) -> None:
        if length < self.width:
            fitting = [mark for mark in self._marks if mark[0] <= length]
            if not fitting:
                raise ValueError(f"no snapshot of {length} tokens or fewer")
            self.width, self.cache = fitting[-1]
        self._marks.clear()

    def _check_continuation(self) -> None:
        """One pass of several tokens must do what as many steps do: some layers start it from an empty state."""
        if self._continues is None:
            width, cache = self.width, self.cache
            tokens = torch.arange(1, 1 + _PROBED_TOKENS, device=self.device)[None] % self.vocabulary
            self.cache = copied(cache)
            logits = self.read(tokens, keep=_PROBED_TOKENS)
            at_once = [logits, *tensors_of(self.cache)]
            self.width, self.cache = width, copied(cache)
            steps = [self.read(tokens[:, i : i + 1]) for i in range(_PROBED_TOKENS)]
            one_by_one = [torch.cat(steps, dim=1), *tensors_of(self.cache)]
            self.width, self.cache = width, cache
            tolerance = _PROBE_TOLERANCES.get(logits.dtype, _ROUGH_TOLERANCE)
            self._continues = len(at_once) == len(one_by_one) and all(
                a.shape == b.shape and float((a - b).abs().max()) <= tolerance * float(b.abs().max())
                for a, b in zip(at_once, one_by_one, strict=True)
                if b.is_floating_point() and b.numel()
            )
        if not self._continues:
            raise UncroppableCacheError(
                f"{self.model_type}: one pass of several tokens does not leave the state that single steps leave"
            )
