"""Commands and what they say: each ``outputs/*.session`` is typed again.

A line that begins with ``$`` is a command; what follows is what it says, and its exit
code if that is not 0. ``cat`` shows a file, of a page its words.
"""

import shlex
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from golden import OUTPUTS, check_golden, pretty, words_of
from pyarrow import parquet
from typer.testing import CliRunner

from dpaudit import Coins, Key
from dpaudit.bounds import Bets, Rounds, Weighted
from dpaudit.bounds.readings import BiasedCoinCounts, Ranked
from dpaudit.cli import app
from dpaudit.game import coins

RNG_SEED = 11


def key_number(number):
    """The key that the n-th `dpaudit register` of a session makes."""
    return sha256(str(number).encode()).digest()


def write_readings():
    weighted = Weighted(
        canaries=90,
        weights=(1.0, 2.0),
        guesses=(30, 30),
        correct=(25, 29),
        committed=True,
    )
    right = np.arange(60) % 10 > 0
    for name, reading in {
        "ranked": Ranked(canaries=100, right=right),
        "weighted": weighted,
        "rounds": Rounds(
            canaries=90, rounds=(weighted,), round_weights=(1.0,), uniforms=(0.5,)
        ),
        "bets": Bets(canaries=100, right=right, stated_probabilities=np.full(60, 0.75)),
        "unequal": BiasedCoinCounts(
            canaries=100,
            inclusion=0.3,
            guesses_in=20,
            guesses_out=20,
            correct=36,
            committed=True,
        ),
    }.items():
        Path(f"{name}.json").write_text(reading.to_json())


def write_scores():
    """400 scores of a run that leaked and of one that did not, in several ways."""
    rng = np.random.default_rng(RNG_SEED)
    bits = Coins(key=Key(key_number(0)), count=400).bits()
    ids = rng.permutation(400)
    noise = rng.standard_normal(400)
    for name, scores in (("scores", noise + 2 * bits[ids]), ("quiet", noise)):
        rows = [f"{i},{s:.9f}" for i, s in zip(ids, scores, strict=True)]
        Path(f"{name}.csv").write_text("\n".join(["id,score", *rows]) + "\n")
    own = rng.integers(0, 2, 400)
    told = noise + 2 * own
    np.save("in.npy", told[own == 1])
    np.save("out.npy", told[own == 0])
    for name, digits in (("bits", 6), ("ties", 0)):
        rows = [
            f"{i},{b},{s:.{digits}f}"
            for i, (b, s) in enumerate(zip(own, told, strict=True))
        ]
        Path(f"{name}.csv").write_text("\n".join(["id,bit,score", *rows]) + "\n")
    signer = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    Path("signer.pem").write_bytes(
        signer.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    Path("public.pem").write_bytes(
        signer.public_key().public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
    )


def write_tables():
    rng = np.random.default_rng(RNG_SEED)
    bits = Coins(key=Key(key_number(0)), count=900).bits()
    scores = (rng.standard_normal(900) + 2 * bits).round(2)  # some are equal
    Path("scores").mkdir()
    for i, rows in enumerate(np.split(rng.permutation(900), 3)):
        table = pa.table({"id": rows, "score": scores[rows]})
        parquet.write_table(table, f"scores/{i}.parquet")


NEEDED = {
    "bound": write_readings,
    "scores": write_scores,
    "tables": write_tables,
    "plans": lambda: None,
}


def said_by(command):
    program, *arguments = shlex.split(command)
    if program == "cat":
        text = Path(arguments[0]).read_text("utf-8")
        return words_of(text) if arguments[0].endswith(".html") else pretty(text)
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
    code = f"[{done.exit_code}]\n" if done.exit_code else ""
    return done.stdout + done.stderr + code


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.nightly] * (n == "plans")) for n in NEEDED],
)
def test_commands_say_what_they_said(name, tmp_path, monkeypatch):
    numbers = count()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        coins,
        "secrets",
        SimpleNamespace(token_bytes=lambda size: key_number(next(numbers))[:size]),
    )
    NEEDED[name]()
    kept = (OUTPUTS / f"{name}.session").read_text("utf-8")
    commands = [line[2:] for line in kept.splitlines() if line.startswith("$ ")]
    assert commands
    said = "".join(f"$ {command}\n{said_by(command)}" for command in commands)
    check_golden(f"{name}.session", said.replace(str(tmp_path), "FOLDER"))
