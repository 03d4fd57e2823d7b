"""What a plan says, sentence by sentence and row by row: the words that the terminal and the page share.

Owns wording and rounding; whoever shows them owns the layout. What came from elsewhere is made safe to show here.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from planner.devices import Device, DeviceSource
from planner.memory.breakdown import Group, LineItem, MemoryBreakdown
from planner.planning import Plan, RankPlan
from planner.report.draft_rows import METHOD_NAMES, prediction_rows
from planner.report.facts import TargetFacts, host_memory, load_peak_bytes
from planner.report.findings import Findings, SetUp
from planner.report.plain import Style, paint, safe_line
from planner.report.words import (
    GROUP_NAMES,
    basis_of,
    count,
    device_line,
    need,
    need_bytes,
    parameters,
    percent_up,
    room,
    room_range,
)
from planner.verdict import Answer

_ANSWERS: Final[dict[Answer, tuple[str, Style]]] = {
    Answer.FITS: ("FITS", "good"),
    Answer.TIGHT: ("TIGHT", "unsure"),
    Answer.DOES_NOT_FIT: ("DOES NOT FIT", "bad"),
    Answer.UNKNOWN: ("CANNOT TELL", "unsure"),
}

#: What a memory fraction is taken of, where it is not the device's total.
_BASES: Final = {"free_before_load": " free before loading", "free_after_load": " free after loading"}
#: Reasons against a draft that the verdict on the pair says already.
_TOLD_BY_THE_VERDICT: Final = frozenset({"does_not_fit", "reading_missing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """``lead WORD: text``. Without a ``word`` it is a reason, which stands below the answer it belongs to."""

    text: str
    word: str | None = None
    style: Style = "heading"
    lead: str = ""

    @property
    def line(self) -> str:
        """The whole sentence, its word in colour."""
        return self.text if self.word is None else f"{self.lead}{paint(self.word, self.style)}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """A row of a rank's memory. ``kind``: a term of the sum, one of its lines, the sum, a part of it, or room."""

    kind: Literal["term", "line", "total", "part", "room"]
    label: str
    memory: str
    known: str


def verdict_sentences(findings: Findings) -> list[Sentence]:
    """The answer, then why."""
    refused = findings.turned_down
    plan = findings.told.plan
    why = [Sentence(text=safe_line(reason.text)) for reason in plan.verdict.reasons]
    if refused is None:
        return [verdict_sentence(plan), *why]
    told = [_refusal(reason.text) for reason in refused.reasons if reason.code not in _TOLD_BY_THE_VERDICT]
    if refused.set_up is None:
        return [*told, _of_the_target(plan), *why]
    return [verdict_sentence(plan), *why, *told, _of_the_target(findings.alone.plan)]


def answer_sentence(findings: Findings) -> Sentence:
    """The answer in one sentence."""
    turned_down = findings.turned_down
    if turned_down is not None:
        refused = next((reason for reason in turned_down.reasons if reason.code not in _TOLD_BY_THE_VERDICT), None)
        if refused is not None:
            return _refusal(refused.text)
    sentence = verdict_sentence(findings.told.plan)
    if findings.worth is not None and findings.chosen is None and findings.shown is None:
        text = f"none of those found will do. The target alone: {sentence.line}"
        return Sentence(word="NO DRAFT", style="bad", text=text)
    return sentence


def verdict_sentence(plan: Plan) -> Sentence:
    """``FITS: ...`` with the room or the shortage, and what binds."""
    word, style = _ANSWERS[plan.verdict.answer]
    return Sentence(word=word, style=style, text=_verdict_text(plan))


def _verdict_text(plan: Plan) -> str:
    verdict = plan.verdict
    binding = safe_line(verdict.binding)
    if verdict.headroom_bytes is None:
        return f"{binding}."
    if verdict.answer is Answer.FITS:
        return f"{_spare(plan)} ({binding})."
    short = need_bytes(-verdict.headroom_bytes)
    if verdict.answer is Answer.TIGHT:
        return f"it may fit, but at worst {short} is missing ({binding})."
    return f"at worst {short} is missing ({binding})."


def _refusal(text: str) -> Sentence:
    return Sentence(word="DRAFT REFUSED", style="bad", text=f"{safe_line(text)}.")


def _of_the_target(plan: Plan) -> Sentence:
    return replace(verdict_sentence(plan), lead="The target alone: ")


