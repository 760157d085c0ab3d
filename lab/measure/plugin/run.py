"""Run the plugin's suites many times, one pytest process after another.

    python lab/measure/plugin/run.py correct.py --runs 200 --seconds 0.5 --store c.jsonl
    python lab/measure/plugin/run.py broken.py --runs 5 --store b.jsonl
    python lab/measure/plugin/run.py --table c.jsonl

The environment needs dpaudit, OpenDP and diffprivlib: requirements.txt beside this
file. Every finished run is a line of the store, so that an interrupted measurement goes
on where it stopped.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from xml.etree import ElementTree as ET

from scipy import special

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", nargs="?")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table:
        print(table(read(options.table)))
        return
    done = len(read(options.store)) if options.store.exists() else 0
    for number in range(done, options.runs):
        row = one_run(options.suite, options.seconds)
        with options.store.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        failed = [name for name, test in row["tests"].items() if test["failed"]]
        print(f"run {number + 1}: {row['seconds']:.1f} s, failed {failed}", flush=True)


def one_run(suite: str, seconds: float) -> dict:
    """Run a suite in a process of its own and return what it showed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-c", "/dev/null", "--rootdir", str(HERE), str(HERE / suite)]
        command += [f"--dp-audit-seconds={seconds}", f"--junitxml={report}"]
        start = perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(done.stdout + done.stderr)
        cases = ET.parse(report).iter("testcase")
        tests = {case.get("name"): of_case(case) for case in cases}
    return {"suite": suite, "seconds": perf_counter() - start, "tests": tests}


def of_case(case: ET.Element) -> dict:
    said = [p.get("value", "") for p in case.iter("property")]
    found = [*case.iter("failure"), *case.iter("error")]
    return {
        "failed": bool(found),
        # A refuted claim, and not a mistake in the suite.
        "refuted": any("is refuted" in text for text in said),
        "seconds": float(case.get("time", "nan")),
        "said": said,
        "message": "" if not found or said else found[0].get("message", ""),
    }


def read(store: Path) -> list[dict]:
    return [json.loads(line) for line in store.read_text("utf-8").splitlines()]


def table(rows: list[dict]) -> str:
    """Return a Markdown table: one line per mechanism, one for whole runs."""
    seen = defaultdict(list)
    for row in rows:
        for name, test in row["tests"].items():
            seen[name].append(test)
    lines = ["| mechanism | refuted | seconds, mean | most |", "|---|---|---|---|"]
    for name, tests in seen.items():
        times = [test["seconds"] for test in tests]
        refuted = sum(test["refuted"] for test in tests)
        mean = sum(times) / len(times)
        lines.append(
            f"| {name.removeprefix('test_').replace('_', ' ')} | {refuted} of "
            f"{len(tests)} | {mean:.2f} | {max(times):.2f} |"
        )
    alarms = sum(any(t["failed"] for t in row["tests"].values()) for row in rows)
    left = len(rows) - alarms
    most = float(special.betaincinv(alarms + 1, left, 0.99)) if left else 1.0
    lines.append(
        f"\n{alarms} of {len(rows)} runs failed: rate at most {most:.3g} (99 %); "
        f"{sum(row['seconds'] for row in rows) / len(rows):.1f} s a run."
    )
    odd = {t["message"] for tests in seen.values() for t in tests if t["message"]}
    return "\n".join([*lines, *sorted(odd)])


if __name__ == "__main__":
    main()
