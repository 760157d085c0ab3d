"""How an audit ended, and the sanity checks behind the verdict.

A claim that was not refuted may be true, or the audit may have had no power. So sanity
checks answer three questions before "no violation detected" is reported. Was the
canaries' signal recovered, as far as it was measured? Could the audit have refuted the
claim at all? Was any effect seen, where nothing else shows that canaries were inserted?
If a sanity check fails, the run is invalid, as it was not the run that was designed, or
the audit is inconclusive, as nothing was tested.

Where several verdicts hold, the first of invalid run, claim refuted, fault found,
inconclusive is given. A fault is something that is wrong whatever the claim
(``coverage``). No sanity check can turn a run into a refutation: the probability of
refuting a true claim is at most alpha over all runs, invalid ones included. An invalid
run is spent: repeating runs until one is valid changes the false-positive rate.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, final

from dpaudit import _validate
from dpaudit.bounds.bound import ClaimTest
from dpaudit.errors import InvalidInputError
from dpaudit.game.coverage import Check
from dpaudit.game.findings import Finding, Status, inconclusive, invalid, passed

__all__ = [
    "ALPHA_OF_EFFECT",
    "BETTER_THAN_CHANCE",
    "POWER",
    "TIES",
    "Decision",
    "SignalRecovery",
    "Uncovered",
    "Verdict",
    "better_than_chance",
    "decide",
    "decided_by_ties",
]

POWER: Final = 0.9  # probability with which a fault counts as detectable
ALPHA_OF_EFFECT: Final = 0.001  # probability of mistaking chance for an effect
# Codes of findings that other modules create again.
BETTER_THAN_CHANCE: Final = "better_than_chance"
TIES: Final = "ties"
_MAX_STANDARD_ERRORS: Final = 5.0  # of a slope from its expected value; chance exceeds
# it once in two million runs
_TOLERANCE: Final = 0.1  # a slope this close to 1 is accepted however small its error
_MAX_ERROR: Final = 0.25  # a larger standard error cannot distinguish 0 from 1


@final
class Verdict(StrEnum):
    """How an audit ended.

    Example:
        >>> ended = Verdict.NO_VIOLATION_DETECTED
        >>> print(ended, ended.exit_code)
        no violation detected 0
    """

    INVALID_RUN = "invalid run"
    CLAIM_REFUTED = "claim refuted"
    FAULT_FOUND = "fault found"
    INCONCLUSIVE = "inconclusive"
    NO_VIOLATION_DETECTED = "no violation detected"

    @property
    def exit_code(self) -> int:
        """The exit code of commands that judge an audit; 2 is a usage error."""
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {
    Verdict.NO_VIOLATION_DETECTED: 0,
    Verdict.CLAIM_REFUTED: 1,
    Verdict.INCONCLUSIVE: 3,
    Verdict.INVALID_RUN: 4,
    Verdict.FAULT_FOUND: 5,
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRecovery:
    """How much of the canaries' signal was recovered from the noisy sums.

    Attributes:
        slope: The measured part of a canary over its size; 1 if it arrived unchanged.
        error: The standard error of the slope.
        steps: The number of steps over which it was measured.
        by_program: Whether the program itself, not the audit, added the canaries to the
            sums, as it does with records.

    Example:
        >>> signal = SignalRecovery(slope=0.02, error=0.031, steps=100)
        >>> signal.outcome, signal.check(refuted=False).status.value
        ('lost', 'invalid run')
    """

    slope: float
    error: float
    steps: int
    by_program: bool = False

    def __post_init__(self) -> None:
        if not self.error >= 0:
            raise InvalidInputError(f"error must be >= 0, got error={self.error!r}")
        _validate.whole_number("steps", self.steps)

    @property
    def vague(self) -> bool:
        """Whether the slope may be 1 but its error is too large to exclude 0."""
        return not self.off and self.error > _MAX_ERROR

    @property
    def off(self) -> bool:
        """Whether the slope differs from 1 beyond error and tolerance."""
        return not self._near(1.0)

    @property
    def outcome(self) -> str:
        """Whether the signal was recovered, lost, scaled, reversed, or is unclear."""
        if self.vague:
            return "vague"
        if not self.off:
            return "recovered"
        if abs(self.slope) <= _MAX_STANDARD_ERRORS * self.error:
            return "lost"
        return "sign_reversed" if self._near(-1.0) else "scaled"

    def check(self, *, refuted: bool) -> Finding:
        """Return the sanity check of the slope.

        A refutation stands if no canary contributed more than a record may: whatever
        the output shows, the program leaked.

        Args:
            refuted: Whether the claim is refuted.
        """
        make = passed
        no_more = self.by_program or abs(self.slope) < 1
        if self.vague:
            make = inconclusive
        elif self.off and not (refuted and no_more):
            make = invalid
        outcome, slope, error = self.outcome, self.slope, self.error
        return make("signal", outcome=outcome, slope=slope, error=error)

    def _near(self, value: float) -> bool:
        limit = max(_TOLERANCE, _MAX_STANDARD_ERRORS * self.error)
        return abs(self.slope - value) <= limit


def better_than_chance(silence: ClaimTest) -> Finding:
    """Return whether guesses are better than chance.

    For audits in which nothing else shows that canaries were inserted: scores, counts.

    Args:
        silence: The test of epsilon = 0 (the output shows nothing) by the same guesses.

    Example:
        >>> from dpaudit import PureDP
        >>> nothing = PureDP(epsilon=0.0)
        >>> found = better_than_chance(
        ...     ClaimTest(claim=nothing, p_value=0.25, alpha=0.05))
        >>> found.status.value, found.numbers["p_value"]
        ('inconclusive', 0.25)
    """
    make = passed if silence.p_value <= ALPHA_OF_EFFECT else inconclusive
    return make(BETTER_THAN_CHANCE, p_value=silence.p_value)


def decided_by_ties(decided: int, guesses: int) -> tuple[Finding, ...]:
    """Return how many guesses were decided by ties against the auditor; () if none.

    Args:
        decided: The number of guesses decided by ties.
        guesses: The number of guesses made.

    Example:
        >>> (few,) = decided_by_ties(3, 1000)
        >>> few.numbers
        {'decided': 3, 'guesses': 1000}
        >>> decided_by_ties(0, 1000)
        ()
    """
    return (passed(TIES, decided=decided, guesses=guesses),) if decided else ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Uncovered:
    """Required stages that were not checked.

    Attributes:
        checks: The checks of these stages.
        run: The number of the run, if there are several; None otherwise.
    """

    checks: tuple[Check, ...]
    run: int | None = None

    status: ClassVar[Status] = Status.INCONCLUSIVE


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How an audit ended, and what decided it.

    Attributes:
        verdict: The verdict.
        because: The findings that made it invalid or inconclusive, or the faults
            found; () otherwise.
    """

    verdict: Verdict
    because: tuple[Finding | Uncovered, ...] = ()


