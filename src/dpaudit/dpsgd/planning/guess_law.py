"""How surely the coins of Dirac canaries can be guessed, drawn from the model.

A coordinate holds ``s`` canaries. The exact posterior of its noisy sums gives log-odds
for the first coin; once that is revealed, for the second, and so on: round after round.
A posterior is calibrated, so a guess with log-odds ``l`` is right with chance
``e^|l| / (1 + e^|l|)``, and the law of ``|l|`` in each round is all that is needed to
predict an audit. Coordinates are independent and alike, so that law does not depend on
how many there are: it is drawn once, from many thousands of simulated coordinates, and
serves audits of every size. The coins in it are the simulation's own; a plan made from
it uses none of the audit's.

In the full batch (rate 1) the sum over all steps is sufficient, so that ``T`` steps of
noise ``sigma`` are one step of noise ``sigma / sqrt(T)``.

Reference: docs/developer/decisions/0003-posterior.md for the posterior.
"""

from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.dpsgd.joining import Poisson
from dpaudit.dpsgd.planning.pools import pooled_likelihood
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior, log_fair

__all__ = ["GuessLaw", "Training", "guess_law"]

_SUREST = 40.0  # beyond it no count of guesses tells chances apart


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Steps of DP-SGD with Poisson sampling.

    Attributes:
        steps: How many steps.
        rate: Chance of each record to join a step; 1 for the full batch.
        noise: Standard deviation of the noise, over the clipping norm.
    """

    steps: int
    rate: float
    noise: float

    def __post_init__(self) -> None:
        _validate.whole_number("steps", self.steps, least=1)
        _validate.positive("noise", self.noise)
        if not 0 < self.rate <= 1:
            raise InvalidInputError(f"rate must be in (0, 1], got rate={self.rate!r}")
        object.__setattr__(self, "steps", int(self.steps))

    def mechanism(self, *, coordinates: int, per_coordinate: int) -> DiracSums:
        """Return the noisy sums that such training shows of Dirac canaries."""
        return DiracSums(
            coordinates=coordinates,
            per_coordinate=per_coordinate,
            participation=Poisson(rate=self.rate),
            sigma=self.noise,
            steps=self.steps,
        )

    def sufficient(self) -> "Training":
        """Return training that shows as much, in as few steps as are known to do."""
        if self.rate < 1:
            return self
        return Training(steps=1, rate=1.0, noise=self.noise / sqrt(self.steps))

    def louder(self, factor: float) -> "Training":
        """Return the same training with noise divided by a factor."""
        return Training(steps=self.steps, rate=self.rate, noise=self.noise / factor)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuessLaw:
    """What was drawn of simulated coordinates.

    Attributes:
        surety: ``|log-odds|`` of the coin that is guessed next, in row of the round
            and column of the coordinate, 40 at most.
        variance: For each coordinate the variance of its number of ones, given what was
            seen of it.
    """

    surety: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def per_coordinate(self) -> int:
        """Canaries at each coordinate: the number of rounds."""
        return int(self.surety.shape[0])

    @property
    def coordinates(self) -> int:
        """How many coordinates were simulated."""
        return int(self.surety.shape[1])

    def chance(self) -> NDArray[np.float64]:
        """Return how likely each guess is right."""
        return np.asarray(special.expit(self.surety))


def guess_law(
    training: Training,
    *,
    per_coordinate: int,
    coordinates: int,
    seed: int,
    blocks: int = 40_000,
) -> GuessLaw:
    """Return the law of guesses, from so many simulated coordinates.

    Args:
        training: What is trained.
        per_coordinate: Canaries at each coordinate.
        coordinates: How many to simulate.
        seed: Decides the simulation.
        blocks: Blocks of steps that are simulated first, if there are many steps.

    Example:
        >>> training = Training(steps=1, rate=1.0, noise=1.0)
        >>> law = guess_law(training, per_coordinate=2, coordinates=5000, seed=1)
        >>> law.chance().mean(axis=1).round(2)  # the second coin is known better
        array([0.67, 0.69])
    """
    rng = np.random.default_rng((seed, per_coordinate))
    made = training.sufficient()
    bits = rng.integers(0, 2, (coordinates, per_coordinate), dtype=np.int8)
    seen = pooled_likelihood(
        Poisson(rate=made.rate),
        bits,
        rng,
        sigma=made.noise,
        steps=made.steps,
        blocks=blocks,
    )
    posterior = ExchangeablePosterior(seen)
    surety = np.empty((per_coordinate, coordinates))
    for played, index in enumerate(posterior.batches()):
        np.minimum(np.abs(posterior.log_odds(index)), _SUREST, out=surety[played])
        truth: NDArray[np.int8] = 2 * bits[:, played] - np.int8(1)
        posterior.reveal(index, truth)
    return GuessLaw(surety=surety, variance=_variance(seen))


def _variance(log_likelihood: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of the number of ones, given what was seen."""
    n = np.arange(log_likelihood.shape[1])
    chances = special.softmax(log_likelihood + log_fair(len(n) - 1), axis=1)
    return np.asarray(chances @ n**2 - np.square(chances @ n))
