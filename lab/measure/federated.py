"""Audits of federated training with Flower: what they catch, show and cost.

    python lab/measure/federated.py weights         # examples weighed, 20 runs
    python lab/measure/federated.py honest          # 100 runs, equal weights
    python lab/measure/federated.py faults          # five faults, 20 runs each
    python lab/measure/federated.py adaptive        # noise of a norm that adapts
    python lab/measure/federated.py large           # 100,000 canary clients
    python lab/measure/federated.py cost            # 20 interleaved pairs

Needs ``dpaudit[flower]``. Everything goes through Flower's own strategy, without a
wire: other clients' replies are made here. A run has 500 canary clients, each in one of
ten rounds, 50 a round among 200 others; noise multiplier 2, of which one round is
(mu = 0.5)-Gaussian privacy, epsilon = 1.993 at delta = 1e-5. The plan says how many
guesses are made. What a claim is refuted by is the p-value of the whole curve.
"""

import argparse
import logging
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.differential_privacy import add_gaussian_noise_inplace

from dpaudit import ApproxDP, Design, GaussianDP, Key, Result
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.game.text.findings import fault_parts
from dpaudit.game.text.results import signal_sentence
from dpaudit.training.flower import FlowerAudit, Replies
from dpaudit.training.flower.messages import client_reply
from dpaudit_lab.power.timing import median_ratio

CLIP, NOISE, DELTA = 0.5, 2.0, 1e-5
CANARIES, REAL, ROUNDS = 500, 200, 10
SMALL = 1e-3


def planned(canaries: int, rounds: int, *, noise: float = NOISE) -> tuple[Design, Any]:
    """Return the design for canaries that are each in one round, and its plan."""
    training = TrainingSetup(
        steps=rounds,
        noise=noise,
        participation=Participation(every=rounds, cohorts=rounds),
    )
    guarantee = GaussianDP(mu=1 / noise)
    plan = plan_audit(
        training,
        claim=ApproxDP(epsilon=guarantee.epsilon_at(DELTA), delta=DELTA),
        coordinates=canaries,
        per_coordinate=1,
        guarantee=guarantee,
        in_rounds=False,
        purpose="bound" if canaries > 10_000 else "faults",
    )
    return plan.design(), plan


