"""What is fixed before a run, and the commitment that shows it was.

The validity of an audit depends on choices made before the run: the number of canaries,
the rules, the claim, the significance level. All of it is the design; it is public. The
commitment is the SHA-256 of the key and the design's canonical JSON. Published before
the run, it binds the auditor to both and reveals nothing about the coins; with the key
revealed afterwards, anyone can check it and derive the coins again.

The coins come from the key alone. So a run is identified by its key, whatever design it
is judged by, and the commitment identifies it by a second hash, of the key alone.
"""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self, final

from dpaudit import _validate
from dpaudit._codec import Document
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.rules import Rules
from dpaudit.game.setting import Setting
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP

__all__ = [
    "Commitment",
    "Design",
    "ThreatModel",
    "check_independent_coins",
]

_SETTING: Final = 'such as Setting(tie_seed=7, notes={"model": "ours"})'
_SMALL_DELTA: Final = 1e-12  # costs next to nothing


class ThreatModel(StrEnum):
    """The adversary's view of a run."""

    ALL_ITERATES = "an observer of every iterate"
    KNOWN_RECORDS = "an observer of every iterate who knows the other records' part"
    FINAL_MODEL = "an observer of the final model only"
    OUTPUT = "an observer of the output"

    @property
    def plain(self) -> str:
        """The adversary in plain words, if the unit of privacy is a record."""
        return self.described(sees="sees every iterate", record="record")

    def described(self, *, sees: str, record: str) -> str:
        """Return the adversary in plain words.

        Args:
            sees: The words for "sees every iterate".
            record: The unit of privacy.
        """
        return _WHO[self].format(sees=sees, record=record)


_WHO = {
    ThreatModel.ALL_ITERATES: "{sees}",
    ThreatModel.KNOWN_RECORDS: "{sees} and knows all other {record}s",
    ThreatModel.FINAL_MODEL: "sees only the final model",
    ThreatModel.OUTPUT: "sees the output",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Design(Document):
    """Everything that an audit fixes before the run.

    Attributes:
        canaries: The number of canaries, each included by its own fair coin.
        rules: When coins are revealed, and what about the guesses is fixed.
        claim: The guarantee that the mechanism is claimed to satisfy.
        delta: The delta of the lower bound on epsilon. By default that of the claim;
            required if the claim is a whole curve.
        alpha: Significance level: the probability of a wrong statement.
        threat_model: What the adversary sees.
        setting: What else is fixed: of the training run, and for the record.

    Example:
        >>> from dpaudit import OneRun
        >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
        >>> design = Design(canaries=100, rules=OneRun(guesses=10), claim=claim)
        >>> design.bound_delta, design.guesses
        (1e-05, 10)
        >>> Design.from_json(design.to_json()) == design
        True
    """

    canaries: int
    rules: Rules
    claim: Guarantee
    delta: float | None = None
    alpha: float = 0.05
    threat_model: ThreatModel = ThreatModel.OUTPUT
    setting: Setting = field(default_factory=Setting)

    form = "dpaudit.design.1"

    def __post_init__(self) -> None:
        _check_kinds(self.rules, self.claim)
        _validate.kind("threat_model", self.threat_model, ThreatModel)
        _validate.kind("setting", self.setting, Setting, _SETTING)
        _validate.whole_number("canaries", self.canaries, least=1)
        _validate.error_level("alpha", self.alpha)
        self._check_points()
        for name, value in (
            ("canaries", int(self.canaries)),
            ("alpha", float(self.alpha)),
            ("delta", self._resolved()),
        ):
            object.__setattr__(self, name, value)
        if self.guesses > self.canaries:
            raise InvalidInputError(
                f"cannot guess guesses={self.guesses} of canaries={self.canaries}"
            )
        self.rules.check_design(
            canaries=self.canaries,
            claimed=self.claim.epsilon_at(self.bound_delta),
            delta=self.bound_delta,
            alpha=self.alpha,
        )

    def __hash__(self) -> int:
        return hash(self.to_json())

    def _check_points(self) -> None:
        if not self.rules.one_point or isinstance(self.claim, ApproxDP | PureDP):
            return
        problem = (
            f"{type(self.rules).__name__} tests a claim at one point, and "
            f"{self.claim} is a whole curve"
        )
        try:  # would a point of the curve with a small delta be accepted?
            self.rules.check_design(
                canaries=self.canaries,
                claimed=self.claim.epsilon_at(_SMALL_DELTA),
                delta=_SMALL_DELTA,
                alpha=self.alpha,
            )
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{problem}; nor does it take a point of it ({error}): play by other "
                "rules"
            ) from error
        raise InvalidInputError(
            f"{problem}; claim ApproxDP(epsilon=curve.epsilon_at(delta), delta=delta) "
            "for a delta of your choice"
        )

    @property
    def bound_delta(self) -> float:
        """The delta at which the lower bound on epsilon is stated."""
        assert self.delta is not None  # resolved when the design was built
        return self.delta

    @property
    def guesses(self) -> int:
        """The maximum number of guesses under the rules."""
        return self.rules.max_guesses(self.canaries)

    @property
    def runs(self) -> int:
        """The number of independent runs in which the game is played."""
        return self.rules.runs(self.canaries)

    def _resolved(self) -> float:
        match self.claim:
            case ApproxDP(delta=own):
                pass
            case PureDP():
                own = 0.0
            case _ if self.delta is not None:
                own = self.delta
            case _:
                raise InvalidInputError(
                    f"the claim {self.claim} holds at many deltas; name the one at "
                    "which the lower bound shall be stated, e.g. delta=1e-5"
                )
        if self.delta not in (None, own):
            raise InvalidInputError(
                f"delta={self.delta!r} differs from that of the claim {self.claim}; "
                "leave it out"
            )
        _validate.probability("delta", own)
        return float(own)  # as JSON reads it back: equal designs have equal JSON


