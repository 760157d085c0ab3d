"""The outcome of a verification: which checks hold, fail, or could not be made."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from dpaudit._codec import Document
from dpaudit.errors import InvalidInputError, on_one_line

__all__ = [
    "ARITHMETIC",
    "REQUIREMENTS",
    "Verification",
    "VerificationCheck",
    "VerificationOutcome",
    "fails",
    "holds",
    "if_counts_hold",
    "required_with",
    "unchecked",
]

# What may be required, and how to give it; the tally is required by default.
REQUIREMENTS: Final = {
    "registration": "give the copy that was published before the run (--registration)",
    "signature": "give the public key of whoever should have signed (--public-key), or "
    "ask for evidence that is signed",
    "tally": "give the folder with the files of scores (--files), ask for evidence "
    "that holds the guesses, or accept counts that nobody checked "
    "(--accept-unchecked-counts)",
}
# Bound and verdict follow from the stated counts, which were not checked.
ARITHMETIC: Final = "arithmetic"
_OF_COUNTS: Final = ("bound", "claim test", "controls")


class VerificationOutcome(StrEnum):
    """How a check ended."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_CHECKED = "not checked"


_HEADINGS = (
    (VerificationOutcome.FAILS, "What is wrong:"),
    (VerificationOutcome.HOLDS, "What was established:"),
    (VerificationOutcome.NOT_CHECKED, "What was not established:"),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationCheck:
    """One check of a verification.

    Attributes:
        name: Its name, in a word or two; the same in every verification.
        outcome: How it ended.
        sentence: What that means.
    """

    name: str
    outcome: VerificationOutcome
    sentence: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Document):
    """All checks of one piece of evidence; printing it lists them.

    Attributes:
        checks: Each check.
        stated: Fields whose truth nothing in the evidence can show.
        required: Names of the checks that must hold.
    """

    checks: tuple[VerificationCheck, ...]
    stated: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    form = "dpaudit.verification.1"
    derived = ("sound", "missing")

    def __post_init__(self) -> None:
        for name in self.required:
            if name not in REQUIREMENTS:
                raise InvalidInputError(
                    f"required must be some of {', '.join(REQUIREMENTS)}, got {name!r}"
                )

    @property
    def sound(self) -> bool:
        """Whether no check fails, and bound and verdict were recomputed.

        They must follow from checked counts, unless unchecked counts were accepted.
        Read what was not established as well.
        """
        counted = "tally" in self._held or "tally" not in self.required
        return self._found_again and counted

    @property
    def missing(self) -> tuple[str, ...]:
        """What was required and not established, and how to give it."""
        return tuple(
            f"{name}: it was not established; {REQUIREMENTS[name]}"
            for name in self.required
            if name not in self._held
        )

    @property
    def exit_code(self) -> int:
        """The exit code of ``dpaudit verify``: 0, 1, or 6 if something is missing."""
        if not self._found_again:
            return 1
        return 6 if self.missing else 0

    @property
    def _held(self) -> frozenset[str]:
        return frozenset(
            c.name for c in self.checks if c.outcome is VerificationOutcome.HOLDS
        )

    @property
    def _contradicted(self) -> bool:
        return any(check.outcome is VerificationOutcome.FAILS for check in self.checks)

    @property
    def _found_again(self) -> bool:
        return not self._contradicted and bool({"bound", ARITHMETIC} & self._held)

    def _headline(self) -> str:
        if self._contradicted:
            return "This evidence does not hold."
        if not self._found_again:
            return "This evidence could not be checked to the end."
        if "tally" not in self._held:
            accepted = "" if "tally" in self.required else ", as was accepted"
            return f"The counts were not checked{accepted}."
        if self.missing:
            return "No check failed, but something that is required is missing."
        return "No check failed."

    def _beyond(self) -> str:
        """Return in a sentence what sound evidence does not show."""
        held = self._held
        follows = "Its verdict follows from the guesses that it holds."
        unseen = ["that the run happened as described"]
        if "registration" not in held:
            unseen.insert(0, "that it was planned before the run")
        if "signature" not in held:
            unseen.insert(0, "who made it")
        if "tally" not in held:
            follows = "Its bound and verdict follow from the counts that it states."
            unseen.insert(0, "that these are the counts of any guesses")
        return f"{follows} It does not show {', or '.join(unseen)}."

    def __str__(self) -> str:
        lines = [self._headline(), *([self._beyond()] if self._found_again else [])]
        if self.missing and not self._contradicted:
            lines += ["", "What was required and is missing:"]
            lines += [f"- {each}" for each in self.missing]
        for outcome, heading in _HEADINGS:
            matching = [c for c in self.checks if c.outcome is outcome]
            if matching:
                lines += ["", heading]
                lines += [f"- {c.name}: {on_one_line(c.sentence)}" for c in matching]
        if self.stated:
            lines += ["", "Stated, not checked: " + ", ".join(self.stated) + "."]
        return "\n".join(lines)


def holds(name: str, sentence: str) -> VerificationCheck:
    """Return a check that holds."""
    return VerificationCheck(
        name=name, outcome=VerificationOutcome.HOLDS, sentence=sentence
    )


def fails(name: str, sentence: str) -> VerificationCheck:
    """Return a check that fails."""
    return VerificationCheck(
        name=name, outcome=VerificationOutcome.FAILS, sentence=sentence
    )


def unchecked(name: str, sentence: str) -> VerificationCheck:
    """Return a check that could not be made."""
    return VerificationCheck(
        name=name, outcome=VerificationOutcome.NOT_CHECKED, sentence=sentence
    )


def required_with(
    named: tuple[str, ...], *, accept_unchecked_counts: bool
) -> tuple[str, ...]:
    """Return the requirements: those named, and by default the tally.

    Args:
        named: The requirements that were named.
        accept_unchecked_counts: Whether to leave out the tally.

    Raises:
        InvalidInputError: The tally is named, and unchecked counts are accepted.
    """
    if not accept_unchecked_counts:
        return tuple(dict.fromkeys((*named, "tally")))
    if "tally" in named:
        raise InvalidInputError(
            "the tally cannot be required where unchecked counts are accepted; leave "
            "out one of them"
        )
    return tuple(dict.fromkeys(named))


def if_counts_hold(checks: list[VerificationCheck]) -> list[VerificationCheck]:
    """Return the checks, with those that rest on unchecked counts marked as open.

    If the tally was recomputed they are returned unchanged.
    """
    held = {each.name for each in checks if each.outcome is VerificationOutcome.HOLDS}
    if "tally" in held:
        return checks
    adjusted = [
        unchecked(each.name, f"if the counts are as stated: {each.sentence}")
        if each.name in _OF_COUNTS and each.name in held
        else each
        for each in checks
    ]
    if "bound" in held:
        text = "bound and verdict follow from the counts stated"
        adjusted.append(holds(ARITHMETIC, text))
    return adjusted
