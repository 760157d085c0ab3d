"""Audit a fleet of devices that report one bit each: a billion reports, in pieces.

    python examples/telemetry.py --folder telemetry                  # a billion
    python examples/telemetry.py --folder leaking --leak 1.001       # with a bug
    python examples/telemetry.py --folder small --reports 1e5 --pieces 4

Every device randomises its bit by itself, claimed to be epsilon-DP with epsilon = 1. In
an audit the true bit of a device is a secret fair coin, derived from the key by the
device's number. Reports come as Parquet files of id and score, where a high score
speaks for a true bit of 1: here it is the report itself. A piece is written, tallied
and deleted before the next, so that neither memory nor disk grows with the fleet; a
tally of a few hundred bytes is what is left of it. A piece whose tally is there is not
done again: after Ctrl-C the same command goes on. The exit code is the
verdict's: 1 if refuted.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dpaudit import Coins, Design, Key, OneRun
from dpaudit.evidence import Registration, register
from dpaudit.game.setting import Setting
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.tables.tally import ScoreTally, Shard, conclude_scores, tally_scores
from dpaudit.tables.tally_json import tally_from_json, tally_to_json

EPSILON = 1.0
ALPHA = 1e-6  # so many reports can afford it
ROWS = 1 << 20  # that are in memory at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What an audit is made of, and where it is kept."""

    design: Design
    key: Key
    pieces: int
    devices: LocalRandomisedResponse
    folder: Path
    keep: bool

    def ids_of(self, piece: int) -> tuple[int, int]:
        """Return the first device of a piece, and one past its last."""
        n = self.design.canaries
        return n * piece // self.pieces, n * (piece + 1) // self.pieces

    def reports_of(self, piece: int) -> Path:
        """Return where the reports of a piece are."""
        return self.folder.absolute() / "reports" / f"{piece:04}.parquet"

    def tally_of(self, piece: int) -> Path:
        """Return where the tally of a piece is, once it is there."""
        return self.folder / f"tally-{piece:04}.json"


def opened(arguments: argparse.Namespace) -> Fleet:
    """Fix the audit before the first report; or find what was fixed."""
    folder, reports, pieces = arguments.folder, arguments.reports, arguments.pieces
    design = Design(
        canaries=reports,
        rules=OneRun(guesses=reports),  # all count
        claim=LocalRandomisedResponse(epsilon=EPSILON).guarantee,
        alpha=ALPHA,
        setting=Setting(notes={"pieces": pieces, "simulated_epsilon": arguments.leak}),
    )
    (folder / "reports").mkdir(parents=True, exist_ok=True)
    registered, secret = folder / "design.json", folder / "audit.key"
    if not secret.exists():
        Key.generate().write(secret)
    key = Key.read(secret)
    if not registered.exists():
        registered.write_text(register(design, key).to_json() + "\n", "utf-8")
    if Registration.from_json(registered.read_text("utf-8")).design != design:
        print(f"{folder} holds another audit; name a new --folder", file=sys.stderr)
        raise SystemExit(2)
    return Fleet(
        design=design,
        key=key,
        pieces=pieces,
        devices=LocalRandomisedResponse(epsilon=arguments.leak),
        folder=folder,
        keep=arguments.keep,
    )


def write_reports(fleet: Fleet, piece: int) -> None:
    """Let the devices of a piece report."""
    start, stop = fleet.ids_of(piece)
    coins = Coins(key=fleet.key, count=fleet.design.canaries)
    rng = np.random.default_rng()  # the devices' own: nobody knows it
    schema = pa.schema({"id": pa.int64(), "score": pa.int8()})
    with parquet.ParquetWriter(fleet.reports_of(piece), schema) as file:
        for first in range(start, stop, ROWS):
            last = min(first + ROWS, stop)
            true = fleet.devices.pairs.choose(coins.bits(first, last), start=first)
            reports = fleet.devices.run(true, rng)
            ids = np.arange(first, last)
            file.write_table(pa.table({"id": ids, "score": reports}, schema=schema))


def do_piece(fleet: Fleet, piece: int) -> None:
    """Write, tally and delete the reports of a piece."""
    reports, start = fleet.reports_of(piece), time.perf_counter()
    write_reports(fleet, piece)
    written, size = time.perf_counter(), reports.stat().st_size
    tally = tally_scores(Shard(files=(reports,), design=fleet.design, key=fleet.key))
    if not fleet.keep:
        reports.unlink()
    keep_tally(tally, fleet.tally_of(piece))
    print(
        f"piece {piece + 1} of {fleet.pieces}: {size / 1e6:.1f} MB written in "
        f"{written - start:.2f} s, tallied in {time.perf_counter() - written:.2f} s",
        flush=True,
    )


def keep_tally(tally: ScoreTally, path: Path) -> None:
    """Write a tally whole or not at all, whenever the program is stopped."""
    part = path.with_suffix(".part")
    part.write_text(tally_to_json(tally) + "\n", "utf-8")
    part.replace(path)


def read_tally(path: Path) -> ScoreTally:
    return tally_from_json(path.read_text("utf-8"))


def number(text: str) -> int:
    """Read whole numbers such as 100000 and 1e9."""
    value = float(text)
    if not (value.is_integer() and value >= 1):
        raise ValueError(text)
    return int(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where it is kept")
    parser.add_argument("--reports", type=number, default=10**9)
    parser.add_argument("--pieces", type=number, default=100)
    parser.add_argument("--leak", type=float, default=EPSILON, help="true epsilon")
    parser.add_argument("--keep", action="store_true", help="do not delete reports")
    fleet = opened(parser.parse_args())

    missing = [k for k in range(fleet.pieces) if not fleet.tally_of(k).exists()]
    if done := fleet.pieces - len(missing):
        print(f"{done} of {fleet.pieces} pieces were done before")
    try:
        for piece in missing:
            do_piece(fleet, piece)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
    result = conclude_scores(
        [read_tally(fleet.tally_of(piece)) for piece in range(fleet.pieces)]
    )
    print(result)
    raise SystemExit(result.verdict.exit_code)


if __name__ == "__main__":
    main()