def _check_kinds(rules: Rules, claim: Guarantee) -> None:
    if not isinstance(rules, Rules):
        raise InvalidInputError(
            f"rules must be one of OneRun(guesses=...), Ranking(guesses=...) and so "
            f"on, got rules={rules!r}"
        )
    if not isinstance(claim, Guarantee):
        raise InvalidInputError(
            f"claim must be PureDP(epsilon=...), ApproxDP(epsilon=..., delta=...) and "
            f"so on, got claim={claim!r}"
        )


def check_independent_coins(design: Design) -> None:
    """Refuse rules for canaries without their own coins: a key draws one for each."""
    if not design.rules.independent_coins:
        raise InvalidRunError(
            f"{type(design.rules).__name__} is for a half that was drawn without a "
            "key; with a key every canary has a coin of its own: play by "
            "OneRun(guesses=...) or Ranking(guesses=...)"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment(Document):
    """Hashes that bind an auditor to a key and a design, and identify the run.

    Attributes:
        sha256: Hash of key and design.
        run_digest: Hash of the key alone: equal for all commitments of one run,
            whatever their designs.

    Example:
        >>> from dpaudit import OneRun
        >>> claim = ApproxDP(epsilon=1.0, delta=0.0)
        >>> design = Design(canaries=10, rules=OneRun(guesses=5), claim=claim)
        >>> commitment = Commitment.to(Key(bytes(32)), design)
        >>> commitment.holds_for(Key(bytes(32)), design)
        True
        >>> commitment.holds_for(Key.generate(), design)
        False
    """

    sha256: str
    run_digest: str

    form = "dpaudit.commitment.1"

    def __post_init__(self) -> None:
        _validate.sha256("sha256", self.sha256)
        _validate.sha256("run_digest", self.run_digest)

    @classmethod
    def to(cls, key: Key, design: Design) -> Self:
        """Return the commitment to a key and a design."""
        _validate.kind("key", key, Key)
        _validate.kind("design", design, Design)
        # The key's length is fixed, so the concatenation is unambiguous.
        message = b"dpaudit commitment 1" + key.secret + design.to_json().encode()
        run = b"dpaudit run 1" + key.secret
        return cls(
            sha256=hashlib.sha256(message).hexdigest(),
            run_digest=hashlib.sha256(run).hexdigest(),
        )

    def holds_for(self, key: Key, design: Design) -> bool:
        """Return whether this is the commitment to that key and that design."""
        return Commitment.to(key, design) == self

    def is_of_run(self, other: "Commitment") -> bool:
        """Return whether both are of one run, that is, were made with one key."""
        return self.run_digest == other.run_digest or self.sha256 == other.sha256
