"""Plans against what they predict: whole audits, simulated through the public game.

    python benchmarks/planning.py --store planning.sqlite --workers 2

For each setting: the plan, how long it took, the mean bound that it predicts, and the
mean bound of audits of simulated training, each with its own coins, referee and bound.
A prediction holds if it is within 3 % or 0.02 of the mean, plus two of the mean's
standard errors. The noise is the RDP accountant's for the epsilon claimed at delta =
1e-5; alpha is 0.05.
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from sweeping import filled

from dpaudit import ApproxDP, Design, Key
from dpaudit.accounting import noise_for
from dpaudit.dpsgd.planning import plan_audit
from dpaudit.dpsgd.planning.guess_law import Training
from dpaudit.dpsgd.planning.plan import Plan, rehearse
from dpaudit.engines.store import Outcome, Setting
from dpaudit.engines.sweep import Sweep

DELTA = 1e-5
# epsilon, coordinates, canaries per coordinate (None: the plan's choice), steps, rate
SETTINGS = (
    (2.0, 1_000, None, 100, 0.1),
    (2.0, 1_000, 1, 100, 0.1),
    (2.0, 1_000, 32, 100, 0.1),
    (2.0, 10_000, None, 100, 0.1),
    (2.0, 100_000, 4, 100, 0.1),
    (0.5, 10_000, None, 100, 0.1),
    (8.0, 1_000, None, 100, 0.1),
    (1.0, 10_000, None, 1, 1.0),
    (4.0, 1_000, None, 1, 1.0),
    (8.0, 100_000, 1, 1, 1.0),
    (2.0, 1_000, None, 1_000, 0.01),
    (8.0, 10_000, 2, 1_000, 0.01),
    (4.0, 1_000, 16, 10, 0.5),
    (1.0, 100_000, 8, 10, 1.0),
    (4.0, 3_000, None, 300, 0.03),
)


def planned(
    epsilon: float, d: int, s: int | None, steps: int, rate: float
) -> tuple[Plan, str]:
    """Return the plan, and how long it took."""
    noise = noise_for(epsilon, DELTA, sample_rate=rate, steps=steps, method="rdp")
    training = Training(steps=steps, rate=rate, noise=noise)
    claim = ApproxDP(epsilon=epsilon, delta=DELTA)
    wall, cpu = time.perf_counter(), time.process_time()
    plan = plan_audit(training, claim=claim, coordinates=d, per_coordinate=s)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return plan, f"{wall:.1f} s ({cpu:.1f} s CPU)"


def describe(plan: Plan) -> Setting:
    return {
        "design": plan.design().to_json(),
        "per_coordinate": plan.per_coordinate,
        **asdict(plan.training),
    }


def one_audit(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Audit simulated training once, by a plan's design."""
    names = ("steps", "rate", "noise")
    result = rehearse(
        Design.from_json(str(setting["design"])),
        Training(**{name: setting[name] for name in names}),
        per_coordinate=int(setting["per_coordinate"] or 1),
        rng=rng,
        key=Key(rng.bytes(32)),
    )
    return {"bound": result.bound.epsilon_lower}


def report(plan: Plan, took: str, bounds: np.ndarray) -> bool:
    """Print what was predicted and what was found, and return whether it holds."""
    mean, error = bounds.mean(), bounds.std(ddof=1) / len(bounds) ** 0.5
    off = plan.expected.mean - mean
    holds = abs(off) <= max(0.03 * mean, 0.02) + 2 * error
    training = plan.training
    print(
        f"epsilon {plan.claim.epsilon:g}, d = {plan.coordinates:,}, "
        f"T = {training.steps:,}, q = {training.rate:g}: s = {plan.per_coordinate}, "
        f"{plan.method}; predicted {plan.expected}; simulated {mean:.3f} +- "
        f"{error:.3f}, spread {bounds.std(ddof=1):.3f}; off by {off:+.3f}, "
        f"{'holds' if holds else 'FAILS'}; planned in {took}",
        flush=True,
    )
    return bool(holds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--store", type=Path, default=Path("planning.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    plans = [planned(*setting) for setting in SETTINGS]
    sweep = Sweep(
        name="planning",
        revision=1,
        function=one_audit,
        settings=[describe(plan) for plan, _ in plans],
        trials=args.runs,
    )
    with filled(sweep, args.store, workers=args.workers, doing="auditing") as store:
        held = 0
        for (plan, took), setting in zip(plans, sweep.settings, strict=True):
            rows = list(store.outcomes(sweep.cell(setting), args.runs))
            bounds = np.array([row["bound"] for row in rows])
            held += report(plan, took, bounds)
    print(f"{held} of {len(SETTINGS)} predictions hold")


if __name__ == "__main__":
    main()
