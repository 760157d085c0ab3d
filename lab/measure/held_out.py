"""How faults and correct programs fare under the audit that anyone gets.

    python lab/measure/held_out.py --set developed --store FILE    # run or resume
    python lab/measure/held_out.py --set first --store FILE --seeds 3
    python lab/measure/held_out.py --set developed --store FILE --only mixup closure
    python lab/measure/held_out.py --set developed --store FILE --csv OUT
    python lab/measure/held_out.py --set first --store FILE --csv OUT --undisclosed
    python lab/measure/held_out.py --page docs/explanation/bug-zoo.md   # its tables

Sets are files of ``dpaudit_lab.held_out.sets``: ``developed``, which the checks were
made with, and ``first`` and ``second``, by authors who did not know the checks.
``undisclosed`` is in ``lab/findings``. Each case is built, audited and trained in a
process of its own, which has ``--limit`` seconds.

Cases of any set that may show a fault of another project which is not public yet are
marked ``undisclosed``. A table that is written with ``--csv`` leaves them out; with
``--undisclosed`` it has these and no others, and belongs in ``lab/findings``. What is
printed counts both, and is for who runs it. The page shows what ``lab/results`` holds.

A fault is *named* if a fault that is reported is at a stage of the hypothesis that its
author states, *misnamed* if another is, or if the claim is refuted without a fault. An
invalid run names nothing, whatever faults it reports. A case is *refused* if the audit
declines to open, *raised* if anything raises, crashes or takes too long. Rates have
exact limits (Clopper and Pearson, 95 %).
"""

import argparse
import csv
import importlib
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import torch
from bugzoo_results import TABLES
from sweeping import add_line, lines

from dpaudit.errors import DpAuditError, on_one_line
from dpaudit.game.findings import Finding, Stage, Status
from dpaudit.game.result import Result
from dpaudit.game.verdict import Verdict
from dpaudit.stats.binomial import rate_limits
from dpaudit.training.opacus import audit_opacus
from dpaudit_lab.held_out import sets
from dpaudit_lab.held_out.program import HYPOTHESIS_OF, Case
from dpaudit_lab.pages import fill_page

Row: TypeAlias = dict[str, Any]

SETS: Final = {
    "developed": ("developed", "developed_earlier", "developed_correct"),
    "first": ("first_a", "first_b"),
    "second": ("second_a", "second_b"),
    "undisclosed": ("undisclosed",),
}
RESULTS: Final = Path(__file__).parents[1] / "results"
LISTS: Final = ("FAULTS_26", "ATTACKS_8", "EARLIER", "FAULTS", "CORRECT")
sys.path.append(str(Path(__file__).parents[1] / "findings"))

REFUSED, RAISED = "refused", "raised"
NAMED, MISNAMED, UNDECIDED, CLEAN = (
    "named",
    "misnamed",
    "inconclusive or invalid",
    "no violation",
)
REPORTED: Final = "fault or refuted"
COLUMNS: Final = (
    *("part", "group", "case", "seed", "breaks", "in_scope"),
    *("outcome", "as", "hypotheses", "faults", "sanity_checks", "coverage"),
    *("p_value", "opening", "training", "finishing", "error"),
)


def module_of(part: str) -> ModuleType | None:
    """Return the module of a part of a set; None if it is not there."""
    known = "undisclosed" if part == "undisclosed" else f"{sets.__name__}.{part}"
    if importlib.util.find_spec(known) is None:
        return None
    return importlib.import_module(known)


def cases_of(part: str) -> list[tuple[str, Case]]:
    """Return the cases of a part, each with the name of its list."""
    module = module_of(part)
    if module is None:
        print(f"{part}: not there, skipped")
    return [(group, each) for group in LISTS for each in getattr(module, group, ())]


class Clock:
    """Counts the CPU seconds of this process and of those it waited for."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.now = ""

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count what is done inside as a part of the row."""
        self.now, begun = what, sum(os.times()[:4])
        try:
            yield
        finally:
            self.seconds[what] = round(sum(os.times()[:4]) - begun, 2)


def audited(case: Case, seed: int) -> Row:
    """Return what came of a case that is audited by default."""
    clock = Clock()
    try:
        found = told(result_of(case, seed, clock))
    except Exception as error:  # whatever a case raises is a result
        refused = clock.now == "opening" and isinstance(error, DpAuditError)
        what = on_one_line(f"{clock.now}: {type(error).__name__}: {error}")
        found = {"outcome": REFUSED if refused else RAISED, "error": what}
    return found | clock.seconds


