"""What an audit shows for what it costs: one canary a run, many runs, one run.

The cost of an audit is how often the mechanism runs. Each panel is a mechanism of the
paper; each point the median bound of audits that cost as much, with alpha = 0.05:

- *classic*: one canary a run, the other elements fixed and known;
- *at once*: all elements are canaries, in every run, and guessed at once;
- *adaptively*: the same, where earlier coins are revealed. Where the output speaks of
  each element by itself these tell nothing, and there is no such curve.

Runs share nothing, so many of them are one run of a larger mechanism, with the coins of
all: the rules for one run are valid for them. Beside medians stands the limit, which no
valid audit of these canaries exceeds in half of its games.

At delta = 0 guesses are counted that reach a threshold fixed beforehand, as outputs
alone decide which those are; adaptively, a number that is fixed beforehand. Limits are
those at delta = 0, which hold for every audit that is valid at some delta; for DP-SGD
at the best of six numbers of canaries at a coordinate. For DP-SGD the number is fixed
beforehand throughout, or limited rounds are played.

Reference: Keinan, Shenfeld and Ligett, section "Conclusions", which leaves the
trade-off open, https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import exp, floor, inf, log
from typing import Any, final

import numpy as np
from scipy import stats

from dpaudit.bounds.exact import ExactBound, SeparateRunsBound
from dpaudit.dpsgd.planning import plan_audit
from dpaudit.dpsgd.planning.limit import training_limit
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.game.guessers import Confident, MostLikely
from dpaudit.game.rules import AdaptiveCount, AdaptiveRounds
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import LocalLaplace
from dpaudit.mechanisms.output_likelihood import OutputLikelihood
from dpaudit.mechanisms.parity import XorInPairs
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.privacy.guarantees import ApproxDP, PureDP
from dpaudit.testing import fixed_key
from dpaudit.theory.adaptive import one_run_guesses
from dpaudit.theory.limit import limit
from dpaudit_lab.paper.counting import ALPHA, DELTA, pure
from dpaudit_lab.paper.figure import number, rows
from dpaudit_lab.paper.findings import shown
from dpaudit_lab.paper.one_game import OneGame
from dpaudit_lab.paper.sets import committed
from dpaudit_lab.paper.training import (
    COORDINATES,
    EPSILON,
    MOST,
    NOISE,
    TRUTH,
    dp_sgd,
)
from dpaudit_lab.pictures.chart import (
    Chart,
    Curve,
    Limit,
    Look,
    Point,
    median_point,
)
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = ["PANELS", "charts", "sweeps", "trial", "worth"]

ELEMENTS, SET = 100, 10
RUNS = (1, 3, 10, 30, 100, 300, 1000)
SEVERAL = (1, 3, 10, 30, 100)  # trainings of a thousand coordinates
FEW = (1, 3, 10, 30)  # more, and delta costs rounds more than they are worth
TRAINING = TrainingSetup(steps=100, rate=0.1, noise=NOISE[EPSILON])

CLASSIC, AT_ONCE, ADAPTIVE = "classic", "at once", "adaptively"
ALONE, TOGETHER = "limit of one canary a run", "limit of all canaries"
CURVES = (
    Curve(name=CLASSIC, colour=0),
    Curve(name=ALONE, colour=0, look=Look.BESIDE),
    Curve(name=AT_ONCE, colour=1),
    Curve(name=ADAPTIVE, colour=2),
    Curve(name=TOGETHER, colour=2, look=Look.BESIDE),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A mechanism of the paper, and how it is audited at delta = 0.

    Attributes:
        title: What it is called.
        mechanism: One run of it.
        threshold: Of the log-odds of a coin that is guessed.
        larger: Whether many runs are one of the same kind with more elements.
        interferes: Whether revealed coins tell of others.
        truth: Its epsilon.
    """

    title: str
    mechanism: Any
    threshold: float = inf
    larger: bool = True
    interferes: bool = False
    truth: float = inf


