"""A check that several mechanisms share."""

from typing import Any

from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = ["one_each"]


def one_each(data: NDArray[Any], elements: int) -> None:
    """Check that the data hold one row per element."""
    if len(data) != elements:
        raise InvalidInputError(
            f"the mechanism was built for elements={elements}, got data of "
            f"{len(data)}; give one row per element"
        )
