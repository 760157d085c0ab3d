"""Are the canaries what they should be? Slope, noise and accountant of a real run.

    python benchmarks/insertion.py

Trains the digits example with 1,000 canaries and regresses the noisy value at each
canary's coordinate, at each step, on whether the canary was in that step. The slope
must be the clipping norm within 4 standard errors, the rest the noise that Opacus
accounts for, and the accountant's epsilon that of the same run without canaries.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import opacus_digits

from dpaudit import Coins, Design, Key, OneRun
from dpaudit.training.opacus import OpacusAudit
from dpaudit.training.opacus.audit import joined
from dpaudit.training.opacus.coordinates import scatter_coordinates

CANARIES, EPOCHS, SEED = 1000, 10, 0


def plain_epsilon() -> float:
    """Return the accountant's epsilon of the run without canaries."""
    torch.manual_seed(SEED)
    model, optimizer, loader, engine = opacus_digits.private_digits(EPOCHS)
    opacus_digits.train(model, optimizer, loader, EPOCHS)
    return float(engine.get_epsilon(opacus_digits.CLAIM.delta))


def audited_run() -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return noisy values, presence, noise and epsilon of the run with canaries."""
    torch.manual_seed(SEED)
    key = Key(bytes(range(32)))
    model, optimizer, loader, engine = opacus_digits.private_digits(EPOCHS)
    design = Design(
        canaries=CANARIES, rules=OneRun(guesses=100), claim=opacus_digits.CLAIM
    )
    audit = OpacusAudit(optimizer, loader, design=design, key=key)
    places = scatter_coordinates(optimizer.params, canaries=CANARIES, seed=0)
    seen: list[np.ndarray] = []

    def read(*_: object) -> None:
        values = np.empty(CANARIES)
        for place in places:
            values[place.canaries] = place.parameter.grad.view(-1)[place.offsets]
        seen.append(values * optimizer.expected_batch_size)

    optimizer.original_optimizer.register_step_pre_hook(read)
    opacus_digits.train(model, optimizer, loader, EPOCHS)
    audit.finish()
    bits, rate = Coins(key=key, count=CANARIES).bits(), loader.sample_rate
    present = [
        bits * joined(key, step, canaries=CANARIES, sample_rate=rate)
        for step in range(len(seen))
    ]
    epsilon = float(engine.get_epsilon(opacus_digits.CLAIM.delta))
    return (
        np.concatenate(seen),
        np.concatenate(present),
        optimizer.noise_multiplier,
        epsilon,
    )


def main() -> None:
    warnings.simplefilter("ignore", UserWarning)
    torch.set_num_threads(1)
    values, present, noise, epsilon = audited_run()
    slope, rest = np.polyfit(present, values, 1)
    seen = np.std(values - slope * present - rest)
    error = seen / (np.std(present) * np.sqrt(len(values)))
    print(f"slope {slope:.4f} ± {error:.4f} (clipping norm 1)")
    print(f"noise {seen:.4f} (accounted {noise:.4f})")
    plain = plain_epsilon()
    print(f"accountant {epsilon!r} with canaries, {plain!r} without")
    if abs(slope - 1) > 4 * error or epsilon != plain:
        sys.exit("not as it should be")


if __name__ == "__main__":
    main()
