"""Checks that the mechanisms share; each names the argument and shows its value."""

import math
from typing import Any

from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError


def positive(name: str, value: float) -> None:
    """Check that the value is a finite number above zero."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInputError(
            f"{name} must be a finite number > 0, got {name}={value!r}"
        )


def one_each(data: NDArray[Any], elements: int) -> None:
    """Check that the data hold one row per element."""
    if len(data) != elements:
        raise InvalidInputError(
            f"the mechanism was built for elements={elements}, got data of "
            f"{len(data)}; give one row per element"
        )
