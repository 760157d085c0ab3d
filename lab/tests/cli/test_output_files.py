"""No study overwrites its store or a key; names of outputs are checked before work."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpaudit.testing import fixed_key
from dpaudit_lab.cli import app

OUTPUTS = [  # a command line that reads a.X, and its option for an output
    (["benchmark"], "--picture={}", ".svg"),
    (["benchmark"], "--csv={}", ".csv"),
    (["benchmark"], "--page={}", ".md"),
    (["calibrate"], "--csv={}", ".csv"),
    (["calibrate"], "--page={}", ".md"),
    (["reproduce", "sets"], "--page={}", ".md"),
    (["sweep", "export"], "{}", ".parquet"),
]


def refused(tmp_path, monkeypatch, command, store, output):
    """Run a study in a folder; return what it says when it refuses."""
    monkeypatch.chdir(tmp_path)
    reads = [store] if command[0] == "sweep" else [f"--store={store}"]
    done = CliRunner().invoke(app, [*command, *reads, output])
    assert done.exit_code == 2, done.stdout
    return done.stderr


@pytest.mark.parametrize(("command", "output", "suffix"), OUTPUTS)
def test_no_study_overwrites_its_store(tmp_path, monkeypatch, command, output, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"precious")
    said = refused(tmp_path, monkeypatch, command, path.name, output.format(path.name))
    assert "would be overwritten" in said
    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize(("command", "output", "suffix"), OUTPUTS)
def test_no_study_overwrites_a_key(tmp_path, monkeypatch, command, output, suffix):
    path, key = tmp_path / f"a{suffix}", fixed_key(bytes(range(32)))
    key.write(path)
    before = path.read_bytes()
    refused(tmp_path, monkeypatch, command, "s.sqlite", output.format(path.name))
    assert path.read_bytes() == before


@pytest.mark.parametrize(("command", "output", "suffix"), OUTPUTS[:-1])
def test_names_are_checked_before_work(tmp_path, monkeypatch, command, output, suffix):
    said = refused(tmp_path, monkeypatch, command, "s.sqlite", output.format("a.txt"))
    assert f"end in {suffix}" in said
    assert list(tmp_path.iterdir()) == []


def test_the_figures_of_a_folder_do_not_overwrite_the_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("figures").mkdir()
    Path("figures/sets.csv").write_bytes(b"precious")
    options = ["--store=figures/sets.csv"]
    done = CliRunner().invoke(app, ["reproduce", "sets", *options])
    assert done.exit_code == 2
    assert "figures/sets.csv would be overwritten, and --store reads it" in done.stderr
    assert Path("figures/sets.csv").read_bytes() == b"precious"
