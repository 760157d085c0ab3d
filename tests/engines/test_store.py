"""The store: rows once, in transactions, in a format it knows."""

import sqlite3

import pytest

from dpaudit.engines.store import Cell, Store
from dpaudit.errors import InvalidInputError

CELL = Cell(name="coin", revision=1, setting='{"p":0.5}')


def test_rows_stay_after_closing(tmp_path):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.add(CELL, [(3, {"x": 0.1 + 0.2})])
    with Store(path) as store:
        assert list(store.outcomes(CELL)) == [{"x": 0.1 + 0.2}]
        assert store.missing(CELL, 5) == [0, 1, 2, 4]


def test_a_trial_is_kept_once():
    with Store(":memory:") as store:
        store.add(CELL, [(0, {"x": 1})])
        store.add(CELL, [(0, {"x": 2}), (1, {"x": 3})])
        assert list(store.outcomes(CELL)) == [{"x": 1}, {"x": 3}]


def test_another_revision_is_another_cell():
    with Store(":memory:") as store:
        store.add(CELL, [(0, {"x": 1})])
        newer = Cell(name="coin", revision=2, setting=CELL.setting)
        assert store.missing(newer, 1) == [0]


def test_a_batch_is_kept_whole_or_not_at_all(tmp_path):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        with pytest.raises(ValueError, match="not JSON compliant"):
            store.add(CELL, [(0, {"x": 1.0}), (1, {"x": float("nan")})])
        assert list(store.rows()) == []


def test_a_store_of_another_format_is_refused(tmp_path):
    path = tmp_path / "s.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(InvalidInputError, match="format 99, this version reads 1"):
        Store(path)
