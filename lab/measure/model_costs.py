"""What an audit costs on models of five kinds: CPU time, memory; frozen weights found.

    python lab/measure/model_costs.py cost --model vit          # 20 pairs of turns
    python lab/measure/model_costs.py cost --model frozen --weights 1e8
    python lab/measure/model_costs.py memory --model frozen --weights 1e8
    python lab/measure/model_costs.py changed --weights 1e8     # at the end, and undone
    python lab/measure/model_costs.py scaling    # by parameters, tensors and canaries

``frozen``: a table of frozen bfloat16 weights, four frozen layers with adapters of rank
r, and a head, about a million trained parameters, so that a step is short and what
depends on frozen weights shows. ``mlp``: four layers, steps of milliseconds. ``cnn``,
``cnn-ghost``: a million parameters, with hooks and with ghost clipping. ``vit``: eight
blocks of attention, five million parameters in 135 tensors. ``llama``: a small Llama
with random weights and adapters at all its projections. Weights and data are random:
nothing here depends on what is learnt.

``cost``: the opening, of it the plan and the calls of the user's own step, those in
copies of the process included; ordinary steps over plain ones on the same batches, in
interleaved pairs of turns of some steps; checks at secret steps, made afterwards; and
``finish``. ``memory``: the largest memory of a run and its copies, what they share
counted once, plain and audited. ``changed``: runs in which a frozen weight is changed
and left so, one number of one weight through ``.data`` among them; and runs in which it
is changed back after some steps. ``scaling``: CPU time within the audit's own hooks in
an ordinary step, and memory that opening takes, for networks of so many trained
parameters, in so many tensors, with so many canaries; no plan and no probe. One thread.
"""

import argparse
import mmap
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import language_models
import numpy as np
import torch
from lora import EVERY_LAYER
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training_cost import held, largest_memory

from dpaudit import ApproxDP, Design, Key, OneRun, audit_opacus
from dpaudit.training.guard import Guard
from dpaudit.training.language_models import Logits, RecordLoss
from dpaudit.training.opacus import OpacusAudit
from dpaudit_lab.power.timing import ratio_of

WIDE, RANK, LAYERS, CLASSES, TOKENS = 1024, 96, 4, 32, 6
HEADS, PATCH = 7, 8
# Calls of the user's step and their CPU seconds, here and in copies of this process.
CALLS = memoryview(mmap.mmap(-1, 16)).cast("d")


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


class Frozen(nn.Module):
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


def mlp() -> nn.Module:
    sizes = [*pairwise((30, 36, 20, 10, CLASSES))]
    layers = [part for size in sizes for part in (nn.Linear(*size), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 300), nn.ReLU()),
        nn.Linear(300, CLASSES),
    )


class Block(nn.Module):
    """Attention and two layers, each added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        y = self.before(x)
        heads = (
            each(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(*heads)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class VisionTransformer(nn.Module):
    """Patches of a picture of 3 x 32 x 32, blocks and a head."""

    def __init__(self, width: int = 224, blocks: int = 8) -> None:
        super().__init__()
        self.patches = nn.Linear(3 * PATCH**2, width)
        self.places = nn.Embedding((32 // PATCH) ** 2, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return the logits of each class."""
        patches = nn.functional.unfold(pictures, PATCH, stride=PATCH).transpose(1, 2)
        places = torch.arange(patches.shape[1]).expand(len(patches), -1)
        x = self.blocks(self.patches(patches) + self.places(places))
        return self.head(self.norm(x).mean(1))


