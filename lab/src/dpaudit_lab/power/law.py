"""How many of the surest guesses are right: the law, before anything is drawn.

The log-odds of inclusion are ``mu (score - mu / 2)``, so the surest guesses are those
farthest from ``mu / 2`` on either side. Let ``q`` be the share of all scores, by their
law, that are at least as far as the first one left out; among ``n`` scores of which the
``k`` surest are guessed it has the law Beta(k + 1, n - k). Given ``q`` the scores
guessed are independent, and each is guessed rightly with one chance, in closed form. So
the number of right guesses is a mixture of binomials.
``theory.correct_guess_distribution`` says the same of every local mechanism by
quadrature; a plan asks often, and this is faster.

Reference: Xiang, Wang and Wang, "Tight privacy audit in one run",
https://arxiv.org/abs/2509.08704.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit_lab.power.task import Task

__all__ = ["right_among", "right_chances"]

_TAIL = 1e-13  # of the law of a rank that is left out on either side
_NODES = np.polynomial.legendre.leggauss(100)
_HALVINGS = 60


def right_among(task: Task, guesses: int) -> NDArray[np.float64]:
    """Return the chance of 0, 1, ..., ``guesses`` right among the surest.

    Given the rank of the first score that is left out, the scores above it are
    independent, and each guess is right with the same chance.

    Example:
        >>> right_among(Task(canaries=20, mu=100.0), 2)
        array([0., 0., 1.])
    """
    _validate.whole_number("guesses", guesses, least=1)
    weights, right = right_chances(task, guesses)
    v = np.arange(guesses + 1)
    log_ways = -np.log(guesses + 1) - special.betaln(guesses - v + 1, v + 1)
    law = np.zeros(guesses + 1)
    for weight, chance in zip(weights, right, strict=True):
        log_mass = special.xlogy(v, chance) + special.xlog1py(guesses - v, -chance)
        law += weight * np.exp(log_ways + log_mass)
    return np.asarray(law / law.sum())


def right_chances(
    task: Task, guesses: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights and chances of a right guess, whose binomials mix to the law."""
    n, k = task.canaries, guesses
    if k == n:
        return np.ones(1), np.asarray([special.ndtr(task.mu / 2)])
    low = special.betaincinv(k + 1, n - k, _TAIL)
    high = special.betainccinv(k + 1, n - k, _TAIL)
    q = (low + high) / 2 + (high - low) / 2 * _NODES[0]
    log_density = k * np.log(q) + (n - k - 1) * np.log1p(-q)
    weights = special.softmax(log_density + np.log(_NODES[1]))
    # The share q of all scores lies at least t from mu / 2, the right ones above.
    t = _distance(task.mu / 2, q)
    return weights, np.minimum(1.0, special.ndtr(task.mu / 2 - t) / q)


def _distance(half: float, share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far from the middle that share of the scores lies, or farther."""
    low, high = np.zeros_like(share), np.full_like(share, half + 40.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        farther = special.ndtr(half - middle) + special.ndtr(-half - middle) >= share
        low, high = np.where(farther, middle, low), np.where(farther, high, middle)
    return np.asarray(low)
