"""Correlated noise and turns: the level of honest audits, and a real BandMF run.

python lab/measure/correlated.py level [--audits 10000] [--only ROW]
                        honest loops with independent, banded and Toeplitz noise, at the
                        boundary of the claim: how often each is refuted
python lab/measure/correlated.py bandmf [--runs 100] [--store FILE]
                        BandMF in JAX Privacy with 10^5 canaries: mean bound by pattern,
                        beside the plan and beside steps read as if they were
                        independent; and noise divided by 2

The second keeps every run in a file of lines and goes on where it stopped.
"""

import argparse
import tempfile
import time
import warnings
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from sweeping import add_line, lines

from dpaudit import ApproxDP, Design, GaussianDP, Key, OneRun
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.planning import Plan, TrainingSetup, plan_audit
from dpaudit.dpsgd.strategy import Strategy, Toeplitz
from dpaudit.game.setting import Setting
from dpaudit.stats.binomial import rate_limits
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.audit import TrainingAudit

DELTA, ALPHA = 1e-5, 0.05
STEPS, CANARIES = 16, 400
SQUARE_ROOT = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, STEPS))])
LOOPS: dict[str, tuple[Strategy | None, Participation, float]] = {
    "independent, every step": (None, Participation(), 1.0),
    "independent, once of 16": (None, Participation(every=16, cohorts=16), 1.0),
    "banded (4), every 4th": (
        Toeplitz(coefficients=tuple(SQUARE_ROOT[:4].tolist()), steps=STEPS),
        Participation(every=4, cohorts=4),
        1.0,
    ),
    "banded (4), every 4th, sampled at 0.5": (
        Toeplitz(coefficients=tuple(SQUARE_ROOT[:4].tolist()), steps=STEPS),
        Participation(every=4, cohorts=4),
        0.5,
    ),
    "Toeplitz (16), every 4th": (
        Toeplitz(coefficients=tuple(SQUARE_ROOT.tolist()), steps=STEPS),
        Participation(every=4),
        1.0,
    ),
}


