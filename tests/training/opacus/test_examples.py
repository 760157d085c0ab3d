"""Canaries that are examples: what they put in is what is read, in every mode."""

from contextlib import ExitStack
from itertools import chain, islice, repeat

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from private_runs import KEY
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, OneRun, Verdict
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Coins
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts
from dpaudit.training.audit import TrainingAudit
from dpaudit.training.opacus import Canary, OpacusAudit, with_canaries
from dpaudit.training.opacus.examples import ExampleInserter, separated
from dpaudit.training.opacus.isolated_step import patched

# Opacus warns of noise that is not secure, which tests do not need to be.
pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")

MODES = "hooks", "functorch", "ew", "ghost"
EXAMPLES, RECORDS = 20, 180


class Training:
    """A small private training whose last records may be canaries.

    With ``weights`` it is plain Opacus, and the losses of the last records are
    multiplied by these: the oracle of what leaving a record out means.
    """

    def __init__(
        self, mode, *, noise=1.0, clip=0.5, weights=None, seed=0, network=None
    ):
        torch.manual_seed(seed)
        pixels = torch.randn(RECORDS + EXAMPLES, 12)
        labels = torch.randint(4, (RECORDS + EXAMPLES,))
        real = TensorDataset(pixels[:RECORDS], labels[:RECORDS])
        if weights is None:
            examples = TensorDataset(pixels[RECORDS:], labels[RECORDS:])
            data = with_canaries(real, examples=examples)
        else:
            data = TensorDataset(
                pixels, labels, torch.cat([torch.ones(RECORDS), weights])
            )
        model = network or nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 4))
        criterion = nn.CrossEntropyLoss(reduction="none" if mode != "ghost" else "mean")
        self.engine = PrivacyEngine()
        made = self.engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.2),
            data_loader=DataLoader(data, batch_size=40),
            criterion=criterion,
            noise_multiplier=noise,
            max_grad_norm=clip,
            grad_sample_mode=mode,
        )
        self.model, self.optimizer, *given, self.loader = made
        self.criterion = given[0] if given else criterion

    def step(self, batch):
        pixels, labels, *weights = batch
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(pixels), labels)
        if weights:
            loss = loss * weights[0]
        (loss if hasattr(loss, "loss_per_sample") else loss.mean()).backward()
        self.optimizer.step()

    def audit(self, key=KEY, **options):
        return OpacusAudit(
            self.optimizer,
            self.loader,
            design=Design(
                canaries=EXAMPLES,
                rules=OneRun(guesses=EXAMPLES),
                claim=ApproxDP(epsilon=0.5, delta=1e-5),
            ),
            key=key,
            **(
                {
                    "accountant": self.engine.accountant,
                    "model": self.model,
                    "step": self.step,
                }
                | options
            ),
        )

    def train(self, loader=None, steps=12):
        torch.manual_seed(1)
        batches = chain.from_iterable(repeat(loader or self.loader))
        for batch in islice(batches, steps):
            self.step(batch)

    def weights(self):
        return torch.cat([p.detach().reshape(-1) for p in self.optimizer.params])


def test_separated_is_the_best_linear_reading():
    # Oracle: of all unbiased weights of what is seen, the least variance that noise and
    # the other canaries leave is 1 / (a' S^-1 a), with a what this canary shows along
    # all directions and S the covariance of the rest.
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(7, 30)) + rng.normal(size=30)
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    cosines, sizes = directions @ directions.T, rng.uniform(0.2, 1.0, 7)
    rate, noise = 0.3, 0.4
    chance = rate / 2
    joined = rng.random((5_000, 7)) < chance
    sums = joined * sizes @ directions + noise * rng.normal(size=(5_000, 30))
    seen, errors = zip(
        *(
            separated(cosines, directions @ each, sizes, rate=rate, noise=noise)
            for each in sums
        ),
        strict=True,
    )
    for i in range(7):
        others = np.delete(np.arange(7), i)
        spread = chance * (1 - chance) * sizes[others] ** 2
        rest = noise**2 * cosines + cosines[:, others] * spread @ cosines[others]
        own = cosines[:, i] * sizes[i]
        least = 1 / np.sqrt(own @ np.linalg.solve(rest, own))
        assert errors[0][i] == pytest.approx(least, rel=1e-9)
    left = np.array(seen) - joined
    # 5,000 draws: five errors of a mean are 0.071 of its spread, of a spread 0.05.
    np.testing.assert_array_less(np.abs(left.mean(axis=0)), 0.071 * errors[0])
    np.testing.assert_allclose(left.std(axis=0), errors[0], rtol=0.05)


