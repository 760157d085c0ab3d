"""Audit a model from outside: was it trained as privately as is claimed?

    python examples/black_box.py

Trains a small network on scikit-learn's digits, each time with a thousand mislabelled
canaries of which a secret half or so is included: without any privacy, by Opacus to
epsilon = 2, and by Opacus once more with control records, which show that the silence
of the canaries is not that of a model that was never asked. The same claim, epsilon =
2, is made of all. The audit sees nothing but the final models.
"""

import copy
import math
import time

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset

from dpaudit import ApproxDP, Design, Key, OneRun, Result
from dpaudit.training.black_box import (
    BlackBoxAudit,
    Controls,
    mislabelled,
    set_aside,
)

CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)  # add-remove: a canary is there or not
CANARIES, GUESSES = 1000, 200
EPOCHS, BATCHES = 20, 10
CONTROLS, REPEATS = 30, 50  # half of the control records is trained on, so many times


def digits() -> TensorDataset:
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(
        torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    )


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def train_plainly(model: nn.Module, data: Dataset) -> None:
    """Train without privacy, long enough to learn the canaries by heart."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(4 * EPOCHS):
        for pixels, labels in DataLoader(data, batch_size=256, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels), labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # the mean's: not privacy
            optimizer.step()


def train_privately(model: nn.Module, data: Dataset) -> None:
    """Train by Opacus, with everything but the sums independent of how many records.

    The number of records depends on the coins. Sample rate and steps follow from the
    number of batches alone, which is fixed here, and so is the learning rate of a sum.
    (How many records the controls add is public, and may be counted or not.)
    """
    expected_batch = (len(digits()) + CANARIES / 2) / BATCHES  # public
    batch_size = math.ceil(len(data) / BATCHES)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5 / expected_batch),
        data_loader=DataLoader(data, batch_size=batch_size),
        target_epsilon=CLAIM.epsilon,
        target_delta=CLAIM.delta,
        epochs=EPOCHS,
        max_grad_norm=1.0,
        loss_reduction="sum",  # a mean would be over a number that the coins decide
    )
    assert loader.sample_rate == 1 / BATCHES
    for _ in range(EPOCHS):
        for pixels, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels), labels, reduction="sum")
            loss.backward()
            optimizer.step()
    print(f"accountant: epsilon = {engine.get_epsilon(CLAIM.delta):.3f}")


def planted(data: Dataset) -> tuple[Dataset, Dataset]:
    """Return control records and canaries: mislabelled records, divided by lot."""
    wrong = mislabelled(data, count=CANARIES + CONTROLS, classes=10, seed=0)
    return set_aside(wrong, count=CONTROLS, seed=0)


def opened(data: Dataset, *, key: Key, controlled: bool) -> BlackBoxAudit:
    records, canaries = planted(data)
    design = Design(canaries=CANARIES, rules=OneRun(guesses=GUESSES), claim=CLAIM)
    controls = Controls(records=records, repeats=REPEATS) if controlled else None
    return BlackBoxAudit(canaries, design=design, key=key, controls=controls)


def train_and_audit(
    *, private: bool, key: Key, controlled: bool = False
) -> tuple[Result, float]:
    """Return the audit's result and the model's accuracy on the digits."""
    data = digits()
    audit = opened(data, key=key, controlled=controlled)
    print(f"commitment: {audit.commitment.sha256}")  # before the run

    model = network()
    initial = copy.deepcopy(model)
    training_set = ConcatDataset([data, audit.included()])
    (train_privately if private else train_plainly)(model, training_set)

    scores = audit.score(model, loss=nn.functional.cross_entropy, reference=initial)
    return audit.finish(scores), accuracy(model, data)


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    pixels, labels = data.tensors
    with torch.no_grad():
        return (model(pixels).argmax(1) == labels).double().mean().item()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, private, controlled in (
        ("without privacy", False, False),
        ("by Opacus", True, False),
        ("by Opacus, with control records", True, True),
    ):
        start = time.perf_counter()
        print(f"\n{name}:")
        result, right = train_and_audit(
            private=private, key=Key.generate(), controlled=controlled
        )
        print(f"accuracy: {right:.1%}, {time.perf_counter() - start:.1f} s")
        print(result)


if __name__ == "__main__":
    main()
