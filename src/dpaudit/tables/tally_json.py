"""Writes tallies as JSON documents, and reads and validates them.

A document may come from another machine: the length and the numbers of every list are
checked before an array is made of it. ``dpaudit/schemas/tally.schema.json`` is the
published format.
"""

from math import isfinite
from re import fullmatch
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _canonical, _validate
from dpaudit._codec import decode, encode
from dpaudit.errors import InvalidInputError
from dpaudit.game.design import Commitment, Design
from dpaudit.tables.extreme_scores import ExtremeScores, Tail
from dpaudit.tables.histogram import MOST_CELLS, Histogram
from dpaudit.tables.seen_ids import IdSet
from dpaudit.tables.tally import MOST_CANARIES, MOST_EXACT, Found, ScoreTally

__all__ = ["TALLY_FORMAT", "tally_from_json", "tally_to_json"]

TALLY_FORMAT: Final = "dpaudit.tally.1"
_FIELDS: Final = {"design", "commitment", "salt", "rows", "ones", "ids", "found"}
_MOST_KEYS: Final = 2 * MOST_CELLS  # the octave around zero has two signs


def tally_to_json(tally: ScoreTally) -> str:
    """Return the canonical JSON of a tally."""
    return _canonical.text(
        {
            "format": TALLY_FORMAT,
            "design": encode(tally.design),
            "commitment": encode(tally.commitment),
            "salt": tally.salt,
            "rows": tally.rows,
            "ones": tally.ones,
            "ids": [_id_set_to_plain(each) for each in tally.ids],
            "found": _found_to_plain(tally.found),
        }
    )


def tally_from_json(text: str) -> ScoreTally:
    """Return the tally that a JSON document holds.

    Raises:
        InvalidInputError: It is not a valid tally; the message names what is wrong.
    """
    plain = _canonical.document(_canonical.parsed(text), TALLY_FORMAT)
    _canonical.object_of(plain, TALLY_FORMAT, _FIELDS)
    if not isinstance(plain["ids"], list):
        raise InvalidInputError(f"ids must be a list, got {str(plain['ids'])[:40]!r}")
    _validate.sha256("salt", plain["salt"])
    return ScoreTally(
        design=Design.of_plain(plain["design"]),
        commitment=decode(Commitment | None, plain["commitment"], "commitment"),
        salt=plain["salt"],
        rows=_whole("rows", plain["rows"]),
        ones=_whole("ones", plain["ones"]),
        ids=tuple(_id_set(each) for each in plain["ids"]),
        found=_found(plain["found"]),
    )


def _id_set_to_plain(found: IdSet) -> _canonical.Json:
    mark = found.fingerprint
    return {
        "first": found.first,
        "last": found.last,
        "count": found.count,
        "fingerprint": None if mark is None else f"{mark:016x}",
    }


def _found_to_plain(found: Found) -> _canonical.Json:
    if isinstance(found, Histogram):
        return {
            "mantissa_bits": found.mantissa_bits,
            "keys": found.keys.tolist(),
            "counts": found.counts.tolist(),
            "ones": found.ones.tolist(),
            "coins": f"{found.coins:016x}",
        }
    return {
        "most_high": found.most_high,
        "most_low": found.most_low,
        "high": _tail_to_plain(found.high),
        "low": _tail_to_plain(found.low),
    }


def _tail_to_plain(tail: Tail) -> _canonical.Json:
    return {
        # Infinite scores are allowed, but JSON has no number for them.
        "scores": [s if isfinite(s) else str(s) for s in tail.scores.tolist()],
        "tie_breaks": [f"{tie_break:016x}" for tie_break in tail.tie_breaks.tolist()],
        "counts": tail.counts.tolist(),
        "ones": tail.ones.tolist(),
    }


def _found(plain: object) -> Found:
    if isinstance(plain, dict) and "keys" in plain:
        fields = {"mantissa_bits", "keys", "counts", "ones", "coins"}
        plain = _object("found", plain, fields)
        return Histogram(
            mantissa_bits=_whole("mantissa_bits", plain["mantissa_bits"]),
            keys=_wholes("keys", plain["keys"], _MOST_KEYS, least=-MOST_CANARIES),
            counts=_wholes("counts", plain["counts"], _MOST_KEYS),
            ones=_wholes("ones", plain["ones"], _MOST_KEYS),
            coins=_word("coins", plain["coins"]),
        )
    plain = _object("found", plain, {"most_high", "most_low", "high", "low"})
    return ExtremeScores(
        high=_tail("high", plain["high"]),
        low=_tail("low", plain["low"]),
        most_high=_whole("most_high", plain["most_high"]),
        most_low=_whole("most_low", plain["most_low"]),
    )


def _tail(name: str, plain: object) -> Tail:
    plain = _object(name, plain, {"scores", "tie_breaks", "counts", "ones"})
    stated = _list("scores", plain["scores"], MOST_EXACT)
    tie_breaks = _list("tie_breaks", plain["tie_breaks"], MOST_EXACT)
    scores = [
        float(each) if each in ("inf", "-inf") else _canonical.number("scores", each)
        for each in stated
    ]
    return Tail(
        scores=np.array(scores, np.float64) + 0.0,  # not -0.0
        tie_breaks=np.array([_word("tie_breaks", t) for t in tie_breaks], np.uint64),
        counts=_wholes("counts", plain["counts"], MOST_EXACT),
        ones=_wholes("ones", plain["ones"], MOST_EXACT),
    )


def _id_set(plain: object) -> IdSet:
    plain = _object("ids", plain, {"first", "last", "count", "fingerprint"})
    mark = plain["fingerprint"]
    return IdSet(
        first=_whole("first", plain["first"]),
        last=_whole("last", plain["last"]),
        count=_whole("count", plain["count"]),
        fingerprint=None if mark is None else _word("fingerprint", mark),
    )


def _word(name: str, value: object) -> int:
    if not (isinstance(value, str) and fullmatch("[0-9a-f]{16}", value)):
        raise InvalidInputError(
            f"{name} must be 16 hex digits, got {str(value)[:40]!r}"
        )
    return int(value, 16)


def _object(name: str, plain: object, names: set[str]) -> dict[str, object]:
    if not isinstance(plain, dict) or plain.keys() != names:
        raise InvalidInputError(
            f"{name} must be an object with the fields {', '.join(sorted(names))}"
        )
    return plain


def _whole(name: str, value: object, *, least: int = 0) -> int:
    # The sum of any list of numbers within this limit stays below 2^63.
    if type(value) is not int or not least <= value <= MOST_CANARIES:
        raise InvalidInputError(
            f"{name} must be a whole number from {least} to {MOST_CANARIES}, got "
            f"{str(value)[:40]!r}"
        )
    return value


def _list(name: str, value: object, most: int) -> list[object]:
    if not isinstance(value, list) or len(value) > most:
        raise InvalidInputError(f"{name} must be a list of at most {most} numbers")
    return value


def _wholes(
    name: str,
    value: object,
    most: int,
    *,
    least: int = 0,
) -> NDArray[np.int64]:
    wholes = [_whole(name, v, least=least) for v in _list(name, value, most)]
    return np.array(wholes, np.int64)
