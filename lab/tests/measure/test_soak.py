"""Audits leave nothing behind: a small version of ``lab/measure/soak.py``.

The watch is tested first, on audits that leak on purpose.
"""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import soak

MEASURE = Path(__file__).parents[2] / "measure"
kept = []


def leaks_everything(_rng, folder):
    kept.append(Path(__file__).open("rb"))  # noqa: SIM115 (leaks on purpose)
    kept.append(Path("/proc/self/stat").open("rb"))  # noqa: SIM115 (the same)
    kept.append(threading.Event())
    threading.Thread(target=kept[-1].wait, args=(60,), daemon=True).start()
    kept.append(subprocess.Popen(["sleep", "60"]))
    (folder.parent / f"left-{folder.name}").touch()


@pytest.fixture(autouse=True)
def tidy():
    yield
    for each in kept:
        if isinstance(each, subprocess.Popen):
            each.kill()
            each.wait()
        elif isinstance(each, threading.Event):
            each.set()
        else:
            each.close()
    kept.clear()


def watched(audit, folder, monkeypatch):
    monkeypatch.setattr(soak.tempfile, "tempdir", str(folder))
    cycle = [("leaks", audit)]
    return list(soak.soak(cycle, audits=2, minutes=0, folder=folder))


def test_whatever_leaks_is_named(tmp_path, monkeypatch):
    found = soak.leaks(watched(leaks_everything, tmp_path, monkeypatch))
    for said in (
        f"open_files: 1 more of {__file__}",
        "open_files: 1 more of /proc/",
        "processes: 1 more of sleep",
        "threads: ",
        "temporary: left-",
    ):
        assert any(each.startswith(said) for each in found), (said, found)


def test_what_does_not_leak_is_not(tmp_path, monkeypatch):
    samples = watched(lambda _rng, _folder: None, tmp_path, monkeypatch)
    assert [sample.audits for sample in samples] == [0, 1, 2]
    assert soak.leaks(samples) == []


def test_a_file_that_is_open_for_a_moment_is_not_a_leak(tmp_path, monkeypatch):
    def sampled(_rng, _folder):
        file = Path("/proc/self/stat").open("rb")  # noqa: SIM115 (closed in a moment)
        threading.Timer(0.1, file.close).start()

    samples = watched(sampled, tmp_path, monkeypatch)
    assert not any("stat" in sort for sort in samples[-1].open_files)


@pytest.mark.parametrize(
    ("growth", "flat"), [(0.0, True), (0.0003, True), (0.002, False), (-0.002, False)]
)
def test_memory_that_grows_is_not_flat(growth, flat, tmp_path, capsys):
    """A hundred cycles; from the middle of the second quarter to that of the last."""
    first = replace(soak.look(0, 0.0, tmp_path), open_files={}, processes={}, threads=1)
    samples = [
        replace(first, audits=10 * cycle, resident=int(5e8 * (1 + growth) ** cycle))
        for cycle in range(101)
    ]
    assert soak.judged(samples) is flat
    ratio = (1 + growth) ** 50
    assert f"the last is {ratio:.4f} of the second" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_few_dozen_audits_of_most_kinds_leave_nothing_behind(tmp_path):
    """In a process of its own, as it counts its files, threads and children."""
    done = subprocess.run(
        [
            sys.executable,
            MEASURE / "soak.py",
            "--audits=40",
            "--minutes=0",
            "--light",
            f"--json={tmp_path / 'soak.json'}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing leaked" in done.stdout
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["samples"][-1]["audits"] >= 40
    assert {"sweep", "black box", "Opacus, sums, ghost clipping"} <= {*found["cycle"]}
