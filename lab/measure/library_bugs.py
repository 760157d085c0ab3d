"""Public bugs of released libraries as audits, and correct constructors.

    python lab/measure/library_bugs.py environments        # what to install, by case
    python lab/measure/library_bugs.py bugs                # the reported pair is given
    python lab/measure/library_bugs.py opendp              # no pair is given
    python lab/measure/library_bugs.py controls [RUNS]     # correct constructors
    python lab/measure/library_bugs.py summary

Old releases do not go together: each call runs the cases for which the packages are
installed, and appends their rows to lab/results/library_bugs.csv; what is there is not
run again. ``environments`` prints the packages that each group of cases needs beside
dpaudit and dpaudit-lab. A bug is found if it is refuted at alpha = 0.001 within the
limit of CPU seconds; a control must not be. Every refuted control is run again with new
calls at alpha = 1e-6.
"""

import csv
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import process_time

from scipy import stats

from dpaudit import Adjacency, ZeroConcentratedDP
from dpaudit.errors import DpAuditError
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.testing import (
    Calls,
    OneValue,
    Pair,
    Seconds,
    SequentialResult,
    audit_sequentially,
)
from dpaudit_lab.real_bugs.cases import Bug, Case, Control
from dpaudit_lab.real_bugs.catalogue import BUGS
from dpaudit_lab.real_bugs.controls import CONTROLS

RESULTS = Path(__file__).parents[1] / "results" / "library_bugs.csv"
NAMES = ("task", "case", "figure", "calls", "cpu", "note", "day")
ALPHA = 1e-3
SECONDS_WITH_PAIR, SECONDS_WITHOUT = 10.0, 60.0
CONTROL_CALLS = 400  # at most a second of CPU


