"""How an audit ended, in one word, and what was looked at to be sure of it.

A claim that was not refuted may be right, or the audit may have seen nothing. So three
things are asked before "no violation found" is said. Did what was planted arrive, as
far as can be told? Could the audit have refuted the claim at all? Was any effect seen,
where nothing else shows that there was something to see? A control answers one of them.
One that fails spoils the verdict: the audit is void, as it was another run than the one
that was designed, or it is inconclusive, as nothing was tested.

Where several words hold, the first of void, refuted, fault found, inconclusive is said.
A fault found is something that is wrong whatever the claim (``ledger``). No control
makes a refutation: the chance of refuting a true claim is at most alpha over all runs,
void ones included. A void run is spent: whoever repeats runs until one is not void has
another chance of being wrong than alpha.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, final

from dpaudit import _validate
from dpaudit._codec import Words
from dpaudit.bounds.bound import ClaimTest, p_value_text
from dpaudit.errors import InvalidInputError

__all__ = [
    "CHANCE",
    "SURE",
    "Arrival",
    "Control",
    "Verdict",
    "better_than_chance",
    "decided_by_ties",
    "speaks_of_chance",
    "speaks_of_ties",
    "verdict_of",
]

CHANCE: Final = 0.9  # with which a fault counts as caught
SURE: Final = 0.001  # chance of taking guesses by pure chance for better ones
_ERRORS: Final = 5.0  # that a slope may be from where it should be: luck does it
# once in two million runs
_CLOSE: Final = 0.1  # a slope this close to 1 is fine however small its error
_VAGUE: Final = 0.25  # an error from which on 0 and 1 cannot be told apart
_BETTER: Final = "the guesses are better than chance"
_TIES: Final = "ties decided"
_MANY_TIES: Final = 0.05  # of the guesses; above this the result says what to do
_NOT_BETTER: Final = (
    "no effect of any canary was seen: the guesses are not clearly better than chance"
)


@final
class Verdict(StrEnum):
    """One word for how an audit ended.

    Example:
        >>> print(Verdict.NO_VIOLATION_FOUND, Verdict.NO_VIOLATION_FOUND.exit_code)
        no violation found 0
    """

    VOID = "void"
    REFUTED = "refuted"
    FAULT_FOUND = "fault found"
    INCONCLUSIVE = "inconclusive"
    NO_VIOLATION_FOUND = "no violation found"

    @property
    def exit_code(self) -> int:
        """What a command that judges exits with; 2 is misuse."""
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {
    Verdict.NO_VIOLATION_FOUND: 0,
    Verdict.REFUTED: 1,
    Verdict.INCONCLUSIVE: 3,
    Verdict.VOID: 4,
    Verdict.FAULT_FOUND: 5,
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Something that was looked at to see whether the audit could have seen anything.

    Attributes:
        said: What was seen, as part of a sentence.
        spoils: What it makes of the verdict if it failed; None if it did not.
    """

    said: Words
    spoils: Literal[Verdict.VOID, Verdict.INCONCLUSIVE] | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How the noisy sums answered to the canaries that were put in.

    Attributes:
        slope: What of a canary showed, over its size; 1 if it arrived as it was.
        error: The standard error of the slope.
        steps: Over how many steps it was measured.
        by_program: Whether the program itself, and not the audit, put the canaries into
            the sums, as it does with records.

    Example:
        >>> print(Arrival(slope=0.998, error=0.031, steps=100))
        canaries arrived: slope 0.998 ± 0.031, where 1 is expected
        >>> print(Arrival(slope=0.02, error=0.031, steps=100))
        no canary arrived: slope 0.020 ± 0.031, where 1 is expected
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

    def __str__(self) -> str:
        digits = 2 if self.error >= 0.1 else 3
        slope = f"slope {self.slope:.{digits}f} ± {self.error:.{digits}f}"
        if self.vague:
            return (
                f"whether canaries arrived cannot be told: {slope}, where 1 is expected"
            )
        if not self.off:
            return f"canaries arrived: {slope}, where 1 is expected"
        if abs(self.slope) <= _ERRORS * self.error:
            what = "no canary arrived"
        elif self._near(-1.0):
            what = "canaries arrived with the wrong sign"
        else:
            what = f"canaries arrived at {self.slope:.3g} times their size"
        return f"{what}: {slope}, where 1 is expected"

    def control(self, *, refuted: bool) -> Control:
        """Return what the slope makes of a verdict.

        A claim that was refuted stays so where no canary put in more than a record may:
        whatever showed, the program showed it.

        Args:
            refuted: Whether the claim is refuted.
        """
        if self.vague:
            return Control(said=str(self), spoils=Verdict.INCONCLUSIVE)
        no_more = self.by_program or abs(self.slope) < 1
        if self.off and not (refuted and no_more):
            return Control(said=str(self), spoils=Verdict.VOID)
        return Control(said=str(self))

    def _near(self, value: float) -> bool:
        return abs(self.slope - value) <= max(_CLOSE, _ERRORS * self.error)


