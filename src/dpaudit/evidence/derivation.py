"""Check that a result follows from its evidence by recomputing all of it.

*Coins, tally, bound and verdict* are recomputed from guesses, score files or the stated
tally, and compared with the stated values.

*Rules*: a referee refuses guesses as they come in, while a transcript is checked as a
whole: each canary appears once, every turn exists in the rules, there are no more
guesses and no more slots in use than were fixed, every stake is one that the rules
allow. None of this depends on the coins, so it is checked with or without a key, and
memory grows with the number of guesses, not of canaries.
"""

from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import assert_never

import numpy as np

from dpaudit._codec import encode
from dpaudit.bounds.readings import Bets, Ranked, Reading
from dpaudit.errors import DpAuditError, InvalidRunError, MissingExtraError, on_one_line
from dpaudit.evidence.files import ScoreFiles, read_score_files
from dpaudit.evidence.origin import differences, wrong_coins
from dpaudit.evidence.record import Evidence
from dpaudit.evidence.registration import Registration
from dpaudit.evidence.verification import (
    VerificationCheck,
    VerificationOutcome,
    fails,
    holds,
    unchecked,
)
from dpaudit.game.coins import Coins, Key
from dpaudit.game.configuration import DetectableFault
from dpaudit.game.design import Design
from dpaudit.game.detectable import detectable_by_guesses
from dpaudit.game.findings import Finding, Status, agree
from dpaudit.game.result import (
    Result,
    bound_of,
    check_method,
    check_reading,
    effect_seen,
    guesses_made,
    judge,
)
from dpaudit.game.rules import OneRun
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.scores import reading_of_scores, ties_sanity_check
from dpaudit.game.text.findings import sentence
from dpaudit.game.text.results import fault_line, noise_detected, stages_by_status
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import BETTER_THAN_CHANCE, TIES, Verdict
from dpaudit.privacy.guarantees import ApproxDP, PureDP
from dpaudit.tables.sources import ScoreTable
from dpaudit.training.result import detected_as_run, judge_accountant

__all__ = [
    "check_bound_follows",
    "check_guesses",
    "check_obeyed",
    "check_result",
    "check_runs",
    "check_strength",
    "judged_again",
    "scored_again",
]


def check_runs(stated: Result, design: Design) -> None:
    """Refuse a bound that does not hold for the registered game.

    Raises:
        InvalidRunError: It is for another game, or one training run is declared as
            many runs.
    """
    check_method(stated.bound.method, design.rules)
    if stated.training is not None and design.runs > 1:
        raise InvalidRunError("a training run is one run, not one for each coin")


def judged_again(stated: Result, registration: Registration) -> Result:
    """Return the result of judging the stated reading by the registered design."""
    check_runs(stated, registration.design)
    audit, training = _audit(stated, registration), stated.training
    if training is None:
        return audit
    claim = None if training.accountant is None else training.accountant.claim
    accountant, family = judge_accountant(audit, claim)
    judged = replace(training, accountant=accountant, family=family)
    return replace(audit, training=judged)


def _audit(stated: Result, registration: Registration) -> Result:
    check_reading(stated.reading, registration.design)
    return judge(
        stated.reading,
        design=registration.design,
        commitment=registration.commitment,
        bound=bound_of(stated),
        not_exercised=stated.not_exercised,
        sanity_checks=stated.sanity_checks,
        scores=stated.scores,
    )


def scored_again(
    table: ScoreTable, files: ScoreFiles, *, design: Design, key: Key | None
) -> tuple[Reading, ScoreSummary, tuple[Finding, ...]]:
    """Return the reading of scores, with the coins of the key or else of the files.

    Also returned: a summary of the scores, and a finding if ties were broken against
    the auditor.

    Raises:
        InvalidRunError: The table makes the run invalid, or its coins are not the
            key's.
    """
    ties: tuple[Finding, ...] = ()
    if key is not None:
        coins = Coins(key=key, count=design.canaries)
        reading = reading_of_scores(table.ids, coins, table.scores, design=design)
        truth = coins.at(table.ids.astype(np.int64))
        if table.bits is not None and not np.array_equal(table.bits, truth):
            raise InvalidRunError("the coins in the files are not those of the key")
    elif table.bits is not None:
        truth, independent = table.bits, files.coins_were_independent
        reading = reading_of_scores(
            table.ids,
            truth,
            table.scores,
            design=design,
            coins_were_independent=independent,
        )
        ties = ties_sanity_check(truth, table.scores, design=design)
    else:
        raise InvalidRunError("the files hold no coins, and there is no key")
    return reading, ScoreSummary.of(table.scores, truth), ties


