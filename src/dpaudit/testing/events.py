"""Choose the event by which a whole claim is tested, from calls with known coins.

An event is a learned guesser with a threshold: outputs whose score reaches it are
guessed, those below are not; perhaps only outputs that speak for one of the two inputs.
Held-out calls show how often its guesses are correct (a) and wrong (b). The claim
limits a by a concave function g of b (``bounds/whole_claim.py``), so the event with the
most evidence per call is the one whose frequencies are farthest from what the claim
allows: the smallest Kullback-Leibler divergence between them and any probabilities with
``a <= g(b)``. It is the rate at which the log-likelihood ratio of the test grows, and
that at which the best bet against the claim grows (``testing/betting.py``), so one
choice serves both. As the hypothesis is convex, the nearest point lies on one of the
lines of g; that line orders the outcomes of the test.

Frequencies are taken at cautious quantiles: otherwise the luckiest of many events would
be chosen. If no event contradicts the claim, the one with the highest expected lower
bound is taken.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.whole_claim import event_limit
from dpaudit.game.rules import RunByRun, Sides
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.event_test import Line, signed_deviance
from dpaudit.stats.search import least_yes
from dpaudit.testing.features import Bits

__all__ = [
    "DOUBTS",
    "Event",
    "choose_event",
    "detectable_epsilon",
    "divergence",
    "least_calls",
]

_ALLOWANCE = 0.5  # of alpha: the p-value exceeds the binomial tail
DOUBTS = (0.02, 0.1, 0.3)
_THRESHOLDS = 32  # that are tried for each kind of guesser
_RAREST = 10  # calls that reach the highest of them
_LOWEST = -1e308  # threshold that every score reaches
# Log-likelihood ratio if all guesses of an event were correct, in units of log alpha:
# with less the test could hardly fail.
_LEAST_SURPRISING = 2.0


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event:
    """When a call is guessed, and what is expected of the guesses.

    Attributes:
        name: The kind of guesser, a key of ``LEARNERS``.
        up: The least score of a guess "y"; infinite if there are none.
        down: The least score against it of a guess "x"; infinite if there are none.
        line: The line of the claim that is nearest to the expected frequencies.
        growth: The expected log-likelihood ratio per call; negative if the claim is
            not contradicted.
        correct: The frequency of correct guesses, at a cautious quantile.
        wrong: That of wrong guesses.
    """

    name: str
    up: float
    down: float
    line: Line
    growth: float
    correct: float
    wrong: float

    @property
    def sides(self) -> Sides:
        """Which coins are guessed."""
        if self.down == inf:
            return Sides.INCLUDED
        return Sides.EXCLUDED if self.up == inf else Sides.BOTH

    @property
    def rules(self) -> RunByRun:
        """The rules of a game with these guesses."""
        return RunByRun(
            slope=float(self.line.slope),
            intercept=float(self.line.intercept),
            sides=self.sides,
        )

    def delta_of(self, claim: Guarantee) -> float:
        """Return the delta at which to state a lower bound: that of the line.

        A claim of one pair has its own.
        """
        _, deltas = claim.points()
        if len(deltas) == 1:
            return float(deltas[0])
        share = 1.0 if self.sides is Sides.BOTH else 0.5
        slope, intercept = float(self.line.slope), float(self.line.intercept) / share
        delta = intercept if slope >= 1 else 1 - (1 - intercept) / max(slope, 1e-300)
        return float(f"{min(max(delta, 1e-12), 0.5):.1e}")

    def guesses(self, scores: NDArray[np.float64]) -> NDArray[np.int8]:
        """Return +1 (y), -1 (x) or 0 (no guess) for each call's score.

        Example:
            >>> event = Event(
            ...     name="values",
            ...     up=1.0,
            ...     down=inf,
            ...     line=Line(slope=2.0, intercept=0.0),
            ...     growth=0.1,
            ...     correct=0.3,
            ...     wrong=0.1,
            ... )
            >>> event.guesses(np.array([3.0, 0.2, -3.0]))
            array([1, 0, 0], dtype=int8)
        """
        scores = np.nan_to_num(scores)
        up, down = scores >= self.up, scores <= -self.down
        return up.astype(np.int8) - down.astype(np.int8)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Candidate:
    """An event, and what held-out calls show of it.

    Attributes:
        name: The kind of guesser.
        up: The least score of a guess "y".
        down: The least score against it of a guess "x".
        correct: Held-out calls that are guessed correctly.
        wrong: Those that are guessed wrongly.
    """

    name: str
    up: float
    down: float
    correct: float
    wrong: float

    @property
    def one_sided(self) -> bool:
        """Whether only one coin is ever guessed."""
        return inf in (self.up, self.down)


def choose_event(
    held_out: Mapping[str, NDArray[np.float64]],
    bits: Bits,
    *,
    claim: Guarantee,
    calls: int,
    alpha: float,
    doubts: tuple[float, ...] = DOUBTS,
) -> Event:
    """Choose guesser, thresholds and sides.

    Args:
        held_out: For each kind of guesser its scores of held-out calls.
        bits: The coins of these calls.
        claim: The claim to be tested.
        calls: How many calls will test it.
        alpha: The level of the test.
        doubts: The quantiles of the frequencies: the first counts at which an event
            contradicts the claim.
    """
    candidates = [
        each
        for name, scores in held_out.items()
        for each in _candidates(name, np.nan_to_num(scores), bits)
    ]
    if not candidates:
        return _always(next(iter(held_out)), claim)
    n, counted = len(bits), _Counted.of(candidates)
    for doubt in doubts:
        correct, wrong = counted.cautious(n, doubt)
        growth, lines = counted.divergences(correct, wrong, claim)
        best = int(np.argmax(growth))
        if growth[best] > 0:
            break
    else:
        made = (counted.correct + counted.wrong) / n
        reached, _ = counted.divergences(made, np.zeros_like(made), claim)
        able = calls * reached >= -_LEAST_SURPRISING * log(alpha)
        if not able.any():
            return _always(next(iter(held_out)), claim)
        share = np.where(counted.one_sided, 0.5, 1.0)
        bounds = _expected_bounds(correct, wrong, lines, share)
        best = int(np.argmax(np.where(able, bounds, -inf)))
    chosen = candidates[best]
    return Event(
        name=chosen.name,
        up=chosen.up,
        down=chosen.down,
        line=lines.number(best),
        growth=float(growth[best]),
        correct=float(correct[best]),
        wrong=float(wrong[best]),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Counted:
    """The counts of all candidates."""

    correct: NDArray[np.float64]
    wrong: NDArray[np.float64]
    one_sided: NDArray[np.bool_]

    @classmethod
    def of(cls, candidates: Sequence[_Candidate]) -> "_Counted":
        """Return the counts of candidates."""
        return cls(
            correct=np.array([each.correct for each in candidates]),
            wrong=np.array([each.wrong for each in candidates]),
            one_sided=np.array([each.one_sided for each in candidates]),
        )

    def cautious(
        self, calls: int, doubt: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return frequencies of correct and wrong guesses at cautious quantiles."""
        v, w, n = self.correct, self.wrong, calls
        low = special.betaincinv(v + 0.5, np.maximum(n - v, 0) + 0.5, doubt)
        high = special.betaincinv(w + 0.5, np.maximum(n - w, 0) + 0.5, 1 - doubt)
        return low, high

    def divergences(
        self,
        correct: NDArray[np.float64],
        wrong: NDArray[np.float64],
        claim: Guarantee,
    ) -> tuple[NDArray[np.float64], Line]:
        """Return for each the divergence from the claim, and the line that decides."""
        growth = np.zeros(len(correct))
        slope, intercept = np.zeros_like(growth), np.zeros_like(growth)
        for one_sided in (False, True):
            which = np.flatnonzero(self.one_sided == one_sided)
            found = _divergences(
                correct[which], wrong[which], claim, one_sided=one_sided
            )
            growth[which], slope[which], intercept[which] = found
        return growth, Line(slope=slope, intercept=intercept)


