"""Verification: honest evidence stands, and fraud is called by its name."""

import base64
import hashlib
import json
from dataclasses import fields, replace
from functools import cache
from math import ceil

import numpy as np
import pytest
from evidence_mutants import contents, forged
from evidence_samples import (
    CLAIM,
    KEY,
    KINDS,
    OTHER_KEY,
    check,
    design_of,
    of_classic,
    of_game,
    of_training,
    of_transcript,
    played,
    torn,
    training,
)

from dpaudit import ApproxDP, Design, OneRun, Ranking
from dpaudit.bounds.exact import ExactBound
from dpaudit.evidence import (
    Evidence,
    Registration,
    Verification,
    VerificationCheck,
    evidence_of,
    register,
    seal,
    verify,
)
from dpaudit.evidence import (
    VerificationOutcome as Outcome,
)
from dpaudit.game import Referee
from dpaudit.game.configuration import DetectableFault, RunConfiguration, StepSegment
from dpaudit.game.design import Commitment
from dpaudit.game.findings import Stage, fault
from dpaudit.game.setting import Setting
from dpaudit.training.any_loop import SumsAudit

RULES = OneRun(guesses=30)
HONEST = of_game(RULES)


def findings(found):
    return {check.name: check.outcome for check in found.checks}


def failure(found):
    """Return the one check that fails, with its sentence."""
    wrong = [check for check in found.checks if check.outcome is Outcome.FAILS]
    assert len(wrong) == 1, str(found)
    return wrong[0].name, wrong[0].sentence


def edited(evidence, change):
    """Return an envelope whose payload was changed by whoever can compute hashes."""
    statement = json.loads(contents(seal(evidence))[0])
    tree = statement["predicate"]
    change(tree)
    statement["predicate"] = tree
    return forged(statement)


@pytest.mark.parametrize("kind", KINDS)
def test_honest_evidence_of_every_kind_stands(kind):
    evidence = KINDS[kind]()
    found = verify(
        seal(evidence), registration=evidence.registration, accept_unchecked_counts=True
    )
    assert found.sound, str(found)
    assert findings(found)["registration"] is Outcome.HOLDS
    counted = findings(found)["tally"]
    assert counted is (Outcome.HOLDS if evidence.guesses else Outcome.NOT_CHECKED)
    assert findings(found)["bound"] is counted
    assert findings(found)["peeking"] is Outcome.NOT_CHECKED


def test_what_is_established_is_said_in_words():
    said = str(verify(seal(HONEST)))
    assert said.startswith("No check failed.")
    for words in (
        "it is not signed",
        "nothing shows that design and commitment were fixed before the run",
        "the coins in the transcript are those of the key",
        "a referee takes the guesses by the rules registered",
        "the guesser saw nothing but the output",
        "that it was drawn at random and used once",
        "the best of many leaves the same record",
        "Stated, not checked: guesses.guess, guesses.index, "
        "registration.design.setting, registration.design.threat_model, "
        "result.not_exercised",
    ):
        assert words in said, words


def test_all_of_a_trainings_record_is_made_anew_or_listed_as_stated():
    honest = of_training()
    record = replace(honest.result.training, reported=0.7)
    told = replace(honest, result=replace(honest.result, training=record))
    stated = verify(seal(told)).stated
    anew = {"transcript", "family", "detectable"}
    held = {each.name for each in fields(record)} - anew
    assert {f"result.training.{name}" for name in held} <= set(stated)


def test_a_wrong_key_is_named():
    text = edited(HONEST, lambda tree: tree.update(key=OTHER_KEY.secret.hex()))
    name, said = failure(verify(text))
    assert name == "commitment"
    assert "the wrong key" in said
    assert "design," not in said


@pytest.mark.parametrize(
    ("name", "value"), [("alpha", 0.01), ("canaries", 61), ("setting", {})]
)
def test_a_wrong_design_is_named_wherever_it_was_changed(name, value):
    def everywhere(tree):
        for part in (tree["registration"], tree["guesses"], tree["result"]):
            part["design"][name] = value

    check, said = failure(verify(edited(HONEST, everywhere)))
    assert check == "commitment"
    assert "the wrong design" in said

    def registered(tree):
        tree["registration"]["design"][name] = value

    found = verify(edited(HONEST, registered))
    wrong = [c.sentence for c in found.checks if c.outcome is Outcome.FAILS]
    assert any(f"another design than the registered; {name}" in said for said in wrong)


