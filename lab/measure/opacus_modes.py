"""Are the canaries what they should be, in every mode of Opacus?

    python lab/measure/opacus_modes.py --store modes.sqlite           # run or resume
    python lab/measure/opacus_modes.py --data digits                  # one data set

Digits, Adult and MNIST are trained to a stated epsilon with 1,000 canaries. Beside the
audit, and without asking it, the noisy gradient is read at the canaries' coordinates at
every step and regressed on whether the canary's gradient was in the step: as the key
says for canaries that are added to sums, as Opacus' sampler was seen to choose for
canaries that are records. The slope must be the clipping norm (1) within 4 standard
errors; what noise added, likewise the standard deviation that is accounted for; the
accountant's epsilon, that of the same run without canaries (with as many records).
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import distributed as opacus_distributed
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from ranks import on_ranks, sharded
from sweeping import filled
from tasks import DELTA, TASKS, Run, Task, accuracy, private, train
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from watching import Watch, slope

from dpaudit import ApproxDP, Coins, Design, Key, OneRun
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import scattered
from dpaudit.training.draws import Draws
from dpaudit.training.opacus import OpacusAudit, with_canaries
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

CANARIES = 1000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to train with Opacus and one way to insert canaries."""

    gradients: str  # Opacus' grad_sample_mode
    records: bool = False  # canaries are records; else they are added to sums
    split: bool = False  # batches come in fifths, by BatchMemoryManager
    wrap: Callable[[nn.Module], nn.Module] | None = None  # over two ranks


dp_ddp = opacus_distributed.DifferentiallyPrivateDistributedDataParallel

MODES = {
    "hooks, records": Mode(gradients="hooks", records=True),
    "functorch, records": Mode(gradients="functorch", records=True),
    "ew, records": Mode(gradients="ew", records=True),
    "hooks, records, split": Mode(gradients="hooks", records=True, split=True),
    "hooks, sums": Mode(gradients="hooks"),
    "ghost, sums": Mode(gradients="ghost"),
    "ghost, sums, split": Mode(gradients="ghost", split=True),
    "DPDDP, hooks, sums": Mode(gradients="hooks", wrap=dp_ddp),
    "DDP, hooks, sums": Mode(gradients="hooks", wrap=DistributedDataParallel),
    "DPDDP, ghost, sums": Mode(gradients="ghost", wrap=dp_ddp),
    "FSDP2, ghost, sums": Mode(gradients="ghost_fsdp", wrap=sharded),
}


