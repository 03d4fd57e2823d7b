"""One pair under judgement, and the checks that hold under every engine.

Owns the structural refusals: a target as its own draft, a draft that is no smaller, a head built for another
target, tokenizers that have nothing in common. The engines' own rules are in the modules beside it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from model_catalog.drafts import HEADS, DraftMethod
from model_catalog.model import Model
from model_catalog.snapshot import RepoKind
from model_catalog.tokenizer import Sameness, TokenizerComparison, TokenizerFacts
from model_catalog.units import to_gib
from planner.engines.base import Draft
from planner.speculation.compatibility import Check
from planner.workload import Workload

#: Keys under which a head states the width of the target it reads (EAGLE-3 and speculators; Gemma 4 assistants).
_TARGET_WIDTH_KEYS: Final = ("target_hidden_size", "backbone_hidden_size")
#: Endings of a repo's name that mark a storage format, not another model.
_FORMAT_ENDINGS: Final = ("-bf16", "-fp8", "-awq", "-int4", "-nvfp4", "-hf", "-original")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A target, a draft and what is known of their tokenizers. ``version`` is the engine's, as numbers.

    ``draft_model`` is the draft's model, with its tokenizer's facts; None where the method has no model.
    ``draft_name`` is the repo or path as it stands in the command.
    """

    version: tuple[int, ...]
    target: Model
    draft: Draft
    target_tokenizer: TokenizerFacts
    draft_tokenizer: TokenizerFacts | None
    comparison: TokenizerComparison
    workload: Workload
    draft_name: str

    @property
    def stand_alone(self) -> Model | None:
        """The draft's model where it is one of its own, with its own vocabulary tables."""
        return self.draft.model if self.draft.method is DraftMethod.DRAFT_MODEL else None

    @property
    def rows(self) -> tuple[int, int]:
        """Embedding rows by config of target and draft; of a draft without a model, the target's own."""
        model = self.draft.model
        ours = self.target.architecture.vocabulary_size
        return ours, ours if model is None else model.architecture.vocabulary_size


def structural_checks(pair: Pair) -> Iterator[Check]:
    """What rules a pair out whatever the engine."""
    model, method = pair.draft.model, pair.draft.method
    if method is DraftMethod.MTP and model is None:
        yield _built_in_layers(pair)
    if model is None:
        return
    yield from _kind(model, method)
    if method is DraftMethod.DRAFT_MODEL:
        yield from _smaller(pair.target, model)
    elif method in HEADS or method is DraftMethod.MTP:
        yield from _built_for(pair.target, model)


def token_check(pair: Pair, *, engine: str, consequence: str) -> Check:
    """The truth beyond an engine's rule: does every id mean the same token to both?

    ``consequence`` says what the engine does with ids that differ. Unrelated tokenizers are refused: the draft's
    ids mean nothing to the target, so next to nothing would be accepted.
    """
    comparison = pair.comparison
    if comparison.sameness is Sameness.UNKNOWN:
        text = f"whether ids mean the same tokens is not known: {comparison.basis}"
        remedy = "download both tokenizers (hf download REPO tokenizer.json), or let specplan ask the Hub"
        return own_check("same tokens", None, text, remedy)
    if comparison.sameness is Sameness.SAME:
        return own_check("same tokens", True, f"every id means the same token: {comparison.basis}")
    differ = described_difference(comparison)
    if comparison.unrelated:
        text = f"{differ}: next to nothing would be accepted"
        return own_check("same tokens", False, text, "choose a draft of the target's own family")
    text = f"{differ}; {engine} {consequence}"
    remedy = "choose a draft published with the target's tokenizer"
    return own_check("same tokens", False, text, remedy, refuses=False)


def described_difference(comparison: TokenizerComparison) -> str:
    """How two tokenizers differ, with the count, up to four examples, and how it is known."""
    count = comparison.differing_ids
    examples = f" (target / draft: {'; '.join(comparison.examples)})" if comparison.examples else ""
    if count is None:
        return f"the tokenizers differ: {comparison.basis}"
    ids = "1 id differs" if count == 1 else f"{count:,} ids differ"
    return f"{ids}{examples}: {comparison.basis}"


