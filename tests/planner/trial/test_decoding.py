"""One row on real, if tiny, models of transformers: the output is the target's, whatever the draft says."""

from itertools import pairwise

import pytest
from single_thread import as_the_child_runs  # noqa: F401 - a fixture

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'specplan[trial]'")
pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_decoders import DRAFTS, VOCABULARY, WINDOW, cached, decoder, disturbed  # noqa: E402 - only where torch is

from planner.trial.worker.decoding import decode_plain, decode_speculative  # noqa: E402 - as above
from planner.trial.worker.sampling import Greedy  # noqa: E402 - as above

pytestmark = pytest.mark.usefixtures("as_the_child_runs")
PROMPT = [7, 3, 11, 19, 2, 5]
NEW_TOKENS = 33
#: Keys and values alone, in full, in windows, by experts and compressed.
ATTENTION = ["llama", "gpt2", "qwen3", "mistral", "gemma2", "gemma3_text", "qwen2_moe", "deepseek_v3"]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("kind", ATTENTION)
def test_speculation_changes_nothing_whatever_the_draft(kind: str, draft: str) -> None:
    model = decoder(kind)
    target, guesser = cached(model), cached(DRAFTS[draft](model))
    (plain,) = decode_plain(target, [PROMPT], 2 * NEW_TOKENS, Greedy()).rows
    for k in (1, 3, 8):
        (quick,) = decode_speculative(target, guesser, [PROMPT], NEW_TOKENS, k, Greedy()).rows
        assert quick == plain[: len(quick)]
        assert NEW_TOKENS <= len(quick) <= NEW_TOKENS + k


@pytest.mark.parametrize("kind", ATTENTION)
def test_the_baseline_is_what_the_library_generates(kind: str) -> None:
    """``generate`` of transformers, greedy, without an end token: another implementation of the same."""
    model = decoder(kind)
    ids = torch.tensor([PROMPT])
    generated = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0
    )
    (plain,) = decode_plain(cached(model), [PROMPT], NEW_TOKENS, Greedy()).rows
    assert plain == generated[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("kind", ["mistral", "gemma2"])
def test_the_windows_are_shorter_than_what_is_decoded(kind: str) -> None:
    """Else the tests above would say nothing of them."""
    target = cached(decoder(kind))
    decode_plain(target, [PROMPT], NEW_TOKENS, Greedy())
    held = {layer.keys.shape[-2] for layer in target.cache.layers}
    assert WINDOW - 1 in held
    assert target.width > 2 * WINDOW


def test_a_draft_that_is_the_target_is_always_right() -> None:
    quick = decode_speculative(
        cached(decoder("llama")), cached(decoder("llama")), [PROMPT], NEW_TOKENS, 3, Greedy()
    )
    # 32 tokens after the first, four a round: eight rounds, all accepted.
    assert quick.accepted_counts == [0, 0, 0, 8]
    assert (quick.passes, quick.tokens) == (8, 32)


def test_every_round_is_full_though_more_tokens_come_than_were_asked_for() -> None:
    """30 tokens after the first are seven rounds of four and half a round, which is run in full."""
    quick = decode_speculative(
        cached(decoder("llama")), cached(decoder("llama")), [PROMPT], NEW_TOKENS - 2, 3, Greedy()
    )
    assert quick.accepted_counts == [0, 0, 0, 8]
    assert quick.tokens == 32


@pytest.mark.parametrize("k", [1, 3, 6])
def test_rounds_tokens_and_times_add_up(k: int) -> None:
    model = decoder("llama")
    quick = decode_speculative(cached(model), cached(disturbed(model, 0.03)), [PROMPT], NEW_TOKENS, k, Greedy())
    assert sum(quick.accepted_counts) == quick.passes
    assert quick.tokens == sum((1 + accepted) * rounds for accepted, rounds in enumerate(quick.accepted_counts))
    assert 0 < quick.draft_seconds + quick.verify_seconds <= quick.seconds


def test_caches_end_where_the_sequence_does() -> None:
    model = decoder("llama")
    target, draft = cached(model), cached(disturbed(model, 0.03))
    quick = decode_speculative(target, draft, [PROMPT], NEW_TOKENS, 4, Greedy())
    # The last token of all was chosen, and not yet read.
    assert target.width == target.cache.get_seq_length() == len(PROMPT) + quick.tokens
    assert draft.cache.get_seq_length() == draft.width
    assert target.width - 1 <= draft.width <= target.width


def test_a_time_that_has_passed_lets_one_step_be_taken() -> None:
    model = cached(decoder("llama"))
    assert decode_plain(model, [PROMPT], NEW_TOKENS, Greedy(), until=0).passes == 1
    assert (
        decode_speculative(model, cached(decoder("llama")), [PROMPT], NEW_TOKENS, 2, Greedy(), until=0).passes == 1
    )


@pytest.mark.parametrize("known", [VOCABULARY - 8, VOCABULARY + 8])
def test_the_draft_may_know_other_ids_than_the_target(known: int) -> None:
    """Vocabularies of one family are padded to different sizes; neither reads an id that it does not know."""
    target, draft = cached(decoder("llama")), cached(decoder("llama", vocab_size=known, seed=3))
    prompt = [*PROMPT, VOCABULARY - 1]
    (plain,) = decode_plain(target, [prompt], 2 * NEW_TOKENS, Greedy()).rows
    assert max(plain) >= VOCABULARY - 8  # it does choose what the smaller draft does not know
    (quick,) = decode_speculative(target, draft, [prompt], NEW_TOKENS, 3, Greedy()).rows
    assert quick == plain[: len(quick)]


def test_what_was_never_read_cannot_be_kept() -> None:
    target = cached(decoder("llama", layers=1))
    target.read_prompts([PROMPT])
    with pytest.raises(ValueError, match="cannot be kept"):
        target.rewind([len(PROMPT) + 1])
    target.rewind([len(PROMPT) - 2])
    assert target.cache.get_seq_length() == len(PROMPT) - 2


def test_a_plan_of_drafts_that_are_right_now_and_then_is_in_between() -> None:
    """The middling draft of these tests is neither of the extremes, or it would test nothing of its own."""
    model = decoder("llama")
    lengths = [
        decode_speculative(cached(model), cached(make(model)), [PROMPT], 60, 4, Greedy()).passes
        for make in DRAFTS.values()
    ]
    assert all(fewer < more for fewer, more in pairwise(lengths))
