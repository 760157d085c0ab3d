"""The Opacus audit: canaries of the right size, nothing else disturbed, no peeking."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from private_runs import (
    CANARIES,
    KEY,
    NOISE,
    STEPS,
    Eye,
    Fetched,
    design_of,
    private_run,
    slope,
)
from private_runs import attach as with_accountant
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import ApproxDP, Coins, Key, Ranking, ThreatModel, Verdict
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.shuffling import Shuffling
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Stage
from dpaudit.game.setting import CanaryInsertion, InsertionPoint, Setting
from dpaudit.game.text.findings import sentence
from dpaudit.game.text.results import not_exercised
from dpaudit.testing import fixed_key
from dpaudit.training.audit import TrainingAudit
from dpaudit.training.opacus import (
    Canary,
    OpacusAudit,
    audit_opacus,
    plan_opacus,
    with_canaries,
)
from dpaudit.training.opacus.insertion import canary_layout
from dpaudit.training.participation_draws import ParticipationDraws, drawn

pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Optimal order is the:UserWarning",
)

attach = partial(with_accountant, accountant=None)  # whose curve takes seconds


def flat(result):
    """Return what printing says, as one line."""
    return " ".join(result.details().split())


def unchecked(result):
    return ", ".join(not_exercised(result))


def sums_joined(steps=STEPS, rate=0.1):
    bits = Coins(key=KEY, count=CANARIES).bits()
    inside = np.zeros((steps, CANARIES))
    for step in range(steps):
        inside[step, drawn(KEY, step, canaries=CANARIES, sample_rate=rate)] = 1
    return inside * bits


def check_slope(inside, seen, clip):
    """Four standard errors: fixed seeds, passed by all but 1 in 16,000 of them."""
    rise, error, noise = slope(inside, seen)
    assert abs(rise - clip) < 4 * error
    assert error < 0.1 * clip
    assert noise == pytest.approx(NOISE * clip, rel=0.05)


@pytest.mark.parametrize(
    ("mode", "clip", "reduction"),
    [
        ("hooks", 1.0, "mean"),
        ("hooks", 3.0, "sum"),
        ("ew", 1.0, "mean"),
        ("functorch", 1.0, "mean"),
        ("ghost", 0.5, "mean"),
    ],
)
def test_a_sum_rises_by_the_clipping_norm_where_a_canary_joins(mode, clip, reduction):
    run = private_run(mode=mode, clip=clip, reduction=reduction)
    audit = attach(run)
    divisor = 1 if reduction == "sum" else 20
    eye = Eye(run.optimizer, coordinates=CANARIES, divisor=divisor)
    run.train()
    result = audit.finish()
    check_slope(sums_joined(), eye.seen, clip)
    assert "per-example gradients, clipping" in unchecked(result)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["hooks", "ew", "functorch"])
@pytest.mark.parametrize(("norm", "rise"), [(1.0, 1.0), (5.0, 1.0), (0.5, 0.5)])
def test_a_record_is_clipped_like_any_record(mode, norm, rise, monkeypatch):
    if norm != 1.0 and mode != "hooks":
        mode = "hooks"  # the clipping is the same code
    run = private_run(mode=mode, clip=2.0, canaries=CANARIES)
    audit = with_accountant(run, canary=Canary(norm=norm))
    eye = Eye(run.optimizer, coordinates=CANARIES, divisor=60)
    fetched = Fetched(run, monkeypatch)
    run.train(audit.data_loader)
    result = audit.finish()
    included = Coins(key=KEY, count=CANARIES).bits()
    inside = np.array(fetched.joined) * included
    assert inside.sum() > 0.9 * STEPS * CANARIES * 0.1 / 2
    found, error, noise = slope(inside, eye.seen)
    assert abs(found - 2.0 * rise) < 4 * error
    assert noise == pytest.approx(2.0 * NOISE, rel=0.05)
    assert unchecked(result).startswith("per-example gradients")
    assert ("clipping" in unchecked(result)) is (norm <= 1)
    assert "sampling" not in unchecked(result)


def test_records_come_in_several_sizes_and_are_cut_to_one():
    run = private_run(canaries=CANARIES)
    clip, largest = run.optimizer.clip_and_accumulate, []

    def spy():
        rows = [p.grad_sample.flatten(1) for p in run.optimizer.params]
        clip()
        largest.extend(torch.cat(rows, 1).abs().max(1).values.tolist())

    # What is put in, seen between the audit and Opacus' own clipping.
    run.optimizer.clip_and_accumulate = spy
    audit = attach(run)
    run.train(audit.data_loader)
    result = audit.finish()
    seen = np.array(largest)
    written = seen[seen > 1.2]  # real gradients have no such coordinate
    assert written.min() < 1.35
    assert 9 < written.max() <= 10
    assert 0.4 < np.mean(np.log(written / 1.25) / np.log(8)) < 0.6
    assert abs(result.training.signal.slope - 1) < 4 * result.training.signal.error
    assert "at 1.25 to 10 times the clipping norm" in flat(result)


@pytest.mark.parametrize(("mode", "records"), [("hooks", True), ("ghost", False)])
def test_virtual_batches_are_logical_steps(mode, records, monkeypatch):
    run = private_run(mode=mode, canaries=CANARIES if records else 0)
    audit = attach(run)
    divisor = 60 if records else 20
    eye = Eye(run.optimizer, coordinates=CANARIES, divisor=divisor)
    fetched = Fetched(run, monkeypatch) if records else None
    with BatchMemoryManager(
        data_loader=audit.data_loader,
        max_physical_batch_size=divisor // 3,
        optimizer=run.optimizer,
    ) as loader:
        run.train(loader, steps=4 * STEPS)
    result = audit.finish()
    steps = len(eye.seen)
    assert result.training.steps == steps
    assert 25 < steps < 4 * STEPS / 2
    if fetched is None:
        inside = sums_joined(steps)
    else:
        # The loader fetches a virtual batch ahead of none: each step has its own.
        inside = np.array(fetched.joined) * Coins(key=KEY, count=CANARIES).bits()
    check_slope(inside, eye.seen, 1.0)


def test_a_canary_spread_over_parameters_keeps_its_norm(monkeypatch):
    run = private_run(canaries=100)
    audit = attach(run, canaries=100, canary=Canary(norm=3.0, spread=2))
    eye = Eye(run.optimizer, coordinates=100, divisor=30, spread=2)
    fetched = Fetched(run, monkeypatch, canaries=100)
    run.train(audit.data_loader)
    audit.finish()
    inside = np.array(fetched.joined) * Coins(key=KEY, count=100).bits()
    rise, error, noise = slope(inside, eye.seen)
    assert abs(rise - 1.0) < 4 * error
    assert noise == pytest.approx(NOISE, rel=0.05)


@pytest.mark.parametrize("canaries", [0, CANARIES])
def test_the_accountant_and_the_optimizer_are_as_without_an_audit(canaries):
    run = private_run(canaries=canaries)
    run.train()
    plain = run.engine.get_epsilon(1e-5)

    run = private_run(canaries=canaries)
    optimizer = run.optimizer
    before = optimizer.add_noise, optimizer.clip_and_accumulate
    size = optimizer.expected_batch_size
    audit = with_accountant(run)
    run.train(audit.data_loader)
    audit.finish()
    assert run.engine.get_epsilon(1e-5) == plain
    assert (optimizer.add_noise, optimizer.clip_and_accumulate) == before
    assert optimizer.expected_batch_size == size
    assert not optimizer.original_optimizer._optimizer_step_pre_hooks


def test_a_wrapper_that_was_there_before_is_there_after():
    run = private_run()
    run.optimizer.add_noise = own = lambda: None
    audit = attach(run)
    with pytest.raises(InvalidRunError, match="no training step has run"):
        audit.finish()
    audit.detach()
    assert run.optimizer.add_noise is own


@pytest.mark.parametrize("canaries", [0, CANARIES])
def test_honest_noise_is_not_refuted_and_hardly_any_noise_is(canaries):
    results = {}
    for factor in (1.0, 0.05):
        run = private_run(canaries=canaries)
        audit = with_accountant(run)
        own = run.optimizer.add_noise

        def less(own=own, optimizer=run.optimizer, factor=factor):
            told = optimizer.noise_multiplier
            optimizer.noise_multiplier = told * factor
            own()
            optimizer.noise_multiplier = told

        run.optimizer.add_noise = less
        run.train(audit.data_loader)
        results[factor] = audit.finish()
    assert not results[1.0].refuted
    assert results[0.05].refuted
    assert results[0.05].p_value < 2e-3
    assert results[0.05].bound.epsilon_lower > 2.0


def test_the_result_says_what_was_read():
    run = private_run()
    audit = with_accountant(run)
    run.train(steps=2)
    result = audit.finish()
    assert result.design.setting == Setting(
        framework="Opacus",
        per_coordinate=1,
        rate=0.1,
        noise=1.5,
        insertion=CanaryInsertion(point=InsertionPoint.GRADIENT_SUM, norm=1.0),
    )
    assert audit.commitment.holds_for(KEY, result.design)
    epsilon = result.training.accountant.claim.epsilon_at(1e-5)
    assert epsilon == pytest.approx(run.engine.get_epsilon(1e-5), rel=0.05)


def test_an_accountant_that_missed_steps_is_told_of():
    run = private_run()
    audit = with_accountant(run)
    run.train(steps=6)
    run.engine.accountant.history = [(NOISE, 0.05, 4)]
    said = flat(audit.finish())
    assert "not every step was accounted for (6 steps; expected: 4)" in said
    assert "sampling rate differs from the accountant's at step 1: 0.1, and" in said


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_the_same_key_and_seeds_give_the_same_result(kind):
    def once():
        run = private_run(kind=kind)
        audit = with_accountant(run)
        schedule = torch.optim.lr_scheduler.StepLR(run.optimizer, step_size=2)
        run.train(steps=5, schedule=schedule)
        return audit.finish()

    assert once() == once()


def test_frozen_layers_hold_no_canary():
    run = private_run(freeze=True)
    audit = with_accountant(run)
    run.train(steps=3)
    assert not audit.finish().refuted
    layout = canary_layout(
        run.optimizer.params, coordinates=CANARIES, spread=1, key=KEY
    )
    held = {run.optimizer.params[part.array].shape for part in layout.parts}
    assert held <= {torch.Size([40, 30]), torch.Size([40])}


def test_accumulated_batches_are_one_step(monkeypatch):
    run = private_run(canaries=CANARIES, poisson=False)
    run.model.allow_grad_accumulation()
    audit = attach(run, knows_real_sums=False)
    eye = Eye(run.optimizer, coordinates=CANARIES, divisor=120)
    fetched = Fetched(run, monkeypatch)
    for _ in range(2 * STEPS // 10):
        for i, (pixels, labels) in enumerate(audit.data_loader):
            run.criterion(run.model(pixels), labels).backward()
            if i % 2:
                run.optimizer.step()
                run.optimizer.zero_grad()
    assert audit.finish().training.steps == STEPS
    inside = np.array(fetched.joined) * Coins(key=KEY, count=CANARIES).bits()
    rise, error, _ = slope(inside, eye.seen)
    assert abs(rise - 1.0) < 4 * error


def test_a_resumed_run_gives_the_same_transcript(tmp_path):
    run = private_run()
    audit = with_accountant(run)
    run.train(steps=10)
    audit.save(tmp_path / "state.npz")
    random = torch.get_rng_state()
    weights = {name: value.clone() for name, value in run.model.state_dict().items()}
    counted = [tuple(each) for each in run.engine.accountant.history]
    run.train(steps=10)
    whole = audit.finish()

    run = private_run()
    audit = with_accountant(run)
    with pytest.raises(InvalidRunError, match="had counted 10 steps when"):
        audit.resume(tmp_path / "state.npz")
    run.engine.accountant.history = counted
    audit.resume(tmp_path / "state.npz")
    run.model.load_state_dict(weights)
    torch.set_rng_state(random)
    run.train(steps=10)
    resumed = audit.finish()
    assert resumed.transcript.to_json() == whole.transcript.to_json()
    assert resumed.training.steps == 20


def test_sums_accuse_no_sampler_that_they_did_not_run_through():
    """Another loader, of a higher rate than the accountant knows, is not believed."""
    run, other = private_run(), private_run()
    other.loader.batch_sampler.sample_rate = 1.0
    eye = Eye(run.optimizer, coordinates=CANARIES, divisor=20)
    audit = OpacusAudit(
        run.optimizer,
        other.loader,
        design=design_of(),
        key=KEY,
        accountant=run.engine.accountant,
    )
    run.train()
    result = audit.finish()
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "it is not known which batch 40 of 40 steps used" in flat(result)
    check_slope(sums_joined(), eye.seen, 1.0)  # drawn at 0.1 all the same


def test_the_state_holds_no_key_and_fits_no_other_audit(tmp_path):
    run = private_run()
    audit = attach(run)
    run.train(steps=3)
    audit.save(tmp_path / "state.npz")
    written = (tmp_path / "state.npz").read_bytes()
    assert KEY.secret not in written
    assert KEY.secret.hex().encode() not in written
    with np.load(tmp_path / "state.npz", allow_pickle=False) as file:
        assert all(file[name].dtype.kind in "iufUb" for name in file.files)
    other = attach(private_run(), key=fixed_key(bytes(32)))
    with pytest.raises(InvalidRunError, match="belongs to another audit"):
        other.resume(tmp_path / "state.npz")
    with pytest.raises(InvalidInputError, match="holds no state of an audit"):
        other.resume(__file__)


def test_no_coin_can_be_reached_from_what_the_guesser_holds(reached):
    run = private_run()
    audit = attach(run)
    run.train(steps=3)
    found = reached(audit._audit.likelihood)
    assert not any(isinstance(each, Key | Coins) for each in found)
    assert len(found) > 10
    held = vars(audit._reader).values()
    assert not any(
        isinstance(thing, TrainingAudit | ParticipationDraws) for thing in held
    )


@pytest.mark.nightly
def test_a_plan_reads_the_run_and_its_audit_is_what_it_says():
    run = private_run()
    plan = plan_opacus(
        run.optimizer, run.loader, steps=STEPS, delta=1e-5, coordinates=300
    )
    assert (plan.training.noise, plan.training.rate) == (NOISE, 0.1)
    audit = OpacusAudit(run.optimizer, run.loader, design=plan.design(), key=KEY)
    run.train()
    result = audit.finish()
    assert result.training.accountant is None
    assert f"the plan's forecast was {plan.expected.mean:.1f}"[:27] in flat(result)
    # An accountant of Opacus' own says about the same.
    assert plan.claim.epsilon == pytest.approx(run.engine.get_epsilon(1e-5), rel=0.05)


def test_ranked_guesses_are_judged_too():
    run = private_run()
    design = design_of()
    ranked = type(design)(
        canaries=CANARIES, rules=Ranking(guesses=100), claim=design.claim
    )
    audit = OpacusAudit(
        run.optimizer,
        run.loader,
        design=ranked,
        key=KEY,
        accountant=run.engine.accountant,
    )
    run.train(steps=4)
    result = audit.finish()
    assert result.training.family is None
    assert "Note the accountant's whole curve was not tested" in flat(result)


def test_a_step_past_opacus_voids_the_audit():
    """Without clipping and noise nothing is audited, and nothing may look as if."""
    run = private_run(mode="ghost")
    audit = attach(run)
    base = run.optimizer.original_optimizer
    pixels, labels = next(iter(run.loader))
    run.criterion(run.model(pixels), labels).backward()
    base.step()  # the training run is not disturbed
    with pytest.raises(InvalidRunError, match="0 steps went through Opacus"):
        audit.finish()


@pytest.mark.parametrize("canaries", [0, CANARIES])
def test_one_audit_at_a_time(canaries):
    run = private_run(canaries=canaries)
    before = run.optimizer.add_noise
    audit = attach(run)
    with pytest.raises(InvalidRunError, match="already has an audit attached"):
        attach(run)
    audit.detach()
    assert run.optimizer.add_noise == before
    assert not run.optimizer.original_optimizer._optimizer_step_pre_hooks
    run.train(steps=2)  # as if nothing had been
    audit = attach(run)
    run.train(audit.data_loader, steps=2)
    assert audit.finish().training.steps == 2


def test_a_wrapper_that_came_later_stays_and_canaries_do_not():
    run = private_run()
    audit = attach(run)
    inner = run.optimizer.add_noise
    called = []

    def later():
        called.append(1)
        inner()

    run.optimizer.add_noise = later
    run.train(steps=2)
    audit.finish()
    assert run.optimizer.add_noise is later
    run.optimizer.noise_multiplier = 0.0
    eye = Eye(run.optimizer, coordinates=CANARIES, divisor=20)
    torch.manual_seed(1)
    run.train(steps=1)
    assert len(called) == 3
    assert np.abs(eye.seen).max() < 0.9  # a canary would show as 1


@pytest.mark.parametrize("canaries", [0, CANARIES])
def test_parameters_frozen_after_attaching_void_the_audit(canaries):
    run = private_run(canaries=canaries)
    audit = attach(run)
    run.train(audit.data_loader, steps=2)
    next(run.model.parameters()).requires_grad_(False)
    run.train(audit.data_loader, steps=2)
    result = audit.finish()
    assert result.verdict is Verdict.INVALID_RUN
    assert result.training.steps == 2
    assert "trains other parameters" in flat(result)


@pytest.mark.parametrize("canaries", [0, CANARIES])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_are_read(canaries, dtype):
    run = private_run(canaries=canaries, wrap=lambda model: model.to(dtype))
    audit = attach(run)
    loader = ((pixels.to(dtype), labels) for pixels, labels in audit.data_loader)
    run.train(loader, steps=5)
    assert not audit.finish().refuted


@pytest.mark.parametrize("loss", ["sum", "cross-entropy"])
def test_rows_that_share_memory_are_written_apart(loss):
    """Opacus gives both biases one tensor; with a plain sum, all rows one number."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(30, 4), nn.Linear(30, 4)

        def forward(self, x):
            return self.one(x) + self.two(x)

    torch.manual_seed(0)
    model = Two()
    data = with_canaries(TensorDataset(torch.randn(50, 30)), canaries=100)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=DataLoader(data, batch_size=50),
        noise_multiplier=0.0,
        max_grad_norm=1.0,
        loss_reduction="sum",
        grad_sample_mode="ew",
    )
    seen, clip = [], optimizer.clip_and_accumulate

    def look():
        flat = [p.grad_sample.reshape(len(p.grad_sample), -1) for p in optimizer.params]
        seen.append(torch.cat(flat, dim=1).norm(dim=1))
        clip()

    optimizer.clip_and_accumulate = look
    audit = OpacusAudit(
        optimizer, loader, design=design_of(100), key=KEY, canary=Canary(norm=3.0)
    )
    noted = []
    for (pixels,) in audit.data_loader:
        noted.append(len(pixels))
        optimizer.zero_grad()
        out = model(pixels)
        total = out.sum() if loss == "sum" else out.logsumexp(1).sum()
        total.backward()
        optimizer.step()
    audit.detach()
    norms = torch.cat(seen).numpy()
    # A canary's row is 3 or 0, whole; real rows are neither.
    assert np.isclose(norms, 3.0).sum() > 10
    assert np.isclose(norms, 0.0).sum() > 10
    real = norms[~np.isclose(norms, 3.0) & ~np.isclose(norms, 0.0)]
    assert len(real) > 10
    assert len(np.unique(real.round(3))) > 10


