"""``dpaudit-lab sweep`` on stores that somebody changed."""

import sqlite3
from contextlib import closing

import pytest
from test_store_mutants import stores
from typer.testing import CliRunner

from dpaudit_lab.cli import app


def changed_store(path, statement, *values):
    path.write_bytes(next(stores()))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("statement", "value", "said"),
    [
        ("update trials set setting = cast(? as blob)", "x", "values of another kind"),
        ("update trials set outcome = ?", 7.5, "plain values should be"),
        ("update plans set trials = ?", "many", "values of another kind"),
        ("update trials set setting = ?", "[1]", "names and plain values should be"),
        ("update trials set outcome = ?", '{"a": [1]}', "plain values should be"),
        ("update trials set outcome = ?", '{"a": NaN}', "is not JSON"),
        ("update trials set outcome = ?", '{"a":' * 10**5, "nested too deeply"),
        ("update trials set outcome = ?", "1" * 5000, "is not JSON"),
        ("update trials set outcome = ?", "no", "is not JSON"),
    ],
)
def test_a_store_with_odd_values_is_refused(statement, value, said, tmp_path):
    """SQLite keeps any value in any column, and what it holds was believed."""
    path = changed_store(tmp_path / "store.sqlite", statement, value)
    done = CliRunner().invoke(
        app, ["sweep", "export", str(path), str(tmp_path / "out.csv")]
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr.replace("\n", " ")


def test_the_status_of_a_store_shows_no_escape_sequence(tmp_path):
    path = changed_store(
        tmp_path / "store.sqlite", "update trials set name = ?", "\x1b[2Jcoin\nx: 9"
    )
    done = CliRunner().invoke(app, ["sweep", "status", str(path), "--cells"])
    assert "\\x1b[2Jcoin\\nx: 9 (revision 1): 2 trials" in done.stdout
    assert "\x1b" not in done.stdout
