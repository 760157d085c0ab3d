"""How many guesses to take: the paper's figures over the fraction of taken guesses.

5000 elements, five to a coordinate. A run is simulated once, and the paper's guesser
and ours take from 1 to 100 per cent of the guesses about it; so the points of a curve
come from the same runs. The paper does not print the fractions that it tried, nor the
epsilons of the figure with several: these are ours.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, Figures
"fig:effect-of-taken-guesses-number-single-epsilon",
"fig:effect-of-taken-guesses-number-single-epsilon-efficacy" and
"fig:effect-of-taken-guesses-number-multiple-epsilons".
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dpaudit_lab.paper.counting import (
    ACCURACY_CURVES,
    BOUND_CURVES,
    LEFT_OUT,
    LIMITS,
    NO_MEDIAN,
    TRUE_SHARE,
    CountCurve,
)
from dpaudit_lab.paper.courses import falls, highest, inner_maximum
from dpaudit_lab.paper.epsilons import several_epsilons
from dpaudit_lab.paper.figure import Figure, Reproduced, number, rows
from dpaudit_lab.paper.findings import Note, shown_both
from dpaudit_lab.paper.training import (
    COORDINATES,
    EPSILON,
    MOST,
    NOISE,
    one_training,
)
from dpaudit_lab.pictures.chart import Chart, Curve, Limit, Point
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = ["ACCURACY", "BOUNDS", "ELEMENTS", "EPSILONS", "GUESSES", "trial"]

ELEMENTS = 5000
GUESSES = (50, 100, 150, 250, 500, 750, 1000, 1500, 2000, 3000, 4000, 5000)

_MOST = MOST[COORDINATES, ELEMENTS // COORDINATES].value
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_X = "fraction of guesses taken, k/n"
_CAPTION = (
    "DP-SGD: 1000 coordinates, 5000 elements, 100 steps, sampling rate 0.1, {claim},\n"
    "delta = 1e-5, alpha = 0.05. Means of {repeats} runs; bands: one standard error."
)


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Simulate one run, and count right guesses for every number of them."""
    one = one_training(ELEMENTS, number(setting, "epsilon"), rng)
    return {f"sums {k}": one.right_by_sums(k) for k in GUESSES} | {
        f"likeliest {k}": one.right_by_likelihood(k) for k in GUESSES
    }


def _plan(epsilons: Sequence[float], repeats: int) -> tuple[Sweep, ...]:
    return (
        Sweep(
            name="paper, fraction of guesses",
            revision=1,
            function=trial,
            settings=[{"epsilon": epsilon} for epsilon in epsilons],
            trials=repeats,
        ),
    )


def _points(
    found: list[dict[str, Any]], curves: Sequence[CountCurve], per: int
) -> tuple[Point, ...]:
    """Return the points of curves, x being the number of guesses over ``per``."""
    return tuple(
        point
        for one in curves
        for k in GUESSES
        for point in one.points(
            k / per, [(ELEMENTS, k, row[f"{one.guesser} {k}"]) for row in found]
        )
    )


def _chart(
    store: Store,
    sweeps: tuple[Sweep, ...],
    curves: Sequence[CountCurve],
    y_label: str,
    limits: tuple[Limit, ...] = (),
    left_out: str = "",
    beside: tuple[Curve, ...] = (),
) -> Chart:
    (sweep,) = sweeps
    found = rows(store, sweep, {"epsilon": EPSILON})
    return Chart(
        title="What fraction of guesses to take",
        caption=_CAPTION.format(claim="claimed epsilon = 2", repeats=sweep.trials)
        + left_out,
        x_label=_X,
        y_label=y_label,
        curves=(*(one.curve for one in curves), *beside),
        points=(
            *_points(found, curves, ELEMENTS),
            *(
                Point(curve=one.name, x=k / ELEMENTS, mean=_MOST)
                for one in beside
                for k in GUESSES
            ),
        ),
        limits=limits,
        ticks=_TICKS,
    )


def _read_bounds(store: Store, sweeps: tuple[Sweep, ...]) -> Reproduced:
    y_label = "lower bound on epsilon, or estimation"
    chart = _chart(store, sweeps, BOUND_CURVES, y_label, LIMITS, LEFT_OUT, (NO_MEDIAN,))
    likeliest = highest(chart.of("exact bound, likeliest guesses"))
    return Reproduced(
        chart=chart,
        findings=(
            falls(
                "taking only the best guesses increases the estimations",
                chart.of("estimation"),
                "of the guesses",
            ),
            inner_maximum(
                "the bounds experience a tradeoff",
                chart.of("bound (Steinke et al.)"),
                "of the guesses",
            ),
            Note(
                text="the exact bound of the likeliest guesses is highest at "
                f"{likeliest.x:g} of the guesses, {shown_both(likeliest)}"
            ),
            Note(
                text="no valid audit of these elements, however it guesses, has a "
                f"median bound above {_MOST:.3f}"
            ),
        ),
    )


def _read_accuracy(store: Store, sweeps: tuple[Sweep, ...]) -> Reproduced:
    y_label = "efficacy: share of right guesses"
    chart = _chart(store, sweeps, ACCURACY_CURVES, y_label, limits=(TRUE_SHARE,))
    return Reproduced(
        chart=chart,
        findings=(
            falls(
                "the efficacy decreases as the ratio of taken guesses increases",
                chart.of("by sorted sums, as in the paper"),
                "of the guesses",
            ),
        ),
    )


def _read_several(store: Store, sweeps: tuple[Sweep, ...]) -> Reproduced:
    (sweep,) = sweeps

    def points(epsilon: float, pair: Sequence[CountCurve]) -> tuple[Point, ...]:
        return _points(rows(store, sweep, {"epsilon": epsilon}), pair, 1)

    return several_epsilons(
        points,
        title="How many guesses to take, for several values of epsilon",
        caption=_CAPTION.format(claim="claimed epsilon as named", repeats=sweep.trials),
        of="guesses",
        x_label="number of guesses taken, k",
        ticks=(50, 100, 200, 500, 1000, 2000, 5000),
    )


BOUNDS = Figure(
    name="guesses",
    label="fig:effect-of-taken-guesses-number-single-epsilon",
    number=1,
    shows="bound and estimation over the fraction of guesses taken",
    claim="While taking only the best guesses increases the estimations, the bounds "
    "experience a tradeoff.",
    paper_repeats=200,
    repeats=200,
    plan=partial(_plan, (EPSILON,)),
    read=_read_bounds,
)
ACCURACY = Figure(
    name="guesses-accuracy",
    label="fig:effect-of-taken-guesses-number-single-epsilon-efficacy",
    number=5,
    shows="efficacy over the fraction of guesses taken",
    claim="The efficacy decreases as the ratio of taken guesses increases.",
    paper_repeats=200,
    repeats=200,
    plan=partial(_plan, (EPSILON,)),
    read=_read_accuracy,
)
EPSILONS = Figure(
    name="guesses-epsilons",
    label="fig:effect-of-taken-guesses-number-multiple-epsilons",
    number=7,
    shows="bound over the number of guesses taken, for several epsilons",
    claim="Shown to compare with Steinke, Nasr and Jagielski; nothing is stated.",
    paper_repeats=20,
    repeats=20,
    plan=partial(_plan, tuple(NOISE)),
    read=_read_several,
)
