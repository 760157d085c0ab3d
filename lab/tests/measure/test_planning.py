"""What audits of plans are simulated by, against steps made one by one.

The seed is fixed and limits are four standard errors or more, so that another seed
would fail with a chance of about one in ten thousand.
"""

import numpy as np
import pytest
from planning import CountedSums

from dpaudit.dpsgd.planning import TrainingSetup


@pytest.mark.parametrize(
    ("steps", "rate", "noise", "s"),
    [(1000, 0.01, 1.02, 1), (300, 0.05, 0.6, 2), (300, 0.1, 0.8, 4)],
)
def test_steps_that_are_counted_say_what_steps_made_one_by_one_say(
    steps, rate, noise, s
):
    n, rng = 20_000, np.random.default_rng(1)
    training = TrainingSetup(steps=steps, rate=rate, noise=noise)
    made = training.mechanism(coordinates=n, per_coordinate=s)
    coins = rng.integers(0, 2, n * s)
    one, other = (
        made.log_odds(each.run(coins, rng)) * np.where(coins, 1, -1)
        for each in (made, CountedSums(made))
    )
    # Canaries of one coordinate are not independent of each other.
    for power in (1, 2):
        a, b = ((each**power).reshape(n, s).mean(axis=1) for each in (one, other))
        assert abs(a.mean() - b.mean()) < 4 * np.hypot(a.std(), b.std()) / n**0.5
    for a, b in ((one, other), (other, one)):
        beyond = (a > np.quantile(b, 0.99)).sum()
        assert 0.5 < beyond / (0.01 * n * s) < 1.5