PANELS: Mapping[str, Panel] = {
    "laplace": Panel(
        title="Local Laplace, epsilon = 2",
        mechanism=LocalLaplace(epsilon=2.0),
        threshold=2.0 - 1e-9,
        truth=2.0,
    ),
    "name": Panel(
        title="Name and shame",
        mechanism=NameAndShame(elements=ELEMENTS),
        larger=False,
    ),
    "all": Panel(
        title="All or nothing, 1 in 10",
        mechanism=AllOrNothing(elements=ELEMENTS, probability=0.1),
        larger=False,
    ),
    "pairs": Panel(
        title="Parities of pairs",
        mechanism=XorInPairs(elements=ELEMENTS),
        interferes=True,
    ),
    "sets": Panel(
        title="Counts in sets of ten",
        mechanism=CountInSets(elements=ELEMENTS, set_size=SET),
        interferes=True,
    ),
}


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Audit a mechanism of the paper by as many runs, in each way."""
    panel, runs = PANELS[str(setting["panel"])], int(number(setting, "runs"))
    found = {CLASSIC: pure(*_classic(panel, runs, rng))}
    if not panel.larger:
        found[AT_ONCE] = pure(*_run_by_run(panel, runs, rng))
        return found
    larger = _larger(panel.mechanism, runs)
    game: OneGame[Any] = OneGame(
        mechanism=larger,
        claim=PureDP(epsilon=1.0, adjacency=panel.mechanism.pairs.adjacency),
        canaries=runs * ELEMENTS,
        key=fixed_key(rng.bytes(32)),
        seed=int(rng.integers(2**63)),
        alpha=ALPHA,
    )
    sure: Confident[Any] = Confident(
        mechanism=larger,
        threshold=_threshold(runs) if setting["panel"] == "sets" else panel.threshold,
        guesses=game.canaries,
    )
    counted = game.at_once(sure, guesses=None)
    found[AT_ONCE] = pure(counted.guesses, counted.correct)
    if panel.interferes:
        rules = AdaptiveCount(guesses=_committed(str(setting["panel"]), runs))
        found[ADAPTIVE] = game.judged(rules, panel.threshold)
    return found


def _classic(panel: Panel, runs: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return guesses and right ones about the first element, all others being known."""
    mechanism, counted = panel.mechanism, [0, 0]
    bits = np.zeros(ELEMENTS, np.uint8)
    for coin in rng.integers(0, 2, runs):
        bits[0] = coin
        output = mechanism.run(mechanism.pairs.choose(bits), rng)
        truth = (2 * bits.astype(np.int8) - 1).astype(np.int8)
        odds = mechanism.posterior(output).knowing_others(truth)[0]
        if abs(odds) >= panel.threshold:
            counted[0] += 1
            counted[1] += (odds > 0) == bool(coin)
    return counted[0], counted[1]


