"""What many steps say of many coordinates, without making every step at each of them.

Given the number of ones at a coordinate, the log-likelihoods of all steps are a sum of
independent vectors, one of each step. So steps are taken together in blocks, for each
number of ones some thousands of blocks are simulated, sums of blocks drawn from that
pool make rows of blocks, and what all steps say of a coordinate is the sum of rows
drawn from the pool of rows. A thousand steps at a million coordinates then cost what a
few steps do.

A pool's mean and covariance are a little off by chance, which every coordinate would
share, and which does not average out. Those of one step are known to many digits, by
quadrature, so the pool is moved and stretched until it has them; what remains is chance
in its shape, which a sum of tens or hundreds of blocks hardly shows.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpaudit.dpsgd.joining import Joining
from dpaudit.dpsgd.likelihood import CountLikelihood

__all__ = ["pooled_likelihood"]

_LENGTH = 16  # steps of a block, about, unless that makes too few or too many
_FEWEST_BLOCKS, _MOST_BLOCKS = 16, 256
_ROWS = 8  # of blocks, that make up a training
_FEWEST_STEPS = 64  # fewer are made one by one
_LEAST = 512  # blocks of a pool
_REACH, _PER_NOISE = 9.0, 12  # the grid of sums: standard deviations, points in one
_NEGLIGIBLE = 1e-9  # of the largest variance
_ODD = 0.5  # a pool whose variances are off by more is left as it is


def pooled_likelihood(
    joining: Joining,
    bits: NDArray[np.int8],
    rng: np.random.Generator,
    *,
    sigma: float,
    steps: int,
    blocks: int = 40_000,
) -> NDArray[np.float64]:
    """Return log-likelihoods of the number of ones, a row for each coordinate.

    Args:
        joining: How canaries join a step.
        bits: The coins, in row of the coordinate.
        rng: Draws it all.
        sigma: Standard deviation of the noise, over the clipping norm.
        steps: How many steps.
        blocks: How many blocks are simulated, for all numbers of ones together.

    Example:
        >>> from dpaudit.dpsgd.joining import Poisson
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
        found[order, 1:] = _said(joining, s, ones[order], sigma, steps, rng)
        return found
    present, numbers = np.unique(ones, return_counts=True)
    sizes = np.maximum(_LEAST, np.ceil(blocks * numbers / len(ones)).astype(int))
    blocks_of_row = _blocks_of_row(steps)
    number = _ROWS * blocks_of_row
    moments = list(_moments(joining, s, sigma))
    for many, row, drawn in (
        (steps // number, blocks_of_row, _ROWS),
        (steps % number, 1, 1),
    ):
        if not many:
            continue
        said = _said(joining, s, np.repeat(present, sizes), sigma, many, rng)
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
    joining: Joining,
    per_coordinate: int,
    ones: NDArray[np.int64],
    sigma: float,
    steps: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return what steps say of numbers of ones, relative to none at all.

    Args:
        joining: How canaries join a step.
        per_coordinate: Canaries at each coordinate.
        ones: How many of them are included at each, rising.
        sigma: Standard deviation of the noise.
        steps: How many steps.
        rng: Draws them.
    """
    law = joining.law(per_coordinate)
    present, ends = np.unique(ones, return_index=True)
    below = np.cumsum(np.exp(law.log_chances[present]), axis=1)[:, :-1]
    likelihood = CountLikelihood(
        coordinates=len(ones), per_coordinate=per_coordinate, joining=joining
    )
    for _ in range(steps):
        drawn = np.split(rng.random(len(ones)), ends[1:])
        joined = [np.searchsorted(*each) for each in zip(below, drawn, strict=True)]
        noise = sigma * rng.standard_normal(len(ones))
        likelihood.observe(law.first + np.concatenate(joined) + noise, sigma)
    said = likelihood.log_likelihood
    return np.asarray(said[:, 1:] - said[:, :1])


def _moments(
    joining: Joining, per_coordinate: int, sigma: float
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield mean and covariance of what one step says, for each number of ones."""
    law = joining.law(per_coordinate)
    spacing = sigma / _PER_NOISE
    low, high = law.sums[0] - _REACH * sigma, law.sums[-1] + _REACH * sigma
    x = np.arange(low, high + spacing, spacing)
    likelihood = CountLikelihood(
        coordinates=len(x), per_coordinate=per_coordinate, joining=joining
    )
    likelihood.observe(x, sigma)
    said = likelihood.log_likelihood
    said = said[:, 1:] - said[:, :1]
    density = np.exp(-0.5 * ((x[:, np.newaxis] - law.sums) / sigma) ** 2)
    density /= density.sum(axis=0)
    for chances in np.exp(law.log_chances):
        weights = density @ chances
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
