"""How an audit ended, in one word, and what was looked at to be sure of it.

A claim that was not refuted may be right, or the audit may have seen nothing. So three
things are asked before "no violation found" is said. Did what was planted arrive, as
far as can be told? Could the audit have refuted the claim at all? Was any effect seen,
where nothing else shows that there was something to see? A control answers one of them.
One that fails spoils the verdict: the audit is void, as it was another run than the one
that was designed, or it is inconclusive, as nothing was tested.

Where several words hold, the first of void, refuted, inconclusive is said. No control
makes a refutation: the chance of refuting a true claim is at most alpha over all runs,
void ones included. A void run is spent: whoever repeats runs until one is not void has
another chance of being wrong than alpha.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, final

from dpaudit._codec import Words
from dpaudit.bounds.bound import ClaimTest, p_value_text

__all__ = [
    "Control",
    "Verdict",
    "better_than_chance",
    "speaks_of_chance",
    "verdict_of",
]

SURE: Final = 0.001  # chance of taking guesses by pure chance for better ones
_BETTER: Final = "the guesses are better than chance"
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
    p = f"(p {p_value_text(silence.p_value)})"
    if silence.p_value <= SURE:
        return Control(said=f"{_BETTER} {p}")
    return Control(said=f"{_NOT_BETTER} {p}", spoils=Verdict.INCONCLUSIVE)


def speaks_of_chance(control: Control) -> bool:
    """Return whether a control is one that ``better_than_chance`` makes.

    What it says follows from the guesses, so others can make it anew.
    """
    return control.said.startswith((_BETTER, _NOT_BETTER))


def verdict_of(
    *, refuted: bool, could: bool, controls: Iterable[Control]
) -> tuple[Verdict, str]:
    """Return how an audit ended, and why it is void or inconclusive ("" otherwise).

    Args:
        refuted: Whether the claim is refuted.
        could: Whether the audit could have refuted it at all.
        controls: What was looked at besides.

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
    if not could:
        failed.setdefault(Verdict.INCONCLUSIVE, []).insert(
            0, "the audit could not have refuted the claim, or hardly"
        )
    if Verdict.INCONCLUSIVE in failed:
        return Verdict.INCONCLUSIVE, "; ".join(failed[Verdict.INCONCLUSIVE])
    return Verdict.NO_VIOLATION_FOUND, ""
