"""What a guesser with a threshold shows, counted in three ways.

    python lab/measure/as_made.py [--games 200]

Local Laplace, epsilon = 2, 2,000 elements, no delta. The guesser guesses what reaches a
threshold; its number of guesses depends on the output. Its bound is made from as many
guesses as it made (``OneRun(guesses=None)``, Algorithm 1 as printed), and from 2,000
guesses committed to, those not made counted as wrong. Beside it, the best number of
most confident guesses fixed beforehand, chosen on other games.
"""

import argparse
from collections.abc import Callable

import numpy as np

from dpaudit import Design, OneRun, PureDP
from dpaudit.game.auditors import audit_one_run
from dpaudit.game.guessers import Confident, Guesser, MostLikely
from dpaudit.mechanisms.local import LocalLaplace
from dpaudit.testing import fixed_key
from dpaudit_lab.paper.counting import ALPHA

EPSILON, ELEMENTS = 2.0, 2000
THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 1.9)
NUMBERS = (200, 500, 800, 1000, 1200, 1500, 2000)
MECHANISM = LocalLaplace(epsilon=EPSILON)


def mean_bound(
    guesser: Guesser[np.ndarray], rules: OneRun, games: int, first: int
) -> tuple[float, float]:
    """Return the mean of the bound over games, and its standard error."""
    claim = PureDP(epsilon=EPSILON, adjacency=MECHANISM.guarantee.adjacency)
    design = Design(canaries=ELEMENTS, rules=rules, claim=claim, alpha=ALPHA)
    shown = []
    for seed in range(first, first + games):
        rng = np.random.default_rng(seed)
        result = audit_one_run(
            MECHANISM,
            guesser,
            pairs=MECHANISM.pairs,
            design=design,
            rng=rng,
            key=fixed_key(rng.bytes(32)),
        )
        shown.append(result.bound.epsilon_lower)
    return float(np.mean(shown)), float(np.std(shown) / games**0.5)


def confident(threshold: float) -> Confident[np.ndarray]:
    return Confident(mechanism=MECHANISM, threshold=threshold, guesses=ELEMENTS)


def row(name: str, found: tuple[float, float]) -> None:
    print(f"| {name} | {found[0]:.4f} ± {found[1]:.4f} |")


def best(values: tuple[float, ...], bound: Callable[[float], float]) -> float:
    return max(values, key=bound)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", type=int, default=200)
    games = parser.parse_args().games
    free, committed = OneRun(guesses=None), OneRun(guesses=ELEMENTS)
    print("| guesses | mean bound |\n|---|---|")
    for threshold in THRESHOLDS:
        name = f"log-odds of {threshold:g} or more"
        guesser = confident(threshold)
        row(f"{name}, as many as made", mean_bound(guesser, free, games, 10_000))
        row(
            f"{name}, of {ELEMENTS:,} committed to",
            mean_bound(guesser, committed, games, 10_000),
        )
    number = best(
        NUMBERS,
        lambda k: mean_bound(
            MostLikely(mechanism=MECHANISM, guesses=int(k)),
            OneRun(guesses=int(k)),
            games,
            20_000,
        )[0],
    )
    guesser = MostLikely(mechanism=MECHANISM, guesses=int(number))
    found = mean_bound(guesser, OneRun(guesses=int(number)), games, 10_000)
    row(f"{number:,} most confident, fixed beforehand", found)


if __name__ == "__main__":
    main()
