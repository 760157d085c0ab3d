"""Adaptive ORA as printed, to show that it is not valid: guesses made are counted.

Nothing here is an audit. ``adaptive_as_made`` plays the game, and no bound may be read
off its counts: the number of guesses made depends on revealed coins, through the
guesser or, as with ``SilentOnceAhead``, through the mechanism; given that number the
count of correct guesses is not dominated by a binomial (docs/explanation/errata.md).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import expm1, log1p
from typing import Protocol, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds import Counts
from dpaudit.game.guessers import check_threshold
from dpaudit.game.mechanism import HasPosterior, Mechanism
from dpaudit.game.pairs import Pairs

__all__ = ["Ahead", "SilentOnceAhead", "adaptive_as_made"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)
# Told how many guesses were made and how many were right.
Ahead: TypeAlias = Callable[[int, int], bool]


class _Guessable(Mechanism[O], HasPosterior[O], Protocol[O]):
    """A mechanism whose coins can be guessed in turns."""


def adaptive_as_made(
    mechanism: _Guessable[O],
    *,
    pairs: Pairs,
    canaries: int,
    threshold: float,
    rng: np.random.Generator,
    stop: Ahead = lambda made, right: False,  # noqa: ARG005 (the paper's goes on)
) -> Counts:
    """Play adaptive ORA as published: coins are revealed, guesses made are counted.

    The guesser goes through the coins in the posterior's order and guesses those whose
    log-odds, given all coins revealed before, reach the threshold.

    Args:
        mechanism: What is run; says what outputs and revealed coins tell.
        pairs: Two records for each coin to choose from.
        canaries: How many coins.
        threshold: The least ``|log-odds|`` that is guessed, the paper's tau.
        rng: Coins and the mechanism's randomness.
        stop: Ends guessing if it says so after a guess; the paper's guesser goes on.

    Example:
        >>> from dpaudit.mechanisms.parity import XorInPairs
        >>> pairs = XorInPairs(elements=6)
        >>> found = adaptive_as_made(pairs, pairs=pairs.pairs, canaries=6,
        ...     threshold=1.0, rng=np.random.default_rng(1))
        >>> found.guesses, found.correct
        (3, 3)
    """
    _validate.whole_number("canaries", canaries, least=1)
    check_threshold(threshold)
    bits = rng.integers(0, 2, canaries)
    truth = (2 * bits - 1).astype(np.int8)
    posterior = mechanism.posterior(mechanism.run(pairs.choose(bits), rng))
    made = right = 0
    for index in posterior.batches():
        log_odds = posterior.log_odds(index)
        hit = np.where(log_odds >= 0, 1, -1) == truth[index]
        for each in hit[np.abs(log_odds) >= threshold].tolist():
            made, right = made + 1, right + each
            if stop(made, right):
                return Counts(canaries=canaries, guesses=made, correct=right)
        posterior.reveal(index, truth[index])
    return Counts(canaries=canaries, guesses=made, correct=right)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SilentOnceAhead:
    """Hints at coins in turn until the hints were right too often, then is silent.

    The output is a sign for each element: while it hints, the element's own with chance
    p(hint), and afterwards a fair one. So a guesser with a threshold, who guesses what
    is hinted at, stops when ahead without meaning to.

    Attributes:
        hint: Log-odds of a hint.
        ahead: Told how many hints there were and how many were right; true ends them.
    """

    hint: float
    ahead: Ahead

    def __post_init__(self) -> None:
        _validate.nonnegative("hint", self.hint)

    def level(self, elements: int) -> float:
        """Return an epsilon at which it is private.

        To flip a coin turns its own hint, by ``hint``, and may give or take every later
        one, each by no more than ln((1 + e^hint) / 2).

        Example:
            >>> mechanism = SilentOnceAhead(hint=1e-6, ahead=lambda made, right: False)
            >>> round(mechanism.level(1000), 5)
            0.0005
        """
        return self.hint + (elements - 1) * log1p(expm1(self.hint) / 2)

    @property
    def pairs(self) -> Pairs:
        """The pair vector: -1 or 1."""
        return Pairs(x=np.int8(-1), y=np.int8(1))

    def run(self, data: NDArray[np.int8], rng: np.random.Generator) -> NDArray[np.int8]:
        """Return a sign for each element."""
        draws, keep = rng.random(len(data)), float(special.expit(self.hint))
        output = np.array(data, np.int8)
        posterior = self.posterior(output)
        for i, draw in enumerate(draws.tolist()):
            if draw >= (keep if posterior.hinting else 0.5):
                output[i] = -output[i]
            posterior.reveal(np.array([i]), np.asarray(data[i : i + 1]))
        return output

    def posterior(self, output: NDArray[np.int8]) -> "_Hints":
        """Return what an output says: the hint, if it is one, of the next element."""
        return _Hints(output, self.hint, self.ahead)


@final
class _Hints:
    def __init__(self, output: NDArray[np.int8], hint: float, ahead: Ahead) -> None:
        self._output, self._hint, self._ahead = output, hint, ahead
        self._made = self._right = 0
        self.hinting = True

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield one element after the other."""
        yield from np.arange(len(self._output)).reshape(-1, 1)

    def log_odds(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of +1 of the next element."""
        odds = self._hint if self.hinting else 0.0
        return np.multiply(self._output[index], odds, dtype=np.float64)

    def reveal(self, index: NDArray[np.int64], truth: NDArray[np.int8]) -> None:
        """Take note of the coin of the next element."""
        if self.hinting:
            self._made += 1
            self._right += int(self._output[index[0]] == truth[0])
            self.hinting = not self._ahead(self._made, self._right)
