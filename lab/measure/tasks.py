"""Two private trainings: digits and MNIST, each to a stated epsilon.

What the scripts share that need real training: the network and the data of ``data.py``,
made private by Opacus for so many epochs of so many batches, plain SGD, clipping norm
1, delta 1e-5, noise from Opacus' own calibration with its PRV accountant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import data
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

__all__ = ["DELTA", "TASKS", "Run", "Task", "accuracy", "private", "train"]

DELTA = 1e-5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One training: data, network, how long, how private, how fast."""

    load: Callable[[], data.Split]
    network: Callable[[], nn.Module]
    batches: int  # of an epoch; the sampling rate is one over it
    epochs: int
    epsilon: float
    rate: float  # of learning


TASKS = {
    "digits": Task(
        load=data.digits,
        network=data.digits_network,
        batches=10,
        epochs=10,
        epsilon=4.0,
        rate=1.0,
    ),
    "mnist": Task(
        load=data.mnist,
        network=data.mnist_network,
        batches=60,
        epochs=5,
        epsilon=4.0,
        rate=2.0,
    ),
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What Opacus made of a task, ready to train."""

    model: nn.Module
    optimizer: Any  # one of Opacus' optimizers
    loss: Callable[..., Any]
    loader: DataLoader[Any]
    engine: PrivacyEngine


def private(task: Task, records: Dataset[Any] | None = None) -> Run:
    """Make a task private; the sampling rate is the same for any number of records.

    Args:
        task: Which one.
        records: What to train on; the task's own if left out.
    """
    if records is None:
        records = TensorDataset(*task.load()[:2])
    model = task.network()
    size = -(-len(records) // task.batches)  # type: ignore[arg-type]
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=task.rate),
        data_loader=DataLoader(records, batch_size=size),
        target_epsilon=task.epsilon,
        target_delta=DELTA,
        epochs=task.epochs,
        max_grad_norm=1.0,
    )
    return Run(
        model=model,
        optimizer=optimizer,
        loss=nn.CrossEntropyLoss(),
        loader=loader,
        engine=engine,
    )


def train(run: Run, loader: DataLoader[Any], epochs: int) -> None:
    """Train as if there were no audit."""
    for _ in range(epochs):
        for inputs, labels in loader:
            run.optimizer.zero_grad()
            run.loss(run.model(inputs), labels).backward()
            run.optimizer.step()


def accuracy(run: Run, task: Task) -> float:
    """Return the share of the test records that are classified rightly."""
    *_, inputs, labels = task.load()
    run.optimizer.zero_grad()  # expanded weights refuse to look at anything before
    run.model.eval()
    with torch.no_grad():
        right = sum(
            int((run.model(part).argmax(1) == truth).sum())
            for part, truth in zip(inputs.split(1000), labels.split(1000), strict=True)
        )
    run.model.train()
    return right / len(labels)
