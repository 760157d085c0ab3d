# ruff: noqa: ANN001, ANN201, ANN202 (tests, for people who write tests)
"""Broken copies of the mechanisms: every test here must fail.

Each has the fault that its name says, as it was made in real code; the claim is that of
the mechanism it copies.
"""

import math
import random

import diffprivlib.mechanisms as diff
import numpy as np
import opendp.prelude as dp

dp.enable_features("contrib", "honest-but-curious")

DELTA = 1e-4
FLOATS = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
WHOLE = dp.atom_domain(T=int), dp.absolute_distance(T=int)


# Wrong scale


def test_opendp_laplace_with_epsilon_as_scale(dp_audit):
    """The scale is epsilon instead of sensitivity / epsilon."""
    laplace = dp.m.make_laplace(*FLOATS, scale=0.5)
    dp_audit(laplace, pairs=(0.0, 1.0), epsilon=0.5)


def test_opendp_laplace_a_fifth_too_small(dp_audit):
    laplace = dp.m.make_laplace(*WHOLE, scale=0.8)
    dp_audit(laplace, pairs=(0, 1), epsilon=1.0, seconds=30)


def test_opendp_gaussian_with_variance_as_scale(dp_audit):
    """Noise of standard deviation sqrt(s) where s was meant."""
    space = dp.atom_domain(T=int), dp.absolute_distance(T=float)
    meant = dp.m.make_gaussian(*space, scale=4.0)
    epsilon = dp.c.make_zCDP_to_approxDP(meant).map(1.0).epsilon(DELTA)
    gaussian = dp.m.make_gaussian(*space, scale=0.5)
    dp_audit(gaussian, pairs=(0, 1), epsilon=epsilon, delta=DELTA, seconds=30)


# Wrong sensitivity


def test_opendp_sum_without_clamping(dp_audit):
    """The noise is for records up to 1; nothing cuts off a record of 3."""
    noise = dp.m.make_laplace(*WHOLE, scale=1.0)
    dp_audit(
        lambda data: noise(sum(data)), data=[1, 0, 1], index=1, pairs=(0, 3), epsilon=1
    )


def test_diffprivlib_histogram_with_half_the_sensitivity(dp_audit):
    """One record that moves changes two counts; the noise is for one."""
    noise = diff.Geometric(epsilon=1.0, sensitivity=1)

    def histogram(values):
        counts = np.bincount(values, minlength=3)
        return [noise.randomise(int(count)) for count in counts]

    dp_audit(histogram, data=[0, 1, 1, 2], index=0, pairs=(0, 2), epsilon=1.0)


# Floating point


def test_numpy_laplace(dp_audit):
    """Noise of the right law, added in floating point: Mironov (2012)."""
    dp_audit(lambda x, rng: x + rng.laplace(), pairs=(0.0, 1.0), epsilon=1.0)


def test_laplace_by_inverse_distribution(dp_audit):
    def laplace(value):
        uniform = random.random() - 0.5
        return value - math.copysign(math.log1p(-2 * abs(uniform)), uniform)

    dp_audit(laplace, pairs=(0.0, 1.0), epsilon=1.0)


def test_numpy_laplace_in_single_precision(dp_audit):
    def laplace(value, rng):
        return np.float32(value) + np.float32(rng.laplace())

    dp_audit(laplace, pairs=(0.0, 1.0), epsilon=1.0)


# Rounding


def test_noise_rounded_before_it_is_added(dp_audit):
    """Rounded noise keeps the fraction of the value."""
    noise = diff.Geometric(epsilon=1.0, sensitivity=1)
    dp_audit(lambda value: value + noise.randomise(0), pairs=(0.25, 0.75), epsilon=1.0)


def test_output_printed_with_the_digits_of_its_input(dp_audit):
    laplace = dp.m.make_laplace(*FLOATS, scale=1.0)

    def report(value):
        digits = len(str(value).partition(".")[2])
        return f"{laplace(value):.{digits}f}"

    dp_audit(report, pairs=(0.5, 0.25), epsilon=0.25)


# Reused randomness


