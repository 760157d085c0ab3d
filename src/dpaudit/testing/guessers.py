"""Guessers learned from calls with known coins, of several kinds.

A mechanism can leak in many ways, so each kind uses other features:

- ``values``: how often each exact output was seen with either coin. Detects leaks in
  discrete outputs and text, outputs that only one of the two inputs can give, and
  repeated noise.
- ``parts``: the same for each place of an output, added up.
- ``place``: the same for the one place that differs most. Of many places some differ by
  chance, and in their sum a leak in one of them is lost.
- ``bins``: how often a number, or the sum, the least and the largest of several, fell
  between given quantiles: any difference in distribution, not only in mean.
- ``lattice``: the binary exponent of a float together with its lowest set bit. Adding
  noise rounds to the spacing of floats near the sum, which depends on the input: the
  attack of Mironov (2012) and of Haney et al. (2022).
- ``steps``: the difference to the outputs of the calls before and after. Detects noise
  that is reused by neighbouring calls.
- ``linear``: the best linear combination of all numbers: for long vectors.
- ``logistic``: a regression on the 64 bits of floats and more
  (``game/learned_log_odds.py``).

Each is fitted to calls whose coins are known and then fixed. The audit that follows
flips new coins, and its bound holds for every guesser.

Reference: Mironov, https://doi.org/10.1145/2382196.2382264; Haney et al.,
https://arxiv.org/abs/2207.13793.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.game.learned_log_odds import LearnedLogOdds, fit_log_odds
from dpaudit.game.pairs import Pairs
from dpaudit.testing.features import Bits, FeatureTable

__all__ = ["FEATURES_USED", "LEARNERS", "Learner", "Scorer"]

_BINS = 32
_PRIOR = 0.5  # pseudo-count of every value with either coin
_MOST_BITWISE = 4  # most numbers of an output for a regression on 64 bits each
_RANDOM_DEVIATIONS = 2.5  # standard deviations; a column that differs less is left out
_MOST_SUMMED_PLACES = 16  # up to so many places, no leak is lost in their sum
_MOST_COLUMNS = 64  # places that are counted one by one: those that differ most
_VALUES_SCREENED = 250_000  # values that these places are chosen by,
_CALLS_SCREENED = 500  # and at least so many calls
_MOST_REGRESSED = 10_000  # numbers that a regression is fitted to
_MOST_LINEAR_COLUMNS = 600  # columns of a linear combination
_TRIMMED = 0.005  # the share of least and of largest numbers that it clips


class Scorer(Protocol):
    """Scores outputs by the evidence that the input was y, the input of coin 1."""

    def scores(self, table: FeatureTable) -> NDArray[np.float64]:
        """Return a score per output: its sign is the guess, its size the confidence."""
        ...


Keys = Callable[[FeatureTable], NDArray[np.int64]]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """Log-ratios of how often values were seen with either coin, column by column.

    Attributes:
        keys: Returns the values of an output that are counted.
        widths: The widths of the table that was counted.
        columns: The columns in use.
        known: The values seen in each column, sorted.
        ratios: The log-ratio of each value; a value never seen adds nothing.
    """

    keys: Keys
    widths: tuple[int, int]
    columns: NDArray[np.int64]
    known: tuple[NDArray[np.int64], ...]
    ratios: tuple[NDArray[np.float64], ...]

    def scores(self, table: FeatureTable) -> NDArray[np.float64]:
        """Return the sum of the log-ratios of an output's values."""
        keys = self.keys(table.with_widths(self.widths))
        total = np.zeros(len(table))
        for j, known, ratios in zip(self.columns, self.known, self.ratios, strict=True):
            place = np.minimum(np.searchsorted(known, keys[:, j]), len(known) - 1)
            total += np.where(known[place] == keys[:, j], ratios[place], 0.0)
        return total


