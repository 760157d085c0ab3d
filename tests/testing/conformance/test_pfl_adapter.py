"""The adapter for pfl conforms, with more or less noise in its mechanism.

Random, with fixed seeds: the check of an adapter that conforms fails with chance 1e-6.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from federated_runs import CLIP, Federated, accountant
from pfl.metrics import Metrics
from pfl.postprocessor.base import Postprocessor

from dpaudit import Coins
from dpaudit.errors import ConformanceError
from dpaudit.testing.conformance_adapter import Trained, check_adapter
from dpaudit.training.layout import scattered
from dpaudit.training.participation_draws import drawn

pytestmark = pytest.mark.filterwarnings(
    "ignore:To copy construct from a tensor:UserWarning"  # pfl, where it adds noise
)

CANARIES, ROUNDS, RATE = 300, 12, 0.3


def flat(stats):
    return np.concatenate([part.numpy().ravel() for part in stats.values()])


class NoisySums(Postprocessor):
    """Before the mechanism in the list, so after it on the server."""

    def __init__(self):
        self.seen = []

    def postprocess_server(self, *, stats, central_context, aggregate_metrics):
        self.seen.append(flat(stats).astype(float))
        return stats, Metrics()


class RealUsers(Postprocessor):
    """After the mechanism: adds up what real users put in, and may scale it all."""

    def __init__(self, scale):
        self.sums, self._now, self._scale = [], 0.0, scale

    def postprocess_one_user(self, *, stats, user_context):
        stats = stats.apply_elementwise(lambda part: self._scale * part)
        if user_context.user_id.startswith("user "):
            self._now = self._now + flat(stats).astype(float)
        return stats, Metrics()

    def postprocess_server(self, *, stats, central_context, aggregate_metrics):
        self.sums.append(self._now)
        self._now = 0.0
        return stats, Metrics()


@dataclass(frozen=True)
class PflTraining:
    """Rounds of a linear model; the accountant has the claimed noise."""

    scale: float = 1.0  # of clipped updates

    def train(self, *, key, noise, folder):
        told = accountant(ROUNDS, rate=RATE)
        noisy, real = NoisySums(), RealUsers(self.scale)
        audit = Federated(
            told=told,
            canaries=CANARIES,
            guesses=100,
            rounds=ROUNDS,
            divide=told.noise_parameter / noise,
            before=(noisy,),
            after=(real,),
            key=key,
            seed=int.from_bytes(key.secret[:3]),
        ).run()
        audit.save(folder / "state.npz")
        places = scattered(CANARIES + 20, CANARIES, key=key)
        seen = (np.array(noisy.seen) - np.array(real.sums))[:, places] / CLIP
        return Trained(result=audit.finish(), joined=self.joined(key), seen=seen)

    def joined(self, key):
        inside = np.zeros((ROUNDS, CANARIES), int)
        for step in range(ROUNDS):
            inside[step, drawn(key, step, canaries=CANARIES, sample_rate=RATE)] = 1
        return inside * Coins(key=key, count=CANARIES).bits()


def check(adapter, folder):
    rng = np.random.default_rng(0)
    noise = accountant(ROUNDS, rate=RATE).noise_parameter
    return check_adapter(adapter, noise=noise, folder=folder, rng=rng)


def test_the_adapter_for_pfl_conforms(tmp_path):
    found = str(check(PflTraining(), tmp_path))
    assert "0.05 times the noise is refuted" in found
    assert "neither key nor coins" in found


def test_updates_that_are_scaled_on_the_way_are_caught(tmp_path):
    with pytest.raises(ConformanceError, match="should by 1"):
        check(PflTraining(scale=0.3), tmp_path)
