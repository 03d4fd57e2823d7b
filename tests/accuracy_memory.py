"""The part of ``docs/accuracy.md`` on memory, and ``docs/accuracy.json``: replays of engine logs, misses included.

Owns the wording and the tables. The comparisons are ``replay``'s, the figures ``replay_figures``'.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from replay import Line, Replay, replays
from replay_figures import RELEASES, Figure, figures, holds, missed, of_release
from replay_rows import FITTED_FAMILIES, MEASURED, LogRow, log_rows
from replay_terms import Term, terms

INTRODUCTION: Final = """\
## Memory: engine logs replayed

Each row of `tests/measured/vllm_memory.jsonl` is what one start of vLLM printed, carried over from public threads,
benchmarks and start-up logs with source, confidence and unit. It is planned with exactly its settings (model, the
log's own total of the device, parallel degrees, length, fraction, batch settings, dtypes, speculation) under the
profile of its release, and laid beside the log line by line. What a row does not state is the engine's default.
Where it states the memory left for the cache, tokens and concurrency are planned from that memory: their error is
the layout's alone. Rotary tables count as weights, as in the log; a log's activation holds the runner's buffers.
`docs/accuracy.json` has every line of every row.
"""

SPLIT: Final = """\
### How the constants were chosen

Rows are split by family, so that no family stands on both sides: about two thirds were read for the constants, the
rest validates. The second part is not blind: the widest bounds (expert workspaces, image encoders) were first set
with single rows of it in view. Bounds are what the residuals of the first part need, rounded up.

- read: {fitted}
- validation: {held}

Releases differ in three ways, and the profile follows. Before 0.17 the sampler sorted the vocabulary. Since 0.21
the estimate of graph memory is charged to the budget. The V2 runner (dense models since 0.25, all since 0.29)
keeps more and samples with less; too few starts of it state their terms, so its bounds span both runners.
"""


def memory_sections() -> tuple[str, ...]:
    """The parts of the page on memory, in order."""
    found = replays()
    return (
        INTRODUCTION,
        _counts(),
        _figures(found),
        _reasons(found),
        SPLIT.format(**_families(found)),
        _terms(found),
        _releases(found),
        _misses(found),
        _apart(found),
        _rows(found),
        _not_replayed(),
        _oracle(),
    )


def accuracy_json() -> str:
    """Every row with every comparison, replayed or not, as the file holds it."""
    by_id = {each.row.id: each for each in replays()}
    rows = [_json_row(row, by_id.get(row.id)) for row in log_rows()]
    goals = {part: [_json_figure(figure) for figure in figures(_part(replays(), part))] for part in PARTS}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{{"schema": 1,\n"figures": {json.dumps(goals, ensure_ascii=False)},\n"rows": [\n{lines}\n]}}\n'


PARTS: Final = ("validation", "fit")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def paragraph(text: str) -> str:
    """One paragraph in lines of the page's width."""
    kept = re.sub(r"`[^`]*`", lambda code: code.group().replace(" ", "\0"), text)
    return textwrap.fill(kept, width=115, break_long_words=False, break_on_hyphens=False).replace("\0", " ") + "\n"


def _part(found: Iterable[Replay], part: str) -> list[Replay]:
    return [each for each in found if each.row.part == part]


def _counts() -> str:
    rows = log_rows()
    engines = Counter(row.engine for row in rows)
    others = ", ".join(f"{name} {count}" for name, count in sorted(engines.items()) if name != "vllm")
    replayed = sum(row.not_replayed is None for row in rows)
    return paragraph(
        f"{len(rows)} rows: vLLM {engines['vllm']}, and of engines without a profile {others}. {replayed} are "
        f"replayed; {len(rows) - replayed} are listed at the end with the reason why not. Rows of SGLang, "
        "TensorRT-LLM and llama.cpp stand in tables of their own beside it."
    )


def _figures(found: Sequence[Replay]) -> str:
    by_part = {part: figures(_part(found, part)) for part in PARTS}
    rows = [
        (held.name, held.goal, held.shown, "yes" if held.reached else "**no**", fit.shown)
        for held, fit in zip(by_part["validation"], by_part["fit"], strict=True)
    ]
    heads = ("figure", "goal", "validation rows", "reached", "rows the constants were read from")
    return f"### Figures\n\n{table(heads, rows)}"


def _reasons(found: Sequence[Replay]) -> str:
    """What is missed, by how much, and why; and what would remain without the cause."""
    held = _part(found, "validation")
    others = [each for each in held if each.row.family != "DeepSeek V4"]
    return "".join(
        paragraph(
            f"Missed: {figure.name}: {figure.shown}, goal {figure.goal}. "
            f"Cause: {figure.count - without.count} rows of DeepSeek V4, whose compressed pages are not "
            f"laid out here. Without them: {without.shown}."
        )
        for figure, without in zip(figures(held), figures(others), strict=True)
        if not figure.reached
    )


def _families(found: Sequence[Replay]) -> dict[str, str]:
    counts = Counter(each.row.family for each in found)
    return {
        part: ", ".join(
            f"{name} {count}" for name, count in sorted(counts.items()) if (name in FITTED_FAMILIES) is fit
        )
        for part, fit in (("fitted", True), ("held", False))
    }


def _span(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{values[0]:.2f} to {values[-1]:.2f} ({len(values)})"


def _terms(found: Sequence[Replay]) -> str:
    heads = ("term", "release", "fitted rows", "validation rows", "")
    rows = (
        (f"{term.name}, {term.unit}", term.release, _span(term.fit), _span(term.validation), _few(term))
        for term in terms(found)
    )
    return f"What the logs measured of each term: lowest to highest, and how many starts.\n\n{table(heads, rows)}"


def _few(term: Term) -> str:
    return "too few rows to fit" if term.too_few else ""


_INTERVALS: Final = (
    "context",
    "non-torch",
    "activation",
    "graphs charged",
    "graphs taken",
    "non-KV",
    "available KV",
)


def _releases(found: Sequence[Replay]) -> str:
    """How many figures lie within the bounds, by release and part."""
    rows = []
    for release, _ in RELEASES:
        for part in PARTS:
            lines = [line for each in _part(of_release(release, found), part) for line in each.lines]
            cells = []
            for quantity in _INTERVALS:
                these = [line for line in lines if line.quantity == quantity and line.apart is None]
                cells.append(f"{sum(line.inside for line in these)} of {len(these)}" if these else "")
            rows.append((release, part, *cells))
    return f"Within the bounds, by release:\n\n{table(('release', 'part', *_INTERVALS), rows)}"


def _misses(found: Sequence[Replay]) -> str:
    rows = (
        (one.replay.row.id, one.replay.row.part, one.line.quantity, *_sides(one.line), one.reason)
        for one in missed(found)
    )
    heads = ("log", "part", "quantity", "measured", "planned", "why")
    return (
        "### Misses\n\nPoints more than 1 % beyond the plan's bounds, and figures outside their bounds\n"
        f"(GiB, bytes, tokens or requests).\n\n{table(heads, rows)}"
    )


def _apart(found: Sequence[Replay]) -> str:
    rows = (
        (each.row.id, line.quantity, *_sides(line), line.apart)
        for each in found
        for line in each.lines
        if line.apart is not None
    )
    heads = ("log", "quantity", "measured", "planned", "why it does not count")
    return f"### Stated, but not comparable\n\n{table(heads, rows)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _sides(line: Line) -> tuple[str, str]:
    low, high = _number(line.low), _number(line.high)
    return _number(line.measured), low if low == high else f"{low} to {high}"


def _cell(each: Replay, quantity: str) -> str:
    """Measured against planned: the error of a point, the bounds of an interval."""
    line = each.line(quantity)
    if line is None:
        return ""
    measured, planned = _sides(line)
    mark = "" if holds(line) else " **no**"
    if quantity in ("weights", "bytes a token", "max concurrency"):
        return f"{measured} ({100 * line.error:+.2f} %){mark}"
    return f"{measured} in {planned}{mark}"


def _rows(found: Sequence[Replay]) -> str:
    columns = ("weights", "bytes a token", "max concurrency", "non-KV", "available KV")
    rows = (
        (
            each.row.id,
            each.row.part,
            f"{each.row.facts['model']}, tp {each.row.facts['tp']}",
            *(_cell(each, quantity) for quantity in columns),
            f"{each.row.facts['outcome']}: {each.answer.value}" if each.answer else each.row.facts["outcome"],
        )
        for each in found
    )
    heads = ("log", "part", "model", *columns, "outcome: verdict")
    return (
        "### Every replayed row\n\nMeasured, then the error of the plan's middle or the plan's bounds; in GiB.\n"
        "No verdict stands where the checkpoint, the device or the engine is another.\n\n"
        f"{table(heads, rows)}"
    )


def _not_replayed() -> str:
    rows = (
        (row.id, row.engine, str(row.facts.get("model", "?")), str(row.facts["source"]), row.not_replayed)
        for row in log_rows()
        if row.not_replayed is not None
    )
    return f"### Listed, not replayed\n\n{table(('log', 'engine', 'model', 'source', 'why'), rows)}"


def _oracle() -> str:
    """What the engine's own planner was asked; ``test_engine_cache`` holds every answer to the unit."""
    lines = (MEASURED / "vllm_cache_answers.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    drafts = sum("draft" in row for row in rows)
    sources = ", ".join(sorted({row["source"] for row in rows}))
    models = len({row["target"] for row in rows})
    return "## The engine's own cache planner\n\n" + paragraph(
        f"{len(rows)} answers on {models} models ({drafts} with a draft model, an EAGLE head or MTP layers), by "
        f"{sources}, run on a CPU. Blocks, tokens and maximum concurrency are equal to the plan's in every one; a "
        "test holds them. `make oracle` asks again where vLLM is installed. Not asked: DeepSeek V4, whose pages "
        "are not laid out here."
    )


def _json_figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "goal": figure.goal,
        "value": None if figure.value is None else round(figure.value, 6),
        "rows": figure.count,
        "reached": figure.reached,
    }


def _json_row(row: LogRow, each: Replay | None) -> dict[str, Any]:
    facts = {key: row.facts.get(key) for key in ("id", "source", "confidence", "unit", "outcome", "model", "gpu")}
    if each is None:
        return {**facts, "engine": row.engine, "replayed": False, "reason": row.not_replayed}
    return {
        **facts,
        "engine": row.engine,
        "replayed": True,
        "structure": row.structure,
        "family": row.family,
        "part": row.part,
        "profile": f"{each.plan.engine.name}=={each.plan.engine.version}",
        "verdict": each.answer.value if each.answer else None,
        "bounds_share_of_device": None if each.width_share is None else round(each.width_share, 6),
        "lines": [_json_line(line) for line in each.lines],
    }


def _json_line(line: Line) -> dict[str, Any]:
    return {
        "quantity": line.quantity,
        "measured": line.measured,
        "low": round(line.low, 6),
        "high": round(line.high, 6),
        "held": holds(line) if line.apart is None else None,
        "not_comparable": line.apart,
    }
