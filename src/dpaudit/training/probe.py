"""How much can one record change a clipped sum, whoever computes it?

The accountant's proof needs one fact of a program: if a record leaves, the clipped sum
changes by at most the clipping norm C. A loop that is not Opacus' hands over the
function that computes this sum, and real records go through it, some dozens of times,
without noise. There is no statistics in it and no canary.

With S(B) the sum of a batch, S(B, -i) that without record i, and B[i <- j] the batch in
which record j sits in record i's place, it is asked that

- ``|S(B) - S(B, -i)| <= C``: a record puts in at most C;
- ``S(B) - S(B, -i) = S(B, -k) - S(B, -i, -k)``: it puts in the same beside fewer.
  Not so where a sum is divided by the number of its records, or a batch is clipped;
- ``S(B) - S(B[i <- j]) = S(B[k <- l]) - S(B[k <- l, i <- j])``: it puts in the same
  beside others. Not so where records of a batch meet, as in statistics of the batch.

Together these bound the effect of any of these records: if each puts in the same
whoever is there, and no more than C, then its leaving changes no more than C.

*Leaving.* A record is really taken out, unless the function takes ``keep``, one Boolean
for each row, as loops do that pad their batches: then shapes and random numbers stay
as they were, and the third question becomes ``S(B, -i) = S(B[i <- j], -i)``. Taken out,
a record moves the rows of others, and with them random numbers that go by row. Such a
sum is another if its records change places; it is then not examined without ``keep``.

*Clipping that matters.* Gradients below C say nothing about clipping. A function that
takes ``scale`` multiplies its loss, or its gradients before they are clipped, so that
most records are near the norm, and all above it. Otherwise it is said how many were
large enough, and if none was, then clipping was not looked at.

What is too much by rounding is no fault: the tolerance follows the least precise
numbers in batch and sum. What was not asked is not known: other records, noise,
sampling, accounting, what is added up outside the function, and other ways out.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import hypot, inf, isfinite
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding, Stage
from dpaudit.training.sensitivity import EXERCISED, LEAST, Alone, Sensitivity, cause_of
from dpaudit.training.sentences import old_fault

__all__ = ["ClippedSum", "Tree", "named_leaves", "probe_sum"]

Tree: TypeAlias = Any  # an array, or dicts, lists and tuples of arrays
ClippedSum: TypeAlias = Callable[..., Tree]
_Sum: TypeAlias = list[NDArray[np.float64]]
_Rows: TypeAlias = NDArray[np.int64]

_NAME: Final = "clipped_sum"
_TRIES: Final = 6  # at finding a scale at which nothing is clipped
_DONORS: Final = 2  # that take a record's place in turn
_CLOSE: Final = 0.01  # relative
_HUGE: Final = 1e8  # a gradient that half precision does not hold, and single does
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
    """Return how much one record changes the sum that is given noise.

    Runs the function about ``7 * records`` times, three times as often if it takes
    ``scale``. What it changes besides is not put back.

    Args:
        clipped_sum: Takes a batch, and returns the sum of its records' clipped
            gradients just before noise, and nothing else: an array, or a dict, list or
            tuple of arrays. It may also take ``keep``, a Boolean array that says which
            rows count, and ``scale``, what the loss is to be multiplied by; they are
            passed by name. It must repeat itself: random numbers come from a seed or
            key that is the same in each call, as many for each record.
        batch: Real records, a dozen is enough: an array, or a dict, list or tuple of
            arrays, of any library; each has one row for each record. Large and rare
            ones are welcome.
        norm: The most that one record may change the sum, C: the clipping norm, over
            what the sum is divided by, if it is divided.
        records: How many of them leave, one at a time.
        seed: Decides which.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> def clipped_sum(gradients):
        ...     norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        ...     return (gradients / np.maximum(1, norms)).sum(axis=0)
        >>> gradients = rng.normal(size=(12, 30))
        >>> print(probe_sum(clipped_sum, gradients, norm=1.0))  # doctest: +ELLIPSIS
        exchanging one changes what the others put in by ... of the clipping norm. 8 \
