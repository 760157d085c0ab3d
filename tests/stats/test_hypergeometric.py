"""The hypergeometric law, inverted: exact fractions, scipy, and long sums beside it."""

from fractions import Fraction
from itertools import product
from math import comb

import mpmath
import numpy as np
import pytest
from scipy import stats

from dpaudit.errors import InvalidInputError
from dpaudit.stats.hypergeometric import hypergeometric_quantile

ALMOST = 1 - 2.0**-53  # the largest uniform number of 53 bits


def exactly(ones, zeros, drawn):
    """Return the law as fractions, by counting."""
    ways = comb(ones + zeros, drawn)
    return {
        x: Fraction(comb(ones, x) * comb(zeros, drawn - x), ways)
        for x in range(max(0, drawn - zeros), min(ones, drawn) + 1)
    }


def test_every_small_law_is_that_of_counting():
    for ones in range(7):
        for zeros in range(7):
            for drawn in range(ones + zeros + 1):
                below = Fraction(0)
                for x, mass in exactly(ones, zeros, drawn).items():
                    for part in (
                        Fraction(1, 1000),
                        Fraction(1, 2),
                        Fraction(999, 1000),
                    ):
                        uniform = float(below + part * mass)
                        found = hypergeometric_quantile(
                            uniform, ones=ones, zeros=zeros, drawn=drawn
                        )
                        assert found == x, (uniform, ones, zeros, drawn)
                    below += mass


@pytest.mark.parametrize(
    ("ones", "zeros", "drawn"),
    [
        (300, 500, 250),
        (7, 100_000, 60_000),
        (100_000, 7, 60_000),
        (50_000, 60_000, 9),
        (1_000_000, 900_000, 1_899_990),
        (123_456, 654_321, 77_777),
        (10**6, 10**6, 10**6),
    ],
)
def test_quantiles_agree_with_scipy(ones, zeros, drawn):
    law = stats.hypergeom(ones + zeros, ones, drawn)
    for uniform in (0.0, 1e-12, 1e-6, 0.01, 0.3, 0.5, 0.77, 0.99, 1 - 1e-6, 1 - 1e-12):
        x = hypergeometric_quantile(uniform, ones=ones, zeros=zeros, drawn=drawn)
        if uniform == 0.0:
            # Less than any lot of 53 bits can tell lies below.
            assert law.cdf(x - 1) < 2.0**-54
            continue
        assert law.cdf(x - 1) <= uniform * (1 + 1e-6)
        if uniform < 0.5:
            assert law.cdf(x) >= uniform * (1 - 1e-6)
        else:
            assert law.sf(x) <= (1 - uniform) * (1 + 1e-3)
            assert law.sf(x - 1) >= (1 - uniform) * (1 - 1e-3)


def tail(x, step, ones, zeros, drawn):
    """Return P[X <= x], or P[X >= x] for step 1, from its first mass, in 40 digits."""
    with mpmath.workdps(40):

        def choose(n, k):
            return mpmath.loggamma(n + 1) - (
                mpmath.loggamma(k + 1) + mpmath.loggamma(n - k + 1)
            )

        mass = mpmath.exp(
            choose(ones, x) + choose(zeros, drawn - x) - choose(ones + zeros, drawn)
        )
        total = mpmath.mpf(0)
        while mass > 0 and (total == 0 or mass > total * mpmath.mpf(10) ** -25):
            total += mass
            if step > 0:
                mass *= mpmath.mpf((ones - x) * (drawn - x))
                mass /= (x + 1) * (zeros - drawn + x + 1)
            else:
                mass *= mpmath.mpf(x * (zeros - drawn + x))
                mass /= (ones - x + 1) * (drawn - x + 1)
            x += step
        return total


