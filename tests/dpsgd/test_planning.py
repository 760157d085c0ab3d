"""Plans: against coins that are drawn here, closed forms, and whole audits.

Where something is drawn, the seed is fixed and limits are four standard errors or more,
so that another seed would fail with a chance of about one in ten thousand.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpaudit import ApproxDP, Design, GaussianDP, ThreatModel
from dpaudit.bounds import Counts, ExactBound
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.dpsgd.planning import expected_one_run, plan_audit
from dpaudit.dpsgd.planning.expected_one_run import (
    OneRunForecast,
    best_one_run,
    exact_bounds,
    forecast_one_run,
)
from dpaudit.dpsgd.planning.expected_rounds import (
    CAPS,
    RoundsForecast,
    RoundsSetting,
    RoundsTable,
    _binomial,
    forecast_rounds,
    mean_score,
)
from dpaudit.dpsgd.planning.guess_distribution import (
    GuessDistribution,
    guess_distribution,
)
from dpaudit.dpsgd.planning.plan import rehearse
from dpaudit.dpsgd.planning.rounds_search import best_rounds
from dpaudit.dpsgd.planning.sizes import canaries_needed
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.errors import InvalidInputError
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key

DELTA, ALPHA = 1e-5, 0.05
CLAIM = ApproxDP(epsilon=2.0, delta=DELTA)


def alone(noise, size, rng):
    """Log-odds and coins of single canaries in the full batch, by Bayes' rule."""
    coins = rng.random(size) < 0.5
    sums = coins + noise * rng.standard_normal(size)
    return (2 * sums - 1) / (2 * noise**2), coins


# The law of guesses.


@pytest.mark.parametrize(("steps", "noise"), [(1, 1.0), (4, 2.0), (100, 10.0)])
def test_a_single_canary_is_guessed_as_well_as_two_normals_are_told_apart(steps, noise):
    training = TrainingSetup(steps=steps, rate=1.0, noise=noise)
    distribution = guess_distribution(
        training, per_coordinate=1, coordinates=40_000, seed=3
    )
    probability = distribution.probability()
    error = probability.std() / 200
    assert abs(probability.mean() - special.ndtr(0.5)) < 4 * error


def test_what_is_unknown_of_a_count_is_the_variance_of_its_posterior():
    """Two coins and one noisy sum: ones and variances by Bayes' rule."""
    noise, rng = 0.7, np.random.default_rng(9)
    ones = rng.binomial(2, 0.5, 40_000)
    sums = ones + noise * rng.standard_normal(40_000)
    density = np.exp(-0.5 * ((sums[:, np.newaxis] - np.arange(3)) / noise) ** 2)
    probabilities = density * (0.25, 0.5, 0.25)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    mean = probabilities @ (0, 1, 2)
    variance = probabilities @ (0, 1, 4) - mean**2
    training = TrainingSetup(steps=1, rate=1.0, noise=noise)
    distribution = guess_distribution(
        training, per_coordinate=2, coordinates=40_000, seed=5
    )
    for drawn, computed in (
        (variance, distribution.variance),
        (np.maximum(mean, 2 - mean) / 2, distribution.probability()[0]),
    ):
        error = np.hypot(drawn.std(), computed.std()) / 200
        assert abs(drawn.mean() - computed.mean()) < 4 * error


def test_later_coins_are_known_better():
    training = TrainingSetup(steps=30, rate=0.2, noise=1.0)
    means = guess_distribution(
        training, per_coordinate=6, coordinates=20_000, seed=1
    ).probability()
    assert (np.diff(means.mean(axis=1)) > 0).all()


