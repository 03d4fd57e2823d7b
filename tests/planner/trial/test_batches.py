"""A batch yields what its rows yield alone, though they accept different lengths."""

import pytest
from single_thread import as_the_child_runs  # noqa: F401 - a fixture

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'specplan[trial]'")
pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_decoders import DRAFTS, cached, decoder, disturbed  # noqa: E402 - only where torch is

from planner.trial.worker.decoding import decode_plain, decode_speculative  # noqa: E402 - as above
from planner.trial.worker.sampling import Greedy  # noqa: E402 - as above

pytestmark = pytest.mark.usefixtures("as_the_child_runs")
#: Of different lengths, so that three are padded.
PROMPTS = [[7, 3, 11, 19, 2, 5], [4, 9, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [33, 21, 40, 7]]
NEW_TOKENS = 30
#: Full attention, learned positions, windows alone, windows and full layers in turn, compressed keys.
KINDS = ["llama", "gpt2", "mistral", "gemma2", "deepseek_v3"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_batch_yield_what_they_yield_alone(kind: str) -> None:
    model = decoder(kind)
    target = cached(model)
    alone = [decode_plain(target, [prompt], 2 * NEW_TOKENS, Greedy()).rows[0] for prompt in PROMPTS]
    assert decode_plain(target, PROMPTS, 2 * NEW_TOKENS, Greedy()).rows == alone
    for draft in DRAFTS.values():
        guesser = cached(draft(model))
        for k in (1, 4):
            quick = decode_speculative(target, guesser, PROMPTS, NEW_TOKENS, k, Greedy())
            assert quick.rows == [row[: len(found)] for row, found in zip(alone, quick.rows, strict=True)]
            assert NEW_TOKENS <= max(map(len, quick.rows)) <= NEW_TOKENS + k


def test_rows_do_accept_different_lengths() -> None:
    """Else the test above would say nothing of shifted caches."""
    model = decoder("llama")
    quick = decode_speculative(cached(model), cached(disturbed(model, 0.03)), PROMPTS, NEW_TOKENS, 4, Greedy())
    assert len({len(row) for row in quick.rows}) > 1
    assert sum(count > 0 for count in quick.accepted_counts) > 2


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_rounds_and_tokens_add_up(rows: int, k: int) -> None:
    model = decoder("llama")
    target, draft = cached(model), cached(disturbed(model, 0.03))
    quick = decode_speculative(target, draft, PROMPTS[:rows], NEW_TOKENS, k, Greedy())
    assert sum(quick.accepted_counts) == quick.passes * rows
    assert quick.tokens == sum((1 + accepted) * rounds for accepted, rounds in enumerate(quick.accepted_counts))
    plain = decode_plain(target, PROMPTS[:rows], NEW_TOKENS, Greedy())
    assert (plain.passes, plain.tokens) == (NEW_TOKENS - 1, rows * (NEW_TOKENS - 1))


def test_a_cache_is_no_wider_than_its_longest_row() -> None:
    """Holes would widen it with every round."""
    model = decoder("llama")
    target, draft = cached(model), cached(disturbed(model, 0.03))
    quick = decode_speculative(target, draft, PROMPTS, NEW_TOKENS, 4, Greedy())
    read = [len(prompt) + len(row) - 1 for prompt, row in zip(PROMPTS, quick.rows, strict=True)]
    assert target.lengths == read
    assert target.width == target.cache.get_seq_length() == max(read)
    assert all(have in (wanted - 1, wanted) for have, wanted in zip(draft.lengths, read, strict=True))


def test_a_batch_of_equal_prompts_needs_no_padding() -> None:
    target = cached(decoder("llama"))
    plain = decode_plain(target, [PROMPTS[0]] * 3, NEW_TOKENS, Greedy())
    assert target.padding == [0, 0, 0]
    assert plain.rows == [plain.rows[0]] * 3
