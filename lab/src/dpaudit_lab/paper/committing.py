"""How many guesses an adaptive guesser of one step makes: what commitments are set by.

Guesses that a guesser commits to and does not make count as wrong; if it commits to
few, it shows little. So a commitment is set somewhat below the mean number that is
made, in runs other than those that are audited.
"""

import numpy as np

from dpaudit_lab.paper.adaptive_steps import THRESHOLD, one_run, one_step
from dpaudit_lab.paper.step_plans import PLANS

__all__ = ["guesses_made", "margin"]


def guesses_made(
    per_coordinate: int, *, runs: int, rng: np.random.Generator
) -> list[int]:
    """Return how many guesses are made adaptively with a threshold of 1, run by run."""
    mechanism = one_step(per_coordinate)
    return [one_run(mechanism, rng).as_made(THRESHOLD).guesses for _ in range(runs)]


def margin(per_coordinate: int, *, runs: int, rng: np.random.Generator) -> float:
    """Return how far what is committed to is below the mean, in standard deviations.

    Example:
        >>> margin(1, runs=4, rng=np.random.default_rng(1)) > 0
        True
    """
    made = np.array(guesses_made(per_coordinate, runs=runs, rng=rng))
    return float((made.mean() - PLANS[per_coordinate].committed) / made.std(ddof=1))
