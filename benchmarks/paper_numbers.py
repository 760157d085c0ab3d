"""The paper's numbers on counts and DP-SGD, and the same audits by valid rules.

    python benchmarks/paper_numbers.py --store numbers.sqlite --workers 2   # resumable
    python benchmarks/paper_numbers.py --only sets     # or steps, or step

Mean bounds at level 0.05 over 200 runs, with standard errors.

*steps*: d = 1000 coordinates, T = 100 steps, Poisson rate 1/10, noise 2.4224014 (the
RDP accountant's for epsilon = 2 at delta = 1e-5), k = 100 guesses: 50 for the highest
sums and 50 for the lowest; by Steinke et al.'s bound as in the paper, and by the exact
bound with the same guesses and with the 100 most likely ones. The paper prints 0.49 +-
0.01 for one canary per coordinate and 0.62 +- 0.01 for eight.

*sets*: 100 counts without noise, of sets of growing size, delta = 0; only certain coins
are guessed (threshold infinity). The paper's figure puts the number of guesses made
into the binomial. For one-run audits that is valid at delta = 0, as the output alone
decides on it; for adaptive ones it is not, as revealed coins do. Beside it two rules
that are: a number committed beforehand, two standard deviations below the expected one
by the exact law, and bets.

*step*: one full-batch step, d = 1000, noise 2.1491104 (the RDP accountant's for the
same claim), threshold 1. The paper's figure again has the number of guesses made, with
delta > 0, where neither method may. Valid for one run: 200 most likely guesses. Valid
adaptively: a number committed beforehand (1 to 1.5 standard deviations below the mean
of 60 other runs), and bets, which need no threshold but cannot be played once delta's
price nears alpha. The last column says whether bounds fall from 5 canaries per
coordinate on: in the paper those of one run do, and adaptive ones do not.
"""

import argparse
from dataclasses import dataclass
from math import floor, inf
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sweeping import filled

from dpaudit import (
    AdaptiveBets,
    AdaptiveCount,
    AdaptiveMostLikely,
    ApproxDP,
    Coins,
    Confident,
    Counts,
    Design,
    Exact,
    Extremes,
    Key,
    MostLikely,
    PureDP,
    Submission,
    Transcript,
)
from dpaudit.bounds.steinke import Steinke
from dpaudit.dpsgd.joining import Poisson
from dpaudit.dpsgd.sums import DiracSums, SeenSums
from dpaudit.engines.store import Outcome, Setting, Store
from dpaudit.engines.sweep import Sweep
from dpaudit.game.adaptive import play_adaptive
from dpaudit.game.guessers import Guesser
from dpaudit.game.result import bound_for
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.theory.adaptive import adaptive_guesses

GUESSES, DELTA, ALPHA, SIGMA = 100, 1e-5, 0.05, 2.4224014
SIZES = (1, 2, 3, 5, 8, 12, 20)

SETS, SINGLE_SIGMA, THRESHOLD, LIKELIEST = 100, 2.1491104, 1.0, 200
COMPARED = (1, 2, 3, 5, 8, 10, 15, 20)
# By canaries per coordinate: guesses committed to, and the smallest epsilon that bets
# test, where delta leaves them anything to show.
COMMITTED = {1: 30, 2: 56, 3: 78, 5: 101, 8: 136, 10: 156, 15: 184, 20: 202}
START = {1: 0.0, 2: 0.0, 3: 0.0, 5: 0.0, 8: 0.3, 10: 0.5}


