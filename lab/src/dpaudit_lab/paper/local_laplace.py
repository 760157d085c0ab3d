"""The local Laplace mechanism without abstentions: the paper's figure, and audits.

Every coin is guessed, the likelier way. A guess is right with chance 1 - exp(-epsilon /
2) / 2, and its log-odds, below epsilon, are what bounds converge to: the paper's curve,
which takes no simulation. Beside it stand mean bounds of audits of growing size.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, Proposition
"prop:local-laplace-efficacy-without-abstentions" and Figure
"fig:results-of-ora-for-local-laplace".
"""

from collections.abc import Sequence
from itertools import pairwise
from math import expm1, hypot

import numpy as np

from dpaudit.game.auditors import play_one_run
from dpaudit.game.guessers import Everyone
from dpaudit.mechanisms.local import LocalLaplace
from dpaudit.testing import fixed_key
from dpaudit_lab.paper.counting import ALPHA, pure
from dpaudit_lab.paper.courses import CLEAR
from dpaudit_lab.paper.figure import Figure, Reproduced, number, rows
from dpaudit_lab.paper.findings import Observation, Verdict, shown, verdict
from dpaudit_lab.paper.one_game import one_run_design
from dpaudit_lab.pictures.chart import Chart, Curve, Look, Point, mean_point
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = ["CANARIES", "EPSILONS", "LOCAL_LAPLACE", "limit", "nears", "trial"]

CANARIES = (100, 1000, 10_000)
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)

_GRID = tuple(i / 8 for i in range(1, 65))
_LIMIT, _TRUTH = "limit: log-odds of the efficacy", "epsilon itself"


def limit(epsilon: float) -> float:
    """Return the log-odds of a right guess: what bounds converge to.

    Example:
        >>> round(limit(2.0), 6)
        1.48988
    """
    # p / (1 - p) = (2 - q) / q with q = exp(-epsilon / 2).
    return float(np.log1p(2 * expm1(epsilon / 2)))


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Run the mechanism once, guess every coin, and count the right guesses."""
    mechanism = LocalLaplace(epsilon=number(setting, "epsilon"))
    n = int(number(setting, "canaries"))
    played = play_one_run(
        mechanism,
        Everyone(mechanism=mechanism),
        pairs=mechanism.pairs,
        design=one_run_design(mechanism.pairs, canaries=n, guesses=n),
        key=fixed_key(rng.bytes(32)),
        rng=rng,
    )
    right, _ = played.reading().correct_and_guesses()
    return {"right": right}


def _setting(canaries: int, epsilon: float) -> Setting:
    return {"canaries": canaries, "epsilon": epsilon}


def _plan(repeats: int) -> tuple[Sweep, ...]:
    return (
        Sweep(
            name="paper, local Laplace",
            revision=1,
            function=trial,
            settings=[_setting(n, e) for n in CANARIES for e in EPSILONS],
            trials=repeats,
        ),
    )


def _name(canaries: int) -> str:
    return f"mean bound, {canaries:,} elements"


def _read(store: Store, sweeps: tuple[Sweep, ...]) -> Reproduced:
    (sweep,) = sweeps
    audited = tuple(
        mean_point(
            _name(n),
            epsilon,
            [pure(n, row["right"]) for row in rows(store, sweep, _setting(n, epsilon))],
        )
        for n in CANARIES
        for epsilon in EPSILONS
    )
    chart = Chart(
        title="Local Laplace, every coin guessed",
        caption=f"delta = 0, alpha = {ALPHA:g}, so no audit reliably shows more than "
        "epsilon itself. The limit is exact.\nMean bounds of "
        f"{sweep.trials} simulated audits; bands: one standard error.",
        x_label="epsilon of the mechanism",
        y_label="lower bound on epsilon",
        curves=(
            Curve(name=_TRUTH, colour=6, look=Look.LIMIT),
            Curve(name=_LIMIT, colour=6, look=Look.LIMIT, published=True),
            *(
                Curve(name=_name(n), colour=colour)
                for colour, n in enumerate(reversed(CANARIES))
            ),
        ),
        points=(
            *(Point(curve=_TRUTH, x=x, mean=x) for x in _GRID),
            *(Point(curve=_LIMIT, x=x, mean=limit(x)) for x in _GRID),
            *audited,
        ),
    )
    return Reproduced(
        chart=chart, findings=(_converges(2.0, chart), _converges(8.0, chart))
    )


def _converges(epsilon: float, chart: Chart) -> Observation:
    """Return whether mean bounds near the limit with the size of the audit."""
    end = limit(epsilon)
    means = [next(p for p in chart.of(_name(n)) if p.x == epsilon) for n in CANARIES]
    sizes = ", ".join(f"{n:,}" for n in CANARIES)
    lacking = ", ".join(f"{end - point.mean:.3f}" for point in means)
    return Observation(
        claim=f"at epsilon = {epsilon:g} bounds converge to the level of the efficacy",
        measured=f"{', '.join(map(shown, means))} with {sizes} elements, limit "
        f"{end:.3f}; {lacking} is lacking, of which each step must leave less than "
        "half",
        verdict=nears(means, end),
    )


def nears(means: Sequence[Point], end: float) -> Verdict:
    """Return whether means with tenfold sizes near an end as bounds do.

    What a bound lacks shrinks like one over the root of the size: tenfold leaves 0.32
    of it. It is said to near its end if every step leaves less than half, clearly.

    Example:
        >>> def mean(x, value):
        ...     return Point(curve="a", x=x, mean=value, error=0.001, repeats=200)
        >>> nears([mean(100, 0.5), mean(1000, 0.84), mean(10_000, 0.95)], 1.0).value
        'so it is here'
        >>> nears([mean(100, 0.5), mean(1000, 0.6), mean(10_000, 0.7)], 1.0).value
        'not so here'
    """
    above_half = [
        (abs(end - after.mean) - abs(end - before.mean) / 2)
        / max(hypot(after.error, before.error / 2), 1e-9)
        for before, after in pairwise(means)
    ]
    most = max(above_half, default=0.0)
    return verdict(holds=most < -CLEAR, fails=most > CLEAR)


LOCAL_LAPLACE = Figure(
    name="local-laplace",
    label="fig:results-of-ora-for-local-laplace",
    number=4,
    shows="bounds of ORA without abstentions of local Laplace over epsilon",
    claim="The efficacy is 1 - exp(-epsilon / 2) / 2, and bounds converge to its "
    "log-odds, which the figure shows; it has no experiments.",
    paper_repeats=None,
    repeats=200,
    plan=_plan,
    read=_read,
)
