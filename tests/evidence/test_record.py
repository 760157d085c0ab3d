"""Registration and evidence: what they hold, and what they refuse to be."""

import hashlib
import json
from dataclasses import replace

import pytest
from evidence_samples import (
    KEY,
    KINDS,
    OTHER_KEY,
    design_of,
    of_game,
    of_training,
    of_transcript,
    played,
)

from dpaudit import Coins, OneRun, Ranking
from dpaudit.errors import InvalidInputError
from dpaudit.evidence import Evidence, Registration, evidence_of, register

DESIGN = design_of(OneRun(guesses=30))


def test_a_registration_commits_to_key_and_design_by_sha256():
    registration = register(DESIGN, KEY)
    message = b"dpaudit commitment 1" + bytes(range(32)) + DESIGN.to_json().encode()
    assert registration.commitment.sha256 == hashlib.sha256(message).hexdigest()
    assert Registration.from_json(registration.to_json()) == registration
    assert KEY.secret.hex() not in registration.to_json()


def test_a_registration_may_be_indented_but_not_extended():
    registration = register(DESIGN, KEY)
    plain = json.loads(registration.to_json())
    assert Registration.from_json(json.dumps(plain, indent=2)) == registration
    for odd in ({**plain, "note": ""}, {**plain, "format": "dpaudit.registration.2"}):
        with pytest.raises(InvalidInputError):
            Registration.from_json(json.dumps(odd))
    twice = registration.to_json().replace("{", '{"commitment":null,', 1)
    with pytest.raises(InvalidInputError, match="twice"):
        Registration.from_json(twice)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_evidence_is_read_back_as_it_was(kind):
    evidence = KINDS[kind]()
    again = Evidence.from_json(evidence.to_json())
    assert again == evidence
    assert again.result.to_json() == evidence.result.to_json()
    assert again.versions["numpy"]


def test_the_transcript_of_a_training_is_written_once():
    evidence = of_training()
    plain = json.loads(evidence.to_json())
    assert plain["guesses"] is None
    assert Evidence.from_json(evidence.to_json()).guesses == evidence.result.transcript


@pytest.mark.parametrize("field", ["registration", "key", "versions", "redacted"])
def test_evidence_with_a_field_missing_or_more_is_refused(field):
    plain = json.loads(of_game(OneRun(guesses=30)).to_json())
    for odd in ({k: v for k, v in plain.items() if k != field}, {**plain, "x": 1}):
        text = json.dumps(odd, sort_keys=True, separators=(",", ":"))
        with pytest.raises(InvalidInputError, match="field"):
            Evidence.from_json(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "dpaudit.evidence.2"),
        ("key", None),
        ("key", KEY.secret.hex().upper()),
        ("key", KEY.secret.hex()[:-2]),
        ("key", 5),
        ("guesses", 5),
        ("guesses", "{}"),
        ("versions", {"numpy": 2}),
        ("versions", []),
        ("redacted", True),
        ("redacted", 0),
        ("redacted", None),
    ],
)
def test_evidence_with_an_odd_value_is_refused(field, value):
    plain = {**json.loads(of_game(OneRun(guesses=30)).to_json()), field: value}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    with pytest.raises(InvalidInputError):
        Evidence.from_json(text)


def test_parts_of_different_audits_make_no_evidence():
    evidence = of_game(OneRun(guesses=30))
    transcript = evidence.guesses
    with pytest.raises(InvalidInputError, match="key is not"):
        evidence_of(evidence.result, key=OTHER_KEY, transcript=transcript)
    with pytest.raises(InvalidInputError, match="key is not"):
        evidence_of(evidence.result, key=None, transcript=transcript)
    for other in (played(DESIGN, seed=1), played(design_of(Ranking(guesses=30)))):
        with pytest.raises(InvalidInputError, match="another game"):
            evidence_of(evidence.result, key=KEY, transcript=other)
    uncommitted = replace(evidence.result, commitment=None)
    with pytest.raises(InvalidInputError, match="key is not"):
        evidence_of(uncommitted, key=KEY)
    training = of_training()
    with pytest.raises(InvalidInputError, match="leave it out"):
        evidence_of(training.result, key=KEY, transcript=transcript)


@pytest.mark.parametrize("kind", ["one run", "classes", "training", "classic"])
def test_the_redacted_form_holds_neither_key_nor_guesses_nor_scores(kind):
    evidence = KINDS[kind]()
    redacted = evidence.redact()
    text = redacted.to_json()
    assert KEY.secret.hex() not in text
    assert redacted.redacted
    assert redacted.guesses is None
    assert redacted.result.scores is None
    assert redacted.result.bound == evidence.result.bound
    assert redacted.registration == evidence.registration
    kept = redacted.result.transcript
    assert kept is None or not len(kept.index)
    # No list in it is long enough to say something of every canary that was guessed.
    assert max(_lengths(json.loads(text))) < 10


def _lengths(value):
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)
    if isinstance(value, dict):
        for each in value.values():
            yield from _lengths(each)
    elif isinstance(value, list):
        yield len(value)
        for each in value:
            yield from _lengths(each)


@pytest.mark.parametrize("kind", ["ranking", "rounds", "bets"])
def test_readings_that_list_guesses_one_by_one_are_not_redacted(kind):
    with pytest.raises(InvalidInputError, match="OneRun"):
        KINDS[kind]().redact()


def test_what_a_ranked_reading_would_give_away():
    """Why it is refused: with the scores, its order says whose coin each was."""
    transcript = played(design_of(Ranking(guesses=30)))
    right = of_transcript(transcript).result.reading.right
    coins = Coins(key=KEY, count=transcript.design.canaries)
    # Whoever computes the scores knows index and guess, and learns the coins.
    guessed = transcript.guess == 1
    learnt = (guessed == right[: len(guessed)]).astype(int)
    assert (learnt == coins.at(transcript.index)).all()
