"""Pairs of neighbouring inputs that implementations get wrong, from a description.

Whoever tests a private function must know its worst neighbours, and faults hide where
nobody thought of them: an empty data set, a null, NaN, infinities and minus zero,
numbers near overflow, both ends of a clamp and values on the edge of a bin, many rows
of one user, repeated rows, texts that differ in case or hold a null character. Here
they are made from a description of the inputs, the most telling first.

Every pair is neighbouring by construction: values keep to their bounds and are null or
NaN only if that is allowed; a public column has one value in all rows; data sets are no
longer than allowed, and of one size if that is public. Distances between numbers are
checked exactly, since the sum of two floats is rounded. A description that allows more
than the function's documentation does makes false positives.

There are more pairs than can be bet on. So each special value comes with usual ones
first, in long and short data sets in turn, and special values together come last.

- ``Rows``: a data set of records. One is added or removed, some are replaced, or all
  rows of one user are.
- ``Numbers``: a vector of numbers that changes by a distance in some norm.
- ``Value``: a single value, changed by a distance or to any other.
- ``BitString``: bits, of which any may change.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations, islice, product, zip_longest
from typing import Any, Literal, TypeAlias, TypeVar, final

import numpy as np

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
    "in_turn",
    "neighbouring_pairs",
]

_MOST_PAIRS = 80
_USER_ROWS = ((100, True), (100, False), (2, True), (2, False), (1, False))
_SIZES = (0, 3, 16, 1)  # of short data sets
_BASES = 4  # kinds of records that short data sets are filled with
_LONGEST = 100  # if nothing is known
_MOST_USERS = 1000  # numbers above the first are left for users
_DIFFERENT = "different"  # label of records that all differ
# By the bits of a float: a large one, the whole number after which some are missing,
# and the least positive one.
_LARGEST = {64: 1e308, 32: float(np.float32(3e38))}
_MISSING_AFTER = {64: 53, 32: 24}
_LEAST = {64: 5e-324, 32: float(np.finfo(np.float32).smallest_subnormal)}

T = TypeVar("T")
Labelled: TypeAlias = tuple[str, Any]
Records: TypeAlias = list[tuple[Any, ...]]


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
        bits: The bits of a number: with 32, all values are numbers of 32 bits.
    """

    low: float = -math.inf
    high: float = math.inf
    nan: bool = True
    nullable: bool = False
    public: bool = False
    bits: Literal[32, 64] = 64

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        for name, bound in (("low", self.low), ("high", self.high)):
            if self.rounded(bound) != bound:
                raise InvalidInputError(
                    f"{name} must be a number of {self.bits} bits, got {name}={bound!r}"
                )
            object.__setattr__(self, name, float(bound))

    def typical(self) -> float:
        """Return an unremarkable value: the middle, or 1."""
        if math.isfinite(self.high - self.low):
            return self.rounded(self.low + (self.high - self.low) / 2)
        return min(max(1.0, self.low), self.high)

    def special(self) -> list[Labelled]:
        """Return labelled values that are often treated wrongly."""
        largest, places = _LARGEST[self.bits], _MISSING_AFTER[self.bits]
        found = {
            "highest": self.high,
            "lowest": self.low,
            "zero": 0.0,
            f"{largest:g}".replace("+", ""): largest,
            f"{-largest:g}".replace("+", ""): -largest,
            "one": 1.0,
            f"2^{places}": 2.0**places,
            "the least positive": _LEAST[self.bits],
            "minus zero": -0.0,
            "ten": 10.0,
            "just above the lowest": self.next_to(self.low, self.typical()),
            "just below the highest": self.next_to(self.high, self.typical()),
        }
        nan = [("NaN", math.nan)] if self.nan else []
        inside = [(k, v) for k, v in found.items() if self.low <= v <= self.high]
        return _distinct(self, [*nan, *inside])

    def next_to(self, value: float, other: float) -> float:
        """Return the number next to a value, in the direction of another."""
        kind = np.float64 if self.bits == 64 else np.float32
        return float(np.nextafter(kind(value), kind(other), dtype=kind))

    def rounded(self, value: float) -> float:
        """Return the nearest number of this many bits."""
        with np.errstate(over="ignore"):
            return float(value if self.bits == 64 else np.float32(value))


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
        distance: How many records, or users, change at most.
        order: Where records may change: each in its place ("positions"), by insertions
            and deletions anywhere ("edits"), or anywhere, since data sets that differ
            in the order of their records are neighbours at distance 0 ("free").
        size: The number of records, if it is public.
        min_length: The least number of records beside the shared ones; 1 if a public
            column must hold its value in both data sets.
        max_length: The largest number of records that is allowed.
        shared: Records that are at the end of all data sets, such as one for each
            public key.
        user: The column that names the user; required for that change.
        build: Makes the input from a list of records; None for the list itself.
        code: Code that does, with ``{rows}`` for the list; to repeat a refutation.
        setup: Code that comes before it, such as imports.
    """

    columns: Column | Mapping[str, Column]
    change: Literal["add-remove", "replace", "user"] = "add-remove"
    distance: int = 1
    order: Literal["positions", "edits", "free"] = "positions"
    size: int | None = None
    min_length: int = 0
    max_length: int | None = None
    shared: tuple[tuple[Any, ...], ...] = ()
    user: str | None = None
    build: Callable[[list[Any]], Any] | None = None
    code: str = "{rows}"
    setup: str = ""

    def __post_init__(self) -> None:
        _validate.whole_number("distance", self.distance, least=1)
        _one_of("change", self.change, ("add-remove", "replace", "user"))
        _one_of("order", self.order, ("positions", "edits", "free"))
        if self.change == "user":
            _check_user(self.user, self._named(), self.distance)
        public = any(column.public for column in self._named().values())
        if public and not self.shared:  # both data sets hold the public values
            object.__setattr__(self, "min_length", max(1, self.min_length))
        if self.size is not None and self.size > (self.max_length or self.size):
            raise InvalidInputError(
                f"size={self.size} is above max_length={self.max_length}"
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
                replaced = self._replaced(self.distance)
                moved = chain(self._shifted(), self._reordered())
                yield from in_turn(replaced, replaced, moved)
            case _:
                added, half = self._added(), self.distance // 2
                if half:  # removing one and adding another
                    moved = chain(self._shifted(), self._reordered())
                    yield from in_turn(added, self._replaced(half), moved)
                else:
                    yield from in_turn(added, added, added, self._reordered())

    def _named(self) -> Mapping[str, Column]:
        return self.columns if isinstance(self.columns, Mapping) else {"": self.columns}

    def _usual(self) -> tuple[Any, ...]:
        return tuple(column.typical() for column in self._named().values())

    def _special(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return rows with one special value each, then some with only such."""
        named, usual = self._named(), self._usual()
        one_each: list[list[tuple[str, tuple[Any, ...]]]] = []
        for j, (name, column) in enumerate(named.items()):
            values = [] if column.public else column.special()
            one_each.append(
                [
                    (f"{name} {label}".strip(), (*usual[:j], value, *usual[j + 1 :]))
                    for label, value in values
                ]
            )
        found = list(in_turn(*one_each))
        free = [column.special() for column in named.values()]
        if len(named) > 1 and all(free) and not self._has_public():
            for k in range(min(3, max(map(len, free)))):
                row = tuple(each[k % len(each)][1] for each in free)
                found.append((f"all special, {k + 1}", row))
        return found

    def _has_public(self) -> bool:
        return any(column.public for column in self._named().values())

    def _rows(self) -> list[tuple[str, tuple[Any, ...]]]:
        return [("usual", self._usual()), *self._special()]

    def _longest(self) -> int:
        """Return the largest number of records beside the shared ones."""
        most = self.max_length if self.size is None else self.size
        return (_LONGEST if most is None else most) - len(self.shared)

    def _filled(self, kept: str, count: int) -> Records:
        """Return as many records of a kind: all different, or all the same."""
        if kept == _DIFFERENT:
            return [self._row_number(i) for i in range(count)]
        return [dict(self._rows())[kept]] * count

    def _row_number(self, i: int) -> tuple[Any, ...]:
        """Return one of many records that differ as far as they can."""
        return tuple(
            column.typical() if column.public else _numbered(column, i)
            for column in self._named().values()
        )

    def _added(self) -> Iterator[Pair]:
        longest, places = self._longest(), ("before", "after")
        rows = [label for label, _ in self._rows()]
        bases = [_DIFFERENT, *rows[1:]]
        first = in_turn(
            ((longest, "usual", row, "before") for row in rows),
            ((n, "usual", row, "before") for row in rows for n in _SIZES),
            ((longest, kept, row, "after") for row in rows for kept in bases),
            ((longest, "usual", row, "after") for row in rows),
        )
        short = product(_SIZES, [_DIFFERENT, *rows[:_BASES]], rows, places)
        long = product([longest], bases, rows, places)
        for n, kept, added, place in chain(first, short, long):
            yield from self._more(n, kept, added, place)

    def _more(self, n: int, kept: str, added: str, place: str) -> Iterator[Pair]:
        """Yield data sets of which one has more records, if that is allowed."""
        longest, least = self._longest(), self.min_length
        count = min(self.distance, longest - least)
        if count < 1:
            return
        base = self._filled(kept, min(max(n, least), longest - count))
        more = self._filled(added, count)
        name = f"{_times(count)}{added}, {place} {_many(len(base), kept)}"
        longer = [*more, *base] if place == "before" else [*base, *more]
        yield self._pair(name, longer, base)

    def _replaced(self, records: int) -> Iterator[Pair]:
        rows = [label for label, _ in self._rows()]
        sizes = self._sizes()
        bases = [_DIFFERENT, *rows[1:]]
        for one, other, beside in in_turn(
            (("usual", row, "usual") for row in rows[1:]),
            ((a, b, "usual") for a, b in combinations(rows[1:], 2)),
            (("usual", row, kept) for row in rows[1:] for kept in bases),
        ):
            yield from self._replacements(sizes[:2], records, (one, other, beside))
        for pair in combinations(rows, 2):
            for beside in ["usual", *bases]:
                yield from self._replacements(sizes, records, (*pair, beside))

    def _sizes(self) -> list[int]:
        """Return numbers of records beside the shared ones, at least one."""
        longest = self._longest()
        sizes = [self.size - len(self.shared)] if self.size else [3, longest, 16, 1]
        least = max(1, self.min_length)
        return [n for n in dict.fromkeys(min(n, longest) for n in sizes) if n >= least]

    def _replacements(
        self, sizes: list[int], records: int, kinds: tuple[str, str, str]
    ) -> Iterator[Pair]:
        """Yield data sets of some sizes in which records of one kind are of another."""
        one, other, beside = kinds
        for n in sizes:
            count = min(records, n)
            rest = self._filled(beside, n - count)
            name = f"{count} of {n}: {one} by {other}, beside {beside}"
            yield self._pair(
                name,
                self._filled(one, count) + rest,
                self._filled(other, count) + rest,
            )

    def _shifted(self) -> Iterator[Pair]:
        """Yield data sets of which the first record is gone and a last one is new."""
        for n in self._sizes() if self.order != "positions" else []:
            rows = self._filled(_DIFFERENT, n + 1)
            if rows[0] != rows[-1]:
                yield self._pair(f"{n} different, shifted", rows[:-1], rows[1:])

    def _reordered(self) -> Iterator[Pair]:
        """Yield data sets that differ in their order only."""
        if self.order != "free":
            return
        for n in self._sizes():
            rows = self._filled(_DIFFERENT, n)
            if rows != rows[::-1]:
                yield self._pair(f"{n} different, reversed", rows, rows[::-1])
            for label, row in self._special()[: 2 if n > 1 else 0]:
                rest = self._filled("usual", n - 1)
                name = f"{label} first or last of {n}"
                yield self._pair(name, [row, *rest], [*rest, row])

    def _users(self) -> Iterator[Pair]:
        bounded = self.max_length is not None or self.size is not None
        longest = self._longest() if bounded else 10**6
        users = range(self.distance)
        for (count, spread), beside in product(_USER_ROWS, (True, False)):
            rest = self._of_user(self.distance, count, spread=spread) if beside else []
            own = [
                row
                for user in users
                for row in self._of_user(user, count, spread=spread)
            ]
            if len(own) + len(rest) > longest or len(rest) < self.min_length:
                continue
            different = ", all different" if spread else ""
            who = "a user" if self.distance == 1 else f"{self.distance} users"
            name = f"{who} of {count} rows{different}, beside {len(rest)}"
            yield self._pair(name, own + rest, rest)

    def _of_user(self, user: int, count: int, *, spread: bool) -> Records:
        rows = []
        for i in range(count):
            row: list[Any] = []
            for name, column in self._named().items():
                if name == self.user:
                    row.append(_user_name(column, user))
                elif spread and not column.public:
                    row.append(_numbered(column, i))
                else:
                    row.append(column.typical())
            rows.append(tuple(row))
        return rows

    def _pair(self, label: str, x: Records, y: Records) -> Pair:
        plain = not isinstance(self.columns, Mapping)
        ends = [*x, *self.shared], [*y, *self.shared]
        first, second = ([r[0] for r in rows] if plain else rows for rows in ends)
        build = self.build or list
        code = "\n".join(
            f"{name} = {self.code.format(rows=_code(rows))}"
            for name, rows in (("x", first), ("y", second))
        )
        code = f"{self.setup}\n{code}" if self.setup else code
        return Pair(label, OneValue(x=build(first), y=build(second)), code)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        *most, last = (f'"{each}"' for each in allowed)
        raise InvalidInputError(
            f"{name} must be {', '.join(most)} or {last}, got {name}={value!r}"
        )


