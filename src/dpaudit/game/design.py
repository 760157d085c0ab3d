"""What is fixed before a run, and the commitment that shows it was.

The validity of an audit rests on what was chosen without looking: how many canaries,
which rules, which claim, which level. All of it is the design; it is public. The
commitment is the SHA-256 of the key and the design's canonical JSON. Published before
the run, it binds the auditor to both and shows nothing of the coins; with the key
revealed afterwards, anyone can check it and derive the coins again.

The coins come from the key alone. So a run is known by its key, whatever design it is
judged by, and the commitment names it by a second hash, of the key alone.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import isfinite
from typing import Any, Final, Self, final

from dpaudit import _canonical, _validate
from dpaudit._codec import Document
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.coins import Key
from dpaudit.game.rules import Rules
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP

__all__ = [
    "About",
    "Commitment",
    "Design",
    "ThreatModel",
    "Unit",
    "check_own_coins",
]

_SMALL: Final = 1e-12  # a delta that costs next to nothing


class ThreatModel(StrEnum):
    """What the guesser sees of a run."""

    ALL_ITERATES = "an observer of every iterate"
    KNOWN_RECORDS = "an observer of every iterate who knows the other records' part"
    FINAL_MODEL = "an observer of the final model only"
    OUTPUT = "an observer of the output"

    @property
    def plain(self) -> str:
        """Who that is, in plain words."""
        return _WHO[self]


class Unit(StrEnum):
    """What one canary stands for, and whose privacy is claimed."""

    RECORD = "record"
    USER = "user"


_WHO = {
    ThreatModel.ALL_ITERATES: "somebody who sees the model at every step",
    ThreatModel.KNOWN_RECORDS: "somebody who sees the model at every step and knows "
    "all other records",
    ThreatModel.FINAL_MODEL: "somebody who sees the final model only",
    ThreatModel.OUTPUT: "somebody who sees the output",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Design(Document):
    """Everything that an audit fixes beforehand.

    Attributes:
        canaries: How many canaries, each decided by its own fair coin.
        rules: What is revealed when, and what of the guesses is fixed.
        claim: What the mechanism is claimed to satisfy.
        delta: Where the lower bound on epsilon is stated. A claim with a delta of its
            own sets it; a claim that is a whole curve needs it named.
        alpha: Chance of a wrong statement that the auditor accepts.
        threat_model: What the guesser will see.
        setting: Whatever else is fixed beforehand, for the record.

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
    setting: Mapping[str, _canonical.Scalar] = field(default_factory=dict)

    form = "dpaudit.design.1"

    def __post_init__(self) -> None:
        _check_kinds(self.rules, self.claim)
        _validate.kind("threat_model", self.threat_model, ThreatModel)
        _validate.whole_number("canaries", self.canaries, least=1)
        _validate.error_level("alpha", self.alpha)
        self._check_points()
        for name, value in (
            ("canaries", int(self.canaries)),
            ("alpha", float(self.alpha)),
            ("delta", self._resolved()),
            ("setting", _settings(self.setting)),
        ):
            object.__setattr__(self, name, value)
        if self.guesses > self.canaries:
            raise InvalidInputError(
                f"cannot guess guesses={self.guesses} of canaries={self.canaries}"
            )
        self.rules.check_price(
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
        said = (
            f"{type(self.rules).__name__} tests a claim at one point, and "
            f"{self.claim} is a whole curve"
        )
        try:  # would a point of it do, if its delta is small enough?
            self.rules.check_price(
                canaries=self.canaries,
                claimed=self.claim.epsilon_at(_SMALL),
                delta=_SMALL,
                alpha=self.alpha,
            )
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{said}; nor does it take a point of it ({error}): play by other rules"
            ) from error
        raise InvalidInputError(
            f"{said}; claim ApproxDP(epsilon=curve.epsilon_at(delta), delta=delta) for "
            "a delta of your choice"
        )

    @property
    def about(self) -> "About":
        """What code reads of the setting."""
        return About.of(self.setting)

    @property
    def bound_delta(self) -> float:
        """Where the lower bound on epsilon is stated."""
        assert self.delta is not None  # resolved when the design was built
        return self.delta

    @property
    def guesses(self) -> int:
        """How many guesses the rules allow at most."""
        return self.rules.most(self.canaries)

    @property
    def runs(self) -> int:
        """In how many independent runs the game is played."""
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
        return float(own)  # as it is read back: equal designs, equal texts


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


