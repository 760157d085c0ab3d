"""Do two checkouts of this project find the same, trial by trial, on the same seeds?

    git worktree add ../before c0b7323
    python lab/measure/agreement.py ../before --out agreement

Runs in both checkouts a small version of every study (the paper's figures, the
calibration, the known-bug benchmark), 26 audited training runs by the five adapters,
and both corpora of probed steps; compares what each trial found and every row of the
calibration, summed or drawn. Prints how many agree, and each that does not. Exits with
1 if one differs. What a run has kept in ``--out`` is not run again, so that one side
can be run alone (``--side``). Flower and pfl ask for an environment apart: name its
interpreter with ``--federated``, or leave them out.

Names that were changed on purpose are in ``LABELS`` and ``WORDS``, what was taken away
on purpose in ``GONE``.
"""

import argparse
import json
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

HERE = Path(__file__).parents[2]
LAB = ["-c", "from dpaudit_lab.cli import app; app()"]
STUDIES = {  # the commands of each; {lab} is the checkout's folder of scripts
    "figures": [[*LAB, "reproduce", "all", "--trials", "2"]],
    "calibration": [
        [*LAB, "calibrate", "--small", "--trials", "50", "--every", "--json"]
    ],
    "bugzoo": [
        ["{lab}/bugzoo.py", "--trials", "1", "--simulated", "2"],
        ["{lab}/bugzoo.py", "--trials", "1", "--default"],
    ],
}
FEDERATED = "flower", "pfl"
RUNS = "loop", "opacus", "jax", *FEDERATED
PROBES = "sum probes", "step probes"

# Relative; of sums in single precision: probes take their differences in double now,
# and Flower adds them up in another order in each run.
TOLERANCES = {**dict.fromkeys(PROBES, 1e-6), "flower": 1e-5}
TOLERANCE = 1e-9
HALF = 1e-3  # a probe that allows for more rounding than this is of half precision
GONE = (  # readings that no rule produced
    "rules exact, one of 4,",
    "rules exact, pairs of records,",
)
LABELS = {
    "no violation found": "no violation detected",
    "refuted": "claim refuted",
    "void": "invalid run",
    "sampling of records": "batch-sampling",
    "per-record gradients": "per-example-gradients",
    "adding up over micro-batches and ranks": "gradient-aggregation",
    "scale of the noise": "noise-scale",
    "independence of the noise": "noise-independence",
    "steps and rate accounted": "privacy-accounting",
    "other ways out": "side-paths",
    "audited": "tested with canaries",
    "probed": "inspected",
    "not looked at": "not checked",
    "None": "passed",  # a sanity check
    "look": "check",  # of a bug's stage
}
WORDS = {
    "No violation found": "No violation detected",
    "Refuted": "Claim refuted",
    "Void": "Invalid run",
    "JaxPrivacyAudit": "JaxAudit",
    "way=Nodes": "insertion=Nodes",
    "steps: independent noise": "steps",  # now said of every schedule
}


def main() -> int:
    kinds = [*STUDIES, *RUNS, *PROBES]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("now", type=Path, nargs="?", default=HERE)
    parser.add_argument("--out", type=Path, default=Path("agreement"))
    parser.add_argument("--only", nargs="*", choices=kinds, default=kinds)
    parser.add_argument("--side", choices=["before", "now"], help="run, not compare")
    parser.add_argument("--federated", help="interpreter that has Flower and pfl")
    chosen = parser.parse_args()
    sides = {"before": chosen.before.resolve(), "now": chosen.now.resolve()}
    agree = True
    for kind in chosen.only:
        if kind in FEDERATED and not chosen.federated:
            print(f"{kind}: left out, since --federated is not given")
            continue
        python = chosen.federated if kind in FEDERATED else sys.executable
        found = [
            run(kind, tree, chosen.out.resolve() / side, python)
            for side, tree in sides.items()
            if chosen.side in (None, side)
        ]
        if chosen.side is None:
            agree &= compared(kind, *found)
    return 0 if agree else 1


