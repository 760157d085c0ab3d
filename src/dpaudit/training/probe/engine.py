"""The questions of a sensitivity probe, for any source of sums of records.

A ``StepRunner`` computes the clipped sum of chosen records, any number of times and
with the same random numbers each time. ``Questions`` removes and exchanges records, and
measures how much sums change, over the clipping norm C. With S(B) the sum of a batch,
S(B, -i) that without row i, and B[i <- j] the batch with record j in row i:

- *own*: ``|S(B) - S(B, -i)| <= C``, a record's contribution;
- *change*: ``|S(B) - S(B[i <- j], -i)| <= C``, the whole effect of removing it;
- *coupling*: ``S(B, -i) = S(B[i <- j], -i)``, so that the others' part does not depend
  on the records beside them. Where no row can be masked, the question is instead
  whether ``S(B) - S(B[i <- j])`` is the same beside other records;
- *together*: ``S(B) - S(B, -i) = S(B, -k) - S(B, -i, -k)``, a record's contribution is
  the same beside fewer;
- *as mean*: a record's contribution if the sum is in truth a mean.

The results are numbers. The caller interprets them (``report``).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from math import hypot, inf, isfinite
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.training.probe.report import LEAST, Alone

__all__ = ["HUGE", "Measured", "Question", "Questions", "Rows", "StepRunner"]

Rows: TypeAlias = NDArray[np.int64]
S = TypeVar("S")

_DONORS: Final = 2  # replacements compared for each record
_TRIES: Final = 6  # to find them, if for some the random numbers change
HUGE: Final = 1e8  # a gradient that overflows in half precision, and not in single
_CLOSE: Final = 0.01  # relative


class StepRunner(Protocol[S]):
    """Computes sums of chosen records of one batch."""

    @property
    def names(self) -> Sequence[str]:
        """The parameters' names."""

    @property
    def clip(self) -> float:
        """The bound C on one record's change of the sum."""

    @property
    def size(self) -> int:
        """Number of records in the batch."""

    @property
    def precision(self) -> float:
        """Relative rounding error of the least precise numbers so far."""

    @property
    def still(self) -> bool:
        """Whether random numbers that change can be switched off."""

    def run(self, rows: Rows, without: Sequence[int] = (), *, scale: float = 1.0) -> S:
        """Return the sum of the records in some rows, with the loss scaled."""

    def norms(self, terms: Sequence[tuple[float, S]]) -> list[float]:
        """Return for each parameter the norm of a linear combination of sums."""

    def finite(self, seen: S) -> bool:
        """Return whether all entries of a sum are finite."""

    def raw(self, seen: S, row: int, record: int, scale: float) -> float | None:
        """Return the norm of a record's gradient before clipping, if it is known."""

    def drew_alike(self, first: S, second: S) -> bool:
        """Return whether two runs drew the same random numbers."""

    def quiet(self) -> AbstractContextManager[None]:
        """Switch off the random numbers that can be."""

    def beside(self, first: S, second: S) -> Collection[str]:
        """Return the names of other state in which two runs differ."""


@final
class Question(StrEnum):
    """A question about sums."""

    OWN = "own"
    CHANGE = "change"
    COUPLING = "coupling"
    TOGETHER = "together"
    AS_MEAN = "as mean"
    SIZE = "size"
    OVERFLOW = "overflow"


@final
@dataclass(slots=True)
class Measured:
    """The answers to the questions, over the clipping norm.

    Attributes:
        largest: The largest change for each question.
        over: Questions for which it was too large.
        tolerance: The excess that rounding may explain.
        layers: For each parameter, the largest contribution of any one record.
        means: For each contribution that changed beside fewer records, whether a mean
            explains it.
        one_norm: Whether all sums had the same norm at the last such change.
        compared: Whether the others' parts could be compared at all.
        coupled: Where these first differed: rows before and after, and the row.
        beside: Names of other state that depended on a record.
    """

    largest: dict[Question, float] = field(default_factory=dict)
    over: set[Question] = field(default_factory=set)
    tolerance: float = LEAST
    layers: dict[str, float] = field(default_factory=dict)
    means: list[bool] = field(default_factory=list)
    one_norm: bool = False
    compared: bool = False
    coupled: tuple[Rows, Rows, int] | None = None
    beside: set[str] = field(default_factory=set)

    @property
    def change(self) -> float | None:
        """The largest change when a record is removed; None if none could be."""
        asked = (Question.OWN, Question.CHANGE)
        return max((self.largest[q] for q in asked if q in self.largest), default=None)


