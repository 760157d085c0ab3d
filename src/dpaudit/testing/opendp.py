"""Audit a measurement of OpenDP: its claim and its inputs are read from it.

A measurement states all that an audit needs. Its output measure and its privacy map
state the claim for neighbours at a distance; its input domain and its input metric
state which inputs there are and which of them are neighbours. So its users need not
know the worst pair: pairs are generated (``neighbours.py``) and bet on
(``sequential.py``).

A pair that is not neighbouring would refute a correct measurement. So everything that
limits neighbours must be read: bounds, nulls, NaN and bit widths of columns; margins,
of which all are kept to at once; bounds on what one unit contributes. What cannot be
read is refused with an error that names what to pass. All limits are kept to on the
safe side:

- Data sets are no longer than the shortest group may be.
- *Public keys*: both data sets hold the same keys, either one key in all rows, or two,
  each of them also in a row that both data sets share. Which keys a data set has is not
  part of a domain, so any will do.
- *Public lengths*: records are replaced by others with the same keys.
- *Bounds*: so few records change that no bound on groups can be exceeded; or more of
  them, all in one group.

A measurement that is amplified by sampling claims something about the population that
its input was sampled from. That does not show in its domain: audit the function that
samples, with ``audit_sequentially``.
"""

import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeAlias, final

import numpy as np

from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit.game.coins import Key
from dpaudit.privacy.guarantees import (
    Adjacency,
    ApproxDP,
    Guarantee,
    PrivacyCurve,
    PureDP,
    RenyiDP,
    ZeroConcentratedDP,
    rounded_up,
)
from dpaudit.privacy.renyi import ORDERS
from dpaudit.testing.functions import Budget, Calls, Seconds
from dpaudit.testing.neighbours import (
    BitString,
    Booleans,
    Column,
    Floats,
    Integers,
    Numbers,
    Rows,
    Schema,
    Strings,
    Value,
    in_turn,
)
from dpaudit.testing.sequential import Pair, SequentialResult, audit_sequentially

try:
    import polars as pl
    from opendp.domains import _lazyframe_from_domain
    from opendp.extras.polars import Bound, OnceFrame
    from opendp.mod import Function, OdometerQueryable, OpenDPException, Queryable
except ImportError as error:
    raise MissingExtraError.of(
        "auditing OpenDP's measurements needs opendp, with polars", "opendp"
    ) from error

__all__ = ["RAISED", "audit_opendp", "claim_of", "pairs_of", "schemas_of"]

RAISED = (OpenDPException, pl.exceptions.PolarsError)
"""What OpenDP raises when a measurement is called; it counts as output."""

_PAIR = Adjacency.REPLACE_ONE  # the claim is about the pair, whatever differs in it
_FIRST_CALLS = 200  # of each pair, before some are left out
_FEWEST_PAIRS = 8
_MOST_GROUPS = 1000  # no generated data set has more
_MOST_SHARED = 50  # rows, one for each combination of public keys
_SETUP = "import polars as pl"

# Metrics between data sets: which records change, and whether their order counts.
_Change: TypeAlias = tuple[
    Literal["add-remove", "replace"], Literal["positions", "edits", "free"]
]
_RECORDS: Mapping[str, _Change] = {
    "SymmetricDistance": ("add-remove", "free"),
    "InsertDeleteDistance": ("add-remove", "edits"),
    "ChangeOneDistance": ("replace", "free"),
    "HammingDistance": ("replace", "positions"),
}
_NORMS: Mapping[str, Literal["l1", "l2", "linf"]] = {
    "L1Distance": "l1",
    "L2Distance": "l2",
    "LInfDistance": "linf",
}
_ATOM = re.compile(
    r"AtomDomain\((?:bounds=\[([^,\]]+), ([^,\]]+)\], )?(nan=true, )?T=(\w+)\)"
)
_VECTOR = re.compile(r"VectorDomain\((.*\))(?:, size=(\d+))?\)")
_BITS = re.compile(r"BitVectorDomain\((?:weight=(\d+))?\)")
_MARGINS = re.compile(r"FrameDomain\(.*; margins=\[(.*)\]\)", re.DOTALL)
_COLUMN = re.compile(r'col\("([^"]*)"\)')
_GROUPING = re.compile(r'\{((?:col\("[^"]*"\)(?:, )?)*)\}(?:, )?')

