"""Call the function under test: with which input, and what counts as output.

Every call gets its own copy of the input, so that a function that changes its argument
does not affect the next call. A function with a parameter named ``rng`` is given a
generator derived from the audit's key; the generators of ``random`` and
``numpy.random`` are seeded from the key during the audit, and restored afterwards. So
an audit can be repeated exactly, unless the function has another source of randomness.

An exception is an error of the test and is raised, with a note that names the input.
Exceptions that users of the function may see can be named beforehand; they then count
as outputs. Every output is read before the next call, so that a function may reuse the
array that it returned.

The two inputs must differ: no function distinguishes equal inputs, so a test of such a
pair could not fail. Inputs differ if any function could distinguish them: 1 and True
do, 0.0 and -0.0 do, NaN and NaN do not.
"""

import copy
import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.testing.features import PLACES, Bits, OutputFeatures, read

__all__ = ["Calling", "Neighbours", "OneRecord", "OneValue", "seeded"]

_NOT_COPIED = (int, float, complex, str, bytes, type(None), np.generic)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneValue:
    """Two values for a function of one value; they may be whole data sets.

    Attributes:
        x: The input of a call if its coin is 0.
        y: The input if it is 1.
    """

    x: object
    y: object

    def __post_init__(self) -> None:
        _must_differ(self.x, self.y, x=self.x, y=self.y)

    def input(self, bit: int) -> object:
        """Return a call's input."""
        value = self.y if bit else self.x
        return value if isinstance(value, _NOT_COPIED) else copy.deepcopy(value)

    def __str__(self) -> str:
        return f"pairs of values than ({_short(self.x)}, {_short(self.y)})"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneRecord:
    """A data set for a function of one, and two records for one place of it.

    Attributes:
        data: A list, a tuple or an array; it is not changed.
        index: The index of the record in the data.
        x: The record there if a call's coin is 0.
        y: The record there if it is 1.
    """

    data: Any
    index: int
    x: object
    y: object

    def __post_init__(self) -> None:
        _validate.whole_number("index", self.index)
        if not isinstance(self.data, list | tuple | np.ndarray):
            raise InvalidInputError(
                "data must be a list, a tuple or an array, got "
                f"{type(self.data).__name__}; for another data set pass both of its "
                "versions as pairs=(x, y), without data and index"
            )
        if self.index >= len(self.data):
            raise InvalidInputError(
                f"there is no index={self.index} among {len(self.data)} records"
            )
        in_array = isinstance(self.data, np.ndarray)  # where 1 and True are equal
        placed = [self._array(r)[self.index] for r in (self.x, self.y) if in_array]
        _must_differ(*(placed or (self.x, self.y)), x=self.x, y=self.y)

    def input(self, bit: int) -> object:
        """Return a call's input."""
        record = self.y if bit else self.x
        if isinstance(self.data, np.ndarray):
            return self._array(record)
        records = copy.deepcopy(list(self.data))
        records[self.index] = copy.deepcopy(record)
        return type(self.data)(records) if type(self.data) is tuple else records

    def _array(self, record: object) -> NDArray[Any]:
        # A type that holds data and both records: nothing is rounded or truncated.
        kind = np.result_type(self.data, np.asarray(self.x), np.asarray(self.y))
        array: NDArray[Any] = self.data.astype(kind)
        array[self.index] = record
        return array

    def __str__(self) -> str:
        pair = f"({_short(self.x)}, {_short(self.y)})"
        return f"data, places and pairs of records than {pair} at {self.index}"


Neighbours: TypeAlias = OneValue | OneRecord


def _must_differ(first: object, second: object, *, x: object, y: object) -> None:
    if _same(first, second):
        raise InvalidInputError(
            f"x and y must differ, got x={_short(x)} and y={_short(y)}: no function "
            "tells an input from itself, so this test could not fail; pass two inputs "
            "that should be hard to tell apart"
        )


def _same(first: object, second: object) -> bool:
    """Return whether no function distinguishes two inputs, as far as can be seen."""
    if first is second or type(first) is not type(second):
        return first is second
    try:
        rows = read(first), read(second)
    except (InvalidInputError, MemoryError):  # not comparable as outputs are
        return _same_state(first, second)
    if rows[0].whole != rows[1].whole:
        return False
    return not rows[0].through or _same_state(first, second)


def _same_state(first: object, second: object) -> bool:
    """Return whether two objects of one type have the same state."""
    try:
        one, other = _parts(first), _parts(second)
        return len(one) == len(other) and all(map(_same, one, other))
    except Exception:  # an object may refuse to be reduced with any error
        return False


def _parts(whole: object) -> list[object]:
    """Return the parts from which an object can be reconstructed (pickling)."""
    reduced = whole.__reduce_ex__(2)
    if isinstance(reduced, str):  # the name of a global object
        return [reduced]
    _, arguments, *more = reduced
    state, *items = more or [None]
    return [*arguments, state, *(part for each in items if each for part in each)]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calling:
    """A function as a mechanism of many coins, one call for each.

    Attributes:
        function: The function under test.
        neighbours: The inputs it is called with.
        raising: Exceptions that count as outputs.
        allow_unseen: Whether outputs may have places that are not inspected.
    """

    function: Callable[..., object]
    neighbours: Neighbours
    raising: tuple[type[Exception], ...]
    allow_unseen: bool = False

    def run(self, data: Bits, rng: np.random.Generator) -> list[OutputFeatures]:
        """Call the function once for every coin; return the features of each output."""
        __tracebackhide__ = True  # pytest shows the function's frames, not ours
        given = rng if _takes_rng(self.function) else None
        rows = []
        for bit in data:
            rows.append(self._read(self._call(int(bit), given)))
        return rows

    def _read(self, output: object) -> OutputFeatures:
        row = read(output)
        if row.left_out and not self.allow_unseen:
            places = len(row.numbers) + len(row.texts) + row.left_out
            raise InvalidInputError(
                f"the output has {places} places and {places - row.left_out} are "
                f"read (up to {PLACES} numbers and as many texts), so a leak in "
                "the others would pass; return fewer, or allow it with "
                "allow_unseen=True: the result then names them"
            )
        return row

    def _call(self, bit: int, rng: np.random.Generator | None) -> object:
        __tracebackhide__ = True
        given = self.neighbours.input(bit)
        try:
            if rng is None:
                return self.function(given)
            return self.function(given, rng=rng)
        except self.raising as error:
            return ("raised", type(error).__name__, str(error))
        except Exception as error:
            error.add_note(
                f"dp_audit called the mechanism with {_short(given)}; if users are "
                f"meant to see this exception, name it: raising=("
                f"{type(error).__name__},)"
            )
            raise


def _takes_rng(function: Callable[..., object]) -> bool:
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@contextmanager
def seeded(key: Key) -> Iterator[None]:
    """Seed the global generators from a key; restore them afterwards."""
    seed = key.stream("global generators", 0, 32)
    plain, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(list(seed))  # noqa: NPY002 (the function may use it)
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002
