"""Forgeries by someone who keeps every hash right, and what is said of them."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from evidence_mutants import contents
from evidence_samples import (
    KEY,
    KINDS,
    check,
    design_of,
    of_classic,
    of_game,
    of_training,
    played,
    torn,
)
from evidence_trials import unsigned_trial

from dpaudit import (
    AdaptiveCount,
    GaussianDP,
    OneRun,
    Ranking,
    SeparateRuns,
    WeightClasses,
)
from dpaudit.bounds.bound import ClaimTest
from dpaudit.bounds.methods import judge_claim as verdict_on
from dpaudit.bounds.readings import Counts, Weighted
from dpaudit.errors import InvalidRunError
from dpaudit.evidence import (
    VerificationOutcome as Outcome,
)
from dpaudit.evidence import (
    evidence_of,
    register,
    seal,
    verify,
)
from dpaudit.game.design import Commitment
from dpaudit.game.result import judge

RULES = OneRun(guesses=30)


def names(found):
    return {each.name for each in found.checks}


def with_accountant(claim):
    result = of_training().result
    test = verdict_on(claim, result.reading, alpha=0.05)
    return replace(of_training(), result=with_test(result, test))


def with_test(result, test):
    """Return the result of a training with another verdict on the accountant."""
    return replace(result, training=replace(result.training, accountant=test))


def test_a_verdict_on_another_curve_does_not_stand_for_the_registered_claim():
    """The registered claim is refuted; a curve of epsilon = 33 is not."""
    evidence = with_accountant(GaussianDP(mu=5.0))
    assert evidence.result.design_test.refuted
    assert not evidence.result.refuted
    found = verify(seal(evidence), registration=evidence.registration)
    bound = check(found, "bound")
    assert bound.outcome is Outcome.HOLDS
    assert "the claim (epsilon = 0.5, delta = 1e-06)-DP is refuted" in bound.sentence
    assert "mu" not in bound.sentence
    asked = check(found, "accountant")
    assert asked.outcome is Outcome.NOT_CHECKED
    assert "This curve was not registered" in asked.sentence
    # Of mu = 5 at delta = 1e-6, in 40 digits: 35.5663...
    assert "epsilon = 35.57," in asked.sentence
    assert "epsilon = 0.5." in asked.sentence
    assert "about the curve: inconclusive (p = " in asked.sentence  # it is that high


def test_a_curve_that_was_registered_is_no_open_question():
    result = of_training().result
    same = ClaimTest(
        claim=result.design_test.claim,
        p_value=result.design_test.p_value,
        alpha=0.05,
    )
    evidence = replace(of_training(), result=with_test(result, same))
    assert "accountant" not in names(verify(seal(evidence)))
    assert "accountant" in names(verify(seal(of_training())))


def classic_instead(evidence):
    """Judge what was read as if every coin had had a run of its own."""
    audit = evidence.result
    design = replace(audit.design, rules=SeparateRuns(guesses=audit.design.guesses))
    many = judge(audit.reading, design=design, commitment=audit.commitment)
    return replace(many, design=audit.design)


def test_that_runs_were_independent_must_be_registered():
    honest = of_game(RULES)
    better = classic_instead(honest)
    with pytest.raises(InvalidRunError, match="the separate bound does not hold"):
        evidence_of(better, key=KEY, transcript=honest.guesses)
    found = verify(seal(replace(honest, result=better)))
    assert check(found, "bound").outcome is Outcome.FAILS
    assert "the separate bound does not hold" in check(found, "bound").sentence
    registered = of_classic()
    assert registered.registration.design.rules == SeparateRuns(guesses=40)
    assert verify(seal(registered), accept_unchecked_counts=True).sound


def test_a_training_is_never_many_runs():
    result = of_training().result
    rules = SeparateRuns(guesses=result.design.guesses)
    design = replace(result.design, rules=rules)
    transcript = replace(result.transcript, design=design)
    audit = judge(
        result.reading,
        design=design,
        commitment=Commitment.to(KEY, design),
    )
    training = replace(result.training, transcript=transcript)
    many = replace(audit, training=training)
    evidence = torn(register(design, KEY), many, transcript)
    found = verify(seal(evidence))
    assert "a training run is one run" in check(found, "bound").sentence
    with pytest.raises(InvalidRunError, match="one run"):
        evidence_of(many, key=KEY)


def test_classes_that_were_chosen_afterwards_are_refused():
    design = design_of(WeightClasses(weights=(1.0, 2.0), guesses=(20, 20)))
    registration = register(design, KEY)

    honest = Weighted(
        canaries=60,
        weights=(1.0, 2.0),
        guesses=(20, 20),
        correct=(8, 19),
        committed=True,
    )
    judged = judge(honest, design=design, commitment=registration.commitment)

    def found(weights, guesses):
        reading = replace(honest, weights=weights, guesses=guesses)
        result = replace(judged, reading=reading)
        evidence = torn(registration, result, key=None, redacted=True)
        return verify(seal(evidence), accept_unchecked_counts=True)

    assert found((1.0, 2.0), (20, 20)).sound
    for weights, guesses in (((0.1, 2.0), (20, 20)), ((1.0, 2.0), (19, 21))):
        other = found(weights, guesses)
        assert "classes are not those" in check(other, "bound").sentence


@pytest.mark.parametrize(
    "rules",
    [AdaptiveCount(guesses=10**15), Ranking(guesses=10**15)],
    ids=["count", "ranking"],
)
def test_a_number_that_is_quick_to_write_is_not_counted_to(rules):
    """Nothing is made that is as long as the number; what cannot be done is said."""
    honest = of_game(RULES)
    design = replace(honest.registration.design, rules=rules, canaries=10**15)
    registration = register(design, KEY)
    counts = Counts(canaries=10**15, guesses=10**15, correct=10**14, adaptive=True)
    commitment = registration.commitment
    result = replace(
        honest.result, design=design, commitment=commitment, reading=counts
    )
    transcript = replace(played(design_of(RULES)), design=design)
    for guesses in (None, transcript):
        evidence = torn(registration, result, guesses)
        found = verify(seal(evidence))
        assert not found.sound
        bound = check(found, "bound")
        if isinstance(rules, Ranking):
            assert "read as Ranked" in bound.sentence
        else:
            assert bound.outcome is Outcome.NOT_CHECKED
            assert "1000000000000000 guesses are too many" in bound.sentence
            if guesses is None:
                headline = "This evidence could not be checked to the end."
                assert str(found).startswith(headline)


def test_hashes_are_of_the_canonical_texts():
    statement = json.loads(contents(seal(of_game(RULES)))[0])
    result = statement["predicate"]["result"]
    text = json.dumps(result, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert statement["subject"][1]["digest"]["sha256"] == digest


@pytest.mark.parametrize("kind", ["one run", "training", "classic"])
def test_a_setting_cannot_be_changed_although_its_truth_is_only_stated(kind):
    rng = np.random.default_rng(11)
    for field in ("registration.design.setting", "registration.design.threat_model"):
        trial = unsigned_trial(seal(KINDS[kind]()), mutants=20, rng=rng, within=field)
        assert field in trial.stated
        assert not trial.missed
