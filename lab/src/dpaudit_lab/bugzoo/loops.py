"""Bugs in the user's own loop: what is done with a batch before, in and after a step.

Opacus is used as it is meant to be, and is right about all that it sees. Each of these
replaces ``run.step``.
"""

from typing import Any

import torch
from torch import nn

from dpaudit_lab.bugzoo.honest import CLASSES, Run
from dpaudit_lab.bugzoo.noise import last_layer

__all__ = [
    "average_over_tokens",
    "keep_mean_in_buffer",
    "mix_records",
    "normalise_by_batch",
    "tell_mean_as_sum",
    "train_rest_without_noise",
    "update_beside_optimizer",
]


def mix_records(run: Run) -> None:
    """Train on the mean of each record and another of its batch (mixup)."""

    def loss_of_mixed(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        other = torch.randperm(len(features))
        scores = run.model((features + features[other]) / 2)
        own, theirs = (_loss(scores, each) for each in (labels, labels[other]))
        return (own + theirs) / 2

    _step_by(run, loss_of_mixed)


def normalise_by_batch(run: Run) -> None:
    """Give features mean 0 and deviation 1 in each batch."""

    def loss_of_normal(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        spread = features.std(dim=0) + 1e-5
        return _loss(run.model((features - features.mean(dim=0)) / spread), labels)

    _step_by(run, loss_of_normal)


def average_over_tokens(run: Run) -> None:
    """Divide the sum of the losses by the number of tokens of the whole batch.

    A record has one token or two, as its first feature says.
    """

    def loss_over_tokens(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        tokens = 1.0 + (features[:, 0] > 0)
        each = nn.functional.cross_entropy(
            run.model(features), labels, reduction="none"
        )
        return (each * tokens).sum() / tokens.sum()

    _step_by(run, loss_over_tokens)


def tell_mean_as_sum(run: Run) -> None:
    """Take the mean of the losses, where Opacus was told that it is their sum."""
    model: Any = run.model
    model.remove_hooks()
    model.add_hooks(loss_reduction="sum")
    run.optimizer.loss_reduction = "sum"


def train_rest_without_noise(run: Run) -> None:
    """Train a bias of the classes by an optimizer of its own, which is not private."""
    bias = nn.Parameter(torch.zeros(CLASSES))
    other = torch.optim.SGD([bias], lr=0.1)

    def step(batch: Any) -> None:  # noqa: ANN401 (what a loader yields)
        features, labels = batch
        other.zero_grad()
        run.optimizer.zero_grad()
        _backward(_loss(run.model(features) + bias, labels))
        run.optimizer.step()
        other.step()

    run.step = step


def keep_mean_in_buffer(run: Run) -> None:
    """Keep a mean of the features in a buffer, which is saved with the model."""
    mean = torch.zeros(run.setting.widths[0])
    run.model.register_buffer("running_mean", mean)
    before = run.step

    def step(batch: Any) -> None:  # noqa: ANN401 (what a loader yields)
        features, _ = batch
        if len(features):
            mean.mul_(0.9).add_(0.1 * features.mean(dim=0))
        before(batch)

    run.step = step


def update_beside_optimizer(run: Run) -> None:
    """Move the last bias by its plain gradient before the private step, by hand."""
    bias = last_layer(run)[-1]

    def step(batch: Any) -> None:  # noqa: ANN401 (what a loader yields)
        features, labels = batch
        run.optimizer.zero_grad()
        _backward(_loss(run.model(features), labels))
        bias.data.add_(bias.grad, alpha=-0.1)
        run.optimizer.step()

    run.step = step


def _step_by(run: Run, loss: Any) -> None:  # noqa: ANN401 (from two tensors to one)
    """Let the run step by another loss."""

    def step(batch: Any) -> None:  # noqa: ANN401 (what a loader yields)
        run.optimizer.zero_grad()
        _backward(loss(*batch))
        run.optimizer.step()

    run.step = step


def _loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores, labels)


def _backward(loss: torch.Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
