"""Every mechanism by its name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.catalogue import MECHANISMS, Parameters, named

NAMES = [
    "local-randomised-response",
    "local-laplace",
    "local-gaussian",
    "name-and-shame",
    "all-or-nothing",
    "xor",
    "xor-randomised-response",
    "xor-in-pairs",
    "count",
    "noisy-count-geometric",
    "noisy-count-laplace",
    "noisy-count-gaussian",
    "count-in-sets",
    "noisy-count-in-sets",
    "noisy-max",
]
NOT_PRIVATE = {"xor", "xor-in-pairs", "count", "count-in-sets"}


def test_the_table_is_what_the_manual_lists():
    assert list(MECHANISMS) == NAMES
    assert all(entry.about for entry in MECHANISMS.values())


@given(
    st.sampled_from(NAMES),
    st.integers(1, 20),
    st.integers(1, 5),
    st.floats(0.01, 6.0),
    st.floats(0.1, 5.0),
    st.integers(0, 10**6),
)
def test_a_game_can_be_played_with_each(name, half_sets, size, epsilon, sigma, seed):
    n = 2 * half_sets * size
    parameters = Parameters(elements=n, epsilon=epsilon, sigma=sigma, set_size=size)
    mechanism, rng = named(name, parameters), np.random.default_rng(seed)
    bits = rng.integers(0, 2, n).astype(np.uint8)
    output = mechanism.run(mechanism.pairs.choose(bits), rng)
    found = mechanism.log_odds(output)
    assert found.shape == (n,)
    assert not np.isnan(found).any()
    posterior, seen = mechanism.posterior(output), 0
    for batch in posterior.batches():
        log_odds = posterior.log_odds(batch)
        assert not np.isnan(log_odds).any()
        sure = np.isinf(log_odds)
        assert np.all((log_odds[sure] > 0) == (bits[batch][sure] == 1))
        posterior.reveal(batch, 2 * bits[batch].astype(np.int8) - 1)
        seen += len(batch)
    assert seen == n
    assert mechanism.loss_distribution(n).elements == n
    assert (mechanism.guarantee.delta_at(100.0) == 1.0) == (name in NOT_PRIVATE)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(InvalidInputError, match="no mechanism 'xor2'; known are local"):
        named("xor2", Parameters())