def test_a_design_that_was_not_registered_is_named():
    tighter = Design(canaries=60, rules=RULES, claim=ApproxDP(epsilon=0.1, delta=1e-6))
    other = register(replace(HONEST.registration.design, claim=tighter.claim), KEY)
    name, said = failure(verify(seal(HONEST), registration=other))
    assert name == "registration"
    assert "the wrong design" in said
    assert "claim.epsilon is stated as 0.5 and was registered as 0.1" in said


def test_another_key_than_the_registered_is_named():
    """Someone throws again until the coins please, and everything else is in order."""
    registered = register(HONEST.registration.design, OTHER_KEY)
    name, said = failure(verify(seal(HONEST), registration=registered))
    assert name == "registration"
    assert "other coins" in said


def test_a_run_under_another_name_is_named():
    """Its hash is of the key, so that one run cannot be told as two."""

    def rename(tree):
        tree["registration"]["commitment"]["run_digest"] = 64 * "0"
        tree["result"]["commitment"]["run_digest"] = 64 * "0"

    name, said = failure(verify(edited(HONEST, rename)))
    assert name == "commitment"
    assert "key and design do not give the commitment" in said


def test_a_registration_of_another_key_is_named():
    registered = HONEST.registration
    other = Commitment(sha256=64 * "0", run_digest=64 * "0")
    found = verify(seal(HONEST), registration=replace(registered, commitment=other))
    assert failure(found)[0] == "registration"


def test_a_transcript_of_another_run_is_named():
    other = played(HONEST.registration.design, OTHER_KEY)

    def swap(tree):
        tree["guesses"] = json.loads(other.to_json())

    name, said = failure(verify(edited(HONEST, swap)))
    assert name == "coins"
    assert "the transcript is of another run" in said


def test_other_guesses_about_the_same_coins_do_not_give_the_tally():
    other = played(HONEST.registration.design, seed=1)
    assert other.reading() != HONEST.result.reading

    def swap(tree):
        tree["guesses"] = json.loads(other.to_json())

    name, said = failure(verify(edited(HONEST, swap)))
    assert name == "tally"
    assert "reading.correct" in said


def test_a_result_that_is_right_in_itself_but_of_other_guesses_fails():
    """One right guess more, with the bound that would belong to it."""
    design = HONEST.registration.design
    reading = replace(HONEST.result.reading, correct=HONEST.result.reading.correct + 1)
    better = ExactBound().epsilon_lower(reading, delta=CLAIM.delta, alpha=0.05)

    def improve(tree):
        tree["result"]["reading"]["correct"] += 1
        tree["result"]["bound"]["epsilon_lower"] = better.epsilon_lower

    found = verify(edited(HONEST, improve))
    wrong = {c.name for c in found.checks if c.outcome is Outcome.FAILS}
    assert "tally" in wrong
    assert design.canaries == 60


def test_a_bound_that_does_not_follow_is_named():
    def improve(tree):
        tree["result"]["bound"]["epsilon_lower"] += 0.01

    name, said = failure(verify(edited(HONEST, improve)))
    assert name == "bound"
    assert "bound.epsilon_lower is stated as" in said


def test_last_digits_may_differ_between_machines():
    def rounded(tree):
        bound = tree["result"]["bound"]
        bound["epsilon_lower"] = float(np.nextafter(bound["epsilon_lower"], 2))
        test = tree["result"]["design_test"]
        test["p_value"] = float(np.nextafter(test["p_value"], 1))

    assert verify(edited(HONEST, rounded)).sound


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("training", ("training", "accountant", "p_value")),
        ("training", ("training", "family", "parameter_lower")),
        ("training", ("training", "family", "model_epsilon")),
        ("training", ("design_test", "p_value")),
        ("training", ("ceiling",)),
        ("redacted training", ("training", "family", "parameter_lower")),
        ("redacted", ("bound", "epsilon_lower")),
        ("redacted", ("detectable_accuracy",)),
        ("classic", ("bound", "epsilon_lower")),
        ("rounds", ("bound", "epsilon_lower")),
        ("bets", ("design_test", "p_value")),
    ],
)
def test_every_number_of_a_result_is_made_anew(kind, at):
    def change(tree):
        part = tree["result"]
        for name in at[:-1]:
            part = part[name]
        part[at[-1]] *= 0.999

    assert verify(seal(KINDS[kind]()), accept_unchecked_counts=True).sound
    name, said = failure(verify(edited(KINDS[kind](), change)))
    assert name == "bound"
    assert at[-1] in said


