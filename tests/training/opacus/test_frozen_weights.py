"""Large weights that are not trained: not copied, restored, hashed at both ends."""

import pytest
import torch
from opacus import PrivacyEngine
from private_runs import KEY, UNPROBED, Run, design_of, step_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import Verdict
from dpaudit.training.opacus import OpacusAudit, frozen_weights
from dpaudit.training.opacus.isolated_step import isolated_step, named_tensors

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")
WORDS, WIDE, CLASSES = 1000, 16, 4


class Tuned(nn.Module):
    """A frozen embedding in half precision, tied to a second name, and a head."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDE)
        self.words.weight.requires_grad_(False)
        self.words.weight.data = self.words.weight.data.bfloat16()
        self.base = nn.Linear(WIDE, WIDE).requires_grad_(False)
        self.head = nn.Linear(WIDE, CLASSES)

    def forward(self, tokens):
        return self.head(self.base(self.words(tokens).float().mean(1)))


@pytest.fixture(autouse=True)
def _large(monkeypatch):
    monkeypatch.setattr(frozen_weights, "_COPIED", 0)


def tuned(seed=0, mode="hooks"):
    torch.manual_seed(seed)
    data = TensorDataset(torch.randint(WORDS, (200, 6)), torch.randint(CLASSES, (200,)))
    model, engine = Tuned(), PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(
            [p for p in model.parameters() if p.requires_grad], lr=0.01
        ),
        data_loader=DataLoader(data, batch_size=20),
        noise_multiplier=1.5,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    return Run(model, optimizer, loader, nn.CrossEntropyLoss(), engine)


def by_view(weight):
    weight.data[3:5].add_(1)


def by_numpy_copy(weight):
    weight.data.copy_(weight.data + 1)


def by_out(weight):
    torch.add(weight.data, 1, out=weight.data)


def several_at_once(weight):
    torch._foreach_add_([weight.data], 1.0)


def one_number(weight):
    weight.data[7, 2] = 3.5


def other_memory(weight):
    weight.data = weight.data + 1


def under_no_grad(weight):
    with torch.no_grad():
        weight.mul_(2)


WRITES = [
    by_view,
    by_numpy_copy,
    by_out,
    several_at_once,
    one_number,
    other_memory,
    under_no_grad,
]


def weights(model):
    return {n: t.detach().clone() for n, t in named_tensors(model).items()}


@pytest.mark.parametrize("write", WRITES)
def test_what_a_step_writes_to_is_reported_and_restored(write):
    run = tuned()
    before, step = weights(run.model), step_of(run)
    memory = run.model._module.words.weight.data_ptr()
    with isolated_step(run.model, run.optimizer, seed=0) as seen:
        write(run.model._module.words.weight)
        step(next(iter(run.loader)))
        assert seen.changed(named_tensors(run.model)) == ["words.weight"]
    after = weights(run.model)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert run.model._module.words.weight.data_ptr() == memory


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew"])
def test_what_a_step_does_not_write_to_is_not_copied(mode):
    run = tuned(mode=mode)
    step = step_of(run)
    with isolated_step(run.model, run.optimizer, seed=0) as seen:
        step(next(iter(run.loader)))
        assert seen.changed(named_tensors(run.model)) == []
    copied = {id(tensor) for tensor, _ in seen.before}
    frozen = [p for p in run.model.parameters() if not p.requires_grad]
    assert len(frozen) == 3
    assert not copied & {id(p) for p in frozen}
    assert copied >= {id(p) for p in run.optimizer.params}


def test_sums_are_those_of_copied_weights(monkeypatch):
    sums = []
    for limit in (0, 1 << 40):
        monkeypatch.setattr(frozen_weights, "_COPIED", limit)
        run = tuned()
        with isolated_step(run.model, run.optimizer, seed=0) as seen:
            step_of(run)(next(iter(run.loader)))
        sums.append(seen.sums[0])
    assert all(torch.equal(one, other) for one, other in zip(*sums, strict=True))


def audited(run, change=None, at=4, steps=8):
    """Train, with a change after one of the steps, and audit."""
    audit = OpacusAudit(
        run.optimizer,
        run.loader,
        design=design_of(40, 10),
        key=KEY,
        accountant=run.engine.accountant,
        model=run.model,
        **UNPROBED,
    )
    for made in range(steps):
        run.train(steps=1)
        if made == at and change is not None:
            change(run.model._module.words.weight)
    return audit.finish()


def test_a_run_that_leaves_frozen_weights_alone_is_not_suspected():
    run = tuned()
    result = audited(run)
    assert "words.weight" not in result.details()
    assert result.training.weights_sha256


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("at", [4, 7])
def test_a_frozen_weight_that_differs_at_the_end_is_named(write, at):
    result = audited(tuned(), write, at=at)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "words.weight" in result.details()


def test_writes_that_torch_counts_are_noticed_though_they_are_undone():
    def and_back(weight):
        with torch.no_grad():
            weight[7, 2] += 1
            weight[7, 2] -= 1

    result = audited(tuned(), and_back)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "words.weight" in result.details()


def test_another_process_of_digests_is_no_other_digest():
    """Bits decide, not values: a zero with a sign is another weight."""

    def signed(weight):
        weight.data[0, 0] = 0.0

    def minus(weight):
        weight.data[0, 0] = -0.0

    run = tuned()
    signed(run.model._module.words.weight)
    assert audited(run, minus).verdict is Verdict.INCONCLUSIVE
