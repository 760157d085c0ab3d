"""Every reader of bytes from outside, as a target: samples, mutants, and the reader.

To add one, add an entry to ``TARGETS``: where its valid samples come from, how a mutant
is made of one, and what reads a mutant. What reads it also does what would be done next
with the value: print it, write it again.
"""

import io
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

import fuzz_samples as samples
import numpy as np
from evidence_samples import KEY
from fuzz_commands import command_lines, command_mutant, read_command
from fuzz_mutants import (
    NUMBERS,
    TEXTS,
    Tree,
    decoded,
    envelope_mutant,
    json_mutant,
    raw_mutant,
)

from dpaudit import Coins, Design, Key, Pairs
from dpaudit.bounds.methods import bound_counts, bound_for
from dpaudit.bounds.readings import Bets, Counts, Ranked, Reading
from dpaudit.evidence import Registration, ScoreFiles, open_envelope, verify
from dpaudit.explanation import explain
from dpaudit.game.design import Commitment
from dpaudit.game.result import Result
from dpaudit.game.transcript import Transcript
from dpaudit.tables.sources import (
    ScoreLists,
    read_score_list,
    read_score_table,
    read_scores,
)
from dpaudit.tables.tally import Shard, conclude_scores, tally_scores
from dpaudit.tables.tally_json import tally_from_json, tally_to_json
from dpaudit.training.any_loop import SumsAudit

