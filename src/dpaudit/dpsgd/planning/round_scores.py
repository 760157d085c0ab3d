"""The score of a round of an adaptive audit, from the law of guesses.

Against a claim of epsilon a guess of log-odds ``l`` weighs ``w``, the excess ``l -
epsilon`` but no more than a cap and no less than 0, and is right with chance ``c(l) =
e^l / (1 + e^l)`` where the claim allows ``p = c(epsilon)``. With ``n`` coordinates the
score of a round is about normal, of mean

    sqrt(n) E[w (c - p)] / sqrt(p (1 - p) E[w^2]),

with a variance below one, as right guesses vary less than the claim allows, plus what
varies because other coordinates have other log-odds (by linearisation). All moments are
sums over the coordinates whose log-odds exceed epsilon, or epsilon and the cap, so one
pass over the sorted law gives them for every epsilon and cap.

Rounds of few guesses fall short of the normal score: weights are whole numbers, and
what one guess adds is limited. By how much is found by playing single rounds with the
bound itself; each is compared with the normal score of the same guesses, whose mean is
known, so that a few dozen suffice.
"""

from math import comb
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.reads import WIDEST_JUMP, Rounds, Weighted
from dpaudit.bounds.rounds import StoufferRounds
from dpaudit.dpsgd.planning.guess_law import GuessLaw
from dpaudit.game.adaptive_guesser import stated_log_odds

__all__ = ["CAPS", "RoundsTable", "mean_score"]

CAPS = np.geomspace(0.02, 8.0, 32)
_ROUNDING = 1e-11  # of moments; smaller ones are none
_DRAWN = 50_000  # guesses that are drawn for those and others
_LOWEST = -8.0  # score that p-values near one can tell


@final
class RoundsTable:
    """Mean and variance of every round's score, for many epsilons and caps.

    Args:
        law: How surely coins are guessed.
        epsilons: The epsilons, rising.

    Attributes:
        epsilons: The epsilons.
        gain: Mean score over the square root of the coordinates, by round, epsilon and
            cap.
        ratio: Variance of the score.
        size: Standard deviation of the weight of right guesses if the claim just holds,
            over the square root of the coordinates.
        share: Share of the coordinates that are guessed, by round and epsilon.
    """

    def __init__(self, law: GuessLaw, *, epsilons: NDArray[np.float64]) -> None:
        self.epsilons = epsilons
        ranked = np.sort(law.surety, axis=1)
        rounds = [_moments(row, epsilons) for row in ranked]
        self.gain, self.ratio, self.size = (
            np.array([each[i] for each in rounds]) for i in range(3)
        )
        below = [np.searchsorted(row, epsilons, side="right") for row in ranked]
        self.share = 1 - np.array(below) / law.coordinates