class ClippedOnceAveraged(DifferentialPrivacyServerSideFixedClipping):  # type: ignore[misc]
    """Clips the mean of all clients to C, and not each client."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:  # noqa: ANN401
        """Clip what was averaged."""
        arrays, metrics = self.strategy.aggregate_train(server_round, list(replies))
        before, moved = self.current_arrays, arrays.to_numpy_ndarrays()
        update = [b - a for a, b in zip(before.to_numpy_ndarrays(), moved, strict=True)]
        length = np.sqrt(sum(float(np.square(each).sum()) for each in update))
        factor = min(1.0, self.clipping_norm / length)
        clipped = [
            Array(a + factor * each)
            for a, each in zip(before.to_numpy_ndarrays(), update, strict=True)
        ]
        record = ArrayRecord(dict(zip(arrays, clipped, strict=True)))
        return self._add_noise_to_aggregated_arrays(record), metrics


class NoisePerClient(DifferentialPrivacyServerSideFixedClipping):  # type: ignore[misc]
    """Gives each client the noise that is for the mean, so that most averages out."""

    def _add_noise_to_aggregated_arrays(self, record: ArrayRecord) -> ArrayRecord:
        clients, deviation = self.num_sampled_clients, self.noise_multiplier
        deviation *= self.clipping_norm / clients / np.sqrt(clients)
        arrays = record.to_numpy_ndarrays()
        add_gaussian_noise_inplace(arrays, deviation)
        return ArrayRecord(
            {k: Array(each) for k, each in zip(record, arrays, strict=True)}
        )


FIXED = DifferentialPrivacyServerSideFixedClipping
# Strategy, what it is told of noise and clients, and how large canaries are.
FAULTS: dict[str, tuple[type, float, float, float]] = {
    "noise halved": (FIXED, 0.5, 1.0, 2.0),
    "noise divided by 3": (FIXED, 1 / 3, 1.0, 2.0),
    "clipped once averaged": (ClippedOnceAveraged, 1.0, 1.0, 5.0),
    "noise per client": (NoisePerClient, 1.0, 1.0, 2.0),
    "twice as many clients stated": (FIXED, 1.0, 2.0, 2.0),
}


def audited(
    seed: int,
    *,
    design: Design,
    kind: type = FIXED,
    noise: float = 1.0,
    clients: float = 1.0,
    norm: float = 2.0,
    examples: int = 1,
    real: int = REAL,
    rounds: int = ROUNDS,
    dimension: int = 4 * CANARIES,
    spread: float = 1.0,
) -> tuple[FlowerAudit, Iterator[int]]:
    """Return an audit, and its rounds as they are gone through."""
    size = design.canaries // rounds + real
    stated = round(clients * size)
    base = FedAvg(fraction_train=0.0, fraction_evaluate=0.0)
    if kind is DifferentialPrivacyServerSideAdaptiveClipping:
        strategy = kind(base, NOISE, stated, initial_clipping_norm=CLIP)
    else:
        strategy = kind(base, NOISE, CLIP, stated)
    model = [np.zeros((dimension // 20, 20), np.float32)]
    audit = FlowerAudit(
        strategy,
        model,
        design=design,
        key=Key.generate(),
        insertion=Replies(norm=norm),
        participation=Participation(every=rounds, cohorts=rounds),
        examples=examples,
    )
    strategy.noise_multiplier *= noise

    def go() -> Iterator[int]:
        rng = np.random.default_rng(seed)
        np.random.seed(seed)  # noqa: NPY002 (what Flower draws its noise from)
        wrapped, arrays = audit.wrap(), ArrayRecord(model)
        for number in range(1, rounds + 1):
            wrapped.configure_train(number, arrays, ConfigRecord(), None)
            others = replies(arrays, rng, real, spread)
            arrays, _ = wrapped.aggregate_train(number, others)
            yield number

    return audit, go()


def replies(
    arrays: ArrayRecord, rng: np.random.Generator, count: int, spread: float
) -> list[Message]:
    """Return what other clients answer: updates of up to twice the clipping norm.

    Without spread all have one and the same, so that none has to be drawn.
    """
    model, found = arrays.to_numpy_ndarrays(), []
    whole = sum(each.size for each in model)
    for size in rng.uniform(0, 2 * CLIP * spread, count) / np.sqrt(whole):
        moved = [Array(each + np.float32(1e-4)) for each in model]
        if spread:
            moved = [
                Array(each + (size * rng.standard_normal(each.shape, np.float32)))
                for each in model
            ]
        named = ArrayRecord(dict(zip(arrays, moved, strict=True)))
        found.append(client_reply(named, {"num-examples": 1}))
    return found


def run(seed: int, **given: Any) -> Result:  # noqa: ANN401
    audit, rounds = audited(seed, **given)
    audit.probe(examples=(1, given.get("examples", 1)), clients=3)
    for _ in rounds:
        pass
    return audit.finish()


def curve_p(result: Result) -> float:
    assert result.training is not None
    assert result.training.accountant is not None
    return result.training.accountant.p_value


def causes(result: Result) -> list[str]:
    return [fault_parts(fault)[3] for fault in result.faults]


def weights(runs: int) -> None:
    design, _ = planned(CANARIES, ROUNDS)
    for examples in (1, 20):
        found = [run(seed, design=design, examples=examples) for seed in range(runs)]
        named = sum(
            any("weighed by their number" in cause for cause in causes(each))
            for each in found
        )
        tell(f"canary clients of {examples} examples", found)
        print(f"  named by the probe in {named} of {runs}")


def honest(runs: int) -> None:
    design, _ = planned(CANARIES, ROUNDS)
    tell("equal weights", [run(seed, design=design) for seed in range(runs)])


def faults(runs: int) -> None:
    design, _ = planned(CANARIES, ROUNDS)
    for name, (kind, noise, clients, norm) in FAULTS.items():
        given = {"kind": kind, "noise": noise, "clients": clients, "norm": norm}
        found = [run(seed, design=design, **given) for seed in range(runs)]
        tell(name, found)
        for cause in sorted({cause for each in found for cause in causes(each)}):
            named = sum(cause in causes(each) for each in found)
            print(f"  named in {named} of {runs}: {cause}")


def adaptive(runs: int) -> None:
    """Print the noise of a round over what is stated, where the norm adapts."""
    design, _ = planned(CANARIES, ROUNDS)
    kind, ratios = DifferentialPrivacyServerSideAdaptiveClipping, []
    for seed in range(runs):
        audit, rounds = audited(seed, design=design, kind=kind)
        strategy = audit._flwr_strategy  # its norm is watched, round by round
        before = strategy.clipping_norm
        for _ in rounds:
            ratios.append(strategy.clipping_norm / before)
            before = strategy.clipping_norm
    print(
        f"norm that noise is scaled by over norm that updates were clipped by: mean "
        f"{np.mean(ratios):.3f}, {np.min(ratios):.3f} to {np.max(ratios):.3f}, "
        f"{len(ratios)} rounds of {runs} runs"
    )
    tell("adaptive", [run(seed, design=design, kind=kind) for seed in range(runs)])


def tell(name: str, found: list[Result]) -> None:
    values = np.array([curve_p(each) for each in found])
    bounds = np.array([each.bound.epsilon_lower for each in found])
    slopes = [each.training.signal.slope for each in found if each.training.signal]
    print(
        f"{name}: refuted in {int((values <= 0.05).sum())} of {len(found)}, p < "
        f"{SMALL} in {int((values < SMALL).sum())}, smallest p {values.min():.2g}, "
        f"largest {values.max():.2g}; bound {bounds.mean():.3f} ± "
        f"{bounds.std(ddof=1) / len(bounds) ** 0.5:.3f}; a canary arrives at "
        f"{np.mean(slopes):.3f} ± {np.std(slopes, ddof=1) / len(slopes) ** 0.5:.3f}; "
        f"verdicts {sorted({str(each.verdict.value) for each in found})}",
        flush=True,
    )


def large() -> None:
    design, plan = planned(100_000, 50)
    audit, rounds = audited(
        1, design=design, real=20, rounds=50, dimension=100_000, spread=0.1
    )
    start = time.process_time()
    for number in rounds:
        print(f"round {number}: {time.process_time() - start:.0f} s", file=sys.stderr)
    middle = time.process_time()
    result = audit.finish()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{design.canaries} canary clients, each in one of 50 rounds: "
        f"{middle - start:.0f} s of CPU, finished in {time.process_time() - middle:.1f}"
        f" s, {memory:.2f} GiB at most; bound {result.bound.epsilon_lower:.3f}, "
        f"p = {curve_p(result):.3g}, {signal_sentence(result.training.signal)}"
    )
    print(plan)


def cost(pairs: int) -> None:
    """CPU time of rounds with canary clients among others, and with others alone."""
    canaries, rounds, dimension = 300, 3, 50_000
    design, _ = planned(canaries, rounds)
    size = canaries // rounds

    def plain(seed: int) -> float:
        strategy = FIXED(
            FedAvg(fraction_train=0.0, fraction_evaluate=0.0), NOISE, CLIP, REAL + size
        )
        rng, start = np.random.default_rng(seed), time.process_time()
        arrays = ArrayRecord([np.zeros((dimension // 20, 20), np.float32)])
        for number in range(1, rounds + 1):
            strategy.configure_train(number, arrays, ConfigRecord(), None)
            everyone = replies(arrays, rng, REAL + size, 0.0)
            arrays, _ = strategy.aggregate_train(number, everyone)
        return time.process_time() - start

    def with_audit(seed: int) -> float:
        _, all_rounds = audited(
            seed, design=design, rounds=rounds, dimension=dimension, spread=0.0
        )
        start = time.process_time()
        for _ in all_rounds:
            pass
        return time.process_time() - start

    plain(0), with_audit(0)
    found = []
    for number in range(pairs):
        found.append(with_audit(number) / plain(number))
        print(f"pair {number}: {found[-1]:.3f}", file=sys.stderr, flush=True)
    middle, low, high = median_ratio(found)
    print(
        f"{size} canary clients among {REAL} others, {dimension} parameters: "
        f"{middle:.3f} [{low:.3f}, {high:.3f}] of the CPU time of {REAL + size} "
        f"others, {pairs} pairs (limit 1.05)"
    )
    sys.exit(low > 1.05)


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, runs in (("weights", 20), ("honest", 100), ("faults", 20)):
        commands.add_parser(name).add_argument("--runs", type=int, default=runs)
    commands.add_parser("adaptive").add_argument("--runs", type=int, default=5)
    commands.add_parser("large")
    commands.add_parser("cost").add_argument("--pairs", type=int, default=20)
    args = vars(parser.parse_args())
    todo = {
        "weights": weights,
        "honest": honest,
        "faults": faults,
        "adaptive": adaptive,
        "large": large,
        "cost": cost,
    }
    todo[args.pop("command")](**args)


if __name__ == "__main__":
    main()
