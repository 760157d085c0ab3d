"""Outputs as a table: equal outputs, and only those, have equal codes."""

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, count

import numpy as np
import pytest
from scipy import sparse

from dpaudit.errors import InvalidInputError
from dpaudit.testing.features import read, tabulate


@dataclass
class Answer:
    value: float
    hidden: int = field(default=0, repr=False)


class Opaque:
    """Says where it lies in memory, and nothing else."""


class Tensor:
    """Gives its numbers as torch's do: not while it carries a gradient."""

    def __init__(self, values, *, gradient):
        self.values, self.gradient = values, gradient

    def detach(self):
        return Tensor(self.values, gradient=False)

    def __array__(self, dtype=None, copy=None):
        if self.gradient:
            raise RuntimeError("use tensor.detach().numpy() instead")
        return np.array(self.values, dtype)


DIFFERENT = [
    0,
    0.0,
    -0.0,
    False,
    None,
    "",
    "0",
    b"0",
    "None",
    math.nan,
    math.inf,
    1e-300,
    2**60,
    2**60 + 1,
    10**400,
    (0,),
    [0],
    (0, 0),
    (0, "0"),
    ("0", 0),
    {"a": 1},
    {"a": 2},
    {"b": 1},
    frozenset({1}),
    np.zeros(1),
    np.zeros(2),
    np.zeros((2, 1)),
    np.zeros(2, np.float32),
    np.zeros(2, int),
    np.array(["x"]),
    np.float32(0),
    1 + 2j,
    1 + 3j,
    ((1, 2), 3),
    (1, (2, 3)),
    -1,
    -2,  # Python's hash of both is one
    2**61 - 1,  # and that of this is 0
    10**5000,
    np.True_,
    True,
    [0.0, 1.0],
    [0, 1],
    [2**70, 1],
    np.ma.array([0.0, 1.0], mask=[True, False]),
    np.ma.array([0.0, 1.0], mask=[False, False]),
    Answer(0.5),
    Answer(0.5, hidden=1),
    Fraction(1, 3),
    Decimal("0.1"),
    deque([1]),
    OrderedDict(a=1),
    sparse.csr_matrix([[0.0, 1.0]]),
    sparse.csr_matrix([[0.0, 2.0]]),
    Tensor([1.0], gradient=True),
    Tensor([2.0], gradient=True),
    np.array([(1, "a"), 2.0], dtype=object),
    np.array([(1, "b"), 2.0], dtype=object),
]


def test_outputs_that_differ_in_anything_have_different_codes():
    codes = tabulate(DIFFERENT).whole
    same = [
        (DIFFERENT[i], DIFFERENT[j])
        for i, j in combinations(range(len(DIFFERENT)), 2)
        if codes[i] == codes[j]
    ]
    assert not same


def test_equal_outputs_have_equal_codes_in_every_table():
    first, second = tabulate(DIFFERENT), tabulate([*DIFFERENT[::-1]])
    np.testing.assert_array_equal(first.whole, second.whole[::-1])
    np.testing.assert_array_equal(first.kinds, second.kinds[::-1])


@pytest.mark.parametrize("place", range(len(DIFFERENT)))
def test_an_output_has_its_codes_whatever_the_others_are(place):
    alone, among = tabulate([DIFFERENT[place]]), tabulate(DIFFERENT)
    assert (alone.whole[0], alone.kinds[0]) == (among.whole[place], among.kinds[place])


@pytest.mark.parametrize(
    "outputs",
    [
        [0.5, 1.5, -0.0, 0.0],
        [1, 2, -3, 2**60],
        [True, False, True],
        [np.float64(0.1), np.float64(0.2)],
        [np.int64(2**60), np.int64(2**60 + 1)],
        ["a", "b", "a"],
        [np.arange(3.0), np.arange(3.0) + 1],
    ],
)
def test_an_odd_output_changes_nothing_in_the_rows_of_others(outputs):
    few, more = tabulate(outputs), tabulate([*outputs, None, (1, "a", [2.0] * 9)])
    n, (numbers, texts) = len(outputs), few.widths
    np.testing.assert_array_equal(few.whole, more.whole[:n])
    np.testing.assert_array_equal(few.kinds, more.kinds[:n])
    np.testing.assert_array_equal(few.numbers, more.numbers[:n, :numbers])
    np.testing.assert_array_equal(few.texts, more.texts[:n, :texts])
    assert np.isnan(more.numbers[:n, numbers:]).all()


def test_how_many_numbers_are_usual_is_not_for_a_few_to_say():
    assert tabulate([0.5] * 9 + [None, (1.0, 2.0, 3.0)]).usual == 1
    assert tabulate([(0.5, 1.5)] * 9 + [None]).usual == 2
    assert tabulate(["yes"] * 9 + [1.0]).usual == 1
    assert tabulate(["yes", "no"]).usual == 0


@pytest.mark.parametrize(
    "output", [np.zeros(3), [0.0, 0.0], [0, "0"], {"a": [0]}, np.zeros(2, object)]
)
def test_what_is_changed_after_it_was_returned_is_kept_as_it_was(output):
    before = read(output)
    numbers = list(before.numbers)
    inner = output["a"] if isinstance(output, dict) else output
    inner[0] = 7.5
    assert list(before.numbers) == numbers
    assert read(output).whole != before.whole


async def waits():
    return 1


def yields():
    yield 1


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        (waits, "await it"),
        (yields, r"return what it yields, as with list\("),
        (lambda: iter([1]), "return what it yields"),
        (lambda: map(abs, [1]), "return what it yields"),
        (lambda: count(3), "return what it yields"),
        (Opaque, "give it a __repr__ that shows"),
        (lambda: yields, "return the values in it"),
        (lambda: (1, [Opaque()]), "of type Opaque"),
        (lambda: {Opaque(): 1}, "of type Opaque"),
        (lambda: {"a": Opaque()}, "of type Opaque"),
        (lambda: Answer(Opaque()), "of type Opaque"),
        (lambda: deque([Opaque()]), "of type Opaque"),
        (lambda: np.array([Opaque()]), "of type Opaque"),
        (lambda: (waits(),), "await it"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_advice(output, advice):
    with pytest.raises(InvalidInputError, match=advice):
        read(output())


def test_text_that_looks_like_an_address_is_text():
    odd = "at 0x7f00"
    assert read({odd: odd}).whole == read({odd: odd}).whole


def test_numbers_stand_in_their_places_and_what_is_absent_is_nan():
    table = tabulate([(1, "a", 2.5), (3,), "b"])
    np.testing.assert_array_equal(
        table.numbers, [[1, 2.5], [3, math.nan], [math.nan, math.nan]]
    )


def test_what_does_not_depend_on_order_does_not():
    table = tabulate([np.array([3.0, 0.0, -1.0]), np.array([-1.0, 3.0, 0.0])])
    first, second = table.ordered()
    order_free = [0, 1, 2, 5, 6, 7, 8]  # all but where least and largest stand
    np.testing.assert_array_equal(first[order_free], second[order_free])
    np.testing.assert_array_equal(first[:6], [2, -1, 3, 2, 0, 2])


def test_a_number_alone_has_no_order():
    assert tabulate([1.0, 2.0]).ordered().shape == (2, 0)
