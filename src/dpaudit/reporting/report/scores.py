"""The figures of the scores: how included and excluded canaries differ.

A score is the guesser's evidence about a canary. The histogram shows the scores of
included and excluded canaries side by side; the ROC curve shows, for every threshold,
the share of either above it. A privacy claim limits the ROC curve of any one canary: at
a false-positive rate ``x``, the true-positive rate is at most what the trade-off curve
permits.

Both are illustrations. The claim is tested by the p-value, which accounts for chance
and for the choice of a threshold.
"""

from collections.abc import Callable
from math import ceil, log10

import numpy as np
from numpy.typing import NDArray

from dpaudit.game.score_summary import ScoreSummary
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.reporting.axes import Even, Factors, Plot
from dpaudit.reporting.figure import Figure, LeftOut, Mark, Table
from dpaudit.reporting.numbers import count, plain
from dpaudit.reporting.report.subject import Subject
from dpaudit.reporting.svg import Picture

__all__ = ["allowed", "histogram_figure", "roc_figure"]

_SCORES = "Scores of the canaries"
_ROC = "How well the scores tell canaries apart"
_FALSE_POSITIVE_RATES = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
_NO_SCORES = (
    "No scores were kept with this result: they are kept by audits of score tables and "
    "of training, not where a guesser hands in guesses alone."
)
_MOST_ROWS = 12


def histogram_figure(subject: Subject) -> Figure | LeftOut:
    """Return the histogram of the scores of included and excluded canaries."""
    scores = subject.result.scores
    if scores is None:
        return LeftOut(heading=_SCORES, why=_NO_SCORES)
    return Figure(
        name="scores",
        heading=_SCORES,
        picture=_histogram(scores),
        legend=(
            Mark.area("included", "included canaries"),
            Mark.line("excluded", "excluded canaries"),
        ),
        caption=(
            "If the mechanism hid every canary perfectly, both would have one and the "
            "same shape, up to chance. Scores beyond the ends are counted in the "
            "outermost bars.",
        ),
        table=_bins(scores),
    )


def roc_figure(subject: Subject) -> Figure | LeftOut:
    """Return the ROC curve with the region that the claim allows."""
    scores = subject.result.scores
    if scores is None:
        return LeftOut(heading=_ROC, why=_NO_SCORES)
    claim = subject.result.claim_test.claim
    return Figure(
        name="roc",
        heading=_ROC,
        picture=_roc(scores, claim),
        legend=(
            Mark.line("found", "measured"),
            Mark.area("allowed", "what the claim allows one canary"),
            Mark.line("chance", "blind guessing"),
        ),
        caption=(
            "For every threshold, the share of included canaries at or above it "
            "against the share of excluded ones, on logarithmic axes: what matters "
            "most for privacy are the thresholds that few excluded canaries pass.",
            "Where the line leaves the shaded region, chance may have put it there: of "
            "so many points some do in an honest run. Only the p-value above, which "
            "allows for that, decides.",
        ),
        table=_rates(scores, claim),
    )


def allowed(claim: Guarantee, false_alarms: float) -> float:
    """Return the largest true-positive rate allowed at a false-positive rate.

    Example:
        >>> from dpaudit import PureDP
        >>> round(allowed(PureDP(epsilon=1.0), 0.1), 4)
        0.2718
    """
    return _edge(0.0, lambda power: claim.complement_inverse(power) <= false_alarms)


def _edge(low: float, allows: Callable[[float], bool]) -> float:
    """Return the largest allowed true-positive rate, from an allowed one up to 1."""
    high = 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if allows(middle) else (low, middle)
    return low


def _histogram(scores: ScoreSummary) -> Picture:
    edges, most = scores.edges, max(*scores.included, *scores.excluded, 1)
    plot = Plot(
        x=Even(low=edges[0], high=edges[-1]),
        y=Even(low=0.0, high=1.06 * most),
        x_name="score",
        y_name="canaries",
    )
    bars = [
        plot.bar(low, high, number, "included")
        for low, high, number in zip(edges, edges[1:], scores.included, strict=False)
    ]
    outlines = [
        plot.line(*_outline(edges, scores.included), "included"),
        plot.line(*_outline(edges, scores.excluded), "excluded"),
    ]
    return plot.picture(
        "".join([*bars, *outlines]),
        title="Histogram of the canaries' scores",
        description=f"{sum(scores.included)} included canaries as bars, "
        f"{sum(scores.excluded)} excluded ones as an outline; the numbers are in the "
        "table that follows.",
    )


def _outline(
    edges: tuple[float, ...], counts: tuple[int, ...]
) -> tuple[list[float], list[float]]:
    """Return the outline of the bars of a histogram, from 0 and back to 0."""
    xs = [edge for edge in edges for _ in range(2)]
    ys = [0.0, *(float(each) for each in counts for _ in range(2)), 0.0]
    return xs, ys


def _roc(scores: ScoreSummary, claim: Guarantee) -> Picture:
    axis = Factors(low=_lowest_rate(scores), high=1.0)
    plot = Plot(
        x=axis,
        y=axis,
        x_name="share of excluded canaries above the threshold",
        y_name="share of included ones",
        height=400.0,
    )
    rates = np.geomspace(axis.low, 1.0, 61)
    most = [allowed(claim, float(each)) for each in rates]
    least = [claim.complement_inverse(float(each)) for each in rates[::-1]]
    marks = [
        plot.area([*rates, *rates[::-1]], [*most, *least], "allowed"),
        plot.line([axis.low, 1.0], [axis.low, 1.0], "chance"),
        plot.line(scores.false_positive, scores.true_positive, "found"),
    ]
    return plot.picture(
        "".join(marks),
        title="ROC curve of the scores, with the region that the claim allows",
        description="The further the curve rises above the diagonal, the better the "
        "scores tell included from excluded canaries; the numbers are in the table "
        "that follows.",
    )


def _lowest_rate(scores: ScoreSummary) -> float:
    """Return the largest power of ten that is at most the share of one canary."""
    fewest = max(10, min(sum(scores.included), sum(scores.excluded)))
    return float(10.0 ** -ceil(log10(fewest)))


def _bins(scores: ScoreSummary) -> Table:
    """Return the counts, several bins to a row if there are many."""
    bins = len(scores.included)
    each = -(-bins // _MOST_ROWS)
    rows = []
    for first in range(0, bins, each):
        last = min(bins, first + each)
        rows.append(
            (
                f"{plain(scores.edges[first])} to {plain(scores.edges[last])}",
                count(sum(scores.included[first:last])),
                count(sum(scores.excluded[first:last])),
            )
        )
    return Table(head=("score", "included", "excluded"), rows=tuple(rows))


def _rates(scores: ScoreSummary, claim: Guarantee) -> Table:
    x, y = np.array(scores.false_positive), np.array(scores.true_positive)
    return Table(
        head=("excluded at or above", "included there", "the claim allows"),
        rows=tuple(
            (
                f"{share:.1%}",
                f"{float(np.interp(share, *_upper(x, y))):.1%}",
                f"{allowed(claim, share):.1%}",
            )
            for share in _FALSE_POSITIVE_RATES
        ),
    )


def _upper(
    x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the highest point at each x, as interpolation requires."""
    places, last = np.unique(x[::-1], return_index=True)
    return places, y[::-1][last]