def test_the_same_seed_gives_the_same_law():
    training = TrainingSetup(steps=3, rate=0.5, noise=1.0)
    distributions = [
        guess_distribution(training, per_coordinate=2, coordinates=500, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert (distributions[0].confidence == distributions[1].confidence).all()
    assert (distributions[0].confidence != distributions[2].confidence).any()


# One run.


@given(
    st.integers(1, 400).flatmap(lambda r: st.tuples(st.just(r), st.integers(0, r))),
    st.integers(1, 1000),
    st.sampled_from([0.0, 1e-7, 1e-5, 1e-3]),
    st.sampled_from([0.01, 0.05, 0.3]),
)
def test_quick_bounds_are_the_exact_ones(guessed, more, delta, alpha):
    guesses, correct = guessed
    counts = Counts(canaries=guesses + more, guesses=guesses, correct=correct)
    exact = ExactBound().epsilon_lower(counts, delta=delta, alpha=alpha).epsilon_lower
    quick = exact_bounds(guesses + more, guesses, correct, delta=delta, alpha=alpha)
    assert quick == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(
    ("guesses", "right", "variance"),
    [(100, 80.0, 12.0), (100, 80.0, 25.0), (50, 48.5, 1.4), (400, 250.0, 90.0)],
)
def test_the_law_of_right_guesses_has_the_mean_and_variance_it_is_given(
    guesses, right, variance
):
    forecast = OneRunForecast(
        canaries=1000, guesses=guesses, right=right, variance=variance
    )
    v = np.arange(guesses + 1)
    masses = np.diff(np.append(0.0, forecast.at_most(v)))
    assert masses.sum() == pytest.approx(1.0)
    assert masses.min() >= 0
    assert masses @ v == pytest.approx(right, abs=0.02)
    assert masses @ (v - right) ** 2 == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("n", [5000, 100_001])
@pytest.mark.parametrize(
    ("a", "d"), [(1, 2), (2, 60), (59, 60), (150, 400), (9, 10**6)]
)
def test_who_is_among_the_surest_is_summed_at_some_rates_and_right_at_all(a, d, n):
    reach = 7 * a**0.5 + 10
    first, last = (int(np.clip((a + k * reach) * n / d, 0, n)) for k in (-1, 1))
    above = (np.arange(first, min(last + 1, n)) + 0.5) / n
    probabilities = expected_one_run._among(a, d, above)
    assert probabilities == pytest.approx(special.bdtr(a - 1, d - 1, above), abs=1e-9)


@pytest.mark.parametrize(("noise", "surest"), [(1.0, 20), (1.0, 150), (0.45, 60)])
def test_one_run_forecasts_are_what_drawn_audits_find(noise, surest):
    d, audits, rng = 200, 4000, np.random.default_rng(7)
    log_odds, coins = alone(noise, (audits, d), rng)
    order = np.argsort(-np.abs(log_odds), axis=1)[:, :surest]
    right = np.take_along_axis((log_odds >= 0) == coins, order, axis=1).sum(axis=1)
    bounds = [
        ExactBound()
        .epsilon_lower(
            Counts(canaries=d, guesses=surest, correct=v), delta=DELTA, alpha=ALPHA
        )
        .epsilon_lower
        for v in range(surest + 1)
    ]
    found = np.array(bounds)[right]
    distribution = guess_distribution(
        TrainingSetup(steps=1, rate=1.0, noise=noise),
        per_coordinate=1,
        coordinates=100_000,
        seed=1,
    )
    (forecast,) = forecast_one_run(distribution, d, np.array([surest]))
    expected = forecast.expected(delta=DELTA, alpha=ALPHA)
    assert forecast.right == pytest.approx(right.mean(), rel=0.005)
    assert forecast.variance == pytest.approx(right.var(), rel=0.12)
    # Errors of the law drawn and of the audits drawn, and the shape of the law assumed.
    assert expected.mean == pytest.approx(found.mean(), abs=0.015)
    assert expected.spread == pytest.approx(found.std(), rel=0.08)
    claim = ApproxDP(epsilon=float(np.median(found)) - 1e-6, delta=DELTA)
    refuted = (found > claim.epsilon).mean()
    least = next(v for v, bound in enumerate(bounds) if bound > claim.epsilon)
    assert 1 - forecast.at_most(least - 1) == pytest.approx(refuted, abs=0.05)


def test_the_number_of_guesses_is_about_the_best_one():
    distribution = guess_distribution(
        TrainingSetup(steps=1, rate=1.0, noise=1.0),
        per_coordinate=2,
        coordinates=20_000,
        seed=1,
    )
    best = best_one_run(distribution, coordinates=500, delta=DELTA, alpha=ALPHA)
    tried = forecast_one_run(distribution, 500, np.arange(5, 501, 5))
    means = [each.expected(delta=DELTA, alpha=ALPHA).mean for each in tried]
    assert best.expected(delta=DELTA, alpha=ALPHA).mean > max(means) - 0.02


# Rounds.


def any_distribution():
    """A distribution of two rounds that no mechanism made."""
    rng = np.random.default_rng(11)
    confidence = rng.gamma((2.0, 4.0), 0.4, (5000, 2)).T
    return GuessDistribution(confidence=confidence, variance=np.zeros(5000))


@pytest.mark.parametrize("cap", [3, 14, 31])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 1.9])
def test_tables_hold_the_moments_of_weights(epsilon, cap):
    distribution = any_distribution()
    table = RoundsTable(distribution, epsilons=np.array([epsilon]))
    p = special.expit(epsilon)
    for r, row in enumerate(distribution.confidence):
        w, c = np.clip(row - epsilon, 0, CAPS[cap]), special.expit(row)
        size = np.sqrt(p * (1 - p) * np.mean(w**2))
        assert table.size[r, 0, cap] == pytest.approx(size)
        assert table.gain[r, 0, cap] == pytest.approx(np.mean(w * (c - p)) / size)
        assert table.share[r, 0] == pytest.approx(np.mean(row > epsilon))


