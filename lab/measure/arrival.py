"""Does an audit of training notice that its canaries did not arrive?

    python lab/measure/arrival.py --store arrival.sqlite          # run or resume
    python lab/measure/arrival.py --only "any loop"               # ways that begin so

Every way of auditing a training (Opacus in eleven modes, JAX Privacy with canaries in
sums and as records, any loop with and without the real part) is run honestly 100 times:
slopes of the noisy sums on what joined must be 1 within 4 of their errors, errors at
most 0.08, and no run void. Then each fault 20 times: the program loses, negates, scales
or halves its sums before it adds noise, the loop hands over a real part that holds the
canaries, the audit is attached to another model. "No violation found" must never be
said of these.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from honest_training import make_private, train
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus_modes import MODES, Mode
from ranks import on_ranks
from sweeping import filled
from torch import distributed

from dpaudit import ApproxDP, Design, OneRun
from dpaudit.errors import VoidAuditError
from dpaudit.game.result import Result
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.opacus import OpacusAudit
from dpaudit.training.opacus.setup import summed_grad
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

CANARIES, STEPS, RATE, NOISE = 1000, 12, 0.1, 1.0
RUNS = 20  # of a trial, so that ranks are started once for several
# By what the program multiplies its sums before it adds noise.
FACTORS = {
    "honest": 1.0,
    "never arrived": 0.0,
    "negated": -1.0,
    "scaled by 100": 100.0,
    "scaled by 0.01": 0.01,
    "halved": 0.5,
}
OTHER_MODEL, DOUBLE = "another model", "the real part holds the canaries"
DESIGN = Design(
    canaries=CANARIES,
    rules=OneRun(guesses=100),
    claim=ApproxDP(epsilon=3.0, delta=1e-5),
)


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Return slope, error and verdict of some runs."""
    way, fault = str(setting["way"]), str(setting["fault"])
    seeds = [int(seed) for seed in rng.integers(2**31, size=RUNS)]
    mode = MODES.get(way)
    if mode is not None and mode.wrap is not None:
        found: Outcome = on_ranks(several, way, fault, seeds)
        return found
    return several(way, fault, seeds)


