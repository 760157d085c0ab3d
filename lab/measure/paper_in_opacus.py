"""The paper's DP-SGD setting inside real Opacus, beside our simulator of it.

    python lab/measure/paper_in_opacus.py --store paper_in_opacus.sqlite

1,000 parameters, 100 steps, sample rate 0.1, noise for (2, 1e-5), and no records but
canaries: all are records that Opacus' own sampler picks and its own code clips, sums
and adds noise to. The same design is played by the exact simulator. Both mean bounds
(tier A, delta = 1e-5, alpha = 0.05) must agree within two standard errors of their
difference. Played with 1 canary per coordinate in one run, and with 6 in rounds.

    python lab/measure/paper_in_opacus.py --list 100

prints the bounds in Opacus of so many seeds, 1 per coordinate: run in two trees, it
shows whether one audits with less power than the other.
"""

import argparse
import math
import warnings
from pathlib import Path

import numpy as np
import torch
from opacus import PrivacyEngine
from sweeping import filled
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, Key, Result
from dpaudit.dpsgd.planning import Training, plan_audit
from dpaudit.dpsgd.planning.plan import rehearse
from dpaudit.testing import fixed_key
from dpaudit.training.opacus import OpacusAudit, with_canaries
from dpaudit_lab.sweeps.store import Outcome, Setting
from dpaudit_lab.sweeps.sweep import Sweep

DIMENSION, STEPS, RATE, NOISE = 1000, 100, 0.1, 2.24771  # PLD noise for (2, 1e-5)
CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
TRAINING = Training(steps=STEPS, rate=RATE, noise=NOISE)


def settings() -> list[Setting]:
    """Return both places for each number of canaries, with the design to play."""
    found: list[Setting] = []
    for size in (1, 6):
        plan = plan_audit(
            TRAINING,
            claim=CLAIM,
            coordinates=DIMENSION,
            per_coordinate=size,
            in_rounds=size > 1,
            purpose="bound",
        )
        design = plan.design().to_json()
        found += [
            {"where": where, "per_coordinate": size, "design": design}
            for where in ("opacus", "simulator")
        ]
    return found


def bound(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Return the lower bound of one audit."""
    design = Design.from_json(str(setting["design"]))
    key, size = fixed_key(rng.bytes(32)), int(setting["per_coordinate"])
    if setting["where"] == "simulator":
        result = rehearse(design, TRAINING, per_coordinate=size, rng=rng, key=key)
    else:
        result = in_opacus(design, rng, key)
    return {"epsilon_lower": result.bound.epsilon_lower}


def in_opacus(design: Design, rng: np.random.Generator, key: Key) -> Result:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(int(rng.integers(2**63)))
    # The one record beside the canaries has the zero gradient.
    nothing = TensorDataset(torch.zeros(1, DIMENSION), torch.zeros(1, 1))
    data = with_canaries(nothing, canaries=design.canaries)
    model = nn.Linear(DIMENSION, 1, bias=False)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        data_loader=DataLoader(data, batch_size=math.ceil(len(data) * RATE)),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )
    loader.batch_sampler.sample_rate = RATE  # exactly, whatever the batch size
    audit = OpacusAudit(optimizer, loader, design=design, key=key)
    taken = 0
    while taken < STEPS:
        for inputs, wanted in audit.data_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), wanted).backward()
            optimizer.step()
            taken += 1
            if taken == STEPS:
                break
    return audit.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("paper_in_opacus.sqlite"))
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", type=int, metavar="SEEDS")
    arguments = parser.parse_args()
    if arguments.list:
        for seed in range(arguments.list):
            found = bound(settings()[0], np.random.default_rng([21, seed]))
            print(seed, found["epsilon_lower"], flush=True)
        return
    sweep = Sweep(
        name="paper_in_opacus",
        revision=1,
        function=bound,
        settings=settings(),
        trials=arguments.trials,
    )
    with filled(
        sweep, arguments.store, workers=arguments.workers, doing="audits"
    ) as store:
        for size in (1, 6):
            means, errors = [], []
            for setting in sweep.settings:
                if setting["per_coordinate"] != size:
                    continue
                outcomes = store.outcomes(sweep.cell(setting))
                found = [o["epsilon_lower"] for o in outcomes]
                means.append(np.mean(found))
                errors.append(np.std(found, ddof=1) / math.sqrt(len(found)))
            apart = (means[0] - means[1]) / math.hypot(*errors)
            print(
                f"{size} per coordinate: Opacus {means[0]:.3f} ± {errors[0]:.3f}, "
                f"simulator {means[1]:.3f} ± {errors[1]:.3f}: {apart:+.1f} standard "
                f"errors apart ({len(found)} audits each)"
            )


if __name__ == "__main__":
    main()
