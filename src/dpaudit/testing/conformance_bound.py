"""Check a lower bound on epsilon by exact sums over the outcomes of small games.

A lower bound is wrong if it exceeds the mechanism's epsilon, and may be wrong with
probability at most alpha. In a small game this probability is a sum over all outcomes,
and it is largest at known epsilons: just below each value that the bound can take. So
for the given games, under the distributions that they list, validity is decided and not
sampled. That proves nothing for games of other sizes: the docstring of a bound should
point to a proof.

Also checked: a bound is 0 where guesses are no better than chance, and above 0 where
all are correct; it never falls when one more guess is correct; it is finite, and
carries delta, alpha, its method, a reference and tier A; it returns the same value when
called again; it refuses a meaningless delta or alpha; and if it gives p-values, they
reject the epsilon that it reports.
"""

from collections.abc import Sequence
from math import isfinite, log, nan
from typing import Any, Generic, Protocol, TypeVar, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.bound import LowerBound
from dpaudit.errors import ConformanceError
from dpaudit.testing.conformance_games import Conformance, CountedGame, Game

__all__ = ["HasEpsilonLower", "check_bound"]

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

_GAMES = (CountedGame(canaries=30, guesses=30), CountedGame(canaries=200, guesses=20))
_EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0)
_ROUNDING = 1e-6  # of alpha
_EPSILON_ROUNDING = 1e-9  # of epsilon


