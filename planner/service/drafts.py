"""What ``--draft`` and ``--num-speculative-tokens`` mean for a target: draft records, loaded and checked."""

from dataclasses import dataclass
from typing import Final

from model_catalog.drafts import METHOD_OF_HEAD, Discarded, DraftMethod
from model_catalog.errors import ModelNotFoundError, NetworkError, NotAModelError, UsageError
from model_catalog.families.heads import draft_head_method
from model_catalog.model import Model
from model_catalog.near import did_you_mean
from model_catalog.snapshot import RepoKind
from planner.engines.base import Draft
from planner.service.model_source import load_model
from planner.service.remarks import RemarkSink
from planner.service.request import DEFAULT_SPECULATIVE_TOKENS, PlanOptions
from planner.speculation.selection import Offer

NO_DRAFT: Final = "none"
BUILT_IN_DRAFTS: Final = {"mtp": DraftMethod.MTP, "ngram": DraftMethod.NGRAM}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """The drafts to judge, those that could not even be read, and whether the user named them.

    ``asked`` is False with ``--draft none``: then nobody asks whether speculation pays.
    """

    offers: tuple[Offer, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    named: bool = False
    asked: bool = True


def check_draft_names(names: tuple[str, ...]) -> None:
    """Refuse ``none`` beside a draft, before anything is read.

    Raises:
        UsageError: when it is.
    """
    if NO_DRAFT in names and len(names) > 1:
        raise UsageError(
            "none excludes every other draft", subject="--draft none", hint="leave it out, or leave the others out"
        )


def load_drafts(options: PlanOptions, target: Model, output: RemarkSink) -> tuple[Draft, ...]:
    """The drafts asked for, in the order given; empty where none is.

    Raises:
        UsageError: MTP without MTP layers. ModelError, NetworkError: as for the target.
    """
    check_draft_names(options.drafts)
    tokens = options.num_speculative_tokens
    k = DEFAULT_SPECULATIVE_TOKENS if tokens is None else tokens.most
    names = dict.fromkeys(name for name in options.drafts if name != NO_DRAFT)
    return tuple(_load(name, k, options, target, output) for name in names)


def _load(name: str, k: int, options: PlanOptions, target: Model, output: RemarkSink) -> Draft:
    method = BUILT_IN_DRAFTS.get(name.lower())
    if method is DraftMethod.MTP and not target.architecture.mtp_layers:
        raise UsageError(
            f"{target.snapshot.repo_id} has no multi-token-prediction layers",
            subject="--draft mtp",
            hint="name a draft model, or use --draft ngram",
        )
    if method is not None:
        return Draft(method=method, num_speculative_tokens=k)
    try:
        model = load_model(
            name,
            offline=options.offline,
            output=output,
            dtype=options.dtype,
            on_the_fly=options.quantization if options.gguf else None,
            as_draft=True,
            as_gguf=options.gguf,
        )
    except (ModelNotFoundError, NetworkError) as error:
        if "/" not in name and "did you mean" not in error.hint:
            error.hint = did_you_mean(name, [NO_DRAFT, *BUILT_IN_DRAFTS], error.hint)
        raise
    return Draft(method=method_of(model), num_speculative_tokens=k, model=model)


def method_of(model: Model) -> DraftMethod:
    """How this model drafts.

    Raises:
        NotAModelError: a head of a kind that is not planned.
    """
    if model.snapshot.kind is not RepoKind.DRAFT_HEAD:
        return DraftMethod.DRAFT_MODEL
    name = draft_head_method(model.snapshot.config)
    method = METHOD_OF_HEAD.get(name or "")
    if method is None:
        raise NotAModelError(
            f"is a draft head of a kind that is not planned yet ({name})",
            subject=model.snapshot.repo_id,
            hint="name a draft model, an EAGLE, DFlash or DSpark head, mtp (the target's own layers) or ngram",
        )
    return method
