"""Probe how much one record can change a clipped sum, in any framework.

The accountant's proof requires one property of a program: if a record is removed, the
clipped sum changes by at most the clipping norm C. A loop without Opacus passes the
function that computes this sum, and real records go through it, some dozens of times,
without noise. No statistics and no canaries are involved.

With S(B) the sum of a batch, S(B, -i) that without record i, and B[i <- j] the batch
with record j in place of record i, the probe tests that

- ``|S(B) - S(B, -i)| <= C``: a record contributes at most C;
- ``S(B) - S(B, -i) = S(B, -k) - S(B, -i, -k)``: its contribution is the same among
  fewer records. Violated if a sum is divided by the number of its records, or a whole
  batch is clipped;
- ``S(B) - S(B[i <- j]) = S(B[k <- l]) - S(B[k <- l, i <- j])``: its contribution is the
  same among other records. Violated if records of a batch interact, as in batch
  statistics.

Together these bound the effect of any of these records: if each contributes the same
whichever others are present, and at most C, then removing it changes at most C.

*Removal.* A record is really removed, unless the function takes ``keep``, one Boolean
for each row, as loops do that pad their batches: then shapes and random numbers stay
the same, and the third property becomes ``S(B, -i) = S(B[i <- j], -i)``. Removing a
record moves the rows of others, and with them random numbers that are drawn by row.
Such a sum changes if its records are permuted; without ``keep`` it is not checked.

*Clipping must matter.* Gradients below C do not test clipping. A function that takes
``scale`` multiplies its loss, or its gradients before they are clipped, so that most
records are near the norm, and then all above it. Otherwise the report gives the share
that was large enough; if none was, clipping counts as not checked.

An excess explained by rounding is no fault: the tolerance follows the least precise
numbers in batch and sum. Not checked are other records, noise, sampling, accounting,
sums outside the function, and side paths.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from math import hypot, inf
from operator import mul
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding, Stage, fault, not_checked
from dpaudit.training.probe.engine import HUGE, Question, Questions, Rows
from dpaudit.training.probe.report import (
    EXERCISED,
    LEAST,
    Alone,
    Sensitivity,
    too_large,
)
from dpaudit.training.probe.trees import (
    Tree,
    counted,
    named_leaves,
    parameters,
    rows_of,
)

__all__ = ["ClippedSum", "probe_sum"]

ClippedSum: TypeAlias = Callable[..., Tree]
_Sum: TypeAlias = list[NDArray[np.float64]]

_NAME: Final = "clipped_sum"
_TRIES: Final = 6  # to find a scale at which nothing is clipped
_CLOSE: Final = 0.01  # relative
_ROUNDING: Final = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
}


@progress_note("probing the step")
def probe_sum(
    clipped_sum: ClippedSum,
    batch: Tree,
    *,
    norm: float,
    records: int = 8,
    seed: int = 0,
) -> Sensitivity:
    """Return how much one record changes the sum before noise.

    Runs the function about ``7 * records`` times, three times as often if it takes
    ``scale``. Its side effects are not undone.

    Reference: Keinan, Shenfeld and Ligett, "alg:dp-sgd".

    Args:
        clipped_sum: Takes a batch, and returns only the sum of its records' clipped
            gradients just before noise: an array, or a dict, list or tuple of arrays.
            It may also take ``keep``, a Boolean mask of the rows that count, and
            ``scale``, a factor of the loss; they are passed by name. It must be
            deterministic: random numbers come from a seed or key that is the same in
            each call, equally many for each record.
        batch: Real records, a dozen is enough: an array, or a dict, list or tuple of
            arrays, of any library, each with one row for each record. Include large
            and rare ones.
        norm: The bound C on one record's change of the sum: the clipping norm, divided
            by the sum's divisor if it has one.
        records: How many of them are removed, one at a time.
        seed: Selects which.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> def clipped_sum(gradients):
        ...     norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        ...     return (gradients / np.maximum(1, norms)).sum(axis=0)
        >>> gradients = rng.normal(size=(12, 30))
        >>> print(probe_sum(clipped_sum, gradients, norm=1.0))  # doctest: +ELLIPSIS
        swapping one record leaves the others' clipped gradients unchanged. 8 \
records through the user's own clipped_sum without noise: one changes the sum by at \
most 1 C (C is the clipping norm); 100% of them large enough to be clipped.
        >>> def not_clipped(gradients):
        ...     return gradients.sum(axis=0)
        >>> probe_sum(not_clipped, gradients, norm=1.0).faults[0].stage.value
        'clipping'
    """
    _validate.positive("norm", norm)
    _validate.whole_number("records", records, least=1)
    _validate.whole_number("seed", seed)
    rng = np.random.default_rng(seed)
    return _Examination(_Sums(clipped_sum, batch, float(norm)), records, rng).result()


@final
class _Sums:
    """Runs the user's function on chosen records."""

    def __init__(self, function: ClippedSum, batch: Tree, clip: float) -> None:
        self._function, self._batch, self.clip = function, batch, clip
        takes = parameters(function)
        self.keeps, self.scales = "keep" in takes, "scale" in takes
        self.size, self.precision = counted(batch), _precision(batch)
        self.names: tuple[str, ...] = ()
        self._shapes: list[tuple[int, ...]] = []
        self.runs, self.still = 0, False
        self.raws: dict[int, float] = {}  # norms of gradients, once they are known

    def run(
        self, rows: Rows, without: Sequence[int] = (), *, scale: float = 1.0
    ) -> _Sum:
        """Return the sum of some records.

        Args:
            rows: The record in each row.
            without: Rows that are left out.
            scale: Factor of the loss.
        """
        keep = np.ones(len(rows), bool)
        keep[list(without)] = False
        given: dict[str, Any] = {"scale": scale} if self.scales else {}
        if self.keeps:
            given["keep"] = keep
        self.runs += 1
        passed = rows if self.keeps else rows[keep]
        return self._read(self._function(rows_of(self._batch, passed), **given))

    def norms(self, terms: Sequence[tuple[float, _Sum]]) -> list[float]:
        """Return for each parameter the norm of a linear combination of sums."""
        factors, sums = zip(*terms, strict=True)
        parts = zip(*sums, strict=True)
        return [float(np.linalg.norm(sum(map(mul, factors, part)))) for part in parts]

    def finite(self, seen: _Sum) -> bool:
        """Return whether all entries of a sum are finite."""
        return all(bool(np.isfinite(part).all()) for part in seen)

    def raw(self, seen: _Sum, row: int, record: int, scale: float) -> float | None:  # noqa: ARG002
        """Return the norm of a record's gradient before clipping, if it is known."""
        return self.raws[record] * scale if record in self.raws else None

    def drew_alike(self, first: _Sum, second: _Sum) -> bool:  # noqa: ARG002
        """Return True: random numbers are the same in each call."""
        return True

    def quiet(self) -> AbstractContextManager[None]:
        """Do nothing: random numbers cannot be switched off."""
        return nullcontext()

    def beside(self, first: _Sum, second: _Sum) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: a sum has no side effects."""
        return ()

    def _read(self, tree: Tree) -> _Sum:
        """Return a sum as arrays, with the same names and shapes as the first."""
        named = dict(named_leaves(tree))
        try:
            arrays = [np.asarray(leaf).astype(np.float64) for leaf in named.values()]
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"{_NAME} must return an array, or a dict, list or tuple of arrays, "
                f"that numpy can read: {error}"
            ) from error
        shapes = [part.shape for part in arrays]
        if not self.names:
            self.names, self._shapes = tuple(named), shapes
        if (tuple(named), shapes) != (self.names, self._shapes) or not arrays:
            raise InvalidInputError(
                f"{_NAME} must return the sum over all records and nothing else; it "
                f"returned {self.names} of shapes {self._shapes}, and {tuple(named)} "
                f"of shapes {shapes} for another batch"
            )
        self.precision = max(self.precision, _precision(tree))
        return arrays


@final
class _Examination:
    """Asks the questions in order, and reports the answers."""

    def __init__(self, sums: _Sums, records: int, rng: np.random.Generator) -> None:
        self._sums, self._clip, self._rng = sums, sums.clip, rng
        self._everyone = np.arange(sums.size)
        self._leaving: list[int] = rng.permutation(sums.size)[:records].tolist()
        self._first = 0.0  # the largest contribution of a record before enlargement
        self._alone: list[Alone] = []
        self._clipped, self._enlarged = 0.0, False

    def result(self) -> Sensitivity:
        first = self._sums.run(self._everyone)
        again = self._sums.run(self._everyone)
        self._asked = Questions(self._sums)
        self._found = self._asked.measured
        if not self._sums.finite(first):
            return self._without_a_number()
        if not self._asked.size((1.0, first), (-1.0, again)) <= LEAST / 10:
            return self._unseen("probe.sum_not_repeated")
        if not self._sums.keeps and self._goes_by_row(first):
            return self._by_exchange_alone(first)
        scales = self._scales()
        for scale in scales:
            self._leave(scale)
        if not self._found.change:
            return self._unseen("probe.nothing_put_in")
        if self._sums.raws and self._sums.precision <= _ROUNDING["float32"]:
            # In lower precision the gradients themselves might not be finite.
            self._asked.enlarge(self._everyone, HUGE / max(self._sums.raws.values()))
        return self._report(tuple(self._faults()))

    def _report(self, faults: tuple[Finding, ...]) -> Sensitivity:
        measured = self._found
        return Sensitivity(
            change=measured.change,
            coupling=measured.largest.get(Question.COUPLING),
            removal=None if self._sums.keeps else measured.change,
            tolerance=measured.tolerance,
            clipped=self._clipped,
            enlarged=self._enlarged,
            layers=measured.layers,
            records=len(self._leaving),
            sums=self._sums.runs,
            ran=_NAME,
            faults=faults,
        )

    def _unseen(self, code: str) -> Sensitivity:
        why = not_checked(Stage.CLIPPING, code)
        return Sensitivity(unseen=why, sums=self._sums.runs, ran=_NAME)

    def _without_a_number(self) -> Sensitivity:
        """Check whether one record makes the sum not finite."""
        for i in range(self._sums.size):
            filled = self._everyone.copy()
            filled[i] = (i + 1) % self._sums.size  # where rows are only masked
            if self._sums.finite(self._sums.run(filled, (i,))):
                self._found.largest[Question.OWN] = inf
                self._found.layers.clear()
                return self._report((fault(Stage.CLIPPING, "probe.no_number", row=i),))
        return self._unseen("probe.not_finite")

    def _goes_by_row(self, first: _Sum) -> bool:
        """Return whether the sum changes if all records are permuted."""
        self._sums.run(self._everyone, (0,))  # refused if it has a row per record
        order = self._rng.permutation(self._sums.size)
        moved = self._everyone.copy()
        moved[order] = np.roll(order, 1)
        apart = self._asked.size((1.0, first), (-1.0, self._sums.run(moved)))
        return not apart <= 2 * self._asked.allowed(first)

    def _by_exchange_alone(self, first: _Sum) -> Sensitivity:
        """Check only whether records of a batch interact; none can be removed."""
        for i in self._leaving:
            self._exchange(self._everyone, 1.0, i, first, first)
        if Question.COUPLING in self._found.over:
            return self._report((self._coupling_fault(),))
        return self._unseen("probe.order_matters")

    def _scales(self) -> list[float]:
        """Return the factors for the loss; record the norms of gradients."""
        if not self._sums.scales:
            return [1.0]
        scale, owns = 1.0, self._owns(1.0)
        self._first = max(owns)
        for _ in range(_TRIES):
            if max(owns) <= self._clip / 2:
                break
            scale *= 0.1 * self._clip / max(owns)
            owns = self._owns(scale)
        else:
            return [1.0, 10.0, 1000.0]
        raws = {i: own / scale for i, own in zip(self._leaving, owns, strict=True)}
        self._sums.raws = raws
        positive = [raw for raw in raws.values() if raw > 0]
        if not positive:
            return [1.0]
        middle = 0.7 * self._clip / float(np.median(positive))
        return sorted({1.0, middle, 10 * self._clip / min(positive)})

    def _owns(self, scale: float) -> list[float]:
        """Return the norm of each record's contribution."""
        whole = self._sums.run(self._everyone, scale=scale)
        sums = self._sums
        rests = [sums.run(self._everyone, (i,), scale=scale) for i in self._leaving]
        return [hypot(*sums.norms([(1.0, whole), (-1.0, rest)])) for rest in rests]

    def _leave(self, scale: float) -> None:
        """Remove records one at a time, with others in their place or beside them."""
        alone = self._leave_one_by_one(self._everyone, self._leaving, scale)
        if not alone:
            return
        self._alone = alone
        owns = [each.whole for each in alone]
        large = EXERCISED if self._sums.scales else 1 - _CLOSE  # nearly C by chance?
        cut = sum(own > large * self._clip for own in owns) / len(owns)
        self._clipped = max(self._clipped, cut)
        if scale > 1 and max(owns) > (1 + _CLOSE) * self._first:
            self._enlarged = True
        # All others equal: an effect on one of them then adds up over all.
        order = [i for _, i in sorted(zip(owns, self._leaving, strict=True))]
        alike = np.full(self._sums.size, order[len(order) // 2])
        alike[0] = order[-1] if order[-1] != alike[0] else (order[-1] + 1) % len(alike)
        self._leave_one_by_one(alike, (0, 1), scale)

    def _leave_one_by_one(
        self, rows: Rows, leaving: Sequence[int], scale: float
    ) -> list[Alone]:
        return self._asked.leave(
            rows,
            leaving,
            together=dict(pairwise(reversed(leaving))),
            exchange=partial(self._exchange, rows, scale),
            scale=scale,
        )

    def _exchange(
        self, rows: Rows, scale: float, i: int, whole: _Sum, rest: _Sum
    ) -> None:
        """Note whether exchanging a record changes the contribution of the others."""
        donors = self._others(rows[i])
        if self._sums.keeps:
            self._asked.exchange(rows, i, donors, whole, rest, scale=scale)
            return
        k = int(self._rng.choice(np.delete(self._everyone, i)))
        second = k, self._others(rows[k])[0]
        self._asked.exchange_two(rows, (i, donors[0]), second, whole, scale=scale)

    def _others(self, record: int) -> list[int]:
        """Return all other records, in any order."""
        return [int(k) for k in self._rng.permutation(self._sums.size) if k != record]

    def _faults(self) -> Iterator[Finding]:
        measured, over = self._found, self._found.over
        meet, together = Question.COUPLING in over, Question.TOGETHER in over
        if together and not meet and all(measured.means):
            # A mean of contributions of at most C changes by at most C.
            if Question.AS_MEAN in over:
                yield self._size_fault("divided")
        elif together and measured.one_norm:
            yield fault(
                Stage.CLIPPING,
                "probe.depends_on_others",
                together=measured.largest[Question.TOGETHER],
                one_norm=True,
                cause="clipped",
            )
        elif meet:
            yield self._coupling_fault()
        elif together:
            yield self._size_fault("counted")
        elif over & {Question.OWN, Question.CHANGE}:
            change = measured.change or 0.0
            yield too_large(self._sums.names, self._alone, self._clip, change=change)
        if Question.OVERFLOW in over:
            yield fault(Stage.CLIPPING, "probe.overflow", cause="sum")

    def _coupling_fault(self) -> Finding:
        moved = self._found.largest[Question.COUPLING]
        return fault(Stage.GRADIENTS, "probe.coupled", coupling=moved, cause="meet")

    def _size_fault(self, cause: str) -> Finding:
        return fault(
            Stage.AGGREGATION,
            "probe.size",
            together=self._found.largest[Question.TOGETHER],
            change=self._found.change or 0.0,
            cause=cause,
        )


def _precision(tree: Tree) -> float:
    """Return the relative rounding error of the least precise floats in a tree."""
    kinds = (str(getattr(leaf, "dtype", "")) for _, leaf in named_leaves(tree))
    return max((_ROUNDING.get(k.removeprefix("torch."), 0.0) for k in kinds), default=0)
