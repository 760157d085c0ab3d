"""One step, one batch, one entry of the accountant, one clipping norm."""

import itertools

import numpy as np
import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from private_runs import KEY, NOISE, UNPROBED, attach, private_run, step_of

from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts
from dpaudit.game.text.results import not_exercised
from dpaudit.training.opacus import audit_opacus

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")


def audited(train, run=None, **options):
    """The faults of a run that is trained by ``train(run, step, loader)``."""
    run = private_run() if run is None else run
    # Without one the accountant is the optimizer's own, and its curve is not tested.
    options = {"accountant": None, **UNPROBED, **options}
    audit = attach(run, model=run.model, **options)
    train(run, step_of(run), audit.data_loader)
    result = audit.finish()
    assert bool(result.faults) == (result.verdict == "fault found")
    return result


def said(result):
    return [
        (fault.stage, fault_parts(fault)[0], fault_parts(fault)[1])
        for fault in result.faults
    ]


def k_times(k, epochs=1):
    def train(_, step, loader):
        for _ in range(epochs):
            for batch in loader:
                for _ in range(k):
                    step(batch)

    return train


def cycled(_, step, loader):
    for batch in itertools.islice(itertools.cycle(loader), 30):
        step(batch)


def listed(_, step, loader):
    for batch in list(loader) * 3:
        step(batch)


REUSED = "steps were made without a new batch of the private loader"


@pytest.mark.parametrize(
    ("train", "measured"),
    [
        (k_times(2), "10 of 20 steps"),
        pytest.param(k_times(10), "90 of 100 steps", marks=pytest.mark.nightly),
        pytest.param(cycled, "20 of 30 steps", marks=pytest.mark.nightly),
        (listed, "20 of 30 steps"),
    ],
    ids=["two steps a batch", "ten steps a batch", "cycle", "list"],
)
def test_a_batch_that_serves_several_steps_is_a_fault(train, measured):
    assert said(audited(train)) == [(Stage.SAMPLING, REUSED, measured)]


@pytest.mark.nightly
def test_workers_that_draw_ahead_hide_no_batch_that_is_used_twice():
    """Of each pass one batch is used, and four are drawn ahead of it."""
    run = private_run()
    run.loader.num_workers = 1
    run.loader.prefetch_factor = 4

    def train(_, step, loader):
        for _ in range(9):
            for batch in itertools.islice(loader, 1):
                step(batch)
                step(batch)

    assert said(audited(train, run)) == [(Stage.SAMPLING, REUSED, "9 of 18 steps")]


def sampling_of(result):
    return next(
        each for each in result.training.coverage.checks if each.stage is Stage.SAMPLING
    )


def own_samples(run, rate=0.1):
    """Poisson samples that nobody sees being drawn."""
    rng, data = np.random.default_rng(0), run.loader.dataset
    while True:
        yield data[np.flatnonzero(rng.random(len(data)) < rate)]


def all_own(run, step, _):
    for batch in itertools.islice(own_samples(run), 30):
        step(batch)


def some_own(run, step, loader):
    for batch in (*loader, *itertools.islice(own_samples(run), 20)):
        step(batch)


def by_turns(run, step, loader):
    own = own_samples(run)
    for _ in range(3):
        for batch in loader:
            step(batch)
            step(next(own))


@pytest.mark.parametrize(
    ("train", "unknown"),
    [
        pytest.param(all_own, "30 of 30", marks=pytest.mark.nightly),
        (some_own, "20 of 30"),
        pytest.param(by_turns, "30 of 60", marks=pytest.mark.nightly),
    ],
)
def test_batches_that_nobody_saw_being_drawn_are_no_fault(train, unknown):
    """Correct programs may draw samples by themselves; that is not checked."""
    result = audited(train)
    check = sampling_of(result)
    assert check.status is Status.NOT_CHECKED
    assert f"it is not known which batch {unknown} steps used" in result.reason
    assert result.verdict == "inconclusive"
    accepted = ("sampling", *UNPROBED["unchecked"])
    result = audited(train, unchecked=accepted)
    assert not result.faults
    assert sampling_of(result).status is Status.ACCEPTED
    assert result.verdict == "no violation detected"


