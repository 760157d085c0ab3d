"""Forecasts the bound of an adaptive audit in rounds, from the guesses' distribution.

The score of one round. Against a claim of epsilon a guess with log-odds ``l`` has
weight ``w``, the excess ``l - epsilon`` clipped to between 0 and a cap. It is correct
with probability ``c(l) = e^l / (1 + e^l)``; the claim allows ``p = c(epsilon)``. With
``n`` coordinates the score of a round is approximately normal, with mean

    sqrt(n) E[w (c - p)] / sqrt(p (1 - p) E[w^2]).

Its variance is a term below one, as the number of correct guesses varies less than the
claim allows, plus a term because log-odds differ between coordinates (by
linearisation). All moments are sums over the coordinates whose log-odds exceed epsilon,
or epsilon plus the cap, so one pass over the sorted log-odds gives them for every
epsilon and cap (``RoundsTable``).

Rounds of few guesses fall short of the normal score: weights are whole numbers, and
the effect of one guess is limited. The shortfall is estimated by playing single rounds
with the bound itself. Each is compared with the normal score of the same guesses, whose
mean is known, so a few dozen suffice (``mean_score``).

The bound of all rounds. The evidence against a claim of epsilon is a weighted sum of
the rounds' scores, so its mean and variance follow from theirs, and epsilon is rejected
if the evidence exceeds the normal quantile of alpha less the price of delta. The bound
is the last epsilon of a grid before the first that is not rejected
(``RoundsForecast``).

The bound of an audit does not depend on these forecasts.
"""

from dataclasses import dataclass, replace
from math import comb, sqrt
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpaudit.bounds.bound import Grid
from dpaudit.bounds.readings import WIDEST_JUMP, Rounds, Weighted
from dpaudit.bounds.rounds import TAIL_ROOM, RoundsBound, round_shares, rounds_price
from dpaudit.dpsgd.planning.expected_one_run import Expected
from dpaudit.dpsgd.planning.guess_distribution import GuessDistribution
from dpaudit.game.guessers import stated_log_odds
from dpaudit.game.rules import AdaptiveRounds
from dpaudit.stats.binomial import masses

__all__ = [
    "CAPS",
    "QUICKLY",
    "SURELY",
    "RoundsForecast",
    "RoundsSetting",
    "RoundsTable",
    "as_played",
    "forecast_rounds",
    "mean_score",
    "played_margin",
]

CAPS = np.geomspace(0.02, 8.0, 32)
_ROUNDING = 1e-11  # moments below this are rounding errors
_DRAWN = 50_000  # guesses drawn to estimate the mean of the normal score
_SPREAD = 9.0  # standard deviations within which all counts are drawn
_LOWEST = -8.0  # lowest score that p-values near one can resolve
_GRID = Grid().step
_BELOW = 4.0  # spreads below the expected bound at which the search starts
_SOME = 4  # rounds that are played
# Total number of plays: to compare candidates, to estimate power, to report.
QUICKLY, CATCHING, SURELY = 80, 160, 400
_NEVER = -99.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsSetting:
    """An audit in rounds: its rules, its canaries, and its bound.

    Attributes:
        rules: The rules, with a jump, and a whole number of groups of equal weights.
        coordinates: The number of coordinates with canaries.
        per_coordinate: Canaries at each of them.
        delta: Delta of the bound.
        alpha: Significance level.
    """

    rules: AdaptiveRounds
    coordinates: int
    per_coordinate: int
    delta: float
    alpha: float

    @property
    def groups(self) -> int:
        """The number of groups of coordinates that are played one after the other."""
        return len(self.rules.round_weights) // self.per_coordinate

    @property
    def size(self) -> float:
        """The mean number of coordinates in a group."""
        return self.coordinates / self.groups

    def shares(self) -> NDArray[np.float64]:
        """Return the weight of each round of a group in the evidence."""
        shares = round_shares(self.rules.round_weights, self.rules.randomness_share)
        return shares[: self.per_coordinate]

    def step(self, share: float) -> float:
        """Return the most that one correct guess may add to the score of a round."""
        assert self.rules.max_jump is not None  # all plans have one
        return self.rules.max_jump / share

    def starting(self, start: float) -> "RoundsSetting":
        """Return the setting with ``start`` as the smallest epsilon that is tested."""
        return replace(self, rules=replace(self.rules, min_epsilon=start))


