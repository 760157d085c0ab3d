"""Real Opacus runs that lose their canaries, and audits attached too late."""

from functools import partial

import pytest
import torch
from private_runs import CANARIES, design_of, private_run
from private_runs import attach as attach_to

from dpaudit.errors import InvalidRunError
from dpaudit.testing import fixed_key
from dpaudit.training.opacus import Canary, OpacusAudit

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off")

attach = partial(attach_to, accountant=None)  # whose curve takes seconds
WAYS = [("hooks", CANARIES), ("hooks", 0), ("ghost", 0)]


def scaling(optimizer, factor):
    """Have the program multiply its clipped sums before it adds noise."""
    own = optimizer.add_noise

    def scaled():
        for parameter in optimizer.params:
            parameter.summed_grad = factor * parameter.summed_grad
        own()

    optimizer.add_noise = scaled


@pytest.mark.parametrize(("mode", "canaries"), WAYS)
def test_canaries_arrive_in_an_honest_run(mode, canaries):
    """Four errors, fixed seeds but for the noise of Opacus: once in 16,000 times."""
    run = private_run(mode=mode, canaries=canaries)
    audit = attach(run)
    run.train(audit.data_loader)
    signal = audit.finish().training.signal
    assert abs(signal.slope - 1) < 4 * signal.error
    assert 0.03 < signal.error < 0.08  # 1.5 / sqrt(400 * 40 * 0.1 / 2) is 0.053
    assert signal.by_program is bool(canaries)


@pytest.mark.parametrize(("mode", "canaries"), WAYS)
@pytest.mark.parametrize("factor", [0.0, -1.0, 0.01, 0.5])
def test_a_run_that_loses_its_canaries_is_not_reassured(mode, canaries, factor):
    run = private_run(mode=mode, canaries=canaries)
    scaling(run.optimizer, factor)
    audit = attach(run)
    run.train(audit.data_loader)
    text = str(audit.finish())
    assert text.startswith("INVALID RUN\n")
    assert "slope" in text


@pytest.mark.parametrize(
    # In sums the audit put the canaries in, and cannot tell who made them larger.
    ("canaries", "verdict"),
    [(CANARIES, "claim refuted"), (0, "invalid run")],
)
def test_sums_that_are_too_large_are_the_programs_doing_or_nobodys(canaries, verdict):
    run = private_run(canaries=canaries)
    scaling(run.optimizer, 100.0)
    audit = attach(run)
    run.train(audit.data_loader)
    assert audit.finish().verdict == verdict


@pytest.mark.parametrize("told", [True, False])
def test_an_audit_attached_half_way_says_what_it_did_not_see(told):
    run = private_run()
    run.train(steps=10)
    audit = OpacusAudit(
        run.optimizer,
        run.loader,
        design=design_of(),
        key=fixed_key(bytes(32)),
        accountant=run.engine.accountant if told else None,
    )
    run.train(steps=10)
    text = audit.finish().details()
    assert text.startswith("INCONCLUSIVE\n")
    text = " ".join(text.split())
    assert "10 of 20 steps were made without the audit" in text


def test_an_audit_attached_to_another_model_is_void():
    audited, trained = private_run(), private_run(seed=1)
    audit = attach(audited)
    trained.train(steps=2)
    with pytest.raises(InvalidRunError, match="no training step has run"):
        audit.finish()


@pytest.mark.parametrize("norm", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("apart", [False, True])
def test_the_size_that_clipping_leaves_is_known(norm, apart):
    """Also where each parameter is clipped by itself, to half of the whole norm."""
    options = {"clipping": "per_layer", "clip": [0.5] * 4} if apart else {}
    run = private_run(canaries=CANARIES, **options)
    audit = attach(run, canary=Canary(norm=norm))
    run.train(audit.data_loader)
    signal = audit.finish().training.signal
    size = min(norm, 0.5 if apart else 1.0)
    assert signal.error < 0.08 / size
    assert abs(signal.slope - 1) < 4.5 * signal.error


def test_a_resumed_run_has_the_slope_of_one_that_went_through(tmp_path):
    def half(audit, run, seed):
        torch.manual_seed(seed)
        run.train(audit.data_loader, steps=10)

    run = private_run()
    audit = attach(run)
    half(audit, run, 1)
    audit.save(tmp_path / "state.npz")
    audit.detach()
    again = attach(run)
    again.resume(tmp_path / "state.npz")
    half(again, run, 2)
    resumed = again.finish().training.signal

    run = private_run()
    audit = attach(run)
    half(audit, run, 1)
    half(audit, run, 2)
    assert audit.finish().training.signal == resumed
