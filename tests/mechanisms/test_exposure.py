"""Name-and-shame and all-or-nothing, around everything."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exposure import AllOrNothing, Identity, NameAndShame
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.noise import GaussianNoise
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, PrivacyCurve

INNER = [
    Identity(),
    LocalRandomisedResponse(epsilon=1.0),
    LocalLaplace(epsilon=1.0),
    LocalGaussian(sigma=1.0),
    count(4),
    CountInSets(elements=4, set_size=2, noise=GaussianNoise(sigma=1.0)),
]


class Doubled:
    """Someone's own mechanism, of which nothing else is known."""

    def run(self, data, rng):
        return 2 * data + rng.laplace(size=len(data))


class Claimed:
    """Someone's own mechanism with a guarantee of its own."""

    guarantee = ApproxDP(epsilon=2.0, delta=0.01, adjacency=Adjacency.REPLACE_ONE)

    def run(self, data, rng):
        return data


def test_a_mechanism_of_three_lines_can_be_wrapped():
    mechanism = AllOrNothing(elements=3, probability=0.4, inner=Doubled())
    rng = np.random.default_rng(2)
    seen = [mechanism.run(np.ones(3), rng) for _ in range(200)]
    assert any(o is None for o in seen)
    assert any(o is not None and len(o) == 3 for o in seen)
    want = ApproxDP(epsilon=0.0, delta=0.4, adjacency=Adjacency.REPLACE_ONE)
    assert mechanism.guarantee == want


@pytest.mark.parametrize(
    "name", ["log_odds", "posterior", "loss_distribution", "distribution", "pairs"]
)
def test_all_or_nothing_offers_what_is_inside_and_no_more(name):
    for inner in (*INNER, Doubled()):
        mechanism = AllOrNothing(elements=4, probability=0.4, inner=inner)
        assert hasattr(mechanism, name) == hasattr(inner, name)


@pytest.mark.parametrize("inner", INNER, ids=str)
def test_silence_says_nothing_and_all_else_says_what_it_says(inner):
    mechanism = AllOrNothing(elements=4, probability=0.5, inner=inner)
    np.testing.assert_array_equal(mechanism.log_odds(None), np.zeros(4))
    silent = mechanism.posterior(None)
    silent.reveal(np.array([0]), np.array([1], np.int8))
    np.testing.assert_array_equal(silent.log_odds(np.array([1, 3])), [0.0, 0.0])
    data = inner.pairs.choose(np.array([1, 0, 1, 1]))
    output = inner.run(data, np.random.default_rng(4))
    np.testing.assert_array_equal(mechanism.log_odds(output), inner.log_odds(output))
    every = np.arange(4)
    np.testing.assert_array_equal(
        mechanism.posterior(output).log_odds(every),
        inner.posterior(output).log_odds(every),
    )


@pytest.mark.parametrize("inner", INNER, ids=str)
def test_losses_are_those_inside_with_some_chance(inner):
    law = AllOrNothing(elements=4, probability=0.25, inner=inner).loss_distribution(8)
    (kind,), (plain,) = law.kinds, inner.loss_distribution(8).kinds
    assert (kind.probability, kind.groups, kind.size) == (
        0.25,
        plain.groups,
        plain.size,
    )
    assert kind.loss.tail(0.3) == plain.loss.tail(0.3)


@given(st.floats(0.0, 1.0), st.floats(0.0, 12.0), st.sampled_from(INNER[1:4]))
def test_every_delta_is_scaled(chance, epsilon, inner):
    """Curves are chords between 400 points, so never below and hardly above."""
    found = AllOrNothing(elements=4, probability=chance, inner=inner).guarantee
    want = chance * inner.guarantee.delta_at(epsilon)
    assert found.delta_at(epsilon) >= want * (1 - 1e-9)
    assert math.isclose(found.delta_at(epsilon), want, rel_tol=0.02, abs_tol=1e-5)
    assert found.adjacency is Adjacency.REPLACE_ONE


def test_the_curve_of_a_claim_with_a_delta_is_scaled_at_its_ends_and_between():
    found = AllOrNothing(elements=4, probability=0.5, inner=Claimed()).guarantee
    assert isinstance(found, PrivacyCurve)
    for epsilon in (0.0, 0.7, 1.9, 2.0, 3.0):
        want = 0.5 * Claimed.guarantee.delta_at(epsilon)
        assert math.isclose(found.delta_at(epsilon), want, rel_tol=1e-9)


def test_the_data_are_published_as_often_as_said():
    """Fixed seed; 5 deviations, which happens once in 10^6."""
    mechanism = AllOrNothing(elements=2, probability=0.3)
    rng, data = np.random.default_rng(7), np.array([0, 1])
    outputs = [mechanism.run(data, rng) for _ in range(10_000)]
    shown = [o for o in outputs if o is not None]
    assert all(np.array_equal(o, data) for o in shown)
    assert abs(len(shown) - 3000) < 5 * math.sqrt(10_000 * 0.3 * 0.7)


def test_what_is_published_is_a_copy():
    data = np.array([0, 1])
    output = Identity().run(data, np.random.default_rng(1))
    output[0] = 1
    assert data[0] == 0


@given(st.integers(1, 300))
def test_the_output_names_its_element(n):
    mechanism = NameAndShame(elements=n)
    rng = np.random.default_rng(n)
    bits = rng.integers(0, 2, n)
    output = mechanism.run(mechanism.pairs.choose(bits), rng)
    found = mechanism.log_odds(output)
    (named,) = np.flatnonzero(found)
    assert (found[named] > 0) == (bits[named] == 1)
    assert math.isinf(found[named])


def test_any_data_may_be_named():
    word = NameAndShame(elements=2).run(np.array(["x", "y"]), np.random.default_rng(1))
    assert word in {"x", "y"}


@pytest.mark.parametrize("output", [0, 4, -4])
def test_an_output_that_names_no_one_is_refused(output):
    with pytest.raises(InvalidInputError, match="names none of elements=3"):
        NameAndShame(elements=3).log_odds(output)


def test_values_without_meaning_are_refused():
    with pytest.raises(InvalidInputError, match="probability must be"):
        AllOrNothing(elements=2, probability=1.1)
    with pytest.raises(InvalidInputError, match="elements must be"):
        AllOrNothing(elements=0, probability=0.1)
    with pytest.raises(InvalidInputError, match="elements must be"):
        NameAndShame(elements=0)
    with pytest.raises(InvalidInputError, match="one row per element"):
        NameAndShame(elements=3).run(np.zeros(2), np.random.default_rng(1))
