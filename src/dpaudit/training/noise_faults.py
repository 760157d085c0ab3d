"""Tests of the noise with exact null distributions, and the faults that they report.

Noise divided by its configured standard deviation is independent standard normal in
every coordinate and every step. Nine statistics then have exact distributions, whatever
the model: the sum of squares in each parameter, in total and in each step
(chi-squared), the number of values between the quartiles (binomial), the largest value,
the mean in each parameter and at each coordinate (normal), and the alignment of two
steps or two coordinates: the cosine r of two independent isotropic normal vectors in k
dimensions has r^2 ~ Beta(1/2, (k - 1) / 2).

Where noise is correlated from step to step, a whitened step is w = d n + past: n is the
noise that the step added, d the strategy's diagonal, ``past`` what earlier steps
contributed. Given ``past``, |d n|^2 over the variance is noncentral chi-squared, so a
step without noise of its own is detected there too.

The values may have been rounded: each is within a known ``h`` of the noise that was
added (``rounding``). Each p-value is an upper bound over all noise within ``h``:
lengths and sums change by at most the length of ``h``, an angle by at most the two
angles that the ``h`` subtend, counts by the values within ``h`` of the quartile. So
rounding alone never causes a fault.

**False-positive rate.** The nine tests have equal parts of the noise's share of
``FALSE_POSITIVE_RATE``, each divided among all its comparisons. A fault is reported
only if one of them fails on all the data, so noise as configured is reported as faulty
with a probability of at most that share. What follows a failure only explains it,
causes before consequences: equal steps or equal coordinates, of which one each is kept
for the rest; weaker correlation, with constants removed; a constant; the scale, with
the constant removed; the shape, only if nothing else is wrong.
More noise than configured is a remark and not a fault if it has the shape of noise.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from math import gcd, sqrt
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.game.findings import (
    FALSE_POSITIVE_RATE,
    NOISE_SHARE,
    Finding,
    Stage,
    fault,
    noted,
)

__all__ = [
    "AlikeRows",
    "NoiseSeen",
    "Steps",
    "add_row",
    "compared",
    "detectable_step",
    "found",
    "slack_of",
    "sums_of",
]

_Floats: TypeAlias = NDArray[np.float64]
_Rows: TypeAlias = NDArray[np.floating]
_Places: TypeAlias = NDArray[np.int64]
_Values: TypeAlias = float | NDArray[np.float64]
_Findings: TypeAlias = tuple[Finding, ...]

_PARTS: Final = 9 / NOISE_SHARE  # of the rate, of which each test has one
_QUARTILE: Final = 0.6744897501960817  # of |z|: half of a normal lies within
_BLOCK: Final = 512  # rows that are compared with all others at a time
_SAME: Final = 0.999  # cosine above which two vectors count as equal
_ROUNDING: Final = 1e-6  # of a cosine of 32-bit numbers
_NOTHING: Final = 1e-3  # noise ratio below which there is no noise

_noise = partial(fault, Stage.NOISE_SCALE)
_likeness = partial(fault, Stage.NOISE_INDEPENDENCE)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Sums of squares of each step with noise, divided by its variance."""

    numbers: _Places
    squares: _Floats  # of the observed step, whitened
    own: _Floats  # of the part that this step added
    past: _Floats  # of the part that earlier steps contributed
    rounding: _Floats  # of the bound on each coordinate's rounding error
    correlated: bool  # whether ``past`` may be nonzero


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSeen:
    """The observed noise of all ranks."""

    names: tuple[str, ...]  # of parameters
    groups: _Places  # number of the parameter of each coordinate
    totals: _Floats  # number of steps, then their ``sums_of``
    rows: NDArray[np.float32]  # a sample of steps
    numbers: _Places  # of the steps in rows
    columns: _Places  # number of the parameter of each coordinate in rows
    slack: tuple[_Floats, _Floats]  # angles by which rounding may turn rows, columns
    multiplier: float  # as configured; nan if it changed
    used: int  # steps with noise
    steps: Steps

    def without(self, steps: _Places) -> "NoiseSeen":
        """Return a copy without some sampled steps; ``totals`` still include them."""
        kept = ~np.isin(self.numbers, steps)
        return replace(
            self,
            rows=self.rows[kept],
            numbers=self.numbers[kept],
            slack=(self.slack[0][kept], self.slack[1]),
            used=self.used - len(steps),
        )


