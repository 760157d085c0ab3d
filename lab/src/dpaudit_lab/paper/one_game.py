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
from dpaudit.game.auditors import play_adaptive, play_one_run
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.guessers import AdaptiveMostLikely, Guesser
from dpaudit.game.mechanism import Posterior
from dpaudit.game.pairs import Pairs
from dpaudit.game.rules import AdaptiveBets, AdaptiveCount, AdaptiveRounds, OneRun
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.guarantees import ApproxDP, PureDP

__all__ = ["Counted", "OneGame", "one_run_design"]

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


def one_run_design(pairs: Pairs, *, canaries: int, guesses: int | None) -> Design:
    """Return the design of a game in which all guesses are made at once.

    Args:
        pairs: What the coins choose from.
        canaries: How many.
        guesses: How many, fixed beforehand; None for as many as are made, which is the
            paper's Algorithm 1.
    """
    # What bounds are found is not about this claim; a design must name one.
    claim = PureDP(epsilon=1.0, adjacency=pairs.adjacency)
    return Design(canaries=canaries, rules=OneRun(guesses=guesses), claim=claim)


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

    def at_once(self, guesser: Guesser[O], *, guesses: int | None) -> Counts:
        """Return how many guesses were made at once, and how many were right.

        Args:
            guesser: Sees the output.
            guesses: How many are fixed beforehand; None for as many as are made.
        """
        pairs = self.mechanism.pairs
        played = play_one_run(
            self.mechanism,
            guesser,
            pairs=pairs,
            design=one_run_design(pairs, canaries=self.canaries, guesses=guesses),
            rng=np.random.default_rng(self.seed),
            key=self.key,
        )
        right, made = played.reading().correct_and_guesses()
        return Counts(canaries=self.canaries, guesses=made, correct=right)

    def as_made(self, threshold: float) -> Counts:
        """Return how many guesses were made adaptively, and how many were right."""
        played = self._play(AdaptiveCount(guesses=self.canaries), threshold)
        right, _ = played.reading().correct_and_guesses()
        made = int(np.count_nonzero(played.guess))
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
