"""DP-SGD with Dirac canaries as a mechanism: coins in, noisy sums out.

``d`` coordinates hold ``s`` canaries each; canary ``i`` is at coordinate ``i // s``. In
every step the sampled canaries are summed and Gaussian noise is added. The output is
not the sums of all steps but what a guesser needs of them: the likelihood of the number
of ones at each coordinate, which determines the best guesses, adaptive or not, and the
sum over steps, by which the paper's guesser sorts. The privacy of the sums is for an
accountant to compute.

The gradients do not depend on earlier steps, so nothing is trained, and the
sums can be drawn exactly without individual canaries: a step's sum depends on them only
through the number sampled. That number is drawn for each coordinate by inverting its
distribution function at a uniform number, and normal noise is added.

Coordinates are drawn in blocks of 1024, each from a generator of its own: the seed's
child whose spawn key is the block's number. Every step takes the same amount of random
numbers whatever the coins, and always for the whole block, so any range of coordinates
gives the same values whether drawn alone, with others, or before more steps. So
coordinates are processed in ranges, each over all steps while it is in the cache, and
no step is stored.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, section 6.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias, assert_never, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.likelihood import STRETCH, CountLikelihood
from dpaudit.dpsgd.sampling import Differences, PlusMinus, Poisson, SumDistribution
from dpaudit.dpsgd.shuffling import ShuffledLikelihood, Shuffling
from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs, Records
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior
from dpaudit.privacy.guarantees import Adjacency

__all__ = [
    "DiracSums",
    "SeenSums",
    "SimulatedSampling",
    "canary_log_odds",
    "likelihood_for_sampling",
    "simulate_sums",
]

SimulatedSampling: TypeAlias = Poisson | PlusMinus | Shuffling

_BLOCK = 1024  # coordinates; changing it would change the runs of a given seed


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenSums:
    """The observed summary of the noisy sums.

    Attributes:
        log_likelihood: ``ln L(N)``, a row for each coordinate and a column for each N
            from 0 to the canaries of a coordinate, up to a constant of the row.
        total: The sum over all steps at each coordinate, over the clipping norm.
    """

    log_likelihood: NDArray[np.float64]
    total: NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiracSums:
    """Noisy sums of Dirac canaries over many steps.

    Reference: Keinan, Shenfeld and Ligett, "alg:dp-sgd", "subsec:experiments".

    Attributes:
        coordinates: The number of coordinates with canaries.
        per_coordinate: Canaries at each.
        sampling: How canaries are sampled in the steps.
        sigma: Noise multiplier: standard deviation of the noise over the clipping norm.
        steps: The number of steps.
        first: Index of the first coordinate, if this is one of several shards; shards
            with generators in the same state are parts of the same run.

    Example:
        >>> mechanism = DiracSums(
        ...     coordinates=2,
        ...     per_coordinate=2,
        ...     sampling=Poisson(rate=0.5),
        ...     sigma=0.5,
        ...     steps=20,
        ... )
        >>> seen = mechanism.run(np.array([1, 1, 0, 0]), np.random.default_rng(1))
        >>> np.sign(mechanism.log_odds(seen))
        array([ 1.,  1., -1., -1.])
    """

    coordinates: int
    per_coordinate: int
    sampling: SimulatedSampling
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
        """The pair of alternatives: a canary and none, or a canary and its negative."""
        match self.sampling:
            case Poisson() | Shuffling():
                x, adjacency = 0, Adjacency.ADD_REMOVE
            case PlusMinus():
                x, adjacency = -1, Adjacency.REPLACE_ONE
            case _:
                assert_never(self.sampling)
        return Pairs(x=np.int8(x), y=np.int8(1), adjacency=adjacency)

    def run(self, data: Records, rng: np.random.Generator) -> SeenSums:
        """Return the observed sums of the canaries in the data."""
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
        """Return the posterior of the coins, which revealed coins can update."""
        return ExchangeablePosterior(output.log_likelihood)

    def _see(
        self,
        bits: NDArray[np.bool_],
        seed: np.random.SeedSequence,
        seen: SeenSums,
        part: slice,
    ) -> None:
        """Process all steps of a range of coordinates."""
        likelihood = likelihood_for_sampling(
            coordinates=part.stop - part.start,
            per_coordinate=self.per_coordinate,
            sampling=self.sampling,
        )
        steps = simulate_sums(
            bits[part],
            sampling=self.sampling,
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
        log_likelihood: ``ln L(N)``, a row for each coordinate, a column for each N.

    Example:
        >>> canary_log_odds(np.array([[0.0, 2.0], [1.0, 0.0]]))
        array([ 2., -1.])
    """
    s = log_likelihood.shape[1] - 1
    first = np.arange(len(log_likelihood)) * s
    # All canaries of a coordinate have the same log-odds.
    return np.repeat(ExchangeablePosterior(log_likelihood).log_odds(first), s)


