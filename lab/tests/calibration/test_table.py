"""The table: it holds for our rules, fails for others', and says how it knows."""

import pickle
from dataclasses import replace

import pytest
from sweep_tools import InOrder

from dpaudit.bounds import ranked, rounds
from dpaudit.errors import InvalidInputError
from dpaudit.game.result import judge
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.calibration import cases as cases_of
from dpaudit_lab.calibration import peers
from dpaudit_lab.calibration.cases import Case, cases
from dpaudit_lab.calibration.ours import OURS
from dpaudit_lab.calibration.rates import FEW, MANY, exact_rate, trial
from dpaudit_lab.calibration.rules import CountRule
from dpaudit_lab.calibration.several import IndependentRule
from dpaudit_lab.calibration.table import (
    ASKED,
    FALSE_ALARM,
    LOOKED_UP,
    Part,
    Plan,
    Row,
    plan,
    sweeps,
    table,
)
from dpaudit_lab.calibration.whole import AUDITS_PER_TRIAL, whole_cases
from dpaudit_lab.sweeps.store import Found, Store
from dpaudit_lab.sweeps.sweep import run

AUDITS = 300


def filled(planned, store):
    for sweep in sweeps(planned):
        run(sweep, engine=InOrder(), store=store)


def rows_of(planned):
    with Store(":memory:") as store:
        filled(planned, store)
        return table(planned, store)


@pytest.fixture(scope="module")
def small():
    """The rules at 100 canaries; seeds are fixed by settings."""
    return rows_of(plan(small=True, only=Part.RULES, audits=AUDITS))


@pytest.mark.nightly
def test_none_of_our_rules_fails(small):
    assert [row for row in small if row.ours and row.fails] == []


@pytest.mark.nightly
def test_every_rule_stands_in_the_table(small):
    names = {row.rule for row in small}
    assert names == {rule.name for rule in (*OURS, *peers.PEERS)}


@pytest.mark.nightly
def test_most_of_the_others_rules_fail(small):
    failing = {row.rule for row in small if not row.ours and row.fails}
    assert len(failing) >= 7


@pytest.mark.nightly
def test_our_rules_are_not_idle(small):
    """Each comes near its level somewhere; a rule that never rejects is no rule."""
    for rule in OURS:
        assert max(row.rate for row in small if row.rule == rule.name) > 0.02


@pytest.mark.nightly
def test_limits_keep_the_false_alarms_of_the_whole_table_rare(small):
    simulated = [row for row in small if row.runs is not None]
    level = 2 * FALSE_ALARM / len(simulated)
    for row in simulated:
        hits = round(row.rate * row.runs)
        assert (row.low, row.high) == rate_limits(hits, row.runs, alpha=level)
        assert row.how == f"{row.runs} runs"
        assert row.runs in (AUDITS, MANY)


@pytest.mark.nightly
def test_an_exact_row_has_no_limits_but_itself(small):
    exact = [row for row in small if row.runs is None]
    assert {(row.how, row.low - row.rate, row.high - row.rate) for row in exact} == {
        ("exact", 0.0, 0.0)
    }


@pytest.mark.nightly
@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("canaries", [100, 1000, 10_000])
def test_no_exact_sum_of_ours_exceeds_its_level(canaries, alpha):
    chosen = cases(canaries=(canaries,), alphas=(alpha,), simulate_up_to=0)
    # Pairs of runs take seconds each with many canaries.
    ours = {
        rule.name
        for rule in OURS
        if canaries == 100 or not isinstance(rule, IndependentRule)
    }
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
    monkeypatch.setitem(cases_of.RULES, broken.name, broken)
    case = Case(rule=broken.name, null="attaining", canaries=1000, alpha=0.001)
    (row,) = rows_of(Plan(rules=(case,), whole=()))
    assert row.fails


@pytest.mark.nightly
def test_a_simulated_rule_broken_on_purpose_is_flagged(small):
    rows = [row for row in small if row.rule == peers.TEN_COUNTS.name]
    assert all(row.fails and row.runs for row in rows)


@pytest.mark.parametrize("rule", ["ranked looks", "rounds, 4 of 2 classes"])
def test_tails_that_leave_out_what_was_seen_are_flagged(monkeypatch, rule):
    """The commonest slip with discrete p-values: more than seen, not as much."""
    scores, thresholds = rounds.limited_score, ranked.thresholds
    unbroken = rounds._log_p_value.__wrapped__  # what others asked is kept
    monkeypatch.setattr(rounds, "_log_p_value", unbroken)
    monkeypatch.setattr(
        rounds, "limited_score", lambda w, n, at, **how: scores(w, n, at + 1, **how)
    )
    monkeypatch.setattr(
        ranked, "thresholds", lambda *given: [c + 1 for c in thresholds(*given)]
    )
    case = Case(rule=rule, null="silent", canaries=100, alpha=0.05)
    (row,) = rows_of(Plan(rules=(case,), whole=(), audits=AUDITS))
    assert row.fails