def decide(
    *,
    refuted: bool,
    could: bool,
    checks: Iterable[Finding | Uncovered],
    faults: Iterable[Finding] = (),
) -> Decision:
    """Return the verdict of an audit, and what decided it.

    Args:
        refuted: Whether the claim is refuted.
        could: Whether the audit could have refuted it at all.
        checks: The sanity checks, and required stages that were not checked.
        faults: The faults found, independent of the claim.

    Example:
        >>> lost = invalid("signal", outcome="lost")
        >>> decide(refuted=False, could=True, checks=[lost]).verdict
        <Verdict.INVALID_RUN: 'invalid run'>
    """
    checks = tuple(checks)
    spent = tuple(each for each in checks if each.status is Status.INVALID_RUN)
    if spent:
        return Decision(verdict=Verdict.INVALID_RUN, because=spent)
    if refuted:
        return Decision(verdict=Verdict.CLAIM_REFUTED)
    because = tuple(faults)
    if because:
        return Decision(verdict=Verdict.FAULT_FOUND, because=because)
    open_checks = tuple(each for each in checks if each.status is Status.INCONCLUSIVE)
    if not could:
        open_checks = (inconclusive("could_not_refute"), *open_checks)
    if open_checks:
        return Decision(verdict=Verdict.INCONCLUSIVE, because=open_checks)
    return Decision(verdict=Verdict.NO_VIOLATION_DETECTED)