__all__ = ["TARGETS", "Target", "chosen"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A reader, and what it is fed with.

    Attributes:
        samples: Yields valid inputs.
        read: Reads a mutant; it is given a folder of its own for files.
        parsed: What mutants are made from, made once of each sample.
        mutant: Makes a mutant of what was parsed.
        names_file: Whether every error must name the file that was read.
        seconds: Of processor time that an input of at most 64 kB may take.
    """

    samples: Callable[[], Iterable[bytes]]
    read: Callable[[bytes, Path], object]
    parsed: Callable[[bytes], Any] = bytes
    mutant: Callable[[Any, Random], bytes] = raw_mutant
    names_file: bool = False
    seconds: float = 2.0

    @cached_property
    def seeds(self) -> list[bytes]:
        """The samples."""
        return list(self.samples())

    @cached_property
    def _parsed(self) -> list[Any]:
        return [self.parsed(seed) for seed in self.seeds]

    def case(self, rng: Random) -> bytes:
        """Return a mutant of some sample."""
        place = rng.randrange(len(self.seeds))
        if rng.random() < 0.05:
            return raw_mutant(self.seeds[place], rng)
        return self.mutant(self._parsed[place], rng)


def again(value: Any) -> object:
    """Print a value and write it again; what is read back is the same."""
    str(value), repr(value)
    written = value.to_json()
    assert type(value).from_json(written).to_json() == written, "read back otherwise"
    return value


def read_reading(data: bytes, _: Path) -> object:
    reading = Reading.from_json(decoded(data))
    written = reading.to_json()
    assert Reading.from_json(written).to_json() == written, "read back otherwise"
    str(reading.correct_and_guesses())
    if isinstance(reading, Counts):
        str(bound_counts("exact", reading, delta=1e-6, alpha=0.05))
    elif (
        isinstance(reading, Ranked | Bets) or reading.correct_and_guesses()[1] < 10_000
    ):
        str(bound_for(reading).epsilon_lower(reading, delta=1e-6, alpha=0.05))
    return reading


def read_result(data: bytes, _: Path) -> object:
    result = Result.from_json(decoded(data))
    result._repr_html_()
    return again(result)


def read_report(data: bytes, folder: Path) -> object:
    """Explain a result and write its page, on which nothing of the file is markup."""
    from dpaudit.reporting.report import report  # noqa: PLC0415 (an extra)

    result = read_result(data, folder)
    found = explain(result)
    for said in (str(found), str(result)):
        odd = [each for each in said if not each.isprintable() and each != "\n"]
        assert not odd, f"prints {odd[0]!r}"
    path = folder / "report.html"
    report(result, path)
    page = path.read_text("utf-8")
    for markup in ("<script>alert", "<img src=x", "\x1b"):
        assert markup not in page + result._repr_html_(), f"{markup!r} on the page"
    return found


def read_evidence(data: bytes, folder: Path) -> object:
    """Verify, and open: verification turns every error into a finding."""
    found = verify(data, files=folder)
    str(found), found.to_json()
    for check in found.checks:
        if "ended in an error" in check.sentence:
            assert "InvalidInputError" in check.sentence or (
                "InvalidRunError" in check.sentence
            ), f"verify: {check.name}: {check.sentence[:200]}"
    evidence, _ = open_envelope(data)
    str(evidence.result), str(found)
    return evidence


def as_file(
    suffix: str, reader: Callable[[Path], object]
) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> object:
        path = folder / f"in{suffix}"
        path.write_bytes(data)
        return reader(path)

    return read


def read_both(path: Path) -> object:
    """Read a file as what it holds, and as one list unless it holds two."""
    found = None
    try:
        found = read_scores(path)
        return found
    finally:
        if not isinstance(found, ScoreLists):
            read_score_list(path)


def parquets() -> Iterable[bytes]:
    import fuzz_parquet  # noqa: PLC0415 (an extra)

    return fuzz_parquet.parquets()


def parquet_mutant(sample: bytes, rng: Random) -> bytes:
    import fuzz_parquet  # noqa: PLC0415 (an extra)

    return fuzz_parquet.parquet_mutant(sample, rng)


def tallies() -> Iterable[bytes]:
    import fuzz_parquet  # noqa: PLC0415 (an extra)

    return fuzz_parquet.tallies()


def read_tally(text: str) -> object:
    """Read a tally, write it again, and judge by it as if it were the only shard."""
    tally = tally_from_json(text)
    written = tally_to_json(tally)
    assert tally_to_json(tally_from_json(written)) == written, "read back otherwise"
    return str(conclude_scores([tally], coins_were_independent=True)) and tally


def read_batches(path: Path) -> object:
    """Tally a file, some rows at a time."""
    from fuzz_parquet import DESIGN  # noqa: PLC0415 (an extra)

    return tally_scores(Shard(files=(path,), design=DESIGN, key=None, check_ids=True))


def read_parquets(path: Path) -> object:
    try:
        return read_score_table(path)
    finally:
        read_score_list(path)


def read_state(data: bytes, folder: Path) -> object:
    path = folder / "state.npz"
    path.write_bytes(data)
    design = samples.audit().design
    audit = SumsAudit(design=design, key=KEY, dimension=20, sample_rate=0.5)
    audit.resume(path)
    audit.observe(audit.contributions())
    return audit.finish()


def read_public_key(path: Path) -> object:
    from dpaudit.evidence.signing import PublicKey  # noqa: PLC0415 (an extra)

    key = PublicKey.read(path)
    repr(key)
    return key


def csv_mutant(sample: bytes, rng: Random) -> bytes:
    """Return a table of which some cells are hostile."""
    rows = [line.split(",") for line in sample.decode("utf-8-sig").splitlines()]
    for _ in range(rng.randrange(4)):
        row = rng.choice(rows)
        if row:
            place = rng.randrange(len(row))
            match rng.randrange(8):
                case 0:
                    row.insert(place, rng.choice(TEXTS))
                case 1:
                    del row[place]
                case 2:
                    row[place] = '"' + rng.choice(TEXTS)
                case 3:
                    rows.append(list(row))
                case _:
                    row[place] = rng.choice(rng.choice((NUMBERS, TEXTS)))
    end = rng.choice(("\n", "\r\n", "\r", "\n\n"))
    mark = rng.choice((",",) * 18 + (";", "\t"))
    text = end.join(mark.join(row) for row in rows)
    code = rng.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16"))
    data = text.encode(code, "surrogatepass")
    return raw_mutant(data, rng) if rng.random() < 0.2 else data


_DTYPES = (
    "<f8", ">f8", "<f4", "<f2", "<i8", ">i8", "|i1", "|u1", "<u8", "|b1", "<U4", ">U4",
    "|S4", "<c16", "<M8[s]", "<m8[ns]", "|O", "<f16", "|V8", "<U0", "|S0", "<U99999999",
    "|V0", "nonsense", "<i3", "<f8, <i4", "O,O",
)  # fmt: skip
_SHAPES = (
    "(5,)", "(4,)", "()", "(0,)", "(5, 1)", "(-1,)", "(-5, -1)", "(1000000000000,)",
    "(9223372036854775807,)", "(18446744073709551616,)", "(0, 1000000000000000000)",
    "[5]", "(True,)", "(5.0,)", "5", "(5,", "(" * 200, "(1" + "0" * 4400 + ",)",
    "(" + "1," * 70 + ")", "None", "('5',)",
)  # fmt: skip
_MEMBERS = (
    "id.npy", "bit.npy", "score.npy", "scores.npy", "ids.npy", "in_scores.npy",
    "out_scores.npy", "id", "score", "../score.npy", "/score.npy", "..\\score.npy",
    "a/score.npy", ".npy", "", "\x1b[31m.npy", "score.npy/", "\ud83d\ude00.npy",
    "format.npy", "commitment.npy", "steps.npy", "0.counts.npy", "0.noise.npy",
    "0.total.npy", "0.before.npy",
)  # fmt: skip


def npy_bytes(rng: Random) -> bytes:
    """Return an array whose header may say what it likes."""
    descr, shape = "<f8", "(5,)"
    data = np.linspace(-1, 1, 5).tobytes()
    if rng.random() < 0.5:
        descr = rng.choice(_DTYPES)
        data = rng.choice((data, rng.randbytes(40), b"\x00" * 40, b"\xff" * 40))
        if rng.random() < 0.7:
            data = _fitting(descr, rng)
    if rng.random() < 0.3:
        shape = rng.choice(_SHAPES)
    order = rng.choice(("False", "False", "True", "0", "__import__('os')"))
    head = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if rng.random() < 0.1:
        head = rng.choice((head[:-9], head * 2, "{" * 3000, "[" * 9000, head + "\x00"))
    version = rng.choice(((1, 0), (1, 0), (2, 0), (3, 0), (9, 9)))
    padded = head.encode("latin-1", "replace") + b" " * rng.randrange(64) + b"\n"
    size = len(padded)
    if rng.random() < 0.05:
        size = rng.choice((0, 1, 65535, 2**32 - 1))
    form = "<H" if version == (1, 0) else "<I"
    length = struct.pack(form, min(size, 65535 if form == "<H" else 2**32 - 1))
    return b"\x93NUMPY" + bytes(version) + length + padded + data


def _fitting(descr: str, rng: Random) -> bytes:
    try:
        kind = np.dtype(descr)
    except TypeError:
        return b""
    if kind.hasobject or kind.itemsize > 64:
        return b""
    return rng.choice((rng.randbytes(5 * kind.itemsize), bytes(5 * kind.itemsize)))


def npy_mutant(sample: bytes, rng: Random) -> bytes:
    data = npy_bytes(rng) if rng.random() < 0.7 else sample
    return raw_mutant(data, rng) if rng.random() < 0.3 else data


def npz_mutant(sample: bytes, rng: Random) -> bytes:
    """Return an archive with members added, renamed, exchanged or compressed anew."""
    if rng.random() < 0.2:
        return raw_mutant(sample, rng)
    with zipfile.ZipFile(io.BytesIO(sample)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(rng.randrange(3)):
        place = rng.randrange(len(members)) if members else 0
        match rng.randrange(5):
            case 0:
                members.insert(place, (rng.choice(_MEMBERS), npy_bytes(rng)))
            case 1 if members:
                members[place] = (rng.choice(_MEMBERS), members[place][1])
            case 2 if members:
                members[place] = (members[place][0], npy_bytes(rng))
            case 3 if members:
                changed = raw_mutant(members[place][1], rng)
                members[place] = (members[place][0], changed)
            case 4 if members:
                del members[place]
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode())
            info.compress_type = rng.choice((0,) * 24 + (8,) * 24 + (12, 14))
            with warnings.catch_warnings():  # about names that are there twice
                warnings.simplefilter("ignore")
                archive.writestr(info, data)
    data = made.getvalue()
    return raw_mutant(data, rng) if rng.random() < 0.2 else data


def documents(
    valid: Callable[[], Iterable[bytes]], reader: Callable[[str], object]
) -> Target:
    """Return the target of a reader of JSON."""
    return Target(
        samples=valid,
        read=lambda data, _: reader(decoded(data)),
        parsed=Tree,
        mutant=json_mutant,
    )


TARGETS: Final = MappingProxyType(
    {
        "design": documents(samples.designs, lambda t: again(Design.from_json(t))),
        "registration": documents(
            samples.registrations, lambda t: again(Registration.from_json(t))
        ),
        "commitment": documents(
            samples.commitments, lambda t: again(Commitment.from_json(t))
        ),
        "coins": documents(samples.coins, lambda t: again(Coins.from_json(t))),
        "pairs": documents(samples.pairs, lambda t: again(Pairs.from_json(t))),
        "score-files": documents(
            samples.score_files, lambda t: again(ScoreFiles.from_json(t))
        ),
        "transcript": documents(
            samples.transcripts, lambda t: again(Transcript.from_json(t))
        ),
        "reading": Target(
            samples=samples.readings,
            read=read_reading,
            parsed=Tree,
            mutant=json_mutant,
        ),
        "result": Target(
            samples=samples.results, read=read_result, parsed=Tree, mutant=json_mutant
        ),
        "evidence": Target(
            samples=samples.statements,
            read=read_evidence,
            parsed=Tree,
            mutant=envelope_mutant,
        ),
        "envelope": Target(
            samples=samples.envelopes,
            read=read_evidence,
            parsed=Tree,
            mutant=json_mutant,
        ),
        "csv": Target(
            samples=samples.tables,
            read=as_file(".csv", read_score_table),
            mutant=csv_mutant,
            names_file=True,
        ),
        "csv-list": Target(
            samples=samples.lists,
            read=as_file(".csv", read_score_list),
            mutant=csv_mutant,
            names_file=True,
        ),
        "npz": Target(
            samples=samples.archives,
            read=as_file(".npz", read_both),
            mutant=npz_mutant,
            names_file=True,
        ),
        "npy": Target(
            samples=samples.arrays,
            read=as_file(".npy", read_score_list),
            mutant=npy_mutant,
            names_file=True,
        ),
        "parquet": Target(
            samples=parquets,
            read=as_file(".parquet", read_parquets),
            mutant=parquet_mutant,
            names_file=True,
        ),
        "batches": Target(
            samples=parquets,
            read=as_file(".parquet", read_batches),
            mutant=parquet_mutant,
        ),
        "tally": documents(tallies, read_tally),
        "command": Target(
            samples=command_lines,
            read=read_command,
            mutant=command_mutant,
            seconds=6.0,  # what takes longer is stopped after three
        ),
        "report": Target(
            samples=samples.results,
            read=read_report,
            parsed=Tree,
            mutant=json_mutant,
            seconds=10.0,  # an explanation makes many bounds
        ),
        "state": Target(samples=samples.states, read=read_state, mutant=npz_mutant),
        "key": Target(
            samples=samples.keys, read=as_file(".key", Key.read), names_file=True
        ),
        "public-key": Target(
            samples=samples.public_keys,
            read=as_file(".pem", read_public_key),
            names_file=True,
        ),
    }
)


def chosen(asked: str) -> list[str]:
    """Return the names of targets from a list with commas, or all."""
    return list(TARGETS) if asked == "all" else asked.split(",")
