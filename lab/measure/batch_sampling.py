"""How often tests of batch sampling report correct runs, and how often faulty ones.

    python lab/measure/batch_sampling.py level [--runs 5000]
    python lab/measure/batch_sampling.py power [--runs 200]

``level``: Poisson samples at the rate accounted for and at three quarters of it. For
each test the share of runs with a p-value of at most 0.05, and the share of runs in
which the least of all eight is at most 0.05 / 8. Fails if any share is above 0.05
(lower 99.9 % limits over all rows). ``power``: samplers that keep the mean rate or are
otherwise hard to tell from Poisson sampling, at the level of the default audit.
"""

import argparse
import sys
from collections.abc import Callable
from math import log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpaudit.stats.binomial import rate_limits
from dpaudit.training.batch_sampling import BatchSampling

LEVEL = 0.05
SETTINGS = ((60, 0.2, 12), (200, 0.1, 20), (1000, 0.1, 100), (100, 0.6, 30))

Batches: TypeAlias = list[NDArray[np.int64]]
Sampler: TypeAlias = Callable[[np.random.Generator, int, float, int], Batches]


def of_rates(
    rng: np.random.Generator, rates: NDArray[np.float64], steps: int
) -> Batches:
    return [np.flatnonzero(rng.random(len(rates)) < rates) for _ in range(steps)]


def poisson(rng: np.random.Generator, n: int, rate: float, steps: int) -> Batches:
    return of_rates(rng, np.full(n, rate), steps)


def minority(rng: np.random.Generator, n: int, rate: float, steps: int) -> Batches:
    rates = np.full(n, rate * 0.88 / 0.98)
    rates[: n // 50] = min(6 * rate, 1.0)
    return of_rates(rng, rates, steps)


def balanced(rng: np.random.Generator, n: int, rate: float, steps: int) -> Batches:
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    sizes = (n * shares).astype(int)
    return of_rates(rng, np.repeat(np.minimum(rate / 4 / shares, 1.0), sizes), steps)


def fixed(rng: np.random.Generator, n: int, rate: float, steps: int) -> Batches:
    return [rng.choice(n, int(n * rate), replace=False) for _ in range(steps)]


def shuffled(rng: np.random.Generator, n: int, rate: float, steps: int) -> Batches:
    found: Batches = []
    while len(found) < steps:
        sizes = rng.multinomial(n, np.full(round(1 / rate), rate))
        found += np.split(rng.permutation(n), np.cumsum(sizes)[:-1])
    return found[:steps]


def clusters(size: int) -> Sampler:
    def sampler(rng: np.random.Generator, n: int, rate: float, steps: int) -> Batches:
        return [
            np.flatnonzero(np.repeat(rng.random(n // size) < rate, size))
            for _ in range(steps)
        ]

    return sampler


def sticky(stays: float) -> Sampler:
    def sampler(rng: np.random.Generator, n: int, rate: float, steps: int) -> Batches:
        here, found = rng.random(n) < rate, []
        for _ in range(steps):
            found.append(np.flatnonzero(here))
            fresh = rng.random(n) < rate * (1 - stays) / (1 - rate)
            here = np.where(here, rng.random(n) < stays, fresh)
        return found

    return sampler


FAULTY: dict[str, Sampler] = {
    "2 % of records at six times the rate": minority,
    "four classes of 40, 30, 20, 10 % alike": balanced,
    "batches of a fixed size": fixed,
    "shuffling, sizes as Poisson's": shuffled,
    "clusters of 10": clusters(10),
    "clusters of 2": clusters(2),
    "half of a batch stays": sticky(0.5),
    "a fifth of a batch stays": sticky(0.2),
}


def counted(batches: Batches, records: int) -> BatchSampling:
    sampling = BatchSampling(records)
    for batch in batches:
        sampling.add(batch)
    return sampling


def level(runs: int) -> bool:
    """Print how often each test is wrong; return whether none is too often."""
    largest, good, rows = 0.0, True, len(SETTINGS) * 2 * 9
    for records, rate, steps in SETTINGS:
        for drawn in (rate, 0.75 * rate):
            rng, found = np.random.default_rng(records + int(1e6 * drawn)), []
            for _ in range(runs):
                sampling = counted(poisson(rng, records, drawn, steps), records)
                tests = sampling.tests(rate)
                found.append([test.log_p for test in tests.values()])
            log_p = np.array(found)
            wrong = dict(zip(tests, (log_p <= log(LEVEL)).sum(0), strict=True))
            wrong["any"] = (log_p.min(1) <= log(LEVEL / log_p.shape[1])).sum()
            largest = max(largest, *(k / runs for k in wrong.values()))
            limits = [
                rate_limits(int(k), runs, alpha=0.002 / rows) for k in wrong.values()
            ]
            good &= all(low <= LEVEL for low, _ in limits)
            shares = ", ".join(f"{name} {k / runs:.4f}" for name, k in wrong.items())
            print(f"{records} records, {steps} steps, {drawn:g} of {rate:g}: {shares}")
    print(f"largest {largest:.4f} at a level of {LEVEL}, {runs} runs each")
    return good


def power(runs: int) -> None:
    """Print how often each sampler is reported, and by which tests."""
    for records, rate, steps in ((1000, 0.1, 100), (1000, 0.1, 20), (10000, 0.01, 100)):
        print(f"{records} records, rate {rate:g}, {steps} steps")
        for name, sampler in FAULTY.items():
            rng, codes = np.random.default_rng(0), dict[str, int]()
            reported = 0
            for _ in range(runs):
                batches = sampler(rng, records, rate, steps)
                faults = counted(batches, records).found(rate)[1]
                reported += bool(faults)
                for each in faults:
                    codes[each.code] = codes.get(each.code, 0) + 1
            print(f"| {name} | {reported} of {runs} | {codes} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", choices=["level", "power"])
    parser.add_argument("--runs", type=int)
    arguments = parser.parse_args()
    if arguments.study == "power":
        power(arguments.runs or 200)
    else:
        sys.exit(not level(arguments.runs or 5000))


if __name__ == "__main__":
    main()
