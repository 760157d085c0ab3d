"""The adapter for Flower conforms, with more or less noise in its strategy.

Random, with fixed seeds: the check of an adapter that conforms fails with chance 1e-6.
"""

from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)

from dpaudit import ApproxDP, Coins, Design, GaussianDP, OneRun
from dpaudit.testing.conformance_adapter import Trained, check_adapter
from dpaudit.training.flower import FlowerAudit
from dpaudit.training.flower.messages import client_reply
from dpaudit.training.layout import scattered

CLIP, CANARIES, DIMENSION, REAL = 0.5, 300, 620, 5
NOISE, ROUNDS = 8.0, 4
CLIENTS = REAL + CANARIES
CLAIM = GaussianDP(mu=ROUNDS**0.5 / NOISE)


@dataclass(frozen=True)
class FlowerTraining:
    """Flower's own strategy, told less or more noise than is claimed."""

    def train(self, *, key, noise, folder):
        np.random.seed(int.from_bytes(key.secret[:3]))  # noqa: NPY002 (Flower's noise)
        base = FedAvg(fraction_train=0.0, fraction_evaluate=0.0)
        strategy = DifferentialPrivacyServerSideFixedClipping(
            base, NOISE, CLIP, CLIENTS
        )
        arrays = ArrayRecord([np.zeros(DIMENSION)])
        audit = FlowerAudit(
            strategy,
            arrays,
            design=Design(
                canaries=CANARIES,
                rules=OneRun(guesses=100),
                claim=ApproxDP(epsilon=CLAIM.epsilon_at(1e-5), delta=1e-5),
            ),
            key=key,
        )
        strategy.noise_multiplier = noise
        wrapped, seen = audit.wrap(), []
        places = scattered(DIMENSION, CANARIES, key=key)
        for number in range(1, ROUNDS + 1):
            wrapped.configure_train(number, arrays, ConfigRecord(), None)
            (before,) = arrays.to_numpy_ndarrays()
            same = {name: Array(before + 1e-9) for name in arrays}
            others = [
                client_reply(ArrayRecord(same), {"num-examples": 1})
                for _ in range(REAL)
            ]
            arrays, _ = wrapped.aggregate_train(number, others)
            (after,) = arrays.to_numpy_ndarrays()
            seen.append((after - before)[places] * CLIENTS / CLIP)
        audit.save(folder / "state.npz")
        joined = np.tile(Coins(key=key, count=CANARIES).bits(), (ROUNDS, 1))
        return Trained(result=audit.finish(), joined=joined, seen=np.array(seen))


def check(adapter, folder):
    rng = np.random.default_rng(0)
    return check_adapter(adapter, noise=NOISE, folder=folder, rng=rng)


def test_the_adapter_for_flower_conforms(tmp_path):
    found = str(check(FlowerTraining(), tmp_path))
    assert "0.05 times the noise is refuted" in found
    assert "neither key nor coins" in found
