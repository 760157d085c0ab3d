"""What corpora of cases for the probes share: a list of cases, and how it is judged."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from dpaudit.game.text.findings import fault_parts

__all__ = ["BEYOND", "FAULTY", "HONEST", "Build", "Case", "cases_in", "judge"]

HONEST, FAULTY, BEYOND = "honest", "faulty", "beyond"
Build = Callable[[], Any]
Case = tuple[str, str, Build]


def cases_in(cases: list[Case]) -> Callable[[str, str], Callable[[Build], Build]]:
    """Return a decorator that adds a case: what is expected, label, what makes it."""

    def case(expected: str, label: str) -> Callable[[Build], Build]:
        def add(build: Build) -> Build:
            cases.append((expected, label, build))
            return build

        return add

    return case


def judge(
    cases: list[Case],
    examined: Callable[[Build], tuple[Any, str, float]],
    allowed: Mapping[str, set[str]],
) -> None:
    """Probe all cases, and exit with 1 if one is not as expected.

    Args:
        cases: All of them; ``--only`` chooses.
        examined: From a case to what was found, or None and why not; and seconds.
        allowed: By what is expected, what may come out; anything of what is not here.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a word of the labels")
    parser.add_argument("--causes", action="store_true", help="show causes of faults")
    arguments = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    for expected, label, build in cases:
        if arguments.only.lower() not in label.lower():
            continue
        found, why, seconds = examined(build)
        faults, numbers = [], ""
        if found is None:
            verdict = why.split(":", maxsplit=1)[0]
        else:
            faults, why = found.faults, str(found) if found.unseen else ""
            verdict = "fault" if faults else "unseen" if found.unseen else "quiet"
            why = why or ", ".join(str(fault.stage) for fault in faults)
            numbers = ", ".join(
                f"{name} {getattr(found, name, None)}"
                for name in ("change", "coupling", "removal", "tolerance", "sums")
            )
        counts[expected, verdict] += 1
        fine = verdict in allowed.get(expected, {verdict})
        wrong += [] if fine else [label]
        print(
            f"{'  ' if fine else '!!'} {label:62.62s} {expected:6s} {verdict:7s} "
            f"{numbers} {seconds:.1f} s {why}",
            flush=True,
        )
        for fault in faults if arguments.causes else ():
            _, measured, _, cause = fault_parts(fault)
            print(f"       {measured}; {cause}")
    for (expected, verdict), count in sorted(counts.items()):
        print(f"{expected}, {verdict}: {count}")
    print("not as expected:", "; ".join(wrong) or "none")
    sys.exit(bool(wrong))
