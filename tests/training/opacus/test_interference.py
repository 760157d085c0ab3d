"""The user's step in two worlds: what depends on records besides the noisy sums."""

import copy
import random

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

from dpaudit.game.findings import Status
from dpaudit.game.text.findings import sentence
from dpaudit.training.opacus.interference import Interference, _lost, batches_of

pytestmark = pytest.mark.filterwarnings("ignore")

RECORDS = 120


class Program:
    """A small private program, and whatever a test changes of it."""

    def __init__(self, *, model=None, ghost=False, **make):
        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(RECORDS, 6, generator=generator)
        self.data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
        torch.manual_seed(5)
        self.network = model or nn.Sequential(
            nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)
        )
        loss = nn.CrossEntropyLoss()
        if ghost:
            make |= {"grad_sample_mode": "ghost", "criterion": loss}
        made = PrivacyEngine(accountant="rdp").make_private(
            module=self.network,
            optimizer=torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9),
            data_loader=DataLoader(self.data, batch_size=20),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            **make,
        )
        self.model, self.optimizer, *criterion, self.loader = made
        self.loss = criterion[0] if criterion else loss
        self.kept = []
        self.step = self.plain

    def plain(self, batch, after=lambda value: None):
        inputs, labels = batch
        self.optimizer.zero_grad()
        value = self.loss(self.model(inputs), labels)
        value.backward()
        after(value)
        self.optimizer.step()
        return value

    def check(self):
        before = {k: v.clone() for k, v in self.network.state_dict().items()}
        drawn = torch.get_rng_state(), random.getstate()
        worlds = Interference(
            self.step,
            self.model,
            self.optimizer,
            seconds=60,
            leave_out=[self.loader],
        )

        def records(rows):
            return default_collate([self.data[int(k)] for k in rows])

        batches = batches_of(RECORDS, records, np.random.default_rng(1))
        found = {each.code.partition(".")[2]: each for each in worlds.check(batches)}
        for name, value in self.network.state_dict().items():
            assert torch.equal(value, before[name])
        assert torch.equal(torch.get_rng_state(), drawn[0])
        assert random.getstate() == drawn[1]
        for each in found.values():
            assert sentence(each)
        return found, worlds


def counting(program):
    def step(batch):
        program.kept.append(len(batch[0]))
        program.plain(batch)

    program.step = step


def averaging(program):
    mean = copy.deepcopy(program.network.state_dict())

    def step(batch):
        program.plain(batch)
        for name, value in program.network.state_dict().items():
            mean[name].lerp_(value, 0.1)

    program.step = step


def clamping(program):
    def step(batch):
        program.plain(batch)
        with torch.no_grad():
            for parameter in program.network.parameters():
                parameter.clamp_(-1, 1)

    program.step = step


def scaling_noisy_gradient(program):
    add = program.optimizer.add_noise

    def add_noise():
        add()
        norm = torch.stack([p.grad.norm() for p in program.optimizer.params]).norm()
        for parameter in program.optimizer.params:
            parameter.grad = parameter.grad / norm

    program.optimizer.add_noise = add_noise


def own_noise(program):
    optimizer = program.optimizer

    def add_noise():
        for p in optimizer.params:
            noise = torch.normal(0.0, optimizer.noise_multiplier, p.summed_grad.shape)
            p.grad = (p.summed_grad + noise).view_as(p)
            p.summed_grad._processed = True

    optimizer.add_noise = add_noise


CORRECT = {
    "plain": lambda program: None,
    "counting": counting,
    "average of weights": averaging,
    "clamped weights": clamping,
    "noisy gradient scaled": scaling_noisy_gradient,
    "noise of its own": own_noise,
}


@pytest.mark.parametrize(
    "ghost",
    [False, pytest.param(True, marks=pytest.mark.nightly)],
    ids=["hooks", "ghost"],
)
def test_correct_steps_differ_in_nothing(ghost):
    for name, change in CORRECT.items():
        program = Program(ghost=ghost)
        change(program)
        found, _ = program.check()
        assert set(found) == {"compared"}, (name, found)


def test_several_rows_of_a_record_differ_in_nothing():
    """Whichever has the largest gradient; there are more rows than records."""
    for last in (1.0, 3.0):
        program = Program()

        def step(batch, program=program, last=last):
            inputs = torch.cat([batch[0], batch[0], batch[0], last * batch[0]])
            program.plain([inputs, batch[1].repeat(4)])

        program.step = step
        found, _ = program.check()
        assert set(found) == {"compared"}, found


