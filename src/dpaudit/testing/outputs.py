"""Outputs of any kind as a table that a guesser can learn from.

A mechanism may return a number, an array, text, None, a tuple of all of them. Of each
output four things are kept: its exact value as one code, so that equal outputs and only
those have equal codes; its kind, which is its types and shape; its numbers, one column
for each place; its texts, likewise as codes. Columns that an output does not have hold
NaN, or the code 0. Codes are Python's hashes: they mean something in one process only.

An output is read as soon as it is returned, by itself: a function may go on to change
what it returned, and an output has the same codes whatever the others are.

What cannot be compared is refused: a coroutine, an iterator, an object whose ``repr``
shows where it lies in memory. A guesser would learn nothing from it, however much it
says, and the test would pass.

Vectors also get what does not depend on the order of their entries: sum, least,
largest, where these stand, and the entries sorted.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from struct import pack
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = ["Row", "Table", "collect", "read", "tabulate"]

_WIDEST = 512  # places of an output that are looked at one by one
_SORTED = 16  # entries of a vector up to which they are sorted
_PLAIN = frozenset((float, int, bool, np.float64, np.int64, np.bool_))
_EXACT = 2.0**53  # floats hold all whole numbers up to this one
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


class Row(NamedTuple):
    """What is kept of one output.

    Attributes:
        kind: The code of types and shape.
        whole: The code of the exact value.
        numbers: Its numbers, place by place.
        texts: The codes of its texts.
    """

    kind: int
    whole: int
    numbers: Sequence[float] | NDArray[np.float64]
    texts: Sequence[int]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """What is kept of many outputs, one row for each.

    Attributes:
        whole: The code of the exact value.
        kinds: The code of types and shape.
        numbers: The numbers of each output, place by place.
        texts: The codes of its texts, place by place.
        usual: How many numbers an output usually has: a few odd ones change nothing.
    """

    whole: NDArray[np.int64]
    kinds: NDArray[np.int64]
    numbers: NDArray[np.float64]
    texts: NDArray[np.int64]
    usual: int

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, which: slice | NDArray[np.int64]) -> "Table":
        """Return some of the rows."""
        return dataclasses.replace(
            self,
            whole=self.whole[which],
            kinds=self.kinds[which],
            numbers=self.numbers[which],
            texts=self.texts[which],
        )

    @property
    def widths(self) -> tuple[int, int]:
        """How many places there are for numbers, and how many for texts."""
        return self.numbers.shape[1], self.texts.shape[1]

    def with_widths(self, widths: tuple[int, int]) -> "Table":
        """Return the table with as many places as another has."""
        if self.widths == widths:
            return self
        return dataclasses.replace(
            self,
            numbers=_fit(self.numbers, widths[0], np.nan),
            texts=_fit(self.texts, widths[1], 0),
        )

    def ordered(self) -> NDArray[np.float64]:
        """Return what of vectors does not depend on the order of their entries."""
        n, width = self.numbers.shape
        if width < 2:
            return np.zeros((n, 0))
        missing = np.isnan(self.numbers)
        low = np.where(missing, np.inf, self.numbers)
        high = np.where(missing, -np.inf, self.numbers)
        filled = np.where(missing, 0.0, self.numbers)
        with np.errstate(all="ignore"):
            found = [
                filled.sum(axis=1),
                low.min(axis=1),
                high.max(axis=1),
                low.argmin(axis=1),
                high.argmax(axis=1),
                np.count_nonzero(filled, axis=1),
            ]
        columns = [np.stack(found, axis=1)]
        columns[0][missing.all(axis=1)] = np.nan
        if width <= _SORTED:
            columns.append(np.sort(self.numbers, axis=1))
        return np.concatenate(columns, axis=1)


def _fit(columns: NDArray[Any], width: int, absent: float) -> NDArray[Any]:
    """Return so many columns: the first of these, or these and empty ones."""
    missing = max(0, width - columns.shape[1])
    return np.pad(columns[:, :width], ((0, 0), (0, missing)), constant_values=absent)


def tabulate(outputs: Sequence[object]) -> Table:
    """Return the table of outputs.

    Example:
        >>> table = tabulate([0.5, (0.5, "yes"), None])
        >>> table.numbers[:, 0], len(set(table.kinds.tolist()))
        (array([0.5, 0.5, nan]), 3)
    """
    return collect([read(output) for output in outputs])


def collect(rows: Sequence[Row], *, widths: tuple[int, int] | None = None) -> Table:
    """Return the table of outputs that were read, with given places if it must."""
    lengths = np.array([len(row.numbers) for row in rows], int)
    most = (int(lengths.max(initial=0)), max((len(r.texts) for r in rows), default=0))
    for_numbers, for_texts = most if widths is None else widths
    return Table(
        whole=np.array([row.whole for row in rows], np.int64),
        kinds=np.array([row.kind for row in rows], np.int64),
        numbers=_columns([r.numbers for r in rows], for_numbers, np.nan, np.float64),
        texts=_columns([row.texts for row in rows], for_texts, 0, np.int64),
        usual=min(most[0], max(1, int(np.median(lengths)))) if len(rows) else 0,
    )


def _columns(
    rows: Sequence[Any], width: int, absent: float, kind: type
) -> NDArray[Any]:
    """Return rows of different lengths as a rectangle."""
    found: NDArray[Any] = np.full((len(rows), width), absent, kind)
    lengths = np.array([len(row) for row in rows], int)
    for length in np.unique(lengths):
        which = np.flatnonzero(lengths == length)
        used = min(int(length), width)
        if used:
            found[which, :used] = np.array([rows[int(i)] for i in which], kind)[
                :, :used
            ]
    return found


def read(output: object) -> Row:
    """Return what is kept of an output; of one that may change later, a copy.

    Raises:
        InvalidInputError: It cannot be compared with another.
    """
    kind = type(output)
    if kind in _PLAIN and abs(output) <= _EXACT:  # type: ignore[arg-type]
        number = float(output)  # type: ignore[arg-type]
        name = _name(kind)
        return Row(hash(name), hash((name, pack("d", number))), (number,), ())
    array = _numeric(output)
    if array is not None:
        layout = f"{_name(kind)} {array.dtype}{array.shape}"
        numbers = array.ravel()[:_WIDEST].astype(np.float64)
        return Row(hash(layout), hash((layout, array.tobytes())), numbers, ())
    leaves = list(_leaves(output))
    kinds = "/".join(name for name, _ in leaves)
    floats = [value for _, value in leaves if isinstance(value, float)]
    texts = [hash(value) for _, value in leaves if isinstance(value, str)]
    return Row(
        kind=hash(kinds),
        whole=hash((kinds, *(_exactly(value) for _, value in leaves))),
        numbers=floats[:_WIDEST],
        texts=texts[:_WIDEST],
    )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _numeric(output: object) -> NDArray[Any] | None:
    """Return an array of numbers, or a list of numbers of one type, as an array."""
    if isinstance(output, list | tuple):
        kinds = set(map(type, output))
        if type(output) not in (list, tuple) or kinds not in ({float}, {int}):
            return None
        array = np.array(output)  # whole numbers too large for it make it no int64
        return array if array.dtype in (np.float64, np.int64) else None
    if isinstance(output, np.generic | np.ma.MaskedArray):
        return None
    values = _as_array(output)
    plain = values is not None and values.dtype.kind in "fiub"
    # Longer floats have bytes between them that mean nothing.
    return values if plain and values.dtype.itemsize <= 8 else None  # type: ignore[union-attr]


def _as_array(output: object) -> NDArray[Any] | None:
    """Return an array, a tensor that may carry a gradient, or a sparse matrix."""
    if isinstance(output, np.ndarray):
        return np.asarray(output)
    if isinstance(output, type) or not (
        hasattr(output, "__array__") or hasattr(output, "toarray")
    ):
        return None
    value: Any = output
    for step in ("detach", "cpu", "toarray"):
        value = getattr(value, step)() if hasattr(value, step) else value
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _uncomparable(
            output, f"numpy cannot read it ({error}); return it as an array of numpy's"
        ) from error


def _leaves(output: object) -> Iterator[tuple[str, float | str]]:
    """Take an output apart: what stands at each place, and of which type it is."""
    kind = _name(type(output))
    match output:
        case complex() | np.complexfloating():
            yield kind, float(output.real)
            yield "imaginary", float(output.imag)
        case bool() | int() | float() | np.number() | np.bool_():
            yield kind, _number(output)
            yield from _beyond_floats(output)
        case str() | bytes() | None:
            yield kind, str(output)
        case Mapping():
            yield f"{kind}{len(output)}", ""
            for name in sorted(output, key=_text):
                yield "key", _text(name)
                yield from _leaves(output[name])
        case AbstractSet():
            yield f"{kind}{len(output)}", ""
            for value in sorted(output, key=_text):
                yield from _leaves(value)
        case tuple() | list():
            yield f"{kind}{len(output)}", ""
            for value in output:
                yield from _leaves(value)
        case _:
            yield from _rarer_leaves(output, kind)


def _rarer_leaves(output: object, kind: str) -> Iterator[tuple[str, float | str]]:
    values = _as_array(output)
    if isinstance(output, np.ma.MaskedArray):
        yield from _leaves((np.ma.getmaskarray(output), output.filled()))
    elif values is not None:
        yield from _array_leaves(values, kind)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        yield kind, ""
        for field in dataclasses.fields(output):
            yield from _leaves(getattr(output, field.name))
    else:
        yield kind, _text(output)
        if isinstance(output, Real | Decimal):
            yield "about", _number(output)


def _array_leaves(values: NDArray[Any], kind: str) -> Iterator[tuple[str, float | str]]:
    yield f"{kind} {values.dtype}{values.shape}", ""
    for value in values.ravel():
        if values.dtype.kind == "O":
            yield from _leaves(value)
            continue
        yield "", _number(value) if values.dtype.kind in "fiub" else _text(value)
        yield from _beyond_floats(value)


def _beyond_floats(value: object) -> Iterator[tuple[str, str]]:
    """Yield a whole number as text too if no float holds it."""
    if isinstance(value, int | np.integer) and abs(int(value)) > _EXACT:
        yield "exactly", hex(value)


def _number(value: Any) -> float:  # noqa: ANN401 (any number)
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return np.inf if value > 0 else -np.inf


def _exactly(value: float | str) -> str | bytes:
    return value if isinstance(value, str) else pack("d", value)


def _text(value: object) -> str:
    """Return the text that stands for a value, if equal values have equal texts."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # or Python warns that nobody awaited it
        raise _uncomparable(
            value, "await it, as with asyncio.run(...), and return what comes of it"
        )
    if isinstance(value, Iterator):
        raise _uncomparable(value, "return what it yields, as with list(...)")
    text = repr(value)
    if not isinstance(value, str | bytes) and _ADDRESS.search(text):
        raise _uncomparable(
            value, "return the values in it, or give it a __repr__ that shows them all"
        )
    return text


def _uncomparable(value: object, advice: str) -> InvalidInputError:
    text = repr(value)
    shown = text if len(text) <= 60 else text[:57] + "..."
    return InvalidInputError(
        f"the mechanism returned {shown}, of type {type(value).__name__}, which cannot "
        f"be compared with another output; {advice}"
    )
