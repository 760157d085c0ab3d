"""How many cases came to what; counts of two runs add up."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

__all__ = ["Counts", "keep", "quick_place", "read_results", "table", "write_results"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What came of some cases.

    Attributes:
        cases: How many there were.
        outcomes: How many gave a value, or an error of which kind.
        flaws: How many showed which flaw.
        slowest: Seconds of processor time of the slowest.
        memory: Peak of a process's memory in MB.
        seconds: Of processor time, of all.
    """

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    flaws: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    memory: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            cases=self.cases + other.cases,
            outcomes=self.outcomes + other.outcomes,
            flaws=self.flaws + other.flaws,
            slowest=max(self.slowest, other.slowest),
            memory=max(self.memory, other.memory),
            seconds=self.seconds + other.seconds,
        )

    def __str__(self) -> str:
        outcomes = ", ".join(f"{k} {n}" for k, n in self.outcomes.most_common())
        flaws = "".join(f"\n  {n}: {kind}" for kind, n in self.flaws.most_common())
        return (
            f"{self.cases} cases in {self.seconds:.0f} s of CPU ({outcomes}); slowest "
            f"{self.slowest:.2f} s, {self.memory} MB; {sum(self.flaws.values())} flaws"
            f"{flaws}"
        )

    def to_plain(self) -> dict[str, Any]:
        """Return the counts as JSON can hold them."""
        return {
            "cases": self.cases,
            "outcomes": dict(sorted(self.outcomes.items())),
            "flaws": dict(sorted(self.flaws.items())),
            "slowest": round(self.slowest, 2),
            "memory": self.memory,
            "seconds": round(self.seconds, 1),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Counts":
        """Return the counts that ``to_plain`` wrote."""
        named = {name: Counter(plain[name]) for name in ("outcomes", "flaws")}
        return cls(**{**plain, **named})


def read_results(path: Path) -> dict[str, Counts]:
    """Return the counts of every run."""
    if not path.is_file():
        return {}
    plain = json.loads(path.read_text("utf-8"))
    return {run: Counts.from_plain(each) for run, each in plain.items()}


def write_results(path: Path, run: str, counts: Counts) -> None:
    """Write the counts of a run beside those of the others."""
    results = {**read_results(path), run: counts}
    plain = {name: results[name].to_plain() for name in sorted(results)}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
    partial.replace(path)


def table(results: Mapping[str, Counts]) -> str:
    """Return the counts of every target as a table in Markdown."""
    lines = [
        "| target | cases | of them guided | gave a value | slowest, s | memory, MB | "
        "flaws |",
        "|---|---|---|---|---|---|---|",
    ]
    total, bred = Counts(), 0
    for target in sorted({run.split(",")[0] for run in results}):
        runs = {
            run: each for run, each in results.items() if run.split(",")[0] == target
        }
        both = sum(runs.values(), Counts())
        guided = sum(each.cases for run, each in runs.items() if "guided" in run)
        lines.append(_row(target, both, guided))
        total, bred = total + both, bred + guided
    return "\n".join([*lines, _row("all", total, bred)])


def _row(name: str, counts: Counts, guided: int) -> str:
    fine = ("value", "exit 0", "exit 1")
    values = sum(counts.outcomes[each] for each in fine)
    return (
        f"| {name} | {counts.cases:,} | {guided:,} | {values:,} | {counts.slowest:.2f} "
        f"| {counts.memory} | {sum(counts.flaws.values())} |"
    )


def keep(folder: Path, target: str, kind: str, data: bytes) -> None:
    """Keep the shortest input that shows a flaw."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{sha256(kind.encode()).hexdigest()[:8]}"
    if not path.is_file() or len(data) < path.stat().st_size:
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(kind, "utf-8")


def quick_place() -> str | None:
    """Return where files are kept in memory, if there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
