"""Likelihoods of sums with a participation schedule or correlated noise.

Parts of a ``SumsLikelihood``, each for a group of similar coordinates. Where the steps
that a canary joins are known, the guesser keeps a number for each coordinate
(``MatchedPart``); where they are not, a likelihood of each pattern in which it may have
joined (``PatternPart``).
"""

from math import sqrt
from typing import Final, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.dpsgd.correlated_likelihood import MatchedSums, PatternLikelihood
from dpaudit.dpsgd.likelihood import State, saved_counts, saved_rows
from dpaudit.dpsgd.noise_scale import NoiseScale, quartile_distance
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.shuffling import Shuffling
from dpaudit.dpsgd.strategy import Strategy
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import log_fair

__all__ = [
    "LARGE",
    "REACH",
    "MatchedPart",
    "Part",
    "PatternPart",
    "Sampling",
    "Smoothed",
    "participation_rate",
]

Floats: TypeAlias = NDArray[np.float64]
Sampling: TypeAlias = Poisson | Shuffling

LARGE: Final = 1e9  # in clipping norms
REACH: Final = 5.0  # noise standard deviations, beyond which sums are clipped
_ERROR: Final = 6.0  # four standard errors of a quartile distance, times sqrt(n)
_STEPS: Final = 20  # over which the noise is averaged while it stays the same
_LENGTHS: Final = 32  # representative signal lengths
_DISTRIBUTIONS: Final = 64  # of a step's sums, whose tables are kept


class Part(Protocol):
    """Accumulates the likelihood of similar coordinates, step by step."""

    def observe(self, now: Floats, given_scale: Floats | None) -> None:
        """Add one step: its sums, and the scale of their noise if it is given."""
        ...

    def log_likelihood(self) -> tuple[Floats, Floats]:
        """Return ``ln L(N)``, and how far each coordinate can be trusted."""
        ...

    def saved(self) -> State:
        """Return the state as arrays that ``restore`` takes."""
        ...

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned."""
        ...


@final
class MatchedPart:
    """Reads similar coordinates of canaries that join known steps.

    The scale of the noise is measured once, on the matched sums over all steps; it
    includes whatever real gradients leave there.
    """

    def __init__(
        self,
        cohort: NDArray[np.int64],
        per_coordinate: int,
        participation: Participation,
        strategy: Strategy,
    ) -> None:
        self._seen = MatchedSums(cohort, participation, strategy)
        self._per_coordinate = per_coordinate

    def observe(self, now: Floats, given_scale: Floats | None) -> None:
        """Add one step."""
        assert given_scale is None  # it is given only where steps are independent
        self._seen.observe(np.clip(now, -LARGE, LARGE))

    def log_likelihood(self) -> tuple[Floats, Floats]:
        """Return ``ln L(N)``, and how far each coordinate can be trusted."""
        signal, s = self._seen.signal, self._per_coordinate
        had = signal > 0
        if not had.any():
            return np.zeros((len(signal), s + 1)), np.ones(len(signal))
        standard = (self._seen.scores() * signal)[had]
        lengths = np.quantile(signal[had], (np.arange(_LENGTHS) + 0.5) / _LENGTHS)
        different, times = np.unique(lengths, return_counts=True)
        values = np.outer(different, np.arange(s + 1.0)).ravel()
        shares = times / _LENGTHS
        probabilities = np.outer(shares, np.exp(log_fair(s))).ravel()
        scale = NoiseScale(values, probabilities).of(quartile_distance(standard))
        return self._seen.log_likelihood(s, scale), np.ones(len(signal))

    def saved(self) -> State:
        """Return the state as arrays that ``restore`` takes."""
        return self._seen.saved()

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned."""
        self._seen.restore(saved)


@final
class PatternPart:
    """Reads similar coordinates of canaries whose steps are unknown."""

    def __init__(
        self,
        cohort: NDArray[np.int64],
        participation: Participation,
        rate: float,
        strategy: Strategy,
    ) -> None:
        self._seen = PatternLikelihood(
            cohort, participation, rate=rate, strategy=strategy
        )
        self._noise = Smoothed(len(cohort))
        self._scales: dict[bytes, NoiseScale] = {}

    def observe(self, now: Floats, given_scale: Floats | None) -> None:
        """Add one step."""
        assert given_scale is None
        y = self._seen.whitened(np.clip(now, -LARGE, LARGE))
        values, probabilities = self._seen.values()
        table = self._scale(values, probabilities)
        scale = self._noise.add(table.of(quartile_distance(y)))
        low, high = values.min() - REACH * scale, values.max() + REACH * scale
        self._seen.add(np.clip(y, low, high), scale)

    def log_likelihood(self) -> tuple[Floats, Floats]:
        """Return ``ln L(N)``, and how far each coordinate can be trusted."""
        ratio = self._seen.log_ratio
        return np.stack([np.zeros(len(ratio)), ratio], axis=1), np.ones(len(ratio))

    def saved(self) -> State:
        """Return the state as arrays that ``restore`` takes."""
        return {**self._seen.saved(), **self._noise.saved()}

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned."""
        self._seen.restore(saved)
        self._noise.restore(saved)

    def _scale(self, values: Floats, probabilities: Floats) -> NoiseScale:
        """Return the table of a distribution; the same few recur."""
        name = values.tobytes() + probabilities.round(9).tobytes()
        if name not in self._scales:
            if len(self._scales) >= _DISTRIBUTIONS:
                self._scales.clear()
            self._scales[name] = NoiseScale(values, probabilities)
        return self._scales[name]


@final
class Smoothed:
    """A width that is measured at every step, averaged while it stays the same."""

    def __init__(self, coordinates: int) -> None:
        self._tolerance = _ERROR / sqrt(coordinates)
        self.value, self.alike = 0.0, 0

    def add(self, width: float) -> float:
        """Add a step's width; return the average."""
        # A single step measures the noise only roughly: average while it is constant.
        if abs(width - self.value) > self._tolerance * self.value:
            self.value, self.alike = width, 0
        self.alike = min(self.alike + 1, _STEPS)
        self.value += (width - self.value) / self.alike
        return self.value

    def saved(self) -> State:
        """Return the state as arrays that ``restore`` takes."""
        return {"width": np.array([self.value]), "alike": np.array([self.alike])}

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned."""
        (self.value,) = map(float, saved_rows(saved, "width", (1,)))
        (self.alike,) = saved_counts(saved, "alike", 1)


def participation_rate(sampling: Sampling, per_coordinate: int) -> float:
    """Return the sampling rate within a turn; refuse cases without a likelihood."""
    if isinstance(sampling, Shuffling):
        raise InvalidInputError(
            "turns and correlated noise go with Poisson sampling or none, got "
            f"{sampling!r}; pass Participation(every=T, cohorts=T) for an order that "
            "is known"
        )
    if sampling.rate < 1 and per_coordinate > 1:
        raise InvalidInputError(
            f"per_coordinate={per_coordinate} canaries at a coordinate, each sampled "
            "by itself, in turns or correlated noise: their patterns are too many; put "
            "1 at each"
        )
    return sampling.rate
