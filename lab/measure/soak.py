"""Thousands of audits of all kinds in one process: does anything pile up?

    python lab/measure/soak.py --audits 6000 --minutes 20 --json soak.json
    python lab/measure/soak.py --audits 40 --minutes 0 --light      # seconds

Audits are run in turn, cycle after cycle of the same mixture, until there were so many
and so long. After each cycle the garbage is collected and the process looked at: its
resident memory, open files, threads, processes that it started, files in the folder for
temporary ones and semaphores. Open files are read several times, and those that are
open each time are counted: a library that reads an entry of /proc now and then leaks
nothing, and what leaked is still there. The first cycle imports and starts what is
needed, and is what the last one is compared with. It fails if the median memory of the
last quarter of the cycles is not within 2 % of that of the second quarter, or if
anything else is more at the end than after the first cycle. Linux only.
"""

import argparse
import contextlib
import gc
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final, final

import numpy as np
import pyarrow as pa
import torch
from soak_games import GAMES, Audit
from soak_scores import SCORES
from soak_training import TRAININGS

from dpaudit_lab.benchmark.processes import below

WITHIN: Final = 0.02  # of the memory
FEWEST: Final = 20  # cycles whose memory can be judged
PAUSES: Final = (0.1, 0.2)  # seconds before open files are read again
# Once in a cycle; others twice, as they are quick, but sweeps.
HEAVY: Final = (
    "DP-SGD simulated, reported",
    "ranking, reported",
    "planned",
    "commands",
    "Opacus, records",
)
MIB: Final = 1 << 20


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The process after some audits.

    Attributes:
        audits: How many there were.
        seconds: How long they took.
        resident: Bytes of memory.
        open_files: How many descriptors of each sort.
        threads: How many threads the kernel counts.
        processes: Commands of the processes below this one.
        temporary: Files and folders in the folder for temporary ones.
        semaphores: Of this process, in shared memory.
    """

    audits: int
    seconds: float
    resident: int
    open_files: dict[str, int]
    threads: int
    processes: dict[str, int]
    temporary: list[str]
    semaphores: int


def mixture(*, light: bool) -> list[tuple[str, Audit]]:
    """Return a cycle of audits: every kind, quick ones twice; or those alone, once."""
    kinds = {**GAMES, **SCORES, **TRAININGS}
    quick = [name for name in kinds if name not in HEAVY]
    again = [name for name in quick if name != "sweep"]
    return [(name, kinds[name]) for name in (quick if light else [*kinds, *again])]


def soak(
    cycle: list[tuple[str, Audit]], *, audits: int, minutes: float, folder: Path
) -> Iterator[Sample]:
    """Yield what the process is like at first, and after each cycle."""
    start, done, cycles = time.monotonic(), 0, 0
    yield look(done, 0.0, folder)
    while done < audits or time.monotonic() - start < 60 * minutes:
        for number, (name, audit) in enumerate(cycle):
            with tempfile.TemporaryDirectory() as own:
                try:
                    audit(np.random.default_rng([cycles, number]), Path(own))
                except Exception as error:
                    error.add_note(f"{name}, cycle {cycles}, number {number}")
                    raise
        done, cycles = done + len(cycle), cycles + 1
        yield look(done, time.monotonic() - start, folder)


def look(audits: int, seconds: float, folder: Path) -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    own = os.getpid()
    children = (process for process in below(own) if process.pid != own)
    return Sample(
        audits=audits,
        seconds=round(seconds, 1),
        resident=pages * os.sysconf("SC_PAGE_SIZE"),
        open_files=dict(_kept_open()),
        threads=len(list(Path("/proc/self/task").iterdir())),
        processes=dict(Counter(_called(process.command) for process in children)),
        temporary=sorted(path.name for path in folder.iterdir()),
        semaphores=len(list(Path("/dev/shm").glob(f"*-{own}-*"))),
    )


def _kept_open() -> Counter[str]:
    """Return how many descriptors of each sort are open, and not for a moment only."""
    kept = _descriptors()
    for pause in PAUSES:
        time.sleep(pause)
        kept &= _descriptors()
    return Counter(target.partition(":")[0] for _, target in kept)


def _descriptors() -> set[tuple[str, str]]:
    """Return each open descriptor with what it leads to."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that reads the folder
            found.add((descriptor.name, str(descriptor.readlink())))
    return found


