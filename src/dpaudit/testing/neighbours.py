"""Pairs of neighbouring inputs that implementations get wrong, from a description.

Whoever tests a private function must know its worst neighbours, and faults hide where
nobody thought of them: an empty data set, a null, NaN, infinities and minus zero,
numbers near overflow, both ends of a clamp and values on the edge of a bin, many rows
of one user, repeated rows, texts that differ in case or hold a null character. Here
they are made from a description of the inputs, the most telling first.

Every pair is neighbouring by construction: values keep to their bounds and are null or
NaN only if that is allowed; a public column has one value in all rows; data sets are no
longer than allowed, and of one size if that is public. A description that allows more
than the function's documentation does makes false positives.

- ``Rows``: a data set of records. One is added or removed, some are replaced, or all
  rows of one user are.
- ``Numbers``: a vector of numbers that changes by a distance in some norm.
- ``Value``: a single value, changed by a distance or to any other.
- ``BitString``: bits, of which any may change.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Any, Literal, TypeAlias, final

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.testing.calling import OneValue
from dpaudit.testing.sequential import Pair

__all__ = [
    "BitString",
    "Booleans",
    "Column",
    "Floats",
    "Integers",
    "Numbers",
    "Rows",
    "Schema",
    "Strings",
    "Value",
    "neighbouring_pairs",
]

_MOST_PAIRS = 80
_LARGEST = 1e308
_USER_ROWS = ((100, True), (100, False), (2, True), (2, False), (1, False))
_SIZES = (0, 1, 3, 16)
Labelled: TypeAlias = tuple[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """Whole numbers.

    Attributes:
        low: The least.
        high: The largest.
        nullable: Whether None is allowed.
        public: Whether neighbours share all values, as a key that is not protected.
    """

    low: int = -(2**63)
    high: int = 2**63 - 1
    nullable: bool = False
    public: bool = False

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def typical(self) -> int:
        """Return an unremarkable value: 1 if allowed."""
        return min(max(1, self.low), self.high)

    def special(self) -> list[Labelled]:
        """Return labelled values that are often treated wrongly."""
        found = {
            "highest": self.high,
            "lowest": self.low,
            "zero": 0,
            "two": 2,
            "minus one": -1,
            "a million": 10**6,
            "highest - 1": self.high - 1,
        }
        inside = [(k, v) for k, v in found.items() if self.low <= v <= self.high]
        return _distinct(self, inside)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Floats:
    """Floating-point numbers.

    Attributes:
        low: The least; minus infinity allows it too.
        high: The largest.
        nan: Whether NaN is allowed.
        nullable: Whether None is allowed.
        public: Whether neighbours share all values.
    """

    low: float = -math.inf
    high: float = math.inf
    nan: bool = True
    nullable: bool = False
    public: bool = False

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    def typical(self) -> float:
        """Return an unremarkable value: the middle, or 1."""
        if math.isfinite(self.high - self.low):
            return self.low + (self.high - self.low) / 2
        return min(max(1.0, self.low), self.high)

    def special(self) -> list[Labelled]:
        """Return labelled values that are often treated wrongly."""
        found = {
            "highest": self.high,
            "lowest": self.low,
            "zero": 0.0,
            "1e308": _LARGEST,
            "-1e308": -_LARGEST,
            "one": 1.0,
            "2^53": 2.0**53,
            "the least positive": 5e-324,
            "minus zero": -0.0,
            "ten": 10.0,
        }
        nan = [("NaN", math.nan)] if self.nan else []
        inside = [(k, v) for k, v in found.items() if self.low <= v <= self.high]
        return _distinct(self, [*nan, *inside])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Strings:
    """Texts.

    Attributes:
        values: All that are allowed; empty for any text.
        nullable: Whether None is allowed.
        public: Whether neighbours share all values.
    """

    values: tuple[str, ...] = ()
    nullable: bool = False
    public: bool = False

    def typical(self) -> str:
        """Return an unremarkable value."""
        return self.values[0] if self.values else "a"

    def special(self) -> list[Labelled]:
        """Return labelled values that are often treated wrongly."""
        found = {
            "another": "zz",
            "empty": "",
            "null character": "a\x00",
            "300 letters": "a" * 300,
            "accent": "\u00e4",
            "upper case": "A",
        }
        allowed = {repr(each): each for each in self.values} or found
        return _distinct(self, list(allowed.items()))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Booleans:
    """True and False.

    Attributes:
        nullable: Whether None is allowed.
        public: Whether neighbours share all values.
    """

    nullable: bool = False
    public: bool = False

    def typical(self) -> bool:
        """Return False."""
        return False

    def special(self) -> list[Labelled]:
        """Return the other values."""
        return _distinct(self, [("True", True)])


Column: TypeAlias = Integers | Floats | Strings | Booleans


def _distinct(column: Column, values: list[Labelled]) -> list[Labelled]:
    """Return null if allowed, and the values that differ from the typical one."""
    found = {repr(column.typical()): ("", None)}
    for label, value in [("null", None), *values] if column.nullable else values:
        found.setdefault(repr(value), (label, value))
    return list(found.values())[1:]


def _check_bounds(low: float, high: float) -> None:
    if not low <= high:
        raise InvalidInputError(f"low must be at most high, got {low=}, {high=}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A data set of records.

    Attributes:
        columns: The values of a record, or of each of its columns by name. Records of
            named columns are tuples in their order.
        change: What makes data sets neighbours: "add-remove" or "replace" some records,
            or all rows of a "user".
        distance: How many records change at most.
        size: The number of records, if it is public.
        max_length: The largest number of records that is allowed.
        user: The column that names the user; required for that change.
        build: Makes the input from a list of records; None for the list itself.
        code: Code that does, with ``{rows}`` for the list; to repeat a refutation.
    """

    columns: Column | Mapping[str, Column]
    change: Literal["add-remove", "replace", "user"] = "add-remove"
    distance: int = 1
    size: int | None = None
    max_length: int | None = None
    user: str | None = None
    build: Callable[[list[Any]], Any] | None = None
    code: str = "{rows}"

    def __post_init__(self) -> None:
        _validate.whole_number("distance", self.distance, least=1)
        if self.change not in ("add-remove", "replace", "user"):
            raise InvalidInputError(
                'change must be "add-remove", "replace" or "user", got '
                f"change={self.change!r}"
            )
        named = self._named()
        if self.change == "user" and self.user not in named:
            raise InvalidInputError(
                f"user must name one of the columns {sorted(named)}, got "
                f"user={self.user!r}"
            )
        if self.size is not None and self.change != "replace":
            raise InvalidInputError(
                f"data sets of the public size={self.size} are neighbours if records "
                'are replaced: pass change="replace"'
            )

    def pairs(self) -> Iterator[Pair]:
        """Yield labelled pairs, the most telling first."""
        match self.change:
            case "user":
                yield from self._users()
            case "replace":
                yield from self._replaced(self.distance)
            case _:
                yield from self._added()
                if self.distance >= 2:  # removing one and adding another
                    yield from self._replaced(self.distance // 2)

    def _named(self) -> Mapping[str, Column]:
        return self.columns if isinstance(self.columns, Mapping) else {"": self.columns}

    def _usual(self) -> tuple[Any, ...]:
        return tuple(column.typical() for column in self._named().values())

    def _special(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return rows with one special value each, then some with only such."""
        named, usual = self._named(), self._usual()
        found = []
        for j, (name, column) in enumerate(named.items()):
            for label, value in [] if column.public else column.special():
                row = (*usual[:j], value, *usual[j + 1 :])
                found.append((f"{name} {label}".strip(), row))
        free = [column.special() for column in named.values()]
        if len(named) > 1 and not any(column.public for column in named.values()):
            for k in range(min(3, max(map(len, free)))):
                row = tuple(each[k % len(each)][1] for each in free)
                found.append((f"all special, {k + 1}", row))
        return found

    def _rows(self) -> list[tuple[str, tuple[Any, ...]]]:
        return [("usual", self._usual()), *self._special()]

    def _longest(self) -> int:
        return self.max_length or self.size or 100

    def _added(self) -> Iterator[Pair]:
        longest, rows = self._longest(), self._rows()
        sizes = sorted({min(n, longest) for n in (*_SIZES, longest)}, reverse=True)
        sizes = sorted(sizes, key=lambda n: -min(n, 17))
        for n in sizes:
            for kept, base in rows if n == longest else rows[:4]:
                full = [base] * min(n, longest - 1)
                for label, row in rows:
                    name = f"{label}, {{}} {len(full)} x {kept}"
                    yield self._pair(name.format("before"), [row, *full], full)
                    yield self._pair(name.format("after"), [*full, row], full)

    def _replaced(self, records: int) -> Iterator[Pair]:
        longest, rows = self._longest(), self._rows()
        sizes = [self.size] if self.size else [3, 16, 1, longest]
        for n in sizes:
            count = min(records, n, longest)
            bases = rows[: 2 if n > 3 else 4]
            for (kept, base), (one, first), (other, second) in product(
                bases, rows, rows
            ):
                if one == other or (one != "usual" and count == 1 and len(rows) > 9):
                    continue
                rest = [base] * (min(n, longest) - count)
                name = (
                    f"{count} of {count + len(rest)}: {one} by {other}, beside {kept}"
                )
                yield self._pair(name, [first] * count + rest, [second] * count + rest)

    def _users(self) -> Iterator[Pair]:
        longest = self._longest() if self.max_length or self.size else 10**6
        for (count, spread), beside in product(_USER_ROWS, (True, False)):
            if count * (2 if beside else 1) > longest:
                continue
            own = self._of_user(0, count, spread=spread)
            rest = self._of_user(1, count, spread=spread) if beside else []
            different = ", all different" if spread else ""
            name = f"a user of {count} rows{different}, beside {len(rest)}"
            yield self._pair(name, own + rest, rest)

    def _of_user(self, user: int, count: int, *, spread: bool) -> list[tuple[Any, ...]]:
        rows = []
        for i in range(count):
            row: list[Any] = []
            for name, column in self._named().items():
                if name == self.user:
                    row.append(user if isinstance(column, Integers) else f"user {user}")
                elif spread and not column.public:
                    row.append(_numbered(column, i))
                else:
                    row.append(column.typical())
            rows.append(tuple(row))
        return rows

    def _pair(
        self, label: str, x: list[tuple[Any, ...]], y: list[tuple[Any, ...]]
    ) -> Pair:
        plain = not isinstance(self.columns, Mapping)
        first, second = ([r[0] for r in rows] if plain else rows for rows in (x, y))
        build = self.build or list
        code = "\n".join(
            f"{name} = {self.code.format(rows=_code(rows))}"
            for name, rows in (("x", first), ("y", second))
        )
        return Pair(label, OneValue(x=build(first), y=build(second)), code)


def _numbered(column: Column, i: int) -> Any:  # noqa: ANN401 (a value of the column)
    """Return one of many different values of a column, as far as it has them."""
    match column:
        case Integers():
            return min(max(i, column.low), column.high)
        case Floats():
            return min(max(float(i), column.low), column.high)
        case Strings(values=()):
            return f"k{i}"
        case Strings(values=values):
            return values[i % len(values)]
        case Booleans():
            return bool(i % 2)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A vector of numbers, such as the answers of several queries.

    Attributes:
        values: The values.
        norm: The norm of the change.
        distance: The largest norm of the change.
        size: The length, if it is fixed.
    """

    values: Integers | Floats
    norm: Literal["l1", "l2", "linf"] = "l1"
    distance: float = 1
    size: int | None = None

    def pairs(self) -> Iterator[Pair]:
        """Yield labelled pairs, the most telling first."""
        for n in [self.size] if self.size else [2, 3, 8, 1]:
            special = [(k, v) for k, v in self.values.special() if _finite(v)]
            bases = [("zero", [0] * n)] + [
                (
                    f"{label} {where}",
                    [v] * n if where == "everywhere" else [v, *[0] * (n - 1)],
                )
                for label, v in special
                for where in ("everywhere", "first")
            ]
            for (label, base), move in product(bases, self._moves(n)):
                x = [self._number(v) for v in base]
                y = [self._number(v + k) for v, k in zip(base, move, strict=True)]
                if all(map(self._inside, [*x, *y])) and self._near(x, y):
                    name = f"{label}, {n} numbers, moved by {move[:3]}"
                    yield _plain_pair(name, x, y)

    def _moves(self, n: int) -> list[list[float]]:
        d, rest = self.distance, [0] * (n - 1)
        if self.norm in ("l1", "l2"):
            return [[d, *rest], [*rest, d], [-d, *rest]]
        return [[d, *[-d] * (n - 1)], [d] * n, [d, *rest], [-d, *[d] * (n - 1)]]

    def _number(self, value: float) -> float:
        return int(value) if isinstance(self.values, Integers) else float(value)

    def _inside(self, value: float) -> bool:
        return self.values.low <= value <= self.values.high

    def _near(self, x: list[float], y: list[float]) -> bool:
        """Whether rounding left the change within the distance."""
        changes = [abs(b - a) for a, b in zip(x, y, strict=True)]
        return max(changes) <= self.distance and x != y


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A single value.

    Attributes:
        values: The values.
        distance: How far a number may change; None for any other value.
    """

    values: Column
    distance: float | None = None

    def pairs(self) -> Iterator[Pair]:
        """Yield labelled pairs, the most telling first."""
        all_values = [("typical", self.values.typical()), *self.values.special()]
        if self.distance is None:
            for (one, x), (other, y) in combinations(all_values, 2):
                yield _plain_pair(f"{one} and {other}", x, y)
            return
        for (label, value), sign in product(all_values, (1, -1)):
            if not _finite(value) or not isinstance(self.values, Integers | Floats):
                continue
            moved = value + sign * self.distance
            moved = int(moved) if isinstance(self.values, Integers) else moved
            inside = self.values.low <= moved <= self.values.high
            if inside and 0 < abs(moved - value) <= self.distance:
                yield _plain_pair(f"{label} {sign * self.distance:+g}", value, moved)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BitString:
    """Bits, of which any may change.

    Attributes:
        bits: How many there are; a multiple of 8.
        max_weight: The largest number of ones.
        same_length: Whether the length is public.
    """

    bits: int = 8
    max_weight: int | None = None
    same_length: bool = False

    def pairs(self) -> Iterator[Pair]:
        """Yield labelled pairs, the most telling first."""
        size = max(1, self.bits // 8)
        zero = bytes(size)
        for i in (0, self.bits - 1, *range(1, self.bits - 1)):
            one = bytearray(size)
            one[i // 8] |= 1 << (i % 8)
            yield _plain_pair(f"bit {i}", zero, bytes(one))
        if not self.same_length:
            yield _plain_pair("one byte longer", zero, bytes(size + 1))
            yield _plain_pair("empty", zero, b"")
        if self.max_weight is None or self.max_weight >= 8 * size:
            yield _plain_pair("all ones", zero, b"\xff" * size)


Schema: TypeAlias = Rows | Numbers | Value | BitString


def neighbouring_pairs(
    schema: Schema | Iterable[Pair], *, most: int = _MOST_PAIRS
) -> list[Pair]:
    """Return pairs of neighbouring inputs, at most so many, the most telling first.

    Args:
        schema: A description of the inputs and of what may change, or pairs.
        most: How many pairs.

    Example:
        >>> ages = Rows(columns=Integers(low=0, high=120), max_length=5)
        >>> pairs = neighbouring_pairs(ages)
        >>> pairs[0].label, pairs[0].neighbours.x, pairs[0].neighbours.y
        ('usual, before 4 x usual', [1, 1, 1, 1, 1], [1, 1, 1, 1])
        >>> len(pairs)
        80
    """
    found = schema.pairs() if isinstance(schema, Schema) else schema
    return list(islice(_different(found), most))


def _different(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs with labels that were not there before."""
    seen: set[str] = set()
    for pair in pairs:
        if pair.label not in seen:
            seen.add(pair.label)
            yield pair


def _plain_pair(label: str, x: object, y: object) -> Pair:
    code = f"x = {_code(x)}\ny = {_code(y)}"
    return Pair(label, OneValue(x=x, y=y), code)


def _finite(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _code(value: object) -> str:
    """Return Python code of a value; NaN and infinities have no literal.

    Example:
        >>> _code([(1, float("nan")), ("a", None)])
        "[(1, float('nan')), ('a', None)]"
    """
    match value:
        case float() if not math.isfinite(value):
            return f"float('{value}')"
        case list():
            return "[" + ", ".join(map(_code, value)) + "]"
        case tuple():
            return "(" + ", ".join(map(_code, value)) + ("," * (len(value) == 1)) + ")"
    return repr(value)
