"""``docs/reference/fault-cases.md``: faults that users of planners and engines reported, and our answers."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from reference_text import MADE, page_text, table

FILE: Final = Path(__file__).with_name("reported_faults.jsonl")
_GITHUB: Final = re.compile(r"https://github\.com/([^/]+/[^/]+)/(?:issues|pull|discussions)/(\d+)")
#: By the first part of a case's id.
TITLES: Final[Mapping[str, str]] = {
    "draft_cost": "What a draft costs",
    "kv_missized": "Caches of the wrong size",
    "oom_should_fit": "Out of memory where it should fit",
    "cuda_graph": "CUDA graphs",
    "logits_buffer": "Logits",
    "quant_size": "Quantised weights",
    "dup_weights": "Weights that are there twice",
    "repo_layout": "What a repository holds",
    "vision": "Towers",
    "moe": "Mixtures of experts",
    "vocab_mismatch": "Vocabularies",
    "draft_topology": "Drafts on several devices",
    "other_process": "Other processes",
    "mig": "MIG",
    "nvml_unsupported": "What a driver does not tell",
    "nvml_order": "Which device is which",
    "nvml_fail": "Drivers that fail",
    "hub_access": "The Hub",
    "hub_cache": "The Hub's cache",
    "config_bad": "Configurations",
    "slow_spec": "Speculation that does not pay",
    "units": "Units",
}


@cache
def reported() -> Sequence[Mapping[str, str | None]]:
    """Every case: ``id``, ``source``, ``went_wrong``, ``answer``, and ``test``, null where none can be."""
    return tuple(json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines())


def kind_of(case: Mapping[str, str | None]) -> str:
    return str(case["id"]).rpartition("-")[0]


def fault_cases_page() -> str:
    cases = reported()
    held = sum(case["test"] is not None for case in cases)
    lines = [
        "# Reported faults, and how specplan answers them",
        "",
        MADE,
        "",
        f"{len(cases)} faults that users of planners, engines and monitors reported in public. {held} are held by",
        "a test of the figure, the verdict or the rule that answers them; the others are answered in words, also",
        "where the answer is no better.",
    ]
    for kind, title in TITLES.items():
        rows = [
            (_named(str(case["source"])), str(case["went_wrong"]), str(case["answer"]), _test(case["test"]))
            for case in cases
            if kind_of(case) == kind
        ]
        lines += ["", f"## {title}", "", *table(["reported", "what went wrong", "specplan", "held by"], rows)]
    return page_text(lines)


def _named(source: str) -> str:
    found = _GITHUB.fullmatch(source)
    return f"[{found[1]}#{found[2]}]({source})" if found else source


def _test(place: str | None) -> str:
    return "" if place is None else f"`{place.partition('::')[2]}`"
