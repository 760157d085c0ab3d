"""Mutants of Parquet files; needs the extra ``tables``."""

import json
import resource
import zlib
from base64 import b64decode
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from fuzz_judging import judged
from fuzz_targets import TARGETS
from pyarrow import parquet

from dpaudit.errors import InvalidInputError
from dpaudit.tables.sources import read_score_table

CORPUS = json.loads((Path(__file__).parent / "corpus.json").read_text("utf-8"))
NAMES = ("batches", "parquet", "tally")
FOUND = [case for case in CORPUS if case["target"] in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_mutants_give_a_value_or_an_error_that_helps(name, tmp_path):
    target = TARGETS[name]
    assert judged(target, target.seeds[0], tmp_path) == ("value", None)
    for number in range(150):
        data = target.case(Random(f"{name}:tests:{number}"))
        assert judged(target, data, tmp_path)[1] is None, data


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.mark.parametrize("case", FOUND, ids=range(len(FOUND)))
def test_inputs_that_once_showed_a_flaw_no_longer_do(case, tmp_path):
    """A page of a file of 700 bytes says 2 GB; so much was asked for, and filled."""
    before = peak_mb()
    data = zlib.decompress(b64decode(case["input"]))
    assert judged(TARGETS[case["target"]], data, tmp_path)[1] is None
    assert peak_mb() - before < 300


def test_a_long_id_that_stands_in_every_row_is_refused_before_it_is_repeated(tmp_path):
    """6 kB of a file would be 20 GB of texts."""
    ids = pa.DictionaryArray.from_arrays(
        np.zeros(200_000, np.int32), pa.array(["x" * 100_000])
    )
    path, before = tmp_path / "scores.parquet", peak_mb()
    table = pa.table({"id": ids, "score": np.zeros(200_000)})
    parquet.write_table(table, path, store_schema=False)
    assert path.stat().st_size < 10_000
    with pytest.raises(InvalidInputError, match="200,000 rows would take 80,000,000,0"):
        read_score_table(path)
    assert peak_mb() - before < 300


def test_one_long_id_among_many_is_refused(tmp_path):
    ids = ["x" * 100_000, *map(str, range(20_000))]
    path = tmp_path / "scores.parquet"
    parquet.write_table(pa.table({"id": ids, "score": np.zeros(20_001)}), path)
    with pytest.raises(InvalidInputError, match="use shorter ids, or whole numbers"):
        read_score_table(path)


def test_text_ids_are_read_as_they_are(tmp_path):
    ids = ["b", "a", "a\u0301", "7", "b" * 300]
    path = tmp_path / "scores.parquet"
    parquet.write_table(pa.table({"id": ids, "score": [1, 2, 3, 4, 5]}), path)
    assert read_score_table(path).ids.tolist() == ids
