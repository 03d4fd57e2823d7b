"""Which token comes next: greedily, or drawn so that the target's distribution is kept exactly.

Source: Leviathan et al. (arXiv:2211.17192v2), section 2.3: a proposal x ~ q is accepted with probability
min(1, p(x)/q(x)); where it is not, the token is drawn from norm(max(0, p - q)); after the last proposal from p.
Greedily, p and q are 1 at their largest logit, and the rule accepts a proposal that is the target's own choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``accepted``: proposals kept of each row, [rows]. ``following``: the token after these, [rows, 1]."""

    accepted: torch.Tensor
    following: torch.Tensor


class Greedy:
    """The token of the largest logit."""

    draws = False

    def choose(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Tokens [rows, 1] of the logits [rows, vocabulary]; no distribution is needed to judge them."""
        return logits.argmax(dim=-1, keepdim=True), None

    def judge(self, logits: torch.Tensor, proposals: torch.Tensor, _: Sequence[torch.Tensor | None]) -> Verdict:
        """The target's logits [rows, k + 1, vocabulary] on proposals [rows, k]."""
        choices = logits.argmax(dim=-1)
        accepted = (choices[:, :-1] == proposals).long().cumprod(dim=1).sum(dim=1)
        return Verdict(accepted=accepted, following=choices.gather(1, accepted[:, None]))


class Sampling:
    """Tokens drawn at a temperature, from a generator of its own."""

    draws = True

    def __init__(self, temperature: float, seed: int, device: str) -> None:
        self._temperature = temperature
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def choose(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Tokens [rows, 1] drawn by the logits [rows, vocabulary], and the distribution that they come from."""
        shares = self._shares(logits)
        return self._draw(shares), shares

    def judge(
        self, logits: torch.Tensor, proposals: torch.Tensor, shares: Sequence[torch.Tensor | None]
    ) -> Verdict:
        """The target's logits [rows, k + 1, vocabulary] on proposals [rows, k] drawn from ``shares``, one a step.

        The draft's vocabulary may be the smaller one: what it does not know, it never proposes.
        """
        wanted = self._shares(logits)
        rows, steps = proposals.shape
        # At the last step nothing was proposed: q is zero there, and the rest is p itself.
        offered = torch.zeros_like(wanted)
        for step, share in enumerate(shares):
            if share is not None:
                offered[:, step, : share.shape[-1]] = share
        named = proposals[..., None]
        p = wanted[:, :steps].gather(2, named)[..., 0]
        q = offered[:, :steps].gather(2, named)[..., 0]
        chance = torch.rand(rows, steps, generator=self._generator, device=p.device)
        accepted = (chance * q < p).long().cumprod(dim=1).sum(dim=1)
        row = torch.arange(rows, device=p.device)
        p_here = wanted[row, accepted]
        rest = (p_here - offered[row, accepted]).clamp(min=0)
        # Rounding can leave nothing where p and q agree; a rejection is then an accident of rounding too.
        rest = torch.where(rest.sum(dim=-1, keepdim=True) > 0, rest, p_here)
        return Verdict(accepted=accepted, following=self._draw(rest))

    def _shares(self, logits: torch.Tensor) -> torch.Tensor:
        return (logits.float() / self._temperature).softmax(dim=-1)

    def _draw(self, shares: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(shares, 1, generator=self._generator)


Choice = Greedy | Sampling


def choice_of(temperature: float, seed: int, device: str) -> Choice:
    """Greedy at temperature 0, sampling above.

    Raises:
        ValueError: a temperature below 0.
    """
    if temperature < 0:
        raise ValueError(f"a temperature of {temperature} is below 0")
    return Sampling(temperature, seed, device) if temperature > 0 else Greedy()