def own_check(
    name: str, passed: bool | None, text: str, remedy: str | None = None, *, refuses: bool = True
) -> Check:
    """A check by us, beyond the engine's."""
    return Check(name=name, passed=passed, text=text, by_engine=False, remedy=remedy, refuses=refuses)


def _kind(model: Model, method: DraftMethod) -> Iterator[Check]:
    head = model.snapshot.kind is RepoKind.DRAFT_HEAD
    if method is DraftMethod.DRAFT_MODEL and head:
        text = f"{model.snapshot.repo_id} is a draft head: it runs on its target's hidden states only"
        yield own_check("kind", False, text, "name the head's own method (eagle3, dflash, ...)")
    elif method in HEADS and not head:
        text = f"{model.snapshot.repo_id} is a whole model, not a head for {method.value}"
        yield own_check("kind", False, text, "name it with the method draft_model")


def _smaller(target: Model, draft: Model) -> Iterator[Check]:
    ours, theirs = target.snapshot, draft.snapshot
    if ours.repo_id.lower() == theirs.repo_id.lower():
        text = f"{ours.repo_id} as its own draft costs as much as it saves"
        yield own_check("another model", False, text, "choose a smaller model of the same family")
        return
    size, limit = draft.weights.resident_bytes(), target.weights.resident_bytes()
    figures = f"{to_gib(size.low_bytes)} GiB of weights against the target's {to_gib(limit.low_bytes)} GiB"
    if not (target.weights.complete and draft.weights.complete):
        text = f"a part of the weights has no known size ({figures} so far)"
        yield own_check("smaller", None, text)
    elif size.low_bytes >= limit.low_bytes:
        text = f"the draft is no smaller: {figures}"
        yield own_check("smaller", False, text, "choose a smaller draft")
    else:
        yield own_check("smaller", True, figures)


def _built_in_layers(pair: Pair) -> Check:
    count = len(pair.target.architecture.mtp_layers)
    if count:
        return Check(name="mtp layers", passed=True, text=f"the target ships {count}")
    text = f"{pair.target.snapshot.repo_id} ships no multi-token-prediction layers"
    return Check(name="mtp layers", passed=False, text=text, remedy="choose another method")


def _built_for(target: Model, head: Model) -> Iterator[Check]:
    """Engines check none of this: a wrong width fails while loading, a wrong target drafts nonsense."""
    width, wanted = _target_width(head), target.architecture.hidden_size
    text = f"the head reads hidden states of {width:,}; the target's are {wanted:,} wide"
    yield own_check("target width", width == wanted, text, None if width == wanted else _OTHER_HEAD)
    rows, target_rows = head.architecture.vocabulary_size, target.architecture.vocabulary_size
    text = f"the head's target has a vocabulary of {rows:,} rows; this one has {target_rows:,}"
    same = rows == target_rows
    yield own_check("target vocabulary", same, text, None if same else _OTHER_HEAD)
    verifier = _verifier(head.snapshot.config)
    if verifier is not None:
        matches = _same_model(verifier, target.snapshot.repo_id)
        text = f"the head's config names {verifier} as its target"
        remedy = None if matches else "acceptance on another target is unmeasured; choose its own head"
        yield own_check("named target", matches, text, remedy, refuses=False)


_OTHER_HEAD: Final = "choose a head that was trained for this target"


def _target_width(head: Model) -> int:
    """The width of the hidden states that a head reads, by its config; its own width where it states no other."""
    for key in _TARGET_WIDTH_KEYS:
        value = head.snapshot.config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return head.architecture.hidden_size


def _verifier(config: Mapping[str, object]) -> str | None:
    """The target that a head in the speculators format names (``speculators_config.verifier.name_or_path``)."""
    section = config.get("speculators_config")
    verifier = section.get("verifier") if isinstance(section, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    usable = isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()
    return str(name) if usable else None


def _same_model(first: str, second: str) -> bool:
    """Whether two repos hold one model by name: publisher and storage format aside."""
    return _bare_name(first) == _bare_name(second)


def _bare_name(repo_id: str) -> str:
    name = repo_id.lower().rstrip("/").rpartition("/")[2].removeprefix("meta-")
    for ending in ("-dynamic", *_FORMAT_ENDINGS):
        name = name.removesuffix(ending)
    return name
