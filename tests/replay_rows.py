"""Rows of engine logs, as ``tests/measured/`` keeps them, and the side of the split that each stands on.

Owns what a row says: its settings, its figures, whether it can be replayed and, if not, why. Plans nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from model_catalog.catalogue import find_row

MEASURED: Final = Path(__file__).parent / "measured"
#: Rows of vLLM, and of engines that no profile plans. Each other engine's rows stand in a table of its own.
TABLES: Final = ("vllm_memory.jsonl", "other_engine_memory.jsonl")

#: Words of a structure's repo id -> its family; the first that occurs. Relatives by pre-training are one family.
FAMILIES: Final[Mapping[str, str]] = {
    "llama-4": "Llama 4",
    "codellama": "Llama 2",
    "llama-2": "Llama 2",
    "deepseek-r1-distill-qwen": "Qwen 2.5",
    "kimi-dev": "Qwen 2.5",
    "llama-3": "Llama 3",
    "qwen1.5": "Qwen 1.5",
    "qwen2.5": "Qwen 2.5",
    "qwen3-next": "Qwen 3.5",
    "qwen3.5": "Qwen 3.5",
    "qwen3.6": "Qwen 3.5",
    "qwen3": "Qwen 3",
    "gemma-2": "Gemma 2",
    "gemma-3": "Gemma 3",
    "gemma-4": "Gemma 4",
    "gemma": "Gemma 1",
    "granite": "Granite 3",
    "deepseek-v4": "DeepSeek V4",
    "deepseek": "DeepSeek",
    "kimi": "Kimi K2",
    "mixtral": "Mixtral",
    "mistral": "Mistral Small",
    "phi": "Phi",
    "gpt-oss": "gpt-oss",
    "minimax": "MiniMax",
}
#: Families that constants were read from: about two thirds of the rows. All others validate.
FITTED_FAMILIES: Final = frozenset(
    {"Llama 2", "Llama 3", "Granite 3", "Qwen 2.5", "Gemma 2", "Gemma 3", "Qwen 3.5"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One start of an engine as its log told it; ``facts`` is the row of the table.

    ``structure`` is the catalogue's name of a model with the same layers; ``own_weights`` False where the
    checkpoint is another, so that only caches can be compared.
    """

    facts: Mapping[str, Any]
    structure: str
    own_weights: bool
    not_replayed: str | None

    @property
    def id(self) -> str:
        return str(self.facts["id"])

    @property
    def engine(self) -> str:
        return str(self.facts.get("engine", "vllm"))

    @property
    def v1_engine(self) -> bool:
        """Whether the V1 engine ran: the one before it profiled and budgeted otherwise."""
        return self.facts.get("generation") != "V0"

    @property
    def total_gib(self) -> float | None:
        """CUDA's total of the device as the log prints it."""
        found = self.facts.get("total_gib")
        return None if found is None else float(found)

    @property
    def family(self) -> str:
        """The family of the structure; empty where nothing is replayed."""
        name = self.structure.lower()
        return next((family for word, family in FAMILIES.items() if word in name), "")

    @property
    def part(self) -> str:
        """``fit`` or ``validation``: all rows of one family stand on one side."""
        return "fit" if self.family in FITTED_FAMILIES else "validation"

    def figure(self, name: str) -> float | None:
        """A figure of the log, None where it is not stated."""
        found = self.facts.get(name)
        return None if found is None else float(found)

    def apart(self, quantity: str) -> str | None:
        """Why a figure that is stated cannot be compared; None where it can."""
        reasons: Mapping[str, str] = self.facts.get("apart", {})
        return reasons.get(quantity)


@cache
def log_rows() -> tuple[LogRow, ...]:
    """Every row of the tables, in their order."""
    texts = [(MEASURED / table).read_text(encoding="utf-8") for table in TABLES]
    return tuple(_row(json.loads(line)) for text in texts for line in text.splitlines())


def replayable() -> tuple[LogRow, ...]:
    """The rows that can be planned."""
    return tuple(row for row in log_rows() if row.not_replayed is None)


def _row(facts: Mapping[str, Any]) -> LogRow:
    structure = facts.get("config_of") or facts.get("model") or ""
    reason = facts.get("not_replayed")
    if reason is None and find_row(structure) is None:
        reason = "no configuration of this model at hand"
    return LogRow(
        facts=facts,
        structure=structure,
        own_weights=not facts.get("other_checkpoint", False),
        not_replayed=reason,
    )
