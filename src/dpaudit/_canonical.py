"""One text for one value: the JSON that is hashed, stored and compared.

Written, keys are sorted, nothing is padded, text is ASCII, and NaN or infinity is
refused, so equal values give equal bytes on every machine. Floats are written by
``repr``, which reads back to the same float.

Read, a text is refused that could be read in more ways than one. Whoever checks a
document and whoever shows it to others must see the same thing, and readers differ
where a key appears twice: a forger can use that. They also differ in how deep they can
read, Python from version to version and with what calls it; so a limit is set that all
can keep, far beyond what any document needs.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isfinite
from re import fullmatch
from typing import Any, Final, TypeAlias, TypeVar

from dpaudit.errors import InvalidInputError

Scalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = "Scalar | Sequence[Json] | Mapping[str, Json]"

E = TypeVar("E", bound=StrEnum)

_LARGEST = sys.float_info.max
_NESTED: Final = (dict, list, tuple)  # what JSON writes as objects and arrays
_MOST_LEVELS: Final = 100  # of these within each other; no document has more than 12
_TOO_DEEP: Final = (
    f"it is nested too deeply; put no more than {_MOST_LEVELS} arrays and objects "
    "within each other"
)


def text(value: Json) -> str:
    """Return the canonical JSON of a value.

    Raises:
        InvalidInputError: It holds what JSON cannot, such as NaN, or what nobody could
            read again.
    """
    wrong = "this cannot be written as JSON"
    try:
        written = json.dumps(
            value, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
    except RecursionError as error:
        raise InvalidInputError(f"{wrong}: {_TOO_DEEP}") from error
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{wrong}: {error}") from error
    if _too_deep(value):
        raise InvalidInputError(f"{wrong}: {_TOO_DEEP}")
    return written


def parsed(
    source: Any,  # noqa: ANN401 (what is no text is refused)
) -> Any:  # noqa: ANN401 (parsed JSON)
    """Return the value of a JSON text, if there is only one way to read it.

    Every number in it is finite, it is not nested too deeply, and a mark (BOM) that
    some editors put before UTF-8 is left out.

    Example:
        >>> parsed('{"a": 1, "a": 2}')
        Traceback (most recent call last):
        dpaudit.errors.InvalidInputError: not JSON that can be read in one way only: \
