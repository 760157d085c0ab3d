"""Stages of an Opacus run besides canaries: noise, batches, side effects, probes."""

from itertools import chain, count, islice, repeat

import numpy as np
import pytest
import torch
from private_runs import (
    CANARIES,
    KEY,
    NOISE,
    RECORDS,
    STEPS,
    UNPROBED,
    attach,
    plant_noise,
    private_run,
    step_of,
)
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import weights_digest
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentence, sentences
from dpaudit.game.verdict import Verdict
from dpaudit.training.opacus import audit_opacus, side_effects
from dpaudit.training.opacus.bit_sums import BitSums
from dpaudit.training.opacus.sampler import SampledBatches

# Opacus warns of noise that is not secure, which tests do not need to be.
pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")


def trained(audit, step, steps=STEPS):
    for batch in islice(chain.from_iterable(repeat(audit.data_loader)), steps):
        step(batch)
    return audit.finish()


def how(result):
    return {check.stage: check.status for check in result.training.coverage.checks}


# Probes


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mode", "canaries"),
    [
        ("ghost", 0),
        ("hooks", 0),
        ("hooks", CANARIES),
        ("functorch", CANARIES),
    ],
)
def test_a_probed_audit_is_the_audit_without_probes(mode, canaries):
    found = []
    for probes in (False, True):
        run = private_run(mode=mode, canaries=canaries)
        audit, step = attach(run, model=run.model, **UNPROBED), step_of(run)
        torch.manual_seed(1)

        seen = count()

        def probing(batch, audit=audit, step=step, probes=probes, seen=seen):
            if probes and next(seen) in (0, 7):
                assert not audit.probe(step, records=2).faults
            step(batch)

        result = trained(audit, probing)
        weights = torch.cat([p.detach().reshape(-1) for p in run.optimizer.params])
        found.append((weights, result.p_value, result.training.signal, result))
    plain, probed = found
    assert torch.equal(plain[0], probed[0])
    assert plain[1:3] == probed[1:3]
    assert how(plain[3])[Stage.GRADIENTS] is Status.ACCEPTED
    assert how(probed[3])[Stage.GRADIENTS] is Status.INSPECTED
    assert probed[3].verdict == plain[3].verdict


@pytest.mark.nightly
def test_a_fault_that_a_probe_found_outlives_a_checkpoint(tmp_path):
    def standardised(pixels):
        return (pixels - pixels.mean(0)) / (pixels.std(0) + 1e-5)

    run = private_run()
    audit, step = attach(run, model=run.model), step_of(run, standardised)
    assert audit.probe(step).faults
    for batch in list(audit.data_loader)[:5]:
        step(batch)
    audit.save(tmp_path / "state")
    accountant = run.engine.accountant
    audit.detach()
    again = attach(run, model=run.model)
    assert len(accountant.history) == 1
    again.resume(tmp_path / "state")
    result = trained(again, step, steps=35)
    assert result.verdict == "fault found"
    (fault,) = result.faults
    assert fault.stage is Stage.GRADIENTS
    assert "before '0'" in fault_parts(fault)[3]
    assert "40 batches" in sentences(result.training.coverage.checks[0].findings) or (
        how(result)[Stage.SAMPLING] is Status.INSPECTED
    )


def test_a_probe_needs_the_model_and_three_records():
    run = private_run()
    audit = attach(run)
    with pytest.raises(InvalidInputError, match="model=model"):
        audit.probe(step_of(run))
    audit.detach()
    audit = attach(run, model=run.model)
    with pytest.raises(InvalidInputError, match="3 records or more"):
        audit.probe(step_of(run), (torch.randn(2, 30), torch.zeros(2, dtype=int)))
    audit.detach()


# Noise


def test_a_step_that_the_wrapped_optimizer_does_not_make_is_refused():
    """Nobody would see what it leaves; better said before training than after it."""
    run = private_run()

    def step(batch):
        run.optimizer.zero_grad()
        run.criterion(run.model(batch[0]), batch[1]).backward()
        if run.optimizer.pre_step():
            with torch.no_grad():
                for parameter in run.optimizer.params:
                    parameter.sub_(0.01 * parameter.grad.sign())

    audit = attach(run, model=run.model)
    with pytest.raises(InvalidInputError, match=r"call optimizer\.step\(\)"):
        audit.probe(step)