@pytest.mark.parametrize(("epsilon", "cap"), [(0.5, 31), (1.0, 14)])
def test_scores_vary_as_the_table_says(epsilon, cap):
    """10,000 rounds of 300 coordinates: the variance has an error of 1.4 %."""
    distribution, rng = any_distribution(), np.random.default_rng(13)
    table = RoundsTable(distribution, epsilons=np.array([epsilon]))
    p = special.expit(epsilon)
    drawn = rng.choice(distribution.confidence[1], (10_000, 300))
    w = np.clip(drawn - epsilon, 0, CAPS[cap])
    right = rng.random(drawn.shape) < special.expit(drawn)
    scores = (w * (right - p)).sum(axis=1) / np.sqrt(p * (1 - p) * (w**2).sum(axis=1))
    assert table.ratio[1, 0, cap] == pytest.approx(scores.var(), rel=0.07)
    assert 300**0.5 * table.gain[1, 0, cap] == pytest.approx(scores.mean(), abs=0.06)


def test_played_rounds_score_what_the_bound_gives_them():
    """One log-odds for all: the score is that of a binomial count."""
    epsilon, n = 1.0, 60
    probability, p = special.expit(2.0), special.expit(epsilon)
    v = np.arange(n + 1)
    middle = special.bdtrc(v, n, p) + 0.5 * (special.bdtr(v, n, p) - _below(v, n, p))
    scores = -special.ndtri(np.clip(middle, 1e-12, 1 - 1e-12))
    masses = special.bdtr(v, n, probability) - _below(v, n, probability)
    found, _ = mean_score(
        np.array([2.0]),
        coordinates=n,
        epsilon=epsilon,
        cap=1.0,
        step=9.0,
        plays=20,
        rng=np.random.default_rng(2),
    )
    assert found == pytest.approx(masses @ scores, abs=0.08)


@pytest.mark.parametrize(
    ("trials", "chance"),
    [(1, 0.5), (10, 0.03), (300, 0.662), (300, 1.0), (10**5, 0.2), (10**6, 1e-6)],
)
def test_binomial_counts_are_the_quantiles(trials, chance):
    uniforms = np.random.default_rng(3).random(5000)
    expected = stats.binom(trials, chance).ppf(uniforms)
    assert _binomial(trials, chance, uniforms).tolist() == expected.tolist()


def _below(v, n, p):
    return np.where(v > 0, special.bdtr(np.maximum(v - 1, 0), n, p), 0.0)


def in_rounds(rules, *, coordinates, per_coordinate, delta=DELTA):
    return RoundsSetting(
        rules=rules,
        coordinates=coordinates,
        per_coordinate=per_coordinate,
        delta=delta,
        alpha=ALPHA,
    )


def forecast(margins, start, top=2.0):
    rules = AdaptiveRounds(round_weights=(1.0,), min_epsilon=start, max_jump=0.3)
    return RoundsForecast(
        setting=in_rounds(rules, coordinates=100, per_coordinate=1),
        epsilons=np.linspace(0, top, len(margins)),
        margins=np.array(margins, float),
        deviations=np.ones(len(margins)),
    )


def test_a_sure_rejection_up_to_a_point_is_a_bound_of_the_last_grid_point_before():
    margins = np.where(np.linspace(0, 2, 2001) <= 0.725, 99.0, -99.0)
    expected = forecast(margins, 0.3).expected()
    assert expected.mean == pytest.approx(0.72)
    assert expected.spread == pytest.approx(0.0, abs=1e-6)