def _times(count: int) -> str:
    return f"{count} x " if count > 1 else ""


def _many(count: int, kept: str) -> str:
    return f"{count} {kept}" if kept == _DIFFERENT else f"{count} x {kept}"


def _check_user(user: str | None, named: Mapping[str, Column], distance: int) -> None:
    """Refuse a column that cannot name one user more than change."""
    column = named.get(user or "")
    if column is None:
        raise InvalidInputError(
            f"user must name one of the columns {sorted(named)}, got user={user!r}"
        )
    match column:
        case Integers(low=low, high=high):
            enough = high - low >= distance
        case Strings(values=values):
            enough = not values or len(values) > distance
        case _:
            enough = False
    if not enough:
        raise InvalidInputError(
            "user must name a column of integers or texts that has more values than "
            f"users change, got {user!r} of {column}"
        )


def _user_name(column: Column, user: int) -> Any:  # noqa: ANN401 (a value of it)
    """Return the value that names a user."""
    match column:
        case Integers(low=low, high=high):
            return max(low, min(0, high - _MOST_USERS)) + user
        case Strings(values=values) if values:
            return values[user]
    return f"user {user}"


def _numbered(column: Column, i: int) -> Any:  # noqa: ANN401 (a value of the column)
    """Return one of many different values of a column, as far as it has them."""
    match column:
        case Integers():
            return min(min(max(0, column.low), column.high) + i, column.high)
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
        monotonic: Whether all numbers change in one direction.
    """

    values: Integers | Floats
    norm: Literal["l1", "l2", "linf"] = "l1"
    distance: float = 1
    size: int | None = None
    monotonic: bool = False

    def pairs(self) -> Iterator[Pair]:
        """Yield labelled pairs, the most telling first."""
        sizes = [2, 3, 8, 1] if self.size is None else [self.size]
        yield from in_turn(*(self._of_size(n) for n in sizes if n))

    def _of_size(self, n: int) -> Iterator[Pair]:
        special = [(k, v) for k, v in self.values.special() if _finite(v)]
        bases: list[tuple[str, list[float]]] = [
            ("zero", [0] * n),
            ("typical", [self.values.typical()] * n),
        ]
        bases += [
            (
                f"{label} {where}",
                [v] * n if where == "everywhere" else [v, *[0] * (n - 1)],
            )
            for label, v in special
            for where in ("everywhere", "first")
        ]
        for (label, base), (what, move) in product(bases, self._moves(n)):
            x = [_moved(self.values, v, 0) for v in base]
            y = [_moved(self.values, v, k) for v, k in zip(base, move, strict=True)]
            if self._inside([*x, *y]) and self._near(x, y):
                yield _plain_pair(f"{label}, {n} numbers: {what}", x, y)

    def _moves(self, n: int) -> list[tuple[str, list[float]]]:
        """Return labelled changes; rounding may make them larger than is allowed."""
        d, rest = self.distance, [0] * (n - 1)
        one: list[tuple[str, list[float]]] = [
            (f"first + {d:g}", [d, *rest]),
            (f"last + {d:g}", [*rest, d]),
            (f"first - {d:g}", [-d, *rest]),
        ]
        if self.norm == "linf":
            return [
                (f"first + {d:g}, others - {d:g}", [d, *[-d] * (n - 1)]),
                (f"all + {d:g}", [d] * n),
                *one,
                (f"first - {d:g}, others + {d:g}", [-d, *[d] * (n - 1)]),
            ]
        share = self._share(n)
        return [one[0], (f"all + {share:g}", [share] * n), *one[1:]] if share else one

    def _share(self, n: int) -> float:
        """Return by how much each of n numbers may change."""
        if isinstance(self.values, Integers):
            return self._whole_share(n)
        parts = math.sqrt(n) if self.norm == "l2" else n
        return self.distance / parts * (1 - 2**-20)  # so that they add up to less

    def _whole_share(self, n: int) -> int:
        """Return by how much each of n whole numbers may change."""
        d = math.floor(self.distance)
        return math.isqrt(d * d // n) if self.norm == "l2" else d // n

    def _inside(self, numbers: list[float]) -> bool:
        return all(self.values.low <= v <= self.values.high for v in numbers)

    def _near(self, x: list[float], y: list[float]) -> bool:
        """Whether rounding left the change within the distance."""
        changes = [Fraction(b) - Fraction(a) for a, b in zip(x, y, strict=True)]
        sizes, limit = [abs(change) for change in changes], Fraction(self.distance)
        if not any(sizes) or (self.monotonic and min(changes) < 0 < max(changes)):
            return False
        match self.norm:
            case "linf":
                return max(sizes) <= limit
            case "l2":
                return sum(size * size for size in sizes) <= limit * limit
        return sum(sizes) <= limit


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
            moved = _moved(self.values, value, sign * self.distance)
            inside = self.values.low <= moved <= self.values.high and _finite(moved)
            if inside and 0 < abs(Fraction(moved) - Fraction(value)) <= self.distance:
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

    def __post_init__(self) -> None:
        _validate.whole_number("bits", self.bits, least=8)
        if self.bits % 8:
            raise InvalidInputError(f"bits must be a multiple of 8, got {self.bits}")
        if self.max_weight is not None:
            _validate.whole_number("max_weight", self.max_weight, least=1)

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


def _moved(values: Integers | Floats, value: float, change: float) -> float:
    """Return a changed value as one of its column's type; not changed by more."""
    if isinstance(values, Integers):
        return int(value) + math.trunc(change)
    moved = values.rounded(float(value) + change)
    if not (math.isfinite(moved) and math.isfinite(value)):
        return moved
    too_far = abs(Fraction(moved) - Fraction(value)) > abs(Fraction(change))
    return values.next_to(moved, value) if too_far else moved


def in_turn(*each: Iterable[T]) -> Iterator[T]:
    """Yield the first of each, then the second of each, and so on."""
    nothing = object()
    for turn in zip_longest(*each, fillvalue=nothing):
        yield from (value for value in turn if value is not nothing)  # type: ignore[misc]


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
