"""The example does what its page says."""

import runpy
from pathlib import Path

import pytest
import torch

from dpaudit import Key

torch.set_num_threads(1)
EXAMPLE = runpy.run_path(
    str(Path(__file__).resolve().parents[3] / "examples" / "black_box.py")
)


@pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Optimal order is the:UserWarning",
)
@pytest.mark.parametrize("private", [False, True])
def test_training_without_privacy_is_refuted_and_training_with_it_is_not(
    private, capsys
):
    torch.manual_seed(0)
    result, accuracy = EXAMPLE["train_and_audit"](
        private=private, key=Key(bytes(range(32)))
    )
    assert result.claim_test.refuted is not private
    assert accuracy > 0.85
    assert capsys.readouterr().out.startswith("commitment: ")