@pytest.mark.nightly
def test_a_batch_of_everything_may_serve_all_steps():
    """Nothing is sampled at a rate of 1, so that a fresh batch is the same."""
    run = private_run()
    run.loader = type(run.loader)(run.loader.dataset, sample_rate=1.0)
    run.optimizer.attach_step_hook(
        run.engine.accountant.get_optimizer_hook_fn(sample_rate=1.0)
    )
    result = audited(k_times(12), run, accountant=run.engine.accountant)
    assert not result.faults


def test_a_step_without_noise_needs_no_batch():
    run = private_run()
    public = torch.randn(20, 30), torch.zeros(20, dtype=int)

    def train(_, step, loader):
        for batch in loader:
            step(batch)
            run.optimizer.noise_multiplier = 0.0
            step(public)
            run.optimizer.noise_multiplier = NOISE

    result = audited(train, run)
    assert sampling_of(result).status is Status.INSPECTED
    assert Stage.SAMPLING not in {fault.stage for fault in result.faults}


def begun_before(run):
    """An iterator that is older than the audit, one batch of which was taken."""
    batches = iter(run.loader)
    first = next(batches)

    def train(_, step, __):
        for batch in (first, *batches):
            step(batch)

    return train


def in_parts(run, step, loader):
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=7, optimizer=run.optimizer
    ) as parts:
        for batch in parts:
            step(batch)


def some_unused(_, step, loader):
    for k, batch in enumerate(loader):
        if k % 3:
            step(batch)


def lasting_workers(_, step, loader):
    for _ in range(2):
        for batch in loader:
            step(batch)


@pytest.mark.parametrize(
    ("train", "options"),
    [
        (k_times(1, epochs=2), {}),
        (lambda _, step, loader: [step(b) for b in list(loader)], {}),
        (in_parts, {}),
        (some_unused, {}),
        pytest.param(
            lasting_workers,
            {"num_workers": 1, "persistent_workers": True},
            marks=pytest.mark.nightly,
        ),
        (None, {}),
    ],
    ids=["epochs", "list once", "parts", "unused", "lasting workers", "begun before"],
)
def test_one_step_a_batch_has_no_fault(train, options):
    run = private_run()
    if options:
        run.loader = type(run.loader)(run.loader.dataset, sample_rate=0.1, **options)
    result = audited(begun_before(run) if train is None else train, run)
    assert not result.faults
    assert not more_rows(result)


def more_rows(result):
    return [
        dict(each.numbers)
        for each in result.sanity_checks
        if each.code == "sampling.more_rows"
    ]


def replayed(step, loader, since=0, rows=4):
    """Every batch with the first rows of the one before, from some batch on."""
    before = None
    for k, (pixels, labels) in enumerate(loader):
        batch = pixels, labels
        if k >= since and before is not None:
            again = [part[:rows] for part in before]
            batch = [torch.cat(pair) for pair in zip(batch, again, strict=True)]
        step(batch)
        before = pixels, labels


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_rows_that_the_loader_did_not_hand_over_leave_sampling_unknown(mode):
    run = private_run(mode=mode)
    result = audited(lambda _, step, loader: replayed(step, loader, since=3), run)
    (found,) = more_rows(result)
    assert (found["more"], found["step"], found["steps"]) == (7, 4, 10)
    assert found["rows"] == found["records"] + 4
    assert result.verdict == "inconclusive"
    assert "7 of 10 steps clipped more rows than the loader had" in result.reason


