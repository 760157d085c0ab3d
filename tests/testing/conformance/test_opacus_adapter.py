"""The adapter for Opacus conforms, on real trainings with more or less noise.

Random, with fixed seeds: the check of an adapter that conforms fails with chance 1e-6.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from private_runs import CANARIES, NOISE, Eye, attach, private_run

from dpaudit import Coins
from dpaudit.errors import ConformanceError
from dpaudit.testing.conformance_adapter import Trained, check_adapter
from dpaudit.training.participation_draws import drawn

STEPS = 20
pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Optimal order is the:UserWarning",
)


@dataclass(frozen=True)
class OpacusTraining:
    """A small model; the accountant is always told the claimed noise."""

    divisor: int = 20  # the expected batch, by which Opacus divides its sums

    def train(self, *, key, noise, folder):
        run = private_run()
        self.add(noise, run.optimizer)
        audit = attach(run, key=key)
        eye = Eye(run.optimizer, coordinates=CANARIES, divisor=self.divisor, key=key)
        run.train(steps=STEPS)
        audit.save(folder / "state.npz")
        return Trained(
            result=audit.finish(), joined=self.joined(key), seen=np.array(eye.seen)
        )

    def add(self, noise, optimizer):
        """Have the optimizer add so much noise, whatever it tells its accountant."""
        add_noise = optimizer.add_noise

        def planted():
            told, optimizer.noise_multiplier = optimizer.noise_multiplier, noise
            add_noise()
            optimizer.noise_multiplier = told

        optimizer.add_noise = planted

    def joined(self, key):
        inside = np.zeros((STEPS, CANARIES), int)
        for step in range(STEPS):
            inside[step, drawn(key, step, canaries=CANARIES, sample_rate=0.1)] = 1
        return inside * Coins(key=key, count=CANARIES).bits()


def check(adapter, folder):
    rng = np.random.default_rng(0)
    return check_adapter(adapter, noise=NOISE, folder=folder, rng=rng)


def test_the_adapter_for_opacus_conforms(tmp_path):
    found = str(check(OpacusTraining(), tmp_path))
    assert "0.05 times the noise is refuted" in found
    assert "neither key nor coins" in found


def test_a_sum_read_in_other_units_is_caught(tmp_path):
    with pytest.raises(ConformanceError, match="should by 1"):
        check(OpacusTraining(divisor=10), tmp_path)
