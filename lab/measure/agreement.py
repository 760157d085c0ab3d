"""Do two checkouts of this project find the same, trial by trial, on the same seeds?

    git worktree add ../before b2b1288
    python lab/measure/agreement.py ../before --out agreement

Runs a small version of every study (the paper's figures, the calibration, the bug zoo)
in both checkouts and compares what each trial found, and every row of the calibration,
summed or drawn. Prints how many agree, and each that does not. Exits with 1 if one
differs. What a run has kept in `--out` is not run again.
"""

import argparse
import json
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parents[2]
STUDIES = {
    "figures": ["reproduce", "all", "--trials", "2"],
    "calibration": ["calibrate", "--small", "--trials", "50", "--every", "--json"],
    "bugzoo": ["--trials", "1", "--simulated", "2"],
}
SAME = 1e-9  # relative, of numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("--out", type=Path, default=Path("agreement"))
    parser.add_argument("--only", nargs="*", choices=STUDIES, default=list(STUDIES))
    chosen = parser.parse_args()
    agree = True
    for study in chosen.only:
        was = run(study, chosen.before.resolve(), chosen.out.resolve() / "before")
        now = run(study, HERE, chosen.out.resolve() / "now")
        agree &= compared(study, was, now)
    return 0 if agree else 1


def run(study: str, tree: Path, out: Path) -> dict[str, object]:
    """What each trial of a study found in a checkout, by what names the trial."""
    out.mkdir(parents=True, exist_ok=True)
    lab = tree / "lab"
    store = out / f"{study}.sqlite"
    if study == "bugzoo":
        folder = lab / "measure" if lab.exists() else tree / "benchmarks"
        command = [str(folder / "bugzoo.py")]
    else:
        package = "dpaudit_lab" if lab.exists() else "dpaudit"
        command = ["-c", f"from {package}.cli import app; app()"]
    command += [*STUDIES[study], "--store", str(store)]
    paths = [tree / "src", lab / "src"]
    printed = out / f"{study}.txt"
    with printed.open("w") as stdout:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=out,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
            stdout=stdout,
            check=False,
        )
    if done.returncode not in (0, 1):  # 1: a study's own bar, of few trials
        sys.exit(f"{study} in {tree} ended with {done.returncode}")
    return trials(store) | rows(printed)


def trials(store: Path) -> dict[str, object]:
    """Every outcome in a store."""
    with sqlite3.connect(store) as connection:
        found = connection.execute("select name, setting, trial, outcome from trials")
        return {f"{name} {at} #{k}": json.loads(got) for name, at, k, got in found}


def rows(printed: Path) -> dict[str, object]:
    """Every row of a calibration, summed or drawn, that a study printed as JSON."""
    text = printed.read_text()
    if not text.startswith("{"):
        return {}
    named = ("part", "rule", "null", "epsilon", "delta", "canaries", "alpha", "designs")
    return {
        " ".join(str(row[name]) for name in named): row
        for row in json.loads(text)["rows"]
    }


def compared(study: str, was: Mapping[str, object], now: Mapping[str, object]) -> bool:
    both = sorted(was.keys() & now.keys())
    differ = [name for name in both if not same(was[name], now[name])]
    print(f"{study}: {len(both) - len(differ)} of {len(both)} agree", end="; ")
    print(f"only before {len(was.keys() - both)}, only now {len(now.keys() - both)}")
    for name in differ:
        print(f"  {name}\n    before {was[name]}\n    now    {now[name]}")
    return not differ and bool(both)


def same(was: object, now: object) -> bool:
    match was, now:
        case dict(), dict():
            return was.keys() == now.keys() and all(same(was[k], now[k]) for k in was)
        case list(), list():
            return len(was) == len(now) and all(map(same, was, now))
        case float() | int(), float() | int():
            return math.isclose(was, now, rel_tol=SAME) or (
                math.isnan(was) and math.isnan(now)
            )
        case _:
            return was == now


if __name__ == "__main__":
    sys.exit(main())
