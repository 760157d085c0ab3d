"""Bounds against a whole privacy curve at once (f-DP).

A claim that is a curve implies (epsilon, delta(epsilon))-DP for every epsilon. Three
p-values for the same event, "this many right guesses or more", are at hand, and the
smallest is valid too, without any charge for choosing:

*Point-wise*: the least exact p-value over all points of the curve.

*Recursive* (Mahloujifar, Melis and Chaudhuri, algorithm 3): if the chances ``p_i`` of
exactly ``i`` right guesses had a tail of tau, then the trade-off between right and
wrong guesses, averaged over canaries, forces more and more mass below, step by step; if
it exceeds what there is, tau is refuted. Any trade-off curve will do.

*Lines* (``bounds/lines.py``): several points together, by a linear program. It is the
sharpest and takes seconds, so it is used only if asked for.

Against a family of curves ordered by a parameter, the largest parameter that is
rejected is a lower bound on the *parameter* (tier B). Read as epsilon it says something
about the mechanism only if its curve belongs to the family.

Reference: https://arxiv.org/abs/2410.22235, theorem 3.1 and algorithm 3; point-wise:
docs/explanation/exact-bound.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import exp, log
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.bounds.bound import ParameterBound
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.lines import lines_log_p_value
from dpaudit.bounds.reads import Counts, check_at_once
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit.stats.search import largest_yes

__all__ = ["GaussianFamily", "curve_log_p_value", "pointwise_log_p_value", "recursion"]


_FURTHER = 1.1  # times the mu of the other p-values; lines gain a few percent
_HALVINGS = 6
_CLOSE = 1e-6  # to the log of the recursion's p-value
_AHEAD = 5  # halvings that are asked at once


def curve_log_p_value(counts: Counts, claim: Guarantee) -> float:
    """Return the log of the smaller of both p-values of a curve."""
    pointwise = pointwise_log_p_value(counts, claim)
    if counts.records_per_coin != 1:  # the recursion is for single records
        return pointwise
    # The recursion is asked only whether it can do better.
    low, high = -700.0, pointwise
    if high <= low or not recursion(counts, claim, log_tail=high - 1e-9):
        return pointwise
    while high - low > _CLOSE:
        tails = _halved(low, high)
        refuted = _recursions(counts, claim, tails)
        below, above = 0, len(tails) - 1
        while above - below > 1 and tails[above] - tails[below] > _CLOSE:
            middle = (below + above) // 2
            below, above = (below, middle) if refuted[middle] else (middle, above)
        low, high = tails[below], tails[above]
    return high


def _halved(low: float, high: float) -> list[float]:
    """Return all points that the next halvings may come to, with both ends."""
    points = [low, high]
    for _ in range(_AHEAD):
        middles = [(a + b) / 2 for a, b in pairwise(points)]
        points = [*chain(*zip(points, middles, strict=False)), high]
    return points


def pointwise_log_p_value(counts: Counts, claim: Guarantee) -> float:
    """Return the log of the least exact p-value over the points of a curve.

    Points far apart are asked first, then those around the best: fewer points are still
    a valid claim, and p-values along a curve have one valley.
    """
    epsilons, deltas = claim.points()
    stride = max(1, round(len(epsilons) ** (1 / 3)))
    apart = Exact().log_p_values(counts, epsilons[::stride], deltas[::stride])
    best = stride * int(apart.argmin())
    near = slice(max(0, best - stride), best + stride + 1)
    return float(Exact().log_p_values(counts, epsilons[near], deltas[near]).min())


def recursion(counts: Counts, claim: Guarantee, *, log_tail: float) -> bool:
    """Return whether a chance of ``e^log_tail`` for the counts is impossible.

    Args:
        counts: What the guesser did.
        claim: The curve.
        log_tail: Log of the chance, of as many right guesses or more, that is refuted.
    """
    return bool(_recursions(counts, claim, [log_tail])[0])


def _recursions(
    counts: Counts, claim: Guarantee, log_tails: Sequence[float]
) -> NDArray[np.bool_]:
    """Return what ``recursion`` says of each of many chances."""
    check_at_once(counts, GaussianFamily.method)
    if counts.records_per_coin != 1:
        raise InvalidInputError("the recursion is for coins of one record each")
    m, r, v = counts.canaries, counts.guesses, counts.correct
    least_rates = claim.complement_inverses()
    tails = np.array([exp(log_tail) for log_tail in log_tails])
    right, wrong, whole = tails * v / m, tails * (r - v) / m, r / m
    refuted = np.zeros(len(tails), np.bool_)
    undecided = np.arange(len(tails))
    for i in range(v - 1, -1, -1):
        more = least_rates(np.minimum(1.0, right)) * (counts.alternatives - 1)
        forced = more > wrong  # otherwise nothing is forced below any more
        right, wrong = right + i / (r - i) * (more - wrong), more
        too_much = right + wrong > whole
        still = forced & ~too_much
        if still.all():
            continue
        refuted[undecided[forced & too_much]] = True
        undecided, right, wrong = undecided[still], right[still], wrong[still]
        if not len(undecided):
            break
    return refuted


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianFamily:
    """The lower bound on mu, if the mechanism is mu-GDP for some mu.

    Attributes:
        lines: How many points of the curve a linear program takes together; 0 for
            none. A dozen rejects a few percent more and takes seconds.

    Example:
        >>> counts = Counts(canaries=1000, guesses=200, correct=150)
        >>> print(GaussianFamily().parameter_lower(counts, delta=1e-5, alpha=0.05))
        mu >= 0.339 (alpha = 0.05, method gdp, tier B: Gaussian privacy only; in that \
family epsilon = 1.296 at delta = 1e-05)
    """

    lines: int = 0
    method: ClassVar[str] = "gdp"
    reference: ClassVar[str] = "https://arxiv.org/abs/2410.22235, algorithm 3"

    def parameter_lower(
        self, counts: Counts, *, delta: float, alpha: float
    ) -> ParameterBound:
        """Return the largest mu that some p-value rejects at level ``alpha``."""
        _validate.probability("delta", delta)
        _validate.error_level("alpha", alpha)
        log_alpha = log(alpha)

        def rejected(mu: float) -> bool:
            claim = GaussianDP(mu=mu)
            return (
                recursion(counts, claim, log_tail=log_alpha)
                or pointwise_log_p_value(counts, claim) <= log_alpha
            )

        mu = largest_yes(rejected)
        if self.lines and mu > 0:
            mu = _further(counts, mu, log_alpha, lines=self.lines)
        return ParameterBound(
            parameter_lower=mu,
            parameter="mu",
            family="Gaussian privacy",
            model_epsilon=GaussianDP(mu=mu).epsilon_at(delta),
            delta=delta,
            alpha=alpha,
            method=self.method,
            reference=self.reference,
        )


def _further(counts: Counts, mu: float, log_alpha: float, *, lines: int) -> float:
    """Return a larger mu that several points together reject, if one is found."""
    low, high = mu, mu * _FURTHER
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        claim = GaussianDP(mu=middle)
        if lines_log_p_value(counts, claim, lines=lines) <= log_alpha:
            low = middle
        else:
            high = middle
    return low
