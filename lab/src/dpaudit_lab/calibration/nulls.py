"""Mechanisms exactly as private as they claim, and as misleading as that allows.

A rule that refutes one of these claims is wrong. Each null draws many audits at once
and, where the law is known, gives the exact chance that a number of guesses is right,
so that a rule on counts can be judged by a sum instead of by simulation.

The mixtures, the noisy counts, training, unequal coins and random halves have files of
their own. Here are three more: ``Exposed`` gives away single coins, ``Attaining``
reaches the exact bound's p-value, and ``Stopping`` is honest about silence but has a
guesser who knows when to leave.

Reference: docs/explanation/bounds.md for the attaining law.
"""

from dataclasses import dataclass
from math import log
from typing import TypeAlias, assert_never, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PrivacyCurve
from dpaudit.stats.binomial import binomial_distribution
from dpaudit.theory.adaptive import stopping_distribution, surprising_counts
from dpaudit_lab.calibration.counting import (
    CountsAtTheEdge,
    Parity,
)
from dpaudit_lab.calibration.draws import (
    BOAST,
    Draws,
    binomial_tail,
    every_guess,
    fair_coins,
    signed,
    whole,
)
from dpaudit_lab.calibration.half import NamedOfHalf
from dpaudit_lab.calibration.mixtures import (
    AllOrNothing,
    Mixture,
    RandomisedResponse,
    SharedScore,
    Silent,
    Sometimes,
    Unbalanced,
)
from dpaudit_lab.calibration.training import SeldomTraining
from dpaudit_lab.calibration.unequal import BiasedCoins

__all__ = [
    "Attaining",
    "Exposed",
    "Null",
    "Stopping",
    "curve_of",
    "right_tail",
]

