"""Does a one-run audit find everything in the end?

It is asymptotically tight, that is, its bounds reach the DP level ``epsilon(M)`` as the
number of elements grows, exactly if for every ``epsilon' < epsilon(M)`` the number of
elements with a loss of at least ``epsilon'`` grows beyond all bounds in probability.
Here that number is followed over growing sizes: its expectation, and the chance that it
is at least ten. Expectation alone is not enough: all-or-nothing exposes a share of all
elements on average, yet with a fixed chance none.

A table is evidence, not proof. The verdict says what the trend shows at the thresholds
and sizes that were looked at. A loss that only larger thresholds reach, or a trend that
only sets in at larger sizes, is not seen.

Reference: Keinan, Shenfeld and Ligett, Theorem "Condition for asymptotic tightness of
ORA", https://arxiv.org/abs/2503.07199.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import final

import numpy as np

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.loss_law import LossLaw
from dpaudit.theory import from_law

__all__ = ["MANY", "Exposure", "Tightness", "exposure", "tightness"]

MANY = 10  # elements that count as many
_SURE = 1 - 1e-12
_NEVER = -900.0  # log2 of an expected number that is as good as zero


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How many elements have a loss of some size or more.

    Attributes:
        size: Number of elements in all.
        log2_expected: Logarithm to base 2 of the expected number of them.
        chance: The chance that there are at least ten.
    """

    size: int
    log2_expected: float
    chance: float

    def __str__(self) -> str:
        return f"{_power(self.log2_expected)} at n = {_power(log2(self.size))}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tightness:
    """Evidence for or against asymptotic tightness.

    Attributes:
        thresholds: Sizes of loss, each below the DP level.
        sizes: Numbers of elements, at least three, rising.
        table: For each threshold a row with the exposure at each size.
        note: What is known beside the table.
    """

    thresholds: tuple[float, ...]
    sizes: tuple[int, ...]
    table: tuple[tuple[Exposure, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if len(self.sizes) < 3 or any(np.diff(np.array(self.sizes, object)) <= 0):
            raise InvalidInputError(
                f"sizes must be three or more and rise, got sizes={self.sizes}"
            )
        shape = {len(row) for row in self.table}
        if len(self.table) != len(self.thresholds) or shape != {len(self.sizes)}:
            raise InvalidInputError(
                "table must have a row for each threshold and an entry for each size"
            )

    @property
    def verdict(self) -> bool | None:
        """Whether the audit looks tight; None if the trend does not tell.

        Tight if the number grows at every threshold, not tight if it does not at one.
        """
        trends = [_grows(row) for row in self.table]
        if False in trends:
            return False
        return None if None in trends else True

    def __str__(self) -> str:
        words = {True: "growing", False: "not growing", None: "no clear trend"}
        lines = [
            f"elements with a loss of {threshold:g} or more: "
            f"{', '.join(map(str, row))}; {words[_grows(row)]}"
            for threshold, row in zip(self.thresholds, self.table, strict=True)
        ]
        verdicts = {
            True: "At these thresholds and sizes one-run auditing looks tight.",
            False: "One-run auditing is not tight, if the trend goes on.",
            None: "The trend does not tell whether one-run auditing is tight.",
        }
        return "\n".join([*lines, verdicts[self.verdict], self.note]).strip()


def exposure(
    law_at: Callable[[int], LossLaw], threshold: float, sizes: Sequence[int]
) -> tuple[Exposure, ...]:
    """Return how many elements are exposed at each number of elements.

    Args:
        law_at: The law of losses for a number of elements.
        threshold: Size of loss from which on an element counts as exposed.
        sizes: Numbers of elements.
    """
    rows = []
    for size in sizes:
        law = law_at(size)
        expected = from_law.exposed(law, threshold)
        chance = from_law.chance_exposed(law, threshold, at_least=MANY)
        many = log2(expected) if expected > 0 else -inf
        rows.append(Exposure(size=size, log2_expected=many, chance=chance))
    return tuple(rows)


def tightness(
    law_at: Callable[[int], LossLaw],
    *,
    thresholds: Sequence[float],
    sizes: Sequence[int],
) -> Tightness:
    """Return the evidence for a mechanism whose law of losses is known.

    Args:
        law_at: The law of losses for a number of elements.
        thresholds: Sizes of loss below the DP level, the largest close to it.
        sizes: Numbers of elements, at least three, rising.

    Example:
        >>> from dpaudit.mechanisms.loss_law import DiscreteLoss, Kind
        >>> sure = DiscreteLoss(values=np.array([1.0]), chances=np.ones(1))
        >>> def response(n: int) -> LossLaw:  # every element has a loss of 1
        ...     kind = Kind(chance=1.0, groups=n, size=1, loss=sure)
        ...     return LossLaw(elements=n, kinds=(kind,))
        >>> print(tightness(response, thresholds=[0.9], sizes=[10, 100, 1000]))
        elements with a loss of 0.9 or more: 10 at n = 10, 100 at n = 100, 1000 at n \
= 1000; growing
        At these thresholds and sizes one-run auditing looks tight.
    """
    return Tightness(
        thresholds=tuple(thresholds),
        sizes=tuple(sizes),
        table=tuple(exposure(law_at, threshold, sizes) for threshold in thresholds),
    )


def _grows(row: tuple[Exposure, ...]) -> bool | None:
    """Whether the number grows beyond all bounds in probability, by the trend."""
    first, second, last = row[-3:]
    rising = first.log2_expected < second.log2_expected < last.log2_expected
    # Chances below the least float are kept at it, so a trend there means nothing.
    if last.log2_expected < _NEVER:
        return False
    if last.chance < _SURE and last.chance <= second.chance:
        return False
    likely = last.chance >= 0.99
    return True if rising and likely else None


def _power(log2_number: float) -> str:
    """Return a number, as a power of two if it is very large or small."""
    if log2_number == -inf:
        return "0"
    if abs(log2_number) < 50:
        return f"{2**log2_number:.5g}"
    return f"2^{log2_number:.5g}" if abs(log2_number) > 1e5 else f"2^{log2_number:.0f}"
