"""Plans at the sizes of real models: against steps made one by one, whole audits, and
what must hold of every plan.

Where something is drawn, the seed is fixed and limits are four standard errors or more,
so that another seed would fail with a chance of about one in ten thousand.
"""

import numpy as np
import pytest
from scipy import special

from dpaudit import ApproxDP, GaussianDP
from dpaudit.bounds.power import least_refuting
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.dpsgd.planning.candidates import Purpose
from dpaudit.dpsgd.planning.expected_one_run import least_right
from dpaudit.dpsgd.planning.forecasts import least_factor
from dpaudit.dpsgd.planning.guess_distribution import pooled_likelihood
from dpaudit.dpsgd.planning.plan import rehearse
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.game.rules import OneRun
from dpaudit.testing import fixed_key

pytestmark = pytest.mark.nightly

DELTA, ALPHA = 1e-5, 0.05
CLAIM = ApproxDP(epsilon=2.0, delta=DELTA)
# The noise that the RDP accountant asks for, for epsilon = 2 at delta = 1e-5.
LONG = TrainingSetup(steps=1000, rate=0.01, noise=1.0222898)


# Many steps from pools of blocks.


def surely(log_likelihood, bits):
    """How sure a guess of the first coin is, by Bayes' rule, and if it is right."""
    s = bits.shape[1]
    ways = np.array([special.comb(s - 1, n) for n in range(s)])
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    odds = np.log(likelihood[:, 1:] @ ways) - np.log(likelihood[:, :-1] @ ways)
    return np.abs(odds), (odds > 0) == (bits[:, 0] > 0)


@pytest.mark.parametrize(
    ("steps", "rate", "noise", "s"),
    [(100, 0.1, 2.4, 3), (203, 0.02, 0.7, 1), (203, 0.02, 0.25, 2)],
)
def test_pooled_steps_say_what_steps_made_one_by_one_say(steps, rate, noise, s):
    n, rng = 20_000, np.random.default_rng(8)
    bits = rng.integers(0, 2, (n, s), dtype=np.int8)
    pooled = pooled_likelihood(Poisson(rate=rate), bits, rng, sigma=noise, steps=steps)
    training = TrainingSetup(steps=steps, rate=rate, noise=noise)
    mechanism = training.mechanism(coordinates=n, per_coordinate=s)
    made = mechanism.run(bits.ravel(), rng).log_likelihood
    (one, right), (other, truth) = surely(pooled, bits), surely(made, bits)
    for power in (1, 2):
        a, b = special.expit(one) ** power, special.expit(other) ** power
        assert abs(a.mean() - b.mean()) < 4 * np.hypot(a.std(), b.std()) / n**0.5
    assert abs(right.mean() - truth.mean()) < 4 * (0.5 / n) ** 0.5
    # The share beyond the surest hundredth of the other: 200 of 20,000 give or take 14.
    for a, b in ((one, other), (other, one)):
        assert 100 < (a > np.quantile(b, 0.99)).sum() < 300


def test_pooled_steps_have_the_mean_and_variance_of_their_steps():
    """The full batch, where what T steps say of one canary is normal and known."""
    n, steps, noise, rng = 40_000, 500, 20.0, np.random.default_rng(5)
    bits = np.ones((n, 1), np.int8)
    found = pooled_likelihood(Poisson(rate=1.0), bits, rng, sigma=noise, steps=steps)
    said = found[:, 1] - found[:, 0]
    mean, variance = steps / (2 * noise**2), steps / noise**2
    assert said.mean() == pytest.approx(mean, abs=4 * (variance / n) ** 0.5)
    assert said.var() == pytest.approx(variance, rel=4 * (2 / n) ** 0.5)


# What refutes, and what is caught.


@pytest.mark.parametrize(
    ("canaries", "guesses", "epsilon", "delta"),
    [
        (1000, (50, 300, 1000), 2.0, 1e-5),
        (100_000, (400, 100_000), 8.0, 1e-5),
        (1_000_000, (1000, 30_000, 1_000_000), 1.0, 1e-5),
        (50, (1, 7, 50), 1.0, 0.0),
        (10_000, (1170,), 0.0, 0.4),  # where a tail underflows
    ],
)
def test_plans_ask_for_as_many_right_guesses_as_tests_do(
    canaries, guesses, epsilon, delta
):
    claim = ApproxDP(epsilon=epsilon, delta=delta)
    epsilons, deltas = claim.points()
    found = least_right(
        canaries, guesses, epsilons=epsilons, deltas=deltas, alpha=ALPHA
    )
    asked = [
        least_refuting(claim, canaries=canaries, guesses=r, alpha=ALPHA)
        for r in guesses
    ]
    assert [v if v <= r else None for v, r in zip(found, guesses, strict=True)] == asked


@pytest.mark.parametrize("near", [1.0, 1.7, 2.0, 9.0, 32.0])
@pytest.mark.parametrize("edge", [1.02, 1.7, 13.0])
def test_the_least_factor_is_found_wherever_one_looks_first(edge, near):
    def smooth(factor):
        return 9 * np.log(factor / edge)

    def sudden(factor):
        return 3.0 if factor >= edge else -6.0

    for margin in (smooth, sudden):
        found = least_factor(margin, near=near)
        assert edge <= found < edge * 2 ** (1 / 48)