def test_a_parameter_that_is_one_number_can_hold_a_canary():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(30, 4)
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * self.inner(x)

    torch.manual_seed(0)
    model = Scaled()
    data = with_canaries(
        TensorDataset(torch.randn(50, 30), torch.randint(4, (50,))), canaries=125
    )
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=DataLoader(data, batch_size=50),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="functorch",
    )
    audit = OpacusAudit(optimizer, loader, design=design_of(125), key=KEY)
    for pixels, labels in audit.data_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pixels), labels).backward()
        optimizer.step()
    assert audit.finish().training.steps == len(loader)


@pytest.mark.nightly
@pytest.mark.parametrize("canaries", [0, CANARIES])
def test_clipping_that_adapts_is_read_at_its_own_norm(canaries):
    run = private_run(
        canaries=canaries,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.5,
        max_clipbound=10.0,
        min_clipbound=0.01,
        unclipped_num_std=2.0,
    )
    audit = with_accountant(run)
    run.train(audit.data_loader, steps=10)
    norm = float(run.optimizer.max_grad_norm)
    assert abs(norm - 1.0) > 0.05  # it did adapt
    assert not audit.finish().refuted


def test_clipping_of_each_parameter_is_remarked_upon():
    run = private_run(canaries=CANARIES, clipping="per_layer", clip=[0.5] * 4)
    audit = attach(run)
    run.train(audit.data_loader, steps=2)
    assert "Note parameters are clipped apart" in flat(audit.finish())


