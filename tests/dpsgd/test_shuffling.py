"""The likelihood of shuffled epochs, against all assignments of canaries to batches."""

import math
from fractions import Fraction
from math import comb, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaudit.dpsgd.shuffling import ShuffledLikelihood, Shuffling
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior


def seen(shuffling, per_coordinate, sums, scale):
    found = ShuffledLikelihood(
        coordinates=np.shape(sums)[1],
        per_coordinate=per_coordinate,
        shuffling=shuffling,
    )
    for x, one in zip(sums, scale, strict=True):
        found.observe(np.asarray(x), one)
    return found.log_likelihood


@given(st.data())
@settings(max_examples=60)
def test_an_epoch_and_parts_of_it_agree_with_all_assignments(brute, data):
    size, batches = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    least = -(-size // batches)
    places = data.draw(st.none() | st.integers(least, 5))
    count = data.draw(st.integers(1, batches))
    scale = data.draw(st.lists(st.floats(0.3, 3.0), min_size=count, max_size=count))
    value = st.floats(-3.0, size + 3.0)
    sums = data.draw(st.lists(value, min_size=count, max_size=count))
    known = tuple(data.draw(st.lists(st.integers(0, 1), max_size=size - 1)))
    shuffling = Shuffling(batches=batches, records_per_batch=places or inf)
    posterior = ExchangeablePosterior(seen(shuffling, size, [[x] for x in sums], scale))
    posterior.reveal(np.arange(len(known)), 2 * np.array(known, np.int8) - np.int8(1))
    found = posterior.log_odds(np.array([len(known)]))[0]
    want = brute.log_odds(
        lambda coins: brute.shuffled(coins, sums, scale, batches, places), size, known
    )
    assert found == pytest.approx(want, rel=1e-12, abs=1e-12)


def test_an_epoch_is_the_coefficient_of_a_polynomial(brute):
    """N! [z^N] prod_t sum_j phi(x_t - j) (z / K)^j / j!, multiplied out."""
    size, batches, scale = 7, 12, 0.8
    sums = np.random.default_rng(1).normal(0.5, 1.0, batches)
    product = np.ones(1)
    for x in sums:
        terms = [
            brute.density(x, j, scale) / batches**j / math.factorial(j)
            for j in range(size + 1)
        ]
        product = np.convolve(product, terms)[: size + 1]
    want = np.log(product * [math.factorial(n) for n in range(size + 1)])
    row = seen(Shuffling(batches=batches), size, sums[:, None], [scale] * batches)[0]
    np.testing.assert_allclose(row - row[0], want - want[0], rtol=1e-12, atol=1e-12)


def test_epochs_add_up():
    sums = np.random.default_rng(2).normal(1, 1, (12, 9))
    shuffling = Shuffling(batches=4, records_per_batch=3)
    whole = seen(shuffling, 5, sums, [0.7] * 12)
    parts = [seen(shuffling, 5, sums[t : t + 4], [0.7] * 4) for t in (0, 4, 8)]
    both = np.sum(parts, axis=0)
    np.testing.assert_allclose(
        whole - whole[:, :1], both - both[:, :1], rtol=1e-12, atol=1e-12
    )


def test_nothing_seen_says_nothing():
    shuffling = Shuffling(batches=4)
    found = ShuffledLikelihood(coordinates=3, per_coordinate=2, shuffling=shuffling)
    np.testing.assert_array_equal(found.log_likelihood, np.zeros((3, 3)))


@pytest.mark.parametrize("records", [inf, 2])
def test_next_to_no_noise_is_no_trouble(records):
    """The counts 1, 0, 2 of three batches: three of four canaries, for certain."""
    shuffling = Shuffling(batches=3, records_per_batch=records)
    rows = seen(shuffling, 4, [[1.0], [0.0], [2.0]], [1e-4] * 3)
    assert not np.isnan(rows).any()
    assert rows[0].argmax() == 3
    assert np.sort(rows[0])[-2] < -1e6


def test_a_scale_for_each_coordinate_is_the_same_as_each_alone():
    rng = np.random.default_rng(3)
    sums, scale = rng.normal(1, 1, (3, 4)), rng.uniform(0.3, 3, 4)
    shuffling = Shuffling(batches=3)
    whole = seen(shuffling, 3, sums, [scale] * 3)
    for c in range(4):
        alone = seen(shuffling, 3, sums[:, c : c + 1], [scale[c]] * 3)[0]
        got = whole[c] - whole[c].max()
        np.testing.assert_allclose(got, alone - alone.max(), rtol=1e-12, atol=1e-12)


def test_the_split_is_hypergeometric():
    """In exact rationals: 3 batches of 4 records, of which one is looked at."""
    split = np.exp(
        Shuffling(batches=3, records_per_batch=4).log_split(6, part=1, rest=2)
    )
    for n in range(7):
        for j in range(n + 1):
            want = Fraction(comb(4, j) * comb(8, n - j), comb(12, n))
            assert split[n, j] == pytest.approx(float(want), rel=1e-13, abs=1e-300)


def test_large_batches_are_nearly_independent():
    few = Shuffling(batches=10, records_per_batch=10**9).log_split(5, part=1, rest=9)
    free = Shuffling(batches=10).log_split(5, part=1, rest=9)
    np.testing.assert_allclose(np.exp(few), np.exp(free), rtol=1e-7)


@pytest.mark.parametrize("records", [0, 2.5, math.nan, -1])
def test_a_batch_has_a_whole_number_of_records(records):
    with pytest.raises(InvalidInputError, match="records_per_batch"):
        Shuffling(batches=2, records_per_batch=records)


def test_more_canaries_than_places_are_refused():
    with pytest.raises(InvalidInputError, match="no room"):
        ShuffledLikelihood(
            coordinates=1,
            per_coordinate=5,
            shuffling=Shuffling(batches=2, records_per_batch=2),
        )


@pytest.mark.parametrize("saved_after", [0, 1, 2, 3, 4])
def test_what_was_saved_goes_on_as_if_nothing_had_happened(saved_after):
    """Epochs of two batches; saved within and between them."""
    steps = np.random.default_rng(9).normal(size=(5, 3))

    def fresh():
        shuffling = Shuffling(batches=2, records_per_batch=5)
        return ShuffledLikelihood(coordinates=3, per_coordinate=2, shuffling=shuffling)

    whole, first, second = fresh(), fresh(), fresh()
    for sums in steps:
        whole.observe(sums, 0.9)
    for sums in steps[:saved_after]:
        first.observe(sums, 0.9)
    second.restore(first.saved())
    for sums in steps[saved_after:]:
        second.observe(sums, 0.9)
    np.testing.assert_allclose(
        second.log_likelihood, whole.log_likelihood, atol=1e-10, rtol=0
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"past": np.zeros((3, 9))}, "^saved numbers 'past' must be floats"),
        ({"epoch": np.zeros(3)}, "^saved numbers 'epoch' must be floats"),
        ({"batches_seen": np.array([-1])}, "^saved numbers 'batches_seen' must be 1"),
        ({"batches_seen": np.array([2])}, "^2 of 2 batches of an epoch were seen"),
    ],
)
def test_what_another_audit_saved_is_refused(change, message):
    shuffling = Shuffling(batches=2, records_per_batch=5)
    found = ShuffledLikelihood(coordinates=3, per_coordinate=2, shuffling=shuffling)
    with pytest.raises(InvalidInputError, match=message):
        found.restore(found.saved() | change)


def test_somewhere_there_must_be_a_coordinate():
    shuffling = Shuffling(batches=2, records_per_batch=5)
    with pytest.raises(InvalidInputError, match=r"^coordinates must be a whole number"):
        ShuffledLikelihood(coordinates=0, per_coordinate=2, shuffling=shuffling)
