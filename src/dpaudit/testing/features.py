"""Turn outputs of any kind into a table that a guesser can learn from.

A mechanism may return a number, an array, text, None, a tuple of all of them. Four
features of each output are kept: its exact value as one code, so that equal outputs and
only those have equal codes; its kind, which is its types and shape; its numbers, one
column for each place; its texts, likewise as codes. Columns that an output lacks hold
NaN, or the code 0. Codes are hashes that do not depend on the process: what was learned
in one can be used in another (``testing/nightly.py``).

An output is read as soon as it is returned, by itself: the function may change it
afterwards, and its codes do not depend on other outputs.

Outputs that cannot be compared are refused: a coroutine, an iterator, an object whose
``repr`` shows its memory address. A guesser could learn nothing from them, however much
they leak, and the test would pass.

Parts that are not inspected are counted, so that a result can name them: places beyond
the first ``PLACES``, and objects that can be compared by their ``repr`` only.

Vectors also get features that do not depend on the order of their entries: sum, least,
largest, the positions of these, and the sorted entries. Mappings get their order.
"""

import dataclasses
import inspect
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from numbers import Real
from pathlib import PurePath
from struct import pack
from typing import Any, NamedTuple, TypeAlias, TypeVar, final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = [
    "PLACES",
    "WIDEST",
    "Bits",
    "FeatureTable",
    "OutputFeatures",
    "collect",
    "joined",
    "read",
    "tabulate",
]

PLACES = 65_536  # places of an output that are read, and compared one by one
WIDEST = 512  # places that are guessed from: the most informative if there are more
_VALUES_AT_ONCE = 1_000_000  # values of wide outputs that are processed at once
_MOST_SORTED = 16  # longest vectors whose entries are sorted
_PLAIN_NUMBERS = frozenset((float, int, bool, np.float64, np.int64, np.bool_))
_LARGEST_EXACT_FLOAT = 2.0**53  # floats hold all whole numbers up to this one
# Objects whose ``repr`` shows their whole value.
_SHOWN_BY_REPR = (
    *(Real, Decimal, date, time, timedelta, tzinfo, UUID, Enum, PurePath),
    *(range, type, np.generic, type(...), type(NotImplemented)),
)
_SECONDARY_TEXTS = frozenset(("exactly", "key", "order"))  # they only add to others
_REPR_PREFIX = "repr of "
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


N = TypeVar("N", bound=np.generic)
Bits: TypeAlias = NDArray[np.integer]  # the coins of calls


class OutputFeatures(NamedTuple):
    """The features of one output.

    Attributes:
        kind: The code of types and shape.
        whole: The code of the exact value.
        numbers: Its numbers, place by place.
        texts: The codes of its texts.
        own: How many of these texts, the first ones, are values of the output itself.
        left_out: How many places it has beyond those that are read.
        through: The types of objects that were read by their ``repr`` only.
    """

    kind: int
    whole: int
    numbers: Sequence[float] | NDArray[np.float64]
    texts: Sequence[int]
    own: int = 0
    left_out: int = 0
    through: frozenset[str] = frozenset()


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureTable:
    """The features of many outputs, one row for each.

    Attributes:
        whole: The code of the exact value.
        kinds: The code of types and shape.
        numbers: The numbers of each output, place by place.
        texts: The codes of its texts, place by place.
        usual: How many numbers an output usually has, by the median.
        own: How many of the places for texts hold values of the outputs themselves.
        left_out: The largest number of places of an output beyond those that are read.
        through: The types of objects that were read by their ``repr`` only.
        order: The value of ``ordered``, if known: for wide outputs it is computed once,
            and kept when only some of their places are.
    """

    whole: NDArray[np.int64]
    kinds: NDArray[np.int64]
    numbers: NDArray[np.float64]
    texts: NDArray[np.int64]
    usual: int
    own: int = 0
    left_out: int = 0
    through: frozenset[str] = frozenset()
    order: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, which: slice | NDArray[np.int64]) -> "FeatureTable":
        """Return some of the rows."""
        return dataclasses.replace(
            self,
            whole=self.whole[which],
            kinds=self.kinds[which],
            numbers=self.numbers[which],
            texts=self.texts[which],
            order=None if self.order is None else self.order[which],
        )

    @property
    def widths(self) -> tuple[int, int]:
        """How many places there are for numbers, and how many for texts."""
        return self.numbers.shape[1], self.texts.shape[1]

    def with_widths(self, widths: tuple[int, int]) -> "FeatureTable":
        """Return the table with these widths, cut or padded."""
        if self.widths == widths:
            return self
        return dataclasses.replace(
            self,
            numbers=_fit(self.numbers, widths[0], np.nan),
            texts=_fit(self.texts, widths[1], 0),
            order=None,
        )

    def ordered(self) -> NDArray[np.float64]:
        """Return features of vectors that do not depend on the order of entries."""
        return _ordered(self.numbers) if self.order is None else self.order


