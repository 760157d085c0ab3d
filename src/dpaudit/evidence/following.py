"""Checks of what follows from what: coins, rules, tally and bound, made anew."""

from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from dpaudit._codec import encode
from dpaudit.bounds.bound import p_value_text
from dpaudit.bounds.reads import Bets, Ranked, Reading
from dpaudit.errors import DpAuditError, MissingExtraError, on_one_line
from dpaudit.evidence.comparing import differences
from dpaudit.evidence.files import ScoreFiles, read_score_files
from dpaudit.evidence.obeying import check_obeyed
from dpaudit.evidence.origin import wrong_coins
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.rederive import (
    check_reading,
    judged_again,
    scored_again,
)
from dpaudit.evidence.registration import Registration
from dpaudit.evidence.verification import Check, Finding, fails, holds, open_question
from dpaudit.game.design import Design
from dpaudit.game.result import Result, effect_seen
from dpaudit.game.rules import OneRun
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.strength import would_catch
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import Verdict, speaks_of_chance
from dpaudit.privacy.guarantees import ApproxDP, PureDP

__all__ = ["check_bound", "check_guesses", "check_result", "check_strength"]

# Guesses for which a bound is found again, in seconds and little memory; a number that
# takes a few bytes to write could take days. Plain counts of one run are quick.
_MOST = 10**7
_MOST_COUNTED = 10**10


def check_guesses(evidence: Evidence, folder: Path | None) -> list[Check]:
    """Check coins, rules and tally, as far as there is something to check them with."""
    guesses = evidence.guesses
    try:
        # First: whatever fits is no longer than what the evidence itself holds.
        check_reading(evidence.result.reading, evidence.registration.design)
    except DpAuditError:
        return []  # check_bound says so
    match guesses:
        case Transcript():
            return _check_transcript(guesses, evidence)
        case ScoreFiles():
            return _check_files(guesses, evidence, folder)
        case None if evidence.redacted:
            said = "key and guesses were kept back; tallies were not checked"
        case None:
            said = "the guesses are not part of the evidence; tallies were not checked"
        case _:
            assert_never(guesses)
    return [open_question("tally", said)]


def check_bound(
    stated: Result, registered: Registration, *, scored: bool
) -> list[Check]:
    """Check that bound and verdict follow from the tally.

    Args:
        stated: The result.
        registered: What it must follow from.
        scored: Whether the guesses are those of scores, which show nothing else of
            canaries than what they say of themselves.
    """
    try:
        check_reading(stated.reading, registered.design)
        if _takes_long(stated, registered.design):
            _, made = stated.reading.right_and_made()
            said = f"{made} guesses are too many to find it again"
            return [open_question("bound", said)]
        derived = judged_again(stated, registered)
    except DpAuditError as error:
        return [fails("bound", f"the result does not follow: {error}")]
    own = stated.is_own_bound
    again = _with_bound_of(derived, stated) if own else derived
    odd = differences(_but_guesses(stated), _but_guesses(again))
    if odd:
        return [fails("bound", f"the result does not follow from its tally: {odd[0]}")]
    controls, audit = _check_controls(stated, scored=scored)
    found = _own(audit, derived) if own else [holds("bound", _shown(audit))]
    found += controls + _check_accountant(stated)
    if stated.design.runs > 1:
        found.append(
            open_question(
                "independent runs",
                "the bound holds if every coin had a run of its own, as its rules "
                "say; a record cannot show that",
            )
        )
    return found


def check_result(result: Result) -> list[Check]:
    """Check that a result follows from the tally that it states.

    It is by itself, without evidence: nothing shows that the tally is that of a run.
    """
    kept = result.transcript
    registered = Registration(design=result.design, commitment=result.commitment)
    found = check_bound(result, registered, scored=False)
    if kept is not None and len(kept.index):  # redacted evidence keeps an empty one
        found.append(_check_tally(kept.reading(), result, "guesses and stated coins"))
    return found


def _own(audit: Result, derived: Result) -> list[Check]:
    """Say that a user's own bound was not found again, and what was."""
    found = audit.bound
    return [
        open_question(
            "bound",
            f"it is by the method {found.method!r} ({found.reference}), which this "
            f"version does not have: that epsilon is at least {found.epsilon_lower:g} "
            f"is its author's word. From the same tally, {derived.bound.method} gives "
            f"{derived.bound}",
        ),
        holds(
            "claim test",
            f"the tally gives that {audit.design_test}, whatever the bound; that is "
            "the claim of the registration",
        ),
    ]


def _with_bound_of(derived: Result, stated: Result) -> Result:
    """Return a derived result with the numbers that only the user's own bound gives."""
    bound = replace(
        derived.bound,
        epsilon_lower=stated.bound.epsilon_lower,
        method=stated.bound.method,
        reference=stated.bound.reference,
        tier=stated.bound.tier,
    )
    return replace(derived, bound=bound, ceiling=stated.ceiling)


def _check_controls(result: Result, *, scored: bool) -> tuple[list[Check], Result]:
    """Make anew what guesses show of themselves; return the audit with it.

    It is what the registered claim is judged by: without the accountant's, which was
    not registered. Scores come with nothing else that shows that canaries went in. A
    result from which controls were taken holds none.
    """
    audit = replace(result, training=None)
    stated = [each for each in audit.controls if speaks_of_chance(each)]
    if result.training is not None or not (stated or scored):
        return [], audit
    seen = effect_seen(audit.reading, design=audit.design)
    if stated and stated != [seen]:
        odd = next((each.said for each in stated if each != seen), "it twice")
        said = f"the tally says of itself: {seen.said}; the result: {odd}"
        return [fails("controls", said)], audit
    if stated:
        return [holds("controls", f"the tally says of itself: {seen.said}")], audit
    said = (
        f"the result does not hold what its tally says of itself: {seen.said}. The "
        "word is the one that belongs to it"
    )
    controls = (*audit.controls, seen)
    return [open_question("controls", said)], replace(audit, controls=controls)


