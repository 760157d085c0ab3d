"""A bound of the user's own: not checked, not called wrong, and explained by itself."""

from dataclasses import dataclass, replace
from math import exp
from typing import ClassVar

import pytest
from evidence_samples import KEY, played

from dpaudit import Design, OneRun, PureDP
from dpaudit.bounds.bound import largest_rejected
from dpaudit.bounds.exact import Pure
from dpaudit.bounds.steinke import Steinke
from dpaudit.evidence import VerificationOutcome as Outcome
from dpaudit.evidence import evidence_of, seal, verify
from dpaudit.explanation import explain
from dpaudit.game import Referee
from dpaudit.game.result import judge

DESIGN = Design(canaries=60, rules=OneRun(guesses=30), claim=PureDP(epsilon=0.5))


@dataclass(frozen=True)
class Hoeffding:
    """As docs/how-to/add-a-bound.md writes it."""

    method: ClassVar[str] = "hoeffding"
    reference: ClassVar[str] = "Hoeffding, JASA 58, 1963, theorem 1"

    def log_p_value(self, counts, *, epsilon, delta):
        assert delta == 0
        r, v = counts.guesses, counts.correct
        p = 1 / (1 + exp(-epsilon))
        return -2 * r * (v / r - p) ** 2 if v > r * p else 0.0

    def epsilon_lower(self, counts, *, delta, alpha):
        return largest_rejected(self, counts, delta=delta, alpha=alpha)


def evidence(bound):
    transcript = played(DESIGN)
    result = judge(
        transcript.reading(),
        design=DESIGN,
        commitment=Referee(DESIGN, KEY).commitment,
        bound=bound,
    )
    return evidence_of(result, key=KEY, transcript=transcript)


def check(found, name):
    return next(each for each in found.checks if each.name == name)


def test_a_bound_of_the_users_own_is_not_checked_and_not_wrong():
    sealed = evidence(Hoeffding())
    found = verify(seal(sealed), registration=sealed.registration)
    assert not any(each.finding is Outcome.FAILS for each in found.checks)
    bound = check(found, "bound")
    assert bound.finding is Outcome.NOT_CHECKED
    assert "hoeffding" in bound.sentence
    assert "its author's word" in bound.sentence
    assert not found.sound
    assert str(found).startswith("This evidence could not be checked to the end.")


def test_what_does_not_hang_on_the_bound_is_still_derived():
    sealed = evidence(Hoeffding())
    assert check(verify(seal(sealed)), "claim test").finding is Outcome.HOLDS
    test = replace(sealed.result.design_test, p_value=1e-6)
    forged = replace(sealed, result=replace(sealed.result, design_test=test))
    assert check(verify(seal(forged)), "bound").finding is Outcome.FAILS


def test_a_name_of_ours_must_give_our_number():
    sealed = evidence(Hoeffding())
    bound = replace(sealed.result.bound, method="exact")
    forged = replace(sealed, result=replace(sealed.result, bound=bound))
    assert check(verify(seal(forged)), "bound").finding is Outcome.FAILS


@pytest.mark.parametrize("bound", [Pure(), Steinke()])
def test_a_bound_of_ours_that_holds_for_the_game_is_found_again(bound):
    found = verify(seal(evidence(bound)))
    assert found.sound, str(found)


def test_the_explanation_leaves_it_to_its_author():
    explained = str(explain(evidence(Hoeffding()).result))
    assert "The method hoeffding says of itself that epsilon is at least" in explained
    assert "Hoeffding, JASA 58, 1963, theorem 1" in explained
    assert "the method hoeffding holds, which only its author says" in explained
    assert "was shown" not in explained
    assert "whatever the program does" not in explained
