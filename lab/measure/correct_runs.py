"""How often is a correct training run reported as faulty? Many small runs.

    python lab/measure/correct_runs.py --store correct.sqlite     # run or resume
    python lab/measure/correct_runs.py --store correct.sqlite --runs 2   # of each kind

``opacus``: runs whose sampling, clipping, noise and accounting are Opacus' own, in
twelve kinds: how gradients are made, micro-batches, schedules of noise and of the
clipping norm that the accountant is told, canaries as records and in sums, a checkpoint
half-way, float64. The step of each is checked before the first and again at steps that
the key draws. ``half``: runs in bfloat16, through ``SumsAudit`` (a loop of torch) and
JAX Privacy, with noise drawn in bfloat16 and in float32. Noise drawn in bfloat16 is
drawn as torch does it, rounded from float32.

Printed are the runs with a fault, those that end with no violation and every hypothesis
passed, and apart from them those whose claim is refuted at p <= 0.001, each with its
exact upper 99.9 % limit. Fails if any run has a fault, or if the lower 99.9 % limit of
the share refuted is above 0.001.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.schedulers import ExponentialGradClip, ExponentialNoise, StepNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sweeping import filled
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, OneRun
from dpaudit.accounting import accountant_curve
from dpaudit.game.findings import Stage, Status
from dpaudit.game.result import Result
from dpaudit.game.text.findings import sentence, sentences
from dpaudit.game.verdict import Verdict
from dpaudit.stats.binomial import rate_limits
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.opacus import OpacusAudit, with_canaries
from dpaudit_lab.sweeps.store import Outcome, Setting
from dpaudit_lab.sweeps.sweep import Sweep

RECORDS, STEPS, RATE, CANARIES = 200, 20, 0.1, 240
LEVEL = 0.001


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of correct run."""

    mode: str = "hooks"
    records: bool = False  # whether canaries are records
    physical: int = 0  # the most records of a micro-batch
    noise: Callable[[Any], Any] | None = None  # schedules
    clip: Callable[[Any], Any] | None = None
    dtype: torch.dtype = torch.float32
    clipping: str = "flat"
    large: bool = False  # whether gradients of all records are alike, and add up
    saved: bool = False  # whether the audit is saved and resumed half-way


KINDS = {
    "hooks": Kind(),
    "functorch, records": Kind(mode="functorch", records=True),
    "ew": Kind(mode="ew"),
    "ghost": Kind(mode="ghost"),
    "hooks, records": Kind(records=True),
    "hooks, micro-batches": Kind(physical=8),
    "ghost, micro-batches": Kind(mode="ghost", physical=8),
    "noise schedule": Kind(noise=partial(StepNoise, step_size=7, gamma=0.8)),
    "noise schedule, every step": Kind(noise=partial(ExponentialNoise, gamma=0.98)),
    "clipping schedule": Kind(clip=partial(ExponentialGradClip, gamma=0.97)),
    "per layer, large sums": Kind(clipping="per_layer", large=True),
    "float64, resumed": Kind(dtype=torch.float64, saved=True),
}
HALF = {
    "SumsAudit, bfloat16": ("sums", torch.bfloat16),
    "SumsAudit, noise in float32": ("sums", torch.float32),
    "JAX Privacy, bfloat16": ("jax", "bfloat16"),
    "JAX Privacy, float32 and bfloat16": ("jax", "mixed"),
}


def design(epsilon: float = 8.0) -> Design:
    claim = ApproxDP(epsilon=epsilon, delta=1e-5)
    return Design(canaries=CANARIES, rules=OneRun(guesses=60), claim=claim)


def told(found: Result) -> Outcome:
    """Return what a study keeps of a result."""
    assert found.training is not None
    coverage = found.training.coverage
    checks = coverage.checks
    (noise,) = (check for check in checks if check.stage is Stage.NOISE_SCALE)
    left = [
        str(each)
        for each, status in coverage.hypotheses().items()
        if status is not Status.PASSED
    ]
    return {
        "verdict": str(found.verdict),
        "left": "; ".join(left),
        "passed": found.verdict is Verdict.NO_VIOLATION_DETECTED and not left,
        "reason": found.reason,
        "p_value": found.p_value,
        "faults": "; ".join(f"{each.stage}: {sentence(each)}" for each in found.faults),
        "remarks": "; ".join(
            sentence(each)
            for each in found.training.remarks
            if each.code in ("noise.more", "noise.more_in_steps")
        ),
        "checked": noise.status is not Status.NOT_CHECKED,
        "noise": sentences(noise.findings),
    }


