"""Simulates how confident the guesses about Dirac canaries are, as a distribution.

Confidence of guesses. A coordinate holds ``s`` canaries. The exact posterior of its
noisy sums gives log-odds for the first coin; once that is revealed, for the second, and
so on: round after round. A posterior is calibrated, so a guess with log-odds ``l`` is
correct with probability ``e^|l| / (1 + e^|l|)``, and the distribution of ``|l|`` in
each round suffices to predict an audit. Coordinates are independent and identically
distributed, so it does not depend on their number: it is simulated once, with many
thousands of coordinates, and serves audits of every size. The simulation flips its own
coins; a plan made from it uses none of the audit's.

Many steps at many coordinates are simulated without drawing each step at each of them.
Given the number of ones at a coordinate, the log-likelihood of all steps is a sum of
independent vectors, one per step. So steps are grouped in blocks, and for each number
of ones some thousands of blocks are simulated as a pool. Sums of blocks drawn from this
pool form rows, and the log-likelihood of a coordinate is a sum of rows drawn from the
pool of rows. A thousand steps at a million coordinates then cost as much as a few
steps.

A pool's mean and covariance have a small random error, which all coordinates share, so
that it does not average out. Those of one step are known to many digits, by quadrature,
so the pool is shifted and scaled to match them. What remains is random error in its
shape, which is negligible in a sum of tens or hundreds of blocks.

Reference: docs/developer/decisions/0003-posterior.md for the posterior.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.dpsgd.correlated_likelihood import PatternLikelihood
from dpaudit.dpsgd.likelihood import CountLikelihood
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.dpsgd.sampling import IndependentSampling, Poisson
from dpaudit.dpsgd.strategy import Whitening
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior, log_fair

__all__ = [
    "GuessDistribution",
    "guess_distribution",
    "pooled_likelihood",
    "simulated_likelihood",
    "steps_drawn",
]

_BLOCK_STEPS = 16  # steps per block, about, unless that gives too few or too many
_FEWEST_BLOCKS, _MOST_BLOCKS = 16, 256
_ROWS = 8  # rows of blocks in a training run
_FEWEST_STEPS = 64  # fewer are simulated one by one
_MIN_POOL = 512  # blocks of a pool
_REACH, _PER_NOISE = 9.0, 12  # the grid of sums: standard deviations, points in one
_NEGLIGIBLE = 1e-9  # of the largest variance
_SILENT = 1e-9  # of a clipping norm: a cohort that never participates
_MAX_LOG_ODDS = 40.0  # higher log-odds make no difference at any number of guesses
_MAX_MISMATCH = 0.5  # of log-variances; a pool that is further off is not scaled


def pooled_likelihood(
    sampling: IndependentSampling,
    bits: NDArray[np.int8],
    rng: np.random.Generator,
    *,
    sigma: float,
    steps: int,
    blocks: int = 40_000,
) -> NDArray[np.float64]:
    """Return log-likelihoods of the number of ones, a row for each coordinate.

    Args:
        sampling: How canaries are sampled for a step.
        bits: The coins, a row for each coordinate.
        rng: Source of all randomness.
        sigma: Noise multiplier: standard deviation of the noise over the clipping norm.
        steps: The number of steps.
        blocks: The number of blocks to simulate, for all numbers of ones together.

    Example:
        >>> from dpaudit.dpsgd.sampling import Poisson
        >>> coins = np.array([[1], [0], [1]], np.int8)
        >>> rng = np.random.default_rng(1)
        >>> found = pooled_likelihood(
        ...     Poisson(rate=0.1), coins, rng, sigma=0.5, steps=1000
        ... )
        >>> found[:, 1] > found[:, 0]
        array([ True, False,  True])
    """
    s, ones = bits.shape[1], bits.sum(axis=1, dtype=np.int64)
    total = np.zeros((len(bits), s + 1))
    if steps < _FEWEST_STEPS:
        order = np.argsort(ones, kind="stable")
        total[order, 1:] = _simulated(sampling, s, ones[order], sigma, steps, rng)
        return total
    present, numbers = np.unique(ones, return_counts=True)
    sizes = np.maximum(_MIN_POOL, np.ceil(blocks * numbers / len(ones)).astype(int))
    blocks_of_row = _blocks_of_row(steps)
    number = _ROWS * blocks_of_row
    moments = list(_moments(sampling, s, sigma))
    for many, row, drawn in (
        (steps // number, blocks_of_row, _ROWS),
        (steps % number, 1, 1),
    ):
        if not many:
            continue
        pooled = _simulated(sampling, s, np.repeat(present, sizes), sigma, many, rng)
        pools = np.split(pooled, np.cumsum(sizes)[:-1])
        for count, pool in zip(present.tolist(), pools, strict=True):
            mean, covariance = moments[count]
            _match(pool, many * mean, many * covariance)
            rows = pool
            if row > 1:
                rows = _summed(pool, row, len(pool), rng)
                _match(rows, row * many * mean, row * many * covariance)
            at = np.flatnonzero(ones == count)
            total[at, 1:] += _summed(rows, drawn, len(at), rng)
    return total


def _summed(
    pool: NDArray[np.float64], number: int, times: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return ``times`` sums of ``number`` vectors, drawn with replacement."""
    total = np.zeros((times, pool.shape[1]))
    for _ in range(number):
        which = rng.integers(0, len(pool), times, dtype=np.int32)
        total += np.take(pool, which, axis=0)
    return total


