"""Checks shared by every constructor; each names the argument and shows its value."""

import math
from os import PathLike
from re import fullmatch
from typing import Final

from dpaudit.errors import InvalidInputError

_MOST: Final = 2**63 - 1  # that can be counted
_LOAD: Final = "dpaudit.load(path) reads one from a file"
_WAYS: Final = {  # to have one
    "Key": "Key.read(path) reads one from a file, Key.generate() makes one",
    "Design": _LOAD,
    "Result": _LOAD,
    "Evidence": "evidence_of(result, key=key) makes one",
    "Adjacency": "such as Adjacency.ADD_REMOVE",
    "ThreatModel": "such as ThreatModel.OUTPUT",
}


def whole_number(name: str, value: int, *, least: int = 0) -> None:
    """Check that the value is a whole number, ``least`` or more, of 64 bits."""
    if not (_is_finite(name, value) and value == int(value) and value >= least):
        raise InvalidInputError(
            f"{name} must be a whole number >= {least}, got {name}={value!r}"
        )
    if value > _MOST:
        raise InvalidInputError(
            f"{name} must be a whole number below 2**63, got {name}={value:.3g}"
        )


def make_whole(frozen: object, **least: int) -> None:
    """Check that fields are whole numbers, and make them ints: 3.0 is one too."""
    for name, smallest in least.items():
        value = getattr(frozen, name)
        whole_number(name, value, least=smallest)
        object.__setattr__(frozen, name, int(value))


def nonnegative(name: str, value: float) -> None:
    """Check that the value is a finite number, zero or more."""
    if not (_is_finite(name, value) and value >= 0):
        raise InvalidInputError(
            f"{name} must be a finite number >= 0, got {name}={value!r}"
        )


def positive(name: str, value: float) -> None:
    """Check that the value is a finite number above zero."""
    if not (_is_finite(name, value) and value > 0):
        raise InvalidInputError(
            f"{name} must be a finite number > 0, got {name}={value!r}"
        )


def probability(name: str, value: float) -> None:
    """Check that the value lies in [0, 1]."""
    if not (_is_finite(name, value) and 0 <= value <= 1):
        raise InvalidInputError(f"{name} must be in [0, 1], got {name}={value!r}")


def rate(name: str, value: float) -> None:
    """Check that the value lies in (0, 1]."""
    if not (_is_finite(name, value) and 0 < value <= 1):
        raise InvalidInputError(f"{name} must be in (0, 1], got {name}={value!r}")


def kind(name: str, value: object, wanted: type, way: str = "") -> None:
    """Check that the value is of a class; if not, explain how to make one."""
    if not isinstance(value, wanted):
        called = wanted.__name__
        way = way or _WAYS.get(called, f"make one with {called}(...)")
        article = "an" if called[0] in "AEIO" else "a"
        given = f"{name}={value!r:.60}"
        if called == "Key":  # what was given may be the secret itself
            given = f"{name} of type {type(value).__name__}"
        raise InvalidInputError(
            f"{name} must be {article} {called}, got {given}; {way}"
        )


def path(name: str, value: object) -> None:
    """Check that the value names a file."""
    if not isinstance(value, str | PathLike):
        raise InvalidInputError(
            f"{name} must be the path of a file, got {name}={value!r:.60}"
        )


def generator(name: str, value: object) -> None:
    """Check that the value is a random generator of numpy's."""
    if not hasattr(value, "bit_generator"):
        raise InvalidInputError(
            f"{name} must be a generator, got {name}={value!r:.60}; pass "
            "np.random.default_rng(...)"
        )


def sha256(name: str, value: str) -> None:
    """Check that the value is a SHA-256 in hex digits."""
    if not (isinstance(value, str) and fullmatch("[0-9a-f]{64}", value)):
        raise InvalidInputError(
            f"{name} must be 64 hex digits, got {name}={value!r:.80}"
        )


def error_level(name: str, value: float) -> None:
    """Check that the value can be an allowed probability of error."""
    finite = _is_finite(name, value)
    if finite and 0.5 <= value < 1:
        raise InvalidInputError(
            f"{name} is the significance level and must be below 0.5, got "
            f"{name}={value!r}; for confidence {value:g} pass {1 - value:.6g}"
        )
    if not (finite and 0 < value < 1):
        raise InvalidInputError(f"{name} must be in (0, 0.5), got {name}={value!r}")


def _is_finite(name: str, value: float) -> bool:
    """Return whether it is a number, and a finite one; refuse one that no float is."""
    try:
        return math.isfinite(value)
    except TypeError:
        return False
    except OverflowError as error:
        # Not shown: Python refuses to write numbers of more than 4,300 digits.
        raise InvalidInputError(
            f"{name} must be a number below 1e308, got one of about "
            f"{int(math.log10(abs(value)))} digits"
        ) from error
