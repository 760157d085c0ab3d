"""How many calls an audit makes, and the calls it learns from.

A budget is a time or a number of calls. With a time, calls are made and timed until
their share of it is up; as many again will be audited. So the number is fixed before
the coins of the audit are thrown, by calls that are no part of it. It is never so small
that the claim could not be refuted: a busy machine makes an audit longer, not empty.

Outputs are read within the time, and learning from them takes some too: of wide ones
fewer are asked for, so many that about the same number of values is learned from. All
places of all calls that are learned from are held in memory; what does not fit is
refused, as places that were left out would be places where nobody looks.
"""

from dataclasses import dataclass
from math import ceil, exp, log, log1p
from time import perf_counter
from typing import Any, TypeAlias, assert_never, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.coins import Key
from dpaudit.testing.calling import Calling
from dpaudit.testing.choosing import Aim
from dpaudit.testing.outputs import WIDEST, Row, Table, collect

__all__ = ["Budget", "Calls", "Seconds", "calibrate"]

_MOST = 50_000  # calls to learn from, and again as many to audit
_SHARE = 0.35  # of the time goes to the calls to learn from, as much to the audit's
_VALUES = 500_000  # to learn from in a second of the budget: calls times places,
_MOST_VALUES = 4_000_000  # and in all: they are held in memory
_SCREENED = 0.25  # of a value's time for one beyond the widest: it is compared once
_HELD = 32_000_000  # values of wide outputs, at most
_LONGER = 5.0  # times as long as asked it may take to get calls that can refute,
_PATIENCE = 10.0  # and at least so many seconds: a busy machine fails no test
_ROOM = 4  # times as many calls as are needed if every guess is right


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """As many calls as fit into a time.

    Attributes:
        seconds: About how long the whole audit may take.
    """

    seconds: float

    def __post_init__(self) -> None:
        _validate.positive("seconds", self.seconds)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """So many calls, however long they take: for an audit that can be repeated.

    Attributes:
        calls: How many calls are audited; as many again are learned from.
    """

    calls: int

    def __post_init__(self) -> None:
        _validate.whole_number("calls", self.calls, least=12)


Budget: TypeAlias = Seconds | Calls


def calibrate(
    calling: Calling, budget: Budget, aim: Aim, key: Key
) -> tuple[Table, NDArray[Any]]:
    """Make the calls to learn from, and find how many fit."""
    __tracebackhide__ = True
    rng = key.generator("calibration", 0)
    match budget:
        case Calls(calls=calls):
            bits = key.generator("calibration coins", 0).integers(0, 2, calls)
            return collect(_held(calling, bits, rng)), bits
        case Seconds(seconds=seconds):
            bits = key.generator("calibration coins", 0).integers(0, 2, _MOST)
            rows = _timed(calling, bits, rng, seconds=seconds, aim=aim)
            return collect(rows), bits[: len(rows)]
        case _:
            assert_never(budget)


def _held(calling: Calling, bits: NDArray[Any], rng: np.random.Generator) -> list[Row]:
    """Make all calls, unless their outputs are too many and too wide to be held."""
    __tracebackhide__ = True
    rows: list[Row] = []
    while len(rows) < len(bits):
        batch = max(1, len(rows))  # outputs may grow; memory is asked for before it is
        rows += calling.run(bits[len(rows) : len(rows) + batch], rng)
        _must_fit(len(bits), _width(rows))
    return rows


def _width(rows: list[Row]) -> int:
    """Return how many places an output has, at most."""
    return max(len(row.numbers) + len(row.texts) for row in rows)


def _must_fit(calls: int, width: int) -> None:
    if width > 2 * WIDEST and calls * width > _HELD:
        raise InvalidInputError(
            f"{calls} calls with outputs of {width} places each are more than can be "
            f"looked at; with calls={_HELD // width} all places are, or return fewer "
            "places"
        )


def _timed(
    calling: Calling,
    bits: NDArray[Any],
    rng: np.random.Generator,
    *,
    seconds: float,
    aim: Aim,
) -> list[Row]:
    """Call until the time is up, and at least until a claim could be refuted."""
    __tracebackhide__ = True
    rows: list[Row] = []
    values = min(_VALUES * seconds, _MOST_VALUES)
    start, batch, least, width = perf_counter(), 1, _least_calls(aim), 1
    while len(rows) < min(len(bits), max(least, values // _worth(width))):
        new = calling.run(bits[len(rows) : len(rows) + batch], rng)
        rows += new
        width = max(width, _width(new))
        _must_fit(max(least, len(rows)), width)
        spent = perf_counter() - start
        rate = len(rows) / max(spent, 1e-9)
        if len(rows) >= least and spent >= _SHARE * seconds:
            break
        if len(rows) < least and spent >= max(_LONGER * seconds, _PATIENCE):
            raise VoidAuditError(
                f"one call takes {1 / rate:.2g} s, and the test needs {2 * least} of "
                "them to be able to fail; allow about seconds="
                f"{ceil(least / rate / _SHARE)}"
            )
        # Half of what still fits, so that no batch overruns the time by much.
        fits = int(rate * (_SHARE * seconds - spent) / 2)
        batch = max(1, len(rows) // 4, min(fits, 4 * len(rows)))
        batch = min(batch, max(1, int(max(least, values // _worth(width))) - len(rows)))
    return rows


def _worth(width: int) -> float:
    """Return how many places cost as much time as so many do."""
    return min(width, WIDEST) + _SCREENED * max(0, width - WIDEST)


def _least_calls(aim: Aim) -> int:
    """Return how many calls leave room to refute the claim and catch what must be."""
    epsilon = float(aim.claim.points()[0].max())
    calls = max(60, ceil(-_ROOM * log(aim.alpha) / log1p(exp(-epsilon))))
    while aim.must_catch is not None and calls < _MOST:
        caught = aim.caught(canaries=calls, guesses=calls)
        if caught is not None and caught <= aim.must_catch:
            break
        calls += ceil(calls / 4)
    return min(_MOST, calls)