def check_obeyed(transcript: Transcript, key: Key | None) -> None:
    """Refuse a transcript that no referee could have written.

    Raises:
        InvalidRunError: It breaks the rules of its design.

    Example:
        >>> from dpaudit import Design, OneRun, PureDP
        >>> rules, claim = OneRun(guesses=2), PureDP(epsilon=1.0)
        >>> design = Design(canaries=10**12, rules=rules, claim=claim)
        >>> ones = np.ones(3, np.int8)
        >>> blind = Transcript(
        ...     design=design,
        ...     index=np.arange(3),
        ...     guess=ones,
        ...     truth=ones,
        ...     stake=np.ones(3),
        ...     turn=np.zeros(3, np.int64),
        ...     uniforms=np.zeros(0),
        ... )
        >>> check_obeyed(blind, None)
        Traceback (most recent call last):
        dpaudit.errors.InvalidRunError: 3 guesses were made, but the design allows \
guesses=2; the number must be fixed before the run
    """
    _check_canaries(transcript)
    _check_turns(transcript)
    _check_stakes(transcript)
    transcript.check_made()
    _check_uniforms(transcript, key)


def _check_canaries(transcript: Transcript) -> None:
    index, n = transcript.index, transcript.design.canaries
    if len(index) and not (index.min() >= 0 and int(index.max()) < n):
        raise InvalidRunError(f"a canary is none of those numbered from 0 to {n - 1}")
    if len(np.unique(index)) < len(index):
        raise InvalidRunError("a canary was named twice; each may be guessed once")
    if not np.isin(transcript.guess, (-1, 0, 1)).all():
        raise InvalidRunError("a guess is -1, 1, or 0 for a pass")


def _check_turns(transcript: Transcript) -> None:
    turn, rules = transcript.turn, transcript.design.rules
    if not ((turn >= 0).all() and (turn[1:] >= turn[:-1]).all()):
        raise InvalidRunError("turns must come in order")
    last = int(turn.max(initial=0))
    # Under other rules, turns without a submission leave no trace and do not count.
    if rules.turns is not None and last >= rules.turns:
        raise InvalidRunError(f"turn {last} is one that the rules do not have")
    rules.check_turn(transcript.index, turn)


def _check_stakes(transcript: Transcript) -> None:
    rules = transcript.design.rules
    if not rules.are_stakes(transcript.guess, transcript.stake):
        raise InvalidRunError(
            f"a stake is none that {type(rules).__name__} has, or is put on a pass"
        )


def _check_uniforms(transcript: Transcript, key: Key | None) -> None:
    """Check the committed uniforms: one for each round, and one for the end."""
    size, uniforms = transcript.design.rules.uniforms_needed, transcript.uniforms
    if len(uniforms) != size:
        raise InvalidRunError(
            f"there are {len(uniforms)} uniforms, and the rules need {size}"
        )
    if key is not None and not np.array_equal(uniforms, key.uniforms(size)):
        raise InvalidRunError("the uniforms are not those of the key")


# Most guesses for which a bound is recomputed, in seconds and with little memory; a
# number written in a few bytes could take days. Plain counts of one run are quick.
_MOST_GUESSES = 10**7
_MOST_GUESSES_COUNTED = 10**10
# Relative tolerance, between machines, of a factor that was simulated.
_SIMULATION_TOLERANCE = 0.02


def check_guesses(evidence: Evidence, folder: Path | None) -> list[VerificationCheck]:
    """Check coins, rules and tally, as far as the evidence permits."""
    guesses = evidence.guesses
    try:
        # First: a reading that passes is no longer than the evidence itself.
        check_reading(evidence.result.reading, evidence.registration.design)
    except DpAuditError:
        return []  # check_bound_follows reports it
    match guesses:
        case Transcript():
            return _check_transcript(guesses, evidence)
        case ScoreFiles():
            return _check_files(guesses, evidence, folder)
        case None if evidence.redacted:
            text = "key and guesses were kept back; tallies were not checked"
        case None:
            text = "the guesses are not part of the evidence; tallies were not checked"
        case _:
            assert_never(guesses)
    return [unchecked("tally", text)]