def _divergences(
    correct: NDArray[np.float64],
    wrong: NDArray[np.float64],
    claim: Guarantee,
    *,
    one_sided: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return signed divergences, and slope and intercept of the deciding lines."""
    lines = event_limit(claim, one_sided=one_sided).lines
    slopes, intercepts = np.atleast_1d(lines.slope), np.atleast_1d(lines.intercept)
    table = Line(slope=slopes[:, np.newaxis], intercept=intercepts[:, np.newaxis])
    scale = 1 / np.maximum(1.0, correct + wrong)
    apart = signed_deviance(table, correct * scale, wrong * scale, 1) / 2
    best = apart.argmax(axis=0)
    growth = apart[best, np.arange(apart.shape[1])]
    return growth, slopes[best], np.maximum(intercepts[best], 0.0)


def divergence(
    correct: float, wrong: float, claim: Guarantee, *, one_sided: bool
) -> tuple[float, Line]:
    """Return the signed divergence of frequencies from a claim, and its line."""
    growth, slope, intercept = _divergences(
        np.array([correct]), np.array([wrong]), claim, one_sided=one_sided
    )
    return float(growth[0]), Line(slope=float(slope[0]), intercept=float(intercept[0]))


def _expected_bounds(
    correct: NDArray[np.float64],
    wrong: NDArray[np.float64],
    lines: Line,
    share: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return about the epsilons that events would show at their lines' deltas."""
    excess = correct - np.asarray(lines.intercept)
    possible = (excess > 0) & (np.asarray(lines.intercept) < share)
    return np.where(possible, np.log(np.maximum(excess, 1e-300) / wrong), -inf)


def _always(name: str, claim: Guarantee) -> Event:
    """Return the event of all outputs, for functions that show no difference."""
    line = event_limit(claim, one_sided=True).tangent(0.5)
    return Event(
        name=name, up=_LOWEST, down=inf, line=line, growth=-inf, correct=0.5, wrong=0.5
    )


def _candidates(
    name: str, scores: NDArray[np.float64], bits: Bits
) -> Iterator[_Candidate]:
    """Yield events of a guesser, rarer and rarer.

    An event of both sides has as many guesses of each, as far as there are: it does not
    matter where the scores have their centre.
    """
    # As if each coin had come up in half of the calls.
    weights = len(bits) / 2 / np.maximum(np.bincount(bits, minlength=2), 1)[bits]
    up, down = (
        _Side.of(scores, bits == 1, weights),
        _Side.of(-scores, bits == 0, weights),
    )
    ranks = np.unique(np.geomspace(_RAREST, max(_RAREST, len(scores)), _THRESHOLDS))
    ends = {(up.end(rank), down.end(rank)) for rank in ranks.astype(int).tolist()}
    chosen = {
        (i, j) for one, other in ends for i, j in ((one, other), (one, 0), (0, other))
    }
    for i, j in sorted(chosen - {(0, 0)}):
        yield _Candidate(
            name=name,
            up=float(up.least[i]),
            down=float(down.least[j]),
            correct=float(up.correct[i] + down.correct[j]),
            wrong=float(up.wrong[i] + down.wrong[j]),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """Calls whose scores speak for one input, the most confident first.

    Attributes:
        least: The least score of the first n; infinite for none.
        correct: The weight of those of the first n that had this input.
        wrong: That of the others.
    """

    least: NDArray[np.float64]
    correct: NDArray[np.float64]
    wrong: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        scores: NDArray[np.float64],
        right: NDArray[np.bool_],
        weights: NDArray[np.float64],
    ) -> "_Side":
        """Return the calls with positive scores."""
        order = np.argsort(-scores, kind="stable")[: int(np.sum(scores > 0))]
        return cls(
            least=np.concatenate([[inf], scores[order]]),
            correct=np.concatenate([[0], np.cumsum((weights * right)[order])]),
            wrong=np.concatenate([[0], np.cumsum((weights * ~right)[order])]),
        )

    def end(self, rank: int) -> int:
        """Return how many calls are as confident as the one of this rank."""
        rank = min(rank, len(self.least) - 1)
        return int(np.searchsorted(-self.least, -self.least[rank], side="right")) - 1


@lru_cache(maxsize=4096)
def detectable_epsilon(
    claim: Guarantee, *, calls: int, alpha: float, power: float
) -> float | None:
    """Return the epsilon of the least planted leak that is detected; None if none is.

    A copy of the function reveals its input in one place, as randomised response of
    that epsilon does. All calls are guessed then, and under the claim each guess is
    correct with at most the probability at which ``g(b) = 1 - b``.
    """
    allowed = 1 - event_limit(claim, one_sided=False).last

    def refutes(v: int) -> bool:
        return bool(special.betainc(v, calls - v + 1, allowed) <= _ALLOWANCE * alpha)

    least = least_yes(refutes, 1, calls)
    if least is None:
        return None
    accuracy = float(special.betaincinv(least, calls - least + 1, power))
    return max(0.0, float(special.logit(accuracy)))


def least_calls(claim: Guarantee, *, alpha: float) -> float:
    """Return how many calls refute a claim if every guess is correct."""
    allowed = 1 - event_limit(claim, one_sided=False).last
    return log(_ALLOWANCE * alpha) / log(allowed) if allowed < 1 else exp(50)