def test_few_factors_are_tried_where_power_rises_smoothly():
    tried = []

    def margin(factor):
        tried.append(factor)
        return min(max(15 * np.log(factor / 1.3), -6.0), 3.0)

    least_factor(margin, near=2.0)
    assert len(tried) <= 6


def test_no_factor_is_found_where_none_is_caught():
    assert least_factor(lambda factor: -1.0, near=2.0) is None
    assert least_factor(lambda factor: factor - 5, near=2.0, most=4.0) is None


# Plans.


@pytest.fixture(scope="module")
def large():
    return plan_audit(LONG, claim=CLAIM, coordinates=100_000)


def test_a_large_audit_is_planned_for_what_it_catches_and_expects_no_more_than_it_can(
    large,
):
    """Its ceiling is 1.350, the PLD accountant's epsilon at delta / alpha.

    Planned before with 16 canaries per coordinate, to show 4.9.
    """
    assert 1.0 < large.expected.mean < 1.35
    assert large.per_coordinate <= 2
    assert 1.3 < large.fault < 1.5
    least = min(each.fault for each in large.candidates if each.fault)
    assert large.fault == pytest.approx(least, rel=0.02)


def test_the_fault_of_a_large_plan_is_caught_and_its_mean_bound_is_found(large):
    """Smaller: a tenth of the coordinates, of which 6 audits are made each way.

    2 or fewer of 6 at a chance of 0.9 happen once in 800 times.
    """
    plan = plan_audit(
        LONG, claim=CLAIM, coordinates=10_000, per_coordinate=1, in_rounds=False
    )

    def audited(factor):
        return [
            rehearse(
                plan.design(),
                plan.training.with_noise_divided_by(factor),
                per_coordinate=1,
                rng=np.random.default_rng(i),
                key=fixed_key(i.to_bytes(32, "little")),
            )
            for i in range(6)
        ]

    assert sum(each.claim_test.refuted for each in audited(plan.fault)) > 2
    bounds = np.array([each.bound.epsilon_lower for each in audited(1.0)])
    limit = max(0.02, 0.03 * bounds.mean()) + 4 * plan.expected.spread / 6**0.5
    assert abs(plan.expected.mean - bounds.mean()) < limit
    assert plan.fault > large.fault


def test_more_coordinates_never_catch_less(large):
    smaller = plan_audit(LONG, claim=CLAIM, coordinates=25_000, in_rounds=False)
    assert large.fault < 1.01 * smaller.fault


def test_a_large_claim_is_refuted_by_many_guesses_not_by_the_surest_few():
    """At epsilon = 8 the mean bound wants so few that nothing is ever caught."""
    training = TrainingSetup(steps=1, rate=1.0, noise=0.6)
    claim = ApproxDP(epsilon=8.0, delta=DELTA)
    caught, shown = (
        plan_audit(
            training,
            claim=claim,
            coordinates=100_000,
            per_coordinate=1,
            in_rounds=False,
            purpose=purpose,
        )
        for purpose in Purpose
    )
    assert caught.fault < 2.2
    assert caught.rules.guesses > 5_000
    assert shown.fault is None
    assert shown.rules.guesses < 2_000
    assert shown.expected.mean > caught.expected.mean


def test_a_plan_that_catches_nothing_says_so():
    training = TrainingSetup(steps=1, rate=1.0, noise=0.6)
    claim = ApproxDP(epsilon=8.0, delta=DELTA)
    plan = plan_audit(training, claim=claim, coordinates=1_000, per_coordinate=1)
    assert plan.fault is None
    assert "Power: NONE" in str(plan)
    assert "CANNOT refute the claim" in str(plan)


def test_where_delta_costs_more_than_canaries_are_worth_fewer_are_used():
    """At delta = 1e-3 a hundred thousand canaries cost a hundred failures."""
    training = TrainingSetup(steps=1, rate=1.0, noise=2.0)
    claim = ApproxDP(epsilon=1.0, delta=1e-3)
    plan = plan_audit(training, claim=claim, coordinates=100_000, purpose="bound")
    assert plan.coordinates < plan.available == 100_000
    assert f"of {plan.coordinates} coordinates of 100000 (more would" in str(plan)
    all_of_them = plan_audit(
        training, claim=claim, coordinates=plan.coordinates, purpose="bound"
    )
    assert plan.expected.mean == pytest.approx(all_of_them.expected.mean, rel=0.02)


def test_guesses_made_at_once_are_held_against_the_whole_curve_of_a_guarantee():
    training = TrainingSetup(steps=1, rate=1.0, noise=2.0)
    guarantee = GaussianDP(mu=0.5)
    claim = ApproxDP(epsilon=guarantee.epsilon_at(DELTA), delta=DELTA)
    point, curve = (
        plan_audit(
            training,
            claim=claim,
            coordinates=1000,
            per_coordinate=1,
            guarantee=given,
            in_rounds=False,
        )
        for given in (None, guarantee)
    )
    assert isinstance(curve.rules, OneRun)
    assert curve.fault < 0.9 * point.fault
