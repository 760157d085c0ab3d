"""Explanations against audits: do the levels add up, and does the advice hold?

    python lab/measure/waterfall.py --store waterfall.sqlite --workers 2   # or resume
    python lab/measure/waterfall.py --store waterfall.sqlite --only levels

``levels``: audits of simulated training (one run, rounds), of real Opacus training, and
of scores (one run, ranking, bets). For each audit what its explanation leaves
unexplained, over the distance from the claim to the bound; and, over all audits of a
setting, how far the accuracy that was seen lies from the one that was computed (the
step "guessing", which is luck for a guesser that is the best).

``advice``: an audit is explained, and each piece of advice that names a bound is
followed with fresh coins and fresh noise. It holds if the mean is within 5 % of what
was expected, plus two standard errors of the mean.

delta = 1e-5 and alpha = 0.05 throughout.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sweeping import filled

from dpaudit import (
    AdaptiveBets,
    AdaptiveMostLikely,
    ApproxDP,
    Design,
    Key,
    MostLikely,
    OneRun,
    PureDP,
    Ranking,
    ThreatModel,
    audit_adaptive,
    audit_one_run,
)
from dpaudit.bounds import Counts
from dpaudit.bounds.independent_runs import IndependentRunsBound
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.dpsgd.planning.plan import rehearse
from dpaudit.explanation import Explanation, explain
from dpaudit.explanation.accuracy import accuracy_of
from dpaudit.explanation.ladder import law_of, modelled
from dpaudit.explanation.model import Model
from dpaudit.game.result import Result
from dpaudit.game.setting import Setting as DesignSetting
from dpaudit.mechanisms.local import LocalLaplace
from dpaudit.testing import fixed_key
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

DELTA, ALPHA = 1e-5, 0.05
TRAININGS = {
    "100 steps, q = 0.1, claim 2": (
        TrainingSetup(steps=100, rate=0.1, noise=2.42),
        2.0,
    ),
    "1 step, q = 1, claim 2": (TrainingSetup(steps=1, rate=1.0, noise=2.0), 2.0),
    "100 steps, q = 0.1, claim 8": (
        TrainingSetup(steps=100, rate=0.1, noise=0.93),
        8.0,
    ),
}
# training, coordinates, canaries per coordinate, in rounds
RUNGS = (
    ("100 steps, q = 0.1, claim 2", 1000, 1, False),
    ("100 steps, q = 0.1, claim 2", 1000, 4, False),
    ("100 steps, q = 0.1, claim 2", 1000, 8, True),
    ("1 step, q = 1, claim 2", 1000, 1, False),
    ("1 step, q = 1, claim 2", 1000, 6, True),
    ("100 steps, q = 0.1, claim 8", 1000, 1, False),
    ("100 steps, q = 0.1, claim 8", 1000, 4, True),
)
OTHERS = (
    "Laplace, one run",
    "Laplace, ranking",
    "Laplace, bets",
    "Opacus, digits",
)
ADVISED = (
    ("100 steps, q = 0.1, claim 2", 1000, 1, 110),
    ("100 steps, q = 0.1, claim 2", 1000, 1, 600),
    ("100 steps, q = 0.1, claim 2", 1000, 4, 188),
    ("1 step, q = 1, claim 2", 1000, 4, 400),
)
REAL = 20  # audits of real training


def claimed(name: str) -> ApproxDP:
    return ApproxDP(epsilon=TRAININGS[name][1], delta=DELTA)


def one_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Make one audit, and say what it showed and what stays unexplained."""
    kind = str(setting["kind"])
    if kind == "two runs":
        return {"bound": _two_runs(setting, rng)}
    if kind == "Opacus, digits":
        result = _opacus(int(rng.integers(2**31)))
    elif kind.startswith("Laplace"):
        result = _laplace(setting, rng)
    else:
        result = _rehearsed(setting, rng)
    if "advice" in setting:
        return {"bound": result.bound.epsilon_lower}
    seen = accuracy_of(result, result.bound.epsilon_lower)
    return {
        "bound": result.bound.epsilon_lower,
        "typical": seen.typical,
        "accuracy": seen.accuracy.value,
        "claim": result.claim_test.claim.epsilon_at(result.design.bound_delta),
    }


def _computed(result: Result) -> float:
    """Return the accuracy that was to be expected, as an epsilon."""
    model, at = Model.of(result), result.bound.epsilon_lower
    assert model is not None
    claim = result.design.claim
    levels = modelled(result, claim, model, law_of(model), accuracy_of(result, at), at)
    return next(level.epsilon for level in levels.levels if level.name == "elements")


