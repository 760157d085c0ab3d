"""What small audited training runs, or probes of a corpus, give in one checkout.

    python lab/measure/agreement_runs.py CHECKOUT KIND OUT

Used by ``agreement.py``. Imports the package, the helpers of the tests, the examples
and the corpora from the checkout that is named, and writes the numbers, the labels and
the text of each case to OUT, a JSON file, as cases end: those in it are not run again.
"""

import argparse
import json
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

FOLDERS = {  # of a checkout, where the helpers of each kind are
    "opacus": "tests/training/opacus",
    "jax": "tests/training/jax_privacy",
    "loop": "examples",
    "flower": "tests/training/flower",
    "pfl": "tests/training/pfl",
    "step probes": "lab/measure",
    "sum probes": "lab/measure",
}
KEY = bytes(range(32))
Foreign: TypeAlias = Any  # what has its type in the checkout
Cases: TypeAlias = Mapping[str, Callable[[], Foreign]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("kind", choices=FOLDERS)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    folders = "src", "lab/src", FOLDERS[chosen.kind], "examples"
    sys.path[:0] = [str(chosen.checkout / folder) for folder in folders]
    warnings.simplefilter("ignore")
    package = import_module("dpaudit").__file__
    assert package is not None
    assert Path(package).is_relative_to(chosen.checkout), package
    cases: Cases = globals()[f"{chosen.kind.replace(' ', '_')}_cases"]()
    out: Path = chosen.out
    found = json.loads(out.read_text()) if out.exists() else {}
    for name, case in cases.items():
        if name in found:
            continue
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 (what Flower draws its noise from)
        found[name] = case()
        out.write_text(json.dumps(found, default=plain, sort_keys=True, indent=1))


def plain(value: object) -> float | str:
    """Return a value as JSON holds it."""
    return float(value) if isinstance(value, np.number) else str(value)


def first(thing: object, *names: str) -> Foreign:
    """Return the first of some attributes that a thing has: its names by checkout."""
    return next(getattr(thing, name) for name in names if hasattr(thing, name))


def class_of(*places: str) -> Foreign:
    """Return the first class that a checkout has."""
    for place in places:
        module, _, name = place.rpartition(".")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"none of {', '.join(places)}")


def text_of(finding: object) -> str:
    """Return a finding in words."""
    try:
        from dpaudit.game.text.findings import sentence  # noqa: PLC0415
    except ImportError:  # where findings were sentences, and faults had three parts
        is_fault = hasattr(finding, "measured")
        return str(finding if is_fault else getattr(finding, "said", finding))
    return "; ".join(map(sentence, getattr(finding, "findings", [finding])))


def as_checks(checks: object, faults: object) -> dict[str, object]:
    """Return the rows of stages, and the stages of faults."""
    return {
        "checks": [
            [first(each, "stage", "road"), first(each, "status", "how"), text_of(each)]
            for each in checks
        ],
        "faults": [[first(each, "stage", "road"), text_of(each)] for each in faults],
    }


def as_result(result: Foreign) -> dict[str, object]:
    """Return a result's numbers, labels and text."""
    training = result.training
    coverage = first(training, "coverage", "ledger")
    signal = first(training, "signal", "arrival")
    return {
        "verdict": result.verdict,
        "bound": result.bound.epsilon_lower,
        "p": result.p_value,
        "ceiling": result.ceiling,
        "signal": signal and [signal.slope, signal.error],
        "steps": training.steps,
        "trusted": training.evidence_share,
        "sanity": [
            [first(each, "status", "spoils"), text_of(each)]
            for each in first(result, "sanity_checks", "controls")
        ],
        "remarks": [text_of(each) for each in training.remarks],
        "printed": str(result),
    } | as_checks(first(coverage, "checks", "looks"), result.faults)


def as_sensitivity(found: Foreign) -> dict[str, object]:
    """Return what a sensitivity probe measured."""
    numbers = "change", "coupling", "removal", "tolerance", "clipped", "enlarged"
    checks: Foreign = []
    if not found.unseen:
        checks = found.checks if hasattr(found, "checks") else found.looks()
    return {
        **{name: getattr(found, name) for name in numbers},
        **{name: getattr(found, name) for name in ("records", "sums", "ran")},
        "layers": found.layers,
        "beside": list(found.beside),
        "unseen": text_of(found.unseen) if found.unseen else "",
        "printed": str(found),
    } | as_checks(checks, found.faults)


def participation(**given: int) -> dict[str, Foreign]:
    """Return a schedule of participation, by the name of its option."""
    schedule = class_of(
        "dpaudit.dpsgd.participation.Participation", "dpaudit.dpsgd.turns.Turns"
    )
    name = "turns" if schedule.__name__ == "Turns" else "participation"
    return {name: schedule(**given)}