the key 'a' appears twice
    """
    wrong = "not JSON that can be read in one way only"
    if isinstance(source, str):
        source = source.removeprefix("\ufeff")
    try:
        value = json.loads(
            source,
            object_pairs_hook=_once,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError as error:
        raise InvalidInputError(f"{wrong}: {_TOO_DEEP}") from error
    except (TypeError, ValueError) as error:
        reason = str(error).partition("; use sys.")[0]  # of an int of 4,300 digits
        raise InvalidInputError(f"{wrong}: {reason}") from error
    if _too_deep(value):
        raise InvalidInputError(f"{wrong}: {_TOO_DEEP}")
    return value


def canonical(source: str) -> Any:  # noqa: ANN401 (parsed JSON)
    """Return the value of a text that is written as ``text`` writes it."""
    value = parsed(source)
    if text(value) != source:
        raise InvalidInputError(
            "the document is not in canonical form: keys sorted, no spaces, numbers as "
            "Python writes them"
        )
    return value


def object_of(value: object, what: str, names: set[str]) -> dict[str, Any]:
    """Return a JSON object that has exactly these fields."""
    if not isinstance(value, dict):
        raise InvalidInputError(f"{what} must be an object, got {value!r:.60}")
    if value.keys() != names:
        odd = sorted(value.keys() ^ names)[0]
        lacks = "lacks the" if odd in names else "has no"
        raise InvalidInputError(f"{what} {lacks} field {odd!r}")
    return value


def document(value: object, form: str) -> dict[str, Any]:
    """Return the fields of parsed JSON that is a document of a format."""
    if not isinstance(value, dict) or value.get("format") != form:
        other = other_document(value, form.split(".")[1])
        raise InvalidInputError(
            other
            or f"expected the JSON of {_named(form.split('.')[1])}, an object "
            f'with "format": "{form}"'
        )
    return {name: each for name, each in value.items() if name != "format"}


# What each document is for, and what has to be given instead of it.
_INSTEAD: Final = {
    "result": "a result is what `dpaudit audit --save` and result.to_json() write; "
    "evidence holds one",
    "evidence": "evidence is what `dpaudit audit --evidence` and `dpaudit evidence "
    "result.json --key audit.key` write, and seal(evidence_of(result, key=key))",
    "registration": "a registration is what `dpaudit register` and register(design, "
    "key).to_json() write",
    "design": "a design is what design.to_json() writes",
}


def other_document(value: object, wanted: str) -> str:
    """Describe parsed JSON that is another document of ours than is wanted; else "".

    Example:
        >>> other_document({"format": "dpaudit.design.1"}, "result")
        'this is a design, where a result is wanted; a result is what `dpaudit audit \
--save` and result.to_json() write; evidence holds one'
        >>> other_document({"format": "mine"}, "result")
        ''
    """
    form = value.get("format") if isinstance(value, dict) else None
    known = fullmatch(r"dpaudit\.([a-z-]{1,20})\.\d{1,3}", str(form))
    if known is None:
        return ""
    if known[1] == wanted:
        return f"this is {_named(wanted)} of a version that is not known here ({form})"
    problem = f"this is {_named(known[1])}, where {_named(wanted)} is wanted"
    return f"{problem}; {_INSTEAD[wanted]}" if wanted in _INSTEAD else problem


def _named(document: str) -> str:
    if document == "evidence":
        return document
    return f"{'an' if document[0] in 'aeiou' else 'a'} {document}"


def unlike(written: Any, read: Any, path: str = "") -> str:  # noqa: ANN401 (parsed JSON)
    """Return where a value is written otherwise than it is read; "" if nowhere.

    Python takes ``True``, ``1`` and ``1.0`` for equal, and ``0.0`` for ``-0.0``; texts
    and other readers do not.

    Example:
        >>> unlike({"a": [1, True]}, {"a": [1, 1]})
        'a[1] as true, which is read as 1'
    """
    if isinstance(written, dict) and isinstance(read, dict):
        names = sorted(written.keys() | read.keys())
        parts = [
            (f"{path}.{name}", written.get(name), read.get(name)) for name in names
        ]
    elif isinstance(written, list) and isinstance(read, list):
        if len(written) != len(read):
            return (
                f"{path[1:]} with {len(written)} entries, of which {len(read)} are read"
            )
        pairs = enumerate(zip(written, read, strict=True))
        parts = [(f"{path}[{place}]", *pair) for place, pair in pairs]
    else:
        texts = text(written), text(read)
        # Whatever a user notes is for the record, and has no other form.
        free = path.startswith(".setting.notes.")
        if texts[0] == texts[1] and (free or texts[0] != "-0.0"):
            return ""
        return f"{path[1:]} as {texts[0]:.40}, which is read as {texts[1]:.40}"
    return next(filter(None, (unlike(one, two, at) for at, one, two in parts)), "")


def number(name: str, value: object) -> float:
    """Return a JSON number, and refuse what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{name} must be a number, got {value!r:.60}")
    if not abs(value) <= _LARGEST:
        raise InvalidInputError(f"{name} must be a finite number below 1e308")
    return value


def member(kind: type[E], value: object, name: str) -> E:
    """Return the member of an enumeration that a JSON text names."""
    try:
        return kind(str(value))
    except ValueError as error:
        known = ", ".join(repr(str(each)) for each in kind)
        raise InvalidInputError(
            f"{name} must be one of {known}, got {value!r:.60}"
        ) from error


def _too_deep(value: Any) -> bool:  # noqa: ANN401 (what JSON holds)
    """Return whether more levels are within each other than are allowed."""
    level = [value] if isinstance(value, _NESTED) else []
    for _ in range(_MOST_LEVELS):
        if not level:
            return False
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, _NESTED)
        ]
    return bool(level)


def _finite(token: str) -> float:
    value = float(token)
    if not isfinite(value):
        raise ValueError(f"{token:.40} is no finite number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} appears twice")
    return found