def result_of(case: Case, seed: int, clock: Clock) -> Result:
    """Build a case, open the audit, train, and return the result."""
    with clock.timed("building"):
        p = case.build(seed)
    known = signature(audit_opacus).parameters
    more: dict[str, Any] = {"train": p.train} if "train" in known else {}
    with clock.timed("opening"):
        audit = audit_opacus(
            p.engine,
            p.model,
            p.optimizer,
            p.loader,
            steps=p.steps,
            delta=1e-5,
            step=p.step,
            announce=lambda _: None,
            **more,
        )
    with clock.timed("training"):
        if p.after_opening is not None:
            p.after_opening()
        p.train()
    with clock.timed("finishing"):
        result = audit.finish()
        str(result)  # as whoever prints it
        return result


def told(result: Result) -> Row:
    """Return what a row keeps of a result."""
    assert result.training is not None
    coverage = result.training.coverage
    failed = (Status.INCONCLUSIVE, Status.INVALID_RUN)
    return {
        "outcome": str(result.verdict),
        "p_value": result.p_value,
        "faults": [plain(each) for each in result.faults],
        "sanity_checks": [
            plain(each) for each in result.sanity_checks if each.status in failed
        ],
        "coverage": {str(each.stage): str(each.status) for each in coverage.checks},
        "reason": result.reason,
    }


def plain(finding: Finding) -> Row:
    """Return a finding as a row keeps it."""
    return {
        "code": finding.code,
        "status": str(finding.status),
        "stage": finding.stage and str(finding.stage),
        "numbers": dict(finding.numbers),
        "subject": list(finding.subject),
        "probability": finding.probability,
    }


