"""Who guesses in whole audits: the best, and some who only want the audit to be wrong.

They stop when they are ahead, bet more when they are behind, or claim to know more than
they do. An audit must bear all of that. Where a number of guesses or of rounds is
committed, stopping early only loses; who stops late there has something to gain.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.game.guessers import AdaptiveMostLikely, MostLikely, Play, Submission
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    OneRun,
    Ranking,
    Rules,
    WeightClasses,
)
from dpaudit_lab.calibration.subjects import OFTEN

__all__ = [
    "ADAPTIVE",
    "ONE_RUN",
    "SCORED",
    "STOPPED",
    "TRAINED",
    "Boasting",
    "Stopping",
    "StoppingLate",
    "Weighing",
]

_N: Final = 100
_2: Final = "DP-SGD, heard 2 in 1000"
_4: Final = "DP-SGD, heard 4 in 1000"
_6: Final = "DP-SGD, heard 6 in 1000"
_10: Final = "DP-SGD, heard 10 in 1000"
_12: Final = "DP-SGD, heard 12 in 1000"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """Puts the surest guesses into the heavier of two classes."""

    mechanism: Any
    rules: WeightClasses

    def guess(self, output: Any) -> Submission:  # noqa: ANN401 (any mechanism's)
        """Return the guesses of both classes."""
        best = MostLikely(mechanism=self.mechanism, guesses=sum(self.rules.guesses))
        found = best.guess(output)
        stake = np.repeat(self.rules.weights, self.rules.guesses)
        return Submission(
            index=found.index, guess=found.guess, stake=stake[: len(found.index)]
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Boasting:
    """States larger log-odds than it has: honest ones never exceed a true claim."""

    guesser: AdaptiveMostLikely[Any]

    def play(self, output: Any) -> Play:  # noqa: ANN401 (any mechanism's)
        """Yield what the guesser does, with larger stakes."""
        game, truth = self.guesser.play(output), None
        while True:
            try:
                turn = next(game) if truth is None else game.send(truth)
            except StopIteration:
                return
            assert turn.stake is not None  # in rounds every guess has one
            truth = yield replace(turn, stake=turn.stake + (turn.guess != 0))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Guesses one by one, bets most when behind, and stops when it looks good."""

    mechanism: Any
    rules: AdaptiveClasses | AdaptiveRounds | AdaptiveBets
    epsilon: float
    canaries: int

    def play(self, output: Any) -> Play:  # noqa: ANN401 (any mechanism's)
        """Yield single guesses until ahead of what chance would give."""
        log_odds = self.mechanism.log_odds(output)
        rate = float(special.expit(self.epsilon))
        made, right, slots = 0, 0, self._slots()
        for i in range(self._turns()):
            behind = right <= made * rate
            if right - made * rate > 1.6 * np.sqrt(max(made, 1) * rate * (1 - rate)):
                return
            guess = np.array([1 if log_odds[i] >= 0 else -1], np.int8)
            truth = yield Submission(
                index=np.array([i]),
                guess=guess,
                stake=self._stake(slots, behind=behind),
            )
            made, right = made + 1, right + int(truth[0] == guess[0])

    def _turns(self) -> int:
        match self.rules:
            case AdaptiveClasses(guesses=slots):
                return sum(slots)
            case AdaptiveRounds(round_weights=weights):
                return len(weights)
            case AdaptiveBets():
                return self.canaries

    def _slots(self) -> list[float]:
        if not isinstance(self.rules, AdaptiveClasses):
            return []
        return sorted(np.repeat(self.rules.weights, self.rules.guesses).tolist())

    def _stake(self, slots: list[float], *, behind: bool) -> NDArray[np.float64]:
        match self.rules:
            case AdaptiveClasses():
                return np.array([slots.pop(-1 if behind else 0)])
            case AdaptiveRounds():
                return np.array([self.epsilon + (2.0 if behind else 0.3)])
            case AdaptiveBets():
                odds = float(special.expit(self.epsilon + (2.0 if behind else 0.3)))
                return np.array([odds])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingLate:
    """Stops once it has enough: of a committed count all, of rounds more than half.

    In rounds it plays all canaries of a round at once, as a jump demands, and states
    more when it is behind. It may then stop when it is ahead; what the other rounds
    would have added is left to committed randomness.
    """

    mechanism: Any
    rules: AdaptiveCount | AdaptiveRounds
    epsilon: float
    canaries: int

    def play(self, output: Any) -> Play:  # noqa: ANN401 (any mechanism's)
        """Yield guesses until they are enough."""
        log_odds = self.mechanism.log_odds(output)
        made, right = 0, 0
        for turn, index in enumerate(self._turns()):
            if self._has_enough(turn, made, right):
                return
            guess = np.where(log_odds[index] >= 0, 1, -1).astype(np.int8)
            stake = self._stake(len(index), behind=self._lead(made, right) <= 0)
            truth = yield Submission(index=index, guess=guess, stake=stake)
            made, right = made + len(index), right + int((truth == guess).sum())

    def _turns(self) -> list[NDArray[np.int64]]:
        match self.rules:
            case AdaptiveCount(guesses=guesses):
                return [np.array([i]) for i in range(guesses)]
            case AdaptiveRounds(round_weights=weights):
                rounds = len(weights)
                return [np.arange(r, self.canaries, rounds) for r in range(rounds)]

    def _has_enough(self, turn: int, made: int, right: int) -> bool:
        match self.rules:
            case AdaptiveCount(guesses=guesses):
                # As if the guesses not made were wrong, which is how they count.
                return self._lead(guesses, right) > 2.0
            case AdaptiveRounds(round_weights=weights):
                return 2 * turn > len(weights) and self._lead(made, right) > 1.0

    def _lead(self, made: int, right: int) -> float:
        """Return how far ahead of chance the right guesses are, in deviations."""
        rate = float(special.expit(self.epsilon))
        deviation = np.sqrt(max(made, 1) * rate * (1 - rate))
        return float((right - made * rate) / deviation)

    def _stake(self, guesses: int, *, behind: bool) -> NDArray[np.float64] | None:
        match self.rules:
            case AdaptiveCount():
                return None
            case AdaptiveRounds():
                return np.full(guesses, self.epsilon + (2.0 if behind else 0.3))


