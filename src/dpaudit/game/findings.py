"""Observations of an audit as values: a code, a status, numbers, names.

A finding holds as data what a reader gets as a sentence. Code that decides, compares or
verifies reads its code and numbers; sentences are rendered last, in one place, for one
unit of privacy (``dpaudit.game.text``). So wording can change without changing
evidence, and the name of a parameter is never confused with the text around it.

The helpers below create findings by what they mean to the audit:

- sanity checks, whether the audit could have seen an effect: ``passed``, or
  ``inconclusive`` or ``invalid`` if they failed;
- checks of a pipeline stage: ``canary_tested``, ``inspected``, ``not_checked``,
  ``not_applicable``;
- ``fault``: something that is wrong, whatever the claim;
- ``noted``: a remark that no verdict depends on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isclose, isfinite
from typing import Final, TypeAlias, final

import numpy as np

from dpaudit import _validate
from dpaudit._canonical import Scalar
from dpaudit.errors import InvalidInputError, on_one_line

__all__ = [
    "FALSE_POSITIVE_RATE",
    "NOISE_SHARE",
    "SAMPLING_SHARE",
    "Finding",
    "Hypothesis",
    "Stage",
    "Status",
    "agree",
    "canary_tested",
    "fault",
    "inconclusive",
    "inspected",
    "invalid",
    "not_applicable",
    "not_checked",
    "noted",
    "passed",
]

FALSE_POSITIVE_RATE: Final = 1e-4  # probability of a fault reported in a correct run
NOISE_SHARE: Final = 0.5  # share of that rate for all tests of the noise
SAMPLING_SHARE: Final = 0.5  # share of that rate for all tests of batch sampling
_RELATIVE_TOLERANCE: Final = 1e-6  # between machines
_DIGITS: Final = 9  # of a number; order of summation changes the last of sixteen

Number: TypeAlias = Scalar | np.generic


@final
class Hypothesis(StrEnum):
    """A hypothesis of the accountant's theorem about a run, H1 to H6.

    A run that satisfies all of them is private, whatever else it does.

    Attributes:
        INDEPENDENT_BATCHES: Each private step uses one fresh batch, which holds each
            record independently at the accounted rate.
        BOUNDED_SENSITIVITY: One record changes the sum before noise by at most the
            clipping norm.
        FRESH_NOISE: The noise of a step is Gaussian, of the accounted scale, and
            independent of everything else.
        NOISY_SUMS_ONLY: What comes after depends on records through the noisy sums
            alone.
        COMPLETE_ACCOUNTING: Every step is accounted for as it was made.
        RELEASED_MODEL: The released model is the one that was trained.
    """

    INDEPENDENT_BATCHES = "independent-batches"
    BOUNDED_SENSITIVITY = "bounded-sensitivity"
    FRESH_NOISE = "fresh-noise"
    NOISY_SUMS_ONLY = "noisy-sums-only"
    COMPLETE_ACCOUNTING = "complete-accounting"
    RELEASED_MODEL = "released-model"


@final
class Stage(StrEnum):
    """A pipeline stage between a record and the model, in the order of the pipeline."""

    SAMPLING = "batch-sampling"
    GRADIENTS = "per-example-gradients"
    CLIPPING = "clipping"
    AGGREGATION = "gradient-aggregation"
    NOISE_SCALE = "noise-scale"
    NOISE_INDEPENDENCE = "noise-independence"
    ACCOUNTING = "privacy-accounting"
    SIDE_PATHS = "side-paths"
    RELEASED_MODEL = "released-model"

    @property
    def hypothesis(self) -> Hypothesis:
        """The hypothesis to which this stage belongs."""
        return _HYPOTHESES[self]


_HYPOTHESES: Final[Mapping[Stage, Hypothesis]] = {
    Stage.SAMPLING: Hypothesis.INDEPENDENT_BATCHES,
    Stage.GRADIENTS: Hypothesis.BOUNDED_SENSITIVITY,
    Stage.CLIPPING: Hypothesis.BOUNDED_SENSITIVITY,
    Stage.AGGREGATION: Hypothesis.BOUNDED_SENSITIVITY,
    Stage.NOISE_SCALE: Hypothesis.FRESH_NOISE,
    Stage.NOISE_INDEPENDENCE: Hypothesis.FRESH_NOISE,
    Stage.ACCOUNTING: Hypothesis.COMPLETE_ACCOUNTING,
    Stage.SIDE_PATHS: Hypothesis.NOISY_SUMS_ONLY,
    Stage.RELEASED_MODEL: Hypothesis.RELEASED_MODEL,
}


@final
class Status(StrEnum):
    """What a finding means to the audit."""

    PASSED = "passed"
    INCONCLUSIVE = "inconclusive"
    INVALID_RUN = "invalid run"
    TESTED = "tested with canaries"
    INSPECTED = "inspected"
    NOT_CHECKED = "not checked"
    ACCEPTED = "not checked, accepted by the user"
    NOT_APPLICABLE = "not applicable"
    FAULT = "fault"
    NOTED = "noted"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One observation.

    Attributes:
        code: Its kind; the text module has a sentence for each code.
        status: What it means to the audit.
        stage: The pipeline stage that it concerns, if any.
        numbers: What was measured, by name, to nine digits. Numbers that are not finite
            are kept as text, as JSON cannot represent them.
        subject: Names of the parameters, modules or optimizers concerned.
        probability: For a fault, an upper bound on its probability in a run without a
            fault, over all that was tested; 0 if no probability is involved.

    Example:
        >>> found = Finding(code="ties", status=Status.PASSED, numbers={"decided": 3})
        >>> found.numbers["decided"], found.status.value
        (3, 'passed')
    """

    code: str
    status: Status
    stage: Stage | None = None
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    subject: tuple[str, ...] = ()
    probability: float = 0.0

    def __post_init__(self) -> None:
        _validate.probability("probability", self.probability)
        plain = {name: _plain(value) for name, value in self.numbers.items()}
        texts = (self.code, *plain, *plain.values(), *self.subject)
        for each in texts:
            if isinstance(each, str) and not each.isprintable():
                raise InvalidInputError(
                    f"a finding holds text that can be printed, got {each!r:.60}"
                )
        object.__setattr__(self, "numbers", plain)
        object.__setattr__(self, "probability", float(self.probability))

    def __hash__(self) -> int:
        return hash((self.code, self.status, self.stage, self.subject))


