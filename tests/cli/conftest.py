"""Files that a user of the commands would have."""

import json
from hashlib import sha256
from importlib import resources
from itertools import count
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
from typer.testing import CliRunner

from dpaudit import Coins, Key
from dpaudit.cli import app
from dpaudit.game import coins

CANARIES = 400


@pytest.fixture
def dpaudit(tmp_path, monkeypatch):
    """Run a command in an empty folder; with code=None it must end with a verdict."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0, stdin=None):
        done = CliRunner().invoke(app, [*map(str, arguments)], input=stdin)
        shown = f"{done.stdout}\n{done.stderr}\n{done.exception}"
        assert done.exit_code in ((0, 1, 3, 4) if code is None else (code,)), shown
        assert (done.stdout == "") or (done.stderr == ""), shown
        assert (code in (2, 4)) >= (done.stderr != "") >= (code == 2), shown
        return done

    return run


@pytest.fixture
def schema():
    """Check that a text is JSON by a published schema, and return it."""

    def checked(text, name):
        folder = resources.files("dpaudit") / "schemas"
        form = json.loads((folder / f"{name}.schema.json").read_text("utf-8"))
        jsonschema.Draft202012Validator.check_schema(form)
        found = json.loads(text)
        jsonschema.validate(found, form)
        return found

    return checked


@pytest.fixture
def fixed_keys(monkeypatch):
    """Keys that are the same in every run of the tests."""
    numbers = count()

    def token_bytes(size):
        return sha256(str(next(numbers)).encode()).digest()[:size]

    monkeypatch.setattr(coins, "secrets", SimpleNamespace(token_bytes=token_bytes))


@pytest.fixture
def registered(dpaudit, fixed_keys):  # noqa: ARG001 (so that nothing is left to chance)
    """A registered audit, and a run that leaked: scores of N(2, 1) against N(0, 1)."""
    dpaudit(
        "register",
        f"--canaries={CANARIES}",
        "--epsilon=1",
        "--delta=1e-5",
        "--guesses=60",
        "--key=audit.key",
    )
    return scores_of("audit.key", "scores.npz")


def scores_of(key, path, *, shift=2.0, seed=0):
    """Write scores of a run whose coins were a key's; return ids, bits and scores."""
    rng = np.random.default_rng(seed)
    bits = Coins(key=Key.read(key), count=CANARIES).bits()
    ids = rng.permutation(CANARIES)
    scores = rng.standard_normal(CANARIES) + shift * bits[ids]
    np.savez(path, id=ids, score=scores)
    return ids, bits[ids], scores
