"""Likelihoods of canaries with a participation schedule, and correlated noise if any.

Two cases. *The steps of a canary are known*: then its signal in all the sums is one
Gaussian number (``MatchedSums``), the matched filter of ``strategy``: one number for
each coordinate is stored, and nothing for a step.

*They are unknown*, as training samples within the schedule, or a cap limits
participations: then the likelihood is a mixture over all participation patterns ``u``
of the density of the whitened sums ``C x = C u + z``. Patterns need not be enumerated:
a step's whitened sum depends on the participations in the last ``bands`` steps only, so
the state carried from step to step is a likelihood for each pattern of those, and for
each number of participations used up (the forward recursion of a hidden Markov model,
exact). With participations at least ``bands`` steps apart that is two numbers; with
sampling in every step and ``b`` bands it is ``2^(b-1)``.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.dpsgd.likelihood import (
    CountLikelihood,
    State,
    checked_step,
    saved_counts,
    saved_rows,
)
from dpaudit.dpsgd.participation import Participation, weights
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.strategy import Strategy, Whitening
from dpaudit.errors import InvalidInputError, InvalidRunError

__all__ = ["MatchedSums", "PatternLikelihood"]

Floats: TypeAlias = NDArray[np.float64]

_MOST_STATES: Final = 1 << 10


@final
class MatchedSums:
    """The matched filter of canaries whose steps are known.

    Args:
        cohort: The cohort of each coordinate.
        participation: The participation schedule.
        strategy: The strategy that correlates the noise.

    Attributes:
        steps: The number of steps seen.

    Example:
        >>> from dpaudit.dpsgd.strategy import Toeplitz
        >>> seen = MatchedSums(
        ...     np.array([0, 0]),
        ...     Participation(),
        ...     Toeplitz(coefficients=(1.0, 0.5), steps=2),
        ... )
        >>> for sums in ([1.0, 0.0], [1.0, 0.0]):
        ...     seen.observe(np.array(sums))
        >>> seen.scores(), seen.signal.round(3)  # by N, and what one canary is
        (array([1., 0.]), array([1.803, 1.803]))
    """

    def __init__(
        self,
        cohort: NDArray[np.int64],
        participation: Participation,
        strategy: Strategy,
    ) -> None:
        self._cohort, self._participation, self._strategy = (
            cohort,
            participation,
            strategy,
        )
        self._total = np.zeros(len(cohort))
        self._squares = np.zeros(participation.cohorts)
        self.steps = 0

    def observe(self, sums: NDArray[np.floating]) -> None:
        """Add one step: the noisy sum at each coordinate, over the clipping norm."""
        check_length(self._strategy, self.steps)
        participation, step = self._participation, self.steps
        weight = weights(participation, self._strategy, step)
        self._total += weight[self._cohort] * sums
        if participation.participates(step):
            cohort = participation.cohort_at(step)
            self._squares[cohort] += weight[cohort]
        self.steps += 1

    @property
    def signal(self) -> Floats:
        """``|C u|`` for each coordinate; 0 if its cohort has not participated yet."""
        return np.sqrt(np.maximum(self._squares, 0.0))[self._cohort]

    def scores(self) -> Floats:
        """Return for each coordinate its number of ones plus noise of 1 / signal.

        0 if its cohort has not participated yet.
        """
        squares = np.maximum(self._squares, 0.0)[self._cohort]
        return np.divide(
            self._total, squares, out=np.zeros(len(self._total)), where=squares > 0
        )

    def log_likelihood(self, per_coordinate: int, scale: float) -> Floats:
        """Return ``ln L(N)``, a row for each coordinate, for whitened noise of a scale.

        Args:
            per_coordinate: Canaries at each coordinate.
            scale: Standard deviation of ``z``, over the clipping norm.
        """
        signal = self.signal
        rows = np.zeros((len(signal), per_coordinate + 1))
        had = np.flatnonzero(signal > 0)
        if not len(had):
            return rows
        likelihood = CountLikelihood(
            coordinates=len(had),
            per_coordinate=per_coordinate,
            sampling=Poisson(rate=1.0),
        )
        likelihood.observe(self.scores()[had], scale / signal[had])
        rows[had] = likelihood.log_likelihood
        return rows

    def saved(self) -> State:
        """Return the state, as arrays that ``restore`` takes."""
        return {
            "matched": self._total.copy(),
            "squares": self._squares.copy(),
            "matched_steps": np.array([self.steps]),
        }

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned; call before any step is observed."""
        self._total = saved_rows(saved, "matched", self._total.shape)
        self._squares = saved_rows(saved, "squares", self._squares.shape)
        (self.steps,) = saved_counts(saved, "matched_steps", 1)