def opacus_run(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train with Opacus, correctly, and say what the audit reports."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(int(rng.integers(2**63)))
    kind = KINDS[str(setting["kind"])]
    # A schedule's accountant is slow: one curve serves all runs of a worker.
    noise = 1.2 if kind.noise else float(rng.choice([0.7, 1.5]))
    clip = float(rng.choice([0.3, 1.0, 5.0]))
    pixels = torch.randn(RECORDS, 30, dtype=kind.dtype)
    labels = torch.randint(4, (RECORDS,))
    if kind.large:
        pixels, labels = 30 + 0.1 * pixels, torch.zeros_like(labels)
    records: Any = TensorDataset(pixels, labels)
    if kind.records:
        records = with_canaries(records, canaries=CANARIES)
    layers = nn.Linear(30, 24), nn.ReLU(), nn.Linear(24, 4)
    model: Any = nn.Sequential(*layers).to(kind.dtype)
    engine = PrivacyEngine()
    model, optimizer, *criteria, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        data_loader=DataLoader(records, batch_size=int(len(records) * RATE)),
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=noise,
        max_grad_norm=[clip / 2] * 4 if kind.clipping == "per_layer" else clip,
        grad_sample_mode=kind.mode,
        clipping=kind.clipping,
    )
    criterion = criteria[0] if criteria else nn.CrossEntropyLoss()
    schedules = [make(optimizer) for make in (kind.noise, kind.clip) if make]
    key = fixed_key(rng.bytes(32))
    attach = partial(
        OpacusAudit, optimizer, design=design(), key=key, accountant=engine.accountant
    )
    audit = attach(loader, model=model)

    def step(batch: Any) -> None:  # noqa: ANN401 (what a loader yields)
        optimizer.zero_grad()
        criterion(model(batch[0]), batch[1]).backward()
        optimizer.step()

    audit.probe(step, records=2, steps=STEPS)
    taken = 0
    while taken < STEPS:
        batches = audit.data_loader
        manager: Any = nullcontext(batches)
        if kind.physical:
            manager = BatchMemoryManager(
                data_loader=batches,
                max_physical_batch_size=kind.physical,
                optimizer=optimizer,
            )
        with manager as parts:
            for batch in parts:
                step(batch)
                if optimizer._is_last_step_skipped:
                    continue
                taken += 1
                for schedule in schedules:
                    schedule.step()
                if kind.saved and taken == STEPS // 2:
                    with tempfile.TemporaryDirectory() as folder:
                        audit.save(Path(folder) / "state.npz")
                        audit.detach()
                        audit = attach(loader, model=model)
                        audit.resume(Path(folder) / "state.npz")
                    break
                if taken == STEPS:
                    break
    return told(audit.finish())


