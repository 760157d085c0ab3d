"""What is wrong with the noise: tests with exact laws, and the names of faults.

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
follows then is explanation, causes before what they bring about: steps or coordinates
that are equal, of which one each is kept for the rest; weaker likeness, without what is
constant; a constant; the scale, without it; the shape, only if nothing else is wrong.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import ceil, gcd, log10, sqrt
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.game.ledger import BUDGET, Fault, Road

__all__ = [
    "Pairs",
    "Seen",
    "add_row",
    "compared",
    "found",
    "sums_of",
    "with_error",
]

_Floats: TypeAlias = NDArray[np.float64]
_Places: TypeAlias = NDArray[np.int64]
_Values: TypeAlias = float | NDArray[np.float64]
_Faults: TypeAlias = tuple[Fault, ...]

_KINDS: Final = 8  # of tests, which share the budget
_QUARTILE: Final = 0.6744897501960817  # of |z|: half of a normal lies within
_BLOCK: Final = 512  # rows that are compared with all others at a time
_SAME: Final = 0.999  # a cosine from which on two are one
_ROUNDING: Final = 1e-6  # of a cosine of numbers of 32 bits
_NOTHING: Final = 1e-3  # a ratio below which there is no noise

_noise = partial(Fault, road=Road.NOISE)
_likeness = partial(Fault, road=Road.INDEPENDENCE, claimed="independent noise")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that was seen, by all ranks."""

    names: tuple[str, ...]  # of parameters
    groups: _Places  # number of the parameter of each coordinate
    totals: _Floats  # number of steps, then ``sums_of`` them
    rows: NDArray[np.float32]  # a sample of steps
    numbers: _Places  # of the steps in rows
    columns: _Places  # number of the parameter of each coordinate in rows
    multiplier: float  # that was stated; nan if it changed
    used: int  # steps with noise


def sums_of(rows: NDArray[Any]) -> _Floats:
    """Return sums, squares, number within the quartiles and largest, at coordinates."""
    size = np.abs(rows.astype(np.float64))
    inside, largest = (size < _QUARTILE).sum(0), size.max(0, initial=0.0)
    return np.stack([rows.sum(0, np.float64), (size * size).sum(0), inside, largest])


def add_row(totals: _Floats, row: _Floats, size: _Floats) -> None:
    """Add one row to ``sums_of`` others, in place; its absolute values are known."""
    sums, squares, inside, largest = totals
    sums += row
    squares += size * size
    inside += size < _QUARTILE
    np.maximum(largest, size, out=largest)


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
    one = np.log1p(-2 * special.ndtr(-largest)) if largest > 0 else -np.inf
    return float(_two_sided(np.exp(count * one), -np.expm1(count * one)))


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


def _corrected(chances: _Values, comparisons: int) -> _Floats:
    """Return chances over all comparisons of all kinds."""
    return np.asarray(np.minimum(1.0, chances * np.float64(comparisons * _KINDS)))


# The tests.


@final
@dataclass(frozen=True, slots=True)
class _Tested:
    """A test of each parameter, or of each coordinate."""

    which: _Places
    sizes: _Floats  # how many values each has
    values: _Floats
    chances: _Floats

    @property
    def wrong(self) -> NDArray[np.bool_]:
        return np.asarray(self.chances <= BUDGET)


def _summed(by: _Places, *totals: _Floats) -> tuple[NDArray[Any], ...]:
    """Return which parameters or coordinates have values, and sums of each of them."""
    sums = [np.bincount(by, each) for each in totals]
    which = np.flatnonzero(sums[0])
    return which, *(each[which] for each in sums)


def _scales(groups: _Places, totals: _Floats, *, centred: bool = False) -> _Tested:
    """Return the noise of each parameter over that stated, or that less its mean.

    If all together are wrong and none differs from the rest, each is wrong as all are.
    """
    steps, sums, squares, *_ = totals
    if centred:
        squares = squares - np.square(sums) / np.maximum(steps, 1)
        steps = np.maximum(steps - 1, 0)
    which, sizes, sums = _summed(groups, steps, np.maximum(squares, 0.0))
    own = _corrected(scale_chance(sums, sizes), len(which))
    together = _corrected(scale_chance(sums.sum(), sizes.sum()), 1)
    if together <= BUDGET:
        common = sums.sum() / sizes.sum()
        apart = scale_chance(sums / (common or 1.0), sizes) if common else np.ones(1)
        if (own > BUDGET).all() or (_corrected(apart, len(which)) > BUDGET).all():
            ratios = np.full(len(which), sqrt(common))
            return _Tested(which, sizes, ratios, np.minimum(own, together))
    return _Tested(which, sizes, np.sqrt(sums / sizes), own)


