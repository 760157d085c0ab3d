"""What an audit costs in accuracy: 1,000 canaries, the same seed with and without.

    python lab/measure/accuracy.py --store accuracy.sqlite    # run or resume

Twenty pairs on digits, three on MNIST. Each seed trains without canaries,
with canaries added to the sums (network, batches and noise are then the same), and with
canaries that are records. These enlarge the expected batch, by which Opacus divides; so
they are tried a second time with the learning rate raised in proportion.
"""

import argparse
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sweeping import filled
from tasks import DELTA, TASKS, Task, accuracy, private, train
from torch.utils.data import TensorDataset

from dpaudit import ApproxDP, Design, Key, OneRun
from dpaudit.testing import fixed_key
from dpaudit.training.opacus import OpacusAudit, with_canaries
from dpaudit_lab.sweeps.store import Outcome, Setting
from dpaudit_lab.sweeps.sweep import Sweep

CANARIES = 1000
PAIRS = {"digits": 20, "mnist": 3}
WITH = ("sums", "records", "records, rate raised")


def one_seed(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train one seed in all ways."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    task, seed, key = TASKS[str(setting["data"])], rng.integers(2**31), rng.bytes(32)
    return {
        how: trained(task, how, int(seed), fixed_key(key)) for how in ("plain", *WITH)
    }


def trained(task: Task, how: str, seed: int, key: Key) -> float:
    """Return the accuracy on the test records."""
    torch.manual_seed(seed)
    records = TensorDataset(*task.load()[:2])
    if how.startswith("records"):
        raised = (1 + CANARIES / len(records)) if how.endswith("raised") else 1.0
        task = replace(task, rate=task.rate * raised)
        run = private(task, with_canaries(records, canaries=CANARIES))
    else:
        run = private(task, records)
    if how == "plain":
        train(run, run.loader, task.epochs)
        return accuracy(run, task)
    claim = ApproxDP(epsilon=task.epsilon, delta=DELTA)
    design = Design(canaries=CANARIES, rules=OneRun(guesses=100), claim=claim)
    audit = OpacusAudit(run.optimizer, run.loader, design=design, key=key)
    train(run, audit.data_loader, task.epochs)
    return accuracy(run, task)


def report(name: str, found: Iterable[Outcome]) -> None:
    rows = list(found)
    plain = np.array([row["plain"] for row in rows])
    print(f"{name}: {len(rows)} seeds, without canaries {plain.mean():.4f}")
    for how in WITH:
        lost = plain - np.array([row[how] for row in rows])
        error = lost.std(ddof=1) / np.sqrt(len(lost))
        print(f"  {how}: lost {lost.mean():.4f} ± {error:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", choices=TASKS, action="append", help="default: all")
    parser.add_argument("--store", type=Path, default=Path("accuracy.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.data or list(PAIRS):
        planned = Sweep(
            name="accuracy",
            revision=1,
            function=one_seed,
            settings=[{"data": name}],
            trials=PAIRS[name],
        )
        with filled(
            planned, arguments.store, workers=arguments.workers, doing=name
        ) as store:
            report(name, store.outcomes(planned.cell({"data": name}), PAIRS[name]))


if __name__ == "__main__":
    import accuracy as this  # so that workers find its functions

    this.main()
