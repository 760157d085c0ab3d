"""What every rule shows of one and the same run of DP-SGD: one-run and adaptive.

    python lab/measure/adaptive_rules.py --store rules.sqlite --workers 1   # resumable

The paper's setting: T = 100 steps, Poisson rate 1/10, noise 2.4224014 (the RDP
accountant's for epsilon = 2 at delta = 1e-5), Dirac canaries, s at each of d
coordinates, alpha = 0.05. A run is simulated once and judged by every rule, so that
rules are compared on the same runs. What a rule wants fixed beforehand is a constant
here. It was found on other runs than those measured: one-run rules and tier B on 100 of
d = 1,000 and 30 of d = 10,000, the adaptive count on 40 and 30, slots on 8. Numbers of
guesses and thresholds were tried on a grid, one-run classes found by hill climbing,
each to make the bound at the expected score largest. Slots were searched the least.
At d = 1,000 the numbers of s = 5 are borrowed from s = 4 and those of s = 12 from 16,
at d = 10,000 those of s = 6 from 5. Rounds have the weights that ``dpaudit plan``
proposes, with a jump, noise, splits and start that were tried on other runs.

Tier B assumes that the mechanism is mu-GDP for some mu; its figure is the epsilon of
that family's member, not a lower bound on the mechanism's. All others are tier A.

The table gives mean bounds with standard errors, the difference to weighted classes
on the same runs, and that to the one-run rule of tier A and the s whose mean came out
highest, which is on other runs if s differs. To take the highest favours one run.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray
from sweeping import filled

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveMostLikely,
    AdaptiveRounds,
    ApproxDP,
    Coins,
    Design,
    Key,
)
from dpaudit.bounds import Counts, ExactBound, Ranked, RankedBound, Weighted
from dpaudit.bounds.curve import GaussianFamily
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.bounds.weighted import WeightedBound
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums, SeenSums
from dpaudit.game import Submission
from dpaudit.game.auditors import play_adaptive
from dpaudit.game.guessers import AdaptiveGuesser, Play
from dpaudit.testing import fixed_key
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

DELTA, ALPHA, SIGMA = 1e-5, 0.05, 2.4224014
CLAIM = ApproxDP(epsilon=2.0, delta=DELTA)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the rules fix beforehand for so many coordinates and canaries at each.

    Attributes:
        few, some, many: Numbers of most likely guesses for the exact bound; ``some``
            was best and is Steinke's too.
        weights, sizes: One-run classes, the surest first.
        model: Number of most likely guesses for tier B.
        count: Least log-odds that are guessed, and how many guesses, adaptively.
        slots: Least log-odds, width of a class, and slots in classes of weight 1, 2,
            ..., adaptively; None where delta leaves nothing to show.
        bets: Smallest epsilon tested by bets; None where delta leaves nothing to show.
        rounds: The rules of limited rounds, as planned.
    """

    few: int
    some: int
    many: int
    weights: tuple[int, ...]
    sizes: tuple[int, ...]
    model: int
    count: tuple[float, int]
    slots: tuple[float, float, tuple[int, ...]] | None
    bets: float | None
    rounds: AdaptiveRounds


def in_rounds(
    weights: str, groups: int, *, start: float, jump: float, noise: float
) -> AdaptiveRounds:
    """Return the rules for so many groups of coordinates, one after the other."""
    each = tuple(map(float, weights.split()))
    return AdaptiveRounds(
        round_weights=each * groups,
        min_epsilon=start,
        max_jump=jump,
        randomness_share=noise,
    )


