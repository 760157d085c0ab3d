"""How much one user changes the sum, through pfl's own postprocessors."""

import numpy as np
import pytest
import torch
from federated_runs import CLIP, KEY, Net
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.context import UserContext
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from pfl.stats import MappedVectorStatistics

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Stage
from dpaudit.game.text.findings import fault_parts
from dpaudit.training.layout import scattered
from dpaudit.training.pfl.layout import StatisticsLayout
from dpaudit.training.pfl.probing import Update, probe_users

SIZES = {"a": (3, 4), "b": (5,)}


def stats(seed, scale=0.05):
    rng = np.random.default_rng(seed)
    return MappedVectorStatistics(
        {
            name: torch.tensor(scale * rng.normal(size=size), dtype=torch.float32)
            for name, size in SIZES.items()
        }
    )


@pytest.fixture(scope="module", autouse=True)
def torch_is_used():
    """Make a model, from which pfl learns it."""
    net = Net(10)
    PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1))


@pytest.fixture(scope="module")
def updates():
    return [
        Update.of(
            stats(i), UserContext(num_datapoints=1 + i % 3, seed=i, user_id=f"user {i}")
        )
        for i in range(8)
    ]


class Unclipped(GaussianMechanism):
    """Forgets to clip."""

    def constrain_sensitivity(self, statistics, **_):
        return statistics, Metrics()


def central(kind=GaussianMechanism, times=1.0):
    return CentrallyAppliedPrivacyMechanism(kind(times * CLIP, 1.0))


@pytest.mark.parametrize(
    "before", [(), (WeightByUser(),), (WeightByDatapoints(),)], ids=str
)
def test_a_clipped_user_changes_the_sum_by_the_bound(updates, before):
    found = probe_users([*before, central()], updates, norm=CLIP)
    assert not found.faults
    assert found.change == pytest.approx(1.0, abs=1e-3)
    assert found.clipped == 1
    assert found.coupling == pytest.approx(0.0, abs=1e-4)


def test_weights_after_clipping_are_named(updates):
    found = probe_users([central(), WeightByDatapoints()], updates, norm=CLIP)
    what, measured, *_ = fault_parts(found.faults[0])
    assert "a user's weight multiplies its update" in what
    assert "16 data points changes the sum by 16 clipping bounds" in measured
    assert found.change == pytest.approx(3.0, abs=1e-2)  # users have 3 points at most


@pytest.mark.parametrize(
    ("mechanism", "cause"),
    [(central(Unclipped), "no clipping"), (central(times=3.0), "clipping to 3 C")],
    ids=["not clipped", "another bound"],
)
def test_users_who_are_not_cut_to_the_bound_are_named(updates, mechanism, cause):
    found = probe_users([mechanism], updates, norm=CLIP)
    assert found.faults[0].stage is Stage.CLIPPING
    assert cause in fault_parts(found.faults[0])[3]


def test_updates_are_copies(updates):
    sent = stats(3)
    kept = Update.of(sent, updates[0].context)
    sent["a"].zero_()
    assert np.abs(kept.tensors["a"]).min() > 0
    assert kept.norm() == pytest.approx(
        np.sqrt(sum(np.square(part).sum() for part in kept.tensors.values()))
    )


def test_a_canary_is_put_and_read_at_its_coordinate():
    layout = StatisticsLayout(stats(0), 9, key=KEY)
    coordinates = scattered(layout.layout.dimension, 9, key=KEY)
    assert {*layout.layout.array.tolist()} == {0, 1}
    for place, coordinate in enumerate(coordinates):
        sent = stats(1)
        layout.put(sent, place, 2.5)
        flat = np.concatenate([sent[name].numpy().ravel() for name in SIZES])
        assert np.flatnonzero(flat).tolist() == [coordinate]
        assert layout.read(sent)[place] == 2.5
    with pytest.raises(InvalidRunError, match="other names or shapes"):
        layout.read(MappedVectorStatistics({"a": torch.zeros(3, 4)}))
    with pytest.raises(InvalidInputError, match="MappedVectorStatistics"):
        layout.read({"a": torch.zeros(3, 4)})
