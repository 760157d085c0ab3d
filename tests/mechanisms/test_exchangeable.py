"""The posterior of coins that matter only through counts."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms import exchangeable
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior

logs = st.floats(-30.0, 30.0) | st.just(-math.inf)


@given(st.data())
def test_any_likelihood_and_any_order_agree_with_bayes(play, data):
    s, sets = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    n = data.draw(st.integers((sets - 1) * s + 1, sets * s))
    rows = np.array(
        data.draw(
            st.lists(
                st.lists(logs, min_size=s + 1, max_size=s + 1),
                min_size=sets,
                max_size=sets,
            )
        )
    )
    bits = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    order = data.draw(st.permutations(range(n)))

    def likelihood(coins):
        counts = [sum(coins[i : i + s]) for i in range(0, n, s)]
        return math.exp(
            sum(row[count] for row, count in zip(rows, counts, strict=True))
        )

    assume(likelihood(bits) > 0)
    play(ExchangeablePosterior(rows, elements=n), likelihood, bits, order, rtol=1e-9)


def test_pascals_triangle_gives_the_same():
    """The recursion as it is written down, on plain numbers."""
    rng = np.random.default_rng(8)
    s = 6
    likelihood = rng.random(s + 1)
    triangle = {s: list(likelihood)}
    for a in range(s - 1, -1, -1):
        above = triangle[a + 1]
        triangle[a] = [above[h] + above[h + 1] for h in range(a + 1)]
    for a in range(s):
        for h in range(a + 1):
            posterior = ExchangeablePosterior(np.log(likelihood)[np.newaxis])
            coins = np.array([1] * h + [-1] * (a - h), np.int8)
            posterior.reveal(np.arange(a), coins)
            want = math.log(triangle[a + 1][h + 1] / triangle[a + 1][h])
            found = posterior.log_odds(np.array([a]))[0]
            assert math.isclose(found, want, rel_tol=1e-12, abs_tol=1e-13)


def test_many_sets_in_small_pieces_are_the_same_sets(monkeypatch):
    rows = np.random.default_rng(2).normal(size=(200, 4))
    index = np.random.default_rng(3).permutation(600)
    whole = ExchangeablePosterior(rows).log_odds(index)
    monkeypatch.setattr(exchangeable, "_CHUNK", 16)
    np.testing.assert_array_equal(ExchangeablePosterior(rows).log_odds(index), whole)


def test_sets_do_not_speak_for_each_other():
    rows = np.random.default_rng(2).normal(size=(2, 4))
    posterior = ExchangeablePosterior(rows)
    before = posterior.log_odds(np.array([4]))
    posterior.reveal(np.array([0, 1]), np.array([1, 1], np.int8))
    np.testing.assert_array_equal(posterior.log_odds(np.array([4])), before)


def test_sure_coins_are_infinite_and_a_contradiction_says_nothing():
    exact = np.array([[-np.inf, 0.0, -np.inf]])  # one of two
    posterior = ExchangeablePosterior(exact)
    np.testing.assert_array_equal(posterior.log_odds(np.array([0, 1])), [0.0, 0.0])
    posterior.reveal(np.array([1]), np.array([-1], np.int8))
    np.testing.assert_array_equal(posterior.log_odds(np.array([0])), [np.inf])
    impossible = ExchangeablePosterior(np.full((1, 3), -np.inf))
    np.testing.assert_array_equal(impossible.log_odds(np.array([0])), [0.0])


def test_batches_take_one_element_of_every_set():
    posterior = ExchangeablePosterior(np.zeros((3, 4)), elements=7)
    batches = [batch.tolist() for batch in posterior.batches()]
    assert batches == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("rows", "elements", "said"),
    [
        (np.zeros(3), None, "a row for each set"),
        (np.zeros((2, 1)), None, "a row for each set"),
        (np.array([[0.0, np.nan]]), None, "NaN"),
        (np.array([[0.0, np.inf]]), None, "infinity"),
        (np.zeros((2, 3)), 2, "cannot hold"),
        (np.zeros((2, 3)), 5, "cannot hold"),
    ],
)
def test_what_is_no_likelihood_is_refused(rows, elements, said):
    with pytest.raises(InvalidInputError, match=said):
        ExchangeablePosterior(rows, elements=elements)


def test_a_set_gives_no_more_coins_than_it_has():
    posterior = ExchangeablePosterior(np.zeros((1, 3)))
    posterior.reveal(np.array([0, 1]), np.array([1, -1], np.int8))
    with pytest.raises(InvalidInputError, match="revealed altogether"):
        posterior.log_odds(np.array([0]))
    with pytest.raises(InvalidInputError, match="twice"):
        posterior.reveal(np.array([0]), np.array([1], np.int8))
