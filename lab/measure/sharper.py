"""What sharper prices of delta are worth: before, after, and without any delta.

``python lab/measure/sharper.py classic`` prints one part, no argument all of them.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dpaudit.bounds.adaptive import Adaptive
from dpaudit.bounds.bound import GameBound, highest_rejected
from dpaudit.bounds.exact import Classic, Exact
from dpaudit.bounds.independent_runs import IndependentRuns, PooledRuns
from dpaudit.bounds.readings import Counts, Unequal, Weighted
from dpaudit.bounds.unequal import UnequalCoins
from dpaudit.bounds.weighted import AdaptiveSlots, WeightedGuesses


def classic() -> None:
    """Print bounds on runs of which some are passed."""
    print("runs, guesses, right, delta, alpha: one-run price -> run by run; delta = 0")
    for n, r, v, delta, alpha in (
        (5000, 500, 450, 1e-5, 0.001),
        (5000, 500, 450, 1e-3, 0.05),
        (20_000, 1000, 800, 1e-3, 0.001),
        (20_000, 2000, 1600, 1e-3, 0.001),
        (20_000, 4000, 3000, 1e-3, 0.001),
        (50_000, 2000, 1800, 1e-3, 0.001),
        (50_000, 1000, 950, 1e-4, 0.001),
    ):
        counts = Counts(canaries=n, guesses=r, correct=v)
        before, after = (
            bound.epsilon_lower(counts, delta=delta, alpha=alpha).epsilon_lower
            for bound in (Exact(), Classic())
        )
        free = Exact().epsilon_lower(counts, delta=0.0, alpha=alpha).epsilon_lower
        print(
            f"{n}, {r}, {v}, {delta:g}, {alpha:g}: {before:.3f} -> {after:.3f}; "
            f"{free:.3f}"
        )


def unequal() -> None:
    """Print bounds on coins of known bias, the numbers of guesses fixed beforehand."""
    print("canaries, inclusion, in, out, right: coupling -> that decide; delta = 0")
    delta, alpha = 1e-5, 0.05
    for m, pi, ins, outs, v in (
        (100_000, 0.5, 755, 755, 1439),
        (16_000, 0.5, 185, 184, 280),
        (30_000, 0.5, 500, 500, 800),
        (30_000, 0.3, 1000, 0, 700),
        (30_000, 0.3, 500, 500, 850),
        (30_000, 0.1, 1000, 0, 400),
    ):
        counts = Unequal(
            canaries=m,
            inclusion=pi,
            guesses_in=ins,
            guesses_out=outs,
            correct=v,
            committed=True,
        )
        coupled = highest_rejected(_Coupled(), counts, delta=delta, alpha=alpha)
        after, free = (
            UnequalCoins().epsilon_lower(counts, delta=d, alpha=alpha).epsilon_lower
            for d in (delta, 0.0)
        )
        print(
            f"{m}, {pi}, {ins}, {outs}, {v}: {coupled.epsilon_lower:.3f} -> "
            f"{after:.3f}; {free:.3f}"
        )


class _Coupled:
    """The price of a coupling, whatever was fixed beforehand, as it was before."""

    method = "coupled"
    reference = ""

    def log_p_value(self, counts: Unequal, *, epsilon: float, delta: float) -> float:
        chosen = replace(counts, committed=False)
        return UnequalCoins().log_p_value(chosen, epsilon=epsilon, delta=delta)


def pooled() -> None:
    """Print bounds on several runs: p-values combined, counts added up."""
    print("runs x (canaries, guesses, right), delta = 1e-5: Fisher, counts added up")
    for k, m, r, v in (
        (2, 1000, 100, 90),
        (5, 1000, 100, 80),
        (10, 1000, 100, 75),
        (2, 100_000, 1510, 1439),
        (5, 10**7, 3000, 2960),
    ):
        runs = [Counts(canaries=m, guesses=r, correct=v)] * k
        product, added = (
            bound.epsilon_lower(runs, delta=1e-5, alpha=0.05).epsilon_lower
            for bound in (IndependentRuns(), PooledRuns())
        )
        print(f"{k} x ({m}, {r}, {v}): {product:.3f}, {added:.3f}")


def adaptive() -> None:
    """Print what adaptive guesses show, and would if they paid as those at once do."""
    print("canaries, guesses, right, delta = 1e-5: proved, if it paid as at once")
    for m, r, v in ((100_000, 1510, 1439), (16_000, 369, 280)):
        counts = Counts(canaries=m, guesses=r, correct=v)
        _print_both(counts, Adaptive(), Exact(), f"{m}, {r}, {v}")
    for m, r, v in (
        (100_000, (755, 755), (725, 714)),
        (50_000, (300, 600), (285, 480)),
    ):
        slots = Weighted(
            canaries=m, weights=(3, 2), guesses=r, correct=v, committed=True
        )
        _print_both(slots, AdaptiveSlots(), WeightedGuesses(), f"{m}, slots {r}, {v}")


def _print_both(
    reading: Any,  # noqa: ANN401 (what both bounds read)
    adaptive: GameBound[Any],
    at_once: GameBound[Any],
    name: str,
) -> None:
    proved, hoped = (
        bound.epsilon_lower(reading, delta=1e-5, alpha=0.05).epsilon_lower
        for bound in (adaptive, at_once)
    )
    print(f"{name}: {proved:.3f}, {hoped:.3f}")


PARTS: dict[str, Callable[[], None]] = {
    "classic": classic,
    "unequal": unequal,
    "pooled": pooled,
    "adaptive": adaptive,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
