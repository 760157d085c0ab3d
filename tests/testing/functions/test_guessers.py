"""Each guesser finds the leak it is for, as often as a known optimum says.

Shares of right guesses lie within five standard deviations of their optimum, or above
what chance gives by as much: seeds are fixed, and a fresh one would fail once in a
million times.
"""

import math

import numpy as np
import pytest

from dpaudit.testing import guessers
from dpaudit.testing.features import tabulate
from dpaudit.testing.guessers import FEATURES_USED, LEARNERS

N = 3000


def share_right(name, mechanism, *, seed=0, surest=1.0):
    """Learn on N calls; return the share right among the surest guesses on N more."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (2, N))
    tables = [tabulate([mechanism(int(b), rng) for b in row]) for row in bits]
    scores = LEARNERS[name](tables[0], bits[0]).scores(tables[1])
    top = np.argsort(-np.abs(scores), kind="stable")[: int(surest * N)]
    return np.mean((scores >= 0)[top] == (bits[1] == 1)[top])


def about(rate, *, surest=1.0):
    return pytest.approx(rate, abs=5 * math.sqrt(rate * (1 - rate) / (surest * N)))


def grid(x):
    """Round to a grid so coarse that floating point has nothing to tell."""
    return round(float(x) * 256) / 256


def response(bit, rng):
    return bit if rng.random() < 0.75 else 1 - bit


@pytest.mark.parametrize("name", ["values", "parts", "bins", "linear", "logistic"])
def test_randomised_response_is_guessed_as_well_as_can_be(name):
    assert share_right(name, response) == about(0.75)


@pytest.mark.parametrize("name", ["values", "parts"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda b: "yes" if b else "no",
        lambda b: None if b else 0,
        lambda b: (b, "text"),
        lambda b: {"answer": b},
        lambda b: b"1" if b else b"0",
        lambda b: 1 if b else 1.0,  # a type that tells
    ],
)
def test_outputs_of_any_kind_are_counted(name, wrap):
    assert share_right(name, lambda b, rng: wrap(response(b, rng))) == about(0.75)


ODD = [None, (1.0, 2.0, 3.0), math.inf, np.zeros(20)]


@pytest.mark.parametrize(
    "name", ["values", "parts", "bins", "lattice", "linear", "logistic"]
)
@pytest.mark.parametrize("odd", ODD, ids=[type(o).__name__ for o in ODD])
def test_a_rare_output_of_another_kind_costs_no_guesser_anything(name, odd):
    """Once in 500 calls; other columns may take some of the guesses, not many."""

    def sometimes(bit, rng):
        return odd if rng.random() < 1 / 500 else response(bit, rng)

    assert share_right(name, sometimes) > 0.75 - 0.05


def test_a_rare_output_of_another_kind_is_guessed_by_chance_if_never_seen():
    learned = [response(0, np.random.default_rng(i)) for i in range(400)]
    bits = np.array(learned)
    for name in ("values", "parts", "bins", "linear", "logistic"):
        scorer = LEARNERS[name](tabulate(learned), bits)
        plain = scorer.scores(tabulate([0, 1]))
        mixed = scorer.scores(tabulate([0, None, 1, "x", (1.0, 2.0)]))
        np.testing.assert_array_equal(mixed[[0, 2]], plain)
        assert np.isfinite(mixed).all()


@pytest.mark.parametrize("name", ["parts", "bins", "lattice"])
def test_of_many_places_the_one_that_tells_is_found(name):
    def last_but_one(bit, rng):
        values = np.round(rng.normal(size=400), 1)
        values[398] = 4.0 * response(bit, rng)
        return values

    # Others look different by chance and take some of the guesses.
    assert share_right(name, last_but_one) > 0.65


@pytest.mark.parametrize("name", ["bins", "linear", "logistic"])
def test_noisy_numbers_are_guessed_by_their_side(name):
    """Laplace noise of scale 1 around 0 or 1: right with chance 1 - e^(-1/2) / 2."""
    best = 1 - math.exp(-0.5) / 2
    found = share_right(name, lambda b, rng: grid(b + rng.laplace()))
    assert found == about(best)


def test_a_difference_in_spread_is_found_by_bins():
    """N(0, 1) against N(0, 9): the densities cross at the square root of 9/4 ln 3."""
    edge = math.sqrt(9 / 4 * math.log(3))
    inner, outer = math.erf(edge / math.sqrt(2)), math.erf(edge / math.sqrt(18))
    best = (inner + 1 - outer) / 2
    found = share_right("bins", lambda b, rng: grid(rng.normal(scale=1 + 2 * b)))
    assert best - 0.02 < found < best + 0.05
    assert share_right("linear", lambda b, rng: grid(rng.normal(scale=1 + 2 * b))) < 0.6


def naive_laplace(bit, rng):
    u = rng.random() - 0.5
    return bit - math.copysign(math.log1p(-2 * abs(u)), u)


def test_the_lattice_of_floats_gives_naive_noise_away():
    """1 + z is a multiple of 2^-53 for z near -1; z alone is not, so some are sure."""
    assert share_right("lattice", naive_laplace, surest=0.15) == 1.0


def test_the_lattice_says_nothing_about_noise_on_a_grid():
    def careful(bit, rng):
        return grid(naive_laplace(bit, rng))

    assert share_right("lattice", careful, surest=0.15) < 0.82  # e / (1 + e) = 0.73


def test_noise_that_comes_again_is_recognised():
    cache = np.random.default_rng(9).laplace(size=64)
    assert share_right("values", lambda b, rng: b + rng.choice(cache)) > 0.99


def test_noise_shared_by_neighbouring_calls_is_seen_in_steps():
    held = []

    def shared(bit, rng):
        if not held:
            held.append(grid(rng.laplace(scale=3)))
            return bit + held[0]
        return bit + held.pop()

    def seldom_odd(bit, rng):
        return (0.0, 0.0) if rng.random() < 1 / 1000 else shared(bit, rng)

    # In half of the pairs the inputs differ, and the step shows both.
    assert share_right("steps", shared, surest=0.4) > 0.99
    assert share_right("steps", seldom_odd, surest=0.4) > 0.95
    assert share_right("bins", shared, surest=0.4) < 0.7


def test_a_long_vector_is_added_up():
    """40 numbers, each moved by 0.3: 0.3 sqrt(40) / 2 standard deviations in all."""
    best = 0.5 * (1 + math.erf(0.3 * math.sqrt(40) / 2 / math.sqrt(2)))
    found = share_right("linear", lambda b, rng: 0.3 * b + rng.normal(size=40))
    assert best - 0.06 < found < best + 0.04


def test_the_largest_of_many_is_found_wherever_it_stands():
    def one_spike(bit, rng):
        values = np.round(rng.normal(size=8) * 256) / 256
        values[rng.integers(8)] += 8 * bit
        return values

    assert share_right("bins", one_spike) > 0.95
    assert share_right("parts", one_spike) < 0.9


@pytest.mark.parametrize("name", LEARNERS)
def test_pure_noise_is_guessed_no_better_than_chance(name):
    size = 20 if name == "place" else None
    assert share_right(name, lambda b, rng: rng.normal(size=size)) == about(0.5)


def test_one_place_of_many_is_guessed_as_well_as_can_be():
    def told(bit, rng):
        values = rng.integers(0, 3, 400)
        values[399] = response(bit, rng)
        return values

    assert share_right("place", told) == about(0.75)


@pytest.mark.parametrize("name", LEARNERS)
def test_odd_outputs_break_no_guesser(name):
    odd = [math.nan, math.inf, -math.inf, 1e308, 5e-324, 0.0, 10**400, None, "x", ()]

    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 200)
    table = tabulate([odd[i] for i in rng.integers(0, len(odd), 200)])
    scorer = LEARNERS[name](table, bits)
    other = tabulate([(1.0, 2.0), "never seen"] * 50)
    if scorer is not None:
        assert np.isfinite(scorer.scores(table)).all()
        assert len(scorer.scores(other)) == 100


@pytest.mark.parametrize("name", LEARNERS)
def test_one_coin_alone_teaches_nothing_and_breaks_nothing(name):
    table = tabulate([0.5, 1.5, 2.5] * 10)
    scorer = LEARNERS[name](table, np.ones(30, int))
    assert scorer is None or np.isfinite(scorer.scores(table)).all()


def test_every_guesser_can_be_put_into_words():
    assert set(FEATURES_USED) == set(LEARNERS)


@pytest.mark.parametrize(
    ("n", "width", "most"), [(1, 3, 2), (200, 40, 5), (700, 9, 700)]
)
def test_columns_are_screened_by_their_chi_square(n, width, most, monkeypatch):
    """Counted one by one; with parts of some columns, and all at once."""
    rng = np.random.default_rng(n)
    values, bits = rng.integers(0, most, (n, width)), rng.integers(0, 2, n)
    counted = []
    for column in values.T:
        excess = 0.0
        for value in set(column.tolist()):
            of_value = bits[column == value]
            excess += (2 * of_value.sum() - len(of_value)) ** 2 / len(of_value) - 1
        counted.append(excess / math.sqrt(2 * len(set(column.tolist()))))
    for at_once in (1, 4 * n, 10**6):
        monkeypatch.setattr(guessers, "_VALUES_SCREENED", at_once)
        assert guessers._excesses(values, bits) == pytest.approx(counted, abs=1e-9)
