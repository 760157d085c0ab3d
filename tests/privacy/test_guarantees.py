"""Claims: refused without meaning, right about what they imply, rounded safely."""

import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from dpaudit import Design, OneRun
from dpaudit.errors import InvalidInputError
from dpaudit.privacy import lines
from dpaudit.privacy.guarantees import (
    Adjacency,
    ApproxDP,
    GaussianDP,
    PrivacyCurve,
    PureDP,
    RenyiDP,
    ZeroConcentratedDP,
)

EPSILONS = st.floats(0, 30)
DELTAS = st.one_of(st.just(0.0), st.floats(1e-15, 1))
CHANCES = st.floats(0, 1)
CLAIMS = st.one_of(
    st.builds(ApproxDP, epsilon=EPSILONS, delta=DELTAS),
    st.builds(PureDP, epsilon=EPSILONS),
    st.builds(GaussianDP, mu=st.one_of(st.just(0.0), st.floats(1e-6, 30))),
)


def gaussian_delta(mu, epsilons):
    """The exact curve of N(0, 1) against N(mu, 1); good to about 1e-15."""
    e = np.asarray(epsilons)
    far = stats.norm.logcdf(-e / mu - mu / 2)
    return stats.norm.cdf(-e / mu + mu / 2) - np.exp(e + far)


@st.composite
def sampled_gaussians(draw):
    """A Gaussian curve known only at a few epsilons, with its mu."""
    mu = draw(st.floats(0.3, 3))
    epsilons = np.unique(draw(st.lists(st.floats(0, 12), min_size=1, max_size=8)))
    deltas = np.clip(gaussian_delta(mu, epsilons) + 1e-14, 0, 1)
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]
    return mu, PrivacyCurve(epsilons=epsilons, deltas=deltas)


CLAIMS_AND_CURVES = st.one_of(CLAIMS, sampled_gaussians().map(lambda drawn: drawn[1]))


def detection(claim, x):
    """One minus the trade-off function of an approximate claim, as defined."""
    odds, rest = mpmath.exp(claim.epsilon), 1 - mpmath.mpf(claim.delta)
    return 1 - max(mpmath.mpf(0), rest - odds * x, (rest - x) / odds)