PLANS: Mapping[tuple[int, int], Plan] = {  # by coordinates and canaries at each
    (1_000, 4): Plan(
        few=100,
        some=200,
        many=300,
        weights=(6, 4, 3, 2, 1),
        sizes=(44, 23, 45, 61, 81),
        model=400,
        count=(0.75, 244),
        slots=(0.65, 0.1, (154, 102, 62, 36, 20, 22)),
        bets=0.0,
        rounds=in_rounds("0.817 0.874 0.939 1.0", 1, start=0.35, jump=0.5, noise=0.0),
    ),
    (1_000, 5): Plan(
        few=100,
        some=200,
        many=300,
        weights=(6, 4, 3, 2, 1),
        sizes=(44, 23, 45, 61, 81),
        model=400,
        count=(0.75, 244),
        slots=(0.65, 0.1, (154, 102, 62, 36, 20, 22)),
        bets=0.0,
        rounds=in_rounds("0.81 0.855 0.9 0.95 1.0", 1, start=0.4, jump=0.4, noise=0.0),
    ),
    (1_000, 6): Plan(
        few=100,
        some=200,
        many=300,
        weights=(6, 4, 3, 2, 1),
        sizes=(60, 31, 67, 53, 113),
        model=400,
        count=(0.8, 233),
        slots=(0.75, 0.1, (138, 85, 48, 50)),
        bets=0.0,
        rounds=in_rounds(
            "0.807 0.843 0.878 0.915 0.957 1.0", 1, start=0.4, jump=0.4, noise=0.0
        ),
    ),
    (1_000, 8): Plan(
        few=100,
        some=200,
        many=300,
        weights=(7, 4, 3, 2, 1),
        sizes=(69, 57, 57, 61, 132),
        model=500,
        count=(0.75, 381),
        slots=(0.75, 0.1, (170, 99, 55, 54)),
        bets=0.0,
        rounds=in_rounds(
            "0.748 0.776 0.81 0.845 0.882 0.918 0.957 1.0",
            1,
            start=0.4,
            jump=0.4,
            noise=0.0,
        ),
    ),
    (1_000, 16): Plan(
        few=200,
        some=300,
        many=400,
        weights=(8, 5, 4, 3, 2, 1),
        sizes=(118, 62, 40, 74, 73, 163),
        model=700,
        count=(0.8, 345),
        slots=None,
        bets=None,
        rounds=in_rounds(
            "0.592 0.611 0.63 0.649 0.669 0.692 0.712 0.738 0.765 0.793 0.823 "
            "0.854 0.887 0.922 0.96 1.0",
            1,
            start=0.4,
            jump=0.3,
            noise=0.0,
        ),
    ),
    (1_000, 12): Plan(
        few=200,
        some=300,
        many=400,
        weights=(8, 5, 4, 3, 2, 1),
        sizes=(118, 62, 40, 74, 73, 163),
        model=700,
        count=(0.8, 345),
        slots=None,
        bets=None,
        rounds=in_rounds(
            "0.653 0.675 0.699 0.724 0.751 0.781 0.812 0.847 0.881 0.919 0.959 1.0",
            1,
            start=0.4,
            jump=0.35,
            noise=0.0,
        ),
    ),
    (10_000, 1): Plan(
        few=100,
        some=200,
        many=300,
        weights=(10, 6, 5, 4, 3, 2, 1),
        sizes=(62, 27, 33, 51, 38, 62, 84),
        model=450,
        count=(0.95, 262),
        slots=(0.9, 0.1, (162, 93, 55, 27, 14, 13)),
        bets=0.4,
        rounds=in_rounds("1.0", 8, start=0.5, jump=0.4, noise=0.0),
    ),
    (10_000, 3): Plan(
        few=200,
        some=300,
        many=500,
        weights=(9, 5, 4, 3, 2, 1),
        sizes=(154, 45, 29, 78, 87, 87),
        model=600,
        count=(1.0, 462),
        slots=None,
        bets=None,
        rounds=in_rounds("0.824 0.904 1.0", 4, start=0.65, jump=0.25, noise=0.03),
    ),
    (10_000, 5): Plan(
        few=200,
        some=400,
        many=600,
        weights=(9, 5, 4, 3, 2, 1),
        sizes=(220, 40, 44, 105, 79, 169),
        model=700,
        count=(1.0, 688),
        slots=None,
        bets=None,
        rounds=in_rounds(
            "0.701 0.762 0.824 0.907 1.0", 4, start=0.7, jump=0.16, noise=0.05
        ),
    ),
    (10_000, 6): Plan(
        few=200,
        some=400,
        many=600,
        weights=(9, 5, 4, 3, 2, 1),
        sizes=(220, 40, 44, 105, 79, 169),
        model=700,
        count=(1.0, 688),
        slots=None,
        bets=None,
        rounds=in_rounds(
            "0.638 0.681 0.75 0.812 0.909 1.0", 4, start=0.7, jump=0.16, noise=0.05
        ),
    ),
}
BASELINE = "weighted classes"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulated:
    """One run: as it was seen, its coins' key, and whether sorted guesses were right.

    Attributes:
        mechanism: What was run.
        seen: Its output.
        key: The secret of the coins.
        right: For every canary, the surest guess first.
        plan: What was fixed beforehand.
    """

    mechanism: DiracSums
    seen: SeenSums
    key: Key
    right: NDArray[np.bool_]
    plan: Plan

    @property
    def canaries(self) -> int:
        """How many canaries the run had."""
        return len(self.right)


