"""What vLLM checks of a pair, and what it changes without asking.

Source: vLLM 0.33.0 ``config/speculative.py`` (vocabulary, draft parallelism, the method taken from the path),
``config/vllm.py`` (``_limit_max_model_len_to_draft``), ``v1/spec_decode/vocab_mapping.py``; wheels of 0.15, 0.20
and 0.25 for when a setting or method appeared.
"""

from collections.abc import Iterator

from model_catalog.architecture import RecurrentState
from model_catalog.model import Model
from planner.commands.vllm_versions import DRAFT_CAPS_TARGET_SINCE, FIELD_SINCE, METHOD_BY_PATH, METHOD_SINCE
from planner.speculation.compatibility import DRAFT_TP, Check
from planner.speculation.pair_rules import Pair, token_check


def checks(pair: Pair) -> Iterator[Check]:
    """The engine's own checks, then what it does not check."""
    yield from _method(pair)
    yield from _state(pair)
    draft = pair.stand_alone
    if draft is None:
        return
    yield _rows(pair)
    yield token_check(
        pair,
        engine="vLLM",
        consequence="compares sizes only and starts: where these ids occur the draft guesses wrong",
    )
    yield from _path(pair)
    yield from _heads(draft, pair.workload.tp)
    if pair.version >= DRAFT_CAPS_TARGET_SINCE:
        yield from _context(draft, pair.workload.context_tokens)
    if pair.target.architecture.multimodal and not draft.architecture.multimodal:
        text = "the target reads images, the draft only text: nothing is gained on image tokens"
        yield Check(name="text only", passed=True, text=text)


def _method(pair: Pair) -> Iterator[Check]:
    method = pair.draft.method
    since = METHOD_SINCE.get(method, (0, 0))
    if pair.version >= since:
        return
    first = ".".join(map(str, since))
    text = f"vLLM has the method {method.value} since {first}; this version has it not"
    yield Check(name="method", passed=False, text=text, remedy=f"use vLLM {first} or newer")


def _state(pair: Pair) -> Iterator[Check]:
    """Mamba-1 layers step one token at a time: a step of k + 1 fails an assertion, and nothing is rolled back.

    Source: vLLM 0.32.0 ``layers/mamba/mamba_mixer.py`` (no ``num_accepted_tokens``, no ``query_start_loc``, which
    Mamba-2, gated delta nets and short convolutions have) and ``ops/mamba_ssm.py`` (``selective_state_update``).
    """
    for owner, model in (("target", pair.target), ("draft", pair.stand_alone)):
        rules = () if model is None else [r for layer in model.architecture.decoder_layers for r in layer.caches]
        if any(isinstance(rule, RecurrentState) and rule.kind == "mamba1" for rule in rules):
            text = f"the {owner} has Mamba-1 layers, whose state vLLM cannot roll back when tokens are rejected"
            remedy = "use --draft none" if owner == "target" else "choose a draft without Mamba-1 layers"
            yield Check(name=f"{owner} state", passed=False, text=text, remedy=remedy)
            return


def _rows(pair: Pair) -> Check:
    ours, theirs = pair.rows
    if ours == theirs:
        text = f"config vocab_size is {ours:,} in both"
        return Check(name="vocab_size", passed=True, text=text)
    text = f"config vocab_size {ours:,} (target) and {theirs:,} (draft) must be equal; they differ by " + (
        f"{abs(ours - theirs):,}"
    )
    other = f"choose a draft with vocab_size {ours:,}"
    if pair.version < FIELD_SINCE["use_heterogeneous_vocab"]:
        remedy = f"{other}, or vLLM 0.25 or newer with use_heterogeneous_vocab"
    else:
        remedy = (
            f'{other}; or "use_heterogeneous_vocab": true, which drafts greedily, excludes '
            "use_local_argmax_reduction, needs the draft's own tokenizer files and runs on the V1 model runner"
        )
    remedy += ". Do not edit vocab_size in config.json: the missing rows would be zeros"
    return Check(name="vocab_size", passed=False, text=text, remedy=remedy)


def _path(pair: Pair) -> Iterator[Check]:
    name = pair.draft_name.lower()
    for part, method in METHOD_BY_PATH:
        if part in name:
            text = (
                f"the draft's path has {part!r} in it, so vLLM would load it as {method}, whatever method is asked"
            )
            remedy = f"serve it from a local folder whose path has no {part!r}"
            yield Check(name="path", passed=False, text=text, remedy=remedy)
            return


def _heads(draft: Model, tp: int) -> Iterator[Check]:
    """The draft runs at the target's tensor-parallel size, and its heads must divide by it."""
    heads = draft.architecture.attention_heads
    if tp == 1 or not heads:
        return
    divides = heads % tp == 0
    text = f"the draft's {heads} attention heads {'divide' if divides else 'do not divide'} by tp {tp}"
    remedy = None if divides else "choose another draft, or a tensor-parallel size that divides both"
    yield Check(name=DRAFT_TP, passed=divides, text=text, remedy=remedy)


def _context(draft: Model, context_tokens: int) -> Iterator[Check]:
    limit = draft.architecture.max_context_tokens
    if limit is None or limit >= context_tokens:
        return
    text = (
        f"the draft takes {limit:,} tokens: vLLM lowers the target's max_model_len to that, with no more than a "
        f"warning; {context_tokens:,} were asked for"
    )
    remedy = f"choose a draft with a longer context, or plan for --context {limit}"
    yield Check(name="draft context", passed=False, text=text, remedy=remedy, refuses=False)
