"""Large tables of scores: time against a bare pass of pyarrow, memory, growth, shards.

    python lab/measure/tables.py --folder DIR                  # 10^8 rows, 20 pairs
    python lab/measure/tables.py --folder DIR --rows 1e6       # a quick look
    python lab/measure/tables.py --folder DIR --billion        # 10^9 rows, and shards

Files hold id, bit and score, N(0, 1) for excluded and N(1, 1) for included canaries,
zstd, row groups of 2^20. Ids are in order, as tables are mostly written; `--shuffled`
has them in none within a file. The bare pass reads bit and score with pyarrow and keeps
the highest and the lowest 500 with numpy, a threshold letting through only what may
still belong to them; it checks nothing. Ours keeps the same, sees that scores are
numbers and coins are coins, counts them, and bounds. What is made is kept in the folder
and used again.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from dpaudit import ApproxDP, Design, OneRun, Ranking
from dpaudit.game.setting import Setting
from dpaudit.tables.tally import ScoreTally, Shard, conclude_scores, tally_scores
from dpaudit.tables.tally_json import tally_from_json, tally_to_json
from dpaudit_lab.benchmark.tables import GUESSES, bare, write_table
from dpaudit_lab.power.timing import cpu, ratio_of

RULES = {
    "counted": lambda rows: OneRun(guesses=min(GUESSES, rows)),
    "ranked": lambda rows: Ranking(guesses=min(1 << 20, rows)),
}
CLAIM = ApproxDP(epsilon=1.0, delta=1e-10)


def made(folder: Path, rows: int, files: int, *, shuffled: bool = False) -> list[Path]:
    """Return the files of a table, made if they are not there."""
    kind = "shuffled" if shuffled else "in-order"
    place = folder / f"{kind}-{rows}-{files}"
    place.mkdir(parents=True, exist_ok=True)
    return list(write_table(place, rows, files, shuffled=shuffled))


def tallied(paths: list[Path], rows: int, rule: str, *, check_ids: bool) -> ScoreTally:
    design = Design(
        canaries=rows, rules=RULES[rule](rows), claim=CLAIM, setting=Setting(tie_seed=1)
    )
    shard = Shard(files=tuple(paths), design=design, check_ids=check_ids)
    return tally_scores(shard)


def ours(paths: list[Path], rows: int, rule: str, ids: str) -> str:
    tally = tallied(paths, rows, rule, check_ids=ids == "checked")
    return conclude_scores([tally], coins_were_independent=True).to_json()


def compare(paths: list[Path], rows: int, pairs: int) -> None:
    """Print the ratio of CPU times, interleaved."""
    right = bare(tuple(paths))
    found = json.loads(ours(paths, rows, "counted", "checked"))["reading"]
    print(f"right among {GUESSES}: bare {right}, ours {found['correct']}")
    ways = [("counted", "unchecked"), ("counted", "checked"), ("ranked", "unchecked")]
    times = {way: [] for way in ways}
    base = {way: [] for way in ways}
    for _ in range(pairs):
        for way in ways:
            base[way].append(cpu(bare, tuple(paths)))
            times[way].append(cpu(ours, paths, rows, *way))
    for rule, ids in ways:
        way = (rule, ids)
        print(
            f"{rule}, ids {ids}: "
            f"{np.median(times[way]):.2f} s against {np.median(base[way]):.2f} s, "
            f"ratio {ratio_of(times[way], base[way])}",
            flush=True,
        )


def memory(paths: list[Path], rows: int) -> None:
    """Print the peak memory of each way, in a process of its own."""
    for rule, ids in (
        ("counted", "unchecked"),
        ("counted", "checked"),
        ("ranked", "checked"),
    ):
        call = [sys.executable, __file__, "--alone", rule, ids, str(rows)]
        done = subprocess.run(
            [*call, "--folder", str(paths[0].parent)],
            capture_output=True,
            text=True,
            check=True,
        )
        print(f"{rule}, ids {ids}: {done.stdout.strip()}")


def alone(folder: Path, rule: str, ids: str, rows: str) -> None:
    ours(sorted(folder.glob("*.parquet")), int(rows), rule, ids)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak {peak:.0f} MB")


def growth(folder: Path, largest: int) -> None:
    sizes = [10**k for k in range(6, largest + 1)]
    seconds = []
    for rows in sizes:
        paths = made(folder, rows, max(1, rows // 5_000_000))
        repeats = max(1, 10**8 // rows) if rows < 10**8 else 1
        times = [
            cpu(ours, paths, rows, "counted", "checked") for _ in range(min(9, repeats))
        ]
        seconds.append(float(np.median(times)))
        print(f"{rows:>14,} rows: {seconds[-1]:.3f} s of CPU", flush=True)
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    print(f"exponent of time in rows: {slope:.3f}")


def shards(paths: list[Path], rows: int) -> None:
    """Print whether 1, 10 and 200 shards give one result, through JSON."""
    for rule in RULES:
        results = set()
        for number in (1, 10, 200):
            start, began = time.process_time(), time.perf_counter()
            texts = [
                tally_to_json(tallied(paths[i::number], rows, rule, check_ids=True))
                for i in range(number)
                if paths[i::number]
            ]
            found = conclude_scores([tally_from_json(text) for text in texts[::-1]])
            results.add(found.to_json())
            print(
                f"{rule}, {len(texts)} shards: {time.process_time() - start:.0f} s of "
                f"CPU, {time.perf_counter() - began:.0f} s, largest tally "
                f"{max(map(len, texts)) / 1e6:.2f} MB: {found}",
                flush=True,
            )
        print(f"{rule}: {'one result' if len(results) == 1 else 'RESULTS DIFFER'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--billion", action="store_true")
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        alone(asked.folder, *asked.alone)
        return
    rows = int(asked.rows)
    if asked.billion:
        paths = made(asked.folder, 10**9, 200)
        growth(asked.folder, 9)
        memory(paths, 10**9)
        shards(paths, 10**9)
        return
    paths = made(asked.folder, rows, 20, shuffled=asked.shuffled)
    compare(paths, rows, asked.pairs)
    memory(paths, rows)


if __name__ == "__main__":
    main()
