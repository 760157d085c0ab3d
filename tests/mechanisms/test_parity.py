"""Parities: nothing without the others, everything with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse


def adaptive_score(mechanism, bits, rng):
    """Guess only what is known for certain, learning each batch's coins."""
    posterior = mechanism.posterior(mechanism.run(bits, rng))
    right = wrong = 0
    for batch in posterior.batches():
        log_odds = posterior.log_odds(batch)
        sure = np.isinf(log_odds)
        hits = (log_odds[sure] > 0) == (bits[batch][sure] > 0)
        right, wrong = right + hits.sum(), wrong + (~hits).sum()
        posterior.reveal(batch, (2 * bits[batch].astype(np.int8) - 1))
    return right, wrong


@given(st.integers(1, 200))
def test_half_of_the_pairs_are_guessed_for_certain(half):
    rng = np.random.default_rng(half)
    bits = rng.integers(0, 2, 2 * half).astype(np.uint8)
    assert adaptive_score(XorInPairs(elements=2 * half), bits, rng) == (half, 0)


@given(st.integers(1, 200))
def test_one_coin_of_a_parity_is_guessed_for_certain(n):
    rng = np.random.default_rng(n)
    bits = rng.integers(0, 2, n).astype(np.uint8)
    assert adaptive_score(Xor(elements=n), bits, rng) == (1, 0)


def test_batches_are_made_so_that_the_last_coin_is_known():
    rng = np.random.default_rng(1)
    bits = np.array([0, 1, 1, 0])
    pairs = XorInPairs(elements=4).posterior(XorInPairs(elements=4).run(bits, rng))
    assert [b.tolist() for b in pairs.batches()] == [[0, 2], [1, 3]]
    whole = Xor(elements=4).posterior(0)
    assert [b.tolist() for b in whole.batches()] == [[0, 1, 2], [3]]
    assert [b.tolist() for b in Xor(elements=1).posterior(0).batches()] == [[0]]


@given(st.integers(2, 50), st.floats(0.0, 5.0))
def test_no_element_loses_anything_by_itself(n, epsilon):
    noisy = XorRandomisedResponse(elements=n, epsilon=epsilon)
    for mechanism in (Xor(elements=n), noisy):
        assert mechanism.loss_distribution(n).kinds == ()
        for output in (0, 1):
            assert not mechanism.log_odds(output).any()


def test_a_parity_of_one_loses_all():
    (kind,) = Xor(elements=1).loss_distribution(1).kinds
    assert kind.loss.supremum == np.inf
    (kind,) = XorRandomisedResponse(elements=1, epsilon=2.0).loss_distribution(1).kinds
    assert kind.loss.supremum == 2.0


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.int64])
def test_bits_of_any_type_have_a_parity(dtype):
    data, rng = np.array([1, 0, 1, 1]).astype(dtype), np.random.default_rng(1)
    assert Xor(elements=4).run(data, rng) == 1
    assert XorInPairs(elements=4).run(data, rng).astype(int).tolist() == [1, 0]


def test_odd_numbers_do_not_go_in_pairs():
    with pytest.raises(InvalidInputError, match="must be even, got elements=5"):
        XorInPairs(elements=5)
    with pytest.raises(InvalidInputError, match="even"):
        XorInPairs(elements=4).loss_distribution(3)
    with pytest.raises(InvalidInputError, match="elements must be"):
        Xor(elements=0)
    with pytest.raises(InvalidInputError, match="epsilon must be"):
        XorRandomisedResponse(elements=2, epsilon=-1.0)
