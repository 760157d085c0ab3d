"""Cases in a process of their own: one that dies or hangs is found out, and goes on."""

import json
import mmap
import os
import resource
import signal
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fuzz_judging import judged
from fuzz_targets import TARGETS
from fuzzing_counts import Counts, keep, quick_place

__all__ = ["chunk", "limit_memory"]

HANG = 60.0  # seconds on the clock, of a machine that may be busy
ADDRESSES = 4 << 30  # bytes that a process may ask for
FILES = 64 << 20  # bytes that a file may take
GROWTH = 256  # MB that one case may take
_OWN_FAULT = 3  # exit code
_PLACE = 1 << 24  # bytes for the case under way


def limit_memory() -> None:
    """Let this process ask for no more memory, and write no larger files."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILES, FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def chunk(target: str, seed: int, start: int, stop: int, kept: Path) -> Counts:
    """Return what came of the cases of a seed with these numbers."""
    counts, deaths = Counts(), Counter[str]()
    skipped: set[int] = set()
    TARGETS[target].seeds  # noqa: B018 (made once, before there are processes)
    with (
        mmap.mmap(-1, _PLACE) as shared,
        TemporaryDirectory(dir=quick_place()) as folder,
    ):
        while True:
            told = Path(folder) / "counts.json"
            child = os.fork()
            if not child:
                try:
                    _work(target, seed, range(start, stop), skipped, shared, told, kept)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(_OWN_FAULT)
            died = _waited(child, shared)
            if died is None:
                counts = Counts.from_plain(json.loads(told.read_text("utf-8")))
                break
            number, data = _under_way(shared)
            skipped.add(number)
            deaths[died] += 1
            keep(kept, target, died, data)
    return counts + Counts(
        cases=len(skipped), outcomes=Counter(died=len(skipped)), flaws=deaths
    )


def _work(
    target: str,
    seed: int,
    numbers: range,
    skipped: set[int],
    shared: mmap.mmap,
    told: Path,
    kept: Path,
) -> None:
    """Judge cases, and leave without a word if all went well."""
    limit_memory()
    told.parent.joinpath("cases").mkdir(exist_ok=True)
    counts = Counts()
    for number in numbers:
        if number in skipped:
            continue
        data = TARGETS[target].case(Random(f"{target}:{seed}:{number}"))
        shared[:16] = number.to_bytes(8, "little") + len(data).to_bytes(8, "little")
        shared[16 : 16 + min(len(data), _PLACE - 16)] = data[: _PLACE - 16]
        counts += one(target, data, told.parent / "cases", kept)
    told.write_text(json.dumps(counts.to_plain()), "utf-8")
    os._exit(0)


def one(target: str, data: bytes, folder: Path, kept: Path) -> Counts:
    """Return what came of one case; the input of a flaw is kept."""
    before, start = _peak(), time.process_time()
    outcome, flaw = judged(TARGETS[target], data, folder)
    spent, after = time.process_time() - start, _peak()
    kinds = [] if flaw is None else [flaw.kind]
    if after - before > GROWTH:
        kinds.append(f"memory: {after - before} MB for {len(data)} bytes")
    for kind in kinds:
        keep(kept, target, kind, data)
    return Counts(
        cases=1,
        outcomes=Counter([outcome]),
        flaws=Counter(kinds),
        slowest=spent,
        memory=after,
        seconds=spent,
    )


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _under_way(shared: mmap.mmap) -> tuple[int, bytes]:
    number = int.from_bytes(shared[:8], "little")
    size = int.from_bytes(shared[8:16], "little")
    return number, shared[16 : 16 + size]


def _waited(child: int, shared: mmap.mmap) -> str | None:
    """Return how a process died; None if it ended well."""
    last, since = -1, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == _OWN_FAULT:
                raise RuntimeError("a fault of the fuzzing itself; see above")
            return None if code == 0 else f"the process died ({code})"
        number, _ = _under_way(shared)
        if number != last:
            last, since = number, time.monotonic()
        elif time.monotonic() - since > HANG:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang"
        time.sleep(0.02)