def one_audit(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Simulate one run and bound epsilon in three ways."""
    mechanism = DiracSums(
        coordinates=1000,
        per_coordinate=int(setting["per_coordinate"] or 1),
        participation=Poisson(rate=0.1),
        sigma=SIGMA,
        steps=100,
    )
    n = mechanism.coordinates * mechanism.per_coordinate
    bits = Coins(key=Key(rng.bytes(32)), count=n).bits()
    seen = mechanism.run(mechanism.pairs.choose(bits), rng)
    half = GUESSES // 2
    sorted_sums = Extremes(score=SeenSums.canary_totals, top=half, bottom=half)
    likeliest = MostLikely(mechanism=mechanism, guesses=GUESSES)
    found = {}
    for name, guesser in (("sums", sorted_sums), ("likeliest", likeliest)):
        made = guesser.guess(seen)
        right = int(np.sum((made.guess == 1) == (bits[made.index] == 1)))
        counts = Counts(canaries=n, guesses=GUESSES, correct=right)
        for bound in (Steinke(), Exact()):
            lower = bound.epsilon_lower(counts, delta=DELTA, alpha=ALPHA)
            found[f"{name} {bound.method}"] = lower.epsilon_lower
    return found


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """One run that several guessers look at: same coins, same noise.

    Attributes:
        mechanism: What is run.
        claim: What the adaptive games' designs name.
        canaries: How many.
        key: The secret of the coins.
        seed: The secret of the noise.
    """

    mechanism: CountInSets | DiracSums
    claim: PureDP | ApproxDP
    canaries: int
    key: Key
    seed: int

    def one_run(self, guesser: Guesser[Any]) -> Counts:
        """Return how many guesses were made at once, and how many were right."""
        bits = Coins(key=self.key, count=self.canaries).bits()
        data = self.mechanism.pairs.choose(bits)
        output = self.mechanism.run(data, np.random.default_rng(self.seed))
        return self._counts(guesser.guess(output), 2 * bits.astype(np.int8) - 1)

    def adaptive(
        self, rules: AdaptiveCount | AdaptiveBets, threshold: float
    ) -> Transcript:
        """Play an adaptive game by the rules."""
        return play_adaptive(
            self.mechanism,
            AdaptiveMostLikely(
                mechanism=self.mechanism, threshold=threshold, rules=rules
            ),
            pairs=self.mechanism.pairs,
            design=Design(canaries=self.canaries, rules=rules, claim=self.claim),
            rng=np.random.default_rng(self.seed),
            key=self.key,
        )

    def realised(self, threshold: float) -> Counts:
        """Return how many guesses were made adaptively, and how many were right."""
        everything = AdaptiveCount(guesses=self.canaries)
        played = self.adaptive(everything, threshold)
        made = played.guess != 0
        right = int(np.sum(played.guess == played.truth))
        return Counts(canaries=self.canaries, guesses=int(np.sum(made)), correct=right)

    def judged(self, rules: AdaptiveCount | AdaptiveBets, threshold: float) -> float:
        """Return the lower bound that belongs to the rules."""
        played = self.adaptive(rules, threshold)
        bound, design = bound_for(rules), played.design
        found = bound.epsilon_lower(
            played.reading(), delta=design.bound_delta, alpha=design.alpha
        )
        return found.epsilon_lower

    def _counts(self, made: Submission, coins: NDArray[np.int8]) -> Counts:
        right = int(np.sum(made.guess == coins[made.index]))
        return Counts(canaries=self.canaries, guesses=len(made.index), correct=right)


def count_in_sets(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Count in sets once and guess what is certain, at once and adaptively."""
    s = setting["set_size"]
    mechanism = CountInSets(elements=SETS * s, set_size=s)
    game = Game(
        mechanism=mechanism,
        claim=PureDP(epsilon=1.0, adjacency=mechanism.pairs.adjacency),
        canaries=SETS * s,
        key=Key(rng.bytes(32)),
        seed=int(rng.integers(2**63)),
    )
    certain = Confident(mechanism=mechanism, threshold=inf, guesses=SETS * s)
    rules = AdaptiveCount(guesses=almost_surely_certain(s))
    return {
        "one run, as many as made": pure(game.one_run(certain)),
        "adaptive, as many as made (the paper's rule, not valid)": pure(
            game.realised(inf)
        ),
        "adaptive, committed number": game.judged(rules, inf),
        "adaptive, bets": game.judged(AdaptiveBets(), inf),
    }


def almost_surely_certain(set_size: int) -> int:
    """Return how many guesses to commit to about all sets, by the exact law."""
    law = adaptive_guesses(set_size, inf)
    squares = np.square(np.arange(len(law.guesses)))
    variance = float(law.guesses @ squares) - law.expected_guesses**2
    spread = (SETS * max(0.0, variance)) ** 0.5
    return floor(SETS * law.expected_guesses - 2 * spread + 1e-9)


def pure(counts: Counts) -> float:
    return Exact().epsilon_lower(counts, delta=0.0, alpha=ALPHA).epsilon_lower


def single_step(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Simulate one full-batch step and guess what is likely enough."""
    s = setting["per_coordinate"]
    mechanism = DiracSums(
        coordinates=1000,
        per_coordinate=s,
        participation=Poisson(rate=1.0),
        sigma=SINGLE_SIGMA,
        steps=1,
    )
    game = Game(
        mechanism=mechanism,
        claim=ApproxDP(epsilon=2.0, delta=DELTA),
        canaries=1000 * s,
        key=Key(rng.bytes(32)),
        seed=int(rng.integers(2**63)),
    )
    sure = Confident(mechanism=mechanism, threshold=THRESHOLD, guesses=1000 * s)
    at_once = game.one_run(sure)
    likeliest = game.one_run(MostLikely(mechanism=mechanism, guesses=LIKELIEST))
    found = {
        "one run, as many as made (the paper's rule, not valid)": by(
            Steinke(), at_once
        ),
        f"one run, {LIKELIEST} likeliest": by(Exact(), likeliest),
        "adaptive, as many as made (the paper's rule, not valid)": by(
            Steinke(), game.realised(THRESHOLD)
        ),
        "adaptive, committed number": game.judged(
            AdaptiveCount(guesses=COMMITTED[s]), THRESHOLD
        ),
    }
    if s in START:
        found["adaptive, bets"] = game.judged(AdaptiveBets(start=START[s]), 0.0)
    return found


def by(bound: Steinke | Exact, counts: Counts) -> float:
    return bound.epsilon_lower(counts, delta=DELTA, alpha=ALPHA).epsilon_lower


def sweeps(runs: int) -> dict[str, Sweep]:
    return {
        "steps": Sweep(
            name="paper numbers",
            revision=1,
            function=one_audit,
            settings=[{"per_coordinate": s} for s in SIZES],
            trials=runs,
        ),
        "sets": Sweep(
            name="paper numbers, sets",
            revision=1,
            function=count_in_sets,
            settings=[{"set_size": s} for s in COMPARED],
            trials=runs,
        ),
        "step": Sweep(
            name="paper numbers, single step",
            revision=1,
            function=single_step,
            settings=[{"per_coordinate": s} for s in COMPARED],
            trials=runs,
        ),
    }


def report(store: Store, planned: Sweep) -> None:
    """Print a table: a row for each rule, a column for each size."""
    means: dict[str, dict[int, tuple[float, float]]] = {}
    sizes = [int(size) for setting in planned.settings for size in setting.values()]
    for setting, size in zip(planned.settings, sizes, strict=True):
        rows = list(store.outcomes(planned.cell(setting)))[: planned.trials]
        for name in rows[0]:
            x = np.array([row[name] for row in rows])
            error = float(x.std(ddof=1)) / len(x) ** 0.5
            means.setdefault(name, {})[size] = (float(x.mean()), error)
    first, last = 5, sizes[-1]
    heads = [planned.name, *map(str, sizes), f"{last} less {first}"]
    print(f"\n| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for name, found in means.items():
        cells = [
            f"{found[s][0]:.3f} ± {found[s][1]:.3f}" if s in found else "-"
            for s in sizes
        ]
        cells.append(change(found[first], found[last]) if last in found else "-")
        print(f"| {name} | {' | '.join(cells)} |")


def change(before: tuple[float, float], after: tuple[float, float]) -> str:
    """Return a difference of two independent means with its standard error."""
    error = (before[1] ** 2 + after[1] ** 2) ** 0.5
    return f"{after[0] - before[0]:+.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=["steps", "sets", "step"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--store", type=Path, default=Path("paper_numbers.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    for name, planned in sweeps(args.runs).items():
        if args.only not in (None, name):
            continue
        with filled(planned, args.store, workers=args.workers, doing=name) as store:
            report(store, planned)


if __name__ == "__main__":
    main()
