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
