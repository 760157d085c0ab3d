"""What sharper prices of delta are worth: before, after, and without any delta.

``python lab/measure/sharper.py classic`` prints one part, no argument all of them.
"""

import sys
from collections.abc import Callable

from dpaudit.bounds.exact import Classic, Exact, FormerClassic
from dpaudit.bounds.readings import Counts


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
            for bound in (FormerClassic(), Classic())
        )
        free = Exact().epsilon_lower(counts, delta=0.0, alpha=alpha).epsilon_lower
        print(
            f"{n}, {r}, {v}, {delta:g}, {alpha:g}: {before:.3f} -> {after:.3f}; "
            f"{free:.3f}"
        )


PARTS: dict[str, Callable[[], None]] = {"classic": classic}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
