# ruff: noqa: ANN001, ANN201, ANN202 (tests, for people who write tests)
"""Twelve mechanisms that keep what they claim: OpenDP, diffprivlib, plain numpy."""

import warnings

import diffprivlib.mechanisms as diff
import numpy as np
import opendp.prelude as dp

dp.enable_features("contrib", "honest-but-curious")

DELTA = 1e-4


def scalar(kind):
    """Return the space of one number."""
    domain = (
        dp.atom_domain(T=kind, nan=False) if kind is float else dp.atom_domain(T=kind)
    )
    return domain, dp.absolute_distance(T=kind)


def test_opendp_laplace_on_floats(dp_audit):
    laplace = dp.m.make_laplace(*scalar(float), scale=1.0)
    dp_audit(laplace, pairs=(0.0, 1.0), epsilon=laplace.map(1.0))


def test_opendp_laplace_on_integers(dp_audit):
    laplace = dp.m.make_laplace(*scalar(int), scale=1.0)
    dp_audit(laplace, pairs=(0, 1), epsilon=laplace.map(1))


def test_opendp_gaussian(dp_audit):
    space = dp.atom_domain(T=int), dp.absolute_distance(T=float)
    gaussian = dp.m.make_gaussian(*space, scale=2.0)
    curve = dp.c.make_zCDP_to_approxDP(gaussian).map(1.0)
    dp_audit(gaussian, pairs=(0, 1), epsilon=curve.epsilon(DELTA), delta=DELTA)


def test_opendp_randomized_response(dp_audit):
    response = dp.m.make_randomized_response_bool(prob=0.75)
    dp_audit(response, pairs=(False, True), epsilon=response.map(1))


def test_opendp_noisy_max(dp_audit):
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int)
    noisy_max = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2.0)
    pairs = [3, 2, 2], [2, 3, 3]
    dp_audit(noisy_max, pairs=pairs, epsilon=noisy_max.map(1))


def test_opendp_sum_of_records(dp_audit):
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    total = (
        space
        >> dp.t.then_clamp((0, 3))
        >> dp.t.then_sum()
        >> dp.m.then_laplace(scale=3.0)
    )
    # One record is replaced: two insertions and deletions.
    dp_audit(total, data=[1, 2, 3, 0], index=3, pairs=(0, 3), epsilon=total.map(2))


def test_diffprivlib_geometric(dp_audit):
    geometric = diff.Geometric(epsilon=1.0, sensitivity=1)
    dp_audit(geometric.randomise, pairs=(0, 1), epsilon=1.0)


def test_diffprivlib_geometric_truncated(dp_audit):
    geometric = diff.GeometricTruncated(epsilon=1.0, sensitivity=1, lower=0, upper=3)
    dp_audit(geometric.randomise, pairs=(1, 2), epsilon=1.0)


def test_diffprivlib_binary(dp_audit):
    binary = diff.Binary(epsilon=1.0, value0="no", value1="yes")
    dp_audit(binary.randomise, pairs=("no", "yes"), epsilon=1.0)


def test_diffprivlib_gaussian_discrete(dp_audit):
    gaussian = diff.GaussianDiscrete(epsilon=0.5, delta=DELTA, sensitivity=1)
    dp_audit(gaussian.randomise, pairs=(0, 1), epsilon=0.5, delta=DELTA)


def test_diffprivlib_permute_and_flip(dp_audit):
    def chosen(utilities):
        flip = diff.PermuteAndFlip(epsilon=1.0, sensitivity=1, utility=utilities)
        return flip.randomise()

    dp_audit(chosen, pairs=([1.0, 0.0, 0.0], [0.0, 1.0, 1.0]), epsilon=1.0)


def test_numpy_unary_encoding(dp_audit):
    """Each of four bits is flipped with the chance that two of them cost epsilon."""
    flip = 1 / (1 + np.exp(0.5))

    def encode(value, rng):
        bits = np.arange(4) == value
        return bits ^ (rng.random(4) < flip)

    dp_audit(encode, pairs=(0, 2), epsilon=1.0)


warnings.simplefilter("ignore")  # diffprivlib remarks on defaults
