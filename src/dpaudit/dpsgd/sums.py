"""DP-SGD with Dirac canaries as a mechanism: coins in, what the noisy sums say out.

``d`` coordinates hold ``s`` canaries each; canary ``i`` is at coordinate ``i // s``. In
every step the canaries that join are summed and Gaussian noise is added. The output is
not the sums of all steps but what a guesser needs of them: the likelihood of the number
of ones at each coordinate, which decides the best guesses, adaptive or not, and the sum
over steps, by which the paper's guesser sorts.

The model's gradients do not depend on earlier steps, so nothing is trained here, and
coordinates are worked through in stretches, each over all steps while it is in the
cache. What privacy the sums have is for an accountant to say.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, section 5.
"""

from dataclasses import dataclass
from typing import Any, assert_never, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.joining import Differences, PlusMinus, Poisson
from dpaudit.dpsgd.likelihood import STRETCH, CountLikelihood
from dpaudit.dpsgd.shuffling import ShuffledLikelihood, Shuffling
from dpaudit.dpsgd.simulate import Participation, simulate_sums
from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior
from dpaudit.privacy.adjacency import Adjacency

__all__ = ["DiracSums", "SeenSums", "canary_log_odds", "count_likelihood"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenSums:
    """What was seen of the noisy sums.

    Attributes:
        log_likelihood: ``ln L(N)`` in row of the coordinate and column N, from 0 to the
            canaries of a coordinate, up to a constant of the row.
        total: The sum over all steps at each coordinate, over the clipping norm.
    """

    log_likelihood: NDArray[np.float64]
    total: NDArray[np.float64]

    def canary_totals(self) -> NDArray[np.float64]:
        """Return the sum over all steps at each canary's coordinate."""
        return np.repeat(self.total, self.log_likelihood.shape[1] - 1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiracSums:
    """Noisy sums of Dirac canaries over many steps.

    Attributes:
        coordinates: How many coordinates hold canaries.
        per_coordinate: Canaries at each.
        participation: How canaries join the steps.
        sigma: Standard deviation of the noise, over the clipping norm.
        steps: How many steps.
        first: Number of the first coordinate, if this is a shard of many; shards with
            generators in the same state are stretches of the same run.

    Example:
        >>> mechanism = DiracSums(
        ...     coordinates=2,
        ...     per_coordinate=2,
        ...     participation=Poisson(rate=0.5),
        ...     sigma=0.5,
        ...     steps=20,
        ... )
        >>> seen = mechanism.run(np.array([1, 1, 0, 0]), np.random.default_rng(1))
        >>> np.sign(mechanism.log_odds(seen))
        array([ 1.,  1., -1., -1.])
    """

    coordinates: int
    per_coordinate: int
    participation: Participation
    sigma: float
    steps: int
    first: int = 0

    def __post_init__(self) -> None:
        _validate.whole_number("coordinates", self.coordinates, least=1)
        _validate.whole_number("per_coordinate", self.per_coordinate, least=1)
        _validate.whole_number("steps", self.steps, least=1)
        _validate.whole_number("first", self.first)
        if not 0 < self.sigma < np.inf:
            raise InvalidInputError(
                f"sigma must be a finite number > 0, got sigma={self.sigma!r}; for "
                "next to no noise pass a small one, such as 0.001"
            )

    @property
    def pairs(self) -> Pairs:
        """The pair vector: a canary and none, or a canary and its negative."""
        match self.participation:
            case Poisson() | Shuffling():
                x, adjacency = 0, Adjacency.ADD_REMOVE
            case PlusMinus():
                x, adjacency = -1, Adjacency.REPLACE_ONE
            case _:
                assert_never(self.participation)
        return Pairs(x=np.int8(x), y=np.int8(1), adjacency=adjacency)

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> SeenSums:
        """Return what is seen of the sums of the canaries in the data."""
        d, s = self.coordinates, self.per_coordinate
        if np.shape(data) != (d * s,):
            raise InvalidInputError(
                f"data must hold one number for each of {d * s} canaries, got shape "
                f"{np.shape(data)}"
            )
        bits = (np.asarray(data) > 0).reshape(d, s)
        seed = np.random.SeedSequence(rng.integers(2**32, size=8).tolist())
        seen = SeenSums(log_likelihood=np.empty((d, s + 1)), total=np.zeros(d))
        for start in range(0, d, STRETCH):
            self._see(bits, seed, seen, slice(start, min(start + STRETCH, d)))
        return seen

    def log_odds(self, output: SeenSums) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each canary."""
        return canary_log_odds(output.log_likelihood)

    def posterior(self, output: SeenSums) -> ExchangeablePosterior:
        """Return what an output says, ready to learn coins."""
        return ExchangeablePosterior(output.log_likelihood)

    def _see(
        self,
        bits: NDArray[np.bool_],
        seed: np.random.SeedSequence,
        seen: SeenSums,
        part: slice,
    ) -> None:
        """Work through all steps of a stretch of coordinates."""
        likelihood = count_likelihood(
            coordinates=part.stop - part.start,
            per_coordinate=self.per_coordinate,
            participation=self.participation,
        )
        steps = simulate_sums(
            bits[part],
            participation=self.participation,
            sigma=self.sigma,
            steps=self.steps,
            seed=seed,
            first=self.first + part.start,
        )
        for sums in steps:
            likelihood.observe(sums, self.sigma)
            seen.total[part] += sums
        seen.log_likelihood[part] = likelihood.log_likelihood


def canary_log_odds(log_likelihood: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln P[S = +1 | seen] / P[S = -1 | seen] for each canary.

    Args:
        log_likelihood: ``ln L(N)`` in row of the coordinate and column N.

    Example:
        >>> canary_log_odds(np.array([[0.0, 2.0], [1.0, 0.0]]))
        array([ 2., -1.])
    """
    s = log_likelihood.shape[1] - 1
    first = np.arange(len(log_likelihood)) * s
    # All canaries of a coordinate are alike.
    return np.repeat(ExchangeablePosterior(log_likelihood).log_odds(first), s)


def count_likelihood(
    *,
    coordinates: int,
    per_coordinate: int,
    participation: Participation | Differences,
) -> CountLikelihood | ShuffledLikelihood:
    """Return the likelihood that belongs to a way of joining, with nothing seen.

    Example:
        >>> likelihood = count_likelihood(
        ...     coordinates=1, per_coordinate=1, participation=PlusMinus(rate=1.0)
        ... )
        >>> likelihood.observe(np.array([-0.5]), scale=1.0)
        >>> likelihood.log_likelihood
        array([[ 0., -1.]])
    """
    match participation:
        case Poisson() | PlusMinus() | Differences():
            return CountLikelihood(
                coordinates=coordinates,
                per_coordinate=per_coordinate,
                joining=participation,
            )
        case Shuffling():
            return ShuffledLikelihood(
                coordinates=coordinates,
                per_coordinate=per_coordinate,
                shuffling=participation,
            )
        case _:
            assert_never(participation)