def test_the_noise_that_is_read_is_the_noise_that_was_added(monkeypatch):
    run = private_run(clip=2.0)
    audit = attach(run)
    seen, added = [], []
    watch = audit._audit.watch_noise
    monkeypatch.setattr(
        audit._audit, "watch_noise", lambda *a: seen.append(a) or watch(*a)
    )
    add = run.optimizer.add_noise

    def spied():
        before = [p.summed_grad.clone() for p in run.optimizer.params]
        add()
        joined = [
            p.summed_grad - b for p, b in zip(run.optimizer.params, before, strict=True)
        ]
        after = [p.grad - b for p, b in zip(run.optimizer.params, before, strict=True)]
        added.append([(a - j).reshape(-1) for a, j in zip(after, joined, strict=True)])

    run.optimizer.add_noise = spied
    run.train(steps=3)
    for (noise, stated, *_), parts in zip(seen, added, strict=True):
        assert stated == NOISE
        assert len(noise) <= 256
        every = torch.cat(parts).numpy() / 2.0
        # Each number that was read is among those that were added.
        near = np.abs(every[np.newaxis] - noise[:, np.newaxis]).min(axis=1)
        assert near.max() < 1e-5
    audit.detach()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("none in a layer", "no noise"),
        ("half", "a bug that scales all noise"),
        ("same", "seeded in every step"),
        ("none in a step", "the noise of step 8 is missing"),
    ],
)
def test_noise_that_is_wrong_is_named(fault, words):
    run = private_run()
    plant_noise(run.optimizer, fault)
    audit = attach(run)
    result = trained(audit, step_of(run))
    assert any(words in sentence(each) for each in result.faults), result.faults


def normalised(run, *, inside, raw=0.0):
    """A step that scales noisy sums to a norm of 10, with something of the raw ones."""
    optimizer = run.optimizer

    def rework():
        for each in optimizer.params:
            each.grad += raw * each.summed_grad
        norm = torch.stack([each.grad.norm() for each in optimizer.params]).norm()
        for each in optimizer.params:
            each.grad = each.grad * (10 / norm)

    if inside:  # of what adds the noise
        add = optimizer.add_noise
        optimizer.add_noise = lambda: (add(), rework())

    def step(batch):
        optimizer.zero_grad()
        run.criterion(run.model(batch[0]), batch[1]).backward()
        if inside:
            optimizer.step()
        elif optimizer.pre_step():
            rework()
            optimizer.original_optimizer.step()

    return step


@pytest.mark.parametrize(
    "inside", [True, pytest.param(False, marks=pytest.mark.nightly)]
)
def test_noisy_sums_may_be_rescaled_before_they_are_applied(inside, tmp_path):
    """What depends on noisy sums only is private, and is read as it was noised."""
    run = private_run()
    step = normalised(run, inside=inside)
    audit = attach(run, model=run.model)
    found = audit.probe(step)
    assert found.reworked
    assert not found.faults
    audit.save(tmp_path / "state")
    audit.detach()

    resumed = attach(run, model=run.model)
    resumed.resume(tmp_path / "state")
    result = trained(resumed, step)
    assert not result.faults, result.faults
    assert result.verdict is not Verdict.INVALID_RUN, sentences(result.sanity_checks)
    assert "probe.reworked" in {each.code for each in result.training.remarks}


@pytest.mark.nightly
def test_noisy_sums_that_are_reworked_with_raw_ones_are_a_fault():
    run = private_run()
    step = normalised(run, inside=True, raw=1.0)
    audit = attach(run, model=run.model)
    assert audit.probe(step).reworked
    result = trained(audit, step)
    assert any(each.stage is Stage.SIDE_PATHS for each in result.faults)
    assert "probe.reworked" not in {each.code for each in result.training.remarks}