@pytest.mark.nightly
def test_rows_that_a_step_makes_itself_are_nobody_elses():
    """As a probe of the step tells: here it fills batches up with rows of zeros."""
    for own in (False, True):
        run = private_run()
        audit, step = attach(run, model=run.model, **UNPROBED), step_of(run)
        audit._stages.step_consistency.own_rows = own
        for pixels, labels in audit.data_loader:
            fill = 64 - len(pixels)
            batch = (
                (pixels, torch.zeros(fill, 30)),
                (labels, torch.zeros(fill, dtype=int)),
            )
            step([torch.cat(parts) for parts in batch])
        assert bool(more_rows(audit.finish())) is not own


@pytest.mark.parametrize(
    "mode", ["hooks", pytest.param("ghost", marks=pytest.mark.nightly)]
)
def test_rows_of_micro_batches_are_those_of_their_step(mode):
    run = private_run(mode=mode)

    def train(_, step, loader):
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=7, optimizer=run.optimizer
        ) as parts:
            replayed(step, parts, since=1000)

    assert not more_rows(audited(train, run))
    run = private_run(mode=mode)

    def train_on_more(_, step, loader):
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=7, optimizer=run.optimizer
        ) as parts:
            replayed(step, parts, rows=1)

    (found,) = more_rows(audited(train_on_more, run))
    assert found["more"] >= 9


def test_records_that_are_left_out_hide_no_rows_of_later_steps():
    run = private_run()

    def train(_, step, loader):
        for k, (pixels, labels) in enumerate(loader):
            if k % 2:
                step((torch.cat([pixels, pixels[:1]]), torch.cat([labels, labels[:1]])))
            else:
                step((pixels[5:], labels[5:]))

    (found,) = more_rows(audited(train, run))
    assert found["more"] == 5


def test_batches_in_store_are_used_once():
    """Listed beforehand, so that a step may have had the rows of any of them."""
    run = private_run()

    def train(_, step, loader):
        replayed(step, list(loader), rows=20)

    (found,) = more_rows(audited(train, run))
    assert 0 < found["more"] <= 9


def fewer_rows(result):
    return [
        each.numbers
        for each in result.sanity_checks
        if each.code == "sampling.fewer_rows"
    ]


def test_batches_that_are_cut_are_noticed_and_parts_and_spare_ones_are_not():
    def cut(_, step, loader):
        for pixels, labels in loader:
            step((pixels[:15], labels[:15]))

    result = audited(cut)
    assert result.verdict == "inconclusive"
    (found,) = fewer_rows(result)
    assert found["rows"] == 15 < found["records"]
    assert not fewer_rows(audited(half_of_them_in_parts))


def added_up_at_once(run, _, loader):
    run.model.allow_grad_accumulation()
    for k, (pixels, labels) in enumerate(loader):
        run.criterion(run.model(pixels), labels).backward()
        if k % 2:
            run.optimizer.step()
            run.optimizer.zero_grad()


def added_up_in_turn(run, step, loader):
    for k, batch in enumerate(loader):
        run.optimizer.signal_skip_step(k % 2 == 0)
        step(batch)


@pytest.mark.parametrize("train", [added_up_at_once, added_up_in_turn])
def test_batches_that_are_added_up_in_one_step_are_a_fault(train):
    (fault,) = audited(train).faults
    assert "adds up several batches" in fault_parts(fault)[0]


def half_of_them_in_parts(run, step, loader):
    """Every second batch is left out, the others are handed on in parts."""
    for k, (pixels, labels) in enumerate(loader):
        if k % 2:
            run.optimizer.signal_skip_step(do_skip=True)
            step((pixels[:9], labels[:9]))
            run.optimizer.signal_skip_step(do_skip=False)
            step((pixels[9:], labels[9:]))


def test_parts_of_one_batch_are_no_several_batches():
    assert not audited(half_of_them_in_parts).faults


def scheduled(run, step, loader):
    for k, batch in enumerate(loader):
        run.optimizer.noise_multiplier = 1.5 if k < 6 else 1.0
        step(batch)


