"""From a target to offers: drafts named or found, read, judged by the engine's rule, their speedup predicted."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from model_catalog.catalogue import lookup
from model_catalog.disk_repos import cached_repo_ids, known_on_disk
from model_catalog.drafts import (
    PARALLEL_HEADS,
    Candidate,
    CandidateOrigin,
    Discarded,
    DraftMethod,
    longest_block,
)
from model_catalog.errors import ModelError, NetworkError, UsageError
from model_catalog.families.heads import draft_head_method
from model_catalog.model import Model, describe
from model_catalog.proposals import propose
from model_catalog.repo_kind import require_model
from model_catalog.snapshot import RepoKind, RepoRef
from model_catalog.tokenizer import TokenizerFacts, reading_would_help, tokenizer_facts
from planner.commands.registry import known_engine
from planner.devices import Device
from planner.engines.base import Draft, EngineProfile
from planner.service.drafts import Offers, load_drafts, method_of
from planner.service.model_source import hub_endpoint, is_offline, load_model
from planner.service.remarks import RemarkSink
from planner.service.request import PlanOptions
from planner.speculation.compatibility import Compatibility
from planner.speculation.prediction import Demand
from planner.speculation.selection import Offer
from planner.speculation.speedup import DEFAULT_K_RANGE, predict
from planner.speculation.vocabulary_rules import judge_pair, judged_engines
from planner.trial.embedded import EMBEDDED, TINY_DRAFT, TINY_DRAFT_BAD
from planner.workload import Workload

_NAMED_SOURCE: Final = "named by you"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDrafts:
    """Drafts for a target, named or found, before any device or degree is looked at."""

    found: tuple[tuple[Candidate, Draft], ...]
    discarded: tuple[Discarded, ...]


def gather_offers(
    options: PlanOptions,
    target: Model,
    devices: Sequence[Device],
    engine: EngineProfile,
    workload: Workload,
    output: RemarkSink,
) -> Offers:
    """All drafts for this target under this request.

    Raises:
        UsageError, ModelError, NetworkError: about a draft that the user named.
    """
    return judge_drafts(
        look_for_drafts(options, target, output), options, target, devices, engine, workload, output
    )


def look_for_drafts(options: PlanOptions, target: Model, output: RemarkSink) -> FoundDrafts:
    """The drafts that the user named or, without, those that are known, on disk, or listed by the Hub.

    Raises:
        UsageError, ModelError, NetworkError: about a draft that the user named.
    """
    if options.drafts:
        drafts = load_drafts(options, target, output)
        found = [(_named(draft), draft) for draft in drafts]
        discarded: list[Discarded] = []
    elif target.snapshot.repo_id in EMBEDDED:
        found, discarded = _embedded(options, output), []
    else:
        found, discarded = _search(options, target, output)
    return FoundDrafts(found=tuple(found), discarded=tuple(discarded))


def judge_drafts(
    drafts: FoundDrafts,
    options: PlanOptions,
    target: Model,
    devices: Sequence[Device],
    engine: EngineProfile,
    workload: Workload,
    output: RemarkSink,
) -> Offers:
    """An offer of each on these devices: its best k, what is predicted, what the engine says to the pair."""
    judge = _Judge(options, target, devices, engine, workload)
    offers: list[Offer] = []
    with output.step("comparing the drafts with the target") as step:
        for number, (candidate, draft) in enumerate(drafts.found):
            step.count(number, len(drafts.found))
            offers.append(judge.offer(candidate, draft))
    if options.drafts and options.num_speculative_tokens is not None:
        _note_short_blocks(offers, options.num_speculative_tokens.least, output)
    return Offers(offers=tuple(offers), discarded=drafts.discarded, named=bool(options.drafts))


def _note_short_blocks(offers: Sequence[Offer], least: int, output: RemarkSink) -> None:
    for offer in offers:
        k = offer.draft.num_speculative_tokens
        if k < least:
            output.note("k_lowered", f"{offer.name} drafts at most {k} tokens a step, its block; {k} are planned")


def _named(draft: Draft) -> Candidate:
    repo_id = None if draft.model is None else draft.model.snapshot.repo_id
    return Candidate(method=draft.method, origin=CandidateOrigin.NAMED, source=_NAMED_SOURCE, repo_id=repo_id)


def _embedded(options: PlanOptions, output: RemarkSink) -> list[tuple[Candidate, Draft]]:
    """The drafts that were made for the embedded target; the Hub knows none."""
    candidates = [
        Candidate(
            method=DraftMethod.DRAFT_MODEL,
            origin=CandidateOrigin.BUILT_IN,
            source="the embedded pairs",
            repo_id=name,
        )
        for name in (TINY_DRAFT, TINY_DRAFT_BAD)
    ]
    return [(candidate, _read(candidate, options, output)) for candidate in candidates]


def _search(
    options: PlanOptions, target: Model, output: RemarkSink
) -> tuple[list[tuple[Candidate, Draft]], list[Discarded]]:
    """Curated pairs, what is built in, what is on disk, and, with a network, what the Hub lists."""
    hub_candidates: tuple[Candidate, ...] = ()
    discarded: list[Discarded] = []
    if not is_offline(offline=options.offline):
        from model_catalog.hub_search import search_drafts  # noqa: PLC0415 - slow to import, needs the network

        with output.step("searching the Hub for drafts"):
            search = search_drafts(target.snapshot)
        hub_candidates = search.candidates
        for note in search.notes:
            output.note("hub_search", note)
        if search.discarded:
            left_out = Counter(discarded.code for discarded in search.discarded)
            counts = ", ".join(f"{count} {code}" for code, count in left_out.most_common())
            output.note("hub_search", f"the Hub listed {left_out.total()} repos that cannot serve: {counts}")
    proposal = propose(
        target,
        cached_repo_ids=cached_repo_ids(),
        hub_candidates=hub_candidates,
        known=lambda repo_id: known_on_disk(repo_id, endpoint=hub_endpoint()),
    )
    discarded += proposal.discarded
    found: list[tuple[Candidate, Draft]] = []
    with output.step("reading the drafts") as step:
        for number, candidate in enumerate(proposal.candidates):
            step.count(number, len(proposal.candidates))
            try:
                found.append((candidate, _read(candidate, options, output)))
            except (ModelError, NetworkError, UsageError) as error:
                discarded.append(Discarded(candidate=candidate, code=error.code, text=error.message))
    return found, discarded


def _read(candidate: Candidate, options: PlanOptions, output: RemarkSink) -> Draft:
    """The candidate's model: from the catalogue where it is known there, for that asks nobody."""
    if candidate.repo_id is None:
        return Draft(method=candidate.method, num_speculative_tokens=1)
    row = lookup(candidate.repo_id)
    if row is None:
        model = load_model(
            candidate.repo_id,
            offline=options.offline,
            output=output,
            dtype=options.dtype,
            on_the_fly=options.quantization if options.gguf else None,
            as_draft=True,
            as_gguf=options.gguf,
        )
    else:
        if row.kind is RepoKind.MODEL and draft_head_method(row.config) is not None:
            row = replace(row, kind=RepoKind.DRAFT_HEAD)
        require_model(row, draft_heads=True)
        kind = options.quantization if options.gguf else None
        model = describe(row, dtype=options.dtype, on_the_fly=kind, gguf=options.gguf)
    method = method_of(model)
    return Draft(method=method, num_speculative_tokens=1, model=model)


