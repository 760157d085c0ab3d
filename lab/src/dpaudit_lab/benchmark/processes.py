"""The processes below one, from /proc (Linux)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

__all__ = ["Process", "below"]

_PROC: Final = Path("/proc")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as it was seen.

    Attributes:
        pid: Its number.
        parent: Its parent's.
    """

    pid: int
    parent: int

    @property
    def command(self) -> str:
        """Its command line, or what it calls itself; empty once it ended."""
        try:
            text = (_PROC / f"{self.pid}" / "cmdline").read_bytes()
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
    for folder in _PROC.iterdir():
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
        )
