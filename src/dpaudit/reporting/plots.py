"""Pictures of results, as SVG or PNG files; needs the extra ``report``.

Colours are those of Okabe and Ito, which people who are colour-blind can tell apart;
nothing is said by colour alone.
"""

from math import inf, isfinite
from pathlib import Path
from textwrap import fill

from dpaudit.bounds.bound import rounded_down
from dpaudit.dpsgd.planning.candidates import Candidate, Purpose
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.errors import MissingExtraError
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.reporting.style import (
    FAINT,
    GRID,
    INK,
    MISSING,
    check_suffix,
    plain_frame,
    save,
)
from dpaudit.reporting.style import STYLE as _STYLE  # noqa: F401 (tests draw in it)
from dpaudit.theory.rungs import Gaps, Rung

try:
    from matplotlib import patches
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtraError(MISSING) from error

__all__ = ["check_suffix", "plan_picture", "waterfall"]

_LEFT, _TAKEN, _ADDED = "#0072B2", "#E69F00", "#56B4E9"  # blue, orange, sky blue
_BAR = 0.5
_ROW, _ABOVE, _BELOW = 0.6, 0.8, 0.95  # inches
_WIDTH = 10.5


def waterfall(gaps: Gaps, path: str | Path, *, title: str | None = None) -> None:
    """Draw where the epsilon of a claim is lost on the way to a bound.

    One row per step: what is left after it, and what it takes or adds. Where a level is
    infinite its bar is broken and ends in an arrow.

    Args:
        gaps: What to draw.
        path: Where to; the suffix, .svg or .png, says which format.
        title: What was audited.

    Raises:
        InvalidInputError: The suffix is another one.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit.mechanisms.parity import Xor
        >>> from dpaudit.theory.gaps import gaps
        >>> with TemporaryDirectory() as folder:
        ...     waterfall(gaps(Xor(elements=9), elements=9), f"{folder}/xor.svg")
    """
    save(lambda: _figure(gaps, title), path)


def _figure(gaps: Gaps, title: str | None) -> Figure:
    rows = len(gaps.rungs) + (gaps.remainder is not None)
    height = _ABOVE + _ROW * rows + _BELOW
    figure = Figure(figsize=(_WIDTH, height), facecolor="white")
    axes = figure.add_axes((0.32, _BELOW / height, 0.48, _ROW * rows / height))
    top = _largest_finite(gaps)
    end = _frame(axes, gaps, rows, top)
    before, last = gaps.rungs[0], len(gaps.rungs) - 1
    for row, rung in enumerate(gaps.rungs):
        _bars(axes, row, min(before.epsilon, end), min(rung.epsilon, end))
        if inf in (before.epsilon, rung.epsilon):
            _broken(axes, row, (top + end) / 2, end)
        if row < last:
            x, y = [min(rung.epsilon, end)] * 2, [row + _BAR / 2, row + 1 - _BAR / 2]
            axes.plot(x, y, color=FAINT, lw=1)
        _whisker(axes, row, rung, end)
        _words(axes, row, (rung.name, rung.meaning), (gaps.taken_by(rung), rung))
        before = rung
    if gaps.remainder is not None:
        _observed(axes, rows - 1, before.epsilon + gaps.remainder)
    _headings(axes, title, added=any(drop < 0 for drop in gaps.drops.values()))
    _caption(figure, gaps, height)
    return figure


def _largest_finite(gaps: Gaps) -> float:
    seen = [x for rung in gaps.rungs for x in (rung.epsilon, rung.high)]
    seen.append(gaps.rungs[-1].epsilon + (gaps.remainder or 0.0))
    # Beside infinity a hair's breadth should not look like much.
    least = 1.0 if inf in seen else 1e-3
    return max([least, *(x for x in seen if isfinite(x))])


def _frame(axes: Axes, gaps: Gaps, rows: int, top: float) -> float:
    """Set the axes up and return where infinity is drawn."""
    unbounded = any(rung.high == inf for rung in gaps.rungs)
    end = 1.3 * top if unbounded else top
    axes.set_xlim(0, 1.06 * end)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks([])
    ticks = [t for t in axes.get_xticks() if 0 <= t <= top]
    labels = [f"{t:g}" for t in ticks]
    if unbounded:
        ticks, labels = [*ticks, end], [*labels, "\u221e"]
    axes.set_xticks(ticks, labels)
    axes.set_xlabel("epsilon", color=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", length=0, colors=FAINT)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(INK)
    return end


def _bars(axes: Axes, row: int, before: float, after: float) -> None:
    axes.barh(row, min(before, after), _BAR, color=_LEFT)
    if after < before:
        axes.barh(row, before - after, _BAR, left=after, color=_TAKEN)
    if after > before:
        gain = after - before
        axes.barh(
            row, gain, _BAR, left=before, color=_ADDED, hatch="///", edgecolor=INK
        )


def _broken(axes: Axes, row: int, at: float, end: float) -> None:
    """Break a bar that goes on to infinity, and point there."""
    gap = 0.012 * end
    for shift in (-gap, gap):
        x = [at + shift - gap, at + shift + gap]
        axes.plot(x, [row + 0.34, row - 0.34], color="white", lw=2.5, zorder=4)
    axes.annotate(
        "",
        xy=(1.05 * end, row),
        xytext=(0.99 * end, row),
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2},
        zorder=5,
    )


