"""Adaptive rules without a fixed number of guesses: rounds and bets."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.bound import AnyBound, Grid
from dpaudit.bounds.readings import Bets, Reading, Rounds, Weighted, check_jump
from dpaudit.bounds.rounds import (
    MAX_RANDOMNESS_SHARE,
    RoundsBound,
    least_randomness_share,
    rounds_price,
)
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.rules.base import right_guesses
from dpaudit.game.rules.slots import LARGEST_WEIGHT, Staked, weights_of
from dpaudit.game.rules.table_scoring import Played

__all__ = ["AdaptiveBets", "AdaptiveRounds"]


class _Sequential(Staked):
    """Any number of guesses, with coins revealed; the smallest tested epsilon fixed."""

    __slots__ = ()

    adaptive = True
    fixed = False
    one_point = True
    cheaper: ClassVar[str]  # what makes delta cost less
    min_epsilon: float

    def max_guesses(self, canaries: int) -> int:
        return canaries

    def check_design(
        self, *, canaries: int, claimed: float, delta: float, alpha: float
    ) -> None:
        price = self._price(canaries, delta)
        if self.min_epsilon > claimed:
            raise InvalidInputError(
                f"min_epsilon={self.min_epsilon:g} lies above the claim's epsilon "
                f"{claimed:g}: a bound could exceed the claim without a test of it; "
                "start at the claim or below"
            )
        if price >= alpha:
            raise InvalidInputError(
                f"delta costs {price:.3g} at min_epsilon={self.min_epsilon:g}, no less "
                f"than alpha={alpha:g}: nothing could be shown; give "
                f"{type(self).__name__} {self.cheaper}, use fewer canaries, or play by "
                "AdaptiveCount"
            )

    @abstractmethod
    def _price(self, canaries: int, delta: float) -> float:
        """Return what delta costs at ``min_epsilon``."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRounds(_Sequential):
    """Coins are revealed after each round; the weight of each round is fixed.

    A round's evidence is randomised where counts tie, and the contribution of an empty
    round is committed randomness.

    A stake is the log-odds of being correct that the guesser gives a guess; against a
    claim of epsilon it counts by how much it exceeds that.

    Attributes:
        round_weights: The weight of each round; a round not played counts as an empty
            one.
        min_epsilon: The smallest epsilon that is tested. With a larger one delta costs
            less; a true epsilon below it is reported as 0.
        max_jump: The most that a correct guess may add to the evidence, in standard
            deviations; delta then costs much less. Canary ``i`` must be played in round
            ``i`` modulo the number of rounds. None for no limit and free play.
        randomness_share: Share of the evidence's variance that is committed randomness,
            revealed at the end; with a jump it reduces what delta costs in the last
            rounds.
    """

    round_weights: tuple[float, ...]
    min_epsilon: float = 0.0
    max_jump: float | None = None
    randomness_share: float = 0.0

    kind = "adaptive-rounds"
    reads = Rounds
    cheaper = "a smaller max_jump, a larger min_epsilon"
    about = (
        f"log-odds and must be positive, from {1 / LARGEST_WEIGHT:g} to "
        f"{LARGEST_WEIGHT:g}"
    )

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "round_weights", weights_of(self.round_weights, "round_weights")
        )
        _validate.nonnegative("min_epsilon", self.min_epsilon)
        object.__setattr__(self, "min_epsilon", float(self.min_epsilon))
        check_jump(self.max_jump, self.randomness_share)
        if self.max_jump is not None:
            object.__setattr__(self, "max_jump", float(self.max_jump))
        object.__setattr__(self, "randomness_share", float(self.randomness_share))
        if not all(0 <= w <= LARGEST_WEIGHT for w in self.round_weights) or not any(
            self.round_weights
        ):
            raise InvalidInputError(
                f"round_weights must be from 0 to {LARGEST_WEIGHT:g} and not all 0, "
                f"got round_weights={self.round_weights!r}"
            )

    @property
    def turns(self) -> int | None:
        """The number of rounds."""
        return len(self.round_weights)

    @property
    def free_turns(self) -> bool:
        """Whether canaries may be played in any round."""
        return self.max_jump is None

    @property
    def uniforms_needed(self) -> int:
        """One for each round, and one for the randomness added at the end."""
        return len(self.round_weights) + 1

    def bound(self) -> AnyBound:
        """Return the bound that adds up the evidence of the rounds."""
        return RoundsBound(grid=Grid(start=self.min_epsilon))

    def check_turn(self, index: NDArray[np.int64], turn: NDArray[np.int64]) -> None:
        """Refuse canaries outside their own rounds if ``max_jump`` is set."""
        rounds = len(self.round_weights)
        if self.max_jump is None or not (wrong := index % rounds != turn).any():
            return
        first = int(turn[wrong][0])
        raise InvalidRunError(
            f"with a jump, canary i is played in round i modulo {rounds}: round "
            f"{first} is for canaries {first}, {first + rounds}, and so on"
        )

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return the guesses of each round, and the committed randomness."""
        return Rounds(
            canaries=canaries,
            rounds=tuple(
                _round(played, j, canaries) for j in range(len(self.round_weights))
            ),
            round_weights=self.round_weights,
            uniforms=tuple(played.uniforms[:-1].tolist()),
            max_jump=self.max_jump,
            randomness_share=self.randomness_share,
            noise_uniform=float(played.uniforms[-1]),
        )

    def check_reading(self, reading: Reading) -> None:
        """Refuse a reading of other rounds."""
        assert isinstance(reading, Rounds)  # guaranteed by callers
        fixed = (self.round_weights, self.max_jump, self.randomness_share)
        if (
            reading.round_weights,
            reading.max_jump,
            reading.randomness_share,
        ) != fixed or any(
            each.canaries != reading.canaries or each.committed
            for each in reading.rounds
        ):
            raise InvalidRunError(
                "the reading's rounds, max_jump and randomness_share are not those "
                "that were fixed beforehand"
            )

    def stated_odds(self, stake: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the stakes, which are log-odds."""
        return stake

    def _given(self, size: int) -> NDArray[np.float64]:
        """Return stakes that make all guesses of a round count the same."""
        return np.full(size, LARGEST_WEIGHT)

    def _price(self, canaries: int, delta: float) -> float:
        left = least_randomness_share(
            canaries=canaries,
            round_weights=self.round_weights,
            max_jump=self.max_jump,
            randomness_share=self.randomness_share,
            epsilon=self.min_epsilon,
        )
        if left > MAX_RANDOMNESS_SHARE:
            raise InvalidInputError(
                f"with max_jump={self.max_jump!r} and "
                f"randomness_share={self.randomness_share!r}, {left:.0%} of the "
                "evidence would be randomness even if every canary were guessed, and "
                "nothing could be shown; use a larger max_jump, more canaries or "
                "fewer rounds"
            )
        return rounds_price(
            canaries=canaries,
            round_weights=self.round_weights,
            max_jump=self.max_jump,
            randomness_share=self.randomness_share,
            epsilon=self.min_epsilon,
            delta=delta,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveBets(_Sequential):
    """Coins are revealed in turns; guesses state their probability of being correct.

    Attributes:
        min_epsilon: The smallest epsilon that is tested. With a larger one delta costs
            less; a true epsilon below it is reported as 0.
    """

    min_epsilon: float = 0.0

    kind = "adaptive-bets"
    reads = Bets
    cheaper = "a larger min_epsilon"
    about = "a probability and must be in [0, 1]"
    limits = (0.0, 1.0)

    def __post_init__(self) -> None:
        _validate.nonnegative("min_epsilon", self.min_epsilon)
        object.__setattr__(self, "min_epsilon", float(self.min_epsilon))

    def bound(self) -> AnyBound:
        """Return the bound from bets."""
        return BettingBound(grid=Grid(start=self.min_epsilon))

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return which guesses were correct, and the probabilities stated for them."""
        stakes = played.stake[played.guess != 0]
        return Bets(
            canaries=canaries, right=right_guesses(played), stated_probabilities=stakes
        )

    def read_alike(
        self, right: NDArray[np.bool_], probability: float, *, canaries: int
    ) -> Reading:
        """Return the reading of guesses that all state the same probability."""
        stakes = np.full(len(right), min(probability, 1 - 1e-9))
        return Bets(canaries=canaries, right=right, stated_probabilities=stakes)

    def stated_odds(self, stake: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-odds of the stated probabilities."""
        return np.asarray(special.logit(stake))

    def _price(self, canaries: int, delta: float) -> float:
        return coupling_failure_probability(canaries, self.min_epsilon, delta)


def _round(played: Played, turn: int, canaries: int) -> Weighted:
    """Return the guesses of one round; an empty round has a class without guesses."""
    here = (played.turn == turn) & (played.guess != 0)
    right = (played.guess == played.truth)[here]
    weights, which = np.unique(played.stake[here], return_inverse=True)
    if not len(weights):
        weights, which = np.ones(1), np.zeros(0, int)
    size = len(weights)
    return Weighted(
        canaries=canaries,
        weights=tuple(weights.tolist()),
        guesses=tuple(np.bincount(which, minlength=size).tolist()),
        correct=tuple(np.bincount(which[right], minlength=size).tolist()),
        committed=False,
    )
