"""The likelihood of counts, against enumeration over all coins and batches."""

import math
import tracemalloc

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaudit.dpsgd import likelihood as module
from dpaudit.dpsgd.likelihood import STRETCH, CountLikelihood, saved_counts
from dpaudit.dpsgd.sampling import Differences, PlusMinus, Poisson
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior

rates = st.sampled_from([0.1, 0.37, 0.9, 1.0])
scales = st.floats(0.3, 3.0)


def seen(sampling, per_coordinate, sums, scale):
    """Observe an array of steps by coordinates, with a scale for each step."""
    found = CountLikelihood(
        coordinates=np.shape(sums)[1], per_coordinate=per_coordinate, sampling=sampling
    )
    for x, one in zip(sums, scale, strict=True):
        found.observe(x, one)
    return found.log_likelihood


def agrees(rows, size, likelihood, known, log_odds):
    """Compare the log-odds of the coin after those known, at each coordinate."""
    for c, row in enumerate(rows):
        posterior = ExchangeablePosterior(row[np.newaxis])
        signs = 2 * np.array(known, np.int8) - np.int8(1)
        posterior.reveal(np.arange(len(known)), signs)
        found = posterior.log_odds(np.array([len(known)]))[0]
        want = log_odds(lambda coins, c=c: likelihood(c, coins), size, known)
        assert found == pytest.approx(want, rel=1e-12, abs=1e-12)


@st.composite
def runs(draw):
    size = draw(st.integers(1, 4))
    count = draw(st.integers(1, 3))
    scale = draw(st.lists(scales, min_size=count, max_size=count))
    value = st.floats(-3.0, size + 3.0)
    pair = st.lists(value, min_size=2, max_size=2)
    sums = np.array(draw(st.lists(pair, min_size=count, max_size=count)))
    known = draw(st.lists(st.integers(0, 1), max_size=size - 1))
    return size, sums, scale, tuple(known)


@given(runs(), rates)
@settings(max_examples=40)
def test_poisson_sampling_agrees_with_all_coins_and_batches(brute, run, rate):
    size, sums, scale, known = run
    rows = seen(Poisson(rate=rate), size, sums, scale)

    def likelihood(c, coins):
        return brute.poisson(coins, sums[:, c], scale, rate)

    agrees(rows, size, likelihood, known, brute.log_odds)


@given(runs(), rates)
@settings(max_examples=40)
def test_plus_and_minus_agree_with_all_coins_and_batches(brute, run, rate):
    size, sums, scale, known = run
    rows = seen(PlusMinus(rate=rate), size, sums, scale)

    def likelihood(c, coins):
        return brute.poisson(coins, sums[:, c], scale, rate, absent=-1)

    agrees(rows, size, likelihood, known, brute.log_odds)


@given(runs(), rates)
@settings(max_examples=20)
def test_differences_agree_with_all_coins_and_batches_of_both_steps(brute, run, rate):
    size, sums, scale, known = run
    rows = seen(Differences(of=Poisson(rate=rate)), size, sums, scale)

    def likelihood(c, coins):
        return brute.differences(coins, sums[:, c], scale, rate)

    agrees(rows, size, likelihood, known, brute.log_odds)


def test_one_scale_for_each_coordinate_is_the_same_as_each_alone():
    rng = np.random.default_rng(1)
    sums, scale = rng.normal(2, 2, (5, 4)), rng.uniform(0.3, 3, 4)
    sampling = Poisson(rate=0.3)
    whole = seen(sampling, 4, sums, [scale] * 5)
    for c in range(4):
        alone = seen(sampling, 4, sums[:, c : c + 1], [scale[c]] * 5)
        np.testing.assert_allclose(whole[c], alone[0], rtol=1e-12, atol=1e-12)


def test_a_gaussian_background_adds_its_variance():
    """Averaged over the background by quadrature, with mpmath."""
    sigma, background, x, rate = 0.5, 1.2, 1.7, 0.4
    with mpmath.workdps(20):

        def at(n):
            probabilities = [
                mpmath.binomial(n, j) * rate**j * (1 - rate) ** (n - j)
                for j in range(n + 1)
            ]
            return mpmath.quad(
                lambda b: (
                    sum(
                        p * mpmath.npdf(x - b, j, sigma)
                        for j, p in enumerate(probabilities)
                    )
                    * mpmath.npdf(b, 0, background)
                ),
                [-12, -4, 0, 2, 4, 12],
            )

        want = [float(mpmath.log(at(n) / at(0))) for n in range(4)]
    row = seen(Poisson(rate=rate), 3, [[x]], [math.hypot(sigma, background)])[0]
    np.testing.assert_allclose(row - row[0], want, rtol=1e-12, atol=1e-12)