_EXPOSED = 20.0  # the log-odds of a coin that was given away


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """Each coin is given away with chance delta, else answered by its own response."""

    claim: ApproxDP

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        epsilon, delta = self.claim.epsilon, self.claim.delta
        bits = fair_coins(rng, (audits, canaries))
        exposed = rng.random(bits.shape) < delta
        truthful = exposed | (rng.random(bits.shape) < special.expit(epsilon))
        sizes = np.where(exposed, _EXPOSED, epsilon + BOAST)
        return every_guess(signed(bits, truthful) * sizes, bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Attaining:
    """The mechanism under which ``correct`` right guesses are as likely as can be.

    It guesses ``guesses`` coins chosen at random and makes as many of them right as
    its law says: a binomial law, lower by one factor below ``correct`` and higher by
    another from there on, so that the whole of delta is spent at that one count.
    """

    claim: ApproxDP
    canaries: int
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        if not 1 <= self.correct <= self.guesses <= self.canaries:
            raise InvalidInputError(
                "expected 1 <= correct <= guesses <= canaries, got "
                f"{self.correct}, {self.guesses}, {self.canaries}"
            )
        if self._factors()[0] < 0:
            raise InvalidInputError(
                f"correct={self.correct} is certain to be reached under {self.claim}"
            )

    def law(self) -> NDArray[np.float64]:
        """Return the chance of each number of right guesses."""
        below, above = self._factors()
        counts = np.arange(self.guesses + 1)
        factors = np.where(counts < self.correct, below, above)
        return factors * binomial_distribution(self.guesses, self.claim.epsilon)

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        if canaries != self.canaries:
            raise InvalidInputError(
                f"made for canaries={self.canaries}, got canaries={canaries}"
            )
        bits = fair_coins(rng, (audits, canaries))
        right = rng.choice(self.guesses + 1, size=(audits, 1), p=whole(self.law()))
        place = np.argsort(rng.random(bits.shape), axis=1)
        sizes = np.where(place < self.guesses, self.claim.epsilon + BOAST, 0.0)
        return every_guess(signed(bits, place < right) * sizes, bits)

    def _factors(self) -> tuple[float, float]:
        v = self.correct
        mass = float(binomial_distribution(self.guesses, self.claim.epsilon)[v])
        slack = self.canaries * self.claim.delta / (v * mass)
        below = 1 - slack * float(binomial_tail(v, self.guesses, self.claim.epsilon))
        return below, below + slack


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Nothing is answered; the guesser guesses one by one and stops when ahead.

    Coins are revealed after each guess. It stops once so many of its guesses so far
    were right that a binomial tail is at most ``level``.
    """

    level: float

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=0.0, delta=0.0)

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = fair_coins(rng, (audits, canaries))
        ahead = np.cumsum(bits, axis=1, dtype=np.int64) >= surprising_counts(
            canaries, 0.0, self.level
        )
        made = np.where(ahead.any(axis=1), ahead.argmax(axis=1) + 1, canaries)
        return Draws(log_odds=np.full(bits.shape, 0.5), bits=bits, made=made)


Null: TypeAlias = (
    Mixture
    | Exposed
    | Attaining
    | Stopping
    | CountsAtTheEdge
    | Parity
    | SeldomTraining
    | BiasedCoins
    | NamedOfHalf
)


def right_tail(null: Null, *, canaries: int, guesses: int, correct: int) -> float:
    """Return the chance that as many of the surest guesses are right, or more.

    Where a guesser stopped, the guesses it did not make count as wrong.

    Example:
        >>> round(right_tail(Silent(), canaries=10, guesses=4, correct=3), 4)
        0.3125
    """
    if correct > guesses:
        return 0.0
    match null:
        case Exposed():
            return _exposed_tail(null, canaries, guesses, correct)
        case Attaining():
            return _attaining_tail(null, canaries, guesses, correct)
        case Stopping():
            if guesses != canaries:
                raise InvalidInputError("the stopping guesser starts on every canary")
            stopped, going = stopping_distribution(canaries, null.level)
            return float((stopped + going)[correct:].sum())
        case Parity():
            return null.tail(guesses=guesses, correct=correct)
        case CountsAtTheEdge() | SeldomTraining() | BiasedCoins() | NamedOfHalf():
            raise InvalidInputError(f"the law of {null} is not known; simulate it")
        case SharedScore(share=s) | AllOrNothing(share=s) if guesses * s > canaries:
            raise InvalidInputError(
                f"it speaks of one coin in {s}, got guesses={guesses} on "
                f"canaries={canaries}"
            )
        case (
            RandomisedResponse()
            | Sometimes()
            | SharedScore()
            | AllOrNothing()
            | Silent()
            | Unbalanced()
        ):
            chances, log_odds = null.components()
            return float(chances @ binomial_tail(correct, guesses, log_odds))
        case _:
            assert_never(null)


def curve_of(null: Null) -> Guarantee:
    """Return what is true of a null at every epsilon, as far as there is more to say.

    Example:
        >>> print(curve_of(SharedScore(mu=1.0, delta=1e-5)))
        (mu = 1)-GDP
    """
    match null:
        case SharedScore(mu=mu, share=1):
            return GaussianDP(mu=mu)
        case SeldomTraining():
            return null.curve
        case AllOrNothing(quiet=0.0, share=1):
            # A response's delta is a line in e^epsilon, so two points are all of it.
            most = null.chance * float(np.tanh(null.loud / 2))
            return PrivacyCurve(
                epsilons=np.array([0.0, null.loud]), deltas=np.array([most, 0.0])
            )
        case _:
            return null.claim


def _exposed_tail(null: Exposed, canaries: int, guesses: int, correct: int) -> float:
    """Sum over how many coins were given away; those are guessed first."""
    epsilon, delta = null.claim.epsilon, null.claim.delta
    given = np.arange(canaries + 1)
    chances = binomial_distribution(canaries, log(delta) - np.log1p(-delta))
    free = np.minimum(given, guesses)
    return float(chances @ binomial_tail(correct - free, guesses - free, epsilon))


def _attaining_tail(
    null: Attaining, canaries: int, guesses: int, correct: int
) -> float:
    if (canaries, guesses) != (null.canaries, null.guesses):
        raise InvalidInputError(
            f"made for {null.guesses} guesses on {null.canaries} canaries, got "
            f"{guesses} on {canaries}"
        )
    return float(null.law()[correct:].sum())
