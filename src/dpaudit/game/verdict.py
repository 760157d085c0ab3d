"""How an audit ended, and the sanity checks that this rests on.

A claim that was not refuted may be right, or the audit may have seen nothing. So three
things are asked before "no violation detected" is said. Was the signal of the canaries
recovered, as far as can be told? Could the audit have refuted the claim at all? Was any
effect seen, where nothing else shows that there was something to see? A sanity check
answers one of them. One that fails spoils the verdict: the run is invalid, as it was
another run than the one that was designed, or the audit is inconclusive, as nothing was
tested.

Where several verdicts hold, the first of invalid run, claim refuted, fault found,
inconclusive is given. A fault is something that is wrong whatever the claim
(``coverage``). No sanity check makes a refutation: the probability of refuting a true
claim is at most alpha over all runs, invalid ones included. An invalid run is spent:
whoever repeats runs until one is valid has another false-positive rate than alpha.
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

POWER: Final = 0.9  # with which a fault counts as detected
ALPHA_OF_EFFECT: Final = 0.001  # probability of taking pure chance for an effect
# Codes of findings that others make anew.
BETTER_THAN_CHANCE: Final = "better_than_chance"
TIES: Final = "ties"
_ERRORS: Final = 5.0  # that a slope may be from where it should be: luck does it
# once in two million runs
_CLOSE: Final = 0.1  # a slope this close to 1 is fine however small its error
_VAGUE: Final = 0.25  # an error from which on 0 and 1 cannot be told apart


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
        """What a command that judges exits with; 2 is a usage error."""
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
        slope: What of a canary showed, over its size; 1 if it arrived as it was.
        error: The standard error of the slope.
        steps: Over how many steps it was measured.
        by_program: Whether the program itself, and not the audit, put the canaries into
            the sums, as it does with records.

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
        """Whether it may be 1, but the error is too large to tell it from 0."""
        return not self.off and self.error > _VAGUE

    @property
    def off(self) -> bool:
        """Whether the slope is far from 1."""
        return not self._near(1.0)

    @property
    def outcome(self) -> str:
        """Whether the signal was recovered, and if not, what became of it."""
        if self.vague:
            return "vague"
        if not self.off:
            return "recovered"
        if abs(self.slope) <= _ERRORS * self.error:
            return "lost"
        return "sign_reversed" if self._near(-1.0) else "scaled"

    def check(self, *, refuted: bool) -> Finding:
        """Return what the slope makes of a verdict.

        A claim that was refuted stays so where no canary put in more than a record may:
        whatever showed, the program showed it.

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
        return abs(self.slope - value) <= max(_CLOSE, _ERRORS * self.error)


def better_than_chance(silence: ClaimTest) -> Finding:
    """Return whether guesses show that there was anything to see.

    For audits of which nothing else shows that canaries went in: scores, counts.

    Args:
        silence: What the same guesses say of the claim that nothing is shown at all,
            epsilon = 0.

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
    """Return what ties broken against the auditor cost; () if they decided nothing.

    Args:
        decided: How many guesses they decided.
        guesses: How many were made.

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
    """Stages that no claim can do without, and that were not checked.

    Attributes:
        checks: Of these stages.
        run: Which of several runs it is about; None if there is one.
    """

    checks: tuple[Check, ...]
    run: int | None = None

    status: ClassVar[Status] = Status.INCONCLUSIVE


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How an audit ended, and what decided it.

    Attributes:
        verdict: How it ended.
        because: What made it invalid or inconclusive, or which faults were found;
            () otherwise.
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
    """Return how an audit ended.

    Args:
        refuted: Whether the claim is refuted.
        could: Whether the audit could have refuted it at all.
        checks: The sanity checks.
        faults: What was found to be wrong whatever the claim.

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
    found = tuple(faults)
    if found:
        return Decision(verdict=Verdict.FAULT_FOUND, because=found)
    unsure = tuple(each for each in checks if each.status is Status.INCONCLUSIVE)
    if not could:
        unsure = (inconclusive("could_not_refute"), *unsure)
    if unsure:
        return Decision(verdict=Verdict.INCONCLUSIVE, because=unsure)
    return Decision(verdict=Verdict.NO_VIOLATION_DETECTED)
