"""What ranking only the surest guesses of a large table costs.

    python lab/measure/surest.py        # up to 10^8 canaries; half a minute, 2.5 GB

Scores are N(1, 1) with the canary and N(0, 1) without; guesses go from both ends
inwards, and as many are right as are expected. Prints the bound of all guesses ranked,
of the 2^20 surest ranked, and of the best fixed number of guesses, for a delta of a
tenth of one over the number of canaries, and for delta = 1e-5.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dpaudit.bounds import Counts, ExactBound, Ranked, RankedBound
from dpaudit.tables.tally import MOST_RANKED

ALPHA = 0.05


def right_of(guesses: int, canaries: int) -> float:
    """Return how many of the surest guesses are expected to be right."""

    def too_many(score: float) -> float:
        above = (special.ndtr(-score) + special.ndtr(1 - score)) / 2
        return float(above - guesses / 2 / canaries)

    cut = optimize.brentq(too_many, -10, 20)
    return float(canaries * special.ndtr(1 - cut))  # both ends are alike


def ranked(guesses: int, canaries: int, delta: float) -> float:
    """Return the bound of so many guesses, ranked."""
    places = np.unique(np.geomspace(10, guesses, 400).astype(int))
    total = [0.0, *(right_of(int(each), canaries) for each in places)]
    so_far = np.floor(np.interp(np.arange(guesses + 1), [0, *places], total))
    right: NDArray[np.bool_] = np.diff(so_far) > 0
    reading = Ranked(canaries=canaries, right=right)
    return RankedBound().epsilon_lower(reading, delta=delta, alpha=ALPHA).epsilon_lower


def best_fixed(canaries: int, delta: float) -> tuple[float, int]:
    """Return the largest bound of a fixed number of guesses, and the number."""
    found = []
    for guesses in map(int, np.geomspace(100, canaries * 0.99, 80)):
        right = int(right_of(guesses, canaries))
        counts = Counts(canaries=canaries, guesses=guesses, correct=right)
        bound = ExactBound().epsilon_lower(counts, delta=delta, alpha=ALPHA)
        found.append((bound.epsilon_lower, guesses))
    return max(found)


def main() -> None:
    for canaries in (10**6, 10**7, 10**8):
        for delta in (0.1 / canaries, 1e-5):
            few = ranked(min(MOST_RANKED, canaries), canaries, delta)
            every = ranked(canaries, canaries, delta)
            fixed, guesses = best_fixed(canaries, delta)
            print(
                f"{canaries:>11,} canaries, delta = {delta:g}: all ranked {every:.2f}, "
                f"the surest 2^20 {few:.2f}, the best number ({guesses:,}) {fixed:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
