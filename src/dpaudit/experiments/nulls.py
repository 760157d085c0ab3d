"""Mechanisms exactly as private as they claim, and as misleading as that allows.

A rule that refutes one of these claims is wrong. Each null draws many audits at once
and, where the law is known, gives the exact chance that a number of guesses is right,
so that a rule on counts can be judged by a sum instead of by simulation.

In most of them one thing is shared by all coins, drawn first (how loud the mechanism
is), and given it every answer is a randomised response of its own. That is the worst
for one-run audits: with some chance *all* guesses are good together. Where it speaks of
one coin in ``share`` only, drawn at random, a guess that it makes may cost ``share``
times as much delta, so this is what hurts a rule that counts so few. ``Exposed`` gives
away single coins instead, ``Attaining`` reaches the exact bound's p-value, and
``Stopping`` is honest about silence but has a guesser who knows when to leave.

The sums here use the incomplete beta function, not the tails that the bounds use.

Reference: docs/explanation/exact-bound.md for the attaining law.
"""

from dataclasses import dataclass
from math import exp, inf, log
from typing import TypeAlias, assert_never, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP
from dpaudit.theory.stopping import stopping_law, surprising_counts

__all__ = [
    "AllOrNothing",
    "Attaining",
    "Draws",
    "Exposed",
    "Mixture",
    "Null",
    "RandomisedResponse",
    "SharedScore",
    "Silent",
    "Stopping",
    "Unbalanced",
    "binomial_law",
    "binomial_tail",
    "right_tail",
]