def _called(command: str) -> str:
    """Return a command without the numbers in it."""
    words = "".join(" " if c.isdigit() else c for c in command).split()
    return " ".join(words)[:120] or "ended, and nobody waited for it"


def quarters(samples: list[Sample]) -> list[float]:
    """Return the median memory of each quarter of the cycles, in MiB."""
    memory = np.array([sample.resident / MIB for sample in samples[1:]])
    return [median(part.tolist()) for part in np.array_split(memory, 4)]


def leaks(samples: list[Sample]) -> list[str]:
    """Say what there is more of at the end than after the first cycle."""
    first, last = samples[1], samples[-1]
    found = []
    for name in ("open_files", "processes"):
        more = Counter(getattr(last, name)) - Counter(getattr(first, name))
        found += [f"{name}: {count} more of {sort}" for sort, count in more.items()]
    for name in ("threads", "semaphores"):
        if getattr(last, name) > getattr(first, name):
            found.append(f"{name}: {getattr(first, name)}, then {getattr(last, name)}")
    left = set(last.temporary) - set(first.temporary)
    return found + [f"temporary: {name} is left" for name in sorted(left)]


def told(sample: Sample) -> str:
    return (
        f"{sum(sample.open_files.values())} open files, {sample.threads} threads, "
        f"{sum(sample.processes.values())} processes, {len(sample.temporary)} "
        f"temporary files, {sample.semaphores} semaphores, "
        f"{sample.resident / MIB:.1f} MiB"
    )


def judged(samples: list[Sample]) -> bool:
    """Print what was found, and return whether it is as it should be."""
    print(f"{samples[-1].audits} audits in {samples[-1].seconds / 60:.1f} minutes")
    for name, sample in (
        ("at first", samples[0]),
        ("after the first cycle", samples[1]),
        ("at the end", samples[-1]),
    ):
        print(f"{name}: {told(sample)}")
    for command, count in samples[-1].processes.items():
        print(f"a process at the end: {command} ({count})")
    for name in samples[-1].temporary:
        print(f"a temporary file at the end: {name}")
    found = leaks(samples)
    print("\n".join(["leaked:", *found]) if found else "nothing leaked")
    if len(samples) <= FEWEST:
        print(f"memory is not judged before {FEWEST} cycles")
        return not found
    memory = quarters(samples)
    ratio = memory[3] / memory[1]
    flat = abs(ratio - 1) <= WITHIN
    print(
        "median memory of the quarters: "
        + ", ".join(f"{each:.1f}" for each in memory)
        + f" MiB; the last is {ratio:.4f} of the second "
        f"({'within' if flat else 'NOT within'} {WITHIN:.0%})"
    )
    return flat and not found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audits", type=int, default=6000)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--light", action="store_true", help="quick kinds only")
    parser.add_argument("--json", type=Path, help="write all that was seen")
    args = parser.parse_args()
    torch.set_num_threads(1)
    pa.set_cpu_count(1)  # pools grow on demand, up to this
    pa.set_io_thread_count(1)
    warnings.simplefilter("ignore")  # Opacus and torch remark on small models
    cycle, samples = mixture(light=args.light), []
    with tempfile.TemporaryDirectory() as name:
        os.environ["TMPDIR"] = tempfile.tempdir = name
        for sample in soak(
            cycle, audits=args.audits, minutes=args.minutes, folder=Path(name)
        ):
            samples.append(sample)
            print(f"{sample.audits}: {told(sample)}", file=sys.stderr, flush=True)
        tempfile.tempdir = None
    well = judged(samples)
    if args.json is not None:
        found = {
            "cycle": [name for name, _ in cycle],
            "well": well,
            "samples": [asdict(sample) for sample in samples],
        }
        args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