def simulated(d: int, s: int, rng: np.random.Generator) -> Simulated:
    mechanism = DiracSums(
        coordinates=d,
        per_coordinate=s,
        sampling=Poisson(rate=0.1),
        sigma=SIGMA,
        steps=100,
    )
    key = fixed_key(rng.bytes(32))
    bits = Coins(key=key, count=d * s).bits()
    seen = mechanism.run(mechanism.pairs.choose(bits), rng)
    log_odds = mechanism.log_odds(seen)
    most_confident_first = np.argsort(-np.abs(log_odds), kind="stable")
    right = ((log_odds >= 0) == (bits == 1))[most_confident_first]
    return Simulated(
        mechanism=mechanism, seen=seen, key=key, right=right, plan=PLANS[d, s]
    )


# One run: all guesses at once.


def counted(
    bound: ExactBound | SteinkeBound, planned: Callable[[Plan], int]
) -> Callable[[Simulated], float]:
    """Return the rule that counts a planned number of most likely guesses."""

    def rule(one: Simulated) -> float:
        guesses = planned(one.plan)
        return count_bound(bound, one.canaries, guesses, int(one.right[:guesses].sum()))

    return rule


@cache
def count_bound(
    bound: ExactBound | SteinkeBound, canaries: int, guesses: int, correct: int
) -> float:
    counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
    return bound.epsilon_lower(counts, delta=DELTA, alpha=ALPHA).epsilon_lower


def in_classes(one: Simulated) -> float:
    weights, sizes = one.plan.weights, one.plan.sizes
    parts = np.split(one.right[: sum(sizes)], np.cumsum(sizes)[:-1])
    reading = Weighted(
        canaries=one.canaries,
        weights=weights,
        guesses=sizes,
        correct=tuple(int(part.sum()) for part in parts),
        committed=True,
    )
    bound = WeightedBound()
    return bound.epsilon_lower(reading, delta=DELTA, alpha=ALPHA).epsilon_lower


def ranked(one: Simulated) -> float:
    reading = Ranked(canaries=one.canaries, right=one.right)
    return RankedBound().epsilon_lower(reading, delta=DELTA, alpha=ALPHA).epsilon_lower


def gaussian(one: Simulated) -> float:
    guesses = one.plan.model
    return gaussian_bound(one.canaries, guesses, int(one.right[:guesses].sum()))


@cache
def gaussian_bound(canaries: int, guesses: int, correct: int) -> float:
    counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
    found = GaussianFamily().parameter_lower(counts, delta=DELTA, alpha=ALPHA)
    return found.model_epsilon


