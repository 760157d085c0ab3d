"""Which changes to the code do the tests not notice?

    pip install numpy scipy typer rich 'pytest<=9.0.3' hypothesis mpmath jsonschema \
        mutmut==3.8.0 coverage
    python lab/measure/mutation/run.py stats bounds      # whole folders
    python lab/measure/mutation/run.py stats/intervals       # or modules
    python lab/measure/mutation/run.py game --share 0.2  # a random fifth, for a start
    python lab/measure/mutation/run.py bounds --again    # survivors only, new tests
    python lab/measure/mutation/run.py --table           # what is known so far

Run from the root of a checkout that nobody edits meanwhile, in an environment of its
own: mutmut pins what it needs, and the package is taken from ``src``. mutmut makes the
mutants; `plugin.py` runs the tests of the module's folder that execute the line which a
mutant changes. What became of a mutant is kept under ``build/mutation``, and in
`tried.txt` once `page.py` was run, by a digest of the function: a run that is stopped
goes on where it was, and after an edit only functions that changed are tried again.
``--again`` tries the survivors once more, with the tests as they are now.
"""

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

from mutants import Mutant, functions, module_name, mutants
from mutation_results import HEADINGS, line

HERE: Final = Path(__file__).parent
EXAMPLES: Final = Path("lab/measure/mutation/examples.py")
TRIED: Final = HERE / "tried.txt"
WORK: Final = Path("build/mutation")
FOLDERS: Final = ("stats", "bounds", "dpsgd", "game")
# Tests of another folder that are about modules of this one.
OTHERS: Final = {
    "bounds": ["tests/cli/test_bound.py"],
    "game": ["tests/paper/test_adaptive.py"],
}
SLOW_SECONDS: Final = 3.0  # a test this slow is used only where there is no other


def modules(names: list[str]) -> list[Path]:
    """Return the modules that are asked for."""
    found = []
    for name in names or FOLDERS:
        path = Path("src/dpaudit", name)
        inside = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        found += sorted(one for one in inside if one.name != "__init__.py")
    return found


def folder(path: Path) -> str:
    """Return the folder of a module, below the package."""
    return path.parts[2]


def pytest(where: str, *options: str, tests: list[str]) -> None:
    """Run pytest with the plugin; its output goes to a log."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(["src", str(HERE)]),
        "DPAUDIT_TEST_EXTRAS": "",
        "FOLDER": where,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-s", "--tb=native"]
    command += ["--assert=plain", "-p", "plugin", "-p", "no:cacheprovider"]
    command += [f"--basetemp={WORK / f'tmp-{os.getpid()}'}", *options, *tests]
    log = WORK / f"log-{os.getpid()}.txt"
    with log.open("w") as output:
        done = subprocess.run(
            command, env=environment, stdout=output, stderr=output, check=False
        )
    if done.returncode not in {0, 1, 5}:  # 1: a test fails and is left out; 5: none
        sys.exit(f"{log.read_text()[-3000:]}\n{' '.join(command)}")
    if done.returncode == 0:
        log.unlink()


def reach(where: str) -> dict:
    """Return how long each test of a folder takes and what it executes.

    Kept from run to run; in files that have changed, new tests are measured. Places
    are functions and lines within them, so that they outlast other edits.
    """
    path = WORK / f"reach-{where}.json"
    old = json.loads(path.read_text()) if path.exists() else {"files": {}, "tests": {}}
    listed = [Path("tests", where), *map(Path, OTHERS.get(where, []))]
    files = [
        one
        for some in listed
        for one in (some.rglob("test_*.py") if some.is_dir() else [some])
    ]
    files = {str(one): _digest(one.read_bytes()) for one in files}
    sources = sorted(Path("src/dpaudit", where).rglob("*.py"))
    files[str(EXAMPLES)] = _digest(b"".join(one.read_bytes() for one in sources))
    changed = [
        name for name, digest in files.items() if old["files"].get(name) != digest
    ]
    if changed:
        print(f"{where}: what the tests of {len(changed)} files execute", flush=True)
        new = WORK / f"reach-{os.getpid()}.json"
        skip = WORK / f"known-{os.getpid()}.json"
        skip.write_text(json.dumps(list(old["tests"])))
        pytest(
            where,
            f"--reach={new.absolute()}",
            f"--known={skip.absolute()}",
            tests=changed,
        )
        found = _placed(json.loads(new.read_text()))
        new.unlink()
        skip.unlink()
        old = {"files": files, "tests": old["tests"] | found}
        path.write_text(json.dumps(old))
    return old["tests"]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _placed(measured: dict) -> dict:
    """Turn lines of files into lines of functions."""
    names = {file for row in measured.values() for file in row["lines"]}
    places = {file: functions(Path(file).read_text()) for file in names}
    for row in measured.values():
        row["lines"] = {
            f"{file}:{function}": inside
            for file, numbers in row["lines"].items()
            for function, (start, end) in places[file].items()
            if (inside := [n - start for n in numbers if start <= n <= end])
        }
    return measured


def known(path: Path) -> dict[str, dict]:
    """Return what is known of a module's mutants, by key."""
    store = _store(path)
    lines = store.read_text().splitlines() if store.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return _checked_in() | {row["key"]: row for row in rows}


@cache
def _checked_in() -> dict[str, dict]:
    """Return what is known from the repository: a key and a word on each line."""
    lines = TRIED.read_text().splitlines() if TRIED.exists() else []
    return {key: {"status": word} for key, word in map(str.split, lines)}