def test_a_step_that_fails_midway_is_forgotten():
    run = private_run()
    audit = attach(run)
    scale, failed = run.optimizer.scale_grad, []

    def fails_once():
        if not failed and audit._audit.likelihood.steps == 2:
            failed.append(1)
            raise RuntimeError("out of memory")
        scale()

    run.optimizer.scale_grad = fails_once
    with pytest.raises(RuntimeError, match="out of memory"):
        run.train(steps=5)
    run.optimizer.zero_grad()
    run.train(steps=5)
    assert audit._inserter.step == 8  # no draw is used twice
    assert audit.finish().training.steps == 7


def test_canaries_inside_another_data_set_are_refused():
    run = private_run(canaries=10)
    whole = torch.utils.data.Subset(run.loader.dataset, range(100))
    with pytest.raises(InvalidInputError, match="canaries, but inside another"):
        OpacusAudit(
            private_run().optimizer,
            DataLoader(whole, batch_sampler=run.loader.batch_sampler),
            design=design_of(10, guesses=5),
            key=KEY,
        )


def test_an_audit_cannot_be_pickled_as_it_holds_its_key():
    audit = attach(private_run())
    with pytest.raises(InvalidRunError, match="key and cannot be pickled"):
        pickle.dumps(audit)


def test_a_state_of_another_rank_is_refused(tmp_path):
    run = private_run()
    audit = attach(run)
    run.train(steps=2)
    audit.save(tmp_path / "state.npz")
    audit._ranks.rank, audit._ranks.world = 1, 2  # as on another rank
    with pytest.raises(InvalidRunError, match="written by another rank"):
        audit.resume(tmp_path / "state.npz")