def sums_of(rows: _Rows, errors: _Values = 0.0) -> _Floats:
    """Return sums over rows at each coordinate, and extremes.

    These are the sums of the values, of their squares and of the squared error bounds;
    how many values certainly and possibly lie within the quartiles; and a lower and an
    upper bound on the largest absolute value.

    Args:
        rows: One for each step.
        errors: Bound on the rounding error of each value, a number for each row.
    """
    size = np.abs(rows.astype(np.float64))
    off = np.zeros_like(size) + np.reshape(errors, (-1, 1))
    return np.stack(
        [
            rows.sum(0, np.float64),
            (size * size).sum(0),
            (off * off).sum(0),
            (size + off < _QUARTILE).sum(0),
            (size - off < _QUARTILE).sum(0),
            (size - off).max(0, initial=0.0),
            (size + off).max(0, initial=0.0),
        ]
    )


def add_row(totals: _Floats, row: _Floats, size: _Floats, off: _Floats) -> None:
    """Add a row to a ``sums_of``, given its absolute values and error bounds."""
    sums, squares, rounding, surely, perhaps, least, most = totals
    low, high = size - off, size + off
    sums += row
    squares += size * size
    rounding += off * off
    surely += high < _QUARTILE
    perhaps += low < _QUARTILE
    np.maximum(least, low, out=least)
    np.maximum(most, high, out=most)


def slack_of(
    rows: _Rows, errors: _Floats, rounding: _Floats
) -> tuple[_Floats, _Floats]:
    """Return the largest angle by which rounding may turn each row and each column.

    Args:
        rows: One for each step.
        errors: The length of each row's error vector.
        rounding: The sum of squared errors of each column.
    """
    squares = np.square(rows, dtype=np.float64)
    return (
        _angle(np.square(errors), squares.sum(1)),
        _angle(rounding, squares.sum(0)),
    )


def _angle(rounding: _Floats, squares: _Floats) -> _Floats:
    """Return the angle that an error subtends; a right angle if it hides the rest."""
    share = np.divide(rounding, squares, out=np.ones_like(squares), where=squares > 0)
    return np.asarray(np.arcsin(np.sqrt(np.minimum(share, 1.0))))


# Null distributions. Each function returns a p-value, or an upper bound on one.


def _two_sided(low: _Values, high: _Values) -> _Floats:
    return np.asarray(np.minimum(1.0, 2 * np.minimum(low, high)))


def scale_p_values(
    squares: _Values, count: _Values, rounding: _Values = 0.0
) -> _Floats:
    """Return the p-value of a sum of squares of standard normals: chi-squared.

    Args:
        squares: The sum.
        count: Number of squares.
        rounding: The sum of squared rounding errors.
    """
    low, high = _ends(squares, rounding)
    return _two_sided(special.chdtr(count, high), special.chdtrc(count, low))


def bare_p_values(
    own: _Values, past: _Values, count: _Values, rounding: _Values = 0.0
) -> _Floats:
    """Return the probability of so small a sum of squares of what a step added.

    The values are independent normals whose squared means add up to ``past``, so the
    sum is noncentral chi-squared.
    """
    high, mean = _ends(own, rounding)[1], _ends(past, rounding)[0]
    p_values = special.chndtr(high, count, mean)
    return np.asarray(np.where(np.isfinite(p_values), p_values, 1.0))


def _ends(squares: _Values, rounding: _Values) -> tuple[_Floats, _Floats]:
    """Return a lower and an upper bound on a sum of squares before rounding."""
    length, off = np.sqrt(squares), np.sqrt(rounding)
    return np.square(np.maximum(length - off, 0.0)), np.square(length + off)