records through the user's own clipped_sum, without noise: one changes the sum by at \
most 1 C, the clipping norm; 100% of them large enough to be clipped.
        >>> def not_clipped(gradients):
        ...     return gradients.sum(axis=0)
        >>> probe_sum(not_clipped, gradients, norm=1.0).faults[0].road.value
        'clipping'
    """
    _validate.positive("norm", norm)
    _validate.whole_number("records", records, least=1)
    _validate.whole_number("seed", seed)
    rng = np.random.default_rng(seed)
    return _Examination(_Sums(clipped_sum, batch), float(norm), records, rng).result()


@final
class _Sums:
    """The user's function on chosen records, as often as wanted."""

    def __init__(self, function: ClippedSum, batch: Tree) -> None:
        self._function, self._batch = function, batch
        takes = _parameters(function)
        self.keeps, self.scales = "keep" in takes, "scale" in takes
        self.size, self.precision = _counted(batch), _precision(batch)
        self.names: tuple[str, ...] = ()
        self._shapes: list[tuple[int, ...]] = []
        self.runs = 0

    def of(
        self, rows: _Rows, without: Sequence[int] = (), *, scale: float = 1.0
    ) -> _Sum:
        """Return the sum of some records.

        Args:
            rows: The record in each row.
            without: Rows that are left out.
            scale: What the loss is multiplied by.
        """
        keep = np.ones(len(rows), bool)
        keep[list(without)] = False
        given: dict[str, Any] = {"scale": scale} if self.scales else {}
        if self.keeps:
            given["keep"] = keep
        self.runs += 1
        there = rows if self.keeps else rows[keep]
        return self._read(self._function(_rows_of(self._batch, there), **given))

    def _read(self, tree: Tree) -> _Sum:
        """Return a sum as numbers; all have the names and shapes of the first."""
        named = dict(named_leaves(tree))
        try:
            found = [np.asarray(leaf).astype(np.float64) for leaf in named.values()]
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"{_NAME} must return an array, or a dict, list or tuple of arrays, "
                f"that numpy can read: {error}"
            ) from error
        shapes = [part.shape for part in found]
        if not self.names:
            self.names, self._shapes = tuple(named), shapes
        if (tuple(named), shapes) != (self.names, self._shapes) or not found:
            raise InvalidInputError(
                f"{_NAME} must return the sum over all records and nothing else; it "
                f"returned {self.names} of shapes {self._shapes}, and {tuple(named)} "
                f"of shapes {shapes} for another batch"
            )
        self.precision = max(self.precision, _precision(tree))
        return found