@pytest.mark.parametrize("epsilon", [-0.1, math.inf, math.nan])
def test_epsilon_is_finite_and_not_negative(epsilon):
    with pytest.raises(InvalidInputError, match="epsilon must be a finite number"):
        ApproxDP(epsilon=epsilon, delta=0.0)
    with pytest.raises(InvalidInputError, match="epsilon must be a finite number"):
        PureDP(epsilon=epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.1, math.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(InvalidInputError, match=r"delta must be in \[0, 1\]"):
        ApproxDP(epsilon=1.0, delta=delta)


@pytest.mark.parametrize("mu", [-1.0, math.inf, math.nan])
def test_mu_is_finite_and_not_negative(mu):
    with pytest.raises(InvalidInputError, match="mu must be a finite number"):
        GaussianDP(mu=mu)


@pytest.mark.parametrize("claim", [PureDP(epsilon=1.0), GaussianDP(mu=1.0)])
def test_a_question_without_meaning_is_refused(claim):
    with pytest.raises(InvalidInputError, match="epsilon must be"):
        claim.delta_at(-1.0)
    with pytest.raises(InvalidInputError, match="delta must be"):
        claim.epsilon_at(1.5)
    with pytest.raises(InvalidInputError, match="probability must be"):
        claim.complement_inverse(-0.5)


@given(EPSILONS, DELTAS, st.floats(0, 40))
def test_an_approximate_claim_implies_what_its_trade_off_function_does(
    epsilon, delta, at
):
    """The supremum of 1 - f(x) - e^at x, over the corners of f, in 330 digits."""
    got = ApproxDP(epsilon=epsilon, delta=delta).delta_at(at)
    with mpmath.workdps(330):
        odds, rest = mpmath.exp(mpmath.mpf(epsilon)), 1 - mpmath.mpf(delta)
        corner = rest / (1 + odds)
        corners = [(mpmath.mpf(0), rest), (corner, corner), (rest, mpmath.mpf(0))]
        want = max(1 - y - mpmath.exp(mpmath.mpf(at)) * x for x, y in corners)
    assert got == pytest.approx(float(want), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("gap", [1e-3, 1e-9, 1e-13])
def test_just_below_its_epsilon_a_pure_claim_keeps_its_digits(gap):
    below = 2.0 - gap
    got = PureDP(epsilon=2.0).delta_at(below)
    with mpmath.workdps(400):
        odds = mpmath.exp(2)
        want = 1 - (1 + mpmath.exp(mpmath.mpf(below))) / (1 + odds)
    assert got == pytest.approx(float(want), rel=1e-13)


@given(EPSILONS, DELTAS, CHANCES)
def test_the_least_false_alarm_rate_reaches_the_chance_and_a_smaller_one_does_not(
    epsilon, delta, chance
):
    claim = ApproxDP(epsilon=epsilon, delta=delta)
    rate = mpmath.mpf(claim.complement_inverse(chance))
    with mpmath.workdps(400):
        assert detection(claim, rate * (1 + mpmath.mpf("2e-12")) + 4e-15) >= chance
        assert rate == 0 or detection(claim, rate) <= chance


@given(EPSILONS, CHANCES)
def test_pure_privacy_is_approximate_privacy_with_nothing_exempt(epsilon, chance):
    pure, approx = PureDP(epsilon=epsilon), ApproxDP(epsilon=epsilon, delta=0.0)
    assert pure.delta_at(0.5) == approx.delta_at(0.5)
    assert pure.epsilon_at(0.01) == approx.epsilon_at(0.01)
    assert pure.complement_inverse(chance) == approx.complement_inverse(chance)


def test_no_epsilon_goes_with_a_delta_below_the_one_claimed():
    assert ApproxDP(epsilon=1.0, delta=1e-5).epsilon_at(1e-6) == math.inf
    assert GaussianDP(mu=1.0).epsilon_at(0.0) == math.inf


def exact_gaussian_delta(mu, epsilon):
    """The formula of Balle and Wang, in more digits than its terms can cancel."""
    with mpmath.workdps(400):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@given(st.floats(-6, 2), st.floats(-8, 36.5))
def test_gaussian_delta_keeps_its_digits_down_to_1e_300(log_mu, distance):
    mu = 10.0**log_mu
    epsilon = max(0.0, mu * (distance + mu / 2))
    got, want = GaussianDP(mu=mu).delta_at(epsilon), exact_gaussian_delta(mu, epsilon)
    if want > 1e-300:
        assert want <= got <= want * (1 + mpmath.mpf(5e-12))


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(1e-3, 0.0), (1.0, 30.0), (100.0, 5001.0), (1400.0, 1e6)]
)
def test_gaussian_delta_at_the_ends(mu, epsilon):
    got, want = GaussianDP(mu=mu).delta_at(epsilon), exact_gaussian_delta(mu, epsilon)
    assert want <= got <= want * (1 + mpmath.mpf(1e-11))


def test_a_positive_delta_is_never_rounded_to_nothing():
    assert 0 < GaussianDP(mu=0.1).delta_at(50.0) < 1e-300
    assert GaussianDP(mu=0.0).delta_at(0.0) == 0


@pytest.mark.parametrize(
    ("epsilon", "noise"), [(1, 3.730632), (2, 1.993812), (4, 1.081162), (8, 0.600229)]
)
def test_gaussian_epsilon_gives_the_published_noise(epsilon, noise):
    """The analytic calibration of the Gaussian mechanism at delta = 1e-5."""
    found = GaussianDP(mu=1 / noise).epsilon_at(1e-5)
    assert found == pytest.approx(epsilon, rel=2e-6)


@given(st.floats(1e-3, 30), st.floats(-30, 6))
def test_gaussian_false_alarm_rate_is_rounded_down(mu, threshold):
    """The chance is of a threshold that is known, so that nothing is inverted."""
    with mpmath.workdps(300):
        chance = float(mpmath.ncdf(mpmath.mpf(threshold)))
        # Newton's step from the threshold to that of the chance as a float.
        density = mpmath.npdf(mpmath.mpf(threshold))
        z = threshold + (chance - mpmath.ncdf(mpmath.mpf(threshold))) / density
        want = mpmath.ncdf(z - mpmath.mpf(mu))
    got = GaussianDP(mu=mu).complement_inverse(chance)
    if got > 1e-300:
        assert want * (1 - mpmath.mpf(1e-11)) <= got <= want


@pytest.mark.parametrize("claim", [PureDP(epsilon=1.0), GaussianDP(mu=1.0)])
def test_certain_detection_needs_certain_alarm(claim):
    assert claim.complement_inverse(1.0) == pytest.approx(1.0, abs=1e-11)
    assert claim.complement_inverse(0.0) == 0.0