def _ordered(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    n, width = numbers.shape
    if width < 2:
        return np.zeros((n, 0))
    missing = np.isnan(numbers)
    low = np.where(missing, np.inf, numbers)
    high = np.where(missing, -np.inf, numbers)
    filled = np.where(missing, 0.0, numbers)
    with np.errstate(all="ignore"):
        features = [
            filled.sum(axis=1),
            low.min(axis=1),
            high.max(axis=1),
            low.argmin(axis=1),
            high.argmax(axis=1),
            np.count_nonzero(filled, axis=1),
        ]
    columns = [np.stack(features, axis=1)]
    columns[0][missing.all(axis=1)] = np.nan
    if width <= _MOST_SORTED:
        columns.append(np.sort(numbers, axis=1))
    return np.concatenate(columns, axis=1)


def _fit(columns: NDArray[N], width: int, absent: float) -> NDArray[N]:
    """Return this number of columns: the first ones, or all and empty ones."""
    missing = max(0, width - columns.shape[1])
    return np.pad(columns[:, :width], ((0, 0), (0, missing)), constant_values=absent)


def tabulate(outputs: Sequence[object]) -> FeatureTable:
    """Return the table of outputs.

    Example:
        >>> table = tabulate([0.5, (0.5, "yes"), None])
        >>> table.numbers[:, 0], len(set(table.kinds.tolist()))
        (array([0.5, 0.5, nan]), 3)
    """
    return collect([read(output) for output in outputs])


def collect(
    rows: Sequence[OutputFeatures], *, widths: tuple[int, int] | None = None
) -> FeatureTable:
    """Return the table of outputs that were read, with given widths if any."""
    lengths = np.array([len(row.numbers) for row in rows], int)
    most = (int(lengths.max(initial=0)), max((len(r.texts) for r in rows), default=0))
    for_numbers, for_texts = most if widths is None else widths
    numbers = _columns([r.numbers for r in rows], for_numbers, np.nan, np.float64)
    return FeatureTable(
        whole=np.array([row.whole for row in rows], np.int64),
        kinds=np.array([row.kind for row in rows], np.int64),
        numbers=numbers,
        texts=_columns([row.texts for row in rows], for_texts, 0, np.int64),
        usual=min(most[0], max(1, int(np.median(lengths)))) if len(rows) else 0,
        own=max((row.own for row in rows), default=0),
        left_out=max((row.left_out for row in rows), default=0),
        through=frozenset().union(*(row.through for row in rows)),
        order=_order_of_wide(numbers),
    )


def _order_of_wide(numbers: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return ``_ordered`` of a wide table, a few rows at a time; None if narrow."""
    n, width = numbers.shape
    if width <= WIDEST or not n:
        return None
    size = max(1, _VALUES_AT_ONCE // width)
    return np.concatenate([_ordered(numbers[i : i + size]) for i in range(0, n, size)])


def joined(tables: Sequence[FeatureTable]) -> FeatureTable:
    """Return the rows of tables of equal widths as one table."""
    first, orders = tables[0], [t.order for t in tables if t.order is not None]
    return dataclasses.replace(
        first,
        whole=np.concatenate([t.whole for t in tables]),
        kinds=np.concatenate([t.kinds for t in tables]),
        numbers=np.concatenate([t.numbers for t in tables]),
        texts=np.concatenate([t.texts for t in tables]),
        own=max(t.own for t in tables),
        left_out=max(t.left_out for t in tables),
        through=frozenset().union(*(t.through for t in tables)),
        order=np.concatenate(orders) if orders else None,
    )


def _columns(
    rows: Sequence[Sequence[float] | NDArray[np.float64]],
    width: int,
    absent: float,
    kind: type[N],
) -> NDArray[N]:
    """Return rows of different lengths as a rectangle."""
    table = np.full((len(rows), width), absent, kind)
    lengths = np.array([len(row) for row in rows], int)
    for length in np.unique(lengths):
        which = np.flatnonzero(lengths == length)
        used = min(int(length), width)
        if used > WIDEST:  # row by row, to avoid a second copy of all
            for i in which:
                table[i, :used] = rows[int(i)][:used]
        elif used:
            table[which, :used] = np.array([rows[int(i)] for i in which], kind)[
                :, :used
            ]
    return table


def read(output: object) -> OutputFeatures:
    """Return the features of an output, copied from anything that may change later.

    Raises:
        InvalidInputError: It cannot be compared with another.
    """
    kind = type(output)
    if kind in _PLAIN_NUMBERS and abs(output) <= _LARGEST_EXACT_FLOAT:  # type: ignore[arg-type]
        number = float(output)  # type: ignore[arg-type]
        name = _name(kind)
        return OutputFeatures(
            _code(name), _code(name, pack("d", number)), (number,), ()
        )
    array = _numeric(output)
    if array is not None:
        layout = f"{_name(kind)} {array.dtype}{array.shape}"
        numbers = array.ravel()[:PLACES].astype(np.float64)
        whole = _code(layout, array.tobytes())
        beyond = max(0, array.size - PLACES)
        return OutputFeatures(_code(layout), whole, numbers, (), left_out=beyond)
    return _taken_apart(list(_leaves(output)))


def _taken_apart(leaves: list[tuple[str, float | str]]) -> OutputFeatures:
    kinds = "/".join(name for name, _ in leaves)
    floats = [value for _, value in leaves if isinstance(value, float)]
    texts = [(name, _code(value)) for name, value in leaves if isinstance(value, str)]
    own = [code for name, code in texts if name not in _SECONDARY_TEXTS]
    aside = [code for name, code in texts if name in _SECONDARY_TEXTS]
    wide = len(floats) > WIDEST
    return OutputFeatures(
        kind=_code(kinds),
        whole=_code(kinds, *(_exactly(value) for _, value in leaves)),
        numbers=np.array(floats[:PLACES]) if wide else floats,
        texts=[*own, *aside][:PLACES],
        own=min(len(own), PLACES),
        left_out=max(0, len(floats) - PLACES) + max(0, len(texts) - PLACES),
        through=frozenset(
            name.removeprefix(_REPR_PREFIX)
            for name, _ in leaves
            if name.startswith(_REPR_PREFIX)
        ),
    )


def _code(first: str, *parts: str | bytes) -> int:
    """Return a hash of 64 bits; different values have different ones."""
    state = _start(first)
    if not parts:
        return int.from_bytes(state.digest(), "little", signed=True)
    state = state.copy()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode(errors="surrogatepass")
        if len(parts) > 1:  # so that no two sequences of parts are one text
            state.update(pack("q", len(data)))
        state.update(data)
    return int.from_bytes(state.digest(), "little", signed=True)


@lru_cache(maxsize=4096)
def _start(first: str) -> Any:  # noqa: ANN401 (hashlib does not export its types)
    """Return the state after the first part: types, which recur."""
    return blake2b(first.encode(errors="surrogatepass") + b"\0", digest_size=8)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _numeric(output: object) -> NDArray[np.generic] | None:
    """Return an array of numbers, or a list of numbers of one type, as an array."""
    if isinstance(output, list | tuple):
        kinds = set(map(type, output))
        if type(output) not in (list, tuple) or kinds not in ({float}, {int}):
            return None
        array = np.array(output)  # not int64 if a whole number is too large
        wanted = np.int64 if kinds == {int} else np.float64
        return array if array.dtype == wanted else None
    if isinstance(output, np.generic | np.ma.MaskedArray):
        return None
    values = _as_array(output)
    plain = values is not None and values.dtype.kind in "fiub"
    # Longer floats contain padding bytes without meaning.
    return values if plain and values.dtype.itemsize <= 8 else None  # type: ignore[union-attr]


def _as_array(output: object) -> NDArray[np.generic] | None:
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
    """Yield the type and the value at each place of an output."""
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
            yield "order", repr([_text(name) for name in output])
            for name in sorted(output, key=_text):
                yield "key", _text(name)
                yield from _leaves(output[name])
        case AbstractSet():
            yield f"{kind}{len(output)}", ""
            for value in sorted(output, key=_text):
                yield from _leaves(value)
        case tuple() | list() | deque():
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
        shown = isinstance(output, _SHOWN_BY_REPR)
        yield kind if shown else _REPR_PREFIX + kind, _text(output)
        if isinstance(output, Real | Decimal):
            yield "about", _number(output)


def _array_leaves(
    values: NDArray[np.generic], kind: str
) -> Iterator[tuple[str, float | str]]:
    yield f"{kind} {values.dtype}{values.shape}", ""
    for value in values.ravel():
        if values.dtype.kind == "O":
            yield from _leaves(value)
            continue
        yield "", _number(value) if values.dtype.kind in "fiub" else _text(value)
        yield from _beyond_floats(value)


def _beyond_floats(value: object) -> Iterator[tuple[str, str]]:
    """Yield a whole number also as text if it may have no exact float."""
    if isinstance(value, int | np.integer) and abs(int(value)) > _LARGEST_EXACT_FLOAT:
        yield "exactly", hex(value)


def _number(value: Any) -> float:  # noqa: ANN401 (any number)
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return np.inf if value > 0 else -np.inf


def _exactly(value: float | str) -> str | bytes:
    return value if isinstance(value, str) else pack("d", value)


def _text(value: object) -> str:
    """Return a text that represents a value, if equal values have equal texts."""
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
