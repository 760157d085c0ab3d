"""The word for how an audit ended, and what decides it."""

import json
from dataclasses import replace
from itertools import product

import pytest

from dpaudit import Design, OneRun, PureDP
from dpaudit._codec import encode
from dpaudit.bounds import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import (
    Stage,
    Status,
    fault,
    inconclusive,
    invalid,
    passed,
)
from dpaudit.game.result import Result, effect_seen, judge
from dpaudit.game.text.results import opening
from dpaudit.game.verdict import Verdict, decide

ORDER = (
    "invalid run",
    "claim refuted",
    "fault found",
    "inconclusive",
    "no violation detected",
)
CODES = {
    "no violation detected": 0,
    "claim refuted": 1,
    "inconclusive": 3,
    "invalid run": 4,
    "fault found": 5,
}

UNSEEN = encode(inconclusive("unseen"))


def judged(correct, *, guesses=100, claimed=1.0, checks=()):
    claim = PureDP(epsilon=claimed)
    design = Design(canaries=100, rules=OneRun(guesses=guesses), claim=claim)
    counts = Counts(canaries=100, guesses=guesses, correct=correct)
    return judge(counts, design=design, commitment=None, sanity_checks=checks)


def test_there_are_five_words_with_an_exit_code_each():
    assert {str(each): each.exit_code for each in Verdict} == CODES


@pytest.mark.parametrize(
    ("spent", "refuted", "could", "unseen", "wrong"),
    list(product([True, False], repeat=5)),
)
def test_where_several_words_hold_the_first_in_order_is_said(
    spent, refuted, could, unseen, wrong
):
    unsure, lost = inconclusive("unseen"), invalid("lost")
    small = fault(Stage.NOISE_SCALE, "noise.scale")
    holding = {
        "invalid run": spent,
        "claim refuted": refuted,
        "fault found": wrong,
        "inconclusive": unseen or not could,
        "no violation detected": True,
    }
    found = decide(
        refuted=refuted,
        could=could,
        checks=[passed("well"), *[unsure] * unseen, *[lost] * spent],
        faults=[small] * wrong,
    )
    word = found.verdict
    assert word == next(each for each in ORDER if holding[each])
    assert bool(found.because) == (
        word in ("invalid run", "fault found", "inconclusive")
    )


def test_an_audit_that_could_not_have_refuted_the_claim_is_inconclusive():
    # All of 3 guesses right refute no epsilon above ln(0.05^(1/3) / (1 - ...)) = -0.54.
    result = judged(3, guesses=3)
    assert result.verdict == "inconclusive"
    assert "had no power" in str(result)


def test_a_void_audit_says_nothing_about_the_claim():
    lost = invalid("custom", text="no canary arrived")
    said = str(judged(100, checks=(lost,)))
    assert "No canary arrived. Nothing follows about the claim." in said
    assert "Lower bound" not in said


@pytest.mark.parametrize(
    # P[Bin(100, 1/2) >= 66] = 0.00089, P[Bin(100, 1/2) >= 65] = 0.0018
    ("correct", "seen"),
    [(66, True), (65, False), (50, False), (0, False)],
)
def test_guesses_no_better_than_chance_show_no_effect(correct, seen):
    result = judged(correct)
    control = effect_seen(result.reading, design=result.design)
    assert (control.status is Status.PASSED) == seen
    again = replace(result, sanity_checks=(control,))
    assert (again.verdict == "inconclusive") != seen


def test_words_and_controls_survive_json():
    unseen = inconclusive("unseen", share=0.25, of="all", sure=True, none=None)
    result = judged(50, checks=(unseen, passed("fine", count=3)))
    again = Result.from_json(result.to_json())
    assert again == result
    assert again.sanity_checks == result.sanity_checks
    assert json.loads(result.to_json())["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "no violation detected"},
        {"verdict": "well"},
        {"sanity_checks": [UNSEEN | {"status": "claim refuted"}]},
        {"sanity_checks": [{"code": "x"}]},
        {"sanity_checks": [UNSEEN | {"code": "a\nb"}]},
        {"sanity_checks": [UNSEEN | {"numbers": {"x": "a\nb"}}]},
        {"sanity_checks": [UNSEEN | {"numbers": {"x": [1]}}]},
        {"sanity_checks": [UNSEEN | {"subject": ["a\x1b"]}]},
        {"sanity_checks": {}},
    ],
)
def test_a_document_whose_word_is_not_what_it_says_is_refused(changes):
    plain = json.loads(judged(50, checks=(inconclusive("unseen"),)).to_json())
    assert Result.from_json(json.dumps(plain))
    with pytest.raises(InvalidInputError):
        Result.from_json(json.dumps(plain | changes))


def test_a_reason_cannot_begin_another_line():
    assert "\n" not in opening(Verdict.INVALID_RUN, "lost\nNo violation detected.")