# Times are whole numbers: of days, of parts of a second. Years are those of Python.
_DAY = 24 * 60 * 60
_DAYS = (-719_162, 2_932_896)
_TIMES: Mapping[Any, tuple[int, int]] = {
    pl.Date: _DAYS,
    pl.Datetime("ms"): (_DAYS[0] * _DAY * 10**3, _DAYS[1] * _DAY * 10**3),
    pl.Datetime("us"): (_DAYS[0] * _DAY * 10**6, _DAYS[1] * _DAY * 10**6),
    pl.Time: (0, _DAY * 10**9 - 1),
}

# OpenDP's objects have no types that could be checked without it.
_Made: TypeAlias = Any


def audit_opendp(  # noqa: PLR0913 (each is one thing that a test may fix)
    measurement: _Made,
    d_in: object,
    *,
    schema: Schema | Iterable[Pair] | None = None,
    output: Callable[[Any], object] | None = None,
    alpha: float = 0.05,
    budget: Budget = Seconds(seconds=10.0),  # noqa: B008 (a frozen value)
    state: str | Path | None = None,
    key: Key | None = None,
    most: int = 80,
    raising: tuple[type[Exception], ...] = RAISED,
) -> SequentialResult:
    """Audit the claim of a measurement for neighbours at a distance.

    Args:
        measurement: The measurement.
        d_in: The distance that its map is asked about.
        schema: A description of its inputs, or pairs; left out, it is read from the
            measurement. ``schemas_of`` returns what would be read.
        output: Makes of a release what can be compared; required for queryables. Left
            out, frames are collected and become sorted lists of rows.
        alpha: Probability of ever refuting a true claim.
        budget: ``Seconds`` or ``Calls`` of this run.
        state: A folder in which evidence is kept from run to run.
        key: The secret of this run's coins; OpenDP's own randomness is not affected.
        most: How many pairs are bet on at most; fewer if the budget does not suffice
            for all, unless there is a state.
        raising: Exceptions that count as outputs; any other is raised.

    Raises:
        InvalidInputError: The claim or the inputs cannot be read from the measurement;
            the message names what to pass instead.

    Example:
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
        >>> laplace = dp.m.make_laplace(*space, scale=1.0)
        >>> claim_of(laplace, 1).epsilon, schemas_of(laplace, 1)[0].distance
        (1.0, 1)
        >>> from dpaudit.testing import Calls
        >>> audit_opendp(laplace, 1, alpha=1e-6, budget=Calls(calls=2000)).refuted
        False
    """
    __tracebackhide__ = True
    claim = claim_of(measurement, d_in)
    pairs = pairs_of(measurement, d_in, schema=schema, most=most)
    release = partial(_release, measurement, output or _comparable)
    if state is None:  # with one, the pairs must not depend on the clock
        pairs = pairs[: _affordable(release, pairs[0], budget, raising)]
    return audit_sequentially(
        release,
        pairs=pairs,
        claim=claim,
        alpha=alpha,
        budget=budget,
        raising=raising,
        state=state,
        key=key,
    )


def _affordable(
    release: Callable[[Any], object],
    pair: Pair,
    budget: Budget,
    raising: tuple[type[Exception], ...],
) -> int:
    """Return of how many pairs the first calls take up to half of the budget."""
    match budget:
        case Calls(calls=calls):
            all_calls = float(calls)
        case Seconds(seconds=seconds):
            durations = [_duration(release, pair, raising) for _ in range(4)]
            all_calls = seconds / max(min(durations), 1e-6)
    return max(_FEWEST_PAIRS, int(all_calls / (2 * _FIRST_CALLS)))


def _duration(
    release: Callable[[Any], object], pair: Pair, raising: tuple[type[Exception], ...]
) -> float:
    """Return how many seconds a call takes; what it returns is not used."""
    start = perf_counter()
    with suppress(*raising):
        release(pair.neighbours.input(0))
    return perf_counter() - start


def claim_of(measurement: _Made, d_in: object) -> Guarantee:
    """Return what a measurement claims for two inputs at a distance."""
    measure = str(measurement.output_measure.type)
    if measure not in _CLAIMS:
        raise InvalidInputError(
            f"the output measure {measurement.output_measure} is unknown, so the claim "
            "cannot be read; state it: audit_sequentially(measurement, pairs=pairs_of("
            "measurement, d_in), claim=...)"
        )
    return _CLAIMS[measure](measurement.map(d_in))