@pytest.mark.parametrize(
    ("mode", "physical"), [*((mode, 0) for mode in MODES), ("ew", 11), ("ghost", 11)]
)
def test_what_is_read_is_who_joined(mode, physical):
    # Almost without noise: nothing but the canaries may be left of the sums.
    # Nor is the audit finished, as accounting for so little noise takes long.
    training = Training(mode, noise=1e-4)
    audit = training.audit()
    read, put = [], []
    original = audit._audit.observe

    def observe(sums, joined, scale, **configured):
        read.append(sums.copy())
        put.append(joined.copy())
        original(sums, joined, scale, **configured)

    audit._audit.observe = observe
    with ExitStack() as stack:
        loader = audit.data_loader
        if physical:
            manager = BatchMemoryManager(
                data_loader=loader,
                max_physical_batch_size=physical,
                optimizer=training.optimizer,
            )
            loader = stack.enter_context(manager)
        training.train(loader, steps=60 if physical else 12)
    read, put = np.array(read), np.array(put)
    assert len(read) > 8
    assert 0.02 < put.mean() < 0.25  # half of them, at a rate of 1/5
    np.testing.assert_allclose(read, put, atol=0.02)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "mode",
    ["ghost", *(pytest.param(m, marks=pytest.mark.nightly) for m in MODES[:-1])],
)
def test_excluded_examples_count_nothing_and_training_is_as_without(mode):
    audited = Training(mode)
    audit = audited.audit()
    audited.train(audit.data_loader)
    result = audit.finish()
    bits = torch.from_numpy(Coins(key=KEY, count=EXAMPLES).bits()).float()
    plain = Training(mode, weights=bits)
    plain.train()
    torch.testing.assert_close(audited.weights(), plain.weights(), rtol=1e-5, atol=1e-6)
    signal = result.training.signal
    assert abs(signal.slope - 1) < 5 * signal.error
    how = {look.stage: look.status for look in result.training.coverage.checks}
    for stage in (Stage.SAMPLING, Stage.GRADIENTS, Stage.CLIPPING, Stage.AGGREGATION):
        assert how[stage] is Status.TESTED
    assert not result.training.coverage.faults


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_noise_too_small_is_refuted(mode):
    training = Training(mode)
    add_noise = training.optimizer.add_noise

    def add_less():  # than the accountant is told of
        told = training.optimizer.noise_multiplier
        with patched(training.optimizer, "noise_multiplier", told / 20):
            add_noise()

    training.optimizer.add_noise = add_less
    audit = training.audit(accountant=None)
    training.train(audit.data_loader, steps=25)
    assert audit.finish().refuted


class Tied(nn.Module):
    """A layer that is used twice, the second time as a matrix that no hook sees."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 12, bias=False)

    def forward(self, pixels):
        inside = torch.tanh(self.layer(pixels))
        return nn.functional.linear(inside, self.layer.weight)[:, :4]


def test_a_layer_that_ghost_clipping_sees_once_is_a_fault():
    training = Training("ghost", network=Tied(), clip=0.1)
    audit = training.audit()
    training.train(audit.data_loader)
    result = audit.finish()
    assert result.verdict in (Verdict.FAULT_FOUND, Verdict.CLAIM_REFUTED)
    (fault,) = (f for f in result.training.coverage.faults if f.stage is Stage.CLIPPING)
    assert "C by an example alone" in fault_parts(fault)[1]


@pytest.mark.nightly
def test_a_resumed_audit_is_the_whole_one(tmp_path):
    found = []
    for stops in (False, True):
        training = Training("ghost")
        audit = training.audit()
        training.train(audit.data_loader, steps=6)
        if stops:
            audit.save(tmp_path / "state.npz")
            audit.detach()
            audit = training.audit()
            audit.resume(tmp_path / "state.npz")
        training.train(audit.data_loader, steps=6)
        result = audit.finish()
        found.append((training.weights(), result.training, result.p_value))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][2] == found[1][2]
    assert found[0][1].signal == found[1][1].signal
    assert found[0][1].coverage.checks[2] == found[1][1].coverage.checks[2]


def test_what_reads_holds_nothing_that_knows_the_coins():
    audit = Training("ghost").audit()
    for held in vars(audit._reader).values():
        owner = getattr(held, "__self__", held)
        assert not isinstance(owner, OpacusAudit | TrainingAudit | ExampleInserter)


def test_parameters_that_change_void_the_audit():
    training = Training("ghost")
    audit = training.audit()
    training.optimizer.param_groups[0]["params"].pop()
    training.train(audit.data_loader)
    with pytest.raises(InvalidRunError, match="trains other parameters"):
        audit.finish()


def test_what_examples_cannot_do_is_refused_beforehand():
    training = Training("ghost")
    for options, said in (
        ({"model": None}, "need the model"),
        ({"step": None}, "need the model"),
        ({"canary": Canary(norm=2.0)}, "have their own"),
        ({"knows_real_sums": False}, "leave knows_real_sums=True"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            training.audit(**options)
    records = TensorDataset(torch.zeros(3, 2))
    for options in ({}, {"canaries": 2, "examples": records}):
        with pytest.raises(InvalidInputError, match=r"canaries=.*or examples="):
            with_canaries(records, **options)
    with pytest.raises(InvalidInputError, match="examples must have a length"):
        with_canaries(records, examples=[])