def inside_p_value(surely: float, count: float, perhaps: float | None = None) -> float:
    """Return the p-value of a number of values within the quartiles: binomial.

    Args:
        surely: Lower bound on the number within.
        count: Number of values.
        perhaps: Upper bound on the number within; ``surely`` if left out.
    """
    few, many = surely if perhaps is None else perhaps, surely
    below = special.betainc(count - few, few + 1, 0.5) if few < count else 1.0
    above = special.betainc(many, count - many + 1, 0.5) if many > 0 else 1.0
    return float(_two_sided(below, above))


def largest_p_value(least: float, count: float, most: float | None = None) -> float:
    """Return the p-value of the largest absolute value of standard normals.

    Args:
        least: Lower bound on it.
        count: Number of values.
        most: Upper bound on it; ``least`` if left out.
    """
    low, high = (
        np.log1p(-2 * special.ndtr(-largest)) if largest > 0 else -np.inf
        for largest in (least, least if most is None else most)
    )
    return float(_two_sided(np.exp(count * high), -np.expm1(count * low)))


def mean_p_values(sums: _Values, count: _Values, rounding: _Values = 0.0) -> _Floats:
    """Return the p-value of a sum of standard normals: normal."""
    size = np.abs(sums) / np.sqrt(count) - np.sqrt(rounding)
    return np.asarray(2 * special.ndtr(-np.maximum(size, 0.0)))


def cosine_p_value(cosine: _Values, places: _Values) -> _Floats:
    """Return the probability of a larger cosine, of either sign, of normal vectors.

    The vectors are independent and isotropic, and may differ in scale. Rounding to
    32 bits counts in favour of the noise.
    """
    size = np.clip(np.abs(cosine) - _ROUNDING, 0.0, 1.0)
    rest = (1 - size) * (1 + size)
    return np.asarray(special.betainc((np.asarray(places) - 1) / 2, 0.5, rest))


def _corrected(p_values: _Values, comparisons: int) -> _Floats:
    """Return p-values corrected for all comparisons of all tests."""
    return np.asarray(np.minimum(1.0, p_values * np.float64(comparisons * _PARTS)))


# The tests.


@final
@dataclass(frozen=True, slots=True)
class _Tested:
    """A test of each parameter, or of each coordinate."""

    which: _Places
    sizes: _Floats  # how many values each has
    values: _Floats
    p_values: _Floats

    @property
    def wrong(self) -> NDArray[np.bool_]:
        return np.asarray(self.p_values <= FALSE_POSITIVE_RATE)


def _summed(by: _Places, *totals: _Floats) -> tuple[_Places, list[_Floats]]:
    """Return which parameters or coordinates have values, and their sums."""
    sums = [np.asarray(np.bincount(by, each), np.float64) for each in totals]
    which = np.flatnonzero(sums[0])
    return which, [each[which] for each in sums]


def _scales(
    groups: _Places,
    totals: _Floats,
    steps: Steps | None = None,
    *,
    centred: bool = False,
) -> _Tested:
    """Return each parameter's ratio of observed to configured noise.

    If the overall scale is wrong and no parameter differs from the rest, every
    parameter is given the overall ratio.

    Args:
        groups: Number of the parameter of each coordinate.
        totals: Of each coordinate.
        steps: Source of the overall sums; the totals if left out.
        centred: Whether the mean at each coordinate is subtracted.
    """
    count, sums, squares, rounding, *_ = totals
    if centred:
        squares = squares - np.square(sums) / np.maximum(count, 1)
        count = np.maximum(count - 1, 0)
    which, (sizes, sums, off) = _summed(
        groups, count, np.maximum(squares, 0.0), rounding
    )
    whole, values, error = sums.sum(), sizes.sum(), off.sum()
    if steps is not None:
        whole, error = steps.squares.sum(), steps.rounding.sum()
        values = np.float64(len(steps.numbers) * len(groups))
    own = _corrected(scale_p_values(sums, sizes, off), len(which))
    together = _corrected(scale_p_values(whole, values, error), 1)
    if together <= FALSE_POSITIVE_RATE:
        common = whole / values
        apart = np.ones(1)
        if common:
            apart = scale_p_values(sums / common, sizes, off / common)
        if (own > FALSE_POSITIVE_RATE).all() or (
            _corrected(apart, len(which)) > FALSE_POSITIVE_RATE
        ).all():
            ratios = np.full(len(which), sqrt(common))
            return _Tested(which, sizes, ratios, np.minimum(own, together))
    return _Tested(which, sizes, np.sqrt(sums / sizes), own)