def test_quantiles_of_billions_agree_with_long_sums(subtests):
    for (ones, zeros, drawn), uniform in product(
        [
            (5, 10**12, 3 * 10**11),  # nearly binomial
            (2 * 10**9, 40, 10**9 + 3),  # how many of the few zeros are left
            (10**9 + 7, 3 * 10**9, 5_000),
            (30_000, 10**10, 10**6),
        ],
        [1e-9, 0.02, 0.6, 1 - 1e-9],
    ):
        with subtests.test(ones=ones, zeros=zeros, drawn=drawn, uniform=uniform):
            x = hypergeometric_quantile(uniform, ones=ones, zeros=zeros, drawn=drawn)
            least, most = max(0, drawn - zeros), min(ones, drawn)
            assert least <= x <= most
            if uniform < 0.5:
                assert tail(x, -1, ones, zeros, drawn) > uniform * (1 - 1e-9)
                assert x == least or tail(x - 1, -1, ones, zeros, drawn) <= uniform * (
                    1 + 1e-9
                )
            else:
                left = 1 - uniform
                assert x == most or tail(x + 1, 1, ones, zeros, drawn) < left * (
                    1 + 1e-6
                )
                assert tail(x, 1, ones, zeros, drawn) >= left * (1 - 1e-6)


def test_half_of_billions_is_as_far_from_the_mean_as_the_normal_law_says():
    """At 4 standard deviations of 11,180 the two laws differ by less than one part."""
    n = 10**9
    sd = (n / 8) ** 0.5 * (2 * n / (2 * n - 1)) ** 0.5
    for z in (-4.0, -1.0, 0.5, 3.0):
        uniform = float(stats.norm.cdf(z))
        x = hypergeometric_quantile(uniform, ones=n, zeros=n, drawn=n)
        assert (x - n / 2) / sd == pytest.approx(z, abs=1e-3)


def test_where_nothing_is_left_to_chance_nothing_is(subtests):
    for uniform, (ones, zeros, drawn, found) in product(
        [0.0, 2.0**-53, 0.5, ALMOST],
        [(0, 0, 0, 0), (0, 9, 4, 0), (9, 0, 4, 4), (4, 5, 0, 0), (4, 5, 9, 4)],
    ):
        with subtests.test(
            uniform=uniform, ones=ones, zeros=zeros, drawn=drawn, found=found
        ):
            got = hypergeometric_quantile(uniform, ones=ones, zeros=zeros, drawn=drawn)
            assert got == found


@pytest.mark.parametrize(("ones", "zeros", "drawn"), [(3, 2, 4), (40, 50, 30)])
def test_the_ends_of_the_interval_give_what_can_happen(ones, zeros, drawn):
    for uniform in (0.0, 5e-324, ALMOST):
        x = hypergeometric_quantile(uniform, ones=ones, zeros=zeros, drawn=drawn)
        assert max(0, drawn - zeros) <= x <= min(ones, drawn)


def test_a_lot_at_the_edge_gives_the_larger():
    """Half of all lots lie below one half, and 0.5 is not among them."""
    for uniform, found in ((0.5 - 2.0**-53, 0), (0.5, 1)):
        assert hypergeometric_quantile(uniform, ones=1, zeros=1, drawn=1) == found


def test_a_larger_lot_never_gives_less():
    for ones, zeros, drawn in ((40, 60, 30), (10**9, 10**8, 10**7)):
        lots = np.linspace(0, ALMOST, 40)
        found = [
            hypergeometric_quantile(float(u), ones=ones, zeros=zeros, drawn=drawn)
            for u in lots
        ]
        assert found == sorted(found)


@pytest.mark.parametrize(
    ("uniform", "ones", "zeros", "drawn"),
    [
        (1.0, 3, 3, 2),
        (-0.1, 3, 3, 2),
        (float("nan"), 3, 3, 2),
        (0.5, -1, 3, 2),
        (0.5, 3, -1, 2),
        (0.5, 3, 3, 7),
        (0.5, 3, 3, -1),
    ],
)
def test_what_is_no_draw_is_refused(uniform, ones, zeros, drawn):
    with pytest.raises(InvalidInputError, match="0 <= drawn <= ones"):
        hypergeometric_quantile(uniform, ones=ones, zeros=zeros, drawn=drawn)