def test_a_noise_schedule_is_a_fault_only_if_the_accountant_was_not_told():
    assert not audited(scheduled).faults
    run = private_run()
    told = run.engine.accountant
    run.optimizer.attach_step_hook(
        lambda _: told.step(noise_multiplier=1.5, sample_rate=0.1)
    )
    found = [each[:2] for each in said(audited(scheduled, run, accountant=told))]
    differs = "noise multiplier differs from the accountant's at step 7"
    assert (Stage.ACCOUNTING, differs) in found
    assert {stage for stage, _ in found} <= {Stage.ACCOUNTING, Stage.NOISE_SCALE}


def test_an_accountant_that_is_not_stepped_is_a_fault():
    run = private_run()
    run.optimizer.attach_step_hook(lambda _: None)
    assert said(audited(k_times(1), run, accountant=run.engine)) == [
        (Stage.ACCOUNTING, "not every step was accounted for", "10 steps")
    ]


def test_a_norm_that_only_the_optimizer_was_told_of_is_a_fault_in_ghost_clipping():
    run = private_run(mode="ghost")

    def train(_, step, loader):
        for k, batch in enumerate(loader):
            run.optimizer.max_grad_norm = 1.0 if k < 4 else 0.5
            step(batch)

    ((stage, what, measured),) = said(audited(train, run))
    assert stage is Stage.CLIPPING
    assert "norm of 0.5 at step 5, and records are clipped to 1" in what
    assert measured == "so in 6 of 10 steps"
    both = private_run(mode="ghost")

    def train_both(_, step, loader):
        for k, batch in enumerate(loader):
            both.optimizer.max_grad_norm = 1.0 if k < 4 else 0.5
            both.model.max_grad_norm = both.optimizer.max_grad_norm
            step(batch)

    assert not audited(train_both, both).faults


def test_counts_outlive_a_checkpoint(tmp_path):
    run = private_run()
    audit, step = attach(run, model=run.model, **UNPROBED), step_of(run)
    batches = list(audit.data_loader)
    for batch in batches:
        step(batch)
    audit.save(tmp_path / "state")
    audit.detach()
    again = attach(run, model=run.model, **UNPROBED)
    again.resume(tmp_path / "state")
    for batch in batches:
        step(batch)
    assert said(again.finish()) == [(Stage.SAMPLING, REUSED, "10 of 20 steps")]


# What is not checked


def opened(run, **options):
    heard = []
    audit = audit_opacus(
        run.engine,
        run.model,
        run.optimizer,
        run.loader,
        steps=10,
        delta=1e-5,
        coordinates=300,
        key=KEY,  # of a fresh one 1 in 20 is refuted
        announce=heard.append,
        **options,
    )
    for batch in run.loader:
        step_of(run)(batch)
    return " ".join(map(str, heard)), audit.finish()


def test_an_unprobed_step_is_inconclusive_and_says_what_to_do():
    torch.manual_seed(0)
    heard, result = opened(private_run())
    assert "Clipping and per-example gradients will not be checked: pass step=" in heard
    assert result.verdict == "inconclusive"
    first = " ".join(str(result).split())
    assert "Not checked, and needed for any claim: per-example gradients, " in first
    assert "audit_opacus(..., step=step) or" in first
    assert 'unchecked=("gradients", "clipping", "interference")' in first


def test_what_the_user_does_without_is_said_and_kept():
    _, result = opened(private_run(), unchecked=("clipping", "gradients"))
    assert "clipping" not in result.reason
    assert str(result).count("accepted beforehand") == 2
    assert '"status":"not checked, accepted by the user"' in result.to_json().replace(
        ": ", ":"
    )
    assert "clipping" in not_exercised(result)


@pytest.mark.parametrize("unchecked", ["clipping", ("noise",)])
def test_only_four_checks_can_be_done_without(unchecked):
    with pytest.raises(ValueError, match=r'among "sampling", "gradients", "clipping"'):
        attach(private_run(), unchecked=unchecked)