def test_a_batch_that_is_clipped_in_parts_differs_in_nothing():
    """A record fewer moves others into earlier parts."""
    program = Program()

    def step(batch):
        program.optimizer.zero_grad()
        parts = [*zip(*(each.split(15) for each in batch), strict=True)]
        for k, (inputs, labels) in enumerate(parts):
            program.optimizer.signal_skip_step(do_skip=k < len(parts) - 1)
            program.loss(program.model(inputs), labels).backward()
            program.optimizer.step()
            program.optimizer.zero_grad()

    program.step = step
    found, _ = program.check()
    assert set(found) == {"compared"}, found


def test_rows_that_fill_a_batch_up_differ_in_nothing():
    """As many as are needed for 64, with weight 0."""
    program = Program()

    def step(batch):
        inputs, labels = batch
        room = 64 - len(inputs)
        inputs = torch.cat([inputs, torch.zeros(room, 6)])
        labels = torch.cat([labels, torch.zeros(room, dtype=int)])
        program.optimizer.zero_grad()
        losses = nn.functional.cross_entropy(
            program.model(inputs), labels, reduction="none"
        )
        (losses * (torch.arange(64) < 64 - room)).sum().backward()
        program.optimizer.step()

    program.step = step
    found, _ = program.check()
    assert set(found) == {"compared"}, found


@pytest.mark.parametrize("seed", range(20))
def test_norms_are_matched_so_that_the_fewest_are_left(seed):
    """The oracle is a maximum matching of all pairs that are near each other."""
    rng = np.random.default_rng(seed)
    norms = rng.lognormal(sigma=0.1, size=40)
    among = norms * rng.normal(1, 0.015, size=40) if seed % 2 else norms[::-1] * 1.01
    among = [*among[: 40 - seed % 3], *rng.lognormal(sigma=0.1, size=3)]
    near = np.abs(np.subtract.outer(norms, among)) <= 0.02 * norms[:, None]
    matched = maximum_bipartite_matching(csr_matrix(near), perm_type="column")
    assert _lost(norms, among) == np.count_nonzero(matched < 0)


def test_half_precision_rounds_small_norms_by_steps_of_large_ones():
    assert _lost([1.0, 0.010], [1.0, 0.013]) == 1
    assert _lost([1.0, 0.010], [1.0, 0.013], rounding=0.004) == 0
    assert _lost([1.0, 0.010], [1.0, 0.016], rounding=0.004) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_step_under_autocast_differs_in_nothing(seed):
    """Products of 20 rows and of 19 are rounded otherwise, and norms lie close."""
    torch.manual_seed(seed)
    layers = nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 2)
    program = Program(model=nn.Sequential(*layers))

    def step(batch):
        program.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = program.loss(program.model(batch[0]), batch[1])
        value.backward()
        program.optimizer.step()

    program.step = step
    found, _ = program.check()
    assert set(found) == {"compared"}


def test_dropout_differs_in_nothing():
    dropout = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    found, _ = Program(model=dropout).check()
    assert set(found) == {"compared"}


def test_what_a_step_writes_besides_is_named_if_it_is_alike():
    program = Program()
    clamping(program)
    _, worlds = program.check()
    assert worlds.written <= {"0.weight", "0.bias", "2.weight", "2.bias"}
    with torch.no_grad():
        program.network[0].weight.fill_(3.0)
    _, worlds = program.check()
    assert "0.weight" in worlds.written


def rate_by_loss(program):
    def after(value):
        program.optimizer.param_groups[0]["lr"] = float(value)

    program.step = lambda batch: program.plain(batch, after)
    return "held", "optimizer.param_groups[0]['lr']"


def norm_by_gradients(program):
    def after(_):
        norms = [p.grad_sample.flatten(1).norm(dim=1) for p in program.optimizer.params]
        program.norm = float(torch.stack(norms, 1).norm(dim=1).median())

    def step(batch):
        program.plain(batch, after)
        program.optimizer.max_grad_norm = program.norm

    program.step = step
    return "held", "optimizer.max_grad_norm"


def largest_only(program):
    add = program.optimizer.add_noise

    def add_noise():
        add()
        for p in program.optimizer.params:
            largest = p.summed_grad.abs() >= p.summed_grad.abs().median()
            p.grad = p.grad * largest

    program.optimizer.add_noise = add_noise
    return "held", "optimizer.state[key 0]['momentum_buffer']"


