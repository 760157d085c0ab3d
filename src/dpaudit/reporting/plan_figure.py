"""The picture of a plan: the options compared, by canaries per coordinate.

There is one line for guesses all at once and one for rounds. A plan for faults shows
the detectable factor on the noise; a plan for the bound shows its mean, for the chosen
option plus and minus a standard deviation, and the ceiling, if known. Lines differ by
their marks and dashes as well as by colour.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Final, final

from dpaudit.bounds.bound import rounded_down
from dpaudit.dpsgd.planning.candidates import Candidate, Purpose
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.reporting import svg
from dpaudit.reporting.axes import Even, Factors, Plot
from dpaudit.reporting.figure import Figure, Mark
from dpaudit.reporting.numbers import count, plain, typeset
from dpaudit.theory.gap_levels import Estimate, no_more_than

__all__ = ["plan_figure"]

_MIDDLE: Final = (svg.SAMPLE[0] / 2, svg.SAMPLE[1] / 2)


def plan_figure(plan: Plan, *, most: Estimate | None = None) -> Figure:
    """Return the picture of a plan.

    Args:
        plan: The plan to draw.
        most: The value that no valid audit of the plan's canaries exceeds in half of
            its runs, to draw it too; ignored in a plan for faults.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit.dpsgd.planning.training import TrainingSetup
        >>> from dpaudit.dpsgd.planning import plan_audit
        >>> from dpaudit.privacy.guarantees import ApproxDP
        >>> plan = plan_audit(
        ...     TrainingSetup(steps=1, rate=1.0, noise=2.0),
        ...     claim=ApproxDP(epsilon=2.0, delta=1e-5),
        ...     coordinates=100,
        ...     per_coordinate=1,
        ... )
        >>> with TemporaryDirectory() as folder:
        ...     plan_figure(plan).write(f"{folder}/plan.svg")
    """
    most = None if _for_faults(plan) else most
    plot, kinds, caption = _plot(plan, most), _kinds(plan), _caption(plan)
    if most is not None:
        caption += (f"The bar above it: {no_more_than(most)}",)
    # Draw the options over their limits.
    marks = [_limits(plan, plot), *(kind.marks(plot) for kind in kinds)]
    marks += [_most(plan, plot, most), _chosen(plan, plot)]
    heading = f"What to expect of an audit of {count(plan.coordinates)} coordinates"
    return Figure(
        name="plan",
        heading=heading,
        picture=plot.picture(
            "".join(marks),
            title=heading,
            description=" ".join([*_in_words(plan), *caption]),
        ),
        legend=(*(kind.mark() for kind in kinds), _chosen_mark(plan)),
        caption=caption,
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """The line of one kind of rules.

    Attributes:
        words: The text of its legend.
        style: The style class of the line.
        shape: Draws the marks of its points.
        points: Pairs of values.
    """

    words: str
    style: str
    shape: Callable[[float, float, str], str]
    points: tuple[tuple[float, float], ...]

    def marks(self, plot: Plot) -> str:
        xs, ys = zip(*self.points, strict=True)
        shapes = [self.shape(*plot.at(*each), self._mark) for each in self.points]
        return plot.line(xs, ys, self.style) + "".join(shapes)

    def mark(self) -> Mark:
        line = Mark.line(self.style, self.words)
        return Mark(
            sample=line.sample + self.shape(*_MIDDLE, self._mark), words=self.words
        )

    @property
    def _mark(self) -> str:
        return f"{self.style}-mark"


def _plot(plan: Plan, most: Estimate | None) -> Plot:
    sizes = sorted({plan.per_coordinate, *(p.per_coordinate for p in plan.candidates)})
    if len(sizes) == 1:
        sizes.append(2 * sizes[0])  # a single tick gives no scale
    levels = [_level(plan, each) or 0.0 for each in plan.candidates]
    if _for_faults(plan):
        y = Even(low=1.0, high=1.08 * max(2.0, *levels, plan.fault or 0.0))
    else:
        levels += [plan.expected.mean + plan.expected.spread]
        levels += [level for _, level, *_ in _known_limits(plan)]
        levels += [most.value] if most else []
        y = Even(low=0.0, high=1.08 * max(1e-3, *levels))
    return Plot(
        x=Factors(low=0.8 * sizes[0], high=1.25 * sizes[-1], tried=tuple(sizes)),
        y=y,
        x_name="canaries per coordinate",
        y_name=_shown(plan),
        width=780.0,
        height=350.0,
    )


def _for_faults(plan: Plan) -> bool:
    return plan.purpose is Purpose.FAULTS


def _shown(plan: Plan) -> str:
    return (
        "detectable factor on the noise"
        if _for_faults(plan)
        else "mean lower bound on epsilon"
    )


def _level(plan: Plan, candidate: Candidate) -> float | None:
    return candidate.fault if _for_faults(plan) else candidate.bound


def _known_limits(plan: Plan) -> list[tuple[str, float, str, str]]:
    """Return the limits that no audit exceeds, where they are known and finite.

    Each has its style and the end of its line for the label: different ends, so that
    labels stay apart if the levels are close.
    """
    limits = (
        ("no audit reliably shows more than", plan.ceiling, "ceiling", "start"),
        ("true epsilon", plan.true_epsilon, "true-epsilon", "end"),
    )
    return [
        (name, limit, style, end)
        for name, limit, style, end in limits
        if limit is not None and isfinite(limit) and not _for_faults(plan)
    ]


def _limits(plan: Plan, plot: Plot) -> str:
    parts = []
    for name, limit, style, end in _known_limits(plan):
        x, y = plot.at(plot.x.low if end == "start" else plot.x.high, limit)
        words = typeset(f"{name} {plain(limit)}")
        parts.append(plot.level(limit, style))
        parts.append(svg.text(x, y - 6, words, anchor=end, style="limit"))
    return "".join(parts)


def _most(plan: Plan, plot: Plot, most: Estimate | None) -> str:
    """Return a bar over the plan: the level that no audit of its canaries exceeds."""
    if most is None:
        return ""
    x, y = plot.at(plan.per_coordinate, most.value)
    return svg.line(x - 20, y, x + 20, y, "ceiling")


def _kinds(plan: Plan) -> list[_Kind]:
    """Return a line for each kind of rules with known levels."""
    kinds = (
        (AdaptiveRounds, "in rounds", "rounds", svg.dot),
        (OneRun, "at once (exact)", "once", svg.square),
    )
    drawn = []
    for kind, words, style, shape in kinds:
        points = {
            float(each.per_coordinate): level
            for each in plan.candidates
            if isinstance(each.rules, kind)
            and (level := _level(plan, each)) is not None
        }
        if points:
            line = _Kind(
                words=words, style=style, shape=shape, points=tuple(points.items())
            )
            drawn.append(line)
    return drawn


def _chosen(plan: Plan, plot: Plot) -> str:
    """Return the mark of the plan, with its spread if the plan is for the bound."""
    level = _chosen_level(plan)
    if level is None:
        return ""
    x, y = plot.at(plan.per_coordinate, level)
    if _for_faults(plan):
        return svg.diamond(x, y, "chosen")
    spread = plan.expected.spread
    ends = [plot.at(plan.per_coordinate, level + each)[1] for each in (-spread, spread)]
    return _upright(x, *ends) + svg.diamond(x, y, "chosen")


def _chosen_level(plan: Plan) -> float | None:
    return plan.fault if _for_faults(plan) else plan.expected.mean


def _upright(x: float, low: float, high: float) -> str:
    return svg.line(x, low, x, high, "whisker") + "".join(
        svg.line(x - 6, y, x + 6, y, "whisker") for y in (low, high)
    )


def _chosen_mark(plan: Plan) -> Mark:
    if _chosen_level(plan) is None:
        return Mark(sample="", words="this plan detects nothing")
    x, y = _MIDDLE
    if _for_faults(plan):
        return Mark(sample=svg.diamond(x, y, "chosen"), words="this plan")
    return Mark(
        sample=_upright(x, y + 13, y - 13) + svg.diamond(x, y, "chosen"),
        words="this plan, give or take its spread",
    )


def _in_words(plan: Plan) -> list[str]:
    """Return the lines of the picture as sentences, for screen readers."""
    sentences = [f"Against the canaries per coordinate: {_shown(plan)}."]
    for line in _kinds(plan):
        levels = ", ".join(f"{size:g}: {plain(level)}" for size, level in line.points)
        sentences.append(f"Guessing {line.words}, {levels}.")
    return sentences + [
        f"Limit: {name} {plain(level)}." for name, level, *_ in _known_limits(plan)
    ]


def _caption(plan: Plan) -> tuple[str, ...]:
    training = plan.training
    return (
        f"{count(training.steps)} steps, sampling rate {training.rate:g}, noise "
        f"{training.noise:.4g}; delta = {plan.claim.delta:g}, alpha = {plan.alpha:g}, "
        "tier A.",
        f"The plan: {plan.per_coordinate} per coordinate, method {plan.method}, mean "
        f"bound {rounded_down(plan.expected.mean)}, spread {plan.expected.spread:.3f}"
        + ("." if plan.fault is None else f"; detects noise / {plan.fault:.2f}."),
    )