def run(kind: str, tree: Path, out: Path, python: str) -> Mapping[str, object]:
    """What each trial found in a checkout, by what names the trial."""
    out.mkdir(parents=True, exist_ok=True)
    if kind not in STUDIES:
        found = out / f"{kind}.json"
        script = str(Path(__file__).with_name("agreement_runs.py"))
        done(python, [script, str(tree), kind, str(found)], tree, out)
        return dict(json.loads(found.read_text()))
    store = out / f"{kind}.sqlite"
    printed = ""
    for command in STUDIES[kind]:
        options = [word.format(lab=tree / "lab/measure") for word in command]
        printed = done(python, [*options, "--store", str(store)], tree, out)
    return trials(store) | rows(printed)


def done(python: str, command: list[str], tree: Path, out: Path) -> str:
    """Run a command in a checkout; return what it printed."""
    paths = [str(tree / folder) for folder in ("src", "lab/src")]
    ended = subprocess.run(
        [python, *command],
        cwd=out,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode not in (0, 1):  # 1: a study's own bar, of few trials
        sys.exit(f"{' '.join(command)} in {tree} ended with {ended.returncode}")
    return ended.stdout


def trials(store: Path) -> dict[str, object]:
    """Every outcome in a store."""
    with sqlite3.connect(store) as connection:
        found = connection.execute("select name, setting, trial, outcome from trials")
        return {f"{name} {at} #{k}": json.loads(got) for name, at, k, got in found}


def rows(text: str) -> dict[str, object]:
    """Every row of a calibration, summed or drawn, that a study printed as JSON."""
    if not text.startswith("{"):
        return {}
    named = ("part", "rule", "null", "epsilon", "delta", "canaries", "alpha", "designs")
    return {
        " ".join(str(row[name]) for name in named): row
        for row in json.loads(text)["rows"]
    }


def compared(kind: str, was: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Whether a study, or runs, of two checkouts agree; print what does not."""
    was = {
        renamed(name): each for name, each in was.items() if not name.startswith(GONE)
    }
    both = sorted(was.keys() & now.keys())
    apart = {
        name: list(differing(was[name], now[name], tolerance_of(kind, was[name])))
        for name in both
    }
    apart = {name: differences for name, differences in apart.items() if differences}
    print(f"{kind}: {len(both) - len(apart)} of {len(both)} agree", end="; ")
    print(f"only before {len(was.keys() - both)}, only now {len(now.keys() - both)}")
    for name in sorted(was.keys() ^ now.keys()):
        print(f"  {'before' if name in was else 'now'}: {name}")
    for name, differences in apart.items():
        print("", name, *differences, sep="\n  ")
    return not apart and was.keys() == now.keys() and bool(both)


def tolerance_of(kind: str, was: object) -> float:
    """Return by how much a number may differ: a tenth of rounding in half precision."""
    match was:
        case {"tolerance": float(rounding)} if kind in PROBES and rounding > HALF:
            return rounding / 10
    return TOLERANCES.get(kind, TOLERANCE)


def differing(
    was: object, now: object, tolerance: float, at: str = ""
) -> Iterator[str]:
    """Yield where two values differ, and how."""
    match was, now:
        case dict(), dict() if {*map(renamed, was)} == now.keys():
            for key, one in was.items():
                other = now[renamed(key)]
                yield from differing(one, other, tolerance, f"{at}.{key}")
        case list(), list() if len(was) == len(now):
            for key, pair in enumerate(zip(was, now, strict=True)):
                yield from differing(*pair, tolerance, f"{at}[{key}]")
        case (float() | int(), float() | int()):
            if not (math.isnan(was) and math.isnan(now)) and not math.isclose(
                was, now, rel_tol=tolerance
            ):
                yield f"{at}: {was!r}, now {now!r}"
        case str() | None, str():
            words = [renamed(str(each)).split() for each in (was, now)]
            if words[0] != words[1]:
                alike = [one == other for one, other in zip_longest(*words)].index(
                    False
                )
                shown = [
                    " ".join(each[max(0, alike - 6) : alike + 20]) for each in words
                ]
                yield f"{at}: … {shown[0]}\n  now: … {shown[1]}"
        case _:
            if was != now:
                yield f"{at}: {was!r}, now {now!r}"


def renamed(text: str) -> str:
    """Return a text of before in today's words, its lines filled anew."""
    for word, then in WORDS.items():
        text = text.replace(word, then)
    return LABELS.get(text, " ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main())