def check_strength(evidence: Evidence) -> list[Check]:
    """Say what the design would have caught; it follows from nothing but the design."""
    audit = evidence.result
    claimed = audit.design.claim.epsilon_at(audit.design.bound_delta)
    said = would_catch(audit, audit.design.claim) or (
        f"No audit by this design shows more than epsilon = {audit.ceiling:.3g}; the "
        f"claim says {claimed:.3g}."
    )
    return [holds("strength", said[0].lower() + said[1:].removesuffix("."))]


def _shown(audit: Result) -> str:
    """Say what follows from the tally, the word first."""
    if audit.verdict is Verdict.VOID:
        return (
            f"{audit.verdict}: {on_one_line(audit.reason)}; the tally gives the stated "
            "numbers, and nothing is said about the claim of the registration"
        )
    return (
        f"{audit.verdict}: the tally gives {audit.bound}, and {audit.claim_test}; that "
        "is the claim of the registration"
    )


def _takes_long(stated: Result, design: Design) -> bool:
    reading = stated.reading
    if isinstance(reading, Ranked | Bets):
        return False  # they are as long as the evidence
    if not isinstance(design.rules, OneRun):
        return reading.right_and_made()[1] > _MOST
    curve = not isinstance(design.claim, PureDP | ApproxDP)
    curve = curve or stated.training is not None
    return curve and design.guesses > _MOST_COUNTED


def _check_accountant(stated: Result) -> list[Check]:
    """Say what was tested beside the registered claim, and that nobody fixed it."""
    test, design = stated.claim_test, stated.design
    if test is stated.design_test or encode(test.claim) == encode(design.claim):
        return []
    delta = design.bound_delta
    registered, other = (c.epsilon_at(delta) for c in (design.claim, test.claim))
    return [
        open_question(
            "accountant",
            "the result gives a verdict on a second claim, the accountant's curve. "
            "This curve was not registered, and may have been chosen afterwards: at "
            f"delta = {delta:g} it has epsilon = {other:.4g}, and the registered claim "
            f"has epsilon = {registered:.4g}. The result says of the curve: "
            f"{stated.verdict} (p {p_value_text(test.p_value)})",
        )
    ]


def _check_transcript(transcript: Transcript, evidence: Evidence) -> list[Check]:
    found, source = [_check_coins(transcript, evidence)], "guesses and coins"
    if evidence.key is None:
        source = "guesses and stated coins"
    if found[-1].finding is not Finding.FAILS:
        found.append(_check_rules(transcript, evidence))
    if found[-1].finding is not Finding.FAILS:
        found.append(_check_tally(transcript.reading(), evidence.result, source))
    return found


def _check_coins(transcript: Transcript, evidence: Evidence) -> Check:
    if evidence.key is None:
        return open_question("coins", "there is no key to derive them from")
    wrong = wrong_coins(transcript, evidence)
    if wrong:
        return fails(
            "coins",
            f"{wrong} of {len(transcript.index)} coins in the transcript are not "
            "those of the key: the transcript is of another run, or was changed",
        )
    return holds("coins", "the coins in the transcript are those of the key")


def _check_rules(transcript: Transcript, evidence: Evidence) -> Check:
    try:
        check_obeyed(transcript, evidence.key)
    except DpAuditError as error:
        return fails("rules", f"a referee does not take these guesses: {error}")
    return holds("rules", "a referee takes the guesses by the rules registered")


def _check_files(
    named: ScoreFiles, evidence: Evidence, folder: Path | None
) -> list[Check]:
    if folder is None and not named.paths:
        said = (
            f"the scores are in {len(named.files)} file(s) that were not given; "
            "tallies were not checked"
        )
        return [open_question("tally", said)]
    design, audit = evidence.registration.design, evidence.result
    try:
        table = read_score_files(named, folder)
        reading, summary = scored_again(table, named, design=design, key=evidence.key)
    except MissingExtraError as error:
        said = f"the score files cannot be read here: {error}"
        return [open_question("tally", said)]
    except DpAuditError as error:
        return [fails("tally", f"the score files do not give it: {error}")]
    said = "the key's coins" if evidence.key else "the coins stated in them"
    tally = _check_tally(reading, audit, f"score files and {said}")
    picture = _check_picture(audit.scores, summary)
    return [picture] if picture.finding is Finding.FAILS else [tally, picture]


def _check_picture(stated: ScoreSummary | None, found: ScoreSummary) -> Check:
    if stated is None:
        return open_question("picture", "the result holds no picture of the scores")
    odd = differences(encode(stated), encode(found), ".scores")
    if odd:
        return fails("tally", f"the score files show another picture: {odd[0]}")
    return holds("picture", "it is that of the score files")


def _check_tally(reading: Reading, audit: Result, source: str) -> Check:
    odd = differences(audit.reading.to_plain(), reading.to_plain(), ".reading")
    if odd:
        return fails("tally", f"{source} give another tally: {odd[0]}")
    return holds("tally", f"it is that of the {source}")


def _but_guesses(result: Result) -> dict[str, Any]:
    plain = result.to_plain()
    if result.training is not None:
        plain["training"] = {**plain["training"], "transcript": None}
    return plain
