"""The example does what its page says."""

import runpy
from pathlib import Path

import pytest
import torch

from dpaudit.testing import fixed_key

torch.set_num_threads(1)
EXAMPLE = runpy.run_path(
    str(Path(__file__).resolve().parents[3] / "examples" / "black_box.py")
)


@pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Optimal order is the:UserWarning",
)
@pytest.mark.parametrize(
    ("private", "controlled", "word"),
    [
        pytest.param(False, False, "claim refuted", marks=pytest.mark.nightly),
        pytest.param(True, False, "inconclusive", marks=pytest.mark.nightly),
        pytest.param(True, True, "no violation detected", marks=pytest.mark.nightly),
    ],
)
def test_training_is_refuted_without_privacy_and_silence_counts_with_controls(
    private, controlled, word, capsys
):
    torch.manual_seed(0)
    result, accuracy = EXAMPLE["train_and_audit"](
        private=private, key=fixed_key(bytes(range(32))), controlled=controlled
    )
    assert result.verdict == word
    assert accuracy > (0.75 if controlled else 0.85)  # many wrong labels cost something
    assert capsys.readouterr().out.startswith("commitment: ")
