"""The comparison of methods: plans by brute force, one set of draws, honest tables."""

import itertools
import math
import time
from dataclasses import replace
from functools import cache

import mpmath
import numpy as np
import pytest
from sweep_tools import InOrder

from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts, Weighted
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.bounds.weighted import WeightedBound
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.local import LocalGaussian
from dpaudit.theory.correct_guess_distribution import correct_guess_distribution
from dpaudit_lab.power.law import right_among
from dpaudit_lab.power.methods import (
    RankedAll,
    SurestCounted,
    SurestWeighted,
    methods,
)
from dpaudit_lab.power.nulls import NULLS
from dpaudit_lab.power.peers import (
    PEERS,
    peer_null_sweep,
    peer_sweep,
)
from dpaudit_lab.power.plan import (
    Guesses,
    best_guesses,
    class_sizes,
    expected_count_bound,
    expected_weighted,
    planned,
)
from dpaudit_lab.power.sweeps import (
    bound_sweep,
    default_trials,
    null_sweep,
    plan_sweep,
    plans,
    time_sweep,
)
from dpaudit_lab.power.table import Comparison
from dpaudit_lab.power.task import Task, draw, draw_number
from dpaudit_lab.power.timing import cpu, median_ratio, ratio_of
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import Sweep, run

SMALL = Task(canaries=20, mu=2.0, delta=1e-3)
PLAN = Guesses(exact=10, steinke=11, weighted=12)


@pytest.fixture(scope="module")
def plan():
    """The plan of the small task, as a sweep makes and keeps it."""
    with Store(":memory:") as store:
        run(plan_sweep([SMALL]), engine=InOrder(), store=store)
        found = plans(store, [SMALL, replace(SMALL, canaries=50)])
    assert list(found) == [SMALL]  # what was not planned is not there
    return found[SMALL]


@cache
def lower(bound, task, guesses, correct):
    counts = Counts(canaries=task.canaries, guesses=guesses, correct=correct)
    found = bound.epsilon_lower(counts, delta=task.delta, alpha=task.alpha)
    return found.epsilon_lower


@cache
def library_law(task, guesses):
    mechanism = LocalGaussian(sigma=1 / task.mu)
    return correct_guess_distribution(
        mechanism.loss_distribution(task.canaries), guesses=guesses
    )


def summed(bound, task, guesses):
    """The mean bound by the library's law of right guesses, count by count."""
    bounds = [lower(bound, task, guesses, v) for v in range(guesses + 1)]
    return float(library_law(task, guesses) @ bounds)


def test_the_ceiling_is_the_epsilon_at_delta_over_alpha_by_integration():
    def delta(epsilon):
        """The integral of p - e^epsilon q over the scores where it is positive."""

        def excess(x):
            return mpmath.npdf(x, 1, 1) - mpmath.exp(epsilon) * mpmath.npdf(x)

        return mpmath.quad(excess, [epsilon + 0.5, epsilon + 3, 30])

    task = Task(canaries=1000)
    assert round(task.ceiling, 3) == 3.616
    assert delta(task.ceiling) == pytest.approx(1e-5 / 0.05, rel=1e-6)
    assert delta(task.truth) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(
    ("canaries", "mu", "guesses"),
    [(20, 2.0, 1), (40, 0.5, 39), (40, 2.0, 40), (1000, 1.0, 74), (10**6, 1.0, 1051)],
)
def test_the_law_of_right_guesses_is_the_librarys(canaries, mu, guesses):
    task = Task(canaries=canaries, mu=mu)
    found = right_among(task, guesses)
    assert found == pytest.approx(library_law(task, guesses), abs=1e-8)


def test_the_law_of_right_guesses_is_that_of_a_simulation():
    """False alarm: 1e-6, by Dvoretzky, Kiefer and Wolfowitz."""
    task, guesses, runs = Task(canaries=60), 15, 40_000
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2, (runs, 60))
    above = rng.normal(size=(runs, 60)) + bits - 0.5
    surest = np.argsort(-np.abs(above), axis=1)[:, :guesses]
    right = np.take_along_axis((above > 0) == (bits == 1), surest, axis=1).sum(axis=1)
    seen = np.bincount(right, minlength=guesses + 1) / runs
    far = np.abs(np.cumsum(seen) - np.cumsum(right_among(task, guesses))).max()
    assert far < math.sqrt(math.log(2 / 1e-6) / (2 * runs))