def one_run(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train once with canaries and once without."""
    task, mode = str(setting["data"]), str(setting["mode"])
    arguments = (task, mode, int(rng.integers(2**31)), rng.bytes(32).hex())
    if MODES[mode].wrap is None:
        return both(*arguments)
    found: Outcome = on_ranks(both, *arguments)
    return found


def both(task_name: str, mode_name: str, seed: int, secret: str) -> Outcome:
    """Train without canaries and with, on one rank or on each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    task, mode = TASKS[task_name], MODES[mode_name]
    plain = begun(task, mode, seed, canaries=False)
    go(task, mode, plain, plain.loader)
    return {
        **audited(task, mode, seed, fixed_key(bytes.fromhex(secret))),
        "epsilon without": float(plain.engine.get_epsilon(DELTA)),
        "accuracy without": accuracy(plain, task),
    }


def begun(task: Task, mode: Mode, seed: int, *, canaries: bool) -> Run:
    """Return a run that is ready; ranks draw batches and noise of their own."""
    torch.manual_seed(seed)
    records = TensorDataset(*task.load()[:2])
    run = private(
        task,
        with_canaries(records, canaries=CANARIES) if canaries else records,
        mode=mode.gradients,
        wrap=mode.wrap or (lambda model: model),
    )
    torch.manual_seed(seed + 1 + (distributed.get_rank() if mode.wrap else 0))
    return run


def go(task: Task, mode: Mode, run: Run, loader: DataLoader[Any]) -> None:
    """Train, in physical batches if the mode says so."""
    if not mode.split:
        train(run, loader, task.epochs)
        return
    size = -(-len(loader.dataset) // (5 * task.batches))  # type: ignore[arg-type]
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=size, optimizer=run.optimizer
    ) as smaller:
        train(run, smaller, task.epochs)


def audited(task: Task, mode: Mode, seed: int, key: Key) -> Outcome:
    """Train with canaries, watched."""
    run = begun(task, mode, seed, canaries=mode.records)
    watch = Watch(run.optimizer)
    audit = OpacusAudit(
        run.optimizer,
        run.loader,
        design=Design(
            canaries=CANARIES,
            rules=OneRun(guesses=100),
            claim=ApproxDP(epsilon=task.epsilon, delta=DELTA),
        ),
        key=key,
        accountant=run.engine.accountant,
    )
    with noted_choices() as chosen:
        go(task, mode, run, audit.data_loader)
    result = audit.finish()
    present = (
        among(chosen, len(task.load()[1]), key)
        if mode.records
        else drawn(len(watch.noisy), 1 / task.batches, key)
    )
    noisy, noise = np.array(watch.noisy), np.array(watch.noise)
    where = scattered(noisy.shape[1], CANARIES, seed=0)  # the public layout
    found, error = slope(noisy[:, where].astype(float), present)
    return {
        "steps": len(noisy),
        "slope": found,
        "slope error": error,
        "noise": float(noise.std(dtype=float) / run.optimizer.noise_multiplier),
        "noise error": float((2 * noise.size) ** -0.5),
        "epsilon": float(run.engine.get_epsilon(DELTA)),
        "accuracy": accuracy(run, task),
        "p value": result.p_value,
        "bound": result.bound.epsilon_lower,
    }


def drawn(steps: int, rate: float, key: Key) -> NDArray[np.int64]:
    """Return which canaries' gradients the key puts into which step's sum."""
    draws = Draws(key=key, canaries=CANARIES, per_coordinate=1, sample_rate=rate)
    return np.array([draws.joining(step) for step in range(steps)])


def among(chosen: list[list[int]], first: int, key: Key) -> NDArray[np.int64]:
    """Return which canaries' gradients are in which batch that the sampler chose."""
    present = np.zeros((len(chosen), CANARIES), np.int64)
    for step, batch in enumerate(chosen):
        records = np.array(batch, np.int64)
        present[step, records[records >= first] - first] = 1
    return present * Coins(key=key, count=CANARIES).bits()


@contextmanager
def noted_choices() -> Iterator[list[list[int]]]:
    """Note every batch that Opacus' sampler chooses meanwhile."""
    chosen: list[list[int]] = []
    choose = UniformWithReplacementSampler.__iter__

    def noting(sampler: UniformWithReplacementSampler) -> Iterator[list[int]]:
        for batch in choose(sampler):
            chosen.append(list(batch))
            yield batch

    with mock.patch.object(UniformWithReplacementSampler, "__iter__", noting):
        yield chosen


def sweep(names: list[str], trials: int) -> Sweep:
    return Sweep(
        name="opacus_modes",
        revision=1,
        function=one_run,
        settings=[{"data": name, "mode": mode} for name in names for mode in MODES],
        trials=trials,
    )


def as_it_should_be(row: Outcome) -> bool:
    return bool(
        abs(row["slope"] - 1) <= 4 * row["slope error"]
        and abs(row["noise"] - 1) <= 4 * row["noise error"]
        and row["epsilon"] == row["epsilon without"]
    )


def report(planned: Sweep, store: Store) -> int:
    """Print a table, and return how many runs are not as they should be."""
    print("| data | mode | steps | slope | noise / accounted | epsilon with, without |")
    print("|---|---|---|---|---|---|")
    wrong = 0
    for setting in planned.settings:
        for row in store.outcomes(planned.cell(setting), planned.trials):
            wrong += not as_it_should_be(row)
            print(
                f"| {setting['data']} | {setting['mode']} | {row['steps']} "
                f"| {row['slope']:.4f} ± {row['slope error']:.4f} "
                f"| {row['noise']:.5f} ± {row['noise error']:.5f} "
                f"| {row['epsilon']:.6f}, {row['epsilon without']:.6f} |"
                + ("" if as_it_should_be(row) else " **no**")
            )
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=TASKS, action="append", help="default: all")
    parser.add_argument("--store", type=Path, default=Path("opacus_modes.sqlite"))
    parser.add_argument("--trials", type=int, default=1, help="of each data and mode")
    arguments = parser.parse_args()
    planned = sweep(arguments.data or list(TASKS), arguments.trials)
    with filled(planned, arguments.store, workers=1, doing="training") as store:
        wrong = report(planned, store)
    sys.exit(f"{wrong} runs are not as they should be" if wrong else 0)


if __name__ == "__main__":
    import opacus_modes  # so that workers and ranks find its functions

    opacus_modes.main()
