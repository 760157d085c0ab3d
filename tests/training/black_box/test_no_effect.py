"""An audit that saw no canary says that it is inconclusive, whatever the cause."""

import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, OneRun
from dpaudit.testing import fixed_key
from dpaudit.training.black_box import BlackBoxAudit, mislabelled

torch.set_num_threads(1)
RECORDS, CANARIES, CLASSES = 600, 300, 3
DESIGN = Design(
    canaries=CANARIES,
    rules=OneRun(guesses=100),
    claim=ApproxDP(epsilon=1.0, delta=1e-5),
)


def data():
    rng = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(RECORDS, 10, generator=rng),
        torch.randint(0, CLASSES, (RECORDS,), generator=rng),
    )


def trained(records, *, epochs=40):
    """A network that knows its records by heart; untrained without any."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(epochs if records else 0):
        for x, y in DataLoader(records, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def said(training_set):
    """What is printed of an audit of a training on what is made of all records."""
    records = data()
    canaries = mislabelled(records, count=CANARIES, classes=CLASSES, seed=0)
    audit = BlackBoxAudit(canaries, design=DESIGN, key=fixed_key(bytes(range(32))))
    model = trained(training_set(records, canaries, audit))
    return str(audit.finish(audit.score(model, loss=nn.functional.cross_entropy)))


def test_a_training_on_the_included_canaries_is_refuted():
    text = said(lambda records, _, audit: ConcatDataset([records, audit.included()]))
    assert "Epsilon is at least " in text


@pytest.mark.parametrize(
    "training_set",
    [
        lambda records, _canaries, _audit: records,
        lambda records, canaries, _audit: ConcatDataset([records, canaries]),
        lambda _records, _canaries, _audit: None,
    ],
    ids=["included() was forgotten", "all canaries", "no training"],
)
def test_a_training_that_followed_no_coin_is_inconclusive(training_set):
    """With these seeds; in one of a thousand choices guesses look better by chance."""
    text = said(training_set)
    assert text.startswith("Inconclusive: no effect of any canary was seen")