def test_a_history_that_is_no_claim_costs_the_claim_only():
    run = private_run()
    audit = with_accountant(run)
    run.train(steps=2)
    run.engine.accountant.history = [(0.0, 0.1, 2)]
    result = audit.finish()
    assert result.training.accountant is None
    assert "the accountant's history is no claim that can be tested" in flat(result)


def test_another_claim_than_that_of_the_history_can_be_tested():
    run = private_run()
    audit = attach(run)
    run.train(steps=2)
    claim = ApproxDP(epsilon=3.0, delta=1e-6)
    assert audit.finish(claim=claim).training.accountant.claim == claim


def test_a_small_canary_is_small():
    run = private_run()
    run.optimizer.noise_multiplier = 0.0
    audit = attach(run, canary=Canary(norm=0.25))
    layout = canary_layout(
        run.optimizer.params, coordinates=CANARIES, spread=1, key=KEY
    )
    added, own = [], run.optimizer.add_noise
    before = {}

    def look():
        for part in layout.parts:
            summed = run.optimizer.params[part.array].summed_grad
            before[part.array] = summed.reshape(-1)[part.offsets].clone()
        own()
        for part in layout.parts:
            summed = run.optimizer.params[part.array].summed_grad
            flat = summed.reshape(-1)[part.offsets]
            added.append((flat - before[part.array]).numpy())

    run.optimizer.add_noise = look
    run.train(steps=1)
    audit.finish()
    found = np.concatenate(added)
    inside = sums_joined(1)[0]
    np.testing.assert_allclose(found, 0.25 * inside, atol=1e-6)


