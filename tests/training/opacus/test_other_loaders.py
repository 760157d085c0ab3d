"""Steps on batches of other loaders: tested if these are certainly what they used."""

import itertools

import numpy as np
import pytest
import torch
from opacus.data_loader import DPDataLoader, wrap_collate_with_empty
from opacus.utils.batch_memory_manager import BatchMemoryManager
from private_runs import RECORDS, UNPROBED, attach, private_run, step_of
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Subset,
    TensorDataset,
    default_collate,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import sentences
from dpaudit.training.opacus.other_loaders import _WATCHED

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")

RATE = 0.1


class Poisson:
    """A batch sampler as people write it."""

    def __init__(self, records=RECORDS, rate=RATE, batches=10, seed=0):
        self.records, self.rate, self.batches = records, rate, batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            rate = self.rate() if callable(self.rate) else self.rate
            yield np.flatnonzero(self.rng.random(self.records) < rate).tolist()


class Shards(Poisson):
    """Four neighbours at a time."""

    def __iter__(self):
        for _ in range(self.batches):
            chosen = np.flatnonzero(self.rng.random(self.records // 4) < self.rate)
            yield (4 * chosen[:, None] + np.arange(4)).flatten().tolist()


def audited(train, run=None, **options):
    """The result of a run that is trained by ``train(run, step, loader)``."""
    run = private_run() if run is None else run
    audit = attach(run, model=run.model, **{**UNPROBED, **options})
    train(run, step_of(run), audit.data_loader)
    return audit.finish()


def codes(result):
    return {each.code for each in result.faults if each.stage is Stage.SAMPLING}


def sampling_of(result):
    (check,) = (
        each for each in result.training.coverage.checks if each.stage is Stage.SAMPLING
    )
    return check


def on(make, epochs=3):
    """Train on a loader of the same data set that ``make`` makes from it."""

    def train(run, step, _):
        loader = make(run.loader.dataset)
        for _ in range(epochs):
            for batch in loader:
                step(batch)

    return train


def shuffled(data):
    return DataLoader(data, batch_size=20, shuffle=True)


def own(data, sampler=Poisson):
    collate = wrap_collate_with_empty(
        collate_fn=default_collate,
        sample_empty_shapes=[(0, 30), (0,)],
        dtypes=[torch.float32, torch.int64],
    )
    return DataLoader(data, batch_sampler=sampler(len(data)), collate_fn=collate)


def by_class(run, step, _):
    data = run.loader.dataset
    for label in range(4):
        of_it = Subset(data, torch.where(data.tensors[1] == label)[0].tolist())
        loader = DPDataLoader(of_it, sample_rate=RATE)
        for batch in itertools.islice(itertools.chain(loader, loader), 20):
            step(batch)


def first_half_on_own(run, step, loader):
    for batch in itertools.chain(own(run.loader.dataset), loader):
        step(batch)


def anew_each_epoch(run, step, _):
    for epoch in range(3):
        sampler = Poisson(seed=epoch)
        for batch in DataLoader(run.loader.dataset, batch_sampler=sampler):
            step(batch)


def in_parts(run, step, _):
    with BatchMemoryManager(
        data_loader=own(run.loader.dataset),
        max_physical_batch_size=7,
        optimizer=run.optimizer,
    ) as parts:
        for batch in itertools.chain(parts, parts):
            step(batch)


def some_left_out(run, step, _):
    loader = own(run.loader.dataset)
    for k, batch in enumerate(itertools.chain(loader, loader, loader)):
        if k % 3:
            step(batch)


def with_workers(run, step, _):
    data = run.loader.dataset
    for batch in DataLoader(data, batch_sampler=Poisson(batches=12), num_workers=1):
        step(batch)


def loss_on(run, pixels):
    with torch.no_grad():
        run.model(pixels)


def measured(run, step, _):
    """The training loss is measured on shuffled batches after each epoch."""
    data = run.loader.dataset
    loader, same = own(data), DataLoader(data, batch_size=50)
    for _ in range(3):
        for batch in loader:
            step(batch)
        for pixels, _ in same:
            loss_on(run, pixels)


@pytest.mark.parametrize(
    "train",
    [
        on(own),
        on(lambda data: own(Subset(data, range(150)))),
        on(lambda data: DPDataLoader(data, sample_rate=RATE)),
        on(lambda data: list(own(data, lambda n: Poisson(n, batches=30))), epochs=1),
        pytest.param(by_class, marks=pytest.mark.nightly),
        first_half_on_own,
        anew_each_epoch,
        in_parts,
        some_left_out,
        pytest.param(with_workers, marks=pytest.mark.nightly),
        measured,
    ],
)
def test_poisson_samples_of_a_loader_of_ones_own_are_tested_and_no_fault(train):
    result = audited(train)
    assert not codes(result)
    check = sampling_of(result)
    assert check.status is Status.INSPECTED
    assert "on batches of another DataLoader" in sentences(check.findings)
    assert result.verdict == "no violation detected"


class Again(Poisson):
    def __iter__(self):
        self.rng = np.random.default_rng(0)
        return super().__iter__()


def easiest_first(run, step, _):
    for epoch in range(3):
        pool = Subset(run.loader.dataset, range(50 * (epoch + 1)))
        for batch in own(pool, lambda n: Poisson(n, rate=20 / n)):
            step(batch)


def with_twice(data):
    """Every record that joins is there twice."""
    twice = Subset(data, [*range(len(data)), *range(len(data))])

    class Twice(Poisson):
        def __iter__(self):
            for batch in super().__iter__():
                yield [*batch, *(len(data) + k for k in batch)]

    return DataLoader(twice, batch_sampler=Twice(len(data), RATE / 2))


class Fixed(Poisson):
    sample_rate = RATE

    def __iter__(self):
        for _ in range(self.batches):
            yield self.rng.choice(self.records, 20, replace=False).tolist()


@pytest.mark.parametrize(
    ("train", "named"),
    [
        (on(shuffled), {"sampling.not_poisson", "sampling.in_turns", "sampling.apart"}),
        (on(lambda data: own(data, Fixed)), {"sampling.not_poisson"}),
        (on(lambda data: own(data, Again)), {"sampling.batch_repeated"}),
        (
            on(lambda data: own(data, lambda n: Poisson(n, 0.14)), epochs=6),
            {"sampling.too_often"},
        ),
        (easiest_first, {"sampling.too_often"}),
        (on(with_twice), {"sampling.several_times"}),
    ],
)
def test_other_samples_are_faults(train, named):
    found = codes(audited(train))
    assert found
    assert found <= named


def public_data():
    return TensorDataset(torch.randn(100, 30), torch.zeros(100, dtype=int))


def public_steps_between(run, step, loader):
    public = shuffled(public_data())
    plain = torch.optim.SGD(run.model.parameters(), lr=0.01)
    for private, (pixels, labels) in zip(loader, itertools.cycle(public)):
        step(private)
        run.model.disable_hooks()
        plain.zero_grad()
        run.criterion(run.model(pixels), labels).backward()
        plain.step()
        plain.zero_grad()
        run.model.enable_hooks()


def training_loss_between(run, step, loader):
    """On a batch of the same records and of the usual size, before each step."""
    monitored = itertools.cycle(shuffled(run.loader.dataset))
    for private in itertools.chain(loader, loader):
        loss_on(run, next(monitored)[0])
        step(private)


@pytest.mark.parametrize("train", [public_steps_between, training_loss_between])
def test_batches_that_serve_no_private_step_are_not_tested(train):
    result = audited(train)
    assert not codes(result)
    assert sampling_of(result).status is Status.INSPECTED
    assert "another DataLoader" not in sentences(sampling_of(result).findings)


def rows_of(data, rng):
    while True:
        yield data[np.flatnonzero(rng.random(len(data)) < RATE)]


def loss_beside_own_samples(run, step, _):
    """Samples that nobody sees, and the loss on shuffled batches that all see."""
    data = run.loader.dataset
    private = rows_of(data, np.random.default_rng(0))
    for _ in range(3):
        for pixels, _ in shuffled(data):
            loss_on(run, pixels)
            step(next(private))


def loss_anew_beside_own_samples(run, step, _):
    data = run.loader.dataset
    for private in itertools.islice(rows_of(data, np.random.default_rng(0)), 30):
        loss_on(run, next(iter(shuffled(data)))[0])
        step(private)


def part_of_each(run, step, _):
    """Everything is handed over, and a sample taken of it."""
    rng, data = np.random.default_rng(0), run.loader.dataset
    for _ in range(30):
        ((pixels, labels),) = DataLoader(data, batch_size=len(data))
        chosen = rng.random(len(data)) < RATE
        step((pixels[chosen], labels[chosen]))


def masked(run, *_):
    """The same, by weights of 0."""
    rng, data = np.random.default_rng(0), run.loader.dataset
    for _ in range(12):
        ((pixels, labels),) = DataLoader(data, batch_size=len(data))
        run.optimizer.zero_grad()
        losses = torch.nn.functional.cross_entropy(
            run.model(pixels), labels, reduction="none"
        )
        chosen = torch.as_tensor(rng.random(len(data)) < RATE)
        (losses * chosen).mean().backward()
        run.optimizer.step()


def on_public_records(_, step, loader):
    """Private steps on public records are none on those of the claim."""
    for batch in (*shuffled(public_data()), *loader):
        step(batch)


def a_few(run, step, loader):
    for batch in (*loader, *itertools.islice(shuffled(run.loader.dataset), 3)):
        step(batch)


@pytest.mark.parametrize(
    "train",
    [
        loss_beside_own_samples,
        loss_anew_beside_own_samples,
        part_of_each,
        masked,
        pytest.param(on_public_records, marks=pytest.mark.nightly),
        pytest.param(a_few, marks=pytest.mark.nightly),
    ],
)
def test_where_it_is_not_certain_what_steps_used_nothing_is_tested(train):
    result = audited(train)
    assert not codes(result)
    assert sampling_of(result).status is Status.NOT_CHECKED
    assert "it is not known which batch" in result.reason


def test_rows_that_are_no_records_say_nothing_of_batches():
    run = private_run()
    audit = attach(run, model=run.model, **UNPROBED)
    audit._stages.step_consistency.own_rows = True
    on(shuffled)(run, step_of(run), None)
    result = audit.finish()
    assert not codes(result)
    assert sampling_of(result).status is Status.NOT_CHECKED


@pytest.mark.nightly
def test_a_rate_that_changes_is_not_taken_for_groups_nor_groups_for_none():
    """Unless the sampler says that its rate is one."""

    def rates():
        every = itertools.chain(itertools.repeat(0.02, 30), itertools.repeat(RATE))
        return lambda: next(every)

    changing = on(lambda data: own(data, lambda n: Poisson(n, rates())), epochs=6)
    groups = on(lambda data: own(data, Shards), epochs=6)
    for train in (changing, groups):
        result = audited(train)
        assert not codes(result)
        assert "sizes vary by" in result.reason
        assert sampling_of(result).status is Status.NOT_CHECKED

    class Stated(Shards):
        sample_rate = RATE

    stated = on(lambda data: own(data, Stated), epochs=6)
    assert "sampling.groups" in codes(audited(stated))


def test_what_was_seen_outlives_a_checkpoint(tmp_path):
    run = private_run()
    audit, step = attach(run, model=run.model, **UNPROBED), step_of(run)
    data, sampler = run.loader.dataset, Poisson()
    for batch in DataLoader(data, batch_sampler=sampler):
        step(batch)
    audit.save(tmp_path / "state")
    audit.detach()
    again = attach(run, model=run.model, **UNPROBED)
    again.resume(tmp_path / "state")
    for batch in DataLoader(data, batch_sampler=sampler):
        step(batch)
    check = sampling_of(again.finish())
    assert check.status is Status.INSPECTED
    assert "20 batches as they come" in sentences(check.findings)
    assert "20 steps were made on batches of another" in sentences(check.findings)


def test_loaders_are_as_they_were_when_no_audit_watches():
    for watcher in [*_WATCHED._watchers]:  # of audits that nobody ended
        watcher.detach()
    before = vars(_BaseDataLoaderIter).copy()
    first, second = (attach(private_run()) for _ in range(2))
    assert vars(_BaseDataLoaderIter) != before
    first.detach()
    assert vars(_BaseDataLoaderIter) != before
    second.detach()
    assert vars(_BaseDataLoaderIter) == before


def test_a_loader_without_numbers_is_no_matter():
    data = private_run().loader.dataset

    class Keys:
        def __iter__(self):
            yield ["a", "b"]

    run = private_run()
    audit = attach(run)
    sampler = BatchSampler(RandomSampler(data), 20, drop_last=False)
    list(DataLoader(data, sampler=sampler, batch_size=None))
    list(DataLoader(dict.fromkeys("ab", 0), batch_sampler=Keys()))
    run.train(steps=5)
    assert audit.finish().verdict != "invalid run"