@given(CLAIMS_AND_CURVES, st.floats(0, 20), st.floats(0, 5))
def test_delta_never_rises_with_epsilon(claim, epsilon, more):
    assert claim.delta_at(epsilon + more) <= claim.delta_at(epsilon) * (1 + 1e-12)


@given(CLAIMS_AND_CURVES, DELTAS)
def test_the_epsilon_at_a_delta_has_at_most_that_delta(claim, delta):
    epsilon = claim.epsilon_at(delta)
    assert math.isinf(epsilon) or claim.delta_at(epsilon) <= delta


@given(CLAIMS, st.floats(1e-12, 0.99))
def test_a_clearly_smaller_epsilon_has_a_larger_delta(claim, delta):
    epsilon = claim.epsilon_at(delta)
    if 1e-6 < epsilon < math.inf:
        assert claim.delta_at(epsilon * (1 - 1e-6)) > delta


@given(CLAIMS, CHANCES, CHANCES)
def test_more_detection_needs_no_fewer_alarms(claim, one, other):
    low, high = sorted([one, other])
    assert claim.complement_inverse(low) <= claim.complement_inverse(high) + 1e-15
    assert 0 <= claim.complement_inverse(low) <= low


@given(CLAIMS, st.lists(CHANCES, min_size=1, max_size=5))
def test_rates_of_many_chances_are_those_of_each(claim, chances):
    found = claim.complement_inverses()(np.array(chances))
    assert found.tolist() == [claim.complement_inverse(each) for each in chances]


@given(st.floats(0.01, 5), st.floats(0.001, 0.999))
def test_the_points_of_a_gaussian_claim_describe_it(mu, chance):
    """Lines through the points support the true trade-off function closely."""
    epsilons, deltas = GaussianDP(mu=mu).points()
    shallow = (chance - deltas) * np.exp(-epsilons)
    steep = 1 - deltas - np.exp(epsilons) * (1 - chance)
    by_points = max(0.0, shallow.max(), steep.max())
    whole = GaussianDP(mu=mu).complement_inverse(chance)
    assert by_points <= whole * (1 + 1e-10) + 1e-15
    assert by_points >= 0.98 * whole - 1e-12


def test_points_start_at_zero_and_end_where_nothing_is_left():
    epsilons, deltas = GaussianDP(mu=1.0).points()
    assert len(epsilons) == len(deltas) == 400
    assert epsilons[0] == 0
    assert deltas[-1] == pytest.approx(1e-100, rel=1e-6)
    assert (np.diff(deltas) < 0).all()
    assert [p.tolist() for p in GaussianDP(mu=0.0).points()] == [[0.0], [0.0]]
    assert [p.tolist() for p in PureDP(epsilon=2.0).points()] == [[2.0], [0.0]]


def test_a_gaussian_claim_is_as_strong_as_the_best_test_between_two_normals():
    """The hockey-stick divergence by maximising over thresholds."""
    mu, epsilon = 1.3, 0.7

    def gap(threshold):
        alarms, misses = mpmath.ncdf(-threshold), mpmath.ncdf(threshold - mu)
        return -float(1 - misses - math.exp(epsilon) * alarms)

    best = optimize.minimize_scalar(gap, bounds=(-5, 5), options={"xatol": 1e-9})
    assert GaussianDP(mu=mu).delta_at(epsilon) == pytest.approx(-best.fun, rel=1e-9)


# Adjacency is a word in a file and a value in the code.


@pytest.mark.parametrize("word", ["add-remove", "replace-one", "zero-out"])
def test_each_adjacency_is_written_as_its_own_word(word):
    assert json.dumps(Adjacency(word)) == f'"{word}"'


def test_a_guarantee_is_about_adding_or_removing_unless_it_says_otherwise():
    claims = [ApproxDP(epsilon=1.0, delta=0.0), PureDP(epsilon=1.0), GaussianDP(mu=1.0)]
    assert {claim.adjacency for claim in claims} == {Adjacency.ADD_REMOVE}


def test_the_same_numbers_under_another_adjacency_are_another_claim():
    here = PureDP(epsilon=1.0)
    there = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
    assert here != there


# Curves: valid once built, compared by content, never stronger than their points.


@given(sampled_gaussians(), st.floats(0, 15))
def test_between_its_points_a_curve_is_never_below_the_truth(sampled, epsilon):
    mu, curve = sampled
    assert curve.delta_at(epsilon) >= gaussian_delta(mu, epsilon) - 1e-15


