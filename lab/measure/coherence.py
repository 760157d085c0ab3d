"""Does a claim get one consistent answer, at every epsilon, and at what price?

``python lab/measure/coherence.py --sets 500 --claims 200`` plays random score sets by
every bound and asks, at a fixed delta:

- whether a claim is refuted above one that stands (never), and whether refuted is the
  same as a bound of epsilon or more (always), at random claims and next to the bound;
- whether bounds are those that their search finds in bare p-values (always);
- how often a claim that is true, of a mechanism that attains it, is refuted: at most
  alpha (exact limits that hold for all rows together with probability 0.999; nulls that
  spend delta are those of ``dpaudit-lab calibrate``);
- what share of claims below the truth bare p-values refute and claim tests do not.

Every bound is asked in a row of its own, which is printed once it is there.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf, log, nextafter, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import ApproxDP
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.bound import (
    GameBound,
    Grid,
    LowerBound,
    PValueProperty,
    first_not_rejected,
    largest_rejected_of_rising,
    largest_rejected_on_scan,
)
from dpaudit.bounds.exact import ExactBound, SeparateRunsBound
from dpaudit.bounds.hypergeometric import HypergeometricBound
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import (
    Bets,
    BiasedCoinCounts,
    Counts,
    HalfCounts,
    Ranked,
    Reading,
    Rounds,
    Weighted,
)
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.bounds.weighted import AdaptiveWeightedBound, WeightedBound
from dpaudit.stats.binomial import rate_limits

ALPHA = 0.05
N = 60  # guesses of a game
FAIR = 4  # games of a mechanism that attains its claim, for every set
Right = NDArray[np.bool_]
Stated = NDArray[np.float64]


def scores(rng: np.random.Generator, epsilon: float) -> tuple[Right, Stated]:
    """Return which guesses are right, the surest first, and what was stated of each.

    Randomised response of epsilon or less for each guess; what is stated is that and
    some noise, as of a guesser that knows the mechanism roughly.
    """
    odds = np.sort(rng.uniform(0.3 * epsilon, epsilon, N))[::-1]
    right = rng.random(N) < special.expit(odds)
    stated = np.maximum(odds + rng.normal(0.0, 0.2, N), 0.1)
    return right, np.round(stated, 1)


def attained(rng: np.random.Generator, epsilon: float) -> tuple[Right, Stated]:
    """Return guesses of randomised response of epsilon, stated as such or bolder."""
    bold = float(rng.choice([0.0, 0.3, 1.0]))
    right = rng.random(N) < special.expit(epsilon)
    return right, np.full(N, round(epsilon + bold, 1) + 0.1)


def counted(right: Right, *, adaptive: bool = False, extra: int = 100) -> Counts:
    return Counts(
        canaries=N + extra, guesses=N, correct=int(right.sum()), adaptive=adaptive
    )


def half(right: Right) -> HalfCounts:
    """Return counts of a half so large that each guess is nearly a coin of its own."""
    return HalfCounts(canaries=20 * N, guesses=N, correct=int(right.sum()))


def classed(right: Right, **kind: bool) -> Weighted:
    halves = int(right[: N // 3].sum()), int(right[N // 3 :].sum())
    sizes = N // 3, N - N // 3
    return Weighted(
        canaries=N + 100, weights=(2.0, 1.0), guesses=sizes, correct=halves, **kind
    )


def in_rounds(right: Right, stated: Stated, rng: np.random.Generator) -> Rounds:
    played = []
    for part in range(3):
        weights, which = np.unique(stated[part::3], return_inverse=True)
        hits = np.bincount(which, weights=right[part::3], minlength=len(weights))
        played.append(
            Weighted(
                canaries=N,
                weights=tuple(weights.tolist()),
                guesses=tuple(np.bincount(which, minlength=len(weights)).tolist()),
                correct=tuple(hits.astype(int).tolist()),
                committed=False,
            )
        )
    return Rounds(
        canaries=N,
        rounds=tuple(played),
        round_weights=(1.0, 1.0, 1.0),
        uniforms=tuple(rng.random(3).tolist()),
        noise_uniform=float(rng.random()),
    )


def unequal(right: Right, *, committed: bool) -> BiasedCoinCounts:
    half = N // 2
    return BiasedCoinCounts(
        canaries=N + 100,
        inclusion=0.5,
        guesses_in=half,
        guesses_out=N - half,
        correct=int(right.sum()),
        committed=committed,
    )


Reads = Callable[[Right, Stated, np.random.Generator], Reading]
GAMES: dict[str, tuple[GameBound[Any], Reads]] = {
    "exact": (ExactBound(), lambda r, _s, _g: counted(r)),
    "separate": (SeparateRunsBound(), lambda r, _s, _g: counted(r)),
    "random half": (HypergeometricBound(), lambda r, _s, _g: half(r)),
    "adaptive": (AdaptiveBound(), lambda r, _s, _g: counted(r, adaptive=True)),
    "classes": (WeightedBound(), lambda r, _s, _g: classed(r, committed=True)),
    "classes by output": (
        WeightedBound(),
        lambda r, _s, _g: classed(r, committed=False),
    ),
    "slots": (
        AdaptiveWeightedBound(),
        lambda r, _s, _g: classed(r, committed=True, adaptive=True),
    ),
    "known bias": (BiasedCoinsBound(), lambda r, _s, _g: unequal(r, committed=True)),
    "bias, split by output": (
        BiasedCoinsBound(),
        lambda r, _s, _g: unequal(r, committed=False),
    ),
    "ranked": (RankedBound(), lambda r, _s, _g: Ranked(canaries=N + 100, right=r)),
    "bets": (
        BettingBound(),
        lambda r, s, _g: Bets(
            canaries=N, right=r, stated_probabilities=special.expit(s)
        ),
    ),
    "rounds": (RoundsBound(), in_rounds),
}


class Remembering(GameBound[Reading]):
    """A bound that computes each number once; its claim test is that of all bounds."""

    def __init__(self, bound: GameBound[Any]) -> None:
        self._bound = bound
        self._known: tuple[Reading | None, dict[tuple[float, float], float]]
        self._known = (None, {})
        self._lower: tuple[Reading | None, LowerBound | None] = (None, None)
        self.method, self.reference = bound.method, bound.reference  # type: ignore[misc]

    def log_p_value(self, reading: Reading, *, epsilon: float, delta: float) -> float:
        """Return what the bound says."""
        if self._known[0] is not reading:
            self._known = (reading, {})
        known, where = self._known[1], (epsilon, delta)
        if where not in known:
            how = {"epsilon": epsilon, "delta": delta}
            known[where] = self._bound.log_p_value(reading, **how)
        return known[where]

    def epsilon_lower(
        self, reading: Reading, *, delta: float, alpha: float
    ) -> LowerBound:
        """Return the bound, searched as all are, for one delta and alpha."""
        known, lower = self._lower
        if known is not reading or lower is None:
            lower = super().epsilon_lower(reading, delta=delta, alpha=alpha)
            self._lower = (reading, lower)
        return lower

    def search(
        self, reading: Reading, *, delta: float, alpha: float
    ) -> PValueProperty | Grid:
        """Return how the bound searches."""
        return self._bound.search(reading, delta=delta, alpha=alpha)


@dataclass
class Row:
    """What was counted of one bound."""

    sets: int = 0
    incoherent: int = 0
    disagreeing: int = 0
    changed: int = 0
    claims: int = 0
    lost: list[float] = field(default_factory=list)
    wrong: int = 0
    trials: int = 0

    def __str__(self) -> str:
        mean, error = _mean(self.lost)
        low, high = rate_limits(self.wrong, self.trials, alpha=2e-3 / (2 * len(GAMES)))
        return (
            f"{self.sets} sets, {self.claims} claims: {self.incoherent} refuted above "
            f"one that stands, {self.disagreeing} not as the bound says, "
            f"{self.changed} bounds changed; true claims refuted {self.wrong} of "
            f"{self.trials} [{low:.4f}, {high:.4f}]; power lost below the truth "
            f"{mean:.4f} ± {error:.4f}"
        )


def _mean(values: list[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    return float(np.mean(values)), float(np.std(values)) / sqrt(len(values))


def searched(bound: GameBound[Any], reading: Reading, delta: float) -> float:
    """Return the bound from bare p-values, by the search that is written down."""
    by, how = bound.search(reading, delta=delta, alpha=ALPHA), {"alpha": ALPHA}
    if isinstance(by, Grid):
        found = first_not_rejected(bound, reading, delta=delta, grid=by, **how)
    elif by is PValueProperty.RISING:
        found = largest_rejected_of_rising(bound, reading, delta=delta, **how)
    else:
        found = largest_rejected_on_scan(bound, reading, delta=delta, **how)
    return found.epsilon_lower


def play(
    bound: GameBound[Any], reads: Reads, *, sets: int, claims: int, delta: float
) -> Row:
    row = Row()
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        truth = float(rng.uniform(0.5, 3.0))
        reading = reads(*scores(rng, truth), rng)
        lower = bound.epsilon_lower(reading, delta=delta, alpha=ALPHA).epsilon_lower
        row.changed += lower != searched(bound, reading, delta)
        random = rng.uniform(0.01, 4.0, claims)
        asked = np.sort(np.append(random, _edges(lower)))
        refuted = np.array([_refuted(bound, reading, e, delta) for e in asked.tolist()])
        row.incoherent += int(np.sum(np.maximum.accumulate(~refuted) & refuted))
        row.disagreeing += int(np.sum(refuted != (asked <= lower)))
        row.claims += len(asked)
        apart = np.isin(asked, random)
        row.lost.append(
            _lost(bound, reading, asked[apart], refuted[apart], truth, delta)
        )
        row.sets += 1
        # A mechanism that attains its claim, which is on no grid in general.
        for _ in range(FAIR):
            fair = reads(*attained(rng, truth), rng)
            row.wrong += _refuted(bound, fair, truth, delta)
            row.trials += 1
    return row


def _edges(lower: float) -> list[float]:
    near = (nextafter(lower, -inf), lower, nextafter(lower, inf), lower + 5e-11)
    return [each for each in near if each > 0]


def _refuted(
    bound: GameBound[Any], reading: Reading, epsilon: float, delta: float
) -> bool:
    claim = ApproxDP(epsilon=epsilon, delta=delta)
    return bound.claim_p_value(reading, claim, alpha=ALPHA) <= ALPHA


def _lost(
    bound: GameBound[Any],
    reading: Reading,
    asked: Stated,
    refuted: Right,
    truth: float,
    delta: float,
) -> float:
    """Return the share of claims below the truth that only bare p-values refute."""
    below = asked < truth
    bare = [
        bound.log_p_value(reading, epsilon=e, delta=delta) <= log(ALPHA)
        for e in asked[below].tolist()
    ]
    gained = np.array(bare, float) - refuted[below]
    return float(gained.mean()) if len(gained) else 0.0


def rows(
    *, sets: int, claims: int, delta: float, names: list[str]
) -> Iterator[tuple[str, Row]]:
    for name in names:
        bound, reads = GAMES[name]
        if not isinstance(bound, RankedBound | ExactBound | SeparateRunsBound):
            bound = Remembering(bound)
        yield name, play(bound, reads, sets=sets, claims=claims, delta=delta)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--sets", type=int, default=500)
    asked.add_argument("--claims", type=int, default=200)
    asked.add_argument("--deltas", type=float, nargs="+", default=[0.0, 1e-4])
    asked.add_argument("--games", nargs="+", default=list(GAMES))
    how = asked.parse_args()
    for delta in how.deltas:
        began = time.process_time()
        for name, row in rows(
            sets=how.sets, claims=how.claims, delta=delta, names=how.games
        ):
            cpu = time.process_time() - began
            print(f"{name}, delta = {delta:g}: {row}; {cpu:.0f} s CPU", flush=True)


if __name__ == "__main__":
    main()
