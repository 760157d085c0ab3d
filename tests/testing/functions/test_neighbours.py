"""Generated pairs: all of them neighbours, within what is allowed, and repeatable."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpaudit import Adjacency, Key, PureDP
from dpaudit.errors import InvalidInputError
from dpaudit.testing import Calls
from dpaudit.testing.neighbours import (
    BitString,
    Booleans,
    Floats,
    Integers,
    Numbers,
    Rows,
    Strings,
    Value,
    neighbouring_pairs,
)
from dpaudit.testing.sequential import audit_sequentially

MIXED = {
    "x": Floats(low=0.0, high=1.0, nan=False),
    "n": Integers(low=-3, high=10**9, nullable=True),
    "key": Strings(values=("a", "b"), public=True),
    "flag": Booleans(),
}
ROWS = {
    "added": Rows(columns=Integers(low=0, high=5), max_length=20),
    "two added": Rows(columns=Floats(), distance=2, max_length=9),
    "replaced": Rows(
        columns=Floats(low=0, high=1, nan=False), change="replace", size=6
    ),
    "three of a kind": Rows(columns=Floats(bits=32), distance=3, order="edits"),
    "columns": Rows(columns=MIXED, max_length=12, min_length=1),
    "columns replaced": Rows(columns=MIXED, change="replace", distance=2, size=8),
    "users": Rows(
        columns={"id": Integers(), "v": Floats(low=0, high=9), "k": Strings()},
        change="user",
        user="id",
    ),
    "few users": Rows(
        columns={"id": Strings(), "v": Integers()},
        change="user",
        user="id",
        max_length=150,
    ),
}


def every(schema):
    return neighbouring_pairs(schema, most=700)


def as_rows(value):
    return [row if isinstance(row, tuple) else (row,) for row in value]


@pytest.mark.parametrize("name", ROWS)
def test_every_pair_of_data_sets_is_neighbouring(name):
    schema = ROWS[name]
    pairs = every(schema)
    assert len(pairs) > 5
    assert len({pair.label for pair in pairs}) == len(pairs)
    columns = list(schema._named().values())
    for pair in pairs:
        x, y = (as_rows(v) for v in (pair.neighbours.x, pair.neighbours.y))
        assert max(len(x), len(y)) <= (schema.size or schema.max_length or 200)
        assert min(len(x), len(y)) >= schema.min_length
        less, more = Counter(map(repr, x)), Counter(map(repr, y))
        gone, new = (less - more).total(), (more - less).total()
        if schema.change == "replace":
            assert len(x) == len(y) == schema.size
            assert 1 <= gone == new <= schema.distance
        elif schema.change == "add-remove":
            assert 1 <= gone + new <= schema.distance
        else:
            j = list(schema.columns).index(schema.user)
            assert len({row[j] for row in x}) <= len({row[j] for row in y}) + 1
            assert new == 0
        for row in [*x, *y]:
            for column, value in zip(columns, row, strict=True):
                check(column, value)
        public = [j for j, column in enumerate(columns) if column.public]
        assert all(len({row[j] for row in [*x, *y]}) <= 1 for j in public)


def test_shared_records_are_in_all_data_sets_and_count():
    shared = (("p", 1), ("q", 1))
    columns = {"key": Strings(values=("p", "q")), "n": Integers(low=0, high=9)}
    for pair in every(Rows(columns=columns, max_length=6, shared=shared)):
        for rows in (pair.neighbours.x, pair.neighbours.y):
            assert rows[-2:] == [*shared]
            assert len(rows) <= 6


def test_order_counts_as_is_said():
    def pairs(order):
        rows = Rows(columns=Integers(), change="replace", order=order, size=4)
        return [pair.neighbours for pair in every(rows)]

    for pair in pairs("positions"):
        assert sum(a != b for a, b in zip(pair.x, pair.y, strict=True)) == 1
    for pair in pairs("edits"):
        shifted = pair.x[1:] == pair.y[:-1]
        assert shifted or sum(map(int.__ne__, pair.x, pair.y)) == 1
    assert any(pair.x[1:] == pair.y[:-1] for pair in pairs("edits"))
    free = pairs("free")
    assert all((Counter(pair.x) - Counter(pair.y)).total() <= 1 for pair in free)
    assert any(sorted(pair.x) == sorted(pair.y) for pair in free)


def test_several_users_change_together():
    columns = {"id": Integers(low=5, high=9), "v": Integers()}
    schema = Rows(columns=columns, change="user", user="id", distance=2)
    gone = [
        {row[0] for row in pair.neighbours.x} - {row[0] for row in pair.neighbours.y}
        for pair in every(schema)
    ]
    assert gone
    assert all(users == {5, 6} for users in gone)


def test_numbers_of_32_bits_stay_so_and_within_exact_distances():
    values = Floats(bits=32, nan=False)
    for pair in every(Value(values=values, distance=0.1)):
        x, y = pair.neighbours.x, pair.neighbours.y
        assert [x, y] == np.float32([x, y]).tolist()
        assert abs(Fraction(x) - Fraction(y)) <= Fraction(0.1)
    with pytest.raises(InvalidInputError, match="a number of 32 bits"):
        Floats(low=0.1, bits=32)


def test_monotonic_changes_have_one_direction():
    numbers = Numbers(values=Floats(nan=False), norm="linf", monotonic=True)
    pairs = [pair.neighbours for pair in every(numbers)]
    for pair in pairs:
        changes = [b - a for a, b in zip(pair.x, pair.y, strict=True)]
        assert min(changes) >= 0 or max(changes) <= 0
    assert any(len(pair.x) > 1 for pair in pairs)


def test_setup_comes_first_in_the_code():
    rows = Rows(columns=Integers(), code="tuple({rows})", setup="import math")
    assert every(rows)[0].code.splitlines()[0] == "import math"


def check(column, value):
    if value is None:
        assert column.nullable
    elif isinstance(value, float) and math.isnan(value):
        assert column.nan
    elif isinstance(column, Integers | Floats):
        assert column.low <= value <= column.high
    elif isinstance(column, Strings) and column.values:
        assert value in column.values


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("values", [Integers(low=-9, high=9), Floats(nan=False)])
def test_every_vector_moves_by_the_distance_at_most(norm, values):
    for pair in every(Numbers(values=values, norm=norm, distance=2, size=3)):
        moves = [
            b - a for a, b in zip(pair.neighbours.x, pair.neighbours.y, strict=True)
        ]
        sizes = {
            "l1": sum(map(abs, moves)),
            "l2": math.hypot(*moves),
            "linf": max(map(abs, moves)),
        }
        assert 0 < sizes[norm] <= 2
        for value in [*pair.neighbours.x, *pair.neighbours.y]:
            assert values.low <= value <= values.high


def test_a_value_moves_by_the_distance_or_to_any_other():
    near = every(Value(values=Integers(low=0, high=10), distance=1))
    assert all(abs(p.neighbours.x - p.neighbours.y) == 1 for p in near)
    free = every(Value(values=Strings(values=("a", "b", "c"))))
    assert {(p.neighbours.x, p.neighbours.y) for p in free} == {
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    }


def test_bits_keep_to_their_weight_and_length():
    pairs = every(BitString(bits=16, max_weight=1, same_length=True))
    assert len(pairs) == 16
    for pair in pairs:
        assert len(pair.neighbours.x) == len(pair.neighbours.y) == 2
        assert sum(b.bit_count() for b in pair.neighbours.y) == 1


@pytest.mark.parametrize(
    "schema",
    [*ROWS.values(), Numbers(values=Floats()), Value(values=Floats()), BitString()],
)
def test_code_makes_the_same_inputs(schema):
    for pair in every(schema)[:60]:
        made = {}
        exec(pair.code, {}, made)
        assert repr(made["x"]) == repr(pair.neighbours.x)
        assert repr(made["y"]) == repr(pair.neighbours.y)


def test_the_kinds_of_values_that_break_things_are_there():
    labels = " ".join(p.label for p in every(Rows(columns=Floats(nullable=True))))
    for special in ("null", "NaN", "highest", "lowest", "1e308", "minus zero", "0 x"):
        assert special in labels


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Integers(low=2, high=1), "low must be at most high"),
        (lambda: Rows(columns=Integers(), change="swap"), "change must be"),
        (lambda: Rows(columns=Integers(), order="any"), "order must be"),
        (lambda: Rows(columns=MIXED, change="user", user="who"), "user must name"),
        (lambda: Rows(columns=MIXED, change="user", user="x"), "more values than"),
        (lambda: Rows(columns=Integers(), size=4), "public size"),
        (lambda: Rows(columns=Integers(), distance=0), "distance"),
    ],
)
def test_descriptions_without_neighbours_are_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def noisy_sum(values, rng):
    """Clamps to 0..1; the null is forgotten, and counts as 1000."""
    total = sum(1000 if v is None else min(max(v, 0), 1) for v in values)
    return total + int(rng.geometric(0.64)) - int(rng.geometric(0.64))


@pytest.mark.parametrize(("nullable", "refuted"), [(True, True), (False, False)])
def test_a_fault_is_found_without_being_told_the_pair(nullable, refuted):
    schema = Rows(columns=Integers(low=0, high=9, nullable=nullable), max_length=8)
    result = audit_sequentially(
        noisy_sum,
        pairs=neighbouring_pairs(schema),
        claim=PureDP(epsilon=1.03, adjacency=Adjacency.REPLACE_ONE),
        alpha=1e-3,
        budget=Calls(calls=40_000 if refuted else 8000),
        key=Key(bytes(32)),
    )
    assert result.refuted is refuted
    if refuted:
        assert "null" in result.pairs[0].label
        assert "None" in result.code


def test_public_values_are_in_both_data_sets_and_lengths_are_kept():
    public = Rows(columns=MIXED, max_length=6)
    assert all(pair.neighbours.x and pair.neighbours.y for pair in every(public))
    long = Rows(columns=Integers(low=0, high=9), change="replace", min_length=5)
    assert min(len(pair.neighbours.x) for pair in every(long)) >= 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: BitString(bits=12),
        lambda: BitString(max_weight=0),
        lambda: Rows(columns=Integers(), change="replace", size=9, max_length=5),
    ],
)
def test_impossible_sizes_are_refused(make):
    with pytest.raises(InvalidInputError):
        make()
