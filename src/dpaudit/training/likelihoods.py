"""The guesser's likelihoods of the noisy sums, updated one step at a time.

The guesser sees the sums at the canaries' coordinates and knows no coin and no draw. At
each step it measures the noise, separately for each group of coordinates, since noise
may be missing in one parameter only. It adds the step to the likelihood of the number
of included canaries at each coordinate, and discards it. Memory does not grow with the
number of steps.

At the second step it checks whether the sums moved at all. If two steps differ much
less than coordinates do, the noise (or some other offset) was used again; from then on
the guesser reads differences of steps, in which that cancels and canaries do not.

A sum that is not finite is read as a large one: something joined that should not have.
A step that is not finite in more than half of the coordinates is skipped.

*How far a coordinate can be trusted where real gradients contribute to it too.* If the
real records' part of the sums is known and subtracted, nothing of them remains and all
of the evidence counts: any excess is then caused by the program. If it is unknown, real
records leave something in a canary's coordinate at every step. It varies little from
step to step, so over many steps it adds up as a canary does, and no likelihood of
single steps can separate the two. But it shows across coordinates: the totals over all
steps, less the contribution of the likeliest number of canaries, are wider than noise
can make them. The excess is modelled as a normal shift of that size in each coordinate.

A shift ``b`` of every step moves a log-likelihood ratio by about ``b q T / v``, with
``q`` the probability to join, ``T`` steps and noise of variance ``v``. Without it the
ratio is about ``q sqrt(T (e^(1/v) - 1))`` where joins drown in the noise, and
``q T / (2 v)`` where they can be counted. If the shift moves it by ``r`` times its
size, ``1 / (1 + r^2)`` of it is kept: for normal sums that is what remains after
integrating over the shift. A coordinate that noise, canaries and such shifts cannot
explain is ignored.

All of this is a function of what the guesser sees, and uses no coin: a poor estimate
costs power, never validity.
"""

from collections.abc import Sequence
from math import expm1, sqrt
from typing import TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpaudit.dpsgd.likelihood import CountLikelihood, State, saved_counts, saved_rows
from dpaudit.dpsgd.noise_scale import NoiseScale, quartile_distance
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.sampling import Differences, Poisson, SumDistribution
from dpaudit.dpsgd.shuffling import ShuffledLikelihood, Shuffling
from dpaudit.dpsgd.strategy import Independent, Strategy
from dpaudit.dpsgd.sums import likelihood_for_sampling
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.mechanisms.exchangeable import log_fair
from dpaudit.training.participation_parts import (
    LARGE,
    REACH,
    MatchedPart,
    Part,
    PatternPart,
    Sampling,
    Smoothed,
    participation_rate,
)

__all__ = [
    "Sampling",
    "SumsLikelihood",
    "trust",
]

_QUARTILES = 2 * float(special.ndtri(0.75))  # between those of a standard normal
_FAR = 6.0  # standard deviations, beyond which a coordinate is ignored
_TOLERANCE = 1.25  # noise is measured no better where coins show clearly
_ERROR_OF_SQUARE = (
    7.0  # three standard errors of a squared quartile distance, times sqrt(n)
)


