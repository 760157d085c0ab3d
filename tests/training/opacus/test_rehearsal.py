"""The loop around the steps, played on other records; and checks at secret steps."""

import copy

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import Verdict, audit_opacus
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import sentence
from dpaudit.training.opacus.rehearsal import rehearse

pytestmark = pytest.mark.filterwarnings("ignore")

EPOCHS = 6


class Program:
    """A small private program, whose loop a test changes."""

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(200, 6, generator=generator)
        data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
        self.public = torch.randn(50, 6, generator=generator)
        self.network = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 2))
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


STEERED = [scheduled_on_records, stopped_early]
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


def audited(program, *, between=lambda: None):
    audit = audit_opacus(
        program.engine,
        program.model,
        program.optimizer,
        program.loader,
        steps=program.steps,
        delta=1e-5,
        step=program.step,
        train=program.train,
        say=lambda _: None,
    )
    between()
    program.train()
    return audit.finish()


def checks_of(result, stage):
    return next(c for c in result.training.coverage.checks if c.stage is stage)


def test_an_average_of_weights_may_be_released(tmp_path):
    program = Program()
    program.train = average_released(program, tmp_path)
    result = audited(program)
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    codes = [f.code for f in checks_of(result, Stage.RELEASED_MODEL).findings]
    assert codes == ["released.alike"]
    codes = {f.code for f in checks_of(result, Stage.SIDE_PATHS).findings}
    assert {"interference.compared", "rehearsal.compared"} <= codes


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


def test_weights_that_are_written_after_the_last_step_are_not_passed_over():
    program = Program()
    program.train = program.plain

    def late():
        with torch.no_grad():
            program.network[0].weight.data.add_(0.1)

    audit = audit_opacus(
        program.engine,
        program.model,
        program.optimizer,
        program.loader,
        steps=program.steps,
        delta=1e-5,
        step=program.step,
        say=lambda _: None,
    )
    program.train()
    late()
    result = audit.finish()
    assert result.verdict is Verdict.INCONCLUSIVE
    check = checks_of(result, Stage.RELEASED_MODEL)
    assert check.status is Status.NOT_CHECKED
    assert check.findings[0].subject == ("0.weight",)
