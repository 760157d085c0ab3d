"""Command lines that nobody meant to type, on files that are there or are not.

A command ends with 0, 1 or 2, says what is wrong if it is 2, prints no traceback and
nothing that a terminal would obey. Commands that compute for long are stopped after a
while, which is no fault of theirs: whoever asks for a billion elements waits for them.
"""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType
from unicodedata import category

import fuzz_samples as samples
import typer.testing
from evidence_samples import KEY
from fuzz_mutants import NUMBERS, TEXTS, decoded
from typer.main import get_command
from typer.testing import CliRunner

from dpaudit.cli import app

__all__ = ["command_lines", "command_mutant", "read_command"]

_BETWEEN = "\x1f"
_PATIENCE = 3  # seconds of processor time
_LINES = """
bound --canaries 100 --guesses 50 --correct 40 --delta 1e-5 --alpha 0.05
bound --canaries 100 --guesses 50 --correct 40 --delta 0 --epsilon 1 --json
bound --canaries 100 --guesses 50 --correct 40 --delta 1e-6 --compare
bound --canaries 100 --guesses 50 --correct 40 --delta 1e-6 --method steinke
bound --reading reading.json --delta 1e-6
audit scores.csv --epsilon 1 --delta 1e-5 --tie-seed 1 --coins-were-independent
audit scores.csv --epsilon 1 --delta 0 --guesses 2 --save x --coins-were-independent
audit --in in.csv --out out.csv --epsilon 0.5 --delta 1e-5 --alpha 0.01 --json
audit table.npz --epsilon 1 --delta 1e-5 --not-exercised part --evidence out.json
audit scores-0.csv --design design.json --key key.txt
register --canaries 10 --epsilon 1 --delta 1e-5 --key new.key --design new.json
register --canaries 10 --epsilon 1 --delta 0 --key new.key --guesses 4 --coins new.csv
verify evidence.json --registration design.json --files .
verify evidence.json --public-key signer.pub --json
evidence result.json --key key.txt --output out.json
evidence evidence.json --redact --output out.json
combine result.json result2.json --alpha 0.05
explain counts.json --json
gaps xor --n 10
gaps count --n 5 --epsilon 1 --guesses 3 --delta 1e-6 --alpha 0.1 --json
gaps local-laplace --n 5 --epsilon 0.5 --observed 0.1 --seed 3
plan --epsilon 2 --delta 1e-5 --coordinates 10 --steps 10 --rate 7
--version
"""
_LONG = ("explain", "gaps", "plan")
_FILES = (
    "scores.csv", "scores-0.csv", "in.csv", "out.csv", "table.npz", "design.json",
    "key.txt", "evidence.json", "signer.pub", "result.json", "result2.json",
    "counts.json", "reading.json", "store.sqlite", "empty", "empty.csv", "bad.json",
    "bad.npz", ".", "nowhere", "nowhere.csv", "nowhere/x.json", "folder.csv", "-",
    "\x1b[31m.csv", "\udcff.csv", "a\nb.csv", "x" * 300 + ".csv", "new.json",
    "loop.csv",
)  # fmt: skip
_WORDS = (
    "--json", "--help", "--alpha", "--epsilon", "--delta", "--method", "exact", "pure",
    "--compare", "--observer", "all-iterates", "--redact", "--sign", "--output", "--",
    "--no-such-option", "-x", "--in", "--out", "--key", "--design", "--tie-seed", "-",
    "--scores", "--cells", "nowhere", "\udcff", "--picture", "x.svg", "--claim-epsilon",
)  # fmt: skip


_MILD = ("0", "1", "2", "-1", "0.5", "1e-5", "10", "40", "50", "100", "1e-300", "9999")


def command_lines() -> Iterator[bytes]:
    """Yield command lines that mean something; those that take long more seldom."""
    for line in _LINES.strip().splitlines():
        words = line.split()
        seldom = words[0] in _LONG or "--compare" in words
        for _ in range(1 if seldom else 5):
            yield _BETWEEN.join(words).encode()