def check_bound_follows(
    stated: Result, registered: Registration, *, scored: bool
) -> list[VerificationCheck]:
    """Check that bound and verdict follow from the tally.

    Args:
        stated: The result.
        registered: The registration it must follow from.
        scored: Whether the guesses come from scores; only the guesses themselves can
            then show that the canaries had an effect.
    """
    try:
        check_reading(stated.reading, registered.design)
        if _takes_long(stated, registered.design):
            _, made = stated.reading.correct_and_guesses()
            text = f"{made} guesses are too many to find it again"
            return [unchecked("bound", text)]
        derived = judged_again(stated, registered)
    except DpAuditError as error:
        return [fails("bound", f"the result does not follow: {error}")]
    foreign = stated.is_foreign_bound
    expected = _with_bound_of(derived, stated) if foreign else derived
    odd = differences(_but_guesses(stated), _but_guesses(expected))
    if odd:
        return [fails("bound", f"the result does not follow from its tally: {odd[0]}")]
    controls, audit = _check_effect_seen(stated, scored=scored)
    checks = (
        _foreign_bound(audit, derived) if foreign else [holds("bound", _shown(audit))]
    )
    checks += controls + _check_accountant(stated) + _stages_unverifiable(stated)
    if stated.design.runs > 1:
        checks.append(
            unchecked(
                "independent runs",
                "the bound holds if every coin had a run of its own, as its rules "
                "require; a record cannot show that",
            )
        )
    return checks


def check_result(result: Result) -> list[VerificationCheck]:
    """Check that a result follows from the tally that it states.

    Without evidence, nothing shows that the tally is that of a run.
    """
    kept = result.transcript
    registered = Registration(design=result.design, commitment=result.commitment)
    checks = check_bound_follows(result, registered, scored=False)
    if kept is not None and len(kept.index):  # redacted evidence keeps an empty one
        checks.append(_check_tally(kept.reading(), result, "guesses and stated coins"))
    return checks