@pytest.mark.parametrize(
    "bound", [ExactBound(), SteinkeBound()], ids=["exact", "steinke"]
)
@pytest.mark.parametrize(
    ("task", "guesses"), [(SMALL, 12), (Task(canaries=3000, delta=1e-4), 150)]
)
def test_the_expected_bound_is_the_sum_over_all_counts(bound, task, guesses):
    found = expected_count_bound(bound, task, guesses)
    assert found == pytest.approx(summed(bound, task, guesses), abs=1e-3)


@pytest.mark.nightly
def test_the_planned_numbers_are_the_best_of_all(plan):
    for bound, guesses in ((ExactBound(), plan.exact), (SteinkeBound(), plan.steinke)):
        every = {k: summed(bound, SMALL, k) for k in range(1, 21)}
        assert guesses == max(every, key=every.get)
    weighted = {k: expected_weighted(SMALL, k) for k in range(4, 21, 4)}
    assert plan.weighted == max(weighted, key=weighted.get)


def test_weighting_is_not_planned_where_it_shows_less():
    # Every canary is known for sure: weights only waste guesses and pay for delta.
    assert planned(Task(canaries=24, mu=50.0)).weighted is None


@pytest.mark.nightly
def test_the_expected_weighted_bound_is_near_the_mean_of_draws():
    """Within 5 standard errors and 0.02 for the law that the plan takes on trust."""
    task, guesses = Task(canaries=200), 40
    method = SurestWeighted(guesses=guesses)
    found = [method.epsilon_lower(draw(task, i)) for i in range(36)]
    error = np.std(found, ddof=1) / 6
    assert expected_weighted(task, guesses) == pytest.approx(
        np.mean(found), abs=5 * error + 0.02
    )


@pytest.mark.parametrize("peak", [1, 2, 3, 64, 65, 999, 1000])
def test_one_peak_is_found_wherever_it_is(peak):
    assert best_guesses(lambda k: 1000 - abs(k - peak), most=1000) == peak
    # A mountain in a plain, as wide as doubling can be sure to meet.
    steep = best_guesses(lambda k: max(0, 0.7 * peak + 1 - abs(k - peak)), most=1000)
    assert steep == peak


def test_what_goes_up_and_down_in_a_plain_is_no_peak():
    """Rounding makes tiny bounds where there is none, on the way to the mountain."""

    def expected(k):
        return 1e-8 * (k % 7) + max(0, 2100 - abs(k - 3000)) / 1000

    assert best_guesses(expected, most=10**6) == pytest.approx(3000, abs=4)


def test_a_million_canaries_are_promised_what_was_asked_for():
    task = Task(canaries=10**6)

    def expected(guesses):
        return expected_count_bound(ExactBound(), task, guesses)

    best = best_guesses(expected, least=1030, most=1080)
    assert 1030 < best < 1080
    assert 3.35 <= expected(best) < task.ceiling
    assert all(expected(round(best * f)) < expected(best) for f in (0.8, 1.25))