def better_than_chance(silence: ClaimTest) -> Control:
    """Return whether guesses show that there was anything to see.

    For audits of which nothing else shows that canaries went in: scores, counts.

    Args:
        silence: What the same guesses say of the claim that nothing is shown at all,
            epsilon = 0.

    Example:
        >>> from dpaudit import PureDP
        >>> nothing = PureDP(epsilon=0.0)
        >>> print(better_than_chance(
        ...     ClaimTest(claim=nothing, p_value=0.25, alpha=0.05)).said)
        no effect of any canary was seen: the guesses are not clearly better than \
chance (p = 0.25)
    """
    p = f"(p {p_value_text(silence.p_value, SURE)})"
    if silence.p_value <= SURE:
        return Control(said=f"{_BETTER} {p}")
    return Control(said=f"{_NOT_BETTER} {p}", spoils=Verdict.INCONCLUSIVE)


def speaks_of_chance(control: Control) -> bool:
    """Return whether a control is one that ``better_than_chance`` makes.

    What it says follows from the guesses, so others can make it anew.
    """
    return control.said.startswith((_BETTER, _NOT_BETTER))


def decided_by_ties(decided: int, guesses: int) -> tuple[Control, ...]:
    """Return what ties broken against the auditor cost; () if they decided nothing.

    Args:
        decided: How many guesses they decided.
        guesses: How many were made.

    Example:
        >>> (few,) = decided_by_ties(3, 1000)
        >>> print(few.said)
        ties decided 3 of 1,000 guesses, all against the auditor
        >>> decided_by_ties(0, 1000)
        ()
    """
    if not decided:
        return ()
    said = f"{_TIES} {decided:,} of {guesses:,} guesses, all against the auditor"
    if decided > _MANY_TIES * guesses:
        said += (
            "; next time write scores with all their digits, or register the design "
            "with a key, which breaks ties at random and costs less"
        )
    return (Control(said=said),)


def speaks_of_ties(control: Control) -> bool:
    """Return whether a control is one that ``decided_by_ties`` makes."""
    return control.said.startswith(_TIES)


def verdict_of(
    *,
    refuted: bool,
    could: bool,
    controls: Iterable[Control],
    faults: Iterable[object] = (),
) -> tuple[Verdict, str]:
    """Return how an audit ended, and why if it is no answer about the claim.

    Args:
        refuted: Whether the claim is refuted.
        could: Whether the audit could have refuted it at all.
        controls: What was looked at besides.
        faults: What was found to be wrong whatever the claim.

    Example:
        >>> lost = Control(said="no canary arrived", spoils=Verdict.VOID)
        >>> verdict_of(refuted=False, could=True, controls=[lost])
        (<Verdict.VOID: 'void'>, 'no canary arrived')
    """
    failed: dict[Verdict, list[str]] = {}
    for control in controls:
        if control.spoils is not None:
            failed.setdefault(control.spoils, []).append(control.said)
    if Verdict.VOID in failed:
        return Verdict.VOID, "; ".join(failed[Verdict.VOID])
    if refuted:
        return Verdict.REFUTED, ""
    found = "; ".join(map(str, faults))
    if found:
        return Verdict.FAULT_FOUND, found
    if not could:
        failed.setdefault(Verdict.INCONCLUSIVE, []).insert(
            0,
            "the audit could not have refuted the claim, not even with every "
            "guess that was made right",
        )
    if Verdict.INCONCLUSIVE in failed:
        return Verdict.INCONCLUSIVE, "; ".join(failed[Verdict.INCONCLUSIVE])
    return Verdict.NO_VIOLATION_FOUND, ""
