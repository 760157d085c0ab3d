"""What a sweep costs beyond the engine that runs it.

    python lab/measure/overhead.py --engine local
    python lab/measure/overhead.py --engine ray
    python lab/measure/overhead.py --engine local --pairs 2       # a quick look

The same trials, in the same batches, on the same two workers: once as a sweep with its
store, once by the bare engine (loky, or Ray's tasks), with nothing kept. Trials use the
CPU for 50 ms (400 of them; limit 1.05) or 1 ms (10,000; limit 1.5). Median ratio of the
CPU time of the whole process tree over interleaved pairs, with a bootstrap interval; a
limit holds if the interval's lower end is within it. Exits with 1 if one does not.
``dpaudit-lab benchmark --only sweeps`` is a shorter comparison of both engines.
"""

import argparse
import sys
from typing import Final

from dpaudit_lab.benchmark.engines import Load, pair
from dpaudit_lab.power.timing import median_ratio

# Each with the most that a sweep may cost.
LOADS: Final = (
    (Load(trials=400, milliseconds=50), 1.05),
    (Load(trials=10_000, milliseconds=1), 1.5),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--load", type=int, choices=[0, 1], help="only this one")
    args = parser.parse_args()
    name = {"local": "loky", "ray": "ray"}[args.engine]
    within = True
    for load, limit in LOADS if args.load is None else [LOADS[args.load]]:
        pair(name, load)  # warms both up
        ratios = []
        for number in range(args.pairs):
            ours, bare = pair(name, load)
            ratios.append(ours / bare)
            print(f"pair {number}: {ratios[-1]:.3f}", file=sys.stderr, flush=True)
        middle, low, high = median_ratio(ratios)
        within &= low <= limit
        print(
            f"{args.engine}: {load.trials} trials of {load.milliseconds:g} ms: "
            f"{middle:.3f} [{low:.3f}, {high:.3f}] of the bare engine's CPU time, "
            f"{len(ratios)} pairs (limit {limit:g})"
        )
    sys.exit(not within)


if __name__ == "__main__":
    main()
