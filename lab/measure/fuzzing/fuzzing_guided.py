"""Cases that are guided by coverage: what reaches new code breeds. Needs atheris.

Half of the offspring are made by libFuzzer's mutations of bytes, half by the mutations
of the target, which know what it reads.
"""

import json
import os
import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["dpaudit"]):
    from fuzz_targets import TARGETS
from fuzzing_counts import Counts
from fuzzing_workers import limit_memory, one

__all__ = ["fuzz"]

_LARGEST = 1 << 16  # bytes
_TELL = 500  # cases after which the counts are written


def fuzz(target: str, cases: int, seed: int, folder: Path) -> None:
    """Run so many cases; the counts are in a file of the folder at the end."""
    reader, kept = TARGETS[target], Path(os.environ["FUZZING_KEEP"])
    corpus, files = folder / "corpus", folder / "cases"
    for place in (corpus, files):
        place.mkdir(exist_ok=True)
    for number, sample in enumerate(reader.seeds):
        (corpus / f"sample-{number}").write_bytes(sample)
    limit_memory()
    counts, told = Counts(), folder / "counts.json"

    def run(data: bytes) -> None:
        nonlocal counts
        counts += one(target, data, files, kept)
        if counts.cases % _TELL == 0 or counts.cases >= cases:
            told.write_text(json.dumps(counts.to_plain()), "utf-8")
        if counts.cases >= cases:
            os._exit(0)

    def mutated(data: bytes, largest: int, number: int) -> bytes:
        rng = Random(number)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, largest))
        return reader.case(rng)[:largest]

    options = [f"-seed={seed + 1}", f"-max_len={_LARGEST}", "-timeout=60"]
    options += ["-rss_limit_mb=4096", str(corpus)]
    atheris.Setup([sys.argv[0], *options], run, custom_mutator=mutated)
    atheris.Fuzz()
