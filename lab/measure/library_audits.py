"""Audits of functions that are called many times: level, power, nights.

    python lab/measure/library_audits.py exact        # level, summed over outcomes
    python lab/measure/library_audits.py null         # 10,000 audits at the limit
    python lab/measure/library_audits.py lifetimes    # 1,000 of 1,000 nights
    python lab/measure/library_audits.py power        # calls for 90 % power
    python lab/measure/library_audits.py sequential   # calls until refuted

Each appends its rows to lab/results/library_audits.csv, and prints them.
"""

import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from math import e, exp, log, sqrt
from pathlib import Path
from time import process_time
from typing import Any, TypeAlias

import numpy as np
from scipy import optimize, special, stats

from dpaudit import (
    Adjacency,
    ApproxDP,
    GaussianDP,
    Key,
    PureDP,
    ZeroConcentratedDP,
)
from dpaudit.bounds.whole_claim import event_limit
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.event_test import p_value
from dpaudit.testing import Calls, OneValue, Pair, audit_function, audit_sequentially
from dpaudit.testing.betting import Bet
from dpaudit.testing.events import divergence

RESULTS = Path(__file__).parents[1] / "results" / "library_audits.csv"
ALPHA = 1e-3
R = Adjacency.REPLACE_ONE
Function: TypeAlias = Callable[[Any, np.random.Generator], object]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A function, its claim, and calls to begin with when power is measured."""

    function: Function
    claim: Guarantee
    calls: int
    values: tuple[Any, Any] = (0, 1)


def response(epsilon: float) -> Function:
    kept = 1 / (1 + exp(-epsilon))
    return lambda bit, rng: bit if rng.random() < kept else 1 - bit


def opened(share: float) -> Function:
    return lambda value, rng: int(value == 0 and rng.random() < share)


def gaussian(sigma: float) -> Function:
    return lambda value, rng: round((value + rng.normal() * sigma) * 8) / 8


def laplace(scale: float) -> Function:
    return lambda value, rng: round((value + rng.laplace() * scale) * 8) / 8


def told(epsilon: float, delta: float) -> Function:
    plain = response(epsilon)
    return lambda bit, rng: ("told", bit) if rng.random() < delta else plain(bit, rng)


def permute(value: int, rng: np.random.Generator) -> int:
    return int(rng.random() < (0.5 if value == 0 else 0.0677))


def approx(epsilon: float, delta: float) -> ApproxDP:
    return ApproxDP(epsilon=epsilon, delta=delta, adjacency=R)


PURE = PureDP(epsilon=1.0, adjacency=R)
CLASSIC = sqrt(2 * log(1.25e5))  # of the Gaussian mechanism at (1, 1e-5)
FAULTS = {
    "delta .035, claimed .02": Target(
        function=opened(0.035), claim=approx(1.0, 0.02), calls=6000
    ),
    "(1.22, .188)": Target(function=permute, claim=approx(1.22, 0.188), calls=6000),
    "Gaussian, root of its scale": Target(
        function=gaussian(sqrt(CLASSIC)), claim=approx(1.0, 1e-5), calls=100_000
    ),
    "GDP 1, half the noise": Target(
        function=gaussian(0.5), claim=GaussianDP(mu=1.0, adjacency=R), calls=600
    ),
    "GDP 1, noise .8": Target(
        function=gaussian(0.8), claim=GaussianDP(mu=1.0, adjacency=R), calls=3000
    ),
    "zCDP .5, half the noise": Target(
        function=gaussian(0.5),
        claim=ZeroConcentratedDP(rho=0.5, adjacency=R),
        calls=900,
    ),
}
LAPLACE = {
    "Laplace 2x": Target(function=laplace(0.5), claim=PURE, calls=600),
    "Laplace 30 %": Target(function=laplace(0.7), claim=PURE, calls=2500),
    "Laplace 10 %": Target(function=laplace(0.9), claim=PURE, calls=25_000),
}
LIMITS = {
    "pure 1": Target(function=response(1.0), claim=PURE, calls=300),
    "(1, .05)": Target(function=told(1.0, 0.05), claim=approx(1.0, 0.05), calls=300),
    "(0, .3)": Target(function=opened(0.3), claim=approx(0.0, 0.3), calls=300),
    "GDP 1": Target(
        function=gaussian(1.0), claim=GaussianDP(mu=1.0, adjacency=R), calls=300
    ),
}


def main(task: str, *rest: str) -> None:
    """Run a task and append its rows."""
    tasks: dict[str, Callable[..., Iterator[dict[str, object]]]] = {
        "exact": exact,
        "null": null,
        "lifetimes": lifetimes,
        "power": power,
        "sequential": sequential,
    }
    for row in tasks[task](*rest):
        found = {"task": task, **row, "day": datetime.now(tz=UTC).date().isoformat()}
        print("  ".join(f"{k} {v}" for k, v in found.items()), flush=True)
        _append(found)


def _append(row: dict[str, object]) -> None:
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(["task", "what", "figure", "low", "high", "note", "day"])
        names = ("task", "what", "figure", "low", "high", "note", "day")
        writer.writerow([row.get(name, "") for name in names])


def exact() -> Iterator[dict[str, object]]:
    """Yield worst levels on the boundary of claims, summed over all outcomes."""
    for (epsilon, delta), calls, share, at in product(
        ((0.0, 0.2), (0.5, 0.05), (1.0, 0.02), (2.0, 0.0), (1.0, 0.3)),
        (12, 24, 36),
        (1.0, 0.5),
        (0.02, 0.1, 0.3),
    ):
        limit = event_limit(approx(epsilon, delta), one_sided=share < 1)
        line = limit.tangent(at * share)
        p_values = np.ones((calls + 1, calls + 1))
        for v, w in product(range(calls + 1), repeat=2):
            if v + w <= calls:
                p_values[v, w] = p_value(v, w, calls=calls, limit=limit, line=line)
        levels = {
            alpha: _worst(limit, calls, p_values <= alpha) for alpha in (0.05, 1e-3)
        }
        for alpha, level in levels.items():
            yield {
                "what": f"({epsilon}, {delta}), n {calls}, share {share}, at {at}, "
                f"alpha {alpha}",
                "figure": f"{level:.5f}",
                "note": "above alpha" if level > alpha * (1 + 1e-9) else "",
            }


def _worst(limit: Any, calls: int, rejected: np.ndarray) -> float:  # noqa: ANN401
    v, w = np.nonzero(rejected)
    if not len(v):
        return 0.0
    bs = np.concatenate(
        [np.linspace(0, limit.last, 100), np.geomspace(1e-5, limit.last, 60)]
    )
    ways = special.gammaln(calls + 1) - special.gammaln(v + 1)
    ways -= special.gammaln(w + 1) + special.gammaln(calls - v - w + 1)
    a = np.minimum(limit(bs), 1 - bs)[:, None]
    rest = np.maximum(1 - a - bs[:, None], 0)
    logs = special.xlogy(v, a) + special.xlogy(w, bs[:, None])
    logs += special.xlogy(calls - v - w, rest) + ways
    return float(np.exp(logs).sum(axis=1).max())


def null(repeats: str = "10000") -> Iterator[dict[str, object]]:
    """Yield rates of refutations of mechanisms at the limit of their claims."""
    n, alpha = int(repeats) // len(LIMITS), 0.05
    for name, target in LIMITS.items():
        for how, run in (("fixed", _fixed), ("sequential", _sequential)):
            what = f"{name}, {how}, {target.calls} calls, {n} audits, alpha {alpha}"
            if what in _done("null"):
                continue
            start = process_time()
            refuted = sum(run(target, i, alpha=alpha)[0] for i in range(n))
            low, high = _limits(refuted, n, rows=2 * len(LIMITS))
            yield {
                "what": what,
                "figure": f"{refuted / n:.4f}",
                "low": f"{low:.4f}",
                "high": f"{high:.4f}",
                "note": f"{'FAILS' if low > alpha else 'holds'}; "
                f"{process_time() - start:.0f} s",
            }


def _done(task: str) -> set[str]:
    """Return what was measured before, so that a long study goes on."""
    if not RESULTS.exists():
        return set()
    with RESULTS.open(newline="") as file:
        return {row["what"] for row in csv.DictReader(file) if row["task"] == task}


def _limits(count: int, n: int, *, rows: int) -> tuple[float, float]:
    """Return exact limits at 99.9 %, Bonferroni over rows."""
    tail = 1e-3 / rows
    low = stats.beta.ppf(tail, count, n - count + 1) if count else 0.0
    high = stats.beta.ppf(1 - tail, count + 1, n - count) if count < n else 1.0
    return float(low), float(high)


def _fixed(target: Target, number: int, *, alpha: float = ALPHA) -> tuple[bool, int]:
    result = audit_function(
        target.function,
        neighbours=OneValue(x=target.values[0], y=target.values[1]),
        claim=target.claim,
        alpha=alpha,
        budget=Calls(calls=target.calls),
        key=_key(target, number),
    )
    learned = result.audit.design.setting.notes["calls_learned_from"]
    return result.refuted, result.calls + int(learned)


def _sequential(
    target: Target, number: int, *, alpha: float = ALPHA
) -> tuple[bool, int]:
    result = audit_sequentially(
        target.function,
        pairs=[Pair("the pair", OneValue(x=target.values[0], y=target.values[1]))],
        claim=target.claim,
        alpha=alpha,
        budget=Calls(calls=target.calls),
        key=_key(target, number),
    )
    return result.refuted, result.calls


def _key(target: Target, number: int) -> Key:
    seed = f"{number} {target.calls} {target.claim}".encode()
    return Key(seed.ljust(32, b".")[:32], reusable=True)


def lifetimes(count: str = "1000", nights: str = "1000") -> Iterator[dict[str, object]]:
    """Yield false positives of whole lifetimes: true claims at their limits.

    Events are known; stakes follow what was seen of the last ten nights. Every second
    lifetime is reset after 300 and 600 nights, as if after fixes.
    """
    lives, last, per_night, alpha = int(count), int(nights), 1000, 0.01
    rng = np.random.default_rng(20)
    for name, a, b, claim in (
        ("pure 1", e / (1 + e), 1 / (1 + e), PURE),
        ("rare event, pure 1", 0.2718, 0.1, PURE),
        ("(1, .02)", 0.02 + e * 0.05, 0.05, approx(1.0, 0.02)),
        ("GDP 1", float(special.ndtr(special.ndtri(0.1) + 1)), 0.1, GaussianDP(mu=1.0)),
    ):
        _, line = divergence(a * 1.01, b, claim, one_sided=False)
        correct, wrong, seen = np.zeros(lives), np.zeros(lives), 0.0
        wealth, epoch = np.zeros(lives), np.ones(lives)
        refuted = np.zeros(lives, bool)
        for night in range(last):
            if night in (300, 600):
                wealth[::2], epoch[::2] = 0.0, epoch[::2] + 1
            v = rng.binomial(per_night, a, lives)
            w = rng.binomial(per_night - v, min(1.0, b / (1 - a)))
            if seen:
                bets = [
                    Bet.on(line, correct=p / (seen + 1), wrong=(q + 0.5) / (seen + 1))
                    for p, q in zip(correct, wrong, strict=True)
                ]
                wealth += [
                    bet.log_factor(correct=i, wrong=j, silent=per_night - i - j)
                    for bet, i, j in zip(bets, v, w, strict=True)
                ]
            level = alpha * 6 / (np.pi * epoch) ** 2
            refuted |= wealth >= -np.log(level)
            correct, wrong = 0.9 * correct + v, 0.9 * wrong + w
            seen = 0.9 * seen + per_night
        low, high = _limits(int(refuted.sum()), lives, rows=4)
        yield {
            "what": f"{name}, {lives} lifetimes of {last} nights, alpha {alpha}",
            "figure": f"{refuted.mean():.4f}",
            "low": f"{low:.4f}",
            "high": f"{high:.4f}",
            "note": "FAILS" if low > alpha else "holds",
        }


def power(repeats: str = "40", *only: str) -> Iterator[dict[str, object]]:
    """Yield calls, learning included, for 90 % power, next to the best known event."""
    for name, target in {**FAULTS, **LAPLACE}.items():
        if only and name not in only:
            continue
        total, share = _ladder(target, int(repeats))
        best = _optimum(name)
        yield {
            "what": f"{name}: calls for 90 % power",
            "figure": f"{total:.0f}",
            "low": f"{share:.3f}",
            "high": "" if best is None else f"{best:.0f}",
            "note": "low: power there; high: calls of the best known event alone"
            + ("" if best is None else f"; ratio {total / best:.2f}"),
        }


def _ladder(target: Target, repeats: int) -> tuple[float, float]:
    """Return the total calls at which 90 % are refuted, by steps of a fifth."""
    calls, step = target.calls, 1.2
    rate = _rate(target, calls, repeats)
    if rate[1] >= 0.9:
        while rate[1] >= 0.9:
            last, calls = rate, round(calls / step)
            rate = _rate(target, calls, repeats)
        return last
    while rate[1] < 0.9:
        calls = round(calls * step)
        rate = _rate(target, calls, repeats)
    return rate


def _rate(target: Target, calls: int, repeats: int) -> tuple[float, float]:
    sized = Target(
        function=target.function, claim=target.claim, calls=calls, values=target.values
    )
    found = [_fixed(sized, i) for i in range(repeats)]
    return float(found[0][1]), float(np.mean([refuted for refuted, _ in found]))


def _optimum(name: str) -> float | None:
    """Return the calls of the best event if all distributions are known."""
    tails = {
        "Gaussian, root of its scale": (stats.norm.sf, sqrt(CLASSIC)),
        "GDP 1, half the noise": (stats.norm.sf, 0.5),
        "GDP 1, noise .8": (stats.norm.sf, 0.8),
        "zCDP .5, half the noise": (stats.norm.sf, 0.5),
        "Laplace 2x": (stats.laplace.sf, 0.5),
        "Laplace 30 %": (stats.laplace.sf, 0.7),
        "Laplace 10 %": (stats.laplace.sf, 0.9),
    }
    if name not in tails:
        shares = {
            "delta .035, claimed .02": (0.0175, 0.0),
            "(1.22, .188)": (0.25, 0.0677 / 2),
        }
        return _needed(FAULTS[name].claim, *shares[name], one_sided=True)
    tail, scale = tails[name]
    claim = {**FAULTS, **LAPLACE}[name].claim

    def needed(t: float) -> float:
        a, b = float(tail((t - 1) / scale)), float(tail(t / scale))
        return _needed(claim, a, b, one_sided=False)

    grid = np.linspace(0.5, 12, 200)
    best = float(grid[int(np.argmin([needed(t) for t in grid]))])
    found = optimize.minimize_scalar(
        needed, bounds=(max(0.5, best - 0.2), best + 0.2), method="bounded"
    )
    return float(min(needed(best), found.fun))


def _needed(claim: Guarantee, a: float, b: float, *, one_sided: bool) -> float:
    """Return calls at which an event of these frequencies refutes with power 0.9.

    By the normal approximation, with the variances on both sides.
    """
    limit = event_limit(claim, one_sided=one_sided)
    line = limit.tangent(b)
    s, c = float(line.slope), float(line.intercept)
    gap = a - s * b - c
    if gap <= 0:
        return float("inf")

    def spread(a: float) -> float:
        return sqrt(max(a + s * s * b - (a - s * b) ** 2, 0.0))

    reach = stats.norm.isf(ALPHA) * spread(s * b + c) + stats.norm.isf(0.1) * spread(a)
    return float((reach / gap) ** 2)


def sequential(repeats: str = "200") -> Iterator[dict[str, object]]:
    """Yield calls until a fault is refuted."""
    for name, target in {**LAPLACE, **FAULTS}.items():
        if name.startswith("Gaussian"):
            continue
        long = Target(
            function=target.function,
            claim=target.claim,
            calls=300_000,
            values=target.values,
        )
        start = process_time()
        found = [_sequential(long, i) for i in range(int(repeats))]
        calls = np.array([n if refuted else np.inf for refuted, n in found])
        yield {
            "what": f"{name}: calls until refuted, {repeats} audits",
            "figure": f"{np.median(calls):.0f}",
            "low": f"{np.quantile(calls, 0.1):.0f}",
            "high": f"{np.quantile(calls, 0.9):.0f}",
            "note": f"refuted {np.mean(np.isfinite(calls)):.3f}; "
            f"{(process_time() - start) / int(repeats):.2f} s each",
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
