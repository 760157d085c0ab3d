"""The processes below one, from /proc, and the CPU time of all of them (Linux)."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

__all__ = ["PROC", "Process", "Tree", "below"]

PROC: Final = Path("/proc")

_TICK: Final = os.sysconf("SC_CLK_TCK")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as it was seen.

    Attributes:
        pid: Its number.
        parent: Its parent's.
        born: When it began; numbers are used again.
        seconds: CPU time that it took so far, without its children's.
    """

    pid: int
    parent: int
    born: str
    seconds: float

    @property
    def command(self) -> str:
        """Its command line, or what it calls itself; empty once it ended."""
        try:
            text = (PROC / f"{self.pid}" / "cmdline").read_bytes()
        except OSError:
            return ""
        return text.replace(b"\0", b" ").decode("utf-8", "replace")


def below(pid: int) -> list[Process]:
    """Return a process and all that it started, or those did."""
    every = {process.pid: process for process in _every()}

    def is_below(child: int) -> bool:
        while child in every and child != pid:
            child = every[child].parent
        return child == pid

    return [process for process in every.values() if is_below(process.pid)]


def _every() -> Iterator[Process]:
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # After the name in parentheses, which may hold anything.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield Process(
            pid=int(folder.name),
            parent=int(fields[1]),
            born=fields[19],
            seconds=(int(fields[11]) + int(fields[12])) / _TICK,
        )


@final
class Tree:
    """The CPU time of this process and all it started, also of those that ended.

    Ray's workers come and go, and nobody waits for them: their time is read three times
    a second while they live.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(0.33)

    def _look(self) -> None:
        for process in below(os.getpid()):
            with self._lock:
                self._last[process.pid, process.born] = process.seconds

    def cpu(self) -> float:
        """Return the seconds so far."""
        self._look()
        with self._lock:
            return sum(self._last.values())
