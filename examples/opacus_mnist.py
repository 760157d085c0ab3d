"""Audit a real Opacus training of MNIST with ghost clipping, from the run itself.

    python examples/opacus_mnist.py                        # an honest run
    python examples/opacus_mnist.py --divide-noise-by 4    # the same with a bug

A small convolutional network is trained to epsilon = 4 for five epochs, with 10,000
canaries in its 26,010 parameters. The second run adds a quarter of the noise that the
accountant believes in. The exit code is the verdict's: 1 if refuted. The
data are fetched once; ``lab/measure/data.py`` says from where.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import Key
from dpaudit.training.opacus import OpacusAudit, plan_opacus

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from data import mnist, mnist_network

EPSILON, DELTA, EPOCHS, CANARIES = 4.0, 1e-5, 5, 10_000


def divide_noise(optimizer: DPOptimizer, factor: float) -> None:
    """Plant a bug: add less noise than the accountant is told of."""
    add_noise = optimizer.add_noise

    def add_less_noise() -> None:
        told = optimizer.noise_multiplier
        optimizer.noise_multiplier = told / factor
        add_noise()
        optimizer.noise_multiplier = told

    optimizer.add_noise = add_less_noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the training")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # Opacus remarks on secure mode
    torch.manual_seed(arguments.seed)
    images, labels, test_images, test_labels = mnist()
    network = mnist_network()
    engine = PrivacyEngine()
    model, optimizer, loss, loader = engine.make_private_with_epsilon(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=2.0),
        data_loader=DataLoader(TensorDataset(images, labels), batch_size=1000),
        target_epsilon=EPSILON,
        target_delta=DELTA,
        epochs=EPOCHS,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
    )
    divide_noise(optimizer, arguments.divide_noise_by)

    steps = EPOCHS * len(loader)
    plan = plan_opacus(
        optimizer, loader, steps=steps, delta=DELTA, coordinates=CANARIES
    )
    audit = OpacusAudit(
        optimizer,
        loader,
        design=plan.design(),
        key=Key.generate(),
        accountant=engine.accountant,
        model=model,
    )
    print(plan)
    print(f"commitment: {audit.commitment.sha256}")  # before the run

    def step(batch: list[torch.Tensor]) -> None:
        inputs, truth = batch
        optimizer.zero_grad()
        loss(model(inputs), truth).backward()
        optimizer.step()

    audit.probe(step)
    start = time.monotonic()
    for _ in range(EPOCHS):
        for batch in loader:
            step(batch)
    seconds = time.monotonic() - start
    result = audit.finish()

    with torch.no_grad():
        right = (network(test_images).argmax(1) == test_labels).float().mean()
    print(f"accuracy: {right:.1%}, {seconds:.0f} s")
    epsilon = engine.get_epsilon(DELTA)
    print(f"Opacus' accountant: epsilon = {epsilon:.3f} at delta = {DELTA:g}")
    print(result)
    raise SystemExit(result.verdict.exit_code)


if __name__ == "__main__":
    main()