def test_a_start_that_is_not_rejected_is_a_bound_of_zero():
    # Half of all runs reject everything up to 1, the others nothing.
    margins = np.where(np.linspace(0, 2, 2001) <= 1.005, 0.0, -99.0)
    expected = forecast(margins, 0.5).expected()
    assert expected.mean == pytest.approx(0.5)
    assert expected.spread == pytest.approx(0.5)


def test_the_start_is_below_what_is_expected_and_where_runs_do_reject():
    margins = 3 - np.abs(np.linspace(0, 2, 2001) - 0.8) * 10
    started = forecast(margins, 0.0).started()
    assert 0.6 < started.rules.min_epsilon <= 0.8
    falling = 8 - np.linspace(0, 2, 2001) * 8
    assert forecast(falling, 0.0).started().rules.min_epsilon == pytest.approx(
        0.5, abs=0.06
    )


def test_what_delta_costs_lowers_the_forecast():
    distribution = any_distribution()
    table = RoundsTable(distribution, epsilons=np.linspace(0, 3, 48))
    rules = AdaptiveRounds(round_weights=(1.0, 1.0), max_jump=0.3)
    typical = [
        forecast_rounds(
            table, in_rounds(rules, coordinates=500, per_coordinate=2, delta=delta)
        ).typical
        for delta in (0.0, 1e-5, 1e-4)
    ]
    assert typical[0] > typical[1] > typical[2] > 0


def test_rounds_need_some_coordinates():
    distribution = any_distribution()
    assert best_rounds(distribution, coordinates=5, delta=DELTA, alpha=ALPHA) is None


# Plans.


@pytest.fixture(scope="module")
def planned():
    training = TrainingSetup(steps=1, rate=1.0, noise=1.2)
    guarantee = GaussianDP(mu=1 / 1.2)
    claim = ApproxDP(epsilon=guarantee.epsilon_at(DELTA), delta=DELTA)
    return plan_audit(
        training,
        claim=claim,
        coordinates=250,
        per_coordinate=3,
        guarantee=guarantee,
        purpose="bound",
    )


@pytest.mark.nightly
def test_the_prediction_is_what_whole_audits_find(planned):
    found = np.array(
        [
            planned.rehearse(
                rng=np.random.default_rng(i), key=fixed_key(i.to_bytes(32, "little"))
            ).bound.epsilon_lower
            for i in range(16)
        ]
    )
    error = found.std(ddof=1) / 16**0.5
    assert planned.method == RoundsBound.method
    limit = max(0.03 * found.mean(), 0.02) + 4 * error
    assert abs(planned.expected.mean - found.mean()) < limit
    assert planned.expected.spread == pytest.approx(found.std(ddof=1), rel=0.5)


@pytest.mark.nightly
def test_the_fault_is_caught_nine_times_in_ten_and_the_truth_hardly_ever(planned):
    """5 audits each; 1 or none at a chance of 0.9 happen once in 2,000 times."""

    def refuted(factor):
        return sum(
            rehearse(
                planned.design(),
                planned.training.with_noise_divided_by(factor),
                per_coordinate=3,
                rng=np.random.default_rng(i),
                key=fixed_key(i.to_bytes(32, "little")),
            ).claim_test.refuted
            for i in range(5)
        )

    assert 1 < planned.fault < 8
    assert refuted(1.02 * planned.fault) > 1
    assert refuted(1.0) < 3  # 3 or more at a chance of 0.05 happen once in 800


def test_ceilings_are_those_of_the_guarantee(planned):
    """A Gaussian mechanism of mu = 1 / 1.2, by its closed form."""

    def delta_of(epsilon, mu=1 / 1.2):
        ndtr = special.ndtr
        return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(
            -mu / 2 - epsilon / mu
        )

    assert delta_of(planned.true_epsilon) == pytest.approx(DELTA, rel=1e-4)
    assert delta_of(planned.ceiling) == pytest.approx(DELTA / ALPHA, rel=1e-4)
    assert planned.expected.mean < planned.ceiling < planned.true_epsilon
    assert planned.ceiling < planned.all_right


