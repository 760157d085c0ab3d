"""What is in ``lab/findings``, as audits: left out by ``-m "not undisclosed"``."""

import pytest
from opacus.schedulers import ExponentialGradClip
from private_runs import UNPROBED, attach, private_run

from dpaudit.game.findings import Stage

pytestmark = [
    pytest.mark.undisclosed,
    pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning"),
]


def test_a_scheduler_of_the_norm_under_ghost_clipping_is_a_fault():
    run = private_run(mode="ghost")
    schedule = ExponentialGradClip(run.optimizer, gamma=0.7)
    audit = attach(run, model=run.model, accountant=None, **UNPROBED)
    for pixels, labels in audit.data_loader:
        run.optimizer.zero_grad()
        run.criterion(run.model(pixels), labels).backward()
        run.optimizer.step()
        schedule.step()
    (fault,) = audit.finish().faults
    assert fault.stage is Stage.CLIPPING


def test_adaptive_clipping_divides_by_the_number_of_records():
    """The noisy count of unclipped gradients is divided by the raw size of the batch.

    So with equal noisy sums the next clipping norm is another with one record fewer.
    """
    adaptive = {
        "clipping": "adaptive",
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 10.0,
        "min_clipbound": 0.1,
        "unclipped_num_std": 2.0,
    }
    run = private_run(**adaptive)
    audit = attach(run, model=run.model)

    def step(batch):
        pixels, labels = batch
        run.optimizer.zero_grad()
        run.criterion(run.model(pixels), labels).backward()
        run.optimizer.step()

    audit.probe(step)
    audit.detach()
    (fault,) = audit.faults
    assert fault.code == "interference.held"
    assert fault.numbers["kind"] == "fewer"
