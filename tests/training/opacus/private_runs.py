"""Small real Opacus runs, and an own eye on their noisy sums."""

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, OneRun
from dpaudit.game.setting import Setting
from dpaudit.testing import fixed_key
from dpaudit.training.opacus import OpacusAudit, with_canaries
from dpaudit.training.opacus.insertion import canary_layout
from dpaudit.training.opacus.records import CanaryDataset

torch.set_num_threads(1)

KEY = fixed_key(bytes(range(32)))
CANARIES, STEPS, NOISE, RECORDS = 400, 40, 1.5, 200
UNPROBED = {"unchecked": ("gradients", "clipping", "interference")}


@dataclass
class Run:
    """What make_private returned, and the engine."""

    model: Any
    optimizer: Any
    loader: Any
    criterion: Any
    engine: PrivacyEngine

    def train(self, loader=None, steps=STEPS, *, schedule=None):
        """Train as anybody would; steps are those of the loop."""
        taken, loader = 0, self.loader if loader is None else loader
        while taken < steps:
            for pixels, labels in loader:
                self.optimizer.zero_grad()
                self.criterion(self.model(pixels), labels).backward()
                self.optimizer.step()
                if schedule is not None:
                    schedule.step()
                taken += 1
                if taken == steps:
                    return


def private_run(
    *,
    mode="hooks",
    clip=1.0,
    reduction="mean",
    poisson=True,
    canaries=0,
    seed=0,
    kind=torch.optim.SGD,
    freeze=False,
    wrap=lambda model: model,
    **options,
):
    """A small model, its optimizer, loader, loss and engine, made private."""
    torch.manual_seed(seed)
    pixels, labels = torch.randn(RECORDS, 30), torch.randint(4, (RECORDS,))
    data = TensorDataset(pixels, labels)
    if canaries:
        data = with_canaries(data, canaries=canaries)
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 4))
    if freeze:
        model[2].requires_grad_(False)
    model = wrap(model)
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=kind(model.parameters(), lr=0.01),
        data_loader=DataLoader(data, batch_size=len(data) // 10),
        criterion=nn.CrossEntropyLoss(reduction=reduction),
        noise_multiplier=NOISE,
        max_grad_norm=clip,
        loss_reduction=reduction,
        poisson_sampling=poisson,
        grad_sample_mode=mode,
        **options,
    )
    if "ghost" in mode:
        model, optimizer, criterion, loader = made
    else:
        (model, optimizer, loader), criterion = made, nn.CrossEntropyLoss()
    return Run(model, optimizer, loader, criterion, engine)


def step_of(run, before=lambda pixels: pixels):
    """A user's own step, as a function of a batch."""

    def step(batch):
        pixels, labels = batch
        run.optimizer.zero_grad()
        run.criterion(run.model(before(pixels)), labels).backward()
        run.optimizer.step()

    return step


def design_of(canaries=CANARIES, guesses=40, **setting):
    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    return Design(
        canaries=canaries,
        rules=OneRun(guesses=guesses),
        claim=claim,
        setting=Setting(**setting),
    )


def attach(run, *, canaries=CANARIES, guesses=40, key=KEY, **options):
    return OpacusAudit(
        run.optimizer,
        run.loader,
        design=design_of(canaries, guesses),
        key=key,
        **({"accountant": run.engine.accountant} | options),
    )


class Eye:
    """Sees the noisy sums along the canaries' directions, in plain torch."""

    def __init__(self, optimizer, *, coordinates, divisor, spread=1, key=KEY):
        self.seen = []
        self._divisor = divisor
        self._parameters = optimizer.params
        self.layout = canary_layout(
            optimizer.params, coordinates=coordinates, spread=spread, key=key
        )
        self._coordinates = coordinates
        optimizer.original_optimizer.register_step_pre_hook(self._look)

    def _look(self, *_):
        values = np.zeros(self._coordinates)
        for part in self.layout.parts:
            grad = self._parameters[part.array].grad
            grad = grad.to_local() if hasattr(grad, "to_local") else grad
            values[part.which] += grad.reshape(-1)[part.offsets].numpy()
        self.seen.append(values * self._divisor * self.layout.weight)


class Fetched:
    """Notes which canary records the loader fetches for each step, by a spy."""

    def __init__(self, run, monkeypatch, canaries=CANARIES):
        self.joined = []
        self._now = now = np.zeros(canaries)
        fetch = CanaryDataset.__getitem__

        def spy(data, index):
            if index >= data.first:
                now[index - data.first] += 1
            return fetch(data, index)

        monkeypatch.setattr(CanaryDataset, "__getitem__", spy)
        run.optimizer.original_optimizer.register_step_pre_hook(self._end)

    def _end(self, *_):
        self.joined.append(self._now.copy())
        self._now[:] = 0


def slope(inside, seen):
    """Return slope, its standard error, and the spread of what is left."""
    x, y = np.ravel(inside).astype(float), np.ravel(seen)
    rise, rest = np.polyfit(x, y, 1)
    noise = np.std(y - rise * x - rest)
    return rise, noise / (np.std(x) * np.sqrt(len(x))), noise


def plant_noise(optimizer, fault):
    """Make an optimizer's noise wrong."""
    add, noise, steps = optimizer.add_noise, optimizer.noise_multiplier, count(1)

    def wrong():
        if fault == "none in a step" and next(steps) == 8:
            optimizer.noise_multiplier = 0.0
        if fault == "same":
            optimizer.generator = torch.Generator().manual_seed(3)
        if fault == "half":
            optimizer.noise_multiplier = noise / 2
        add()
        optimizer.noise_multiplier = noise
        if fault == "none in a layer":
            last = optimizer.params[-2]
            last.grad = last.summed_grad.clone()

    if fault:
        optimizer.add_noise = wrong
