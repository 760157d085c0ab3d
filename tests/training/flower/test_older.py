"""The same audit around Flower's older strategies.

Random, with fixed seeds: four standard errors are passed by all but 1 in 16,000.
"""

import numpy as np
import pytest
from federation import CLIP, KEY, design, model, opened
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import strategy as older
from flwr.server.client_manager import SimpleClientManager

from dpaudit import Coins
from dpaudit.errors import InvalidInputError
from dpaudit.training.any_loop import scattered
from dpaudit.training.flower import FlowerAudit, Nodes
from dpaudit.training.flower.older import fit_result

REAL, CANARIES = 10, 200


def fixed(kind):
    return getattr(older, kind)(older.FedAvg(), 0.05, CLIP, REAL + CANARIES)


def adaptive(kind):
    found = getattr(older, kind)(
        older.FedAvg(), 0.05, REAL + CANARIES, initial_clipping_norm=CLIP
    )
    found.clip_norm_lr = 1e-9  # so that the norm, and with it the scale, stays
    return found


STRATEGIES = [
    fixed("DifferentialPrivacyServerSideFixedClipping"),
    fixed("DifferentialPrivacyClientSideFixedClipping"),
    adaptive("DifferentialPrivacyServerSideAdaptiveClipping"),
    adaptive("DifferentialPrivacyClientSideAdaptiveClipping"),
]


def train(audit, rounds=3, failures=()):
    strategy, arrays, rng = audit.wrap_older(), model(), np.random.default_rng(6)
    np.random.seed(7)  # noqa: NPY002 (what Flower draws its noise from)
    flat = [np.concatenate([each.ravel() for each in arrays])]
    for number in range(1, rounds + 1):
        sent = ndarrays_to_parameters(arrays)
        strategy.configure_fit(number, sent, SimpleClientManager())
        results = [
            (
                None,
                fit_result(
                    [
                        (each + 1e-3 * rng.normal(size=each.shape)).astype(each.dtype)
                        for each in arrays
                    ],
                    1,
                    {"norm_bit": False},
                ),
            )
            for _ in range(REAL)
        ]
        found, _ = strategy.aggregate_fit(number, results, list(failures))
        if found is not None:
            arrays = parameters_to_ndarrays(found)
        flat.append(np.concatenate([each.ravel() for each in arrays]))
    return np.diff(np.array(flat, float), axis=0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_canary_moves_the_mean_by_the_norm_over_the_clients(strategy):
    strategy.strategy.min_available_clients = 0
    strategy.strategy.min_fit_clients = 0
    audit = FlowerAudit(strategy, model(), design=design(), key=KEY)
    moved = train(audit)[:, scattered(660, CANARIES, seed=0)]
    seen = moved * (REAL + CANARIES) / CLIP
    coins = Coins(key=KEY, count=CANARIES).bits()
    inside, outside = seen[:, coins == 1], seen[:, coins == 0]
    apart = inside.mean() - outside.mean()
    error = np.hypot(inside.std() / inside.size**0.5, outside.std() / outside.size**0.5)
    assert abs(apart - 1) < 4 * error < 0.1
    assert audit.finish().training.arrival.slope == pytest.approx(apart, abs=0.01)


def test_a_failure_releases_nothing():
    strategy = STRATEGIES[0]
    audit = FlowerAudit(strategy, model(), design=design(), key=KEY)
    train(audit, rounds=1, failures=[RuntimeError("gone")])
    assert audit.rounds == 0


def test_each_kind_of_strategy_has_its_own_wrapper():
    audit = FlowerAudit(STRATEGIES[0], model(), design=design(), key=KEY)
    with pytest.raises(InvalidInputError, match=r"use wrap_older\(\)"):
        audit.wrap()
    newer, _ = opened()
    with pytest.raises(InvalidInputError, match=r"use wrap\(\)"):
        newer.wrap_older()
    nodes = FlowerAudit(STRATEGIES[0], model(), design=design(), key=KEY, way=Nodes())
    with pytest.raises(InvalidInputError, match=r"pass way=Replies\(\)"):
        nodes.wrap_older()