def llama() -> nn.Module:
    model = language_models.made("llama")
    return Logits(language_models.with_lora(model, r=8, targets=EVERY_LAYER))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is trained, and how.

    Attributes:
        model: Makes the model.
        inputs: Makes that many records' inputs.
        records: How many records.
        batch: How many of them in a batch, on average.
        steps: Of a whole run, for which the audit is planned.
        turn: Steps of a turn.
        mode: Opacus' ``grad_sample_mode``.
        optimizer: Makes the optimizer.
        text: Whether labels are the inputs themselves.
    """

    model: Callable[[], nn.Module]
    inputs: Callable[[int], torch.Tensor]
    records: int = 2000
    batch: int
    steps: int = 1000
    turn: int = 5
    mode: str = "hooks"
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD
    text: bool = False


def cases(weights: int) -> dict[str, Case]:
    """Return all that can be measured.

    Args:
        weights: Number of frozen weights, where there are any.
    """
    pictures: dict[str, Any] = {
        "model": cnn,
        "inputs": lambda count: torch.randn(count, 1, 28, 28),
    }
    return {
        "frozen": Case(
            model=lambda: Frozen(weights),
            inputs=lambda count: torch.randint(weights // WIDE, (count, TOKENS)),
            batch=50,
            steps=60,
            turn=1,
        ),
        "mlp": Case(
            model=mlp,
            inputs=lambda count: torch.randn(count, 30),
            records=200,
            batch=20,
            turn=20,
        ),
        "cnn": Case(**pictures, batch=32),
        "cnn-ghost": Case(**pictures, batch=128, mode="ghost"),
        "vit": Case(
            model=VisionTransformer,
            inputs=lambda count: torch.randn(count, 3, 32, 32),
            batch=8,
            optimizer=torch.optim.Adam,
        ),
        "llama": Case(
            model=llama,
            inputs=lambda count: torch.randint(language_models.WORDS, (count, 32)),
            batch=10,
            optimizer=torch.optim.Adam,
            text=True,
        ),
    }


class Run:
    """A private training, which can be audited.

    Args:
        case: What is trained.
    """

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.case, self.engine = case, PrivacyEngine()
        inputs, model = case.inputs(case.records), case.model()
        labels = inputs if case.text else torch.randint(CLASSES, (case.records,))
        own = RecordLoss() if case.text else nn.CrossEntropyLoss()
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.model, self.optimizer, *criteria, self.loader = self.engine.make_private(
            module=model.train(),
            optimizer=case.optimizer(self.trained, lr=1e-3),
            data_loader=DataLoader(
                TensorDataset(inputs, labels), batch_size=case.batch
            ),
            criterion=own,
            noise_multiplier=1.5,
            max_grad_norm=1.0,
            grad_sample_mode=case.mode,
        )
        self.criterion = criteria[0] if criteria else own
        self.batches = (batch for _ in iter(int, 1) for batch in self.loader)

    def audit(self, announce: Callable[[str], object] = len) -> OpacusAudit:
        """Return an audit of the run, which plans, and probes the step."""
        return audit_opacus(
            self.engine,
            self.model,
            self.optimizer,
            self.loader,
            steps=self.case.steps,
            delta=1e-5,
            step=self.counted,
            announce=announce,
        )

    def short_audit(self) -> OpacusAudit:
        """Return an audit of the run that does neither."""
        return OpacusAudit(
            self.optimizer,
            self.loader,
            design=Design(
                canaries=1000,
                rules=OneRun(guesses=100),
                claim=ApproxDP(epsilon=2.0, delta=1e-5),
            ),
            key=Key.generate(),
            accountant=self.engine,
            model=self.model,
        )

    def step(self, batch: list[torch.Tensor]) -> None:
        """Make a step."""
        inputs, labels = batch
        self.optimizer.zero_grad()
        self.criterion(self.model(inputs), labels).backward()
        self.optimizer.step()

    def counted(self, batch: list[torch.Tensor]) -> None:
        """Make a step, which is counted."""
        began = time.process_time()
        self.step(batch)
        CALLS[0], CALLS[1] = CALLS[0] + 1, CALLS[1] + time.process_time() - began

    def steps(self, count: int) -> list[float]:
        """Make some steps, and return the CPU seconds of each."""
        spent = []
        for _ in range(count):
            began = time.process_time()
            self.step(next(self.batches))
            spent.append(time.process_time() - began)
        return spent


def cost(case: Case, pairs: int) -> None:
    plain, run = Run(case), Run(case)
    plain.steps(3)
    audit = opened(run)
    checks = audit._stages.step_checks
    planned, checks._due = len(checks._due), []  # made below, not in ordinary steps
    run.steps(3)
    compare(plain, run, pairs)
    made = audit._stages.step_consistency.steps.count
    calls, seconds, began = *CALLS, sum_cpu()
    for _ in range(times := max(planned, 1)):
        checks._due = [made]
        for finding in checks.between(made):
            print(f"at a secret step: {finding}")
    each = (sum_cpu() - began) / times
    print(
        f"checks at secret steps: {planned} in {case.steps} steps, {each:.2f} s of CPU "
        f"each, of which {(CALLS[1] - seconds) / times:.2f} s in "
        f"{(CALLS[0] - calls) / times:.0f} calls of the step"
    )
    began = sum_cpu()
    result = audit.finish()
    print(f"finish {sum_cpu() - began:.2f} s; {result.verdict}")


def opened(run: Run) -> OpacusAudit:
    """Open an audit, and tell what that costs."""
    marks = [sum_cpu()]
    audit = run.audit(lambda _: marks.append(sum_cpu()))  # the plan comes first
    opening, plan, (calls, inside) = sum_cpu() - marks[0], marks[1] - marks[0], CALLS
    print(
        f"{sum(p.numel() for p in run.trained):,} trained parameters in "
        f"{len(run.trained)} tensors; opening {opening:.1f} s of CPU: plan {plan:.1f}, "
        f"{calls:.0f} calls of the step {inside:.1f}, the rest "
        f"{opening - plan - inside:.1f}"
    )
    return audit


def compare(plain: Run, run: Run, pairs: int) -> None:
    """Tell how much longer ordinary steps take than plain ones."""
    count, found, audited = plain.case.turn, [], []
    for turn in range(pairs):
        spent = {}
        for each in (run, plain) if turn % 2 else (plain, run):
            torch.manual_seed(turn + 1)  # the same batches for both
            spent[each is run] = each.steps(count)
        audited += spent[True]
        found.append((sum(spent[True]), sum(spent[False])))
    more = np.median([a - b for a, b in found]) / count
    each_plain = np.median([b for _, b in found]) / count
    print(
        f"steps {ratio_of(*zip(*found, strict=True))} of plain ones of "
        f"{1000 * each_plain:.2f} ms, median {1000 * more:+.2f} ms a step, 99th "
        f"percentile {1000 * np.quantile(audited, 0.99):.2f} ms; {pairs} pairs of "
        f"{count}"
    )


def sum_cpu() -> float:
    """Return the CPU time of this process and its copies."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def memory(arguments: argparse.Namespace) -> None:
    given = ["--model", arguments.model, "--weights", str(arguments.weights)]
    found = {
        way: largest_memory([sys.executable, "-W", "ignore", __file__, way, *given])
        for way in ("plain", "audited")
    }
    more = found["audited"] - found["plain"]
    print(
        f"{more:.0f} MiB over {found['plain']:.0f}, {100 * more / found['plain']:.1f} %"
    )