def main(task: str, *rest: str) -> None:
    """Run a task and append its rows."""
    warnings.simplefilter("ignore")
    if task == "environments":
        environments()
        return
    if task == "summary":
        summary()
        return
    tasks: dict[str, Callable[..., Iterator[dict[str, object]]]] = {
        "bugs": bugs,
        "opendp": opendp,
        "controls": controls,
    }
    for row in tasks[task](*rest):
        day = datetime.now(tz=UTC).date().isoformat()
        found = {"task": task, **row, "day": day}
        print("  ".join(f"{found.get(name, '')}" for name in NAMES), flush=True)
        new = not RESULTS.exists()
        with RESULTS.open("a", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(NAMES)
            writer.writerow([found.get(name, "") for name in NAMES])


def environments() -> None:
    """Print which packages go together, and how many cases they serve."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for bug in BUGS:
        groups[bug.requires, bug.alone].append(bug.name)
    for control in CONTROLS:
        groups[control.requires, ()].append("a control")
    for (requires, alone), names in groups.items():
        print(f"{len(names):3} cases: {' '.join(requires)}", end="")
        print(f"; with --no-deps: {' '.join(alone)}" if alone else "")


def bugs() -> Iterator[dict[str, object]]:
    """Yield whether each bug is refuted, given the reported pair."""
    done = _done("bugs")
    for bug in BUGS:
        if bug.name in done or not _installed(bug) or _withheld(bug):
            continue
        case = bug.make()
        start = process_time()
        result = _audit(case, Seconds(seconds=2 * SECONDS_WITH_PAIR), ALPHA)
        yield _row(bug.name, result, process_time() - start, bug.version)


def opendp() -> Iterator[dict[str, object]]:
    """Yield whether each bug of OpenDP is refuted from the measurement alone."""
    from dpaudit.testing.opendp import audit_opendp  # noqa: PLC0415

    done = _done("opendp")
    for bug in BUGS:
        if bug.name in done or bug.library != "opendp" or not _installed(bug):
            continue
        case = bug.make()
        if case.measurement is None or _withheld(bug):
            continue
        start = process_time()
        try:
            result = audit_opendp(
                case.measurement,
                case.d_in,
                alpha=ALPHA,
                budget=Seconds(seconds=2 * SECONDS_WITHOUT),
            )
        except DpAuditError as error:
            yield {"case": bug.name, "figure": "refused", "note": str(error)[:160]}
            continue
        cpu = process_time() - start
        yield _row(bug.name, result, cpu, result.pairs[0].label)


def controls(runs: str = "200") -> Iterator[dict[str, object]]:
    """Yield how often each correct constructor is refuted."""
    done = _done("controls")
    for control in CONTROLS:
        if control.name in done or not _installed(control):
            continue
        case = control.make()
        start = process_time()
        results = [
            _audit(case, Calls(calls=CONTROL_CALLS), ALPHA) for _ in range(int(runs))
        ]
        refuted = sum(result.refuted for result in results)
        note = ""
        if refuted:
            again = _audit(case, Calls(calls=50 * CONTROL_CALLS), 1e-6)
            note = f"again at 1e-6: {'REFUTED' if again.refuted else 'not refuted'}"
        yield {
            "case": control.name,
            "figure": f"{refuted} of {runs}",
            "calls": CONTROL_CALLS,
            "cpu": f"{(process_time() - start) / int(runs):.3f}",
            "note": note,
        }


def summary() -> None:
    """Print what the rows come to."""
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for task, limit in (("bugs", SECONDS_WITH_PAIR), ("opendp", SECONDS_WITHOUT)):
        mine = [row for row in rows if row["task"] == task]
        found = [
            r for r in mine if r["figure"] == "refuted" and float(r["cpu"]) <= limit
        ]
        print(f"{task}: {len(found)} of {len(mine)} refuted within {limit:g} s of CPU")
        for row in mine:
            if row not in found:
                print(f"    not: {row['case']} ({row['figure']}, {row['cpu']} s)")
    mine = [row for row in rows if row["task"] == "controls"]
    counts = [tuple(map(int, row["figure"].split(" of "))) for row in mine]
    refuted, runs = sum(c for c, _ in counts), sum(n for _, n in counts)
    low = stats.beta.ppf(1e-3, refuted, runs - refuted + 1) if refuted else 0.0
    high = stats.beta.ppf(1 - 1e-3, refuted + 1, runs - refuted)
    print(
        f"controls: {refuted} of {runs} runs of {len(mine)} refuted at alpha {ALPHA:g}"
    )
    print(f"    99.9 % limits [{low:.2g}, {high:.2g}]")
    worst = max(counts, default=(0, 1))
    tail = 1e-3 / max(1, len(mine))
    low = stats.beta.ppf(tail, worst[0], worst[1] - worst[0] + 1) if worst[0] else 0.0
    print(f"    the worst: {worst[0]} of {worst[1]}, lower limit {low:.2g}")


def _audit(case: Case, budget: Calls | Seconds, alpha: float) -> SequentialResult:
    return audit_sequentially(
        case.function,
        pairs=[Pair("the reported pair", OneValue(x=case.x, y=case.y))],
        claim=_claim(case),
        alpha=alpha,
        budget=budget,
        raising=case.raising,
        allow_unseen=True,
    )


def _claim(case: Case) -> Guarantee:
    if case.rho is not None:
        return ZeroConcentratedDP(rho=case.rho, adjacency=Adjacency.REPLACE_ONE)
    assert case.claim is not None  # a case has one of the two
    return case.claim


def _row(
    name: str, result: SequentialResult, cpu: float, note: str
) -> dict[str, object]:
    return {
        "case": name,
        "figure": "refuted" if result.refuted else "not refuted",
        "calls": result.calls,
        "cpu": f"{cpu:.1f}",
        "note": note,
    }


def _installed(case: Bug | Control) -> bool:
    """Return whether the packages that a case needs are installed, as it needs them."""
    alone = case.alone if isinstance(case, Bug) else ()
    for requirement in (*case.requires, *alone):
        name, _, wanted = requirement.partition("==")
        try:
            found = version(name.partition("[")[0])
        except PackageNotFoundError:
            return False
        if wanted and found != wanted:
            return False
    return True


def _withheld(bug: Bug) -> bool:
    """Return whether a bug is left out: DPAUDIT_WITHOUT_OPEN_BUGS, for those open."""
    return bug.fixed is None and bool(os.environ.get("DPAUDIT_WITHOUT_OPEN_BUGS"))


def _done(task: str) -> set[str]:
    if not RESULTS.exists():
        return set()
    with RESULTS.open(newline="") as file:
        return {row["case"] for row in csv.DictReader(file) if row["task"] == task}


if __name__ == "__main__":
    main(*sys.argv[1:])