class HasEpsilonLower(Protocol[R_contra]):
    """The interface that is checked: it turns a reading into a lower bound."""

    def epsilon_lower(
        self, reading: R_contra, /, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the lower bound."""
        ...


@runtime_checkable
class _HasPValue(Protocol):
    def log_p_value(
        self,
        reading: object,
        /,
        *,
        epsilon: float,
        delta: float,
    ) -> float: ...


def check_bound(
    bound: HasEpsilonLower[Any],
    *,
    games: Sequence[Game[Any]] = _GAMES,
    deltas: Sequence[float] = (0.0, 1e-3, 0.02),
    alphas: Sequence[float] = (0.05, 0.2),
) -> Conformance:
    """Check that a bound is valid in games small enough for exact sums.

    Args:
        bound: The bound to check.
        games: The games; by default guesses that are counted in one run. The bound must
            accept the readings that the games give.
        deltas: The values of delta; ``(0.0,)`` for a bound on pure DP.
        alphas: The values of alpha.

    Raises:
        ConformanceError: A check fails; the message names a case.

    Example:
        >>> from dpaudit.bounds import ExactBound
        >>> small = CountedGame(canaries=50, guesses=20)
        >>> found = check_bound(ExactBound(), games=[small])
        >>> for sentence in found.checked[:3]:
        ...     print(sentence)
        carries delta, alpha, method, reference and tier A
        is 0 at or below chance, and above 0 if all guesses are correct
        never falls when one more guess is correct
    """
    worst = (0.0, "")
    for game in games:
        for delta in deltas:
            for alpha in alphas:
                table = _Table(bound, game, delta=delta, alpha=alpha)
                table.check_silence()
                table.check_order()
                table.check_rejected()
                worst = max(worst, table.check_validity(), key=lambda found: found[0])
    _check_refusals(bound, games[0].outcomes()[-1], deltas[0])
    return Conformance(
        subject=repr(bound),
        checked=(
            "carries delta, alpha, method, reference and tier A",
            "is 0 at or below chance, and above 0 if all guesses are correct",
            "never falls when one more guess is correct",
            f"is wrong with probability at most {worst[0]:.3f} of alpha (the worst: "
            f"{worst[1]})",
            *(["rejected what it reports"] if isinstance(bound, _HasPValue) else []),
            "refuses an alpha or delta without meaning",
        ),
    )


@final
class _Table(Generic[R]):
    """The values of a bound at every outcome of a game."""

    def __init__(
        self, bound: HasEpsilonLower[R], game: Game[R], *, delta: float, alpha: float
    ) -> None:
        self._bound, self._game, self._delta, self._alpha = bound, game, delta, alpha
        self._outcomes = game.outcomes()
        values = [self._ask(outcome) for outcome in self._outcomes]
        self._values: NDArray[np.float64] = np.array(values)
        again = self._ask(self._outcomes[-1])
        if again != values[-1]:
            raise self._error("returns another value when asked again", -1)

    def check_silence(self) -> None:
        loud = np.flatnonzero(self._game.silent() & (self._values > 0))
        if len(loud):
            raise self._error(
                "must be 0 where guesses are no better than chance", int(loud[-1])
            )
        if self._delta == 0 and self._values[-1] == 0:
            raise self._error("is 0 though every guess is correct", -1)

    def check_order(self) -> None:
        for less, more in self._game.better():
            if self._values[more] < self._values[less] - _EPSILON_ROUNDING:
                raise self._error(
                    f"is smaller, {self._values[more]:.6g}, when one more guess is "
                    f"correct, {self._outcomes[more]!r}",
                    less,
                )

    def check_rejected(self) -> None:
        """Check that a reported epsilon is itself rejected: it errs on the low side."""
        if not isinstance(self._bound, _HasPValue):
            return
        for i in map(int, np.flatnonzero(self._values)):
            log_p = self._bound.log_p_value(
                self._outcomes[i], epsilon=float(self._values[i]), delta=self._delta
            )
            if not log_p <= log(self._alpha) + _ROUNDING:
                raise self._error(
                    f"reports an epsilon that its own p-value, {np.exp(log_p):.6g}, "
                    "does not reject",
                    i,
                )

    def check_validity(self) -> tuple[float, str]:
        """Return the largest error probability, as a share of alpha, and its case."""
        worst, where = 0.0, ""
        for epsilon in self._epsilons():
            wrong = self._values > epsilon
            for what, distribution in self._distributions(epsilon, wrong):
                probability = float(distribution[wrong].sum())
                if probability > self._alpha * (1 + _ROUNDING):
                    raise self._error(
                        f"is wrong too often: of a mechanism that is ({epsilon:.6g}, "
                        f"{self._delta:g})-DP and no worse ({what}) it is above that "
                        f"with probability {probability:.6g}, where {self._alpha:g} is "
                        "allowed",
                        int(np.flatnonzero(wrong)[0]),
                    )
                if probability > worst * self._alpha:
                    worst = probability / self._alpha
                    where = (
                        f"{what}, in {self._game!r} at epsilon = {epsilon:.3g}, "
                        f"delta = {self._delta:g}, alpha = {self._alpha:g}"
                    )
        return worst, where

    def _epsilons(self) -> NDArray[np.float64]:
        """Return the epsilons of largest error: just below the values of the bound."""
        below = np.unique(self._values[self._values > 0])
        return np.append(
            np.maximum(0, below * (1 - _EPSILON_ROUNDING) - _EPSILON_ROUNDING),
            _EPSILONS,
        )

    def _distributions(
        self, epsilon: float, wrong: NDArray[np.bool_]
    ) -> list[tuple[str, NDArray[np.float64]]]:
        if not wrong.any():
            return []
        distributions = self._game.distributions(
            epsilon=float(epsilon), delta=self._delta, wrong=wrong
        )
        return list(distributions)

    def _ask(self, outcome: R) -> float:
        bound = self._bound.epsilon_lower(outcome, delta=self._delta, alpha=self._alpha)
        if not isinstance(bound, LowerBound):
            raise ConformanceError(
                f"{self._bound!r} must return a LowerBound, which carries what it "
                f"rests on, got {bound!r}"
            )
        _check_carried(self._bound, bound, delta=self._delta, alpha=self._alpha)
        if not (isfinite(bound.epsilon_lower) and bound.epsilon_lower >= 0):
            raise ConformanceError(
                f"{self._bound!r} must be a finite epsilon, 0 or more, got "
                f"epsilon_lower={bound.epsilon_lower!r} for {outcome!r}"
            )
        return float(bound.epsilon_lower)

    def _error(self, what: str, outcome: int) -> ConformanceError:
        return ConformanceError(
            f"{self._bound!r} {what}. It is {self._values[outcome]:.6g} for "
            f"{self._outcomes[outcome]!r} at delta = {self._delta:g}, alpha = "
            f"{self._alpha:g}, in {self._game!r}"
        )


def _check_carried(
    bound: object, lower: LowerBound, *, delta: float, alpha: float
) -> None:
    """Check that the bound carries what is needed to interpret its number."""
    if (lower.delta, lower.alpha) != (delta, alpha):
        raise ConformanceError(
            f"{bound!r} was asked for {delta=}, {alpha=} and states that it used "
            f"delta={lower.delta!r}, alpha={lower.alpha!r}"
        )
    if not (lower.method and lower.reference):
        raise ConformanceError(
            f"{bound!r} must name its method and where its proof stands, got "
            f"method={lower.method!r}, reference={lower.reference!r}"
        )
    if lower.tier != "A":
        raise ConformanceError(
            f"{bound!r} returns a LowerBound of tier {lower.tier!r}; only what holds "
            "for any mechanism, tier A, is one: return a ParameterBound"
        )


def _check_refusals(bound: HasEpsilonLower[R], outcome: R, delta: float) -> None:
    nonsense = [(delta, alpha) for alpha in (0.0, 1.0, 0.95, -0.05, nan)]
    nonsense += [(bad, 0.05) for bad in (-1e-5, 1.5, nan)]
    for bad_delta, bad_alpha in nonsense:
        try:
            lower = bound.epsilon_lower(outcome, delta=bad_delta, alpha=bad_alpha)
        except ValueError:
            continue
        raise ConformanceError(
            f"{bound!r} must refuse delta={bad_delta!r}, alpha={bad_alpha!r} with an "
            f"InvalidInputError, or another ValueError, and states {lower}"
        )
