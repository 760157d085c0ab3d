"""Are guesses right as often as their stakes state? Betting against them tells.

Stated chances are sorted into bands. The wealth of one who bets against a band, turn
after turn, is a martingale that begins at 1 if the band states the truth, and reaches
``1 / a`` with chance at most ``a`` (Ville's inequality), however the guesser chooses
what to guess and when to stop. In one turn coins may depend on each other, so each turn
enters with the mean of its bets. Log-odds may be rounded down by a fiftieth.

Reference: Shafer, "Testing by betting", J. R. Stat. Soc. A 184, 2021.
"""

from math import log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.errors import ConformanceError
from dpaudit.game.transcript import Transcript

__all__ = ["StatedChances"]

_BANDS = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])  # of stated chances
_TILTS = np.array([-4.0, -2, -1, -0.5, -0.25, 0.25, 0.5, 1, 2, 4])  # of log-odds
_ROUNDED = 0.02  # log-odds
_CERTAIN = 40.0  # log-odds; beyond, chances are 1 to floats


@final
class StatedChances:
    """Bets against stated chances, band by band."""

    def __init__(self) -> None:
        shape = (len(_BANDS) + 1, len(_TILTS))
        self._log_wealth = np.zeros(shape)
        self._made, self._right, self._sum = np.zeros((3, shape[0]))

    def add(self, transcript: Transcript) -> None:
        """Bet on every turn of a game, if its stakes state chances."""
        made = transcript.guess != 0
        stake, turn = transcript.stake[made], transcript.turn[made]
        right = (transcript.guess == transcript.truth)[made]
        odds = transcript.design.rules.stated_odds(stake)
        if odds is None:
            return
        odds = np.clip(odds, -_CERTAIN, _CERTAIN)
        band = np.searchsorted(_BANDS, special.expit(odds), side="right")
        for b, t in np.unique(np.stack([band, turn]), axis=1).T:
            here = (band == b) & (turn == t)
            self._log_wealth[b] += np.log(_bets(odds[here], right[here]))
        size = len(_BANDS) + 1
        self._made += np.bincount(band, minlength=size)
        self._right += np.bincount(band[right], minlength=size)
        self._sum += np.bincount(band, special.expit(odds), minlength=size)

    def check(self, guesser: object, false_alarm: float) -> None:
        """Refuse a guesser against whom too much was won."""
        # The mean of wealths that each begin at 1 is one, too.
        total = special.logsumexp(self._log_wealth) - log(self._log_wealth.size)
        if total < -log(false_alarm):
            return
        b = int(self._log_wealth.max(axis=1).argmax())
        edges = [0.0, *_BANDS, 1.0]
        raise ConformanceError(
            f"{guesser!r} is not right as often as it states: of "
            f"{self._made[b]:.0f} guesses with a stated chance from {edges[b]:g} to "
            f"{edges[b + 1]:g}, {self._sum[b] / self._made[b]:.3f} on average, "
            f"{self._right[b] / self._made[b]:.3f} were right"
        )


def _bets(odds: NDArray[np.float64], right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return what bets of one turn pay on average, for each tilt.

    A bet pays the ratio of a tilted chance to the stated one; if guesses are right at
    least (for tilts up: at most) as often as stated, it pays no more than 1 in mean.
    """
    base = odds[:, np.newaxis] + np.where(_TILTS > 0, _ROUNDED, 0.0)
    sign = np.where(right, 1.0, -1.0)[:, np.newaxis]
    pays = special.log_expit(sign * (base + _TILTS)) - special.log_expit(sign * base)
    return np.asarray(np.exp(pays).mean(axis=0))
