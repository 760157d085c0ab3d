"""What is fixed before a run, and the commitment that shows it was.

The validity of an audit rests on what was chosen without looking: how many canaries,
how many guesses, which claim, which level. All of it is the design; it is public. The
commitment is the SHA-256 of the key and the design's canonical JSON. Published before
the run, it binds the auditor to both and shows nothing of the coins; with the key
revealed afterwards, anyone can check it and derive the coins again.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Self, final

from dpaudit import _canonical, _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.privacy.guarantees import ApproxDP

__all__ = ["Commitment", "Design", "ThreatModel"]


class ThreatModel(StrEnum):
    """What the guesser sees of a run."""

    ALL_ITERATES = "an observer of every iterate"
    FINAL_MODEL = "an observer of the final model only"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Everything that an audit fixes beforehand.

    Attributes:
        canaries: How many canaries, each included by its own fair coin.
        guesses: How many coins will be guessed; one not guessed counts as wrong.
        claim: What the mechanism is claimed to satisfy.
        alpha: Chance of a wrong statement that the auditor accepts.
        threat_model: What the guesser will see.
        setting: Whatever else is fixed beforehand, for the record.
    """

    canaries: int
    guesses: int
    claim: ApproxDP
    alpha: float = 0.05
    threat_model: ThreatModel = ThreatModel.ALL_ITERATES
    setting: Mapping[str, _canonical.Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _validate.whole_number("canaries", self.canaries, least=1)
        _validate.whole_number("guesses", self.guesses, least=1)
        _validate.error_level("alpha", self.alpha)
        if self.guesses > self.canaries:
            raise InvalidInputError(
                f"cannot guess guesses={self.guesses} of canaries={self.canaries}"
            )

    def to_json(self) -> str:
        """Return the canonical JSON of the design: equal designs, equal bytes."""
        return _canonical.text({"format": "dpaudit.design.1", **asdict(self)})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """A hash that binds an auditor to a key and a design.

    Example:
        >>> claim = ApproxDP(epsilon=1.0, delta=0.0)
        >>> design = Design(canaries=10, guesses=5, claim=claim)
        >>> commitment = Commitment.to(Key(bytes(32)), design)
        >>> commitment.holds_for(Key(bytes(32)), design)
        True
        >>> commitment.holds_for(Key.generate(), design)
        False
    """

    sha256: str

    @classmethod
    def to(cls, key: Key, design: Design) -> Self:
        """Return the commitment to a key and a design."""
        # The key's length is fixed, so key and design cannot run into each other.
        message = b"dpaudit commitment 1" + key.secret + design.to_json().encode()
        return cls(sha256=hashlib.sha256(message).hexdigest())

    def holds_for(self, key: Key, design: Design) -> bool:
        """Return whether this is the commitment to that key and that design."""
        return Commitment.to(key, design) == self