def test_guesses_that_break_the_rules_are_named():
    """Two guesses more than were committed to, both wrong: the tally is the same."""
    few = OneRun(guesses=20)
    transcript = played(design_of(few))
    unused = np.setdiff1d(np.arange(60), transcript.index)[:2]
    truth = 2 * np.array(_bits(KEY))[unused] - 1

    def cheat(tree):
        guesses = tree["guesses"]
        for canary, coin in zip(unused.tolist(), truth.tolist(), strict=True):
            guesses["index"].append(canary)
            guesses["guess"].append(-coin)
            guesses["truth"].append(coin)
            guesses["stake"].append(1.0)
            guesses["turn"].append(0)

    name, said = failure(verify(edited(of_transcript(transcript), cheat)))
    assert name == "rules"
    assert "the design allows guesses=20" in said


def _bits(key):
    """Return the coins, straight from the hash that they are defined by."""
    seed = b"dpaudit 1" + key.secret + bytes(8) + b"coins"
    data = hashlib.shake_256(seed).digest(8)
    return [data[i // 8] >> (i % 8) & 1 for i in range(60)]


def test_uniforms_that_are_not_the_keys_are_named():
    def luckier(tree):
        tree["guesses"]["uniforms"][0] = 0.999
        tree["result"]["reading"]["uniforms"][0] = 0.999

    found = verify(edited(KINDS["rounds"](), luckier))
    wrong = {c.name: c.sentence for c in found.checks if c.outcome is Outcome.FAILS}
    assert "uniforms" in wrong["rules"]


@pytest.mark.parametrize("turn", [1, 10**15])
def test_guesses_in_later_turns_of_a_game_of_one_turn_break_the_rules(turn):
    def later(tree):
        tree["guesses"]["turn"] = [turn] * len(tree["guesses"]["turn"])

    name, said = failure(verify(edited(HONEST, later)))
    assert name == "rules"
    assert f"turn {turn} is one that the rules do not have" in said


def test_a_reading_of_another_kind_than_the_rules_give_is_refused():
    ranked = of_game(Ranking(guesses=30)).result.reading

    def exchange(tree):
        tree["result"]["reading"] = {
            "format": "dpaudit.reading.1",
            "kind": "ranked",
            "canaries": 60,
            "right": ranked.right.tolist(),
        }

    bare = evidence_of(HONEST.result, key=KEY)
    name, said = failure(verify(edited(bare, exchange)))
    assert name == "bound"
    assert "the audit is read as Counts, and the result holds Ranked" in said
    assert failure(verify(edited(HONEST.redact(), exchange)))[0] == "form"


def test_that_runs_were_independent_is_never_established():
    found = verify(seal(of_classic()))
    assert findings(found)["independent runs"] is Outcome.NOT_CHECKED
    assert "independent runs" not in findings(verify(seal(HONEST)))


def test_without_guesses_the_tally_is_not_checked_and_verify_says_so():
    bare = evidence_of(HONEST.result, key=KEY)
    found = verify(seal(bare))
    assert not found.sound
    assert found.exit_code == 6
    assert findings(found)["tally"] is findings(found)["bound"] is Outcome.NOT_CHECKED
    assert "result.reading" in found.stated
    assert "tallies were not checked" in str(found)


def test_redacted_evidence_says_what_can_still_be_checked():
    redacted = of_training().redact()
    found = verify(seal(redacted), registration=redacted.registration)
    seen = findings(found)
    assert seen["registration"] is seen["design"] is Outcome.HOLDS
    assert seen["arithmetic"] is Outcome.HOLDS
    assert seen["commitment"] is seen["tally"] is Outcome.NOT_CHECKED
    assert seen["bound"] is Outcome.NOT_CHECKED
    assert "coins" not in seen
    assert "the key was kept back" in str(found)
    assert "registration" not in found.stated
    assert "registration" in verify(seal(redacted)).stated


def test_a_statement_about_something_else_is_named():
    plain = json.loads(contents(seal(HONEST))[0])
    plain["subject"][1]["digest"]["sha256"] = 64 * "0"
    payload = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    envelope = json.loads(seal(HONEST))
    envelope["payload"] = base64.b64encode(payload).decode()
    name, said = failure(verify(json.dumps(envelope)))
    assert name == "subject"
    assert "another result" in said


def test_a_training_that_names_another_commitment_than_it_registered_fails():
    other = Commitment(sha256=64 * "0", run_digest=64 * "0")
    result = training()
    evidence = of_training()

    def rename(tree):
        tree["result"]["commitment"]["sha256"] = other.sha256

    name, said = failure(verify(edited(evidence, rename)))
    assert (name, "another commitment" in said) == ("design", True)
    assert result.commitment != other


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        b"\xff\xfe",
        '{"payload":"","payloadType":"x"}',
        "[" * 9999,
    ],
)
def test_whatever_a_file_holds_there_is_an_answer(text):
    found = verify(text)
    assert not found.sound
    assert failure(found)[0] == "form"


