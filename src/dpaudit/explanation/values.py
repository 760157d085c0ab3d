"""What an explanation says, as values: the word, steps, advice, strength."""

from dataclasses import dataclass
from math import isfinite
from typing import final

from dpaudit.bounds.bound import rounded_down
from dpaudit.errors import on_one_line
from dpaudit.game.coverage import Check
from dpaudit.game.findings import Finding
from dpaudit.game.text.findings import sentence
from dpaudit.game.text.results import check_line, opening
from dpaudit.game.verdict import Verdict
from dpaudit.theory.gap_levels import Estimate, no_more_than

__all__ = ["Advice", "Explanation", "Step"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to do, about a gap or about a road that nobody looked at.

    Attributes:
        text: What to do.
        expected: The mean bound if it is done, where that was computed.
        spread: How much that bound varies from run to run.
        catches: The fault that it would catch; "" where it is said elsewhere.

    Example:
        >>> print(Advice(text="use 8 canaries per coordinate instead of 1",
        ...     expected=0.71, spread=0.12))
        use 8 canaries per coordinate instead of 1; expect a bound of 0.71 on \
average, give or take 0.12 from run to run
    """

    text: str
    expected: float | None = None
    spread: float | None = None
    catches: str = ""

    def __str__(self) -> str:
        said = self.text
        if self.expected is not None and self.spread is not None:
            said += (
                f"; expect a bound of {self.expected:.2f} on average, give or take "
                f"{self.spread:.2f} from run to run"
            )
        return f"{said}. It would catch {self.catches}" if self.catches else said


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step on the way from the claim to the bound.

    Attributes:
        name: Of the step.
        takes: By how much it lowers the level, in epsilon; negative if it raises it.
        leaves: The level after it.
        low: Lower end of what that level may be; equal to it if it is exact.
        high: Upper end.
        sentence: What the step does, and why.
        advice: What could be done about it, if anything.
    """

    name: str
    takes: float
    leaves: float
    low: float
    high: float
    sentence: str
    advice: Advice | None

    @property
    def plain(self) -> str:
        """What the step is about, in plain words."""
        return _PLAIN.get(self.name, self.name)


_PLAIN = {
    "confidence": "what no test can tell",
    "interference": "canaries hide each other",
    "outputs": "a typical output, not the worst",
    "elements": "canaries less exposed than the worst",
    "exposure": "what guesses can show",
    "guessing": "the guesser, and a leak",
    "statistics": "allowing for luck",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What an audit shows, why not more, and what would have been caught.

    Attributes:
        outcome: How it ended, in one word.
        reason: Why it is void or inconclusive, or which fault; "" otherwise.
        first_lines: The word, what it is worth and what was not looked at in
            one line; of a training what was found, and what was looked at.
        numbers: What was found beside what is claimed; "" if the audit is void.
        confidence_sentence: How sure that is, and against whom; "" if the audit is
            void.
        sanity_checks: Whether there was anything to see.
        claimed: The claim's epsilon at delta.
        found: The lower bound on epsilon at delta; 0 if the audit is void.
        delta: Of both.
        alpha: Chance of the bound being wrong.
        model: What the steps were computed from.
        steps: From the claim to the bound; each level is computed by itself. None if
            the audit is void: it says nothing about the claim.
        remainder: The bound found, less what the last step leaves: what no step
            explains.
        strength: What the audit would have caught; "" if it caught something.
        advice: What to do next, what would catch the worst fault first.
        checks: Of a training run, each pipeline stage and how it was checked.
        assumptions: What the statements rest on.
        not_exercised: What was not run through; of a training ``checks`` say it.
        remarks: What was noticed besides.
        notice: What to know before anything else: that, and why, nobody checked the
            result; "" if there is nothing.
        unit: Whose privacy is claimed, if not a record's.
        limit: The epsilon that no valid audit of the same canaries exceeds in half of
            its runs; None if that is not known.
    """

    outcome: Verdict
    reason: str
    first_lines: tuple[str, ...]
    numbers: str
    confidence_sentence: str
    sanity_checks: tuple[Finding, ...]
    claimed: float
    found: float
    delta: float
    alpha: float
    model: str
    steps: tuple[Step, ...]
    remainder: float
    strength: str
    advice: tuple[Advice, ...]
    checks: tuple[Check, ...]
    assumptions: tuple[str, ...]
    not_exercised: tuple[str, ...]
    remarks: tuple[Finding, ...]
    notice: str = ""
    unit: str | None = None
    limit: Estimate | None = None

    @property
    def verdict(self) -> str:
        """The verdict in sentences: the word first, then what was shown."""
        said = (
            opening(self.outcome, self.reason),
            self.numbers,
            self.confidence_sentence,
        )
        return " ".join(filter(None, said))

    @property
    def below(self) -> str:
        """What is said below the first lines; nothing is said twice."""
        said = "" if self.numbers in self.first_lines[0] else self.numbers
        return f"{said} {self.confidence_sentence}".strip()

    @property
    def worth(self) -> bool:
        """Whether the first line says what would have been caught."""
        return bool(self.strength) and self.strength in self.first_lines[0]

    def table(self) -> str:
        """Return the steps as lines of text."""
        rows = [("step", "takes", "leaves"), ("claim", "", _number(self.claimed))]
        rows += [
            (f"{s.plain} ({s.name})", _number(s.takes), _level(s)) for s in self.steps
        ]
        found = rounded_down(self.found)
        rows.append(("not explained", _number(-self.remainder), found))
        one, two = (max(len(row[i]) for row in rows) for i in range(2))
        return "\n".join(f"{a:<{one}}  {b:>{two}}  {c}" for a, b, c in rows)

    def __str__(self) -> str:
        parts = [on_one_line(self.notice)] if self.notice else []
        parts.append("\n".join([*self.first_lines, self.below]).strip())
        if self.strength and not self.worth:
            parts.append(self.strength)
        if self.advice:
            said = (
                f"{i}. {on_one_line(str(a))}." for i, a in enumerate(self.advice, 1)
            )
            parts.append("\n".join(["What to do next, by what it would catch:", *said]))
        if self.outcome is not Verdict.INVALID_RUN:
            parts += [f"From the claim to the bound ({self.model}):\n{self.table()}"]
            parts += [self._step(step) for step in self.steps]
            parts += [no_more_than(self.limit)] if self.limit else []
        for title, lines in (
            ("Looked at", self.said(self.sanity_checks)),
            ("This rests on", self.assumptions),
            ("Not exercised", self.not_exercised),
            ("Roads", tuple(map(self._stage, self.checks))),
            ("Noticed", self.said(self.remarks)),
        ):
            if lines:
                said = (f"- {on_one_line(each)}" for each in lines)
                parts.append("\n".join([f"{title}:", *said]))
        return "\n\n".join(parts)

    def said(self, findings: tuple[Finding, ...]) -> tuple[str, ...]:
        """Return what findings say."""
        return tuple(sentence(each, self.unit) for each in findings)

    def _stage(self, check: Check) -> str:
        return check_line(check, self.outcome, self.unit)

    def _step(self, step: Step) -> str:
        return step.sentence + (f"\n  To do: {step.advice}." if step.advice else "")


def _level(step: Step) -> str:
    if step.high == step.low or step.high - step.low < 1e-3:
        return _number(step.leaves)
    return f"{_number(step.leaves)} [{_number(step.low)}, {_number(step.high)}]"


def _number(value: float) -> str:
    if not isfinite(value):
        return "infinity" if value > 0 else "-infinity"
    return f"{value + 0.0:.3f}"
