"""Runs that used to be reassured without cause, or reported as faulty without one.

    python lab/measure/reassurance.py                      # all rows, a few minutes
    python lab/measure/reassurance.py --only loader key    # rows whose names have these
    python lab/measure/reassurance.py --before TREE        # another checkout beside it

Each row is a small program with one mistake (or, marked *correct*, with none), audited
as a user would; printed is how the audit ended. With ``--before`` the rows are also run
with the sources of another checkout, and both columns are printed.

The last column names the tests that keep a small version of the row.
"""

import argparse
import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import (
    ApproxDP,
    Coins,
    Design,
    Key,
    OneRun,
    Ranking,
    audit_opacus,
)
from dpaudit.accounting import accountant_curve
from dpaudit.game.scores import audit_scores
from dpaudit.game.setting import Setting
from dpaudit.training.any_loop import SumsAudit

ROWS: dict[str, tuple[Callable[[], str], str]] = {}


def row(name: str, test: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    def add(program: Callable[[], str]) -> Callable[[], str]:
        ROWS[name] = program, test
        return program

    return add


# Training with Opacus


def training_run(**options: Any) -> SimpleNamespace:  # noqa: ANN401
    """Return a small private training run: 1,000 records, batches of 100."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1000, 24, generator=generator)
    y = (x @ torch.randn(24, 5, generator=generator)).argmax(1)
    torch.seed()
    module = nn.Sequential(nn.Linear(24, 80), nn.ReLU(), nn.Linear(80, 5))
    run = SimpleNamespace(engine=PrivacyEngine(), epochs=options.pop("epochs", 5))
    run.raw_loader = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True)
    optimizer = options.pop("optimizer", torch.optim.SGD)
    made = run.engine.make_private(
        module=module,
        optimizer=optimizer(module.parameters(), lr=0.2),
        data_loader=run.raw_loader,
        noise_multiplier=2.25,
        max_grad_norm=1.0,
        **options,
    )
    run.criterion = nn.functional.cross_entropy
    if len(made) == 4:
        run.model, run.optimizer, run.criterion, run.loader = made
    else:
        run.model, run.optimizer, run.loader = made

    def step(batch: Any) -> None:  # noqa: ANN401
        inputs, targets = batch
        run.optimizer.zero_grad()
        run.criterion(run.model(inputs), targets).backward()
        run.optimizer.step()

    run.step = step
    return run


def opened(run: SimpleNamespace, **options: Any) -> Any:  # noqa: ANN401

    options = {"step": run.step, **options}
    with quiet():
        return audit_opacus(
            run.engine,
            run.model,
            run.optimizer,
            run.loader,
            epochs=run.epochs,
            delta=1e-5,
            **options,
        )


def audited(
    run: SimpleNamespace,
    loop: Callable[[SimpleNamespace], None],
    **options: Any,  # noqa: ANN401
) -> str:
    audit = opened(run, **options)
    loop(run)
    return ended(audit.finish())


def as_usual(run: SimpleNamespace) -> None:
    for _ in range(run.epochs):
        for batch in run.loader:
            run.step(batch)


@row("training, correct", "tests/training/opacus/test_conservation.py")
def correct() -> str:
    return audited(training_run(), as_usual)


@row("training without step=", "tests/training/opacus/test_conservation.py")
def without_step() -> str:
    return audited(training_run(), as_usual, step=None)


@row("ten steps on each batch", "tests/training/opacus/test_conservation.py")
def ten_steps() -> str:
    def loop(run: SimpleNamespace) -> None:
        for batch in itertools.islice(run.loader, 5):
            for _ in range(10):
                run.step(batch)

    return audited(training_run(), loop)


@row("itertools.cycle(loader)", "tests/training/opacus/test_conservation.py")
def cycled() -> str:
    def loop(run: SimpleNamespace) -> None:
        for batch in itertools.islice(itertools.cycle(run.loader), 50):
            run.step(batch)

    return audited(training_run(), loop)


@row("list(loader) in every epoch", "tests/training/opacus/test_conservation.py")
def listed() -> str:
    def loop(run: SimpleNamespace) -> None:
        batches = list(run.loader)
        for _ in range(run.epochs):
            for batch in batches:
                run.step(batch)

    return audited(training_run(), loop)


@row("loader from before make_private", "tests/training/opacus/test_conservation.py")
def old_loader() -> str:
    def loop(run: SimpleNamespace) -> None:
        for _ in range(run.epochs):
            for batch in run.raw_loader:
                run.step(batch)

    return audited(training_run(), loop)


@row("whole data set as one batch", "tests/training/opacus/test_conservation.py")
def whole_batch() -> str:
    def loop(run: SimpleNamespace) -> None:
        batch = run.raw_loader.dataset.tensors
        for _ in range(20):
            run.step(batch)

    return audited(training_run(), loop)


@row(
    "noise schedule unknown to the accountant",
    "tests/training/opacus/test_conservation.py",
)
def unaccounted() -> str:
    run = training_run()
    accountant = run.engine.accountant

    def tell(_: object) -> None:
        accountant.step(noise_multiplier=2.25, sample_rate=0.1)

    run.optimizer.attach_step_hook(tell)

    def loop(run: SimpleNamespace) -> None:
        for epoch in range(run.epochs):
            run.optimizer.noise_multiplier = 2.25 * (1 - 0.07 * epoch)
            for batch in run.loader:
                run.step(batch)

    return audited(run, loop)


@row(
    "optimizer whose step calls super().step, correct",
    "tests/training/opacus/test_harmless.py",
)
def subclassed() -> str:
    class Mine(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:  # noqa: ANN401
            return super().step(closure)

    return audited(training_run(optimizer=Mine), as_usual)


@row(
    "two private models in one process, correct",
    "tests/training/opacus/test_harmless.py",
)
def two_models() -> str:
    first, second = training_run(), training_run()
    audits = opened(first), opened(second)
    for batches in zip(first.loader, second.loader, strict=False):
        first.step(batches[0])
        second.step(batches[1])
    return "; ".join(ended(audit.finish()) for audit in audits)


@row("opening fails, then training goes on", "tests/training/opacus/test_harmless.py")
def failed_opening() -> str:
    run = training_run(epochs=1)
    good = run.step

    def raises(batch: object) -> None:
        good(batch)
        raise RuntimeError("a mistake in the step")

    run.step = raises
    try:
        opened(run)
    except Exception as error:
        said = type(error).__name__
    run.step = good
    patched = "add_noise" in vars(run.optimizer)
    as_usual(run)
    return f"{said}; canaries {'still enter' if patched else 'enter no more'}"


@row("weights changed after the last step", "tests/training/opacus/test_harmless.py")
def changed_later() -> str:
    def loop(run: SimpleNamespace) -> None:
        as_usual(run)
        with torch.no_grad():
            next(iter(run.model.parameters())).add_(0.1)

    return audited(training_run(), loop)


@row("fixed noise seed", "tests/reporting/test_published.py")
def seeded() -> str:
    run = training_run(noise_generator=torch.Generator().manual_seed(271828))
    audit = opened(run)
    as_usual(run)
    result = audit.finish()
    texts = str(result), result.to_json()
    shown = any("271828" in text or "271,828" in text for text in texts)
    return f"{ended(result)}; its value is {'' if shown else 'not '}printed"


# Noise, forecasts, rules


def sums_audit(
    *,
    rate: float,
    noise: float,
    size: int,
    seed: int,
    **design: Any,  # noqa: ANN401
) -> tuple[Any, np.random.Generator]:
    rng = np.random.default_rng(seed)
    audit = SumsAudit(
        design=Design(canaries=size, **design),
        key=Key(rng.bytes(32)),
        dimension=size,
        sample_rate=rate,
        real_sums=True,
        noise=noise,
    )
    return audit, rng


@row("one step of 500 without noise", "tests/training/test_noise.py")
def bare_step() -> str:
    curve = accountant_curve([(1.5, 0.02, 500)])
    audit, rng = sums_audit(
        rate=0.02,
        noise=1.5,
        size=240,
        seed=1,
        rules=OneRun(guesses=60),
        claim=ApproxDP(epsilon=curve.epsilon_at(1e-5), delta=1e-5),
    )
    for step in range(500):
        sums = np.zeros(240)
        sums[audit.coordinates] += audit.joining()
        if step != 200:
            sums += 1.5 * rng.normal(size=240)
        audit.observe(sums[audit.coordinates], real_sums=np.zeros(240))
    return ended(audit.finish(claim=curve))


@row("noise in bfloat16, correct", "tests/training/test_noise.py")
def half_precision() -> str:
    def rounded(values: np.ndarray) -> np.ndarray:
        bits = values.astype(np.float32).view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return bits.view(np.float32).astype(np.float64)

    curve = accountant_curve([(1.0, 0.1, 1000)])
    audit, rng = sums_audit(
        rate=0.1,
        noise=1.0,
        size=240,
        seed=2,
        rules=OneRun(guesses=60),
        claim=ApproxDP(epsilon=curve.epsilon_at(1e-5), delta=1e-5),
    )
    for _ in range(1000):
        real = rounded(100 * rng.normal(size=240))
        sums = real.copy()
        sums[audit.coordinates] += audit.joining()
        noisy = rounded(rounded(sums) + rng.normal(size=240))
        audit.observe(noisy[audit.coordinates], real_sums=real[audit.coordinates])
    return ended(audit.finish(claim=curve))


@row("run at another rate than planned", "tests/training/test_any_loop.py")
def other_rate() -> str:
    audit, rng = sums_audit(
        rate=0.05, noise=2.0, size=300, seed=3,
        rules=OneRun(guesses=40),
        claim=ApproxDP(epsilon=2.22, delta=1e-5),
        setting=Setting(
            coordinates=300, per_coordinate=1, steps=20, rate=0.2,
            noise=2.0, expected_epsilon=0.6, detectable_factor=3.629,
        ),
    )  # fmt: skip
    for _ in range(20):
        sums = np.zeros(300)
        sums[audit.coordinates] += audit.joining()
        sums += 2.0 * rng.normal(size=300)
        audit.observe(sums[audit.coordinates], real_sums=np.zeros(300))
    text = " ".join(str(audit.finish()).split())
    found = re.search(r"noise [\d.]+ times too small", text)
    return found[0] if found else text[:300]


@row("ranking, every guess correct, delta large", "tests/game/test_could_refute.py")
def all_correct() -> str:
    coins = Coins(key=Key(bytes(32)), count=20_000)
    scores = np.where(coins.bits() == 1, 1.0, -1.0)
    scores *= 1 + np.random.default_rng(0).random(20_000)
    design = Design(
        canaries=20_000,
        rules=Ranking(guesses=100),
        claim=ApproxDP(epsilon=1.0, delta=1e-3),
    )
    return ended(audit_scores(np.arange(20_000), coins, scores, design=design))


def written_scores(folder: Path) -> Path:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2, 10_000)
    scores = bits * 0.8 + rng.normal(size=10_000)
    path, pairs = folder / "scores.csv", zip(bits, scores, strict=True)
    lines = (f"{i},{b},{s:.6f}\n" for i, (b, s) in enumerate(pairs))
    path.write_text("id,bit,score\n" + "".join(lines), encoding="utf-8")
    return path


@row("claims 1.85 to 2.00 of one table", "tests/bounds/test_coherence.py")
def claims() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = written_scores(Path(folder))
        codes = []
        fixed = ("--delta", "1e-5", "--tie-seed", "1")
        for epsilon in ("1.85", "1.87", "1.90", "1.95", "2.00"):
            code = command("audit", path, "--epsilon", epsilon, *fixed)
            codes.append(f"{epsilon}: {code}")
    return "exit " + ", ".join(codes)


@row("scores with ties and without a seed", "tests/game/test_ties.py")
def no_seed() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = written_scores(Path(folder))
        return f"exit {command('audit', path, '--epsilon', '1.0', '--delta', '1e-5')}"


# Evidence


@row("evidence without its score files", "tests/evidence/test_verify.py")
def without_files() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key, design = folder / "audit.key", folder / "design.json"
        registered = ("--canaries", 2000, "--guesses", 500, "--delta", "1e-5")
        made = ("--epsilon", 1, *registered, "--key", key, "--design", design)
        command("register", *made)
        bits = Coins(key=Key.read(key), count=2000).bits()
        scores = bits + np.random.default_rng(0).normal(size=2000)
        path = folder / "scores.csv"
        lines = "".join(f"{i},{each!r}\n" for i, each in enumerate(scores.tolist()))
        path.write_text(f"id,score\n{lines}", encoding="utf-8")
        sealed = folder / "evidence.json"
        fixed = ("--design", design, "--key", key)
        command("audit", path, *fixed, "--evidence", sealed)
        whole = command("verify", sealed, "--files", folder)
        return f"exit {command('verify', sealed)}; with them exit {whole}"


@row("a second training run with the same key", "tests/game/test_key_use.py")
def key_again() -> str:
    key = Key.generate()
    first, second = training_run(epochs=1), training_run(epochs=1)
    audit = opened(first, key=key)
    as_usual(first)
    audit.finish()
    audit = opened(second, key=key)
    as_usual(second)
    return ended(audit.finish())


# What is printed


def ended(result: Any) -> str:  # noqa: ANN401
    reason = result.reason.split(";")[0][:160]
    return f"{result.verdict} ({result.verdict.exit_code})" + (
        f": {reason}" if reason else ""
    )


def command(*arguments: object) -> int:
    program = [sys.executable, "-c", "from dpaudit.cli import app; app()"]
    words = [*program, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, check=False).returncode


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield


def outcome(program: Callable[[], str]) -> str:
    try:
        return program()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:240]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    names = [name for name in ROWS if any(part in name for part in options.only)]
    before: dict[str, str] = {}
    if options.before:
        path = os.pathsep.join(
            (str(options.before / "src"), str(options.before / "lab" / "src"))
        )
        done = subprocess.run(
            [sys.executable, __file__, "--json", "--only", *names],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE, check=True, text=True,
        )  # fmt: skip
        before = json.loads(done.stdout)
    after = {}
    for name in names:
        after[name] = outcome(ROWS[name][0])
        if not options.json:
            print(f"| {name} | {before.get(name, '')} | {after[name]} |", flush=True)
    if options.json:
        print(json.dumps(after))


if __name__ == "__main__":
    main()
