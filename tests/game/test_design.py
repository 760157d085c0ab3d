"""Designs and commitments: same bytes from the same value, bound to both parts."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    ApproxDP,
    Design,
    GaussianDP,
    Key,
    OneRun,
    PrivacyCurve,
    PureDP,
    Ranking,
    ThreatModel,
    WeightClasses,
)
from dpaudit.errors import InvalidInputError
from dpaudit.game import Commitment
from dpaudit.game.setting import Setting

KEY = Key(bytes(range(32)))
DESIGN = Design(
    canaries=10,
    rules=OneRun(guesses=5),
    claim=ApproxDP(epsilon=2.0, delta=1e-5),
    setting=Setting(steps=3, notes={"layout": "random"}),
)
CURVE = PrivacyCurve(epsilons=np.array([0.0, 1.0]), deltas=np.array([0.3, 1e-3]))


def test_the_json_is_canonical_and_complete():
    text = DESIGN.to_json()
    assert text == (
        '{"alpha":0.05,"canaries":10,"claim":{"adjacency":"add-remove","delta":1e-05,'
        '"epsilon":2.0,"kind":"approx"},"delta":1e-05,"format":"dpaudit.design.1",'
        '"rules":{"guesses":5,"kind":"one-run"},'
        '"setting":{"notes":{"layout":"random"},"steps":3},'
        '"threat_model":"an observer of the output"}'
    )
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


@pytest.mark.parametrize(
    "rules",
    [
        OneRun(guesses=5),
        Ranking(guesses=10),
        WeightClasses(weights=(1.0, 2.0), guesses=(3, 4)),
        AdaptiveCount(guesses=2),
        AdaptiveClasses(weights=(0.5,), guesses=(3,)),
        AdaptiveRounds(round_weights=(1.0, 0.25)),
        AdaptiveBets(),
    ],
)
@pytest.mark.parametrize(
    "claim",
    [PureDP(epsilon=1.0), ApproxDP(epsilon=0.0, delta=1e-3)],
)
def test_a_design_reads_back_as_itself(rules, claim):
    design = replace(DESIGN, rules=rules, claim=claim, delta=None)
    assert Design.from_json(design.to_json()) == design


@pytest.mark.parametrize("claim", [GaussianDP(mu=1.0), CURVE])
def test_a_claim_that_is_a_curve_reads_back_as_itself(claim):
    design = replace(DESIGN, claim=claim, delta=1e-6)
    assert Design.from_json(design.to_json()) == design


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "dpaudit.design.2"}, "a version that is not known here"),
        ({"rules": {"kind": "chess"}}, "one of one-run"),
        ({"rules": {"kind": ["one-run"]}}, "one of one-run"),
        ({"rules": 5}, "rules must be an object"),
        ({"claim": 5}, "claim must have a kind, one of pure, approx"),
        ({"canaries": "100"}, "canaries must be a whole number"),
        ({"alpha": None}, "alpha must be a number"),
        ({"setting": 5}, "setting must be an object"),
        ({"rules": {"kind": "one-run", "cheats": 3}}, "has no field 'cheats'"),
        ({"claim": {"kind": "vow"}}, "one of pure"),
        ({"threat_model": "nobody"}, "threat_model must be one of"),
        ({"extra": 1}, "has no field 'extra'"),
        ({"alpha": 0.95}, "below 0.5"),
    ],
)
def test_a_document_that_is_no_design_is_refused(change, message):
    plain = {**json.loads(DESIGN.to_json()), **change}
    with pytest.raises(InvalidInputError, match=message):
        Design.from_json(json.dumps(plain))


def test_a_document_that_lacks_a_field_is_refused():
    plain = json.loads(DESIGN.to_json())
    del plain["rules"]
    with pytest.raises(InvalidInputError, match="lacks the field 'rules'"):
        Design.from_json(json.dumps(plain))
    with pytest.raises(InvalidInputError, match="not JSON"):
        Design.from_json("{")


def test_the_order_of_notes_does_not_matter():
    one, other = (
        replace(DESIGN, setting=Setting(notes=notes))
        for notes in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    )
    assert one == other
    assert one.to_json() == other.to_json()


def test_the_commitment_is_a_plain_hash_of_key_and_design():
    message = b"dpaudit commitment 1" + KEY.secret + DESIGN.to_json().encode()
    assert Commitment.to(KEY, DESIGN).sha256 == hashlib.sha256(message).hexdigest()


def test_a_commitment_reads_back_as_itself():
    commitment = Commitment.to(KEY, DESIGN)
    assert Commitment.from_json(commitment.to_json()) == commitment


@pytest.mark.parametrize(
    "change",
    [
        {"canaries": 11},
        {"rules": OneRun(guesses=4)},
        {"rules": AdaptiveCount(guesses=5)},
        {"alpha": 0.01},
        {"claim": ApproxDP(epsilon=2.0, delta=1e-6), "delta": None},
        {"threat_model": ThreatModel.FINAL_MODEL},
        {"setting": Setting(steps=4, notes={"layout": "random"})},
    ],
)
def test_a_commitment_holds_for_no_other_design(change):
    assert not Commitment.to(KEY, DESIGN).holds_for(KEY, replace(DESIGN, **change))


def test_more_guesses_than_canaries_are_refused():
    with pytest.raises(
        InvalidInputError, match="cannot guess guesses=11 of canaries=10"
    ):
        replace(DESIGN, rules=OneRun(guesses=11))
    with pytest.raises(InvalidInputError, match="cannot guess guesses=11"):
        replace(DESIGN, rules=WeightClasses(weights=(1.0, 2.0), guesses=(5, 6)))


@pytest.mark.parametrize("rules", [Ranking(guesses=5), AdaptiveBets()])
def test_rules_that_test_one_point_refuse_a_curve(rules):
    with pytest.raises(InvalidInputError, match="is a whole curve; claim ApproxDP"):
        replace(DESIGN, rules=rules, claim=CURVE, delta=1e-5)


def test_rules_without_delta_advise_no_point_of_a_curve(monkeypatch):
    def refuses(rules, *, canaries, claimed, delta, alpha):
        del rules, canaries, claimed, alpha
        if delta:
            raise InvalidInputError("it is for delta=0")

    monkeypatch.setattr(Ranking, "check_design", refuses)
    with pytest.raises(
        InvalidInputError, match=r"\(it is for delta=0\): play by"
    ) as at:
        replace(DESIGN, rules=Ranking(guesses=5), claim=CURVE, delta=1e-5)
    assert "ApproxDP" not in str(at.value)


def test_a_curve_needs_a_delta():
    with pytest.raises(InvalidInputError, match="name the one at which"):
        replace(DESIGN, claim=CURVE, delta=None)


def test_a_delta_that_differs_from_the_claims_is_refused():
    with pytest.raises(InvalidInputError, match="differs from that of the claim"):
        replace(DESIGN, delta=1e-6)


@pytest.mark.parametrize(
    "weights", [(), (1.0, 1.0), (0.0,), (float("nan"),), (1e155,), (1e-200,)]
)
def test_classes_have_different_positive_weights(weights):
    with pytest.raises(InvalidInputError, match="weights"):
        WeightClasses(weights=weights, guesses=(1,) * len(weights))


@pytest.mark.parametrize(
    "weights", [(), (0.0,), (-1.0, 2.0), (float("inf"),), (1e200,)]
)
def test_rounds_have_weights_that_can_count(weights):
    with pytest.raises(InvalidInputError, match="weights"):
        AdaptiveRounds(round_weights=weights)


def test_a_design_keeps_its_own_notes():
    notes = {"steps": 3}
    design = replace(DESIGN, setting=Setting(notes=notes))
    before = design.to_json()
    notes["steps"] = 4
    assert design.to_json() == before


def test_equal_designs_have_equal_bytes_and_hashes():
    """Whole numbers and floats, lists and tuples, numpy's numbers and Python's."""
    whole = Design(
        canaries=np.int64(10),
        rules=WeightClasses(weights=[2, 1], guesses=[np.int64(3), 4.0]),
        claim=PureDP(epsilon=1),
    )
    same = Design(
        canaries=10,
        rules=WeightClasses(weights=(2.0, 1.0), guesses=(3, 4)),
        claim=PureDP(epsilon=1.0),
    )
    assert whole == same
    assert whole.to_json() == same.to_json()
    assert hash(whole) == hash(same)
    assert Commitment.to(KEY, whole) == Commitment.to(KEY, same)


def test_what_is_no_rule_or_no_claim_is_refused():
    with pytest.raises(InvalidInputError, match="rules must be one of OneRun"):
        replace(DESIGN, rules="one-run")
    with pytest.raises(InvalidInputError, match="claim must be PureDP"):
        replace(DESIGN, claim=1.0)


def test_a_game_whose_delta_costs_all_of_alpha_is_refused():
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    with pytest.raises(
        InvalidInputError, match=r"costs 0\.1 at min_epsilon=0, no less than"
    ):
        Design(canaries=20_000, rules=AdaptiveBets(), claim=claim)
    with pytest.raises(InvalidInputError, match="a larger min_epsilon"):
        Design(canaries=20_000, rules=AdaptiveRounds(round_weights=(1.0,)), claim=claim)
    claim = ApproxDP(epsilon=3.0, delta=1e-5)
    Design(canaries=20_000, rules=AdaptiveBets(min_epsilon=2.0), claim=claim)


def test_delta_may_cost_anything_below_alpha():
    """At epsilon = 0 it costs canaries * delta / 2, so 10,000 canaries cost 0.05."""
    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    Design(canaries=9_999, rules=AdaptiveBets(), claim=claim)
    with pytest.raises(InvalidInputError, match="no less than alpha"):
        Design(canaries=10_001, rules=AdaptiveBets(), claim=claim)


@pytest.mark.parametrize(
    "rules",
    [
        AdaptiveBets(min_epsilon=3.0),
        AdaptiveRounds(round_weights=(1.0,) * 4, min_epsilon=3.0),
    ],
)
def test_a_bound_that_starts_above_the_claim_would_contradict_its_test(rules):
    with pytest.raises(InvalidInputError, match="above the claim's epsilon 1"):
        Design(canaries=1000, rules=rules, claim=ApproxDP(epsilon=1.0, delta=2e-6))


def test_a_jump_so_small_that_nothing_counts_is_refused():
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    with pytest.raises(InvalidInputError, match=r"9\d% of the evidence would be"):
        Design(
            canaries=200,
            rules=AdaptiveRounds(round_weights=(1.0,) * 4, max_jump=0.05),
            claim=claim,
        )
    rules = AdaptiveRounds(round_weights=(1.0,) * 4, max_jump=0.5)
    assert Design(canaries=200, rules=rules, claim=claim).rules == rules


@pytest.mark.parametrize("sha256", [5, "", "00", "g" * 64, "A" * 64])
def test_a_commitment_is_64_hex_digits(sha256):
    with pytest.raises(InvalidInputError, match="64 hex digits"):
        Commitment(sha256=sha256, run_digest="0" * 64)


def test_whole_numbers_are_written_as_they_are_read_back():
    rules = OneRun(guesses=5)
    whole = Design(canaries=10, rules=rules, claim=ApproxDP(epsilon=1, delta=0))
    assert Design.from_json(whole.to_json()).to_json() == whole.to_json()
    key = Key(bytes(32))
    again = Design.from_json(whole.to_json())
    assert Commitment.to(key, whole) == Commitment.to(key, again)


@pytest.mark.parametrize("canaries", [0, -3, 2.5])
def test_a_design_has_a_canary(canaries):
    with pytest.raises(InvalidInputError, match=r"^canaries must be a whole number"):
        replace(DESIGN, canaries=canaries)


def test_the_run_is_a_plain_hash_of_the_key_alone():
    expected = hashlib.sha256(b"dpaudit run 1" + KEY.secret).hexdigest()
    other = replace(DESIGN, alpha=0.01)
    one, two = Commitment.to(KEY, DESIGN), Commitment.to(KEY, other)
    assert one.run_digest == two.run_digest == expected
    assert one.sha256 != two.sha256
    assert one.is_of_run(two)
    assert not one.is_of_run(Commitment.to(Key(bytes([7] * 32)), DESIGN))


def test_a_commitment_with_another_run_does_not_hold():
    made = Commitment.to(KEY, DESIGN)
    assert made.holds_for(KEY, DESIGN)
    assert not replace(made, run_digest="0" * 64).holds_for(KEY, DESIGN)


@pytest.mark.parametrize("run", [None, 5, "00", "G" * 64])
def test_a_new_commitment_names_its_run(run):
    plain = {"format": "dpaudit.commitment.1", "sha256": "0" * 64, "run_digest": run}
    with pytest.raises(
        InvalidInputError, match=r"^run_digest must be (64 hex digits|a text)"
    ):
        Commitment.from_json(json.dumps(plain))
