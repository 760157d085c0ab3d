"""How right and how sure the guesses about Dirac canaries are, as a distribution.

How surely coins can be guessed. A coordinate holds ``s`` canaries. The exact posterior
of its noisy sums gives log-odds for the first coin; once that is revealed, for the
second, and so on: round after round. A posterior is calibrated, so a guess with
log-odds ``l`` is right with probability ``e^|l| / (1 + e^|l|)``, and how ``|l|`` is
distributed in each round is all that is needed to predict an audit. Coordinates are
independent and alike, so this does not depend on how many there are: it is drawn once,
from many thousands of simulated coordinates, and serves audits of every size. The coins
in it are the simulation's own; a plan made from it uses none of the audit's.

What many steps show of many coordinates, without making every step at each of them.
Given the number of ones at a coordinate, the log-likelihoods of all steps are a sum of
independent vectors, one of each step. So steps are taken together in blocks, for each
number of ones some thousands of blocks are simulated, sums of blocks drawn from that
pool make rows of blocks, and what all steps show of a coordinate is the sum of rows
drawn from the pool of rows. A thousand steps at a million coordinates then cost what a
few steps do.

A pool's mean and covariance are a little off by chance, which every coordinate would
share, and which does not average out. Those of one step are known to many digits, by
quadrature, so the pool is moved and stretched until it has them; what remains is chance
in its shape, which a sum of tens or hundreds of blocks hardly shows.

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
]

_LENGTH = 16  # steps of a block, about, unless that makes too few or too many
_FEWEST_BLOCKS, _MOST_BLOCKS = 16, 256
_ROWS = 8  # of blocks, that make up a training
_FEWEST_STEPS = 64  # fewer are made one by one
_LEAST = 512  # blocks of a pool
_REACH, _PER_NOISE = 9.0, 12  # the grid of sums: standard deviations, points in one
_NEGLIGIBLE = 1e-9  # of the largest variance
_SILENT = 1e-9  # of a clipping norm: a cohort that never participates
_MOST_SURE = 40.0  # log-odds beyond which no count of guesses tells more
_ODD = 0.5  # a pool whose variances are off by more is left as it is


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
        sampling: How canaries join a step.
        bits: The coins, in row of the coordinate.
        rng: Draws it all.
        sigma: Standard deviation of the noise, over the clipping norm.
        steps: How many steps.
        blocks: How many blocks are simulated, for all numbers of ones together.

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
    found = np.zeros((len(bits), s + 1))
    if steps < _FEWEST_STEPS:
        order = np.argsort(ones, kind="stable")
        found[order, 1:] = _said(sampling, s, ones[order], sigma, steps, rng)
        return found
    present, numbers = np.unique(ones, return_counts=True)
    sizes = np.maximum(_LEAST, np.ceil(blocks * numbers / len(ones)).astype(int))
    blocks_of_row = _blocks_of_row(steps)
    number = _ROWS * blocks_of_row
    moments = list(_moments(sampling, s, sigma))
    for many, row, drawn in (
        (steps // number, blocks_of_row, _ROWS),
        (steps % number, 1, 1),
    ):
        if not many:
            continue
        said = _said(sampling, s, np.repeat(present, sizes), sigma, many, rng)
        pools = np.split(said, np.cumsum(sizes)[:-1])
        for count, pool in zip(present.tolist(), pools, strict=True):
            mean, covariance = moments[count]
            _match(pool, many * mean, many * covariance)
            rows = pool
            if row > 1:
                rows = _summed(pool, row, len(pool), rng)
                _match(rows, row * many * mean, row * many * covariance)
            at = np.flatnonzero(ones == count)
            found[at, 1:] += _summed(rows, drawn, len(at), rng)
    return found


def _summed(
    pool: NDArray[np.float64], number: int, times: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return sums of so many of a pool, drawn with replacement."""
    total = np.zeros((times, pool.shape[1]))
    for _ in range(number):
        which = rng.integers(0, len(pool), times, dtype=np.int32)
        total += np.take(pool, which, axis=0)
    return total


