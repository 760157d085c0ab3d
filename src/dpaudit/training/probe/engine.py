"""The questions of a sensitivity probe, asked of whatever can compute sums of records.

A ``StepRunner`` computes the clipped sum of chosen records, as often as wanted and with
the same random numbers each time. ``Questions`` lets records leave and be exchanged,
and measures how far sums move, over the clipping norm C. With S(B) the sum of a batch,
S(B, -i) that without row i, and B[i <- j] the batch in which record j sits in row i:

- *own*: ``|S(B) - S(B, -i)| <= C``, what a record puts in;
- *change*: ``|S(B) - S(B[i <- j], -i)| <= C``, all that its leaving changes;
- *coupling*: ``S(B, -i) = S(B[i <- j], -i)``, so that the others' part does not depend
  on who sits beside them. Where no row can be masked, it is asked instead whether
  ``S(B) - S(B[i <- j])`` is the same beside other records;
- *together*: ``S(B) - S(B, -i) = S(B, -k) - S(B, -i, -k)``, what a record puts in is
  the same beside fewer;
- *as mean*: what a record puts in if the sum is in truth a mean.

What is found are numbers. What they mean is said by whoever asked (``report``).
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

_DONORS: Final = 2  # that take a record's place in turn
_TRIES: Final = 6  # at finding them, if for some the random numbers move
HUGE: Final = 1e8  # a gradient that half precision does not hold, and single does
_CLOSE: Final = 0.01  # relative


class StepRunner(Protocol[S]):
    """Computes sums of chosen records of one batch."""

    @property
    def names(self) -> Sequence[str]:
        """The parameters' names."""

    @property
    def clip(self) -> float:
        """The most that one record may change the sum, C."""

    @property
    def size(self) -> int:
        """How many records the batch has."""

    @property
    def precision(self) -> float:
        """How far the least precise numbers seen so far are rounded."""

    @property
    def still(self) -> bool:
        """Whether random numbers that move can be switched off."""

    def run(self, rows: Rows, without: Sequence[int] = (), *, scale: float = 1.0) -> S:
        """Return the sum of the records in some rows, with the loss multiplied."""

    def norms(self, terms: Sequence[tuple[float, S]]) -> list[float]:
        """Return for each parameter the norm of a linear combination of sums."""

    def finite(self, seen: S) -> bool:
        """Return whether a sum holds numbers only."""

    def raw(self, seen: S, row: int, record: int, scale: float) -> float | None:
        """Return the norm of a record's gradient before clipping, if it is known."""

    def drew_alike(self, first: S, second: S) -> bool:
        """Return whether two runs drew the same random numbers."""

    def quiet(self) -> AbstractContextManager[None]:
        """Switch random numbers off that can be."""

    def beside(self, first: S, second: S) -> Collection[str]:
        """Return what else two runs left behind differently, by name."""


@final
class Question(StrEnum):
    """What was asked of sums."""

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
    """What the questions came to, over the clipping norm.

    Attributes:
        largest: The largest change that each question found.
        over: Questions of which it was too large.
        tolerance: How much more than allowed rounding may explain.
        layers: For each parameter, the largest that any one record put in.
        means: For each change beside fewer records, whether a mean explains it.
        one_norm: Whether all sums had one norm where it changed last.
        compared: Whether others' parts could be compared at all.
        coupled: Where these first differed: rows before and after, and the row.
        beside: What else a record decided.
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
        """The largest change when a record leaves; None if none could."""
        asked = (Question.OWN, Question.CHANGE)
        return max((self.largest[q] for q in asked if q in self.largest), default=None)


@final
class Questions(Generic[S]):
    """Asks one runner; may be asked again at any scale, of any rows.

    Args:
        runner: Computes the sums.

    Attributes:
        measured: What came of it so far.
    """

    def __init__(self, runner: StepRunner[S]) -> None:
        self._runner = runner
        self.measured = Measured(layers=dict.fromkeys(runner.names, 0.0))

    def size(self, *terms: tuple[float, S]) -> float:
        """Return the norm of a combination of sums, over the clipping norm."""
        found = hypot(*self._runner.norms(terms)) / self._runner.clip
        return found if isfinite(found) else inf

    def rounding(self, seen: S) -> float:
        """Return what rounding alone may change in a sum, over the clipping norm."""
        return self._runner.precision * (1 + self.size((1.0, seen)))

    def allowed(self, seen: S) -> float:
        """Return how far sums may be apart that should be the same."""
        return max(LEAST, self.rounding(seen))

    def note(self, asked: Question, size: float, most: float) -> float:
        """Note how far sums are apart, and whether it is too much."""
        found = self.measured
        found.largest[asked] = max(found.largest.get(asked, 0.0), size)
        if not size <= most:
            found.over.add(asked)
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
        """Let some rows leave, one at a time; return what each puts in by itself.

        Args:
            rows: The record in each row.
            leaving: Rows that leave.
            together: For a row, another that leaves with it.
            exchange: Asks what it changes to exchange the record in a row, given the
                sums with it and without.
            scale: What the loss is multiplied by.
        """
        runner, found = self._runner, self.measured
        whole = runner.run(rows, scale=scale)
        if not self._runner.finite(whole):
            return []
        allowed = self.allowed(whole)
        found.tolerance = max(found.tolerance, allowed)
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
                found.layers[name] = max(found.layers[name], part / runner.clip)
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
        """Note whether what a record puts in is another once a second has left."""
        moved = self.size((1.0, whole), (-1.0, rest), (-1.0, less), (1.0, least))
        most = 2 * self.allowed(whole)  # four sums are rounded, and not two
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
        """Note whether what others put in is another if one record is exchanged.

        Args:
            rows: The record in each row.
            i: The row that is exchanged, and masked.
            donors: Records that may take its place: the first few for which the others'
                random numbers stay as they were.
            whole: The sum of the rows.
            rest: That without the row.
            scale: What the loss is multiplied by.
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
        runner, found = self._runner, self.measured
        other = runner.run(filled, (i,), scale=scale)
        before = rest
        if runner.drew_alike(whole, other):
            change = self.size((1.0, whole), (-1.0, other))
            self.note(Question.CHANGE, change, 1 + self.allowed(whole))
            found.beside |= {*runner.beside(whole, other)}
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
        found.compared = True
        if found.coupled is None and Question.COUPLING in found.over:
            found.coupled = rows, filled, i
        found.beside |= {*runner.beside(before, other)}
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
        """Note whether exchanging a record changes the same beside another record.

        It is what can be asked of sums in which no row can be masked.

        Args:
            rows: The record in each row.
            first: A row, and the record that takes its place.
            second: Another, that takes the place of a row beside it.
            whole: The sum of the rows.
            scale: What the loss is multiplied by.
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
        """Ask whether very large gradients leave a sum that is a number; return it."""
        seen = self._runner.run(rows, scale=scale)
        if not self._runner.finite(seen):
            self.measured.over.add(Question.OVERFLOW)
        return seen
