"""Audit a real Opacus training of scikit-learn's digits, from the run itself.

    python examples/opacus_digits.py                        # an honest run
    python examples/opacus_digits.py --divide-noise-by 4    # the same with a bug

The second run adds a quarter of the noise that the accountant believes in, as a
library with a wrong scale would. The exit code is 1 if the claim is refuted.
"""

import argparse

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn

from dpaudit import ApproxDP, AuditResult, Design, Key
from dpaudit.training.opacus import OpacusAudit

DELTA = 1e-5


def digits() -> torch.utils.data.TensorDataset:
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images / 16.0, dtype=torch.float32)
    return torch.utils.data.TensorDataset(pixels, torch.tensor(labels))


def train_and_audit(
    *,
    canaries: int = 1000,
    guesses: int = 100,
    epsilon: float = 2.0,
    epochs: int = 10,
    hidden: int = 1000,
    divide_noise_by: float = 1.0,
    key: Key,
) -> tuple[AuditResult, float]:
    """Return the audit's result and the epsilon that Opacus' accountant reports."""
    data = digits()
    model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=torch.utils.data.DataLoader(data, batch_size=180),
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=epochs,
        max_grad_norm=1.0,
    )
    if divide_noise_by != 1:
        plant_bug(optimizer, divide_noise_by)

    claim = ApproxDP(epsilon=epsilon, delta=DELTA)
    design = Design(canaries=canaries, guesses=guesses, claim=claim)
    audit = OpacusAudit(optimizer, loader, design=design, key=key)
    print(f"commitment: {audit.commitment.sha256}")

    for _ in range(epochs):
        for pixels, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels), labels).backward()
            optimizer.step()
    return audit.finish(), engine.get_epsilon(DELTA)


def plant_bug(optimizer, factor: float) -> None:
    """Make the optimizer add less noise than it tells the accountant."""
    add_noise = optimizer.add_noise

    def add_less_noise() -> None:
        told = optimizer.noise_multiplier
        optimizer.noise_multiplier = told / factor
        add_noise()
        optimizer.noise_multiplier = told

    optimizer.add_noise = add_less_noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the training")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    result, accounted = train_and_audit(
        divide_noise_by=arguments.divide_noise_by, key=Key.generate()
    )
    print(f"accountant: epsilon = {accounted:.3f} at delta = {DELTA:g}")
    print(result)
    raise SystemExit(1 if result.claim_test.refuted else 0)


if __name__ == "__main__":
    main()
