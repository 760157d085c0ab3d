"""Feed hostile inputs to every reader, and count what comes of them.

    python lab/measure/fuzzing/run.py --target csv --cases 200000 --seed 1
    python lab/measure/fuzzing/run.py --target csv --cases 50000 --seed 1 --guided
    python lab/measure/fuzzing/run.py --target all --cases 300 --coverage
    python lab/measure/fuzzing/run.py --table

A case is made from its number, so a run that was stopped goes on where it was, and more
cases of a seed are a longer run. Cases run in a process of their own with little memory
allowed: one that kills it, or hangs, is counted like any other flaw, and its input is
kept. With ``--guided``, atheris (an environment with it is needed) lets inputs that
reach new code breed. Counts are added up in ``lab/results/fuzzing.json``.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzzing_counts import Counts, quick_place, read_results, table, write_results

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[2] / "tests"
# Targets and mutants are those of the tests.
sys.path[:0] = [str(TESTS / "evidence"), str(TESTS / "fuzzing")]
os.environ["TYPER_USE_RICH"] = "0"  # drawing boxes round messages takes the most time
RESULTS = HERE.parents[1] / "results" / "fuzzing.json"
CHUNK = 1000


def main() -> int:
    asked = arguments()
    if asked.table:
        print(table(read_results(asked.results)))
        return 0
    if asked.guided_worker is not None:
        from fuzzing_guided import fuzz  # noqa: PLC0415 (needs atheris)

        fuzz(asked.target, asked.cases, asked.seed, Path(asked.guided_worker))
        return 0
    if asked.coverage:
        from fuzzing_coverage import covered  # noqa: PLC0415

        print(covered(asked.target, asked.cases, asked.seed))
        return 0
    from fuzz_targets import chosen  # noqa: PLC0415 (instrumented, if guided)

    flaws = 0
    for name in chosen(asked.target):
        counts = guided(name, asked) if asked.guided else plain(name, asked)
        print(f"{name}: {counts}", flush=True)
        flaws += sum(counts.flaws.values())
    return 1 if flaws else 0


def arguments() -> argparse.Namespace:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--target", default="all", help="names with commas between")
    asked.add_argument("--cases", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--guided", action="store_true")
    asked.add_argument("--coverage", action="store_true")
    asked.add_argument("--table", action="store_true", help="show what was counted")
    asked.add_argument("--results", type=Path, default=RESULTS)
    asked.add_argument("--keep", type=Path, default=Path("fuzzing-flaws"))
    asked.add_argument("--guided-worker", help=argparse.SUPPRESS)
    return asked.parse_args()


def plain(name: str, asked: argparse.Namespace) -> Counts:
    """Run mutants of one seed, from where an earlier run ended."""
    from fuzzing_workers import chunk  # noqa: PLC0415

    run = f"{name}, seed {asked.seed}"
    counts = read_results(asked.results).get(run, Counts())
    while counts.cases < asked.cases:
        stop = min(asked.cases, counts.cases + CHUNK)
        counts += chunk(name, asked.seed, counts.cases, stop, asked.keep)
        write_results(asked.results, run, counts)
    return counts


def guided(name: str, asked: argparse.Namespace) -> Counts:
    """Run guided cases in processes of their own, until there are so many."""
    run = f"{name}, seed {asked.seed}, guided"
    counts = read_results(asked.results).get(run, Counts())
    with TemporaryDirectory(dir=quick_place()) as folder:
        while counts.cases < asked.cases:
            counts += _bred(name, asked, counts.cases, Path(folder))
            write_results(asked.results, run, counts)
    return counts


def _bred(name: str, asked: argparse.Namespace, done: int, folder: Path) -> Counts:
    """Return the counts of one guided process; its corpus stays for the next."""
    told = folder / "counts.json"
    told.unlink(missing_ok=True)
    command = [
        sys.executable,
        HERE / "run.py",
        "--target",
        name,
        "--guided-worker",
        folder,
    ]
    command += ["--cases", str(asked.cases - done), "--seed", str(asked.seed + done)]
    subprocess.run(
        [*map(str, command)],
        env={**os.environ, "FUZZING_KEEP": str(asked.keep.absolute())},
        check=False,
        capture_output=True,
        cwd=folder,
    )
    if not told.is_file():
        raise RuntimeError(f"{name}: the guided process told nothing; is atheris here?")
    found = Counts.from_plain(json.loads(told.read_text("utf-8")))
    if found.cases == 0:
        raise RuntimeError(f"{name}: the guided process ended before its first case")
    return found


if __name__ == "__main__":
    sys.exit(main())
