"""The betting bound: guess by guess, valid at any stopping time.

Before each coin is revealed the guesser states the probability ``q`` that the guess is
correct. A claim of epsilon implies that it is correct with probability at most
``p = e^epsilon / (1 + e^epsilon)``, whatever is known. Against the claim the guesser
bets its wealth at the fair odds of ``p``: the wealth is multiplied by ``q / p`` if the
guess is correct and by ``(1 - q) / (1 - p)`` if it is wrong; guesses with ``q <= p``
are skipped. If the claim is true the wealth is a supermartingale, so it ever reaches
``1 / alpha`` with probability at most alpha (Ville). Order, skipping and stopping may
depend on everything revealed.

With delta > 0 every guess is coupled with a coin of odds ``e^epsilon``; the couplings
fail with a probability of at most ``m delta / (1 + e^epsilon)``, which is added.

The wealth is not monotone in epsilon: the lower bound is the last epsilon of a fixed
grid before the first that is not rejected. It may be read after every guess: it never
decreases, and all its values hold simultaneously with probability ``1 - alpha``.

Reference: docs/explanation/bounds.md#why-they-are-valid.
"""

from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.bound import GameBound, Grid, add_price
from dpaudit.bounds.readings import Bets

__all__ = ["BettingBound", "log_wealth"]

_LARGEST_BET = 1 - 1e-9  # no bet may lose everything


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BettingBound(GameBound[Bets]):
    """The betting bound, with the grid of epsilons that it tests.

    Example:
        >>> right = np.arange(200) % 10 > 0
        >>> stated = np.full(200, 0.9)
        >>> bets = Bets(canaries=200, right=right, stated_probabilities=stated)
        >>> print(BettingBound().epsilon_lower(bets, delta=0.0, alpha=0.05))
        epsilon >= 1.66 at delta = 0 (95 % confidence, \
for any mechanism; method betting)
    """

    grid: Grid = field(default_factory=Grid)
    method: ClassVar[str] = "betting"
    reference: ClassVar[str] = "docs/explanation/bounds.md#why-they-are-valid"

    def log_p_value(self, bets: Bets, *, epsilon: float, delta: float) -> float:
        """Return the log p-value: 1 / the largest wealth, plus the price of delta."""
        price = coupling_failure_probability(bets.canaries, epsilon, delta)
        wealth = float(np.max(log_wealth(bets, epsilon), initial=0.0))
        return add_price(-wealth, price)

    def one_event(self, bets: Bets) -> bool:  # noqa: ARG002
        """Return False: the stakes depend on the claim."""
        return False

    def search(
        self,
        bets: Bets,  # noqa: ARG002
        *,
        delta: float,  # noqa: ARG002
        alpha: float,  # noqa: ARG002
    ) -> Grid:
        """Return the grid that was fixed before the run."""
        return self.grid


def log_wealth(bets: Bets, epsilon: float) -> NDArray[np.float64]:
    """Return the log of the wealth after each guess of bets against an epsilon."""
    q = np.minimum(bets.stated_probabilities, _LARGEST_BET)
    bold = q > special.expit(epsilon)
    won = np.log(np.maximum(q, 0.5)) - special.log_expit(epsilon)
    lost = np.log1p(-q) - special.log_expit(-epsilon)
    return np.asarray(np.cumsum(np.where(bold, np.where(bets.right, won, lost), 0.0)))