def likelihood_for_sampling(
    *,
    coordinates: int,
    per_coordinate: int,
    sampling: SimulatedSampling | Differences,
) -> CountLikelihood | ShuffledLikelihood:
    """Return the likelihood for a sampling scheme, before any step is observed.

    Example:
        >>> likelihood = likelihood_for_sampling(
        ...     coordinates=1, per_coordinate=1, sampling=PlusMinus(rate=1.0)
        ... )
        >>> likelihood.observe(np.array([-0.5]), scale=1.0)
        >>> likelihood.log_likelihood
        array([[ 0., -1.]])
    """
    match sampling:
        case Poisson() | PlusMinus() | Differences():
            return CountLikelihood(
                coordinates=coordinates,
                per_coordinate=per_coordinate,
                sampling=sampling,
            )
        case Shuffling():
            return ShuffledLikelihood(
                coordinates=coordinates,
                per_coordinate=per_coordinate,
                shuffling=sampling,
            )
        case _:
            assert_never(sampling)


def simulate_sums(
    bits: NDArray[np.generic],
    *,
    sampling: SimulatedSampling,
    sigma: float,
    steps: int,
    seed: np.random.SeedSequence,
    first: int = 0,
) -> Iterator[NDArray[np.float64]]:
    """Yield the noisy sums of each step, over the clipping norm.

    Args:
        bits: The coins: a row for each coordinate, a column for each of its canaries.
        sampling: How canaries are sampled in the steps.
        sigma: Noise multiplier: standard deviation of the noise over the clipping norm;
            may be 0.
        steps: The number of steps.
        seed: Determines all draws, together with the coordinates' indices.
        first: Index of the first coordinate, if this is one of several shards.

    Example:
        >>> seed = np.random.SeedSequence(1)
        >>> bits = np.array([[1, 1], [0, 1], [0, 0]])
        >>> full = Poisson(rate=1.0)
        >>> list(simulate_sums(bits, sampling=full, sigma=0, steps=1, seed=seed))
        [array([2., 1., 0.])]
    """
    _validate.nonnegative("sigma", sigma)
    _validate.whole_number("steps", steps)
    _validate.whole_number("first", first)
    coins = np.asarray(bits)
    if coins.ndim != 2 or not coins.size:
        raise InvalidInputError(
            "bits must have a row for each coordinate and a column for each of its "
            f"canaries, got shape {coins.shape}"
        )
    ones = np.count_nonzero(coins, axis=1)
    blocks = [
        _Block(seed, number, ones, first, _joiner(sampling, coins.shape[1]))
        for number in range(first // _BLOCK, (first + len(ones) - 1) // _BLOCK + 1)
    ]
    # An inner generator, so that invalid arguments are refused before the first step.
    return _steps(blocks, len(ones), sigma, steps)


def _steps(
    blocks: list["_Block"], coordinates: int, sigma: float, steps: int
) -> Iterator[NDArray[np.float64]]:
    for step in range(steps):
        sums = np.empty(coordinates)
        for block in blocks:
            block.draw(step, sigma, sums)
        yield sums


@final
class _Block:
    """The coordinates of a block that lie in the range."""

    def __init__(
        self,
        seed: np.random.SeedSequence,
        number: int,
        ones: NDArray[np.int64],
        first: int,
        joiner: "_Joiner",
    ) -> None:
        start = number * _BLOCK
        low, high = max(first, start), min(first + len(ones), start + _BLOCK)
        self._inside = slice(low - start, high - start)
        self._outside = slice(low - first, high - first)
        self._joiner = joiner
        joiner.begin(ones[self._outside])
        # Always two words: one key per block number, and none a prefix of another.
        key = (*seed.spawn_key, number >> 32, number & 0xFFFFFFFF)
        child = np.random.SeedSequence(entropy=seed.entropy, spawn_key=key)
        self._rng = np.random.Generator(np.random.PCG64(child))

    def draw(self, step: int, sigma: float, sums: NDArray[np.float64]) -> None:
        """Draw the next step, and write the part that lies in the range."""
        uniform = self._rng.random(_BLOCK)[self._inside]
        noise = self._rng.standard_normal(_BLOCK)[self._inside]
        here = sums[self._outside]
        np.multiply(noise, sigma, out=here)
        here += self._joiner.draw(step, uniform)


class _Joiner(Protocol):
    """Maps uniform numbers to the number of canaries sampled at each coordinate."""

    def begin(self, ones: NDArray[np.int64]) -> None: ...

    def draw(self, step: int, uniform: NDArray[np.float64]) -> NDArray[np.int16]: ...


def _joiner(sampling: SimulatedSampling, per_coordinate: int) -> _Joiner:
    match sampling:
        case Poisson() | PlusMinus():
            return _Independent(sampling.distribution(per_coordinate))
        case Shuffling():
            return _Epochs(sampling, per_coordinate)
        case _:
            assert_never(sampling)


@final
class _Independent:
    def __init__(self, distribution: SumDistribution) -> None:
        self._distribution = distribution

    def begin(self, ones: NDArray[np.int64]) -> None:
        self._below = _below(self._distribution.log_probabilities).take(ones, axis=1)

    def draw(
        self,
        step: int,  # noqa: ARG002 (all steps are the same)
        uniform: NDArray[np.float64],
    ) -> NDArray[np.int16]:
        return self._distribution.first + _count(uniform, self._below)


@final
class _Epochs:
    def __init__(self, shuffling: Shuffling, per_coordinate: int) -> None:
        self._shuffling = shuffling
        self._most = per_coordinate

    def begin(self, ones: NDArray[np.int64]) -> None:
        self._ones = ones

    def draw(self, step: int, uniform: NDArray[np.float64]) -> NDArray[np.int16]:
        batch = step % self._shuffling.batches
        if batch == 0:
            self._left = self._ones.copy()
        below = _batch(self._shuffling, self._most, self._shuffling.batches - batch)
        joined = _count(uniform, below.take(self._left, axis=1))
        self._left -= joined
        return joined


@lru_cache(maxsize=4)
def _batch(shuffling: Shuffling, most: int, left: int) -> NDArray[np.float64]:
    """Return the result of ``_below`` for the first of the remaining batches."""
    return _below(shuffling.log_split(most, part=1, rest=left - 1))


def _below(log_probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return P[at most the i-th sum | N] in row i, column N, for all but the last i."""
    probabilities = np.exp(log_probabilities)
    cumulative = np.cumsum(probabilities, axis=1)
    # Rounding must not let a uniform number reach a sum of probability 0.
    beyond = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1] == 0
    cumulative[:, :-1][beyond[:, 1:]] = 1.0
    return cumulative[:, :-1].T.copy()


def _count(
    uniform: NDArray[np.float64], below: NDArray[np.float64]
) -> NDArray[np.int16]:
    """Return the number of entries of each column at or below a uniform number."""
    reached = (uniform >= below).view(np.int8)
    counted: NDArray[np.int16] = np.add.reduce(reached, axis=0, dtype=np.int16)
    return counted
