"""What real trainings write before the key is revealed tells no coin.

Nor where the canaries are. Checkpoints, states, logs and what is printed; with canaries
that are records and with canaries in the sums. The second test replaces the noisy sums
by others that do not depend on the data: all that is written must then be the same
whatever the key, though the sums are read at other coordinates with each.
"""

import logging

import numpy as np
import pytest
import torch
from key_traces import traces, written
from private_runs import CANARIES, attach, private_run

from dpaudit import Key

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off")

KEYS = [Key(np.random.default_rng(seed).bytes(32)) for seed in (1, 2)]
STEPS = 4


def trained(key, folder, *, canaries, mode, before=lambda run: None):
    """Train and save everything that a user saves on the way."""
    run = private_run(canaries=canaries, mode=mode)
    before(run)
    audit = attach(run, key=key)
    logging.getLogger("training").debug("%s %s", audit, vars(audit))
    for step in range(STEPS):
        torch.manual_seed(step)
        run.train(audit.data_loader, steps=1)
        audit.save(folder / f"audit-{step}.npz")
        torch.save(
            {
                "model": run.model.state_dict(),
                "optimizer": run.optimizer.state_dict(),
                "accountant": run.engine.accountant.state_dict(),
                "random": torch.get_rng_state(),
            },
            folder / f"checkpoint-{step}.pt",
        )
    (folder / "design.json").write_text(audit.design.to_json())
    audit.detach()
    return audit


@pytest.mark.parametrize(("canaries", "mode"), [(CANARIES, "hooks"), (0, "ghost")])
def test_no_file_and_no_log_of_a_training_holds_a_trace(
    canaries, mode, tmp_path, caplog, capfd
):
    caplog.set_level(logging.DEBUG)
    trained(KEYS[0], tmp_path, canaries=canaries, mode=mode)
    files = written(tmp_path)
    assert len(files) == 2 * STEPS + 1
    out, err = capfd.readouterr()
    assert "OpacusAudit object" in caplog.text
    said = {"log": caplog.text.encode(), "printed": (out + err).encode()}
    for name, content in (files | said).items():
        assert not traces(KEYS[0], CANARIES, content), name


def overwritten(run):
    """Have the training show sums that do not depend on its data."""

    def overwrite(*_):
        torch.manual_seed(7)
        for parameter in run.optimizer.params:
            parameter.grad.normal_()

    run.optimizer.original_optimizer.register_step_pre_hook(overwrite)


@pytest.mark.parametrize(("canaries", "mode"), [(CANARIES, "hooks"), (0, "ghost")])
def test_files_are_the_same_for_every_key_if_the_sums_are(canaries, mode, tmp_path):
    found = []
    for number, key in enumerate(KEYS):
        folder = tmp_path / str(number)
        folder.mkdir()
        audit = trained(key, folder, canaries=canaries, mode=mode, before=overwritten)
        sha256 = audit.commitment.sha256.encode("utf-32-le")
        files = written(folder)
        for name in [each for each in files if each.startswith("audit")]:
            assert files[name].count(sha256) == 1
            with np.load(folder / name, allow_pickle=False) as state:
                arrays = {each: state[each].tobytes() for each in state.files}
            assert arrays.pop("commitment") == sha256
            # How the sums answered to the coins is sealed with the key.
            assert len(arrays.pop("arrival")) == 2 * 8 * CANARIES
            del arrays["arrival.steps"]
            sealed = len(arrays.pop("noise"))
            assert sealed % 8 == 0  # the same numbers of numbers
            del arrays["noise.steps"]
            # So is what they showed, as whoever made them could look up where.
            del arrays["seen number"]
            seen = [each for each in arrays if each.startswith("seen.")]
            assert len(seen) > 4
            arrays |= {each: len(arrays[each]) for each in seen}
            files[name] = arrays
        found.append(files)
    one, other = found
    assert one.keys() == other.keys()
    for name in one:
        assert one[name] == other[name], name
