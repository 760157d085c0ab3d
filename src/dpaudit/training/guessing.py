"""From the likelihoods of a training's canaries to guesses, by the rules of the game.

The referee is here handed what the guesser made of the noisy sums; under adaptive rules
it answers with the coins of each turn.
"""

from dataclasses import dataclass, replace
from math import log
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.dpsgd.sums import canary_log_odds
from dpaudit.errors import InvalidInputError
from dpaudit.game.adaptive import drive
from dpaudit.game.adaptive_guesser import AdaptiveMostLikely
from dpaudit.game.design import Design
from dpaudit.game.guessers import most_likely
from dpaudit.game.referee import Referee
from dpaudit.game.rules import AdaptiveRounds, OneRun, Ranking
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import Control, Verdict
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior

__all__ = ["Played", "check_rules", "guess", "guess_among"]

_FAR_FEWER: Final = 1e-6  # chance of so few right guesses by what was stated


def check_rules(design: Design) -> None:
    """Refuse a design whose rules a training's guesser cannot play by."""
    if not isinstance(design.rules, OneRun | Ranking | AdaptiveRounds):
        raise _unplayable(design)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A game that was played.

    Attributes:
        transcript: Its record.
        scores: What the log-odds of all canaries looked like before any coin was
            revealed; None where no one place knows them all.
        surety: For each guess the log-odds of being right that its guesser stated.
    """

    transcript: Transcript
    scores: ScoreSummary | None
    surety: NDArray[np.float64]

    def promise(self) -> Control:
        """Return whether guesses were right as often as they said they would be.

        The chance of so few right guesses, if each is right with the chance that was
        stated when it was made, is bounded by Chernoff's inequality.
        """
        chances = special.expit(self.surety)
        made = self.transcript.guess != 0
        right = int(np.sum(self.transcript.guess[made] == self.transcript.truth[made]))
        rates = np.geomspace(1e-3, 30.0, 60)
        tail = min(
            float(rate * right + np.log1p(chances * np.expm1(-rate)).sum())
            for rate in rates
        )
        said = f"{right} of {len(chances)} guesses right, {chances.sum():.0f} expected"
        if tail > log(_FAR_FEWER):
            return Control(said=f"guesses were as good as the guesser said: {said}")
        return Control(
            said="guesses were far worse than the guesser said, so that its model of "
            f"this run is wrong and faults may go unseen: {said}",
            spoils=Verdict.INCONCLUSIVE,
        )


def guess(referee: Referee, log_likelihood: NDArray[np.float64]) -> Played:
    """Guess by the referee's rules, and return the game."""
    rules, odds = referee.design.rules, canary_log_odds(log_likelihood)
    match rules:
        case OneRun() | Ranking():
            played = guess_among(referee, np.arange(len(odds)), odds)
        case AdaptiveRounds(start=start):
            guesser = AdaptiveMostLikely(
                mechanism=_Seen(), threshold=start, rules=rules
            )
            drive(referee, guesser.play(log_likelihood))
            transcript = referee.close()
            surety = transcript.stake[transcript.guess != 0]
            played = Played(transcript=transcript, scores=None, surety=surety)
        case _:
            raise _unplayable(referee.design)
    return replace(played, scores=referee.summary(odds))


def guess_among(
    referee: Referee, index: NDArray[np.int64], odds: NDArray[np.float64]
) -> Played:
    """Guess the surest of some canaries at once, and return the game.

    Args:
        referee: Of a game in which all guesses come at once.
        index: Canaries, among them the surest of all, in rising order.
        odds: Their log-odds.
    """
    best, what = most_likely(odds, guesses=referee.design.guesses)
    referee.submit(index[best], what)
    return Played(transcript=referee.close(), scores=None, surety=np.abs(odds[best]))


def _unplayable(design: Design) -> InvalidInputError:
    return InvalidInputError(
        "training is audited by OneRun(guesses=...), Ranking(guesses=...) or a plan's "
        f"AdaptiveRounds, got rules={design.rules!r}"
    )


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """What likelihoods say, as adaptive guessers ask for it."""

    def posterior(self, output: NDArray[np.float64]) -> ExchangeablePosterior:
        return ExchangeablePosterior(output)
