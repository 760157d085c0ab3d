"""The paper's numbers on DP-SGD, and the same audits with the exact bound.

    python benchmarks/paper_numbers.py --store numbers.sqlite --workers 2

d = 1000 coordinates, T = 100 steps, Poisson rate 1/10, noise 2.4224014 (the RDP
accountant's for epsilon = 2 at delta = 1e-5), k = 100 guesses: 50 for the highest sums
and 50 for the lowest. Mean bounds at level 0.05 over 200 runs, with standard errors, by
Steinke et al.'s bound as in the paper, and by the exact bound with the same guesses and
with the 100 most likely ones. The paper prints 0.49 +- 0.01 for one canary per
coordinate and 0.62 +- 0.01 for eight.
"""

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from dpaudit import Coins, Counts, Exact, Extremes, Key, MostLikely
from dpaudit.bounds.steinke import Steinke
from dpaudit.dpsgd.joining import Poisson
from dpaudit.dpsgd.sums import DiracSums, SeenSums
from dpaudit.engines.local import LocalEngine
from dpaudit.engines.store import Outcome, Setting, Store
from dpaudit.engines.sweep import Sweep, run

GUESSES, DELTA, ALPHA, SIGMA = 100, 1e-5, 0.05, 2.4224014
SIZES = (1, 2, 3, 5, 8, 12, 20)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--store", type=Path, default=Path("paper_numbers.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    planned = Sweep(
        name="paper numbers",
        revision=1,
        function=one_audit,
        settings=[{"per_coordinate": s} for s in SIZES],
        trials=args.runs,
    )
    with Store(args.store) as store, Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("auditing")
        run(
            planned,
            engine=LocalEngine(workers=args.workers),
            store=store,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        for setting in planned.settings:
            rows = list(store.outcomes(planned.cell(setting)))[: args.runs]
            means = {
                name: (
                    np.mean([row[name] for row in rows]),
                    np.std([row[name] for row in rows], ddof=1) / len(rows) ** 0.5,
                )
                for name in rows[0]
            }
            said = ", ".join(f"{k} {m:.3f} +- {e:.3f}" for k, (m, e) in means.items())
            print(f"{setting['per_coordinate']:>2} per coordinate: {said}")


if __name__ == "__main__":
    main()