@final
class PatternLikelihood:
    """Log-likelihood ratios of canaries whose steps are unknown to the adversary.

    One canary at each coordinate.

    Args:
        cohort: The cohort of each coordinate.
        participation: The participation schedule.
        rate: The sampling rate in a scheduled step.
        strategy: The strategy that correlates the noise.

    Example:
        >>> from dpaudit.dpsgd.strategy import Independent
        >>> seen = PatternLikelihood(
        ...     np.array([0, 0]),
        ...     Participation(most=1),
        ...     rate=0.5,
        ...     strategy=Independent(),
        ... )
        >>> for sums in ([1.1, 0.1], [0.1, -0.1]):
        ...     seen.observe(np.array(sums), scale=0.25)
        >>> seen.log_ratio > 0
        array([ True, False])
    """

    def __init__(
        self,
        cohort: NDArray[np.int64],
        participation: Participation,
        *,
        rate: float,
        strategy: Strategy,
    ) -> None:
        _validate.rate("rate", rate)
        self._participation, self._rate, self._strategy = (
            participation,
            float(rate),
            strategy,
        )
        self._whitening = Whitening(strategy, len(cohort))
        self._coordinates = len(cohort)
        self._cohorts = [
            _Cohort(number, np.flatnonzero(cohort == number))
            for number in range(participation.cohorts)
        ]
        self._ratio = np.zeros(len(cohort))

    @property
    def steps(self) -> int:
        """The number of steps seen."""
        return self._whitening.step

    @property
    def log_ratio(self) -> Floats:
        """``ln L(1) / L(0)`` of each coordinate."""
        return self._ratio.copy()

    def whitened(self, sums: NDArray[np.floating]) -> Floats:
        """Begin a step: return its row of C times the sums."""
        check_length(self._strategy, self.steps)
        return self._whitening.add(sums)

    def add(self, whitened: Floats, scale: ArrayLike) -> None:
        """End the step that ``whitened`` began.

        Args:
            whitened: The sums that it returned, or the part of them that should count.
            scale: Standard deviation of ``z``, over the clipping norm: one for all
                coordinates or one for each.
        """
        scales = checked_step(whitened, scale, self._coordinates)
        for cohort in self._cohorts:
            at = cohort.at
            here = whitened[at] / np.square(scales[at] if scales.ndim else scales)
            inverse = 1 / np.square(scales[at] if scales.ndim else scales)
            moves = self._moves(cohort)
            self._ratio[at] += cohort.step(moves, here, inverse)

    def observe(self, sums: NDArray[np.floating], scale: ArrayLike) -> None:
        """Add one step of noisy sums, over the clipping norm."""
        self.add(self.whitened(sums), scale)

    def values(self) -> tuple[Floats, Floats]:
        """Return the possible signals in the current step, and their probabilities.

        Over all coordinates, with fair coins.
        """
        total: dict[float, float] = {}
        for cohort in self._cohorts:
            share = len(cohort.at) / self._coordinates
            total[0.0] = total.get(0.0, 0.0) + share / 2
            for mean, probability in cohort.means(self._moves(cohort)):
                total[mean] = total.get(mean, 0.0) + probability * share / 2
        return np.array([*total]), np.array([*total.values()])

    def _moves(self, cohort: "_Cohort") -> "_Moves":
        """Return the possible transitions of a cohort's states in the current step."""
        step, participation = self.steps - 1, self._participation
        window = self._strategy.bands - 1
        scheduled = participation.cohort_at(step) == cohort.number
        columns = [
            self._strategy.column(step - back) for back in range(min(window, step) + 1)
        ]
        heights = [
            column[back] if back < len(column) else 0.0
            for back, column in enumerate(columns)
        ]
        moves = []
        for state, (used, bits) in enumerate(cohort.states):
            before = sum(h for i, h in enumerate(heights[1:]) if bits >> i & 1)
            free = scheduled and used < (participation.most or np.inf)
            for joins, probability in _probabilities(self._rate if free else 0.0):
                mean = before + joins * heights[0]
                # Without a limit participations are not counted.
                now = used + joins if participation.most else 0
                kept = ((bits << 1) | joins) & ((1 << window) - 1)
                moves.append((state, (now, kept), probability, float(mean)))
        return moves

    def saved(self) -> State:
        """Return the state, as arrays that ``restore`` takes."""
        state = {
            "ratio": self._ratio.copy(),
            "recent": self._whitening.recent.copy(),
            "pattern_steps": np.array([self.steps]),
        }
        for cohort in self._cohorts:
            state |= cohort.saved()
        return state

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned; call before any step is observed."""
        self._ratio = saved_rows(saved, "ratio", self._ratio.shape)
        whitening = self._whitening
        whitening.recent = saved_rows(saved, "recent", whitening.recent.shape)
        (steps,) = saved_counts(saved, "pattern_steps", 1)
        for _ in range(steps):  # the states depend on the number of steps only
            whitening.step += 1
            for cohort in self._cohorts:
                cohort.go(self._moves(cohort))
        for cohort in self._cohorts:
            cohort.restore(saved)


_Moves: TypeAlias = list[tuple[int, tuple[int, int], float, float]]


def _probabilities(rate: float) -> Iterator[tuple[int, float]]:
    if rate < 1:
        yield 0, 1 - rate
    if rate > 0:
        yield 1, rate


@final
class _Cohort:
    """The state of the forward recursion for the coordinates of one cohort.

    Attributes:
        number: The cohort's number.
        at: Its coordinates.
        states: Participations used up, and those in the last steps as bits, the newest
            lowest.
    """

    def __init__(self, number: int, at: NDArray[np.int64]) -> None:
        self.number, self.at = number, at
        self.states: list[tuple[int, int]] = [(0, 0)]
        self._prior = np.ones(1)
        self._log = np.zeros((1, len(at)))  # log posterior of each state

    def means(self, moves: _Moves) -> Iterator[tuple[float, float]]:
        """Yield the possible signals of an included canary, with probabilities."""
        for state, _, probability, mean in moves:
            yield mean, probability * float(self._prior[state])

    def go(self, moves: _Moves) -> list[tuple[int, int]]:
        """Advance the states without observing sums; return the states before."""
        before = self.states
        after = sorted({state for _, state, _, _ in moves})
        if len(after) > _MOST_STATES:
            raise InvalidInputError(
                f"a guesser would have to keep more than {_MOST_STATES} ways in which "
                "a canary may have joined; use a strategy of fewer bands, or known "
                "turns (sample_rate=1)"
            )
        prior = np.zeros(len(after))
        place = {state: i for i, state in enumerate(after)}
        for state, to, probability, _ in moves:
            prior[place[to]] += probability * self._prior[state]
        self.states, self._prior = after, prior
        return before

    def step(self, moves: _Moves, tilt: Floats, inverse: ArrayLike) -> Floats:
        """Take a step; return what it adds to the log-likelihood ratios.

        Args:
            moves: The possible transitions.
            tilt: The whitened sums over the variance of the noise.
            inverse: One over that variance.
        """
        self.go(moves)
        place = {state: i for i, state in enumerate(self.states)}
        joint = np.full((len(self.states), len(self.at)), -np.inf)
        for state, to, probability, mean in moves:
            term = self._log[state] + np.log(probability)
            if mean:
                term = term + mean * tilt - 0.5 * mean**2 * np.asarray(inverse)
            row = joint[place[to]]
            np.logaddexp(row, term, out=row)
        total: Floats = np.logaddexp.reduce(joint, axis=0)
        self._log = joint - total
        return total

    def saved(self) -> State:
        return {f"cohort.{self.number}": self._log.copy()}

    def restore(self, saved: State) -> None:
        shape = (len(self.states), len(self.at))
        self._log = saved_rows(saved, f"cohort.{self.number}", shape)


def check_length(strategy: Strategy, seen: int) -> None:
    """Refuse a step for which the strategy has no column."""
    if strategy.steps is not None and seen >= strategy.steps:
        raise InvalidRunError(
            f"the strategy is for {strategy.steps} steps, and another was taken: what "
            "its noise is, is not known; pass the strategy of the whole run"
        )