def check_own_coins(design: Design) -> None:
    """Refuse rules for canaries without a coin each, where a key decides by coins."""
    if not design.rules.own_coins:
        raise VoidAuditError(
            f"{type(design.rules).__name__} is for a half that was drawn without a "
            "key; with a key every canary has a coin of its own: play by "
            "OneRun(guesses=...) or Ranking(guesses=...)"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """All that code reads of a design's ``setting``; the rest of it is for people.

    None where the setting does not say it, or says it in another type.

    Attributes:
        tie_seed: Fixes the lots between equal scores; zero or more.
        steps: Of a training.
        rate: With which a training samples its records.
        noise: Of a training, over its clipping norm.
        turns: Whose turn it is to join a step, in words, if canaries take turns.
        strategy: How noise is correlated from step to step, in words.
        shown_steps: Steps that show as much by themselves as turns and strategy do.
        shown_noise: The noise of those.
        unit: What one canary stands for.
        per_coordinate: Canaries at each coordinate of a training.
        canary_norm: Norm of a canary over the clipping norm.
        canary_spread: Coordinates that a canary is spread over.
        framework: That the training runs in.
        expected_epsilon: The bound that a plan expects.
        program_sha256: Of the program that is audited.
        nonce: That a verifier asked for.
        pooled_runs: How many runs there are whose counts are added up, this one among
            them; without it p-values are combined.

    Example:
        >>> About.of({"tie_seed": 7, "rate": "low", "model": "ours"}).tie_seed
        7
        >>> About.of({"tie_seed": 7, "rate": "low", "model": "ours"}).rate is None
        True
    """

    tie_seed: int | None = None
    steps: int | None = None
    rate: float | None = None
    noise: float | None = None
    turns: str | None = None
    strategy: str | None = None
    shown_steps: int | None = None
    shown_noise: float | None = None
    unit: str | None = None
    per_coordinate: int | None = None
    canary_norm: float | None = None
    canary_spread: float | None = None
    framework: str | None = None
    expected_epsilon: float | None = None
    program_sha256: str | None = None
    nonce: str | None = None
    pooled_runs: int | None = None

    @classmethod
    def of(cls, setting: Mapping[str, _canonical.Scalar]) -> Self:
        """Return what a setting says."""
        said = dict(setting)
        if "sample_rate" in said:  # as some frameworks call it
            said["rate"] = said["sample_rate"]
        return cls(**{f.name: _typed(said.get(f.name), f.type) for f in fields(cls)})


def _typed(value: _canonical.Scalar, form: object) -> Any:  # noqa: ANN401 (as the field)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if form == int | None:
        return value if whole and value >= 0 else None  # type: ignore[operator]
    if form == float | None:
        return float(value) if whole or isinstance(value, float) else None  # type: ignore[arg-type]
    return value if isinstance(value, str) else None


def _settings(
    setting: Mapping[str, _canonical.Scalar],
) -> dict[str, _canonical.Scalar]:
    """Return a copy that nobody else can change, if it can be written."""
    plain = isinstance(setting, Mapping) and all(
        isinstance(name, str) and isinstance(value, str | int | float | None)
        for name, value in setting.items()
    )
    if not plain or not all(map(_can_be_written, setting.values())):
        raise InvalidInputError(
            "setting must map names to text, finite numbers (below 1e308), true, false "
            f"or null, got setting={_shown(setting)}"
        )
    return dict(setting)


def _can_be_written(value: _canonical.Scalar) -> bool:
    try:
        return not isinstance(value, int | float) or isfinite(value)
    except OverflowError:
        return False


def _shown(setting: object) -> str:
    try:
        return repr(setting)
    except ValueError:  # of whole numbers with more than 4,300 digits
        return "numbers of thousands of digits"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment(Document):
    """Hashes that bind an auditor to a key and a design, and name the run.

    Attributes:
        sha256: Of key and design.
        run: Of the key alone: two commitments of one run have the same, whatever their
            designs.

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
    run: str

    form = "dpaudit.commitment.1"

    def __post_init__(self) -> None:
        _validate.sha256("sha256", self.sha256)
        _validate.sha256("run", self.run)

    @classmethod
    def to(cls, key: Key, design: Design) -> Self:
        """Return the commitment to a key and a design."""
        _validate.kind("key", key, Key)
        _validate.kind("design", design, Design)
        # The key's length is fixed, so key and design cannot run into each other.
        message = b"dpaudit commitment 1" + key.secret + design.to_json().encode()
        run = b"dpaudit run 1" + key.secret
        return cls(
            sha256=hashlib.sha256(message).hexdigest(),
            run=hashlib.sha256(run).hexdigest(),
        )

    def holds_for(self, key: Key, design: Design) -> bool:
        """Return whether this is the commitment to that key and that design."""
        return Commitment.to(key, design) == self

    def is_of_run(self, other: "Commitment") -> bool:
        """Return whether both are known to be of one run: they were made by one key."""
        return self.run == other.run or self.sha256 == other.sha256
