"""Parquet files that nobody meant to write; needs the extra ``tables``.

pyarrow is C++ beneath, so that a bad file could end the process: whoever runs many of
these runs them in a process of its own.
"""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
from evidence_samples import KEY
from fuzz_mutants import TEXTS, raw_mutant
from pyarrow import parquet

from dpaudit import ApproxDP, Design, OneRun, Ranking
from dpaudit.tables.tally import Shard, tally_scores
from dpaudit.tables.tally_json import tally_to_json

__all__ = ["DESIGN", "parquet_mutant", "parquets", "tallies"]

DESIGN = Design(
    canaries=5, rules=OneRun(guesses=2), claim=ApproxDP(epsilon=1.0, delta=1e-5)
)
_CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def _written(table: pa.Table, **options: object) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def parquets() -> Iterator[bytes]:
    """Yield tables of scores."""
    ids, bits = [3, 1, 4, 0, 2], [1, 0, 0, 1, 1]
    scores = [0.5, -1.0, -0.0, 2.0, 2.0]
    plain = pa.table({"id": ids, "bit": bits, "score": scores})
    yield _written(plain, compression="none", use_dictionary=False)
    yield _written(plain, compression="snappy", row_group_size=2)
    yield _written(plain, compression="zstd", data_page_version="2.0")
    yield _written(
        pa.table({"id": ids, "score": scores}),
        use_dictionary=False,
        compression="none",
        column_encoding={"id": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT"},
    )
    texts = pa.table({"ids": ["a", "b", "c"], "scores": pa.array([1, 2, 3], "int8")})
    yield _written(texts, compression="none", write_page_checksum=True)


def tallies() -> Iterator[bytes]:
    """Yield tallies of such a table, of both kinds, with a key and without."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scores.parquet"
        table = {"id": [3, 1, 4, 0, 2], "score": [0.5, -1.0, float("inf"), 2.0, 2.0]}
        for key in (None, KEY):
            coins = {} if key else {"bit": [1, 0, 0, 1, 1]}
            parquet.write_table(pa.table({**table, **coins}), path)
            for rules in (OneRun(guesses=2), Ranking(guesses=5)):
                design = replace(DESIGN, rules=rules)
                shard = Shard(files=(path,), design=design, key=key, check_ids=True)
                yield tally_to_json(tally_scores(shard)).encode()


def parquet_mutant(sample: bytes, rng: Random) -> bytes:
    """Return a file with odd columns, or with bytes changed, most often near its end.

    The metadata, which says where everything is, stands at the end.
    """
    if rng.random() < 0.15:
        sample = _written(_odd_table(rng), compression=rng.choice(_CODECS))
        if rng.random() < 0.5:
            return sample
    if rng.random() < 0.3:
        return raw_mutant(sample, rng)
    size = int.from_bytes(sample[-8:-4], "little")
    start = max(4, len(sample) - 8 - size) if rng.random() < 0.6 else 4
    end = len(sample) if start > 4 else max(5, len(sample) - 8 - size)
    found = bytearray(sample)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(start, min(end, len(found)))
        match rng.randrange(4):
            case 0:
                found[place] ^= 1 << rng.randrange(8)
            case 1:
                found[place] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))
            case 2:
                found[place] = rng.randrange(256)
            case _:
                stretch = rng.randbytes(rng.choice((1, 2, 4, 8)))
                found[place : place + len(stretch)] = stretch
    return bytes(found)


def _odd_table(rng: Random) -> pa.Table:
    columns = {}
    for name in rng.sample(("id", "ids", "bit", "score", "scores", "other"), 3):
        columns[name] = rng.choice(_ODD)()
    return pa.table(columns)


_ODD = (
    lambda: pa.array([1, 2, None]),
    lambda: pa.array([1.0, float("nan"), float("inf")]),
    lambda: pa.array(["a", "b", "\x1b[31m"]),
    lambda: pa.array(["a" * 70_000, "b", "c"]),
    lambda: pa.array([b"\xff", b"", b"x"]),
    lambda: pa.array(["a", "a", "b"]).dictionary_encode(),
    lambda: pa.array([[1], [2, 3], []]),
    lambda: pa.array([{"a": 1}, {"a": 2}, {"a": 3}]),
    lambda: pa.array([2**64 - 1, 0, 1], "uint64"),
    lambda: pa.array([1, 2, 3], pa.decimal128(38, 0)),
    lambda: pa.array([1, 2, 3], "timestamp[ns]"),
    lambda: pa.array([True, False, None]),
    lambda: pa.array([None, None, None]),
    lambda: pa.array([0.5, -0.0, 1.5], "float16"),
    lambda: pa.array([t.encode("utf-8", "replace").decode() for t in TEXTS[:3]]),
    lambda: pa.array([1, 0, 1], "int8"),
    lambda: pa.array([0.5, 0.25, 0.125]),
    lambda: pa.array([7, 8, 9]),
)
