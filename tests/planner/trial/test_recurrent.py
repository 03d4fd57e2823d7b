"""State that cannot be cropped: taken back by snapshots where that is exact, refused with the reason where not."""

import pytest
from single_thread import as_the_child_runs  # noqa: F401 - a fixture

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'specplan[trial]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_decoders import DRAFTS, cached, decoder, disturbed  # noqa: E402 - only where torch is

from planner.trial.worker.decoding import (  # noqa: E402 - as above
    UncroppableCacheError,
    decode_plain,
    decode_speculative,
)
from planner.trial.worker.sampling import Greedy  # noqa: E402 - as above

pytestmark = pytest.mark.usefixtures("as_the_child_runs")
PROMPT = [7, 3, 11, 19, 2, 5]
NEW_TOKENS = 25
#: State space alone and beside attention, in other layers and in the same, and linear attention.
BY_SNAPSHOT = ["mamba2", "bamba", "falcon_h1", "qwen3_next"]
#: Its convolutions keep their last inputs, which can be cropped.
BY_CROPPING = ["lfm2"]
#: Several tokens at once start from an empty state in the library's own scan.
EMPTY_STARTS = ["mamba", "jamba"]


@pytest.mark.parametrize("kind", BY_SNAPSHOT + BY_CROPPING)
def test_speculation_yields_what_the_library_generates(kind: str) -> None:
    model = decoder(kind)
    target = cached(model)
    ids = torch.tensor([PROMPT])
    generated = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=2 * NEW_TOKENS, do_sample=False, pad_token_id=0
    )
    (plain,) = decode_plain(target, [PROMPT], 2 * NEW_TOKENS, Greedy()).rows
    assert plain == generated[0, len(PROMPT) :].tolist()
    for draft in DRAFTS.values():
        for k in (1, 4):
            (quick,) = decode_speculative(target, cached(draft(model)), [PROMPT], NEW_TOKENS, k, Greedy()).rows
            assert quick == plain[: len(quick)]
    assert target.by_snapshot == (kind in BY_SNAPSHOT)


@pytest.mark.parametrize("kind", EMPTY_STARTS)
def test_a_target_that_forgets_its_state_in_a_pass_of_several_tokens_is_refused(kind: str) -> None:
    with pytest.raises(UncroppableCacheError, match=f"{kind}: one pass of several tokens"):
        decode_speculative(cached(decoder(kind)), cached(decoder("llama")), [PROMPT], NEW_TOKENS, 3, Greedy())


@pytest.mark.parametrize("kind", EMPTY_STARTS + BY_SNAPSHOT)
def test_any_of_them_can_draft_for_it_reads_one_token_a_step(kind: str) -> None:
    """A draft that is wrong everywhere would hide a wrong state: the same weights must always be right."""
    target = cached(decoder("llama"))
    (plain,) = decode_plain(target, [PROMPT], 2 * NEW_TOKENS, Greedy()).rows
    draft = cached(decoder(kind))
    (quick,) = decode_speculative(target, draft, [PROMPT], NEW_TOKENS, 3, Greedy()).rows
    assert quick == plain[: len(quick)]
    # Its state is that of the accepted tokens alone: it goes on as a fresh copy does that has read no others.
    fresh = cached(draft.model)
    fresh.read_prompts([PROMPT])
    for token in quick[: draft.width - len(PROMPT)]:
        fresh.read(torch.tensor([[token]]))
    following = torch.tensor([[11]])
    assert torch.allclose(draft.read(following), fresh.read(following), atol=1e-5)


@pytest.mark.parametrize("kind", BY_SNAPSHOT + BY_CROPPING)
def test_a_batch_of_several_is_refused(kind: str) -> None:
    model = decoder(kind)
    with pytest.raises(UncroppableCacheError, match=f"{kind}.*a batch of 1 may do"):
        decode_speculative(
            cached(model), cached(disturbed(model, 0.03)), [PROMPT, PROMPT[:3]], NEW_TOKENS, 3, Greedy()
        )


def test_a_model_without_a_cache_is_refused() -> None:
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}
    rwkv = transformers.RwkvForCausalLM(transformers.RwkvConfig(**sizes))
    with pytest.raises(UncroppableCacheError, match="rwkv: its forward takes no cache"):
        cached(rwkv)


def test_a_model_that_keeps_its_state_inside_itself_is_refused() -> None:
    with pytest.raises(UncroppableCacheError, match="recurrent_gemma: it keeps its state elsewhere"):
        decode_plain(cached(decoder("recurrent_gemma")), [PROMPT], 4, Greedy())
