"""Several points of a curve at once: the sharpest bound on a count, certified.

A claim that is a curve holds at all its points ``(epsilon_l, delta_l)``. The proof of
the exact bound (a binomial Stein equation) works with any nonnegative numbers in the
place of its solution, and with several points together: for ``y_lk >= 0``, ``k`` from 1
to the number ``r`` of guesses, out of ``m`` canaries,

    P[V >= v] <= z + m * sum over l of delta_l max_k y_lk,
    z = max over k of  1[k >= v] - sum over l of (k y_lk - e^epsilon_l (r - k) y_l,k+1).

Which numbers are best is a linear program. Its solution need not be trusted: what is
returned is the right-hand side, computed from the numbers. With enough points it is the
largest chance that any mechanism with that curve can give.

Reference: docs/explanation/exact-bound.md.
"""

from math import inf, log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.reads import Counts, check_at_once
from dpaudit.privacy.guarantee import Guarantee

__all__ = ["certified_tail", "lines_log_p_value"]

_MOST_GUESSES: Final = 4000  # beyond it the program is slow, and points gain little
_ROUNDING: Final = 1e-11  # more than the certificate's arithmetic can lose


def lines_log_p_value(counts: Counts, claim: Guarantee, *, lines: int) -> float:
    """Return the log of a p-value of a curve from some of its points together.

    Args:
        counts: In/out coins of one record each; 0 is returned for others, and for more
            guesses than a linear program is good for.
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
    plain = counts.alternatives == 2 and counts.records_per_coin == 1
    if not plain or not counts.correct > 0 or counts.guesses > _MOST_GUESSES:
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
    """Return the bound on P[V >= v] that some numbers prove.

    Args:
        counts: What the guesser did.
        epsilons: Where the claim is used.
        deltas: What it says there.
        y: Any numbers, a row for each point and a column for k from 1 to the guesses;
            negative ones count as 0.
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
    """Return points of the curve, spread over where they can matter."""
    epsilons, deltas = claim.points()
    # Abstention acts as a larger delta; of more than 1 or next to nothing none is used.
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
    """Return numbers that prove about as much as any; None if the program fails."""
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
    each = np.arange(lines * r)
    below = sparse.csr_array(
        (
            np.concatenate([np.ones(lines * r), -np.ones(lines * r)]),
            (np.tile(each, 2), np.concatenate([each, lines * r + each // r])),
        ),
        shape=(lines * r, size),
    )
    cost = np.concatenate([np.zeros(lines * r), m / r * deltas, [1.0]])
    found = optimize.linprog(
        cost,
        A_ub=sparse.vstack([flow, below], format="csr"),
        b_ub=np.concatenate([-(k >= v).astype(np.float64), np.zeros(lines * r)]),
        method="highs-ipm",
    )
    if found.x is None:
        return None
    return np.asarray(found.x[: lines * r].reshape(lines, r) / r)