def whole(case: Case, *, audited: bool) -> None:
    run = Run(case)
    audit = run.audit() if audited else None
    run.steps(10)
    if audit is not None:
        audit.finish()


def changed(case: Case, runs: int) -> None:
    found = {"left": 0, "undone": 0, "undone, counted by torch": 0}
    for number in range(runs):
        rng = np.random.default_rng(number)
        for way in found:
            run = Run(case)
            audit = run.short_audit()
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
            found[way] += "table.weight" in audit.finish().details()
    for way, count in found.items():
        print(f"one number {way}: {count} of {runs} found")


def scaling() -> None:
    cells = [
        *((trained, 4, 1000) for trained in (10**5, 10**6, 10**7, 10**8)),
        *((10**6, tensors, 1000) for tensors in (40, 400)),
        *((10**6, 4, canaries) for canaries in (10**4, 10**5)),
    ]
    for trained, tensors, canaries in cells:
        before, run = held(os.getpid()), Scaled(trained, tensors)
        made = held(os.getpid())
        audit = run.opened(canaries)
        opened = held(os.getpid())
        run.steps(2)
        with hooks_timed() as spent:
            run.steps(16)
        print(
            f"{trained:.0e} trained in {tensors} tensors, {canaries} canaries: "
            f"{1000 * sum(spent) / 16:.2f} ms of hooks a step; opening "
            f"{(opened - made) / 1024:+.0f} MiB of {(made - before) / 1024:.0f}"
        )
        audit.detach()


@contextmanager
def hooks_timed() -> Iterator[list[float]]:
    """Yield a list of the CPU seconds of each call of an audit's own hooks."""
    spent, hook = [], Guard.run

    def timed(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        began = time.process_time()
        value = hook(*given, **named)
        spent.append(time.process_time() - began)
        return value

    Guard.run = timed
    yield spent
    Guard.run = hook


class Scaled:
    """A network whose layers have so many weights together, on two records.

    Args:
        trained: Number of trained parameters.
        tensors: In so many tensors.
    """

    def __init__(self, trained: int, tensors: int) -> None:
        wide = round((trained / tensors) ** 0.5)
        layers = (nn.Linear(wide, wide, bias=False) for _ in range(tensors))
        model, data = nn.Sequential(*layers), TensorDataset(torch.randn(40, wide))
        self.model, self.optimizer, self.loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
            data_loader=DataLoader(data, batch_size=2),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        self.batches = (batch for _ in iter(int, 1) for batch in self.loader)

    def opened(self, canaries: int) -> OpacusAudit:
        """Return an audit with so many canaries."""
        claim = ApproxDP(epsilon=2.0, delta=1e-5)
        return OpacusAudit(
            self.optimizer,
            self.loader,
            design=Design(canaries=canaries, rules=OneRun(guesses=100), claim=claim),
            key=Key.generate(),
            model=self.model,
        )

    def steps(self, count: int) -> None:
        """Make some steps."""
        for _ in range(count):
            (inputs,) = next(self.batches)
            self.optimizer.zero_grad()
            self.model(inputs).square().mean(1).sum().backward()
            self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    ways: dict[str, Callable[[Case], object]] = {
        "cost": lambda case: cost(case, arguments.pairs),
        "memory": lambda _: memory(arguments),
        "plain": lambda case: whole(case, audited=False),
        "audited": lambda case: whole(case, audited=True),
        "changed": lambda case: changed(case, arguments.runs),
        "scaling": lambda _: scaling(),
    }
    parser.add_argument("what", choices=ways)
    parser.add_argument("--model", choices=cases(0), default="frozen")
    parser.add_argument("--weights", type=float, default=1e8, help="frozen ones")
    parser.add_argument("--pairs", type=int, default=20, help="of turns, of cost")
    parser.add_argument("--runs", type=int, default=10, help="of changed")
    arguments = parser.parse_args()
    if arguments.what == "changed" and arguments.model != "frozen":
        parser.error("changed is for frozen weights: --model frozen")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ways[arguments.what](cases(int(arguments.weights))[arguments.model])


if __name__ == "__main__":
    main()