ONE_RUN: MappingProxyType[str, Rules] = MappingProxyType(
    {
        "everyone": OneRun(guesses=_N),
        "the 20 best": OneRun(guesses=20),
        "confident": OneRun(guesses=40),
        "extremes": OneRun(guesses=20),
        "learned": OneRun(guesses=20),
        "ranked": Ranking(guesses=_N),
        "weighed": WeightClasses(weights=(3.0, 1.0), guesses=(10, 15)),
    }
)
ADAPTIVE: MappingProxyType[str, Rules] = MappingProxyType(
    {
        "count": AdaptiveCount(guesses=40),
        "classes": AdaptiveClasses(weights=(1.0, 2.0), guesses=(10, 10)),
        "rounds": AdaptiveRounds(round_weights=(1.0, 1.0, 1.0)),
        "limited rounds": AdaptiveRounds(
            round_weights=(1.0,) * 4, max_jump=0.5, randomness_share=0.05
        ),
        "bets": AdaptiveBets(),
    }
)
STOPPED: MappingProxyType[str, Rules] = MappingProxyType(
    {
        "stopping late, count": AdaptiveCount(guesses=_N),
        "stopping, classes": AdaptiveClasses(weights=(1.0, 3.0), guesses=(20, 20)),
        "stopping, rounds": AdaptiveRounds(round_weights=(1.0,) * 8),
        "stopping late, limited rounds": AdaptiveRounds(
            round_weights=(1.0,) * 8, max_jump=0.5, randomness_share=0.05
        ),
        "stopping, bets": AdaptiveBets(),
    }
)
SCORED: MappingProxyType[str, Rules] = MappingProxyType(
    {"the 20 best": OneRun(guesses=20), "ranked": Ranking(guesses=_N)}
)
# Against training: the rules, and how seldom it is heard. With rounds and bets a delta
# that costs more than alpha is refused, so that none can be heard as often as 1 in 10.
TRAINED: MappingProxyType[tuple[str, str], tuple[Rules, tuple[str, ...]]] = (
    MappingProxyType(
        {
            ("one run", "everyone"): (OneRun(guesses=1000), (_12, OFTEN)),
            ("one run", "the 250 best"): (OneRun(guesses=250), (_12, OFTEN)),
            ("one run", "ranked"): (Ranking(guesses=1000), (_10, OFTEN)),
            ("one run", "weighed"): (
                WeightClasses(weights=(3.0, 1.0), guesses=(100, 150)),
                (_2, OFTEN),
            ),
            ("adaptive", "count"): (AdaptiveCount(guesses=500), (_12, OFTEN)),
            ("adaptive", "classes"): (
                AdaptiveClasses(weights=(1.0, 2.0), guesses=(250, 250)),
                (_2, OFTEN),
            ),
            ("adaptive", "rounds"): (AdaptiveRounds(round_weights=(1.0, 1.0)), (_2,)),
            ("adaptive", "limited rounds"): (
                AdaptiveRounds(
                    round_weights=(1.0,) * 4, max_jump=0.5, randomness_share=0.05
                ),
                (_6,),
            ),
            ("adaptive", "bets"): (AdaptiveBets(), (_4,)),
        }
    )
)
