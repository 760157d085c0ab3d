"""Tallies on the workers of an engine; needs ``tables``, ``sweep`` and ``ray``."""

import numpy as np
import pyarrow as pa
import pytest
import ray
from pyarrow import parquet

from dpaudit import ApproxDP, Coins, Design, Key, OneRun, Ranking
from dpaudit.engines.cluster import RayEngine
from dpaudit.engines.local import LocalEngine
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.tables.concluding import conclude_scores
from dpaudit.tables.tally import Shard, tally_files, tally_scores
from dpaudit.tables.tally_json import tally_to_json

N = 4_000
CLAIM = ApproxDP(epsilon=1.0, delta=1e-6)
KEY = Key(bytes(range(32)))


@pytest.fixture(scope="module", params=["local", "ray"])
def engine(request):
    if request.param == "local":
        yield LocalEngine(workers=2)
    else:
        yield RayEngine(workers=2)
        ray.shutdown()


@pytest.fixture
def files(tmp_path):
    """Five files, of which one is empty, with coarse scores, and the key."""
    rng = np.random.default_rng(0)
    bits = Coins(key=KEY, count=N).bits()
    order = rng.permutation(N)
    paths = []
    for i, rows in enumerate([*np.split(order, [500, 501, 2500]), order[:0]]):
        scores = (rng.standard_normal(len(rows)) + 2 * bits[rows]).round(1)
        paths.append(tmp_path / f"{i}.parquet")
        parquet.write_table(pa.table({"id": rows, "score": scores}), paths[-1])
    KEY.write(tmp_path / "audit.key")
    return paths


def test_workers_leave_what_one_pass_leaves(engine, files):
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


def test_what_voids_a_table_is_raised_here(files):
    engine = LocalEngine(workers=1)
    design = Design(canaries=N, rules=OneRun(guesses=200), claim=CLAIM)
    key_file = files[0].parent / "audit.key"
    options = {"design": design, "engine": engine, "key_file": key_file}
    # The same rows under another name: every file by itself is right.
    twice = [*files[:3], files[0].with_name("copy.parquet")]
    twice[-1].write_bytes(files[2].read_bytes())
    with pytest.raises(VoidAuditError):
        conclude_scores([tally_files(twice, **options)])
    with pytest.raises(InvalidInputError, match="there is no column 'bit'"):
        tally_files(files, design=design, engine=engine)
    with pytest.raises(InvalidInputError, match="no row in any file"):
        tally_files(files[-1:], **options)
