"""What the valid rules fix beforehand about one step of DP-SGD, by elements per index.

All of it was fixed without the runs that are measured:

- ``committed``: guesses with a threshold of 1, clearly fewer than are made on average.
  They were recorded as 1 to 1.5 standard deviations below the mean of 60 other runs, of
  which no script was kept. ``committing.margin`` computes where they lie from runs of
  any seed; by the 200 runs of the figure it is 0.9 to 1.9.
  Any number that is fixed beforehand is valid; a better one shows a little more.
- ``bets_from``: the smallest epsilon that bets test, so that delta's price, ``m delta /
  (1 + e^epsilon)``, leaves something of alpha to show; None where 0.5 does not.
- ``rounds``: ``plan_audit(TrainingSetup(steps=1, rate=1.0, noise=2.1491104),
  claim=ApproxDP(epsilon=2.0, delta=1e-5), coordinates=1000, per_coordinate=s,
  purpose="bound").rules``, which is what ``dpaudit plan --purpose bound`` proposes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

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


def _rounds(
    weights: str, *, start: float, jump: float, groups: int = 1
) -> AdaptiveRounds:
    each = tuple(map(float, weights.split()))
    return AdaptiveRounds(weights=each * groups, start=start, jump=jump, noise=0.0)


PLANS: Mapping[int, StepPlan] = MappingProxyType(
    {
        1: StepPlan(
            committed=30,
            bets_from=0.0,
            rounds=_rounds("1.0", groups=4, start=0.0, jump=0.5),
        ),
        2: StepPlan(
            committed=56,
            bets_from=0.0,
            rounds=_rounds("0.929 1.0", groups=2, start=0.02, jump=0.5),
        ),
        3: StepPlan(
            committed=78,
            bets_from=0.0,
            rounds=_rounds("0.849 0.921 1.0", groups=2, start=0.11, jump=0.5),
        ),
        4: StepPlan(
            committed=89,
            bets_from=0.0,
            rounds=_rounds("0.855 0.898 0.947 1.0", start=0.17, jump=0.5),
        ),
        5: StepPlan(
            committed=101,
            bets_from=0.0,
            rounds=_rounds("0.808 0.849 0.896 0.945 1.0", start=0.21, jump=0.5),
        ),
        6: StepPlan(
            committed=121,
            bets_from=0.0,
            rounds=_rounds("0.772 0.812 0.853 0.9 0.948 1.0", start=0.23, jump=0.5),
        ),
        8: StepPlan(
            committed=136,
            bets_from=0.3,
            rounds=_rounds(
                "0.711 0.743 0.78 0.819 0.86 0.903 0.952 1.0", start=0.32, jump=0.4
            ),
        ),
        10: StepPlan(
            committed=156,
            bets_from=0.5,
            rounds=_rounds(
                "0.646 0.675 0.706 0.739 0.775 0.814 0.856 0.9 0.946 1.0",
                start=0.33,
                jump=0.4,
            ),
        ),
        12: StepPlan(
            committed=165,
            bets_from=0.5,
            rounds=_rounds(
                "0.594 0.619 0.647 0.675 0.704 0.74 0.774 0.811 0.853 0.898 0.947 1.0",
                start=0.38,
                jump=0.4,
            ),
        ),
        15: StepPlan(
            committed=184,
            bets_from=None,
            rounds=_rounds(
                "0.525 0.548 0.57 0.594 0.622 0.649 0.678 0.71 0.742 0.777 0.814 "
                "0.853 0.9 0.947 1.0",
                start=0.48,
                jump=0.3,
            ),
        ),
        20: StepPlan(
            committed=202,
            bets_from=None,
            rounds=_rounds(
                "0.435 0.451 0.468 0.487 0.505 0.526 0.55 0.574 0.597 0.621 0.648 "
                "0.676 0.705 0.738 0.773 0.809 0.853 0.899 0.947 1.0",
                start=0.48,
                jump=0.3,
            ),
        ),
    }
)
