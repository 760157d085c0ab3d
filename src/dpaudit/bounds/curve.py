"""Tests of a whole privacy curve (f-DP), and a lower bound on the whole curve.

A claimed curve implies (epsilon, delta(epsilon))-DP for every epsilon. Of ``m``
canaries ``r`` were guessed, ``v`` correctly. There are three p-values of one event,
"``v`` correct guesses or more", so the smallest is valid too: choosing among them costs
nothing.

*Pointwise*: the smallest exact p-value over all points of the curve.

*Recursive* (Mahloujifar, Melis and Chaudhuri, algorithm 3): if the probabilities
``p_i`` of exactly ``i`` correct guesses have a tail of tau, the trade-off between
correct and wrong guesses, averaged over canaries, forces more and more mass below, step
by step; if that exceeds the total mass, tau is refuted. Any trade-off curve will do.

*Lines*: several points ``(epsilon_l, delta_l)`` together. The proof of the exact bound
(a binomial Stein equation) works with any nonnegative numbers in place of its solution,
and with several points: for ``y_lk >= 0``, ``k`` from 1 to ``r``,

    P[V >= v] <= z + m * sum over l of delta_l max_k y_lk,
    z = max over k of  1[k >= v] - sum over l of (k y_lk - e^epsilon_l (r - k) y_l,k+1).

A linear program finds the best numbers. Its solution need not be trusted: the result is
the right-hand side, computed from the numbers. With enough points it is the largest
probability that any mechanism with that curve attains. It is the sharpest of the three
and takes seconds, so no bound uses it (``lines_log_p_value``).

For a family of curves ordered by a parameter, the largest rejected parameter is a lower
bound on the *parameter* (``GaussianFamily``, model-based). Converted to epsilon it
bounds the mechanism's epsilon only if the mechanism's curve belongs to the family.

Without a family, the exact p-value can be solved for delta (``CurveCertificate``): with
confidence ``1 - alpha``, for *all* epsilons simultaneously, the mechanism's delta at
epsilon is at least

    (alpha - beta) v b_v / (m beta (1 - beta))      wherever beta < alpha,

with ``beta`` and ``b_v`` as in ``exact``. No correction for many epsilons is needed:
the p-value increases with delta and decreases with ``v``, so "some true point of the
curve is rejected" is the event that ``V`` reaches a certain count, and at that count
one true point has a p-value of at most alpha.

References: docs/explanation/bounds.md#variants; for the recursion,
https://arxiv.org/abs/2410.22235, theorem 3.1 and algorithm 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import exp, inf, log, log1p
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.bounds.bound import ParameterBound
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts, check_at_once
from dpaudit.privacy.guarantees import GaussianDP, Guarantee
from dpaudit.stats.binomial import log_tail_and_price
from dpaudit.stats.search import largest_yes

__all__ = [
    "CurveCertificate",
    "GaussianFamily",
    "certified_tail",
    "curve_log_p_value",
    "curve_refuted",
    "lines_log_p_value",
    "pointwise_log_p_value",
    "recursion",
]

_MOST_GUESSES: Final = 4000  # beyond it the program is slow and gains little
_ROUNDING: Final = 1e-11  # more than the certificate's rounding error
_LOG_P_TOLERANCE = 1e-6  # of the log of the recursion's p-value
_HALVINGS_AT_ONCE = 5  # bisection steps evaluated together


def lines_log_p_value(counts: Counts, claim: Guarantee, *, lines: int) -> float:
    """Return the log of a p-value of a curve, from several of its points jointly.

    Args:
        counts: The guesser's counts; with more guesses than the linear program can
            handle, 0 is returned.
        claim: The curve.
        lines: How many points; more are sharper and slower.

    Example:
        >>> from dpaudit.privacy.guarantees import GaussianDP
        >>> counts = Counts(canaries=30, guesses=30, correct=27)
        >>> log_p = lines_log_p_value(counts, GaussianDP(mu=1.0), lines=20)
        >>> round(float(np.exp(log_p)), 2)
        0.15
    """
    check_at_once(counts, "lines")
    if not counts.correct > 0 or counts.guesses > _MOST_GUESSES:
        return 0.0
    epsilons, deltas = _chosen(counts, claim, lines)
    y = _best(counts, epsilons, deltas)
    if y is None:
        return 0.0
    return min(0.0, log(certified_tail(counts, epsilons, deltas, y)))


def certified_tail(
    counts: Counts,
    epsilons: NDArray[np.float64],
    deltas: NDArray[np.float64],
    y: NDArray[np.float64],
) -> float:
    """Return the upper bound on P[V >= v] proved by the numbers ``y``.

    Args:
        counts: The guesser's counts.
        epsilons: The epsilons of the points.
        deltas: The claimed deltas there.
        y: Any numbers, one row per point, one column per k from 1 to the number of
            guesses; negative ones count as 0.
    """
    m, r, v = counts.canaries, counts.guesses, counts.correct
    y = np.maximum(y, 0.0)
    k = np.arange(r + 1)
    here = np.pad(y, ((0, 0), (1, 0)))  # y_l0 is never used: 0 times anything
    above = np.pad(y, ((0, 0), (0, 1)))
    flow = (k * here - np.exp(epsilons)[:, np.newaxis] * (r - k) * above).sum(axis=0)
    z = float(np.max((k >= v) - flow))
    price = m * float(deltas @ y.max(axis=1))
    return min(1.0, max(z, 0.0) + price + _ROUNDING)


def _chosen(
    counts: Counts, claim: Guarantee, lines: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points of the curve, spread over the range where they can matter."""
    epsilons, deltas = claim.points()
    # Abstention acts as a larger delta; points where it is above 1 or tiny are useless.
    effect = deltas * counts.canaries / counts.guesses
    of_use = np.flatnonzero((effect < 1.2) & (effect > 1e-6) & (epsilons < 30))
    if not len(of_use):
        of_use = np.array([int(np.argmin(np.where(epsilons < 30, deltas, inf)))])
    first, last = epsilons[of_use[0]], epsilons[of_use[-1]]
    wanted = np.linspace(first, last, lines)
    place = np.unique(np.searchsorted(epsilons, wanted).clip(of_use[0], of_use[-1]))
    return epsilons[place], deltas[place]


