"""Places of wide outputs: the one that tells is kept, and nothing is refuted for it.

Seeds are fixed. A measured rate fails where its exact limit at 99.9 % (Clopper and
Pearson) lies on the wrong side of what is stated.
"""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dpaudit import PureDP
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import Calls, OneRecord, OneValue, audit_function, fixed_key
from dpaudit.testing.feature_selection import most_informative, narrow, unseen
from dpaudit.testing.features import tabulate
from dpaudit.testing.guesser_selection import Aim

CLAIM = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
RIGHT = math.e / (1 + math.e)


def audit(function, *, number=0, calls=60, alpha=1e-3, **rest):
    return audit_function(
        function,
        neighbours=OneValue(x=0, y=1),
        claim=CLAIM,
        alpha=alpha,
        budget=Calls(calls=calls),
        key=fixed_key(number.to_bytes(32, "little")),
        **rest,
    )


def response(bit, rng, right=RIGHT):
    return bit if rng.random() < right else 1 - bit


# What is chosen

NOISE = np.random.default_rng(0).normal(size=(200, 3000))
BITS = np.random.default_rng(1).integers(0, 2, 200)


def with_one_place(values):
    outputs = NOISE.copy()
    outputs[:, 2718] = values
    return tabulate(list(outputs))


@pytest.mark.parametrize(
    "values",
    [
        BITS,
        1e16 + 2.0 * BITS,
        np.where(BITS, np.nan, 0.5),
        np.where(BITS, np.inf, 0.5),
        (1 + 2 * BITS) * NOISE[:, 0],  # by its spread
        np.where(BITS, NOISE[:, 0], np.round(NOISE[:, 0], 1)),  # by how fine it is
        np.where(BITS, NOISE[:, 0], np.round(NOISE[:, 0] * 2**40) / 2**40),
        NOISE[:, 0] + BITS,
        np.where(BITS, 0.0, -0.0),
    ],
)
def test_the_place_that_tells_is_kept_however_it_tells(values):
    places = most_informative(with_one_place(values), BITS, np.arange(200))
    assert len(places.numbers) == 512
    assert 2718 in places.numbers


def test_a_text_that_tells_is_kept():
    words = np.array(["red", "green", "blue"])
    outputs = words[np.random.default_rng(2).integers(0, 3, (200, 700))]
    outputs[:, 699] = np.where(BITS, "yes", "no")
    places = most_informative(tabulate(outputs.tolist()), BITS, np.arange(200))
    codes = tabulate([["yes", "no"]]).texts[0]
    kept = np.isin(tabulate(outputs.tolist()).texts[:, places.texts], codes)
    assert kept.all(axis=0).sum() == 1


def test_calls_that_judge_have_no_say():
    """The place tells in the other calls only."""
    rows, judging = np.arange(100), np.arange(100, 200)
    told = with_one_place(np.where(np.arange(200) < 100, 0.0, 9.0 * BITS))
    assert 2718 in most_informative(told, BITS, judging).numbers
    assert 2718 not in most_informative(told, BITS, rows).numbers


def test_outputs_of_few_places_are_left_as_they_are():
    table = tabulate(list(NOISE[:, :512]))
    assert narrow(table, most_informative(table, BITS, np.arange(200))) is table


def test_what_does_not_depend_on_order_is_of_all_places():
    table = with_one_place(100.0 * BITS)
    kept = narrow(table, most_informative(table, BITS, np.arange(200)))
    outputs = NOISE.copy()
    outputs[:, 2718] = 100.0 * BITS
    np.testing.assert_allclose(kept.ordered()[:, 0], outputs.sum(axis=1))
    np.testing.assert_array_equal(kept.ordered()[:, 2], outputs.max(axis=1))


def test_a_rare_wide_output_costs_a_number_alone_nothing():
    odd = [np.zeros(2000) if i % 50 == 7 else float(b) for i, b in enumerate(BITS)]
    places = most_informative(tabulate(odd), BITS, np.arange(200))
    assert places.numbers[0] == 0


# What is shown


def one_true_answer(bit, rng):
    values = rng.normal(size=2000)
    values[1234] = response(bit, rng)
    return values


def one_laplace(bit, rng):
    """Two-sided geometric noise with e^-1 a step, the discrete Laplace, at any place.

    Exactly epsilon = 1 for whole numbers one apart.
    """
    p = 1 - math.exp(-1)
    noise = rng.geometric(p, 2000) - rng.geometric(p, 2000)
    noise[1234] += bit
    return noise


@pytest.mark.nightly
@pytest.mark.parametrize(
    "honest",
    [one_true_answer, one_laplace],
)
def test_wide_outputs_with_a_true_claim_are_refuted_no_more_than_alpha_says(honest):
    """12 whole audits at alpha = 0.1, places chosen in each: more than 5 are too many.

    Places that were chosen by the coins they are judged by would refute all.
    """
    refuted = sum(
        audit(honest, number=i, calls=40, alpha=0.1).refuted for i in range(12)
    )
    lowest = stats.beta.ppf(0.001, refuted, 13 - refuted) if refuted else 0.0
    assert lowest <= 0.1


def numbers(rng, places):
    return list(np.round(rng.laplace(size=places), 1))


def vector(rng, places):
    return np.round(rng.laplace(size=places), 1)


