"""The telemetry example counts what its devices reported, and goes on where it was."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from dpaudit import Coins, Key
from dpaudit.tables.tally_json import tally_from_json

EXAMPLE = Path(__file__).parents[2] / "examples" / "telemetry.py"
REPORTS = 80_000  # more than are kept one by one


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run the example on a folder, and return its exit code and what it printed."""

    def ran(*options):
        words = [str(EXAMPLE), "--reports", str(REPORTS), "--pieces", "3", *options]
        monkeypatch.setattr(sys, "argv", [*words, "--folder", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    return ran


def tallies(folder):
    """Return the tallies of all pieces, in order."""
    paths = sorted(folder.glob("tally-*.json"))
    return [tally_from_json(path.read_text("utf-8")) for path in paths]


# Wrong once in 10^6 runs: a claim at its boundary is refuted, or 5 deviations passed.
def test_the_tallies_are_those_of_the_reports_and_the_keys_coins(run, tmp_path):
    code, said = run("--keep")
    assert code == 0
    assert "NO VIOLATION DETECTED\n" in said
    bits = Coins(key=Key.read(tmp_path / "audit.key"), count=REPORTS).bits()
    seen = right = 0
    for tally, path in zip(
        tallies(tmp_path), sorted((tmp_path / "reports").iterdir()), strict=True
    ):
        table = parquet.read_table(path)
        ids, reports = table["id"].to_numpy(), table["score"].to_numpy()
        coins = bits[ids]
        assert tally.found.counts.tolist() == [(reports == r).sum() for r in (-1, 1)]
        assert tally.found.ones.tolist() == [
            (coins[reports == r] == 1).sum() for r in (-1, 1)
        ]
        assert np.array_equal(ids, np.arange(seen, seen + len(ids)))
        seen, right = seen + len(ids), right + np.sum(reports == 2.0 * coins - 1)
    assert seen == REPORTS
    kept = np.e / (1 + np.e)
    assert abs(right - REPORTS * kept) < 5 * np.sqrt(REPORTS * kept * (1 - kept))


# Reports at epsilon = 1.2 lie more than 20 standard deviations above those at 1.
def test_devices_that_spend_more_than_they_claim_are_found_out(run, tmp_path):
    code, said = run("--leak", "1.2")
    assert code == 1
    assert "CLAIM REFUTED\n" in said
    assert not list((tmp_path / "reports").iterdir())


def test_only_a_piece_whose_tally_is_missing_is_done_again(run, tmp_path):
    run()
    before = {path: path.read_bytes() for path in tmp_path.glob("tally-*.json")}
    (tmp_path / "tally-0001.json").unlink()
    (tmp_path / "reports" / "0001.parquet").write_bytes(b"half written")
    code, said = run()
    assert code == 0
    assert "2 of 3 pieces were done before" in said
    again = {path: path.read_bytes() for path in tmp_path.glob("tally-*.json")}
    assert [path.name for path in sorted(before) if before[path] != again[path]] == [
        "tally-0001.json"
    ]


def test_a_folder_of_another_audit_is_refused(run):
    run()
    code, said = run("--leak", "1.1")
    assert code == 2
    assert "holds another audit" in said
