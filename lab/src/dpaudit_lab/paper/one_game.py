"""One run that several guessers look at, at once and adaptively: same coins and noise.

The paper judges a threshold guesser by the number of guesses that it happened to make.
For one run at delta = 0 that is valid, as the output alone decides on the number; at
delta > 0, and adaptively, it is not (docs/explanation/errata.md). Games by valid rules
are judged by the bound that belongs to the rules.
"""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.readings import Counts
from dpaudit.game.auditors import play_adaptive
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.guessers import AdaptiveMostLikely, Guesser
from dpaudit.game.mechanism import Posterior
from dpaudit.game.pairs import Pairs
from dpaudit.game.rules import AdaptiveBets, AdaptiveCount, AdaptiveRounds
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.guarantees import ApproxDP, PureDP

__all__ = ["Counted", "OneGame"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)


class Counted(Protocol[O]):
    """A mechanism that has all that these games need."""

    @property
    def pairs(self) -> Pairs:
        """The pair vector."""
        ...

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> O:
        """Return the output for the data."""
        ...

    def posterior(self, output: O) -> Posterior:
        """Return what an output says, ready to learn coins."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OneGame(Generic[O]):
    """One run, to be guessed about in several ways.

    Attributes:
        mechanism: What is run.
        claim: What the adaptive games' designs name.
        canaries: How many.
        key: The secret of the coins.
        seed: The secret of the noise.
        alpha: Chance of being wrong.
    """

    mechanism: Counted[O]
    claim: PureDP | ApproxDP
    canaries: int
    key: Key
    seed: int
    alpha: float

    def at_once(self, guesser: Guesser[O]) -> Counts:
        """Return how many guesses were made at once, and how many were right."""
        bits = Coins(key=self.key, count=self.canaries).bits()
        data = self.mechanism.pairs.choose(bits)
        output = self.mechanism.run(data, np.random.default_rng(self.seed))
        made = guesser.guess(output)
        right = int(np.sum((made.guess == 1) == (bits[made.index] == 1)))
        return Counts(canaries=self.canaries, guesses=len(made.index), correct=right)

    def as_made(self, threshold: float) -> Counts:
        """Return how many guesses were made adaptively, and how many were right."""
        played = self._play(AdaptiveCount(guesses=self.canaries), threshold)
        made = int(np.count_nonzero(played.guess))
        right = int(np.sum(played.guess == played.truth))
        return Counts(
            canaries=self.canaries, guesses=made, correct=right, adaptive=True
        )

    def judged(
        self, rules: AdaptiveCount | AdaptiveBets | AdaptiveRounds, threshold: float
    ) -> float:
        """Return the lower bound of an adaptive game by the rules."""
        played = self._play(rules, threshold)
        found = rules.bound().epsilon_lower(
            played.reading(), delta=played.design.bound_delta, alpha=self.alpha
        )
        return found.epsilon_lower

    def _play(
        self, rules: AdaptiveCount | AdaptiveBets | AdaptiveRounds, threshold: float
    ) -> Transcript:
        return play_adaptive(
            self.mechanism,
            AdaptiveMostLikely(
                mechanism=self.mechanism, threshold=threshold, rules=rules
            ),
            pairs=self.mechanism.pairs,
            design=Design(
                canaries=self.canaries, rules=rules, claim=self.claim, alpha=self.alpha
            ),
            rng=np.random.default_rng(self.seed),
            key=self.key,
        )
