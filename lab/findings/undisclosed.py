"""Cases that show a fault of another project which is not public yet.

They are no part of the sets of ``dpaudit_lab.held_out``: their results stay in this
folder, and their tests are marked ``undisclosed``.
"""

from functools import partial

from opacus.schedulers import ExponentialGradClip
from torch import nn

from dpaudit_lab.held_out.alterations import batches_of, case
from dpaudit_lab.held_out.program import Case, Program, private

FAULTS: list[Case] = []

fault = partial(case, FAULTS, undisclosed=True)


def _ghost_with_norm_schedule(seed: int, gamma: float) -> Program:
    """Return a program with ghost clipping whose norm falls from epoch to epoch."""
    p = private(seed, grad_sample_mode="ghost", criterion=nn.CrossEntropyLoss())
    schedule = ExponentialGradClip(p.optimizer, gamma=gamma)

    def train() -> None:
        for _ in range(10):
            for batch in batches_of(p, 1):
                p.step(batch)
            schedule.step()

    p.train = train
    return p


@fault(
    breaks="H2",
    true_epsilon="472: a record adds up to 1, and in epoch e = 0 to 9 the noise is "
    "for 0.7 ** e.",
)
def ghost_clipping_with_norm_schedule(seed: int) -> Program:
    """Lower the clipping norm by Opacus' schedule, by 0.7 an epoch, in ghost mode."""
    return _ghost_with_norm_schedule(seed, 0.7)


@fault(
    breaks="H2",
    true_epsilon="6.2: a record adds up to 1, and in epoch e = 0 to 9 the noise is for "
    "0.9 ** e.",
)
def ghost_clipping_with_slow_norm_schedule(seed: int) -> Program:
    """Lower the clipping norm by Opacus' schedule, by 0.9 an epoch, in ghost mode."""
    return _ghost_with_norm_schedule(seed, 0.9)


@fault(
    breaks="H4",
    true_epsilon="Up to 2.19, where 2.00 is accounted for: the noisy count is divided "
    "by the raw size of the batch, so that it changes by up to 1, and not by 1/2 as is "
    "accounted for. The worst case has all other gradients clipped, or none.",
)
def adaptive_clipping(seed: int) -> Program:
    """Let Opacus adapt the clipping norm by its noisy count."""
    return private(
        seed,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=10.0,
        min_clipbound=0.1,
        unclipped_num_std=5.0,
    )
