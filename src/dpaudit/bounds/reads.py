"""What a bound may see of a run."""

from dataclasses import dataclass
from typing import final

from dpaudit import _validate
from dpaudit.errors import InvalidInputError

__all__ = ["Counts"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many canaries, how many guesses, how many right.

    Attributes:
        canaries: Canaries whose inclusion was decided by a fair coin.
        guesses: The number of guesses committed to before the run.
        correct: Guesses that matched the coin; one not made counts as wrong.
    """

    canaries: int
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        _validate.whole_number("canaries", self.canaries)
        _validate.whole_number("guesses", self.guesses)
        _validate.whole_number("correct", self.correct)
        if not self.correct <= self.guesses <= self.canaries:
            raise InvalidInputError(
                "expected correct <= guesses <= canaries, got "
                f"correct={self.correct}, guesses={self.guesses}, "
                f"canaries={self.canaries}"
            )