def _count(
    keys: Keys, table: FeatureTable, bits: Bits, *, most: int = _MOST_COLUMNS
) -> Counted:
    """Count values in the columns that differ most between the coins."""
    values = keys(table)
    rows = _screened(*values.shape)
    best = np.argsort(-_excesses(values[rows], bits[rows]), kind="stable")[:most]
    counted = {j: _ratios(values[:, j], bits) for j in best}
    # Columns that may differ by chance only add noise to the sum; one is always kept.
    first = max(best, key=lambda j: counted[j][2])
    columns = np.sort(
        [j for j in best if j == first or counted[j][2] > _RANDOM_DEVIATIONS]
    )
    return Counted(
        keys=keys,
        widths=table.widths,
        columns=columns,
        known=tuple(counted[j][0] for j in columns),
        ratios=tuple(counted[j][1] for j in columns),
    )


def _screened(n: int, width: int) -> slice:
    """Return the rows by which the columns of a table are chosen; all if narrow."""
    return slice(
        n if width <= _MOST_COLUMNS else max(_CALLS_SCREENED, _VALUES_SCREENED // width)
    )


def _ratios(
    column: NDArray[np.int64], bits: Bits
) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """Return a column's values, their log-ratios, and how clearly these differ from 0.

    The last is the chi-square statistic of the table in its standard deviations.
    """
    known, place = np.unique(column, return_inverse=True)
    ones = np.bincount(place, weights=bits, minlength=len(known))
    seen = np.bincount(place, minlength=len(known))
    ratios = np.log((ones + _PRIOR) / (seen - ones + _PRIOR))
    # Coins are fair: correct for how often each came up here.
    ratios -= np.log((np.sum(bits) + _PRIOR) / (np.sum(1 - bits) + _PRIOR))
    excess = float(np.sum((2 * ones - seen) ** 2 / seen)) - len(known)
    return known, ratios, excess / float(np.sqrt(2 * len(known)))


def _excesses(values: NDArray[np.int64], bits: Bits) -> NDArray[np.float64]:
    """Return the last number of ``_ratios`` for every column, in batches."""
    batch = max(1, _VALUES_SCREENED // len(values))
    parts = (values[:, i : i + batch].T for i in range(0, values.shape[1], batch))
    return np.concatenate([_excesses_of(np.ascontiguousarray(p), bits) for p in parts])


def _excesses_of(rows: NDArray[np.int64], bits: Bits) -> NDArray[np.float64]:
    order = np.argsort(rows, axis=1)
    ranked = np.take_along_axis(rows, order, axis=1)
    first = np.ones(rows.shape, np.bool_)  # whether it is the first of equal values
    first[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    starts = np.flatnonzero(first)
    ones = np.add.reduceat(bits[order].ravel().astype(np.float64), starts)
    seen = np.diff(starts, append=rows.size)
    terms = (2 * ones - seen) ** 2 / seen
    known = first.sum(axis=1)
    sums = [np.sum(part) for part in np.split(terms, np.cumsum(known)[:-1])]
    return np.asarray((np.array(sums) - known) / np.sqrt(2 * known))


def _whole(table: FeatureTable) -> NDArray[np.int64]:
    return table.whole[:, None]


def _learn_place(table: FeatureTable, bits: Bits) -> Scorer | None:
    if sum(table.widths) <= _MOST_SUMMED_PLACES:
        return None
    return _count(_parts, table, bits, most=1)


def _parts(table: FeatureTable) -> NDArray[np.int64]:
    numbers = np.ascontiguousarray(table.numbers).view(np.int64)
    return np.concatenate([table.kinds[:, None], numbers, table.texts], axis=1)


def _learn_bins(table: FeatureTable, bits: Bits) -> Scorer | None:
    shown = _shown(table)
    if not shown.shape[1]:
        return None
    levels = np.linspace(0, 1, _BINS + 1)[1:-1]
    quantiles = _quantiles(shown[_screened(*shown.shape)], levels)
    edges = [np.unique(column) for column in quantiles.T]

    def binned(seen: FeatureTable) -> NDArray[np.int64]:
        columns = _shown(seen)
        bins = [
            np.where(np.isnan(c), -1, np.searchsorted(e, c))
            for e, c in zip(edges, columns.T, strict=True)
        ]
        return np.stack(bins, axis=1).astype(np.int64)

    return _count(binned, table, bits)


def _quantiles(
    columns: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return quantiles of the finite values of each column, one row for each level."""
    finite = np.isfinite(columns)
    known = np.sort(np.where(finite, columns, np.nan), axis=0)  # NaNs come last
    last = np.maximum(finite.sum(axis=0) - 1, 0)
    place = (levels[:, None] * last).astype(int)
    return np.asarray(np.nan_to_num(np.take_along_axis(known, place, axis=0)))


def _shown(table: FeatureTable) -> NDArray[np.float64]:
    """Return an output's numbers, and features that do not depend on their order."""
    return np.concatenate([table.numbers, table.ordered()], axis=1)


def _learn_lattice(table: FeatureTable, bits: Bits) -> Scorer | None:
    if not table.numbers.shape[1]:
        return None
    return _count(_lattice, table, bits)


def _lattice(table: FeatureTable) -> NDArray[np.int64]:
    """Return sign, binary exponent and lowest set bit of every number, as one code."""
    numbers = np.nan_to_num(table.numbers, nan=0.0, posinf=0.0, neginf=0.0)
    fraction, exponent = np.frexp(numbers)
    digits = np.abs(fraction * 2.0**53).astype(np.int64)
    lowest = np.log2(np.maximum(digits & -digits, 1)).astype(np.int64)
    grid = exponent.astype(np.int64) + lowest
    code = (exponent.astype(np.int64) + 2048) * 8192 + grid + 2048
    signed: NDArray[np.int64] = np.where(numbers < 0, -code, code)
    return signed


def _learn_steps(table: FeatureTable, bits: Bits) -> Scorer | None:
    if table.usual != 1:
        return None
    return _count(_steps, table, bits)


def _steps(table: FeatureTable) -> NDArray[np.int64]:
    """Return the differences to the neighbouring calls, to nine decimals."""
    column = np.nan_to_num(table.numbers[:, 0], posinf=0.0, neginf=0.0)
    step = np.diff(column, prepend=column[0], append=column[-1])
    rounded = np.round(np.clip(step, -1e9, 1e9) * 1e9).astype(np.int64)
    return np.stack([rounded[:-1], rounded[1:]], axis=1)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear:
    """A linear combination of numbers on a compressed scale (arcsinh).

    Attributes:
        widths: The widths of the table that it was fitted to.
        limits: The limits to which each number is clipped, against outliers.
        means: The mean of each number, imputed where an output lacks it.
        centre: The midpoint of the two coins' outputs, after subtracting the means.
        weights: The weight of each number.
    """

    widths: tuple[int, int]
    limits: NDArray[np.float64]
    means: NDArray[np.float64]
    centre: NDArray[np.float64]
    weights: NDArray[np.float64]

    def scores(self, table: FeatureTable) -> NDArray[np.float64]:
        """Return the combination for every output."""
        rows = _filled(_even(table.with_widths(self.widths)), self.limits, self.means)
        return np.asarray((rows - self.centre) @ self.weights)


def _learn_linear(table: FeatureTable, bits: Bits) -> Scorer | None:
    """Fit the direction that best separates the two coins' outputs."""
    if not table.numbers.shape[1] or len(set(bits.tolist())) < 2:
        return None
    even = _even(table)
    levels = np.array([_TRIMMED, 1 - _TRIMMED])
    limits = _quantiles(even[_screened(*even.shape)], levels)
    means = _means(np.clip(even, *limits))
    rows = _filled(even, limits, means)
    one, zero = rows[bits == 1].mean(axis=0), rows[bits == 0].mean(axis=0)
    spread = np.atleast_2d(np.cov(rows, rowvar=False))
    ridge = np.trace(spread) / len(rows) + 1e-12
    return Linear(
        widths=table.widths,
        limits=limits,
        means=means,
        centre=(one + zero) / 2,
        weights=np.linalg.solve(spread + ridge * np.eye(len(spread)), one - zero),
    )


def _filled(
    even: NDArray[np.float64], limits: NDArray[np.float64], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return differences from the means; 0 for numbers that an output lacks."""
    return np.nan_to_num(np.clip(even, *limits) - means, nan=0.0)


def _means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the values in each column; 0 if there are none."""
    present = ~np.isnan(rows)
    total = np.where(present, rows, 0.0).sum(axis=0)
    return np.asarray(total / np.maximum(present.sum(axis=0), 1))


def _even(table: FeatureTable) -> NDArray[np.float64]:
    """Return an output's numbers on a scale where large ones do not dominate."""
    shown = _shown(table)[:, :_MOST_LINEAR_COLUMNS]
    return np.asarray(
        np.arcsinh(np.nan_to_num(shown, nan=np.nan, posinf=1e300, neginf=-1e300))
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bitwise:
    """The logistic regression of ``game/learned_log_odds.py``, on one row per call.

    Attributes:
        width: The number of an output's numbers that it was fitted to.
        loss: The regression.
    """

    width: int
    loss: LearnedLogOdds[NDArray[np.float64]]

    def scores(self, table: FeatureTable) -> NDArray[np.float64]:
        """Return the fitted log-odds of every output."""
        numbers = table.with_widths((self.width, 0)).numbers
        return replace(self.loss, canaries=len(table)).log_odds(numbers)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Replay:
    """Replays rows that were seen, in the form of a mechanism for the regression."""

    numbers: NDArray[np.float64]
    bits: Bits

    def run(self, data: Bits, rng: np.random.Generator) -> NDArray[np.float64]:  # noqa: ARG002
        """Return a row that was seen with each coin."""
        rows = np.empty((len(data), self.numbers.shape[1]))
        for bit in (0, 1):
            seen = self.numbers[self.bits == bit]
            rows[data == bit] = np.resize(seen, (np.sum(data == bit), seen.shape[1]))
        return rows


def _learn_logistic(table: FeatureTable, bits: Bits) -> Scorer | None:
    width = table.usual
    if not 0 < width <= _MOST_BITWISE or len(set(bits.tolist())) < 2:
        return None
    rows = slice(_MOST_REGRESSED // width)
    table, bits = table.rows(rows).with_widths((width, 0)), bits[rows]
    loss = fit_log_odds(
        _Replay(numbers=table.numbers, bits=bits),
        pairs=Pairs(x=0, y=1),
        canaries=len(table),
        runs=1,
        rng=np.random.default_rng(0),  # for the order of rows already seen
    )
    return Bitwise(width=width, loss=loss)


Learner: TypeAlias = Callable[[FeatureTable, Bits], Scorer | None]

LEARNERS: Mapping[str, Learner] = MappingProxyType(
    {
        "values": partial(_count, _whole),
        "parts": partial(_count, _parts),
        "place": _learn_place,
        "bins": _learn_bins,
        "lattice": _learn_lattice,
        "steps": _learn_steps,
        "linear": _learn_linear,
        "logistic": _learn_logistic,
    }
)

FEATURES_USED: Mapping[str, str] = MappingProxyType(
    {
        "values": "how often each output occurs",
        "parts": "how often each part of the output occurs",
        "place": "how often each value occurs at one place of the output",
        "bins": "the range that a number, or a sum, a least or a largest one lies in",
        "lattice": "the sign, the size and the lowest set bit of numbers",
        "steps": "the differences between one call's output and the next's",
        "linear": "a weighted sum of all numbers",
        "logistic": "a regression on the bits of numbers",
    }
)
