"""Checks shared by every constructor; each names the argument and shows its value."""

import math

from dpaudit.errors import InvalidInputError


def whole_number(name: str, value: int, *, least: int = 0) -> None:
    """Check that the value is a whole number, ``least`` or more."""
    if not (math.isfinite(value) and value == int(value) and value >= least):
        raise InvalidInputError(
            f"{name} must be a whole number >= {least}, got {name}={value!r}"
        )


def nonnegative(name: str, value: float) -> None:
    """Check that the value is a finite number, zero or more."""
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInputError(
            f"{name} must be a finite number >= 0, got {name}={value!r}"
        )


def positive(name: str, value: float) -> None:
    """Check that the value is a finite number above zero."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInputError(
            f"{name} must be a finite number > 0, got {name}={value!r}"
        )


def probability(name: str, value: float) -> None:
    """Check that the value lies in [0, 1]."""
    if math.isnan(value) or not 0 <= value <= 1:
        raise InvalidInputError(f"{name} must be in [0, 1], got {name}={value!r}")


def error_level(name: str, value: float) -> None:
    """Check that the value can be an allowed probability of error."""
    if 0.5 <= value < 1:
        raise InvalidInputError(
            f"{name} is the chance of being wrong and must be below 0.5, got "
            f"{name}={value!r}; for confidence {value:g} pass {1 - value:.6g}"
        )
    if math.isnan(value) or not 0 < value < 1:
        raise InvalidInputError(f"{name} must be in (0, 0.5), got {name}={value!r}")