_BOAST = 1.0  # guessers overstate their log-odds by this, so that betting rules bet
_EXPOSED = 20.0  # the log-odds of a coin that was given away
_PANELS, _NODES = 100, 12  # of the integral over a shared score


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """Many simulated audits, one a row.

    Attributes:
        log_odds: What the guesser says of each coin: the sign is the guess, the size
            the confidence.
        bits: The coins.
        made: How many guesses, in the order of the columns, were made before the
            guesser stopped.
    """

    log_odds: NDArray[np.float64]
    bits: NDArray[np.uint8]
    made: NDArray[np.int64]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each guess matches its coin."""
        return np.asarray((self.log_odds >= 0) == (self.bits == 1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisedResponse:
    """Every coin is answered truly with odds ``e^epsilon``; all confidences tie."""

    epsilon: float

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=self.epsilon, delta=0.0)

    def components(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the chances and the log-odds of a right guess."""
        return np.ones(1), np.array([self.epsilon])

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = _coins(rng, (audits, canaries))
        truthful = rng.random(bits.shape) < special.expit(self.epsilon)
        return _every_guess(_signed(bits, truthful) * (self.epsilon + _BOAST), bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SharedScore:
    """One loss is drawn from the law of mu-GDP and shared by every coin's answer.

    A coin that it speaks of sees exactly N(0, 1) against N(mu, 1); the claim is the
    point of the curve at ``delta``.

    Attributes:
        mu: The distance of the two normal distributions.
        delta: Where the claim is read off.
        share: It speaks of one coin in so many.
    """

    mu: float
    delta: float
    share: int = 1

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies at ``delta``, exactly."""
        epsilon = GaussianDP(mu=self.mu).epsilon_at(self.share * self.delta)
        return ApproxDP(epsilon=epsilon, delta=self.delta)

    def components(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the nodes of an integral over the shared loss, right to 1e-6."""
        x, w = np.polynomial.legendre.leggauss(_NODES)
        width = self.mu * (9 + self.mu / 2) / _PANELS
        s = (np.arange(_PANELS)[:, np.newaxis] + (x + 1) / 2).ravel() * width
        z = np.stack([s, -s]) / self.mu - self.mu / 2
        density = np.exp(-z * z / 2).sum(axis=0) / (self.mu * (2 * np.pi) ** 0.5)
        return np.tile(w, _PANELS) * width / 2 * density, s

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = _coins(rng, (audits, canaries))
        loss = rng.normal(self.mu**2 / 2, self.mu, size=(audits, 1))
        sizes = np.abs(loss) * _spoken_of(rng, bits.shape, self.share)
        truthful = rng.random(bits.shape) < special.expit(sizes)
        return _every_guess(_signed(bits, truthful) * sizes, bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllOrNothing:
    """With some chance coins are answered loudly, else quietly or not at all.

    The chance is such that delta at the claimed epsilon is met exactly.

    Attributes:
        claim: What it satisfies.
        loud: The log-odds of a true answer when it speaks; above the claim's epsilon.
        quiet: The log-odds of a true answer otherwise; at most the claim's epsilon.
        share: It speaks of one coin in so many.
    """

    claim: ApproxDP
    loud: float
    quiet: float = 0.0
    share: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.quiet <= self.claim.epsilon < self.loud or self.chance > 1:
            raise InvalidInputError(
                f"no chance of log-odds loud={self.loud}, else quiet={self.quiet}, "
                f"meets {self.claim} exactly"
            )

    @property
    def chance(self) -> float:
        """The chance that it speaks."""
        alone = (exp(self.loud) - exp(self.claim.epsilon)) / (1 + exp(self.loud))
        return self.share * self.claim.delta / alone

    def components(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the chances and the log-odds of a right guess."""
        chances = np.array([self.chance, 1 - self.chance])
        return chances, np.array([self.loud, self.quiet])

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = _coins(rng, (audits, canaries))
        speaks = rng.random((audits, 1)) < self.chance
        sizes = np.where(speaks, self.loud, self.quiet)
        sizes = sizes * _spoken_of(rng, bits.shape, self.share)
        truthful = rng.random(bits.shape) < special.expit(sizes)
        return _every_guess(_signed(bits, truthful) * sizes, bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """Each coin is given away with chance delta, else answered by its own response."""

    claim: ApproxDP

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        epsilon, delta = self.claim.epsilon, self.claim.delta
        bits = _coins(rng, (audits, canaries))
        exposed = rng.random(bits.shape) < delta
        truthful = exposed | (rng.random(bits.shape) < special.expit(epsilon))
        sizes = np.where(exposed, _EXPOSED, epsilon + _BOAST)
        return _every_guess(_signed(bits, truthful) * sizes, bits)


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
        return factors * binomial_law(self.guesses, self.claim.epsilon)

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        if canaries != self.canaries:
            raise InvalidInputError(
                f"made for canaries={self.canaries}, got canaries={canaries}"
            )
        bits = _coins(rng, (audits, canaries))
        right = rng.choice(self.guesses + 1, size=(audits, 1), p=_whole(self.law()))
        place = np.argsort(rng.random(bits.shape), axis=1)
        sizes = np.where(place < self.guesses, self.claim.epsilon + _BOAST, 0.0)
        return _every_guess(_signed(bits, place < right) * sizes, bits)

    def _factors(self) -> tuple[float, float]:
        epsilon, v = self.claim.epsilon, self.correct
        mass = float(binomial_law(self.guesses, epsilon)[v])
        slack = self.canaries * self.claim.delta / (v * mass)
        below = 1 - slack * float(binomial_tail(v, self.guesses, epsilon))
        return below, below + slack


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Nothing is answered; scores are noise, raised to ``clip`` where they are lower.

    Clipped scores tie, as clipped losses do.
    """

    clip: float = -inf

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=0.0, delta=0.0)

    def components(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the chances and the log-odds of a right guess."""
        return np.ones(1), np.zeros(1)

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = _coins(rng, (audits, canaries))
        return _every_guess(np.maximum(rng.normal(size=bits.shape), self.clip), bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Unbalanced:
    """Nothing is answered, but the coins were not fair and "included" is guessed.

    No rule of ours can be given such coins; some rules of others take any two lists.
    """

    inclusion: float

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=0.0, delta=0.0)

    def components(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the chances and the log-odds of a right guess."""
        return np.ones(1), np.array([float(special.logit(self.inclusion))])

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = (rng.random((audits, canaries)) < self.inclusion).astype(np.uint8)
        return _every_guess(np.abs(rng.normal(size=bits.shape)), bits)


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
        bits = _coins(rng, (audits, canaries))
        ahead = np.cumsum(bits, axis=1, dtype=np.int64) >= surprising_counts(
            canaries, 0.0, self.level
        )
        made = np.where(ahead.any(axis=1), ahead.argmax(axis=1) + 1, canaries)
        return Draws(log_odds=np.full(bits.shape, 0.5), bits=bits, made=made)


Mixture: TypeAlias = (
    RandomisedResponse | SharedScore | AllOrNothing | Silent | Unbalanced
)
Null: TypeAlias = Mixture | Exposed | Attaining | Stopping


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
            if (canaries, guesses) != (null.canaries, null.guesses):
                raise InvalidInputError(
                    f"made for {null.guesses} guesses on {null.canaries} canaries, got "
                    f"{guesses} on {canaries}"
                )
            return float(null.law()[correct:].sum())
        case Stopping():
            if guesses != canaries:
                raise InvalidInputError("the stopping guesser starts on every canary")
            stopped, going = stopping_law(canaries, null.level)
            return float((stopped + going)[correct:].sum())
        case SharedScore(share=s) | AllOrNothing(share=s) if guesses * s > canaries:
            raise InvalidInputError(
                f"it speaks of one coin in {s}, got guesses={guesses} on "
                f"canaries={canaries}"
            )
        case (
            RandomisedResponse()
            | SharedScore()
            | AllOrNothing()
            | Silent()
            | Unbalanced()
        ):
            chances, log_odds = null.components()
            return float(chances @ binomial_tail(correct, guesses, log_odds))
        case _:
            assert_never(null)


def binomial_tail(
    correct: ArrayLike, guesses: ArrayLike, log_odds: ArrayLike
) -> NDArray[np.float64]:
    """Return P[B >= correct], ``B ~ Bin(guesses, expit(log_odds))``, all broadcast."""
    v, r = np.asarray(correct, np.float64), np.asarray(guesses, np.float64)
    inner = (v > 0) & (v <= r)
    a, b = np.where(inner, v, 1.0), np.where(inner, r - v + 1, 1.0)
    return np.where(inner, special.betainc(a, b, special.expit(log_odds)), v <= 0)


def _exposed_tail(null: Exposed, canaries: int, guesses: int, correct: int) -> float:
    """Sum over how many coins were given away; those are guessed first."""
    epsilon, delta = null.claim.epsilon, null.claim.delta
    given = np.arange(canaries + 1)
    chances = binomial_law(canaries, log(delta) - np.log1p(-delta))
    free = np.minimum(given, guesses)
    return float(chances @ binomial_tail(correct - free, guesses - free, epsilon))


def binomial_law(trials: int, log_odds: float) -> NDArray[np.float64]:
    """Return the masses of Bin(trials, expit(log_odds)) at 0, 1, ..., trials."""
    k = np.arange(trials + 1)
    ways = special.gammaln([trials + 1.0]) - special.gammaln(k + 1.0)
    log_law = ways - special.gammaln(trials - k + 1.0) + k * log_odds
    return np.asarray(np.exp(log_law + trials * special.log_expit(-log_odds)))


def _whole(law: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a law whose rounding errors are gone, as numpy's sampling asks for."""
    return np.asarray(law / law.sum())


def _coins(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.uint8]:
    return rng.integers(2, size=shape, dtype=np.uint8)


def _spoken_of(
    rng: np.random.Generator, shape: tuple[int, int], share: int
) -> NDArray[np.bool_]:
    """Mark one in ``share`` of each row, at random."""
    if share == 1:
        return np.ones(shape, np.bool_)
    return np.argsort(rng.random(shape), axis=1) < shape[1] // share


def _signed(
    bits: NDArray[np.uint8], truthful: NDArray[np.bool_]
) -> NDArray[np.float64]:
    return np.where((bits == 1) == truthful, 1.0, -1.0)


def _every_guess(log_odds: NDArray[np.float64], bits: NDArray[np.uint8]) -> Draws:
    audits, canaries = bits.shape
    return Draws(log_odds=log_odds, bits=bits, made=np.full(audits, canaries))