def _blocks_of_row(steps: int) -> int:
    """Return the number of blocks in a row that needs the fewest simulated steps."""
    number = int(np.clip(steps // _BLOCK_STEPS, _FEWEST_BLOCKS, _MOST_BLOCKS))
    least = -(-number // _ROWS)

    def simulated_steps(blocks: int) -> int:
        return sum(divmod(steps, _ROWS * blocks))  # those of a block, and the remainder

    return min(range(least, 2 * least), key=simulated_steps)


def _simulated(
    sampling: IndependentSampling,
    per_coordinate: int,
    ones: NDArray[np.int64],
    sigma: float,
    steps: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return log-likelihoods of numbers of ones, relative to none, from drawn steps.

    Args:
        sampling: How canaries are sampled for a step.
        per_coordinate: Canaries at each coordinate.
        ones: The number of them that are included at each, rising.
        sigma: Standard deviation of the noise.
        steps: The number of steps.
        rng: Draws the steps.
    """
    distribution = sampling.distribution(per_coordinate)
    present, ends = np.unique(ones, return_index=True)
    below = np.cumsum(np.exp(distribution.log_probabilities[present]), axis=1)[:, :-1]
    likelihood = CountLikelihood(
        coordinates=len(ones), per_coordinate=per_coordinate, sampling=sampling
    )
    for _ in range(steps):
        drawn = np.split(rng.random(len(ones)), ends[1:])
        joined = [np.searchsorted(*each) for each in zip(below, drawn, strict=True)]
        noise = sigma * rng.standard_normal(len(ones))
        likelihood.observe(distribution.first + np.concatenate(joined) + noise, sigma)
    absolute = likelihood.log_likelihood
    return np.asarray(absolute[:, 1:] - absolute[:, :1])


def _moments(
    sampling: IndependentSampling, per_coordinate: int, sigma: float
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield mean and covariance of one step's log-likelihood, by number of ones."""
    distribution = sampling.distribution(per_coordinate)
    spacing = sigma / _PER_NOISE
    low, high = (
        distribution.sums[0] - _REACH * sigma,
        distribution.sums[-1] + _REACH * sigma,
    )
    x = np.arange(low, high + spacing, spacing)
    likelihood = CountLikelihood(
        coordinates=len(x), per_coordinate=per_coordinate, sampling=sampling
    )
    likelihood.observe(x, sigma)
    relative = likelihood.log_likelihood
    relative = relative[:, 1:] - relative[:, :1]
    density = np.exp(-0.5 * ((x[:, np.newaxis] - distribution.sums) / sigma) ** 2)
    density /= density.sum(axis=0)
    for probabilities in np.exp(distribution.log_probabilities):
        weights = density @ probabilities
        mean = weights @ relative
        centred = relative - mean
        yield mean, (weights[:, np.newaxis] * centred).T @ centred


def _match(
    pool: NDArray[np.float64],
    mean: NDArray[np.float64],
    covariance: NDArray[np.float64],
) -> None:
    """Shift and scale a pool to a mean, and a covariance where it varies."""
    pool -= pool.mean(axis=0)
    sizes, directions = np.linalg.eigh(covariance)
    kept = sizes > _NEGLIGIBLE * max(sizes[-1], 1e-300)
    axes = directions[:, kept]
    along = pool @ axes
    scaled = along / np.sqrt(sizes[kept])
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(pool))
    if len(values) and np.abs(np.log(np.maximum(values, 1e-9))).max() < _MAX_MISMATCH:
        whitened = scaled @ (vectors / np.sqrt(values)) @ vectors.T
        pool += (whitened * np.sqrt(sizes[kept]) - along) @ axes.T
    pool += mean


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuessDistribution:
    """A sample of the guesses' distribution, from simulated coordinates.

    Attributes:
        confidence: ``|log-odds|`` of the coin that is guessed next, a row for each
            round and a column for each coordinate, at most 40.
        variance: For each coordinate the posterior variance of its number of ones.
    """

    confidence: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def per_coordinate(self) -> int:
        """Canaries at each coordinate: the number of rounds."""
        return int(self.confidence.shape[0])

    @property
    def coordinates(self) -> int:
        """The number of simulated coordinates."""
        return int(self.confidence.shape[1])

    def probability(self) -> NDArray[np.float64]:
        """Return the probability that each guess is correct."""
        return np.asarray(special.expit(self.confidence))


def guess_distribution(
    training: TrainingSetup | tuple[TrainingSetup, ...],
    *,
    per_coordinate: int,
    coordinates: int,
    seed: int,
    blocks: int = 40_000,
) -> GuessDistribution:
    """Return the distribution of guesses, from so many simulated coordinates.

    Args:
        training: The training run; several setups are steps of one run, configured
            differently.
        per_coordinate: Canaries at each coordinate.
        coordinates: The number of coordinates to simulate.
        seed: Seed of the simulation.
        blocks: Blocks of steps in the pool, if there are many steps.

    Example:
        >>> training = TrainingSetup(steps=1, rate=1.0, noise=1.0)
        >>> distribution = guess_distribution(
        ...     training, per_coordinate=2, coordinates=5000, seed=1
        ... )
        >>> probability = distribution.probability()
        >>> probability.mean(axis=1).round(2)  # the second coin is known better
        array([0.67, 0.69])
    """
    rng = np.random.default_rng((seed, per_coordinate))
    bits = rng.integers(0, 2, (coordinates, per_coordinate), dtype=np.int8)
    # Given the coins, steps are independent: their log-likelihoods add up.
    likelihood = sum(
        simulated_likelihood(each, bits, rng, blocks=blocks)
        for each in (training if isinstance(training, tuple) else (training,))
    )
    assert not isinstance(likelihood, int)  # there is at least one setup
    posterior = ExchangeablePosterior(likelihood)
    confidence = np.empty((per_coordinate, coordinates))
    for played, index in enumerate(posterior.batches()):
        np.minimum(
            np.abs(posterior.log_odds(index)), _MAX_LOG_ODDS, out=confidence[played]
        )
        truth: NDArray[np.int8] = 2 * bits[:, played] - np.int8(1)
        posterior.reveal(index, truth)
    return GuessDistribution(confidence=confidence, variance=_variance(likelihood))


def simulated_likelihood(
    training: TrainingSetup,
    bits: NDArray[np.int8],
    rng: np.random.Generator,
    *,
    blocks: int = 40_000,
) -> NDArray[np.float64]:
    """Return log-likelihoods of the number of ones, from a simulated training run.

    Args:
        training: The setup of the training run.
        bits: The coins, a row for each coordinate.
        rng: Source of all other randomness.
        blocks: Blocks of steps in the pool, if there are many steps.

    Returns:
        A row for each coordinate.

    Example:
        >>> coins = np.array([[1, 1], [0, 0]], np.int8)
        >>> rng = np.random.default_rng(1)
        >>> quiet = TrainingSetup(steps=4, noise=0.1)
        >>> simulated_likelihood(quiet, coins, rng).argmax(axis=1)
        array([2, 0])
    """
    made = training.sufficient()
    if made.takes_turns:
        return _pattern_likelihood(made, bits, rng)
    if training.takes_turns and training.rate == 1:
        return _matched_likelihood(training, bits, rng)
    return pooled_likelihood(
        Poisson(rate=made.rate),
        bits,
        rng,
        sigma=made.noise,
        steps=made.steps,
        blocks=blocks,
    )


def steps_drawn(training: TrainingSetup) -> int:
    """Return how many steps are drawn at each coordinate; 0 if blocks are.

    Example:
        >>> [steps_drawn(TrainingSetup(steps=t, rate=0.1, noise=1.0)) for t in (9, 99)]
        [9, 0]
    """
    made = training.sufficient()
    return 0 if made.steps >= _FEWEST_STEPS or made.takes_turns else made.steps


def _matched_likelihood(
    training: TrainingSetup, bits: NDArray[np.int8], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return log-likelihoods if participation is known, from one number each."""
    signal = training.signals()[training.own_participation.cohort_of(len(bits))]
    scale = training.noise / np.maximum(signal, _SILENT)
    likelihood = CountLikelihood(
        coordinates=len(bits),
        per_coordinate=bits.shape[1],
        sampling=Poisson(rate=1.0),
    )
    likelihood.observe(bits.sum(axis=1) + scale * rng.normal(size=len(bits)), scale)
    return likelihood.log_likelihood


def _pattern_likelihood(
    training: TrainingSetup, bits: NDArray[np.int8], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return log-likelihoods if the adversary does not know the canaries' steps."""
    if bits.shape[1] > 1:
        raise InvalidInputError(
            f"per_coordinate={bits.shape[1]}: canaries whose patterns are unknown are "
            "planned 1 at each coordinate"
        )
    participation, strategy = training.own_participation, training.own_strategy
    cohort = participation.cohort_of(len(bits))
    seen = PatternLikelihood(
        cohort, participation, rate=training.rate, strategy=strategy
    )
    used = np.zeros(len(bits), np.int64)
    # The signal is whitened as the sums are; the noise is drawn white.
    whitening = Whitening(strategy, len(bits))
    for step in range(training.steps):
        turn = (cohort == participation.cohort_at(step)) & (
            rng.random(len(bits)) < training.rate
        )
        turn &= used < (participation.most or np.inf)
        used += turn
        seen.whitened(np.zeros(len(bits)))
        signal = whitening.add(turn * bits[:, 0])
        noise = training.noise * rng.normal(size=len(bits))
        seen.add(signal + noise, training.noise)
    ratio = seen.log_ratio
    return np.stack([np.zeros(len(ratio)), ratio], axis=1)


def _variance(log_likelihood: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the posterior variance of the number of ones."""
    n = np.arange(log_likelihood.shape[1])
    # A column for each coordinate: numpy is slow at many short rows.
    columns = np.ascontiguousarray((log_likelihood + log_fair(len(n) - 1)).T)
    probabilities = special.softmax(columns, axis=0)
    return np.asarray(n**2 @ probabilities - np.square(n @ probabilities))
