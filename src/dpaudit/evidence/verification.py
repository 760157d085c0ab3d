"""What a verification found, in plain words: what holds, what fails, what is open."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from dpaudit._codec import Document
from dpaudit.errors import InvalidInputError, on_one_line

__all__ = [
    "REQUIREMENTS",
    "Check",
    "Finding",
    "Verification",
    "fails",
    "holds",
    "open_question",
]

# What may be required besides, and how it is given.
REQUIREMENTS: Final = {
    "registration": "give the copy that was published before the run (--registration)",
    "signature": "give the public key of whoever should have signed (--public-key), or "
    "ask for evidence that is signed",
    "tally": "give the folder with the files of scores (--files), or ask for evidence "
    "that holds the guesses",
}


class Finding(StrEnum):
    """How a check ended."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_CHECKED = "not checked"


_HEADINGS = (
    (Finding.FAILS, "What is wrong:"),
    (Finding.HOLDS, "What was established:"),
    (Finding.NOT_CHECKED, "What was not established:"),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: Which, in a word or two; the same in every verification.
        finding: How it ended.
        sentence: What that means.
    """

    name: str
    finding: Finding
    sentence: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Document):
    """All checks of one piece of evidence; printing it says them all.

    Attributes:
        checks: Each check.
        stated: Fields whose truth nothing in the evidence can show.
        required: Names of checks without which it shall not do.
    """

    checks: tuple[Check, ...]
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
        """Whether no check fails, and bound and verdict were found again.

        Read what was not established as well.
        """
        return not self._contradicted and any(
            check.name == "bound" and check.finding is Finding.HOLDS
            for check in self.checks
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """What was required and not established, and how to give it."""
        held = {each.name for each in self.checks if each.finding is Finding.HOLDS}
        return tuple(
            f"{name}: it was not established; {REQUIREMENTS[name]}"
            for name in self.required
            if name not in held
        )

    @property
    def _contradicted(self) -> bool:
        return any(check.finding is Finding.FAILS for check in self.checks)

    def _headline(self) -> str:
        if self._contradicted:
            return "This evidence does not hold."
        if not self.sound:
            return "This evidence could not be checked to the end."
        if self.missing:
            return "Nothing in this evidence is contradicted, and it is not enough."
        return "Nothing in this evidence is contradicted."

    def _beyond(self) -> str:
        """Return what sound evidence does not show, in a sentence."""
        held = {each.name for each in self.checks if each.finding is Finding.HOLDS}
        unseen = ["that the run was as it is told"]
        if "registration" not in held:
            unseen.insert(0, "that it was planned before the run")
        if "signature" not in held:
            unseen.insert(0, "who made it")
        return (
            "Its verdict follows from the guesses that it holds. It does not show "
            f"{', or '.join(unseen)}."
        )

    def __str__(self) -> str:
        lines = [self._headline(), *([self._beyond()] if self.sound else [])]
        if self.missing:
            lines += ["", "What was required and is missing:"]
            lines += [f"- {each}" for each in self.missing]
        for finding, heading in _HEADINGS:
            said = [c for c in self.checks if c.finding is finding]
            if said:
                lines += ["", heading]
                lines += [f"- {c.name}: {on_one_line(c.sentence)}" for c in said]
        if self.stated:
            lines += ["", "Stated, not checked: " + ", ".join(self.stated) + "."]
        return "\n".join(lines)


def holds(name: str, sentence: str) -> Check:
    """Return a check that ended well."""
    return Check(name=name, finding=Finding.HOLDS, sentence=sentence)


def fails(name: str, sentence: str) -> Check:
    """Return a check that found something wrong."""
    return Check(name=name, finding=Finding.FAILS, sentence=sentence)


def open_question(name: str, sentence: str) -> Check:
    """Return a check that could not be made."""
    return Check(name=name, finding=Finding.NOT_CHECKED, sentence=sentence)
