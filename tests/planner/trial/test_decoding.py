"""The loop on real, if tiny, models of transformers: its output is the target's, whatever the draft says."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'specplan[trial]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from planner.trial.worker.decoding import (  # noqa: E402 - only where torch is
    CachedModel,
    UncroppableCacheError,
    decode_plain,
    decode_speculative,
)

VOCABULARY = 50
PROMPT = [7, 3, 11, 19, 2, 5]
NEW_TOKENS = 33


@pytest.fixture(autouse=True)
def as_the_child_runs() -> Iterator[None]:
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, about its future
        yield


def llama(seed: int, layers: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    return transformers.LlamaForCausalLM(config).eval()


def gpt2(seed: int, layers: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=layers, n_head=4, n_positions=256)
    return transformers.GPT2LMHeadModel(config).eval()


def cached(model: Any) -> CachedModel:
    return CachedModel(model=model, device="cpu")


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("family", [llama, gpt2])
def test_speculation_changes_nothing_whatever_the_draft(family: Any, k: int) -> None:
    target = cached(family(0, 3))
    plain = decode_plain(target, PROMPT, NEW_TOKENS)
    for draft in (family(0, 3), family(1, 1)):  # one that is always right, one that hardly ever is
        quick = decode_speculative(target, cached(draft), PROMPT, NEW_TOKENS, k)
        assert quick.tokens == plain.tokens
        assert len(quick.tokens) == NEW_TOKENS


def test_the_baseline_is_what_the_library_generates() -> None:
    """``generate`` of transformers, greedy, without an end token: another implementation of the same."""
    model = llama(0, 3)
    ids = torch.tensor([PROMPT])
    model.generation_config.eos_token_id = None
    generated = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0
    )
    assert decode_plain(cached(model), PROMPT, NEW_TOKENS).tokens == generated[0, len(PROMPT) :].tolist()


def test_a_draft_that_is_the_target_is_always_right() -> None:
    quick = decode_speculative(cached(llama(0, 2)), cached(llama(0, 2)), PROMPT, NEW_TOKENS, 3)
    # 32 tokens after the first, four a round: eight full rounds, all accepted.
    assert quick.accepted_counts == [0, 0, 0, 8]
    assert (quick.rounds, quick.drafted) == (8, 24)


def test_only_full_rounds_are_counted() -> None:
    """31 tokens after the first are seven rounds of four and one of three, of another shape."""
    quick = decode_speculative(cached(llama(0, 2)), cached(llama(0, 2)), PROMPT, NEW_TOKENS - 1, 3)
    assert quick.accepted_counts == [0, 0, 0, 7]
    assert quick.rounds == 7


def test_caches_end_where_the_sequence_does() -> None:
    target, draft = cached(llama(0, 3)), cached(llama(1, 1))
    decode_speculative(target, draft, PROMPT, NEW_TOKENS, 4)
    assert target.length == len(PROMPT) + NEW_TOKENS - 1
    assert target.cache.get_seq_length() == target.length
    assert draft.cache.get_seq_length() == draft.length <= target.length


def test_a_cache_that_cannot_go_back_is_refused() -> None:
    target = cached(llama(0, 1))
    target.advance(PROMPT)
    target.cache = object()
    with pytest.raises(UncroppableCacheError, match="object"):
        target.crop(2)
