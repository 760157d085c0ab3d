"""A game that this package does not have: the one that the how-to writes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpaudit._codec import decode
from dpaudit.bounds.readings import Reading, Weighted
from dpaudit.errors import InvalidInputError
from dpaudit.game.rules import OneRun, Rules

PAGE = Path(__file__).parents[2] / "docs/how-to/extend.md"
PLAY = """
import numpy as np
from pathlib import Path
from dpaudit import Design, Key, PureDP
from dpaudit.game import Referee
from dpaudit.evidence import evidence_of, seal
from dpaudit.game.result import conclude
from streaks import LongestStart

rules = LongestStart(guesses=20)
design = Design(canaries=20, rules=rules, claim=PureDP(epsilon=0.5))
key = Key(bytes(32))
referee = Referee(design, key)
referee.submit(np.arange(20), np.ones(20, int))
played = referee.close()
result = conclude(played, commitment=referee.commitment)
evidence = evidence_of(result, key=key, transcript=played)
Path("evidence.json").write_text(seal(evidence))
"""


@pytest.fixture
def package(tmp_path):
    """A package with the game, as if it were installed."""
    section = PAGE.read_text("utf-8").split("\n## A game\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (tmp_path / "streaks.py").write_text("\n".join(blocks), "utf-8")
    known = tmp_path / "streaks-1.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text("Name: streaks\nVersion: 1.0\n")
    (known / "entry_points.txt").write_text("[dpaudit.games]\nstreaks = streaks\n")
    return tmp_path


def run(folder, *command, path):
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={"PYTHONPATH": str(path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_verify_knows_a_game_of_an_installed_package_and_no_other(package, tmp_path):
    done = run(package, "-c", PLAY, path=package)
    assert not done.returncode, done.stderr
    verify = ("-c", "from dpaudit.cli import app; app()", "verify", "evidence.json")
    known = run(package, *verify, path=package)
    assert "method streak" in known.stdout, known.stdout + known.stderr
    assert known.returncode == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(package / "evidence.json", elsewhere)
    unknown = run(elsewhere, *verify, path=elsewhere)
    assert unknown.returncode != 0
    assert "longest-start" in unknown.stdout + unknown.stderr


@pytest.mark.parametrize("base", [Rules, Reading])
def test_a_kind_belongs_to_one_class(base):
    kind = {Rules: "one-run", Reading: "counts"}[base]
    with pytest.raises(InvalidInputError, match=f"kind='{kind}' of Mine is that of"):
        type("Mine", (base,), {"kind": kind, "__slots__": ()})
    assert decode(Rules, {"kind": "one-run", "guesses": 3}, "rules") == OneRun(
        guesses=3
    )


class TwoStakes(Rules):  # without a kind: no document knows it
    """Every canary is guessed, the surer half for 2 and the others for 1."""

    __slots__ = ()

    reads = Weighted
    adaptive = False
    bound = stakes = are_stakes = None  # nobody asks

    def max_guesses(self, canaries):
        return canaries

    def read(self, played, *, canaries):
        right = played.stake[played.guess == played.truth]
        return Weighted(
            canaries=canaries,
            weights=(2.0, 1.0),
            guesses=(canaries // 2, canaries // 2),
            correct=(int(np.sum(right == 2)), int(np.sum(right == 1))),
            committed=True,
        )

    def most_confident_stakes(self, guesses):
        return np.repeat([2.0, 1.0], guesses // 2)


class TwoStakesCut(TwoStakes):
    """The same, with a cut where the stake changes."""

    __slots__ = ()

    def class_ends(self, canaries):
        return [canaries // 2, canaries]


def test_counts_that_do_not_say_which_stakes_were_right_are_refused():
    """Put first, the right ones would all have the dearest stakes."""
    with pytest.raises(
        InvalidInputError, match=r"TwoStakes\.class_ends must end wherever"
    ):
        TwoStakes().reading_from_counts([60], canaries=100)
    assert TwoStakesCut().reading_from_counts([20, 60], canaries=100).correct == (
        20,
        40,
    )
    assert TwoStakes().reading_from_counts([100], canaries=100).correct == (50, 50)
    assert TwoStakes().reading_from_counts([0], canaries=100).correct == (0, 0)