def command_mutant(sample: bytes, rng: Random) -> bytes:
    """Return a command line with arguments changed, left out, doubled or put in."""
    tokens = sample.decode().split(_BETWEEN)
    for _ in range(rng.choice((1, 1, 2, 3))):
        tokens = tokens or [""]
        place = rng.randrange(1, len(tokens)) if len(tokens) > 1 else 0
        match rng.randrange(8):
            case 0:
                del tokens[place]
            case 1:
                tokens.insert(place, rng.choice(_WORDS))
            case 2:
                tokens.append(tokens[place] if tokens else "")
            case 3:
                tokens[place : place + 1] = [rng.choice(_FILES)]
            case 4:
                tokens[place : place + 1] = [rng.choice(TEXTS)]
            case 5:
                tokens[place : place + 1] = [rng.choice(NUMBERS)]
            case _:
                numbers = [i for i, each in enumerate(tokens) if each[:1].isdigit()]
                if numbers:
                    tokens[rng.choice(numbers)] = rng.choice(_MILD)
    return _BETWEEN.join(tokens).encode("utf-8", "surrogatepass")


@cache
def _contents() -> dict[str, bytes]:
    results = list(samples.results())
    first, second = next(samples.coins()), next(samples.pairs())
    return {
        "scores.csv": b"id,bit,score\n0,1,0.5\n1,0,-2\n2,1,3\n3,0,0.5\n",
        "scores-0.csv": next(samples.tables()),
        "in.csv": b"1\n2\n3\n4\n",
        "out.csv": b"0\n-1\n1\n",
        "table.npz": next(samples.archives()),
        "design.json": next(samples.registrations()),
        "key.txt": KEY.secret.hex().encode(),
        "evidence.json": next(samples.envelopes()),
        "signer.pub": next(samples.public_keys()),
        "result.json": results[0],
        "result2.json": results[1],
        "counts.json": results[9],
        "reading.json": next(samples.readings()),
        "store.sqlite": b"SQLite format 3\0" + bytes(4080),
        "empty": b"",
        "empty.csv": b"",
        "bad.json": first + second,
        "bad.npz": b"PK\x03\x04" + bytes(100),
    }


def _prepare(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_file() and path.name not in _contents():
            path.unlink()
    for name, data in _contents().items():
        (folder / name).write_bytes(data)
    (folder / "folder.csv").mkdir(exist_ok=True)
    if not (folder / "loop.csv").is_symlink():
        (folder / "loop.csv").symlink_to("loop.csv")


def _harmless(token: str) -> str:
    """Return an argument that names no file outside the folder, and no cluster."""
    token = token.replace("..", "__").replace("\x00", "\x01")
    if token.startswith(("/", "~")) or "=/" in token or token == "ray":
        return "nowhere"
    return token


@cache
def _command(asked: object) -> object:
    return get_command(asked)


typer.testing._get_command = _command  # made once, and not for every line


class _LongError(BaseException):
    """Raised by the alarm."""


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(_: int, __: FrameType | None) -> None:
        raise _LongError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def read_command(data: bytes, folder: Path) -> object:
    """Run a command line as the tool would, in a folder of its own."""
    place = folder / "commands"
    place.mkdir(exist_ok=True)
    _prepare(place)
    tokens = [_harmless(token) for token in decoded(data).split(_BETWEEN)]
    try:
        with chdir(place), _alarm():
            done = CliRunner().invoke(app, tokens, input="{}", prog_name="dpaudit")
    except _LongError:
        return "stopped"
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    said = done.stdout + done.stderr
    assert done.exit_code in (0, 1, 2, 3, 4, 6), f"exit code {done.exit_code}"
    assert "Traceback" not in said, f"traceback: {said[-300:]}"
    refused = done.exit_code == 2 or (done.exit_code == 4 and not done.stdout)
    assert refused == bool(done.stderr), f"{done.exit_code}, {said[:200]}"
    odd = [each for each in said if category(each) == "Cc" and each != "\n"]
    assert not odd, f"prints {odd[0]!r}"
    assert len(said) < 200_000, "prints very much"
    if "--json" in tokens and not done.stderr and "--help" not in tokens:
        json.loads(done.stdout)
    sys.stdout.flush()
    return f"exit {done.exit_code}"
