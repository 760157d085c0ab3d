"""Figures of the errata that no test holds.

    python lab/measure/errata.py delta       # what a small delta costs (9 min)
    python lab/measure/errata.py alarms      # adaptive ORA as published (3 min)

``delta``: the paper's figure over elements per coordinate, its own guesser and 100
guesses. The bounds of the same runs by the paper's formula at delta = 1e-5 and at
delta = 0, and by the exact one at delta = 1e-5.

``alarms``: how often the binomial bound at the number of guesses made is above the true
epsilon, alpha = 0.05: for the paper's guesser, who guesses what reaches a threshold,
and for the same one if it stops as soon as it is ahead.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from in_turn import PairsByResponse, told
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds import Counts, ExactBound
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.game.mechanism import FixedPosterior
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.mechanisms.noise import GaussianNoise, GeometricNoise
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.paper.adaptive_steps import NOISE as ONE_STEP
from dpaudit_lab.paper.elements import GUESSES
from dpaudit_lab.paper.realised_number import (
    Ahead,
    SilentOnceAhead,
    adaptive_as_made,
)
from dpaudit_lab.paper.training import COORDINATES, EPSILON, one_training

ALPHA, DELTA = 0.05, 1e-5


# What a small delta costs


def bounds(elements: int, right: list[int]) -> dict[str, list[float]]:
    """Return the three bounds of each run."""
    ways = {
        "delta = 1e-5": (SteinkeBound(), DELTA),
        "delta = 0": (SteinkeBound(), 0.0),
        "exact at 1e-5": (ExactBound(), DELTA),
    }
    found = {}
    for name, (bound, delta) in ways.items():
        by_count = {
            v: bound.epsilon_lower(
                Counts(canaries=elements, guesses=GUESSES, correct=v),
                delta=delta,
                alpha=ALPHA,
            ).epsilon_lower
            for v in set(right)
        }
        found[name] = [by_count[v] for v in right]
    return found


def delta(runs: int = 2000) -> None:
    means: dict[str, dict[int, float]] = {}
    for s in (1, 3, 4, 5, 6, 8, 12, 20):
        rng = np.random.default_rng(s)
        right = [
            one_training(COORDINATES * s, EPSILON, rng).right_by_sums(GUESSES)
            for _ in range(runs)
        ]
        found = bounds(COORDINATES * s, right)
        print(f"{s:2} a coordinate: ", end="")
        print("; ".join(f"{name} {told(each)}" for name, each in found.items()))
        price = np.subtract(found["delta = 0"], found["delta = 1e-5"])
        print(f"                 price of delta {told(price.tolist())}", flush=True)
        for name, each in found.items():
            means.setdefault(name, {})[s] = float(np.mean(each))
    for name, each in means.items():
        top = max(each, key=lambda s: each[s])
        fall = each[top] - each[20]
        print(f"{name}: highest at {top}, {each[top]:.3f}; falls by {fall:.3f} to 20")


# Adaptive ORA as published


def ahead_of(epsilon: float, most: int) -> Ahead:
    """Return whether a number of right guesses would put the bound above epsilon."""
    p, least, limits = float(special.expit(epsilon)), 1, [1]
    for k in range(1, most + 1):
        while least <= k and special.bdtrc(least - 1, k, p) > ALPHA:
            least += 1
        limits.append(least)
    return lambda made, right: made > 0 and right >= limits[made]


@dataclass(frozen=True)
class Silent:
    """Says nothing."""

    pairs: Pairs = field(default_factory=lambda: Pairs(x=-1, y=1))

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> int:
        """Return how many elements there are."""
        del rng
        return len(data)

    def posterior(self, output: int) -> FixedPosterior:
        """Return that nothing is known."""
        return FixedPosterior(np.zeros(output))


def subjects() -> Iterator[tuple[str, Any, int, float, float]]:
    """Yield names, mechanisms, coins, thresholds and true epsilons."""
    yield "silent", Silent(), 1000, 0.0, 0.0
    yield "randomised response", LocalRandomisedResponse(epsilon=1.0), 1000, 1.0, 1.0
    yield "parities of pairs by it", PairsByResponse(epsilon=1.0), 1000, 1.0, 1.0
    noisy = CountInSets(elements=1000, set_size=5, noise=GeometricNoise(epsilon=1.0))
    yield "counts of 5, geometric noise", noisy, 1000, 0.8, 1.0
    gaussian = GaussianNoise(sigma=ONE_STEP)
    true = GaussianDP(mu=1 / ONE_STEP).epsilon_at(DELTA)
    for s in (5, 20):
        step = CountInSets(elements=1000 * s, set_size=s, noise=gaussian)
        yield f"the paper's step, {s} a coordinate", step, 1000 * s, 1.0, true
    for n in (100, 1000):
        hinting = SilentOnceAhead(hint=1e-9, ahead=ahead_of(1e-6, n))
        if hinting.level(n) > 1e-6:
            raise ValueError("the hints are larger than is said")
        yield "silent once ahead", hinting, n, 1e-9, 1e-6


def alarms(runs: int = 2000) -> None:
    for name, mechanism, n, threshold, epsilon in subjects():
        ahead, row = ahead_of(epsilon, n), []
        for who in ("threshold", "stops"):
            rng = np.random.default_rng(1)
            games = [
                adaptive_as_made(
                    mechanism,
                    pairs=mechanism.pairs,
                    canaries=n,
                    threshold=threshold,
                    rng=rng,
                    **({"stop": ahead} if who == "stops" else {}),
                )
                for _ in range(runs)
            ]
            wrong = sum(ahead(each.guesses, each.correct) for each in games)
            low, high = rate_limits(wrong, runs, alpha=0.05)
            made = np.mean([each.guesses for each in games])
            rate = f"{wrong / runs:.4f} [{low:.4f}, {high:.4f}]"
            row.append(f"{who} {rate}, {made:.0f} guesses")
        print(f"{name}, {n} coins, epsilon {epsilon:.3g}: {'; '.join(row)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("delta", "alarms"))
    {"delta": delta, "alarms": alarms}[parser.parse_args().what]()