def _pure(loss: float) -> Guarantee:
    return PureDP(epsilon=_limited(loss), adjacency=_PAIR)


def _approximate(loss: tuple[float, float]) -> Guarantee:
    epsilon, delta = loss
    return ApproxDP(epsilon=_limited(epsilon), delta=delta, adjacency=_PAIR)


def _zcdp(loss: float) -> Guarantee:
    return ZeroConcentratedDP(rho=_limited(loss), adjacency=_PAIR)


def _approximate_zcdp(loss: tuple[float, float]) -> Guarantee:
    rho, delta = loss
    epsilons, deltas = ZeroConcentratedDP(rho=_limited(rho)).points()
    return _curve(epsilons, deltas + delta)


def _profile(loss: _Made) -> Guarantee:
    epsilons = np.concatenate([np.linspace(0, 5, 101), np.geomspace(5.1, 100, 60)])
    return _curve(epsilons, np.array([loss.delta(float(e)) for e in epsilons]))


def _renyi(loss: Callable[[float], float]) -> Guarantee:
    epsilons = np.array([loss(float(order)) for order in ORDERS])
    known = np.isfinite(epsilons)
    if not known.any():
        _limited(math.inf)
    return RenyiDP(orders=ORDERS[known], epsilons=epsilons[known], adjacency=_PAIR)


def _curve(epsilons: np.ndarray, deltas: np.ndarray) -> PrivacyCurve:
    return PrivacyCurve(epsilons=epsilons, deltas=rounded_up(deltas), adjacency=_PAIR)


def _limited(loss: float) -> float:
    if not loss < math.inf:
        raise InvalidInputError(
            f"the measurement claims nothing at this d_in: its loss is {loss}, which "
            "no audit can refute; pass a smaller d_in"
        )
    return loss


_CLAIMS: Mapping[str, Callable[[Any], Guarantee]] = {
    "MaxDivergence": _pure,
    "Approximate<MaxDivergence>": _approximate,
    "ZeroConcentratedDivergence": _zcdp,
    "Approximate<ZeroConcentratedDivergence>": _approximate_zcdp,
    "SmoothedMaxDivergence": _profile,
    "RenyiDivergence": _renyi,
}


def pairs_of(
    measurement: _Made,
    d_in: object,
    *,
    schema: Schema | Iterable[Pair] | None = None,
    most: int = 80,
) -> list[Pair]:
    """Return pairs of inputs at a distance, the most telling first.

    Args:
        measurement: The measurement.
        d_in: The distance.
        schema: A description of its inputs, or pairs; None to read it.
        most: How many pairs at most.
    """
    domain = measurement.input_domain
    if schema is None:
        schemas = schemas_of(measurement, d_in)
    elif isinstance(schema, Schema):
        schemas = [_framed(schema, domain)]
    else:
        return list(islice(schema, most))
    found = in_turn(*(_labelled(schemas, number) for number in range(len(schemas))))
    allowed = (pair for pair in _different(found) if _is_member(domain, pair))
    pairs = list(islice(allowed, most))
    if not pairs:
        raise InvalidInputError(
            f"no pair of inputs can be made of {schemas}: with d_in={d_in!r} nothing "
            "that is not public may change; pass a larger d_in, or pairs as schema=..."
        )
    return pairs


def _labelled(schemas: Sequence[Schema], number: int) -> Iterator[Pair]:
    """Yield the pairs of one of several descriptions, with labels of their own."""
    for pair in schemas[number].pairs():
        label = f"{pair.label} (inputs {number + 1})" if number else pair.label
        yield pair._replace(label=label)


def _different(pairs: Iterable[Pair]) -> Iterator[Pair]:
    seen: set[str] = set()
    for pair in pairs:
        if pair.label not in seen:
            seen.add(pair.label)
            yield pair


def _is_member(domain: _Made, pair: Pair) -> bool:
    """Whether OpenDP agrees that both inputs are in the domain; it judges no frames."""
    if _name(domain) == "LazyFrameDomain":
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return all(domain.member(pair.neighbours.input(bit)) for bit in (0, 1))