def half_run(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train in bfloat16 outside of Opacus, correctly, and say what is reported."""
    way, what = HALF[str(setting["kind"])]
    return sums_run(what, rng) if way == "sums" else jax_run(what, rng)


def sums_run(drawn: torch.dtype, rng: np.random.Generator) -> Outcome:
    """Train a linear model by a loop of torch, with its sums in bfloat16."""
    torch.set_num_threads(1)
    torch.manual_seed(int(rng.integers(2**63)))
    noise, clip = float(rng.choice([0.7, 1.5])), float(rng.choice([0.3, 1.0, 5.0]))
    offset = float(rng.choice([0.0, 3.0]))  # records that are alike have large sums
    pixels = (offset + torch.randn(RECORDS, 60)).bfloat16()
    labels = nn.functional.one_hot(torch.randint(4, (RECORDS,)), 4).bfloat16()
    weights = torch.zeros(60, 4, dtype=torch.bfloat16)
    audit = SumsAudit(
        design=design(),
        key=fixed_key(rng.bytes(32)),
        dimension=weights.numel(),
        sample_rate=RATE,
        knows_real_sums=True,
        noise=noise,
    )
    places = torch.from_numpy(audit.coordinates)
    for _ in range(5 * STEPS):
        here = torch.from_numpy(rng.random(RECORDS) < RATE)
        errors = torch.softmax(pixels[here] @ weights, 1) - labels[here]
        grads = (pixels[here, :, None] * errors[:, None]).reshape(int(here.sum()), -1)
        norms = grads.float().norm(dim=1, keepdim=True).clamp(min=1e-6)
        grads *= (clip / norms).clamp(max=1.0).bfloat16()
        real = grads.sum(0)
        total = real.clone()
        total[places] += clip * torch.from_numpy(audit.contributions()).bfloat16()
        added = clip * noise * torch.randn(len(total), dtype=drawn)
        noisy = (total + added).bfloat16()
        audit.observe(
            noisy[places].float() / clip, real_sums=real[places].float() / clip
        )
        weights -= 0.01 * noisy.view_as(weights)
    return told(audit.finish(claim=accountant_curve([(noise, RATE, 5 * STEPS)])))


def jax_run(types: str, rng: np.random.Generator) -> Outcome:
    """Train a small network with JAX Privacy, some or all of it in bfloat16."""
    import jax  # noqa: PLC0415 (a library of its own)
    import jax.numpy as jnp  # noqa: PLC0415
    import optax  # noqa: PLC0415
    from jax_privacy import clipped_grad, noise_addition  # noqa: PLC0415
    from jax_privacy.batch_selection import CyclicPoissonSampling  # noqa: PLC0415
    from jax_privacy.experimental.accounting import dpsgd_event  # noqa: PLC0415

    from dpaudit.training.jax_privacy import JaxAudit  # noqa: PLC0415

    warnings.simplefilter("ignore")
    noise, clip = float(rng.choice([0.7, 1.5])), float(rng.choice([0.3, 1.0, 5.0]))
    params = {
        "in": jnp.asarray(rng.normal(size=(30, 12)) / 5, jnp.bfloat16),
        "out": jnp.asarray(
            rng.normal(size=(12, 4)) / 5,
            jnp.float32 if types == "mixed" else jnp.bfloat16,
        ),
    }

    def loss(params: Any, pixels: Any, labels: Any) -> Any:  # noqa: ANN401 (JAX)
        scores = jnp.tanh(pixels @ params["in"]) @ params["out"]
        scores = scores.astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    grad_fn = clipped_grad(loss, l2_clip_norm=clip, batch_argnums=(1, 2))
    sampling = CyclicPoissonSampling(RATE, STEPS)
    audit = JaxAudit(
        params,
        grad_fn,
        sampling,
        dpsgd_event(noise, STEPS, sampling_prob=RATE),
        design=design(),
        key=fixed_key(rng.bytes(32)),
        noise=noise,
    )
    privatizer = audit.wrap(
        noise_addition.gaussian_privatizer(
            stddev=noise * grad_fn.sensitivity(),
            prng_key=int(rng.integers(2**31)),
            dtype=jnp.float32,
        )
    )

    @jax.jit
    def step(params: Any, state: Any, batch: Any, padding: Any) -> Any:  # noqa: ANN401
        grads = grad_fn(params, *batch, is_padding_example=padding)
        noisy, state = privatizer.update(grads, state)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, noisy), state

    pixels = jnp.asarray(rng.normal(size=(RECORDS, 30)), jnp.bfloat16)
    labels = jnp.asarray(rng.integers(4, size=RECORDS))
    state = privatizer.init(params)
    seed = int(rng.integers(2**31))
    for rows in sampling.batch_iterator(RECORDS, rng=seed):
        some = np.full(64, -1)
        some[: len(rows)] = rows
        batch = pixels[some], labels[some]
        params, state = step(params, state, batch, some == -1)
        state = audit.observe(state)
    return told(audit.finish())


def sweeps(runs: int) -> dict[str, Sweep]:
    """Return the two sweeps, with so many runs of each kind."""
    return {
        name: Sweep(
            name=f"correct runs, {name}",
            revision=3,
            function=function,
            settings=[{"kind": kind} for kind in kinds],
            trials=runs,
        )
        for name, function, kinds in (
            ("opacus", opacus_run, KINDS),
            ("half", half_run, HALF),
        )
    }


def report(found: dict[str, list[Outcome]]) -> bool:
    """Print what came of each kind; return whether no run has a fault."""
    print(
        "| kind | runs | faults | all passed | refuted, p <= 0.001 | least p | noise "
        "checked |"
    )
    print("|---|---|---|---|---|---|---|")
    for kind, runs in found.items():
        print(
            f"| {kind} | {len(runs)} | {sum(bool(run['faults']) for run in runs)} "
            f"| {sum(bool(run['passed']) for run in runs)} "
            f"| {sum(run['p_value'] <= LEVEL for run in runs)} "
            f"| {min(run['p_value'] for run in runs):.2g} "
            f"| {sum(bool(run['checked']) for run in runs)} |"
        )
    every = [run for runs in found.values() for run in runs]
    faults = [run for run in every if run["faults"]]
    refuted = [run for run in every if run["p_value"] <= LEVEL]
    low = 0.0
    for what, some in (("with a fault", faults), ("refuted at p <= 0.001", refuted)):
        low, high = rate_limits(len(some), len(every), alpha=0.002)
        print(f"{what}: {len(some)} of {len(every)}, at most {high:.4f} (99.9 %)")
    for text in dict.fromkeys(str(run["faults"] or run["remarks"]) for run in every):
        if text:
            print(text)
    return not faults and low <= LEVEL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("correct.sqlite"))
    parser.add_argument("--runs", type=int, default=25, help="of each kind")
    parser.add_argument("--only", nargs="+", choices=["opacus", "half"])
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    good = True
    for name, sweep in sweeps(arguments.runs).items():
        if name not in (arguments.only or [name]):
            continue
        with filled(
            sweep, arguments.store, workers=arguments.workers, doing=name
        ) as store:
            good &= report(
                {
                    str(setting["kind"]): [*store.outcomes(sweep.cell(setting))]
                    for setting in sweep.settings
                }
            )
    sys.exit(not good)


if __name__ == "__main__":
    import correct_runs  # so that workers find its functions

    correct_runs.main()