# Adaptive: through the referee, who reveals coins and holds to the rules.


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """The mechanism of a run that took place already: it gives the same output."""

    seen: SeenSums

    def run(self, data: NDArray[np.int8], rng: np.random.Generator) -> SeenSums:
        """Return what was seen."""
        del data, rng
        return self.seen


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InSlots:
    """Puts every guess into a free slot, of the weight that is nearest to its own.

    Attributes:
        mechanism: Says what an output and revealed coins tell about the next ones.
        threshold: The least log-odds that are guessed.
        width: How much more log-odds make a weight of one more.
        sizes: Slots of weight 1, 2, ...
    """

    mechanism: DiracSums
    threshold: float
    width: float
    sizes: tuple[int, ...]

    def play(self, output: SeenSums) -> Play:
        """Yield each batch's guesses and learn its coins."""
        posterior = self.mechanism.posterior(output)
        free = np.array(self.sizes)
        for index in posterior.batches():
            log_odds = posterior.log_odds(index)
            excess = np.abs(log_odds) - self.threshold
            stake = self._stakes(excess, free)
            sign = np.where(log_odds >= 0, 1, -1)
            guess = np.where(stake > 0, sign, 0).astype(np.int8)
            truth = yield Submission(index=index, guess=guess, stake=stake)
            posterior.reveal(index, truth)

    def _stakes(
        self, excess: NDArray[np.float64], free: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Take slots, the surest first, and return their weights; 0 for a pass."""
        stake = np.zeros(len(excess))
        sure = np.flatnonzero(excess >= 0)
        for i in sure[np.argsort(-excess[sure], kind="stable")]:
            left = np.flatnonzero(free)
            if not len(left):
                break
            own = min(int(excess[i] / self.width), len(free) - 1)
            slot = left[np.argmin(np.abs(left - own))]
            free[slot] -= 1
            stake[i] = slot + 1
        return stake


def adaptive(
    one: Simulated,
    guesser: AdaptiveGuesser[SeenSums],
    rules: AdaptiveCount | AdaptiveClasses | AdaptiveBets | AdaptiveRounds,
) -> float:
    """Play by the rules and judge by the bound that belongs to them."""
    transcript = play_adaptive(
        Replayed(seen=one.seen),
        guesser,
        pairs=one.mechanism.pairs,
        design=Design(canaries=one.canaries, rules=rules, claim=CLAIM, alpha=ALPHA),
        rng=np.random.default_rng(0),  # not used: the run took place
        key=one.key,
    )
    bound = rules.bound()
    found = bound.epsilon_lower(transcript.reading(), delta=DELTA, alpha=ALPHA)
    return found.epsilon_lower


def adaptive_count(one: Simulated) -> float:
    threshold, guesses = one.plan.count
    rules = AdaptiveCount(guesses=guesses)
    guesser = AdaptiveMostLikely(
        mechanism=one.mechanism, threshold=threshold, rules=rules
    )
    return adaptive(one, guesser, rules)


def adaptive_slots(one: Simulated) -> float | None:
    if one.plan.slots is None:
        return None
    threshold, width, sizes = one.plan.slots
    weights = tuple(range(1, len(sizes) + 1))
    guesser = InSlots(
        mechanism=one.mechanism, threshold=threshold, width=width, sizes=sizes
    )
    return adaptive(one, guesser, AdaptiveClasses(weights=weights, guesses=sizes))


def adaptive_bets(one: Simulated) -> float | None:
    if one.plan.bets is None:
        return None
    rules = AdaptiveBets(min_epsilon=one.plan.bets)
    guesser = AdaptiveMostLikely(mechanism=one.mechanism, threshold=0.0, rules=rules)
    return adaptive(one, guesser, rules)


def adaptive_rounds(one: Simulated) -> float:
    rules = one.plan.rounds
    guesser = AdaptiveMostLikely(
        mechanism=one.mechanism, threshold=rules.min_epsilon, rules=rules
    )
    return adaptive(one, guesser, rules)


ONE_RUN: Mapping[str, Callable[[Simulated], float]] = {
    "exact, few guesses": counted(ExactBound(), lambda plan: plan.few),
    "exact": counted(ExactBound(), lambda plan: plan.some),
    "exact, many guesses": counted(ExactBound(), lambda plan: plan.many),
    "steinke": counted(SteinkeBound(), lambda plan: plan.some),
    "weighted classes": in_classes,
    "ranked": ranked,
}
# To add a rule, add a line here, what it wants fixed to the plans, and a revision.
RULES: Mapping[str, Callable[[Simulated], float | None]] = {
    **ONE_RUN,
    "tier B: Gaussian family": gaussian,
    "adaptive count": adaptive_count,
    "adaptive slots": adaptive_slots,
    "adaptive bets": adaptive_bets,
    "adaptive rounds": adaptive_rounds,
}


def one_audit(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Simulate one run and judge it by every rule."""
    d, s = setting["coordinates"], setting["per_coordinate"]
    one = simulated(d, s, rng)
    return {name: rule(one) for name, rule in RULES.items()}


def sweep(runs: int, coordinates: list[int]) -> Sweep:
    # By the module's name, so that workers import it and keep what was looked up.
    from adaptive_rules import one_audit  # noqa: PLC0415

    return Sweep(
        name="adaptive rules",
        revision=2,  # with rounds
        function=one_audit,
        settings=[
            {"coordinates": d, "per_coordinate": s}
            for d, s in PLANS
            if d in coordinates
        ],
        trials=runs,
    )


Column = dict[str, NDArray[np.float64]]


def report(found: Mapping[tuple[int, int], Column]) -> None:
    """Print the table of what there is so far."""
    for d, s in found:
        print(f"d = {d:,}, s = {s}: {PLANS[d, s]}\n")
    print("| d | s | rule | mean bound | to weighted classes | to best one-run |")
    print("|---|---|---|---|---|---|")
    for (d, s), bounds in found.items():
        best_s, best = best_one_run(found, d)
        for name, x in bounds.items():
            paired = estimate(x - bounds[BASELINE]) if name != BASELINE else ""
            print(
                f"| {d:,} | {s} | {name} | {estimate(x)} | {paired} | "
                f"{difference(x, best, same=s == best_s)} |"
            )


def best_one_run(
    found: Mapping[tuple[int, int], Column], coordinates: int
) -> tuple[int, NDArray[np.float64]]:
    """Return the s and the bounds of the one-run rule that came out highest."""
    candidates = [
        (s, bounds[name])
        for (d, s), bounds in found.items()
        for name in ONE_RUN
        if d == coordinates
    ]
    return max(candidates, key=lambda one: float(one[1].mean()))


def estimate(x: NDArray[np.float64]) -> str:
    return f"{x.mean():.3f} ± {x.std(ddof=1) / len(x) ** 0.5:.3f}"


def difference(
    x: NDArray[np.float64], other: NDArray[np.float64], *, same: bool
) -> str:
    if same:
        return estimate(x - other) if x is not other else ""
    error = (x.var(ddof=1) / len(x) + other.var(ddof=1) / len(other)) ** 0.5
    return f"{x.mean() - other.mean():.3f} ± {error:.3f}"


def columns(store: Store, planned: Sweep) -> dict[tuple[int, int], Column]:
    """Return the bounds of each rule that was played, in the order of the trials."""
    found = {}
    for setting in planned.settings:
        rows = list(store.outcomes(planned.cell(setting), planned.trials))
        if len(rows) > 1:
            d, s = setting["coordinates"], setting["per_coordinate"]
            found[d, s] = {
                name: np.array([row[name] for row in rows])
                for name in RULES
                if rows[0][name] is not None
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--coordinates", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--store", type=Path, default=Path("adaptive_rules.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    planned = sweep(args.runs, args.coordinates)
    with filled(planned, args.store, workers=args.workers, doing="auditing") as store:
        report(columns(store, planned))


if __name__ == "__main__":
    main()