def schemas_of(measurement: _Made, d_in: object) -> list[Schema]:
    """Return descriptions of the inputs of a measurement, and of what may change.

    Args:
        measurement: The measurement.
        d_in: The distance.

    Raises:
        InvalidInputError: They cannot be read.
    """
    domain, metric = measurement.input_domain, measurement.input_metric
    match _name(domain):
        case "AtomDomain":
            return [_value(domain, metric, d_in)]
        case "VectorDomain":
            return [_vector(domain, metric, d_in)]
        case "BitVectorDomain":
            return [_bits(domain, metric, d_in)]
        case "LazyFrameDomain":
            return [*_frames(domain, metric, d_in)]
    raise _unknown(f"inputs of {domain}")


def _name(part: _Made) -> str:
    """Return the name of the type of a domain or a metric."""
    found = re.match(r"(?:\w+::)*(\w+)", str(part.type))
    return found.group(1) if found else ""


def _unknown(what: str, columns: Iterable[str] | None = None) -> InvalidInputError:
    fields = "..." if columns is None else _fields(columns)
    return InvalidInputError(
        f"what neighbours there are is not known: {what} cannot be read; pass the "
        f"inputs as schema=Rows(columns={fields}, change=..., distance=..., build=...),"
        " whose other fields are what must stay public, or as a list of Pair"
    )


def _fields(columns: Iterable[str]) -> str:
    return "{" + ", ".join(f"{name!r}: ..." for name in columns) + "}"


def _value(domain: _Made, metric: _Made, d_in: object) -> Value:
    column = _atom(str(domain))
    match _name(metric):
        case "DiscreteDistance":
            _records(d_in)
            return Value(values=column)
        case "AbsoluteDistance" if isinstance(column, Integers | Floats):
            return Value(values=column, distance=_length(d_in))
    raise _unknown(f"the metric {metric} of {domain}")


def _vector(domain: _Made, metric: _Made, d_in: object) -> Rows | Numbers:
    parts = _VECTOR.fullmatch(str(domain))
    if parts is None:
        raise _unknown(f"inputs of {domain}")
    column, kind = _atom(parts[1]), _name(metric)
    size = None if parts[2] is None else int(parts[2])
    if kind in _NORMS and isinstance(column, Integers | Floats):
        return Numbers(
            values=column,
            norm=_NORMS[kind],
            distance=_length(d_in),
            size=size,
            monotonic="monotonic" in str(metric),
        )
    if kind not in _RECORDS:
        raise _unknown(f"the metric {metric} of {domain}")
    if isinstance(column, Integers):  # inputs are compared as lists of such numbers
        column = replace(column, high=min(column.high, 2**63 - 1))
    change, order = _RECORDS[kind]
    distance = _records(d_in)
    if size is not None and change == "add-remove":
        change, distance = "replace", _halved(distance)
    return Rows(
        columns=column, change=change, order=order, distance=distance, size=size
    )


def _bits(domain: _Made, metric: _Made, d_in: object) -> BitString:
    parts = _BITS.fullmatch(str(domain))
    if parts is None or _name(metric) != "DiscreteDistance":
        raise _unknown(f"the metric {metric} of {domain}")
    _records(d_in)
    return BitString(max_weight=None if parts[1] is None else int(parts[1]))


def _atom(described: str, *, nullable: bool = False) -> Column:
    """Return the values of an atom domain, from its description."""
    parts = _ATOM.fullmatch(described)
    if parts is None:
        raise _unknown(f"values of {described}")
    low, high, nan, kind = parts.groups()
    whole = re.fullmatch(r"([iu])(8|16|32|64)", kind)
    if whole is not None:
        bits, signed = int(whole[2]), whole[1] == "i"
        least, largest = (-(2 ** (bits - 1)) if signed else 0), 2 ** (bits - signed) - 1
        return Integers(
            low=least if low is None else int(low),
            high=largest if high is None else int(high),
            nullable=nullable,
        )
    if kind in ("f32", "f64"):
        ends = [float(low or "-inf"), float(high or "inf")]
        single = kind == "f32"
        first, last = (float(np.float32(v)) if single else v for v in ends)
        return Floats(
            low=first,
            high=last,
            nan=nan is not None,
            nullable=nullable,
            bits=32 if single else 64,
        )
    if low is None and kind == "String":
        return Strings(nullable=nullable)
    if low is None and kind == "bool":
        return Booleans(nullable=nullable)
    raise _unknown(f"values of {described}")


