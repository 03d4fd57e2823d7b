"""May this draft serve this target under this engine? Each engine by its own rule, then the truth beyond it.

Owns the verdict. A check that cannot be made makes the verdict unknown, never accepted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from model_catalog.model import Model
from model_catalog.tokenizer import Sameness, TokenizerComparison, TokenizerFacts, compare_tokenizers
from planner.engines.base import Draft
from planner.speculation import rules_other_engines as others
from planner.speculation import rules_vllm
from planner.speculation.compatibility import Check, Compatibility, CompatibilityVerdict
from planner.speculation.pair_rules import Pair, structural_checks
from planner.workload import Workload

_RULES: Final[Mapping[str, Callable[[Pair], Iterator[Check]]]] = {
    "vllm": rules_vllm.checks,
    "sglang": others.sglang_checks,
    "llama.cpp": others.llama_cpp_checks,
    "tensorrt-llm": others.tensorrt_llm_checks,
    "transformers": others.transformers_checks,
}
_NO_TOKENIZER: Final = TokenizerComparison(
    sameness=Sameness.UNKNOWN, basis="the draft's tokenizer was not looked at"
)


def judged_engines() -> tuple[str, ...]:
    """Names of the engines whose rule is known."""
    return tuple(_RULES)


def judge_pair(
    engine: str,
    version: str,
    target: Model,
    draft: Draft,
    target_tokenizer: TokenizerFacts,
    draft_tokenizer: TokenizerFacts | None,
    workload: Workload,
    *,
    draft_name: str | None = None,
) -> Compatibility:
    """Every check of a pair under one engine, and what follows.

    ``draft_tokenizer`` is only looked at for stand-alone drafts: heads read the target's own ids. ``draft_name``
    is the repo or path as it will stand in the command; the draft's repo id by default. An engine without a known
    rule gives the verdict unknown.
    """
    comparison = (
        _NO_TOKENIZER if draft_tokenizer is None else compare_tokenizers(target_tokenizer, draft_tokenizer)
    )
    pair = Pair(
        version=_numbers(version),
        target=target,
        draft=draft,
        target_tokenizer=target_tokenizer,
        draft_tokenizer=draft_tokenizer,
        comparison=comparison,
        workload=workload,
        draft_name=draft_name or ("" if draft.model is None else draft.model.snapshot.repo_id),
    )
    rule = _RULES.get(engine.lower(), _no_rule)
    checks = (*structural_checks(pair), *rule(pair))
    return Compatibility(engine=engine, verdict=_verdict(checks), checks=checks)


def _verdict(checks: Sequence[Check]) -> CompatibilityVerdict:
    if any(check.refuses and check.passed is False for check in checks):
        return CompatibilityVerdict.REFUSED
    if any(check.passed is None for check in checks):
        return CompatibilityVerdict.UNKNOWN
    if any(check.passed is False for check in checks):
        return CompatibilityVerdict.ACCEPTED_WITH_WARNING
    return CompatibilityVerdict.ACCEPTED


def _no_rule(_pair: Pair) -> Iterator[Check]:
    text = f"this engine's rule is not known; known are {', '.join(_RULES)}"
    yield Check(name="engine", passed=None, text=text, by_engine=False)


def _numbers(version: str) -> tuple[int, ...]:
    """``0.33.0`` as (0, 33, 0); up to the first part that is no number."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
