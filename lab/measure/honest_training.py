"""Is honest training ever accused? Real Opacus runs, and mechanisms on the boundary.

    python lab/measure/honest_training.py --store honest.sqlite     # run or resume
    python lab/measure/honest_training.py --store honest.sqlite --only boundary

``honest``: audited runs whose noise, clip, sampling and accounting are Opacus' own, in
turn with canaries as records (hooks, functorch, ew) and in sums (hooks, ghost), with
little and much noise; how often is the accountant's claim refuted at p < 0.001, and at
0.05? It holds with room to spare, so hardly ever.

``boundary``: the same pipeline on real Opacus runs that are wrapped so that the claim
holds with equality, where a test at level alpha may be wrong with chance alpha and no
more. ``all or nothing``: with chance delta the run shows its sums without noise, else
noise alone. ``revealed or randomised``: with chance delta the sums without noise,
else each coordinate shows whether a canary is there by randomised response with the
claim's epsilon. A rate fails when its lower 99.9 % limit (Bonferroni over the rows)
exceeds alpha.
"""

import argparse
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from sweeping import filled
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, Key, OneRun
from dpaudit.engines.store import Outcome, Setting, Store
from dpaudit.engines.sweep import Sweep
from dpaudit.stats.binomial import rate_limits
from dpaudit.training.opacus import OpacusAudit, with_canaries

HONEST: list[Setting] = [
    {"mode": mode, "records": records, "noise": noise}
    for mode, records in (
        ("hooks", True),
        ("functorch", True),
        ("ew", True),
        ("hooks", False),
        ("ghost", False),
    )
    for noise in (0.7, 2.0)
]
# Guesses such that randomised response alone is refuted with chance 0.0495, next to
# alpha; by the exact bound at 100 canaries.
BOUNDARY: list[Setting] = [
    {"kind": kind, "epsilon": epsilon, "delta": 1e-4, "guesses": guesses}
    for kind in ("revealed or randomised", "all or nothing")
    for epsilon, guesses in ((0.5, 99), (2.0, 38))
]
ALPHA = 0.05


def make_private(
    *,
    mode: str,
    noise: float,
    clip: float,
    canaries: int,
    rate: float,
    hidden: int,
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model,
) -> tuple[Any, ...]:
    """Return model, optimizer, criterion, loader and engine of a small training."""
    pixels, labels = torch.randn(200, 30), torch.randint(4, (200,))
    data = TensorDataset(pixels, labels)
    if canaries:
        data = with_canaries(data, canaries=canaries)
    layers = nn.Linear(30, hidden), nn.ReLU(), nn.Linear(hidden, 4)
    model = wrap(nn.Sequential(*layers))
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=int(len(data) * rate)),
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=noise,
        max_grad_norm=clip,
        grad_sample_mode=mode,
    )
    if "ghost" in mode:
        model, optimizer, criterion, loader = made
    else:
        (model, optimizer, loader), criterion = made, nn.CrossEntropyLoss()
    return model, optimizer, criterion, loader, engine


def train(
    model: nn.Module,
    optimizer: DPOptimizer,
    criterion: nn.Module,
    loader: DataLoader,
    steps: int,
) -> None:
    taken = 0
    while taken < steps:
        for pixels, labels in loader:
            optimizer.zero_grad()
            criterion(model(pixels), labels).backward()
            optimizer.step()
            taken += 1
            if taken == steps:
                return


def begin(rng: np.random.Generator) -> Key:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(int(rng.integers(2**63)))
    return Key(rng.bytes(32))