def _records(d_in: object) -> int:
    """Return a distance between data sets: a number of records or users."""
    if isinstance(d_in, bool) or not isinstance(d_in, int) or d_in < 1:
        raise InvalidInputError(
            f"d_in must be a whole number, at least 1, for inputs to differ, got "
            f"d_in={d_in!r}"
        )
    return d_in


def _length(d_in: object) -> float:
    """Return a distance between numbers."""
    if not isinstance(d_in, int | float) or not 0 < d_in < math.inf:
        raise InvalidInputError(
            f"d_in must be positive and finite for inputs to differ, got d_in={d_in!r}"
        )
    return d_in


def _halved(distance: int) -> int:
    """Return how many records may be replaced where none is added or removed."""
    if distance < 2:
        raise InvalidInputError(
            "nothing but the order of records can change at d_in=1: their number is "
            "public, and replacing one of them is a distance of 2; pass a d_in of at "
            "least 2"
        )
    return distance // 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Margin:
    """What is known of the groups of a frame.

    Attributes:
        by: The columns that make groups; none for the whole frame.
        max_length: The largest number of rows of a group.
        max_groups: The largest number of groups.
        invariant: What is public: the "keys" of groups, or their "lengths" too.
    """

    by: tuple[str, ...]
    max_length: int | None
    max_groups: int | None
    invariant: str | None


class _Reach(NamedTuple):
    """How many records or users may change, if these columns do not."""

    distance: int
    unchanged: frozenset[str] = frozenset()


def _frames(domain: _Made, metric: _Made, d_in: object) -> Iterator[Schema]:
    """Yield descriptions of frames: one key or several; change of one group or any."""
    inner = metric.inner_metric if _name(metric) == "FrameDistance" else metric
    rows = Rows(columns=_columns(domain), **_change(inner, domain))
    reaches: Sequence[_Reach] = (
        [_Reach(_records(d_in))] if inner is metric else _reaches(d_in, rows, domain)
    )
    margins = _margins(domain, rows.user)
    lengths = [margin.max_length for margin in margins if margin.max_length is not None]
    rows = replace(rows, max_length=min(lengths, default=None))
    rows = _with_few_groups(rows, margins)
    if any(margin.invariant == "lengths" for margin in margins):
        rows, reaches = _of_public_length(rows, reaches)
    for reach in reaches:
        reached = replace(rows, distance=reach.distance)
        for keyed in [
            _with_one_key(reached, margins),
            *_with_shared_keys(reached, margins),
        ]:
            yield _framed(_with_public(keyed, reach.unchanged), domain)


def _named(rows: Rows) -> Mapping[str, Column]:
    assert isinstance(rows.columns, Mapping)  # those of frames have names
    return rows.columns


def _with_public(rows: Rows, names: Collection[str]) -> Rows:
    """Return a description in which these columns have one value in all rows."""
    columns = {
        name: replace(column, public=True) if name in names else column
        for name, column in _named(rows).items()
    }
    return replace(rows, columns=columns)


def _change(metric: _Made, domain: _Made) -> dict[str, Any]:
    """Return the fields of a description about what may change."""
    kind = _name(metric)
    if kind in _RECORDS:
        change, order = _RECORDS[kind]
        return {"change": change, "order": order}
    if kind == "SymmetricIdDistance":
        named = _COLUMN.fullmatch(_plain(metric.identifier))
        if named is not None and named[1] in domain.columns:
            return {"change": "user", "order": "free", "user": named[1]}
    raise _unknown(f"the metric {metric}", domain.columns)


def _plain(expression: object) -> str:
    """Return a column, given by name or as an expression, as polars writes it."""
    return f'col("{expression}")' if isinstance(expression, str) else str(expression)