def _means(by: _Places, totals: _Floats, *, free: bool = False) -> _Tested:
    """Return the mean of each coordinate or parameter, at any scale if ``free``."""
    which, sizes, sums, squares = _summed(by, *totals[:3])
    chances = mean_chance(sums, sizes)
    if free:
        cosines = sums / np.sqrt(np.where(squares > 0, squares * sizes, 1.0))
        chances = np.where(sizes > 2, cosine_chance(cosines, np.maximum(sizes, 3)), 1.0)
    return _Tested(which, sizes, sums / sizes, _corrected(chances, len(which)))


def _shape(totals: _Floats) -> _Faults:
    """Tell of too few or too many values near 0, or of one that is too far off."""
    count, inside, largest = totals[0].sum(), totals[3].sum(), totals[4].max()
    halves = float(_corrected(inside_chance(inside, count), 1))
    ends = float(_corrected(largest_chance(largest, count), 1))
    if min(halves, ends) > BUDGET:
        return ()
    heavy = inside > count / 2 if halves <= ends else largest > sqrt(2 * np.log(count))
    tails = "heavier tails, as Laplace's" if heavy else "lighter tails, or cut off"
    fault = _noise(
        said="the noise is not normal",
        measured=f"{inside / count:.3f} of it within {_QUARTILE:.3f} standard "
        f"deviations, the largest of {count:.0f} values {largest:.2f} off",
        claimed="normal noise, half of it within,",
        cause=f"noise of another law, with {tails}",
        chance=min(halves, ends),
    )
    return (fault,)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """How alike the rows of a matrix are, two by two."""

    first: _Places  # for each row the first that it equals, often itself
    pair: _Places  # the two most alike, the later first
    places: int = 0  # of each row; 0 if there was nothing to compare
    cosine: float = 0.0
    chance: float = 1.0
    one_sign: float = 0.0  # 1 if all beyond chance have one sign, 0 if half of them

    @property
    def found(self) -> bool:
        """Whether two are more alike than chance explains."""
        return self.chance <= BUDGET

    @property
    def kept(self) -> NDArray[np.bool_]:
        """One of each kind of rows."""
        return np.asarray(self.first == np.arange(len(self.first)))


def _compare(rows: NDArray[Any], places: int, allowance: float = 0.0) -> Pairs:
    """Return how alike rows are, if there are two of three places that are not 0."""
    lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(1))
    used, first, pair = np.flatnonzero(lengths), np.arange(len(rows)), np.array([1, 0])
    if len(used) < 2 or places < 3:
        return Pairs(first=first, pair=pair)
    units = (rows[used] / lengths[used, None]).astype(np.float32)
    count = len(used) * (len(used) - 1) // 2
    rest = special.betaincinv((places - 1) / 2, 0.5, BUDGET / _KINDS / count)
    limit = sqrt(1 - float(rest)) + _ROUNDING + allowance
    cosine, signs = 0.0, np.zeros(2, int)
    for start in range(0, len(used), _BLOCK):
        stop = min(start + _BLOCK, len(used))
        cosines = np.tril(units[start:stop] @ units[:stop].T, start - 1)
        sizes = np.abs(cosines)
        row, column = np.unravel_index(sizes.argmax(), sizes.shape)
        if sizes[row, column] > abs(cosine):
            cosine, pair = float(cosines[row, column]), np.array([start + row, column])
        signs += [(cosines > limit).sum(), (cosines < -limit).sum()]
        same = sizes > max(limit, _SAME)
        again = np.flatnonzero(same.any(1))
        first[used[start + again]] = used[same[again].argmax(1)]
    chance = cosine_chance(max(abs(cosine) - allowance, 0.0), places)
    return Pairs(
        places=places,
        pair=used[pair],
        cosine=cosine,
        chance=float(_corrected(chance, count)),
        one_sign=abs(int(signs[0] - signs[1])) / max(int(signs.sum()), 1),
        first=first,
    )


def compared(rows: NDArray[Any]) -> tuple[Pairs, Pairs]:
    """Return how alike steps are, and how alike coordinates, if not all zero."""
    return _compare(rows, int(rows.any(0).sum())), _compare(rows.T, len(rows))


def _centred(rows: NDArray[Any]) -> tuple[Pairs, Pairs]:
    """Return the same without what is constant at each coordinate.

    Coordinates then have a place less. Steps have cosines of -1 / (steps - 1) on
    average, which is allowed for twice.
    """
    less = rows - rows.sum(0) / max(len(rows), 1)
    less[:, np.square(less).sum(0) <= 1e-10 * np.square(rows).sum(0)] = 0
    steps = _compare(less, int(less.any(0).sum()), 2 / max(len(rows) - 1, 1))
    return steps, _compare(less.T, len(rows) - 1)


