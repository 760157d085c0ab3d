"""Search along a line where a yes turns once, for good, into a no."""

from collections.abc import Callable

from dpaudit.errors import UncertifiedError

__all__ = ["largest_yes"]


def largest_yes(
    holds: Callable[[float], bool], *, tol: float = 1e-9, limit: float = 1e6
) -> float:
    """Return the largest ``x >= 0`` at which ``holds`` is still true, or 0.0 if none.

    The answer errs low: ``holds`` was seen to be true at the value returned, and
    the true turning point is at most ``tol`` above it.

    Args:
        holds: True up to some point and false after it.
        tol: Width at which the search stops.
        limit: Where to give up looking for a false.

    Raises:
        UncertifiedError: ``holds`` is still true at ``limit``.

    Example:
        >>> round(largest_yes(lambda x: x * x <= 2), 4)
        1.4142
    """
    if not holds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
        if high > limit:
            raise UncertifiedError(f"no turning point below limit={limit:g}")
    while high - low > tol:
        middle = (low + high) / 2
        if middle in (low, high):  # adjacent floats: as close as floats go
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
