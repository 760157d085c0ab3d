"""Privacy levels and efficacy from the loss distribution, at any number of elements.

All follow from ``p(|l|) = 1/2 + int_0^|l| dp(t)``, where ``p(|l|)`` is the probability
that the best guess about an element is correct. With ``q = P[|l| >= t]`` for one group
of a kind of output, and ``B`` binomial with one trial per group and success probability
``q``:

- the average element (the paper's AE-AC-DDP, the best efficacy without abstention) is
  1/2 plus the integral of the expected share ``groups size q / n`` of elements with a
  loss of ``t`` or more;
- the average case (AC-DDP) is 1/2 plus the integral of the probability ``1 - (1 -
  q)^groups`` that there is such an element;
- the best ``k`` (k-AE-AC-DDP, the best efficacy with at least ``k`` guesses) is 1/2
  plus ``1/k`` times the integral of ``E[min(k, size B)]``, the expected number of such
  elements among the ``k`` best. That mean is ``k P[B >= c] + size groups q P[B' <= c -
  2]``, where ``c = ceil(k / size)`` and ``B'`` has one trial fewer: no sum over ``b``;
- the smallest delta at which the distributional level is epsilon, averaged over the
  two orders of M(S | S_i = +1) and M(S | S_i = -1), is ``(1 + e^epsilon)`` times the
  integral of the average tail from epsilon up, because ``E (1 - (1 + e^epsilon)
  p(-|l|))_+`` is. Both orders give the same if the mechanism is invariant under
  exchanging x and y.

The results are accurate to 1e-10 or better, even for 1e8 groups.

Reference: Keinan, Shenfeld and Ligett, Theorems "Optimal efficacy without abstentions"
and "Optimal efficacy", https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Callable
from math import inf, isnan

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.loss_distribution import (
    DiscreteLoss,
    LossDistribution,
    OutputComponent,
)
from dpaudit.stats import binomial_tails
from dpaudit.stats.search import largest_yes
from dpaudit.theory.integrals import tail_average

__all__ = [
    "average_case",
    "average_element",
    "best",
    "delta_at",
    "epsilon_at",
    "exposed",
    "probability_exposed",
]


def average_element(losses: LossDistribution) -> float:
    """Return the mean accuracy of the best guesses about all elements.

    Example:
        >>> values, fair = np.array([0.0, inf]), np.ones(2) / 2
        >>> half = DiscreteLoss(values=values, probabilities=fair)
        >>> kind = OutputComponent(probability=1.0, groups=5, size=1, loss=half)
        >>> average_element(LossDistribution(elements=5, kinds=(kind,)))
        0.75
    """
    return 0.5 + 0.5 * _mean_tail(losses, low=0.0)


def average_case(losses: LossDistribution) -> float:
    """Return the mean accuracy of the best guess about the most exposed element.

    Example:
        >>> values, fair = np.array([0.0, inf]), np.ones(2) / 2
        >>> half = DiscreteLoss(values=values, probabilities=fair)
        >>> kind = OutputComponent(probability=1.0, groups=2, size=1, loss=half)
        >>> average_case(LossDistribution(elements=2, kinds=(kind,)))
        0.875
    """
    return 0.5 + 0.5 * _mixed(losses, _some_exposed)


def best(losses: LossDistribution, guesses: int) -> float:
    """Return the mean accuracy of the best guesses about the ``guesses`` best elements.

    Reference: Keinan, Shenfeld and Ligett, "thm:optimal-efficacy-with-abstentions",
    "thm-restated:condition-for-tightness-of-ora-with-abstentions".

    Example:
        >>> values, fair = np.array([0.0, inf]), np.ones(2) / 2
        >>> half = DiscreteLoss(values=values, probabilities=fair)
        >>> kind = OutputComponent(probability=1.0, groups=2, size=1, loss=half)
        >>> best(LossDistribution(elements=2, kinds=(kind,)), 1)
        0.875
    """
    _validate.whole_number("guesses", guesses, least=1)
    if guesses > losses.elements:
        raise InvalidInputError(
            f"guesses must be at most elements={losses.elements}, got guesses={guesses}"
        )
    return 0.5 + 0.5 * _mixed(
        losses,
        lambda kind: tail_average(
            kind.loss, lambda tails: _mean_least(tails, kind, guesses)
        ),
    )


def delta_at(losses: LossDistribution, epsilon: float) -> float:
    """Return the smallest delta at which the distributional level is ``epsilon``.

    Example:
        >>> values, fair = np.array([0.0, inf]), np.ones(2) / 2
        >>> half = DiscreteLoss(values=values, probabilities=fair)
        >>> kind = OutputComponent(probability=1.0, groups=2, size=1, loss=half)
        >>> delta_at(LossDistribution(elements=2, kinds=(kind,)), 3.0)
        0.5
    """
    _validate.nonnegative("epsilon", epsilon)
    return _mean_tail(losses, low=epsilon)


def epsilon_at(losses: LossDistribution, delta: float) -> float:
    """Return the distributional level: the smallest epsilon at this delta, to 1e-10.

    At ``delta = 0`` it is the largest size of loss that can occur.

    Example:
        >>> values, fair = np.array([0.0, 2.0]), np.ones(2) / 2
        >>> half = DiscreteLoss(values=values, probabilities=fair)
        >>> kind = OutputComponent(probability=1.0, groups=2, size=1, loss=half)
        >>> epsilon_at(LossDistribution(elements=2, kinds=(kind,)), 0.0)
        2.0
    """
    _validate.probability("delta", delta)
    possible = [kind for kind in losses.kinds if kind.probability > 0]
    if delta == 0:
        return max((kind.loss.supremum for kind in possible), default=0.0)
    if _probability_of_certainty(losses) > delta:
        return inf
    return largest_yes(lambda epsilon: _mean_tail(losses, low=epsilon) > delta)


def exposed(losses: LossDistribution, threshold: float) -> float:
    """Return the expected number of elements with a loss of ``threshold`` or more.

    Example:
        >>> values, fair = np.array([0.0, inf]), np.ones(2) / 2
        >>> half = DiscreteLoss(values=values, probabilities=fair)
        >>> kind = OutputComponent(probability=1.0, groups=6, size=1, loss=half)
        >>> exposed(LossDistribution(elements=6, kinds=(kind,)), 1.0)
        3.0
    """
    _check_threshold(threshold)
    return _mixed(
        losses, lambda kind: kind.groups * kind.size * kind.loss.tail(threshold)
    )


def probability_exposed(
    losses: LossDistribution, threshold: float, *, at_least: int
) -> float:
    """Return the probability that ``at_least`` elements reach a loss threshold.

    Example:
        >>> values, fair = np.array([0.0, inf]), np.ones(2) / 2
        >>> half = DiscreteLoss(values=values, probabilities=fair)
        >>> kind = OutputComponent(probability=1.0, groups=2, size=3, loss=half)
        >>> losses = LossDistribution(elements=6, kinds=(kind,))
        >>> probability_exposed(losses, 1.0, at_least=4)
        0.25
    """
    _check_threshold(threshold)
    _validate.whole_number("at_least", at_least, least=1)
    return _mixed(losses, lambda kind: _enough_exposed(kind, threshold, at_least))


def _mixed(losses: LossDistribution, of: Callable[[OutputComponent], float]) -> float:
    """Return the mean over the kinds of output; uninformative outputs count as 0."""
    return float(sum(kind.probability * of(kind) for kind in losses.kinds))


def _mean_tail(losses: LossDistribution, *, low: float) -> float:
    """Return the mean tail over elements and over dp(t) from ``low`` up."""
    return _mixed(
        losses,
        lambda kind: (
            _share(kind, losses) * tail_average(kind.loss, lambda tails: tails, low=low)
        ),
    )


def _share(kind: OutputComponent, losses: LossDistribution) -> float:
    return kind.groups * kind.size / losses.elements


def _some_exposed(kind: OutputComponent) -> float:
    def some(tails: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):  # a tail of 1: log 0, and probability 1
            return np.asarray(-np.expm1(kind.groups * np.log1p(-tails)))

    return tail_average(kind.loss, some)


def _enough_exposed(kind: OutputComponent, threshold: float, number: int) -> float:
    tails = np.array([min(1.0, kind.loss.tail(threshold))])
    return float(
        binomial_tails.at_least(-(-number // kind.size), kind.groups, tails)[0]
    )


def _mean_least(
    tails: NDArray[np.float64], kind: OutputComponent, guesses: int
) -> NDArray[np.float64]:
    """Return E[min(k, size B)] / k for B ~ Bin(groups, tail)."""
    k, s, g = guesses, kind.size, kind.groups
    c = -(-k // s)
    some = binomial_tails.at_least(c, g, tails)
    few = binomial_tails.fewer(c - 1, g - 1, tails)
    return some + s * g / k * tails * few


def _probability_of_certainty(losses: LossDistribution) -> float:
    """Return the mean probability, over elements, that a coin is known for certain."""
    return _mixed(
        losses,
        lambda kind: (
            _share(kind, losses) * kind.loss.tail(inf)
            if isinstance(kind.loss, DiscreteLoss)
            else 0.0
        ),
    )


def _check_threshold(threshold: float) -> None:
    if isnan(threshold) or threshold <= 0:
        raise InvalidInputError(
            "threshold must be above 0 (every loss is 0 or more in size), got "
            f"threshold={threshold!r}"
        )