def insertion(way: object) -> dict[str, object]:
    """Return where canaries enter in Flower, by the name of its option."""
    return {"way" if "turns" in participation(every=1, cohorts=1) else "insertion": way}


def opacus_cases() -> Cases:
    import private_runs as small  # noqa: PLC0415
    import test_examples as examples  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from dpaudit.training.opacus import Canary  # noqa: PLC0415

    records = {"canaries": small.CANARIES}

    def step_of(run: Foreign) -> Callable[[Foreign], None]:
        def step(batch: Foreign) -> None:
            pixels, labels = batch
            run.optimizer.zero_grad()
            run.criterion(run.model(pixels), labels).backward()
            run.optimizer.step()

        return step

    def trained(
        mode: str,
        made: Mapping[str, Foreign] | None = None,
        *,
        probe: bool = False,
        noise: float = 1.0,
        **options: Foreign,
    ) -> Foreign:
        run = small.private_run(mode=mode, **made or {})
        if probe:
            options["model"] = run.model
        audit = small.attach(run, **options)
        if probe:
            audit.probe(step_of(run))
        run.optimizer.noise_multiplier *= noise
        torch.manual_seed(3)
        run.train(audit.data_loader)
        return as_result(audit.finish())

    def resumed() -> Foreign:
        def opened() -> Foreign:
            run = small.private_run(mode="hooks", **records)
            return run, small.attach(run, model=run.model)

        run, audit = opened()
        torch.manual_seed(3)
        run.train(audit.data_loader, steps=15)
        with tempfile.TemporaryDirectory() as folder:
            audit.save(Path(folder) / "audit.npz")
            again, audit = opened()
            again.model.load_state_dict(run.model.state_dict())
            accounted = run.engine.accountant.state_dict()
            again.engine.accountant.load_state_dict(accounted)
            audit.resume(Path(folder) / "audit.npz")
        torch.manual_seed(4)
        again.train(audit.data_loader, steps=20)
        return as_result(audit.finish())

    def with_examples(mode: str, *, mixed: bool = False) -> Foreign:
        run = examples.Training(mode)

        def step(batch: Foreign) -> None:
            pixels, labels = batch
            run.optimizer.zero_grad()
            scores = run.model(pixels + 0.5 * pixels.flip(0))
            run.criterion(scores, labels).mean().backward()
            run.optimizer.step()

        audit = run.audit()
        audit.probe(step if mixed else run.step)
        run.train(audit.data_loader)
        return as_result(audit.finish())

    return {
        "hooks, sums, probe": lambda: trained("hooks", probe=True),
        "hooks, sums, noise x 0.4": lambda: trained("hooks", probe=True, noise=0.4),
        "ghost, sums, probe": lambda: trained("ghost", probe=True),
        "functorch, records, probe": lambda: trained(
            "functorch", records, probe=True, unchecked=()
        ),
        "hooks, records, shuffled": lambda: trained(
            "hooks", records | {"poisson": False}, knows_real_sums=False
        ),
        "hooks, spread": lambda: trained(
            "hooks", canary=Canary(spread=2), canaries=160
        ),
        "hooks, records, C / 2": lambda: trained("hooks", records | {"clip": 0.5}),
        "hooks, records, resumed": resumed,
        "ghost, examples": lambda: with_examples("ghost"),
        "hooks, examples": lambda: with_examples("hooks"),
        "hooks, examples, mixed records": lambda: with_examples("hooks", mixed=True),
    }


def jax_cases() -> Cases:
    import jax.numpy as jnp  # noqa: PLC0415
    import jax_correlated_noise as correlated  # noqa: PLC0415
    import test_audit as small  # noqa: PLC0415

    from dpaudit.testing import fixed_key  # noqa: PLC0415

    audit_class = class_of(
        "dpaudit.training.jax_privacy.JaxAudit",
        "dpaudit.training.jax_privacy.JaxPrivacyAudit",
    )

    def sums(
        dtype: Foreign,
        *,
        made: Mapping[str, float],
        probe: bool = False,
        **options: Foreign,
    ) -> Foreign:
        grad_fn, privatizer = small.private(**made)
        params = small.network(dtype)
        audit = audit_class(
            params, grad_fn, small.SAMPLING, small.EVENT, key=small.KEY, **options
        )
        if probe:
            rng = np.random.default_rng(5)
            pixels = rng.normal(size=(12, 20)).astype(np.float32)
            audit.probe(
                lambda batch, keep: grad_fn(params, *batch, is_padding_example=~keep),
                (pixels, rng.integers(4, size=12)),
            )
        small.train(audit, grad_fn, privatizer, params=params)
        return as_result(audit.finish())

    def records(clip: float) -> Foreign:
        return as_result(small.audit_of_records(clip=clip, claimed_clip=2.0)[0])

    return {
        "sums, probe": lambda: sums(
            jnp.float32,
            made={},
            probe=True,
            design=small.design(),
            noise=small.NOISE,
        ),
        "sums, noise / 4, two per coordinate, bfloat16": lambda: sums(
            jnp.bfloat16,
            made={"divide_noise_by": 4.0, "clip": 0.5, "normalize_by": 10.0},
            design=small.design(800, per_coordinate=2),
        ),
        "records": lambda: records(2.0),
        "records clipped to 4 C": lambda: records(8.0),
        "correlated noise": lambda: as_result(
            correlated.train_and_audit(key=fixed_key(KEY))
        ),
    }