class _Judge:
    """Turns a draft into an offer: best k, prediction, compatibility."""

    def __init__(
        self,
        options: PlanOptions,
        target: Model,
        devices: Sequence[Device],
        engine: EngineProfile,
        workload: Workload,
    ) -> None:
        self._target = target
        self._device = devices[0]
        self._engine = engine
        self._workload = workload
        self._demand: Demand = options.demand()
        tokens = options.num_speculative_tokens
        self._k_range = DEFAULT_K_RANGE if tokens is None else (tokens.least, tokens.most)
        self._tokenizer = tokenizer_facts(target)
        self._elsewhere = tuple(known_engine(name) for name in options.also_for)
        self._offline = is_offline(offline=options.offline)

    def offer(self, candidate: Candidate, draft: Draft) -> Offer:
        prediction = predict(
            self._target,
            draft,
            self._device,
            self._workload,
            self._demand,
            k_range=self._range_of(draft),
            k_step=self._step_of(draft),
        )
        k = max(1, prediction.num_speculative_tokens)
        chosen = replace(draft, num_speculative_tokens=k)
        return Offer(
            draft=chosen,
            candidate=candidate,
            compatibility=self._compatibility(chosen, self._engine.name, self._engine.version),
            prediction=prediction,
            elsewhere=tuple(
                found
                for name, version in self._elsewhere
                if (found := self._compatibility(chosen, name, version)) is not None
            ),
        )

    def _range_of(self, draft: Draft) -> tuple[int, int]:
        """The k to choose from; a head that drafts blocks proposes no more than its block holds."""
        least, most = self._k_range
        if draft.method in PARALLEL_HEADS and draft.model is not None:
            block = longest_block(draft.model.snapshot.repo_id, draft.model.snapshot.config)
            if block is not None:
                most = min(most, block)
        return min(least, most), most

    def _step_of(self, draft: Draft) -> int:
        """Whole rounds of the MTP layers: vLLM runs all of them in turn (config/speculative.py)."""
        built_in = draft.method is DraftMethod.MTP and draft.model is None
        return max(1, len(self._target.architecture.mtp_layers)) if built_in else 1

    def _compatibility(self, draft: Draft, engine: str, version: str) -> Compatibility | None:
        if engine not in judged_engines():
            return None
        facts: TokenizerFacts | None = None
        if draft.method is DraftMethod.DRAFT_MODEL and draft.model is not None:
            facts = tokenizer_facts(draft.model)
            if reading_would_help(self._tokenizer, facts):
                if self._tokenizer.vocabulary is None:
                    self._tokenizer = self._read(self._target)
                facts = self._read(draft.model)
        return judge_pair(
            engine,
            version,
            self._target,
            draft,
            self._tokenizer,
            facts,
            self._workload,
            draft_name=None if draft.model is None else draft.model.snapshot.folder,
        )

    def _read(self, model: Model) -> TokenizerFacts:
        """The facts with the tokenizer's file, from its folder, a cache, or in one request."""
        from model_catalog.tokenizer_source import load_tokenizer  # noqa: PLC0415 - seldom needed

        snapshot = model.snapshot
        folder = None if snapshot.folder is None else Path(snapshot.folder)
        ref = RepoRef(repo_id=snapshot.repo_id, revision=snapshot.revision, folder=folder)
        return tokenizer_facts(model, load_tokenizer(ref, snapshot, offline=self._offline))
