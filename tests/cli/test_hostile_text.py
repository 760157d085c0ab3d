"""Texts in files that somebody else wrote do nothing to the reader's terminal."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpaudit import ApproxDP, Coins, Design, Key, OneRun
from dpaudit.cli import app
from dpaudit.evidence import Registration, evidence_of, seal
from dpaudit.game import Referee
from dpaudit.game.result import conclude
from dpaudit.game.setting import Setting
from dpaudit.training.any_loop import SumsAudit

HOSTILE = "nothing\x1b[2J\x1b]0;fine\x07\r\u202e\x9b31m\n- form: all is well"
DESIGN = Design(
    canaries=60,
    rules=OneRun(guesses=20),
    claim=ApproxDP(epsilon=1.0, delta=1e-5),
    setting=Setting(
        framework=HOSTILE,
        nonce=HOSTILE,
        program_sha256=64 * "a",
        notes={HOSTILE: HOSTILE},
    ),
)


def audited(secret):
    """Return the sealed evidence of a game, and its result."""
    key = Key(bytes([secret] * 32))
    referee = Referee(DESIGN, key)
    guess = 2 * Coins(key=key, count=60).bits()[:20].astype(int) - 1
    referee.submit(range(20), guess)
    transcript = referee.close()
    result = conclude(
        transcript, commitment=referee.commitment, not_exercised=(HOSTILE,)
    )
    return seal(evidence_of(result, key=key, transcript=transcript)), result


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        sealed, result = audited(number)
        Path(f"evidence{number}.json").write_text(sealed)
        Path(f"result{number}.json").write_text(result.to_json())
    registration = Registration(design=DESIGN, commitment=result.commitment)
    Path("design.json").write_text(registration.to_json())
    audit = SumsAudit(design=DESIGN, key=Key(bytes(32)), dimension=60, sample_rate=1.0)
    audit.observe(audit.contributions())
    result = audit.finish()
    training = replace(result.training, remarks=(HOSTILE,))
    noticed = replace(result, training=training)
    Path("training.json").write_text(noticed.to_json())


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "evidence1.json"],
        ["verify", "evidence1.json", "--registration", "design.json"],
        ["explain", "result1.json"],
        ["explain", "evidence1.json"],
        ["explain", "training.json"],
        ["combine", "result1.json", "evidence2.json"],
        ["evidence", "result1.json"],
    ],
)
def test_no_character_that_a_terminal_obeys_and_no_line_of_its_own(arguments):
    done = CliRunner().invoke(app, arguments, color=True)  # as if to a terminal
    assert done.exit_code in range(5), done.exception
    for line in done.output.splitlines():
        assert line.isprintable(), line
        assert not line.startswith("- form: all is well")
