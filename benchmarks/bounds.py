"""The ranked bound against jax-privacy's one-run bound, on the same scores.

    pip install '.[sweep]' -r benchmarks/peers-requirements.txt
    python benchmarks/bounds.py power [--store bounds.sqlite]   # resumable
    python benchmarks/bounds.py speed

Scores are N(0, 1) for excluded and N(1, 1) for included canaries, delta = 1e-5, alpha =
0.05; nobody is told how many guesses to count. The truth is 4.377, and no valid audit
of one run can reliably exceed 3.616. *power* gives the mean bound of the ranked rule,
of the exact bound with the best fixed number of guesses known in advance, and of jax-
privacy with ``Split``. *speed* gives the ratio of CPU times at a million scores, from
scores to bound: the median of interleaved pairs with a bootstrap interval.
"""

import argparse
from pathlib import Path

import numpy as np
from jax_privacy.auditing import Bonferroni, CanaryScoreAuditor, Split
from rich.progress import Progress, track
from timing import cpu, median_ratio

from dpaudit import Counts, Exact, Ranked, RankedLooks
from dpaudit.engines.local import LocalEngine
from dpaudit.engines.store import Outcome, Setting, Store
from dpaudit.engines.sweep import Sweep, run

DELTA, ALPHA = 1e-5, 0.05
DRAWS = {1_000: 200, 10_000: 200, 100_000: 200, 1_000_000: 20}
BEST_K = {1_000: 68, 10_000: 225, 100_000: 389, 1_000_000: 1082}
GOAL = {1_000: 1.62, 10_000: 2.32, 100_000: 2.87, 1_000_000: 3.28}


def draw(canaries: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    bits = rng.integers(0, 2, canaries, np.uint8)
    return rng.normal(size=canaries) + bits, bits


def ranked(scores: np.ndarray, bits: np.ndarray) -> float:
    """Bound by the ranked rule; scores are centred without a look at the coins."""
    reading = Ranked.of(scores - np.median(scores), bits)
    return RankedLooks().epsilon_lower(reading, delta=DELTA, alpha=ALPHA).epsilon_lower


def jax_privacy(scores: np.ndarray, bits: np.ndarray, strategy: object) -> float:
    auditor = CanaryScoreAuditor(scores[bits == 1], scores[bits == 0])
    return auditor.epsilon_one_run(ALPHA, DELTA, threshold_strategy=strategy)


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    n = setting["canaries"]
    scores, bits = draw(n, rng)
    surest = np.argsort(-np.abs(scores - np.median(scores)))[: BEST_K[n]]
    right = int(np.sum((scores[surest] > np.median(scores)) == (bits[surest] == 1)))
    counts = Counts(canaries=n, guesses=BEST_K[n], correct=right)
    fixed = Exact().epsilon_lower(counts, delta=DELTA, alpha=ALPHA).epsilon_lower
    split = jax_privacy(scores, bits, Split(seed=int(rng.integers(2**31))))
    return {"ranked": ranked(scores, bits), "fixed": fixed, "split": float(split)}


def power(store_path: Path, workers: int) -> None:
    with Store(store_path) as store, Progress() as bar:
        for n, draws in DRAWS.items():
            sweep = Sweep(
                name="ranked_power",
                revision=2,
                function=trial,
                settings=[{"canaries": n}],
                trials=draws,
            )
            task = bar.add_task(f"n = {n}")
            run(
                sweep,
                engine=LocalEngine(workers=workers),
                store=store,
                progress=lambda d, t, task=task: bar.update(task, completed=d, total=t),
            )
            found = list(store.outcomes(sweep.cell({"canaries": n})))
            line = f"n = {n:>9}, {len(found)} draws (goal {GOAL[n]}):"
            for name in ("ranked", "fixed", "split"):
                x = np.array([o[name] for o in found])
                line += f"  {name} {x.mean():.3f} ± {x.std(ddof=1) / len(x) ** 0.5:.3f}"
            bar.console.print(line)


def speed(pairs: int, canaries: int) -> None:
    rng = np.random.default_rng(0)
    strategies = {"its default (Bonferroni)": Bonferroni(), "Split": Split(seed=0)}
    ratios: dict[str, list[float]] = {name: [] for name in strategies}
    ours = []
    for _ in track(range(pairs), "pairs"):
        scores, bits = draw(canaries, rng)
        for name, strategy in strategies.items():
            mine = cpu(lambda s=scores, b=bits: ranked(s, b))
            peer = cpu(lambda s=scores, b=bits, t=strategy: jax_privacy(s, b, t))
            ratios[name].append(peer / mine)
            ours.append(mine)
    print(f"ranked bound: median {np.median(ours):.3f} s CPU at n = {canaries}")
    for name, found in ratios.items():
        middle, low, high = median_ratio(found)
        print(
            f"jax-privacy with {name}: {middle:.2f} times our CPU time "
            f"[{low:.2f}, {high:.2f}] (95 % bootstrap, {len(found)} pairs)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["power", "speed"])
    parser.add_argument("--store", type=Path, default=Path("bounds.sqlite"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--canaries", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if arguments.what == "power":
        power(arguments.store, arguments.workers)
    else:
        speed(arguments.pairs, arguments.canaries)


if __name__ == "__main__":
    main()
