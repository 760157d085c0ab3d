"""Is the noise what it should be? What was added, looked at where it was added.

Noise over its stated standard deviation is independent standard normal, in every
coordinate and every step. Eight things follow that have exact laws, whatever the model:
the sum of squares in each parameter and in all (chi-squared), how many values lie
between the quartiles (binomial), the largest one, the mean in each parameter and at
each coordinate (normal), and how far two steps, or two coordinates, point the same way:
the cosine r of two independent isotropic normal vectors of k places has r^2 ~
Beta(1/2, (k - 1) / 2).

**Promise.** Each of the eight has an equal share of ``BUDGET``, divided among all its
comparisons. Only if one of them fails on all that was seen is anything called a fault,
so noise as stated is said to be faulty with a chance of at most ``BUDGET``. All that
follows then is explanation: which fault brings the others about. One fault should be
told once.

- Parameters that are the same in every step are told first, and left out.
- Steps, or coordinates, that are equal or opposite are told next, and one of each kind
  is kept; the rest is tested on what is left. Where both are, such as with one number
  for a whole parameter, whose steps then all point one way, the side that shrinks
  more is the cause, and the other is looked at in what is left.
- A constant is told before the larger scale and the likeness of steps that it brings.
- Steps that are equal in one parameter are told before weaker likeness.
- Of weaker likeness of steps and of coordinates the one with one sign is the cause,
  or else the surer one.
- The shape is told of only if nothing else is wrong.

The sums are of all steps. Pairs are looked at in a random sample of them, chosen by the
key and the number of the step, once there are more than are kept. What was added as
noise, taken off a noisy sum, tells the coins: all of it is sealed with the key when
saved, and ``found`` is for after the game.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import ceil, gcd, log10, sqrt
from typing import Any, Final, NoReturn, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.dpsgd.likelihood import saved_counts
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.coins import Key
from dpaudit.game.ledger import BUDGET, Fault, How, Look, Road

__all__ = ["NoiseWatch"]

_Floats: TypeAlias = NDArray[np.float64]
_Places: TypeAlias = NDArray[np.int64]
_Values: TypeAlias = float | NDArray[np.float64]

_SEALED: Final = "noise"
_KINDS: Final = 8  # of tests, which share the budget
_QUARTILE: Final = 0.6744897501960817  # of |z|: half of a normal lies within
_BLOCK: Final = 512  # steps that are compared with all others at a time
_MOST_COMPARED: Final = 1024  # coordinates of all ranks, in pairs
_SAME: Final = 0.999  # a cosine from which on two are one
_ALMOST: Final = 0.99  # from which on one is said to be the other
_ROUNDING: Final = 1e-6  # of a cosine of numbers of 32 bits
_NOTHING: Final = 1e-3  # a ratio below which there is no noise
_HUGE: Final = float(np.finfo(np.float32).max)
_SUMS: Final = 4  # sums, squares, number within the quartiles, largest


@final
@dataclass(frozen=True, slots=True)
class _Totals:
    """What is summed up over steps, at each coordinate."""

    groups: _Places
    steps: _Floats
    sums: _Floats
    squares: _Floats
    inside: _Floats
    largest: _Floats

    @classmethod
    def of(cls, rows: NDArray[Any], groups: _Places) -> Self:
        """Return the totals of some steps."""
        wide = rows.astype(np.float64)
        size = np.abs(wide)
        return cls(
            groups=groups,
            steps=np.full(len(groups), float(len(rows))),
            sums=wide.sum(0),
            squares=np.square(wide).sum(0),
            inside=(size < _QUARTILE).sum(0).astype(np.float64),
            largest=size.max(0, initial=0.0),
        )

    def per_group(self, values: _Floats, count: int) -> _Floats:
        """Return sums of values over the coordinates of each parameter."""
        counted = np.bincount(self.groups, weights=values, minlength=count)
        return counted.astype(np.float64)


@final
@dataclass(frozen=True, slots=True)
class _Pool:
    """All that was seen, by all ranks."""

    names: tuple[str, ...]
    totals: _Totals
    rows: NDArray[np.float32]
    numbers: _Places  # of the steps in rows
    groups: _Places  # of the coordinates in rows
    multiplier: float | None  # if it was one and the same
    seen: int
    without: int
    broken: int

    @property
    def used(self) -> int:
        return self.seen - self.without - self.broken

    @property
    def sampled(self) -> bool:
        return len(self.numbers) < self.used


@final
@dataclass(frozen=True, slots=True)
class _Pairs:
    """How alike the rows of a matrix are, two by two."""

    places: int  # of each row
    count: int  # of pairs
    pair: tuple[int, int]  # the most alike, the later first
    cosine: float
    chance: float
    above: int  # pairs that are more alike than chance explains
    one_sign: float  # of these: 1 if all cosines have one sign, 0 if half of them
    first: _Places  # for each row the first that it equals, often itself

    @property
    def found(self) -> bool:
        return self.chance <= BUDGET

    @property
    def distinct(self) -> _Places:
        return np.flatnonzero(self.first == np.arange(len(self.first)))

    @property
    def repeats(self) -> _Places:
        return np.flatnonzero(self.first != np.arange(len(self.first)))

    @property
    def left(self) -> float:
        """Share of rows that are left if each is kept once."""
        return len(self.distinct) / max(len(self.first), 1)


@final
@dataclass(frozen=True, slots=True)
class _Parameters:
    """A test of each parameter, or of each coordinate, that is watched."""

    which: _Places
    sizes: _Floats  # how many values each has
    values: _Floats
    chances: _Floats

    @property
    def wrong(self) -> NDArray[np.bool_]:
        return np.asarray(self.chances <= BUDGET)


@final
class NoiseWatch:
    """Gathers what was added as noise, step by step; tells whether it is noise.

    Args:
        groups: For each coordinate that is watched the number of its parameter.
        names: Of all parameters, the same on all ranks.
        key: Of the run, the same on all ranks; what is saved is sealed with it.
        most_steps: So many steps are kept for comparing them two by two.

    Example:
        >>> watch = NoiseWatch(np.zeros(64, int), ["fc.weight"], Key(bytes(32)))
        >>> rng = np.random.default_rng(0)
        >>> for _ in range(50):
        ...     watch.observe(0.5 * rng.normal(size=64), 1.0)
        >>> looks, faults = watch.found()
        >>> print(looks[0].said)
        measured 0.501 ± 0.006 times the noise stated, in 1 parameter, over 50 steps
        >>> print(faults[0].said)
        noise 0.5 of that stated in every parameter
    """

    def __init__(
        self,
        groups: NDArray[np.int64],
        names: Sequence[str],
        key: Key,
        *,
        most_steps: int = 4096,
    ) -> None:
        _validate.whole_number("most_steps", most_steps, least=2)
        self._groups, self._names = np.asarray(groups, np.int64), tuple(names)
        if self._groups.ndim != 1 or (
            len(self._groups)
            and not 0 <= self._groups.min() <= self._groups.max() < len(self._names)
        ):
            raise InvalidInputError(
                f"groups must be a row of numbers of parameters, 0 to "
                f"{len(self._names) - 1}, got {groups!r:.80}"
            )
        self._key, self._most = key, int(most_steps)
        self._seen = self._without = self._broken = 0
        self._stated = np.array([np.inf, 0.0])  # the least and the most
        self._totals = np.zeros((_SUMS, len(self._groups)))
        self._rows = np.zeros((0, len(self._groups)), np.float32)
        self._numbers = np.zeros(0, np.int64)  # -1 where there is no row

    def __reduce__(self) -> NoReturn:
        raise VoidAuditError("what tells the coins cannot be pickled")

    def observe(self, noise: NDArray[Any], multiplier: float) -> None:
        """Add one step.

        A step for which no noise was stated, or with noise that is no number, is
        passed over and counted.

        Args:
            noise: What was added at each watched coordinate, over the clipping norm.
            multiplier: The standard deviation that was stated for it.
        """
        if noise.shape != self._groups.shape:
            raise InvalidInputError(
                f"noise must have {len(self._groups)} values, one for each watched "
                f"coordinate, got shape {noise.shape}"
            )
        _validate.nonnegative("multiplier", multiplier)
        self._seen += 1
        if multiplier == 0:
            self._without += 1
            return
        scaled = noise.astype(np.float64) / multiplier
        size = np.abs(scaled)
        if len(size) and not size.max() < _HUGE:
            self._broken += 1
            return
        self._stated[0] = min(self._stated[0], multiplier)
        self._stated[1] = max(self._stated[1], multiplier)
        sums, squares, inside, largest = self._totals
        sums += scaled
        squares += scaled * scaled
        inside += size < _QUARTILE
        np.maximum(largest, size, out=largest)
        self._keep(scaled)

    def _keep(self, scaled: _Floats) -> None:
        """Keep a step if it is among the random sample (Vitter's Algorithm R)."""
        step = self._seen - 1
        place = step
        if step >= self._most:
            drawn = self._key.stream("noise steps", step, 16)
            place = int.from_bytes(drawn, "little") % self._seen
        if place >= self._most:
            return
        if place >= len(self._rows):
            self._make_room(place)
        self._rows[place], self._numbers[place] = scaled, step

    def _make_room(self, place: int) -> None:
        more = min(max(2 * len(self._rows), place + 1, 64), self._most)
        more -= len(self._rows)
        self._rows = np.concatenate(
            [self._rows, np.zeros((more, len(self._groups)), np.float32)]
        )
        self._numbers = np.concatenate([self._numbers, np.full(more, -1)])

    def found(
        self, gather: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    ) -> tuple[tuple[Look, ...], tuple[Fault, ...]]:
        """Return what was seen of the noise, and what is wrong with it.

        Only for after the game: it says something about the coins. All ranks must
        call it, and all return the same.

        Args:
            gather: From a row of numbers of this rank to those of all ranks, one
                after the other; all rows are equally long.
        """
        pool = self._pool((lambda own: own) if gather is None else gather)
        if not pool.used or not len(pool.totals.groups):
            return _nothing_seen(pool), ()
        steps, coordinates = _compared(pool.rows)
        faults = _faults(pool, steps, coordinates)
        looks = (
            _look_at_scale(pool),
            _look_at_pairs(pool, steps, coordinates, faults),
        )
        return looks, faults

    def _pool(self, gather: Callable[[NDArray[Any]], NDArray[Any]]) -> _Pool:
        """Return what all ranks saw; rows are padded, as ranks may differ."""
        own = np.array((len(self._groups), len(self._rows), *self._counts()))
        facts = gather(own).reshape(-1, len(own)).astype(np.int64)
        ranks, (wide, long) = len(facts), facts[:, :2].max(0)
        narrow = min(int(wide), max(_MOST_COMPARED // ranks, 1))
        mine = _spread(len(self._groups), narrow)
        sums = np.zeros((_SUMS + 2, wide))
        sums[0, : len(self._groups)] = self._groups
        sums[1, : len(self._groups)] = self._seen - self._without - self._broken
        sums[2:, : len(self._groups)] = self._totals
        rows = np.zeros((long, narrow), np.float32)
        rows[: len(self._rows), : len(mine)] = self._rows[:, mine]
        numbers = np.full(long, -1)
        numbers[: len(self._rows)] = self._numbers
        sums = gather(sums.ravel()).reshape(ranks, _SUMS + 2, wide)
        rows = gather(rows.ravel()).reshape(ranks, long, narrow)
        numbers = gather(numbers).reshape(ranks, long)
        stated = gather(self._stated).reshape(ranks, 2)
        each = list(zip(sums, facts[:, 0], strict=True))
        totals = np.concatenate([part[:, :n] for part, n in each], axis=1)
        groups = np.concatenate([part[0, _spread(n, narrow)] for part, n in each])
        kept, joined = _joined(rows, numbers, np.minimum(facts[:, 0], narrow))
        return _Pool(
            names=self._names,
            totals=_Totals(totals[0].astype(np.int64), *totals[1:]),
            rows=joined,
            numbers=kept,
            groups=groups.astype(np.int64),
            multiplier=_the_same(stated),
            seen=int(facts[:, 2].max()),
            without=int(facts[:, 3].max()),
            broken=int(facts[:, 4].max()),
        )

    def _counts(self) -> tuple[int, int, int]:
        return self._seen, self._without, self._broken

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return what was gathered, in a form that only the key can read."""
        # A number of its own for every save: no two are sealed alike.
        number = secrets.randbits(63)
        parts = (self._stated, self._totals, self._rows, self._numbers)
        plain = b"".join(part.tobytes() for part in parts)
        counts = (*self._counts(), len(self._rows), number)
        return {
            f"{_SEALED}.steps": np.array(counts),
            _SEALED: self._key.sealed(_SEALED, number, np.frombuffer(plain, np.uint8)),
        }

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what ``saved`` returned."""
        *counts, rows, number = saved_counts(saved, f"{_SEALED}.steps", 5)
        shapes = ((2,), self._totals.shape, (rows, len(self._groups)), (rows,))
        kinds = (np.float64, np.float64, np.float32, np.int64)
        sizes = [
            int(np.prod(shape)) * np.dtype(kind).itemsize
            for shape, kind in zip(shapes, kinds, strict=True)
        ]
        sealed = saved.get(_SEALED)
        if (
            sealed is None
            or sealed.dtype != np.uint8
            or sealed.shape != (sum(sizes),)
            or rows > self._most
        ):
            raise InvalidInputError(
                "the state does not hold what the audit gathered of the noise"
            )
        plain = self._key.sealed(_SEALED, number, sealed).tobytes()
        opened: list[NDArray[Any]] = []
        for shape, kind, size in zip(shapes, kinds, sizes, strict=True):
            opened.append(np.frombuffer(plain[:size], kind).reshape(shape).copy())
            plain = plain[size:]
        stated, totals, kept, numbers = opened
        sane = ((numbers >= -1) & (numbers < counts[0])).all()
        sane &= (totals[1:] >= 0).all() and (totals[2] <= counts[0]).all()
        if not (sane and np.isfinite(totals).all() and np.isfinite(kept).all()):
            raise InvalidInputError("the state was changed, or is of another key")
        self._seen, self._without, self._broken = counts
        self._stated, self._totals = stated, totals
        self._rows, self._numbers = kept, numbers


def _spread(count: int, most: int) -> _Places:
    """Return so many places of ``count`` at most, evenly spread."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def _joined(
    rows: NDArray[np.float32], numbers: _Places, widths: _Places
) -> tuple[_Places, NDArray[np.float32]]:
    """Return the steps that all ranks kept, in order, and their coordinates."""
    kept = reduce(np.intersect1d, numbers, numbers[0])
    kept = kept[kept >= 0]
    parts = []
    for own, named, width in zip(rows, numbers, widths, strict=True):
        order = np.argsort(named)
        parts.append(own[order[np.searchsorted(named[order], kept)], :width])
    return kept, np.concatenate(parts, axis=1)


def _the_same(stated: _Floats) -> float | None:
    least, most = float(stated[:, 0].min()), float(stated[:, 1].max())
    return least if least == most else None


# The laws. Each returns a p-value, or an upper bound on one.


def _two_sided(low: _Values, high: _Values) -> _Floats:
    return np.asarray(np.minimum(1.0, 2 * np.minimum(low, high)))


def scale_chance(squares: _Values, count: _Values) -> _Floats:
    """Return the p-value of a sum of squares of standard normals: chi-squared."""
    return _two_sided(special.chdtr(count, squares), special.chdtrc(count, squares))


def inside_chance(inside: float, count: float) -> float:
    """Return the p-value of a number of values within the quartiles: binomial."""
    below = special.betainc(count - inside, inside + 1, 0.5) if inside < count else 1.0
    above = special.betainc(inside, count - inside + 1, 0.5) if inside > 0 else 1.0
    return float(_two_sided(below, above))


def largest_chance(largest: float, count: float) -> float:
    """Return the p-value of the largest size of standard normals."""
    log_below = (
        count * np.log1p(-2 * special.ndtr(-largest)) if largest > 0 else -np.inf
    )
    return float(_two_sided(np.exp(log_below), -np.expm1(log_below)))


def mean_chance(sums: _Values, count: _Values) -> _Floats:
    """Return the p-value of a sum of standard normals: normal."""
    return np.asarray(2 * special.ndtr(-np.abs(sums) / np.sqrt(count)))


def cosine_chance(cosine: _Values, places: _Values) -> _Floats:
    """Return the chance of a larger cosine, of either sign, between normal vectors.

    The vectors are independent and isotropic, and need not be of one scale. Rounding
    to 32 bits counts for the noise.
    """
    size = np.clip(np.abs(cosine) - _ROUNDING, 0.0, 1.0)
    rest = (1 - size) * (1 + size)
    return np.asarray(special.betainc((np.asarray(places) - 1) / 2, 0.5, rest))


def _cosine_limit(pairs: int, places: int) -> float:
    """Return the cosine that chance exceeds with its share of the budget."""
    left = special.betaincinv((places - 1) / 2, 0.5, BUDGET / _KINDS / pairs)
    return sqrt(1 - float(left)) + _ROUNDING


def _corrected(chances: _Values, comparisons: int) -> _Floats:
    """Return chances over all comparisons of all kinds."""
    return np.asarray(np.minimum(1.0, chances * np.float64(comparisons * _KINDS)))


# Pairs.


def _compare(rows: NDArray[Any], places: int, allowance: float = 0.0) -> _Pairs | None:
    """Return how alike rows are; None if there are not two of three places.

    Rows of zeros are left out: they have no direction.
    """
    lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(1))
    used = np.flatnonzero(lengths > 0)
    if len(used) < 2 or places < 3:
        return None
    lengths = lengths[used]
    units = (rows[used] / lengths[:, None]).astype(np.float32)
    count = len(used) * (len(used) - 1) // 2
    limit = _cosine_limit(count, places) + allowance
    best, pair, signs, first = -1.0, (1, 0), np.zeros(2, int), np.arange(len(rows))
    for start in range(0, len(used), _BLOCK):
        stop = min(start + _BLOCK, len(used))
        cosines = np.tril(units[start:stop] @ units[:stop].T, start - 1)
        size = np.abs(cosines)
        top = divmod(int(size.argmax()), stop)
        if size[top] > best and start + top[0] > 0:
            best, pair = float(size[top]), (start + top[0], top[1])
        if size[top] > limit:
            signs += [(cosines > limit).sum(), (cosines < -limit).sum()]
        if size[top] > max(limit, _SAME):
            same = size > max(limit, _SAME)
            same &= np.abs(lengths[start:stop, None] / lengths[:stop] - 1) < 0.01
            again = np.flatnonzero(same.any(1))
            first[used[start + again]] = used[same[again].argmax(1)]
    cosine = _cosine(rows, int(used[pair[0]]), int(used[pair[1]]))
    chance = cosine_chance(max(abs(cosine) - allowance, 0.0), places)
    return _Pairs(
        places=places,
        count=count,
        pair=(int(used[pair[0]]), int(used[pair[1]])),
        cosine=cosine,
        chance=float(_corrected(chance, count)),
        above=int(signs.sum()),
        one_sign=abs(int(signs[0] - signs[1])) / max(int(signs.sum()), 1),
        first=first,
    )


def _cosine(rows: NDArray[Any], one: int, two: int) -> float:
    a, b = rows[one].astype(np.float64), rows[two].astype(np.float64)
    return float(a @ b / sqrt(float(a @ a) * float(b @ b)))


def _compared(rows: NDArray[Any]) -> tuple[_Pairs | None, _Pairs | None]:
    """Return how alike steps are, and how alike coordinates, if not all zero."""
    steps = _compare(rows, int(rows.any(0).sum()))
    return steps, _compare(rows.T, len(rows))


def _centred(rows: NDArray[Any]) -> tuple[_Pairs | None, _Pairs | None]:
    """Return the same without what is constant at each coordinate.

    Coordinates then have a place less. Steps have cosines of -1 / (steps - 1) on
    average, which is allowed for twice.
    """
    less = rows - rows.sum(0) / max(len(rows), 1)
    top = np.abs(rows).max(0, initial=0.0)
    less[:, np.abs(less).max(0, initial=0.0) <= 1e-5 * top] = 0
    steps = _compare(less, int(less.any(0).sum()), 2 / max(len(rows) - 1, 1))
    return steps, _compare(less.T, len(rows) - 1)


# Which fault explains which.


def _faults(
    pool: _Pool, steps: _Pairs | None, coordinates: _Pairs | None
) -> tuple[Fault, ...]:
    """Return what is wrong; nothing if all eight tests of all that was seen pass."""
    totals = pool.totals
    alarms = [
        _scales(totals).wrong.any(),
        _parameter_means(totals, free=False).wrong.any(),
        _coordinate_means(totals, free=False).wrong.any(),
        _shape(totals) is not None,
        steps is not None and steps.found,
        coordinates is not None and coordinates.found,
    ]
    return _explained(pool) if any(alarms) else ()


def _explained(pool: _Pool) -> tuple[Fault, ...]:
    faults, rows, columns = _repetitions(pool)
    left, groups = pool.rows[np.ix_(rows, columns)], pool.groups[columns]
    totals = _Totals.of(left, groups) if faults else pool.totals
    scales = _scales(totals)
    free = bool(scales.wrong.any())
    at_coordinates = _coordinate_means(totals, free=free)
    constant = bool(at_coordinates.wrong.any())
    even = _equalised(left, groups) if free else left
    steps, coordinates = _likely(even, constant=constant)
    alike = apart = (
        _repeated_apart(pool, even, rows, columns) if steps or coordinates else ()
    )
    if steps and not apart:
        alike = (_alike_steps(pool, steps, rows),)
    elif coordinates and not apart:
        alike = (_alike_coordinates(pool, coordinates, columns),)
    parameters = None if alike else _parameter_means(totals, free=free)
    means = () if steps or apart else _mean_faults(pool, at_coordinates, parameters)
    if means:
        scales = _scales(totals, centred=True)
    faults = (*faults, *alike, *means)
    faults += _scale_faults(pool, scales, loosely=bool(alike))
    shape = None if faults else _shape(totals)
    return faults if shape is None else (*faults, shape)


def _equalised(rows: NDArray[Any], groups: _Places) -> NDArray[Any]:
    """Return steps with every parameter at one scale; zeros stay."""
    squares = np.square(rows, dtype=np.float64).sum(0) / max(len(rows), 1)
    sizes = np.bincount(groups)
    scale = np.sqrt(np.bincount(groups, weights=squares) / np.maximum(sizes, 1))
    return (rows / np.where(scale > 0, scale, 1.0)[groups]).astype(np.float32)


def _repetitions(pool: _Pool) -> tuple[tuple[Fault, ...], _Places, _Places]:
    """Tell of equal steps and equal coordinates; return one of each of them."""
    even = _equalised(pool.rows, pool.groups)
    rows = np.arange(len(even))
    faults, columns = _stuck(pool, even)
    for _ in range(2):
        steps, coordinates = _compared(even[np.ix_(rows, columns)])
        by_step = steps.left if steps else 1.0
        by_coordinate = coordinates.left if coordinates else 1.0
        if steps and by_step < 1 and by_step <= by_coordinate:
            faults += (_repeated_steps(pool, steps, rows, columns),)
            rows = rows[steps.distinct]
        elif coordinates and by_coordinate < 1:
            faults += _repeated_coordinates(pool, coordinates, columns)
            columns = columns[coordinates.distinct]
    return faults, rows, columns


def _stuck(pool: _Pool, even: NDArray[Any]) -> tuple[tuple[Fault, ...], _Places]:
    """Tell of parameters that are the same in every step, and leave them out.

    If all are, the steps tell it.
    """
    totals = _Totals.of(even, pool.groups)
    means = _coordinate_means(totals, free=True)
    squares = np.where(totals.squares > 0, totals.squares, 1.0)
    cosines = np.abs(totals.sums) / np.sqrt(squares * max(len(even), 1))
    stuck = np.zeros(len(pool.groups), bool)
    stuck[means.which] = means.wrong & (cosines[means.which] > _SAME)
    columns = np.arange(len(pool.groups))
    if not stuck.any() or (stuck | (totals.squares == 0)).all():
        return (), columns
    fault = Fault(
        road=Road.INDEPENDENCE,
        said=f"the noise of {_listed(pool, np.unique(pool.groups[stuck]))} is the same "
        "in every step",
        measured=f"{stuck.sum()} of {len(stuck)} coordinates stay over {len(even)} "
        "steps",
        claimed="independent noise",
        cause="the generator of that noise is seeded in every step",
        chance=float(means.chances.min()),
    )
    return (fault,), columns[~stuck]


def _likely(
    rows: NDArray[Any], *, constant: bool
) -> tuple[_Pairs | None, _Pairs | None]:
    """Return how alike steps are, or coordinates: what explains the other, if any."""
    steps, coordinates = (_centred if constant else _compared)(rows)
    steps = steps if steps and steps.found else None
    coordinates = coordinates if coordinates and coordinates.found else None
    if steps and coordinates:
        clearer = steps.one_sign - coordinates.one_sign
        surer = steps.chance < coordinates.chance
        by_steps = clearer > 0 if abs(clearer) > 0.5 else surer
        return (steps, None) if by_steps else (None, coordinates)
    return steps, coordinates


# The tests of totals.


def _scales(totals: _Totals, *, centred: bool = False) -> _Parameters:
    """Return the noise of each parameter over that stated.

    If all together are wrong and none differs from the rest, each is wrong as all are.

    Args:
        totals: Of all steps.
        centred: Whether without what is constant at each coordinate.
    """
    count = int(totals.groups.max()) + 1
    values, squares = totals.steps, totals.squares
    if centred:
        squares = squares - np.square(totals.sums) / np.maximum(values, 1)
        values = np.maximum(values - 1, 0)
    sizes = totals.per_group(values, count)
    which = np.flatnonzero(sizes > 0)
    sizes, sums = sizes[which], totals.per_group(squares, count)[which]
    own = _corrected(scale_chance(sums, sizes), len(which))
    together = _corrected(scale_chance(sums.sum(), sizes.sum()), 1)
    if together <= BUDGET and (_at_one_scale(sums, sizes) or (own > BUDGET).all()):
        ratio = sqrt(max(float(sums.sum() / sizes.sum()), 0.0))
        ratios = np.full(len(which), ratio)
        return _Parameters(which, sizes, ratios, np.minimum(own, together))
    return _Parameters(which, sizes, np.sqrt(np.maximum(sums, 0) / sizes), own)


def _at_one_scale(squares: _Floats, sizes: _Floats) -> bool:
    """Return whether parameters could all be wrong by one and the same ratio."""
    common = float(squares.sum() / sizes.sum())
    if not common > 0:
        return True
    chances = scale_chance(squares / common, sizes)
    return bool((_corrected(chances, len(sizes)) > BUDGET).all())


def _parameter_means(totals: _Totals, *, free: bool) -> _Parameters:
    """Return the mean of each parameter, tested at any scale if ``free``."""
    count = int(totals.groups.max()) + 1
    sizes = totals.per_group(totals.steps, count)
    which = np.flatnonzero(sizes > 0)
    sums = totals.per_group(totals.sums, count)[which]
    squares = totals.per_group(totals.squares, count)[which]
    return _means(which, sums, squares, sizes[which], free=free)


def _coordinate_means(totals: _Totals, *, free: bool) -> _Parameters:
    """Return the mean at each coordinate over all steps, tested likewise."""
    which = np.flatnonzero(totals.steps > 0)
    sums, squares = totals.sums[which], totals.squares[which]
    return _means(which, sums, squares, totals.steps[which], free=free)


def _means(
    which: _Places, sums: _Floats, squares: _Floats, sizes: _Floats, *, free: bool
) -> _Parameters:
    if free:
        cosines = sums / np.sqrt(np.where(squares > 0, squares * sizes, 1.0))
        chances = np.where(sizes > 2, cosine_chance(cosines, np.maximum(sizes, 3)), 1.0)
    else:
        chances = mean_chance(sums, sizes)
    return _Parameters(which, sizes, sums / sizes, _corrected(chances, len(which)))


def _shape(totals: _Totals) -> Fault | None:
    """Return whether too few or too many values are near 0, or one is too far off."""
    count, inside = float(totals.steps.sum()), float(totals.inside.sum())
    largest = float(totals.largest.max())
    halves = float(_corrected(inside_chance(inside, count), 1))
    ends = float(_corrected(largest_chance(largest, count), 1))
    if min(halves, ends) > BUDGET:
        return None
    near = f"{inside / count:.3f} of it within {_QUARTILE:.3f} standard deviations"
    far = f"the largest of {count:.0f} values {largest:.2f} standard deviations off"
    heavy = inside > count / 2 if halves <= ends else largest > sqrt(2 * np.log(count))
    return Fault(
        road=Road.NOISE,
        said="the noise is not normal",
        measured=f"{near}, {far}",
        claimed="normal noise, half of it within,",
        cause=(
            "noise of another law, with heavier tails, such as Laplace's"
            if heavy
            else "noise of another law, with lighter tails, such as a uniform one, or "
            "noise that is cut off"
        ),
        chance=min(halves, ends),
    )


# What is said of scale and mean.


def _scale_faults(
    pool: _Pool, scales: _Parameters, *, loosely: bool
) -> tuple[Fault, ...]:
    """Tell of too little noise, and of too much.

    Args:
        pool: All that was seen.
        scales: Of the parameters.
        loosely: Whether likeness widens the error: then by more than a fifth.
    """
    wrong = scales.wrong
    if loosely:
        wrong = wrong & (np.abs(np.log(np.maximum(scales.values, 1e-300))) > 0.2)
    low, high = wrong & (scales.values < 1), wrong & (scales.values > 1)
    faults = []
    if low.any():
        faults.append(
            Fault(
                road=Road.NOISE,
                said=f"{_ratios(scales.values[low])} {_where(pool, scales, low)}",
                measured=_measured(scales, low),
                claimed="1",
                cause=_why_little(pool, scales, low),
                chance=float(scales.chances[low].min()),
            )
        )
    if high.any():
        faults.append(
            Fault(
                road=Road.NOISE,
                said=f"{_ratios(scales.values[high])} {_where(pool, scales, high)}: "
                "more noise than stated, or something besides noise",
                measured=_measured(scales, high),
                claimed="1",
                cause=_why_much(pool, scales, high),
                chance=float(scales.chances[high].min()),
            )
        )
    return tuple(faults)


def _measured(scales: _Parameters, wrong: NDArray[np.bool_]) -> str:
    sizes = scales.sizes[wrong]
    times = sqrt(float(np.square(scales.values[wrong]) @ sizes / sizes.sum()))
    error = times / sqrt(2 * float(sizes.sum()))
    return f"{_with_error(times, error)} of the noise stated"


def _why_little(pool: _Pool, scales: _Parameters, low: NDArray[np.bool_]) -> str:
    ratios = scales.values[low]
    if (ratios < _NOTHING).all():
        if low.all():
            return "no noise is added"
        return "no noise is added there: it is left out when noise is added"
    if low.all() and ratios.max() == ratios.min():
        return _everywhere(pool, float(ratios.mean()))
    if low.sum() == 1:
        return (
            "that parameter is left out when noise is added, or has a scale of its own"
        )
    return "parameters are scaled apart from each other"


def _why_much(pool: _Pool, scales: _Parameters, high: NDArray[np.bool_]) -> str:
    ratios = scales.values[high]
    if high.all() and ratios.max() == ratios.min():
        return _everywhere(pool, float(ratios.mean()))
    return "noise is added more than once there, or what was read holds more than noise"


def _everywhere(pool: _Pool, ratio: float) -> str:
    stated = pool.multiplier
    if stated and abs(stated - 1) > 0.05:
        if abs(ratio * stated - 1) < 0.02:
            return (
                "noise is scaled wrongly everywhere: the noise multiplier of "
                f"{stated:.4g} is left out"
            )
        if abs(ratio / stated - 1) < 0.02:
            return (
                "noise is scaled wrongly everywhere: it is multiplied twice by the "
                f"noise multiplier of {stated:.4g}"
            )
    return "noise is scaled wrongly everywhere"


def _mean_faults(
    pool: _Pool, coordinates: _Parameters, parameters: _Parameters | None
) -> tuple[Fault, ...]:
    """Tell of a constant, by parameters if coordinates are independent."""
    tested = coordinates
    if coordinates.wrong.any():
        worst = int(coordinates.chances.argmin())
        groups = pool.totals.groups[coordinates.which[coordinates.wrong]]
        what = (
            f"mean {coordinates.values[worst]:.3g} noises at one coordinate, off at "
            f"{len(groups)} of {len(coordinates.which)}"
        )
    elif parameters is not None and parameters.wrong.any():
        worst = int(parameters.chances.argmin())
        groups = parameters.which[parameters.wrong]
        what = f"mean {parameters.values[worst]:.3g} noises"
        tested = parameters
    else:
        return ()
    return (
        Fault(
            road=Road.NOISE,
            said="a constant is added with the noise in "
            + _listed(pool, np.unique(groups)),
            measured=what,
            claimed="mean 0",
            cause=(
                "something that stays from step to step is added besides noise, or "
                "part of the noise is the same in every step"
            ),
            chance=float(tested.chances.min()),
        ),
    )


# What is said of pairs.


def _repeated_steps(
    pool: _Pool, pairs: _Pairs, rows: _Places, columns: _Places, where: str = ""
) -> Fault:
    """Tell of steps that are equal, in some coordinates."""
    numbers = pool.numbers[rows]
    again = pairs.repeats
    later, earlier = numbers[again] + 1, numbers[pairs.first[again]] + 1
    compared = pool.rows[np.ix_(rows, columns)]
    cosine = _cosine(compared, int(again[0]), int(pairs.first[again[0]]))
    return Fault(
        road=Road.INDEPENDENCE,
        said=f"the noise of step {later[0]} is {_minus(cosine)}that of step "
        f"{earlier[0]}{where}",
        measured=f"correlation {cosine:.3f} of {pairs.places} coordinates; "
        f"repeated steps: {len(again)} of {len(numbers)}",
        claimed="independent noise",
        cause=(
            "one draw is used twice, with its sign turned"
            if cosine < 0
            else _why_repeated(numbers + 1, later, earlier, sampled=pool.sampled)
        ),
        chance=pairs.chance,
    )


def _repeated_apart(
    pool: _Pool, left: NDArray[Any], rows: _Places, columns: _Places
) -> tuple[Fault, ...]:
    """Tell of parameters in which steps are equal, as they are not in all."""
    groups = pool.groups[columns]
    which = np.unique(groups)
    faults = []
    for group in which:
        own = np.flatnonzero(groups == group)
        pairs = _compare(left[:, own], len(own))
        if pairs and pairs.left < 1 and pairs.chance * len(which) <= BUDGET:
            pairs = replace(pairs, chance=pairs.chance * len(which))
            where = f" in {_listed(pool, [int(group)])}"
            faults.append(_repeated_steps(pool, pairs, rows, columns[own], where))
    return tuple(faults)


def _why_repeated(
    numbers: _Places, later: _Places, earlier: _Places, *, sampled: bool
) -> str:
    """Return the cause that the lags of equal steps point to."""
    lags = later - earlier
    if len(later) == len(numbers) - 1:
        return "the generator is seeded in every step"
    period = reduce(gcd, (int(lag) for lag in lags))
    classes = len(numbers) - len(later)
    regular = classes == len(np.unique(numbers % period))
    if regular and numbers[-1] - numbers[0] >= 2 * period:
        return f"noise is seeded anew every {period} steps (each epoch)"
    inside = int(((numbers >= later[0]) & (numbers <= later[-1])).sum())
    if (lags == lags[0]).all() and (sampled or inside == len(later)):
        about = " or before" if sampled else ""
        return (
            f"the generator went back to the state of step {earlier[0]} at step "
            f"{later[0]}{about} (a resume from a checkpoint)"
        )
    return "the generator is seeded anew, or set back, several times"


def _repeated_coordinates(
    pool: _Pool, pairs: _Pairs, columns: _Places
) -> tuple[Fault, ...]:
    """Tell of coordinates that are equal, within parameters and across them."""
    again = pairs.repeats
    one, two = pool.groups[columns[again]], pool.groups[columns[pairs.first[again]]]
    within, across = one == two, one != two
    faults = []
    if within.any():
        faults.append(_broadcast(pool, pairs, one[within]))
    if across.any():
        named = np.concatenate([one[across], two[across]])
        faults.append(_shared(pool, pairs, named, int(across.sum())))
    return tuple(faults)


def _broadcast(pool: _Pool, pairs: _Pairs, groups: _Places) -> Fault:
    which = np.unique(groups)
    whose = "its" if len(which) == 1 else "their"
    return Fault(
        road=Road.INDEPENDENCE,
        said=f"the noise of {_listed(pool, which)} is the same in several of {whose} "
        "coordinates",
        measured=f"{len(groups)} of {len(pairs.first)} coordinates repeat another one "
        f"over {pairs.places} steps",
        claimed="independent noise",
        cause="noise of a smaller shape is broadcast over the parameter",
        chance=pairs.chance,
    )


def _shared(pool: _Pool, pairs: _Pairs, groups: _Places, count: int) -> Fault:
    return Fault(
        road=Road.INDEPENDENCE,
        said=f"the noise of {_listed(pool, np.unique(groups))} is the same",
        measured=f"{count} of {len(pairs.first)} coordinates repeat one of another "
        f"parameter over {pairs.places} steps",
        claimed="independent noise",
        cause="one noise is used for several parameters, or each is seeded alike",
        chance=pairs.chance,
    )


def _alike_steps(pool: _Pool, pairs: _Pairs, rows: _Places) -> Fault:
    later, earlier = (int(pool.numbers[rows[each]]) + 1 for each in pairs.pair)
    said = (
        f"the noise of step {later} is {_minus(pairs.cosine)}that of step {earlier}"
        if abs(pairs.cosine) > _ALMOST
        else f"the noise of steps {later} and {earlier} is correlated"
    )
    return Fault(
        road=Road.INDEPENDENCE,
        said=said,
        measured=f"correlation {pairs.cosine:.3f} of {pairs.places} coordinates; "
        f"{pairs.above} of {pairs.count} pairs of steps beyond chance",
        claimed="independent noise",
        cause="part of the noise of one step is used again in another",
        chance=pairs.chance,
    )


def _alike_coordinates(pool: _Pool, pairs: _Pairs, columns: _Places) -> Fault:
    which = np.unique([pool.groups[columns[each]] for each in pairs.pair])
    inside = len(which) == 1
    return Fault(
        road=Road.INDEPENDENCE,
        said=f"the noise of {_listed(pool, which)} is correlated between "
        + ("several of its coordinates" if inside else "them"),
        measured=f"correlation {pairs.cosine:.3f} over {pairs.places} steps; "
        f"{pairs.above} of {pairs.count} pairs of coordinates beyond chance",
        claimed="independent noise",
        cause=(
            "part of the noise is of a smaller shape and broadcast over the parameter"
            if inside
            else "part of one noise is used for several parameters"
        ),
        chance=pairs.chance,
    )


# Words.


def _minus(cosine: float) -> str:
    return "minus " if cosine < 0 else ""


def _where(pool: _Pool, scales: _Parameters, wrong: NDArray[np.bool_]) -> str:
    if wrong.all():
        nothing = (scales.values < _NOTHING).all()
        return "in any parameter" if nothing else "in every parameter"
    return "in " + _listed(pool, scales.which[wrong])


def _listed(pool: _Pool, which: Iterable[int]) -> str:
    names = [repr(pool.names[each]) for each in which]
    if len(names) == 1:
        return f"parameter {names[0]}"
    if len(names) > 3:
        names[2:] = [f"{len(names) - 2} more"]
    return f"parameters {', '.join(names[:-1])} and {names[-1]}"


def _ratios(values: _Floats) -> str:
    if (values < _NOTHING).all():
        return "no noise"
    least, most = (_rounded(float(each)) for each in (values.min(), values.max()))
    ratio = least if least == most else f"{least} to {most}"
    return f"noise {ratio} of that stated"


def _rounded(ratio: float) -> str:
    """Return a ratio with two digits, and with more near 1, where they matter."""
    return f"{ratio:.2g}" if abs(ratio - 1) > 0.1 else f"{ratio:.3f}"


def _with_error(value: float, error: float) -> str:
    if not error > 0:
        return f"{value:g}"
    digits = max(ceil(-log10(error)), 0)
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _passed_over(pool: _Pool) -> str:
    """Return which steps were passed over; nothing if none was."""
    parts = [
        f"{_counted(number, 'step')} {why}"
        for number, why in (
            (pool.without, "for which no noise was stated"),
            (pool.broken, "with noise that is no number"),
        )
        if number
    ]
    return f"; passed over: {', '.join(parts)}" if parts else ""


def _nothing_seen(pool: _Pool) -> tuple[Look, ...]:
    said = "a step with noise that can be read would" + _passed_over(pool)
    return tuple(
        Look(road=road, how=How.NOT_LOOKED_AT, said=said)
        for road in (Road.NOISE, Road.INDEPENDENCE)
    )


def _look_at_scale(pool: _Pool) -> Look:
    values = float(pool.totals.steps.sum())
    times = sqrt(float(pool.totals.squares.sum()) / values)
    error = times / sqrt(2 * values)
    parameters = len(np.unique(pool.totals.groups))
    return Look(
        road=Road.NOISE,
        how=How.PROBED,
        said=f"measured {_with_error(times, error)} times the noise stated, in "
        f"{_counted(parameters, 'parameter')}, over {_counted(pool.used, 'step')}"
        + _passed_over(pool),
    )


def _look_at_pairs(
    pool: _Pool,
    steps: _Pairs | None,
    coordinates: _Pairs | None,
    faults: tuple[Fault, ...],
) -> Look:
    parts = []
    if steps:
        parts.append(
            f"of two steps is {abs(steps.cosine):.2g} of {steps.places} coordinates"
        )
    if coordinates:
        parts.append(
            f"of two coordinates {'' if parts else 'is '}{abs(coordinates.cosine):.2g} "
            f"over {coordinates.places} steps"
        )
    if not parts:
        return Look(
            road=Road.INDEPENDENCE,
            how=How.NOT_LOOKED_AT,
            said="three steps or more with noise would, and three coordinates or more",
        )
    if any(fault.road is Road.INDEPENDENCE for fault in faults):
        chance = "more than chance explains"
    elif any(pairs and pairs.found for pairs in (steps, coordinates)):
        chance = "which a fault of the noise itself explains"
    else:
        chance = "as chance explains"
    sample = (
        f"; in a random sample of {len(pool.numbers)} of {pool.used} steps"
        if pool.sampled
        else ""
    )
    return Look(
        road=Road.INDEPENDENCE,
        how=How.PROBED,
        said=f"the largest correlation {', '.join(parts)}, {chance}{sample}",
    )
