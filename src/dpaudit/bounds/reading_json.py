"""Readings as JSON: one document per reading, refused if it is not one.

The format is published in ``dpaudit/schemas/reading.schema.json``.
"""

from dataclasses import asdict, fields
from typing import Any

import numpy as np

from dpaudit import _canonical
from dpaudit.bounds.reads import (
    Bets,
    Counts,
    Ranked,
    Reading,
    Rounds,
    Unequal,
    Weighted,
)
from dpaudit.errors import InvalidInputError

__all__ = ["reading_from_json", "reading_to_json"]

_FORMAT = "dpaudit.reading.1"
_KINDS = {
    "counts": Counts,
    "unequal": Unequal,
    "ranked": Ranked,
    "weighted": Weighted,
    "rounds": Rounds,
    "bets": Bets,
}


def reading_to_json(reading: Reading) -> str:
    """Return the canonical JSON of a reading.

    Example:
        >>> reading_to_json(Counts(canaries=3, guesses=2, correct=1))
        '{"alternatives":2,"canaries":3,"correct":1,"format":"dpaudit.reading.1",\
"guesses":2,"kind":"counts","records_per_coin":1}'
    """
    kind = next(name for name, cls in _KINDS.items() if isinstance(reading, cls))
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(reading).items()
    }
    return _canonical.text({"format": _FORMAT, "kind": kind, **plain})


def reading_from_json(text: str) -> Reading:
    """Return the reading that a JSON document holds.

    Raises:
        InvalidInputError: It is no reading; the message says what is wrong.
    """
    rest = _canonical.fields(text, _FORMAT)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInputError(
            f"kind must be one of {', '.join(_KINDS)}, got {kind!r}"
        )
    reading: Reading = _build(_KINDS[kind], rest)
    return reading


def _build(cls: type, values: Any) -> Any:  # noqa: ANN401 (one of Reading)
    if not isinstance(values, dict):
        raise InvalidInputError(f"{cls.__name__} must be an object, got {values!r}")
    unknown = values.keys() - {field.name for field in fields(cls)}
    if unknown:
        raise InvalidInputError(f"{cls.__name__} has no field {sorted(unknown)[0]!r}")
    try:
        return cls(**{name: _value(cls, name, v) for name, v in values.items()})
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{cls.__name__}: {error}") from error


def _value(cls: type, name: str, value: Any) -> Any:  # noqa: ANN401 (parsed JSON)
    if name == "rounds":
        return tuple(_build(Weighted, played) for played in value)
    if cls in (Ranked, Bets) and name == "right":
        if not all(isinstance(x, bool) for x in value):
            raise InvalidInputError("right must hold true and false only")
        return np.array(value, bool)
    if cls is Bets and name == "stakes":
        return np.array(value, np.float64)
    if name == "committed" and not isinstance(value, bool):
        raise InvalidInputError(f"committed must be true or false, got {value!r}")
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str) or (isinstance(value, bool) and name != "committed"):
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    return value