def bank(program):
    program.bank = torch.zeros(2)

    def step(batch):
        inputs, labels = batch
        program.optimizer.zero_grad()
        values = program.model(inputs) - program.bank
        program.loss(values, labels).backward()
        program.optimizer.step()
        program.bank = values.detach().mean(0)

    program.step = step
    return "back", "step>program.bank"


def skipping(program):
    def step(batch):
        if float(batch[0].mean()) < 0:
            return
        program.plain(batch)

    program.step = step
    return "steps", None


def gradient_left(program):
    def step(batch):
        program.plain(batch)
        for p in program.optimizer.params:
            p.grad = p.summed_grad.clone()

    program.step = step
    return "held", "0.bias.grad"


def divided_by_size(program):
    """As after noise, by how many records there happen to be."""
    add = program.optimizer.add_noise

    def add_noise():
        add()
        for p in program.optimizer.params:
            p.grad = p.grad * 20 / len(p.grad_sample)

    program.optimizer.add_noise = add_noise
    return "held", "optimizer.state[key 0]['momentum_buffer']"


def cut(program):
    """So that another record comes in where one is left out."""

    def step(batch):
        program.plain([part[:30] for part in batch])

    program.step = step
    return "coupled", None


def centred(program):
    def step(batch):
        inputs, labels = batch
        program.plain((inputs - inputs.mean(0), labels))

    program.step = step
    return "coupled", None


FAULTS = [
    divided_by_size,
    centred,
    cut,
    rate_by_loss,
    norm_by_gradients,
    largest_only,
    bank,
    skipping,
    gradient_left,
]


@pytest.mark.parametrize("change", FAULTS, ids=lambda change: change.__name__)
def test_what_depends_on_records_is_a_fault_and_named(change):
    program = Program()
    code, name = change(program)
    found, _ = program.check()
    assert found[code].status is Status.FAULT
    if name is not None:
        assert name in found[code].subject


def test_what_is_only_kept_is_a_remark():
    program = Program()

    def step(batch):
        program.kept.append(float(program.plain(batch).detach()))

    program.step = step
    found, _ = program.check()
    assert found["kept"].status is Status.NOTED
    assert found["kept"].subject == ("step>program.kept[0]",)
    assert "compared" in found


def test_what_is_kept_on_the_optimizer_does_not_steer():
    program = Program()

    def after(value):
        program.optimizer.last_loss = float(value)

    program.step = lambda batch: program.plain(batch, after)
    found, _ = program.check()
    assert set(found) == {"compared", "kept"}
    assert found["kept"].subject == ("optimizer.last_loss",)


def test_batches_are_as_large_as_those_of_the_training_while_they_fit():
    def records(rows):
        return torch.zeros(len(rows), 1000)

    rng = np.random.default_rng(0)
    for size, bytes_each, expected in [
        (20, 0, 20),
        (500, 0, 256),
        (500, 1 << 21, 127),
        (500, 1 << 30, 8),
    ]:
        batches = batches_of(5000, records, rng, size=size, bytes_each=bytes_each)
        assert batches.size == len(batches.first) == len(batches.second) == expected
        assert len(batches.fewer) == expected - 1
        assert {len(batch) for _, batch in batches.others(0, 1)} == {expected}
    assert batches_of(12, records, rng, size=500).size == 4


def test_what_is_noised_by_other_means_is_left_open():
    """A clipping norm that follows a noisy count: whether accounted is not known."""
    program = Program()

    def after(_):
        norms = [p.grad_sample.flatten(1).norm(dim=1) for p in program.optimizer.params]
        small = torch.stack(norms, 1).norm(dim=1) < program.optimizer.max_grad_norm
        program.share = float(small.sum() + torch.normal(0.0, 5.0, ())) / 20

    def step(batch):
        program.plain(batch, after)
        program.optimizer.max_grad_norm *= np.exp(-0.2 * (program.share - 0.5))

    program.step = step
    found, _ = program.check()
    assert found["noised"].status is Status.INCONCLUSIVE
    assert not any(each.status is Status.FAULT for each in found.values())


def test_a_step_that_fails_on_other_records_is_not_checked():
    program = Program()

    def step(_):
        raise ValueError("only on Sundays")

    program.step = step
    found, _ = program.check()
    assert found["failed"].status is Status.NOT_CHECKED
    assert "only on Sundays" in sentence(found["failed"])