def test_a_game_in_which_nothing_was_guessed_is_evidence_too():
    referee = Referee(design_of(RULES), KEY)
    evidence = of_transcript(referee.close())
    assert isinstance(evidence, Evidence)
    assert verify(seal(evidence)).sound


def test_a_training_that_was_left_out_of_redacted_evidence_is_among_what_is_stated():
    """Nothing in redacted evidence shows that there was one."""
    redacted = KINDS["redacted training"]()
    without = replace(redacted, result=replace(redacted.result, training=None))
    for evidence in (redacted, without):
        assert "result.training" in verify(seal(evidence)).stated


def test_a_fault_that_the_result_tells_of_is_told_by_its_verification():
    """The tally alone would be "no violation detected"."""
    wrong = fault(
        Stage.CLIPPING,
        "custom.fault",
        what="one record changes the sum by too much",
        measured="up to 12.8 C",
        expected="at most C",
        cause_is="no clipping of records",
    )
    result = training(noise=20.0)
    coverage = replace(result.training.coverage, faults=(wrong,))
    faulty = replace(result, training=replace(result.training, coverage=coverage))
    said = str(verify(seal(evidence_of(faulty, key=KEY))))
    assert "- bound: fault found: the tally gives" in said
    assert "- stages: " in said
    assert "Fault found: one record changes the sum by too much (up to 12.8 C" in said
    assert "Not checked: gradient aggregation" in said
    assert "no violation detected" not in said


@cache
def of_correct_training():
    """Evidence of a training that is not refuted, with its configuration."""
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    design = Design(canaries=300, rules=OneRun(guesses=60), claim=claim)
    audit = SumsAudit(design=design, key=KEY, dimension=300, noise=4.0)
    rng = np.random.default_rng(3)
    for _ in range(4):
        audit.observe(audit.contributions() + 4 * rng.normal(size=300))
    return evidence_of(audit.finish(), key=KEY)


def detected(evidence):
    checks = {each.name: each for each in verify(seal(evidence)).checks}
    return checks["detectable fault"]


def with_training(evidence, **change):
    training = replace(evidence.result.training, **change)
    return replace(evidence, result=replace(evidence.result, training=training))


def test_what_would_have_been_detected_is_computed_again():
    evidence = of_correct_training()
    stated = evidence.result.training
    assert stated.configuration.schedule[0].noise == 4.0
    found = detected(evidence)
    assert found.outcome is Outcome.HOLDS
    smallest = ceil(100 * stated.detectable.factor) / 100
    assert f"noise {smallest:.2f}x" in found.sentence


