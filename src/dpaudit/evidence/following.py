"""Checks of what follows from what: coins, rules, tally and bound, made anew."""

import json
from pathlib import Path
from typing import Any, assert_never

import numpy as np

from dpaudit.bounds.reading_json import reading_to_json
from dpaudit.bounds.reads import Reading
from dpaudit.errors import DpAuditError
from dpaudit.evidence.comparing import differences
from dpaudit.evidence.documents import audit_of
from dpaudit.evidence.files import ScoreFiles, read_score_files
from dpaudit.evidence.origin import wrong_coins
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.rederive import (
    is_classic,
    judged_again,
    played_again,
    scored_again,
)
from dpaudit.evidence.verification import Check, Finding, fails, holds, open_question
from dpaudit.game.transcript import Transcript

__all__ = ["check_bound", "check_guesses"]

_MOST = 1 << 32  # canaries whose coins are derived at once


def check_guesses(evidence: Evidence, folder: Path | None) -> list[Check]:
    """Check coins, rules and tally, as far as there is something to check them with."""
    guesses = evidence.guesses
    match guesses:
        case Transcript():
            return _check_transcript(guesses, evidence)
        case ScoreFiles():
            return [_check_files(guesses, evidence, folder)]
        case None if evidence.redacted:
            said = "key and guesses were kept back; tallies were not checked"
        case None:
            said = "the guesses are not part of the evidence; tallies were not checked"
        case _:
            assert_never(guesses)
    return [open_question("tally", said)]


def check_bound(evidence: Evidence) -> list[Check]:
    """Check that bound and verdict follow from the tally."""
    stated, audit = evidence.result, audit_of(evidence.result)
    try:
        derived = judged_again(stated, evidence.registration)
    except DpAuditError as error:
        return [fails("bound", f"the result does not follow: {error}")]
    odd = differences(_but_guesses(stated.to_json()), _but_guesses(derived.to_json()))
    if odd:
        return [fails("bound", f"the result does not follow from its tally: {odd[0]}")]
    found = [
        holds(
            "bound",
            f"the tally gives {audit.bound}, and {stated.claim_test}",
        )
    ]
    if is_classic(audit):
        found.append(
            open_question(
                "independent runs",
                "the bound holds if every coin had a run of its own, as its method "
                "says; a record cannot show that",
            )
        )
    return found


def _check_transcript(transcript: Transcript, evidence: Evidence) -> list[Check]:
    if evidence.key is None:
        return [
            open_question("coins", "there is no key to derive them from"),
            _check_tally(transcript.reading(), evidence, "guesses and stated coins"),
        ]
    wrong = wrong_coins(transcript, evidence)
    if wrong:
        return [
            fails(
                "coins",
                f"{wrong} of {len(transcript.index)} coins in the transcript are not "
                "those of the key: the transcript is of another run, or was changed",
            )
        ]
    found = [holds("coins", "the coins in the transcript are those of the key")]
    found.append(_check_rules(transcript, evidence))
    if found[-1].finding is not Finding.FAILS:
        found.append(_check_tally(transcript.reading(), evidence, "guesses and coins"))
    return found


def _check_rules(transcript: Transcript, evidence: Evidence) -> Check:
    name, design = "rules", evidence.registration.design
    if design.canaries > _MOST:
        return open_question(name, f"there are more than {_MOST} coins to derive")
    assert evidence.key is not None
    try:
        again = played_again(transcript, design, evidence.key)
    except DpAuditError as error:
        return fails(name, f"a referee does not take these guesses: {error}")
    for column in ("index", "guess", "truth", "stake", "uniforms"):
        if not np.array_equal(getattr(again, column), getattr(transcript, column)):
            return fails(name, f"a referee would have recorded other {column}")
    return holds(name, "a referee takes the guesses by the rules registered")


def _check_files(named: ScoreFiles, evidence: Evidence, folder: Path | None) -> Check:
    if folder is None:
        return open_question(
            "tally",
            f"the scores are in {len(named.files)} file(s) that were not given; "
            "tallies were not checked",
        )
    design, scores = evidence.registration.design, audit_of(evidence.result).scores
    try:
        table = read_score_files(named, folder)
        reading, summary = scored_again(table, named, design=design, key=evidence.key)
    except DpAuditError as error:
        return fails("tally", f"the score files do not give it: {error}")
    odd = differences(scores and scores.to_plain(), summary.to_plain(), ".scores")
    if odd:
        return fails("tally", f"the score files show another picture: {odd[0]}")
    said = "the key's coins" if evidence.key else "the coins stated in them"
    return _check_tally(reading, evidence, f"score files and {said}")


def _check_tally(reading: Reading, evidence: Evidence, source: str) -> Check:
    stated = json.loads(reading_to_json(audit_of(evidence.result).reading))
    odd = differences(stated, json.loads(reading_to_json(reading)), ".reading")
    if odd:
        return fails("tally", f"{source} give another tally: {odd[0]}")
    return holds("tally", f"it is that of the {source}")


def _but_guesses(text: str) -> Any:  # noqa: ANN401 (parsed JSON)
    plain = json.loads(text)
    plain.pop("transcript", None)
    return plain
