"""The bound for games in rounds: guess, reveal, guess better.

In each round some new canaries are guessed, all at once, each with the log-odds that
the guesser states; then their coins are revealed. Given the output and the coins of
earlier rounds, a round is a one-run game of its own. Against a claim of epsilon a guess
gets a weight, one of a few whole numbers, that increases with the excess of its stated
log-odds over epsilon. Correct guesses are dominated by independent coins with success
probability ``p = e^epsilon / (1 + e^epsilon)``, so the normal score of the round's
weighted tail is dominated by a standard normal, whatever happened before, and the
scores may be added as if they were independent, with weights fixed before the run
(Stouffer). Ties are broken by uniforms from committed randomness, which the guesser
cannot know before the round's guesses are made. The unused part of a round's share (all
of it for an empty round) is replaced by committed randomness at the end, as validity
requires: dropping the round together with its share is not valid. Where randomness
would make up more than half, the claim is not rejected, so that luck alone refutes
nothing.

What delta can add. Without further rules every guess is coupled with a coin of success
probability ``p``; the couplings fail with a probability of at most
``m delta / (1 + e^epsilon)``, which is added. With a ``max_jump``, two things are fixed
beforehand: canary ``i`` is played in round ``i`` modulo the number of rounds, and no
correct guess may raise the sum by more than ``max_jump``: scores are limited, and a
round of few guesses uses less than its share (how much is known before its coins are
revealed). After round ``r`` independent normals of variance ``rest_r`` or more are
still to be added. So one guess of that round decides with at most the probability that
a normal of that variance falls into an interval of length ``max_jump`` around its mean,
and delta adds at most

    delta / (1 + e^epsilon)
    * sum over canaries of 2 Phi(max_jump / (2 sqrt(rest_r))) - 1.

``randomness_share`` is the share of the variance that comes from committed randomness,
added at the end: the last round's ``rest_r``.

The tests of different epsilons do not bound one event, so the lower bound is the last
epsilon of a fixed grid before the first that is not rejected. The grid begins at
``start``, fixed before the run: a larger start pays less for delta, but a true epsilon
below it is reported as 0.

Reference: docs/explanation/bounds.md#δ-in-rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf, log, sqrt
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.bound import GameBound, Grid, add_price
from dpaudit.bounds.readings import Rounds, Weighted
from dpaudit.stats.binomial import log_odds_limit
from dpaudit.stats.limited_score import UNRESOLVED, empty_score, limited_score

__all__ = [
    "MAX_RANDOMNESS_SHARE",
    "TAIL_ROOM",
    "RoundsBound",
    "evidence_by_round",
    "guess_weights",
    "least_randomness_share",
    "round_score",
    "round_shares",
    "rounds_price",
]

_LARGEST_WEIGHT = 8  # weights are whole numbers up to this one
MAX_RANDOMNESS_SHARE = 0.5  # of the variance, at most, comes from committed randomness
_NEGLIGIBLE_SHARE = 1e-6  # a smaller share has no visible effect
TAIL_ROOM = 1.15  # scores grow faster in the tails than in the middle, about so much


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsBound(GameBound[Rounds]):
    """The bound for rounds, with the grid of epsilons that it tests.

    Example:
        >>> first = Weighted(
        ...     canaries=100, weights=(2.0,), guesses=(50,), correct=(40,),
        ...     committed=False,
        ... )
        >>> game = Rounds(
        ...     canaries=100, rounds=(first, first), round_weights=(1.0, 1.0),
        ...     uniforms=(0.5, 0.5),
        ... )
        >>> RoundsBound().epsilon_lower(game, delta=0.0, alpha=0.05).epsilon_lower
        0.97
    """

    grid: Grid = field(default_factory=Grid)
    method: ClassVar[str] = "rounds"
    reference: ClassVar[str] = "docs/explanation/bounds.md#why-they-are-valid"

    def log_p_value(self, rounds: Rounds, *, epsilon: float, delta: float) -> float:
        """Return the log of the p-value of a claim."""
        return _log_p_value(rounds, epsilon, delta)

    def one_event(self, rounds: Rounds) -> bool:  # noqa: ARG002
        """Return False: the weights of guesses depend on the claim."""
        return False

    def search(
        self,
        rounds: Rounds,
        *,
        delta: float,  # noqa: ARG002
        alpha: float,
    ) -> Grid:
        """Return the grid fixed before the run, up to the bound for a perfect game."""
        guesses = sum(sum(played.guesses) for played in rounds.rounds)
        # A lucky uniform could reject every epsilon; a perfect game is the limit.
        top = log_odds_limit(guesses, guesses, log_alpha=log(alpha))
        return replace(self.grid, stop=top)


@lru_cache(maxsize=2048)  # bound and claim test use the same epsilons
def _log_p_value(rounds: Rounds, epsilon: float, delta: float) -> float:
    price = rounds_price(
        canaries=rounds.canaries,
        round_weights=rounds.round_weights,
        max_jump=rounds.max_jump,
        randomness_share=rounds.randomness_share,
        epsilon=epsilon,
        delta=delta,
    )
    evidence, left = evidence_by_round(rounds, epsilon)
    if left > MAX_RANDOMNESS_SHARE + 1e-9:
        return 0.0  # too few guesses count against the claim
    unresolved = (len(rounds.rounds) + 1) * UNRESOLVED
    return add_price(float(special.log_ndtr(-evidence[-1])), price + unresolved)


def evidence_by_round(rounds: Rounds, epsilon: float) -> tuple[list[float], float]:
    """Return the running sum of scores against an epsilon.

    Returns:
        The sum before the first round, after each round, and with committed randomness
        added; and the share of the variance that comes from that randomness.
    """
    shares = round_shares(rounds.round_weights, rounds.randomness_share)
    evidence, left = [0.0], 1.0
    for share, played, uniform in zip(
        shares, rounds.rounds, rounds.uniforms, strict=True
    ):
        step = inf if rounds.max_jump is None or share == 0 else rounds.max_jump / share
        used, score = round_score(played, epsilon, uniform, step)
        evidence.append(evidence[-1] + share * used * score)
        left -= (share * used) ** 2
    noise = sqrt(max(left, 0.0)) * empty_score(rounds.noise_uniform)
    return [*evidence, evidence[-1] + noise], left


def rounds_price(
    *,
    canaries: int,
    round_weights: Sequence[float],
    max_jump: float | None,
    randomness_share: float,
    epsilon: float,
    delta: float,
) -> float:
    """Return what delta can add to the probability that a true claim is rejected.

    Args:
        canaries: Number of canaries.
        round_weights: The weight of each round.
        max_jump: The most that one correct guess may add to the sum; None for no limit
            and canaries that may be played in any round.
        randomness_share: Share of the variance that comes from committed randomness.
        epsilon: Of the claim.
        delta: Of the claim.

    Example:
        >>> for max_jump in (None, 0.1):
        ...     price = rounds_price(
        ...         canaries=10_000, round_weights=(1.0,) * 10, max_jump=max_jump,
        ...         randomness_share=0.02, epsilon=1.0, delta=1e-5,
        ...     )
        ...     print(round(price, 4))
        0.0269
        0.0023
    """
    whole = coupling_failure_probability(canaries, epsilon, delta)
    if max_jump is None:
        return whole
    shares = np.square(round_shares(round_weights, randomness_share))
    rest = randomness_share + np.append(np.cumsum(shares[::-1])[::-1][1:], 0.0)
    with np.errstate(divide="ignore"):  # rest 0: one guess may decide
        decides = special.erf(max_jump / np.sqrt(8 * rest))
    decides[shares == 0] = 0.0
    return whole * float(_played(canaries, len(shares)) @ decides) / canaries


def least_randomness_share(
    *,
    canaries: int,
    round_weights: Sequence[float],
    max_jump: float | None,
    randomness_share: float,
    epsilon: float,
) -> float:
    """Return the smallest share of committed randomness: if every canary is guessed.

    Example:
        >>> for max_jump in (0.05, 0.5):
        ...     left = least_randomness_share(
        ...         canaries=200, round_weights=(1.0,) * 4, max_jump=max_jump,
        ...         randomness_share=0.0, epsilon=1.0
        ...     )
        ...     print(round(left, 2))
        0.93
        0.0
    """
    shares = round_shares(round_weights, randomness_share)
    if max_jump is None:
        return randomness_share
    deviations = np.sqrt(_played(canaries, len(shares)) * _variance(epsilon))
    used = np.minimum(shares, max_jump / TAIL_ROOM * deviations)
    return max(0.0, 1.0 - float(used @ used))


def guess_weights(
    stated: NDArray[np.float64],
    guesses: NDArray[np.int64],
    *,
    epsilon: float,
    step: float,
) -> NDArray[np.int64]:
    """Return the weights of guesses against a claim, from 0 to 8.

    Weights increase with the excess of the stated log-odds over epsilon, as the
    likelihood ratio does, up to a cap: so low that a correct guess raises the round's
    score by about ``step`` at most.

    Args:
        stated: The stated log-odds, one for each class of guesses.
        guesses: How many guesses each class has.
        epsilon: Of the claim.
        step: The most that one correct guess may add to the round's score.

    Example:
        >>> stated, guesses = np.array([0.9, 1.2, 1.5, 3.0]), np.array([50, 50, 50, 1])
        >>> guess_weights(stated, guesses, epsilon=1.0, step=np.inf)
        array([0, 1, 2, 8])
        >>> guess_weights(stated, guesses, epsilon=1.0, step=0.3)
        array([0, 6, 8, 8])
    """
    excess = np.maximum(stated - epsilon, 0.0)
    excess[guesses == 0] = 0.0
    if not excess.any():
        return np.zeros(len(excess), np.int64)
    cap = _cap(excess, guesses, epsilon=epsilon, step=step)
    return np.minimum(np.rint(excess / cap * _LARGEST_WEIGHT), _LARGEST_WEIGHT).astype(
        np.int64
    )


def _cap(
    excess: NDArray[np.float64],
    guesses: NDArray[np.int64],
    *,
    epsilon: float,
    step: float,
) -> float:
    """Return the largest cap at which one guess adds at most ``step`` to the score."""
    order = np.argsort(excess)
    a, n = excess[order], guesses[order]
    if step == inf:
        return float(a[-1])
    most = np.square(step / TAIL_ROOM) * _variance(epsilon)
    # With a cap between a[k-1] and a[k] the variance is that of the guesses below plus
    # the cap squared for each guess above.
    below = np.append(0.0, np.cumsum(n * np.square(a)))[:-1]
    left = 1 - most * np.cumsum(n[::-1])[::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        caps = np.where(left > 0, np.sqrt(most * below / left), inf)
    too_large = np.flatnonzero(caps >= a)
    k = int(too_large[-1]) + 1 if len(too_large) else 0
    if k == len(a):
        return float(a[-1])
    # With k = 0 all guesses that count at all have the same weight.
    return float(max(caps[k], a[a > 0][0]))


def round_score(
    played: Weighted, epsilon: float, uniform: float, step: float
) -> tuple[float, float]:
    """Return how much of its share a round uses, and its limited normal score.

    The round uses less than all of it if its guesses are so few that, even with equal
    weights, one would raise the score by more than the step.
    """
    n, right = np.array(played.guesses), np.array(played.correct)
    weights = guess_weights(np.array(played.weights), n, epsilon=epsilon, step=step)
    levels = np.flatnonzero(np.bincount(weights, weights=n)[1:]) + 1
    if not len(levels):
        return 0.0, 0.0
    sizes = np.array([n[weights == level].sum() for level in levels])
    hits = np.array([right[weights == level].sum() for level in levels])
    levels //= np.gcd.reduce(levels)
    used = min(1.0, step / TAIL_ROOM * _deviation(levels, sizes, epsilon) / levels[-1])
    if used < _NEGLIGIBLE_SHARE:
        return 0.0, 0.0
    score = limited_score(
        levels,
        sizes,
        int(levels @ hits),
        log_odds=epsilon,
        uniform=uniform,
        step=step / used,
    )
    return used, score


def _deviation(
    weights: NDArray[np.int64], trials: NDArray[np.int64], log_odds: float
) -> float:
    return sqrt(float(trials @ np.square(weights)) * _variance(log_odds))


def _variance(log_odds: float) -> float:
    return float(special.expit(log_odds) * special.expit(-log_odds))


def _played(canaries: int, rounds: int) -> NDArray[np.int64]:
    """Return the number of canaries of each round, canary i being in round i mod R."""
    return canaries // rounds + (np.arange(rounds) < canaries % rounds)


def round_shares(
    round_weights: Sequence[float], randomness_share: float
) -> NDArray[np.float64]:
    """Return the weights, scaled so that squares and randomness_share sum to one."""
    w = np.asarray(round_weights, np.float64)
    w = w / w.max()  # only ratios matter; squares of tiny weights would underflow
    return np.asarray(w * sqrt((1 - randomness_share) / float(w @ w)))