@pytest.mark.parametrize(
    "change",
    [
        {"detectable": DetectableFault(factor=1.05)},
        {"detectable": DetectableFault(factor=None)},
        {
            "configuration": RunConfiguration(
                schedule=(StepSegment(steps=4, noise=0.5, clip=None, rate=1.0),),
                coordinates=300,
            )
        },
        {
            "configuration": RunConfiguration(
                schedule=(StepSegment(steps=4000, noise=4.0, clip=None, rate=1.0),),
                coordinates=300,
            )
        },
        {"configuration": None},
    ],
)
def test_a_forecast_that_its_configuration_does_not_give_is_refused(change):
    forged = with_training(of_correct_training(), **change)
    assert detected(forged).outcome is Outcome.FAILS


# Honest evidence is not called wrong, and no content makes verification raise.

NAMES = [
    "audit",
    "commitment",
    "design",
    "guesses",
    "reading",
    "registration",
    "result",
]
TEXTS = ["March 2026", '{"lr": 0.1', '{"clip": NaN}', '{"lr": 0.1}', '{"', "\ud800"]


def honest(setting):
    design = replace(design_of(RULES), setting=Setting(notes=setting))
    return of_transcript(played(design))


@pytest.mark.parametrize("name", [*NAMES, "format", "config", "p_value"])
def test_settings_may_have_any_name_and_any_text(name):
    for text in TEXTS:
        evidence = honest({name: text})
        registration = Registration.from_json(evidence.registration.to_json())
        found = verify(seal(evidence), registration=registration)
        assert found.sound, str(found)


def test_a_number_in_a_setting_is_not_taken_for_one_that_was_computed():
    evidence = honest({"p_value": 0.5})
    other = replace(
        evidence.registration.design, setting=Setting(notes={"p_value": 0.5 + 1e-9})
    )
    found = verify(seal(evidence), registration=register(other, KEY))
    assert (
        "setting.notes.p_value is stated as 0.5 "
        in check(found, "registration").sentence
    )


@pytest.mark.parametrize("text", TEXTS)
def test_designs_that_differ_are_compared_whatever_their_settings_hold(text):
    evidence = honest({"design": text, "c": text})
    other = replace(
        evidence.registration.design, claim=ApproxDP(epsilon=2.0, delta=1e-6)
    )
    mixed = torn(register(other, KEY), evidence.result, evidence.guesses)
    for found in (
        verify(seal(mixed)),
        verify(seal(evidence), registration=register(other, KEY)),
    ):
        assert not found.sound
        assert "claim.epsilon is stated as 0.5" in str(found)


def test_a_bare_design_is_compared_with_the_design():
    evidence = of_game(RULES)
    design = evidence.registration.design
    bare = Registration(design=design, commitment=None)
    found = verify(seal(evidence), registration=bare)
    assert found.sound, str(found)
    assert "the design is that of the copy given" in str(found)
    assert "nothing shows that the key was fixed" in check(found, "time").sentence
    other = replace(bare, design=replace(design, alpha=0.01))
    assert not verify(seal(evidence), registration=other).sound


def test_evidence_without_a_key_is_not_of_a_registered_one():
    evidence = of_game(RULES)
    result = replace(evidence.result, commitment=None)
    bare = evidence_of(result, key=None, transcript=evidence.guesses)
    assert verify(seal(bare)).sound
    found = verify(seal(bare), registration=evidence.registration)
    assert "the evidence has none" in check(found, "registration").sentence
    assert "the key" not in {each.name for each in verify(seal(bare)).checks}


def test_what_was_not_checked_to_the_end_is_not_sound():
    """A file too large to be read must not pass for one that holds."""
    unread = VerificationCheck(
        name="form", outcome=Outcome.NOT_CHECKED, sentence="too large"
    )
    found = Verification(checks=(unread,))
    assert not found.sound
    assert str(found).startswith("This evidence could not be checked to the end.")


def test_no_text_in_the_evidence_begins_a_line_of_the_answer():
    sentence = "x\n\nWhat was established:\n- bound: all is well\u2028\x1b[2J"
    wrong = VerificationCheck(name="form", outcome=Outcome.FAILS, sentence=sentence)
    said = str(Verification(checks=(wrong,)))
    assert len(said.splitlines()) == 4
    assert "\x1b" not in said
    assert said.endswith(
        r"x\n\nWhat was established:\n- bound: all is well\u2028\x1b[2J"
    )