def letters(rng, places):
    return ["abc"[i] for i in rng.integers(0, 3, places)]


@pytest.mark.parametrize(
    ("noise", "places", "values"),
    [
        pytest.param(numbers, 100, (0.0, 3.0), marks=pytest.mark.nightly),
        pytest.param(numbers, 100, (1, 1.0), marks=pytest.mark.nightly),
        (numbers, 100, (math.nan, 0.5)),
        (letters, 100, ("no", "yes")),
        pytest.param(letters, 600, ("no", "yes"), marks=pytest.mark.nightly),
        pytest.param(vector, 2000, (0.0, 3.0), marks=pytest.mark.nightly),
    ],
)
def test_a_leak_of_the_size_stated_is_caught_at_whichever_place_it_shows(
    noise, places, values
):
    """At 10 random places, as often as 0.9 allows: fewer than 5 are too few."""
    aim = Aim(claim=CLAIM, delta=0.0, alpha=1e-3, separate=False)
    right = 1 / (1 + math.exp(-aim.detectable_epsilon(canaries=100, guesses=100)))
    where = np.random.default_rng(4).integers(places, size=10)

    def told(bit, rng, *, place):
        output = noise(rng, places)
        output[place] = values[response(bit, rng, right)]
        return output

    caught = sum(
        audit(partial(told, place=place), number=i, calls=100).refuted
        for i, place in enumerate(where.tolist())
    )
    highest = stats.beta.ppf(0.999, caught + 1, 10 - caught) if caught < 10 else 1.0
    assert highest >= 0.9


# What is not looked at


class Shy:
    def __init__(self, state):
        self.state = state

    def __repr__(self):
        return "Shy()"


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        ([0.5, 1.5] * 9, ()),
        (["yes", "no"] * 9, ()),
        ([2**70 + i for i in range(18)], ()),  # a number, whose last digits are a text
        ([{f"{i}": 1} for i in range(18)], ()),
        ([Shy(1)] * 9, ("what the repr of test_feature_selection.Shy does not show",)),
        (
            [[1, (Shy(1),)]] * 9,
            ("what the repr of test_feature_selection.Shy does not show",),
        ),
        (
            [(str(i), "yes") for i in range(9)],
            ("what stands inside texts that hardly ever come again, at 1 place",),
        ),
        (
            [np.zeros(65_540)],
            ("4 places of the output beyond the first 65536",),
        ),
    ],
)
def test_what_is_not_looked_at_is_said(outputs, named):
    found = unseen(tabulate(outputs))
    assert len(found) == len(named)
    for said, expected in zip(found, named, strict=True):
        assert said.replace(Shy.__module__, "test_feature_selection") == expected


def test_a_result_says_what_was_not_looked_at_everywhere():
    result = audit(lambda bit, rng: Shy(response(bit, rng)))
    (said,) = result.unseen
    assert "Shy does not show" in said
    others = "other pairs of values than (0, 1)"
    assert f"Not checked: {others}; {said}." in str(result)
    assert said in result.audit.not_exercised
    assert "in one place of the output that was checked" in result.strength()
    assert not result.refuted


def test_of_what_is_looked_at_nothing_is_said_to_be_missing():
    result = audit(response)
    assert result.unseen == ()
    assert "Not checked: other pairs of values than (0, 1)." in str(result)


def test_nothing_is_promised_of_what_nobody_sees():
    with pytest.raises(InvalidRunError, match="could hide in what is not read"):
        audit(Shy, must_catch=4.0)


def test_more_values_than_can_be_held_are_refused():
    with pytest.raises(InvalidInputError, match="calls=533 all places are"):
        audit(lambda bit: np.zeros(60_000), calls=600)


# Inputs


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (1, 1),
        (math.nan, float("nan")),
        ("a" * 99, "".join(["a"] * 99)),
        ([1, "a"], [1, "a"]),
        (np.zeros((2, 2)), np.zeros((2, 2))),
        ({"a": [1]}, {"a": [1]}),
        (Shy(1), Shy(1)),
        (object(), object()),
    ],
)
def test_an_input_is_not_its_own_neighbour(x, y):
    with pytest.raises(InvalidInputError, match="x and y must differ"):
        OneValue(x=x, y=y)
    with pytest.raises(InvalidInputError, match="x and y must differ"):
        OneRecord(data=[1, 2], index=0, x=x, y=y)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ([1, 2], (1, 2)),
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2), np.zeros(2, np.float32)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Shy(1), Shy(2)),
        (lambda: 1, lambda: 1),
    ],
)
def test_inputs_that_some_function_could_tell_apart_are_neighbours(x, y):
    OneValue(x=x, y=y)
    OneRecord(data=[1, 2], index=0, x=x, y=y)


@pytest.mark.parametrize(("x", "y"), [(1, True), (1, 1.0), (2, 2)])
def test_records_that_an_array_makes_equal_are_refused(x, y):
    with pytest.raises(InvalidInputError, match="x and y must differ"):
        OneRecord(data=np.arange(3), index=0, x=x, y=y)


def test_inputs_that_make_no_difference_are_said_to_make_none():
    """A pair on which a function is constant shows nothing, whatever it claims."""
    blind = audit(lambda _, rng: float(rng.random()))
    assert "no better than chance: these inputs may make no difference" in str(blind)
    assert "no better than chance" not in str(audit(response))