@given(sampled_gaussians(), st.floats(0.001, 0.999))
def test_its_false_alarm_rate_is_never_above_the_truth(sampled, chance):
    mu, curve = sampled
    exact = stats.norm.cdf(stats.norm.ppf(chance) - mu)
    assert curve.complement_inverse(chance) <= exact * (1 + 1e-9) + 1e-14


@given(sampled_gaussians(), st.integers(0, 7), st.floats(0, 15), st.floats(0, 1))
def test_a_curve_with_fewer_points_is_weaker(sampled, index, epsilon, chance):
    _, curve = sampled
    rest = np.arange(len(curve.epsilons)) != index % len(curve.epsilons)
    if rest.any():
        less = PrivacyCurve(epsilons=curve.epsilons[rest], deltas=curve.deltas[rest])
        assert less.delta_at(epsilon) >= curve.delta_at(epsilon) - 1e-13
        assert less.complement_inverse(chance) <= curve.complement_inverse(chance)


def test_a_chord_is_straight_in_e_to_the_epsilon():
    curve = PrivacyCurve(epsilons=np.log([2.0, 6.0]), deltas=np.array([0.4, 0.2]))
    assert curve.delta_at(math.log(3)) == pytest.approx(0.35, rel=1e-14)
    assert curve.epsilon_at(0.25) == pytest.approx(math.log(5), rel=1e-11)


def test_left_of_its_first_point_the_line_reaches_one_at_minus_one():
    curve = PrivacyCurve(epsilons=np.log([3.0]), deltas=np.array([0.2]))
    # From (-1, 1) to (3, 0.2) the line falls by 0.2 each: 0.6 at e^epsilon = 1.
    assert curve.delta_at(0.0) == pytest.approx(0.6, rel=1e-14)


def test_right_of_its_last_point_delta_stays():
    curve = PrivacyCurve(epsilons=np.array([1.0]), deltas=np.array([1e-5]))
    assert curve.delta_at(50.0) == 1e-5
    assert curve.epsilon_at(1e-6) == math.inf


def test_chords_survive_epsilons_whose_exponential_does_not_fit():
    curve = PrivacyCurve(epsilons=np.array([0.0, 5000.0]), deltas=np.array([0.5, 0.0]))
    assert curve.delta_at(4999.0) == pytest.approx(0.5 * (1 - math.exp(-1)), rel=1e-12)
    assert curve.complement_inverse(1.0) == pytest.approx(1.0)


@given(st.floats(0, 12), CHANCES, st.floats(0, 12), CHANCES)
def test_a_curve_of_one_point_is_that_approximate_claim(epsilon, delta, at, chance):
    claim = ApproxDP(epsilon=epsilon, delta=delta)
    curve = PrivacyCurve(epsilons=np.array([epsilon]), deltas=np.array([delta]))
    assert curve.delta_at(at) == claim.delta_at(at)
    assert curve.epsilon_at(delta) == claim.epsilon_at(delta) <= epsilon
    assert curve.complement_inverse(chance) == claim.complement_inverse(chance)


def test_curves_are_compared_by_content():
    one = PrivacyCurve(epsilons=np.array([0.0, 1.0]), deltas=np.array([0.5, 0.0]))
    same = PrivacyCurve(epsilons=np.array([-0.0, 1.0]), deltas=np.array([0.5, -0.0]))
    longer = PrivacyCurve(epsilons=np.array([0.0]), deltas=np.array([0.5]))
    elsewhere = PrivacyCurve(
        epsilons=one.epsilons, deltas=one.deltas, adjacency=Adjacency.REPLACE_ONE
    )
    assert one == same
    assert hash(one) == hash(same)
    assert longer != one != elsewhere
    assert one != "a curve"


