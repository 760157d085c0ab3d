"""Results of every kind of audit, as everything that shows or writes one gives them."""

import json

import numpy as np
import pytest
import torch
from evidence_samples import KEY, KINDS
from golden import check_golden, pretty, words_of
from private_runs import attach, private_run
from torch.utils.data import TensorDataset

from dpaudit import ApproxDP, Coins, Design, OneRun, PureDP, explain
from dpaudit.evidence import seal, verify
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.reporting.model_card import model_card_section
from dpaudit.reporting.report import report_html
from dpaudit.testing.functions import Calls, OneValue, audit_function
from dpaudit.training.black_box import BlackBoxAudit, CanaryScores

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")


def shown(result):
    """Return all that shows a result in words, and what is written of it."""
    parts = {
        "print": f"{result}\n",
        "explain": f"{explain(result)}\n",
        "notebook": words_of(result._repr_html_()),
        "metrics": pretty(json.dumps(result.metrics())),
        "model card": model_card_section(result),
        "report": words_of(report_html(result)),
        "JSON": pretty(result.to_json()),
    }
    return "".join(f"=== {name}\n{text}" for name, text in parts.items())


@pytest.mark.parametrize("kind", KINDS)
def test_results_and_evidence_are_what_they_were(kind):
    evidence = KINDS[kind]()
    sealed = seal(evidence)
    text = shown(evidence.result)
    text += f"=== evidence\n{pretty(sealed)}=== verify\n{verify(sealed)}\n"
    check_golden(f"{kind.replace(' ', '-')}.txt", text)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_opacus_results_are_what_they_were(mode):
    run = private_run(mode=mode)
    audit = attach(run)
    run.train()
    result = audit.finish()
    check_golden(f"opacus-{mode}.txt", f"{result}\n{pretty(result.to_json())}")


def test_black_box_results_are_what_they_were():
    torch.manual_seed(0)
    design = Design(
        canaries=100,
        rules=OneRun(guesses=40),
        claim=ApproxDP(epsilon=1.0, delta=1e-5),
    )
    canaries = TensorDataset(torch.randn(100, 3), torch.zeros(100))
    audit = BlackBoxAudit(canaries, design=design, key=KEY)
    values = np.random.default_rng(1).standard_normal(100)
    values += 1.5 * Coins(key=KEY, count=100).bits()
    scores = CanaryScores(
        ids=np.arange(100), values=values, commitment=audit.commitment
    )
    check_golden("black-box.txt", shown(audit.finish(scores)))


def test_results_of_functions_are_what_they_were():
    def answer(bit, rng):
        return bit if rng.random() < 0.9 else 1 - bit

    result = audit_function(
        answer,
        neighbours=OneValue(x=0, y=1),
        claim=PureDP(epsilon=0.5, adjacency=Adjacency.REPLACE_ONE),
        budget=Calls(calls=400),
        key=KEY,
    )
    check_golden("function.txt", f"=== print\n{result}\n{shown(result.audit)}")
