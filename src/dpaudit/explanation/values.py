"""The parts of an explanation as values: first screen, steps, advice, power."""

from dataclasses import dataclass
from math import isfinite
from typing import final

from dpaudit.bounds.bound import rounded_down
from dpaudit.errors import on_one_line
from dpaudit.game.coverage import Check
from dpaudit.game.findings import Finding
from dpaudit.game.text.findings import sentence
from dpaudit.game.text.results import check_line, opening
from dpaudit.game.text.screen import Screen
from dpaudit.game.verdict import Verdict
from dpaudit.theory.gap_levels import Estimate, no_more_than

__all__ = ["Advice", "Explanation", "Step"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One piece of advice, about a gap or about a stage that was not checked.

    Attributes:
        text: What to do.
        expected: The mean bound if the advice is followed, if computed.
        spread: The standard deviation of that bound from run to run.
        detects: The faults that it would detect; "" if that is stated elsewhere.

    Example:
        >>> print(Advice(text="use 8 canaries per coordinate instead of 1",
        ...     expected=0.71, spread=0.12))
        use 8 canaries per coordinate instead of 1; expect a bound of 0.71 on \
average, ± 0.12 from run to run
    """

    text: str
    expected: float | None = None
    spread: float | None = None
    detects: str = ""

    def __str__(self) -> str:
        text = self.text
        if self.expected is not None and self.spread is not None:
            text += (
                f"; expect a bound of {self.expected:.2f} on average, ± "
                f"{self.spread:.2f} from run to run"
            )
        return f"{text}. Detects {self.detects}" if self.detects else text


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step from the claim to the bound.

    Attributes:
        name: The name of the step.
        takes: By how much it lowers the level, in epsilon; negative if it raises it.
        leaves: The level after it.
        low: Lower end of the interval of that level; equal to it if it is exact.
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
        """The step in plain words."""
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
    """What an audit shows, why not more, and what it would have detected.

    Attributes:
        outcome: The verdict.
        reason: Why the run is invalid or inconclusive, or which fault; "" otherwise.
        screen: The first screen.
        numbers: The bound beside the claim; "" if the run is invalid.
        confidence_sentence: The bound's confidence, and the adversary; "" if the run is
            invalid.
        sanity_checks: Whether the audit could have seen an effect.
        claimed: The claim's epsilon at delta.
        found: The lower bound on epsilon at delta; 0 if the run is invalid.
        delta: The delta of both.
        alpha: Probability that the bound is wrong.
        model: What the steps were computed from, in words.
        steps: The steps from the claim to the bound, each level computed by itself; ()
            if the run is invalid, as nothing follows about the claim.
        remainder: The bound minus the level after the last step: the part that no step
            explains.
        power: What the audit would have detected; "" if it refuted the claim.
        advice: What to do next, starting with what would detect the worst fault.
        checks: For a training run, each pipeline stage and how it was checked.
        assumptions: The assumptions of the statements.
        not_exercised: What was not exercised; for a training run see ``checks``.
        remarks: Other observations.
        notice: A warning to show first, that the result was not verified, and why; ""
            if there is none.
        unit: The unit of privacy, if not a record.
        limit: The epsilon that no valid audit of the same canaries exceeds in more than
            half of its runs; None if that is not known.
    """

    outcome: Verdict
    reason: str
    screen: Screen
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
    power: str
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
        """The verdict in sentences: the label, the bound, its confidence."""
        parts = (
            opening(self.outcome, self.reason),
            self.numbers,
            self.confidence_sentence,
        )
        return " ".join(filter(None, parts))

    @property
    def power_below(self) -> str:
        """The power, if the first screen does not state it."""
        shown = any(self.power in each for each in self.screen.sentences)
        return "" if shown else self.power

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
        parts += [str(self.screen), self.confidence_sentence, self.power_below]
        parts = [*filter(None, parts)]
        if self.advice:
            listed = (
                f"{i}. {on_one_line(str(a))}." for i, a in enumerate(self.advice, 1)
            )
            parts.append("\n".join(["Next steps, by what they would detect:", *listed]))
        if self.outcome is not Verdict.INVALID_RUN:
            parts += [f"From the claim to the bound ({self.model}):\n{self.table()}"]
            parts += [self._step(step) for step in self.steps]
            parts += [self._limited(self.limit)] if self.limit else []
        for title, lines in (
            ("Sanity checks", self.sentences(self.sanity_checks)),
            ("Assumptions", self.assumptions),
            ("Not exercised", self.not_exercised),
            ("Checks", tuple(map(self._stage, self.checks))),
            ("Notes", self.sentences(self.remarks)),
        ):
            if lines:
                listed = (f"- {on_one_line(each)}" for each in lines)
                parts.append("\n".join([f"{title}:", *listed]))
        return "\n\n".join(parts)

    def _limited(self, limit: Estimate) -> str:
        """Return the limit, and that a bound above it takes luck or a larger leak."""
        text = no_more_than(limit)
        if self.found > limit.high:
            text += (
                " The bound of this run is above it: a lucky run, or more leaks than "
                "the model assumes."
            )
        return text

    def sentences(self, findings: tuple[Finding, ...]) -> tuple[str, ...]:
        """Return findings as sentences."""
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
