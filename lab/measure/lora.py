"""LoRA fine-tunings audited step by step: power, cost, memory.

    python lab/measure/lora.py power            # honest, and with half of the noise
    python lab/measure/lora.py cost             # CPU time over the same run unaudited
    python lab/measure/lora.py memory           # the largest memory, likewise
    python lab/measure/lora.py table            # all that the store has

The small Llama of ``language_models`` is fine-tuned on 5,000 sequences of private text
by Opacus, to epsilon 4 at delta 1e-5, with canaries added to the sums at every trained
parameter that pays. Each row is a line in the store; one that is there is not made
again. One thread.
"""

import argparse
import copy
import functools
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import language_models
import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from sweeping import add_line, lines
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.dpsgd.planning import Plan
from dpaudit.game.result import Result
from dpaudit.game.text.findings import sentence
from dpaudit.stats.intervals import standard_error
from dpaudit.testing import fixed_key
from dpaudit.training.language_models import Logits, RecordLoss
from dpaudit.training.opacus import OpacusAudit, plan_opacus
from dpaudit_lab.power.timing import cpu, median_ratio, ratio_of

EPSILON, DELTA = 4.0, 1e-5
REAL = 5000
CLIP = 0.1  # below the norm of most records
MODES = ("hooks", "ghost")
Setting = dict[str, Any]
Row = dict[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How long, and on how much at a time."""

    batch: int  # expected
    steps: int
    length: int  # tokens of a record

    @property
    def rate(self) -> float:
        """As Opacus has it: one over the number of batches."""
        return 1 / (REAL // self.batch)


SHORT = Training(batch=25, steps=40, length=12)
LONGER = Training(batch=25, steps=80, length=12)  # to catch half of the noise at 1e3
USUAL = Training(batch=64, steps=5, length=64)

EVERY_LAYER = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
ONE_LAYER = [f"3.self_attn.{name}_proj" for name in ("q", "v")]
SIZES: dict[str, dict[str, Any]] = {  # of rank r, at which layers
    "1e3": {"r": 1, "targets": ONE_LAYER},
    "1e4": {"r": 2},
    "1e5": {"r": 5, "targets": EVERY_LAYER},
}


@functools.cache
def pretrained() -> Any:  # noqa: ANN401 (of an optional library)
    return language_models.pretrained()


def adapted(size: str) -> Logits:
    torch.manual_seed(0)
    return Logits(language_models.with_lora(copy.deepcopy(pretrained()), **SIZES[size]))


@functools.cache
def noise_of(training: Training) -> float:
    return get_noise_multiplier(
        target_epsilon=EPSILON,
        target_delta=DELTA,
        sample_rate=training.rate,
        steps=training.steps,
        accountant="prv",
    )


@final
class Run:
    """A fine-tuning that is ready to begin.

    Args:
        model: What is trained; of its parameters those that need a gradient.
        training: How.
        mode: Opacus' ``grad_sample_mode``.
        seed: Of batches and noise.
        factor: By how much the noise is less than the accountant is told.
    """

    def __init__(
        self,
        model: nn.Module,
        training: Training,
        mode: str,
        *,
        seed: int = 0,
        factor: float = 1.0,
    ) -> None:
        rows = language_models.sequences(training.length)[:REAL]
        trained = [each for each in model.parameters() if each.requires_grad]
        self.training, self.engine = training, PrivacyEngine()
        self.model, self.optimizer, *criteria, self.loader = self.engine.make_private(
            module=model.train(),
            optimizer=torch.optim.Adam(trained, lr=1e-3),
            data_loader=DataLoader(
                TensorDataset(rows, rows), batch_size=training.batch
            ),
            criterion=(own := RecordLoss()),
            noise_multiplier=noise_of(training),
            max_grad_norm=CLIP,
            grad_sample_mode=mode,
        )
        self.criterion = criteria[0] if criteria else own
        self.trained = sum(each.numel() for each in trained)
        self._divide_noise(factor)
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Draw batches and noise from here on as the seed says."""
        torch.manual_seed(seed)
        self._batches = self._endless()

    def _divide_noise(self, factor: float) -> None:
        optimizer, add_noise = self.optimizer, self.optimizer.add_noise

        def add_less_noise() -> None:
            told = optimizer.noise_multiplier  # now: a probe sets it to 0
            optimizer.noise_multiplier = told / factor
            add_noise()
            optimizer.noise_multiplier = told

        optimizer.add_noise = add_less_noise

    def _endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def steps(self, count: int) -> None:
        """Make so many steps."""
        for _ in range(count):
            ids, labels = next(self._batches)
            self.optimizer.zero_grad()
            self.criterion(self.model(ids), labels).backward()
            self.optimizer.step()

    def plan(self) -> Plan:
        """Return the plan, which runs of the same kind share."""
        key = (self.training, self.trained)
        if key not in _PLANS:
            _PLANS[key] = plan_opacus(
                self.optimizer,
                self.loader,
                steps=self.training.steps,
                delta=DELTA,
                coordinates=self.trained,
            )
        return _PLANS[key]

    def audit(self, seed: int = 0) -> OpacusAudit:
        """Return an audit of the run, attached."""
        return OpacusAudit(
            self.optimizer,
            self.loader,
            design=self.plan().design(),
            key=fixed_key(np.random.default_rng([24, seed]).bytes(32)),
            accountant=self.engine,
            model=self.model,
        )


_PLANS: dict[tuple[Training, int], Plan] = {}


# power


def power_settings(runs: int) -> Iterator[Setting]:
    for seed in range(runs):
        for size in SIZES:
            for mode in MODES:
                for factor in (1, 2):
                    yield {"size": size, "mode": mode, "factor": factor, "seed": seed}


def power(*, size: str, mode: str, factor: int, seed: int) -> Row:
    training = LONGER if size == "1e3" else SHORT
    rng = np.random.default_rng([seed, factor, *f"{size} {mode}".encode()])
    own = int(rng.integers(2**31))  # so that no two runs share noise or coins
    run = Run(adapted(size), training, mode, seed=own, factor=factor)
    plan = run.plan()
    start = time.process_time()
    audit = run.audit(own)
    run.steps(training.steps)
    result = audit.finish()
    return {
        "trained": run.trained,
        "canaries": plan.canaries,
        "plan": plan.expected.mean,
        "spread": plan.expected.spread,
        "catches": plan.fault,
        "bound": result.bound.epsilon_lower,
        "cpu": time.process_time() - start,
        **told(result),
    }


def told(result: Result) -> Row:
    return {
        "verdict": str(result.verdict),
        "p": result.p_value,
        "refuted": result.claim_test.refuted,
        "faults": [sentence(fault) for fault in result.faults],
    }


def power_table(rows: list[Row]) -> None:
    for (size, mode, factor), found in grouped(rows, "size", "mode", "factor"):
        first, bounds = found[0], [row["bound"] for row in found]
        named = sum(bool(row["faults"]) for row in found)
        mean, error = np.mean(bounds), (standard_error(bounds) or 0.0)
        share = mean / first["plan"]
        print(
            f"{size} ({first['trained']:,} trained, {first['canaries']:,} canaries), "
            f"{mode}, noise / {factor}: bound {mean:.3f} ± {error:.3f}, plan "
            f"{first['plan']:.3f} give or take {first['spread']:.3f}, catches "
            f"{first['catches']:.2f}; share {share:.3f} ± {error / first['plan']:.3f}; "
            f"refuted in {sum(row['refuted'] for row in found)} of {len(found)}, p "
            f"{min(row['p'] for row in found):.2g} to "
            f"{max(row['p'] for row in found):.2g}, named in {named}; "
            f"{np.mean([row['cpu'] for row in found]):.1f} s of CPU"
        )


# cost


def cost_settings(runs: int) -> Iterator[Setting]:
    for mode in MODES:
        yield from ({"mode": mode, "pair": pair} for pair in range(runs))


@functools.cache
def usual(mode: str) -> Run:
    """Return a training under way, which is audited in some turns and not in others."""
    run = Run(adapted("1e5"), USUAL, mode)
    run.plan()
    run.steps(2)
    return run


def cost(*, mode: str, pair: int) -> Row:
    run, found = usual(mode), {}
    for audited in (pair % 2, 1 - pair % 2):  # each first in turn, on the same batches
        run.begin(pair)
        if not audited:
            found["plain"] = cpu(run.steps, USUAL.steps)
            continue
        run.engine.accountant.history = []  # of this turn's steps only
        audits: list[OpacusAudit] = []
        found["attach"] = cpu(lambda: audits.append(run.audit(pair)))  # noqa: B023
        found["steps"] = cpu(run.steps, USUAL.steps)
        found["finish"] = cpu(audits[0].finish)
    return found


def cost_table(rows: list[Row]) -> None:
    for (mode,), found in grouped(rows, "mode"):
        plain = [row["plain"] for row in found]
        each = 1000 * np.mean(plain) / USUAL.steps
        once = [row["attach"] + row["finish"] for row in found]
        steps = ratio_of([row["steps"] for row in found], plain)
        whole = [row["steps"] + more for row, more in zip(found, once, strict=True)]
        middle, low, high = median_ratio([1000 * more for more in once])
        print(
            f"cost, {mode}: steps {steps} of a plain run's, {steps.pairs} pairs of "
            f"{USUAL.steps} steps of {each:.0f} ms; once "
            f"{middle:.0f} [{low:.0f}, {high:.0f}] ms, with which {USUAL.steps} steps "
            f"are {ratio_of(whole, plain)}"
        )


# memory


def memory_settings(runs: int) -> Iterator[Setting]:
    for number in range(runs):
        for live in (True, False):
            for mode in MODES:
                for audited in (True, False):
                    setting = {"mode": mode, "audited": audited, "live": live}
                    yield {**setting, "number": number}


def memory(*, mode: str, audited: bool, live: bool, number: int) -> Row:
    """Measure it; if live, without what the allocator keeps of freed tensors."""
    mapped = {"MALLOC_MMAP_THRESHOLD_": "65536"} if live else {}
    command = [sys.executable, "-W", "ignore", __file__, "peak"]
    command += ["--mode", mode, "--seed", str(number), *["--audited"] * audited]
    out = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **mapped},
    )
    return {"MiB": int(out.stdout.splitlines()[-1]) / 1024}


