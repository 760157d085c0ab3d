"""The probe of a step: quiet if a step is honest, loud if not, and without a trace."""

import random
from collections import UserDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn import functional as F  # noqa: N812 (as everybody does)
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentence
from dpaudit.training.opacus import probe, probe_sensitivity
from dpaudit.training.probe import probe_sum

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")

N, WIDE, CLASSES = 8, 6, 4


@dataclass
class Program:
    """A private training: its step, and a batch of it."""

    model: Any
    optimizer: Any
    criterion: Any
    batch: Any
    engine: PrivacyEngine
    step: Any = None

    def probe(self, **options):
        return probe_sensitivity(
            self.step, self.model, self.optimizer, self.batch, records=3, **options
        )


def net(*more, drop=0.0):
    first, last = nn.Linear(WIDE, 10), nn.Linear(10, CLASSES)
    return nn.Sequential(first, nn.Tanh(), nn.Dropout(drop), *more, last)


def records(count=N):
    return torch.randn(count, WIDE), torch.randint(0, CLASSES, (count,))


def plain(model, batch, criterion):
    return criterion(model(batch[0]), batch[1])


def private(
    module=None,
    loss=plain,
    *,
    mode="hooks",
    clip=1.0,
    reduction="mean",
    batch=None,
    kind=torch.optim.SGD,
    after=lambda: None,
    **options,
):
    torch.manual_seed(0)
    module = net() if module is None else module
    criterion = nn.CrossEntropyLoss(reduction=reduction)
    engine = PrivacyEngine()
    made = engine.make_private(
        module=module,
        optimizer=kind(module.parameters(), lr=0.1),
        criterion=criterion,
        data_loader=DataLoader(TensorDataset(torch.zeros(10 * N, 1)), batch_size=N),
        noise_multiplier=1.0,
        max_grad_norm=clip,
        loss_reduction=reduction,
        grad_sample_mode=mode,
        **options,
    )
    found = Program(
        made[0],
        made[1],
        made[2] if mode == "ghost" else criterion,
        records() if batch is None else batch,
        engine,
    )

    def step(given):
        found.optimizer.zero_grad()
        loss(found.model, given, found.criterion).backward()
        found.optimizer.step()
        after()

    found.step = step
    return found


def noised(model, batch, criterion):
    """Add noise to records by all three generators of random numbers."""
    x, y = batch
    x = x + 0.1 * torch.randn_like(x)
    x = x * torch.from_numpy(np.random.uniform(0.5, 2, (len(x), 1))).float()  # noqa: NPY002
    return criterion(model(x * random.choice([1.0, 0.9])), y)


def by_length(model, batch, criterion):
    """Draw as many numbers as a record has in front."""
    x, y, long = batch
    kept = torch.stack([F.pad(torch.rand(k) > 0.3, (0, WIDE - k)) for k in long])
    return criterion(model(x * kept), y)


def autocast(model, batch, criterion):
    with torch.autocast("cpu", torch.bfloat16):
        out = model(batch[0])
    return criterion(out.float(), batch[1])


