"""Forecasts of runs that differ from their plan: is the printed fault detected?

    python lab/measure/forecasts.py [--audits 200] [--only rate steps]

Six runs, each of which differs from what its audit was planned for: in the sampling
rate, the noise, the steps made, the coordinates, who participates when, the claim that
is judged. A correct run of each says which noise it would have detected with
probability 0.9. So many audits of runs with exactly that fault follow, each with its
own key and coins, through ``SumsAudit``. The check fails if fewer are refuted than
0.9 allows: if the upper limit of the share refuted, at 99.9 % confidence for all six
together (Clopper and Pearson, Bonferroni), is below 0.9; or if more than one of them
prints no fault.

The run of other noise is guessed in rounds, all others at once. About 8 minutes of one
core.
"""

import argparse
import re
import sys
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy import special

from dpaudit import ApproxDP, Design
from dpaudit.accounting import accountant_curve
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.game.result import Result
from dpaudit.game.verdict import POWER
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

DELTA, COORDINATES = 1e-5, 300
PLANNED = TrainingSetup(steps=20, rate=0.2, noise=2.0)
LEVEL = 0.001 / 6
_PRINTED = re.compile(r"noise (\d+\.\d+)x too small")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it was made.

    Attributes:
        training: Its steps, rate and noise.
        coordinates: How many hold canaries.
        participation: Who participates when.
        curve: Whether the accountant's curve of this run is judged, instead of the
            claim that the plan was made for.
        in_rounds: Whether the plan was to guess in rounds.
    """

    training: TrainingSetup = PLANNED
    coordinates: int = COORDINATES
    participation: Participation | None = None
    curve: bool = False
    in_rounds: bool = False

    def claim(self) -> Guarantee | None:
        """Return the accountant's claim, if it is judged."""
        t = self.training
        return accountant_curve([(t.noise, t.rate, t.steps)]) if self.curve else None


RUNS = {
    "rate": Run(training=replace(PLANNED, rate=0.08)),
    "noise": Run(training=replace(PLANNED, noise=3.0), in_rounds=True),
    "steps": Run(training=replace(PLANNED, steps=13)),
    "coordinates": Run(coordinates=150),
    "participation": Run(participation=Participation(every=2, cohorts=2)),
    "claim": Run(curve=True),
}


@cache
def planned(*, in_rounds: bool) -> Design:
    """Return the design of the plan that all runs differ from."""
    t = PLANNED
    epsilon = accountant_curve([(t.noise, t.rate, t.steps)]).epsilon_at(DELTA)
    claim = ApproxDP(epsilon=epsilon, delta=DELTA)
    plan = plan_audit(t, claim=claim, coordinates=COORDINATES, in_rounds=in_rounds)
    return plan.design()


def audited(run: Run, *, fault: float, seed: int) -> Result:
    """Return the result of an audit of a run whose noise is too small by a factor."""
    rng, t = np.random.default_rng(seed), run.training
    design = planned(in_rounds=run.in_rounds)
    size = design.setting.per_coordinate or 1
    audit = SumsAudit(
        design=replace(design, canaries=run.coordinates * size),
        key=fixed_key(rng.bytes(32)),
        dimension=run.coordinates,
        sample_rate=t.rate,
        participation=run.participation,
        knows_real_sums=True,
        noise=t.noise,
        unchecked=("sampling", "gradients", "clipping", "interference"),
    )
    nothing = np.zeros(run.coordinates)
    for _ in range(t.steps):
        noise = t.noise / fault * rng.normal(size=run.coordinates)
        audit.observe(audit.contributions() + noise, real_sums=nothing)
    return audit.finish(claim=run.claim())


def printed(run: Run) -> float | None:
    """Return the fault that correct runs print, of the first that is not refuted."""
    for seed in range(10):
        result = audited(run, fault=1.0, seed=seed)
        if not result.claim_test.refuted:
            found = _PRINTED.search(" ".join(result.details().split()))
            return float(found[1]) if found else None
    raise AssertionError("correct runs are refuted again and again")


def upper(refuted: int, audits: int) -> float:
    """Return the upper limit of the share refuted."""
    if refuted == audits:
        return 1.0
    return float(special.betaincinv(refuted + 1, audits - refuted, 1 - LEVEL))


def holds(name: str, audits: int) -> bool | None:
    """Return whether a run's forecast holds; None if it prints none."""
    run = RUNS[name]
    fault = printed(run)
    if fault is None:
        print(f"{name}: no fault is printed", flush=True)
        return None
    refuted = sum(
        audited(run, fault=fault, seed=1000 + seed).claim_test.refuted
        for seed in range(audits)
    )
    most = upper(refuted, audits)
    found = most >= POWER
    print(
        f"{name}: noise {fault:g} times too small, refuted in {refuted} of {audits} "
        f"(upper limit {most:.3f}): {'holds' if found else 'FAILS'}",
        flush=True,
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audits", type=int, default=200, help="of each run")
    parser.add_argument("--only", nargs="*", default=list(RUNS), choices=list(RUNS))
    args = parser.parse_args()
    found = [holds(name, args.audits) for name in args.only]
    return int(False in found or found.count(None) > 1)


if __name__ == "__main__":
    sys.exit(main())
