"""Methods that are not valid, to show that they are not.

Nothing here is an audit. Each function plays a game that reveals too much, or counts
what was not fixed, and returns bare counts with the reason why no bound may be read off
them. The paper discusses the first; docs/explanation/errata.md the second.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.pairs import Pairs

__all__ = ["InvalidCounts", "full_knowledge", "stopping_when_ahead"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidCounts:
    """Counts from which no bound may be read off.

    Attributes:
        guesses: Guesses made.
        correct: Guesses that were right.
        why: Why they prove nothing.
    """

    guesses: int
    correct: int
    why: str
    valid: ClassVar[bool] = False


def full_knowledge(
    mechanism: Mechanism[O],
    guess: Callable[[int, O, NDArray[np.int8]], int],
    *,
    pairs: Pairs,
    canaries: int,
    rng: np.random.Generator,
) -> InvalidCounts:
    """Play "full-knowledge ORA": all other coins are shown for every guess.

    Args:
        mechanism: What is run.
        guess: Called with an index, the output and all coins, of which the one at the
            index is set to 0; returns +1, -1 or 0.
        pairs: Two records for each coin to choose from.
        canaries: How many coins.
        rng: Coins and the mechanism's randomness.
    """
    _validate.whole_number("canaries", canaries, least=1)
    bits = rng.integers(0, 2, canaries)
    truth = (2 * bits - 1).astype(np.int8)
    output = mechanism.run(pairs.choose(bits), rng)
    guesses = np.zeros(canaries, np.int8)
    for i in range(canaries):
        others = truth.copy()
        others[i] = 0
        guesses[i] = guess(i, output, others)
    return InvalidCounts(
        guesses=int(np.count_nonzero(guesses)),
        correct=int(np.sum(guesses == truth)),
        why=(
            "each guess is right with chance at most p(epsilon), but what makes one "
            "right may make all right: the count is not dominated by a binomial"
        ),
    )


def stopping_when_ahead(
    canaries: int,
    *,
    stop: Callable[[int, int], bool],
    rng: np.random.Generator,
) -> InvalidCounts:
    """Guess at random about a silent mechanism and stop guessing when ahead.

    Args:
        canaries: How many coins there are to guess.
        stop: Called with the numbers of guesses made and right; true ends guessing.
        rng: The coins.
    """
    _validate.whole_number("canaries", canaries, least=1)
    right = np.cumsum(rng.integers(0, 2, canaries))
    made = canaries
    for k, v in enumerate(right.tolist(), start=1):
        if stop(k, v):
            made = k
            break
    return InvalidCounts(
        guesses=made,
        correct=int(right[made - 1]),
        why=(
            "the number of guesses made depends on revealed coins; given that number, "
            "even random guesses are right more often than half the time"
        ),
    )