def _reaches(d_in: object, rows: Rows, domain: _Made) -> list[_Reach]:
    """Return how many records or users may change within all bounds.

    As many as the least bound, so that they are in no more groups than allowed; or
    more, if all are in one group.
    """
    bounds = [d_in] if isinstance(d_in, Bound) else d_in
    if not isinstance(bounds, list | tuple) or not bounds:
        raise InvalidInputError(
            f"d_in must be a list of dp.polars.Bound, got d_in={d_in!r}"
        )
    grouping = [_names(bound.by, domain) for bound in bounds]
    if rows.change == "replace" or (rows.change == "user" and any(grouping)):
        raise _unknown(f"what d_in={d_in!r} allows", domain.columns)
    records = [bound.per_group for bound in bounds if bound.per_group is not None]
    groups = [bound.num_groups for bound in bounds if bound.num_groups is not None]
    least = min([*records, *groups], default=1)
    reaches = [_Reach(_records(least))]
    if min(records, default=least) > least:
        names = [
            by
            for by, each in zip(grouping, bounds, strict=True)
            if each.num_groups is not None
        ]
        reaches.append(_Reach(min(records), frozenset().union(*names)))
    return reaches


def _names(by: Iterable[object], domain: _Made) -> tuple[str, ...]:
    """Return the columns of a grouping."""
    found = [_COLUMN.fullmatch(_plain(each)) for each in by]
    names = tuple(each[1] for each in found if each is not None)
    if len(names) < len(found) or not {*names} <= {*domain.columns}:
        raise _unknown(f"groups by {[_plain(each) for each in by]}", domain.columns)
    return names


def _margins(domain: _Made, user: str | None) -> list[_Margin]:
    """Return all margins of a frame, from its description, and that of all rows."""
    parts = _MARGINS.fullmatch(str(domain))
    if parts is None or _GROUPING.sub("", parts[1]):
        raise _unknown(f"margins of {domain}", domain.columns)
    groupings = [tuple(_COLUMN.findall(each)) for each in _GROUPING.findall(parts[1])]
    found = [_margin(domain, by) for by in [(), *groupings]]
    for margin in found:
        limited = margin.max_groups is not None or margin.invariant is not None
        if user in margin.by and limited:
            raise _unknown(
                f"which users a margin by {margin.by} allows", domain.columns
            )
    return found


def _margin(domain: _Made, by: tuple[str, ...]) -> _Margin:
    if not {*by} <= {*domain.columns}:
        raise _unknown(f"margins of {domain}", domain.columns)
    known = domain.get_margin(by=[pl.col(name) for name in by])
    return _Margin(
        by=by,
        max_length=known.max_length,
        max_groups=known.max_groups if by else None,
        invariant=known.invariant,
    )


def _of_public_length(
    rows: Rows, reaches: Sequence[_Reach]
) -> tuple[Rows, Sequence[_Reach]]:
    """Return the description and the reaches if no record is added or removed."""
    if rows.change == "user":
        names = _named(rows)
        raise _unknown("what a user may change where lengths are public", names)
    if rows.change == "replace":
        return rows, reaches
    far = [reach for reach in reaches if reach.distance >= 2] or reaches
    halved = [reach._replace(distance=_halved(reach.distance)) for reach in far]
    return replace(rows, change="replace"), halved


def _with_few_groups(rows: Rows, margins: Sequence[_Margin]) -> Rows:
    """Return a description with so few values that no frame has too many groups."""
    columns = dict(_named(rows))
    for margin in margins:
        most = margin.max_groups
        if most is None or most >= min(_MOST_GROUPS, rows.max_length or _MOST_GROUPS):
            continue
        each = math.floor(most ** (1 / len(margin.by)) + 1e-9)
        for name in margin.by:
            columns[name] = _few(columns[name], each)
    return replace(rows, columns=columns)


def _few(column: Column, most: int) -> Column:
    """Return a column with at most so many values, none of them null."""
    if most < 2 or column.public:
        return replace(column, public=True)
    match column:
        case Strings(values=values):
            return replace(
                column, values=(values or ("a", "zz"))[:most], nullable=False
            )
        case Integers(high=high):
            low = column.typical()
            last = min(low + most - 1, high)
            return replace(column, low=low, high=last, nullable=False)
        case Booleans():
            return replace(column, nullable=False)
        case Floats():
            return replace(column, public=True)


def _keys(margins: Sequence[_Margin], *invariants: str) -> list[str]:
    """Return the columns of which something is public."""
    found = [m.by for m in margins if m.invariant in invariants]
    return list(dict.fromkeys(name for by in found for name in by))


