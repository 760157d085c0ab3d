"""Summary of the canaries' scores: histograms by coin, and the ROC curve.

Kept with a result so that a report can draw the scores without storing them all. It is
for figures only: no bound is read off it, as a threshold chosen on it would need a
correction.

It does not keep the coins secret: anyone who can rank the canaries by score can read
many of their coins off the ends of the curve. Where canaries are real records, publish
redacted evidence (``dpaudit.evidence``), which drops it, and a report made from that.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.errors import InvalidInputError

__all__ = ["ScoreSummary"]

_BINS = 40
_OUTER = 0.001  # share of the scores at each end that falls into the outermost bin
_POINTS = 128  # of the ROC curve


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSummary:
    """Histograms of the scores of included and excluded canaries, and the ROC curve.

    Attributes:
        edges: Edges of the bins, one more than there are bins; scores outside are
            counted in the outermost bins.
        included: The number of included canaries in each bin.
        excluded: The number of excluded canaries in each bin.
        false_positive: False-positive rates of the ROC curve, from 0 to 1: the share of
            excluded canaries at or above each of some thresholds.
        true_positive: The share of included ones at or above them.

    Example:
        >>> summary = ScoreSummary.of([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1])
        >>> summary.false_positive
        (0.0, 0.0, 0.5, 0.5, 1.0)
        >>> summary.true_positive
        (0.0, 0.5, 0.5, 1.0, 1.0)
    """

    edges: tuple[float, ...]
    included: tuple[int, ...]
    excluded: tuple[int, ...]
    false_positive: tuple[float, ...]
    true_positive: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(map(isfinite, self.edges)) and bool(
            np.all(np.diff(self.edges) > 0)
        )
        if not (
            rising
            and len(self.edges) == len(self.included) + 1 == len(self.excluded) + 1
        ):
            raise InvalidInputError(
                "edges must rise, one more than there are counts of either kind"
            )
        if min((*self.included, *self.excluded)) < 0:
            raise InvalidInputError("counts must be 0 or more")
        if not (_is_roc(self.false_positive, self.true_positive)):
            raise InvalidInputError(
                "the ROC curve must rise from (0, 0) to (1, 1), a point for a point"
            )

    @classmethod
    def of(cls, scores: ArrayLike, bits: ArrayLike) -> Self:
        """Return the summary of scores and coins; the scores must not be NaN."""
        values, ones = np.asarray(scores, np.float64), np.asarray(bits) == 1
        if values.ndim != 1 or not len(values) or values.shape != ones.shape:
            raise InvalidInputError(
                "scores and bits must be two lists of one length, got shapes "
                f"{values.shape} and {ones.shape}"
            )
        if np.isnan(values).any():
            raise InvalidInputError("scores must be numbers, and some are NaN")
        edges = _edges(values)
        false, true = _roc(values, ones)
        return cls(
            edges=tuple(edges.tolist()),
            included=_counts(values[ones], edges),
            excluded=_counts(values[~ones], edges),
            false_positive=false,
            true_positive=true,
        )


def _edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.array([-0.5, 0.5])
    low, high = np.quantile(finite, (_OUTER, 1 - _OUTER), method="nearest")
    share = np.linspace(0.0, 1.0, _BINS + 1)
    exact = low * (1 - share) + high * share  # a difference might be too large
    # Nine digits: a run that was stopped and resumed may differ in the last ones.
    edges = np.array([float(f"{each:.9g}") for each in exact])
    if np.all(np.diff(edges) > 0):
        return edges
    # Almost equal scores leave no room for bins: one bin holds them all.
    room = max(0.5, abs(low) * 1e-6)
    return np.array([low - room, low + room])


def _counts(values: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[int, ...]:
    where = np.searchsorted(edges, values, side="right") - 1
    bins = len(edges) - 1
    return tuple(np.bincount(np.clip(where, 0, bins - 1), minlength=bins).tolist())


def _roc(
    values: NDArray[np.float64], ones: NDArray[np.bool_]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return false- and true-positive rates at some thresholds."""
    order = np.argsort(values)[::-1]
    ordered, included = values[order], ones[order]
    above = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # ends of ties
    if len(above) > _POINTS:
        # Equally many from both ends, denser towards the ends.
        steps = np.geomspace(1, (len(above) + 1) / 2, _POINTS // 2).astype(np.int64) - 1
        above = above[np.unique(np.concatenate([steps, len(above) - 1 - steps]))]
    hits = np.cumsum(included)[above]
    false = (above + 1 - hits) / max(1, len(ones) - int(ones.sum()))
    true = hits / max(1, int(ones.sum()))
    return (0.0, *false[:-1].tolist(), 1.0), (0.0, *true[:-1].tolist(), 1.0)


def _is_roc(false: tuple[float, ...], true: tuple[float, ...]) -> bool:
    return len(false) == len(true) >= 2 and all(
        part[0] == 0 and part[-1] == 1 and bool(np.all(np.diff(part) >= 0))
        for part in (false, true)
    )