def honest_run(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train honestly with 1,000 canaries and return the accountant's p-value."""
    key = begin(rng)
    n = 1000
    model, optimizer, criterion, loader, engine = make_private(
        mode=str(setting["mode"]),
        noise=float(setting["noise"]),
        clip=float(rng.choice([0.5, 1.0, 4.0])),
        canaries=n if setting["records"] else 0,
        rate=0.1,
        hidden=60,
    )
    design = Design(
        canaries=n,
        rules=OneRun(guesses=int(rng.choice([50, 200, 1000]))),
        claim=ApproxDP(epsilon=8.0, delta=1e-5),
    )
    audit = OpacusAudit(
        optimizer, loader, design=design, key=key, accountant=engine.accountant
    )
    train(model, optimizer, criterion, audit.data_loader, 30)
    return {"p_value": audit.finish().p_value}


def boundary_run(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Audit one step of a run that keeps its claim with equality."""
    key = begin(rng)
    epsilon, delta = float(setting["epsilon"]), float(setting["delta"])
    model, optimizer, criterion, loader, _ = make_private(
        mode="hooks", noise=1.0, clip=1.0, canaries=0, rate=1.0, hidden=6
    )
    wrapped(optimizer, str(setting["kind"]), epsilon, delta, rng)
    design = Design(
        canaries=100,
        rules=OneRun(guesses=int(setting["guesses"])),
        claim=ApproxDP(epsilon=epsilon, delta=delta),
        alpha=ALPHA,
    )
    audit = OpacusAudit(optimizer, loader, design=design, key=key)
    train(model, optimizer, criterion, loader, 1)
    return {"p_value": audit.finish().p_value}


def wrapped(
    optimizer: DPOptimizer,
    kind: str,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> None:
    """Let the run show its sums with chance delta, and otherwise little or nothing."""
    everything = rng.random() < delta
    lie = 1 / (1 + math.exp(epsilon))

    def add_noise() -> None:
        for parameter in optimizer.params:
            # One step without real gradients: what is there is canaries.
            there = parameter.summed_grad.abs() > 0.5 * optimizer.max_grad_norm
            if not everything:
                shape = tuple(there.shape)
                if kind == "all or nothing":
                    there = torch.from_numpy(rng.random(shape) < 0.5)
                else:
                    there ^= torch.from_numpy(rng.random(shape) < lie)
            parameter.grad = there.float().view_as(parameter)

    def clip_nothing() -> None:
        for parameter in optimizer.params:
            parameter.summed_grad = torch.zeros_like(parameter)

    optimizer.add_noise = add_noise
    optimizer.clip_and_accumulate = clip_nothing


def sweeps(honest: int, boundary: int) -> dict[str, Sweep]:
    return {
        "honest": Sweep(
            name="honest_training",
            revision=2,
            function=honest_run,
            settings=HONEST,
            trials=honest,
        ),
        "boundary": Sweep(
            name="boundary_training",
            revision=2,
            function=boundary_run,
            settings=BOUNDARY,
            trials=boundary,
        ),
    }


def report(name: str, sweep: Sweep, store: Store) -> None:
    level = 0.001 if name == "honest" else ALPHA
    total = wrong = 0
    for setting in sweep.settings:
        found = [o["p_value"] for o in store.outcomes(sweep.cell(setting))]
        refuted = sum(p <= level for p in found)
        total, wrong = total + len(found), wrong + refuted
        low, high = rate_limits(refuted, len(found), alpha=0.002 / len(sweep.settings))
        verdict = "FAILS" if low > level else "holds"
        print(
            f"{name} {setting}: refuted at p <= {level:g} in {refuted} of {len(found)}"
            f" ({refuted / len(found):.4f} [{low:.4f}, {high:.4f}]), least p "
            f"{min(found):.3g}: {verdict}"
        )
    print(f"{name}: {wrong} of {total} refuted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("honest.sqlite"))
    parser.add_argument("--honest", type=int, default=30, help="runs of each setting")
    parser.add_argument("--boundary", type=int, default=5000, help="the same")
    parser.add_argument("--only", choices=["honest", "boundary"])
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    for name, sweep in sweeps(arguments.honest, arguments.boundary).items():
        if arguments.only in (None, name):
            with filled(
                sweep, arguments.store, workers=arguments.workers, doing=name
            ) as store:
                report(name, sweep, store)


if __name__ == "__main__":
    main()
