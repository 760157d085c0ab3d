"""Tables of chances, and noisy max, which is a table of two or more columns."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.noisy_max import NoisyMax
from dpaudit.mechanisms.table import FiniteTable, digits, product_distribution


@given(st.integers(1, 4), st.integers(2, 4), st.integers(0, 10**6))
def test_a_table_says_what_bayes_says(bayes, play, n, outputs, seed):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(outputs, 0.3), size=2**n)
    table = FiniteTable(rows=rows)
    assert table.elements == n
    bits = tuple(rng.integers(0, 2, n).tolist())
    output = table.run(np.array(bits), rng)

    def likelihood(coins):
        return rows[int("".join(str(b) for b in reversed(coins)), 2), output]

    want = list(bayes(likelihood, n).values())
    np.testing.assert_allclose(table.log_odds(output), want, rtol=1e-9, atol=1e-9)
    play(table.posterior(output), likelihood, bits, rng.permutation(n), rtol=1e-8)


def test_element_zero_is_the_lowest_bit():
    table = FiniteTable(rows=np.eye(8))
    assert table.distribution(np.array([1, 0, 0])).argmax() == 1
    assert table.distribution(np.array([0, 0, 1])).argmax() == 4


@pytest.mark.parametrize(
    "rows",
    [
        np.ones(2) / 2,
        np.ones((3, 1)),
        np.ones((1, 1)),
        np.array([[0.5, 0.6], [0.5, 0.5]]),
        np.array([[-0.5, 1.5], [0.5, 0.5]]),
        np.array([[np.nan, 1.0], [0.5, 0.5]]),
    ],
)
def test_what_is_no_table_is_refused(rows):
    with pytest.raises(InvalidInputError, match="rows"):
        FiniteTable(rows=rows)


def test_a_table_is_not_changed_from_outside():
    rows = np.eye(2)
    table = FiniteTable(rows=rows)
    rows[0, 0] = 0.0
    assert table.rows[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        table.rows[0, 0] = 0.5
    with pytest.raises(InvalidInputError, match="1 elements"):
        table.outputs(2)
    with pytest.raises(InvalidInputError, match="one row per element"):
        table.distribution(np.array([0, 1]))


def test_products_and_digits_number_alike():
    parts = [np.array([0.2, 0.8]), np.array([0.1, 0.3, 0.6]), np.array([0.5, 0.5])]
    law, numbers = product_distribution(parts), digits([2, 3, 2])
    for chance, row in zip(law, numbers, strict=True):
        want = math.prod(part[d] for part, d in zip(parts, row, strict=True))
        assert math.isclose(chance, want)


@given(st.integers(1, 9), st.floats(0.0, 5.0), st.integers(2, 5))
def test_noisy_max_says_what_bayes_says(bayes, n, epsilon, candidates):
    mechanism = NoisyMax(elements=n, epsilon=epsilon, candidates=candidates)
    for output in range(candidates):

        def likelihood(bits, output=output):
            votes = [bits.count(c) for c in range(candidates)]
            weights = [math.exp(epsilon * v / 2) for v in votes]
            return weights[output] / sum(weights)

        want = list(bayes(likelihood, n).values())
        found = mechanism.log_odds(output)
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-11)
        assert np.all(np.abs(found) <= epsilon + 1e-9)


def test_votes_are_counted_for_all_candidates():
    """P[o] is proportional to e^(epsilon votes / 2): 2, 0 and 1 votes."""
    law = NoisyMax(elements=3, epsilon=2.0, candidates=3).distribution(
        np.array([0, 2, 0])
    )
    weights = np.exp([2.0, 0.0, 1.0])
    np.testing.assert_allclose(law, weights / weights.sum())


def test_large_elections_do_not_overflow():
    mechanism = NoisyMax(elements=50_000, epsilon=3.0, candidates=3)
    (kind,) = mechanism.loss_distribution(50_000).kinds
    assert np.all(np.isfinite(kind.loss.values))
    found = mechanism.log_odds(1)
    assert found[0] == pytest.approx(kind.loss.supremum, rel=1e-6)
    # The winner is the majority, so a vote agrees as in the plain majority:
    # an advantage of about sqrt(2 / (pi n)), of which the log-odds are four times.
    assert found[0] == pytest.approx(4 / math.sqrt(2 * math.pi * 50_000), rel=0.01)


def test_votes_for_no_candidate_are_refused():
    mechanism = NoisyMax(elements=2, epsilon=1.0)
    with pytest.raises(InvalidInputError, match="from 0 to 1, got 2"):
        mechanism.run(np.array([0, 2]), np.random.default_rng(1))
    with pytest.raises(InvalidInputError, match="none of the 2 candidates"):
        mechanism.log_odds(2)
    with pytest.raises(InvalidInputError, match="candidates must be"):
        NoisyMax(elements=2, epsilon=1.0, candidates=1)