def _whisker(axes: Axes, row: int, rung: Rung, end: float) -> None:
    """Draw the interval of a level that is not exact."""
    if rung.low == rung.high:
        return
    low, high = min(rung.low, end), min(rung.high, end)
    axes.plot([low, high], [row, row], color=INK, lw=1.5, zorder=5)
    axes.plot([low, low], [row - 0.1, row + 0.1], color=INK, lw=1.5, zorder=5)
    axes.plot([high, high], [row - 0.1, row + 0.1], color=INK, lw=1.5, zorder=5)


def _words(
    axes: Axes, row: int, left: tuple[str, str], right: tuple[str, Rung]
) -> None:
    where = axes.get_yaxis_transform()
    (name, meaning), (taken, rung) = left, right
    about = fill(meaning, 50 if len(meaning) <= 50 else len(meaning) // 2 + 8)
    shift = 0.1 if "\n" not in about else 0.19
    axes.text(
        -0.02,
        row - shift,
        name,
        transform=where,
        ha="right",
        va="center",
        weight="bold",
        color=INK,
    )
    axes.text(
        -0.02,
        row - shift + 0.16,
        about,
        transform=where,
        ha="right",
        va="top",
        fontsize=7.5,
        color=FAINT,
        linespacing=1.15,
    )
    number, _, interval = rung.shown.partition(" ")
    number, interval = (x.replace("infinity", "\u221e") for x in (number, interval))
    taken = taken.replace("-", "\u2212").replace("infinity", "\u221e")
    axes.text(1.13, row, taken, transform=where, ha="right", va="center", color=INK)
    axes.text(
        1.28,
        row,
        number,
        transform=where,
        ha="right",
        va="center",
        weight="bold",
        color=_LEFT,
    )
    axes.text(
        1.28,
        row + 0.27,
        interval,
        transform=where,
        ha="right",
        va="center",
        fontsize=7.5,
        color=FAINT,
    )


def _observed(axes: Axes, row: int, bound: float) -> None:
    axes.plot([bound], [row], marker="D", ms=8, color=INK, zorder=5)
    where = axes.get_yaxis_transform()
    axes.text(
        -0.02,
        row,
        "observed",
        transform=where,
        ha="right",
        va="center",
        weight="bold",
        color=INK,
    )
    axes.text(
        1.28,
        row,
        f"{bound:.3f}",
        transform=where,
        ha="right",
        va="center",
        weight="bold",
        color=INK,
    )


def _headings(axes: Axes, title: str | None, *, added: bool) -> None:
    for x, heading in ((1.13, "takes"), (1.28, "leaves")):
        axes.text(
            x,
            1.0,
            heading,
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            color=FAINT,
        )
    handles = [
        patches.Patch(color=_LEFT, label="left"),
        patches.Patch(color=_TAKEN, label="taken"),
    ]
    if added:
        handles.append(patches.Patch(fc=_ADDED, ec=INK, hatch="///", label="added"))
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.99),
        ncols=3,
        frameon=False,
        labelcolor=FAINT,
        borderaxespad=0.2,
        handlelength=1.2,
    )
    figure = axes.get_figure(root=True)
    if title and figure:
        figure.text(
            0.02,
            0.985,
            title,
            ha="left",
            va="top",
            fontsize=13,
            weight="bold",
            color=INK,
        )


def _caption(figure: Figure, gaps: Gaps, height: float) -> None:
    said = (
        f"{gaps.elements} canaries, {gaps.guesses} guesses, delta = {gaps.delta:g}, "
        f"alpha = {gaps.alpha:g}; the bound varies by {gaps.spread:.3f} from run to "
        "run (standard deviation)"
    )
    figure.text(0.02, 0.12 / height, said, va="bottom", fontsize=8, color=FAINT)


