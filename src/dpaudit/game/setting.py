"""What a design records besides its game: training run, canaries, hashes, notes.

Code reads some of it: how ties are broken, how many runs are pooled, how many canaries
share a coordinate, what a plan expected. So every entry that code reads or writes has a
name and a type here, and any other name is refused, as it may be a misspelling of one
that matters. Other information for people goes into ``notes``.

All of it is part of the design, and so bound by its commitment. Entries with default
values are not written; what is written is read back as equal values.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from math import isfinite
from typing import ClassVar, Final, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _canonical, _validate
from dpaudit._codec import decoded_fields, encode
from dpaudit.errors import InvalidInputError
from dpaudit.game.configuration import Participation

__all__ = [
    "CanaryInsertion",
    "InsertionPoint",
    "MatrixStrategy",
    "Setting",
    "StrategySetting",
    "ToeplitzStrategy",
    "Unit",
    "sha256_of",
]


class Unit(StrEnum):
    """The unit of privacy: what one canary stands for."""

    RECORD = "record"
    USER = "user"


class InsertionPoint(StrEnum):
    """The form of a canary where it enters the training run."""

    GRADIENT_SUM = "gradient-sum"
    GRADIENT = "gradient"
    EXAMPLE = "example"
    USER = "user"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryInsertion:
    """Where canaries enter a training run, and how large they are.

    Attributes:
        point: The form of a canary at that point.
        norm: Norm before clipping, over the clipping norm; None if that is not known.
        least_norm: The same for the smallest canary, if norms differ.
        gradient_norm: Norm before clipping, in the program's own units.
        spread: How many coordinates a canary is spread over.
        sampled: Whether the program's own sampler selects canary users.
        users: Their numbers, if the program's sampler selects them by number.
        examples: How many examples a canary user reports.
    """

    point: InsertionPoint
    norm: float | None = None
    least_norm: float | None = None
    gradient_norm: float | None = None
    spread: int = 1
    sampled: bool = False
    users: tuple[int, ...] = ()
    examples: int | None = None

    optional: ClassVar = (
        "norm",
        "least_norm",
        "gradient_norm",
        "spread",
        "sampled",
        "users",
        "examples",
    )

    def __post_init__(self) -> None:
        _validate.kind("point", self.point, InsertionPoint)
        _validate.make_whole(self, spread=1)
        object.__setattr__(self, "sampled", bool(self.sampled))
        for name in ("norm", "least_norm", "gradient_norm"):
            _make_float(self, name)
        _make_whole(self, "examples", least=1)
        object.__setattr__(self, "users", tuple(map(int, self.users)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ToeplitzStrategy:
    """A strategy for correlated noise whose columns are all equal.

    Attributes:
        steps: The number of steps.
        coefficients: Those of a column, from the diagonal down.
        normalized: Whether columns truncated at the end are scaled to the norm of the
            others.

    Example:
        >>> print(ToeplitzStrategy(steps=3, coefficients=(1.0, 0.5)))
        Toeplitz strategy of 3 steps, 2 bands, sha256 7ded32179961d3df
    """

    steps: int
    coefficients: tuple[float, ...]
    normalized: bool = False

    kind: ClassVar = "toeplitz"

    def __post_init__(self) -> None:
        _validate.make_whole(self, steps=1)
        object.__setattr__(self, "coefficients", tuple(map(float, self.coefficients)))
        object.__setattr__(self, "normalized", bool(self.normalized))
        if not self.coefficients or not all(map(isfinite, self.coefficients)):
            raise InvalidInputError(
                "coefficients must be finite numbers, the diagonal's first, got "
                f"coefficients={self.coefficients!r:.60}"
            )

    def __str__(self) -> str:
        scaled = ", columns of equal length" if self.normalized else ""
        return (
            f"Toeplitz strategy of {self.steps} steps, {len(self.coefficients)} bands"
            f"{scaled}, sha256 {sha256_of(self.coefficients)[:16]}"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixStrategy:
    """A strategy for correlated noise given by any lower triangular matrix.

    Attributes:
        steps: The number of steps; None if it is for any number.
        bands: Maximum number of entries of a column, from the diagonal down.
        sha256: Hash of its entries (``sha256_of``); None if they are not known before
            the run.
    """

    steps: int | None
    bands: int
    sha256: str | None

    kind: ClassVar = "matrix"

    def __post_init__(self) -> None:
        _make_whole(self, "steps", least=1)
        _validate.make_whole(self, bands=1)
        if self.sha256 is not None:
            _validate.sha256("sha256", self.sha256)

    def __str__(self) -> str:
        steps = "any number of" if self.steps is None else self.steps
        digest = "" if self.sha256 is None else f", sha256 {self.sha256[:16]}"
        return f"strategy of {steps} steps, {self.bands} bands{digest}"


StrategySetting: TypeAlias = ToeplitzStrategy | MatrixStrategy


def sha256_of(numbers: ArrayLike) -> str:
    """Return the SHA-256 of numbers as little-endian doubles, in hex digits."""
    data = np.ascontiguousarray(numbers, "<f8").tobytes()
    return hashlib.sha256(data).hexdigest()


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Setting:
    """What a design records besides its game; None where not stated.

    Attributes:
        framework: The framework of the training run.
        unit: The unit of privacy; a record by default.
        steps: The planned number of steps of the training run.
        rate: Probability that a record participates in a step, when it is its turn.
        noise: Noise multiplier, before noise is correlated.
        participation: The participation schedule; by default everyone in every step.
        strategy: How noise is correlated from step to step, if it is.
        equivalent_steps: The number of independent steps with full participation that
            show as much as ``participation`` and ``strategy`` do.
        equivalent_noise: The noise multiplier of those.
        coordinates: How many coordinates hold canaries.
        per_coordinate: Canaries at each of them.
        dimension: The total number of coordinates.
        norm_in_sum: Largest contribution of one record to a sum, in the program's
            units.
        insertion: Where canaries enter, and how large they are.
        expected_epsilon: The lower bound that a plan expects.
        detectable_factor: Noise this many times smaller than planned would be detected
            with probability 0.9, by the plan.
        canaries_sha256: Hash of the canaries' records.
        fillers_sha256: Hash of the records that replace excluded canaries.
        controls_sha256: Hash of the records that are always included.
        controls_repeats: How many times each of those is included.
        tie_seed: Seed of the tie-breaking where no key is used.
        pooled_runs: The number of runs whose counts are pooled, including this one; by
            default p-values are combined.
        program_sha256: Hash of the audited program.
        nonce: A text chosen by a verifier.
        notes: Any other information, for people.

    Example:
        >>> setting = Setting(tie_seed=7, notes={"model": "ours"})
        >>> encode(setting)
        {'tie_seed': 7, 'notes': {'model': 'ours'}}
        >>> Setting(model="ours")
        Traceback (most recent call last):
        dpaudit.errors.InvalidInputError: a setting has no entry 'model'; what is for \
