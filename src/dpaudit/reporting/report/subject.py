"""The subject of a report: a result, and its transcript."""

from dataclasses import dataclass
from math import isfinite
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.game.result import Result
from dpaudit.game.transcript import Transcript

__all__ = ["NO_ORDER", "Subject", "right_in_order"]

NO_ORDER: Final = (
    "It needs the order of the guesses, and no transcript was handed over: "
    "report(result, path, transcript=...)."
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A result, with its transcript if available.

    Attributes:
        result: The result to report.
        transcript: Every guess; None if not available.
    """

    result: Result
    transcript: Transcript | None

    @classmethod
    def of(cls, result: Result, transcript: Transcript | None) -> Self:
        """Return the subject; refuse a transcript of another game."""
        guesses = result.transcript if transcript is None else transcript
        if guesses is not None and guesses.design != result.design:
            raise InvalidInputError(
                "the transcript was recorded under another design than the result's; "
                "pass the transcript of this audit, or none"
            )
        return cls(result=result, transcript=guesses)

    @property
    def delta(self) -> float:
        """The delta of the bound."""
        return self.result.bound.delta

    @property
    def alpha(self) -> float:
        """Probability that the bound is wrong."""
        return self.result.bound.alpha

    @property
    def claimed(self) -> float:
        """The claim's epsilon at that delta; infinity if it has none."""
        return self.result.claim_test.claim.epsilon_at(self.delta)

    @property
    def found(self) -> float:
        """The lower bound on epsilon."""
        return self.result.bound.epsilon_lower

    def reach(self, *others: float) -> float:
        """Return the high end of an axis of epsilon.

        It includes the claim, unless that is so far above the other values that nothing
        else would be visible.
        """
        near = [v for v in (self.found, *others) if isfinite(v)]
        widest = 4 * max([*near, 0.25])
        claim = self.claimed if isfinite(self.claimed) else 0.0
        return 1.12 * max([*near, min(claim, widest), 0.1])


def right_in_order(transcript: Transcript) -> NDArray[np.bool_]:
    """Return which guesses were correct, in order; one not made counts as wrong."""
    made = transcript.guess != 0
    right = np.zeros(transcript.design.guesses, bool)
    right[: int(made.sum())] = (transcript.guess == transcript.truth)[made]
    return right
