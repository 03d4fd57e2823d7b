"""What SGLang, llama.cpp, TensorRT-LLM and transformers check of a pair.

Sources: SGLang 0.5.23 (``arg_groups/speculative_hook.py``; sgl-project/sglang#23838); llama.cpp
``common/speculative.cpp`` (``common_speculative_are_compatible``; ggml-org/llama.cpp#22358 for bos and eos);
TensorRT-LLM ``llmapi/llm_args.py`` and its page on speculative decoding; transformers 5.24
``generation/candidate_generator.py`` and ``generation/utils.py``.
"""

from collections.abc import Iterator
from typing import Final

from model_catalog.architecture import RecurrentState
from model_catalog.drafts import DraftMethod
from model_catalog.tokenizer import Sameness, TokenizerFacts
from planner.speculation.compatibility import Check
from planner.speculation.pair_rules import Pair, described_difference, token_check

#: llama.cpp: SPEC_VOCAB_MAX_SIZE_DIFFERENCE and SPEC_VOCAB_CHECK_START_TOKEN_ID.
LLAMA_CPP_MAX_SIZE_DIFFERENCE: Final = 128
LLAMA_CPP_FIRST_COMPARED_ID: Final = 5
_NO_SPECULATION: Final = "llama-server would start without speculation and only log it"
_TRANSFORMERS_LACKS: Final = frozenset({DraftMethod.EAGLE, DraftMethod.EAGLE3, DraftMethod.DSPARK})
_SAME_FAMILY: Final = "choose a draft published with the target's tokenizer"


def sglang_checks(pair: Pair) -> Iterator[Check]:
    """Algorithm STANDALONE: equal vocab_size and equal ``get_vocab()``; heads are not checked."""
    if pair.stand_alone is None:
        return
    yield _equal_rows(pair, "SGLang")
    comparison = pair.comparison
    if comparison.sameness is Sameness.UNKNOWN:
        text = f"SGLang wants get_vocab() to be identical; whether it is, is not known: {comparison.basis}"
        yield Check(name="get_vocab", passed=None, text=text, remedy="download both tokenizers")
    elif comparison.sameness is Sameness.SAME:
        text = f"get_vocab() is identical: {comparison.basis}"
        yield Check(name="get_vocab", passed=True, text=text)
    else:
        text = f"SGLang wants get_vocab() to be identical: {described_difference(comparison)}"
        yield Check(name="get_vocab", passed=False, text=text, remedy=_SAME_FAMILY)


def llama_cpp_checks(pair: Pair) -> Iterator[Check]:
    """Sizes within 128, one vocabulary type, bos and eos where they are added, equal texts from id 5."""
    if pair.draft.method is DraftMethod.EAGLE:
        text = "llama.cpp drafts with EAGLE-3, DFlash, DSpark and MTP heads, not with first-generation EAGLE heads"
        yield Check(name="method", passed=False, text=text, remedy="choose an EAGLE-3 head")
    if pair.stand_alone is None or pair.draft_tokenizer is None:
        return
    ours, theirs = pair.rows
    apart = abs(ours - theirs)
    near = apart <= LLAMA_CPP_MAX_SIZE_DIFFERENCE
    text = f"vocabularies of {ours:,} and {theirs:,} differ by {apart:,}; at most 128 may" + (
        "" if near else f": {_NO_SPECULATION}"
    )
    yield Check(name="vocabulary size", passed=near, text=text, remedy=None if near else _SAME_FAMILY)
    yield _vocabulary_type(pair, pair.draft_tokenizer)
    yield _bos(pair, pair.draft_tokenizer)
    yield _texts(pair, min(ours, theirs))


def tensorrt_llm_checks(pair: Pair) -> Iterator[Check]:
    """No check of the pair when it starts; its documentation requires the same tokenizer."""
    if pair.draft.method is DraftMethod.EAGLE:
        text = "TensorRT-LLM drafts with EAGLE-3 heads, not with first-generation EAGLE heads"
        yield Check(name="method", passed=False, text=text, remedy="choose an EAGLE-3 head")
    if pair.stand_alone is not None:
        consequence = "checks nothing at start, but its documentation requires the same tokenizer"
        yield token_check(pair, engine="TensorRT-LLM", consequence=consequence)


def transformers_checks(pair: Pair) -> Iterator[Check]:
    """``generate(assistant_model=...)``: batch 1, no recurrent target; unequal sizes need both tokenizers."""
    method = pair.draft.method
    if method in _TRANSFORMERS_LACKS:
        text = f"transformers cannot draft with {method.value} heads"
        yield Check(name="method", passed=False, text=text, remedy="choose a stand-alone draft")
    batch = pair.workload.batch
    text = f"assisted generation takes one sequence at a time; {batch} asked for"
    remedy = None if batch == 1 else "use --batch 1, or a serving engine"
    yield Check(name="batch", passed=batch == 1, text=text, remedy=remedy)
    if any(isinstance(c, RecurrentState) for layer in pair.target.architecture.layers for c in layer.caches):
        text = "the target keeps a recurrent state, which assisted generation cannot roll back"
        yield Check(name="target state", passed=False, text=text, remedy="use a serving engine")
    if pair.stand_alone is not None:
        yield from _assistant(pair)


