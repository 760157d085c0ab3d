"""A table in several files, and that an engine's workers leave what one pass leaves."""

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dpaudit import ApproxDP, Coins, Design, Key, OneRun, Ranking
from dpaudit.tables.tally import Shard, conclude_scores, tally_files, tally_scores
from dpaudit.tables.tally_json import tally_to_json

N = 4_000
CLAIM = ApproxDP(epsilon=1.0, delta=1e-6)
KEY = Key(bytes(range(32)))


def write_files(folder):
    """Write five files, of which one is empty, with coarse scores, and the key."""
    rng = np.random.default_rng(0)
    bits = Coins(key=KEY, count=N).bits()
    order = rng.permutation(N)
    paths = []
    for i, rows in enumerate([*np.split(order, [500, 501, 2500]), order[:0]]):
        scores = (rng.standard_normal(len(rows)) + 2 * bits[rows]).round(1)
        paths.append(folder / f"{i}.parquet")
        parquet.write_table(pa.table({"id": rows, "score": scores}), paths[-1])
    KEY.write(folder / "audit.key")
    return paths


def check(engine, files):
    """Assert that what the workers leave is what one pass leaves."""
    key_file = files[0].parent / "audit.key"
    for rules in (OneRun(guesses=200), Ranking(guesses=N)):
        design = Design(canaries=N, rules=rules, claim=CLAIM)
        told = []
        found = tally_files(
            files,
            design=design,
            engine=engine,
            key_file=key_file,
            progress=told.append,
        )
        one_pass = tally_scores(Shard(files=tuple(files), design=design, key=KEY))
        assert sum(told) == N
        assert (found.rows, found.ones) == (one_pass.rows, one_pass.ones)
        results = [conclude_scores([tally]).to_json() for tally in (found, one_pass)]
        assert results[0] == results[1]
        assert KEY.secret.hex() not in tally_to_json(found)