def _moments(
    l: NDArray[np.float64],  # noqa: E741 (log-odds)
    epsilons: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return gain, ratio and size of one round, by epsilon and cap."""
    # Chances of being wrong, as those of being right are hard to tell from one.
    e, wrong = epsilons[:, np.newaxis], special.expit(-l)
    q = special.expit(-e)
    first, last = np.searchsorted(l, e), np.searchsorted(l, e + CAPS)
    sums = [[_sums_above(l, k, wrong**j) for k in range(5 - j)] for j in range(3)]

    def mean(power: int, of_wrong: int) -> NDArray[np.float64]:
        """Return E[w^power wrong^of_wrong], w being l - e from e to e + cap."""
        total = CAPS**power * sums[of_wrong][0][last]
        for k in range(power + 1):
            above = sums[of_wrong][k]
            total += comb(power, k) * (-e) ** (power - k) * (above[first] - above[last])
        return np.asarray(total / len(l))

    w2, w2u, w2uu = mean(2, 0), mean(2, 1), mean(2, 2)
    excess = q * mean(1, 0) - mean(1, 1)
    null = q * (1 - q) * w2
    empty = w2 < _ROUNDING
    g = excess / np.where(empty, 1.0, 2 * w2)
    # The variance of w (q - wrong) - g w^2: scores are divided by sqrt(sum w^2).
    moved = q**2 * w2 - 2 * q * w2u + w2uu - (excess - g * w2) ** 2
    moved += g**2 * mean(4, 0) - 2 * g * (q * mean(3, 0) - mean(3, 1))
    divisor = np.where(empty, 1.0, null)
    gain = np.where(empty, 0.0, excess / np.sqrt(divisor))
    ratio = np.where(empty, 1.0, (w2u - w2uu + moved) / divisor)
    return gain, np.maximum(ratio, 0.0), np.where(empty, 0.0, np.sqrt(divisor))


def _sums_above(
    l: NDArray[np.float64],  # noqa: E741
    power: int,
    factor: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the sums of ``l^power factor`` from each place on."""
    values = factor
    for _ in range(power):
        values = values * l
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def mean_score(
    surety: NDArray[np.float64],
    *,
    coordinates: int,
    epsilon: float,
    cap: float,
    step: float,
    plays: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Return the mean score that the bound gives a round, from played ones.

    And by how much its variance exceeds that of the normal score: weights that are
    whole numbers and lots between equal counts add to it.

    Args:
        surety: The law of ``|log-odds|`` in the round.
        coordinates: How many canaries are played in it.
        epsilon: Of the claim.
        cap: Of the normal score that each play is compared with.
        step: The most that one right guess may add to the score.
        plays: How many rounds are played.
        rng: Draws them.

    Example:
        >>> score, _ = mean_score(
        ...     np.array([1.5, 2.0]), coordinates=30, epsilon=1.0, cap=1.0, step=0.5,
        ...     plays=20, rng=np.random.default_rng(1),
        ... )
        >>> excess = (0.5 * 0.0865 + 1.0 * 0.1497) / 2  # E[w (c - p)]
        >>> deviation = (0.1966 * (0.5**2 + 1.0**2) / 2) ** 0.5
        >>> abs(score - 30**0.5 * excess / deviation) < 0.1
        True
    """
    sure = surety[surety > epsilon]
    if not len(sure):
        return 0.0, 0.0
    share = len(sure) / len(surety)
    draws = int(np.clip(_DRAWN / (coordinates * share), plays, 20 * plays))
    guesses = rng.binomial(coordinates, share, draws)
    guesses = guesses[guesses > 0]
    if not len(guesses):
        return 0.0, 0.0
    starts = np.cumsum(guesses) - guesses
    l = rng.choice(sure, guesses.sum())  # noqa: E741
    right, p = rng.random(len(l)) < special.expit(l), float(special.expit(epsilon))
    w = np.minimum(l - epsilon, cap)
    deviations = np.sqrt(p * (1 - p) * np.add.reduceat(w * w, starts))
    normal = np.add.reduceat(w * (special.expit(l) - p), starts) / deviations
    lucky = np.add.reduceat(w * (right - p), starts) / deviations
    beyond = []
    for play in range(min(plays, len(guesses))):
        part = slice(starts[play], starts[play] + guesses[play])
        played = _played(l[part], right[part], coordinates, step, u=rng.random())
        log_p = StoufferRounds().log_p_value(played, epsilon=epsilon, delta=0.0)
        score = max(_LOWEST, -float(special.ndtri_exp(log_p)))
        beyond.append(score - float(lucky[play]))
    mean = (float(np.sum(normal)) + float(np.mean(beyond)) * len(guesses)) / draws
    scores = lucky[: len(beyond)] + beyond
    return mean, float(np.var(scores) - np.var(lucky[: len(beyond)]))


def _played(
    l: NDArray[np.float64],  # noqa: E741
    right: NDArray[np.bool_],
    coordinates: int,
    step: float,
    u: float,
) -> Rounds:
    """Return a game of one round, as the bound reads it."""
    classes, which = np.unique(stated_log_odds(l), return_inverse=True)
    played = Weighted(
        canaries=coordinates,
        weights=tuple(classes.tolist()),
        guesses=tuple(np.bincount(which).tolist()),
        correct=tuple(np.bincount(which[right], minlength=len(classes)).tolist()),
        committed=False,
    )
    return Rounds(
        canaries=coordinates,
        rounds=(played,),
        weights=(1.0,),
        uniforms=(u,),
        jump=min(step, WIDEST_JUMP),
    )