def trust(
    rows: NDArray[np.float64],
    total: NDArray[np.float64],
    *,
    noise: float,
    steps: int,
    distribution: SumDistribution,
) -> NDArray[np.float64]:
    """Return for each coordinate how much of its log-likelihood counts, from 0 to 1.

    Args:
        rows: ``ln L(N)`` of a group of similar coordinates.
        total: The sum over steps at each of them.
        noise: Variance of the noise of a step.
        steps: Number of steps.
        distribution: How canaries join a step.

    Example:
        >>> from dpaudit.dpsgd.sampling import Poisson
        >>> rng = np.random.default_rng(0)
        >>> distribution = Poisson(rate=0.5).distribution(1)
        >>> total = 10 * rng.integers(0, 2, 500) + 20 * rng.normal(size=500)
        >>> rows = np.outer(total - 5, [0.0, 0.025])  # about what such totals imply
        >>> trust(rows, total, noise=20.0, steps=20, distribution=distribution).mean()
        np.float64(1.0)
        >>> loud = total + 60 * rng.normal(size=500)
        >>> trust(rows, loud, noise=20.0, steps=20, distribution=distribution)[0] < 0.2
        np.True_
    """
    probabilities = np.exp(distribution.log_probabilities)
    coins = np.exp(log_fair(len(probabilities) - 1))
    mean = probabilities @ distribution.sums
    within = coins @ (probabilities @ np.square(distribution.sums) - np.square(mean))
    known = steps * (noise + within)
    likeliest = (rows + log_fair(len(mean) - 1)).argmax(axis=1)
    left = total - steps * mean[likeliest]
    low, middle, high = np.quantile(left, (0.25, 0.5, 0.75))
    seen = ((high - low) / _QUARTILES) ** 2
    tolerated = known * (_TOLERANCE + _ERROR_OF_SQUARE / sqrt(len(total)))
    excess = seen - known if seen > tolerated else 0.0
    far = np.abs(left - middle) > _FAR * sqrt(known + excess)
    return np.where(far, 0.0, _kept(sqrt(excess), noise, steps, mean))


def _kept(shift: float, noise: float, steps: int, mean: NDArray[np.float64]) -> float:
    """Return the share of a log-likelihood ratio to keep, given a shift of totals."""
    rate = abs(float(mean[-1] - mean[0])) / (len(mean) - 1)
    if not rate or not shift:
        return 1.0
    drowned = rate * sqrt(steps * expm1(min(1 / noise, 500.0)))
    size = min(drowned, rate * steps / (2 * noise))
    return 1 / (1 + (rate * shift / noise / size) ** 2)


Floats: TypeAlias = NDArray[np.float64]

_REPEATED_BELOW = 0.5  # of the spread over coordinates; independent noise gives 1.4
_LEAST_GROUP = 30  # coordinates
_MOST_GROUPS = 256