def test_a_curve_keeps_its_own_copy_and_cannot_be_changed():
    epsilons = np.array([0.0, 1.0])
    curve = PrivacyCurve(epsilons=epsilons, deltas=np.array([0.5, 0.1]))
    epsilons[0] = 0.5
    assert curve.epsilons[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        curve.points()[1][0] = 0.0


@pytest.mark.parametrize(
    ("epsilons", "deltas", "message"),
    [
        ([], [], "epsilons must be one row of at least one number"),
        ([[0.0]], [[0.5]], "epsilons must be one row"),
        ([0.0, 1.0], [0.5], "got 1 deltas for 2 epsilons"),
        ([-1.0, 1.0], [0.5, 0.1], r"epsilons\[0\] must be a finite number >= 0"),
        ([0.0, math.inf], [0.5, 0.1], "epsilons must be finite"),
        ([0.0, 0.0], [0.5, 0.1], "epsilons must be .* strictly increasing"),
        ([0.0, math.nan, 1.0], [0.5, 0.1, 0.1], "epsilons must be"),
        ([0.0, 1.0], [0.1, 0.5], "deltas must be .* never increase"),
        ([0.0, 1.0], [1.5, 0.5], r"deltas\[0\] must be in \[0, 1\]"),
        ([0.0, 1.0], [0.5, -0.1], "deltas must be >= 0"),
        ([0.0, 1.0, 2.0], [0.5, math.nan, 0.1], "deltas must be"),
    ],
)
def test_a_curve_without_meaning_is_refused(epsilons, deltas, message):
    with pytest.raises(InvalidInputError, match=message):
        PrivacyCurve(epsilons=np.array(epsilons), deltas=np.array(deltas))


RHO = ZeroConcentratedDP(rho=0.5)
GAUSSIAN = GaussianDP(mu=1.0)  # as private as rho = 1/2 allows


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0, 6.0])
def test_zcdp_is_implied_by_the_gaussian_mechanism(epsilon):
    assert RHO.delta_at(epsilon) >= GAUSSIAN.delta_at(epsilon)


@pytest.mark.parametrize("p", [1e-6, 1e-3, 0.1, 0.4, 0.9, 0.999])
def test_events_of_the_gaussian_mechanism_satisfy_zcdp(p):
    slopes, intercepts = RHO.event_lines()
    largest = special.ndtr(special.ndtri(p) + 1)
    assert (intercepts + slopes * p).min() >= largest


def test_no_line_cuts_off_an_event_that_zcdp_allows():
    """Pairs of probabilities whose divergences at many orders are small enough."""
    rng = np.random.default_rng(0)
    p = rng.random(5000) ** 3
    q = p + (1 - p) * rng.random(5000) ** 2
    a = np.geomspace(1.001, 900, 300)[:, np.newaxis]

    def log_sum(q, p):
        return np.logaddexp(
            a * np.log(q) + (1 - a) * np.log(p),
            a * np.log1p(-q) + (1 - a) * np.log1p(-p),
        )

    allowed = (a - 1) * 0.5 * a
    inside = (np.maximum(log_sum(q, p), log_sum(p, q)) <= allowed).all(axis=0)
    slopes, intercepts = RHO.event_lines()
    limit = (intercepts + np.outer(p, slopes)).min(axis=1)
    assert inside.sum() > 1000
    assert (q[inside] <= limit[inside]).all()
    assert (q[~inside] > 0.99 * limit[~inside]).all()


def test_events_are_limited_more_than_deltas_imply():
    slopes, intercepts = RHO.event_lines()
    by_deltas = lines.event_lines(*RHO.points())
    assert (intercepts + slopes * 0.2).min() == pytest.approx(0.6616, abs=1e-4)
    assert (by_deltas[1] + by_deltas[0] * 0.2).min() == pytest.approx(0.730, abs=1e-3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"orders": [1.0, 2.0], "epsilons": [1.0, 2.0]}, "above 1"),
        ({"orders": [3.0, 2.0], "epsilons": [1.0, 2.0]}, "strictly increasing"),
        ({"orders": [2.0, 3.0], "epsilons": [1.0]}, "as many as orders"),
        ({"orders": [2.0], "epsilons": [-1.0]}, "finite and >= 0"),
    ],
)
def test_what_is_no_renyi_claim_is_refused(fields, message):
    with pytest.raises(InvalidInputError, match=message):
        RenyiDP(**fields)


@pytest.mark.parametrize(
    "claim",
    [RHO, RenyiDP(orders=np.array([2.0, 8.0]), epsilons=np.array([1.0, 4.0]))],
)
def test_a_renyi_claim_reads_back_from_a_design(claim):
    design = Design(canaries=9, rules=OneRun(guesses=2), claim=claim, delta=1e-5)
    again = Design.from_json(design.to_json())
    assert again == design
    assert again.claim == claim
    assert hash(again.claim) == hash(claim)


@pytest.mark.parametrize("rho", [1e-20, 1e-16, 1e-12, 1e-6])
def test_no_line_of_a_tiny_claim_is_below_the_identity(rho):
    slopes, intercepts = ZeroConcentratedDP(rho=rho).event_lines()
    at = np.linspace(0, 1, 101)
    assert (intercepts + np.outer(at, slopes)).min() >= 0
    assert (intercepts + np.outer(at, slopes) >= at[:, np.newaxis] - 1e-12).all()
