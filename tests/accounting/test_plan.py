"""Plans with a real accountant: noise for an epsilon, epsilon of a noise, ceilings."""

import json

import pytest
from typer.testing import CliRunner

from dpaudit.cli import app

TRAINED = ["--delta=1e-5", "--steps=100", "--rate=0.1"]
AUDITED = ["--coordinates=300", "--per-coordinate=2", "--json"]


def planned(*arguments):
    done = CliRunner().invoke(app, ["plan", *TRAINED, *AUDITED, *arguments])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.nightly
def test_the_paper_s_noise_and_its_limits():
    """By the RDP accountant 2.4224; by PLD that noise has 1.815, and 1.426 at 2e-4."""
    plan = planned("--epsilon=2")
    design = plan["design"]
    assert design["setting"]["noise"] == pytest.approx(2.4224, abs=1e-3)
    assert plan["true_epsilon"] == pytest.approx(1.815, abs=2e-3)
    assert plan["ceiling"] == pytest.approx(1.426, abs=2e-3)


@pytest.mark.nightly
def test_a_noise_alone_claims_what_the_accountant_proves_of_it():
    design = planned("--noise=2.4224")["design"]
    assert design["claim"]["epsilon"] == pytest.approx(1.815, abs=2e-3)