def _run_by_run(panel: Panel, runs: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return guesses and right ones about all elements of all runs."""
    mechanism, guesses, right = panel.mechanism, 0, 0
    for _ in range(runs):
        bits = rng.integers(0, 2, ELEMENTS, np.uint8)
        odds = mechanism.log_odds(mechanism.run(mechanism.pairs.choose(bits), rng))
        sure = np.abs(odds) >= panel.threshold
        guesses += int(sure.sum())
        right += int(np.sum((odds[sure] > 0) == (bits[sure] == 1)))
    return guesses, right


def _larger(mechanism: Any, runs: int) -> Any:  # noqa: ANN401
    if isinstance(mechanism, LocalLaplace):
        return mechanism  # of as many elements as it is given
    return replace(mechanism, elements=runs * mechanism.elements)


def _committed(name: str, runs: int) -> int:
    """Return a number of guesses that is mostly made, by their exact law."""
    if name == "pairs":
        return runs * ELEMENTS // 2
    return committed(SET, sets=runs * ELEMENTS // SET, spreads=1.0)


@cache
def _threshold(runs: int) -> float:
    """Return the best threshold for counts guessed at once, by their exact law."""
    sets = runs * ELEMENTS // SET
    ratios = [log(more / (SET - more)) - 1e-9 for more in range(SET // 2 + 1, SET)]

    def promised(threshold: float) -> float:
        law = one_run_guesses(SET, threshold)
        guesses = round(sets * law.expected_guesses)
        return pure(guesses, min(guesses, floor(sets * law.expected_right)))

    return max([*ratios, inf], key=promised)


def train(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Audit the paper's DP-SGD by as many trainings."""
    runs, way = int(number(setting, "runs")), str(setting["way"])
    plan = _plan(way, runs)
    mechanism = replace(
        dp_sgd(COORDINATES, EPSILON),
        coordinates=plan.coordinates,
        per_coordinate=plan.per_coordinate,
    )
    game = OneGame(
        mechanism=mechanism,
        claim=plan.claim,
        canaries=plan.coordinates * plan.per_coordinate,
        key=fixed_key(rng.bytes(32)),
        seed=int(rng.integers(2**63)),
        alpha=ALPHA,
    )
    if isinstance(plan.rules, AdaptiveRounds):
        return {"bound": game.judged(plan.rules, plan.rules.min_epsilon)}
    guesses = plan.rules.max_guesses(game.canaries)
    counted = game.at_once(
        MostLikely(mechanism=mechanism, guesses=guesses), guesses=guesses
    )
    bound = SeparateRunsBound() if way == CLASSIC else ExactBound()
    found = bound.epsilon_lower(counted, delta=DELTA, alpha=ALPHA)
    return {"bound": found.epsilon_lower}


@cache
def _plan(way: str, runs: int) -> Plan:
    """Return what is fixed beforehand about so many trainings."""
    alone = way == CLASSIC
    return plan_audit(
        TRAINING,
        claim=ApproxDP(epsilon=EPSILON, delta=DELTA),
        coordinates=runs if alone else runs * COORDINATES,
        per_coordinate=1 if alone else None,
        in_rounds=way == ADAPTIVE,
        purpose="bound",
    )


def most(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Compute the limits of one canary a run, and of all of them."""
    del rng  # what is simulated has seeds of its own
    name, runs = str(setting["panel"]), int(number(setting, "runs"))
    if name == "training":
        found = {ALONE: _most_of(runs, 1)}
        if runs in SEVERAL:
            found[TOGETHER] = _most_of_all(runs)
        return found
    mechanism = PANELS[name].mechanism
    alone = _alone(name, runs)
    if not PANELS[name].larger:
        together = _each_run(mechanism.output_likelihood(ELEMENTS), runs)
    else:
        together = _larger(mechanism, runs).output_likelihood(runs * ELEMENTS)
    return {ALONE: limit([alone], alpha=ALPHA), TOGETHER: limit(together, alpha=ALPHA)}


def _most_of(coordinates: int, per_coordinate: int) -> float:
    if (coordinates, per_coordinate) in MOST:
        return MOST[coordinates, per_coordinate].value
    found = training_limit(
        TRAINING,
        coordinates=coordinates,
        per_coordinate=per_coordinate,
        alpha=ALPHA,
        simulated=10_000,
    )
    return found.value


def _most_of_all(runs: int) -> float:
    """Return the limit at the best of several numbers at a coordinate."""
    return max(_most_of(runs * COORDINATES, s) for s in (1, 2, 4, 8, 12, 16))


def _alone(name: str, runs: int) -> OutputLikelihood:
    """Return what runs say of one canary each, if all other coins are known."""
    sure = np.array([[700.0, 0.0], [0.0, 700.0], [0.0, 0.0]]) - 700.0
    if name == "laplace":
        (said,) = LocalLaplace(epsilon=2.0).output_likelihood(runs)
        return said
    known = {"name": 1 / ELEMENTS, "all": 0.1, "pairs": 1.0, "sets": 1.0}[name]
    weights = np.array([known / 2, known / 2, 1 - known])
    return OutputLikelihood(groups=runs, weights=weights, log_likelihood=sure)


def _each_run(said: Sequence[OutputLikelihood], runs: int) -> list[OutputLikelihood]:
    """Return what runs say in which either one thing is said of all, or nothing."""
    (one,) = said
    chances = stats.binom.pmf(np.arange(runs + 1), runs, one.probability)
    likely = np.flatnonzero(chances > 1e-12)
    last = int(likely[-1])  # which also stands for more of them
    chances[last] += chances[last + 1 :].sum()
    return [
        replace(one, probability=float(chances[k]), groups=int(k) * one.groups)
        for k in likely.tolist()
        if k
    ]


def sweeps(trials: int) -> dict[str, Sweep]:
    """Return what is run: audits of five mechanisms, of trainings, and limits."""
    ways = {CLASSIC: RUNS, AT_ONCE: SEVERAL, ADAPTIVE: FEW}
    each: list[Setting] = [
        {"panel": name, "runs": runs} for name in PANELS for runs in RUNS
    ]
    trained: list[Setting] = [{"panel": "training", "runs": runs} for runs in RUNS]
    return {
        "audits": Sweep(
            name="efficiency",
            revision=2,
            function=trial,
            settings=each,
            trials=5 * trials,  # which take no longer than the trainings
        ),
        "trainings": Sweep(
            name="efficiency of trainings",
            revision=1,
            function=train,
            settings=[{"way": way, "runs": k} for way in ways for k in ways[way]],
            trials=trials,
        ),
        "limits": Sweep(
            name="efficiency, limits",
            revision=3,
            function=most,
            settings=[*each, *trained],
            trials=1,
        ),
    }


def charts(store: Store, planned: Mapping[str, Sweep]) -> list[Chart]:
    """Return the panels."""
    points: dict[str, list[Point]] = {name: [] for name in (*PANELS, "training")}
    for setting in planned["audits"].settings:
        found = rows(store, planned["audits"], setting)
        points[str(setting["panel"])] += [
            median_point(way, number(setting, "runs"), [row[way] for row in found])
            for way in found[0]
        ]
    for setting in planned["trainings"].settings:
        found = rows(store, planned["trainings"], setting)
        values = [row["bound"] for row in found]
        way = str(setting["way"])
        points["training"].append(median_point(way, number(setting, "runs"), values))
    for setting in planned["limits"].settings:
        (row,) = rows(store, planned["limits"], setting)
        points[str(setting["panel"])] += [
            Point(curve=name, x=number(setting, "runs"), mean=row[name]) for name in row
        ]
    titles = {name: panel.title for name, panel in PANELS.items()}
    truths = {name: panel.truth for name, panel in PANELS.items()}
    titles["training"], truths["training"] = "DP-SGD, 1000 coordinates", TRUTH[EPSILON]
    return [
        Chart(
            title=titles[name],
            caption="",
            x_label="runs",
            y_label="median bound on epsilon",
            curves=CURVES,
            points=tuple(points[name]),
            limits=(Limit(name="true epsilon", level=truths[name]),)
            if truths[name] < inf
            else (),
            ticks=(1, 10, 100, 1000),
        )
        for name in titles
    ]


def worth(drawn: Sequence[Chart]) -> list[str]:
    """Return in words how many classic runs one run is worth, panel by panel."""
    said = []
    for chart in drawn:
        classic = chart.of(CLASSIC)
        ways = [way for way in (AT_ONCE, ADAPTIVE) if chart.of(way)]
        for way in ways:
            one = chart.of(way)[0]
            said.append(
                f"{chart.title}: one run {way} {shown(one)}, {_as(one, classic)}"
            )
        most = [chart.of(way)[-1] for way in (*ways, CLASSIC)]
        said += [f"  {point.x:g} runs {point.curve} {shown(point)}" for point in most]
    return said


def _as(one: Point, classic: Sequence[Point]) -> str:
    if one.mean <= classic[0].mean:
        return "no more than one classic run"
    for before, after in pairwise(classic):
        if before.mean <= one.mean <= after.mean and before.mean < after.mean:
            part = (one.mean - before.mean) / (after.mean - before.mean)
            runs = exp(log(before.x) + part * log(after.x / before.x))
            return f"as much as about {runs:.2g} classic runs"
    return f"more than {classic[-1].x:g} classic runs"
