"""What is published before a run: the design, and the commitment to it and to the key.

Whoever keeps a copy with a date on it (a public repository, a time-stamping service, a
letter to the reviewer) can later say that nothing was chosen after the fact. The file
itself holds no date: a date that the auditor writes shows nothing.
"""

from dataclasses import dataclass
from typing import Self, final

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError
from dpaudit.evidence import strict
from dpaudit.game.coins import Key
from dpaudit.game.design import Commitment, Design

__all__ = ["Registration", "register"]

_FORMAT = "dpaudit.registration.1"
_FIELDS = {"format", "design", "commitment"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A design, and the hash that binds its author to it and to a key.

    Attributes:
        design: What the audit fixes beforehand.
        commitment: SHA-256 of key and design, and of the key; None if the coins do not
            come from a key, so that nobody can show later that they were thrown before.
    """

    design: Design
    commitment: Commitment | None

    def to_json(self) -> str:
        """Return the canonical JSON, for the file ``design.json``."""
        return _canonical.text(
            {
                "format": _FORMAT,
                "design": self.design.to_json(),
                "commitment": self.commitment and self.commitment.to_json(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the registration that a JSON document holds."""
        plain = strict.object_of(
            strict.parsed(strict.without_mark(text)), "a registration", _FIELDS
        )
        if plain["format"] != _FORMAT:
            raise InvalidInputError(
                f'expected "format": "{_FORMAT}", got {plain["format"]!r}'
            )
        commitment = plain["commitment"]
        return cls(
            design=Design.from_json(plain["design"]),
            commitment=None if commitment is None else Commitment.from_json(commitment),
        )


def register(design: Design, key: Key) -> Registration:
    """Return what to publish before a run that uses this design and this key.

    Example:
        >>> from dpaudit import OneRun, PureDP
        >>> claim = PureDP(epsilon=1.0)
        >>> design = Design(canaries=10, rules=OneRun(guesses=5), claim=claim)
        >>> registration = register(design, Key(bytes(32)))
        >>> Registration.from_json(registration.to_json()) == registration
        True
    """
    return Registration(design=design, commitment=Commitment.to(key, design))