def test_what_cannot_be_audited_is_refused_and_leaves_nothing_behind():
    run = private_run()
    before = run.optimizer.add_noise
    with pytest.raises(InvalidInputError, match="there are only 1404"):
        attach(run, canaries=1405)
    with pytest.raises(InvalidInputError, match="for the clipping to cut"):
        attach(run, canary=Canary(norm=2.0))
    with pytest.raises(InvalidInputError, match="several norms"):
        attach(run, canary=Canary(norm=1.0, least=0.5))
    with pytest.raises(InvalidInputError, match="must be the one that make_private"):
        OpacusAudit(
            run.optimizer.original_optimizer, run.loader, design=design_of(), key=KEY
        )
    with pytest.raises(InvalidInputError, match="cannot be divided"):
        OpacusAudit(
            run.optimizer,
            run.loader,
            design=design_of(per_coordinate=3),
            key=KEY,
        )
    with pytest.raises(InvalidInputError, match="must be the Poisson loader"):
        attach(private_run(poisson=False))
    with pytest.raises(InvalidInputError, match="keeps no per-record gradients"):
        attach(private_run(mode="ghost", canaries=CANARIES))
    with pytest.raises(InvalidInputError, match="given canaries=10, but the design"):
        attach(private_run(canaries=10))
    assert not run.optimizer.original_optimizer._optimizer_step_pre_hooks
    assert run.optimizer.add_noise == before


