"""The loop around the steps, played on other records; and checks at secret steps."""

import copy

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from private_runs import KEY, design_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import Verdict
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import sentence
from dpaudit.training.opacus import OpacusAudit
from dpaudit.training.opacus.loop_runner import MOST_STEPS, LoopRunner, _lengths
from dpaudit.training.opacus.rehearsal import rehearse
from dpaudit.training.opacus.rehearsed_noise import noise_findings

pytestmark = pytest.mark.filterwarnings("ignore")

EPOCHS = 6


class Program:
    """A small private program, whose loop a test changes."""

    def __init__(self, *, dtype=torch.float32):
        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(200, 6, generator=generator).to(dtype)
        data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
        self.public = torch.randn(50, 6, generator=generator)
        torch.manual_seed(5)
        self.network = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 2))
        self.network.to(dtype)
        self.engine = PrivacyEngine(accountant="rdp")
        self.model, self.optimizer, self.loader = self.engine.make_private(
            module=self.network,
            optimizer=torch.optim.SGD(self.network.parameters(), lr=0.3),
            data_loader=DataLoader(data, batch_size=20),
            noise_multiplier=2.0,
            max_grad_norm=1.0,
        )
        self.loss = nn.CrossEntropyLoss()
        self.steps = EPOCHS * len(self.loader)
        self.train = self.plain

    def step(self, batch):
        inputs, labels = batch
        self.optimizer.zero_grad()
        value = self.loss(self.model(inputs), labels)
        value.backward()
        self.optimizer.step()
        return float(value.detach())

    def epoch(self):
        losses = [self.step(batch) for batch in self.loader]
        return float(np.mean(losses))

    def plain(self):
        for _ in range(EPOCHS):
            self.epoch()

    def rehearsed(self):
        before = copy.deepcopy(self.network.state_dict())
        found = rehearse(
            self.train,
            self.model,
            self.optimizer,
            self.loader,
            steps=self.steps,
            rng=np.random.default_rng(2),
            seconds=60,
        )
        for name, value in self.network.state_dict().items():
            assert torch.equal(value, before[name])
        assert all(sentence(each) for each in found.findings)
        return found

    def noise(self):
        """What the noise that the loop draws shows, by code."""
        loop = LoopRunner(self.train, self.loader, steps=self.steps)
        found = [*noise_findings(loop, self.optimizer, seconds=60)]
        assert all(sentence(each) for each in found)
        return {each.code: each for each in found}


def average_released(program, _):
    def train():
        mean = copy.deepcopy(program.network.state_dict())
        for _ in range(EPOCHS):
            program.epoch()
            for name, value in program.network.state_dict().items():
                mean[name].lerp_(value, 0.5)
        program.network.load_state_dict(mean)

    return train


def scheduled_on_public_data(program, _):
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        program.optimizer.original_optimizer, patience=0
    )

    def train():
        for _ in range(EPOCHS):
            program.epoch()
            with torch.no_grad():
                plateau.step(float(program.network(program.public).square().mean()))

    return train


def scheduled_on_records(program, _):
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        program.optimizer.original_optimizer, patience=0, threshold=0.05
    )

    def train():
        for _ in range(EPOCHS):
            plateau.step(program.epoch())

    return train


def best_kept(program, folder):
    def train():
        best = np.inf
        for _ in range(EPOCHS):
            loss = program.epoch()
            if loss < best:
                best = loss
                torch.save(program.network.state_dict(), folder / "best.pt")
        program.network.load_state_dict(torch.load(folder / "best.pt"))

    return train


def stopped_early(program, _):
    def train():
        last = np.inf
        for _ in range(EPOCHS):
            loss = program.epoch()
            if loss > last:
                return
            last = loss

    return train


