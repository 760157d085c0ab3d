"""Nulls in which one thing is shared by all coins, and else every answer is its own.

How loud the mechanism is is drawn first; given it every answer is a randomised response
of its own. That is the worst for one-run audits: with some chance *all* guesses are
good together. Where it speaks of one coin in ``share`` only, drawn at random, a guess
that it makes may cost ``share`` times as much delta, so this is what hurts a rule that
counts so few.

Each is exactly as private as it claims: given what is shared, which is published with
the answers, a coin changes the law of its own answer only, so delta is the mean over
the shared thing of a single response's ``(e^s - e^epsilon)^+ / (1 + e^s)``, where
``e^s`` is the ratio of its chances.
"""

from dataclasses import dataclass
from math import exp, inf
from typing import Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP
from dpaudit_lab.calibration.draws import (
    BOAST,
    Draws,
    every_guess,
    fair_coins,
    signed,
)

__all__ = [
    "AllOrNothing",
    "Components",
    "Mixture",
    "RandomisedResponse",
    "SharedScore",
    "Silent",
    "Sometimes",
    "Unbalanced",
]

Components: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]

_PANELS, _NODES = 100, 12  # of the integral over a shared score


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisedResponse:
    """Every coin is answered by its own response; all confidences tie.

    Attributes:
        epsilon: Log of the ratio of the chances to be named.
    """

    epsilon: float

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=self.epsilon, delta=0.0)

    def components(self) -> Components:
        """Return the chances and the log-odds of a right guess."""
        return np.ones(1), np.array([self.epsilon])

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = fair_coins(rng, (audits, canaries))
        truthful = rng.random(bits.shape) < special.expit(self.epsilon)
        return every_guess(signed(bits, truthful) * (self.epsilon + BOAST), bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sometimes:
    """With some chance every coin is answered by its own response, else none is.

    It satisfies pure privacy, so any delta may be claimed beside it; but it is far from
    the curve of a Gaussian, or of independent canaries, through the same point.

    Attributes:
        epsilon: Log-odds of a true answer when it speaks.
        chance: That it speaks.
        delta: Where it is judged.
    """

    epsilon: float
    chance: float
    delta: float

    def __post_init__(self) -> None:
        _validate.probability("chance", self.chance)

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies; even with a delta of 0."""
        return ApproxDP(epsilon=self.epsilon, delta=self.delta)

    def components(self) -> Components:
        """Return the chances and the log-odds of a right guess."""
        return np.array([self.chance, 1 - self.chance]), np.array([self.epsilon, 0.0])

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = fair_coins(rng, (audits, canaries))
        sizes = np.where(rng.random((audits, 1)) < self.chance, self.epsilon, 0.0)
        truthful = rng.random(bits.shape) < special.expit(sizes)
        return every_guess(signed(bits, truthful) * sizes, bits)


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

    def components(self) -> Components:
        """Return the nodes of an integral over the shared loss, right to 1e-6."""
        x, w = np.polynomial.legendre.leggauss(_NODES)
        width = self.mu * (9 + self.mu / 2) / _PANELS
        s = (np.arange(_PANELS)[:, np.newaxis] + (x + 1) / 2).ravel() * width
        z = np.stack([s, -s]) / self.mu - self.mu / 2
        density = np.exp(-z * z / 2).sum(axis=0) / (self.mu * (2 * np.pi) ** 0.5)
        return np.tile(w, _PANELS) * width / 2 * density, s

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = fair_coins(rng, (audits, canaries))
        loss = rng.normal(self.mu**2 / 2, self.mu, size=(audits, 1))
        sizes = np.abs(loss) * _spoken_of(rng, bits.shape, self.share)
        truthful = rng.random(bits.shape) < special.expit(sizes)
        return every_guess(signed(bits, truthful) * sizes, bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllOrNothing:
    """With some chance coins are answered loudly, else quietly or not at all.

    The chance is such that delta at the claimed epsilon is met exactly.

    Attributes:
        claim: What it satisfies.
        loud: Log of the ratio of an answer's chances when it speaks, above the claim's
            epsilon; infinity publishes the data.
        quiet: The same otherwise; at most the claim's epsilon.
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

    @classmethod
    def speaking(
        cls,
        *,
        chance: float,
        epsilon: float,
        loud: float,
        share: int = 1,
    ) -> Self:
        """Return the one that speaks with a given chance; delta follows.

        Example:
            >>> null = AllOrNothing.speaking(chance=0.1, epsilon=1.0, loud=3.0)
            >>> print(null.claim)
            (epsilon = 1, delta = 0.0823657)-DP
        """
        delta = chance * _response_delta(loud, epsilon) / share
        return cls(
            claim=ApproxDP(epsilon=epsilon, delta=float(delta)),
            loud=loud,
            share=share,
        )

    @property
    def chance(self) -> float:
        """The chance that it speaks."""
        alone = _response_delta(self.loud, self.claim.epsilon)
        return float(self.share * self.claim.delta / alone)

    def components(self) -> Components:
        """Return the chances and the log-odds of a right guess."""
        chances = np.array([self.chance, 1 - self.chance])
        return chances, np.array([self.loud, self.quiet])

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = fair_coins(rng, (audits, canaries))
        speaks = rng.random((audits, 1)) < self.chance
        sizes = np.where(speaks, self.loud, self.quiet)
        sizes = np.where(_spoken_of(rng, bits.shape, self.share), sizes, 0.0)
        truthful = rng.random(bits.shape) < special.expit(sizes)
        return every_guess(signed(bits, truthful) * sizes, bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Nothing is answered; scores are noise, raised to ``clip`` where they are lower.

    Clipped scores tie, as clipped losses do.

    Attributes:
        clip: The lowest score.
    """

    clip: float = -inf

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=0.0, delta=0.0)

    def components(self) -> Components:
        """Return the chances and the log-odds of a right guess."""
        return np.ones(1), np.zeros(1)

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = fair_coins(rng, (audits, canaries))
        return every_guess(np.maximum(rng.normal(size=bits.shape), self.clip), bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Unbalanced:
    """Nothing is answered, but the coins were not fair and "included" is guessed.

    Only the rule for unequal coins may be given such coins; some rules of others take
    any two lists.
    """

    inclusion: float

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=0.0, delta=0.0)

    def components(self) -> Components:
        """Return the chances and the log-odds of a right guess."""
        return np.ones(1), np.array([float(special.logit(self.inclusion))])

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        bits = (rng.random((audits, canaries)) < self.inclusion).astype(np.uint8)
        return every_guess(np.abs(rng.normal(size=bits.shape)), bits)


Mixture: TypeAlias = (
    RandomisedResponse | Sometimes | SharedScore | AllOrNothing | Silent | Unbalanced
)


def _response_delta(loud: float, epsilon: float) -> float:
    """Return delta at epsilon of a response whose chances have a ratio e^loud."""
    return float(-np.expm1(epsilon - loud) / (1 + exp(-loud)))


def _spoken_of(
    rng: np.random.Generator, shape: tuple[int, int], share: int
) -> NDArray[np.bool_]:
    """Mark one in ``share`` of each row, at random."""
    if share == 1:
        return np.ones(shape, np.bool_)
    return np.argsort(rng.random(shape), axis=1) < shape[1] // share