@pytest.mark.parametrize("believed", [None, Poisson(rate=0.1)])
def test_of_shuffled_batches_the_real_part_is_not_told(believed):
    """It would tell how many canaries are in a batch, whatever the guesser believes."""
    run = private_run(canaries=CANARIES, poisson=False)
    with pytest.raises(
        InvalidInputError, match=r"shuffles: .*pass knows_real_sums=False"
    ):
        attach(run, sampling=believed)
    audit = attach(run, sampling=believed, knows_real_sums=False)
    assert audit.design.threat_model is ThreatModel.ALL_ITERATES
    audit.detach()
    # What counts is how the loader samples: here it draws by Poisson sampling.
    poisson = private_run(canaries=CANARIES)
    shuffling = Shuffling(batches=10, records_per_batch=12)
    told = attach(poisson, sampling=shuffling)
    assert told.design.threat_model is ThreatModel.KNOWN_RECORDS
    told.detach()


def test_batches_that_the_audit_did_not_see_void_it():
    run = private_run(canaries=CANARIES)
    audit = attach(run)
    run.train(steps=1)
    with pytest.raises(InvalidRunError, match=r"train on audit\.data_loader"):
        audit.finish()


def test_a_batch_that_was_skipped_voids_the_audit():
    run = private_run(canaries=CANARIES)
    audit = attach(run)

    class EverySecond:
        def __iter__(self):
            return (b for i, b in enumerate(audit.data_loader) if i % 2)

    run.train(EverySecond(), steps=4)
    with pytest.raises(InvalidRunError, match="none skipped"):
        audit.finish()


