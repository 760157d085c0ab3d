"""Whole audits: every case can be played, and the quick verdict is the true one."""

import numpy as np
import pytest

from dpaudit.bounds.bets import Betting
from dpaudit.bounds.ranked import RankedLooks
from dpaudit.bounds.rounds import StoufferRounds
from dpaudit.engines.store import Store
from dpaudit.errors import InvalidInputError
from dpaudit.experiments import whole_audits
from dpaudit.experiments.whole_audits import Row, cases, sweep, table, trial
from dpaudit.game.result import judge
from dpaudit.stats.binomial import rate_limits

CASES = cases()


def name(case):
    return "-".join(case.values()).replace(" ", "_")


def test_every_auditor_meets_every_mechanism_that_it_can():
    auditors = {case["auditor"] for case in CASES}
    assert auditors == {"one run", "adaptive", "classic", "scores"}
    seen = {(c["auditor"], c["guesser"], c["mechanism"]) for c in CASES}
    assert len(seen) == len(CASES) > 200
    mechanisms = {case["mechanism"] for case in CASES}
    for mechanism in mechanisms:
        guessers = [c for c in CASES if c["mechanism"] == mechanism]
        assert len(guessers) >= 8


@pytest.mark.parametrize("case", CASES, ids=name)
def test_true_claims_stand(case):
    """Ten audits each; a valid one fails here less than once in 10^7 cases."""
    found = trial({**case, "audits": 10}, np.random.default_rng(1))
    assert max(found["refuted"], found["above"]) <= found["wrong"]
    assert rate_limits(found["wrong"], 10, alpha=2e-7)[0] <= 0.05


@pytest.mark.parametrize(
    ("guesser", "bound"),
    [
        ("ranked", RankedLooks()),
        ("bets", Betting()),
        ("limited rounds", StoufferRounds()),
    ],
)
def test_the_quick_verdict_says_above_whenever_the_scan_does(
    guesser, bound, monkeypatch
):
    """The mechanism claims too little here, so that both kinds of verdict occur."""
    verdict, kinds = whole_audits._verdict, set()

    def compared(reading, design):
        quick = verdict(reading, design)
        full = whole_audits._of(
            judge(reading, design=design, commitment=None), design.claim
        )
        assert full.refuted == quick.refuted
        assert full.above <= quick.above
        kinds.add((full.refuted, full.above))
        return quick

    monkeypatch.setattr(whole_audits, "_verdict", compared)
    false = whole_audits._claim(0.3, 0.0)
    subject = whole_audits._subject("local randomised response")
    lying = whole_audits.Subject(mechanism=subject.mechanism, claim=false)
    monkeypatch.setattr(whole_audits, "_subject", lambda _name: lying)
    auditor = "one run" if guesser == "ranked" else "adaptive"
    case = {"auditor": auditor, "guesser": guesser, "mechanism": "any", "audits": 25}
    trial(case, np.random.default_rng(2))
    assert {(True, True), (False, False)} <= kinds
    assert bound.method


def test_a_table_shows_what_the_store_holds(tmp_path):
    chosen = CASES[:2]
    planned = sweep(chosen, audits=400)
    with Store(tmp_path / "store.sqlite") as store:
        for setting in planned.settings:
            wrong = {"wrong": 3, "refuted": 3, "above": 0}
            store.add(planned.cell(setting), [(0, wrong), (1, wrong)])
        rows = table(chosen, store, audits=400)
    assert [(row.wrong, row.audits) for row in rows] == [(6, 400)] * 2
    assert not any(row.fails for row in rows)


def test_a_row_fails_if_its_lower_limit_exceeds_alpha():
    low, high = rate_limits(1200, 20_000, alpha=1e-5)
    claim = whole_audits._claim(1.0, 0.0)
    row = Row(
        auditor="",
        guesser="",
        mechanism="",
        claim=claim,
        audits=20_000,
        wrong=1200,
        low=low,
        high=high,
    )
    assert row.fails


def test_audits_come_in_whole_trials():
    with pytest.raises(InvalidInputError, match="multiple of 200"):
        sweep(CASES, audits=250)
