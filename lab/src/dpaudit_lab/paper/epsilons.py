"""The figures with several epsilons: a pair of curves for each, and where it is best.

Reference: Keinan, Shenfeld and Ligett, appendix, section "Experiments",
https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Callable, Sequence

from dpaudit_lab.paper.counting import CountCurve, epsilon_curves
from dpaudit_lab.paper.courses import highest
from dpaudit_lab.paper.figure import Reproduced
from dpaudit_lab.paper.findings import Note, shown
from dpaudit_lab.paper.training import CEILING, NOISE, TRUTH
from dpaudit_lab.pictures.chart import Chart, Point

__all__ = ["several_epsilons"]

# Lines would be too far above the curves to be drawn.
_TRUE, _MOST = (
    ", ".join(f"{level:.3f}" for level in levels.values())
    for levels in (TRUTH, CEILING)
)
_LIMITS = (
    f"\nTrue epsilon, in turn: {_TRUE}. No audit reliably shows more than {_MOST}."
)


def several_epsilons(
    points: Callable[[float, Sequence[CountCurve]], Sequence[Point]],
    *,
    title: str,
    caption: str,
    of: str,
    x_label: str,
    ticks: tuple[float, ...],
) -> Reproduced:
    """Return a chart of bounds for every epsilon, and where each is highest.

    Args:
        points: From an epsilon and its curves to their points.
        title: What is shown.
        caption: The parameters.
        of: What x is a number of.
        x_label: What x is.
        ticks: Where the x axis is labelled.
    """
    pairs = {
        epsilon: epsilon_curves(epsilon, colour) for colour, epsilon in enumerate(NOISE)
    }
    chart = Chart(
        title=title,
        caption=caption + _LIMITS,
        x_label=x_label,
        y_label="lower bound on epsilon",
        curves=tuple(one.curve for pair in pairs.values() for one in pair),
        points=tuple(
            p for epsilon, pair in pairs.items() for p in points(epsilon, pair)
        ),
        ticks=ticks,
    )
    best = [_best(pair[0].curve.name, chart, of) for pair in pairs.values()]
    return Reproduced(chart=chart, findings=tuple(best))


def _best(curve: str, chart: Chart, of: str) -> Note:
    top = highest(chart.of(curve))
    return Note(
        text=f"at {curve} the bound is highest with {top.x:g} {of}, {shown(top)}"
    )