def plan_picture(plan: Plan, path: str | Path) -> None:
    """Draw what was compared against the canaries per coordinate, and what is chosen.

    One line for guesses all at once and one for rounds. If the plan is for faults, the
    factor on the noise that is caught; if it is for the bound, its mean, the plan with
    its spread, a standard deviation up and down, and the ceiling, if it is known.

    Args:
        plan: What to draw.
        path: Where to; the suffix, .svg or .png, says which format.

    Raises:
        InvalidInputError: The suffix is another one.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from dpaudit.dpsgd.planning.guess_law import Training
        >>> from dpaudit.dpsgd.planning import plan_audit
        >>> from dpaudit.privacy.guarantees import ApproxDP
        >>> plan = plan_audit(
        ...     Training(steps=1, rate=1.0, noise=2.0),
        ...     claim=ApproxDP(epsilon=2.0, delta=1e-5),
        ...     coordinates=100,
        ...     per_coordinate=1,
        ... )
        >>> with TemporaryDirectory() as folder:
        ...     plan_picture(plan, f"{folder}/plan.svg")
    """
    save(lambda: _plan_figure(plan), path)


def _plan_figure(plan: Plan) -> Figure:
    figure = Figure(figsize=(8.5, 4.8), facecolor="white")
    axes = figure.add_axes((0.09, 0.2, 0.68, 0.66))
    kinds = (
        ("in rounds", AdaptiveRounds, "o-", _LEFT),
        ("at once (exact)", OneRun, "s--", _TAKEN),
    )
    for label, kind, look, color in kinds:
        drawn = {
            each.per_coordinate: level
            for each in plan.candidates
            if isinstance(each.rules, kind)
            and (level := _level(plan, each)) is not None
        }
        at, levels = list(drawn), list(drawn.values())
        axes.plot(at, levels, look, color=color, ms=5, label=label)
    chosen = plan.fault if _for_faults(plan) else plan.expected.mean
    if chosen is not None:
        axes.errorbar(
            [plan.per_coordinate],
            [chosen],
            yerr=None if _for_faults(plan) else [plan.expected.spread],
            color=INK,
            marker="D",
            ms=7,
            capsize=4,
            zorder=5,
            label="this plan"
            + ("" if _for_faults(plan) else ",\ngive or take\nits spread"),
        )
    _plan_frame(axes, plan)
    figure.text(
        0.02,
        0.97,
        f"What to expect of an audit of {plan.coordinates} coordinates",
        va="top",
        fontsize=13,
        weight="bold",
        color=INK,
    )
    figure.text(0.02, 0.025, _plan_caption(plan), va="bottom", fontsize=8, color=FAINT)
    return figure


def _for_faults(plan: Plan) -> bool:
    return plan.purpose is Purpose.FAULTS


def _level(plan: Plan, candidate: Candidate) -> float | None:
    return candidate.fault if _for_faults(plan) else candidate.bound


def _plan_frame(axes: Axes, plan: Plan) -> None:
    sizes = sorted({plan.per_coordinate, *(p.per_coordinate for p in plan.candidates)})
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.8 * sizes[0], 1.25 * sizes[-1])
    axes.set_xticks(sizes, [f"{s}" for s in sizes])
    axes.minorticks_off()
    axes.set_xlabel("canaries per coordinate", color=INK)
    levels = [_level(plan, each) or 0.0 for each in plan.candidates]
    if _for_faults(plan):
        axes.set_ylabel("noise caught if it is too small by", color=INK)
        axes.set_ylim(1, 1.08 * max(2.0, *levels, plan.fault or 0.0))
    else:
        axes.set_ylabel("mean lower bound on epsilon", color=INK)
        levels += [plan.expected.mean + plan.expected.spread, *_draw_limits(axes, plan)]
        axes.set_ylim(0, 1.08 * max(1e-3, *levels))
    plain_frame(axes)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        labelcolor=INK,
        fontsize=9,
        labelspacing=0.9,
    )


def _draw_limits(axes: Axes, plan: Plan) -> list[float]:
    """Draw what no audit exceeds, and return it."""
    drawn = []
    limits = (("ceiling", plan.ceiling), ("true epsilon", plan.true_epsilon))
    for (name, limit), style in zip(limits, (":", "-."), strict=True):
        if limit is None or not isfinite(limit):
            continue
        drawn.append(limit)
        axes.axhline(
            limit, color=FAINT, lw=1, linestyle=style, label=f"{name} {limit:.3f}"
        )
    return drawn


def _plan_caption(plan: Plan) -> str:
    training = plan.training
    return (
        f"{training.steps} steps, sampling rate {training.rate:g}, noise "
        f"{training.noise:.4g}; delta = {plan.claim.delta:g}, alpha = {plan.alpha:g}, "
        f"tier A.\nThe plan: {plan.per_coordinate} per coordinate, method "
        f"{plan.method}, mean bound {rounded_down(plan.expected.mean)}, spread "
        f"{plan.expected.spread:.3f}"
        + ("." if plan.fault is None else f"; catches noise / {plan.fault:.2f}.")
    )
