"""Guessers learned from calls with known coins, of several kinds.

A mechanism leaks where nobody looks, so several guessers look at different things:

- ``values``: how often each exact output was seen with either coin. Finds what discrete
  outputs and text say, outputs that only one of the two inputs can give, and noise that
  comes again.
- ``parts``: the same for each place of an output, added up.
- ``place``: the same for one place, that which differs most. Of many places some differ
  by chance, and their sum drowns a leak in one of them.
- ``bins``: how often a number, or the sum, the least and the largest of several, fell
  between given quantiles: any difference in distribution, not only in mean.
- ``lattice``: the binary exponent of a float together with its lowest set bit. Adding
  noise rounds to the spacing of floats near the sum, which depends on the input: the
  attack of Mironov (2012) and of Haney et al. (2022).
- ``steps``: the difference to the outputs of the calls before and after. Finds noise
  that is reused by neighbouring calls.
- ``linear``: the best linear combination of all numbers: for long vectors.
- ``logistic``: a regression on the 64 bits of floats and more
  (``game/learned_log_odds.py``).

Each is fitted to calls whose coins are known and then fixed. Whatever was learned, the
audit that follows throws fresh coins, and its bound holds for every guesser.

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

__all__ = ["LEARNERS", "LOOKED_AT", "Learner", "Scorer"]

_BINS = 32
_PRIOR = 0.5  # imagined observations of every value with either coin
_BITWISE = 4  # numbers of an output whose 64 bits each are looked at
_CHANCE_DEVIATIONS = 2.5  # standard deviations; a column that differs less is left out
_MOST_SUMMED_PLACES = 16  # places of an output; of so few, their sum drowns nothing
_MOST_COLUMNS = 64  # places that are counted one by one: those that differ most
_VALUES_SCREENED = 250_000  # values among which these are looked for,
_CALLS_SCREENED = 500  # and at least so many calls
_MOST_REGRESSED = 10_000  # numbers that a regression is fitted to
_MOST_LINEAR_COLUMNS = 600  # columns of a linear combination
_TRIMMED = 0.005  # the share of least and of largest numbers that it cuts off


class Scorer(Protocol):
    """Says of every output how much it speaks for y, the input of coin 1."""

    def scores(self, table: FeatureTable) -> NDArray[np.float64]:
        """Return one number per output: its sign is the guess, its size how sure."""
        ...


Keys = Callable[[FeatureTable], NDArray[np.int64]]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """Log-ratios of how often values were seen with either coin, column by column.

    Attributes:
        keys: What is counted of an output.
        widths: Of the table that it was counted in.
        columns: Which columns are used.
        known: The values seen in each column, sorted.
        ratios: The log-ratio of each; a value never seen adds nothing.
    """

    keys: Keys
    widths: tuple[int, int]
    columns: NDArray[np.int64]
    known: tuple[NDArray[np.int64], ...]
    ratios: tuple[NDArray[np.float64], ...]

    def scores(self, table: FeatureTable) -> NDArray[np.float64]:
        """Return the sum of the log-ratios of an output's values."""
        keys = self.keys(table.with_widths(self.widths))
        found = np.zeros(len(table))
        for j, known, ratios in zip(self.columns, self.known, self.ratios, strict=True):
            place = np.minimum(np.searchsorted(known, keys[:, j]), len(known) - 1)
            found += np.where(known[place] == keys[:, j], ratios[place], 0.0)
        return found


def _count(
    keys: Keys, table: FeatureTable, bits: Bits, *, most: int = _MOST_COLUMNS
) -> Counted:
    """Count values in the columns that differ most between the coins."""
    values = keys(table)
    few = _few(*values.shape)
    best = np.argsort(-_excesses(values[few], bits[few]), kind="stable")[:most]
    counted = {j: _ratios(values[:, j], bits) for j in best}
    # Those that may differ by chance only add noise to the sum; one is kept anyway.
    first = max(best, key=lambda j: counted[j][2])
    columns = np.sort(
        [j for j in best if j == first or counted[j][2] > _CHANCE_DEVIATIONS]
    )
    return Counted(
        keys=keys,
        widths=table.widths,
        columns=columns,
        known=tuple(counted[j][0] for j in columns),
        ratios=tuple(counted[j][1] for j in columns),
    )


def _few(n: int, width: int) -> slice:
    """Return as many rows of a wide table as say which of its columns matter."""
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
    # The coins are fair, whichever of them came more often here.
    ratios -= np.log((np.sum(bits) + _PRIOR) / (np.sum(1 - bits) + _PRIOR))
    excess = float(np.sum((2 * ones - seen) ** 2 / seen)) - len(known)
    return known, ratios, excess / float(np.sqrt(2 * len(known)))


