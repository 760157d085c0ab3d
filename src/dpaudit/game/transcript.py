"""The transcript of a game: the guess and the coin of each canary."""

from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit._codec import Document
from dpaudit.bounds.readings import Reading
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.design import Design

__all__ = ["Transcript"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transcript(Document):
    """The record of one game; only a referee creates it.

    Attributes:
        design: The design of the game.
        index: Canaries submitted, in order.
        guess: -1 or +1 for each, 0 for an abstention.
        truth: The coin of each, -1 or +1.
        stake: The stake on each: the weight of its class, or the stated probability.
        turn: The number of the submission of each, from 0.
        uniforms: One committed uniform number per planned round, and one more.
    """

    design: Design
    index: NDArray[np.int64]
    guess: NDArray[np.int8]
    truth: NDArray[np.int8]
    stake: NDArray[np.float64]
    turn: NDArray[np.int64]
    uniforms: NDArray[np.float64]

    form = "dpaudit.transcript.1"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transcript) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def reading(self) -> Reading:
        """Return what the bound of the rules reads; missing guesses are incorrect.

        Raises:
            InvalidRunError: There are more guesses than the rules allow.
        """
        self.check_made()
        return self.design.rules.read(self, canaries=self.design.canaries)

    def check_made(self) -> None:
        """Refuse more guesses, or more of one weight, than the rules allow."""
        rules = self.design.rules
        used = rules.used(self.guess, self.stake)
        rules.check_used(used, canaries=self.design.canaries)

    @classmethod
    def of_plain(cls, plain: object) -> Self:
        """Return the transcript that parsed JSON contains."""
        transcript = super(Transcript, cls).of_plain(plain)
        transcript._check()
        return transcript

    def _check(self) -> None:
        """Refuse columns that no referee could have written."""
        n, size = self.design.canaries, len(self.index)
        if any(len(c) != size for c in (self.guess, self.truth, self.stake, self.turn)):
            raise InvalidInputError(
                "a transcript's columns must be lists of one length"
            )
        if not (
            np.isin(self.guess, (-1, 0, 1)).all()
            and np.isin(self.truth, (-1, 1)).all()
            and len(np.unique(self.index)) == len(self.index)
            and ((self.index >= 0) & (self.index < n)).all()
            and (np.diff(self.turn, prepend=0) >= 0).all()
            and ((self.uniforms >= 0) & (self.uniforms < 1)).all()
        ):
            raise InvalidInputError(
                "a transcript names each canary once, with a guess of -1, 0 or 1 and a "
                "coin of -1 or 1, turn after turn"
            )
        try:
            self.design.rules.check_turn(self.index, self.turn)
        except InvalidRunError as error:
            raise InvalidInputError(f"{error}") from error