def _plain(value: Number) -> Scalar:
    """Return a number rounded for JSON; text if it is not finite."""
    plain: Scalar = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, float):
        return plain
    return float(f"{plain:.{_DIGITS}g}") if isfinite(plain) else str(plain)


def agree(one: Finding, other: Finding) -> bool:
    """Return whether two findings are equal up to rounding of their numbers.

    Example:
        >>> agree(passed("slope", value=1.0), passed("slope", value=1.0 + 1e-9))
        True
        >>> agree(passed("slope", value=1.0), inconclusive("slope", value=1.0))
        False
    """
    return (
        (one.code, one.status, one.stage, one.subject)
        == (other.code, other.status, other.stage, other.subject)
        and one.numbers.keys() == other.numbers.keys()
        and all(
            _close(value, other.numbers[name]) for name, value in one.numbers.items()
        )
        and _close(one.probability, other.probability)
    )


def _close(one: Scalar, other: Scalar) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=_RELATIVE_TOLERANCE)
    return one == other


def _printable(numbers: Mapping[str, Number]) -> dict[str, Scalar]:
    """Return numbers with text on one line, as text from others may hold anything."""
    return {
        name: on_one_line(value) if isinstance(value, str) else _plain(value)
        for name, value in numbers.items()
    }


def passed(code: str, subject: Iterable[str] = (), /, **numbers: Number) -> Finding:
    """Return a sanity check that passed."""
    return _finding(Status.PASSED, code, subject, numbers)


def inconclusive(
    code: str, subject: Iterable[str] = (), /, **numbers: Number
) -> Finding:
    """Return a sanity check that makes the audit inconclusive."""
    return _finding(Status.INCONCLUSIVE, code, subject, numbers)


def invalid(code: str, subject: Iterable[str] = (), /, **numbers: Number) -> Finding:
    """Return a sanity check that makes the run invalid: not the one designed."""
    return _finding(Status.INVALID_RUN, code, subject, numbers)


def noted(code: str, subject: Iterable[str] = (), /, **numbers: Number) -> Finding:
    """Return a remark that no verdict depends on."""
    return _finding(Status.NOTED, code, subject, numbers)


def canary_tested(
    stage: Stage, code: str, subject: Iterable[str] = (), /, **numbers: Number
) -> Finding:
    """Return the finding that canaries tested a stage."""
    return _finding(Status.TESTED, code, subject, numbers, stage)


def inspected(
    stage: Stage, code: str, subject: Iterable[str] = (), /, **numbers: Number
) -> Finding:
    """Return the finding that a stage was inspected."""
    return _finding(Status.INSPECTED, code, subject, numbers, stage)


def not_checked(
    stage: Stage, code: str, subject: Iterable[str] = (), /, **numbers: Number
) -> Finding:
    """Return the finding why a stage was not checked, or what would check it."""
    return _finding(Status.NOT_CHECKED, code, subject, numbers, stage)


def not_applicable(
    stage: Stage, code: str, subject: Iterable[str] = (), /, **numbers: Number
) -> Finding:
    """Return the finding why there is nothing to check at a stage."""
    return _finding(Status.NOT_APPLICABLE, code, subject, numbers, stage)


def fault(
    stage: Stage,
    code: str,
    subject: Iterable[str] = (),
    /,
    *,
    probability: float = 0.0,
    **numbers: Number,
) -> Finding:
    """Return a fault at a stage, which is wrong whatever the claim."""
    return _finding(Status.FAULT, code, subject, numbers, stage, probability)


def _finding(
    status: Status,
    code: str,
    subject: Iterable[str],
    numbers: Mapping[str, Number],
    stage: Stage | None = None,
    probability: float = 0.0,
) -> Finding:
    return Finding(
        code=code,
        status=status,
        stage=stage,
        numbers=_printable(numbers),
        subject=tuple(map(on_one_line, subject)),
        probability=float(probability),
    )
