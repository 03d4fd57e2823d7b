"""One answer of `fit`, as the command line prints it and Python hands it out: findings, and how they are told."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from model_catalog.errors import SpecplanError
from planner.commands.base import StartCommand
from planner.errors import TRIAL_INTERRUPTED
from planner.planning import Plan, RankPlan, Verdict
from planner.report.advice import Advice
from planner.report.facts import TargetFacts
from planner.report.findings import Findings, JudgedDraft
from planner.report.plain import document_text, safe_block
from planner.service.exit_codes import EXIT_INTERRUPTED, EXIT_NO, EXIT_OF_ANSWER, EXIT_TRIAL, exit_code_of
from planner.service.pictures import require_pictures
from planner.service.request import PlanOptions
from planner.verdict import Answer, Reason


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FitResult:
    """What one `fit` found. Bytes are integers; every size has a low and a high end, a basis and a source.

    ``target_name`` and ``options`` are the request, ``findings`` all that was judged, ``facts`` the target's own
    figures, ``advice`` the command and known problems, ``remarks`` the notes and warnings that the command line
    prints on stderr. ``failure``: why a trial came to no result; None where none was run.
    """

    target_name: str
    options: PlanOptions
    findings: Findings
    facts: TargetFacts
    advice: Advice
    remarks: tuple[Reason, ...]
    failure: SpecplanError | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __repr__(self) -> str:
        return f"<FitResult {self.target_name}: {self.answer}>"

    @property
    def answer(self) -> Answer:
        """The answer behind the exit code; where drafts were looked for and none will do, it is a "no"."""
        return self.findings.answer

    @property
    def exit_code(self) -> int:
        """The plan's answer, unless a trial failed or was worse than planned: a "no" stays a "no"."""
        code = EXIT_OF_ANSWER[self.findings.answer]
        if code == EXIT_NO:
            return code
        if self.failure is not None:
            return EXIT_INTERRUPTED if self.failure.code == TRIAL_INTERRUPTED else exit_code_of(self.failure)
        chosen = self.findings.chosen
        worse = chosen is not None and chosen.trial is not None and chosen.trial.worse_than_planned
        return EXIT_TRIAL if worse else code

    @property
    def plan(self) -> Plan:
        """The recommended plan, as in the report: target and chosen draft, or the target alone."""
        return self.findings.recommended.plan

    @property
    def verdict(self) -> Verdict:
        """Whether that plan fits, with the headroom and the line that binds."""
        return self.plan.verdict

    @property
    def ranks(self) -> tuple[RankPlan, ...]:
        """The memory of that plan, rank by rank: ``ranks[0].breakdown.total.high_bytes``."""
        return self.plan.ranks

    @property
    def candidates(self) -> tuple[JudgedDraft, ...]:
        """The drafts that were judged, best first; those that will not do come last, with reasons."""
        return self.findings.drafts

    @property
    def recommended(self) -> JudgedDraft | None:
        """The draft to serve with; None where none helps, or none was asked for."""
        return self.findings.chosen

    @property
    def command(self) -> StartCommand | None:
        """How to start the recommended plan; None where nothing is recommended or no command can be written."""
        return self.advice.command

    def text(self, *, verbose: bool = False, explain: bool = False, color: bool = False) -> str:
        """The tables that `specplan fit` prints; ``explain`` adds a receipt for each line."""
        from planner.report.text import fit_text  # noqa: PLC0415 - the table library is not needed for JSON

        blocks = [fit_text(self.findings, self.facts, verbose=verbose, advice=self.advice)]
        if explain:
            from planner.report.explain import explain_text  # noqa: PLC0415 - only where asked for

            blocks.append(explain_text(self.findings.told.plan, self.facts.assumptions))
        return safe_block("\n\n".join(blocks), color=color)

    def save_pictures(self, path: str | os.PathLike[str]) -> tuple[str, ...]:
        """Draw what `specplan fit --plot` draws into a .png, .svg or .pdf; which pictures are missing, and why.

        Raises:
            UsageError: matplotlib (the extra ``plot``) is not installed, or the path cannot be written.
        """
        require_pictures("save_pictures")
        from planner.pictures import draw, left_out, write_pictures  # noqa: PLC0415 - matplotlib is slow to import

        write_pictures(draw(self.findings), os.fspath(path), option="save_pictures")
        return tuple(left_out(self.findings))

    def report(self) -> dict[str, Any]:
        """The report document, as `specplan fit --json` writes it; its schema is in `specplan schema`."""
        document = fit_document(
            self.findings,
            self.facts,
            self.advice,
            self.target_name,
            self.options,
            self.remarks,
            self.exit_code,
            created_at=self.created_at,
        )
        return dict(document)

    def to_json(self) -> str:
        """The report document as text, without what looks like a Hub token."""
        return document_text(self.report())


def fit_document(
    findings: Findings,
    facts: TargetFacts,
    advice: Advice,
    target_name: str,
    options: PlanOptions,
    remarks: Sequence[Reason],
    exit_code: int,
    *,
    created_at: datetime | None = None,
) -> Mapping[str, Any]:
    """The report of what was found for this request."""
    from planner.report.build import build_report  # noqa: PLC0415 - pydantic is slow to import
    from planner.report.document import Request, report_mapping  # noqa: PLC0415 - as above

    work = findings.alone.plan.serving.workload
    shown = findings.shown
    request = Request(
        target=target_name,
        drafts=list(options.drafts),
        context_tokens=work.context_tokens,
        batch=work.batch,
        num_speculative_tokens=shown.draft.num_speculative_tokens if shown else None,
        draft_budget_share=work.draft_budget_share,
        gpu=options.gpu,
        devices=options.devices,
        tp=work.tp,
        pp=work.pp,
        enable_expert_parallel=work.expert_parallel,
        memory_limit_bytes=work.memory_limit_bytes,
        engine=options.engine,
        dtype=work.dtype,
        quantization=work.quantization,
        kv_cache_dtype=work.kv_cache_dtype,
        draft_kv_cache_dtype=work.draft_kv_cache_dtype,
        gpu_memory_utilization=work.gpu_memory_utilization,
        max_num_batched_tokens=work.max_num_batched_tokens,
        max_num_seqs=work.max_num_seqs,
        block_size=work.block_size,
        enforce_eager=work.enforce_eager,
        async_scheduling=work.async_scheduling,
        kv_cache_memory_bytes=work.kv_cache_memory_bytes,
        offline=options.offline,
    )
    report = build_report(
        findings,
        facts,
        request,
        exit_code=exit_code,
        warnings=remarks,
        advice=advice,
        created_at=created_at,
    )
    return report_mapping(report)