@final
class _Examination:
    """The questions, in order, and what came of them."""

    def __init__(
        self, sums: _Sums, clip: float, records: int, rng: np.random.Generator
    ) -> None:
        self._sums, self._clip, self._rng = sums, clip, rng
        self._everyone = np.arange(sums.size)
        self._leaving: list[int] = rng.permutation(sums.size)[:records].tolist()
        self._largest: dict[str, float] = {}
        self._over: set[str] = set()
        self._tolerance = LEAST
        self._raw: dict[int, float] = {}
        self._first = 0.0  # the most that a record puts in before it is enlarged
        self._alone: list[Alone] = []
        self._layers: dict[str, float] = {}
        self._clipped, self._enlarged = 0.0, False
        self._means: list[bool] = []  # whether a mean explains what was too much
        self._capped = False  # whether all sums had one norm when it was

    def result(self) -> Sensitivity:
        first = self._sums.of(self._everyone)
        again = self._sums.of(self._everyone)
        if not _finite(first):
            return self._without_a_number()
        if not self._size(_minus(first, again)) <= LEAST / 10:
            return self._unseen(
                "it does not repeat itself; let it draw the same random numbers in "
                "each call"
            )
        self._layers = dict.fromkeys(self._sums.names, 0.0)
        if not self._sums.keeps and self._goes_by_row(first):
            return self._by_exchange_alone(first)
        scales = self._scales()
        for scale in scales:
            self._leave(scale)
        if not self._largest["own"]:
            return self._unseen("these records put nothing into the sum")
        self._enlarge()
        return self._found(tuple(self._faults()))

    def _found(self, faults: tuple[Finding, ...]) -> Sensitivity:
        change = self._largest.get("own")
        return Sensitivity(
            change=change,
            coupling=self._largest.get("coupling"),
            removal=None if self._sums.keeps else change,
            tolerance=self._tolerance,
            clipped=self._clipped,
            enlarged=self._enlarged,
            layers=self._layers,
            records=len(self._leaving),
            sums=self._sums.runs,
            ran=_NAME,
            faults=faults,
        )

    def _unseen(self, why: str) -> Sensitivity:
        return Sensitivity(unseen=why, sums=self._sums.runs, ran=_NAME)

    def _without_a_number(self) -> Sensitivity:
        """Look whether one record is why a sum is not finite."""
        for i in range(self._sums.size):
            filled = self._everyone.copy()
            filled[i] = (i + 1) % self._sums.size  # where rows are only masked
            if _finite(self._sums.of(filled, (i,))):
                self._largest["own"] = inf
                return self._found((_no_number(i),))
        return self._unseen("the sum of these records is not finite")

    def _goes_by_row(self, first: _Sum) -> bool:
        """Return whether the sum is another if all records change places."""
        self._sums.of(self._everyone, (0,))  # refused, if it has a part for each record
        order = self._rng.permutation(self._sums.size)
        moved = self._everyone.copy()
        moved[order] = np.roll(order, 1)
        apart = self._size(_minus(first, self._sums.of(moved)))
        return not apart <= 2 * self._allowed(first)

    def _by_exchange_alone(self, first: _Sum) -> Sensitivity:
        """Look only whether records of a batch meet; none can be taken out."""
        for i in self._leaving:
            self._exchange(self._everyone, i, first, first, 1.0)
        if "coupling" in self._over:
            return self._found((self._coupling_fault(),))
        return self._unseen(
            "the sum depends on the order of its records, as where random numbers go "
            f"by row; let {_NAME} take keep, which says what rows count"
        )

    def _scales(self) -> list[float]:
        """Return what to multiply the loss by; notes how large gradients are."""
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
        self._raw = {i: own / scale for i, own in zip(self._leaving, owns, strict=True)}
        positive = [raw for raw in self._raw.values() if raw > 0]
        if not positive:
            return [1.0]
        middle = 0.7 * self._clip / float(np.median(positive))
        return sorted({1.0, middle, 10 * self._clip / min(positive)})

    def _owns(self, scale: float) -> list[float]:
        """Return what each record puts in."""
        whole = self._sums.of(self._everyone, scale=scale)
        return [
            _norm(_minus(whole, self._sums.of(self._everyone, (i,), scale=scale)))
            for i in self._leaving
        ]

    def _leave(self, scale: float) -> None:
        """Let records leave, one at a time, others sitting in their place or beside."""
        alone = self._leave_one_by_one(self._everyone, self._leaving, scale)
        if not alone:
            return
        self._alone = [
            Alone(by_parameter=parts, raw=self._raw[i] * scale if self._raw else None)
            for i, parts in zip(self._leaving, alone, strict=True)
        ]
        owns = [each.whole for each in self._alone]
        large = EXERCISED if self._sums.scales else 1 - _CLOSE  # nearly C by chance?
        cut = sum(own > large * self._clip for own in owns) / len(owns)
        self._clipped = max(self._clipped, cut)
        if scale > 1 and max(owns) > (1 + _CLOSE) * self._first:
            self._enlarged = True
        # The others all alike: what moves one of them moves all the same way.
        order = [i for _, i in sorted(zip(owns, self._leaving, strict=True))]
        alike = np.full(self._sums.size, order[len(order) // 2])
        alike[0] = order[-1] if order[-1] != alike[0] else (order[-1] + 1) % len(alike)
        self._leave_one_by_one(alike, (0, 1), scale)

    def _leave_one_by_one(
        self, rows: _Rows, leaving: Sequence[int], scale: float
    ) -> list[list[float]]:
        """Let some rows leave; return what each puts in, for each parameter."""
        whole = self._sums.of(rows, scale=scale)
        if not _finite(whole):
            return []
        self._tolerance = max(self._tolerance, self._allowed(whole))
        found: list[list[float]] = []
        before: tuple[int, _Sum] | None = None
        for i in leaving:
            rest = self._sums.of(rows, (i,), scale=scale)
            own = _minus(whole, rest)
            self._note("own", own, 1 + self._allowed(whole))
            n = len(rows)
            mean = [n * a - (n - 1) * b for a, b in zip(whole, rest, strict=True)]
            self._note("as mean", mean, 1 + n * self._allowed(whole))
            found.append([float(np.linalg.norm(part)) for part in own])
            for name, part in zip(self._sums.names, found[-1], strict=True):
                self._layers[name] = max(self._layers[name], part / self._clip)
            if before is not None:
                k, less = before
                self._leave_together(rows, (i, k), scale, whole, rest, less)
            before = i, rest
            self._exchange(rows, i, whole, rest, scale)
        return found

    def _leave_together(
        self,
        rows: _Rows,
        both: tuple[int, int],
        scale: float,
        whole: _Sum,
        rest: _Sum,
        less: _Sum,
    ) -> None:
        """Note whether what a record puts in is another once a second has left."""
        least = self._sums.of(rows, both, scale=scale)
        sums, n = list(zip(whole, rest, less, least, strict=True)), len(rows)
        apart = self._note(
            "together", [a - b - c + d for a, b, c, d in sums], 2 * self._allowed(whole)
        )
        if apart <= 2 * self._allowed(whole):
            return
        mean = [n * a - (n - 1) * (b + c) + (n - 2) * d for a, b, c, d in sums]
        rounded = 4 * n * self._rounding(whole)
        self._means.append(self._size(mean) <= max(_CLOSE * n * apart, rounded))
        norms = [_norm(each) for each in (whole, rest, less, least)]
        self._capped = max(norms) - min(norms) <= _CLOSE * max(norms)

    def _exchange(
        self, rows: _Rows, i: int, whole: _Sum, rest: _Sum, scale: float
    ) -> None:
        """Note whether what others put in is another if one record is exchanged."""
        for donor in self._others(rows[i])[:_DONORS]:
            filled = rows.copy()
            filled[i] = donor
            if self._sums.keeps:
                other = self._sums.of(filled, (i,), scale=scale)
                self._note("own", _minus(whole, other), 1 + self._allowed(whole))
                self._note("coupling", _minus(rest, other), self._allowed(whole))
                continue
            k = int(self._rng.choice(np.delete(self._everyone, i)))
            beside, both = rows.copy(), filled.copy()
            beside[k] = both[k] = self._others(rows[k])[0]
            sums = zip(
                whole,
                self._sums.of(filled, scale=scale),
                self._sums.of(beside, scale=scale),
                self._sums.of(both, scale=scale),
                strict=True,
            )
            moved = [a - b - c + d for a, b, c, d in sums]
            self._note("coupling", moved, 2 * self._allowed(whole))
            break  # three sums are as many as will do

    def _others(self, record: int) -> list[int]:
        """Return all other records, in any order."""
        return [int(k) for k in self._rng.permutation(self._sums.size) if k != record]

    def _enlarge(self) -> None:
        """Ask whether very large gradients leave a sum that is a number."""
        if not self._raw or self._sums.precision > _ROUNDING["float32"]:
            return  # the gradients themselves might not be
        scale = _HUGE / max(self._raw.values())
        if not _finite(self._sums.of(self._everyone, scale=scale)):
            self._over.add("overflow")

    def _note(self, what: str, moved: _Sum, most: float) -> float:
        """Note how far two sums are apart over C, and whether it is too much."""
        size = self._size(moved)
        self._largest[what] = max(self._largest.get(what, 0.0), size)
        if not size <= most:
            self._over.add(what)
        return size

    def _size(self, moved: _Sum) -> float:
        size = _norm(moved) / self._clip
        return size if isfinite(size) else inf

    def _allowed(self, whole: _Sum) -> float:
        return max(LEAST, self._rounding(whole))

    def _rounding(self, whole: _Sum) -> float:
        """Return what rounding alone may change in a sum, over the clipping norm."""
        return self._sums.precision * (1 + _norm(whole) / self._clip)

    def _faults(self) -> Iterator[Finding]:
        over = self._over
        meet, together = "coupling" in over, "together" in over
        if together and not meet and all(self._means):
            # A mean of what puts in at most C changes by at most C.
            if "as mean" in over:
                yield self._size_fault(
                    "a sum that is divided by the number of records "
                    "in its batch, and not by a fixed number"
                )
        elif together and self._capped:
            yield self._together_fault()
        elif meet:
            yield self._coupling_fault()
        elif together:
            yield self._size_fault(
                "something that is computed from how many records "
                "there are, or a batch that is clipped as one"
            )
        elif "own" in over:
            yield self._clipping_fault()
        if "overflow" in over:
            yield _overflow()

    def _clipping_fault(self) -> Finding:
        return old_fault(
            road=Stage.CLIPPING,
            said="one record changes the sum by more than the clipping norm C",
            measured=f"up to {self._largest['own']:.3g} C",
            claimed="at most C",
            cause=cause_of(self._sums.names, self._alone, self._clip),
        )

    def _together_fault(self) -> Finding:
        return old_fault(
            road=Stage.CLIPPING,
            said="what a record puts into the sum depends on the others in it, so that "
            "one may change it by more than the clipping norm C",
            measured=f"a change of {self._largest['together']:.3g} C once another is "
            "left out, and sums of one norm",
            claimed="none",
            cause="the batch is clipped, and not each record",
        )

    def _coupling_fault(self) -> Finding:
        return old_fault(
            road=Stage.GRADIENTS,
            said="what a record puts into the sum depends on other records, so that "
            "the proof of privacy does not hold",
            measured=f"a change of {self._largest['coupling']:.3g} C when another "
            "record was exchanged",
            claimed="none",
            cause="records of a batch meet: its statistics, records that are mixed, a "
            "loss or a norm over all of them",
        )

    def _size_fault(self, cause: str) -> Finding:
        return old_fault(
            road=Stage.AGGREGATION,
            said="what a record puts into the sum depends on the size of the batch",
            measured=f"a change of {self._largest['together']:.3g} C once another is "
            f"left out, and of {self._largest['own']:.3g} C when a record leaves",
            claimed="the same beside any number of records",
            cause=cause,
        )


def _no_number(row: int) -> Finding:
    return old_fault(
        road=Stage.CLIPPING,
        said="one record leaves a sum that is no number",
        measured=f"a sum that is not finite, and finite without row {row} of the batch",
        claimed="at most C",
        cause="gradients that are not finite are passed on; they must be set to zero "
        "before they are clipped",
    )


def _overflow() -> Finding:
    return old_fault(
        road=Stage.CLIPPING,
        said="records with a large gradient leave a sum that is no number",
        measured="a sum that is not finite once the loss is multiplied",
        claimed="at most C",
        cause="norms or gradients in half precision, in which a large one is infinite",
    )


def named_leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what dicts, lists and tuples hold, with its name.

    Example:
        >>> dict(named_leaves({"in": [1, 2], "out": 3}))
        {'in.0': 1, 'in.1': 2, 'out': 3}
    """
    if isinstance(tree, Mapping):
        parts = [*tree.items()]
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        parts = [*zip(tree._fields, tree, strict=True)]
    elif isinstance(tree, list | tuple):
        parts = [*enumerate(tree)]
    else:
        if tree is not None:
            yield name or "the sum", tree
        return
    for key, part in parts:
        yield from named_leaves(part, f"{name}.{key}" if name else str(key))


def _rows_of(tree: Tree, index: _Rows) -> Tree:
    """Return some rows of each array."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: _rows_of(part, index) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        parts = [_rows_of(part, index) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree[index]


def _counted(batch: Tree) -> int:
    """Return how many records a batch holds."""
    shapes = {name: getattr(leaf, "shape", ()) for name, leaf in named_leaves(batch)}
    sizes = {int(shape[0]) if shape else -1 for shape in shapes.values()}
    if len(sizes) != 1 or -1 in sizes:
        raise InvalidInputError(
            "batch must be an array, or a dict, list or tuple of arrays, each with one "
            f"row for each record, got shapes {[*shapes.values()]}; what is not a "
            f"record's belongs into {_NAME} itself"
        )
    (count,) = sizes
    if count < 3:
        raise InvalidInputError(
            f"a probe needs 3 records or more in its batch, got {count}"
        )
    return count


def _precision(tree: Tree) -> float:
    """Return how far floats in a tree are rounded, the least precise ones."""
    kinds = (str(getattr(leaf, "dtype", "")) for _, leaf in named_leaves(tree))
    return max((_ROUNDING.get(k.removeprefix("torch."), 0.0) for k in kinds), default=0)


def _parameters(function: ClippedSum) -> Mapping[str, inspect.Parameter]:
    """Return what a function takes, as far as that can be known."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _minus(first: _Sum, second: _Sum) -> _Sum:
    return [a - b for a, b in zip(first, second, strict=True)]


def _norm(parts: _Sum) -> float:
    return hypot(*(float(np.linalg.norm(part)) for part in parts))


def _finite(parts: _Sum) -> bool:
    return all(bool(np.isfinite(part).all()) for part in parts)
