"""What was guessed and what was true, canary by canary; what a bound reads of it."""

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _canonical
from dpaudit.bounds.reads import Reading
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.design import Design

__all__ = ["Transcript"]

_FORMAT = "dpaudit.transcript.1"
_TYPES = {
    "index": np.int64,
    "guess": np.int8,
    "truth": np.int8,
    "stake": np.float64,
    "turn": np.int64,
    "uniforms": np.float64,
}


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transcript:
    """The record of one game; only a referee makes it.

    Attributes:
        design: What the game was opened with.
        index: Canaries submitted, in order.
        guess: -1 or +1 for each, 0 for a pass.
        truth: The coin of each, -1 or +1.
        stake: What was put on each: the weight of its class, or the stated chance.
        turn: In which submission each came, from 0.
        uniforms: One committed uniform number per planned round, and one more.
    """

    design: Design
    index: NDArray[np.int64]
    guess: NDArray[np.int8]
    truth: NDArray[np.int8]
    stake: NDArray[np.float64]
    turn: NDArray[np.int64]
    uniforms: NDArray[np.float64]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transcript) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def reading(self) -> Reading:
        """Return what the bound for these rules reads; what is missing is wrong.

        Raises:
            VoidAuditError: There are more guesses than the rules allow.
        """
        self.check_made()
        return self.design.rules.read(self, canaries=self.design.canaries)

    def check_made(self) -> None:
        """Refuse more guesses, or more of one weight, than the rules allow."""
        rules = self.design.rules
        used = rules.used(self.guess, self.stake)
        rules.check_used(used, canaries=self.design.canaries)

    def to_json(self) -> str:
        """Return the canonical JSON of the transcript."""
        columns: dict[str, Any] = {
            name: getattr(self, name).tolist() for name in _TYPES
        }
        return _canonical.text(
            {"format": _FORMAT, "design": self.design.to_json(), **columns}
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the transcript that a JSON document holds."""
        plain = _canonical.document(text, _FORMAT, {"design", *_TYPES})
        try:
            columns = {name: np.array(plain[name], _TYPES[name]) for name in _TYPES}
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"a transcript's column: {error}") from error
        shapes = {columns[name].shape for name in _TYPES if name != "uniforms"}
        if len(shapes) > 1 or any(each.ndim != 1 for each in columns.values()):
            raise InvalidInputError(
                "a transcript's columns must be lists of one length"
            )
        found = cls(design=Design.from_json(plain["design"]), **columns)
        found._check()
        return found

    def _check(self) -> None:
        """Refuse columns that no referee wrote; whether one did is not checked."""
        n = self.design.canaries
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
        except VoidAuditError as error:
            raise InvalidInputError(f"{error}") from error