def level(audits: int, only: str | None = None) -> None:
    """Print how often honest loops are refuted, at the boundary of their claim."""
    bonferroni = 0.001 / len(LOOPS)
    for name, (strategy, participation, rate) in LOOPS.items():
        if only not in (None, name):
            continue
        began, refuted = time.monotonic(), 0
        rng = np.random.default_rng(len(name))
        training = TrainingSetup(
            steps=STEPS,
            rate=rate,
            noise=1.0,
            participation=participation,
            strategy=strategy,
        )
        plain = training.sufficient()
        # Epsilon about 1 at delta: the loop just keeps it, by the largest signal.
        mu = 0.27
        noise = mu_noise(training, plain, mu)
        claim = GaussianDP(mu=mu)
        design = Design(
            canaries=CANARIES,
            rules=OneRun(guesses=60),
            claim=ApproxDP(epsilon=claim.epsilon_at(DELTA), delta=DELTA),
            alpha=ALPHA,
        )
        inverse = np.eye(STEPS) if strategy is None else np.linalg.inv(rows(strategy))
        for _ in range(audits):
            audit = SumsAudit(
                design=design,
                key=Key(rng.bytes(32)),
                dimension=CANARIES,
                sample_rate=rate,
                participation=participation,
                strategy=strategy,
            )
            added = noise * (inverse @ rng.normal(size=(STEPS, CANARIES)))
            for step in added:
                audit.observe(audit.contributions() + step)
            refuted += audit.finish(claim=claim).refuted
        low, high = rate_limits(refuted, audits, alpha=2 * bonferroni)
        print(
            f"{name}: refuted {refuted} of {audits} ({refuted / audits:.4f}, limits "
            f"{low:.4f} to {high:.4f}); alpha {ALPHA}: "
            f"{'FAILS' if low > ALPHA else 'holds'} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )


def mu_noise(training: TrainingSetup, plain: TrainingSetup, mu: float) -> float:
    """Return the noise at which the largest signal is that of a Gaussian of ``mu``."""
    if plain.rate == 1:
        return 1 / (mu * plain.noise)
    # Sampled turns show less than all turns joined: that is the boundary of the claim
    # without amplification, and a smaller noise would be nearer to the true one.
    return float(training.signals().max()) / mu


def rows(strategy: Strategy) -> Any:  # noqa: ANN401 (an array)
    found = np.zeros((STEPS, STEPS))
    for step in range(STEPS):
        column = strategy.column(step)
        found[step : step + len(column), step] = column
    return found


# A real BandMF run.

ROUNDS, BANDS, WIDTH, RECORDS = 64, 8, 1500, 64
PATTERNS = {
    "cohort 0 (whole sensitivity)": Participation(every=BANDS),
    "all 8 cohorts": Participation(every=BANDS, cohorts=BANDS),
    "cohort 7": Participation(every=BANDS, first=BANDS - 1),
    "once": Participation(every=ROUNDS),
}


def bandmf(runs: int, store: Path) -> None:
    """Print mean bounds of BandMF runs by pattern, and what halves the noise."""
    import jax  # noqa: PLC0415 (only here)

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as compiled:
        # Every run wraps the privatizer anew; what is compiled is the same.
        jax.config.update("jax_compilation_cache_dir", compiled)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        _bandmf(runs, store)


def _bandmf(runs: int, store: Path) -> None:
    made = _BandMF()
    whole, *others = PATTERNS
    fewer = max(20, 3 * runs // 5)
    tasks = [(whole, 2.0, seed) for seed in range(20)]
    tasks += [(whole, 1.0, seed) for seed in range(fewer)]
    tasks += [(name, 1.0, seed) for seed in range(fewer) for name in others]
    tasks += [(whole, 1.0, seed) for seed in range(fewer, runs)]
    done: dict[str, list[float]] = {}
    for row in lines(store):
        done |= row
    for task in tasks:
        if str(task) not in done:
            found = made.audited(*task)
            done[str(task)] = found
            add_line(store, {str(task): found})
    for name in PATTERNS:
        for divide_by in (1.0, 2.0):
            mine = [done[str(t)] for t in tasks if t[:2] == (name, divide_by)]
            if not mine:
                continue
            bound, independent, refuted, beside, measured, seconds = np.array(mine).T
            plan = made.plans[name].expected.mean
            n = len(mine)
            print(
                f"{name}, noise / {divide_by:g}: mean bound {bound.mean():.3f} ± "
                f"{bound.std(ddof=1) / sqrt(n):.3f} (plan {plan:.3f}), as independent "
                f"steps {independent.mean():.3f} ± "
                f"{independent.std(ddof=1) / sqrt(n):.3f}; refuted {refuted.sum():.0f} "
                f"and {beside.sum():.0f} of {n}; noise measured {measured.mean():.4f} "
                f"of that stated; {seconds.mean():.1f} s a run"
            )


class _BandMF:
    """Compiled once, run with many seeds."""

    def __init__(self) -> None:
        import optax  # noqa: PLC0415
        from jax_privacy.experimental.execution_plan import (  # noqa: PLC0415
            BandMFExecutionPlanConfig,
        )
        from sklearn.datasets import load_digits  # noqa: PLC0415

        from dpaudit.training.jax_privacy.setup import (  # noqa: PLC0415
            noise_of,
            strategy_of,
        )

        pixels, labels = load_digits(return_X_y=True)
        self.data = np.float32(pixels[:RECORDS] / 16), labels[:RECORDS]
        self.config = BandMFExecutionPlanConfig.default(
            num_bands=BANDS, iterations=ROUNDS, epsilon=2.0, delta=DELTA, noise_seed=0
        )
        self.noise, self.strategy = noise_of(self.config), strategy_of(self.config)
        self.optimizer = optax.sgd(0.01)
        self.plans: dict[str, Plan] = {}
        for name, participation in PATTERNS.items():
            training = TrainingSetup(
                steps=ROUNDS,
                noise=self.noise,
                participation=participation,
                strategy=self.strategy,
            )
            self.plans[name] = plan_audit(
                training,
                claim=ApproxDP(epsilon=2.0, delta=DELTA),
                coordinates=100_000,
                guarantee=GaussianDP(mu=1 / training.sufficient().noise),
                in_rounds=False,
                purpose="bound",
                per_coordinate=1,
            )

    def audited(self, name: str, divide_by: float, seed: int) -> list[float]:
        """Return bound, the same as if independent, both verdicts, noise, seconds."""
        import jax  # noqa: PLC0415
        import jax.numpy as jnp  # noqa: PLC0415
        import optax  # noqa: PLC0415
        from jax_privacy import noise_addition  # noqa: PLC0415
        from jax_privacy.matrix_factorization import toeplitz  # noqa: PLC0415

        from dpaudit.training.jax_privacy import JaxAudit  # noqa: PLC0415

        began = time.process_time()
        rng = np.random.default_rng([seed, len(name)])
        params: Any = {
            "in": jnp.asarray(rng.normal(size=(64, WIDTH)) / 8, jnp.float32),
            "out": jnp.asarray(rng.normal(size=(WIDTH, 10)) / 40, jnp.float32),
        }
        plan = self.config.plan
        grad_fn = plan.clipped_grad(_loss, batch_argnums=(1, 2))
        key, participation = Key(rng.bytes(32)), PATTERNS[name]
        design = self.plans[name].design()
        audit = JaxAudit.of_plan(
            self.config,
            params,
            grad_fn,
            design=design,
            key=key,
            participation=participation,
        )
        beside = TrainingAudit(
            design=design,
            key=key,
            sample_rate=1.0,
            observed_setting=Setting(notes={"reading": "as if independent"}),
            knows_real_sums=True,
            participation=participation,
        )
        privatizer = audit.wrap(
            noise_addition.matrix_factorization_privatizer(
                toeplitz.inverse_as_streaming_matrix(self.config.strategy),
                stddev=float(self.noise * grad_fn.sensitivity() / divide_by),
                prng_key=int(rng.integers(2**31)),
            )
        )

        @jax.jit
        def step(params: Any, state: Any, batch: Any) -> Any:  # noqa: ANN401 (jax)
            noisy, state = privatizer.update(grad_fn(params, *batch), state)
            updates, _ = self.optimizer.update(noisy, self.optimizer.init(params))
            return optax.apply_updates(params, updates), state

        state = privatizer.init(params)
        size = RECORDS // BANDS
        for number in range(ROUNDS):
            start = number % BANDS * size
            batch = tuple(part[start : start + size] for part in self.data)
            params, state = step(params, state, batch)
            joined = beside.contributions()
            sums = np.asarray(state.seen - state.real)
            beside.observe(sums / grad_fn.sensitivity(), joined)
            state = audit.observe(state)
        result = audit.finish()
        other = beside.finish(claim=result.claim_test.claim)
        (noise,) = (
            finding
            for check in result.training.coverage.checks
            for finding in check.findings
            if finding.code == "noise.measured"
        )
        measured = float(noise.numbers["ratio"])
        return [
            result.bound.epsilon_lower,
            other.bound.epsilon_lower,
            float(result.claim_test.refuted),
            float(other.claim_test.refuted),
            measured,
            time.process_time() - began,
        ]


def _loss(params: Any, pixels: Any, labels: Any) -> Any:  # noqa: ANN401 (jax)
    import jax  # noqa: PLC0415
    import optax  # noqa: PLC0415

    scores = jax.nn.relu(pixels @ params["in"]) @ params["out"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["level", "bandmf"])
    parser.add_argument("--audits", type=int, default=10_000)
    parser.add_argument("--only", choices=LOOPS, help="one row of the level")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--store", type=Path, default=Path("bandmf.jsonl"))
    arguments = parser.parse_args()
    if arguments.what == "level":
        level(arguments.audits, arguments.only)
    else:
        bandmf(arguments.runs, arguments.store)


if __name__ == "__main__":
    main()
