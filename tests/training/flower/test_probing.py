"""What one client changes in the mean, by Flower's own strategies and faulty ones."""

import numpy as np
import pytest
from federation import CLIP, model, opened, private, train
from flwr.app import Array, ArrayRecord
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
)

from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentences
from dpaudit.training.flower import probe_clients

FIXED = DifferentialPrivacyServerSideFixedClipping
KINDS = [
    (FIXED, []),
    (DifferentialPrivacyServerSideAdaptiveClipping, []),
    (DifferentialPrivacyClientSideFixedClipping, [fixedclipping_mod]),
    (DifferentialPrivacyClientSideAdaptiveClipping, [adaptiveclipping_mod]),
]


class UnclippedClients(FIXED):
    """Adds noise, and clips nothing."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = self.strategy.aggregate_train(server_round, list(replies))
        return self._add_noise_to_aggregated_arrays(arrays), metrics


class ClippedOnceAdded(FIXED):
    """Clips the mean to C / N, and not each client."""

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        before = self.current_arrays.to_numpy_ndarrays()
        moved = arrays.to_numpy_ndarrays()
        length = np.sqrt(
            sum(np.square(a - b).sum() for a, b in zip(moved, before, strict=True))
        )
        factor = min(1.0, self.clipping_norm / len(replies) / length)
        clipped = [b + factor * (a - b) for a, b in zip(moved, before, strict=True)]
        named = {k: Array(v) for k, v in zip(arrays, clipped, strict=True)}
        return self._add_noise_to_aggregated_arrays(ArrayRecord(named)), metrics


@pytest.mark.parametrize(("kind", "mods"), KINDS)
def test_equal_weights_are_found_in_order(kind, mods):
    found = probe_clients(private(50, kind=kind), model(), examples=[3], mods=mods)
    assert not found.faults
    assert found.change == pytest.approx(1.0, abs=0.001)
    assert found.clipped == 1.0


@pytest.mark.parametrize(("kind", "mods"), KINDS)
def test_weights_by_examples_are_named(kind, mods):
    found = probe_clients(private(50, kind=kind), model(), examples=[1, 20], mods=mods)
    (fault,) = found.faults
    assert fault.stage is Stage.AGGREGATION
    _, measured, _, cause = fault_parts(fault)
    assert "weighed by their number of examples" in cause
    assert "noise is for equal weights" in cause
    assert "5.93 times" in measured  # 20 / 27 of the weight, where 1 / 8 is due
    assert fault.probability == 0


def test_clients_that_are_not_clipped_are_named():
    (fault,) = probe_clients(private(50, kind=UnclippedClients), model()).faults
    assert fault.stage is Stage.CLIPPING
    assert "no clipping" in fault_parts(fault)[3]


def test_clipping_after_aggregation_is_found():
    (fault,) = probe_clients(private(50, kind=ClippedOnceAdded), model()).faults
    assert fault.stage is Stage.CLIPPING
    assert "the batch is clipped" in fault_parts(fault)[3]


def test_a_server_optimizer_below_the_noise_is_found():
    strategy = FIXED(FedAdam(), 1.0, CLIP, 50)
    assert probe_clients(strategy, model(), examples=[1]).faults


def test_clipping_on_clients_is_not_looked_at_without_their_mods():
    kind = DifferentialPrivacyClientSideFixedClipping
    found = probe_clients(private(50, kind=kind), model(), examples=[1])
    assert not found.faults
    checks = {check.stage: check.status for check in found.checks}
    assert checks[Stage.CLIPPING] is Status.NOT_CHECKED


def test_a_probe_leaves_the_strategy_as_it_was_and_is_in_the_result():
    audit, strategy = opened()
    before = strategy.noise_multiplier, strategy.clipping_norm
    audit.probe(examples=[1])
    assert (strategy.noise_multiplier, strategy.clipping_norm) == before
    audit.probe(examples=[1, 4])
    train(audit, rounds=1)
    result = audit.finish()
    checks = {check.stage: check for check in result.training.coverage.checks}
    assert "at most 1 C" in sentences(checks[Stage.CLIPPING].findings)
    (fault,) = result.faults
    assert fault.stage is Stage.AGGREGATION


@pytest.mark.parametrize(
    "arguments", [{"clients": 2}, {"examples": []}, {"examples": [0]}]
)
def test_what_makes_no_round_is_refused(arguments):
    with pytest.raises(InvalidInputError):
        probe_clients(FIXED(FedAvg(), 1.0, CLIP, 50), model(), **arguments)
