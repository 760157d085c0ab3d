"""A store as a table: every trial a row, columns that hold what occurs."""

import csv

import pyarrow.parquet
import pytest

from dpaudit.errors import InvalidInputError
from dpaudit_lab.sweeps.export import export
from dpaudit_lab.sweeps.store import Cell, Store


@pytest.fixture
def store():
    with Store(":memory:") as found:
        first = Cell(name="a", revision=1, setting='{"n":3,"rule":"best, of all"}')
        second = Cell(name="b", revision=2, setting='{"n":2.5}')
        found.add(first, [(1, {"x": 1, "ok": True}), (0, {"x": 2, "ok": False})])
        found.add(second, [(0, {"x": 0.1, "why": None, "big": 2**70, "mix": "text"})])
        found.add(second, [(1, {"x": 4, "mix": 1})])
        yield found


COLUMNS = [
    *("name", "revision", "trial", "setting.n", "setting.rule"),
    *("outcome.big", "outcome.mix", "outcome.ok", "outcome.why", "outcome.x"),
]


def test_parquet_keeps_types(store, tmp_path):
    path = tmp_path / "t.parquet"
    assert export(store, path) == 4
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == COLUMNS
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["setting.n"] == kinds["outcome.x"] == "double"
    assert (kinds["revision"], kinds["outcome.ok"]) == ("int64", "bool")
    assert kinds["outcome.big"] == kinds["outcome.mix"] == "string"
    rows = table.to_pylist()
    assert [row["outcome.x"] for row in rows] == [2.0, 1.0, 0.1, 4.0]
    assert [row["outcome.ok"] for row in rows] == [False, True, None, None]
    assert rows[2]["outcome.big"] == str(2**70)


def test_csv_has_the_same_rows(store, tmp_path):
    path = tmp_path / "t.csv"
    assert export(store, path) == 4
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    assert [row["outcome.x"] for row in rows] == ["2", "1", "0.1", "4"]
    assert rows[0]["setting.rule"] == "best, of all"
    assert rows[3]["outcome.why"] == ""


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_more_rows_than_a_chunk_are_all_there(tmp_path, name):
    cell = Cell(name="many", revision=1, setting="{}")
    with Store(":memory:") as many:
        many.add(cell, [(i, {"x": i / 7}) for i in range(25_001)])
        assert export(many, tmp_path / name) == 25_001
    if name == "t.csv":
        assert len((tmp_path / name).read_text().splitlines()) == 25_002
    else:
        x = pyarrow.parquet.read_table(tmp_path / name)["outcome.x"].to_pylist()
        assert x == [i / 7 for i in range(25_001)]


def test_an_empty_store_gives_an_empty_table(tmp_path):
    with Store(":memory:") as empty:
        assert export(empty, tmp_path / "t.csv") == 0
    assert (tmp_path / "t.csv").read_text() == "name,revision,trial\n"


def test_another_kind_of_file_is_refused(store, tmp_path):
    with pytest.raises(InvalidInputError, match=r"must end in .csv or .parquet"):
        export(store, tmp_path / "t.xlsx")
