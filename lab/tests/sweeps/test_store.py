"""The store: rows once, in transactions, in a format it knows."""

import sqlite3

import pytest

from dpaudit.errors import InvalidInputError
from dpaudit_lab.sweeps.store import Cell, Found, State, Store

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
    Store(path).__exit__(None, None, None)
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(InvalidInputError, match="format 99, this version reads 2"):
        Store(path)


def test_a_store_of_format_1_is_gone_on_with(tmp_path):
    path = tmp_path / "s.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "create table trials (name text not null, revision integer not null, "
            "setting text not null, trial integer not null, outcome text not null, "
            "primary key (name, revision, setting, trial)) without rowid"
        )
        row = ("coin", 1, '{"p":0.5}', 0, '{"x":1}')
        connection.execute("insert into trials values (?, ?, ?, ?, ?)", row)
        connection.execute("pragma user_version = 1")
    connection.close()
    with Store(path) as store:
        store.record([Found(cell=CELL, outcomes=[(1, {"x": 2})], failures=[(2, "no")])])
        assert list(store.outcomes(CELL)) == [{"x": 1}, {"x": 2}]
        assert list(store.failures(CELL)) == [(2, "no")]


def test_a_failure_is_missing_and_goes_when_the_trial_succeeds():
    with Store(":memory:") as store:
        store.record([Found(cell=CELL, outcomes=[], failures=[(0, "why"), (1, "y")])])
        assert store.missing(CELL, 2) == [0, 1]
        store.record([Found(cell=CELL, outcomes=[(0, {"x": 1})])])
        assert list(store.failures(CELL)) == [(1, "y")]
        assert store.missing(CELL, 2) == [1]


def test_states_count_what_is_there_what_failed_and_what_was_planned():
    other = Cell(name="a coin", revision=2, setting="{}")
    with Store(":memory:") as store:
        store.plan([CELL, other], 5)
        store.plan([CELL], 3)
        store.record([Found(cell=CELL, outcomes=[(0, {})], failures=[(4, "why")])])
        assert store.states() == [
            State(cell=other, trials=0, failed=0, planned=5),
            State(cell=CELL, trials=1, failed=1, planned=5),
        ]


def test_a_batch_of_several_cells_is_one_transaction(tmp_path):
    other = Cell(name="other", revision=1, setting="{}")
    with Store(tmp_path / "s.sqlite") as store:
        fine = Found(cell=other, outcomes=[(0, {"x": 1.0})])
        broken = Found(cell=CELL, outcomes=[(0, {"x": float("inf")})])
        with pytest.raises(ValueError, match="not JSON compliant"):
            store.record([fine, broken])
        assert list(store.rows()) == []


@pytest.mark.parametrize("version", [0, 1, 2, 7])
@pytest.mark.parametrize("opened", [Store, Store.copy])
def test_the_database_of_another_program_is_refused_and_left_alone(
    tmp_path, opened, version
):
    path = tmp_path / "photos.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("create table photos (name text)")
        connection.execute(f"pragma user_version = {version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match="is not the store of a sweep"):
        opened(path)
    assert path.read_bytes() == before


def test_a_copy_is_the_store_as_it_was(tmp_path):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.add(CELL, [(0, {"x": 1})])
        with Store.copy(path) as copy:
            store.add(CELL, [(1, {"x": 2})])
            assert list(copy.outcomes(CELL)) == [{"x": 1}]
            copy.add(CELL, [(5, {"x": 5})])
        assert list(store.outcomes(CELL)) == [{"x": 1}, {"x": 2}]


def test_a_sweep_can_write_while_a_copy_is_read(tmp_path):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.add(CELL, [(i, {"x": i}) for i in range(1000)])
        with Store.copy(path) as copy:
            reading = copy.rows()
            next(reading)
            store.add(CELL, [(1000, {"x": 0})])  # would wait for a minute, then fail
            assert sum(1 for _ in reading) == 999


def test_counting_is_about_the_trials_asked_for():
    with Store(":memory:") as store:
        store.add(CELL, [(0, {}), (3, {}), (9, {})])
        assert [store.count(CELL, n) for n in (0, 1, 4, 100)] == [0, 1, 2, 3]
