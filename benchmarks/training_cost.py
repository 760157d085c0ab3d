"""What an audit costs the training that it rides on: CPU time and memory.

    python benchmarks/training_cost.py time        # ratios, 20 interleaved pairs each
    python benchmarks/training_cost.py memory      # growth of the largest memory
    python benchmarks/training_cost.py steps       # time of a step, early and late

``ghost``: a network of 2.1 million parameters on pictures of 784 numbers, batches of
256, ghost clipping, 100,000 canary coordinates with 1 or 10 canaries each; once without
telling the guesser what real records put into the sums. ``digits``:
the digits network of ``data.py``, hooks, 1,000 canaries. An audited training and a
plain one take turns, so many steps each; what is compared is the CPU time of all
threads of the process. One thread.
"""

import argparse
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import nn

from dpaudit import ApproxDP, Design, Key, OneRun
from dpaudit.experiments.power.timing import cpu, ratio_of
from dpaudit.training.opacus import OpacusAudit

PAIRS = 20
CASES = {
    "ghost, s = 1": ("ghost", 1, True),
    "ghost, s = 1, without the real part": ("ghost", 1, False),
    "ghost, s = 10": ("ghost", 10, True),
    "digits": ("digits", 1, True),
}
LIMITS = {
    "ghost, s = 1": 1.05,
    "ghost, s = 1, without the real part": 1.05,
    "digits": 1.15,
}


def network(kind: str) -> tuple[nn.Module, int, int, int, str, int]:
    """Return model, inputs, records, batch, mode and canary coordinates of a kind."""
    if kind == "ghost":
        layers = [nn.Linear(784, 1100), nn.ReLU(), nn.Linear(1100, 1100), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(1100, 10))
        return model, 784, 2560, 256, "ghost", 100_000
    model = nn.Sequential(nn.Linear(64, 226), nn.ReLU(), nn.Linear(226, 10))
    return model, 64, 1440, 144, "hooks", 1000


def training(
    kind: str, per_coordinate: int, *, audited: bool, real_sums: bool = True
) -> tuple[Callable[[int], None], Any]:
    """Return what makes so many steps, and the audit if there is one."""
    torch.manual_seed(0)
    model, inputs, records, batch, mode, coordinates = network(kind)
    data = torch.utils.data.TensorDataset(
        torch.randn(records, inputs), torch.randint(10, (records,))
    )
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        data_loader=torch.utils.data.DataLoader(data, batch_size=batch),
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    if mode == "ghost":
        model, optimizer, criterion, loader = made
    else:
        (model, optimizer, loader), criterion = made, nn.CrossEntropyLoss()
    audit = None
    if audited:
        design = Design(
            canaries=coordinates * per_coordinate,
            rules=OneRun(guesses=1000),
            claim=ApproxDP(epsilon=2.0, delta=1e-5),
            setting={"per_coordinate": per_coordinate},
        )
        audit = OpacusAudit(
            optimizer,
            loader,
            design=design,
            key=Key.generate(),
            real_sums=real_sums,
        )

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    endless = batches()

    def steps(count: int) -> None:
        for _ in range(count):
            pixels, labels = next(endless)
            optimizer.zero_grad()
            criterion(model(pixels), labels).backward()
            optimizer.step()

    return steps, audit


def times(count: int) -> None:
    for name, (kind, per_coordinate, real_sums) in CASES.items():
        with_audit, audit = training(
            kind, per_coordinate, audited=True, real_sums=real_sums
        )
        plain, _ = training(kind, per_coordinate, audited=False)
        with_audit(5)
        plain(5)
        pairs = [(cpu(with_audit, count), cpu(plain, count)) for _ in range(PAIRS)]
        ratio = ratio_of(*zip(*pairs, strict=True))
        limit = f" (limit {LIMITS[name]})" if name in LIMITS else ""
        each = 1000 * sum(b for _, b in pairs) / (PAIRS * count)
        last = cpu(audit.finish)
        print(
            f"{name}: {ratio} of a plain run{limit}; {PAIRS} pairs of {count} steps, "
            f"a plain step {each:.1f} ms, finish {last:.1f} s once"
        )


def peak(kind: str, per_coordinate: int, *, audited: bool) -> None:
    steps, audit = training(kind, per_coordinate, audited=audited)
    steps(12)
    if audit is not None:
        audit.finish()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def memory() -> None:
    for name, (kind, per_coordinate, _) in CASES.items():
        found = {}
        for audited in (True, False):
            command = [sys.executable, "-W", "ignore", __file__, "peak", kind]
            command += [str(per_coordinate), str(int(audited))]
            out = subprocess.run(command, check=True, capture_output=True, text=True)
            found[audited] = int(out.stdout) / 1024
        *_, coordinates = network(kind)
        limit = 16 * coordinates * (per_coordinate + 1) / 2**20 + 50e6 / 2**20
        print(
            f"{name}: {found[True] - found[False]:.0f} MiB over {found[False]:.0f} "
            f"(limit {limit:.0f})"
        )


def flat() -> None:
    """Compare steps early and late in one long audited run."""
    steps, _ = training("digits", 1, audited=True)
    steps(20)
    early, before = [], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    early = [cpu(steps, 20) for _ in range(PAIRS)]
    steps(4000)
    late = [cpu(steps, 20) for _ in range(PAIRS)]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"steps 4,400 and on over steps 20 and on: {ratio_of(late, early)} of the time,"
        f" {(after - before) / 1024:.1f} MiB more memory"
    )


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["time", "memory", "steps", "peak"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--steps", type=int, default=10, help="of each turn")
    arguments = parser.parse_args()
    if arguments.what == "time":
        times(arguments.steps)
    elif arguments.what == "memory":
        memory()
    elif arguments.what == "steps":
        flat()
    else:
        kind, size, audited = arguments.rest
        peak(kind, int(size), audited=audited == "1")


if __name__ == "__main__":
    main()
