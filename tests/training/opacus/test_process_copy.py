"""A copy of the process returns what a function does, and reaches nothing outside."""

import ctypes
import os
import sys
import threading
import time

import numpy as np
import pytest

from dpaudit.errors import InvalidInputError
from dpaudit.training.process_copy import CopyFailedError, in_copy, why_no_copy

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="copies are forks, on Linux"
)


def test_what_a_function_changes_stays_in_the_copy():
    kept, array = [], np.zeros(3)

    def run():
        kept.append(1)
        array[:] = 7
        return len(kept), array.sum()

    assert why_no_copy() is None
    assert in_copy(run, seconds=60) == (1, 21.0)
    assert kept == []
    assert array.sum() == 0


def test_files_that_are_written_are_kept_in_memory(tmp_path):
    path, log = tmp_path / "held", tmp_path / "log"
    path.write_text("before")
    with log.open("w") as opened:
        opened.write("before")
        opened.flush()

        def run():
            path.write_text("after")
            with path.open("a") as file:
                file.write(" and more")
            np.save(tmp_path / "array.npy", np.arange(3))
            opened.write("never")
            opened.flush()
            print("never")
            return path.read_text(), np.load(tmp_path / "array.npy").tolist()

        assert in_copy(run, seconds=60) == ("after and more", [0, 1, 2])
    assert path.read_text() == "before"
    assert log.read_text() == "before"
    assert {each.name for each in tmp_path.iterdir()} == {"held", "log"}


def test_nothing_outside_is_changed_or_reached(tmp_path):
    path = tmp_path / "held"
    path.write_text("before")

    def refused(act):
        try:
            act()
        except OSError:
            return True
        return False

    def by_the_library(name, *arguments):
        libc = ctypes.CDLL(None)
        return getattr(libc, name)(str(path).encode(), *arguments)

    def run():
        acts = [
            lambda: os.remove(path),
            lambda: os.rename(path, tmp_path / "other"),
            lambda: os.mkdir(tmp_path / "folder"),
            lambda: os.open(path, os.O_WRONLY | os.O_TRUNC),
            lambda: os.system("true"),
        ]
        past_python = [
            by_the_library("open", os.O_WRONLY | os.O_TRUNC),
            by_the_library("unlink"),
        ]
        return [refused(act) for act in acts], past_python

    acts, past_python = in_copy(run, seconds=60)
    assert all(acts)
    if ctypes.CDLL(None).syscall(444, None, 0, 1) > 0:  # the kernel has Landlock
        assert past_python == [-1, -1]
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["held"]


def test_errors_come_back_and_what_hangs_is_ended():
    def misused():
        raise InvalidInputError("too few")

    with pytest.raises(InvalidInputError, match="too few"):
        in_copy(misused, seconds=60)
    with pytest.raises(CopyFailedError, match=r"ZeroDivisionError.*in .*lambda"):
        in_copy(lambda: 1 / 0, seconds=60)
    with pytest.raises(CopyFailedError, match="without a word"):
        in_copy(lambda: os._exit(3), seconds=60)
    started = time.monotonic()
    with pytest.raises(CopyFailedError, match="longer than 1 seconds"):
        in_copy(lambda: time.sleep(60), seconds=1)
    assert time.monotonic() - started < 30


def test_a_copy_can_be_copied_and_other_threads_do_not_matter():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        found = in_copy(lambda: in_copy(os.getppid, seconds=60), seconds=60)
    finally:
        ended.set()
        thread.join()
    assert found != os.getpid()