def _evened(rows: NDArray[Any]) -> NDArray[Any]:
    """Return steps with every coordinate at one scale; zeros stay."""
    scale = np.sqrt(np.square(rows, dtype=np.float64).sum(0) / max(len(rows), 1))
    return (rows / np.where(scale > 0, scale, 1.0)).astype(np.float32)


# Which fault explains which, and what is said of it.


def found(seen: Seen, steps: Pairs, coordinates: Pairs) -> _Faults:
    """Return what is wrong; nothing if all eight tests of all that was seen pass."""
    groups, totals = seen.groups, seen.totals
    at_each = np.arange(len(groups))
    tests = (_scales(groups, totals), _means(groups, totals), _means(at_each, totals))
    alarm = steps.found or coordinates.found or _shape(totals)
    if not (alarm or any(test.wrong.any() for test in tests)):
        return ()
    told, rows, columns = _repeated(seen)
    left = seen.rows[np.ix_(rows, columns)]
    if told:
        groups, at_each = seen.columns[columns], np.arange(len(columns))
        totals = np.stack([np.full(len(groups), len(rows)), *sums_of(left)])
    scales = _scales(groups, totals)
    free = bool(scales.wrong.any())
    means = _means(at_each, totals, free=free)
    likely = _centred if means.wrong.any() else compared
    steps, coordinates = likely(_evened(left) if free else left)
    # Of two likenesses the cause is the one with one sign, or else the surer one.
    by_steps, by_coordinates = (
        (not pairs.found, round(1 - pairs.one_sign), pairs.chance)
        for pairs in (steps, coordinates)
    )
    alike: _Faults = ()
    constant: _Faults = ()
    if steps.found and by_steps <= by_coordinates:
        later, earlier = seen.numbers[rows][steps.pair] + 1
        cause = "part of the noise of one step is used again in another"
        alike = _alike(steps, f"steps {later} and {earlier} is correlated", cause)
    else:  # Steps that are alike would bring means about.
        constant = _constant(seen, means, groups[means.which])
        if coordinates.found:
            named = _listed(seen, seen.columns[columns][coordinates.pair])
            cause = "part of the noise is broadcast, or used for several parameters"
            said = f"{named} is correlated between coordinates"
            alike = _alike(coordinates, said, cause)
    if not (alike or constant):
        means = _means(groups, totals, free=free)
        constant = _constant(seen, means, means.which)
    if constant:
        scales = _scales(groups, totals, centred=True)
    told += alike + constant
    least = 1.2 if alike else 1.0  # Likeness widens the error.
    for off in (scales.values < 1 / least, scales.values > least):
        if (off & scales.wrong).any():
            told += (_wrong_scale(seen, scales, off & scales.wrong),)
    return told or _shape(totals)


def _repeated(seen: Seen) -> tuple[_Faults, _Places, _Places]:
    """Tell of equal steps and equal coordinates; return one of each of them.

    First of the side that shrinks more. Coordinates that stay are not alike for it.
    """
    told: _Faults = ()
    even = _evened(seen.rows)
    rows, columns = np.arange(len(even)), np.arange(len(seen.columns))
    for _ in range(2):
        left = even[np.ix_(rows, columns)]
        steps, coordinates = compared(left)[0], _centred(left)[1]
        if not steps.kept.all() and steps.kept.mean() <= coordinates.kept.mean():
            told += (_repeated_steps(seen, steps, left, seen.numbers[rows] + 1),)
            rows = rows[steps.kept]
        elif not coordinates.kept.all():
            told += _repeated_coordinates(seen, coordinates, seen.columns[columns])
            columns = columns[coordinates.kept]
    return told, rows, columns


def _repeated_steps(
    seen: Seen, pairs: Pairs, left: NDArray[Any], numbers: _Places
) -> Fault:
    """Tell of equal or opposite steps, and of the cause that their lags point to."""
    again = np.flatnonzero(~pairs.kept)
    later, earlier = numbers[again], numbers[pairs.first[again]]
    minus = "minus " if left[again[0]] @ left[pairs.first[again[0]]] < 0 else ""
    lags, sampled = later - earlier, len(seen.numbers) < seen.used
    period = gcd(*lags.tolist())
    regular = len(numbers) - len(again) == len(np.unique(numbers % period))
    inside = ((numbers >= later[0]) & (numbers <= later[-1])).sum()
    cause = "the generator is seeded anew, or set back, several times"
    if minus:
        cause = "one draw is used twice, with its sign turned"
    elif regular and numbers[-1] - numbers[0] >= 2 * period:
        cause = f"noise is seeded anew every {period} steps (each epoch)"
        if period == 1:
            cause = "the generator is seeded in every step"
    elif (lags == lags[0]).all() and (sampled or inside == len(again)):
        cause = (
            f"the generator went back to the state of step {earlier[0]} at step "
            f"{later[0]}{' or before' if sampled else ''} (seeded anew, or "
            "resumed from a checkpoint)"
        )
    return _likeness(
        said=f"the noise of step {later[0]} is {minus}that of step {earlier[0]}",
        measured=f"correlation {pairs.cosine:.3f} of {pairs.places} coordinates; "
        f"repeated steps: {len(again)} of {len(numbers)}",
        cause=cause,
        chance=pairs.chance,
    )