def test_one_canary_is_the_closed_form():
    rng = np.random.default_rng(2)
    sums = rng.normal(0.3, 2.0, (50, 7))
    rows = seen(Poisson(rate=0.2), 1, sums, [1.5] * 50)
    want = np.log(0.8 + 0.2 * np.exp((2 * sums - 1) / (2 * 1.5**2))).sum(axis=0)
    np.testing.assert_allclose(rows[:, 1] - rows[:, 0], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sampling", [Poisson(rate=0.1), PlusMinus(rate=0.3)])
@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.3, 2.4, 40.0])
def test_any_noise_agrees_with_fifty_digits(sampling, scale):
    """The formula, term by term; ln P[j | N] is what the other tests have checked."""
    size, steps = 6, 12
    rng = np.random.default_rng(3)
    sums = rng.integers(-2, 8, (steps, 3)) + scale * rng.normal(size=(steps, 3))
    rows = seen(sampling, size, sums, [scale] * steps)
    distribution = sampling.distribution(size)
    with mpmath.workdps(50):
        for c, row in enumerate(rows):
            want = []
            for probabilities in distribution.log_probabilities:
                terms = [
                    mpmath.log(
                        sum(
                            mpmath.exp(
                                float(p) - ((x - j) / mpmath.mpf(scale)) ** 2 / 2
                            )
                            for p, j in zip(
                                probabilities, distribution.sums.tolist(), strict=True
                            )
                        )
                    )
                    for x in sums[:, c].tolist()
                ]
                want.append(sum(terms))
            want = np.array([float(w - max(want)) for w in want])
            # Numbers of size 1e8 (for scale 1e-3) carry rounding of their own.
            np.testing.assert_allclose(row, want, rtol=2e-13, atol=1e-12)


def test_long_and_short_way_agree_where_both_can_go():
    rng = np.random.default_rng(4)
    sums = rng.normal(3, 2, (30, 50))
    short = seen(Poisson(rate=0.2), 10, sums, [2.0] * 30)
    long = seen(Poisson(rate=0.2), 10, sums, [np.full(50, 2.0)] * 30)
    np.testing.assert_allclose(short, long, rtol=1e-12, atol=1e-12)


def test_pieces_of_coordinates_are_the_whole(monkeypatch):
    sums = np.random.default_rng(5).normal(1, 2, (40, 300))
    whole = seen(Poisson(rate=0.3), 5, sums, [0.9] * 40)
    shards = [
        seen(Poisson(rate=0.3), 5, sums[:, a : a + 77], [0.9] * 40)
        for a in range(0, 300, 77)
    ]
    np.testing.assert_allclose(np.concatenate(shards), whole, rtol=1e-13, atol=1e-13)
    monkeypatch.setattr(module, "STRETCH", 16)
    pieces = seen(Poisson(rate=0.3), 5, sums, [0.9] * 40)
    np.testing.assert_allclose(pieces, whole, rtol=1e-13, atol=1e-13)


def test_looking_in_between_changes_nothing():
    sums = np.random.default_rng(6).normal(1, 2, (60, 20))
    sampling = Poisson(rate=0.3)
    looked = CountLikelihood(coordinates=20, per_coordinate=5, sampling=sampling)
    for x in sums:
        looked.observe(x, 1.3)
        _ = looked.log_likelihood
    np.testing.assert_allclose(
        looked.log_likelihood, seen(sampling, 5, sums, [1.3] * 60), atol=1e-12
    )


def test_single_precision_sums_are_computed_in_double():
    sums = np.random.default_rng(7).normal(1, 2, (5, 20)).astype(np.float32)
    wide = seen(Poisson(rate=0.3), 5, sums.astype(np.float64), [1.3] * 5)
    np.testing.assert_array_equal(seen(Poisson(rate=0.3), 5, sums, [1.3] * 5), wide)


def test_a_rate_of_zero_says_nothing():
    sums = np.random.default_rng(8).normal(1, 2, (5, 20))
    np.testing.assert_array_equal(seen(Poisson(rate=0.0), 3, sums, [0.01] * 5), 0.0)


def test_outliers_of_any_size_leave_the_rest_alone():
    sums = np.random.default_rng(9).normal(1, 1, (3, 50))
    clean = seen(Poisson(rate=0.3), 4, sums, [1.0] * 3)
    sums[1, 7] = 1e9
    rows = seen(Poisson(rate=0.3), 4, sums, [1.0] * 3)
    assert not np.isnan(rows).any()
    others = np.arange(50) != 7
    np.testing.assert_allclose(rows[others], clean[others], rtol=1e-12, atol=1e-12)
    assert rows[7].argmax() == 4