def _foreign_bound(audit: Result, derived: Result) -> list[VerificationCheck]:
    """Report that a user's own bound was not recomputed, and what was."""
    bound = audit.bound
    return [
        unchecked(
            "bound",
            f"it is by the method {bound.method!r} ({bound.reference}), which this "
            f"version does not have: that epsilon is at least {bound.epsilon_lower:g} "
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
    """Return a derived result with the numbers that only a user's own bound gives."""
    bound = replace(
        derived.bound,
        epsilon_lower=stated.bound.epsilon_lower,
        method=stated.bound.method,
        reference=stated.bound.reference,
        tier=stated.bound.tier,
    )
    return replace(derived, bound=bound, ceiling=stated.ceiling)


def _check_effect_seen(
    result: Result, *, scored: bool
) -> tuple[list[VerificationCheck], Result]:
    """Recompute whether guesses are better than chance; return the audit with it.

    The audit returned judges the registered claim only; the accountant's claim was not
    registered. For scores, nothing else shows that the canaries went in. The finding
    is absent from a result whose sanity checks were removed.
    """
    audit = result
    if result.training is not None:
        audit = replace(result, training=replace(result.training, accountant=None))
    stated = [each for each in audit.sanity_checks if each.code == BETTER_THAN_CHANCE]
    if result.training is not None or not (stated or scored):
        return [], audit
    seen = effect_seen(audit.reading, design=audit.design)
    if stated and not (len(stated) == 1 and agree(stated[0], seen)):
        other = next((sentence(s) for s in stated if not agree(s, seen)), "it twice")
        text = f"the tally states about itself: {sentence(seen)}; the result: {other}"
        return [fails("controls", text)], audit
    if stated:
        text = f"the tally states about itself: {sentence(seen)}"
        return [holds("controls", text)], audit
    text = (
        "the result does not contain what its tally states about itself: "
        f"{sentence(seen)}. The word is the one that belongs to it"
    )
    checks = (*audit.sanity_checks, seen)
    return [unchecked("controls", text)], replace(audit, sanity_checks=checks)


def check_strength(evidence: Evidence) -> list[VerificationCheck]:
    """Report what the design would detect; this follows from the design alone."""
    audit = evidence.result
    claimed = audit.design.claim.epsilon_at(audit.design.bound_delta)
    detectable = detectable_by_guesses(audit, audit.design.claim)
    text = (
        f"no audit by this design shows more than epsilon = {audit.ceiling:.3g}; the "
        f"claim states {claimed:.3g}"
        if detectable is None
        else sentence(detectable)
    )
    return [holds("strength", text), *_check_detectable(audit)]


def _check_detectable(stated: Result) -> list[VerificationCheck]:
    """Recompute which fault of the noise would be detected, and compare."""
    training = stated.training
    if training is None or training.detectable is None:
        return []
    run, name = training.configuration, "detectable fault"
    size = stated.design.setting.per_coordinate
    if run is not None and (
        (run.steps, run.per_coordinate) != (training.steps, size)
        or run.coordinates * run.per_coordinate != stated.design.canaries
    ):
        text = "the recorded configuration is not of these steps and canaries"
        return [fails(name, text)]
    again = detected_as_run(
        stated.design, stated.claim_test, run, evidence_share=training.evidence_share
    )
    if again is None or not _alike(training.detectable, again):
        other = "none, as the claim is refuted" if again is None else str(again.factor)
        text = (
            f"stated as {training.detectable.factor}, and the recorded configuration "
            f"gives {other}"
        )
        return [fails(name, text)]
    text = noise_detected(again)
    return [
        holds(
            name,
            f"{text[0].lower()}{text[1:]}; computed from the configuration that is "
            "recorded, against the claim that the result judges",
        )
    ]


def _alike(stated: DetectableFault, found: DetectableFault) -> bool:
    """Return whether two detectable faults agree, up to the error of a simulation."""
    if stated.factor is None or found.factor is None:
        return stated == found
    return isclose(stated.factor, found.factor, rel_tol=_SIMULATION_TOLERANCE)


def _shown(audit: Result) -> str:
    """Return what follows from the tally in a sentence, the verdict first."""
    if audit.verdict is Verdict.INVALID_RUN:
        return (
            f"{audit.verdict}: {on_one_line(audit.reason)}; the tally gives the stated "
            "numbers, and nothing is stated about the registered claim"
        )
    return (
        f"{audit.verdict}: the tally gives {audit.bound}, and {audit.claim_test}; that "
        "is the claim of the registration"
    )


def _takes_long(stated: Result, design: Design) -> bool:
    reading = stated.reading
    if isinstance(reading, Ranked | Bets):
        return False  # they are no longer than the evidence
    if not isinstance(design.rules, OneRun):
        return reading.correct_and_guesses()[1] > _MOST_GUESSES
    curve = not isinstance(design.claim, PureDP | ApproxDP)
    curve = curve or stated.training is not None
    return curve and design.guesses > _MOST_GUESSES_COUNTED


def _check_accountant(stated: Result) -> list[VerificationCheck]:
    """Report a claim that was tested beside the registered one, and never fixed."""
    test, design = stated.claim_test, stated.design
    if test is stated.design_test or encode(test.claim) == encode(design.claim):
        return []
    delta, word = design.bound_delta, stated.verdict
    outcome = "not refuted" if word is Verdict.FAULT_FOUND else word
    registered, other = (c.epsilon_at(delta) for c in (design.claim, test.claim))
    return [
        unchecked(
            "accountant",
            "the result gives a verdict on a second claim, the accountant's curve. "
            "This curve was not registered, and may have been chosen afterwards: at "
            f"delta = {delta:g} it has epsilon = {other:.4g}, and the registered claim "
            f"has epsilon = {registered:.4g}. The result states about the curve: "
            f"{outcome} (p {test.p_text})",
        )
    ]


def _stages_unverifiable(stated: Result) -> list[VerificationCheck]:
    """Return the stages that a training result reports; a record cannot show them."""
    if stated.training is None:
        return []
    unit, coverage = stated.design.setting.unit, stated.training.coverage
    faults = [fault_line(each, unit) for each in stated.faults]
    statuses = (Status.TESTED, Status.INSPECTED, Status.NOT_CHECKED, Status.ACCEPTED)
    stages = stages_by_status(coverage, stated.verdict, statuses, unit=unit)
    reported = " ".join([*faults, *stages])
    return [
        unchecked(
            "stages",
            "nothing shows what was seen while the training ran; whoever made the "
            f"record states: {reported.removesuffix('.')}",
        )
    ]


def _check_transcript(
    transcript: Transcript, evidence: Evidence
) -> list[VerificationCheck]:
    checks, source = [_check_coins(transcript, evidence)], "guesses and coins"
    if evidence.key is None:
        source = "guesses and stated coins"
    if checks[-1].outcome is not VerificationOutcome.FAILS:
        checks.append(_check_rules(transcript, evidence))
    if checks[-1].outcome is not VerificationOutcome.FAILS:
        checks.append(_check_tally(transcript.reading(), evidence.result, source))
        checks += _check_number(transcript, evidence.result)
    return checks


def _check_number(transcript: Transcript, audit: Result) -> list[VerificationCheck]:
    """Report guesses that were not made, and whether the result states it."""
    missing = [each for each in guesses_made(transcript) if audit.training is None]
    return [
        holds("guesses made", sentence(each))
        if any(agree(each, stated) for stated in audit.sanity_checks)
        else unchecked("guesses made", f"the result does not state: {sentence(each)}")
        for each in missing
    ]


def _check_coins(transcript: Transcript, evidence: Evidence) -> VerificationCheck:
    if evidence.key is None:
        return unchecked("coins", "there is no key to derive them from")
    wrong = wrong_coins(transcript, evidence)
    if wrong:
        return fails(
            "coins",
            f"{wrong} of {len(transcript.index)} coins in the transcript are not "
            "those of the key: the transcript is of another run, or was changed",
        )
    return holds("coins", "the coins in the transcript are those of the key")


def _check_rules(transcript: Transcript, evidence: Evidence) -> VerificationCheck:
    try:
        check_obeyed(transcript, evidence.key)
    except DpAuditError as error:
        return fails("rules", f"a referee does not take these guesses: {error}")
    return holds("rules", "a referee takes the guesses by the rules registered")


def _check_files(
    named: ScoreFiles, evidence: Evidence, folder: Path | None
) -> list[VerificationCheck]:
    if folder is None and not named.paths:
        text = (
            f"the scores are in {len(named.files)} file(s) that were not given; "
            "tallies were not checked"
        )
        return [unchecked("tally", text)]
    design, audit = evidence.registration.design, evidence.result
    try:
        table = read_score_files(named, folder)
        reading, summary, ties = scored_again(
            table, named, design=design, key=evidence.key
        )
    except MissingExtraError as error:
        text = f"the score files cannot be read here: {error}"
        return [unchecked("tally", text)]
    except DpAuditError as error:
        return [fails("tally", f"the score files do not give it: {error}")]
    coins = "the key's coins" if evidence.key else "the coins stated in them"
    tally = _check_tally(reading, audit, f"score files and {coins}")
    picture = _check_picture(audit.scores, summary)
    stated = tuple(each for each in audit.sanity_checks if each.code == TIES)
    if stated != ties:
        shown = [sentence(each[0]) if each else "nothing" for each in (ties, stated)]
        text = (
            f"of ties the score files give: {shown[0]}; the result states: {shown[1]}"
        )
        return [fails("tally", text)]
    return (
        [picture] if picture.outcome is VerificationOutcome.FAILS else [tally, picture]
    )


def _check_picture(
    stated: ScoreSummary | None, found: ScoreSummary
) -> VerificationCheck:
    if stated is None:
        return unchecked("picture", "the result holds no picture of the scores")
    odd = differences(encode(stated), encode(found), ".scores")
    if odd:
        return fails("tally", f"the score files show another picture: {odd[0]}")
    return holds("picture", "it is that of the score files")


def _check_tally(reading: Reading, audit: Result, source: str) -> VerificationCheck:
    odd = differences(audit.reading.to_plain(), reading.to_plain(), ".reading")
    if odd:
        return fails("tally", f"{source} give another tally: {odd[0]}")
    return holds("tally", f"it is that of the {source}")


def _but_guesses(result: Result) -> dict[str, object]:
    plain = result.to_plain()
    if result.training is not None:
        plain["training"] = {**plain["training"], "transcript": None}
    return plain
