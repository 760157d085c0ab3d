"""What a probe of the user's own step sees, on small steps with and without a fault."""

import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.game.findings import Stage
from dpaudit.game.text.findings import fault_parts
from dpaudit.training.opacus.probe import probe_sensitivity

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")

CLIP = 1.0


class Loop:
    """A private training, and a step that tests change."""

    def __init__(self, loss_reduction="mean"):
        torch.manual_seed(0)
        self.batch = (torch.randn(12, 6), torch.randint(4, (12,)))
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
        self.model, self.optimizer, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(*self.batch), batch_size=12),
            noise_multiplier=1.0,
            max_grad_norm=CLIP,
            loss_reduction=loss_reduction,
        )

    def between(self):
        """What the loop does between backward and step."""

    def step(self, batch):
        features, labels = batch
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(features), labels).backward()
        self.between()
        self.optimizer.step()

    def probed(self):
        return probe_sensitivity(self.step, self.model, self.optimizer, self.batch)


def test_an_honest_step_has_no_fault():
    found = Loop().probed()
    assert found.faults == ()
    assert found.unseen is None
    assert found.clipped == 1.0
    assert found.change == pytest.approx(1.0, abs=1e-3)


def test_a_parameter_that_is_moved_by_way_of_its_data_is_seen():
    """torch does not count such writes, and a bias's gradient sums to 0."""
    loop = Loop()
    bias = loop.optimizer.params[-1]
    start = bias.detach().clone()
    loop.between = lambda: bias.data.add_(bias.grad, alpha=-0.1)
    found = loop.probed()
    (fault,) = found.faults
    assert fault.stage is Stage.SIDE_PATHS
    assert fault_parts(fault)[0].startswith("'2.bias' depends on the records")
    assert found.beside == ("2.bias",)
    assert torch.equal(bias, start)


def test_a_buffer_that_holds_no_number_and_stays_is_none_of_it():
    loop = Loop()
    loop.model.register_buffer("unset", torch.tensor([float("nan"), 1.0]))
    found = loop.probed()
    assert found.faults == ()
    assert found.beside == ()


def test_a_mean_that_is_told_as_a_sum_is_seen_though_no_record_changes_much():
    (fault,) = Loop(loss_reduction="sum").probed().faults
    assert fault.stage is Stage.AGGREGATION
    assert "loss_reduction" in fault_parts(fault)[3]


def test_a_batch_that_is_clipped_to_the_norm_is_seen_though_no_record_turns_it():
    loop = Loop()
    optimizer = loop.optimizer

    def clip_the_batch():
        for p in optimizer.params:
            p.summed_grad = p.grad_sample.sum(dim=0)
        sums = [p.summed_grad for p in optimizer.params]
        factor = (CLIP / nn.utils.get_total_norm(sums)).clamp(max=1.0)
        for each in sums:
            each.mul_(factor)

    optimizer.clip_and_accumulate = clip_the_batch
    found = loop.probed()
    (fault,) = found.faults
    assert fault.stage is Stage.CLIPPING
    assert "the batch is clipped" in fault_parts(fault)[3]
    assert found.change < 1.01


def test_gradients_beyond_half_precision_must_leave_a_sum_that_is_a_number():
    loop = Loop()
    clip = loop.optimizer.clip_and_accumulate

    def clip_halves():
        for p in loop.optimizer.params:
            p.grad_sample = p.grad_sample.half()
        clip()
        for p in loop.optimizer.params:
            p.summed_grad = p.summed_grad.float()

    loop.optimizer.clip_and_accumulate = clip_halves
    (fault,) = loop.probed().faults
    assert fault.stage is Stage.CLIPPING
    assert "half precision" in fault_parts(fault)[3]
