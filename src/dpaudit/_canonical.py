"""One text for one value: the JSON that is hashed, stored and compared.

Keys are sorted, nothing is padded, text is ASCII, and NaN or infinity is refused, so
equal values give equal bytes on every machine. Floats are written by ``repr``, which
reads back to the same float. Every document names its format, with a version.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Any, TypeAlias, TypeVar

from dpaudit.errors import InvalidInputError

Scalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = "Scalar | Sequence[Json] | Mapping[str, Json]"

E = TypeVar("E", bound=StrEnum)

_LARGEST = sys.float_info.max


def text(value: Json) -> str:
    """Return the canonical JSON of a value.

    Raises:
        InvalidInputError: It holds what JSON cannot, such as NaN.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"this cannot be written as JSON: {error}") from error


def fields(source: str, form: str) -> dict[str, Any]:
    """Return the fields of a JSON document of one format.

    Raises:
        InvalidInputError: It is no such document; the message says what is wrong.
    """
    found = _parsed(source)
    if not isinstance(found, dict) or found.get("format") != form:
        raise InvalidInputError(f'expected an object with "format": "{form}"')
    del found["format"]
    return found


def format_of(source: str) -> str:
    """Return the format that a JSON document names; "" if it names none."""
    found = _parsed(source)
    return str(found.get("format", "")) if isinstance(found, dict) else ""


def document(source: str, form: str, names: set[str]) -> dict[str, Any]:
    """Return the fields of a JSON document that has exactly these."""
    found = fields(source, form)
    if found.keys() != names:
        odd = sorted(found.keys() ^ names)[0]
        what = "lacks the" if odd in names else "has no"
        raise InvalidInputError(f"{form} {what} field {odd!r}")
    return found


def _parsed(source: str) -> Any:  # noqa: ANN401 (parsed JSON)
    return parsed(source, "not JSON")


def parsed(
    source: Any,  # noqa: ANN401 (what is no text is refused)
    wrong: str,
    pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None,
) -> Any:  # noqa: ANN401 (parsed JSON)
    """Return the value of a JSON text of which every number is finite.

    Args:
        source: The text.
        wrong: How to begin the message if it is none.
        pairs: What makes an object of its names and values.
    """
    try:
        return json.loads(
            source,
            object_pairs_hook=pairs,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError as error:
        raise InvalidInputError(f"{wrong}: it is nested too deeply") from error
    except (TypeError, ValueError) as error:
        said = str(error).partition("; use sys.")[0]  # of an int of 4,300 digits
        raise InvalidInputError(f"{wrong}: {said}") from error


def _finite(token: str) -> float:
    value = float(token)
    if not isfinite(value):
        raise ValueError(f"{token:.40} is no finite number")
    return value


def number(name: str, value: object) -> float:
    """Return a JSON number, and refuse what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    if not abs(value) <= _LARGEST:
        raise InvalidInputError(f"{name} must be a finite number below 1e308")
    return value


def words(name: str, value: object) -> str:
    """Return a JSON text that can be printed as it is, and refuse any other."""
    if not isinstance(value, str) or not value.isprintable():
        raise InvalidInputError(
            f"{name} must be a text that can be printed, got {value!r}"
        )
    return value


def member(kind: type[E], value: object) -> E:
    """Return the member of an enumeration that a JSON text names."""
    try:
        return kind(str(value))
    except ValueError as error:
        known = ", ".join(repr(str(each)) for each in kind)
        raise InvalidInputError(f"expected one of {known}, got {value!r}") from error