@final
class SumsLikelihood:
    """Accumulates the likelihood of noisy sums step by step.

    Args:
        coordinates: Number of coordinates with canaries.
        per_coordinate: Canaries at each.
        sampling: How canaries join steps, as the run is configured to sample.
        groups: A group number for each coordinate; a group shares its noise and the
            effect of real gradients. One group if left out.
        knows_real_sums: Whether the real records' part of the sums was subtracted.
        participation: The participation schedule, if it is known; ``sampling`` is then
            among those whose turn it is.
        strategy: How noise is correlated from step to step, if it is.

    Attributes:
        steps: Number of steps observed.
        odd: Number of sums that were not finite.
        evidence_share: The average share of the evidence that real gradients in the
            same coordinates left; known after a call of ``log_likelihood``.

    Example:
        >>> likelihood = SumsLikelihood(
        ...     coordinates=2, per_coordinate=1, sampling=Poisson(rate=1.0)
        ... )
        >>> for sums in ([1.2, -0.1], [0.6, 0.2], [0.9, 0.1]):
        ...     likelihood.observe(sums)
        >>> likelihood.log_likelihood().argmax(axis=1)
        array([1, 0])
    """

    def __init__(
        self,
        *,
        coordinates: int,
        per_coordinate: int,
        sampling: Sampling,
        groups: NDArray[np.int64] | None = None,
        knows_real_sums: bool = False,
        participation: Participation | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        self.steps = self.odd = 0
        self.evidence_share = 1.0
        self._coordinates, self._columns = coordinates, per_coordinate + 1
        self._knows_real_sums = knows_real_sums
        self._where, everywhere = _split(coordinates, groups), np.arange(coordinates)
        self._parts: Sequence[Part]
        if participation is None and strategy is None:
            self._parts = [
                _Part(len(everywhere[where]), per_coordinate, sampling)
                for where in self._where
            ]
            return
        participation, strategy = (
            participation or Participation(),
            strategy or Independent(),
        )
        cohort = participation.cohort_of(coordinates)
        rate = participation_rate(sampling, per_coordinate)
        if rate == 1:
            self._parts = [
                MatchedPart(cohort[where], per_coordinate, participation, strategy)
                for where in self._where
            ]
        else:
            self._parts = [
                PatternPart(cohort[where], participation, rate, strategy)
                for where in self._where
            ]

    def observe(self, sums: ArrayLike, scale: Floats | None = None) -> None:
        """Add one step.

        Args:
            sums: The noisy sums at the coordinates, over the clipping norm.
            scale: The standard deviation of each one's noise; measured if left out.
        """
        now = np.asarray(sums, np.float64)  # the caller's; not kept, not changed
        if now.shape != (self._coordinates,):
            raise InvalidInputError(
                f"sums must hold one number for each of {self._coordinates} "
                f"coordinates, got shape {now.shape}"
            )
        self.steps += 1
        if not np.isfinite(now.sum()):
            odd = ~np.isfinite(now)
            self.odd += int(odd.sum())
            if 2 * odd.sum() > len(now):
                return
            now = np.where(odd, LARGE, now)
        for where, part in zip(self._where, self._parts, strict=True):
            part.observe(now[where], None if scale is None else scale[where])

    def log_likelihood(self) -> Floats:
        """Return ``ln L(N)`` in a row per coordinate, as far as it can be trusted."""
        if not self.steps:
            raise InvalidRunError("no step was seen between attach and finish")
        rows = np.empty((self._coordinates, self._columns))
        trusted = np.ones(self._coordinates)
        for where, part in zip(self._where, self._parts, strict=True):
            rows[where], share = part.log_likelihood()
            trusted[where] = 1.0 if self._knows_real_sums else share
        self.evidence_share = float(trusted.mean())
        return rows * trusted[:, np.newaxis]

    def saved(self) -> State:
        """Return the state as arrays that ``restore`` takes."""
        state = {"steps": np.array([self.steps, self.odd])}
        for i, part in enumerate(self._parts):
            state |= {f"{i}.{name}": array for name, array in part.saved().items()}
        return state

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned; only before any step is observed."""
        self.steps, self.odd = saved_counts(saved, "steps", 2)
        for i, part in enumerate(self._parts):
            own = {
                name.removeprefix(f"{i}."): array
                for name, array in saved.items()
                if name.startswith(f"{i}.")
            }
            part.restore(own)


@final
class _Part:
    """Reads a group of similar coordinates."""

    def __init__(
        self, coordinates: int, per_coordinate: int, sampling: Sampling
    ) -> None:
        self._coordinates, self._per_coordinate = coordinates, per_coordinate
        self._sampling = sampling
        self._steps = 0
        self._before: Floats | None = None
        self._choose(repeats=False)

    def observe(self, now: Floats, given_scale: Floats | None) -> None:
        self._steps += 1
        if given_scale is not None:
            self._add_scaled(now, given_scale)
        elif self._steps == 1:
            self._before = now.copy()
        elif self._steps == 2:
            self._second(now)
        elif self._repeating:
            self._add_difference(now)
        else:
            self._add(now)

    def log_likelihood(self) -> tuple[Floats, Floats]:
        """Return ``ln L(N)``, and how far each coordinate can be trusted."""
        if self._steps == 1 and self._before is not None:
            self._add(self._before)
            self._before = None
        rows: Floats = self._likelihood.log_likelihood
        if not self._added:
            return rows, np.ones(len(rows))
        return rows, trust(
            rows,
            self._total,
            noise=self._variance / self._added,
            steps=self._added,
            distribution=self._distribution,
        )

    def saved(self) -> State:
        kept = {} if self._before is None else {"before": self._before}
        return {
            **self._likelihood.saved(),
            **kept,
            "counts": np.array(
                [self._steps, self._added, self._width.alike, self._repeating]
            ),
            "noise": np.array([self._variance, self._width.value]),
            "total": self._total.copy(),
        }

    def restore(self, saved: State) -> None:
        shape = (self._coordinates,)
        steps, added, alike, repeating = saved_counts(saved, "counts", 4)
        self._choose(repeats=bool(repeating))
        self._steps, self._added, self._width.alike = steps, added, alike
        noise = saved_rows(saved, "noise", (2,))
        self._variance, self._width.value = map(float, noise)
        self._total = saved_rows(saved, "total", shape)
        self._before = None
        if "before" in saved or added < steps == 1:  # the first waits for the second
            self._before = saved_rows(saved, "before", shape)
        self._likelihood.restore(saved)

    def _choose(self, *, repeats: bool) -> None:
        """Start empty, reading sums or differences of steps."""
        self._repeating = repeats
        self._likelihood, self._distribution = self._likelihood_of(repeats=repeats)
        self._scale = NoiseScale.of_distribution(self._distribution)
        sums = self._distribution.sums
        self._ends = float(sums[0]), float(sums[-1])
        self._total = np.zeros(self._coordinates)
        self._variance, self._added = 0.0, 0
        self._width: Smoothed = Smoothed(self._coordinates)

    def _likelihood_of(
        self, *, repeats: bool
    ) -> tuple[CountLikelihood | ShuffledLikelihood, SumDistribution]:
        s, sampling = self._per_coordinate, self._sampling
        joins: Sampling | Differences = sampling
        if repeats and isinstance(sampling, Poisson):
            joins = Differences(of=sampling)
        likelihood = likelihood_for_sampling(
            coordinates=self._coordinates, per_coordinate=s, sampling=joins
        )
        if isinstance(joins, Shuffling):  # of one step, as if it were alone
            joins = Poisson(rate=1 / joins.batches)
        return likelihood, joins.distribution(s)

    def _second(self, now: Floats) -> None:
        """Check whether the sums moved, and read the first two steps accordingly."""
        assert self._before is not None
        first, self._before = self._before, None
        same = quartile_distance(now - first) < _REPEATED_BELOW * quartile_distance(now)
        if same and not isinstance(self._sampling, Shuffling):
            self._choose(repeats=True)
            self._add(now - first)
        else:
            self._add(first)
            self._add(now)

    def _add_difference(self, now: Floats) -> None:
        """Pair up steps, so that no two differences share one."""
        if self._before is None:
            self._before = now.copy()
        else:
            self._add(now - self._before)
            self._before = None

    def _add(self, sums: Floats) -> None:
        self._added += 1
        width = self._width.add(quartile_distance(sums))
        self._observe(sums, self._scale.of(width))

    def _add_scaled(self, sums: Floats, scale: Floats) -> None:
        self._added += 1
        self._observe(sums, scale)

    def _observe(self, sums: Floats, scale: float | Floats) -> None:
        # Sums beyond any explanation count as the most extreme that can be explained.
        likelihood = self._likelihood
        if isinstance(scale, float) and isinstance(likelihood, CountLikelihood):
            low, high = self._ends[0] - REACH * scale, self._ends[1] + REACH * scale
            least, most = float(sums.min()), float(sums.max())
            if least < low or most > high:
                sums = np.clip(sums, low, high)
                least, most = max(least, low), min(most, high)
            likelihood.observe_within(sums, scale, least=least, most=most)
            self._variance += scale * scale
        else:
            reach = REACH * scale
            sums = np.clip(sums, self._ends[0] - reach, self._ends[1] + reach)
            likelihood.observe(sums, scale)
            self._variance += float(np.mean(np.square(scale)))
        self._total += sums


def _split(
    coordinates: int, groups: NDArray[np.int64] | None
) -> list[NDArray[np.int64] | slice]:
    """Return the coordinates of each group; small neighbouring groups are merged."""
    if groups is None or coordinates < 2 * _LEAST_GROUP:
        return [slice(0, coordinates)]
    least = max(_LEAST_GROUP, coordinates // _MOST_GROUPS)
    order = np.argsort(groups, kind="stable")
    ends = np.flatnonzero(np.diff(groups[order])) + 1
    parts: list[NDArray[np.int64]] = []
    start = 0
    for end in [*ends, coordinates]:
        if end - start >= least or end == coordinates:
            parts.append(order[start:end])
            start = end
    if len(parts) > 1 and len(parts[-1]) < least:
        last = parts.pop()
        parts[-1] = np.concatenate([parts[-1], last])
    if np.all(np.diff(order) == 1):  # slices need no copy
        return [slice(int(part[0]), int(part[-1]) + 1) for part in parts]
    return list(parts)
