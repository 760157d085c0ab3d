"""What a training run did to privacy: so many steps with this noise and sampling.

The shape is that of an Opacus accountant's ``history``: triples of noise multiplier,
Poisson sample rate and number of steps, in any order, repeated or not.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import isfinite
from typing import TypeAlias

from dpaudit import _validate
from dpaudit.errors import InvalidInputError

__all__ = ["History", "steps_by_kind"]

History: TypeAlias = Sequence[tuple[float, float, int]]


def steps_by_kind(history: History) -> dict[tuple[float, float], int]:
    """Return the number of steps for each noise multiplier and sample rate."""
    if len(history) == 0:
        raise InvalidInputError(
            "history is empty: no step has been accounted for, so there is no claim; "
            "pass the accountant after training"
        )
    kinds: dict[tuple[float, float], int] = defaultdict(int)
    for index, entry in enumerate(history):
        noise, rate, steps = _triple(f"history[{index}]", entry)
        kinds[noise, rate] += steps
    return dict(kinds)


def _triple(name: str, entry: tuple[float, float, int]) -> tuple[float, float, int]:
    try:
        noise, rate, steps = entry
        triple = float(noise), float(rate), int(steps)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} must be (noise multiplier, sample rate, steps), got {entry!r}"
        ) from error
    positive_noise(f"{name}: noise multiplier", triple[0])
    sample_rate(f"{name}: sample rate", triple[1])
    try:
        _validate.whole_number("steps", steps, least=1)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    return triple


def positive_noise(name: str, value: float) -> None:
    """Check that the value can be a noise multiplier that gives any privacy."""
    if not (isfinite(value) and value > 0):
        raise InvalidInputError(
            f"{name} must be finite and > 0, got {value!r}; without noise there is "
            "no guarantee to audit"
        )


def sample_rate(name: str, value: float) -> None:
    """Check that the value can be the rate of a Poisson sampler."""
    if not 0 < value <= 1:
        raise InvalidInputError(f"{name} must be in (0, 1], got {value!r}")
