"""The privacy-relevant history of a training run: its steps, noise and sampling.

The format is that of an Opacus accountant's ``history``: triples of noise multiplier,
Poisson sample rate and number of steps, in any order, repeated or not.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import isfinite
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError

__all__ = ["History", "noise_of_steps", "steps_by_kind"]

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


def noise_of_steps(history: History, steps: int) -> NDArray[np.float64] | None:
    """Return the noise multiplier of each step, if a history determines it.

    Args:
        history: Triples of noise multiplier, sample rate and number of steps, in the
            order of the steps.
        steps: The number of steps made. If it differs from the number accounted for,
            the multiplier of each step is unknown, unless all are equal.

    Example:
        >>> noise_of_steps([(1.0, 0.1, 2), (0.5, 0.1, 1)], 3)
        array([1. , 1. , 0.5])
        >>> noise_of_steps([(1.0, 0.1, 2), (0.5, 0.1, 1)], 4) is None
        True
    """
    noise = np.array([float(multiplier) for multiplier, _, _ in history])
    counted = np.array([int(number) for _, _, number in history], np.int64)
    if len(np.unique(noise)) == 1:
        return np.full(steps, noise[0])
    return np.repeat(noise, counted) if counted.sum() == steps and steps else None


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
    """Check that the value is a noise multiplier that gives any privacy."""
    if not (isfinite(value) and value > 0):
        raise InvalidInputError(
            f"{name} must be finite and > 0, got {value!r}; without noise there is "
            "no guarantee to audit"
        )


def sample_rate(name: str, value: float) -> None:
    """Check that the value is a valid Poisson sampling rate."""
    if not 0 < value <= 1:
        raise InvalidInputError(f"{name} must be in (0, 1], got {value!r}")