def _excesses(values: NDArray[np.int64], bits: Bits) -> NDArray[np.float64]:
    """Return the last number of ``_ratios`` for every column, some at a time."""
    some = max(1, _VALUES_SCREENED // len(values))
    parts = (values[:, i : i + some].T for i in range(0, values.shape[1], some))
    return np.concatenate([_excesses_of(np.ascontiguousarray(p), bits) for p in parts])


def _excesses_of(rows: NDArray[np.int64], bits: Bits) -> NDArray[np.float64]:
    order = np.argsort(rows, axis=1)
    ranked = np.take_along_axis(rows, order, axis=1)
    first = np.ones(rows.shape, np.bool_)  # of its value, in its row
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
    found = _quantiles(shown[_few(*shown.shape)], levels)
    edges = [np.unique(column) for column in found.T]

    def binned(seen: FeatureTable) -> NDArray[np.int64]:
        columns = _shown(seen)
        found = [
            np.where(np.isnan(c), -1, np.searchsorted(e, c))
            for e, c in zip(edges, columns.T, strict=True)
        ]
        return np.stack(found, axis=1).astype(np.int64)

    return _count(binned, table, bits)


def _quantiles(
    columns: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return quantiles of what is finite in each column, one row for each level."""
    finite = np.isfinite(columns)
    known = np.sort(np.where(finite, columns, np.nan), axis=0)  # what is not comes last
    last = np.maximum(finite.sum(axis=0) - 1, 0)
    place = (levels[:, None] * last).astype(int)
    return np.asarray(np.nan_to_num(np.take_along_axis(known, place, axis=0)))


def _shown(table: FeatureTable) -> NDArray[np.float64]:
    """Return an output's numbers, and what of them does not depend on their order."""
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
    """Return the differences to the neighbouring calls, to nine digits after zero."""
    column = np.nan_to_num(table.numbers[:, 0], posinf=0.0, neginf=0.0)
    step = np.diff(column, prepend=column[0], append=column[-1])
    rounded = np.round(np.clip(step, -1e9, 1e9) * 1e9).astype(np.int64)
    return np.stack([rounded[:-1], rounded[1:]], axis=1)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear:
    """A linear combination of numbers on an even scale.

    Attributes:
        widths: Of the table that it was fitted to.
        limits: To which each number is cut, so that a few odd outputs decide nothing.
        means: What stands for a number that an output does not have.
        centre: What is subtracted from each number, less its mean.
        weights: What each adds.
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
    """Fit the direction in which the two coins' outputs lie furthest apart."""
    if not table.numbers.shape[1] or len(set(bits.tolist())) < 2:
        return None
    even = _even(table)
    levels = np.array([_TRIMMED, 1 - _TRIMMED])
    limits = _quantiles(even[_few(*even.shape)], levels)
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
    """Return differences from the means; 0 for what an output does not have."""
    return np.nan_to_num(np.clip(even, *limits) - means, nan=0.0)


def _means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each column where there is something; 0 if nowhere."""
    there = ~np.isnan(rows)
    total = np.where(there, rows, 0.0).sum(axis=0)
    return np.asarray(total / np.maximum(there.sum(axis=0), 1))


def _even(table: FeatureTable) -> NDArray[np.float64]:
    """Return an output's numbers on a scale where no size dwarfs the others."""
    shown = _shown(table)[:, :_MOST_LINEAR_COLUMNS]
    return np.asarray(
        np.arcsinh(np.nan_to_num(shown, nan=np.nan, posinf=1e300, neginf=-1e300))
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bitwise:
    """The logistic regression of ``game/learned_log_odds.py``, on one row per call.

    Attributes:
        width: How many numbers of an output it was fitted to.
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
    """Gives again what was seen, row by row: what the regression asks of a run."""

    numbers: NDArray[np.float64]
    bits: Bits

    def run(self, data: Bits, rng: np.random.Generator) -> NDArray[np.float64]:  # noqa: ARG002
        """Return for each coin a row that was seen with it."""
        rows = np.empty((len(data), self.numbers.shape[1]))
        for bit in (0, 1):
            seen = self.numbers[self.bits == bit]
            rows[data == bit] = np.resize(seen, (np.sum(data == bit), seen.shape[1]))
        return rows


def _learn_logistic(table: FeatureTable, bits: Bits) -> Scorer | None:
    width = table.usual
    if not 0 < width <= _BITWISE or len(set(bits.tolist())) < 2:
        return None
    few = slice(_MOST_REGRESSED // width)
    table, bits = table.rows(few).with_widths((width, 0)), bits[few]
    loss = fit_log_odds(
        _Replay(numbers=table.numbers, bits=bits),
        pairs=Pairs(x=0, y=1),
        canaries=len(table),
        runs=1,
        rng=np.random.default_rng(0),  # the order of rows already seen, no secret
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

LOOKED_AT: Mapping[str, str] = MappingProxyType(
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
