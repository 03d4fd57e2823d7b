"""A plan in words and tables, 80 columns wide. Every line says one thing that a reader may act on."""

from typing import Final

from planner.devices import Device, DeviceSource
from planner.memory.breakdown import Group, LineItem, MemoryBreakdown
from planner.planning import Plan, RankPlan
from planner.report.advice import NO_ADVICE, Advice
from planner.report.draft_text import (
    METHOD_NAMES,
    command_block,
    drafts_block,
    elsewhere_block,
    prediction_rows,
    problems_block,
    worth_block,
)
from planner.report.facts import TargetFacts, host_memory, load_peak_bytes
from planner.report.findings import Findings, JudgedDraft, SetUp
from planner.report.plain import Style, paint, safe_line
from planner.report.tables import table
from planner.report.trial_text import trials_block
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
    wrapped,
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


def fit_text(findings: Findings, facts: TargetFacts, *, verbose: bool = False, advice: Advice = NO_ADVICE) -> str:
    """The whole answer of `fit`."""
    shown = findings.shown
    set_up = findings.told
    predicted = prediction_rows(shown.offer.prediction if shown else None)
    if shown is not None and shown.cost is not None and shown.cost.text is not None:
        predicted = [("Draft's price", shown.cost.text), *predicted]
    blocks = [
        _header(findings, set_up.plan, shown, facts),
        *_rank_blocks(set_up.plan, verbose=verbose),
        "\n".join(verdict_lines(findings)),
        "\n".join(_labelled([*_detail_rows(set_up, facts), *predicted])),
    ]
    if len(findings.drafts) > 1 or findings.worth is not None:
        blocks.append(drafts_block(findings))
    blocks.append(worth_block(findings))
    blocks.append(trials_block({draft.name: draft.trial for draft in findings.drafts if draft.trial is not None}))
    if set_up.remedies:
        blocks.append(_remedies(set_up))
    blocks.append(problems_block(advice.problems, verbose=verbose))
    blocks.append(command_block(advice.command, findings.chosen))
    blocks.append(elsewhere_block(advice.elsewhere))
    return "\n\n".join(block for block in blocks if block)


def verdict_lines(findings: Findings) -> list[str]:
    """The answer in one line, then why."""
    refused = findings.turned_down
    plan = findings.told.plan
    why = [line for reason in plan.verdict.reasons for line in wrapped(f"  {safe_line(reason.text)}", indent=2)]
    lines = wrapped(verdict_line(plan), indent=2) + why
    if refused is None:
        return lines
    told: list[str] = []
    for reason in refused.reasons:
        if reason.code not in _TOLD_BY_THE_VERDICT:
            told += wrapped(f"{paint('DRAFT REFUSED', 'bad')}: {safe_line(reason.text)}.", indent=2)
    if refused.set_up is None:
        return told + wrapped(f"The target alone: {verdict_line(plan)}", indent=2) + why
    return lines + told + wrapped(f"The target alone: {verdict_line(findings.alone.plan)}", indent=2)


def answer_line(findings: Findings) -> str:
    """The answer in one line of any length."""
    turned_down = findings.turned_down
    if turned_down is not None:
        refused = next((reason for reason in turned_down.reasons if reason.code not in _TOLD_BY_THE_VERDICT), None)
        if refused is not None:
            return f"{paint('DRAFT REFUSED', 'bad')}: {safe_line(refused.text)}."
    line = verdict_line(findings.told.plan)
    if findings.worth is not None and findings.chosen is None and findings.shown is None:
        return f"{paint('NO DRAFT', 'bad')}: none of those found will do. The target alone: {line}"
    return line


def verdict_line(plan: Plan) -> str:
    """``FITS: ...`` with the room or the shortage, and what binds."""
    verdict = plan.verdict
    word, style = _ANSWERS[verdict.answer]
    binding = safe_line(verdict.binding)
    if verdict.headroom_bytes is None:
        return f"{paint(word, style)}: {binding}."
    if verdict.answer is Answer.FITS:
        return f"{paint(word, style)}: {_spare(plan)} ({binding})."
    short = need_bytes(-verdict.headroom_bytes)
    if verdict.answer is Answer.TIGHT:
        return f"{paint(word, style)}: it may fit, but at worst {short} is missing ({binding})."
    return f"{paint(word, style)}: at worst {short} is missing ({binding})."