@pytest.mark.parametrize("told", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_noise_is_compared_with_the_accountants_multiplier_of_each_step(told):
    """Not with the optimizer's own: that falls to a half, which is told or is not."""
    run = private_run()
    audit, step, steps = attach(run), step_of(run), count(1)

    def falling(batch):
        if next(steps) == STEPS // 2:
            run.optimizer.noise_multiplier = NOISE / 2
        step(batch)

    if not told:
        run.optimizer.step_hook = None
        run.engine.accountant.history = [(NOISE, 0.1, STEPS)]
    said = [fault_parts(fault)[0] for fault in trained(audit, falling).faults]
    found = any("x the configured" in each for each in said if "step" in each)
    assert found is not told


# Batches


def loader_of(sampler):
    data = TensorDataset(torch.arange(RECORDS))
    return DataLoader(data, batch_sampler=sampler)


class Poisson:
    """Batches of a seeded Poisson sampler, the same in every epoch if it says so."""

    def __init__(self, rate, *, batches=10, anew=False):
        self.rate, self.batches, self.anew = rate, batches, anew
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return self.batches

    def __iter__(self):
        rng = np.random.default_rng(5) if self.anew else self.rng
        for _ in range(self.batches):
            yield np.flatnonzero(rng.random(RECORDS) < self.rate).tolist()


class Views(Poisson):
    """Every record that joins is two rows of its batch."""

    def __iter__(self):
        for batch in super().__iter__():
            yield [*batch, *batch]


class Shuffled(Poisson):
    """Batches of one size."""

    def __iter__(self):
        yield from self.rng.permutation(RECORDS).reshape(self.batches, -1).tolist()


@pytest.mark.parametrize(
    ("sampler", "said", "cause"),
    [
        (Poisson(0.1), None, ""),
        (Poisson(0.13), "more often than is accounted for", "another batch size"),
        (Shuffled(0.1), "not Poisson samples", "fixed size"),
        (Poisson(0.1, anew=True), "batch 12 holds the same records as batch 2", "anew"),
        (Views(0.1), "several times in one batch", "several views of each record"),
    ],
)
def test_batches_are_held_against_the_rate_accounted(sampler, said, cause):
    loader = loader_of(sampler)
    sampled = SampledBatches(loader)
    for _ in range(6):
        assert len(list(loader)) == 10
    sampled.detach()
    assert loader.batch_sampler is sampler
    (look,), faults = sampled.sampling.found(0.1)
    assert (look.stage, look.status) == (Stage.SAMPLING, Status.INSPECTED)
    assert "60 batches" in sentence(look)
    if said is None:
        assert not faults
    else:
        assert said in fault_parts(faults[0])[0]
        assert cause in fault_parts(faults[0])[3]


# Other ways out


def changed(run, change):
    """Return the result of a run in which something else changes too, unprobed."""
    step = step_of(run)

    def both(batch):
        step(batch)
        change(batch)

    return trained(attach(run, model=run.model, **UNPROBED), both)


def test_what_changes_beside_the_optimizer_keeps_a_verdict_from_being_clean():
    run = private_run()
    run.model.register_buffer("seen", torch.zeros(1))
    result = changed(run, lambda batch: run.model.seen.add_(len(batch[0])))
    assert result.verdict == "inconclusive"
    assert "seen changed 40 times beside the private optimizer" in result.reason
    assert "these changed as well: seen" in sentences(
        result.training.coverage.checks[[*Stage].index(Stage.SIDE_PATHS)].findings
    )


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool),
        *(torch.complex64, torch.uint8),
    ],
)
def test_every_number_of_a_tensor_counts_wherever_it_lies(dtype):
    whole = (torch.arange(1001) % 2).to(dtype)
    shapes = whole, whole[1:], whole[3:10], whole[0], whole[::3], whole[:1000]
    for tensor in (*shapes, whole[:1000].view(25, 40).t()):
        held, every = {"weight": tensor}, slice(None)
        mark = side_effects._Mark("weight", held, "weight", tensor, every, idle=False)
        before = int(mark.numbers().sum())
        flat = tensor.clone().reshape(-1)
        for place in {0, len(flat) // 2, len(flat) - 1}:
            held["weight"] = flat.clone()
            held["weight"][place] = 1 - int(flat[place].real)
            assert mark.replaced()
            assert int(mark.numbers().sum()) != before
        held["weight"] = flat
        assert mark.replaced()
        assert not mark.replaced()
        assert int(mark.numbers().sum()) == before


def test_a_kept_view_of_the_bits_shows_later_values_in_any_layout():
    whole = torch.zeros(25, 40)
    for tensor in (whole, whole.t(), whole[:, ::2], whole[1:, 1:], whole[0, 1:8]):
        mark = side_effects._Mark("w", {}, "w", tensor, slice(None, None, 3), idle=True)
        before = int(mark.numbers().sum())
        tensor.data[(0,) * tensor.dim()] += 1
        assert int(mark.numbers().sum()) != before
        own = torch.zeros_like(tensor)
        tensor.data = own
        assert int(mark.numbers().sum()) == 0
        own[(0,) * tensor.dim()] += 1
        assert int(mark.numbers().sum()) != 0


@pytest.mark.parametrize("sizes", [(3, 0, 1), (20_000, 5, 30_000, 1), (16_385,), ()])
def test_joined_sums_are_those_of_each_tensor(sizes):
    rng = np.random.default_rng(0)
    most = np.iinfo(np.int64).max
    tensors = [torch.from_numpy(rng.integers(-most, most, size)) for size in sizes]
    found, order = BitSums().of(tensors)
    values = torch.cat([*found, torch.empty(0, dtype=torch.int64)]).tolist()
    sums = dict(zip(order, values, strict=True))
    assert sums == {k: int(each.sum()) for k, each in enumerate(tensors)}


def test_weights_written_past_torchs_count_are_noticed():
    run = private_run()
    weight = run.optimizer.params[0]
    result = changed(run, lambda _: weight.data.mul_(0.999))
    assert result.verdict == "inconclusive"
    assert "0.weight changed" in result.reason


def test_another_optimizer_is_noticed_and_a_private_one_is_not():
    run = private_run()
    other = nn.Parameter(torch.zeros(3))
    beside = torch.optim.Adam([other])
    other.grad = torch.ones(3)
    result = changed(run, lambda _: beside.step())
    assert "optimizer Adam changed 40 times" in result.reason
    run = private_run()
    plain = changed(run, lambda _: None)
    assert plain.verdict == "no violation detected"
    assert "nothing but the private optimizer" in sentences(
        plain.training.coverage.checks[[*Stage].index(Stage.SIDE_PATHS)].findings
    )


@pytest.mark.nightly
def test_a_probe_clears_what_records_do_not_decide():
    run = private_run()
    run.model.register_buffer("steps", torch.zeros(1))
    plain = step_of(run)

    def step(batch):
        run.model.steps.add_(1)
        plain(batch)

    audit = attach(run, model=run.model)
    assert audit.probe(step).beside == ("steps",)
    assert run.model.steps == 0
    result = trained(audit, step)
    assert result.verdict == "no violation detected"
    assert run.model.steps == STEPS


def test_without_the_model_coverage_says_what_would_look():
    run = private_run()
    result = trained(attach(run), step_of(run))
    checks = {check.stage: check for check in result.training.coverage.checks}
    assert checks[Stage.SIDE_PATHS].status is Status.NOT_CHECKED
    assert "model=model" in sentences(checks[Stage.SIDE_PATHS].findings)
    assert "audit.probe(step)" in sentences(checks[Stage.CLIPPING].findings)
    assert checks[Stage.NOISE_INDEPENDENCE].status is Status.INSPECTED
    assert checks[Stage.NOISE_SCALE].status is Status.TESTED
    assert KEY.secret.hex() not in result.to_json()


# The shortest way.


@pytest.mark.parametrize(
    "mode", ["hooks", pytest.param("ghost", marks=pytest.mark.nightly)]
)
def test_the_shortest_way_plans_publishes_probes_and_judges(mode):
    run, said = private_run(mode=mode), []
    step = step_of(run)
    audit = audit_opacus(
        run.engine,
        run.model,
        run.optimizer,
        run.loader,
        epochs=3,
        delta=1e-5,
        step=step,
        coordinates=CANARIES,
        announce=said.append,
    )
    assert "30 steps" in said[0]
    assert audit.commitment.sha256 in said[1]
    assert "called about 170 times" in said[2]
    assert "at most 1 C" in said[3]
    result = trained(audit, step, 30)
    assert result.training.accountant is not None
    assert how(result)[Stage.CLIPPING] is Status.INSPECTED
    assert how(result)[Stage.AGGREGATION] is Status.NOT_APPLICABLE  # nothing in parts
    weights = run.model.state_dict()
    assert result.training.weights_sha256 == weights_digest(weights)


def test_weights_in_bfloat16_have_a_digest_as_well():
    half = torch.arange(3, dtype=torch.bfloat16)
    known = {weights_digest([each]) for each in (half, half + 1, half.float())}
    assert len(known) == 3


def test_weights_that_numpy_cannot_read_have_no_digest_and_end_no_audit():
    run = private_run()
    eighths = torch.zeros(3, dtype=torch.float8_e4m3fn)
    run.model._module.register_buffer("eighths", eighths)
    rng = np.random.default_rng(0)
    watched = side_effects.SideEffects(run.model, run.optimizer, rng)
    watched.end()
    assert watched._digest() == {}
    del run.model._module.eighths
    watched.end()
    assert list(watched._digest()) == ["sha256"]


def test_an_engine_is_an_accountant_and_nothing_else_is():
    run = private_run()
    attach(run, accountant=run.engine).detach()
    with pytest.raises(InvalidInputError, match="accountant must be"):
        attach(run, accountant="rdp")