@pytest.mark.nightly
def test_a_hundred_thousand_steps_need_no_memory_and_do_not_drift():
    """Two kinds of steps in turn, so the exact sum is known from two steps."""
    sampling = Poisson(rate=0.1)
    steps, sums = 100_000, np.array([[0.4, 1.1, -0.2], [0.1, -0.3, 0.9]])
    found = CountLikelihood(coordinates=3, per_coordinate=4, sampling=sampling)
    for t in range(steps - 2000):
        found.observe(sums[t % 2], 2.0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for t in range(2000):
        found.observe(sums[t % 2], 2.0)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2_000
    assert peak - before < 20_000
    two = seen(sampling, 4, sums, [2.0, 2.0])
    want = (two - two[:, :1]) * (steps // 2)
    rows = found.log_likelihood
    np.testing.assert_allclose(rows - rows[:, :1], want, rtol=1e-11)


@pytest.mark.parametrize(
    ("sums", "scale", "word"),
    [
        ([0.0, np.nan], 1.0, "finite"),
        ([0.0, np.inf], 1.0, "finite"),
        ([0.0, 1e200], 1e-3, "finite"),
        ([0.0, 1.0], 0.0, "scale"),
        ([0.0, 1.0], np.nan, "scale"),
        ([0.0, 1.0], [1.0, -1.0], "scale"),
        ([0.0, 1.0], [1.0, np.inf], "scale"),
        ([0.0, 1.0, 2.0], 1.0, "shapes"),
        ([0.0, 1.0], [1.0, 1.0, 1.0], "shapes"),
    ],
)
def test_what_is_no_step_is_refused(sums, scale, word):
    found = CountLikelihood(coordinates=2, per_coordinate=2, sampling=Poisson(rate=0.5))
    with pytest.raises(InvalidInputError, match=word):
        found.observe(np.array(sums), scale)


@pytest.mark.parametrize("kind", [Poisson, PlusMinus])
@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_is_a_probability(kind, rate):
    with pytest.raises(InvalidInputError, match="rate"):
        kind(rate=rate)


def test_a_law_sums_to_one():
    for sampling in (
        Poisson(rate=0.2),
        PlusMinus(rate=0.7),
        Differences(of=PlusMinus(rate=0.4)),
    ):
        distribution = sampling.distribution(9)
        np.testing.assert_allclose(
            np.exp(distribution.log_probabilities).sum(axis=1), 1, rtol=1e-13
        )


def test_a_stretch_far_out_is_read_like_one_alone():
    """Before and after one that is not; each stretch has a bound of its own."""
    rng = np.random.default_rng(8)
    near = 0.3 * rng.normal(size=STRETCH)
    far = 60 * rng.normal(size=STRETCH) + rng.integers(0, 4, STRETCH)
    together = seen(Poisson(rate=0.3), 3, [np.concatenate([near, far, near])], [0.3])
    alone = [seen(Poisson(rate=0.3), 3, [part], [0.3]) for part in (near, far, near)]
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-12, atol=1e-12)


def test_what_was_saved_goes_on_as_if_nothing_had_happened():
    """More coordinates than one stretch; saved after two of four steps."""
    rng = np.random.default_rng(8)
    steps = rng.normal(size=(4, STRETCH + 3))

    def fresh():
        return CountLikelihood(
            coordinates=STRETCH + 3, per_coordinate=2, sampling=Poisson(rate=0.4)
        )

    whole, first, second = fresh(), fresh(), fresh()
    for sums in steps:
        whole.observe(sums, 1.2)
    for sums in steps[:2]:
        first.observe(sums, 1.2)
    saved = first.saved()
    kept = {name: values.copy() for name, values in saved.items()}
    second.restore(saved)
    for sums in steps[2:]:
        second.observe(sums, 1.2)
    np.testing.assert_allclose(
        second.log_likelihood, whole.log_likelihood, atol=1e-10, rtol=0
    )
    for name, values in kept.items():
        np.testing.assert_array_equal(saved[name], values)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((3, 3)),
        np.zeros((2, 4)),
        np.zeros((2, 3), np.float32),
        np.full((2, 3), np.nan),
    ],
)
def test_what_another_audit_saved_is_refused(rows):
    found = CountLikelihood(coordinates=2, per_coordinate=2, sampling=Poisson(rate=0.4))
    with pytest.raises(
        InvalidInputError, match=r"^saved numbers 'log_likelihood' must"
    ):
        found.restore({"log_likelihood": rows})
    with pytest.raises(InvalidInputError, match=r"^saved numbers 'log_likelihood' are"):
        found.restore({})


@pytest.mark.parametrize(
    "counts", [np.array([-1]), np.array([1.0]), np.array([1, 2]), np.array(1)]
)
def test_saved_counts_are_whole_numbers_as_many_as_asked(counts):
    with pytest.raises(InvalidInputError, match=r"^saved numbers 'n' must be 1 counts"):
        saved_counts({"n": counts}, "n", 1)
    assert saved_counts({"n": np.array([0, 7])}, "n", 2) == [0, 7]