def _spare(plan: Plan) -> str:
    """What is left: of the budget, where there is one, and of the memory beside it."""
    headroom = room(plan.verdict.headroom_bytes or 0)
    beside = [rank.verdict.beside_bytes for rank in plan.ranks if rank.verdict.beside_bytes is not None]
    if not beside:
        return f"{headroom} to spare"
    return f"{headroom} to spare inside the engine's budget, {room(min(beside))} beside it"


def _header(findings: Findings, plan: Plan, shown: JudgedDraft | None, facts: TargetFacts) -> str:
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
    return "\n".join(_labelled(rows))


def _labelled(rows: list[tuple[str, str]]) -> list[str]:
    return [line for label, text in rows for line in wrapped(f"{label:<16}{text}", indent=16)]


def _rank_blocks(plan: Plan, *, verbose: bool) -> list[str]:
    if len(plan.ranks) == 1:
        width = plan.engine.ranks_per_stage(plan.serving)
        return [
            _rank_block(
                plan.ranks[0], plan, "Term" if width == 1 else f"On each of {width} devices", verbose=verbose
            )
        ]
    blocks = []
    for position, rank_plan in enumerate(plan.ranks):
        rank = rank_plan.rank
        title = f"Rank {rank.index} (stage {rank.stage}), {safe_line(rank.device.name)}"
        binds = position == plan.binding_rank
        if binds or verbose:
            lines = _rank_block(rank_plan, plan, "Term", verbose=verbose)
            blocks.append(f"{title}{', which binds' if binds else ''}:\n{lines}")
        else:
            text = f"{title}: {need(rank_plan.breakdown.total)}; --verbose shows its lines."
            blocks.append("\n".join(wrapped(text, indent=2)))
    return blocks


def _rank_block(rank_plan: RankPlan, plan: Plan, title: str, *, verbose: bool) -> str:
    breakdown = rank_plan.breakdown
    rows: list[tuple[str, str, str]] = []
    for group in Group:
        items = [item for item in breakdown.items if item.group is group]
        if group is Group.DRAFT_WEIGHTS and not items:
            continue
        rows.append((GROUP_NAMES[group], need(breakdown.of_group(group)), basis_of(items)))
        if verbose:
            rows += [
                (
                    f"  {safe_line(item.label)[:28]}",
                    need(item.size),
                    _line_basis(item),
                )
                for item in items
            ]
    rows.append(("Total", need(breakdown.total), ""))
    rows += _room_rows(rank_plan, breakdown, plan)
    shown = [(paint(row[0], "heading") if row[0] == "Total" else row[0], *row[1:]) for row in rows]
    return table(shown, [title, "Memory", "Known"], "lrl")


def _line_basis(item: LineItem) -> str:
    if item.inside_budget:
        return item.basis.value
    return f"{item.basis.value}, {'before' if item.before_budget else 'outside'}"


def _room_rows(rank_plan: RankPlan, breakdown: MemoryBreakdown, plan: Plan) -> list[tuple[str, str, str]]:
    device, budget = rank_plan.rank.device, rank_plan.verdict.budget_bytes
    rows: list[tuple[str, str, str]] = []
    if budget is not None:
        fraction = plan.gpu_memory_utilization
        base = rank_plan.verdict.base_bytes
        note = ""
        if fraction is not None and base is not None:
            note = f"{fraction:.3g} of {room(base)}{_BASES.get(plan.engine.budget_base, '')}"
        rows.append(("  inside the engine's budget", need(breakdown.inside_budget), ""))
        rows.append(("  outside it", need(breakdown.outside_budget), ""))
        rows.append(("Engine's budget", room(budget), note))
    limit = plan.serving.workload.memory_limit_bytes
    if limit is not None:
        rows.append(("Memory limit", room(limit), "as asked"))
    if device.used_by_others_bytes:
        rows.append(("Used by others", need_bytes(device.used_by_others_bytes), _processes_text(device)))
    rows.append(("Free on the device", *_free_text(device)))
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


def _detail_rows(set_up: SetUp, facts: TargetFacts) -> list[tuple[str, str]]:
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


def _remedies(set_up: SetUp) -> str:
    lines = [paint("What would make it fit (each re-planned):", "heading")]
    width = max(len(remedy.typed) for remedy in set_up.remedies)
    for remedy in set_up.remedies:
        lines += wrapped(f"  {remedy.typed:<{width}}  {remedy.text}", indent=width + 4)
    return "\n".join(lines)