def _store(path: Path) -> Path:
    return WORK / f"{path.parts[2]}.{'.'.join(path.with_suffix('').parts[3:])}.jsonl"


def tests_for(path: Path, mutant: Mutant, tests: dict, *, budget: float) -> list[str]:
    """Return the tests that execute what was changed, quickest first, within budget."""
    start, place = mutant.body[0], f"{path}:{mutant.function}"
    first, last = (line - start for line in mutant.lines)
    inside = [test for test, row in tests.items() if place in row["lines"]]
    exactly = [
        test
        for test in inside
        if any(first <= n <= last for n in tests[test]["lines"][place])
    ]

    def seconds(test: str) -> float:
        return tests[test]["seconds"]

    # A function that is newer than the measurement: any test of its module.
    others = [
        test
        for test, row in tests.items()
        if not inside and any(name.startswith(f"{path}:") for name in row["lines"])
    ]
    able = sorted(exactly or inside or others, key=seconds)
    quick = [test for test in able if seconds(test) <= SLOW_SECONDS]
    own = (f"test_{path.stem}.py", f"{path.stem}:")
    ordered = sorted(
        quick or able, key=lambda test: not any(name in test for name in own)
    )
    spent = itertools.accumulate(seconds(test) for test in ordered)
    return [
        test
        for place, (test, total) in enumerate(zip(ordered, spent, strict=True))
        if not place or total <= budget
    ]


def left(path: Path, *, again: bool, share: float) -> list[Mutant]:
    """Return the mutants of a module that are still to be tried."""
    rows = known(path)
    return [
        one
        for one in mutants(path, WORK)[1]
        if int(one.key[:8], 16) < share * 16**8
        and (one.key not in rows or (again and rows[one.key]["status"] == "survived"))
    ]


def run(paths: list[Path], *, again: bool, share: float, budget: float) -> None:
    """Try every mutant of a folder's modules of which nothing is known.

    They come in the order of their keys, which is random: whenever the run is stopped,
    what was tried is a random sample.
    """
    todo = {path: left(path, again=again, share=share) for path in paths}
    if not any(todo.values()):
        return
    where = folder(paths[0])
    tests = reach(where)
    tried = [
        {
            "key": one.key,
            "name": f"{module_name(path)}.{one.name}",
            "store": str(_store(path).absolute()),
            "tests": tests_for(path, one, tests, budget=budget),
        }
        for path, some in todo.items()
        for one in some
    ]
    used = {test.partition("::")[0] for one in tried for test in one["tests"]}
    task = WORK / f"task-{os.getpid()}.json"
    task.write_text(
        json.dumps(
            {
                "modules": {
                    module_name(path): str(mutants(path, WORK)[0].absolute())
                    for path, some in todo.items()
                    if some
                },
                "mutants": sorted(tried, key=lambda one: one["key"]),
                "seconds": {test: row["seconds"] for test, row in tests.items()},
                "alone": {test: row["alone"] for test, row in tests.items()},
            }
        )
    )
    pytest(where, f"--mutants={task.absolute()}", tests=sorted(used))


def counts(path: Path) -> Counter[str]:
    """Return the counts of a module: all, and wording apart."""
    rows, found = known(path), Counter[str]()
    for one in mutants(path, WORK)[1]:
        found.update(["mutants"])
        if one.key in rows:
            status = rows[one.key]["status"]
            found.update(["tried", status])
            if one.wording:
                found.update(["wording", f"wording {status}"])
    return found


def table(paths: list[Path]) -> str:
    """Return a table of what is known, with a total for each folder and for all."""
    lines, everything = [HEADINGS], Counter[str]()
    for where, inside in itertools.groupby(paths, folder):
        total: Counter[str] = Counter()
        for path in inside:
            row = counts(path)
            total += row
            lines += [line(name_of(path), row)] if row["tried"] else []
        lines += [line(f"**{where}**", total)] if total["tried"] else []
        everything += total
    lines += [line("**all**", everything)] if everything["tried"] else []
    return "\n".join(lines)


def name_of(path: Path) -> str:
    """Return what a module is called in results: its path below the package."""
    return "/".join(path.with_suffix("").parts[2:])


def survivors(path: Path) -> str:
    """Return the survivors of a module, each as a small difference."""
    rows, lines = known(path), []
    for one in mutants(path, WORK)[1]:
        if rows.get(one.key, {}).get("status") == "survived":
            kind = " (wording)" if one.wording else ""
            lines.append(f"{path}:{one.lines[0]} {one.function}{kind} {one.name}")
            lines += [f"  - {line}" for line in one.before.splitlines()]
            lines += [f"  + {line}" for line in one.after.splitlines()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="folders or modules; all if none")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument(
        "--budget",
        type=float,
        default=6.0,
        help="seconds of tests for one mutant; its own module's come first",
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="try a random share of the mutants"
    )
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--survivors", action="store_true", help="run nothing, list")
    asked = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    paths = modules(asked.names)
    for _, inside in itertools.groupby(paths, folder):
        if not (asked.table or asked.survivors):
            some = list(inside)
            run(some, again=asked.again, share=asked.share, budget=asked.budget)
            print(table(some), flush=True)
    if asked.survivors:
        print("\n".join(filter(None, map(survivors, paths))))
    elif asked.table:
        print(table(paths))


if __name__ == "__main__":
    main()
