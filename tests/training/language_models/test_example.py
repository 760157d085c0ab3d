"""The example does what its page says, on a smaller model and fewer records.

Seeds and keys are fixed. Were they others, honest training would be refuted by either
observer with chance at most alpha, 0.05, and in truth hardly ever: the claim of the
steps is kept with room, and the final model shows a fraction of it. A third of the
noise is told from all of it by a standard error of 0.02; without privacy included
canaries are learnt by heart, and all guesses but a few are right.
"""

import copy
import runpy
import sys
from pathlib import Path

import pytest
import torch

from dpaudit import ThreatModel, Verdict
from dpaudit.testing import fixed_key

torch.set_num_threads(1)
EXAMPLE = runpy.run_path(
    str(Path(__file__).resolve().parents[3] / "examples" / "language_model.py")
)
KEY = fixed_key(bytes(range(32)))
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def prepared():
    torch.manual_seed(0)
    return EXAMPLE["prepare"](canaries=500, width=32, steps=40)


def results_of(prepared, **more):
    network, rows, canaries = prepared
    network = copy.deepcopy(network)
    torch.manual_seed(1)
    return EXAMPLE["fine_tune"](network, rows[:200], canaries, key=KEY, **more)


@pytest.mark.nightly
def test_an_honest_fine_tuning_is_refuted_by_nobody(prepared, capsys):
    every_step, final = results_of(prepared)
    assert every_step.verdict == "no violation detected", every_step.reason
    assert final.verdict in ("no violation detected", "inconclusive")
    assert every_step.design.threat_model is ThreatModel.KNOWN_RECORDS
    assert final.design.threat_model is ThreatModel.FINAL_MODEL
    assert 0.5 < every_step.bound.epsilon_lower < 4.0
    assert "publish" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_third_of_the_noise_is_refuted_by_who_sees_every_step(prepared):
    every_step, final = results_of(prepared, factor=3.0)
    assert every_step.verdict is Verdict.CLAIM_REFUTED
    assert final.verdict is not Verdict.CLAIM_REFUTED  # three times nearly nothing
    assert final.bound.epsilon_lower > 1.0


@pytest.mark.nightly
def test_without_privacy_the_final_model_is_enough(prepared):
    (final,) = results_of(prepared, plain=True)
    assert final.verdict is Verdict.CLAIM_REFUTED
    assert final.bound.epsilon_lower > 3.0


@pytest.mark.nightly
def test_a_model_of_ones_own_is_taken_by_its_name(tmp_path, monkeypatch, capsys):
    """Here a folder: the same call takes the name of a model in the hub."""
    public, _ = EXAMPLE["texts"](None)
    tokenizer = EXAMPLE["small_tokenizer"](public, reserved=60)
    rows = EXAMPLE["records"](public, tokenizer)
    model = EXAMPLE["small_model"](tokenizer, rows, width=16, steps=2)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    for number in range(4):
        written = "".join(public[number : number + 2])
        (tmp_path / f"{number}.txt").write_text(written)
    words = f"example --model {tmp_path / 'model'} --text {tmp_path} --plain"
    monkeypatch.setattr(sys, "argv", words.split())
    with pytest.raises(SystemExit):
        EXAMPLE["main"]()
    said = capsys.readouterr().out
    assert "## Privacy audit" in said
    assert "Perplexity: " in said