def several(way: str, fault: str, seeds: list[int]) -> Outcome:
    """Run an audit for each seed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for number, seed in enumerate(seeds):
        for name, value in outcome(WAYS[way], fault, seed):
            found[f"{name} {number}"] = value
    return found


def outcome(
    run: Callable[[str, int], Result], fault: str, seed: int
) -> Iterator[tuple[str, float | str]]:
    try:
        result = run(fault, seed)
    except VoidAuditError:
        yield "verdict", "void"
        return
    yield "verdict", str(result.verdict)
    if result.training.arrival is not None:
        yield "slope", result.training.arrival.slope
        yield "error", result.training.arrival.error


def opacus_run(mode: Mode) -> Callable[[str, int], Result]:
    """Return what audits a real Opacus run in a mode."""

    def made(seed: int) -> tuple[Any, ...]:
        torch.manual_seed(seed)
        return make_private(
            mode=mode.gradients,
            noise=NOISE,
            clip=1.0,
            canaries=CANARIES if mode.records else 0,
            rate=RATE,
            hidden=60,
            **({} if mode.wrap is None else {"wrap": mode.wrap}),
        )

    def run(fault: str, seed: int) -> Result:
        model, optimizer, criterion, loader, engine = made(seed)
        torch.manual_seed(seed + 1 + (distributed.get_rank() if mode.wrap else 0))
        scale(optimizer, FACTORS.get(fault, 1.0))
        audit = OpacusAudit(
            optimizer,
            loader,
            design=DESIGN,
            key=fixed_key(np.random.default_rng(seed).bytes(32)),
            accountant=engine.accountant,
        )
        if fault == OTHER_MODEL:
            model, optimizer, criterion, loader, _ = made(seed + 2)
            train(model, optimizer, criterion, loader, STEPS)
            return audit.finish()
        if not mode.split:
            train(model, optimizer, criterion, audit.data_loader, STEPS)
            return audit.finish()
        with BatchMemoryManager(
            data_loader=audit.data_loader,
            max_physical_batch_size=30 if mode.records else 5,
            optimizer=optimizer,
        ) as smaller:
            logical(model, optimizer, criterion, smaller)
        return audit.finish()

    return run


def logical(
    model: Any,  # noqa: ANN401 (torch)
    optimizer: DPOptimizer,
    criterion: Any,  # noqa: ANN401 (torch)
    loader: Any,  # noqa: ANN401 (torch)
) -> None:
    """Train for whole epochs of physical batches: as many logical steps, or more."""
    taken = 0
    own = optimizer.add_noise

    def counted() -> None:
        nonlocal taken
        taken += 1
        own()

    optimizer.add_noise = counted
    while taken < STEPS:
        for pixels, labels in loader:
            optimizer.zero_grad()
            criterion(model(pixels), labels).backward()
            optimizer.step()


def scale(optimizer: DPOptimizer, factor: float) -> None:
    """Have a program multiply its clipped sums before it adds noise."""
    own = optimizer.add_noise

    def scaled() -> None:
        for parameter in optimizer.params:
            summed_grad(optimizer, parameter).mul_(factor)
        own()

    if factor != 1.0:
        optimizer.add_noise = scaled


def loop_run(*, real_sums: bool) -> Callable[[str, int], Result]:
    """Return what audits a loop in plain numpy."""

    def run(fault: str, seed: int) -> Result:
        rng = np.random.default_rng(seed)
        audit = SumsAudit(
            design=DESIGN,
            key=fixed_key(rng.bytes(32)),
            dimension=CANARIES,
            sample_rate=RATE,
            real_sums=real_sums,
        )
        factor = FACTORS.get(fault, 1.0)
        for _ in range(STEPS):
            real = 0.05 * rng.normal(size=CANARIES)
            joined = audit.joining()
            noisy = factor * (real + joined) + NOISE * rng.normal(size=CANARIES)
            if fault == OTHER_MODEL:
                noisy = NOISE * rng.normal(size=CANARIES)
            told = real + joined if fault == DOUBLE else real
            audit.observe(noisy, **({"real_sums": told} if real_sums else {}))
        return audit.finish()

    return run


def jax_run(*, records: bool) -> Callable[[str, int], Result]:
    """Return what audits a JAX Privacy run."""

    def run(fault: str, seed: int) -> Result:
        from arrival_jax import audited  # noqa: PLC0415 (jax is slow to import)

        return audited(
            fault == OTHER_MODEL, FACTORS.get(fault, 1.0), seed, records=records
        )

    return run


WAYS: dict[str, Callable[[str, int], Result]] = {
    **{name: opacus_run(mode) for name, mode in MODES.items()},
    "JAX Privacy, sums": jax_run(records=False),
    "JAX Privacy, records": jax_run(records=True),
    "any loop, real part told": loop_run(real_sums=True),
    "any loop": loop_run(real_sums=False),
}


def settings(only: str) -> dict[str, list[Setting]]:
    """Return the honest settings, and those with a fault."""
    ways = [way for way in WAYS if way.startswith(only)]
    faults = [*list(FACTORS)[1:], OTHER_MODEL, DOUBLE]
    return {
        "honest": [{"way": way, "fault": "honest"} for way in ways],
        "faults": [
            {"way": way, "fault": fault}
            for way in ways
            for fault in faults
            # Everywhere else the audit reads the real part by itself.
            if fault != DOUBLE or way == "any loop, real part told"
        ],
    }


def report(sweep: Sweep, store: Store) -> bool:
    """Print a line for each setting; return whether all of them hold."""
    fine = True
    for setting in sweep.settings:
        found: dict[str, list[Any]] = {"slope": [], "error": [], "verdict": []}
        for each in store.outcomes(sweep.cell(setting)):
            for name, value in each.items():
                found[name.split()[0]].append(value)
        words = {word: found["verdict"].count(word) for word in set(found["verdict"])}
        line = f"{setting['way']}, {setting['fault']}: {words}"
        slope, error = np.array(found["slope"]), np.array(found["error"])
        if len(slope):
            line += f", slopes {slope.min():.3g} to {slope.max():.3g}"
            line += f", errors up to {error.max():.3g}"
        if setting["fault"] == "honest":
            far = float(np.max(np.abs(slope - 1) / error))
            good = far <= 4 and not words.get("void") and error.max() <= 0.08
            line += f", farthest from 1: {far:.2f} errors"
        else:
            good = not words.get("no violation found")
        fine &= good
        print(f"{line}: {'holds' if good else 'FAILS'}")
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("arrival.sqlite"))
    parser.add_argument("--honest", type=int, default=100, help="runs of each way")
    parser.add_argument("--faults", type=int, default=20, help="runs of each fault")
    parser.add_argument("--only", default="", help="ways that begin with this")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    fine = True
    for name, chosen in settings(arguments.only).items():
        runs = arguments.honest if name == "honest" else arguments.faults
        sweep = Sweep(
            name="arrival",
            revision=2,
            function=trial,
            settings=chosen,
            trials=-(-runs // RUNS),
        )
        with filled(
            sweep, arguments.store, workers=arguments.workers, doing=name
        ) as store:
            fine &= report(sweep, store)
    raise SystemExit(0 if fine else 1)


if __name__ == "__main__":
    import arrival  # under its own name, by which ranks and workers find it

    arrival.main()
