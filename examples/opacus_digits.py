"""Audit a real Opacus training of scikit-learn's digits, from the run itself.

    python examples/opacus_digits.py                        # an honest run
    python examples/opacus_digits.py --divide-noise-by 4    # the same with a bug

The second run adds a quarter of the noise that the accountant believes in, as a
library with a wrong scale would. The exit code is the verdict's: 1 if refuted.
"""

import argparse
from collections.abc import Callable

import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from sklearn.datasets import load_digits
from torch import nn

from dpaudit import Key
from dpaudit.game.result import Result
from dpaudit.training.opacus import OpacusAudit, plan_opacus

EPSILON, DELTA = 2.0, 1e-5


def private_digits(
    epochs: int,
) -> tuple[nn.Module, DPOptimizer, DPDataLoader, PrivacyEngine]:
    """Return a network for the digits, made private by Opacus."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images / 16.0, dtype=torch.float32)
    data = torch.utils.data.TensorDataset(pixels, torch.tensor(labels))
    model = nn.Sequential(nn.Linear(64, 1000), nn.ReLU(), nn.Linear(1000, 10))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=torch.utils.data.DataLoader(data, batch_size=180),
        target_epsilon=EPSILON,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=1.0,
    )
    return model, optimizer, loader, engine


def step_of(
    model: nn.Module, optimizer: DPOptimizer
) -> Callable[[tuple[torch.Tensor, torch.Tensor]], None]:
    """Return the training step: all that happens to a batch."""

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        pixels, labels = batch
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pixels), labels).backward()
        optimizer.step()

    return step


def divide_noise(optimizer: DPOptimizer, factor: float) -> None:
    """Plant a bug: add less noise than the accountant is told of."""
    add_noise = optimizer.add_noise

    def add_less_noise() -> None:
        told = optimizer.noise_multiplier
        optimizer.noise_multiplier = told / factor
        add_noise()
        optimizer.noise_multiplier = told

    optimizer.add_noise = add_less_noise


def train_and_audit(
    *,
    epochs: int = 10,
    divide_noise_by: float = 1.0,
    canaries: int = 5000,
    key: Key,
    publish: Callable[[object], object] = print,
) -> tuple[Result, float]:
    """Return the audit's result and the epsilon that Opacus' accountant reports."""
    model, optimizer, loader, engine = private_digits(epochs)
    if divide_noise_by != 1:
        divide_noise(optimizer, divide_noise_by)

    plan = plan_opacus(
        optimizer,
        loader,
        steps=epochs * len(loader),
        delta=DELTA,
        coordinates=canaries,
    )
    publish(plan)
    audit = OpacusAudit(
        optimizer,
        loader,
        design=plan.design(),
        key=key,
        accountant=engine.accountant,
        model=model,
    )
    publish(f"commitment: {audit.commitment.sha256}")  # before the run

    step = step_of(model, optimizer)
    audit.probe(step)
    for _ in range(epochs):  # training, as if there were no audit
        for batch in loader:
            step(batch)
    return audit.finish(), engine.get_epsilon(DELTA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--seed", type=int, help="of the training, to see it again")
    arguments = parser.parse_args()
    if arguments.seed is not None:  # whoever knows it can take the noise off
        torch.manual_seed(arguments.seed)
    result, accounted = train_and_audit(
        divide_noise_by=arguments.divide_noise_by, key=Key.generate()
    )
    print(f"Opacus' accountant: epsilon = {accounted:.3f} at delta = {DELTA:g}")
    print(result)
    raise SystemExit(result.verdict.exit_code)


if __name__ == "__main__":
    main()