def loop_cases() -> Cases:
    import any_loop as digits  # noqa: PLC0415

    from dpaudit import ApproxDP, Design, OneRun  # noqa: PLC0415
    from dpaudit.testing import fixed_key  # noqa: PLC0415
    from dpaudit.training.any_loop import SumsAudit  # noqa: PLC0415

    def example(divide_noise_by: float) -> Foreign:
        result, _ = digits.train_and_audit(
            divide_noise_by=divide_noise_by,
            key=fixed_key(KEY),
            rng=np.random.default_rng(0),
        )
        return as_result(result)

    def users() -> Foreign:
        claim = ApproxDP(epsilon=2.0, delta=1e-5)
        audit = SumsAudit(
            design=Design(canaries=400, rules=OneRun(guesses=80), claim=claim),
            key=fixed_key(bytes(32)),
            dimension=500,
            noise=0.9,
            unit="user",
            **participation(every=5, cohorts=5),
        )
        rng = np.random.default_rng(1)
        for _ in range(25):
            total = np.zeros(500)
            total[audit.coordinates] += 2.0 * first(audit, "contributions", "joining")()
            noisy = total + 2.0 * 0.9 * rng.normal(size=500)
            audit.observe(noisy[audit.coordinates] / 2.0)
        return as_result(audit.finish())

    return {
        "digits": lambda: example(1.0),
        "digits, noise / 4": lambda: example(4.0),
        "users by cohorts": users,
    }


def flower_cases() -> Cases:
    import federation  # noqa: PLC0415

    from dpaudit.training.flower import Nodes, canary_mod  # noqa: PLC0415

    def trained(
        app: Foreign = None, nodes: range | None = None, **options: Foreign
    ) -> Foreign:
        audit, _ = federation.opened(**options)
        audit.probe()
        federation.train(audit, rounds=5, nodes=nodes, app=app)
        return as_result(audit.finish())

    return {
        "replies": trained,
        "replies, noise / 8": lambda: trained(divide_noise_by=8.0, noise=4.0),
        "replies by cohorts": lambda: trained(**participation(every=5, cohorts=5)),
        "nodes": lambda: trained(
            app=federation.client_app(canary_mod),
            nodes=range(210),
            **insertion(Nodes()),
        ),
    }


def pfl_cases() -> Cases:
    import federated_runs as small  # noqa: PLC0415

    from dpaudit.training.pfl import Added, Sampled  # noqa: PLC0415

    def trained(
        told: Foreign, way: object, *, probe: bool = False, **options: Foreign
    ) -> Foreign:
        audit = small.Federated(told=told, insertion=way, **options).run()
        if probe:
            audit.probe()
        return as_result(audit.finish())

    def added() -> Foreign:
        return Added(**participation(every=4, cohorts=4))

    return {
        "added by cohorts, probe": lambda: trained(
            small.accountant(1), added(), probe=True
        ),
        "added, noise / 2, two per coordinate": lambda: trained(
            small.accountant(1), added(), divide=2.0, per_coordinate=2
        ),
        "sampled": lambda: trained(
            small.accountant(10, rate=0.2), Sampled(), rate=0.2, rounds=10
        ),
    }


def step_probes_cases() -> Cases:
    import probe_cases as corpus  # noqa: PLC0415

    def examined(build: Foreign) -> Foreign:
        found, why, _ = corpus.examined(build)
        return {"why": why} if found is None else as_sensitivity(found)

    return {
        f"{number} {label}": lambda build=build: examined(build)
        for number, (_, label, build) in enumerate(corpus.CASES)
    }


def sum_probes_cases() -> Cases:
    import probe_sum_cases as corpus  # noqa: PLC0415

    def examined(build: Foreign) -> Foreign:
        case = build()
        probed = corpus.probe_sum(case.clipped_sum, case.batch, norm=case.norm)
        return as_sensitivity(probed)

    return {
        f"{number} {label}": lambda build=build: examined(build)
        for number, (_, label, build) in enumerate(corpus.CASES)
    }


if __name__ == "__main__":
    main()