def test_numpy_geometric_seeded_in_every_call(dp_audit):
    def geometric(value):
        rng = np.random.default_rng(42)
        return value + int(rng.geometric(0.6)) - int(rng.geometric(0.6))

    dp_audit(geometric, pairs=(0, 1), epsilon=1.0)


def test_diffprivlib_laplace_with_a_fixed_random_state(dp_audit):
    def laplace(value):
        mechanism = diff.Laplace(epsilon=1.0, sensitivity=1.0, random_state=7)
        return mechanism.randomise(value)

    dp_audit(laplace, pairs=(0.0, 1.0), epsilon=1.0)


def test_noise_from_a_small_cache(dp_audit):
    rng = np.random.default_rng()
    cache = np.round(rng.laplace(size=256) * 2**20) / 2**20
    dp_audit(lambda value: value + random.choice(cache), pairs=(0.0, 1.0), epsilon=1.0)


def test_noise_shared_by_two_calls(dp_audit):
    """The noise of a pair of draws is used twice."""
    noise = dp.m.make_laplace(*FLOATS, scale=1.0)
    last = []

    def laplace(value):
        if not last:
            last.append(noise(0.0))
            return value + last[0]
        return value + last.pop()

    dp_audit(laplace, pairs=(0.0, 1.0), epsilon=1.0)


# Off by one


def test_geometric_truncated_off_by_one(dp_audit):
    """Where the noise is cut off depends on the value: ends give it away."""
    noise = dp.m.make_laplace(*WHOLE, scale=1.0)

    def truncated(value):
        return value + min(max(noise(0), -3), 3)

    dp_audit(truncated, pairs=(0, 1), epsilon=1.0, seconds=20)


def test_diffprivlib_truncated_with_one_bound_moved(dp_audit):
    """The upper limit excludes itself for one of the values."""

    def truncated(value):
        limits = {"lower": 0, "upper": 3 - (value == 1)}
        mechanism = diff.GeometricTruncated(epsilon=1.0, sensitivity=1, **limits)
        return mechanism.randomise(value)

    dp_audit(truncated, pairs=(1, 2), epsilon=1.0)


def test_randomised_response_that_never_tells_the_last_answer(dp_audit):
    """randrange(n - 1) where randrange(n) was meant."""

    def response(value):
        if random.random() < math.exp(1) / (math.exp(1) + 3):
            return value
        return [other for other in range(4) if other != value][random.randrange(2)]

    dp_audit(response, pairs=(0, 3), epsilon=1.0)


# Others


def test_diffprivlib_exponential_with_twice_the_exponent(dp_audit):
    """The factor 2 of the exponential mechanism is forgotten."""

    def chosen(utilities):
        mechanism = diff.Exponential(epsilon=2.0, sensitivity=1, utility=utilities)
        return mechanism.randomise()

    pairs = [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]
    dp_audit(chosen, pairs=pairs, epsilon=1.0, seconds=10)


def test_noise_skipped_for_zero(dp_audit):
    noise = dp.m.make_laplace(*WHOLE, scale=1.0)
    dp_audit(lambda value: noise(value) if value else 0, pairs=(0, 1), epsilon=1.0)


def test_noise_scale_from_the_data(dp_audit):
    """The range of the data, which is private, sets the noise."""

    def total(data):
        noise = dp.m.make_laplace(*FLOATS, scale=float(max(data)) or 1.0)
        return noise(float(sum(data)))

    dp_audit(total, data=[1.0, 1.0, 0.0], index=2, pairs=(0.0, 9.0), epsilon=1.0)


def test_a_type_that_tells(dp_audit):
    """A clipped output is an integer, any other a float."""
    laplace = dp.m.make_laplace(*FLOATS, scale=1.0)

    def clipped(value):
        noisy = laplace(value)
        return int(value) if abs(noisy - value) > 3 else noisy

    dp_audit(clipped, pairs=(0.0, 1.0), epsilon=1.0, seconds=30)


def test_exception_that_tells(dp_audit):
    noise = dp.m.make_laplace(*WHOLE, scale=1.0)

    def checked(value):
        if value == 1 and random.random() < 0.05:
            raise OverflowError("value out of range")
        return noise(value)

    dp_audit(checked, pairs=(0, 1), epsilon=1.0, seconds=30, raising=[OverflowError])
