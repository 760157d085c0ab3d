"""Plans at real size: what holds of them, and whether whole audits bear them out.

    python lab/measure/planning.py table [--purpose bound]
    python lab/measure/planning.py audits --store planning.sqlite --workers 2
    python lab/measure/planning.py adapters [--purpose bound]

``table`` plans 48 audits: claims of epsilon 1, 2 and 8 at delta = 1e-5, 10^3 to 10^6
coordinates, four kinds of training. It asks of each whether it took less than 10 s of
CPU with its accountant, expects no more than its ceiling, recommends the best of what
it compared within 2 %, is not worse by more than 1 % than with a tenth of the
coordinates, and, if nothing is caught, says so.

``audits`` simulates whole audits through the public game, each with its own coins,
referee and bound: 12 settings of 10^5 coordinates (50 audits each), 6 of 10^4 (100).
Of a thousand steps or more it draws how many fell where (``CountedSums``). A prediction
holds if it is within 3 % or 0.02 of the mean bound, plus two of its standard errors; a
promise, if the fault is refuted in 16 of 20 audits or more. It can be stopped and
resumed (about 40 minutes on two cores).

``adapters`` are trainings of 10^3 to 10^4 parameters, planned as ``plan_opacus`` does,
one canary per coordinate against the accountant's curve: is the plan that may use all
of them within 2 % of the best of those that may use fewer?

The noise is the RDP accountant's for the epsilon claimed; alpha is 0.05.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
from sweeping import filled

from dpaudit import ApproxDP, Design, Key
from dpaudit.accounting import accountant_curve, noise_for
from dpaudit.dpsgd.likelihood import CountLikelihood
from dpaudit.dpsgd.planning import Purpose, TrainingSetup, plan_audit
from dpaudit.dpsgd.planning.plan import Plan, rehearse
from dpaudit.dpsgd.sums import DiracSums, SeenSums
from dpaudit_lab.sweeps.store import Outcome, Setting
from dpaudit_lab.sweeps.sweep import Sweep

DELTA = 1e-5
EPSILONS = (1.0, 2.0, 8.0)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
TRAININGS = ((100, 0.1), (1_000, 0.01), (1_000, 0.1), (5_000, 0.01))
# epsilon, coordinates, (steps, rate)
LARGE = tuple((e, 100_000, t) for e, t in product(EPSILONS, TRAININGS))
SMALLER = tuple((e, 10_000, t) for e, t in product(EPSILONS, TRAININGS[:2]))
CATCHES = 20
MANY = 1_000  # steps
_CAUGHT = 16


def planned(
    epsilon: float, d: int, trained: tuple[int, float], purpose: Purpose
) -> tuple[Plan, float]:
    """Return the plan, and the seconds of CPU that it took."""
    steps, rate = trained
    start = time.process_time()
    noise = noise_for(epsilon, DELTA, sample_rate=rate, steps=steps, method="rdp")
    plan = plan_audit(
        TrainingSetup(steps=steps, rate=rate, noise=noise),
        claim=ApproxDP(epsilon=epsilon, delta=DELTA),
        coordinates=d,
        guarantee=accountant_curve([(noise, rate, steps)]),
        purpose=purpose,
    )
    return plan, time.process_time() - start


def reached(plan: Plan) -> float:
    """Return what a plan is for, larger being better."""
    if plan.purpose is Purpose.BOUND:
        return plan.expected.mean
    return 0.0 if plan.fault is None else 1 / plan.fault


def best_compared(plan: Plan) -> float:
    """Return the most of what it is for among all that was compared."""
    if plan.purpose is Purpose.BOUND:
        return max(each.bound for each in plan.candidates)
    return max((1 / each.fault for each in plan.candidates if each.fault), default=0.0)


def complaints(plan: Plan, cpu: float, smaller: Plan | None) -> list[str]:
    """Return what does not hold of a plan."""
    assert plan.ceiling is not None
    found = {
        f"{cpu:.1f} s": cpu > 10,
        "above its ceiling": plan.expected.mean > plan.ceiling,
        "not the best compared": reached(plan) < 0.98 * best_compared(plan),
        "worse than with fewer": smaller is not None
        and reached(plan) < 0.99 * reached(smaller),
        "silent": plan.fault is None and "NOTHING" not in str(plan),
    }
    return [name for name, wrong in found.items() if wrong]


def table(purpose: Purpose) -> None:
    held, slowest = 0, 0.0
    for epsilon, trained in product(EPSILONS, TRAININGS):
        smaller = None
        for d in SIZES:
            plan, cpu = planned(epsilon, d, trained, purpose)
            wrong = complaints(plan, cpu, smaller)
            held, slowest, smaller = held + (not wrong), max(slowest, cpu), plan
            fault = "nothing" if plan.fault is None else f"noise / {plan.fault:.3f}"
            print(
                f"epsilon {epsilon:g}, T = {trained[0]:,}, q = {trained[1]:g}, d = "
                f"{d:,}: s = {plan.per_coordinate}, {plan.method}, "
                f"{plan.coordinates:,} coordinates; catches {fault}; expects "
                f"{plan.expected}, ceiling {plan.ceiling:.3f}; {cpu:.1f} s CPU; "
                f"{'FAILS: ' + ', '.join(wrong) if wrong else 'holds'}",
                flush=True,
            )
    print(f"{held} of 48 plans hold; the slowest took {slowest:.1f} s of CPU")


def adapters(purpose: Purpose) -> None:
    """Compare plans on all parameters of small trainings with plans on fewer."""
    held, settings = 0, list(product((1_000, 3_000, 10_000), EPSILONS))
    for parameters, epsilon in settings:
        noise = noise_for(epsilon, DELTA, sample_rate=0.02, steps=500, method="rdp")
        curve = accountant_curve([(noise, 0.02, 500)])
        plans = {
            d: plan_audit(
                TrainingSetup(steps=500, rate=0.02, noise=noise),
                claim=ApproxDP(epsilon=curve.epsilon_at(DELTA), delta=DELTA),
                coordinates=d,
                per_coordinate=1,
                guarantee=curve,
                in_rounds=False,
                purpose=purpose,
            )
            for d in (parameters * share // 10 for share in (1, 2, 4, 6, 8, 10))
        }
        best = max(map(reached, plans.values()))
        holds = reached(plans[parameters]) >= 0.98 * best
        held += holds
        shown = ", ".join(f"{d}: {reached(plan):.3f}" for d, plan in plans.items())
        print(
            f"{parameters:,} parameters, epsilon {epsilon:g}: {shown} "
            f"{'holds' if holds else 'FAILS'}",
            flush=True,
        )
    print(f"{held} of {len(settings)} hold")


class CountedSums:
    """Noisy sums of many steps, of which is drawn how many fell into narrow intervals.

    Steps are independent and their order says nothing, so for each coordinate the
    numbers of its steps whose sum lies in each interval, a twentieth of the noise wide,
    are multinomial, and a step says what its interval says on average. That loses a
    five-thousandth of the variance of what a step says, and takes as long for 5,000
    steps as for 500. Plans are made from simulated blocks, so this is another way.
    """

    def __init__(self, sums: DiracSums) -> None:
        self._sums = sums
        self.pairs, self.log_odds = sums.pairs, sums.log_odds
        self.posterior = sums.posterior

    def run(self, data: np.ndarray, rng: np.random.Generator) -> SeenSums:
        """Return what is seen of the sums."""
        sums = self._sums
        bits = (np.asarray(data) > 0).reshape(sums.coordinates, sums.per_coordinate)
        ones = np.count_nonzero(bits, axis=1)
        found = np.zeros((sums.coordinates, sums.per_coordinate + 1))
        for number, (probabilities, said) in enumerate(self._intervals()):
            here = np.flatnonzero(ones == number)
            for some in np.array_split(here, max(1, len(here) // 5_000)):
                counts = rng.multinomial(sums.steps, probabilities, len(some))
                found[some] = counts @ said
        return SeenSums(log_likelihood=found, total=np.zeros(sums.coordinates))

    def _intervals(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the chance of each interval and what it says, by number of ones."""
        sigma, s = self._sums.sigma, self._sums.per_coordinate
        distribution = self._sums.sampling.distribution(s)
        fine = sigma / 160
        x = np.arange(
            distribution.sums[0] - 8 * sigma, distribution.sums[-1] + 8 * sigma, fine
        )
        x = x[: len(x) // 8 * 8]
        likelihood = CountLikelihood(
            coordinates=len(x),
            per_coordinate=s,
            sampling=self._sums.sampling,
        )
        likelihood.observe(x, sigma)
        said = likelihood.log_likelihood
        density = np.exp(-0.5 * ((x[:, np.newaxis] - distribution.sums) / sigma) ** 2)
        for joins in np.exp(distribution.log_probabilities):
            weights = (density @ joins).reshape(-1, 8)
            weights /= weights.sum()
            probabilities = weights.sum(axis=1)
            # Intervals so far out that no step falls there say whatever they say.
            seen = np.broadcast_to(probabilities[:, np.newaxis] > 0, weights.shape)
            within = np.full_like(weights, 1 / weights.shape[1])
            np.divide(weights, probabilities[:, np.newaxis], out=within, where=seen)
            yield (
                probabilities,
                np.einsum("ij,ijk->ik", within, said.reshape(-1, 8, s + 1)),
            )


class Counted:
    """A training of many steps, simulated as ``CountedSums``."""

    def __init__(self, training: TrainingSetup) -> None:
        self._training = training

    def mechanism(self, *, coordinates: int, per_coordinate: int) -> CountedSums:
        """Return its noisy sums."""
        return CountedSums(
            self._training.mechanism(
                coordinates=coordinates, per_coordinate=per_coordinate
            )
        )


def describe(plan: Plan, factor: float) -> Setting:
    trained = plan.training.with_noise_divided_by(factor)
    return {
        "design": plan.design().to_json(),
        "per_coordinate": plan.per_coordinate,
        **asdict(trained),
    }


def one_audit(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Audit simulated training once, by a plan's design."""
    names = ("steps", "rate", "noise")
    training = TrainingSetup(**{name: setting[name] for name in names})
    result = rehearse(
        Design.from_json(str(setting["design"])),
        training if training.steps < MANY else Counted(training),
        per_coordinate=int(setting["per_coordinate"] or 1),
        rng=rng,
        key=Key(rng.bytes(32)),
    )
    refuted = float(result.claim_test.refuted)
    return {"bound": result.bound.epsilon_lower, "refuted": refuted}


def report(plan: Plan, bounds: np.ndarray, refuted: np.ndarray | None) -> bool:
    """Print what was predicted and what was found, and return whether it holds."""
    mean, error = bounds.mean(), bounds.std(ddof=1) / len(bounds) ** 0.5
    off = plan.expected.mean - mean
    holds = abs(off) <= max(0.03 * mean, 0.02) + 2 * error
    caught = "nothing promised"
    if refuted is not None:
        holds &= refuted.sum() >= _CAUGHT
        caught = (
            f"noise / {plan.fault:.3f} refuted {refuted.sum():.0f} of {len(refuted)}"
        )
    training = plan.training
    print(
        f"epsilon {plan.claim.epsilon:g}, d = {plan.coordinates:,}, "
        f"T = {training.steps:,}, q = {training.rate:g}: s = {plan.per_coordinate}, "
        f"{plan.method}; predicted {plan.expected}; simulated {mean:.3f} +- "
        f"{error:.3f}, spread {bounds.std(ddof=1):.3f}; off by {off:+.3f}; {caught}; "
        f"{'holds' if holds else 'FAILS'}",
        flush=True,
    )
    return bool(holds)


def audits(store: Path, workers: int, purpose: Purpose) -> None:
    held, settings = 0, (*LARGE, *SMALLER)
    plans = [planned(*setting, purpose)[0] for setting in settings]
    # The shortest first, so that whoever stops it has seen some.
    for plan in sorted(plans, key=lambda plan: plan.training.steps * plan.coordinates):
        runs = 50 if plan.available == 100_000 else 100
        bounds = found(plan, 1.0, runs, store, workers)["bound"]
        held += report(plan, bounds, caught(plan, store, workers))
    print(f"{held} of {len(settings)} plans hold")


def caught(plan: Plan, store: Path, workers: int) -> np.ndarray | None:
    """Return in which audits the fault was refuted; None if nothing is promised."""
    if plan.fault is None:
        return None
    return found(plan, plan.fault, CATCHES, store, workers)["refuted"]


def found(
    plan: Plan, factor: float, runs: int, path: Path, workers: int
) -> dict[str, np.ndarray]:
    sweep = Sweep(
        name="planning",
        revision=3,
        function=one_audit,
        settings=[describe(plan, factor)],
        trials=runs,
    )
    with filled(sweep, path, workers=workers, doing="auditing") as store:
        rows = list(store.outcomes(sweep.cell(sweep.settings[0]), runs))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["table", "audits", "adapters"])
    parser.add_argument("--purpose", type=Purpose, default=Purpose.FAULTS)
    parser.add_argument("--store", type=Path, default=Path("planning.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    if args.what == "table":
        table(args.purpose)
    elif args.what == "adapters":
        adapters(args.purpose)
    else:
        audits(args.store, args.workers, args.purpose)


if __name__ == "__main__":
    main()
