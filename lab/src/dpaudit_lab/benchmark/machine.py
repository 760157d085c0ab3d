"""When and where figures were taken: a day, the versions of what took part."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

__all__ = ["cores", "today", "versions"]

_TAKING_PART = (
    "dpaudit",
    "numpy",
    "scipy",
    "jax-privacy",
    "privacyguard-platform",
    "loky",
    "ray",
    "torch",
    "opacus",
    "pyarrow",
)


def today() -> str:
    """Return the date, in UTC."""
    return datetime.now(UTC).date().isoformat()


def cores() -> int:
    """Return how many processors this machine has."""
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Return the versions of what takes part and is installed, Python first.

    Example:
        >>> list(versions())[:3]
        ['Python', 'dpaudit', 'numpy']
    """
    found = {"Python": platform.python_version()}
    for name in _TAKING_PART:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