def _spare(plan: Plan) -> str:
    """What is left: of the budget, where there is one, and of the memory beside it."""
    headroom = room(plan.verdict.headroom_bytes or 0)
    beside = [rank.verdict.beside_bytes for rank in plan.ranks if rank.verdict.beside_bytes is not None]
    if not beside:
        return f"{headroom} to spare"
    return f"{headroom} to spare inside the engine's budget, {room(min(beside))} beside it"


def header_rows(findings: Findings, facts: TargetFacts) -> list[tuple[str, str]]:
    """What was planned: target, draft, request, engine, devices."""
    plan, shown = findings.told.plan, findings.shown
    work, engine = plan.serving.workload, plan.engine
    size = f", {parameters(facts.parameters)} parameters" if facts.parameters is not None else ""
    stored = f", {need(facts.stored)} stored"
    revision = f", {facts.revision[:12]}" if facts.revision else ""
    rows = [("Target", f"{safe_line(facts.repo_id)} ({facts.source}{revision}){size}{stored}")]
    if shown is not None:
        method = METHOD_NAMES[shown.draft.method]
        named = f"{safe_line(shown.name)} as {method}" if shown.draft.model is not None else method
        rows.append(("Draft", f"{named}, {count(shown.draft.num_speculative_tokens, 'token')} a step"))
    rows.append(("Request", f"{count(work.batch, 'sequence')} of {work.context_tokens:,} tokens"))
    widths = f"tp {work.tp}" + (f", pp {work.pp}" if work.pp > 1 else "")
    rows.append(("Engine", f"{engine.name} {engine.version}, {widths}"))
    rows.append(("Devices", safe_line(device_line(findings.devices))))
    return rows


def rank_title(plan: Plan, position: int) -> str:
    """Whose memory a table shows: the one of a single rank is every device's."""
    if len(plan.ranks) == 1:
        width = plan.engine.ranks_per_stage(plan.serving)
        return "Term" if width == 1 else f"On each of {width} devices"
    rank = plan.ranks[position].rank
    return f"Rank {rank.index} (stage {rank.stage}), {safe_line(rank.device.name)}"


def memory_rows(rank_plan: RankPlan, plan: Plan, *, lines: bool) -> list[MemoryRow]:
    """The five terms on one rank, their sum and the room for it; with ``lines``, what each term is made of."""
    breakdown = rank_plan.breakdown
    rows: list[MemoryRow] = []
    for group in Group:
        items = [item for item in breakdown.items if item.group is group]
        if group is Group.DRAFT_WEIGHTS and not items:
            continue
        size = need(breakdown.of_group(group))
        rows.append(MemoryRow(kind="term", label=GROUP_NAMES[group], memory=size, known=basis_of(items)))
        if lines:
            rows += [
                MemoryRow(
                    kind="line", label=safe_line(item.label), memory=need(item.size), known=_line_basis(item)
                )
                for item in items
            ]
    rows.append(MemoryRow(kind="total", label="Total", memory=need(breakdown.total), known=""))
    return [*rows, *_room_rows(rank_plan, breakdown, plan)]


def _line_basis(item: LineItem) -> str:
    if item.inside_budget:
        return item.basis.value
    return f"{item.basis.value}, {'before' if item.before_budget else 'outside'}"


def _room_rows(rank_plan: RankPlan, breakdown: MemoryBreakdown, plan: Plan) -> list[MemoryRow]:
    device, budget = rank_plan.rank.device, rank_plan.verdict.budget_bytes
    rows: list[MemoryRow] = []

    def add(kind: Literal["part", "room"], label: str, memory: str, known: str) -> None:
        rows.append(MemoryRow(kind=kind, label=label, memory=memory, known=known))

    if budget is not None:
        fraction = plan.gpu_memory_utilization
        base = rank_plan.verdict.base_bytes
        note = ""
        if fraction is not None and base is not None:
            note = f"{fraction:.3g} of {room(base)}{_BASES.get(plan.engine.budget_base, '')}"
        add("part", "inside the engine's budget", need(breakdown.inside_budget), "")
        add("part", "outside it", need(breakdown.outside_budget), "")
        add("room", "Engine's budget", room(budget), note)
    limit = plan.serving.workload.memory_limit_bytes
    if limit is not None:
        add("room", "Memory limit", room(limit), "as asked")
    if device.used_by_others_bytes:
        add("room", "Used by others", need_bytes(device.used_by_others_bytes), _processes_text(device))
    add("room", "Free on the device", *_free_text(device))
    return rows


