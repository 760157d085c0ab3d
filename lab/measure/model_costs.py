"""What an audit costs where most weights are frozen: CPU time, memory, detection.

    python lab/measure/frozen_models.py cost --weights 1e8      # 20 pairs of steps
    python lab/measure/frozen_models.py memory --weights 1e8
    python lab/measure/frozen_models.py changed --weights 1e8   # at the end, and undone

A table of frozen bfloat16 weights, four frozen layers with adapters of rank r, and a
head: about a million trained parameters, so that a step is short and what depends on
frozen weights shows. ``cost``: the opening (planning, probe of the step, hash of all
frozen weights), ordinary steps over plain ones in interleaved pairs, checks at secret
steps, and ``finish``. ``memory``: the largest memory of a run and its copies, what they
share counted once, plain and audited. ``changed``: runs in which a frozen weight is
changed and left so, one number of one weight through ``.data`` among them; and runs in
which it is changed back after some steps. One thread.
"""

import argparse
import resource
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training_cost import largest_memory

from dpaudit import ApproxDP, Design, Key, OneRun, audit_opacus
from dpaudit.training.opacus import OpacusAudit
from dpaudit_lab.power.timing import cpu, ratio_of

WIDE, RANK, LAYERS, CLASSES, TOKENS = 1024, 96, 4, 32, 6
RECORDS, BATCH, STEPS, PAIRS = 2000, 50, 60, 20


class Adapted(nn.Module):
    """A frozen layer, and a trained product of two thin ones."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDE, WIDE, dtype=torch.bfloat16).requires_grad_(
            requires_grad=False
        )
        self.down = nn.Linear(WIDE, RANK, bias=False)
        self.up = nn.Linear(RANK, WIDE, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        return torch.tanh(self.base(x.bfloat16()).float() + self.up(self.down(x)))


class Model(nn.Module):
    """A table of frozen vectors, adapted layers and a head."""

    def __init__(self, weights: int) -> None:
        super().__init__()
        self.table = nn.Embedding(
            weights // WIDE,
            WIDE,
            _weight=torch.empty(weights // WIDE, WIDE, dtype=torch.bfloat16).normal_(),
        ).requires_grad_(requires_grad=False)
        self.layers = nn.Sequential(*(Adapted() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDE, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each class."""
        return self.head(self.layers(self.table(tokens).float().mean(1)))


class Run:
    """A private fine-tuning, and its audit if it is audited.

    Args:
        weights: Number of frozen weights.
        audited: Whether the run is audited.
        probed: Whether the audit plans, and probes the step.
    """

    def __init__(self, weights: int, *, audited: bool, probed: bool = True) -> None:
        torch.manual_seed(0)
        data = TensorDataset(
            torch.randint(weights // WIDE, (RECORDS, TOKENS)),
            torch.randint(CLASSES, (RECORDS,)),
        )
        model, engine = Model(weights), PrivacyEngine()
        self.model, self.optimizer, self.loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(
                [p for p in model.parameters() if p.requires_grad], lr=0.01
            ),
            data_loader=DataLoader(data, batch_size=BATCH),
            noise_multiplier=1.5,
            max_grad_norm=1.0,
        )
        self.batches = (batch for _ in iter(int, 1) for batch in self.loader)
        self.audit: OpacusAudit | None = None
        if audited and not probed:
            self.audit = OpacusAudit(
                self.optimizer,
                self.loader,
                design=Design(
                    canaries=1000,
                    rules=OneRun(guesses=100),
                    claim=ApproxDP(epsilon=2.0, delta=1e-5),
                ),
                key=Key.generate(),
                accountant=engine,
                model=self.model,
            )
        elif audited:
            self.audit = audit_opacus(
                engine,
                self.model,
                self.optimizer,
                self.loader,
                steps=STEPS,
                delta=1e-5,
                step=self.step,
                announce=lambda _: None,
            )

    def step(self, batch: list[torch.Tensor]) -> None:
        """Make a step."""
        tokens, labels = batch
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(tokens), labels).backward()
        self.optimizer.step()

    def steps(self, count: int) -> None:
        """Make some steps."""
        for _ in range(count):
            self.step(next(self.batches))


def cost(weights: int) -> None:
    plain = Run(weights, audited=False)
    plain.steps(3)
    a_step = cpu(plain.steps, 5) / 5
    began = sum_cpu()
    run = Run(weights, audited=True)
    making = cpu(lambda: Run(weights, audited=False))
    opening = sum_cpu() - began - 2 * making
    pairs, times = [], []
    for turn in range(PAIRS):
        spent = {}
        for each in (run, plain) if turn % 2 else (plain, run):
            before = sum_cpu()
            each.steps(1)
            spent[each is run] = sum_cpu() - before
        pairs.append((spent[True], spent[False]))
        times.append(spent[True])
    began = sum_cpu()
    assert run.audit is not None
    result = run.audit.finish()
    print(
        f"{weights:.2g} frozen weights, {trained(run):,} trained: opening "
        f"{opening:.1f} s of CPU (plain step {1000 * a_step:.0f} ms); steps "
        f"{ratio_of(*zip(*pairs, strict=True))} of plain, median "
        f"{1000 * np.median([a - b for a, b in pairs]):+.1f} ms, 99th percentile "
        f"{1000 * np.quantile(times, 0.99):.0f} ms; finish {sum_cpu() - began:.1f} s; "
        f"{result.verdict}"
    )


def trained(run: Run) -> int:
    return sum(p.numel() for p in run.optimizer.params)


def sum_cpu() -> float:
    """Return the CPU time of this process and its copies."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def memory(weights: int) -> None:
    found = {}
    for way in ("plain", "audited"):
        command = [sys.executable, "-W", "ignore", __file__, way]
        found[way] = largest_memory([*command, "--weights", str(weights)])
    more = found["audited"] - found["plain"]
    print(
        f"{weights:.2g} frozen weights: {more:.0f} MiB over {found['plain']:.0f}, "
        f"{100 * more / found['plain']:.1f} %"
    )


def whole(weights: int, *, audited: bool) -> None:
    run = Run(weights, audited=audited)
    run.steps(10)
    if run.audit is not None:
        run.audit.finish()


def changed(weights: int, runs: int) -> None:
    found = {"left": 0, "undone": 0, "undone, counted by torch": 0}
    for number in range(runs):
        rng = np.random.default_rng(number)
        for way in found:
            run = Run(weights, audited=True, probed=False)
            table = run.model._module.table.weight
            row, column = int(rng.integers(len(table))), int(rng.integers(WIDE))
            run.steps(int(rng.integers(1, 8)))
            before = table.data[row, column].clone()
            table.data[row, column] += 1
            if way.startswith("undone"):
                run.steps(int(rng.integers(1, 8)))
                with torch.no_grad():
                    target = table if way.endswith("torch") else table.data
                    target[row, column] = before
            run.steps(2)
            assert run.audit is not None
            found[way] += "table.weight" in run.audit.finish().details()
    for way, count in found.items():
        print(
            f"{weights:.2g} frozen weights, one number {way}: {count} of {runs} found"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    ways: dict[str, Callable[[int], object]] = {
        "cost": cost,
        "memory": memory,
        "plain": lambda weights: whole(weights, audited=False),
        "audited": lambda weights: whole(weights, audited=True),
        "changed": lambda weights: changed(weights, arguments.runs),
    }
    parser.add_argument("what", choices=ways)
    parser.add_argument("--weights", type=float, default=1e8)
    parser.add_argument("--runs", type=int, default=10)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ways[arguments.what](int(arguments.weights))


if __name__ == "__main__":
    main()
