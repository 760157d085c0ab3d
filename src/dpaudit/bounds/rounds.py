"""The bound for games in rounds: guess, reveal, guess better.

In each round some canaries not yet guessed are guessed, all at once, then their coins
are revealed. Given the output and the coins of earlier rounds, a round is a one-run
game of its own, so its weighted tail is a p-value that is valid given the past, and a
sequence of such p-values may be combined as if they were independent: here by
Stouffer's weighted sum, with weights fixed before the run. A round in which nothing was
right would have a p-value of one; ties are broken by uniforms from committed
randomness, which the guesser cannot know before the round's guesses are in. An empty
round then contributes a plain uniform, as it must: leaving it out is not valid.

With delta > 0 every guess is coupled with a coin of the claimed odds; the couplings
fail with a chance of at most ``m delta / (1 + e^epsilon)``, which is added.

The tests of different epsilons do not bound one event, so the lower bound is the last
epsilon of a fixed grid before the first that is not rejected. The grid begins at
``start``, fixed before the run: a larger start pays less for delta, and a truth below
it is reported as 0.

Reference: docs/explanation/adaptive-bound.md.
"""

from dataclasses import dataclass, field, replace
from math import exp, log
from typing import ClassVar, final

from dpaudit.bounds.adaptive import coupling_price
from dpaudit.bounds.bound import Grid, LowerBound, first_not_rejected
from dpaudit.bounds.reads import Rounds, Weighted
from dpaudit.stats.binomial import log_odds_limit
from dpaudit.stats.combine import randomised, stouffer
from dpaudit.stats.weighted import weighted_tail

__all__ = ["StoufferRounds"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoufferRounds:
    """The bound for rounds, with the grid of epsilons that it tests.

    Example:
        >>> first = Weighted(
        ...     canaries=100, weights=(1,), guesses=(50,), correct=(40,),
        ...     committed=False,
        ... )
        >>> game = Rounds(
        ...     canaries=100, rounds=(first, first), weights=(1.0, 1.0),
        ...     uniforms=(0.5, 0.5),
        ... )
        >>> StoufferRounds().epsilon_lower(game, delta=0.0, alpha=0.05).epsilon_lower
        0.97
    """

    grid: Grid = field(default_factory=Grid)
    method: ClassVar[str] = "rounds"
    reference: ClassVar[str] = "docs/explanation/adaptive-bound.md"

    def log_p_value(self, rounds: Rounds, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim."""
        price = coupling_price(rounds.canaries, epsilon, delta)
        pairs = zip(rounds.rounds, rounds.uniforms, strict=True)
        p_values = [_round_p_value(played, epsilon, u) for played, u in pairs]
        combined = stouffer(p_values, rounds.weights)
        return min(0.0, log(max(combined + price, 5e-324)))

    def epsilon_lower(
        self, rounds: Rounds, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the last epsilon of the grid before the first not rejected."""
        guesses = sum(sum(played.guesses) for played in rounds.rounds)
        # A lucky uniform could reject every epsilon; no game shows more than all right.
        top = log_odds_limit(guesses, guesses, log_alpha=log(alpha))
        return first_not_rejected(
            self, rounds, delta=delta, alpha=alpha, grid=replace(self.grid, stop=top)
        )


def _round_p_value(played: Weighted, epsilon: float, uniform: float) -> float:
    """Return a randomised p-value of one round."""
    odds = [epsilon] * len(played.weights)

    def tail(threshold: float) -> float:
        found = weighted_tail(played.weights, played.guesses, odds, threshold)
        return exp(found.log_upper)

    at_least = tail(played.score)
    if all(weight == round(weight) for weight in played.weights):
        more = tail(played.score + 1)
    else:  # the next possible score is known only after none
        more = at_least if played.score else tail(min(played.weights))
    return randomised(at_least, more, uniform)
