"""The first screen: what a reader must know about a result, in at most 20 lines.

Printing, notebooks, reports and model cards begin with the same values: the verdict,
the claim beside the lower bound, one sentence on power, and a table of checks. A
training run has a row for each hypothesis of the accountant's theorem; a hypothesis
that did not pass is expanded into its pipeline stages. Everything else is in
``result.details()``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Final, final

from dpaudit.errors import on_one_line
from dpaudit.game.coverage import Check
from dpaudit.game.findings import Finding, Hypothesis, Stage, Status
from dpaudit.game.text.findings import fault_parts, measured, sentence
from dpaudit.game.text.results import (
    adjacency,
    likely_cause,
    power_text,
    refuted_elsewhere,
    threat,
    uncovered_short,
)
from dpaudit.game.text.stages import never_seen, stage_name
from dpaudit.game.text.terms import Terms, capital, counted, terms_of
from dpaudit.game.verdict import Uncovered, Verdict

if TYPE_CHECKING:
    from dpaudit.game.result import Result, TrainingRecord

__all__ = ["CheckRow", "Screen", "screen_of"]

_WIDTH: Final = 80
_MOST_LINES: Final = 20
_STATUS_WIDTH, _NAME_WIDTH = 13, 24

PASSED, FAILED, NOT_CHECKED, NOT_APPLICABLE, SUSPECT = (
    "passed",
    "failed",
    "not checked",
    "n/a",
    "suspect",
)
_NAMES: Final = {
    Hypothesis.INDEPENDENT_BATCHES: "{batch} sampling",
    Hypothesis.BOUNDED_SENSITIVITY: "sensitivity",
    Hypothesis.FRESH_NOISE: "noise",
    Hypothesis.NOISY_SUMS_ONLY: "paths around the noise",
    Hypothesis.COMPLETE_ACCOUNTING: "privacy accounting",
    Hypothesis.RELEASED_MODEL: "released model",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One check in the table.

    Attributes:
        status: ``passed``, ``failed``, ``not checked``, ``n/a``, or ``suspect``: a
            stage tested by canaries only, which refuted the claim.
        name: What was checked.
        measured: What was measured, or what would check it.
        part: Whether the row belongs to the one above.
    """

    status: str
    name: str
    measured: str
    part: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The first screen of every format.

    Attributes:
        verdict: How the audit ended.
        claim: The claim.
        bound: The lower bound; "" if nothing follows from the run.
        setting: Adversary and neighbours.
        sentences: What the verdict means: reason, power, consequence.
        faults: The faults found, one sentence each.
        rows: The table of checks; empty if no training run was audited.
        scope: What no audit of this kind can see, or what was not exercised.
        notes: Remarks that no verdict depends on.
    """

    verdict: Verdict
    claim: str
    bound: str
    setting: str
    sentences: tuple[str, ...]
    faults: tuple[str, ...] = ()
    rows: tuple[CheckRow, ...] = ()
    scope: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def label(self) -> str:
        """The verdict as a label."""
        return capital(self.verdict)

    def __str__(self) -> str:
        """Return the screen for a terminal, in at most 20 lines of 80 columns."""
        lines: list[str] = []
        for room in _ROOM:
            lines = list(self._lines(room))
            if len(lines) <= _MOST_LINES:
                break
        return "\n".join(lines[:_MOST_LINES])

    def _lines(self, room: "_Room") -> Iterator[str]:
        yield self.label.upper()
        yield "     ".join(filter(None, (self.claim, self.bound)))
        faults = [*self.faults[: room.faults]]
        if len(self.faults) > room.faults:
            more = len(self.faults) - room.faults
            faults.append(f"{counted(more, 'more fault')}: see result.details().")
        for each in (self.setting, *self.sentences, *faults):
            yield from _wrapped(each, room.lines_of_sentence)
        rows = self.rows if room.parts else _folded(self.rows)
        if rows:
            yield ""
        for row in rows:
            yield from _row_lines(row, room.lines_of_row)
        for note in self.notes[: room.notes]:
            yield from _wrapped(f"Note: {note}.", room.lines_of_sentence)
        yield from _wrapped(self.scope, room.lines_of_sentence)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """How much of each part is shown; the rest is in the details."""

    notes: int = 0
    faults: int = 3
    lines_of_row: int = 1
    lines_of_sentence: int = 4
    parts: bool = True


_ROOM: Final = (
    _Room(notes=3, lines_of_row=2),
    _Room(lines_of_row=2),
    _Room(),
    _Room(faults=2, lines_of_sentence=3),
    _Room(faults=1, lines_of_sentence=3, parts=False),
    _Room(faults=1, lines_of_sentence=2, parts=False),
)


def _wrapped(text: str, most: int) -> list[str]:
    return wrap(on_one_line(text), _WIDTH, max_lines=most, placeholder=" ...")


def _folded(rows: Iterable[CheckRow]) -> list[CheckRow]:
    """Return one row per hypothesis, which names the stages that did not pass.

    If one stage failed, the row shows what was measured there.
    """
    folded: list[CheckRow] = []
    parts: list[CheckRow] = []
    for row in rows:
        if not row.part:
            folded.append(row)
            parts = []
        elif row.status == folded[-1].status:
            parts.append(row)
            alone = row.measured if parts == [row] and row.status == FAILED else ""
            names = ", ".join(part.name for part in parts)
            folded[-1] = replace(folded[-1], measured=alone or names)
    return folded


def _row_lines(row: CheckRow, most: int) -> Iterator[str]:
    indent = "  " * row.part
    beside = f"{row.status:<{_STATUS_WIDTH}}{indent + row.name:<{_NAME_WIDTH}} "
    width = _WIDTH - len(beside)
    lines = wrap(
        on_one_line(row.measured), width, max_lines=most, placeholder=" ..."
    ) or [""]
    yield f"{beside}{lines[0]}".rstrip()
    for line in lines[1:]:
        yield " " * len(beside) + line


def screen_of(result: "Result", power: str = "") -> Screen:
    """Return the first screen of a result.

    Args:
        result: The result of any audit.
        power: The power, if more is known about it than the result contains.

    Example:
        >>> from dpaudit import Design, OneRun, PureDP
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> print(screen_of(judge(counts, design=design, commitment=None)))
        CLAIM REFUTED
        Claimed ε ≤ 1     Lower bound ε ≥ 1.630 (95 % confidence)
        Adversary: sees the output. Neighbours: add or remove one record.
        The claim does not hold (p = 2.8e-05): do not release under this claim.
    """
    training, terms = result.training, terms_of(result.design.setting.unit)
    return Screen(
        verdict=result.verdict,
        claim=_claimed(result),
        bound=_bound(result),
        setting=f"Adversary: {threat(result)}. Neighbours: {adjacency(result)}.",
        sentences=tuple(filter(None, _sentences(result, power))),
        faults=tuple(_fault(each, terms.unit) for each in result.faults),
        rows=() if training is None else tuple(_rows(training, result.verdict, terms)),
        scope=_scope(result, terms),
        notes=()
        if training is None
        else tuple(sentence(each, terms.unit) for each in training.remarks),
    )


def _claimed(result: "Result") -> str:
    delta = result.bound.delta
    at = f" at δ = {delta:g}" if delta else ""
    return f"Claimed ε ≤ {result.claim_test.claim.epsilon_at(delta):.4g}{at}"


def _bound(result: "Result") -> str:
    if result.verdict is Verdict.INVALID_RUN:
        return ""
    bound = result.bound
    how = f"{1 - bound.alpha:.4g}"
    sure = f"{100 * float(how):g} % confidence"
    if result.is_foreign_bound:
        sure = f"by {bound.method}, which dpaudit cannot check"
    return f"Lower bound ε ≥ {bound.text} ({sure})"


def _sentences(result: "Result", power: str) -> Iterator[str]:
    verdict = result.verdict
    because = ". ".join(map(capital, _reasons(result)))
    if verdict is Verdict.INVALID_RUN:
        yield f"{because}. Nothing follows about the claim."
    elif verdict is Verdict.CLAIM_REFUTED:
        p_value = result.claim_test.p_text
        yield f"The claim does not hold (p {p_value}): do not release under this claim."
        yield refuted_elsewhere(result)
    elif verdict is Verdict.INCONCLUSIVE:
        yield f"{because}."
    if verdict is Verdict.CLAIM_REFUTED and not result.faults:
        yield likely_cause(result)
    elif verdict is Verdict.FAULT_FOUND:
        yield (
            "The accountant's guarantee does not apply to this run: do not rely on the "
            "claim."
        )
    elif verdict is Verdict.NO_VIOLATION_DETECTED:
        yield f"This does not prove the claim. {power or power_text(result)}".strip()
    yield _saturated(result)


def _reasons(result: "Result") -> Iterator[str]:
    """Return why a run is invalid or inconclusive, unless a row states it."""
    unit = result.design.setting.unit
    for each in result.decision.because:
        if isinstance(each, Uncovered):
            yield from uncovered_short(each, unit)
        else:
            yield on_one_line(sentence(each, unit))


def _fault(fault: Finding, unit: str | None) -> str:
    what, seen, expected, cause = fault_parts(fault, unit)
    return f"Fault: {what} ({seen}; expected: {expected}). Likely cause: {cause}."


def _saturated(result: "Result") -> str:
    """Return a sentence if no better guesses were possible; "" otherwise."""
    correct, made = result.reading.correct_and_guesses()
    if result.verdict is Verdict.INVALID_RUN or not 0 < made == correct:
        return ""
    return (
        f"All {made:,} guesses were correct: the bound is saturated, and ε may be far "
        "larger."
    )


def _scope(result: "Result", terms: Terms) -> str:
    if result.training is not None:
        return f"Out of scope: {never_seen(terms)}."
    left_out = ", ".join(map(on_one_line, result.not_exercised))
    return f"Not exercised: {left_out}." if left_out else ""


def _rows(
    training: "TrainingRecord", verdict: Verdict, terms: Terms
) -> Iterator[CheckRow]:
    """Return a row per hypothesis, and the stages of those that did not pass."""
    coverage, untested = training.coverage, _why_untested(training, verdict)
    for hypothesis in Hypothesis:
        checks = [
            each for each in coverage.checks if each.stage.hypothesis is hypothesis
        ]
        parts = [_part(each, coverage.faults, untested, terms) for each in checks]
        name = _NAMES[hypothesis].format(batch=terms.batch)
        counted = [
            part
            for part, check in zip(parts, checks, strict=True)
            if check.stage is not Stage.AGGREGATION or part.status == FAILED
        ]
        status = _worst(counted)
        if len(parts) == 1 or status in (PASSED, NOT_APPLICABLE):
            first = next(each for each in counted if each.status == status)
            best = _BEST.get(hypothesis, first.name)
            shown = next((p for p in counted if p.name == best), first)
            yield CheckRow(status=status, name=name, measured=shown.measured)
            continue
        yield CheckRow(status=status, name=name, measured="")
        yield from parts


def _worst(parts: Iterable[CheckRow]) -> str:
    order = (FAILED, SUSPECT, NOT_CHECKED, PASSED, NOT_APPLICABLE)
    found = {each.status for each in parts}
    return next(status for status in order if status in found)


# The stage whose measurement is shown for a hypothesis of several stages.
_BEST: Final[Mapping[Hypothesis, str]] = {
    Hypothesis.BOUNDED_SENSITIVITY: "clipping",
    Hypothesis.FRESH_NOISE: "noise scale",
}


def _why_untested(
    training: "TrainingRecord", verdict: Verdict
) -> tuple[str, str] | None:
    """Return status and reason of stages tested by canaries only; None if passed."""
    if verdict is Verdict.INVALID_RUN:
        return NOT_CHECKED, "canaries tested nothing in this run"
    if verdict is Verdict.CLAIM_REFUTED:
        return SUSPECT, "tested by the canaries that refuted the claim"
    if training.detectable is None or training.detectable.factor is None:
        return NOT_CHECKED, "canaries passed through it, with little or unknown power"
    return None


def _part(
    check: Check,
    faults: Iterable[Finding],
    untested: tuple[str, str] | None,
    terms: Terms,
) -> CheckRow:
    """Return the row of one stage."""
    name = stage_name(check.stage, terms)
    for fault in faults:
        if fault.stage is check.stage:
            _, seen, expected, _ = fault_parts(fault, terms.unit)
            text = f"{seen} (expected: {expected})"
            return CheckRow(status=FAILED, name=name, measured=text, part=True)
    status = {
        Status.TESTED: PASSED,
        Status.INSPECTED: PASSED,
        Status.NOT_APPLICABLE: NOT_APPLICABLE,
    }.get(check.status, NOT_CHECKED)
    text = measured(check.findings, terms.unit)
    inspected = any(each.status is Status.INSPECTED for each in check.findings)
    if check.status is Status.TESTED and not inspected and untested is not None:
        status, text = untested
    if check.status is Status.ACCEPTED:
        text = "accepted beforehand by the user"
    return CheckRow(status=status, name=name, measured=text, part=True)
