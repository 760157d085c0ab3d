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

from dataclasses import dataclass
from math import exp, log
from typing import ClassVar, final

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


def curve_log_p_value(counts: Counts, claim: Guarantee) -> float:
    """Return the log of the smaller of both p-values of a curve."""
    pointwise = pointwise_log_p_value(counts, claim)
    if counts.records_per_coin != 1:  # the recursion is for single records
        return pointwise
    # The recursion is asked only whether it can do better.
    low, high = -700.0, pointwise
    if high <= low or not recursion(counts, claim, log_tail=high - 1e-9):
        return pointwise
    while high - low > 1e-6:
        middle = (low + high) / 2
        if recursion(counts, claim, log_tail=middle):
            high = middle
        else:
            low = middle
    return high


def pointwise_log_p_value(counts: Counts, claim: Guarantee) -> float:
    """Return the log of the least exact p-value over the points of a curve.

    Points far apart are asked first, then those around the best: fewer points are still
    a valid claim, and p-values along a curve have one valley.
    """
    epsilons, deltas = claim.points()

    def at(i: int) -> float:
        epsilon, delta = float(epsilons[i]), float(deltas[i])
        return Exact().log_p_value(counts, epsilon=epsilon, delta=delta)

    stride = max(1, round(len(epsilons) ** (1 / 3)))
    best = min(range(0, len(epsilons), stride), key=at)
    near = range(max(0, best - stride), min(len(epsilons), best + stride + 1))
    return min(map(at, near))


def recursion(counts: Counts, claim: Guarantee, *, log_tail: float) -> bool:
    """Return whether a chance of ``e^log_tail`` for the counts is impossible.

    Args:
        counts: What the guesser did.
        claim: The curve.
        log_tail: Log of the chance, of as many right guesses or more, that is refuted.
    """
    check_at_once(counts, GaussianFamily.method)
    if counts.records_per_coin != 1:
        raise InvalidInputError("the recursion is for coins of one record each")
    m, r, v = counts.canaries, counts.guesses, counts.correct
    right, wrong, whole = exp(log_tail) * v / m, exp(log_tail) * (r - v) / m, r / m
    for i in range(v - 1, -1, -1):
        more = claim.complement_inverse(min(1.0, right)) * (counts.alternatives - 1)
        if more <= wrong:  # nothing is forced below any more
            return False
        right, wrong = right + i / (r - i) * (more - wrong), more
        if right + wrong > whole:
            return True
    return False


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