def _step_p_values(steps: Steps, places: int, scale: float = 1.0) -> _Floats:
    """Return the p-value of each step's sum of squares if all have this variance."""
    squares, own, past, rounding = (
        part / scale for part in (steps.squares, steps.own, steps.past, steps.rounding)
    )
    p_values = scale_p_values(squares, places, rounding)
    if steps.correlated:
        p_values = np.minimum(p_values, bare_p_values(own, past, places, rounding))
    return _corrected(p_values, _step_comparisons(steps))


def _step_comparisons(steps: Steps) -> int:
    return len(steps.numbers) * (2 if steps.correlated else 1)


def _odd_steps(seen: NoiseSeen) -> NDArray[np.bool_]:
    """Return which steps differ in scale from the configured noise and the others."""
    steps, places = seen.steps, len(seen.groups)
    common = float(steps.squares.mean()) / places
    if not common:
        return np.zeros(len(steps.numbers), bool)
    odd = _step_p_values(steps, places) <= FALSE_POSITIVE_RATE
    odd &= _step_p_values(steps, places, common) <= FALSE_POSITIVE_RATE
    # Coordinates that share noise make steps differ in length. Steps that differ do
    # not make coordinates alike once every step is scaled to one length.
    lengths = np.sqrt(np.square(seen.rows, dtype=np.float64).sum(1, keepdims=True))
    level = seen.rows / np.where(lengths > 0, lengths, 1.0)
    if odd.any() and _compare(level.T, len(level), seen.slack[1]).found:
        odd[:] = False
    return odd


def detectable_step(seen: NoiseSeen) -> float:
    """Return the noise scale below which a single step is reported, with 90 % power.

    0 if even a step without noise would pass, for too few coordinates or too coarse
    rounding.
    """
    places, steps = len(seen.groups), seen.steps
    level = FALSE_POSITIVE_RATE / _PARTS / _step_comparisons(steps) / 2
    least, often = (sqrt(2 * special.gammaincinv(places / 2, p)) for p in (level, 0.9))
    return max((least - sqrt(float(steps.rounding.max()))) / often, 0.0)


def _means(by: _Places, totals: _Floats, *, free: bool = False) -> _Tested:
    """Test the mean of each coordinate or parameter, at any scale if ``free``."""
    which, (sizes, sums, squares, rounding) = _summed(by, *totals[:4])
    p_values = mean_p_values(sums, sizes, rounding)
    if free:
        cosines = np.abs(sums) / np.sqrt(np.where(squares > 0, squares * sizes, 1.0))
        cosines = np.maximum(cosines - _angle(rounding, squares), 0.0)
        p_values = cosine_p_value(cosines, np.maximum(sizes, 3))
        p_values = np.where(sizes > 2, p_values, 1.0)
    return _Tested(which, sizes, sums / sizes, _corrected(p_values, len(which)))


