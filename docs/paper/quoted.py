"""Every number that the write-up measures, by name, with the command that gives it.

A number is either *computed* here, in seconds, each time the write-up is built; or
*measured* by a longer command, and then quoted from the file that holds its row, which
must still hold it. ``build.py`` puts them where the text says ``{{name}}``, and prints
the table of commands at its end.
"""

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import exp, floor
from pathlib import Path
from typing import final

import numpy as np
from scipy import stats

from dpaudit.bounds.curve import curve_log_p_value, lines_log_p_value
from dpaudit.bounds.exact import ExactBound, PureBound, SeparateRunsBound
from dpaudit.bounds.power import mechanism_ceiling
from dpaudit.bounds.readings import Counts
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.dpsgd.planning.limit import training_limit
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit.theory.adaptive import stopping_probability

__all__ = ["NUMBERS", "Number"]

ROOT = Path(__file__).resolve().parents[2]
DELTA, ALPHA = 1e-5, 0.05
HERE = "python docs/paper/build.py"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number of the text.

    Attributes:
        text: As it is printed.
        command: What computes or measures it.
    """

    text: str
    command: str


NUMBERS: dict[str, Callable[[], Number]] = {}


def computed(name: str, digits: int, value: Callable[[], float]) -> None:
    """Name a number that is computed when the write-up is built."""
    NUMBERS[name] = lambda: Number(text=f"{value():.{digits}f}", command=HERE)


def shown(name: str, value: Callable[[], float]) -> None:
    """Name a lower bound that is computed, and rounded down."""
    computed(name, 3, lambda: floor(1000 * value() + 1e-9) / 1000)


def measured(name: str, text: str, *, where: str, row: str, command: str) -> None:
    """Name a number that stands in a line of a file, which begins as ``row`` does."""

    def quoted() -> Number:
        lines = (ROOT / where).read_text(encoding="utf-8").splitlines()
        holding = [line for line in lines if row in line and text in line]
        if not holding:
            raise SystemExit(f"{where} has no line with {row!r} and {text!r} ({name})")
        return Number(text=text, command=command)

    NUMBERS[name] = quoted


def of_counts(
    bound: ExactBound | SteinkeBound | PureBound | SeparateRunsBound, *counts: int
) -> float:
    """Return a lower bound from canaries, guesses and right guesses."""
    m, r, v = counts
    delta = 0.0 if isinstance(bound, PureBound) else DELTA
    reading = Counts(canaries=m, guesses=r, correct=v)
    return bound.epsilon_lower(reading, delta=delta, alpha=ALPHA).epsilon_lower


for row, counts in {
    "a": (1_000, 100, 85),
    "b": (10_000, 300, 255),
    "c": (100_000, 1_510, 1_439),
    "d": (100_000, 300, 285),
}.items():
    for column, bound in {
        "steinke": SteinkeBound(),
        "exact": ExactBound(),
        "pure": PureBound(),
    }.items():
        shown(f"{column}_{row}", partial(of_counts, bound, *counts))


def of_runs(bound: ExactBound | SeparateRunsBound, delta: float, *counts: int) -> float:
    """Return a lower bound at alpha = 0.001."""
    n, r, v = counts
    reading = Counts(canaries=n, guesses=r, correct=v)
    return bound.epsilon_lower(reading, delta=delta, alpha=0.001).epsilon_lower


for row, (delta, counts) in {
    "a": (1e-3, (20_000, 2_000, 1_600)),
    "b": (1e-4, (50_000, 1_000, 950)),
    "c": (1e-5, (5_000, 500, 450)),
}.items():
    for column, bound in {
        "one_run": ExactBound(),
        "classic": SeparateRunsBound(),
    }.items():
        shown(f"{column}_runs_{row}", partial(of_runs, bound, delta, *counts))


# Claimed: 1-GDP. 27 of 30 guesses are right.
_CLAIM, _COUNTS = GaussianDP(mu=1.0), Counts(canaries=30, guesses=30, correct=27)


def of_points() -> float:
    """Return the best p-value of a single point of the curve."""
    epsilons, deltas = _CLAIM.points()
    return exp(float(ExactBound().log_p_values(_COUNTS, epsilons, deltas).min()))


computed("curve_points", 3, of_points)
computed("curve_recursive", 3, lambda: exp(curve_log_p_value(_COUNTS, _CLAIM)))
computed("curve_together", 3, lambda: exp(lines_log_p_value(_COUNTS, _CLAIM, lines=60)))


def best_of_a_dozen() -> float:
    """Return how often the best of twelve numbers of guesses is below 5 % by chance.

    Of 1,000 canaries nothing is known. In percent, exactly.
    """
    numbers = np.unique(np.geomspace(10, 1000, 12).round().astype(int))
    still, before = np.ones(1), 0  # by the number of right guesses so far
    for number in numbers.tolist():
        shell = stats.binom.pmf(np.arange(number - before + 1), number - before, 0.5)
        still, before = np.convolve(still, shell), number
        tails = stats.binom.sf(np.arange(number + 1) - 1, number, 0.5)
        still = np.where(tails <= ALPHA, 0.0, still)
    return 100 * (1 - float(still.sum()))


def stopped(canaries: int) -> float:
    """Return how often who stops when ahead is wrong, in percent."""
    return 100 * stopping_probability(canaries, ALPHA)


computed("best_of_a_dozen", 1, best_of_a_dozen)
for size in (100, 1_000, 10_000):
    computed(f"stopping_{size}", 1, partial(stopped, size))


def exact_stopping() -> float:
    """Return how often eight coins suffice, by all of them: guess until ahead."""
    wrong = 0
    for coins in range(256):
        right = 0
        for made in range(1, 9):
            right += coins >> (made - 1) & 1
            if stats.binom.sf(right - 1, made, 0.5) <= ALPHA:
                wrong += 1
                break
    return wrong


computed("stopping_eight", 0, exact_stopping)
computed("gaussian_truth", 3, lambda: GaussianDP(mu=1.0).epsilon_at(DELTA))
computed(
    "gaussian_ceiling",
    3,
    lambda: mechanism_ceiling(GaussianDP(mu=1.0), delta=DELTA, alpha=ALPHA),
)


@cache
def one_step_limit(per_coordinate: int) -> float:
    """Return the limit of one full-batch step with 1,000 coordinates."""
    found = training_limit(
        TrainingSetup(steps=1, noise=2.1491104),
        coordinates=1000,
        per_coordinate=per_coordinate,
        alpha=ALPHA,
    )
    return found.value


for s in (1, 4, 12, 15):
    computed(f"one_step_limit_{s}", 3, partial(one_step_limit, s))


def price_of_rounds(coordinates: int, per_coordinate: int) -> float:
    """Return the mean factor of Theorem 5, for the plan of a column of Table 2."""
    sys.path.insert(0, str(ROOT / "lab" / "measure"))
    from adaptive_rules import PLANS  # noqa: PLC0415 (a script)

    rules = PLANS[coordinates, per_coordinate].rounds
    squares = np.square(rules.round_weights)
    squares *= (1 - rules.randomness_share) / squares.sum()
    later = rules.randomness_share + np.append(np.cumsum(squares[::-1])[::-1][1:], 0.0)
    with np.errstate(divide="ignore"):
        each = 2 * stats.norm.cdf(rules.max_jump / 2 / np.sqrt(later)) - 1
    return float(each.mean())


for column, plan in zip(
    "abcd", [(1_000, 6), (1_000, 12), (10_000, 3), (10_000, 6)], strict=True
):
    computed(f"price_{column}", 2, partial(price_of_rounds, *plan))

# What longer commands measured, each quoted from where its row is kept.
_RULES = "docs/explanation/bounds.md"
_RULES_BY = "python lab/measure/adaptive_rules.py"
for name, row, values in (
    (
        "one_run",
        "one run, exact",
        "0.694 ± .010|0.664 ± .008|0.974 ± .009|0.966 ± .007",
    ),
    (
        "classes",
        "one run, weighted",
        "0.724 ± .009|0.686 ± .007|0.989 ± .009|0.969 ± .008",
    ),
    (
        "ranked",
        "one run, ranked",
        "0.682 ± .013|0.623 ± .010|0.925 ± .012|0.927 ± .008",
    ),
    (
        "number",
        "a committed number",
        "0.692 ± .010|0.674 ± .010|0.940 ± .007|0.943 ± .006",
    ),
    (
        "rounds",
        "limited rounds**",
        "0.788 ± .010|0.791 ± .009|1.020 ± .009|1.034 ± .007",
    ),
):
    for column, text in zip("abcd", values.split("|"), strict=True):
        measured(f"{name}_{column}", text, where=_RULES, row=row, command=_RULES_BY)
for name, row, text in (
    ("valid_rr", "randomised response at its", "0.0402 [0.0354, 0.0454]"),
    ("valid_spent", "all δ spent", "0.0427 [0.0377, 0.0481]"),
    ("valid_stopping", "all δ spent", "0.0185 [0.0153, 0.0222]"),
):
    measured(
        name,
        text,
        where=_RULES,
        row=row,
        command="python lab/measure/rounds_validity.py",
    )
measured(
    "alarms",
    "32.6 % [30.5, 34.7]",
    where="docs/explanation/errata.md",
    row="silent once ahead | 1,000",
    command="python lab/measure/errata.py alarms",
)
_LIMIT = "docs/explanation/why-the-bound-is-lower.md"
_LIMIT_BY = "python lab/measure/limit.py"
for name, row, text, what in (
    ("limit_1", "100 steps, q = 0.1", "0.580 [0.577, 0.583]", "table"),
    ("limit_4", "| 4 |", "0.757 [0.755, 0.759]", "table"),
    ("limit_12", "| 12 |", "0.818 [0.814, 0.823]", "table"),
    ("limit_large", "| 6 |", "1.079 [1.063, 1.095]", "table"),
    ("limit_step", "| 40 |", "0.983", "table"),
    ("turns_12", "share", "98.6 %", "turns"),
    ("turns_40", "share", "97.0 %", "turns"),
    ("lost_planned", "as planned", "95.6 ± 0.8 %", "lost"),
    ("lost_delta", "at δ = 0", "97.2 %", "lost"),
    ("lost_jump", "no limit on what", "98.4 %", "lost"),
    ("share_2", "0.83 [0.82", "96.9 %", "rounds --one-step"),
):
    command = f"{_LIMIT_BY} {what}"
    measured(name, text, where=_LIMIT, row=row, command=command)
for name, text in (("rounds_step_median", "0.90"), ("rounds_step", "0.917 ± 0.009")):
    command = "dpaudit-lab reproduce adaptive-steps"
    measured(name, text, where=_LIMIT, row="one step, 1,000", command=command)


def _efficiency() -> dict[tuple[str, str, float], tuple[float, float]]:
    path = ROOT / "docs/explanation/figures/efficiency.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["mechanism"], row["curve"], float(row["runs"])): (
                float(row["median"]),
                float(row["error"]),
            )
            for row in csv.DictReader(file)
        }


def _drawn(name: str, mechanism: str, curve: str, runs: int) -> None:
    def number() -> Number:
        median, error = _efficiency()[mechanism, curve, runs]
        digits = 3 if 0 < error < 0.005 else 2
        text = f"{median:.{digits}f}" + (f" ± {error:.{digits}f}" if error else "")
        return Number(text=text, command="python lab/measure/efficiency.py")

    NUMBERS[name] = number


for name, mechanism, curve, runs in (
    ("cost_laplace", "Local Laplace", "at once", 1),
    ("cost_laplace_classic", "Local Laplace", "classic", 100),
    ("cost_name", "Name and shame", "at once", 1000),
    ("cost_name_classic", "Name and shame", "classic", 1000),
    ("cost_all", "All or nothing", "at once", 100),
    ("cost_all_classic", "All or nothing", "classic", 100),
    ("cost_pairs", "Parities of pairs", "adaptively", 1),
    ("cost_pairs_at_once", "Parities of pairs", "at once", 1000),
    ("cost_pairs_classic", "Parities of pairs", "classic", 30),
    ("cost_sets", "Counts in sets of ten", "adaptively", 10),
    ("cost_sets_at_once", "Counts in sets of ten", "at once", 10),
    ("cost_sets_classic", "Counts in sets of ten", "classic", 10),
    ("cost_sets_limit", "Counts in sets of ten", "limit of all canaries", 10),
    ("cost_training", "DP-SGD", "adaptively", 1),
    ("cost_training_10", "DP-SGD", "adaptively", 10),
    ("cost_training_classic", "DP-SGD", "classic", 1000),
):
    _drawn(name, mechanism, curve, runs)
