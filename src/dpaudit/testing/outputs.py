"""Outputs of any kind as a table that a guesser can learn from.

A mechanism may return a number, an array, text, None, a tuple of all of them. Of each
output four things are kept: its exact value as one code, so that equal outputs and only
those have equal codes; its kind, which is its types and shape; its numbers, one column
for each place; its texts, likewise as codes. Columns that an output does not have hold
NaN, or the code 0. Codes are Python's hashes: they mean something in one process only.

Vectors also get what does not depend on the order of their entries: sum, least,
largest, where these stand, and the entries sorted.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table", "tabulate"]

_WIDEST = 512  # places of an output that are looked at one by one
_SORTED = 16  # entries of a vector up to which they are sorted
_PLAIN = (float, int, bool, np.float64, np.int64, np.bool_)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """What is kept of many outputs, one row for each.

    Attributes:
        whole: The code of the exact value.
        kinds: The code of types and shape.
        numbers: The numbers of each output, place by place.
        texts: The codes of its texts, place by place.
    """

    whole: NDArray[np.int64]
    kinds: NDArray[np.int64]
    numbers: NDArray[np.float64]
    texts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, which: slice | NDArray[np.int64]) -> "Table":
        """Return some of the rows."""
        return Table(
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
        return Table(
            whole=self.whole,
            kinds=self.kinds,
            numbers=_fit(self.numbers, widths[0], np.nan),
            texts=_fit(self.texts, widths[1], 0),
        )

    def ordered(self) -> NDArray[np.float64]:
        """Return what of vectors does not depend on the order of their entries."""
        n, width = self.numbers.shape
        if width < 2:
            return np.zeros((n, 0))
        low = np.where(np.isnan(self.numbers), np.inf, self.numbers)
        high = np.where(np.isnan(self.numbers), -np.inf, self.numbers)
        with np.errstate(all="ignore"):
            found = [
                np.nansum(self.numbers, axis=1),
                low.min(axis=1),
                high.max(axis=1),
                low.argmin(axis=1),
                high.argmax(axis=1),
                np.count_nonzero(np.nan_to_num(self.numbers), axis=1),
            ]
        columns = [np.stack(found, axis=1)]
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
    kinds: set[type] = set(map(type, outputs))
    if len(kinds) == 1 and kinds <= set(_PLAIN):
        return _of_numbers(outputs, kinds.pop())
    if kinds == {str}:
        return _of_text(outputs)
    arrays = [o for o in outputs if isinstance(o, np.ndarray)]
    layouts = {(array.dtype, array.shape) for array in arrays}
    if len(arrays) == len(outputs) and len(layouts) == 1:
        stacked = np.stack(arrays)
        if stacked.dtype.kind in "fiub":
            return _of_arrays(stacked)
    return _of_anything(outputs)


def _of_numbers(outputs: Sequence[Any], kind: type) -> Table:
    """Return the table of plain numbers of one type: the common case, made quick."""
    n = len(outputs)
    if issubclass(kind, int):
        column = np.array([_number(o) for o in outputs])
        whole = np.array([hash(int(o)) for o in outputs], np.int64)
    else:
        exact = np.asarray(outputs)
        column = exact.astype(np.float64)
        whole = exact.view(np.int64) if exact.itemsize == 8 else exact.astype(np.int64)
    return Table(
        whole=whole,
        kinds=np.full(n, _code(kind.__name__)),
        numbers=column.reshape(n, 1),
        texts=np.zeros((n, 0), np.int64),
    )


def _of_text(outputs: Sequence[object]) -> Table:
    """Return the table of plain text."""
    n = len(outputs)
    codes = np.array([hash(output) for output in outputs], np.int64)
    return Table(
        whole=codes,
        kinds=np.full(n, _code("str")),
        numbers=np.zeros((n, 0)),
        texts=codes[:, None],
    )


def _of_arrays(stacked: NDArray[Any]) -> Table:
    """Return the table of arrays of numbers that have one shape."""
    n = len(stacked)
    flat = np.ascontiguousarray(stacked.reshape(n, -1))
    return Table(
        whole=np.array([hash(row.tobytes()) for row in flat], np.int64),
        kinds=np.full(n, _code(f"{stacked.dtype}{stacked.shape[1:]}")),
        numbers=flat[:, :_WIDEST].astype(np.float64),
        texts=np.zeros((n, 0), np.int64),
    )


def _of_anything(outputs: Sequence[object]) -> Table:
    """Return the table of outputs that need to be taken apart one by one."""
    parts = [list(_leaves(output)) for output in outputs]
    kinds = ["/".join(kind for kind, _ in leaves) for leaves in parts]
    values = [[value for _, value in leaves] for leaves in parts]
    numbers = [
        [v for v in leaves if isinstance(v, float)][:_WIDEST] for leaves in values
    ]
    texts = [
        [_code(v) for v in leaves if isinstance(v, str)][:_WIDEST] for leaves in values
    ]
    exact = [
        hash((kind, *(_exactly(v) for v in leaves)))
        for kind, leaves in zip(kinds, values, strict=True)
    ]
    return Table(
        whole=np.array(exact, np.int64),
        kinds=np.array([_code(kind) for kind in kinds], np.int64),
        numbers=_columns(numbers, np.nan).astype(np.float64),
        texts=_columns(texts, 0).astype(np.int64),
    )


def _leaves(output: object) -> Iterator[tuple[str, float | str]]:
    """Take an output apart: what stands at each place, and of which type it is."""
    kind = type(output).__name__
    match output:
        case bool() | int() | float() | np.number() | np.bool_():
            if np.iscomplexobj(output):
                yield kind, float(np.real(output))
                yield "imaginary", float(np.imag(output))
                return
            yield kind, _number(output)
            yield from _beyond_floats(output)
        case str() | bytes() | None:
            yield kind, str(output)
        case Mapping():
            yield f"{kind}{len(output)}", ""
            for name in sorted(output, key=repr):
                yield "key", repr(name)
                yield from _leaves(output[name])
        case AbstractSet():
            yield f"{kind}{len(output)}", ""
            for value in sorted(output, key=repr):
                yield from _leaves(value)
        case tuple() | list():
            yield f"{kind}{len(output)}", ""
            for value in output:
                yield from _leaves(value)
        case _ if hasattr(output, "__array__"):
            yield from _array_leaves(np.asarray(output))
        case _:
            yield kind, repr(output)


def _array_leaves(values: NDArray[Any]) -> Iterator[tuple[str, float | str]]:
    yield f"{values.dtype}{values.shape}", ""
    for value in values.ravel():
        yield "", _number(value) if values.dtype.kind in "fiub" else repr(value)
        yield from _beyond_floats(value)


def _beyond_floats(value: object) -> Iterator[tuple[str, str]]:
    """Yield a whole number as text too if no float holds it."""
    if isinstance(value, int | np.integer) and abs(int(value)) > 2**53:
        yield "exactly", str(value)


def _number(value: Any) -> float:  # noqa: ANN401 (any number)
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return np.inf if value > 0 else -np.inf


def _exactly(value: float | str) -> str:
    return value if isinstance(value, str) else value.hex()


def _code(text: str) -> int:
    return hash(text)


def _columns(rows: list[list[Any]], absent: float) -> NDArray[Any]:
    """Return rows of different lengths as a rectangle."""
    filled = list(zip_longest(*rows, fillvalue=absent))
    return np.array(filled).T if filled else np.zeros((len(rows), 0))