def test_a_model_without_records_in_a_batch_goes_on():
    torch.manual_seed(0)
    run = private_run(canaries=CANARIES)
    run.loader.batch_sampler.sample_rate = 1e-3  # about every second batch is empty
    audit = attach(run)
    run.train(audit.data_loader, steps=12)
    assert audit.finish().training.steps == 12


def test_every_canary_has_a_coordinate_of_its_own():
    parameters = [nn.Parameter(torch.empty(3, 4)), nn.Parameter(torch.empty(5))]
    layout = canary_layout(parameters, coordinates=17, spread=1, key=KEY)
    found = sorted(
        (i, int(offset))
        for i, part in enumerate(layout.parts)
        for offset in part.offsets
    )
    assert found == [(0, i) for i in range(12)] + [(1, i) for i in range(5)]
    assert sorted(np.concatenate([part.which for part in layout.parts])) == list(
        range(17)
    )


def test_noise_that_a_known_seed_repeats_is_noticed():
    """Whoever knows the seed takes the noise off; the system's seeds are 53 bits."""
    for seed, noticed in ((7, True), (None, False), ("own", False)):
        run = private_run()
        if isinstance(seed, int):
            torch.manual_seed(seed)
        else:
            torch.seed()
        if seed == "own":
            run.optimizer.generator = torch.Generator()
            run.optimizer.generator.seed()
        audit = attach(run, accountant=None)
        run.train(steps=3)
        remarks = map(sentence, audit.finish().training.remarks)
        found = [each for each in remarks if "seed" in each]
        assert len(found) == noticed, seed
        assert all("a fixed seed: whoever knows the seed" in each for each in found)
        assert not any("7" in each for each in found)


