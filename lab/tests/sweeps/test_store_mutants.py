"""Mutants of the stores of sweeps, and what was once found in them."""

import json
import sqlite3
import sys
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from fuzz_judging import judged
from fuzz_mutants import NUMBERS, TEXTS, raw_mutant
from fuzz_targets import Target

from dpaudit.errors import InvalidInputError
from dpaudit_lab.sweeps.export import export
from dpaudit_lab.sweeps.store import Cell, Found, Store

CORPUS = json.loads((Path(__file__).parent / "corpus.json").read_text("utf-8"))


def stores() -> Iterator[bytes]:
    """Yield the stores of sweeps, of this format and of the first."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        cell = Cell(name="coin", revision=1, setting=json.dumps({"bias": 0.5}))
        with Store(path) as store:
            store.plan([cell], 5)
            outcomes = [(0, {"heads": True, "x": 1.5}), (1, {"heads": None, "x": 2})]
            failed = [(2, "no coin\nleft\n")]
            store.record([Found(cell=cell, outcomes=outcomes, failures=failed)])
        yield path.read_bytes()
        connection = sqlite3.connect(path)
        connection.execute("drop table failures")
        connection.execute("drop table plans")
        connection.execute("pragma user_version = 1")
        connection.commit()
        connection.execute("vacuum")
        connection.close()
        yield path.read_bytes()


def read_store(data: bytes, folder: Path) -> object:
    """Look into a store, and write it as a table, as ``dpaudit-lab sweep`` does."""
    path = folder / "in.sqlite"
    path.write_bytes(data)
    try:
        with Store.copy(path) as store:
            for state in store.states():
                list(store.outcomes(state.cell))
                list(store.failures(state.cell))
            return export(store, folder / "out.csv")
    except sqlite3.Error as error:  # as the command does
        raise InvalidInputError(f"{path} is not a store ({error})") from error


def store_mutant(sample: bytes, rng: Random) -> bytes:
    """Return a store with odd values in its columns, or odd bytes in its pages."""
    if rng.random() < 0.5:
        return raw_mutant(sample, rng)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(sample)
        names = "select name from sqlite_master where type = 'table'"
        tables = [name for (name,) in connection.execute(names)]
        for _ in range(rng.randrange(1, 3)):
            table = rng.choice(tables)
            columns = [
                row[1] for row in connection.execute(f"pragma table_info({table})")
            ]
            try:
                connection.execute(_odd_statement(table, columns, rng), (_odd(rng),))
            except (sqlite3.Error, UnicodeEncodeError, OverflowError):
                continue
        connection.commit()
        return connection.serialize()


def _odd_statement(table: str, columns: list[str], rng: Random) -> str:
    column = rng.choice(columns)
    return rng.choice(
        (
            f"update {table} set {column} = ?",
            f"update {table} set {column} = ?",
            f"update {table} set {column} = cast(? as blob)",
            f"alter table {table} rename column {column} to odd -- ?",
            f"create view v{rng.randrange(9)} as select ?",
        )
    )


def _odd(rng: Random) -> object:
    odd = (None, -1, 2**63 - 1, 1.5, b"\xff\xfe", b"{}", '{"a": NaN}', '{"a": [1]}')
    deep = '{"a":' * 3000 + "1" + "}" * 3000
    huge = '{"a": 1' + "0" * 5000 + "}"
    more = (deep, huge, "[1]", '{"\x1b[31m": 1}', '{"a": {"b": 1}}', '{"a": "\ud800"}')
    return rng.choice((*odd, *more, rng.choice(TEXTS), rng.choice(NUMBERS)))


STORE = Target(samples=stores, read=read_store, mutant=store_mutant)


def test_samples_and_mutants_give_a_value_or_an_error_that_helps(tmp_path):
    outcomes = {judged(STORE, sample, tmp_path) for sample in STORE.seeds}
    assert ("value", None) in outcomes
    assert {flaw for _, flaw in outcomes} == {None}
    for number in range(150):
        data = STORE.case(Random(f"store:tests:{number}"))
        assert judged(STORE, data, tmp_path)[1] is None, data


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: f"once {case['was']}")
def test_inputs_that_once_showed_a_flaw_no_longer_do(case, tmp_path):
    data = zlib.decompress(b64decode(case["input"]))
    assert judged(STORE, data, tmp_path)[1] is None


def test_rows_that_are_left_half_way_say_nothing(tmp_path, monkeypatch):
    """A closed store made Python print a traceback that nobody could catch."""
    path = tmp_path / "store.sqlite"
    path.write_bytes(next(stores()))
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    with Store.copy(path) as store:
        rows = store.rows()
        next(rows)
    del rows
    assert heard == []
