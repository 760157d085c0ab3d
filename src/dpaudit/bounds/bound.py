"""What a bound returns, and the verbs that make it a bound."""

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Protocol, final

from dpaudit.bounds.reads import Counts
from dpaudit.privacy.guarantees import ApproxDP

__all__ = ["Bound", "ClaimTest", "LowerBound"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """A lower bound on epsilon that holds for any mechanism (tier A).

    Attributes:
        epsilon_lower: No smaller epsilon is consistent with the run.
        delta: The delta at which the bound holds.
        alpha: Probability, over the run, that the bound is wrong.
        method: Name of the bound that made it.
        reference: Where its proof stands.
        tier: What it assumes; ``"A"`` is nothing about the mechanism.
    """

    epsilon_lower: float
    delta: float
    alpha: float
    method: str
    reference: str
    tier: str = "A"

    def __str__(self) -> str:
        # Rounded down: the text must not say more than was shown.
        shown = floor(self.epsilon_lower * 1000) / 1000
        return (
            f"epsilon >= {shown:.3f} at delta = {self.delta:g} "
            f"(alpha = {self.alpha:g}, method {self.method}, tier {self.tier}: "
            "any mechanism)"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTest:
    """Whether a run speaks against a claim.

    Attributes:
        claim: What was claimed before the run.
        p_value: Largest chance, if the claim is true, of evidence this strong.
        alpha: Largest p-value that refutes the claim.
    """

    claim: ApproxDP
    p_value: float
    alpha: float

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; wrongly so with chance at most ``alpha``."""
        return self.p_value <= self.alpha

    def __str__(self) -> str:
        verdict = "refuted" if self.refuted else "not refuted"
        return f"the claim {self.claim} is {verdict} (p {_rounded_up(self.p_value)})"


class Bound(Protocol):
    """Turns what was guessed into statements about privacy."""

    def epsilon_lower(
        self, counts: Counts, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return an epsilon that is wrong with probability at most ``alpha``."""
        ...

    def test_claim(self, counts: Counts, claim: ApproxDP, *, alpha: float) -> ClaimTest:
        """Return whether the counts refute the claim at level ``alpha``."""
        ...


def _rounded_up(p_value: float) -> str:
    if p_value < 1e-300:
        return "< 1e-300"
    unit = 10.0 ** (floor(log10(p_value)) - 1)
    return f"= {min(1.0, ceil(p_value / unit) * unit):.2g}"
