"""One text for one value: the JSON that is hashed, stored and compared.

Keys are sorted, nothing is padded, text is ASCII, and NaN or infinity is refused, so
equal values give equal bytes on every machine. Floats are written by ``repr``, which
reads back to the same float. Every document names its format, with a version.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf
from typing import Any, TypeAlias, TypeVar

from dpaudit.errors import InvalidInputError

Scalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = "Scalar | Sequence[Json] | Mapping[str, Json]"

E = TypeVar("E", bound=StrEnum)


def text(value: Json) -> str:
    """Return the canonical JSON of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


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
    try:
        return json.loads(source)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"not JSON: {error}") from error


def number(name: str, value: object) -> float:
    """Return a JSON number, and refuse what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    if not abs(value) < inf:
        raise InvalidInputError(f"{name} must be a finite number, got {value!r}")
    return value


def member(kind: type[E], value: object) -> E:
    """Return the member of an enumeration that a JSON text names."""
    try:
        return kind(str(value))
    except ValueError as error:
        known = ", ".join(repr(str(each)) for each in kind)
        raise InvalidInputError(f"expected one of {known}, got {value!r}") from error