people only goes into notes={'model': ...}
    """

    framework: str | None = None
    unit: Unit | None = None
    steps: int | None = None
    rate: float | None = None
    noise: float | None = None
    participation: Participation | None = None
    strategy: StrategySetting | None = None
    equivalent_steps: int | None = None
    equivalent_noise: float | None = None
    coordinates: int | None = None
    per_coordinate: int | None = None
    dimension: int | None = None
    norm_in_sum: float | None = None
    insertion: CanaryInsertion | None = None
    expected_epsilon: float | None = None
    detectable_factor: float | None = None
    canaries_sha256: str | None = None
    fillers_sha256: str | None = None
    controls_sha256: str | None = None
    controls_repeats: int | None = None
    tie_seed: int | None = None
    pooled_runs: int | None = None
    program_sha256: str | None = None
    nonce: str | None = None
    notes: Mapping[str, _canonical.Scalar] = field(default_factory=dict)

    optional: ClassVar[tuple[str, ...]]

    def __new__(cls, *given: object, **entries: object) -> Self:
        """Refuse names that are not entries, with a hint for each."""
        if given:
            raise InvalidInputError(
                "a setting takes its entries by name, such as Setting(tie_seed=7, "
                f'notes={{"model": "ours"}}); got {given[0]!r:.60}'
            )
        _check_names(entries)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            _make_whole(self, name, least=least)
        for name in _FLOATS:
            _make_float(self, name)
        for name, form in _VALUES.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, form):
                raise InvalidInputError(
                    f"{name} of a setting must be {_called(form)}, got "
                    f"{name}={value!r:.60}"
                )
        if self.rate is not None:
            _validate.rate("rate", self.rate)
        for name in _DIGESTS:
            if getattr(self, name) is not None:
                _validate.sha256(name, getattr(self, name))
        object.__setattr__(self, "notes", _notes(self.notes))

    def __repr__(self) -> str:
        entries = (f"{name}={getattr(self, name)!r}" for name in encode(self))
        return f"Setting({', '.join(entries)})"

    def __hash__(self) -> int:
        return hash(_canonical.text(encode(self)))

    @property
    def schedule(self) -> tuple[str, str] | None:
        """Participation schedule and noise correlation, in words.

        None if everyone may participate in every step and noise is independent.
        """
        if self.participation is None and self.strategy is None:
            return None
        when = self.participation or Participation()
        return str(when), str(self.strategy or "independent noise")

    @classmethod
    def of_plain(cls, plain: object) -> Self:
        """Return the setting that parsed JSON contains."""
        if not isinstance(plain, dict):
            raise InvalidInputError(f"setting must be an object, got {plain!r:.60}")
        _check_names(plain)
        return cls(**decoded_fields(cls, plain, "setting"))

    def with_entries(self, other: "Setting") -> "Setting":
        """Return this setting with the entries of another replacing its own."""
        entries = {each: getattr(other, each) for each in encode(other)}
        notes = {**self.notes, **other.notes}
        return replace(self, **{**entries, "notes": notes})


Setting.optional = tuple(each.name for each in fields(Setting))
_WHOLE: Final = {
    "steps": 1,
    "equivalent_steps": 1,
    "coordinates": 1,
    "per_coordinate": 1,
    "dimension": 1,
    "controls_repeats": 1,
    "tie_seed": 0,
    "pooled_runs": 1,
}
_FLOATS: Final = (
    "rate",
    "noise",
    "equivalent_noise",
    "norm_in_sum",
    "expected_epsilon",
    "detectable_factor",
)
_VALUES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "framework": str,
    "unit": Unit,
    "participation": Participation,
    "strategy": (ToeplitzStrategy, MatrixStrategy),
    "insertion": CanaryInsertion,
    "nonce": str,
}
_DIGESTS: Final = (
    "canaries_sha256",
    "fillers_sha256",
    "controls_sha256",
    "program_sha256",
)


def _check_names(entries: Mapping[str, object]) -> None:
    """Refuse names that are not entries of a setting."""
    for name in entries:
        if name not in Setting.optional:
            near = get_close_matches(str(name), Setting.optional, 1)
            hint = f", did you mean {near[0]}? What" if near else "; what"
            raise InvalidInputError(
                f"a setting has no entry {name!r:.60}{hint} is for people only goes "
                f"into notes={{{name!r:.60}: ...}}"
            )


def _called(form: type | tuple[type, ...]) -> str:
    forms = form if isinstance(form, tuple) else (form,)
    return " or ".join("a text" if each is str else each.__name__ for each in forms)


def _make_whole(frozen: object, name: str, *, least: int) -> None:
    value = getattr(frozen, name)
    if isinstance(value, bool):
        raise InvalidInputError(f"{name} must be a whole number, got {name}={value!r}")
    if value is not None:
        _validate.make_whole(frozen, **{name: least})


def _make_float(frozen: object, name: str) -> None:
    value = getattr(frozen, name)
    if value is not None:
        _validate.nonnegative(name, value)
        object.__setattr__(frozen, name, float(value))  # equal values have equal JSON


def _notes(notes: Mapping[str, _canonical.Scalar]) -> dict[str, _canonical.Scalar]:
    """Return a private copy of notes; refuse values that JSON cannot hold."""
    plain = isinstance(notes, Mapping) and all(
        isinstance(name, str) and isinstance(value, str | int | float | None)
        for name, value in notes.items()
    )
    if not plain or not all(map(_can_be_written, notes.values())):
        raise InvalidInputError(
            "notes must map names to text, finite numbers (below 1e308), true, false "
            f"or null, got notes={_shown(notes)}"
        )
    return dict(notes)


def _can_be_written(value: _canonical.Scalar) -> bool:
    try:
        return not isinstance(value, int | float) or isfinite(value)
    except OverflowError:
        return False


def _shown(notes: object) -> str:
    try:
        return repr(notes)
    except ValueError:  # of whole numbers with more than 4,300 digits
        return "numbers of thousands of digits"