def _free_text(device: Device) -> tuple[str, str]:
    """Free memory, and how that is known."""
    if device.free_bytes is None:
        return "unknown", "could not be read"
    if device.source is DeviceSource.HOST or device.unified:
        return room(device.free_bytes), "host memory" if device.source is not DeviceSource.DECLARED else "declared"
    return room(device.free_bytes), "read from the driver" if device.source is DeviceSource.NVML else "declared"


def _processes_text(device: Device) -> str:
    """Who uses a live device, as far as the driver says."""
    number = len(device.processes)
    return f"{number} {'process' if number == 1 else 'processes'}, see specplan devices" if number else ""


def detail_rows(findings: Findings, facts: TargetFacts) -> list[tuple[str, str]]:
    """Fractions, the engine's cache, limits and loading; then what the shown draft costs and brings."""
    shown = findings.shown
    rows = _set_up_rows(findings.told, facts)
    if shown is not None and shown.cost is not None and shown.cost.text is not None:
        rows.append(("Draft's price", shown.cost.text))
    return [*rows, *(prediction_rows(shown.offer.prediction, shown.draft.method) if shown else [])]


def _set_up_rows(set_up: SetUp, facts: TargetFacts) -> list[tuple[str, str]]:
    plan = set_up.plan
    work = plan.serving.workload
    rows = [("Utilisation", _window_text(plan)), ("Engine's cache", _pool_text(plan))]
    if plan.verdict.answer is not Answer.UNKNOWN:
        context, batch = set_up.max_context_tokens, set_up.max_batch
        rows.append(
            (
                "Fits up to",
                f"{'no context' if context is None else f'context {context:,}'} at batch {work.batch:,}; "
                f"{'no batch' if batch is None else f'batch {batch:,}'} at context {work.context_tokens:,}",
            )
        )
    rows.append(("Draft's share", _draft_text(plan)))
    saving = set_up.sequence_saving
    if saving is not None:
        text = f"{room(saving.saved_bytes)} by --max-num-seqs {saving.lowered_to} (now {saving.max_num_seqs:,})"
        rows.append(("Could save", text))
    rows.append(("While loading", _loading_text(plan)))
    if facts.download_bytes:
        rows.append(("To download", need_bytes(facts.download_bytes)))
    return [row for row in rows if row[1]]


def _loading_text(plan: Plan) -> str:
    peak, host = load_peak_bytes(plan), host_memory(plan)
    if peak is None or host is None:
        return ""
    return f"at most {need_bytes(peak)} on a device, {need(host)} on the host"


def _window_text(plan: Plan) -> str:
    window, chosen = plan.window, plan.gpu_memory_utilization
    if chosen is None:
        return ""
    if window is None:
        return f"{chosen:.3g} assumed: a reading is missing"
    if window.empty:
        return ""  # the verdict's reasons name both ends
    works = f"{window.low:.3f} to {window.high:.3f} works (--gpu-memory-utilization)"
    if window.low <= chosen <= window.high:
        return f"{chosen:.3g}; anything from {works}"
    return f"{chosen:.3g} does not work; anything from {works}"


def _pool_text(plan: Plan) -> str:
    cache, work = plan.cache, plan.serving.workload
    if cache is None:
        return ""
    blocks, tokens = count(cache.blocks, "block"), f"{cache.tokens:,} tokens"
    # Several groups of layers share the blocks, and a state fills one whatever its length: then no product holds.
    plain = cache.tokens == cache.blocks * cache.block_size
    held = f"{blocks} of {cache.block_size} = {tokens}" if plain else f"{blocks}, room for {tokens}"
    if cache.block_size == 1:
        held = tokens
    return (
        f"{room_range(cache.available)}: at least {held}, {cache.max_concurrency:.2f} sequences of "
        f"{work.context_tokens:,} at once"
    )


def _draft_text(plan: Plan) -> str:
    budget = plan.draft_budget
    if budget is None:
        return ""
    if budget.share is None or budget.weights_share is None:
        return f"{need(budget.footprint)}; its share is unknown, as the device's total is"
    verdict = "within" if budget.within else "over"
    weights = f"; weights alone {percent_up(budget.weights_share)}" if budget.weights_share else ""
    return (
        f"{percent_up(budget.share)} of the device, {verdict} the limit of {percent_up(budget.limit_share)}: "
        f"{need(budget.footprint)} in all{weights}"
    )
