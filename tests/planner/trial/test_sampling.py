"""Sampled tokens follow the target's distribution exactly, whatever the draft's: a chi-square test of whole texts.

Expected probabilities come from the target alone, by one pass without a cache over every possible text.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from single_thread import as_the_child_runs  # noqa: F401 - a fixture

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'specplan[trial]'")
pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_decoders import cached, decoder  # noqa: E402 - only where torch is

from planner.trial.worker.decoding import decode_plain, decode_speculative  # noqa: E402 - as above
from planner.trial.worker.sampling import Choice, Greedy, Sampling, Verdict, choice_of  # noqa: E402 - as above

pytestmark = pytest.mark.usefixtures("as_the_child_runs")
VOCABULARY = 5
PROMPT = [3, 1, 4, 1]
#: Texts that are told apart: 5 x 5 x 5.
TOKENS = 3
ROWS = 3000
#: (seed, temperature): three drawings apart from each other.
DRAWINGS = [(0, 1.0), (1, 0.6), (2, 1.7)]
Text = tuple[int, ...]


def model(seed: int, vocabulary: int = VOCABULARY) -> Any:
    """Sharp enough that pairs of them disagree often."""
    return decoder("llama", seed=seed, layers=1, vocab_size=vocabulary, initializer_range=0.6)


def exact(target: Any, temperature: float, tokens: int = TOKENS) -> dict[Text, float]:
    """Probability of every text of that many tokens after the prompt."""
    texts = list(product(range(target.config.vocab_size), repeat=tokens))
    ids = torch.tensor([[*PROMPT, *text] for text in texts])
    logits = target(input_ids=ids).logits[:, len(PROMPT) - 1 : -1].double()
    shares = (logits / temperature).softmax(dim=-1)
    each = shares.gather(2, ids[:, len(PROMPT) :, None])[..., 0].prod(dim=1)
    return dict(zip(texts, each.tolist(), strict=True))


def chance_of_worse(drawn: Sequence[Text], expected: Mapping[Text, float]) -> float:
    """The p-value of Pearson's test. Cells that expect fewer than five are pooled, as is usual (Cochran)."""
    counts = Counter(drawn)
    total = len(drawn)
    cells = [(counts[text], share * total) for text, share in expected.items()]
    large = sorted((cell for cell in cells if cell[1] >= 5), key=lambda cell: cell[1])
    small = [cell for cell in cells if cell[1] < 5]
    if small:
        large.insert(0, (sum(seen for seen, _ in small), sum(wanted for _, wanted in small)))
    if len(large) % 2 == 0:  # the tail below is for an even number of degrees of freedom
        (seen, wanted), (more, wanted_too), *rest = large
        large = [(seen + more, wanted + wanted_too), *rest]
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in large)
    return chi_square_tail(statistic, len(large) - 1)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """P(chi-square > statistic) for an even number of degrees of freedom: a Poisson distribution's head.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.4.5.
    """
    assert freedom % 2 == 0
    half = statistic / 2
    return sum(math.exp(-half + i * math.log(half) - math.lgamma(i + 1)) for i in range(freedom // 2))


def texts_of(rows: Sequence[Sequence[int]], tokens: int = TOKENS) -> list[Text]:
    return [tuple(row[:tokens]) for row in rows]


def speculate(choice: Choice, draft: Any, target: Any, k: int = 2, rows: int = ROWS) -> list[Text]:
    # No row has more than k + 2 tokens after one round, so there are two, and three tokens or more in each row.
    decoded = decode_speculative(cached(target), cached(draft), [PROMPT] * rows, k + 3, k, choice)
    assert min(map(len, decoded.rows)) >= TOKENS
    # Neither of the two branches is rare.
    accepted = sum(i * count for i, count in enumerate(decoded.accepted_counts))
    assert 0.2 < accepted / (k * sum(decoded.accepted_counts)) < 0.9
    return texts_of(decoded.rows)


@pytest.mark.parametrize(
    ("statistic", "freedom", "tail"),
    [(5.991, 2, 0.05), (23.209, 10, 0.01), (37.566, 20, 0.01), (124.342, 100, 0.05)],
)
def test_the_tail_is_that_of_the_published_table(statistic: float, freedom: int, tail: float) -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.4, upper critical values."""
    assert chi_square_tail(statistic, freedom) == pytest.approx(tail, rel=0.002)


@pytest.mark.parametrize(("seed", "temperature"), DRAWINGS)
def test_the_baseline_follows_the_target(seed: int, temperature: float) -> None:
    target = model(0)
    plain = decode_plain(cached(target), [PROMPT] * ROWS, TOKENS, choice_of(temperature, seed, "cpu"))
    assert chance_of_worse(texts_of(plain.rows), exact(target, temperature)) > 0.01


@pytest.mark.parametrize(("seed", "temperature"), DRAWINGS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_speculation_follows_the_target_too(seed: int, temperature: float, k: int) -> None:
    target = model(0)
    drawn = speculate(choice_of(temperature, seed, "cpu"), model(1), target, k)
    assert chance_of_worse(drawn, exact(target, temperature)) > 0.01


def test_it_does_so_row_by_row() -> None:
    """A batch of one, the generator going on from text to text."""
    target, draft, choice = model(0), model(1), choice_of(1.0, 5, "cpu")
    ours, theirs = cached(target), cached(draft)
    rows = [decode_speculative(ours, theirs, [PROMPT], 2, 1, choice).rows[0] for _ in range(600)]
    assert chance_of_worse(texts_of(rows, 2), exact(target, 1.0, tokens=2)) > 0.01


def test_it_does_so_where_the_draft_knows_fewer_tokens() -> None:
    target = model(0)
    drawn = speculate(choice_of(1.0, 3, "cpu"), model(1, VOCABULARY - 1), target)
    assert chance_of_worse(drawn, exact(target, 1.0)) > 0.01


class _Credulous(Sampling):
    """Wrong: accepts every proposal."""

    def judge(self, logits: Any, proposals: Any, shares: Sequence[Any]) -> Verdict:
        rightly = super().judge(logits, proposals, shares)
        following, _ = self.choose(logits[:, -1])
        return Verdict(accepted=torch.full_like(rightly.accepted, proposals.shape[1]), following=following)


class _Forgetful(Sampling):
    """Wrong: after a rejection it draws from p, not from what p has beyond q."""

    def judge(self, logits: Any, proposals: Any, shares: Sequence[Any]) -> Verdict:
        rightly = super().judge(logits, proposals, shares)
        row = torch.arange(len(proposals))
        following, _ = self.choose(logits[row, rightly.accepted])
        return Verdict(accepted=rightly.accepted, following=following)


@pytest.mark.parametrize("wrong", [_Credulous, _Forgetful])
def test_wrong_rules_are_found_out(wrong: type[Sampling]) -> None:
    """The same test, the same number of draws."""
    target, draft, choice = model(0), model(1), wrong(1.0, 0, "cpu")
    decoded = decode_speculative(cached(target), cached(draft), [PROMPT] * ROWS, 5, 2, choice)
    assert chance_of_worse(texts_of(decoded.rows), exact(target, 1.0)) < 1e-6


def test_a_seed_repeats_its_texts_and_another_does_not() -> None:
    target, draft = model(0), model(1)
    first, again, other = (speculate(choice_of(1.0, seed, "cpu"), draft, target, rows=200) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_temperature_nought_is_greedy_and_less_is_refused() -> None:
    assert isinstance(choice_of(0.0, 0, "cpu"), Greedy)
    with pytest.raises(ValueError, match="below 0"):
        choice_of(-0.1, 0, "cpu")


def test_a_temperature_near_nought_draws_what_greedy_chooses() -> None:
    target = model(0)
    greedy = decode_plain(cached(target), [PROMPT], 12, Greedy()).rows
    quick = decode_speculative(cached(target), cached(model(1)), [PROMPT], 12, 3, choice_of(1e-4, 0, "cpu")).rows
    assert quick[0][:12] == greedy[0]