@pytest.mark.parametrize("loop", [average_released, scheduled_on_public_data])
def test_a_loop_that_looks_at_no_record_is_alike(loop, tmp_path):
    program = Program()
    program.train = loop(program, tmp_path)
    found = program.rehearsed()
    assert [each.code for each in found.findings] == ["rehearsal.compared"]
    assert found.findings[0].numbers["whole"]
    released = {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert found.written == (released if loop is average_released else set())


def back_to_the_best(program, _):
    """Weights of the best epoch come back when the loss rises."""

    def train():
        best, kept = np.inf, {}
        for _ in range(EPOCHS):
            loss = program.epoch()
            if loss < best:
                best, kept = loss, copy.deepcopy(program.network.state_dict())
        program.network.load_state_dict(kept)

    return train


def average_by_loss(program, _):
    """Weights are averaged, those of a small loss with more weight."""

    def train():
        total, mean = 0.0, copy.deepcopy(program.network.state_dict())
        for _ in range(EPOCHS):
            share = np.exp(-program.epoch())
            total += share
            for name, value in program.network.state_dict().items():
                mean[name].lerp_(value, share / total)
        program.network.load_state_dict(mean)

    return train


def steered_from_the_fifth_epoch(program, _):
    def train():
        for epoch in range(EPOCHS):
            loss = program.epoch()
            if epoch >= 4:
                program.optimizer.param_groups[0]["lr"] = 0.3 * loss

    return train


def steered_late_in_an_epoch(program, _):
    def train():
        for _ in range(EPOCHS):
            for number, batch in enumerate(program.loader):
                loss = program.step(batch)
                if number == 7:
                    program.optimizer.param_groups[0]["lr"] = 0.3 * loss

    return train


STEERED = [
    scheduled_on_records,
    stopped_early,
    steered_from_the_fifth_epoch,
    steered_late_in_an_epoch,
]
CHOSEN = [best_kept, back_to_the_best, average_by_loss]


@pytest.mark.parametrize("loop", STEERED + CHOSEN)
def test_a_loop_that_decides_by_records_is_at_fault(loop, tmp_path):
    """If no step differs, which weights are released is what records decide."""
    program = Program()
    program.train = loop(program, tmp_path)
    (found,) = program.rehearsed().findings
    assert (found.code, found.status) == ("rehearsal.decided", Status.FAULT)
    chosen = loop in CHOSEN
    assert found.stage is (Stage.RELEASED_MODEL if chosen else Stage.SIDE_PATHS)
    assert (found.numbers["what"] == "end") is chosen
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("epoch", [1, 4, 10, 15, 100])
def test_up_to_thirty_epochs_are_played_to_their_end(epoch):
    for epochs in range(1, 31):
        first, later = _lengths(epoch, epoch * epochs)
        assert first >= 1
        assert later >= 1
        played = first + (epochs - 1) * min(later, epoch)
        assert played <= MOST_STEPS
        if epoch <= 15 and epochs <= 16:  # all phases of an epoch
            assert first == epoch


def plain_step(program, inputs, labels):
    """A step of the wrapped optimizer without noise."""
    program.model.disable_hooks()
    program.optimizer.zero_grad()
    program.loss(program.model(inputs), labels).backward()
    program.optimizer.original_optimizer.step()
    program.model.enable_hooks()


def public_step(program):
    plain_step(program, program.public, (program.public[:, 0] > 0).long())


def public_steps_in_epochs(program):
    """On public data after each eighth step of an epoch of ten."""

    def train():
        for _ in range(EPOCHS):
            for number, batch in enumerate(program.loader):
                program.step(batch)
                if number == 7:
                    public_step(program)

    return train


def public_steps_between(program):
    def train():
        for _ in range(EPOCHS):
            program.epoch()
            public_step(program)

    return train


def noisy_gradient_twice(program):
    """The noisy gradient is applied once more."""

    def train():
        for _ in range(EPOCHS):
            for batch in program.loader:
                program.step(batch)
                program.optimizer.original_optimizer.step()

    return train


def raw_steps(program):
    def train():
        for _ in range(EPOCHS):
            program.epoch()
            plain_step(program, *next(iter(program.loader)))

    return train


def public_steps_by_loss(program):
    def train():
        last = np.inf
        for _ in range(EPOCHS):
            loss = program.epoch()
            if loss < last:
                public_step(program)
            last = loss

    return train


PASSED_OVER = [public_steps_in_epochs, public_steps_between, noisy_gradient_twice]


@pytest.mark.parametrize("loop", PASSED_OVER)
def test_steps_without_noise_on_public_data_are_alike(loop):
    program = Program()
    program.train = loop(program)
    found = program.rehearsed()
    assert [each.code for each in found.findings] == ["rehearsal.compared"]
    assert found.findings[0].numbers["bare"] >= 1
    assert found.findings[0].numbers["whole"]
    assert len(found.bare) == 1
    assert "0.weight" in found.written


@pytest.mark.parametrize(
    ("loop", "what"), [(raw_steps, "bare"), (public_steps_by_loss, "bare_steps")]
)
def test_steps_without_noise_that_records_decide_are_a_fault(loop, what):
    program = Program()
    program.train = loop(program)
    (found,) = program.rehearsed().findings
    assert (found.code, found.status) == ("rehearsal.decided", Status.FAULT)
    assert found.stage is Stage.SIDE_PATHS
    assert found.numbers["what"] == what


def seeding_each_epoch(program):
    def train():
        for _ in range(EPOCHS):
            torch.manual_seed(0)
            program.epoch()

    return train


def going_back_once(program):
    """The random state of an epoch comes back two epochs later."""

    def train():
        for epoch in range(EPOCHS):
            if epoch == 1:
                state = torch.get_rng_state()
            if epoch == 3:
                torch.set_rng_state(state)
            program.epoch()

    return train


def seeding_with_the_epoch(program):
    def train():
        for epoch in range(EPOCHS):
            torch.manual_seed(epoch)
            program.epoch()

    return train


def seeding_at_the_start(program):
    def train():
        torch.manual_seed(0)
        program.plain()

    return train


def evaluating_with_a_seed(program):
    """What is seeded for an evaluation is undone after it."""

    def train():
        for _ in range(EPOCHS):
            program.epoch()
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(0)
                program.network(program.public + torch.randn(program.public.shape))

    return train


def own_noise(program, draw):
    """Noise that is drawn by other means than Opacus'."""
    optimizer = program.optimizer

    def add_noise():
        for p in optimizer.params:
            noise = torch.as_tensor(draw(p.shape), dtype=p.dtype)
            scale = optimizer.noise_multiplier * optimizer.max_grad_norm
            p.grad = p.summed_grad + scale * noise
            p.summed_grad._processed = True

    optimizer.add_noise = add_noise


def flipping_its_sign(program):
    """Each draw serves two steps, the second time with its sign turned."""
    noise = {"step": 0}

    def draw(shape):
        step, noise["step"] = divmod(noise["step"], 4)[0], noise["step"] + 1
        if step % 2 == 0:
            noise[shape] = torch.randn(shape)
        return noise[shape] * (-1) ** step

    own_noise(program, draw)
    return program.plain


def own_generator(program):
    generator = np.random.default_rng()
    own_noise(program, lambda shape: generator.normal(size=tuple(shape)))
    return program.plain


def falling_noise(program):
    def train():
        for _ in range(EPOCHS):
            program.epoch()
            program.optimizer.noise_multiplier *= 0.9

    return train


def no_noise(program):
    program.optimizer.noise_multiplier = 0.0
    return program.plain


def signs_only(program):
    """Of each noisy sum one sign remains."""
    add = program.optimizer.add_noise

    def add_noise():
        add()
        for p in program.optimizer.params:
            at = p.grad.abs().argmax()
            kept = torch.zeros_like(p.grad).view(-1)
            kept[at] = 1.0
            p.grad = kept.view_as(p)

    program.optimizer.add_noise = add_noise
    return program.plain


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_noise_is_compared_in_any_precision(half):
    program = Program(dtype=torch.bfloat16 if half else torch.float32)
    program.train = seeding_each_epoch(program)
    found = program.noise()
    assert found["rehearsal.noise_repeated"].stage is Stage.NOISE_INDEPENDENCE
    program.train = falling_noise(program)
    assert not program.noise()


@pytest.mark.parametrize(
    "loop", [seeding_each_epoch, going_back_once, flipping_its_sign]
)
def test_noise_that_comes_again_is_a_fault(loop):
    program = Program()
    program.train = loop(program)
    found = program.noise()["rehearsal.noise_repeated"]
    assert found.status is Status.FAULT
    assert found.numbers["cause"] == "now_and_then"
    assert found.numbers["reversed"] is (loop is flipping_its_sign)
    if loop is seeding_each_epoch:  # the first step of the second epoch
        assert found.numbers["earlier"] == 1


def test_noise_that_is_seeded_in_every_step_is_named():
    program = Program()
    step = program.step

    def seeding(batch):
        torch.manual_seed(0)
        return step(batch)

    program.step, program.train = seeding, program.plain
    found = program.noise()["rehearsal.noise_repeated"]
    assert found.numbers["cause"] == "every_step"
    assert (found.numbers["earlier"], found.numbers["later"]) == (1, 2)


@pytest.mark.parametrize(
    "loop", [seeding_at_the_start, seeding_with_the_epoch, own_generator]
)
def test_noise_that_is_the_same_in_each_run_is_a_remark(loop):
    """The seed may be secret, or the generator begin with one that is."""
    program = Program()
    program.train = loop(program)
    found = program.noise()
    assert [each.status for each in found.values()] == [Status.NOTED]
    assert "rehearsal.noise_constant" in found


@pytest.mark.parametrize(
    "loop", [evaluating_with_a_seed, falling_noise, no_noise, signs_only]
)
def test_fresh_noise_and_none_are_passed_over(loop):
    program = Program()
    program.train = loop(program)
    assert not program.noise()


def attached(program, unchecked=()):
    """An audit without a plan or an accountant, which take seconds."""
    return OpacusAudit(
        program.optimizer,
        program.loader,
        design=design_of(canaries=200, guesses=40),
        key=KEY,
        model=program.model,
        unchecked=unchecked,
    )


def audited(program, *, between=lambda: None, rehearse=True):
    audit = attached(program)
    train = program.train if rehearse else None
    audit.probe(program.step, train=train, steps=program.steps)
    between()
    program.train()
    return audit.finish()


def checks_of(result, stage):
    return next(c for c in result.training.coverage.checks if c.stage is stage)


def run_after(found, program, train=None):
    """What an audit shows that a rehearsal has opened, and no check of the step."""
    audit = attached(program, ("gradients", "clipping", "interference"))
    audit._attachment.skips_bare.places |= found.bare
    audit._stages.step_checks.examined |= found.written
    (train or program.train)()
    return audit.finish()


def skipped(result):
    remarks = {each.code: each for each in result.training.remarks}
    return remarks["rehearsal.bare"].numbers["steps"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "loop",
    [
        PASSED_OVER[0],
        *(pytest.param(each, marks=pytest.mark.nightly) for each in PASSED_OVER[1:]),
    ],
)
def test_steps_without_noise_that_a_rehearsal_saw_are_passed_over(loop):
    program = Program()
    program.train = loop(program)
    result = run_after(program.rehearsed(), program)
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    each_step = loop is noisy_gradient_twice
    assert skipped(result) == (program.steps if each_step else EPOCHS)
    noise = checks_of(result, Stage.NOISE_SCALE).findings
    steps = [each.numbers["steps"] for each in noise if each.code == "noise.measured"]
    assert steps == [program.steps]  # the private ones


def test_a_step_without_noise_that_no_rehearsal_saw_voids_the_audit():
    """It is made elsewhere: on records, late in the run."""
    program = Program()
    program.train = public_steps_between(program)

    def train():
        program.train()
        inputs, labels = next(iter(program.loader))
        program.optimizer.zero_grad()
        program.loss(program.model(inputs), labels).backward()
        program.optimizer.original_optimizer.step()

    result = run_after(program.rehearsed(), program, train)
    assert result.verdict is Verdict.INVALID_RUN
    assert "passed over where audit_opacus" in " ".join(result.details().split())


@pytest.mark.nightly
def test_a_step_without_noise_on_records_is_a_fault_and_voids_nothing():
    program = Program()
    program.train = raw_steps(program)
    result = audited(program)
    assert result.verdict is Verdict.FAULT_FOUND
    assert [each.stage for each in result.faults] == [Stage.SIDE_PATHS]


def test_a_resumed_audit_passes_over_the_same_steps(tmp_path):
    program = Program()
    program.train = public_steps_between(program)
    found = program.rehearsed()
    unchecked = ("gradients", "clipping", "interference")
    audit = attached(program, unchecked)
    audit._attachment.skips_bare.places |= found.bare
    audit._stages.step_checks.examined |= found.written
    program.train()
    audit.save(tmp_path / "audit.npz")
    audit.detach()
    audit = attached(program, unchecked)
    audit.resume(tmp_path / "audit.npz")
    program.train()
    result = audit.finish()
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    assert skipped(result) == 2 * EPOCHS


@pytest.mark.nightly
def test_an_average_of_weights_may_be_released(tmp_path):
    program = Program()
    program.train = average_released(program, tmp_path)
    result = audited(program)
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    codes = [f.code for f in checks_of(result, Stage.RELEASED_MODEL).findings]
    assert codes == ["released.alike"]
    codes = {f.code for f in checks_of(result, Stage.SIDE_PATHS).findings}
    assert {"interference.compared", "rehearsal.compared"} <= codes


@pytest.mark.nightly
def test_what_changes_after_the_opening_is_checked_again():
    """Clipping is switched off once the opening's check is over."""
    program = Program()

    def unclip():
        optimizer = program.optimizer

        def clip_and_accumulate():
            for p in optimizer.params:
                total = p.grad_sample.sum(0)
                p.summed_grad = (
                    total if p.summed_grad is None else p.summed_grad + total
                )
                p.grad_sample._processed = True

        optimizer.clip_and_accumulate = clip_and_accumulate

    result = audited(program, between=unclip)
    assert result.verdict in (Verdict.FAULT_FOUND, Verdict.CLAIM_REFUTED)
    assert Stage.CLIPPING in {fault.stage for fault in result.faults}


@pytest.mark.nightly
def test_weights_that_are_written_after_the_last_step_are_not_passed_over():
    program = Program()

    def train():
        program.plain()
        with torch.no_grad():
            program.network[0].weight.data.add_(0.1)

    program.train = train
    result = audited(program, rehearse=False)
    assert result.verdict is Verdict.INCONCLUSIVE
    check = checks_of(result, Stage.RELEASED_MODEL)
    assert check.status is Status.NOT_CHECKED
    assert check.findings[0].subject == ("0.weight",)
