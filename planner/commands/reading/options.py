"""The options of each engine, and a command's words put to them. Knows names and arity, not what they mean.

The tables (``planner/data/options``) were read from the engines themselves; each names its release.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from model_catalog.errors import UsageError
from planner.commands.reading.records import Unknown

_DATA: Final = Path(__file__).parents[2] / "data" / "options"
_LONGEST_NAME: Final = 60
_NAME: Final = re.compile(r"--?[A-Za-z0-9][\w.+-]*", re.ASCII)
_NEGATIVE: Final = re.compile(r"-\d+(?:\.\d*)?|-\.\d+", re.ASCII)
_PLACES: Final = {
    "vllm": "vllm.txt",
    "sglang": "sglang.txt",
    "llama.cpp": "llama_cpp.txt",
    "tensorrt-llm": "tensorrt_llm.txt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its first name, and how many words follow: ``0``, ``1``, ``2``, ``?``, ``+``; ``x``: removed."""

    name: str
    arity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An option as it was given. ``typed`` is the name that was used; ``path`` what follows it in dotted form."""

    option: str
    typed: str
    values: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        """The last word; empty for a switch."""
        return self.values[-1] if self.values else ""

    @property
    def off(self) -> bool:
        """Whether a switch was given in its ``--no-`` form."""
        return self.typed.startswith(("--no-", "-no-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The words by option, in their order; what no option took, and options that there are not."""

    given: tuple[Given, ...]
    loose: tuple[str, ...]
    unknown: tuple[Unknown, ...]


@cache
def options_of(engine: str) -> dict[str, Option]:
    """Every name of every option of an engine."""
    table: dict[str, Option] = {}
    for line in (_DATA / _PLACES[engine]).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            *names, arity = line.split()
            long = next((name for name in names if name.startswith("--")), names[0])
            option = Option(name=long, arity=arity)
            table.update(dict.fromkeys(names, option))
    return table


def parse(engine: str, words: Sequence[str], *, removed: dict[str, tuple[str, str]]) -> Parsed:
    """Put the words to the engine's options.

    ``removed``: options of other releases, each with its arity and what is known of it.

    Raises:
        UsageError: an option lacks its value.
    """
    parser = _Parser(engine, list(words), removed)
    given = tuple(parser.read())
    return Parsed(given=given, loose=tuple(parser.loose), unknown=tuple(parser.unknown))


class _Parser:
    """Walks the words once, from left to right."""

    def __init__(self, engine: str, words: list[str], removed: dict[str, tuple[str, str]]) -> None:
        # argparse, click, or the server's own reading of its words.
        self._argparse = engine in {"vllm", "sglang"}
        self._attached = engine != "llama.cpp"
        self._dashes = engine != "tensorrt-llm"
        self._table = options_of(engine)
        self._words = words
        self._removed = removed
        self.loose: list[str] = []
        self.unknown: list[Unknown] = []

    def read(self) -> Iterator[Given]:
        while self._words:
            word = self._words.pop(0)
            if not self._is_option(word):
                self.loose.append(word)
                continue
            typed, separator, attached = word.partition("=") if self._attached else (word, "", "")
            if typed.startswith("--") and self._dashes:
                typed = self._dashed(typed)
            if self._argparse and typed.startswith("-O") and len(typed) > 2:
                typed, separator, attached = "--optimization-level", "=", attached or typed[2:]
            name, *path = typed.split(".") if typed.startswith("--") and self._dashes else [typed]
            full = self._full(name)
            if full is None:
                self._not_known(name)
                continue
            option = self._table[full]
            if option.arity == "x":
                self._not_known(name)
                continue
            values = (attached,) if separator else tuple(self._values(option, typed, dotted=bool(path)))
            yield Given(option=option.name, typed=full, values=values, path=tuple(path))

    def _is_option(self, word: str) -> bool:
        name = word.partition("=")[0] if self._attached else word
        return word.startswith("-") and len(word) > 1 and not _NEGATIVE.fullmatch(word) and " " not in name

    def _dashed(self, typed: str) -> str:
        """Underscores become dashes, up to the first dot, as in vLLM."""
        name, separator, path = typed.partition(".")
        return name.replace("_", "-") + separator + path

    def _full(self, name: str) -> str | None:
        """The name in full: argparse takes a beginning that only one option has."""
        if name in self._table:
            return name
        if not self._argparse or not name.startswith("--") or name in self._removed or len(name) < 4:
            return None
        begun = [known for known in self._table if known.startswith(name)]
        return begun[0] if len({self._table[known].name for known in begun}) == 1 else None

    def _values(self, option: Option, typed: str, *, dotted: bool) -> Iterator[str]:
        arity = "1" if dotted else option.arity
        least, most = {"0": (0, 0), "1": (1, 1), "2": (2, 2), "?": (0, 1)}.get(arity, (1, len(self._words)))
        taken = 0
        while taken < most and self._words and not self._is_option(self._words[0]):
            yield self._words.pop(0)
            taken += 1
        if taken < least and not self._argparse and self._words:
            yield self._words.pop(0)  # llama.cpp and click take whatever follows
        elif taken < least:
            raise UsageError(
                "lacks its value",
                subject=shown(typed),
                hint="give it one; a value that starts with a dash is written --option=value",
            )

    def _not_known(self, name: str) -> None:
        """An option that is not there: its values go with it, for who knows what they are."""
        arity, why = self._removed.get(name, ("+", ""))
        option = self._table.get(name)
        if option is not None and option.arity == "x":
            why = why or "it was removed"
            arity = "1"
        # A model may follow a bare switch: one word is taken, and no more, where nobody knows.
        most = {"0": 0, "1": 1}.get(arity, 1)
        while most and self._words and not self._is_option(self._words[0]):
            self._words.pop(0)
            most -= 1
        near = () if why else tuple(difflib.get_close_matches(name, list(self._table), n=3, cutoff=0.75))
        self.unknown.append(Unknown(option=shown(name), near=near, why=why))


def shown(name: str) -> str:
    """An option's name, if it looks like one: a secret may stand in its place."""
    return name if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) else "an option with an odd name"