def test_a_generator_that_nobody_seeded_is_a_fault():
    run = private_run()
    run.optimizer.generator = torch.Generator()
    audit = attach(run, accountant=None)
    run.train(steps=3)
    (found,) = (e for e in audit.finish().faults if e.code == "noise.default_seed")
    assert found.stage is Stage.NOISE_INDEPENDENCE


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"delta": 0.0}, "delta must be above 0: Gaussian noise is private at no"),
        ({"delta": 1.5}, "delta must be in"),
        ({"coordinates": 10**6}, "coordinates must be at most"),
        ({"epochs": 0}, "epochs must be a whole number >= 1"),
        ({"epochs": None}, "epochs=..., or steps=..., and not both"),
        ({"steps": 10}, "epochs=..., or steps=..., and not both"),
        ({"step": 3}, "step must be a function of a batch, got step=3"),
        ({"key": bytes(32)}, "key must be a Key, got key of type bytes"),
    ],
)
def test_what_is_passed_is_checked_before_anything_is_attached(wrong, said):
    run = private_run()
    given = {"epochs": 1, "delta": 1e-5, "coordinates": 50, "announce": lambda _: None}
    given |= wrong
    with pytest.raises(InvalidInputError, match=said):
        audit_opacus(run.engine, run.model, run.optimizer, run.loader, **given)
    attach(run).detach()  # which refuses an optimizer that is ridden on


def test_the_configuration_of_each_step_is_recorded():
    """And what is detected is forecast from it, noise that changes and all."""
    run = private_run(clip=2.0)
    audit = with_accountant(run)
    run.train(steps=20)
    run.optimizer.noise_multiplier = 3.0
    run.train(steps=10)
    result = audit.finish()
    first, then = result.training.configuration.schedule
    assert (first.steps, first.noise, first.clip) == (20, NOISE, 2.0)
    assert (then.steps, then.noise, then.clip) == (10, 3.0, 2.0)
    assert first.rate == then.rate == pytest.approx(0.1)
    assert result.training.detectable.factor > 1


def test_canaries_that_are_no_clipping_norm_have_no_forecast():
    run = private_run()
    audit = with_accountant(run, canary=Canary(norm=0.5))
    run.train(steps=5)
    why_not = audit.finish().training.detectable.why_not
    assert why_not.code == "forecast.smaller"
    assert "smaller in the sums" in sentence(why_not)


def test_the_number_that_opacus_reports_stands_beside_the_one_that_is_proved():
    run = private_run()
    audit = with_accountant(run)
    run.train(steps=5)
    result = audit.finish()
    reported = run.engine.get_epsilon(1e-5)
    proved = result.claim_test.claim.epsilon_at(1e-5)
    assert result.training.reported == reported
    assert f"Opacus reports {reported:.3g}; the steps" in flat(result)
    assert f"in its history prove {proved:.3g}" in flat(result)
