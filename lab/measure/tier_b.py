"""The Gaussian family (tier B) on DP-SGD: with and without several points together.

    python lab/measure/tier_b.py --store tier_b.sqlite --workers 2   # run or resume

T = 100 steps, Poisson rate 1/10, noise 2.4224014, delta = 1e-5, alpha = 0.05, all
guesses at once, their number fixed beforehand. Mean epsilon, over 200 runs, of the
Gaussian family's member with the mu that is reached: it says something about the
mechanism only if its curve belongs to the family. By the recursion of Mahloujifar,
Melis and Chaudhuri or the best single point, and by twelve points together.
"""

import argparse
from functools import cache
from pathlib import Path

import numpy as np
from sweeping import filled

from dpaudit import Coins, MostLikely
from dpaudit.bounds import Counts
from dpaudit.bounds.curve import GaussianFamily
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.testing import fixed_key
from dpaudit_lab.sweeps.store import Outcome, Setting
from dpaudit_lab.sweeps.sweep import Sweep

PLANS = ((1_000, 4, 400), (1_000, 5, 400), (10_000, 3, 600))


@cache
def epsilon(canaries: int, guesses: int, correct: int, lines: int) -> float:
    counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
    family = GaussianFamily(lines=lines)
    return family.parameter_lower(counts, delta=1e-5, alpha=0.05).model_epsilon


def one_audit(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Simulate one run and bound mu in both ways."""
    d, s, k = (int(setting[name] or 1) for name in ("d", "s", "k"))
    mechanism = DiracSums(
        coordinates=d,
        per_coordinate=s,
        sampling=Poisson(rate=0.1),
        sigma=2.4224014,
        steps=100,
    )
    bits = Coins(key=fixed_key(rng.bytes(32)), count=d * s).bits()
    seen = mechanism.run(mechanism.pairs.choose(bits), rng)
    made = MostLikely(mechanism=mechanism, guesses=k).guess(seen)
    right = int(np.sum((made.guess == 1) == (bits[made.index] == 1)))
    return {
        "one point or recursion": epsilon(d * s, k, right, 0),
        "twelve points": epsilon(d * s, k, right, 12),
    }


def main() -> None:
    from tier_b import one_audit  # noqa: PLC0415 (so that workers keep what they found)

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--store", type=Path, default=Path("tier_b.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    planned = Sweep(
        name="tier B",
        revision=1,
        function=one_audit,
        settings=[{"d": d, "s": s, "k": k} for d, s, k in PLANS],
        trials=args.runs,
    )
    with filled(planned, args.store, workers=args.workers, doing="auditing") as store:
        for setting in planned.settings:
            rows = list(store.outcomes(planned.cell(setting), args.runs))
            print(setting, len(rows), "runs")
            for name in rows[0]:
                x = np.array([row[name] for row in rows])
                error = x.std(ddof=1) / len(x) ** 0.5
                print(f"  {name}: {x.mean():.3f} +- {error:.3f}")


if __name__ == "__main__":
    main()