def in_a_process(part: str, name: str, seed: int, limit: float) -> Row:
    """Return what came of a case in a process of its own, which may crash or hang."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(part, name, seed, theirs))
    process.start()
    theirs.close()
    row: Row
    try:
        if mine.poll(limit):
            row = mine.recv()
        else:
            row = {"outcome": RAISED, "error": f"more than {limit:g} s"}
    except EOFError:
        process.join()
        row = {"outcome": RAISED, "error": f"exit code {process.exitcode}"}
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()
        process.join()
    return row


def _send(part: str, name: str, seed: int, pipe: Any) -> None:  # noqa: ANN401
    """Audit a case, and send the row; in a process and group of its own."""
    os.setsid()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    (case,) = (each for _, each in cases_of(part) if each.name == name)
    with (
        Path(os.devnull).open("w") as nothing,
        redirect_stdout(nothing),
        redirect_stderr(nothing),
    ):
        row = audited(case, seed)
    pipe.send(row)


def kind(row: Row) -> str:
    """Return how a row is counted."""
    if "as" in row:
        return str(row["as"])
    outcome = row["outcome"]
    if outcome in (Verdict.INCONCLUSIVE, Verdict.INVALID_RUN):
        return UNDECIDED
    if outcome == Verdict.NO_VIOLATION_DETECTED:
        return CLEAN
    if outcome not in (Verdict.CLAIM_REFUTED, Verdict.FAULT_FOUND):
        return str(outcome)
    if row["breaks"] is None:
        return REPORTED
    return NAMED if row["breaks"] in hypotheses(row) else MISNAMED


def hypotheses(row: Row) -> list[str]:
    """Return the hypotheses of the faults that were reported."""
    found = (HYPOTHESIS_OF[Stage(each["stage"])] for each in row.get("faults", ()))
    return list(dict.fromkeys(found))


def line_of(row: Row) -> str:
    """Return a row in a line."""
    codes = ", ".join(
        dict.fromkeys(f"{each['stage']}: {each['code']}" for each in row["faults"])
        if row.get("faults")
        else [row.get("error") or row.get("reason") or ""]
    )
    seconds = " ".join(
        f"{row[what]:.1f}" if what in row else "-"
        for what in ("opening", "training", "finishing")
    )
    scope = "" if row["in_scope"] else ", out of scope"
    return (
        f"{row['case']} ({row['breaks'] or 'correct'}{scope}): {row['outcome']}, "
        f"{kind(row)} | {codes} | CPU s {seconds}"
    )


def table(rows: Iterable[tuple[str, Sequence[Row]]], kinds: Sequence[str]) -> str:
    """Return how often each kind came out, with limits, in rows by name."""
    found = [f"| | runs | {' | '.join(kinds)} |", "|---" * (len(kinds) + 2) + "|"]
    for name, some in rows:
        if not some:
            continue
        cells = []
        for each in kinds:
            count = sum(kind(row) == each for row in some)
            low, high = rate_limits(count, len(some), alpha=0.05)
            cells.append(f"{count} [{low:.2f}, {high:.2f}]")
        found.append(f"| {name} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(found)


def report(rows: Sequence[Row]) -> str:
    """Return the counts: faults in scope, by list and by hypothesis; correct ones."""
    faults = [row for row in rows if row["breaks"] is not None]
    scope = [row for row in faults if row["in_scope"]]

    def by(key: str, some: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
        for value in sorted({str(row[key]) for row in some}):
            yield value, [row for row in some if row[key] == value]

    failed = (REFUSED, RAISED)
    four = (NAMED, MISNAMED, UNDECIDED, CLEAN, *failed)
    groups = list(by("group", scope))
    named = [
        ("faults in scope", scope),
        *(groups if len(groups) > 1 else ()),
        *by("breaks", scope),
    ]
    named.append(("out of scope", [row for row in faults if not row["in_scope"]]))
    right = [("correct", [row for row in rows if row["breaks"] is None])]
    return "\n\n".join(
        (table(named, four), table(right, (CLEAN, UNDECIDED, REPORTED, *failed)))
    )


def write_csv(path: Path, rows: Iterable[Row], *, undisclosed: bool = False) -> None:
    """Write rows as a table; what has parts is written as JSON.

    Args:
        path: The file.
        rows: Of any cases.
        undisclosed: Which of them are kept: those of cases that are marked so, or the
            others.
    """
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            if row["undisclosed"] is not undisclosed:
                continue
            whole = row | {"as": kind(row), "hypotheses": " ".join(hypotheses(row))}
            values = (whole.get(name) for name in COLUMNS)
            writer.writerow(
                json.dumps(each) if isinstance(each, list | dict) else each
                for each in values
            )


def page_of(which: str) -> str:
    """Return what a page says of a set: the counts, and every case that went wrong."""
    with (RESULTS / f"held_out_{which}.csv").open() as file:
        rows: list[Row] = [
            row
            | {"breaks": row["breaks"] or None, "in_scope": row["in_scope"] == "True"}
            for row in csv.DictReader(file)
        ]
    told = {case.name: case.what for part in SETS[which] for _, case in cases_of(part)}
    wrong = [
        f"- `{row['case']}` ({row['breaks'] or 'correct'}"
        f"{'' if row['in_scope'] else ', out of scope'}), {row['as']}: "
        f"{' '.join(told[row['case']].split())}"
        for row in rows
        if row["as"] != (CLEAN if row["breaks"] is None else NAMED)
    ]
    return "\n".join([report(rows), "", *wrong])


def wanted(
    parts: Iterable[str], seeds: int, only: Sequence[str] | None
) -> Iterator[Row]:
    """Yield what a row says of each case and seed before it is run."""
    for part in parts:
        for group, case in cases_of(part):
            if only and case.name not in only:
                continue
            for seed in range(seeds):
                yield {
                    "part": part,
                    "group": group,
                    "case": case.name,
                    "seed": seed,
                    "breaks": case.breaks,
                    "in_scope": case.in_scope,
                    "undisclosed": case.undisclosed,
                }


def run(
    every: Iterable[Row], store: Path, limit: float, say: Callable[[str], object]
) -> list[Row]:
    """Return a row of each case and seed, from the store or run now and put there."""
    held = {(row["part"], row["case"], row["seed"]): row for row in lines(store)}
    found = []
    for known in every:
        key = known["part"], known["case"], known["seed"]
        if key not in held:
            begun = time.perf_counter()
            row = known | in_a_process(*key, limit=limit)
            row["wall"] = round(time.perf_counter() - begun, 1)
            add_line(store, row)
            held[key] = row
            say(line_of(row))
        found.append(held[key] | known)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--set", choices=list(SETS), dest="which")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a case")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--undisclosed", action="store_true")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    if arguments.page:
        page = arguments.page.read_text(encoding="utf-8")
        page = fill_page(
            page, TABLES, lambda name: page_of(name) if name in SETS else None
        )
        arguments.page.write_text(page, encoding="utf-8")
        return
    if not arguments.which or not arguments.store:
        parser.error("--set and --store are needed, or --page alone")
    every = list(wanted(SETS[arguments.which], arguments.seeds, arguments.only))
    if not every:
        sys.exit("there is no such case")
    rows = run(every, arguments.store, arguments.limit, say=print)
    print(report(rows))
    if arguments.csv:
        write_csv(arguments.csv, rows, undisclosed=arguments.undisclosed)


if __name__ == "__main__":
    main()