def _blocks_of_row(steps: int) -> int:
    """Return how many blocks a row has, so that few steps have to be made."""
    number = int(np.clip(steps // _LENGTH, _FEWEST_BLOCKS, _MOST_BLOCKS))
    least = -(-number // _ROWS)

    def made(blocks: int) -> int:
        return sum(divmod(steps, _ROWS * blocks))  # those of a block, and what is left

    return min(range(least, 2 * least), key=made)


def _said(
    sampling: IndependentSampling,
    per_coordinate: int,
    ones: NDArray[np.int64],
    sigma: float,
    steps: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return what steps say of numbers of ones, relative to none at all.

    Args:
        sampling: How canaries join a step.
        per_coordinate: Canaries at each coordinate.
        ones: How many of them are included at each, rising.
        sigma: Standard deviation of the noise.
        steps: How many steps.
        rng: Draws them.
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
    said = likelihood.log_likelihood
    return np.asarray(said[:, 1:] - said[:, :1])


def _moments(
    sampling: IndependentSampling, per_coordinate: int, sigma: float
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield mean and covariance of what one step says, for each number of ones."""
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
    said = likelihood.log_likelihood
    said = said[:, 1:] - said[:, :1]
    density = np.exp(-0.5 * ((x[:, np.newaxis] - distribution.sums) / sigma) ** 2)
    density /= density.sum(axis=0)
    for probabilities in np.exp(distribution.log_probabilities):
        weights = density @ probabilities
        mean = weights @ said
        off = said - mean
        yield mean, (weights[:, np.newaxis] * off).T @ off


def _match(
    pool: NDArray[np.float64],
    mean: NDArray[np.float64],
    covariance: NDArray[np.float64],
) -> None:
    """Give a pool a mean, and a covariance in the directions in which it varies."""
    pool -= pool.mean(axis=0)
    sizes, directions = np.linalg.eigh(covariance)
    kept = sizes > _NEGLIGIBLE * max(sizes[-1], 1e-300)
    axes = directions[:, kept]
    along = pool @ axes
    scaled = along / np.sqrt(sizes[kept])
    found, turned = np.linalg.eigh(scaled.T @ scaled / len(pool))
    if len(found) and np.abs(np.log(np.maximum(found, 1e-9))).max() < _ODD:
        whitened = scaled @ (turned / np.sqrt(found)) @ turned.T
        pool += (whitened * np.sqrt(sizes[kept]) - along) @ axes.T
    pool += mean


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuessDistribution:
    """What was drawn of simulated coordinates.

    Attributes:
        confidence: ``|log-odds|`` of the coin that is guessed next, in row of the round
            and column of the coordinate, 40 at most.
        variance: For each coordinate the variance of its number of ones, given what was
            seen of it.
    """

    confidence: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def per_coordinate(self) -> int:
        """Canaries at each coordinate: the number of rounds."""
        return int(self.confidence.shape[0])

    @property
    def coordinates(self) -> int:
        """How many coordinates were simulated."""
        return int(self.confidence.shape[1])

    def probability(self) -> NDArray[np.float64]:
        """Return how likely each guess is right."""
        return np.asarray(special.expit(self.confidence))


def guess_distribution(
    training: TrainingSetup | tuple[TrainingSetup, ...],
    *,
    per_coordinate: int,
    coordinates: int,
    seed: int,
    blocks: int = 40_000,
) -> GuessDistribution:
    """Return the law of guesses, from so many simulated coordinates.

    Args:
        training: What is trained; several are steps of one run, configured differently.
        per_coordinate: Canaries at each coordinate.
        coordinates: How many to simulate.
        seed: Decides the simulation.
        blocks: Blocks of steps that are simulated first, if there are many steps.

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
    # Given the coins, steps are independent: what they say adds up.
    seen = sum(
        simulated_likelihood(each, bits, rng, blocks=blocks)
        for each in (training if isinstance(training, tuple) else (training,))
    )
    assert not isinstance(seen, int)  # there is a training
    posterior = ExchangeablePosterior(seen)
    confidence = np.empty((per_coordinate, coordinates))
    for played, index in enumerate(posterior.batches()):
        np.minimum(
            np.abs(posterior.log_odds(index)), _MOST_SURE, out=confidence[played]
        )
        truth: NDArray[np.int8] = 2 * bits[:, played] - np.int8(1)
        posterior.reveal(index, truth)
    return GuessDistribution(confidence=confidence, variance=_variance(seen))


def simulated_likelihood(
    training: TrainingSetup,
    bits: NDArray[np.int8],
    rng: np.random.Generator,
    *,
    blocks: int = 40_000,
) -> NDArray[np.float64]:
    """Return what a training says of the number of ones at each coordinate.

    Args:
        training: What is trained.
        bits: The coins, in row of the coordinate.
        rng: Draws all else.
        blocks: Blocks of steps that are simulated first, if there are many steps.

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


def _matched_likelihood(
    training: TrainingSetup, bits: NDArray[np.int8], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return what is seen of canaries in known turns: one number of a coordinate."""
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
    """Return what is seen of canaries that nobody knows the steps of."""
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
    # What joined is whitened as sums are; the noise is white before it is added.
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
    """Return the variance of the number of ones, given what was seen."""
    n = np.arange(log_likelihood.shape[1])
    probabilities = special.softmax(log_likelihood + log_fair(len(n) - 1), axis=1)
    return np.asarray(probabilities @ n**2 - np.square(probabilities @ n))
