"""What the valid rules fix beforehand about one step of DP-SGD, by elements per index.

All of it was fixed without the runs that are measured:

- ``committed``: guesses with a threshold of 1, clearly fewer than are made on average.
  They were recorded as 1 to 1.5 standard deviations below the mean of 60 other runs, of
  which no script was kept. ``adaptive_steps.margin`` computes where they lie from runs
  of any seed; by the 200 runs of the figure it is 0.9 to 1.9. Any number that is fixed
  beforehand is valid; a better one shows a little more.
- ``bets_from``: the smallest epsilon that bets test, so that delta's price, ``m delta /
  (1 + e^epsilon)``, leaves something of alpha to show; None where 0.5 does not.
- ``rounds``: ``plan_audit(TrainingSetup(steps=1, rate=1.0, noise=2.1491104),
  claim=ApproxDP(epsilon=2.0, delta=1e-5), coordinates=1000, per_coordinate=s,
  purpose="bound").rules``, which is what ``dpaudit plan --purpose bound`` proposes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

from dpaudit.game.rules import AdaptiveRounds

__all__ = ["PLANS", "StepPlan"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What is fixed beforehand.

    Attributes:
        committed: How many guesses an adaptive guesser commits to.
        bets_from: The smallest epsilon that bets test; None for no bets.
        rounds: The rules of limited rounds.
    """

    committed: int
    bets_from: float | None
    rounds: AdaptiveRounds


# Elements per index, guesses committed, bets from, groups of rounds, start and jump of
# the rounds, weights of a group.
_TABLE: Final[tuple[tuple[int, int, float | None, int, float, float, str], ...]] = (
    (1, 30, 0.0, 4, 0.0, 0.5, "1.0"),
    (2, 56, 0.0, 2, 0.02, 0.5, "0.929 1.0"),
    (3, 78, 0.0, 2, 0.11, 0.5, "0.849 0.921 1.0"),
    (4, 89, 0.0, 1, 0.17, 0.5, "0.855 0.898 0.947 1.0"),
    (5, 101, 0.0, 1, 0.21, 0.5, "0.808 0.849 0.896 0.945 1.0"),
    (6, 121, 0.0, 1, 0.23, 0.5, "0.772 0.812 0.853 0.9 0.948 1.0"),
    (8, 136, 0.3, 1, 0.32, 0.4, "0.711 0.743 0.78 0.819 0.86 0.903 0.952 1.0"),
    (
        10,
        156,
        0.5,
        1,
        0.33,
        0.4,
        "0.646 0.675 0.706 0.739 0.775 0.814 0.856 0.9 0.946 1.0",
    ),
    (
        12,
        165,
        0.5,
        1,
        0.38,
        0.4,
        "0.594 0.619 0.647 0.675 0.704 0.74 0.774 0.811 0.853 0.898 0.947 1.0",
    ),
    (
        15,
        184,
        None,
        1,
        0.48,
        0.3,
        "0.525 0.548 0.57 0.594 0.622 0.649 0.678 0.71 0.742 0.777 0.814 0.853 "
        "0.9 0.947 1.0",
    ),
    (
        20,
        202,
        None,
        1,
        0.48,
        0.3,
        "0.435 0.451 0.468 0.487 0.505 0.526 0.55 0.574 0.597 0.621 0.648 0.676 "
        "0.705 0.738 0.773 0.809 0.853 0.899 0.947 1.0",
    ),
)
PLANS: Mapping[int, StepPlan] = MappingProxyType(
    {
        size: StepPlan(
            committed=committed,
            bets_from=bets_from,
            rounds=AdaptiveRounds(
                round_weights=tuple(map(float, weights.split())) * groups,
                min_epsilon=start,
                max_jump=jump,
                randomness_share=0.0,
            ),
        )
        for size, committed, bets_from, groups, start, jump, weights in _TABLE
    }
)