def _with_one_key(rows: Rows, margins: Sequence[_Margin]) -> Rows:
    """Return a description in which public keys are the same in all rows."""
    keys = _keys(margins, "keys", "lengths")
    return _with_public(replace(rows, min_length=1 if keys else 0), keys)


def _with_shared_keys(rows: Rows, margins: Sequence[_Margin]) -> list[Rows]:
    """Return a description in which both data sets hold a row of each of several keys.

    Records may change their keys, unless the lengths of groups are public. Nothing is
    returned if there are no public keys, or no room for several.
    """
    keys = _keys(margins, "keys", "lengths")
    if not keys or rows.change == "user":
        return []
    few = {
        name: _few(column, 2) if name in keys else column
        for name, column in _named(rows).items()
    }
    shared = _one_of_each_key(few, keys)
    room = _MOST_SHARED if rows.max_length is None else rows.max_length - 1
    if not 2 <= len(shared) <= min(room, _MOST_SHARED):
        return []
    several = replace(rows, columns=few, shared=tuple(shared))
    return [_with_public(several, _keys(margins, "lengths"))]


def _one_of_each_key(
    columns: Mapping[str, Column], keys: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return a usual row for every combination of values of the key columns."""
    values = []
    for name, column in columns.items():
        own = [] if column.public or name not in keys else column.special()
        values.append([column.typical(), *(value for _, value in own)])
    return list(product(*values))


def _columns(domain: _Made) -> dict[str, Column]:
    """Return the columns of frames."""
    types = _lazyframe_from_domain(domain).collect_schema()
    return {name: _column(domain, name, types[name]) for name in domain.columns}


def _column(domain: _Made, name: str, kind: _Made) -> Column:
    series = domain.get_series_domain(name)
    nullable = bool(series.nullable)
    if isinstance(kind, pl.Enum) and len(kind.categories):
        # Its element domain has no accessor; there is nothing else in it.
        return Strings(values=tuple(kind.categories), nullable=nullable)
    described = str(series.element_domain)
    if described == "CategoricalDomain { categories: None }":
        return Strings(nullable=nullable)
    if kind in _TIMES and not re.search("bounds|time_zone: Some", described):
        low, high = _TIMES[kind]
        return Integers(low=low, high=high, nullable=nullable)
    try:
        return _atom(described, nullable=nullable)
    except InvalidInputError as error:
        what = f"column {name!r} of {kind}"
        raise _unknown(what, domain.columns) from error


def _framed(schema: Schema, domain: _Made) -> Schema:
    """Return a description that builds frames, if the measurement takes them."""
    if _name(domain) != "LazyFrameDomain" or not isinstance(schema, Rows):
        return schema
    if schema.build is not None:
        return schema
    types = _lazyframe_from_domain(domain).collect_schema()
    if not isinstance(schema.columns, Mapping) or [*schema.columns] != [*types]:
        raise InvalidInputError(
            f"columns must be those of the frame, in their order: {_fields(types)}, "
            f"got columns={schema.columns!r}"
        )
    listed = ", ".join(f"({name!r}, {_type(kind)})" for name, kind in types.items())
    escaped = listed.replace("{", "{{").replace("}", "}}")
    return replace(
        schema,
        build=partial(pl.LazyFrame, schema=[*types.items()], orient="row"),
        code=f"pl.LazyFrame({{rows}}, schema=[{escaped}], orient='row')",
        setup=_SETUP,
    )


def _type(kind: _Made) -> str:
    """Return the code of a type of polars."""
    return "pl.Categorical" if kind == pl.Categorical else f"pl.{kind!r}"


def _release(
    measurement: _Made, output: Callable[[Any], object], value: object
) -> object:
    return output(measurement(value))


def _comparable(release: object) -> object:
    """Return a release as plain values; frames as sorted rows, bytes as bits."""
    match release:
        case OnceFrame():
            return sorted(release.collect().rows(), key=repr)
        case bytes():
            return [byte >> i & 1 for byte in release for i in range(8)]
        case list() | tuple():
            return [_comparable(each) for each in release]
        case Queryable() | OdometerQueryable() | Function():
            raise InvalidInputError(
                f"the release is a {type(release).__name__}, which answers queries; "
                "pass output=..., a function that asks it and returns the answers"
            )
    return release