def _repeated_coordinates(seen: Seen, pairs: Pairs, groups: _Places) -> _Faults:
    """Tell of coordinates that are equal, within parameters and across them."""
    again = np.flatnonzero(~pairs.kept)
    one, two = groups[again], groups[pairs.first[again]]
    measured = f"{len(again)} of {len(groups)} coordinates repeat another one"
    tell = partial(_likeness, measured=measured, chance=pairs.chance)
    told: _Faults = ()
    if (one == two).any():
        said = f"the noise of {_listed(seen, one[one == two])} is the same in several "
        cause = "noise of a smaller shape is broadcast over the parameter"
        told += (tell(said=said + "of its coordinates", cause=cause),)
    if (one != two).any():
        named = _listed(seen, [*one[one != two], *two[one != two]])
        cause = "one noise is used for several parameters, or each is seeded alike"
        told += (tell(said=f"the noise of {named} is the same", cause=cause),)
    return told


def _alike(pairs: Pairs, who: str, cause: str) -> _Faults:
    said, chance = f"the noise of {who}", pairs.chance
    measured = f"correlation {pairs.cosine:.3f} in {pairs.places} places"
    return (_likeness(said=said, measured=measured, cause=cause, chance=chance),)


def _constant(seen: Seen, means: _Tested, groups: _Places) -> _Faults:
    """Tell of means that are not 0, if there are any."""
    if not means.wrong.any():
        return ()
    worst, named = int(means.chances.argmin()), _listed(seen, groups[means.wrong])
    fault = _noise(
        said=f"a constant is added with the noise in {named}",
        measured=f"mean {means.values[worst]:.3g}",
        claimed="mean 0",
        cause="something that stays from step to step is added besides noise, or part "
        "of the noise is the same in every step",
        chance=float(means.chances[worst]),
    )
    return (fault,)


def _wrong_scale(seen: Seen, scales: _Tested, off: NDArray[np.bool_]) -> Fault:
    ratios, sizes, stated = scales.values[off], scales.sizes[off], seen.multiplier
    least, most, every = ratios.min(), ratios.max(), bool(off.all())
    where = "every parameter" if every else _listed(seen, scales.which[off])
    words = " to ".join(dict.fromkeys((f"{least:.3f}", f"{most:.3f}")))
    said = f"noise {words} of that stated in {where}"
    cause = "parameters are scaled apart from each other"
    if most < _NOTHING:
        said = f"no noise in {'any parameter' if every else where}"
        cause = f"no noise is added{'' if every else ' there: it is left out'}"
    elif every and least == most:
        cause = "noise is scaled wrongly everywhere"
        if abs(stated - 1) > 0.05 and abs(most * stated - 1) < 0.02:
            cause += f": the noise multiplier of {stated:.4g} is left out"
        elif abs(stated - 1) > 0.05 and abs(most / stated - 1) < 0.02:
            cause += f": it is multiplied twice by the multiplier of {stated:.4g}"
    elif least > 1:
        cause = "noise is added more than once there, or more than noise was read"
    elif len(ratios) == 1:
        cause = (
            "that parameter is left out when noise is added, or has a scale of its own"
        )
    if least > 1:
        said += ": more noise than stated, or something besides noise"
    times = sqrt(np.square(ratios) @ sizes / sizes.sum())
    error = times / sqrt(2 * sizes.sum())
    measured = f"{with_error(times, error)} of the noise stated"
    chance = float(scales.chances[off].min())
    return _noise(said=said, measured=measured, claimed="1", cause=cause, chance=chance)


def _listed(seen: Seen, groups: Iterable[int]) -> str:
    names = [repr(seen.names[each]) for each in sorted(set(groups))]
    if len(names) == 1:
        return f"parameter {names[0]}"
    if len(names) > 3:
        names[2:] = [f"{len(names) - 2} more"]
    return f"parameters {', '.join(names[:-1])} and {names[-1]}"


def with_error(value: float, error: float) -> str:
    """Return a value with as many digits as its error is worth."""
    digits = max(ceil(-log10(error or 1.0)), 0)
    return f"{value:.{digits}f} ± {error:.{digits}f}"