def test_a_whole_audit_broken_on_purpose_is_flagged(monkeypatch):
    """Every guess that was not made is taken to be right."""
    case = next(c for c in whole_cases() if c.guesser == "confident")

    def broken(reading, **rest):
        best = replace(reading, correct=reading.guesses, abstained=0)
        return judge(best, **rest)

    monkeypatch.setattr("dpaudit_lab.calibration.whole.judge", broken)
    (row,) = rows_of(Plan(rules=(), whole=(case,), audits=200))
    assert row.fails


def test_a_sweep_goes_on_from_what_the_store_holds():
    case = Case(rule="betting", null="silent", canaries=100, alpha=0.05)
    fewer = Plan(rules=(case,), whole=(), audits=200)
    more = replace(fewer, audits=300)
    with Store(":memory:") as store:
        filled(fewer, store)
        with pytest.raises(InvalidInputError, match="holds 2 of 3 trials"):
            table(more, store)
        filled(more, store)
        resumed = table(more, store)
        accumulated = table(fewer, store)
    assert rows_of(more) == resumed == accumulated


def test_missing_trials_are_named_with_why_they_failed():
    case = Case(rule="betting", null="silent", canaries=100, alpha=0.05)
    planned = Plan(rules=(case,), whole=(), audits=200)
    (sweep,) = sweeps(planned)
    cell = sweep.cell(sweep.settings[0])
    said = "Traceback:\n  here\nZeroDivisionError: by zero\n"
    with Store(":memory:") as store:
        store.record([Found(cell=cell, outcomes=(), failures=[(1, said)])])
        with pytest.raises(
            InvalidInputError,
            match=r"holds 0 of 2 .*; trial 1 failed: ZeroDivisionError: by zero$",
        ):
            table(planned, store)


def test_a_trial_can_be_sent_to_a_worker():
    assert pickle.loads(pickle.dumps(trial)) is trial


def test_audits_fill_whole_trials_and_the_row_says_how_many():
    case = Case(rule="betting", null="silent", canaries=100, alpha=0.05)
    (row,) = rows_of(Plan(rules=(case,), whole=(), audits=FEW + 1))
    assert row.runs == 2 * FEW


@pytest.mark.parametrize("audits", [0, -5])
def test_no_audits_are_refused(audits):
    with pytest.raises(InvalidInputError, match="audits must be a whole number >= 1"):
        plan(audits=audits)


def test_by_default_what_is_cheap_is_simulated_ten_times_as_often():
    by_name = {sweep.name: sweep for sweep in sweeps(plan())}
    assert by_name["calibration, looked up"].trials * MANY == LOOKED_UP == 100_000
    assert by_name["calibration, asked"].trials * FEW == ASKED == 10_000
    assert by_name["whole audits"].trials * AUDITS_PER_TRIAL == ASKED
    for name, size in (("calibration, looked up", MANY), ("calibration, asked", FEW)):
        assert {s["audits"] for s in by_name[name].settings} == {size}


def test_one_correction_is_made_for_all_simulated_rates_of_both_parts():
    case = Case(rule="betting", null="silent", canaries=100, alpha=0.05)
    some = tuple(c for c in whole_cases() if c.guesser == "everyone")[:2]
    planned = Plan(rules=(case,), whole=some, audits=1)
    rows = rows_of(planned)
    level = 2 * FALSE_ALARM / 5  # one rate of the rule, two of each whole audit
    assert [row.part for row in rows] == [Part.RULES, Part.WHOLE, Part.WHOLE]
    for row in rows:
        hits = round(row.rate * row.runs)
        assert (row.low, row.high) == rate_limits(hits, row.runs, alpha=level)


def test_every_rule_that_judges_counts_meets_every_adversary():
    """The list that the page promises, rule by rule, rules and whole audits."""
    wanted = {
        "shared score, 1-GDP",
        "all or nothing, 2 alpha",
        "attaining",
        "xor randomised response",
        "randomised response",
        "counts at the edge",
        "DP-SGD, all or nothing",
    }
    met = {}
    for case in cases():
        met.setdefault(case.rule, set()).add(case.null)
    complete = [rule for rule, nulls in met.items() if wanted <= nulls]
    assert len(complete) == 12
    stopped = [rule for rule, nulls in met.items() if any("stops" in n for n in nulls)]
    assert len(stopped) == 6  # five adaptive rules of ours, and the paper's


@pytest.mark.parametrize(("low", "fails"), [(0.05, False), (0.0501, True)])
def test_a_row_fails_if_its_lower_limit_exceeds_alpha(low, fails):
    row = Row(
        part=Part.RULES,
        rule="",
        ours=True,
        null="",
        epsilon=0.0,
        delta=0.0,
        canaries=1,
        alpha=0.05,
        runs=1,
        rate=0.06,
        low=low,
        high=0.07,
    )
    assert row.fails == fails


def test_a_law_that_is_not_known_is_not_made_up():
    case = Case(rule="betting", null="silent", canaries=100, alpha=0.05)
    with pytest.raises(InvalidInputError, match="simulate it"):
        exact_rate(case)