@pytest.mark.nightly
def test_a_plan_is_the_same_every_time_and_becomes_a_design(planned):
    again = plan_audit(
        planned.training,
        claim=planned.claim,
        coordinates=250,
        per_coordinate=3,
        purpose="bound",
    )
    assert again.expected == planned.expected
    design = planned.design()
    assert (again.design(), design.canaries) == (design, 750)
    assert design.rules == planned.rules
    assert Design.from_json(design.to_json()) == design
    assert design.threat_model is ThreatModel.ALL_ITERATES
    setting = design.setting
    assert (setting.coordinates, setting.per_coordinate) == (250, 3)
    assert setting.detectable_factor == planned.fault


def test_a_plan_says_what_it_rests_on(planned):
    said = str(planned)
    for words in (
        "750 canaries, 3 at each of 250 coordinates",
        "at delta = 1e-05, with 95 % confidence, for any mechanism (method rounds)",
        f"the accountant proves epsilon = {planned.true_epsilon:.3f}",
        "90 % power to detect noise",
    ):
        assert words in said


def test_the_best_number_per_coordinate_is_chosen_of_those_shown():
    """With next to no noise all that is seen is a count, which hides its coins."""
    training = TrainingSetup(steps=1, rate=1.0, noise=0.1)
    plan = plan_audit(training, claim=CLAIM, coordinates=50, purpose="bound")
    levels = {each.per_coordinate: 0.0 for each in plan.candidates}
    for each in plan.candidates:
        levels[each.per_coordinate] = max(levels[each.per_coordinate], each.bound)
    assert levels[plan.per_coordinate] == max(levels.values())
    at_once = {
        each.per_coordinate: each.bound
        for each in plan.candidates
        if isinstance(each.rules, OneRun)
    }
    # All 50 coins are known for certain: 0.05^(1/50) is the chance that must be beaten.
    assert at_once[1] == pytest.approx(special.logit(0.05 ** (1 / 50)), abs=0.01)
    assert at_once[1] > at_once[2]
    assert plan.true_epsilon is None
    assert "what an accountant proves is not known" in str(plan)


def test_few_coordinates_are_planned_for_one_run():
    training = TrainingSetup(steps=1, rate=1.0, noise=0.5)
    plan = plan_audit(
        training, claim=CLAIM, coordinates=12, per_coordinate=1, purpose="bound"
    )
    assert isinstance(plan.rules, OneRun)
    assert plan.method == ExactBound.method
    assert plan.rules.guesses <= 12


@pytest.mark.nightly
def test_as_many_canaries_as_needed_are_enough_and_half_of_them_are_not():
    training = TrainingSetup(steps=1, rate=1.0, noise=1.2)
    needed = canaries_needed(
        training, target_epsilon=1.0, delta=DELTA, per_coordinate=2
    )
    plans = [
        plan_audit(
            training, claim=CLAIM, coordinates=d, per_coordinate=2, purpose="bound"
        )
        for d in (needed.coordinates, needed.coordinates // 2)
    ]
    enough, half = (plan.expected.mean for plan in plans)
    # The plan's simulation is another one than the search's.
    assert enough == pytest.approx(1.0, abs=0.06)
    assert half < 0.94


def test_what_no_audit_can_show_needs_more_canaries_than_there_are():
    training = TrainingSetup(steps=1, rate=1.0, noise=2.0)
    assert (
        canaries_needed(training, target_epsilon=3.0, delta=DELTA, per_coordinate=1)
        is None
    )


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"alpha": 0.95}, "for confidence 0.95 pass 0.05"),
        ({"coordinates": 0}, "coordinates must be a whole number >= 1"),
        (
            {
                "claim": ApproxDP(
                    epsilon=1.0, delta=0.0, adjacency=Adjacency.REPLACE_ONE
                )
            },
            "adding or removing a record",
        ),
        ({"claim": GaussianDP(mu=1.0)}, "a claim ApproxDP"),
        ({"purpose": "fame"}, "purpose must be 'faults' or 'bound', got 'fame'"),
    ],
)
def test_misuse_is_refused(change, advice):
    arguments = {"claim": CLAIM, "coordinates": 100} | change
    with pytest.raises(InvalidInputError, match=advice):
        plan_audit(TrainingSetup(steps=1, rate=1.0, noise=1.0), **arguments)


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"steps": 0}, "steps must be"),
        ({"rate": 0.0}, "rate must be in"),
        ({"noise": 0.0}, "noise must be"),
    ],
)
def test_training_that_is_none_is_refused(change, advice):
    with pytest.raises(InvalidInputError, match=advice):
        TrainingSetup(**({"steps": 1, "rate": 1.0, "noise": 1.0} | change))
