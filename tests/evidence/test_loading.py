"""Any document is loaded by what it says it is; what is none says what it is."""

import json

import numpy as np
import pytest
from evidence_samples import KEY, KINDS, design_of
from typer.testing import CliRunner

from dpaudit import Design, OneRun, Result, load
from dpaudit.cli import app
from dpaudit.errors import InvalidInputError
from dpaudit.evidence import Evidence, register, seal, verify

DESIGN = design_of(OneRun(guesses=30))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_evidence_and_its_result_come_back(kind, tmp_path):
    evidence = KINDS[kind]()
    for name, text, whole in (
        ("evidence", seal(evidence), evidence),
        ("result", evidence.result.to_json(), evidence.result),
    ):
        file = tmp_path / f"{name}.json"
        file.write_text(text)
        found = load(file)
        assert type(found) is (Evidence if whole is evidence else Result)
        assert found.to_json() == whole.to_json()


def test_designs_registrations_and_verifications_come_back(tmp_path):
    registered = register(DESIGN, KEY)
    checked = verify(seal(KINDS[min(KINDS)]()))
    for each in (DESIGN, registered, registered.commitment, checked):
        (tmp_path / "it.json").write_text(each.to_json())
        assert load(str(tmp_path / "it.json")) == each


@pytest.mark.nightly
def test_a_plan_is_loaded_as_its_design(tmp_path):
    words = "plan --epsilon 2 --delta 1e-5 --coordinates 50 --steps 5 --rate 0.5 --json"
    printed = CliRunner().invoke(app, words.split()).stdout
    (tmp_path / "plan.json").write_text(printed)
    found = load(tmp_path / "plan.json")
    assert isinstance(found, Design)
    assert found.canaries == json.loads(printed)["design"]["canaries"]


def test_what_is_no_document_says_what_would_do(tmp_path):
    words = "bound --canaries 100 --guesses 10 --correct 9 --json"
    printed = CliRunner().invoke(app, words.split()).stdout
    np.savez(tmp_path / "state.npz", a=np.arange(3))
    cases = {
        "printed.json": (printed, "printed by a command"),
        "other.json": ('{"format": "dpaudit.dream.7"}', "no document that this"),
        "list.json": ("[1, 2]", "no document that this"),
        "text.json": ("epsilon = 2", "text.json: "),
        "later.json": ('{"format": "dpaudit.result.9"}', "no document that this"),
    }
    for name, (text, said) in cases.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(InvalidInputError, match=said):
            load(tmp_path / name)
    with pytest.raises(InvalidInputError, match=r"audit\.resume"):
        load(tmp_path / "state.npz")
    with pytest.raises(InvalidInputError, match="there is no file"):
        load(tmp_path / "nothing.json")
