"""What an audit costs the training that it rides on: CPU time and memory.

    python lab/measure/training_cost.py time        # ratios, 20 interleaved pairs each
    python lab/measure/training_cost.py memory      # growth of the largest memory
    python lab/measure/training_cost.py steps       # time of a step, early and late
    python lab/measure/training_cost.py noise       # what watching the noise adds
    python lab/measure/training_cost.py checks      # what the default checks add

``ghost``: a network of 2.1 million parameters on pictures of 784 numbers, batches of
256, ghost clipping, 100,000 canary coordinates with 1 or 10 canaries each; once without
telling the guesser what real records put into the sums. ``digits``: a network for the
digits, hooks, 1,000 canaries. An audited training and a plain one take turns, so many
steps each; what is compared is the CPU time of all threads of the process. One thread.
``dpaudit-lab benchmark --only adapters`` is a shorter comparison of two of them.
``noise``: one audited training, whose noise is watched in some turns and not in others;
and the memory of the watch by itself, at the 240 coordinates that it has at most.
``checks``: an audit that is given the model and the accountant, as the default one is:
its opening with a check of the step; ordinary steps over plain ones, 20 pairs, and how
much longer they take; and the checks at secret steps, of a run of so many steps.
Processes that copies of this one are count as well.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit.testing import fixed_key
from dpaudit.training.noise import MOST_WATCHED, NoiseWatch
from dpaudit_lab.benchmark.adapters import KINDS, training
from dpaudit_lab.power.timing import cpu, ratio_of

COMMANDS = "time", "memory", "steps", "noise", "checks"
PAIRS = 20
WHOLE = {"digits": 5000, "ghost": 400}  # steps of a run
CASES = {
    "ghost, s = 1": ("ghost", 1, True),
    "ghost, s = 1, without the real part": ("ghost", 1, False),
    "ghost, s = 10": ("ghost", 10, True),
    "digits": ("digits", 1, True),
}
LIMITS = {
    "ghost, s = 1": 1.05,
    "ghost, s = 1, without the real part": 1.05,
    "digits": 1.15,
}


def times(count: int) -> None:
    for name, (kind, per_coordinate, knows_real_sums) in CASES.items():
        with_audit, audit = training(
            KINDS[kind],
            audited=True,
            per_coordinate=per_coordinate,
            knows_real_sums=knows_real_sums,
        )
        plain, _ = training(KINDS[kind], audited=False)
        with_audit(5)
        plain(5)
        pairs = [(cpu(with_audit, count), cpu(plain, count)) for _ in range(PAIRS)]
        ratio = ratio_of(*zip(*pairs, strict=True))
        limit = f" (limit {LIMITS[name]})" if name in LIMITS else ""
        each = 1000 * sum(b for _, b in pairs) / (PAIRS * count)
        last = cpu(audit.finish)
        print(
            f"{name}: {ratio} of a plain run{limit}; {PAIRS} pairs of {count} steps, "
            f"a plain step {each:.1f} ms, finish {last:.1f} s once"
        )


def trained(kind: str, per_coordinate: int, way: str) -> None:
    """Train for a while: plain, audited, or audited with all checks."""
    steps, audit = training(
        KINDS[kind],
        audited=way != "plain",
        per_coordinate=per_coordinate,
        checked=way == "checked",
    )
    if audit is not None and way == "checked":
        audit.probe(steps.step, steps=WHOLE[kind])
        checks = audit._stages.step_checks
        checks._due = [3, 6, 9][: len(checks._due)]
    steps(12)
    if audit is not None:
        audit.finish()


def memory() -> None:
    for name, (kind, per_coordinate, knows) in CASES.items():
        if not knows:
            continue
        found = {
            way: largest(kind, per_coordinate, way)
            for way in ("plain", "audited", "checked")
        }
        plain = found["plain"]
        limit = (
            16 * KINDS[kind].coordinates * (per_coordinate + 1) / 2**20 + 50e6 / 2**20
        )
        print(
            f"{name}: {found['audited'] - plain:.0f} MiB over {plain:.0f} (limit "
            f"{limit:.0f}); with all checks {found['checked'] - plain:.0f} MiB, "
            f"{100 * (found['checked'] / plain - 1):.1f} % (limit 5 %)"
        )


def largest(kind: str, per_coordinate: int, way: str) -> float:
    """Return the most MiB that a training and its copies held together."""
    command = [sys.executable, "-W", "ignore", __file__, "trained", kind]
    return largest_memory([*command, str(per_coordinate), way])


def largest_memory(command: list[str]) -> float:
    """Return the most MiB that a program and its copies hold together.

    What processes share counts once (proportional set size), 20 times a second. As a
    process may be copied while its memory is read, of two successive readings the
    smaller one counts.
    """
    program = subprocess.Popen(command)
    most = before = 0.0
    while program.poll() is None:
        now = float(sum(map(held, family(program.pid))))
        most, before = max(most, min(before, now)), now
        time.sleep(0.05)
    if program.returncode:
        raise SystemExit(program.returncode)
    return most / 1024


def family(process: int) -> Iterator[int]:
    """Yield a process and all that it began."""
    yield process
    with suppress(OSError):
        children = Path(f"/proc/{process}/task/{process}/children").read_text("utf-8")
        for each in children.split():
            yield from family(int(each))


def held(process: int) -> int:
    """Return the KiB that a process holds, its share of what it shares."""
    with suppress(OSError):
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text("utf-8")
        for line in rollup.splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def flat() -> None:
    """Compare steps early and late in one long audited run."""
    steps, _ = training(KINDS["digits"], audited=True)
    steps(20)
    early, before = [], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    early = [cpu(steps, 20) for _ in range(PAIRS)]
    steps(4000)
    late = [cpu(steps, 20) for _ in range(PAIRS)]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"steps 4,400 and on over steps 20 and on: {ratio_of(late, early)} of the time,"
        f" {(after - before) / 1024:.1f} MiB more memory"
    )


def noise(count: int) -> None:
    """Compare an audit with one that does not watch the noise; weigh the watch."""
    for kind in ("ghost", "digits"):
        steps, audit = training(KINDS[kind], audited=True)
        steps(5)
        pairs = []
        for turn in range(PAIRS):  # one training, watched or not; each first in turn
            spent = {}
            for watched in (turn % 2, 1 - turn % 2):
                audit._stages.noise.why_not = "" if watched else "left out"
                spent[watched] = cpu(steps, count)
            pairs.append((spent[1], spent[0]))
        ratio = ratio_of(*zip(*pairs, strict=True))
        each = 1000 * sum(b for _, b in pairs) / (PAIRS * count)
        print(
            f"{kind}: {ratio} of an audit without the watch (limit 1.01); {PAIRS} "
            f"pairs of {count} steps of {each:.1f} ms"
        )
    for steps in (100, 1000, 4096, 10_000, 100_000):
        held, saved, spent = weighed(steps)
        print(
            f"{steps} steps: {held / 1024:.0f} KiB held, {held / steps:.0f} bytes a "
            f"step; {saved / 1024:.0f} KiB saved; {1e6 * spent / steps:.0f} µs a step"
        )


def checks(count: int) -> None:
    """Weigh opening, ordinary steps and secret steps of an audit that checks all."""
    for kind, whole in WHOLE.items():
        plain, _ = training(KINDS[kind], audited=False)
        ordinary, _ = training(KINDS[kind], audited=True, checked=True)
        for steps in (plain, ordinary):
            steps(5)
        pairs = [(cpu(ordinary, count), cpu(plain, count)) for _ in range(PAIRS)]
        ratio = ratio_of(*zip(*pairs, strict=True))
        more = np.median([a - b for a, b in pairs]) / count
        each = np.median([b for _, b in pairs]) / count
        print(
            f"{kind}: ordinary steps {ratio} of plain ones of {1e3 * each:.1f} ms, "
            f"{1e3 * more:.2f} ms more; {PAIRS} pairs of {count}"
        )
        steps, audit = training(KINDS[kind], audited=True, checked=True)
        begun = everywhere()
        audit.probe(steps.step, steps=whole)
        opening = everywhere() - begun
        checks = audit._stages.step_checks
        planned, between = len(checks._due), checks.between
        checks._due = [3, 6, 9][:planned]  # not at secret steps, to be soon done
        spent = []

        def timed(made: int, between: Any = between, spent: Any = spent) -> Any:  # noqa: ANN401
            begun, found = everywhere(), list(between(made))
            spent.append(everywhere() - begun)
            return found

        checks.between = timed
        steps(12)
        total = sum(sorted(spent)[-planned:]) if planned else 0.0
        print(
            f"{kind}: opening {opening:.1f} s; {planned} checks at secret steps, "
            f"{total:.1f} s, {100 * total / (whole * each):.1f} % of a run of {whole} "
            f"steps ({whole * each:.0f} s)"
        )


def everywhere() -> float:
    """Return the CPU seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def weighed(steps: int) -> tuple[int, int, float]:
    """Return the bytes that a watch holds and saves, and its CPU time in seconds."""
    rng = np.random.default_rng(0)
    groups, names = np.repeat(np.arange(4), 60), list("abcd")
    drawn = rng.normal(size=(1000, MOST_WATCHED))

    def watched() -> NoiseWatch:
        watch = NoiseWatch(groups, names, fixed_key(bytes(32)))
        for step in range(steps):
            watch.observe(drawn[step % 1000], 1.0)
        return watch

    spent = cpu(watched)
    tracemalloc.start()
    watch = watched()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held, sum(part.nbytes for part in watch.saved().values()), spent


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=[*COMMANDS, "trained"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--steps", type=int, default=10, help="of each turn")
    arguments = parser.parse_args()
    if arguments.what == "time":
        times(arguments.steps)
    elif arguments.what == "memory":
        memory()
    elif arguments.what == "steps":
        flat()
    elif arguments.what == "noise":
        noise(arguments.steps)
    elif arguments.what == "checks":
        checks(arguments.steps)
    else:
        kind, size, way = arguments.rest
        trained(kind, int(size), way)


if __name__ == "__main__":
    main()