def _shape(totals: _Floats) -> _Findings:
    """Report too few or too many values near 0, or an implausible largest value."""
    count, surely, perhaps = (totals[row].sum() for row in (0, 4, 5))
    least, most = totals[6].max(), totals[7].max()
    halves = float(_corrected(inside_p_value(surely, count, perhaps), 1))
    ends = float(_corrected(largest_p_value(least, count, most), 1))
    if min(halves, ends) > FALSE_POSITIVE_RATE:
        return ()
    inside, largest = (surely + perhaps) / 2, (least + most) / 2
    heavy = inside > count / 2 if halves <= ends else largest > sqrt(2 * np.log(count))
    return (
        _noise(
            "noise.shape",
            inside=inside / count,
            values=count,
            largest=largest,
            cause="heavy" if heavy else "light",
            probability=min(halves, ends),
        ),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeRows:
    """Pairwise similarity of the rows of a matrix."""

    first: _Places  # for each row the first row that it equals, often itself
    pair: _Places  # the two most similar rows, the later first
    places: int = 0  # of each row; 0 if there was nothing to compare
    cosine: float = 0.0
    p_value: float = 1.0  # corrected p-value of the cosine
    one_sign: float = 0.0  # 1 if all significant cosines share a sign, 0 if half do

    @property
    def found(self) -> bool:
        """Whether two rows are more similar than chance explains."""
        return self.p_value <= FALSE_POSITIVE_RATE

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Whether each row is the first of those that it equals."""
        return np.asarray(self.first == np.arange(len(self.first)))


def _compare(rows: _Rows, places: int, slack: _Values = 0.0) -> AlikeRows:
    """Return how similar rows are, if there are two nonzero rows of three places.

    Args:
        rows: To be compared.
        places: Their degrees of freedom.
        slack: The angle by which rounding may turn each. Reducing an angle by that
            much raises its cosine by no more than that.
    """
    lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(1))
    used, first, pair = np.flatnonzero(lengths), np.arange(len(rows)), np.array([1, 0])
    if len(used) < 2 or places < 3:
        return AlikeRows(first=first, pair=pair)
    units = (rows[used] / lengths[used, None]).astype(np.float32)
    count = len(used) * (len(used) - 1) // 2
    rest = special.betaincinv(
        (places - 1) / 2, 0.5, FALSE_POSITIVE_RATE / _PARTS / count
    )
    limit = sqrt(1 - float(rest)) + _ROUNDING
    turned = np.broadcast_to(np.float32(slack), len(rows))[used]
    cosine, largest, signs = 0.0, 0.0, np.zeros(2, int)
    for start in range(0, len(used), _BLOCK):
        stop = min(start + _BLOCK, len(used))
        cosines = np.tril(units[start:stop] @ units[:stop].T, start - 1)
        sizes = np.abs(cosines)
        same = sizes > _SAME
        sizes -= turned[start:stop, None]
        sizes -= turned[:stop]
        row, column = np.unravel_index(sizes.argmax(), sizes.shape)
        if sizes[row, column] > largest or not start:
            largest, cosine = float(sizes[row, column]), float(cosines[row, column])
            pair = np.array([start + row, column])
        beyond = sizes > limit
        signs += [(beyond & (cosines > 0)).sum(), (beyond & (cosines < 0)).sum()]
        same &= beyond
        again = np.flatnonzero(same.any(1))
        first[used[start + again]] = used[same[again].argmax(1)]
    p_value = cosine_p_value(max(largest, 0.0), places)
    return AlikeRows(
        places=places,
        pair=used[pair],
        cosine=cosine,
        p_value=float(_corrected(p_value, count)),
        one_sign=abs(int(signs[0] - signs[1])) / max(int(signs.sum()), 1),
        first=first,
    )


_Slack: TypeAlias = tuple[_Values, _Values]  # of rows and of columns


def compared(rows: _Rows, slack: _Slack = (0.0, 0.0)) -> tuple[AlikeRows, AlikeRows]:
    """Return how similar steps are, and how similar coordinates are."""
    return (
        _compare(rows, int(rows.any(0).sum()), slack[0]),
        _compare(rows.T, len(rows), slack[1]),
    )


def _centred(rows: _Rows, slack: _Slack) -> tuple[AlikeRows, AlikeRows]:
    """Return the same with the mean at each coordinate subtracted.

    Coordinates then have one degree of freedom less. Steps have cosines of
    -1 / (steps - 1) on average, which is allowed for twice.
    """
    less = rows - rows.sum(0) / max(len(rows), 1)
    less[:, np.square(less).sum(0) <= 1e-10 * np.square(rows).sum(0)] = 0
    allowed = slack[0] + np.float64(1 / max(len(rows) - 1, 1))  # for each of the two
    steps = _compare(less, int(less.any(0).sum()), allowed)
    return steps, _compare(less.T, len(rows) - 1, slack[1])


def _evened(rows: _Rows) -> _Rows:
    """Return steps with every coordinate scaled to unit variance; zeros stay."""
    scale = np.sqrt(np.square(rows, dtype=np.float64).sum(0) / max(len(rows), 1))
    return (rows / np.where(scale > 0, scale, 1.0)).astype(np.float32)


# Which fault explains which, and what is reported.


def found(
    seen: NoiseSeen, steps: AlikeRows, coordinates: AlikeRows
) -> tuple[_Findings, _Findings]:
    """Return faults and remarks; none if all nine tests on all the data pass."""
    groups, totals = seen.groups, seen.totals
    at_each = np.arange(len(groups))
    tests = (
        _scales(groups, totals, seen.steps),
        _means(groups, totals),
        _means(at_each, totals),
    )
    by_step = _step_p_values(seen.steps, len(groups)) <= FALSE_POSITIVE_RATE
    alarm = steps.found or coordinates.found or _shape(totals) or by_step.any()
    if not (alarm or any(test.wrong.any() for test in tests)):
        return (), ()
    odd = _odd_steps(seen)
    faults, remarks = _of_steps(seen, odd)
    rest = seen.without(seen.steps.numbers[odd]) if odd.any() else seen
    if not len(rest.numbers):
        return faults, remarks
    more_faults, more = _explained(rest, seen.steps if rest is seen else None)
    faults, remarks = faults + more_faults, remarks + more
    if faults or remarks:
        return faults, remarks
    # Nothing explains the failure: report the test that failed.
    return _of_steps(seen, by_step) if by_step.any() else (_shape(totals), ())


def _explained(seen: NoiseSeen, whole: Steps | None) -> tuple[_Findings, _Findings]:
    """Return faults and remarks on steps that do not differ in scale."""
    groups, totals = seen.groups, seen.totals
    at_each = np.arange(len(groups))
    again, rows, columns = _repeated(seen)
    left, slack = _taken(seen, rows, columns)
    if again or whole is None:
        groups, at_each = seen.columns[columns], np.arange(len(columns))
        totals = np.stack([np.full(len(groups), len(rows)), *sums_of(left)])
        totals[3] = np.square(np.sin(slack[1])) * totals[2]
        whole = None
    scales = _scales(groups, totals, whole)
    free = bool(scales.wrong.any())
    means = _means(at_each, totals, free=free)
    likely = _centred if means.wrong.any() else compared
    steps, coordinates = likely(_evened(left) if free else left, slack)
    # If both are correlated, the cause is the one with one sign, then the smaller p.
    by_steps, by_coordinates = (
        (not pairs.found, round(1 - pairs.one_sign), pairs.p_value)
        for pairs in (steps, coordinates)
    )
    alike: _Findings = ()
    constant: _Findings = ()
    if steps.found and by_steps <= by_coordinates:
        later, earlier = seen.numbers[rows][steps.pair] + 1
        alike = _alike("noise.steps_correlated", steps, later=later, earlier=earlier)
    else:  # Correlated steps would cause nonzero means.
        constant = _constant(seen, means, groups[means.which])
        if coordinates.found:
            named = _names(seen, seen.columns[columns][coordinates.pair])
            alike = _alike("noise.coordinates_correlated", coordinates, named)
    if not (alike or constant):
        means = _means(groups, totals, free=free)
        constant = _constant(seen, means, means.which)
    if constant:
        scales = _scales(groups, totals, centred=True)
    faults = again + alike + constant
    remarks: _Findings = ()
    least = 1.2 if alike else 1.0  # Correlation widens the error.
    less = (scales.values < 1 / least) & scales.wrong
    more = (scales.values > least) & scales.wrong
    if less.any():
        faults += (_wrong_scale(seen, scales, less),)
    if more.any():
        remarks = (_more_noise(seen, scales, more),)
        scale = np.ones(len(seen.names))
        scale[scales.which] = scales.values
        left = left / scale[seen.columns[columns]]
        totals = np.stack([np.full(left.shape[1], len(left)), *sums_of(left)])
    return faults or _shape(totals), remarks


def _of_steps(seen: NoiseSeen, odd: NDArray[np.bool_]) -> tuple[_Findings, _Findings]:
    """Report steps with less noise than configured; remark on those with more."""
    steps, places = seen.steps, len(seen.groups)
    p_values = _step_p_values(steps, places)
    ratios = np.sqrt(steps.squares / places)
    if steps.correlated:
        ratios = np.minimum(ratios, np.sqrt(steps.own / (places + steps.past)))
    faults: _Findings = ()
    remarks: _Findings = ()
    if (less := odd & (ratios < 1)).any():
        worst = int(np.flatnonzero(less)[ratios[less].argmin()])
        faults = (
            _noise(
                "noise.step",
                step=steps.numbers[worst] + 1,
                ratio=ratios[worst],
                others=int(less.sum()) - 1,
                coordinates=places,
                probability=float(p_values[less].min()),
            ),
        )
    if (more := odd & (ratios > 1)).any():
        worst = int(np.flatnonzero(more)[ratios[more].argmax()])
        remarks = (
            noted(
                "noise.more_in_steps",
                more=more.sum(),
                steps=seen.used,
                ratio=ratios[worst],
                step=steps.numbers[worst] + 1,
            ),
        )
    return faults, remarks


def _taken(seen: NoiseSeen, rows: _Places, columns: _Places) -> tuple[_Rows, _Slack]:
    """Return some steps at some coordinates, and their slack."""
    by_row, by_column = seen.slack
    return seen.rows[np.ix_(rows, columns)], (by_row[rows], by_column[columns])


def _repeated(seen: NoiseSeen) -> tuple[_Findings, _Places, _Places]:
    """Report equal steps and equal coordinates; return one of each kind.

    Begins with the side that shrinks more. Constant coordinates do not count as equal.
    """
    faults: _Findings = ()
    even = replace(seen, rows=_evened(seen.rows))
    rows, columns = np.arange(len(even.rows)), np.arange(len(seen.columns))
    for _ in range(2):
        left, slack = _taken(even, rows, columns)
        steps, coordinates = compared(left, slack)[0], _centred(left, slack)[1]
        if not steps.kept.all() and steps.kept.mean() <= coordinates.kept.mean():
            faults += (_repeated_steps(seen, steps, left, seen.numbers[rows] + 1),)
            rows = rows[steps.kept]
        elif not coordinates.kept.all():
            faults += _repeated_coordinates(seen, coordinates, seen.columns[columns])
            columns = columns[coordinates.kept]
    return faults, rows, columns


def _repeated_steps(
    seen: NoiseSeen, pairs: AlikeRows, left: _Rows, numbers: _Places
) -> Finding:
    """Report equal or opposite steps, and the cause that their lags point to."""
    again = np.flatnonzero(~pairs.kept)
    later, earlier = numbers[again], numbers[pairs.first[again]]
    reverse = bool(left[again[0]] @ left[pairs.first[again[0]]] < 0)
    lags, sampled = later - earlier, len(seen.numbers) < seen.used
    period = gcd(*lags.tolist())
    regular = len(numbers) - len(again) == len(np.unique(numbers % period))
    inside = ((numbers >= later[0]) & (numbers <= later[-1])).sum()
    cause = "several_times"
    if reverse:
        cause = "sign_reversed"
    elif regular and numbers[-1] - numbers[0] >= 2 * period:
        cause = "every_epoch" if period > 1 else "every_step"
    elif (lags == lags[0]).all() and (sampled or inside == len(again)):
        cause = "went_back"
    return _likeness(
        "noise.steps_repeated",
        later=later[0],
        earlier=earlier[0],
        reversed=reverse,
        cosine=pairs.cosine,
        places=pairs.places,
        repeated=len(again),
        steps=len(numbers),
        cause=cause,
        period=period,
        sampled=sampled,
        probability=pairs.p_value,
    )


def _repeated_coordinates(
    seen: NoiseSeen, pairs: AlikeRows, groups: _Places
) -> _Findings:
    """Report equal coordinates, within parameters and across them."""
    again = np.flatnonzero(~pairs.kept)
    one, two = groups[again], groups[pairs.first[again]]
    report = partial(
        _likeness,
        repeated=len(again),
        coordinates=len(groups),
        probability=pairs.p_value,
    )
    faults: _Findings = ()
    if (one == two).any():
        faults += (report("noise.broadcast", _names(seen, one[one == two])),)
    if (one != two).any():
        named = _names(seen, [*one[one != two], *two[one != two]])
        faults += (report("noise.shared", named),)
    return faults


def _alike(
    code: str, pairs: AlikeRows, subject: tuple[str, ...] = (), **steps: np.int64
) -> _Findings:
    cosine, places, p_value = pairs.cosine, pairs.places, pairs.p_value
    return (
        _likeness(
            code, subject, **steps, cosine=cosine, places=places, probability=p_value
        ),
    )


def _constant(seen: NoiseSeen, means: _Tested, groups: _Places) -> _Findings:
    """Report nonzero means, if there are any."""
    if not means.wrong.any():
        return ()
    worst = int(means.p_values.argmin())
    return (
        _noise(
            "noise.constant",
            _names(seen, groups[means.wrong]),
            mean=means.values[worst],
            probability=float(means.p_values[worst]),
        ),
    )


def _wrong_scale(seen: NoiseSeen, scales: _Tested, off: NDArray[np.bool_]) -> Finding:
    ratios, stated = scales.values[off], seen.multiplier
    least, most, every = ratios.min(), ratios.max(), bool(off.all())
    cause = "apart"
    if most < _NOTHING:
        cause = "none" if every else "none_there"
    elif every and least == most:
        cause = "everywhere"
        if abs(stated - 1) > 0.05 and abs(most * stated - 1) < 0.02:
            cause = "multiplier_missing"
        elif abs(stated - 1) > 0.05 and abs(most / stated - 1) < 0.02:
            cause = "multiplier_squared"
    elif len(ratios) == 1:
        cause = "one_parameter"
    return _noise(
        "noise.scale",
        _names(seen, scales.which[off]),
        least=least,
        most=most,
        everywhere=every,
        multiplier=stated,
        cause=cause,
        **_together(scales, off),
        probability=float(scales.p_values[off].min()),
    )


def _more_noise(seen: NoiseSeen, scales: _Tested, off: NDArray[np.bool_]) -> Finding:
    named, every = _names(seen, scales.which[off]), bool(off.all())
    return noted("noise.more", named, everywhere=every, **_together(scales, off))


def _together(scales: _Tested, off: NDArray[np.bool_]) -> dict[str, float]:
    """Return the pooled ratio of several parameters, with its standard error."""
    ratios, sizes = scales.values[off], scales.sizes[off]
    ratio = sqrt(np.square(ratios) @ sizes / sizes.sum())
    return {"ratio": ratio, "error": ratio / sqrt(2 * sizes.sum())}


def _names(seen: NoiseSeen, groups: Iterable[int]) -> tuple[str, ...]:
    return tuple(seen.names[each] for each in sorted(set(groups)))
