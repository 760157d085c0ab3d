"""The honest training that every bug of the zoo is planted in.

A small network on made-up records, made private by Opacus: the clipping norm, noise
multiplier and sample rate are the setting's, and the accountant is Opacus' own. Bugs
change the parts of a ``Run`` before it is trained; one of the parts is the user's step,
which is what a probe of the run runs as well.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from typing import Any, TypeAlias, final

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.training.opacus import with_canaries

__all__ = ["CLASSES", "Run", "Setting", "Step", "network", "private_run", "train"]

CLASSES = 10

Step: TypeAlias = Callable[[Any], None]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A private training.

    Attributes:
        clip: Clipping norm.
        noise: Noise multiplier.
        batches: Batches of an epoch; one over it is the sample rate.
        steps: Logical steps.
        widths: Of the network's layers, from input to the last hidden one.
        bias: Whether layers have biases.
        records: Real records.
        poisson: Whether batches are drawn by Poisson sampling, or by shuffling.
        per_layer: Whether Opacus clips each parameter by itself.
        physical: Most records of a physical batch; 0 if batches are not divided.
    """

    clip: float = 1.0
    noise: float = 2.25
    batches: int = 10
    steps: int = 100
    widths: tuple[int, ...] = (50, 80)
    bias: bool = True
    records: int = 500
    poisson: bool = True
    per_layer: bool = False
    physical: int = 0

    @property
    def rate(self) -> float:
        """Chance of a record to join a step."""
        return 1 / self.batches

    @property
    def history(self) -> tuple[tuple[float, float, int], ...]:
        """What an accountant is told of the honest training."""
        return ((self.noise, self.rate, self.steps),)


@final
@dataclass(slots=True, kw_only=True)
class Run:
    """A training that is set up; bugs change its parts.

    Attributes:
        setting: What it was set up by.
        model: Opacus' module.
        optimizer: Opacus' optimizer.
        loader: Opacus' loader.
        engine: Opacus' engine; its accountant makes the claim.
        loss_scale: What the loss is multiplied by before gradients are taken.
        step: What is done with a batch, from ``zero_grad`` to ``optimizer.step()``.
    """

    setting: Setting
    model: nn.Module
    optimizer: DPOptimizer
    loader: DataLoader[Any]
    engine: PrivacyEngine
    loss_scale: float = 1.0
    step: Step = field(init=False)

    def __post_init__(self) -> None:
        self.step = self.plain_step

    def plain_step(self, batch: Any) -> None:  # noqa: ANN401 (what a loader yields)
        """Take a step as anyone would."""
        features, labels = batch
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(features), labels)
        (loss * self.loss_scale).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def network(setting: Setting) -> nn.Sequential:
    """Return the setting's network: linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inside, outside in pairwise(setting.widths):
        layers += [nn.Linear(inside, outside, bias=setting.bias), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.Linear(setting.widths[-1], CLASSES, bias=setting.bias)
    )


def private_run(setting: Setting, *, canaries: int = 0) -> Run:
    """Return a run that Opacus made private, with canaries among its records.

    Randomness is torch's: seed it before.
    """
    features = torch.randn(setting.records, setting.widths[0])
    labels = torch.randint(CLASSES, (setting.records,))
    data: Any = TensorDataset(features, labels)
    if canaries:
        data = with_canaries(data, canaries=canaries)
    model = network(setting)
    clip: Any = setting.clip
    if setting.per_layer:
        clip = [setting.clip] * len(list(model.parameters()))
    engine = PrivacyEngine()
    batch_size = -(-len(data) // setting.batches)
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=batch_size, shuffle=True),
        noise_multiplier=setting.noise,
        max_grad_norm=clip,
        poisson_sampling=setting.poisson,
        clipping="per_layer" if setting.per_layer else "flat",
    )
    return Run(
        setting=setting,
        model=private,
        optimizer=optimizer,
        loader=loader,
        engine=engine,
    )


def train(run: Run, loader: DataLoader[Any]) -> None:
    """Train by the run's step, for the setting's number of logical steps."""
    optimizer, physical = run.optimizer, run.setting.physical
    manager = (
        BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer
        )
        if physical
        else nullcontext(loader)
    )
    with manager as batches:
        taken = 0
        for batch in _epochs(batches):
            run.step(batch)
            taken += not optimizer._is_last_step_skipped
            if taken == run.setting.steps:
                return


def _epochs(loader: DataLoader[Any]) -> Iterator[Any]:
    return chain.from_iterable(repeat(loader))
