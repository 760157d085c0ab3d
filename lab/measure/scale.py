"""Local randomised response with up to a hundred million canaries.

    python lab/measure/scale.py                  # everything, about two minutes
    python lab/measure/scale.py --largest 6      # up to 10^6, for a quick look

Prints the time from 10^5 to 10^8 canaries with the exponent of its growth, whether 1, 7
and 64 shards give one result, the peak memory, and the ratio of CPU time to the same
work in bare numpy: derive the coins, run the mechanism by blocks, compare.
"""

import argparse
import hashlib
import resource
import subprocess
import sys

import numpy as np

from dpaudit import Design, OneRun
from dpaudit.game.guessers import Echo
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.testing import fixed_key
from dpaudit_lab.calibration.shards import conclude_tallies, tally_local
from dpaudit_lab.power.timing import cpu, median_ratio

MECHANISM = LocalRandomisedResponse(epsilon=1.0)
KEY = fixed_key(bytes(range(32)))
BLOCK = 1 << 16
PAIRS_OF_RUNS = 21


def design(canaries: int) -> Design:
    return Design(
        canaries=canaries,
        rules=OneRun(guesses=canaries),
        claim=MECHANISM.guarantee,
    )


def ours(canaries: int, shards: int = 1) -> str:
    """Audit in shards, and return the result."""
    plan = design(canaries)
    tallies = [
        tally_local(
            MECHANISM,
            Echo(),
            pairs=MECHANISM.pairs,
            design=plan,
            key=KEY,
            shard=shard,
            shards=shards,
        )
        for shard in range(shards)
    ]
    return conclude_tallies(tallies).to_json()


def bare(canaries: int) -> int:
    """Do the same in bare numpy, and return how many guesses were right."""
    right = 0
    for block in range((canaries - 1) // BLOCK + 1):
        size = min(BLOCK, canaries - block * BLOCK)
        seed = b"dpaudit 1" + KEY.secret + block.to_bytes(8, "little") + b"coins"
        digest = hashlib.shake_256(seed).digest(BLOCK // 8)
        bits = np.unpackbits(np.frombuffer(digest, np.uint8), bitorder="little")[:size]
        data = 2 * bits.view(np.int8) - np.int8(1)
        output = MECHANISM.run(data, np.random.default_rng(block))
        right += int(np.count_nonzero(output == data))
    return right


def growth(largest: int) -> None:
    sizes = [10**k for k in range(5, largest + 1)]
    times = []
    for n in sizes:
        repeats = max(3, 10**7 // n)
        times.append(float(np.median([cpu(ours, n) for _ in range(repeats)])))
        print(f"{n:>12,} canaries: {times[-1]:.4f} s CPU")
    slope, _ = np.polyfit(np.log(sizes), np.log(times), 1)
    print(f"exponent of time in canaries: {slope:.3f}")


def ratio(canaries: int) -> None:
    ours(canaries)
    pairs = [(cpu(ours, canaries), cpu(bare, canaries)) for _ in range(PAIRS_OF_RUNS)]
    middle, low, high = median_ratio([a / b for a, b in pairs])
    print(
        f"CPU time over bare numpy at {canaries:,}: {middle:.3f} "
        f"[{low:.3f}, {high:.3f}], median of {len(pairs)} pairs, 95 % bootstrap"
    )


def memory(canaries: int) -> None:
    code = f"import scale; scale.ours({canaries})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=sys.path[0])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"peak memory of {canaries:,} canaries: {peak:.3f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--largest", type=int, default=8, help="largest power of ten")
    largest = parser.parse_args().largest
    n = 10**largest
    memory(n)
    same = {ours(n, shards) for shards in (1, 7, 64)}
    print(f"1, 7 and 64 shards of {n:,}: {len(same)} different results")
    growth(largest)
    ratio(min(n, 10**7))


if __name__ == "__main__":
    main()