def peak(mode: str, seed: int, *, audited: bool) -> None:
    """Print the largest memory of this process, which makes one run."""
    run = Run(adapted("1e5"), USUAL, mode, seed=seed)
    audit = run.audit(seed) if audited else None
    run.steps(USUAL.steps)
    if audit:
        audit.finish()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def memory_table(rows: list[Row]) -> None:
    for (mode, live), found in grouped(rows, "mode", "live"):
        ours, plain = (
            [row["MiB"] for row in found if row["audited"] == audited]
            for audited in (True, False)
        )
        pairs = min(len(ours), len(plain))
        more = ratio_of(ours[:pairs], plain[:pairs])
        print(
            f"memory, {mode}, {'live' if live else 'resident'}: {np.mean(ours):.0f} "
            f"over {np.mean(plain):.0f} MiB, ratio {more}, {pairs} pairs"
        )


# all of them


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is measured, in which settings, how often, and how it is told."""

    settings: Callable[[int], Iterator[Setting]]
    measure: Callable[..., Row]
    runs: int
    table: Callable[[list[Row]], None]


PARTS = {
    "power": Part(settings=power_settings, measure=power, runs=20, table=power_table),
    "cost": Part(settings=cost_settings, measure=cost, runs=20, table=cost_table),
    "memory": Part(
        settings=memory_settings, measure=memory, runs=3, table=memory_table
    ),
}


def fill(name: str, runs: int | None, store: Path, only: Sequence[str] = ()) -> None:
    """Measure what the store lacks of a part, or of some of its settings."""
    part = PARTS[name]
    done = [{"part": row["part"], **row["setting"]} for row in lines(store)]
    for setting in part.settings(runs or part.runs):
        named = {f"{key}={value}" for key, value in setting.items()}
        if {"part": name, **setting} in done or not named.issuperset(only):
            continue
        row = {"part": name, "setting": setting, **part.measure(**setting)}
        add_line(store, row)
        print(json.dumps(row), flush=True)


def grouped(
    rows: list[Row], *names: str
) -> Iterable[tuple[tuple[Any, ...], list[Row]]]:
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return sorted(found.items())


def table(store: Path) -> None:
    for name, part in PARTS.items():
        rows = [row for row in lines(store) if row["part"] == name]
        part.table([{**row["setting"], **row} for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*PARTS, "table", "peak"])
    parser.add_argument("--store", type=Path, default=Path("lora.jsonl"))
    parser.add_argument("--runs", type=int, help="or pairs, of each kind")
    parser.add_argument("--only", nargs="*", default=[], help="such as size=1e3")
    parser.add_argument("--mode", choices=MODES, default="hooks", help="of a peak")
    parser.add_argument("--seed", type=int, default=0, help="likewise")
    parser.add_argument("--audited", action="store_true", help="likewise")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if asked.what == "table":
        table(asked.store)
    elif asked.what == "peak":
        peak(asked.mode, asked.seed, audited=asked.audited)
    else:
        fill(asked.what, asked.runs, asked.store, asked.only)


if __name__ == "__main__":
    main()