def _assistant(pair: Pair) -> Iterator[Check]:
    ours, theirs = pair.rows
    if ours == theirs:
        text = f"vocab_size is {ours:,} in both: generate() takes the draft without assistant_tokenizer"
        yield Check(name="vocab_size", passed=True, text=text)
        consequence = "takes them for one vocabulary: where these ids occur the draft guesses wrong"
        yield token_check(pair, engine="transformers", consequence=consequence)
        return
    facts = (pair.target_tokenizer, pair.draft_tokenizer)
    notes = [note for side in facts if side is not None for note in side.notes]
    text = (
        f"vocab_size is {ours:,} and {theirs:,}: generate() needs tokenizer and assistant_tokenizer, and "
        "re-encodes the draft's text (greedy) or drafts within the shared tokens (sampling)"
    )
    if notes:
        text = f"{text}; {'; '.join(notes)}"
    remedy = "pass tokenizer=... and assistant_tokenizer=... to generate()"
    yield Check(name="vocab_size", passed=None if notes else True, text=text, remedy=remedy)


def _equal_rows(pair: Pair, engine: str) -> Check:
    ours, theirs = pair.rows
    if ours == theirs:
        return Check(name="vocab_size", passed=True, text=f"vocab_size is {ours:,} in both")
    apart = abs(ours - theirs)
    text = f"{engine} wants equal vocab_size: {ours:,} (target) and {theirs:,} (draft) differ by {apart:,}"
    remedy = f"choose a draft with vocab_size {ours:,}"
    return Check(name="vocab_size", passed=False, text=text, remedy=remedy)


def _vocabulary_type(pair: Pair, draft: TokenizerFacts) -> Check:
    """GGUF's types are finer than tokenizer.json's (BPE with byte fallback is SPM): equal names prove nothing."""
    comparison, ours, theirs = pair.comparison, pair.target_tokenizer.model_type, draft.model_type
    if ours is not None and theirs is not None and ours != theirs:
        text = f"vocabulary types {ours} and {theirs} differ: {_NO_SPECULATION}"
        return Check(name="vocabulary type", passed=False, text=text, remedy=_SAME_FAMILY)
    if comparison.sameness is Sameness.UNKNOWN or comparison.unrelated:
        text = f"whether both convert to one GGUF vocabulary type is not known: {comparison.basis}"
        return Check(name="vocabulary type", passed=None, text=text)
    return Check(name="vocabulary type", passed=True, text="both are of one origin, so of one type")


def _bos(pair: Pair, draft: TokenizerFacts) -> Check:
    """Ids of bos and eos count only where they are added; decoders do not add eos (llama.cpp #22358)."""
    target = pair.target_tokenizer
    flags, ids = (target.add_bos, draft.add_bos), (target.bos_id, draft.bos_id)
    if None not in flags and flags[0] != flags[1]:
        text = f"add_bos is {_yes(flags[0])} in the target and {_yes(flags[1])} in the draft: {_NO_SPECULATION}"
        return Check(name="bos and eos", passed=False, text=text, remedy=_SAME_FAMILY)
    if True in flags and None not in ids and ids[0] != ids[1]:
        text = f"bos is id {ids[0]} in the target and id {ids[1]} in the draft: {_NO_SPECULATION}"
        return Check(name="bos and eos", passed=False, text=text, remedy=_SAME_FAMILY)
    if False in flags and None not in flags:
        return Check(name="bos and eos", passed=True, text="neither adds bos, so its id does not count")
    if pair.comparison.sameness is Sameness.SAME or (None not in ids and ids[0] == ids[1]):
        text = "one tokenizer, so one bos" if ids[0] is None else f"bos is id {ids[0]} in both"
        return Check(name="bos and eos", passed=True, text=text)
    text = "whether both add the same bos is not known"
    return Check(name="bos and eos", passed=None, text=text)


def _texts(pair: Pair, end: int) -> Check:
    """Padding rows are ``[PAD<id>]`` in both files, so only real tokens can differ."""
    comparison, start = pair.comparison, LLAMA_CPP_FIRST_COMPARED_ID
    differs = comparison.differs_within(start, end)
    span = f"ids {start} to {end - 1:,}"
    if differs is None:
        text = f"whether the texts of {span} are equal is not known: {comparison.basis}"
        return Check(name="token texts", passed=None, text=text, remedy="download both tokenizers")
    if differs:
        text = f"llama.cpp compares the texts of {span}: {described_difference(comparison)}; {_NO_SPECULATION}"
        return Check(name="token texts", passed=False, text=text, remedy=_SAME_FAMILY)
    return Check(name="token texts", passed=True, text=f"the texts of {span} are equal")


def _yes(flag: bool | None) -> str:
    return "on" if flag else "off"
