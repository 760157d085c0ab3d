"""Log-odds of each coin given an output, learned from calibration runs.

For a mechanism without a likelihood the guesser can be trained: run the mechanism any
number of times on data chosen by separate coin flips, and fit a logistic regression
from features of the output to the coin. The coins of the audit are never used, so the
audit stays valid whatever is learned; a poor fit only makes poor guesses.

The features of a number are its sign, its size on a logarithmic scale, whether it is
an integer, and all 64 bits of its float: faults of floating-point noise show in the low
bits. Text, and anything else, is compared with the most common values seen in training.
Where the output has one row per canary, a canary's features are those of its row;
otherwise every canary gets the features of the whole output.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.pairs import Pairs, Records

__all__ = ["LearnedLogOdds", "fit_log_odds", "fit_logistic"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)

_MAX_VALUES = 32  # most common values of text that are distinguished
_RIDGE = 1.0  # ridge penalty on every weight


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedLogOdds(Generic[O]):
    """Log-odds of each coin by a fitted logistic regression.

    Attributes:
        canaries: The number of canaries.
        layout: The kind of output it was fitted on: numbers or not, and the number of
            values for each canary. For an output of another kind all log-odds are 0.
        known: The values of text that are distinguished.
        centre: The offset subtracted from each feature.
        scale: The divisor of each feature.
        weights: The coefficient of each feature; the last is the intercept.
    """

    canaries: int
    layout: tuple[bool, int]
    known: tuple[str, ...]
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]

    def log_odds(self, output: O) -> NDArray[np.float64]:
        """Return the fitted log-odds of +1 for each canary."""
        if _layout(output, self.canaries) != self.layout:
            return np.zeros(self.canaries)
        features = _features(output, self.canaries, self.known)
        scaled = (features - self.centre) / self.scale
        return np.asarray(scaled @ self.weights[:-1] + self.weights[-1])


def fit_log_odds(
    mechanism: Mechanism[O],
    *,
    pairs: Pairs,
    canaries: int,
    runs: int,
    rng: np.random.Generator,
) -> LearnedLogOdds[O]:
    """Return log-odds fitted on calibration runs with separate coins.

    Args:
        mechanism: The mechanism to be audited.
        pairs: Two records for each coin to choose from, as in the audit.
        canaries: The number of canaries, as in the audit.
        runs: The number of calibration runs.
        rng: Coins and randomness of these runs, independent of those of the audit.

    Example:
        >>> class LeakyBit:
        ...     def run(self, data, rng):
        ...         noisy = rng.standard_normal(len(data))
        ...         return np.round(noisy * 2**20) / 2**20 + data * 2**-40
        >>> learned = fit_log_odds(
        ...     LeakyBit(),
        ...     pairs=Pairs(x=0, y=1),
        ...     canaries=1000,
        ...     runs=4,
        ...     rng=np.random.default_rng(0),
        ... )
        >>> data = np.arange(1000) % 2
        >>> output = LeakyBit().run(data, np.random.default_rng(1))
        >>> np.mean((learned.log_odds(output) > 0) == data) > 0.99
        np.True_
    """
    _validate.whole_number("runs", runs, least=1)
    pairs.check(canaries)
    coins = rng.integers(0, 2, (runs, canaries))
    runs_of = [(bits, mechanism.run(pairs.choose(bits), rng)) for bits in coins]
    layout = _commonest_layout([output for _, output in runs_of], canaries)
    seen = [(b, o) for b, o in runs_of if _layout(o, canaries) == layout]
    known = () if layout[0] else _most_common([o for _, o in seen], canaries)
    rows = np.concatenate([_features(o, canaries, known) for _, o in seen])
    centre, scale = rows.mean(axis=0), rows.std(axis=0)
    scale[scale == 0] = 1.0
    signs = np.where(np.concatenate([bits for bits, _ in seen]) == 1, 1.0, -1.0)
    weights = fit_logistic((rows - centre) / scale, signs)
    return LearnedLogOdds(
        canaries=canaries,
        layout=layout,
        known=known,
        centre=centre,
        scale=scale,
        weights=weights,
    )


def fit_logistic(
    rows: NDArray[np.float64], signs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weights of a ridge-penalised logistic regression, intercept last."""
    from scipy import optimize  # noqa: PLC0415 (slow to import, seldom needed)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margins = signs * (rows @ weights[:-1] + weights[-1])
        pull = -signs * special.expit(-margins)
        value = -special.log_expit(margins).sum() + _RIDGE / 2 * weights @ weights
        return value, np.append(rows.T @ pull, pull.sum()) + _RIDGE * weights

    start = np.zeros(rows.shape[1] + 1)
    optimum = optimize.minimize(loss, start, jac=True, method="L-BFGS-B")
    return np.asarray(optimum.x)


def _table(output: object, canaries: int) -> Records:
    """Return an output as one row of values per canary."""
    try:
        values = np.asarray(output)
    except ValueError:  # lists of different lengths: compared as text
        values = np.array(str(output))
    if values.ndim and len(values) == canaries:
        return values.reshape(canaries, -1)
    return np.broadcast_to(values.reshape(1, -1), (canaries, values.size))


def _features(
    output: object, canaries: int, known: tuple[str, ...]
) -> NDArray[np.float64]:
    table = _table(output, canaries)
    if table.dtype.kind not in "fiub":
        text = table.astype(str)
        return np.concatenate([text == value for value in known], axis=1).astype(float)
    numbers = np.ascontiguousarray(table, np.float64)
    finite = np.nan_to_num(numbers, posinf=1e300, neginf=-1e300)
    octets = numbers.view(np.uint8).reshape(canaries, -1)
    return np.concatenate(
        [
            np.sign(finite),
            np.arcsinh(finite),
            finite == np.round(finite),
            np.isnan(numbers),
            np.unpackbits(octets, axis=1),
        ],
        axis=1,
    )


def _most_common(outputs: list[O], canaries: int) -> tuple[str, ...]:
    """Return the most common values of outputs that are not numbers."""
    texts = [_table(output, canaries).astype(str).ravel() for output in outputs]
    values, times = np.unique(np.concatenate(texts), return_counts=True)
    return tuple(str(v) for v in values[np.argsort(-times)[:_MAX_VALUES]])


def _layout(output: object, canaries: int) -> tuple[bool, int]:
    """Return whether an output is numbers, and how many values each canary gets."""
    table = _table(output, canaries)
    return table.dtype.kind in "fiub", table.shape[1]


def _commonest_layout(outputs: list[O], canaries: int) -> tuple[bool, int]:
    """Return the most informative layout: numbers if any output has them."""
    layouts = [_layout(output, canaries) for output in outputs]
    return max(layouts, key=lambda each: (each[0], layouts.count(each), each[1]))