def _best(
    counts: Counts, epsilons: NDArray[np.float64], deltas: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return nearly optimal numbers ``y``; None if the linear program fails."""
    from scipy import optimize, sparse  # noqa: PLC0415 (slow to import)

    m, r, v = counts.canaries, counts.guesses, counts.correct
    lines, k = len(epsilons), np.arange(r + 1)
    # Columns: r y_lk line by line, then the largest of each line, then z. The scale
    # keeps them near 1.
    rows, columns, values = [], [], []
    for line, epsilon in enumerate(epsilons):
        start = line * r - 1  # of y_l1 is line * r
        rows += [k[1:], k[:-1]]
        columns += [start + k[1:], start + k[:-1] + 1]
        values += [-k[1:] / r, np.exp(epsilon) * (r - k[:-1]) / r]
    rows.append(k)
    columns.append(np.full(r + 1, lines * r + lines))
    values.append(-np.ones(r + 1))
    size = lines * r + lines + 1
    flow = sparse.csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(r + 1, size),
    )
    index = np.arange(lines * r)
    below = sparse.csr_array(
        (
            np.concatenate([np.ones(lines * r), -np.ones(lines * r)]),
            (np.tile(index, 2), np.concatenate([index, lines * r + index // r])),
        ),
        shape=(lines * r, size),
    )
    cost = np.concatenate([np.zeros(lines * r), m / r * deltas, [1.0]])
    solution = optimize.linprog(
        cost,
        A_ub=sparse.vstack([flow, below], format="csr"),
        b_ub=np.concatenate([-(k >= v).astype(np.float64), np.zeros(lines * r)]),
        method="highs-ipm",
    )
    if solution.x is None:
        return None
    return np.asarray(solution.x[: lines * r].reshape(lines, r) / r)


def curve_log_p_value(counts: Counts, claim: Guarantee) -> float:
    """Return the log of the smaller of a curve's pointwise and recursive p-values."""
    pointwise = pointwise_log_p_value(counts, claim)
    # The recursion is evaluated only below the pointwise p-value.
    low, high = -700.0, pointwise
    if high <= low or not recursion(counts, claim, log_tail=high - 1e-9):
        return pointwise
    while high - low > _LOG_P_TOLERANCE:
        tails = _halved(low, high)
        refuted = _recursions(counts, claim, tails)
        below, above = 0, len(tails) - 1
        while above - below > 1 and tails[above] - tails[below] > _LOG_P_TOLERANCE:
            middle = (below + above) // 2
            below, above = (below, middle) if refuted[middle] else (middle, above)
        low, high = tails[below], tails[above]
    return high


def curve_refuted(counts: Counts, claim: Guarantee, *, alpha: float) -> bool:
    """Return whether the p-value of a curve is at most alpha, without computing it.

    The computed p-value is larger than the true one by up to its tolerance, so it may
    exceed alpha where this holds.

    Example:
        >>> from dpaudit.privacy.guarantees import GaussianDP
        >>> counts = Counts(canaries=30, guesses=30, correct=29)
        >>> curve_refuted(counts, GaussianDP(mu=0.5), alpha=0.05)
        True
    """
    log_alpha = log(alpha)
    return pointwise_log_p_value(counts, claim) <= log_alpha or recursion(
        counts, claim, log_tail=log_alpha
    )


def _halved(low: float, high: float) -> list[float]:
    """Return all points that the next bisection steps may reach, with both ends."""
    points = [low, high]
    for _ in range(_HALVINGS_AT_ONCE):
        middles = [(a + b) / 2 for a, b in pairwise(points)]
        points = [*chain(*zip(points, middles, strict=False)), high]
    return points


def pointwise_log_p_value(counts: Counts, claim: Guarantee) -> float:
    """Return the log of the smallest exact p-value over the points of a curve.

    A coarse pass over the curve is refined around its best point: fewer points are
    still a valid claim, and p-values along a curve have one minimum.
    """
    epsilons, deltas = claim.points()
    stride = max(1, round(len(epsilons) ** (1 / 3)))
    apart = ExactBound().log_p_values(counts, epsilons[::stride], deltas[::stride])
    best = stride * int(apart.argmin())
    near = slice(max(0, best - stride), best + stride + 1)
    return float(ExactBound().log_p_values(counts, epsilons[near], deltas[near]).min())


def recursion(counts: Counts, claim: Guarantee, *, log_tail: float) -> bool:
    """Return whether the claim rules out a tail probability of ``e^log_tail``.

    Args:
        counts: The guesser's counts.
        claim: The curve.
        log_tail: Log of the probability of as many correct guesses or more.
    """
    return bool(_recursions(counts, claim, [log_tail])[0])


def _recursions(
    counts: Counts, claim: Guarantee, log_tails: Sequence[float]
) -> NDArray[np.bool_]:
    """Return the result of ``recursion`` for each of many probabilities."""
    check_at_once(counts, GaussianFamily.method)
    m, r, v = counts.canaries, counts.guesses, counts.correct
    least_rates = claim.complement_inverses()
    tails = np.array([exp(log_tail) for log_tail in log_tails])
    right, wrong, whole = tails * v / m, tails * (r - v) / m, r / m
    refuted = np.zeros(len(tails), np.bool_)
    undecided = np.arange(len(tails))
    for i in range(v - 1, -1, -1):
        more = least_rates(np.minimum(1.0, right))
        forced = more > wrong  # otherwise no more mass is forced below
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
@dataclass(frozen=True, slots=True)
class GaussianFamily:
    """The lower bound on mu for a mechanism that is mu-GDP for some mu.

    Example:
        >>> counts = Counts(canaries=1000, guesses=200, correct=150)
        >>> print(GaussianFamily().parameter_lower(counts, delta=1e-5, alpha=0.05))
        mu >= 0.339 (alpha = 0.05, method gdp, tier B: Gaussian privacy only; in that \
family epsilon = 1.296 at delta = 1e-05)
    """

    method: ClassVar[str] = "gdp"
    reference: ClassVar[str] = "https://arxiv.org/abs/2410.22235, algorithm 3"

    def parameter_lower(
        self, counts: Counts, *, delta: float, alpha: float
    ) -> ParameterBound:
        """Return the largest mu that some p-value rejects at level ``alpha``."""
        _validate.probability("delta", delta)
        _validate.error_level("alpha", alpha)
        check_at_once(counts, self.method)
        mu = largest_yes(
            lambda mu: curve_refuted(counts, GaussianDP(mu=mu), alpha=alpha)
        )
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CurveCertificate:
    """Lower bounds on delta at every epsilon, from counts (assumption-free).

    Attributes:
        counts: The guesser's counts.
        alpha: Probability that the certificate is wrong at any epsilon.

    Example:
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> certificate = CurveCertificate(counts=counts, alpha=0.05)
        >>> certificate.delta_lower([1.0, 2.0, 3.0]).round(5)
        array([0.00062, 0.00046, 0.     ])
    """

    counts: Counts
    alpha: float

    def __post_init__(self) -> None:
        check_at_once(self.counts, "exact")
        _validate.error_level("alpha", self.alpha)

    def delta_lower(self, epsilons: ArrayLike) -> NDArray[np.float64]:
        """Return a lower bound on delta at each epsilon."""
        return np.array([self._at(float(e)) for e in np.atleast_1d(epsilons)])

    def refutes(self, claim: Guarantee) -> bool:
        """Return whether the claimed curve is below the bound at some epsilon."""
        epsilons, deltas = claim.points()
        return bool(np.any(deltas < self.delta_lower(epsilons)))

    def _at(self, epsilon: float) -> float:
        m, r, v = self.counts.canaries, self.counts.guesses, self.counts.correct
        if v == 0:
            return 0.0
        upper, price = log_tail_and_price(v, r, log(m), epsilon)  # at delta = 1
        if upper >= log(self.alpha):
            return 0.0
        room = log(self.alpha) + log1p(-exp(upper - log(self.alpha)))
        return exp(min(0.0, room - price))
