"""An exact test of how often an event occurs, from many independent calls.

Each call is answered correctly, answered wrongly, or not answered, independently of the
others, with the same probabilities ``a``, ``b`` and ``1 - a - b``. The null hypothesis
is ``a <= g(b)`` for a concave, nondecreasing, piecewise linear ``g`` with ``g(b) >=
b``. Of ``n`` calls ``V`` were answered correctly and ``W`` wrongly.

*Order.* A line ``(s, c)`` above ``g``, chosen before the calls, orders the outcomes:
``D(V, W)`` is the signed deviance (twice the log-likelihood ratio) between the observed
frequencies and the nearest point of the line ``a = s b + c``, positive if ``V > s W + c
n``. The log-likelihood on the line is concave in b, and its maximum solves a quadratic
equation.

**Lemma 1.** D rises in V and falls in W. *Proof.* Let ``(a, b)`` maximise the
likelihood on the line, and ``u = 1 - a - b``, ``U = n - V - W``. Stationarity is ``s
(V/a - U/u) = U/u - W/b``, so U/u lies between V/a and W/b. Their mean with weights a,
u, b is n. If V/a were the smallest and W/b the largest of the three, then ``V/n <= a``
and ``W/n >= b``, so that ``V/n <= a = s b + c <= s W/n + c``: the outcome is on the
negative side, or all are equal. So on the positive side ``V/a >= U/u >= W/b``, and by
the same argument the reverse on the negative side. By the envelope theorem the deviance
changes with V (at the cost of U) at the rate ``2 log((V/a) / (U/u))``, which is at
least 0 on the positive side and at most 0 on the other, where the sign is negative:
D rises. With W it changes at ``2 log((W/b) / (U/u))``, with opposite signs: D falls.

**Lemma 2.** Let R be a set of outcomes with ``(V + 1, W)`` and ``(V, W - 1)`` wherever
it has ``(V, W)``. Its probability rises in a and falls in b: move calls from one kind
to another. So the worst case of the null hypothesis lies on ``a = g(b)``, or where
``g(b) + b = 1`` for larger b; and for b in a cell [l, u] the probability is at most
that at ``a = min(g(u), 1 - l)``, ``b = l``. Finitely many cells give an upper bound of
the supremum, and splitting the worst of them makes it as sharp as wanted.

**Lemma 3** (Berger and Boos). The supremum over a confidence interval of b with error
gamma, plus gamma, is a p-value: it is at most alpha only if the interval misses b, or
the probability of outcomes ordered as high is at most ``alpha - gamma``.

*One event.* The order does not depend on ``g``. So for given counts the p-value rises
with ``g``: whoever refutes one hypothesis refutes all that are contained in it.

Reference: Berger and Boos, "P values maximized over a confidence set for the nuisance
parameter", https://doi.org/10.1080/01621459.1994.10476836.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil, floor, log, log1p, sqrt
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["ConcaveLimit", "Line", "p_value", "signed_deviance"]

_GAMMA = 1e-9  # error of the interval of b: no p-value is smaller
_OMITTED = 1e-12  # probability of the numbers of wrong answers left out, at each end
_NEGLIGIBLE = 1e-16  # numbers of wrong answers that are less likely count in full
_GAP = 0.1  # relative distance between the p-value and the supremum, at most
_FIRST_CELLS = 16
_MOST_SPLITS = 400
_ROUNDING = 1e-9  # outcomes whose deviance differs by less are ordered alike


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """A line ``a = slope b + intercept`` above ``g``, or several.

    Attributes:
        slope: Zero or more.
        intercept: From 0 to 1.
    """

    slope: float | NDArray[np.float64]
    intercept: float | NDArray[np.float64]

    def number(self, k: int) -> "Line":
        """Return one of several lines."""
        slopes, intercepts = np.atleast_1d(self.slope), np.atleast_1d(self.intercept)
        return Line(slope=float(slopes[k]), intercept=max(0.0, float(intercepts[k])))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConcaveLimit:
    """The function ``g`` of the null hypothesis: the least of several lines, and 1.

    Attributes:
        at: Its corners, from 0 on.
        values: Its value at each.
    """

    at: NDArray[np.float64]
    values: NDArray[np.float64]

    @classmethod
    def of_lines(
        cls, slopes: NDArray[np.float64], intercepts: NDArray[np.float64]
    ) -> "ConcaveLimit":
        """Return the least of lines, and 1, on [0, 1].

        Example:
            >>> limit = ConcaveLimit.of_lines(np.array([2.0, 0.5]), np.array([0, 0.5]))
            >>> limit.at.round(3).tolist(), limit.values.round(3).tolist()
            ([0.0, 0.333, 1.0], [0.0, 0.667, 1.0])
        """
        slopes, intercepts = np.append(slopes, 0.0), np.append(intercepts, 1.0)
        order = np.lexsort((intercepts, -slopes))
        hull: list[tuple[float, float, float]] = []  # slope, intercept, from where on
        for slope, start in zip(
            slopes[order].tolist(), intercepts[order].tolist(), strict=True
        ):
            begin = -np.inf
            while hull:
                steeper, lower, since = hull[-1]
                if slope == steeper:
                    break
                begin = (start - lower) / (steeper - slope)
                if begin > since:
                    break
                hull.pop()
                begin = -np.inf
            if not hull or slope != hull[-1][0]:
                hull.append((slope, start, begin))
        at = np.array([0.0, *(x for _, _, x in hull if 0 < x < 1), 1.0])
        lines = np.array(hull)
        values = (lines[:, :1] * at + lines[:, 1:2]).min(axis=0)
        return cls(at=at, values=np.clip(values, 0.0, 1.0))

    def __call__(self, b: ArrayLike) -> NDArray[np.float64]:
        """Return g, rounded up."""
        between = np.interp(np.asarray(b, np.float64), self.at, self.values)
        return np.minimum(between * (1 + 1e-12) + 1e-15, 1.0)

    def scaled(self, share: float) -> "ConcaveLimit":
        """Return ``share g(b / share)``, for events that occur in a share of calls."""
        return ConcaveLimit(at=self.at * share, values=self.values * share)

    @property
    def last(self) -> float:
        """The b with ``g(b) + b = 1``: beyond it the hypothesis has no worse case."""
        return float(np.interp(1.0, self.at + self.values, self.at))

    @property
    def lines(self) -> Line:
        """The lines of which g consists, from left to right."""
        slope = np.diff(self.values) / np.diff(self.at)
        return Line(slope=slope, intercept=self.values[:-1] - slope * self.at[:-1])

    def tangent(self, b: float) -> Line:
        """Return the line of which g consists at b."""
        k = int(np.searchsorted(self.at, b, side="right")) - 1
        return self.lines.number(min(max(k, 0), len(self.at) - 2))


def nearest_on(
    line: Line, correct: ArrayLike, wrong: ArrayLike, calls: int
) -> NDArray[np.float64]:
    """Return the b of the most likely point of a line, given frequencies.

    With ``c = 0`` it is the share of answers over ``1 + s``.
    """
    s, c = np.asarray(line.slope), np.asarray(line.intercept)
    v, w = np.asarray(correct, np.float64), np.asarray(wrong, np.float64)
    u = calls - v - w
    linear = v * s * (1 - c) + w * (s * (1 - c) - c * (s + 1)) - u * c * (s + 1)
    square, rest = calls * s * (s + 1), w * c * (1 - c)
    root = np.sqrt(linear**2 + 4 * square * rest)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Whichever of the two forms of the solution adds terms of one sign.
        small = np.where(rest > 0, 2 * rest / (root - linear), 0.0)
        found = np.where(linear >= 0, (linear + root) / (2 * square), small)
    level = (1 - c) * w / np.maximum(w + u, 1e-300)  # on a horizontal line
    return np.clip(np.where(square > 0, found, level), 0.0, (1 - c) / (s + 1))


def signed_deviance(
    line: Line, correct: ArrayLike, wrong: ArrayLike, calls: int
) -> NDArray[np.float64]:
    """Return the signed deviance of outcomes from a line.

    Example:
        >>> line = Line(slope=2.0, intercept=0.0)
        >>> signed_deviance(line, [20, 30, 40], 15, 100).round(3)
        array([-1.373,  0.   ,  0.941])
    """
    v, w = np.asarray(correct, np.float64), np.asarray(wrong, np.float64)
    u = calls - v - w
    u = np.where(u > _ROUNDING * calls * 1e-3, u, 0.0)
    b = nearest_on(line, v, w, calls)
    a = line.slope * b + line.intercept
    rest = np.maximum(1 - a - b, 0.0)
    with np.errstate(divide="ignore"):
        apart = (
            special.xlogy(v, v / calls)
            + special.xlogy(w, w / calls)
            + special.xlogy(u, u / calls)
            - special.xlogy(v, a)
            - special.xlogy(w, b)
            - special.xlogy(u, rest)
        )
    sign = np.sign(v - line.slope * w - line.intercept * calls)
    return np.asarray(2 * sign * np.maximum(apart, 0.0))


def p_value(
    correct: int, wrong: int, *, calls: int, limit: ConcaveLimit, line: Line
) -> float:
    """Return a p-value of ``a <= g(b)``.

    Args:
        correct: The calls answered correctly.
        wrong: The calls answered wrongly.
        calls: All calls.
        limit: The function g.
        line: The line that orders outcomes.

    Example:
        >>> limit = ConcaveLimit.of_lines(np.array([2.0, 0.5]), np.array([0, 0.5]))
        >>> line = limit.tangent(0.1)
        >>> f"{p_value(40, 10, calls=100, limit=limit, line=line):.4f}"
        '0.0357'
    """
    low, high = _interval(wrong, calls, limit)
    region = _Region.of(correct, wrong, calls, line, low=low, high=high)
    edges = np.linspace(np.sqrt(low), np.sqrt(high), _FIRST_CELLS + 1) ** 2
    cells = _cells(region, limit, edges)
    floor = max(region.probability(float(limit(b)), b) for b in edges.tolist())
    heapify(cells)
    for _ in range(_MOST_SPLITS):
        highest, left, right = -cells[0][0], cells[0][1], cells[0][2]
        if highest <= max(floor * (1 + _GAP), _GAMMA) or right - left < 1e-15:
            break
        heappop(cells)
        inner = np.linspace(left, right, 5)
        for cell in _cells(region, limit, inner):
            heappush(cells, cell)
        floor = max(
            floor,
            *(region.probability(float(limit(b)), b) for b in inner[1:-1].tolist()),
        )
    return float(min(1.0, -cells[0][0] + _GAMMA + 2 * _OMITTED))


def _interval(wrong: int, calls: int, limit: ConcaveLimit) -> tuple[float, float]:
    """Return a Clopper-Pearson interval of b with error ``_GAMMA``, within the null."""
    w, n, tail = wrong, calls, _GAMMA / 2
    low = float(special.betaincinv(w, n - w + 1, tail)) if w else 0.0
    high = float(special.betaincinv(w + 1, n - w, 1 - tail)) if w < n else 1.0
    return min(low, limit.last), min(high, limit.last)


def _likely(calls: int, low: float, high: float) -> tuple[int, int]:
    """Return numbers outside which Bin(calls, b) is unlikely, for b in an interval.

    By Bernstein's inequality each end is passed with probability ``_OMITTED`` at most.
    """
    room = -log(_OMITTED)
    below = sqrt(2 * calls * low * room)
    above = room / 3 + sqrt(2 * calls * high * room + room**2 / 9)
    return max(0, floor(calls * low - below)), min(calls, ceil(calls * high + above))


def _cells(
    region: "_Region", limit: ConcaveLimit, edges: NDArray[np.float64]
) -> list[tuple[float, float, float]]:
    """Return for each cell minus an upper bound of the probability, and its ends."""
    ends = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return [
        (-region.probability(float(limit(right)), left), left, right)
        for left, right in ends
    ]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Region:
    """The outcomes that are ordered at least as high as the one observed.

    Attributes:
        calls: All calls.
        wrong: Numbers of wrong answers; others are as good as impossible.
        least: For each the least number of correct answers in the region.
        log_choices: For each the log of the number of ways to choose these calls.
    """

    calls: int
    wrong: NDArray[np.int64]
    least: NDArray[np.int64]
    log_choices: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        correct: int,
        wrong: int,
        calls: int,
        line: Line,
        *,
        low: float,
        high: float,
    ) -> "_Region":
        """Return the region of the observed outcome, made larger to be monotone."""
        first, last = _likely(calls, low, high)
        ws = np.arange(min(first, wrong), max(last, wrong) + 1)
        seen = float(signed_deviance(line, correct, wrong, calls))
        seen -= _ROUNDING * (1 + abs(seen))
        top = calls - ws
        least, beyond = np.zeros_like(ws), top + 1
        while (least < beyond).any():
            middle = (least + beyond) // 2
            inside = signed_deviance(line, np.minimum(middle, top), ws, calls) >= seen
            inside |= middle > top
            going = least < beyond
            beyond = np.where(going & inside, middle, beyond)
            least = np.where(going & ~inside, middle + 1, least)
        least[wrong - ws[0]] = min(least[wrong - ws[0]], correct)
        least = np.where(least > top, calls + 1, least)  # none
        least = np.minimum.accumulate(least[::-1])[::-1]
        return cls(
            calls=calls,
            wrong=ws,
            least=least,
            log_choices=-special.betaln(calls - ws + 1, ws + 1) - log1p(calls),
        )

    def probability(self, a: float, b: float) -> float:
        """Return the probability of the region; a is cut to at most 1 - b."""
        n, w = self.calls, self.wrong
        if b >= 1:
            return float(self.least[-1] == 0 and w[-1] == n)
        mass = np.exp(self.log_choices + special.xlogy(w, b) + (n - w) * log1p(-b))
        kept = (mass > _NEGLIGIBLE) & (self.least > 0) & (self.least <= n - w)
        least, left = self.least[kept].astype(np.float64), (n - w)[kept]
        tail = special.betainc(least, left - least + 1, min(1.0, a / (1 - b)))
        certain = mass[~kept & (self.least <= n - w)].sum()
        return float(mass[kept] @ tail + certain)