@final
class RoundsTable:
    """Mean and variance of every round's score, for many epsilons and caps.

    Args:
        distribution: The distribution of the guesses' confidence.
        epsilons: The epsilons, rising.

    Attributes:
        epsilons: The epsilons.
        gain: Mean score over the square root of the coordinates, by round, epsilon and
            cap.
        ratio: Variance of the score.
        size: Standard deviation of the weight of correct guesses if the claim just
            holds, over the square root of the coordinates.
        share: Share of the coordinates that are guessed, by round and epsilon.
    """

    def __init__(
        self, distribution: GuessDistribution, *, epsilons: NDArray[np.float64]
    ) -> None:
        self.epsilons = epsilons
        ranked = np.sort(distribution.confidence, axis=1)
        rounds = [_moments(row, epsilons) for row in ranked]
        self.gain, self.ratio, self.size = (
            np.array([each[i] for each in rounds]) for i in range(3)
        )
        below = [np.searchsorted(row, epsilons, side="right") for row in ranked]
        self.share = 1 - np.array(below) / distribution.coordinates


def _moments(
    l: NDArray[np.float64],  # noqa: E741 (log-odds)
    epsilons: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return gain, ratio and size of one round, by epsilon and cap."""
    # Error probabilities, as those of being correct are too close to one in floats.
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
    """Return the sums of ``l^power factor`` from each index on."""
    values = factor
    for _ in range(power):
        values = values * l
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def mean_score(
    confidence: NDArray[np.float64],
    *,
    coordinates: int,
    epsilon: float,
    cap: float,
    step: float,
    plays: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Return the mean score that the bound gives a round, and its excess variance.

    Both are estimated by playing rounds. The excess is over the variance of the normal
    score: integer weights and the tie-breaking between equal counts add to it.

    Args:
        confidence: A sample of ``|log-odds|`` in the round.
        coordinates: The number of canaries played in it.
        epsilon: Epsilon of the claim.
        cap: Cap of the normal score that each play is compared with.
        step: The most that one correct guess may add to the score.
        plays: The number of rounds to play.
        rng: Draws the rounds.

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
    sure = confidence[confidence > epsilon]
    if not len(sure):
        return 0.0, 0.0
    share = len(sure) / len(confidence)
    draws = int(np.clip(_DRAWN / (coordinates * share), plays, 20 * plays))
    guesses = _binomial(coordinates, share, rng.random(draws))
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
        played = _one_round(l[part], right[part], coordinates, step, u=rng.random())
        log_p = RoundsBound().log_p_value(played, epsilon=epsilon, delta=0.0)
        score = max(_LOWEST, -float(special.ndtri_exp(log_p)))
        beyond.append(score - float(lucky[play]))
    mean = (float(np.sum(normal)) + float(np.mean(beyond)) * len(guesses)) / draws
    scores = lucky[: len(beyond)] + beyond
    return mean, float(np.var(scores) - np.var(lucky[: len(beyond)]))


def _binomial(
    trials: int, probability: float, uniforms: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return binomial counts at these quantiles.

    numpy's own binomial draws differ between versions, and so would all later draws: an
    update would change a plan.
    """
    least, probabilities = masses(
        trials, float(special.logit(probability)), spread=_SPREAD
    )
    return least + np.searchsorted(np.cumsum(probabilities)[:-1], uniforms)


def _one_round(
    l: NDArray[np.float64],  # noqa: E741
    right: NDArray[np.bool_],
    coordinates: int,
    step: float,
    u: float,
) -> Rounds:
    """Return an audit of one round, in the form that the bound takes."""
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
        round_weights=(1.0,),
        uniforms=(u,),
        max_jump=min(step, WIDEST_JUMP),
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundsForecast:
    """The probability that each epsilon is rejected.

    Attributes:
        setting: The audit.
        epsilons: The epsilons at which it was computed.
        margins: By how many standard deviations the mean evidence exceeds the rejection
            threshold: epsilon is rejected with probability ``Phi(margin)``.
        deviations: The standard deviation of the evidence.
    """

    setting: RoundsSetting
    epsilons: NDArray[np.float64]
    margins: NDArray[np.float64]
    deviations: NDArray[np.float64]

    @property
    def rules(self) -> AdaptiveRounds:
        """The rules of the audit."""
        return self.setting.rules

    def rejects(self, epsilon: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that an epsilon is rejected."""
        e = np.asarray(epsilon, np.float64)
        margin = np.interp(e, self.epsilons, self.margins, right=_NEVER)
        return np.asarray(special.ndtr(margin))

    @property
    def typical(self) -> float:
        """The largest epsilon that half of all runs reject; 0 if there is none."""
        best = int(np.argmax(self.margins))
        lost = np.flatnonzero(self.margins[best:] <= 0)
        if not len(lost):
            return float(self.epsilons[-1])
        if lost[0] == 0:
            return 0.0
        around = best + lost[0] - np.array([0, 1])
        return float(np.interp(0.0, self.margins[around], self.epsilons[around]))

    def expected(self) -> Expected:
        """Return mean and spread of the last epsilon before the first not rejected."""
        start = self.rules.min_epsilon
        steps = max(1, int((self.epsilons[-1] - start) / _GRID) + 2)
        points = start + _GRID * np.arange(steps)
        # The search stops at the first failure: the probability to reach epsilon falls.
        reached = np.append(np.minimum.accumulate(self.rejects(points)), 0.0)
        ends = reached[:-1] - reached[1:]
        mean, square = float(ends @ points), float(ends @ points**2)
        return Expected(mean=mean, spread=sqrt(max(0.0, square - mean**2)))

    def stronger(self, more: float | NDArray[np.float64]) -> "RoundsForecast":
        """Return the forecast with more evidence, by a constant or by epsilon."""
        return replace(self, margins=self.margins + more / self.deviations)

    def started(self) -> "RoundsForecast":
        """Return the forecast with a search start well below the expected bound."""
        typical = self.typical
        middle = self.setting.starting(round(typical / 2, 2))
        spread = replace(self, setting=middle).expected().spread
        low = max(0.0, typical - _BELOW * spread)
        tried = np.arange(round(low, 2), max(typical, low + _GRID), _GRID)
        # Delta costs more at small epsilons: there, even a powerful audit may fail.
        best = tried[int(np.argmax(np.minimum(self.rejects(tried), 0.9999)))]
        return replace(self, setting=self.setting.starting(round(float(best), 2)))


def forecast_rounds(table: RoundsTable, setting: RoundsSetting) -> RoundsForecast:
    """Return the forecast of an audit in rounds, at the epsilons of a table."""
    shares, groups = setting.shares(), setting.groups
    gain, ratio, caps = _at_caps(table, setting)
    possible = (caps[shares > 0] > 0).all(axis=0)
    mean = groups * sqrt(setting.size) * (shares @ gain)
    deviations = np.sqrt(setting.rules.randomness_share + groups * (shares**2 @ ratio))
    needed = _needed(table, setting)
    possible &= needed < np.inf
    margins = np.full(len(mean), _NEVER)
    np.divide(mean - needed, deviations, out=margins, where=possible)
    return RoundsForecast(
        setting=setting,
        epsilons=table.epsilons,
        margins=margins,
        deviations=deviations,
    )


def as_played(
    distribution: GuessDistribution,
    table: RoundsTable,
    plain: RoundsForecast,
    *,
    plays: int = QUICKLY,
) -> RoundsForecast:
    """Return a forecast whose normal approximation is corrected by played rounds.

    The correction may change much within a few hundredths of epsilon, where rounds
    begin to have too few guesses. So it is estimated at the bound expected without it,
    and at the bound expected with that correction; in between it is interpolated.
    """
    some, first = plays // 2, plain.typical
    beyond = _beyond_normal(distribution, table, plain.setting, first, some)
    second = plain.stronger(beyond).typical or first / 2
    other = _beyond_normal(distribution, table, plain.setting, second, some)
    at, corrections = zip(*sorted([(first, beyond), (second, other)]), strict=True)
    return plain.stronger(np.interp(table.epsilons, at, corrections))


def _beyond_normal(
    distribution: GuessDistribution,
    table: RoundsTable,
    setting: RoundsSetting,
    epsilon: float,
    plays: int,
) -> float:
    """Return by how much played evidence exceeds the normal approximation.

    A few rounds are played, ``plays`` times in total; the others are interpolated. The
    error of one play counts for every group, so a single round is played as often as
    all.
    """
    nearest = int(np.argmin(np.abs(table.epsilons - epsilon)))
    shares = setting.shares()
    gain, _, _ = _at_caps(table, setting)
    counted = np.flatnonzero(shares)
    some = _spread(len(counted), _SOME)
    rounds = counted[some]
    scores, _ = _played(distribution, table, setting, nearest, rounds, plays)
    beyond = scores - sqrt(round(setting.size)) * gain[rounds, nearest]
    by_round = np.interp(np.arange(len(counted)), some, beyond)
    return setting.groups * float(shares[counted] @ by_round)


def played_margin(
    distribution: GuessDistribution,
    setting: RoundsSetting,
    *,
    epsilon: float,
    most: int,
) -> float:
    """Return by how many deviations evidence exceeds the threshold, by played rounds.

    For epsilons far from those that the rules were planned for. At most ``most`` rounds
    are played; the shortfall of the others is interpolated.
    """
    table = RoundsTable(distribution, epsilons=np.array([epsilon]))
    shares, groups = setting.shares(), setting.groups
    gain, ratio, _ = _at_caps(table, setting)
    counted = np.flatnonzero(shares)
    some = _spread(len(counted), min(most, len(counted)))
    normal = sqrt(round(setting.size)) * gain[counted, 0]
    rounds = counted[some]
    scores, wider = _played(distribution, table, setting, 0, rounds, CATCHING)
    every = np.arange(len(counted))
    beyond = np.interp(every, some, scores - normal[some])
    mean = groups * float(shares[counted] @ (normal + beyond))
    variance = np.maximum(ratio[counted, 0] + np.interp(every, some, wider), 0.0)
    own = groups * float(shares[counted] ** 2 @ variance)
    needed = float(_needed(table, setting)[0])
    return (mean - needed) / sqrt(setting.rules.randomness_share + own)


def _spread(number: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` of the first ``number`` indices, evenly spread."""
    return np.unique(np.linspace(0, number - 1, most).round().astype(np.int64))


def _played(
    distribution: GuessDistribution,
    table: RoundsTable,
    setting: RoundsSetting,
    at: int,
    rounds: NDArray[np.int64],
    plays: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean scores of some rounds at one epsilon, and their excess variances."""
    rng = np.random.default_rng(0)  # the same plays for all candidates compared
    shares = setting.shares()
    _, _, caps = _at_caps(table, setting)
    scores = [
        mean_score(
            distribution.confidence[r],
            coordinates=round(setting.size),
            epsilon=float(table.epsilons[at]),
            cap=max(float(CAPS[0]), float(caps[r, at])),
            step=setting.step(float(shares[r])),
            plays=plays // len(rounds),
            rng=rng,
        )
        for r in rounds
    ]
    means, wider = zip(*scores, strict=True)
    return np.array(means), np.array(wider)


def _needed(table: RoundsTable, setting: RoundsSetting) -> NDArray[np.float64]:
    """Return the evidence needed to reject each epsilon; infinity if none suffices."""
    price = rounds_price(
        canaries=setting.coordinates * setting.per_coordinate,
        round_weights=setting.rules.round_weights,
        max_jump=setting.rules.max_jump,
        randomness_share=setting.rules.randomness_share,
        epsilon=0.0,
        delta=setting.delta,
    )
    # The price is proportional to 1 / (1 + e^epsilon), which is 1/2 at 0.
    left = setting.alpha - 2 * price * special.expit(-table.epsilons)
    return np.where(left > 0, -special.ndtri(np.maximum(left, 1e-300)), np.inf)


def _at_caps(
    table: RoundsTable, setting: RoundsSetting
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return gain, ratio and the largest cap allowed, by round; a cap of 0 if none."""
    steps = np.array([setting.step(s) if s else 0.0 for s in setting.shares()])
    room = (
        steps[:, np.newaxis, np.newaxis] / TAIL_ROOM * sqrt(setting.size) * table.size
    )
    allowed = (room >= CAPS).sum(axis=2)
    at = np.maximum(allowed - 1, 0)
    gain, ratio = (
        np.take_along_axis(values, at[..., np.newaxis], axis=2)[..., 0]
        for values in (table.gain, table.ratio)
    )
    return gain, ratio, np.where(allowed > 0, CAPS[at], 0.0)