def _rehearsed(setting: Setting, rng: np.random.Generator) -> Result:
    training = TRAININGS[str(setting["training"])][0]
    return rehearse(
        Design.from_json(str(setting["design"])),
        training,
        per_coordinate=int(setting["per_coordinate"] or 1),
        rng=rng,
        key=fixed_key(rng.bytes(32)),
    )


def _two_runs(setting: Setting, rng: np.random.Generator) -> float:
    readings = [_rehearsed(setting, rng).reading for _ in range(2)]
    counts = [reading for reading in readings if isinstance(reading, Counts)]
    bound = IndependentRunsBound().epsilon_lower(counts, delta=DELTA, alpha=ALPHA)
    return bound.epsilon_lower


def _laplace(setting: Setting, rng: np.random.Generator) -> Result:
    mechanism = LocalLaplace(epsilon=2.0)
    n = int(setting.get("canaries") or 2000)
    rules: Any = {
        "Laplace, one run": OneRun(guesses=n // 2),
        "Laplace, ranking": Ranking(guesses=n),
        "Laplace, bets": AdaptiveBets(),
    }[str(setting["kind"])]
    # More than the truth, so that luck refutes it hardly ever.
    claim = PureDP(epsilon=3.0, adjacency=mechanism.pairs.adjacency)
    design = Design(canaries=n, rules=rules, claim=claim)
    key = fixed_key(rng.bytes(32))
    if isinstance(rules, AdaptiveBets):
        adaptive = AdaptiveMostLikely(mechanism=mechanism, threshold=0.0, rules=rules)
        return audit_adaptive(
            mechanism, adaptive, pairs=mechanism.pairs, design=design, rng=rng, key=key
        )
    guesser = MostLikely(mechanism=mechanism, guesses=design.guesses)
    return audit_one_run(
        mechanism, guesser, pairs=mechanism.pairs, design=design, rng=rng, key=key
    )


def _opacus(seed: int) -> Result:
    import tasks  # noqa: PLC0415 (torch; simulated audits do without)
    import torch  # noqa: PLC0415

    from dpaudit.training.opacus import OpacusAudit, plan_opacus  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    task = tasks.TASKS["digits"]
    run = tasks.private(task)
    steps = task.epochs * task.batches
    plan = plan_opacus(
        run.optimizer, run.loader, steps=steps, delta=DELTA, coordinates=2000
    )
    audit = OpacusAudit(
        run.optimizer,
        run.loader,
        design=plan.design(),
        key=Key.generate(),
        accountant=run.engine.accountant,
    )
    tasks.train(run, run.loader, task.epochs)
    return audit.finish()


def level_settings() -> list[Setting]:
    found: list[Setting] = []
    for name, d, s, in_rounds in RUNGS:
        plan = plan_audit(
            TRAININGS[name][0],
            claim=claimed(name),
            coordinates=d,
            per_coordinate=s,
            in_rounds=in_rounds,
            purpose="bound",
        )
        found.append(
            {
                "kind": f"{s} per coordinate, {plan.method}",
                "training": name,
                "design": plan.design().to_json(),
                "per_coordinate": s,
            }
        )
    return found + [{"kind": kind} for kind in OTHERS]


def audited(name: str, d: int, s: int, guesses: int) -> Design:
    training = TRAININGS[name][0]
    return Design(
        canaries=d * s,
        rules=OneRun(guesses=guesses),
        claim=claimed(name),
        threat_model=ThreatModel.ALL_ITERATES,
        setting=DesignSetting(
            steps=training.steps,
            rate=training.rate,
            noise=training.noise,
            per_coordinate=s,
        ),
    )


def followed(name: str, d: int, s: int, guesses: int) -> list[tuple[Setting, float]]:
    """Explain one audit, and return each piece of advice as audits to be made."""
    training, design = TRAININGS[name][0], audited(name, d, s, guesses)
    result = rehearse(
        design,
        training,
        per_coordinate=s,
        rng=np.random.default_rng(7),
        key=fixed_key(bytes(range(32))),
    )
    return [
        (_as_setting(name, d, s, design, step.name, step.advice.text), expected)
        for step in explain(result).steps
        if step.advice and (expected := step.advice.expected) is not None
    ]


def _as_setting(
    name: str, d: int, s: int, design: Design, step: str, text: str
) -> Setting:
    """Return the audits that a piece of advice asks for."""
    kind = "two runs" if step == "confidence" else "advised"
    training, claim = TRAININGS[name][0], claimed(name)
    if step == "elements":
        design = audited(
            name, d, s, int(text.split("surest ")[1].split(" ", maxsplit=1)[0])
        )
    elif step == "interference":
        plan = plan_audit(
            training, claim=claim, coordinates=d, per_coordinate=s, purpose="bound"
        )
        design = plan.design()
    elif step == "statistics":
        if "times" in text:
            d *= 4
        else:
            s = int(text.split("use ")[1].split(" ", maxsplit=1)[0])
        rounds = "in rounds" in text
        plan = plan_audit(
            training,
            claim=claim,
            coordinates=d,
            per_coordinate=s,
            in_rounds=rounds,
            purpose="bound",
        )
        design = plan.design()
    return {
        "kind": kind,
        "training": name,
        "design": design.to_json(),
        "per_coordinate": s,
        "advice": text,
    }


def scores_advice(runs: int) -> list[tuple[Setting, float]]:
    """Explain audits of scores, and return what four times the canaries should show."""
    rng, found = np.random.default_rng(8), []
    for _ in range(runs):
        result = _laplace({"kind": "Laplace, one run"}, rng)
        explained: Explanation = explain(result)
        advice = explained.steps[-1].advice
        assert advice is not None
        assert advice.expected is not None
        found.append(advice.expected)
    setting: Setting = {
        "kind": "Laplace, one run",
        "canaries": 8000,
        "advice": f"use 4 times as many canaries and guesses (mean of {runs} audits')",
    }
    return [(setting, float(np.mean(found)))]


def planned(settings: list[Setting], trials: int) -> Sweep:
    return Sweep(
        name="waterfall",
        revision=1,
        function=one_trial,
        settings=settings,
        trials=trials,
    )


def rows_of(store: Store, setting: Setting) -> list[dict[str, Any]]:
    return list(store.outcomes(planned([setting], 0).cell(setting)))


def show_levels(store: Store, settings: list[Setting]) -> None:
    print(
        "| audit | audits | distance | not explained, mean of sizes | largest | "
        "guessing takes on average |\n|---|---|---|---|---|---|"
    )
    for setting in settings:
        rows = rows_of(store, setting)
        bound, typical, accuracy, claim = (
            np.array([row[name] for row in rows], float)
            for name in ("bound", "typical", "accuracy", "claim")
        )
        distance = claim.mean() - bound.mean()
        share = np.abs(bound - typical) / distance
        print(
            f"| {setting['kind']}; {setting.get('training', '')} | {len(rows)} | "
            f"{distance:.3f} | {share.mean():.1%} | {share.max():.1%} | "
            f"{_guessing(setting, accuracy)} |"
        )


def _guessing(setting: Setting, accuracy: np.ndarray) -> str:
    """Compare the accuracy seen, on average, with the one computed."""
    if "design" not in setting or "exact" not in str(setting["kind"]):
        return ""
    first = _rehearsed(setting, np.random.default_rng(1))
    computed = _computed(first)
    mean, error = accuracy.mean(), accuracy.std(ddof=1) / len(accuracy) ** 0.5
    level = np.log(mean / (1 - mean))
    slope = error / (mean * (1 - mean))
    return f"{computed - level:+.3f} ± {slope:.3f}"


def show_advice(store: Store, advised: list[tuple[Setting, float]]) -> None:
    print("\n| advice | expected | followed | off | |\n|---|---|---|---|---|")
    for setting, expected in advised:
        bounds = np.array([row["bound"] for row in rows_of(store, setting)])
        mean, error = bounds.mean(), bounds.std(ddof=1) / len(bounds) ** 0.5
        off = expected / mean - 1
        holds = abs(expected - mean) <= 0.05 * mean + 2 * error
        print(
            f"| {setting.get('training', 'Laplace')}: {setting['advice']} | "
            f"{expected:.3f} | {mean:.3f} ± {error:.3f} ({len(bounds)}) | {off:+.1%} | "
            f"{'holds' if holds else 'FAILS'} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--store", type=Path, default=Path("waterfall.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", choices=("levels", "advice"))
    args = parser.parse_args()
    levels = level_settings() if args.only != "advice" else []
    advised: list[tuple[Setting, float]] = []
    if args.only != "levels":
        for case in ADVISED:
            advised += followed(*case)
        advised += scores_advice(40)
    real = [setting for setting in levels if setting["kind"] == "Opacus, digits"]
    many = [setting for setting in levels if setting["kind"] != "Opacus, digits"]
    many += [setting for setting, _ in advised]
    for settings, trials in ((many, args.runs), (real, min(REAL, args.runs))):
        if not settings:
            continue
        sweep = planned(settings, trials)
        with filled(sweep, args.store, workers=args.workers, doing="audits"):
            pass
    with Store(args.store) as store:
        show_levels(store, levels)
        show_advice(store, advised)


if __name__ == "__main__":
    main()