class Tied(nn.Module):
    """Words in and out by one matrix; its head is of a class of its own, or not."""

    def __init__(self, *, own):
        super().__init__()
        self.words, self.mid = nn.Embedding(20, WIDE), nn.Linear(WIDE, WIDE)
        self.head = OwnHead() if own else nn.Linear(WIDE, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(torch.tanh(self.mid(self.words(x)).mean(1)))


class OwnHead(nn.Module):
    def forward(self, x):
        return F.linear(x, self.weight)


def texts():
    return torch.randint(0, 20, (N, 5)), torch.randint(0, 20, (N,))


def long():
    return torch.tensor([2, 3, 2, 3, 4, 2, 3, 4])


def in_parts(program):
    """Step once for each part of a batch; all but the last are skipped."""

    def step(given):
        parts = list(zip(*(x.split(3) for x in given), strict=True))
        for k, part in enumerate(parts):
            program.optimizer.zero_grad()
            program.optimizer.signal_skip_step(do_skip=k + 1 < len(parts))
            plain(program.model, part, program.criterion).backward()
            program.optimizer.step()

    program.step = step
    return program


def unwrapped():
    module = net()
    return private(module, lambda _, b, c: plain(module, b, c), wrap_model=False)


def adaptive():
    found = private(
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=10.0,
        min_clipbound=0.1,
        unclipped_num_std=5.0,
    )
    found.step(found.batch)  # from now on its norm is a tensor, changed in place
    return found


def named(model, batch, criterion):
    x = torch.tensor([[float(v) for v in text.split()] for text in batch["x"]])
    return criterion(model(x), torch.from_numpy(batch["y"]))


def of_texts():
    torch.manual_seed(3)
    x, y = records()
    lines = [" ".join(str(v) for v in row) for row in x.tolist()]
    return UserDict({"all": torch.ones(CLASSES), "x": lines, "y": y.numpy()})


def keeps_noisy_norm():
    module = net()
    module.register_buffer("norm", torch.zeros(()))
    return private(
        module, after=lambda: module.norm.copy_(module[0].weight.grad.norm())
    )


def unset_buffer():
    """A buffer that holds no number, and stays."""
    module = net()
    module.register_buffer("unset", torch.tensor([float("nan"), 1.0]))
    return private(module)


HONEST = {
    "hooks, dropout": lambda: private(net(drop=0.3)),
    "functorch, dropout": lambda: private(net(drop=0.3), mode="functorch"),
    "ew, noise by three": lambda: private(loss=noised, mode="ew"),
    "ghost, dropout and noise": lambda: private(
        net(drop=0.3), loss=noised, mode="ghost"
    ),
    "draws by length": lambda: private(loss=by_length, batch=(*records(), long())),
    "tied, hooks": lambda: private(Tied(own=False), batch=texts()),
    "bfloat16, ghost": lambda: private(loss=autocast, mode="ghost"),
    "a sum": lambda: private(reduction="sum", mode="ghost"),
    "each layer": lambda: private(clip=[1.0, 0.1, 0.5, 0.2], clipping="per_layer"),
    "adaptive": adaptive,
    "parts, hooks": lambda: in_parts(private()),
    "parts, ghost": lambda: in_parts(private(mode="ghost")),
    "not wrapped": unwrapped,
    "strings, arrays, a mapping": lambda: private(loss=named, batch=of_texts()),
    "a noisy norm kept": keeps_noisy_norm,
    "no number kept": unset_buffer,
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_step_has_no_fault(name):
    found = HONEST[name]().probe()
    assert not found.unseen
    assert not found.faults
    assert 0.9 < found.change <= 1 + found.tolerance
    assert found.coupling == 0
    assert {look.stage for look in found.checks} == {Stage.GRADIENTS, Stage.CLIPPING}
    assert name != "no number kept" or found.beside == ()


def clips(factors, **options):
    """Return a program that clips by factors of its own."""
    program = private(**options)

    def own():
        params = program.optimizer.params
        grads = [p.grad_sample for p in params]
        found = factors(grads)
        for p in params:
            p.summed_grad = torch.einsum("i,i...", found, p.grad_sample)
            p.grad_sample._processed = True

    program.optimizer.clip_and_accumulate = own
    return program


def norms(grads):
    return torch.cat([g.reshape(len(g), -1) for g in grads], 1).norm(dim=1)


def capped(values):
    return (1 / values).clamp(max=1)


def hinge(model, batch, _):
    """A loss that is nothing for most records."""
    return (F.relu(2 - model(batch[0])[:, 0]) * batch[1]).mean()


def penalised(model, batch, criterion):
    penalty = sum(p.square().sum() for p in model.parameters())
    return plain(model, batch, criterion) + penalty


def standardised(model, batch, criterion):
    x = (batch[0] - batch[0].mean(0)) / batch[0].std(0)
    return criterion(model(x), batch[1])


def summed(model, batch, _):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")


class Meets(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def by_data(where):
    """Change something by the records, around every count of writes."""
    module = net()
    module.register_buffer("center", torch.zeros(WIDE))
    target = {"buffer": module.center, "trained": module[0].bias}[where]

    def loss(model, batch, criterion):
        target.data[:WIDE] += batch[0].mean(0)
        return plain(model, batch, criterion)

    return private(module, loss)


def by_hand():
    """Step a trained layer once more, without noise."""
    module = net()

    def after():
        module[0].weight.data -= module[0].weight.grad_sample.mean(0)

    return private(module, after=after)


def moves_bias():
    """Move a bias by way of its data, whose gradients sum to 0; torch counts it not."""
    program = private()
    bias = program.optimizer.params[-1]

    def step(given):
        program.optimizer.zero_grad()
        plain(program.model, given, program.criterion).backward()
        bias.data.add_(bias.grad, alpha=-0.1)
        program.optimizer.step()

    program.step = step
    return program


def clips_batch():
    """Clip the batch to the norm, as if it were one record."""
    program = private()

    def own():
        params = program.optimizer.params
        for p in params:
            p.summed_grad = p.grad_sample.sum(dim=0)
            p.grad_sample._processed = True
        sums = [p.summed_grad for p in params]
        factor = (1 / nn.utils.get_total_norm(sums)).clamp(max=1.0)
        for each in sums:
            each.mul_(factor)

    program.optimizer.clip_and_accumulate = own
    return program


def in_halves():
    program = private()
    clip = program.optimizer.clip_and_accumulate

    def own():
        for p in program.optimizer.params:
            p.grad_sample = p.grad_sample.half()
        clip()
        for p in program.optimizer.params:
            p.summed_grad = p.summed_grad.float()

    program.optimizer.clip_and_accumulate = own
    return program


def second_optimizer():
    head = nn.Linear(WIDE, CLASSES)
    other = torch.optim.Adam(head.parameters())

    def loss(model, batch, criterion):
        other.zero_grad()
        F.cross_entropy(head(batch[0]), batch[1]).backward()
        other.step()
        return plain(model, batch, criterion)

    return private(loss=loss)


def twice_the_norm():
    program = private(mode="ghost")
    program.model.max_grad_norm = 2.0
    return program


FAULTY = {
    "no clipping": (
        lambda: clips(lambda g: torch.ones(len(g[0]))),
        Stage.CLIPPING,
        "no clipping of records",
    ),
    "no clipping, two gradients only": (
        lambda: clips(
            lambda g: torch.ones(len(g[0])),
            loss=hinge,
            batch=(torch.randn(N, WIDE), torch.tensor([0, 1, 0, 0, 1, 0, 0, 0])),
        ),
        Stage.CLIPPING,
        "no clipping of records",
    ),
    "without the head": (
        lambda: clips(lambda g: capped(norms(g[:2])), module=net(drop=0.2)),
        Stage.CLIPPING,
        "computed without '3'",
    ),
    "one factor": (
        lambda: clips(lambda g: capped(norms(g).mean().expand(len(g[0])))),
        Stage.CLIPPING,
        "one factor for all records",
    ),
    "the batch as one": (clips_batch, Stage.CLIPPING, "the batch is clipped"),
    "norms in half precision": (in_halves, Stage.CLIPPING, "half precision"),
    "twice the norm, ghost": (twice_the_norm, Stage.CLIPPING, "clipping to 2 C"),
    "tied, ghost": (
        lambda: private(Tied(own=True), batch=texts(), mode="ghost"),
        Stage.CLIPPING,
        "shares its weights",
    ),
    "penalty, ghost": (
        lambda: private(loss=penalised, mode="ghost"),
        Stage.CLIPPING,
        "norms that are not those of the gradients",
    ),
    "a layer where records meet, functorch": (
        lambda: private(net(Meets(), drop=0.2), mode="functorch"),
        Stage.GRADIENTS,
        "'3', in which records of a batch meet",
    ),
    "statistics of a batch, ew": (
        lambda: private(loss=standardised, mode="ew"),
        Stage.GRADIENTS,
        "before '0'",
    ),
    "weights of the batch's classes": (
        lambda: private(
            loss=lambda m, b, _: F.cross_entropy(
                m(b[0]), b[1], weight=torch.tensor([1.0, 9.0, 0.1, 3.0])
            )
        ),
        Stage.GRADIENTS,
        "the loss, in which records of a batch meet",
    ),
    "a sum told as a mean": (
        lambda: private(loss=summed),
        Stage.AGGREGATION,
        "loss_reduction",
    ),
    "a mean told as a sum, noise": (
        lambda: private(
            loss=lambda m, b, _: noised(m, b, F.cross_entropy), reduction="sum"
        ),
        Stage.AGGREGATION,
        "loss_reduction",
    ),
    "a buffer": (lambda: by_data("buffer"), Stage.SIDE_PATHS, "a statistic of records"),
    "a trained parameter": (
        lambda: by_data("trained"),
        Stage.SIDE_PATHS,
        "changed beside the private optimizer",
    ),
    "a trained layer, by hand": (
        by_hand,
        Stage.SIDE_PATHS,
        "changed beside the private optimizer",
    ),
    "a bias, by its gradients": (
        moves_bias,
        Stage.SIDE_PATHS,
        "changed beside the private optimizer",
    ),
    "a second optimizer": (second_optimizer, Stage.SIDE_PATHS, "a second optimizer"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found_on_its_road_with_its_cause(name):
    build, stage, cause = FAULTY[name]
    program = build()
    params = program.optimizer.params
    before = [p.detach().clone() for p in params]
    found = program.probe()
    assert all(map(torch.equal, params, before))
    causes = {fault.stage: fault_parts(fault)[3] for fault in found.faults}
    assert cause in causes[stage]
    assert "Fault found" in str(found)


def test_records_that_are_lost_before_the_sum_do_not_vouch_for_clipping():
    program = clips(lambda grads: torch.zeros(len(grads[0])))
    found = program.probe()
    (look,) = (look for look in found.checks if look.stage is Stage.CLIPPING)
    assert look.status is Status.NOT_CHECKED
    assert "reached the clipping norm" in sentence(look)


def test_an_optimizer_that_sees_no_record_is_no_fault():
    maker = nn.Linear(2, WIDE)
    other = torch.optim.Adam(maker.parameters())

    def after():
        other.zero_grad()
        maker(torch.randn(3, 2)).square().sum().backward()
        other.step()

    assert not private(after=after).probe().faults


# Without a trace.


def trained(mode, moment):
    """Train a little, probed at a moment or not; return all that there is."""
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    module, head = net(drop=0.3), nn.Linear(WIDE, CLASSES)
    module.register_buffer("steps", torch.zeros(()))
    program = private(module, mode=mode, kind=torch.optim.Adam)
    plainly = torch.optim.Adam(head.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(program.optimizer, 1, 0.9)

    def backward(given):
        program.optimizer.zero_grad()
        noised(program.model, given, program.criterion).backward()

    def rest(given):
        program.optimizer.step()
        schedule.step()
        module.steps += 1
        plainly.zero_grad()
        F.cross_entropy(head(given[0]), given[1]).backward()
        plainly.step()

    def step(given):
        backward(given)
        rest(given)

    program.step, given = step, program.batch
    for k in range(4):
        for name, part in (("before", backward), ("between", rest), ("after", None)):
            if moment == name and k == 2:
                assert program.probe().sums > 20
            if part is not None:
                part(given)
    state = (
        program.model.state_dict(),
        program.optimizer.state_dict(),
        [p.grad for p in program.optimizer.params],
        [p.summed_grad for p in program.optimizer.params],
        head.state_dict(),
        plainly.state_dict(),
        schedule.state_dict(),
    )
    return (
        torch.utils._pytree.tree_leaves(state),
        program.engine.accountant.history,
        torch.get_rng_state(),
        str(np.random.get_state()),  # noqa: NPY002
        random.getstate(),
    )


@pytest.mark.parametrize(
    "mode",
    ["hooks", *(pytest.param(m, marks=pytest.mark.nightly) for m in ("ew", "ghost"))],
)
def test_a_probed_training_is_the_same_bit_for_bit(mode):
    leaves, history, torchs, *others = trained(mode, "never")
    for moment in ("before", "between", "after"):
        leaves_then, history_then, torchs_then, *others_then = trained(mode, moment)
        for one, other in zip(leaves, leaves_then, strict=True):
            if isinstance(one, torch.Tensor):
                assert torch.equal(one, other)
            else:
                assert callable(one) or one == other
        assert history == history_then
        assert torch.equal(torchs, torchs_then)
        assert others == others_then


def test_an_adaptive_norm_is_as_it_was():
    program = adaptive()
    before = float(program.optimizer.max_grad_norm)
    program.probe()
    assert float(program.optimizer.max_grad_norm) == before


def test_all_is_put_back_if_a_step_fails():
    program = private()
    inner = program.step

    def step(given):
        inner(given)
        raise RuntimeError("on purpose")

    program.step = step
    noise, state = program.optimizer.noise_multiplier, torch.get_rng_state()
    with pytest.raises(RuntimeError, match="on purpose"):
        program.probe()
    assert program.optimizer.noise_multiplier == noise
    assert torch.equal(torch.get_rng_state(), state)
    inner(program.batch)
    assert len(program.engine.accountant.history) == 1


# What it refuses, and what it cannot see.


@pytest.mark.parametrize("count", [1, 2])
def test_few_records_are_refused(count):
    with pytest.raises(InvalidInputError, match=f"3 records or more.*got {count}"):
        private(batch=records(count)).probe()


def test_sharded_parameters_are_refused(monkeypatch):
    program = private()
    monkeypatch.setattr(probe, "is_sharded", lambda _: True)
    with pytest.raises(InvalidInputError, match="probe the same step in one process"):
        program.probe()


@pytest.mark.parametrize("times", [0, 2])
def test_no_step_or_two_are_refused(times):
    program = private()
    inner = program.step
    program.step = lambda given: [inner(given) for _ in range(times)]
    with pytest.raises(InvalidInputError, match=f"made {times} steps"):
        program.probe()


def test_a_second_private_optimizer_is_refused_and_not_accounted():
    other = private()
    program = private(after=lambda: other.step(other.batch))
    with pytest.raises(InvalidInputError, match="two private optimizers"):
        program.probe()
    assert not other.engine.accountant.history


def views(model, batch, criterion):
    """Two views of each record, each with a gradient of its own."""
    return plain(model, [x.repeat_interleave(2, 0) for x in batch], criterion)


def test_views_that_are_clipped_one_by_one_are_twice_too_large():
    found = private(loss=views).probe()
    (fault,) = found.faults
    assert fault.code == "probe.leaving"
    assert found.own_rows
    assert found.change == pytest.approx(2, rel=1e-3)


def of_means(program):
    """Clip the mean of each record's two gradients."""
    optimizer = program.optimizer
    clip = optimizer.clip_and_accumulate

    def clipping():
        for parameter in optimizer.params:
            parameter.grad_sample = parameter.grad_sample.unflatten(0, (-1, 2)).mean(1)
        clip()

    optimizer.clip_and_accumulate = clipping


def test_views_whose_mean_is_clipped_are_not_too_large():
    program = private(loss=views)
    of_means(program)
    found = program.probe()
    assert not found.faults
    assert found.own_rows
    assert found.change == pytest.approx(1, rel=1e-3)
    assert {check.status for check in found.checks} == {Status.INSPECTED}


def random_views(model, batch, criterion):
    inputs, labels = (x.repeat_interleave(2, 0) for x in batch)
    return plain(model, [inputs + 0.1 * torch.randn_like(inputs), labels], criterion)


def test_random_views_are_told_apart_by_record():
    (fault,) = private(loss=random_views).probe().faults
    assert fault.code == "probe.leaving"
    assert fault.numbers["change"] > 1.5
    program = private(loss=random_views)
    of_means(program)
    found = program.probe()
    assert not found.faults
    assert found.change == pytest.approx(1, rel=1e-3)
    assert found.coupling == 0
    assert {check.status for check in found.checks} == {Status.INSPECTED}


def test_rows_of_records_that_are_alike_are_found_with_others():
    """Exchanging either for the other changes nothing."""
    program = private(loss=random_views)
    for part in program.batch:
        part[1] = part[0]
    of_means(program)
    found = program.probe()
    assert found.unseen is None
    assert not found.faults
    assert found.change == pytest.approx(1, rel=1e-3)


def test_random_rows_of_several_records_are_not_looked_at():
    def loss(model, batch, criterion):
        inputs = batch[0] + 0.1 * torch.randn_like(batch[0])
        return plain(model, [inputs[::2] + inputs[1::2], batch[1][::2]], criterion)

    found = private(loss=loss).probe()
    assert found.unseen.code == "probe.rows_not_records"
    assert not found.faults


def test_a_batch_that_is_filled_up_with_its_first_records_is_too_large():
    def loss(model, batch, criterion):
        return plain(model, [torch.cat([x, x[:3]]) for x in batch], criterion)

    (fault,) = private(loss=loss).probe().faults
    assert fault.code == "probe.leaving"


@pytest.mark.nightly
def test_a_step_that_keeps_something_of_its_own_is_probed_apart():
    own = np.random.default_rng(0)
    program = private(loss=lambda m, b, c: plain(m, b, c) * own.uniform(0.5, 2))
    before = own.bit_generator.state
    found = program.probe(apart=True)
    assert own.bit_generator.state == before
    assert not found.faults
    assert found.change == pytest.approx(1, rel=1e-3)


def test_a_step_that_is_skipped_for_large_gradients_is_a_fault():
    program = private()
    inner = program.step

    def step(given):
        program.optimizer.zero_grad()
        program.criterion(program.model(given[0]), given[1]).backward()
        norms = [p.grad_sample.flatten(1).norm(dim=1) for p in program.optimizer.params]
        if float(torch.stack(norms, 1).norm(dim=1).max()) < 8:
            inner(given)

    program.step = step
    found = program.probe()
    assert [fault.code for fault in found.faults] == ["probe.skips"]
    assert {check.status for check in found.checks} == {Status.NOT_CHECKED}


def test_a_step_of_several_calls_is_not_looked_at():
    program, calls = private(), []
    inner = program.step

    def step(given):
        calls.append(1)
        if len(calls) % 4 == 0:
            inner(given)

    program.step = step
    found = program.probe()
    assert found.unseen.code == "probe.no_step"
    assert not found.faults


def test_a_step_that_does_not_repeat_itself_is_unseen():
    own = np.random.default_rng(0)
    found = private(loss=lambda m, b, c: plain(m, b, c) * own.uniform(0.5, 2)).probe()
    assert "does not repeat itself" in str(found)
    assert not found.faults
    assert {check.status for check in found.checks} == {Status.NOT_CHECKED}
    assert "Not examined" in str(found)


@pytest.mark.parametrize("order", [torch.randperm, lambda n: torch.arange(n).flip(0)])
def test_a_step_that_moves_records_is_unseen(order):
    def loss(model, batch, criterion):
        moved = order(len(batch[0]))
        return criterion(model(batch[0][moved]), batch[1][moved])

    assert "another order" in str(private(loss=loss).probe())


def test_records_that_compete_are_not_taken_for_another_order():
    def hardest(model, batch, _):
        each = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        least = each.detach().topk((len(each) + 1) // 2).values[-1]
        return (each * (each >= least)).mean()

    stages = [fault.stage for fault in private(loss=hardest).probe().faults]
    assert stages == [Stage.GRADIENTS]


def test_a_generator_of_the_users_own_is_seeded():
    own = torch.Generator().manual_seed(9)

    def loss(model, batch, criterion):
        x = batch[0] + torch.randn(batch[0].shape, generator=own)
        return criterion(model(x), batch[1])

    program, state = private(loss=loss), own.get_state()
    found = program.probe(generators=[own])
    assert not found.unseen
    assert not found.faults
    assert torch.equal(own.get_state(), state)


@pytest.mark.parametrize("clipped", [True, False])
def test_a_sum_of_tensors_without_opacus(clipped):
    torch.manual_seed(0)
    inputs, weights = torch.randn(N, 6), torch.randn(6)

    def clipped_sum(batch, scale=1.0):
        each = scale * (batch["x"] @ weights)[:, None] * batch["x"]
        norms = each.norm(dim=1, keepdim=True) if clipped else torch.ones(1)
        return (each / norms.clamp(min=1)).sum(0)

    found = probe_sum(clipped_sum, {"x": inputs}, norm=1.0)
    assert [fault.stage for fault in found.faults] == [Stage.CLIPPING] * (not clipped)
    assert found.layers.keys() == {"the sum"}


def test_a_collator_that_fills_batches_up_is_asked_without_each_record():
    """With copies of the first records, whose share of the sum is then twice C."""
    program = private()
    inputs, labels = program.batch

    def collate(rows):
        chosen = [*rows, *rows[: N + 4 - len(rows)]]
        return inputs[chosen], labels[chosen]

    program.batch = collate(range(N))
    found = program.probe(collate=collate, collated=N)
    assert found.own_rows
    assert [fault.code for fault in found.faults] == ["probe.leaving"]
    assert 1.5 < found.change < 3.1
