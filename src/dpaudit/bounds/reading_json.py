"""Readings as JSON: one document per reading, refused if it is not one.

The format is published in ``dpaudit/schemas/reading.schema.json``. The first version of
it did not say which game counts and weights were of, nor whether the numbers of unequal
guesses were fixed beforehand. Where nothing else says so, the case is assumed whose
bound holds in both.
"""

from dataclasses import asdict, fields
from typing import Any

import numpy as np

from dpaudit import _canonical
from dpaudit.bounds.reads import (
    KINDS,
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

_FORMAT = "dpaudit.reading.2"
_EARLIER = "dpaudit.reading.1"  # without what a reading must say by now
_SAID: dict[type, str] = {
    Counts: "adaptive",
    Weighted: "adaptive",
    Unequal: "committed",
}


def reading_to_json(reading: Reading) -> str:
    """Return the canonical JSON of a reading.

    Example:
        >>> reading_to_json(Counts(canaries=3, guesses=2, correct=1))
        '{"adaptive":false,"alternatives":2,"canaries":3,"correct":1,\
"format":"dpaudit.reading.2","guesses":2,"kind":"counts","records_per_coin":1}'
    """
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(reading).items()  # type: ignore[call-overload]
    }
    return _canonical.text({"format": _FORMAT, "kind": reading.kind, **plain})


def reading_from_json(text: str, *, adaptive: bool = True) -> Reading:
    """Return the reading that a JSON document holds.

    Args:
        text: The document.
        adaptive: Whether coins were revealed between guesses, for counts and weights of
            the first version of the format, which did not say so. The bound for
            adaptive guesses holds for those made at once too.

    Raises:
        InvalidInputError: It is no reading; the message says what is wrong.
    """
    earlier = _canonical.format_of(text) == _EARLIER
    rest = _canonical.fields(text, _EARLIER if earlier else _FORMAT)
    cls = KINDS[rest.pop("kind", None)]
    if earlier:
        rest = _completed(cls, rest, adaptive=adaptive)
    reading: Reading = _build(cls, rest)
    return reading


def _completed(cls: type, values: dict[str, Any], *, adaptive: bool) -> dict[str, Any]:
    """Return the fields of the first version with what it did not say."""
    if cls is Rounds and isinstance(values.get("rounds"), list):
        rounds = [
            _completed(Weighted, played, adaptive=False)
            if isinstance(played, dict)
            else played
            for played in values["rounds"]
        ]
        return {**values, "rounds": rounds}
    name = _SAID.get(cls)
    if name is None:
        return values
    if name in values:
        raise InvalidInputError(f"{_EARLIER} has no field {name!r}")
    return {**values, name: adaptive if name == "adaptive" else False}


def _build(cls: type, values: Any) -> Any:  # noqa: ANN401 (one of Reading)
    if not isinstance(values, dict):
        raise InvalidInputError(f"{cls.__name__} must be an object, got {values!r}")
    unknown = values.keys() - {field.name for field in fields(cls)}
    if unknown:
        raise InvalidInputError(f"{cls.__name__} has no field {sorted(unknown)[0]!r}")
    if cls in _SAID and _SAID[cls] not in values:
        raise InvalidInputError(f"{cls.__name__} lacks the field {_SAID[cls]!r}")
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
    if name in ("committed", "adaptive"):
        return value  # the reading refuses what is neither true nor false
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str | bool):
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    return value