@final
class Questions(Generic[S]):
    """Asks one runner the questions, repeatedly at any scale and for any rows.

    Args:
        runner: Computes the sums.

    Attributes:
        measured: The answers so far.
    """

    def __init__(self, runner: StepRunner[S]) -> None:
        self._runner = runner
        self.measured = Measured(layers=dict.fromkeys(runner.names, 0.0))

    def size(self, *terms: tuple[float, S]) -> float:
        """Return the norm of a combination of sums, over the clipping norm."""
        norm = hypot(*self._runner.norms(terms)) / self._runner.clip
        return norm if isfinite(norm) else inf

    def rounding(self, seen: S) -> float:
        """Return the change of a sum by rounding alone, over the clipping norm."""
        return self._runner.precision * (1 + self.size((1.0, seen)))

    def allowed(self, seen: S) -> float:
        """Return the tolerance between sums that should be equal."""
        return max(LEAST, self.rounding(seen))

    def note(self, asked: Question, size: float, most: float) -> float:
        """Record a difference of sums, and whether it is too large."""
        measured = self.measured
        measured.largest[asked] = max(measured.largest.get(asked, 0.0), size)
        if not size <= most:
            measured.over.add(asked)
        return size

    def leave(
        self,
        rows: Rows,
        leaving: Iterable[int],
        *,
        together: Mapping[int, int],
        exchange: Callable[[int, S, S], None],
        scale: float,
    ) -> list[Alone]:
        """Remove some rows, one at a time; return the contribution of each.

        Args:
            rows: The record in each row.
            leaving: Rows to remove.
            together: For a row, another to remove with it.
            exchange: Called with a row and the sums with and without it, to test the
                effect of exchanging its record.
            scale: Factor of the loss.
        """
        runner, measured = self._runner, self.measured
        whole = runner.run(rows, scale=scale)
        if not self._runner.finite(whole):
            return []
        allowed = self.allowed(whole)
        measured.tolerance = max(measured.tolerance, allowed)
        alone: list[Alone] = []
        rests: dict[int, S] = {}
        for i in leaving:
            rest = rests[i] = runner.run(rows, (i,), scale=scale)
            parts = runner.norms([(1.0, whole), (-1.0, rest)])
            own = hypot(*parts) / runner.clip
            own = own if isfinite(own) else inf
            self.note(Question.OWN, own, 1 + self.allowed(whole))
            n = len(rows)
            mean = self.size((float(n), whole), (1.0 - n, rest))
            self.note(Question.AS_MEAN, mean, 1 + n * self.allowed(whole))
            for name, part in zip(runner.names, parts, strict=True):
                measured.layers[name] = max(measured.layers[name], part / runner.clip)
            raw = runner.raw(whole, i, int(rows[i]), scale)
            alone.append(Alone(by_parameter=parts, raw=raw))
            if (k := together.get(i)) is not None:
                less = rests.get(k)
                if less is None:
                    less = runner.run(rows, (k,), scale=scale)
                least = runner.run(rows, (i, k), scale=scale)
                self._leave_together(n, whole, rest, less, least)
            exchange(i, whole, rest)
        return alone

    def _leave_together(self, n: int, whole: S, rest: S, less: S, least: S) -> None:
        """Record whether removing a second row changes a record's contribution."""
        moved = self.size((1.0, whole), (-1.0, rest), (-1.0, less), (1.0, least))
        most = 2 * self.allowed(whole)  # four sums are rounded, not two
        if self.note(Question.TOGETHER, moved, most) <= most:
            return
        mean = self.size(
            (float(n), whole), (1.0 - n, rest), (1.0 - n, less), (n - 2.0, least)
        )
        rounded = 4 * n * self.rounding(whole)
        self.measured.means.append(mean <= max(_CLOSE * n * moved, rounded))
        sizes = [self.size((1.0, each)) for each in (whole, rest, less, least)]
        self.measured.one_norm = max(sizes) - min(sizes) <= _CLOSE * max(sizes)

    def exchange(
        self,
        rows: Rows,
        i: int,
        donors: Sequence[int],
        whole: S,
        rest: S,
        *,
        scale: float,
    ) -> None:
        """Record whether exchanging a record changes the contribution of the others.

        Args:
            rows: The record in each row.
            i: The row that is exchanged, and masked.
            donors: Candidates to take its place; the first few are used for which the
                others' random numbers stay the same.
            whole: The sum of the rows.
            rest: The sum without the row.
            scale: Factor of the loss.
        """
        compared = 0
        for donor in donors[:_TRIES]:
            filled = rows.copy()
            filled[i] = donor
            compared += self._exchanged(rows, filled, i, whole, rest, scale)
            if compared == _DONORS:
                break

    def _exchanged(
        self, rows: Rows, filled: Rows, i: int, whole: S, rest: S, scale: float
    ) -> bool:
        """Compare the others' parts; return whether random numbers allowed it."""
        runner, measured = self._runner, self.measured
        other = runner.run(filled, (i,), scale=scale)
        before = rest
        if runner.drew_alike(whole, other):
            change = self.size((1.0, whole), (-1.0, other))
            self.note(Question.CHANGE, change, 1 + self.allowed(whole))
            measured.beside |= {*runner.beside(whole, other)}
        elif not runner.still:
            return False
        else:
            with runner.quiet():
                before = runner.run(rows, (i,), scale=scale)
                other = runner.run(filled, (i,), scale=scale)
        self.note(
            Question.COUPLING,
            self.size((1.0, before), (-1.0, other)),
            self.allowed(before),
        )
        measured.compared = True
        if measured.coupled is None and Question.COUPLING in measured.over:
            measured.coupled = rows, filled, i
        measured.beside |= {*runner.beside(before, other)}
        return True

    def exchange_two(
        self,
        rows: Rows,
        first: tuple[int, int],
        second: tuple[int, int],
        whole: S,
        *,
        scale: float,
    ) -> None:
        """Record whether the effect of an exchange depends on another record.

        This replaces ``exchange`` for sums in which no row can be masked.

        Args:
            rows: The record in each row.
            first: A row, and the record that takes its place.
            second: Another row, and the record that takes its place.
            whole: The sum of the rows.
            scale: Factor of the loss.
        """
        sums = [whole]
        for changed in ([first], [second], [first, second]):
            filled = rows.copy()
            for row, record in changed:
                filled[row] = record
            sums.append(self._runner.run(filled, scale=scale))
        moved = self.size(*zip((1.0, -1.0, -1.0, 1.0), sums, strict=True))
        self.note(Question.COUPLING, moved, 2 * self.allowed(whole))
        self.measured.compared = True

    def enlarge(self, rows: Rows, scale: float) -> S:
        """Check that the sum of very large gradients is finite; return it."""
        seen = self._runner.run(rows, scale=scale)
        if not self._runner.finite(seen):
            self.measured.over.add(Question.OVERFLOW)
        return seen
