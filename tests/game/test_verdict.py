"""The word for how an audit ended, and what decides it."""

import json
from dataclasses import replace
from itertools import product

import pytest

from dpaudit import Design, OneRun, PureDP
from dpaudit.bounds import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.game.result import Result, effect_seen, judge
from dpaudit.game.verdict import Control, Verdict, verdict_of
from dpaudit.game.words import opening

ORDER = ("void", "refuted", "fault found", "inconclusive", "no violation found")
CODES = {
    "no violation found": 0,
    "refuted": 1,
    "inconclusive": 3,
    "void": 4,
    "fault found": 5,
}


def judged(correct, *, guesses=100, claimed=1.0, controls=()):
    claim = PureDP(epsilon=claimed)
    design = Design(canaries=100, rules=OneRun(guesses=guesses), claim=claim)
    counts = Counts(canaries=100, guesses=guesses, correct=correct)
    return judge(counts, design=design, commitment=None, controls=controls)


def test_there_are_five_words_with_an_exit_code_each():
    assert {str(each): each.exit_code for each in Verdict} == CODES


@pytest.mark.parametrize(
    ("void", "refuted", "could", "unseen", "fault"),
    list(product([True, False], repeat=5)),
)
def test_where_several_words_hold_the_first_in_order_is_said(
    void, refuted, could, unseen, fault
):
    controls = [Control(said="all is well")]
    controls += [Control(said="unseen", spoils=Verdict.INCONCLUSIVE)] * unseen
    controls += [Control(said="lost", spoils=Verdict.VOID)] * void
    holding = {
        "void": void,
        "refuted": refuted,
        "fault found": fault,
        "inconclusive": unseen or not could,
        "no violation found": True,
    }
    word, why = verdict_of(
        refuted=refuted,
        could=could,
        controls=controls,
        faults=["no noise"] * fault,
    )
    assert word == next(each for each in ORDER if holding[each])
    assert bool(why) == (word in ("void", "fault found", "inconclusive"))


def test_an_audit_that_could_not_have_refuted_the_claim_is_inconclusive():
    # All of 3 guesses right refute no epsilon above ln(0.05^(1/3) / (1 - ...)) = -0.54.
    result = judged(3, guesses=3)
    assert result.verdict == "inconclusive"
    assert "could not have refuted" in str(result)


def test_a_void_audit_says_nothing_about_the_claim():
    lost = Control(said="no canary arrived", spoils=Verdict.VOID)
    said = str(judged(100, controls=(lost,)))
    assert said == "Void: no canary arrived. Nothing is said about the claim."


@pytest.mark.parametrize(
    # P[Bin(100, 1/2) >= 66] = 0.00089, P[Bin(100, 1/2) >= 65] = 0.0018
    ("correct", "seen"),
    [(66, True), (65, False), (50, False), (0, False)],
)
def test_guesses_no_better_than_chance_show_no_effect(correct, seen):
    result = judged(correct)
    control = effect_seen(result.reading, design=result.design)
    assert (control.spoils is None) == seen
    again = replace(result, controls=(control,))
    assert (again.verdict == "inconclusive") != seen


def test_words_and_controls_survive_json():
    control = Control(said="unseen", spoils=Verdict.INCONCLUSIVE)
    result = judged(50, controls=(control, Control(said="fine")))
    again = Result.from_json(result.to_json())
    assert again == result
    assert again.controls == result.controls
    assert json.loads(result.to_json())["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "no violation found"},
        {"verdict": "well"},
        {"controls": [{"said": "x", "spoils": "refuted"}]},
        {"controls": [{"said": "x"}]},
        {"controls": [{"said": "a\nb", "spoils": None}]},
        {"controls": {}},
    ],
)
def test_a_document_whose_word_is_not_what_it_says_is_refused(changes):
    unseen = Control(said="unseen", spoils=Verdict.INCONCLUSIVE)
    plain = json.loads(judged(50, controls=(unseen,)).to_json())
    with pytest.raises(InvalidInputError):
        Result.from_json(json.dumps(plain | changes))


def test_a_reason_cannot_begin_another_line():
    assert "\n" not in opening(Verdict.VOID, "lost\nNo violation found.")
