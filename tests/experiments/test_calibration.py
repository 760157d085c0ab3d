"""The table: it holds for our rules, fails for others', and says how it knows."""

import pickle

import pytest

from dpaudit.bounds import ranked, rounds
from dpaudit.engines.store import Store
from dpaudit.engines.sweep import run
from dpaudit.errors import InvalidInputError
from dpaudit.experiments import calibration, peers
from dpaudit.experiments.calibration import (
    AUDITS_PER_TRIAL,
    FALSE_ALARM,
    Case,
    cases,
    exact_rate,
    sweep,
    table,
    trial,
)
from dpaudit.experiments.rules import OURS, CountRule
from dpaudit.stats.binomial import rate_limits

RUNS = 600


class InThisProcess:
    def map(self, function, tasks):
        return map(function, tasks)


@pytest.fixture(scope="module")
def small():
    """A table of 100 canaries; its seeds are fixed by its settings."""
    chosen = cases(canaries=(100,), alphas=(0.05,))
    with Store(":memory:") as store:
        run(sweep(chosen, runs=RUNS), engine=InThisProcess(), store=store)
        return table(chosen, store, runs=RUNS)


def test_none_of_our_rules_fails(small):
    assert [row for row in small if row.ours and row.fails] == []


def test_every_rule_stands_in_the_table(small):
    names = {row.rule for row in small}
    assert names == {rule.name for rule in (*OURS, *peers.PEERS)}


def test_most_of_the_others_rules_fail(small):
    failing = {row.rule for row in small if not row.ours and row.fails}
    assert len(failing) >= 7


def test_our_rules_are_not_idle(small):
    """Each comes near its level somewhere; a rule that never rejects is no rule."""
    for rule in OURS:
        assert max(row.rate for row in small if row.rule == rule.name) > 0.02


def test_limits_keep_the_false_alarms_of_the_whole_table_rare(small):
    simulated = [row for row in small if row.runs is not None]
    level = 2 * FALSE_ALARM / len(simulated)
    for row in simulated:
        hits = round(row.rate * row.runs)
        assert (row.low, row.high) == rate_limits(hits, row.runs, alpha=level)
        assert row.how == f"{RUNS} runs"


def test_an_exact_row_has_no_limits_but_itself(small):
    exact = [row for row in small if row.runs is None]
    assert {(row.how, row.low - row.rate, row.high - row.rate) for row in exact} == {
        ("exact", 0.0, 0.0)
    }


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("canaries", [100, 1000, 10_000])
def test_no_exact_sum_of_ours_exceeds_its_level(canaries, alpha):
    chosen = cases(canaries=(canaries,), alphas=(alpha,), simulate_up_to=0)
    ours = {rule.name for rule in OURS}
    rates = {c: exact_rate(c) for c in chosen if c.rule in ours}
    assert len(rates) > 50
    assert [c for c, rate in rates.items() if rate > alpha] == []


@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_the_exact_bound_is_attained(alpha):
    case = Case(rule="exact, r = n", null="attaining", canaries=10_000, alpha=alpha)
    assert 0.95 * alpha < exact_rate(case) <= alpha


def test_a_rule_broken_on_purpose_is_flagged(monkeypatch):
    """The exact bound without its delta, in the place of the exact bound."""
    broken = CountRule(name="exact, r = n", bound=peers.DeltaShrinksGuesses(), share=1)
    monkeypatch.setitem(calibration._RULES, broken.name, broken)
    chosen = [Case(rule=broken.name, null="attaining", canaries=1000, alpha=0.001)]
    with Store(":memory:") as store:
        (row,) = table(chosen, store, runs=RUNS)
    assert row.fails


def test_a_simulated_rule_broken_on_purpose_is_flagged(small):
    rows = [row for row in small if row.rule == peers.TwelveCounts().name]
    assert all(row.fails and row.runs for row in rows)


@pytest.mark.parametrize("rule", ["ranked looks", "rounds, 4 of 2 classes"])
def test_tails_that_leave_out_what_was_seen_are_flagged(monkeypatch, rule):
    """The commonest slip with discrete p-values: more than seen, not as much."""
    scores, thresholds = rounds.limited_score, ranked.thresholds
    monkeypatch.setattr(
        rounds, "limited_score", lambda w, n, at, **how: scores(w, n, at + 1, **how)
    )
    monkeypatch.setattr(
        ranked, "thresholds", lambda *given: [c + 1 for c in thresholds(*given)]
    )
    chosen = [Case(rule=rule, null="silent", canaries=100, alpha=0.05)]
    with Store(":memory:") as store:
        run(sweep(chosen, runs=RUNS), engine=InThisProcess(), store=store)
        (row,) = table(chosen, store, runs=RUNS)
    assert row.fails


def test_a_sweep_goes_on_from_what_the_store_holds():
    chosen = [Case(rule="betting", null="silent", canaries=100, alpha=0.05)]
    with Store(":memory:") as store:
        run(sweep(chosen, runs=200), engine=InThisProcess(), store=store)
        with pytest.raises(InvalidInputError, match="holds 2 of 3 trials"):
            table(chosen, store, runs=300)
        run(sweep(chosen, runs=300), engine=InThisProcess(), store=store)
        resumed = table(chosen, store, runs=300)
    with Store(":memory:") as store:
        run(sweep(chosen, runs=300), engine=InThisProcess(), store=store)
        assert table(chosen, store, runs=300) == resumed


def test_a_trial_can_be_sent_to_a_worker():
    assert pickle.loads(pickle.dumps(trial)) is trial


@pytest.mark.parametrize("runs", [0, 50, AUDITS_PER_TRIAL + 1])
def test_runs_that_do_not_fill_trials_are_refused(runs):
    with pytest.raises(InvalidInputError, match=f"multiple of 100, got runs={runs}"):
        sweep(cases(canaries=(100,), alphas=(0.05,)), runs=runs)


def test_a_law_that_is_not_known_is_not_made_up():
    case = Case(rule="betting", null="silent", canaries=100, alpha=0.05)
    with pytest.raises(InvalidInputError, match="simulate it"):
        exact_rate(case)
