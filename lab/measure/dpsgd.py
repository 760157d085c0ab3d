"""Noisy sums of DP-SGD: what the posterior costs beyond its bare products.

    python lab/measure/dpsgd.py                     # everything, some minutes
    python lab/measure/dpsgd.py --scale 0.01        # a hundredth, for a quick look

Prints the CPU time of the posterior and an adaptive audit in limited rounds of 10^6
canaries (d = 10^5 coordinates of s = 10, T = 100 steps, rate 0.1; delta = 1e-7), bound
and verdict included, over that of its bare arithmetic; the time and peak memory of 10^7
canaries, of 10^6 steps at d = 10^3, and of a shard whose coordinates lie beyond 10^10.

The bare arithmetic is the least that the formula asks for in numpy, with all inputs at
hand and nothing checked: for each step exp of the exponents, one product with the
binomial matrix, log, added up; for each of the s rounds of the adaptive game exp, one
product with the binomial coefficients, log. The products alone are printed beside it.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
from scipy import special

from dpaudit import (
    AdaptiveMostLikely,
    AdaptiveRounds,
    ApproxDP,
    Coins,
    Design,
    audit_adaptive,
)
from dpaudit.dpsgd.likelihood import CountLikelihood
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums, SeenSums, simulate_sums
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit_lab.power.timing import cpu, median_ratio

RATE, SIGMA, SIZE, STEPS = 0.1, 2.4224, 10, 100
JOINING = Poisson(rate=RATE)
KEY = fixed_key(bytes(range(32)))
CHUNK = 4096
PAIRS_OF_RUNS = 20


class Replay:
    """A mechanism whose noisy sums are at hand: only the posterior is left to do."""

    def __init__(self, steps: list[np.ndarray]) -> None:
        self.steps = steps

    def run(self, data: np.ndarray, _: np.random.Generator) -> SeenSums:
        """Return what the sums at hand say."""
        likelihood = CountLikelihood(
            coordinates=len(data) // SIZE, per_coordinate=SIZE, sampling=JOINING
        )
        for sums in self.steps:
            likelihood.observe(sums, SIGMA)
        return SeenSums(
            log_likelihood=likelihood.log_likelihood, total=np.empty(len(data) // SIZE)
        )


def mechanism(coordinates: int, steps: int = STEPS, first: int = 0) -> DiracSums:
    return DiracSums(
        coordinates=coordinates,
        per_coordinate=SIZE,
        sampling=JOINING,
        sigma=SIGMA,
        steps=steps,
        first=first,
    )


def audit(audited: DiracSums | Replay, coordinates: int) -> int:
    """Audit adaptively, and return how many guesses were right."""
    whole = mechanism(coordinates)
    rules = AdaptiveRounds(
        round_weights=tuple(np.linspace(0.7, 1.3, SIZE).tolist()),
        min_epsilon=1.0,
        max_jump=15 / coordinates**0.5,
        randomness_share=0.02,
    )
    claim = ApproxDP(epsilon=2.0, delta=1e-7, adjacency=Adjacency.ADD_REMOVE)
    result = audit_adaptive(
        audited,
        AdaptiveMostLikely(mechanism=whole, threshold=rules.min_epsilon, rules=rules),
        pairs=whole.pairs,
        design=Design(canaries=coordinates * SIZE, rules=rules, claim=claim),
        rng=np.random.default_rng(1),
        key=KEY,
    )
    return sum(sum(played.correct) for played in result.reading.rounds)


def bare(steps: list[np.ndarray], bits: np.ndarray) -> float:
    """Do the arithmetic of the posterior and the adaptive game, and nothing else."""
    d, j = len(bits), np.arange(SIZE + 1)[:, np.newaxis]
    probabilities = np.exp(JOINING.distribution(SIZE).log_probabilities)
    total = 0.0
    for start in range(0, d, CHUNK):
        part = slice(start, start + CHUNK)
        log = np.zeros((SIZE + 1, len(bits[part])))
        for sums in steps:
            log += np.log(probabilities @ np.exp((sums[part] - j / 2) * j / SIGMA**2))
        total += bare_game(log, bits[part])
    return total


def bare_game(log: np.ndarray, bits: np.ndarray) -> float:
    """Reveal coin after coin, and return the sum of the log-odds of each before."""
    total, ones, every = 0.0, np.zeros(len(bits), int), np.arange(len(bits))
    for known in range(SIZE):
        left = SIZE - known
        window = log[ones + np.arange(left + 1)[:, np.newaxis], every]
        weights = np.exp(window - window.max(axis=0))
        ways = special.comb(left - 1, np.arange(left))
        total += float(np.log((ways @ weights[1:]) / (ways @ weights[:-1])).sum())
        ones += bits[:, known]
    return total


def products(coordinates: int) -> None:
    """Multiply matrices of the sizes at hand, and nothing else."""
    probabilities = np.exp(JOINING.distribution(SIZE).log_probabilities)
    kernel = np.random.default_rng(0).random((SIZE + 1, CHUNK))
    out = np.empty_like(kernel)
    for _ in range(STEPS):
        for start in range(0, coordinates, CHUNK):
            width = min(CHUNK, coordinates - start)
            np.matmul(probabilities, kernel[:, :width], out=out[:, :width])


def report(name: str, ratios: np.ndarray) -> None:
    middle, low, high = median_ratio(ratios)
    print(
        f"{name}: {middle:.3f} [{low:.3f}, {high:.3f}], median of "
        f"{len(ratios)} interleaved pairs, 95 % bootstrap"
    )


def ratio(coordinates: int) -> None:
    bits = Coins(key=KEY, count=coordinates * SIZE).bits().reshape(-1, SIZE)
    seed = np.random.SeedSequence(2)
    steps = list(
        simulate_sums(bits, sampling=JOINING, sigma=SIGMA, steps=STEPS, seed=seed)
    )
    replay = Replay(steps)
    audit(replay, coordinates)
    found = np.array(
        [
            (
                cpu(audit, replay, coordinates),
                cpu(bare, steps, bits),
                cpu(replay.run, bits.ravel(), np.random.default_rng(0)),
                cpu(products, coordinates),
            )
            for _ in range(PAIRS_OF_RUNS)
        ]
    )
    ours, plain, steps_only, matmul = found.T
    print(
        f"{coordinates * SIZE:,} canaries, CPU time: audit {np.median(ours):.3f} s, "
        f"of which steps {np.median(steps_only):.3f} s; bare arithmetic "
        f"{np.median(plain):.3f} s, matrix products of the steps alone "
        f"{np.median(matmul):.3f} s"
    )
    report("posterior and adaptive audit over bare arithmetic", ours / plain)
    report("the same over the steps' matrix products alone", ours / matmul)


def large(coordinates: int) -> None:
    start = time.process_time()
    correct = audit(mechanism(coordinates), coordinates)
    spent = time.process_time() - start
    print(
        f"{coordinates * SIZE:,} canaries simulated and audited: {spent:.1f} s CPU, "
        f"{correct} right"
    )


def long(steps: int) -> None:
    data = np.random.default_rng(3).integers(0, 2, 1000 * SIZE)
    spent = cpu(mechanism(1000, steps).run, data, np.random.default_rng(4))
    print(f"{steps:,} steps at 1,000 coordinates: {spent:.1f} s CPU")


def far(coordinates: int) -> None:
    data = np.random.default_rng(5).integers(0, 2, coordinates * SIZE)
    shard = mechanism(coordinates, first=10**10 + 123)
    spent = cpu(shard.run, data, np.random.default_rng(6))
    print(f"a shard of {coordinates:,} coordinates beyond 10^10: {spent:.1f} s CPU")


def memory(call: str) -> None:
    """Run a part in a process of its own, and print its peak memory."""
    code = f"import dpsgd; dpsgd.{call}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run([sys.executable, "-c", code], check=True, cwd=sys.path[0])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    word = "peak memory" if peak > before else "peak memory at most"
    print(f"  {word} {peak / 2**20:.3f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the work")
    scale = parser.parse_args().scale
    memory(f"far({max(1, int(10**4 * scale))})")
    memory(f"long({max(1, int(10**4 * scale))})")
    memory(f"long({max(1, int(10**6 * scale))})")
    memory(f"large({max(1, int(10**6 * scale))})")
    ratio(max(1, int(10**5 * scale)))


if __name__ == "__main__":
    main()