@pytest.mark.parametrize(
    "wrong",
    [{"canaries": 19}, {"mu": 0.0}, {"delta": -1.0}, {"alpha": 0.95}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_task_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Task(**({"canaries": 100} | wrong))


@pytest.mark.parametrize("name", ["exact", "steinke", "weighted"])
def test_a_plan_counts_at_least_one_guess(name):
    with pytest.raises(InvalidInputError, match=f"{name} must be a whole number >= 1"):
        replace(PLAN, **{name: 0})


def test_draws_are_the_same_in_every_sweep_and_differ_from_each_other():
    def sum_of_scores(_setting, rng):
        number = draw_number(rng)
        drawn = draw(SMALL, number)
        return {"number": number, "sum": float(drawn.scores.sum() + drawn.bits.sum())}

    sums = {}
    with Store(":memory:") as store:
        for name, revision in (("one", 1), ("two", 5)):
            sweep = Sweep(
                name=name,
                revision=revision,
                function=sum_of_scores,
                settings=[{"name": name}],
                trials=6,
            )
            run(sweep, engine=InOrder(), store=store)
            sums[name] = list(store.outcomes(sweep.cell({"name": name})))
    assert sums["one"] == sums["two"]
    assert [outcome["number"] for outcome in sums["one"]] == list(range(6))
    assert len({outcome["sum"] for outcome in sums["one"]}) == 6


def test_draws_have_the_law_that_is_promised():
    """Each mean within 5 standard errors: false alarm below 2e-6."""
    drawn = draw(Task(canaries=100_000, mu=1.5), 3)
    assert abs(drawn.bits.mean() - 0.5) < 5 * 0.5 / math.sqrt(100_000)
    for bit, mean in ((0, 0.0), (1, 1.5)):
        scores = drawn.scores[drawn.bits == bit]
        assert abs(scores.mean() - mean) < 5 / math.sqrt(len(scores))
        assert abs(scores.var() - 1) < 5 * math.sqrt(2 / len(scores))


def test_a_generator_without_a_number_is_refused():
    with pytest.raises(InvalidInputError, match="run it in a sweep"):
        draw_number(np.random.default_rng(1))


def naive_right(drawn, guesses):
    """Which guesses are right, the surest first, one by one."""
    ordered = sorted(
        zip(drawn.scores.tolist(), drawn.bits.tolist(), strict=True),
        key=lambda pair: -abs(pair[0] - drawn.task.mu / 2),
    )
    return [(s > drawn.task.mu / 2) == (bit == 1) for s, bit in ordered[:guesses]]


def test_methods_read_the_surest_guesses():
    task = Task(canaries=300)
    for number in range(3):
        drawn = draw(task, number)
        right = naive_right(drawn, 40)
        for bound in (ExactBound(), SteinkeBound()):
            method = SurestCounted(key="any", bound=bound, guesses=40)
            assert method.epsilon_lower(drawn) == lower(bound, task, 40, sum(right))
        reading = Weighted(
            canaries=300,
            weights=(4.0, 2.0, 1.0),
            guesses=(10, 10, 20),
            correct=(sum(right[:10]), sum(right[10:20]), sum(right[20:])),
            committed=True,
        )
        known = WeightedBound().epsilon_lower(reading, delta=1e-5, alpha=0.05)
        weighted = SurestWeighted(guesses=40).epsilon_lower(drawn)
        assert weighted == known.epsilon_lower


def test_the_ranked_method_needs_no_mu():
    drawn = draw(Task(canaries=300), 0)
    moved = replace(drawn, scores=7.0 + 3.0 * drawn.scores)
    assert RankedAll().epsilon_lower(moved) == RankedAll().epsilon_lower(drawn) > 0


def test_mean_bounds_are_those_planned():
    """Within 5 standard errors: false alarm below 2e-6."""
    task = Task(canaries=200)
    for bound in (ExactBound(), SteinkeBound()):
        method = SurestCounted(key="any", bound=bound, guesses=40)
        found = [method.epsilon_lower(draw(task, i)) for i in range(100)]
        error = np.std(found, ddof=1) / 10
        assert abs(np.mean(found) - expected_count_bound(bound, task, 40)) < 5 * error


def test_classes_hold_all_guesses():
    for guesses in range(1, 50):
        sizes = class_sizes(guesses)
        assert sum(sizes) == guesses
        assert min(sizes) >= 0


@pytest.mark.nightly
def test_sweeps_keep_bounds_and_times(plan):
    with Store(":memory:") as store:
        bounds = bound_sweep(SMALL, plan, trials=2)
        times = time_sweep(SMALL, plan, pairs=2)
        for sweep in (bounds, times):
            run(sweep, engine=InOrder(), store=store)
        known = [
            {m.key: m.epsilon_lower(draw(SMALL, i)) for m in methods(plan)}
            for i in range(2)
        ]
        assert list(store.outcomes(bounds.cell(bounds.settings[0]))) == known
        taken = list(store.outcomes(times.cell(times.settings[0])))
        assert [outcome.keys() for outcome in taken] == [known[0].keys()] * 2
        assert all(seconds > 0 for outcome in taken for seconds in outcome.values())


def test_fewer_draws_are_made_of_very_many_canaries():
    assert default_trials(Task(canaries=100_000)) == 200
    assert default_trials(Task(canaries=1_000_000)) == 50


def test_cpu_time_is_not_waiting_time():
    assert cpu(time.sleep, 0.3) < 0.2


def test_limits_of_a_median_are_those_of_every_resample():
    ratios = [1.0, 2.0, 4.0, 8.0, 16.0]
    every = [np.median(again) for again in itertools.product(ratios, repeat=5)]
    middle, low, high = median_ratio(ratios)
    assert middle == 4.0
    # The median of five is an end with a chance of 5.8 %: the quantiles are there.
    assert (low, high) == tuple(np.quantile(every, [0.025, 0.975])) == (1.0, 16.0)
    with pytest.raises(InvalidInputError, match="at least one ratio"):
        median_ratio([])


def test_ratios_are_taken_pair_by_pair():
    ratio = ratio_of([1.0, 10.0, 100.0], [0.5, 2.0, 100.0])
    assert (ratio.middle, ratio.pairs) == (2.0, 3)


JAX = PEERS["jax-privacy"]
VERSIONS = {"jax-privacy": "2.0.0"}


def filled(store, comparison, *, peer):
    """Put made-up outcomes into a store: bounds 1, 2 and times in simple ratios."""
    (task,) = comparison.plans
    guesses = comparison.plans[task]
    ours = bound_sweep(task, guesses, trials=2)
    base = {"exact": 1.0, "ranked": 2.0, "weighted": 3.0, "steinke": 0.5}
    later = {key: value + 1 for key, value in base.items()}
    add(store, ours, base, later)
    add(store, time_sweep(task, guesses, pairs=2), base, base)
    for null in NULLS:
        known = null_sweep(task, guesses, null, trials=6)
        add(store, known, *[dict.fromkeys(base, 0.5)] * 6)
    if peer:
        theirs = peer_sweep(JAX, "2.0.0", task, guesses, trials=2)
        shown = {"jax_privacy": 0.25, "jax_privacy_split": 0.75, "ranked": 2.0}
        taken = {"ranked": 4.0, "jax_privacy": 40.0, "jax_privacy_split": 8.0}
        seconds = {f"{key} seconds": value for key, value in taken.items()}
        add(store, theirs, *[shown | seconds] * 2)
        for null in NULLS:
            known = peer_null_sweep(JAX, "2.0.0", task, guesses, null, trials=6)
            outcome = {"jax_privacy": 2.0, "jax_privacy_split": 0.0}
            add(store, known, *[outcome] * 6)


def add(store, sweep, *outcomes):
    (setting,) = sweep.settings
    store.add(sweep.cell(setting), list(enumerate(outcomes)))


def comparison(**changes):
    whole = {"plans": {SMALL: PLAN}, "trials": {SMALL: 2}, "pairs": 2}
    return Comparison(**(whole | {"versions": VERSIONS} | changes))


def test_the_table_says_what_the_store_holds():
    with Store(":memory:") as store:
        filled(store, comparison(), peer=True)
        rows = {row.method: row for row in comparison().table(store)}
    assert [row.guesses for row in rows.values()] == [10, None, 12, 11, None, None]
    assert [row.ours for row in rows.values()] == [True] * 3 + [False] * 3
    exact, jax = rows["exact, guesses planned"], rows["jax-privacy 2.0.0, as it comes"]
    assert (exact.mean, exact.error, exact.draws) == (1.5, 0.5, 2)
    assert (exact.seconds, exact.ratio.middle) == (1.0, 0.5)
    assert (jax.mean, jax.error) == (0.25, 0.0)
    assert (jax.seconds, jax.ratio.middle, jax.ratio.pairs) == (40.0, 10.0, 2)


def test_the_table_counts_how_often_a_known_truth_is_exceeded():
    with Store(":memory:") as store:
        filled(store, comparison(), peer=True)
        rows = {row.key: row.wrong for row in comparison().table(store)}
    # Bounds of 0.5 exceed 0 and not 1; of 2, both; of 0, neither.
    hits = {key: [each.hits for each in wrong] for key, wrong in rows.items()}
    assert hits["exact"] == hits["ranked"] == [6, 0]
    assert (hits["jax_privacy"], hits["jax_privacy_split"]) == ([6, 6], [0, 0])
    assert {each.draws for wrong in rows.values() for each in wrong} == {6}


def test_the_table_leaves_out_what_is_not_there():
    with Store(":memory:") as store:
        filled(store, comparison(), peer=False)
        rows = comparison(pairs=0, trials={SMALL: 1}).table(store)
    assert len(rows) == 4
    assert {(row.draws, row.error, row.seconds, row.ratio) for row in rows} == {
        (1, None, None, None)
    }


def test_truths_are_not_looked_at_with_very_many_canaries():
    many = replace(SMALL, canaries=10**5)
    small = comparison()
    large = comparison(plans={many: PLAN}, trials={many: 2})
    assert len(small.sweeps()) == len(large.sweeps()) + len(NULLS)
    assert len(small.peer_sweeps(JAX)) == len(large.peer_sweeps(JAX)) + len(NULLS)
    assert large.peer_sweeps(PEERS["PrivacyGuard"]) == []


def test_a_comparison_of_nothing_is_refused():
    with pytest.raises(InvalidInputError, match="trials must be a whole number >= 1"):
        comparison(trials={SMALL: 0})
    with pytest.raises(InvalidInputError, match="pairs must be a whole number >= 0"):
        comparison(pairs=-1)
