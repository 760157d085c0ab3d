"""An Opacus run's plan, from what Opacus was set up to do, and the audit by it."""

from collections.abc import Callable, Collection
from contextlib import ExitStack

from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.accounting import accountant_curve
from dpaudit.dpsgd.planning import Plan, Purpose, TrainingSetup, plan_audit
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.text.findings import sentence
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.training.opacus.audit import OpacusAudit, check_free
from dpaudit.training.opacus.insertion import check_poisson
from dpaudit.training.opacus.isolated_step import Model
from dpaudit.training.opacus.records import CanaryDataset
from dpaudit.training.opacus.rehearsal import Train
from dpaudit.training.opacus.setup import (
    Loader,
    rank_and_world,
    read_facts,
    shared_key,
)
from dpaudit.training.opacus.step_runner import Step, check_step

__all__ = ["audit_opacus", "plan_opacus"]

_MOST = 10_000  # coordinates, unless more are asked for


@progress_note("planning the audit")
def plan_opacus(
    optimizer: DPOptimizer,
    data_loader: Loader,
    *,
    steps: int,
    delta: float,
    coordinates: int | None = None,
    alpha: float = 0.05,
    purpose: Purpose | str = Purpose.FAULTS,
) -> Plan:
    """Return the audit to make of a run, and what to expect of it.

    The claim is what an accountant says of the noise, sample rate and steps. All
    guesses come in one run, one canary per coordinate, so that they can be held against
    the accountant's whole curve.

    Args:
        optimizer: The optimizer that ``make_private`` returned.
        data_loader: The loader that it returned.
        steps: How many steps will be made: ``epochs * len(data_loader)``.
        delta: Where the claim and the lower bound are stated.
        coordinates: How many parameters can hold a canary; all of them if left out,
            and not more than 10,000, or as many as the data set has canaries.
        alpha: Chance of being wrong.
        purpose: ``"faults"`` to catch the smallest fault, ``"bound"`` for the largest
            mean bound of a training without fault.
    """
    facts = read_facts(optimizer, data_loader)
    _validate.whole_number("steps", steps, least=1)
    _validate.probability("delta", delta)
    if delta == 0:
        raise InvalidInputError(
            "delta must be above 0: Gaussian noise is private at no epsilon with "
            "delta = 0; it should be well below one over the number of records"
        )
    if coordinates is not None and coordinates > facts.dimension:
        raise InvalidInputError(
            f"coordinates must be at most {facts.dimension}, the number of trained "
            f"parameters, got coordinates={coordinates!r}; leave it out for as many as "
            "pay"
        )
    curve = accountant_curve([(facts.noise, facts.accounted_rate, steps)])
    wanted = min(_MOST, facts.dimension)
    if isinstance(data_loader.dataset, CanaryDataset):
        wanted = data_loader.dataset.canaries
    return plan_audit(
        TrainingSetup(steps=steps, rate=facts.rate, noise=facts.noise),
        claim=ApproxDP(epsilon=curve.epsilon_at(delta), delta=delta),
        coordinates=wanted if coordinates is None else coordinates,
        alpha=alpha,
        per_coordinate=1,
        guarantee=curve,
        in_rounds=False,
        purpose=purpose,
    )


def audit_opacus(  # noqa: PLR0913 (all but the first few have a default)
    engine: PrivacyEngine,
    model: Model,
    optimizer: DPOptimizer,
    data_loader: Loader,
    *,
    delta: float,
    epochs: int | None = None,
    steps: int | None = None,
    step: Step | None = None,
    train: Train | None = None,
    key: Key | None = None,
    coordinates: int | None = None,
    alpha: float = 0.05,
    unchecked: Collection[str] = (),
    say: Callable[[str], object] = print,
) -> OpacusAudit:
    """Plan an audit of a run, open it, and probe the step: the shortest way.

    Says the plan and the commitment, which is to be published before training. Then
    train as before, and ``print(audit.finish())``.

    Args:
        engine: The privacy engine, whose accountant's claim is tested.
        model: As ``make_private`` returned it, and so the next two.
        optimizer: See there.
        data_loader: See there.
        delta: Where the claim and the lower bound are stated.
        epochs: How many epochs will be trained.
        steps: Instead, how many steps.
        step: What you do with a batch, from ``zero_grad`` to ``optimizer.step()``, as a
            function: it is probed (``OpacusAudit.probe``) before training begins.
            Without it clipping and per-record gradients are not checked, and the audit
            is inconclusive unless ``unchecked`` names them.
        train: Your whole loop as a function without arguments: its beginning is played
            in copies of the process, so that what it decides by records is seen.
        unchecked: What you do without, among ``"sampling"``, ``"gradients"``,
            ``"clipping"`` and ``"interference"``.
        key: The secret of this run; a new one if left out. To go on after a crash keep
            your own (``Key.generate()``, ``key.write(path)``).
        coordinates: How many parameters hold a canary; up to 10,000 if left out.
        alpha: Chance of being wrong.
        say: What the plan is told to.
    """
    _check_given(engine, model, optimizer, data_loader)
    if (epochs is None) == (steps is None):
        raise InvalidInputError(
            "say how long training will be: epochs=..., or steps=..., and not both"
        )
    if step is not None:
        check_step(step)
        if rank_and_world(optimizer)[1] > 1:
            raise InvalidInputError(
                "several ranks cannot be probed together: leave step out here, and "
                "probe the same step in one process, with model and optimizer made "
                "private there (step=... or OpacusAudit.probe)"
            )
    if steps is None:
        assert epochs is not None
        _validate.whole_number("epochs", epochs, least=1)
        steps = epochs * len(data_loader)
    plan = plan_opacus(
        optimizer,
        data_loader,
        steps=steps,
        delta=delta,
        coordinates=coordinates,
        alpha=alpha,
    )
    say(str(plan))
    audit = OpacusAudit(
        optimizer,
        data_loader,
        design=plan.design(),
        key=shared_key() if key is None else key,
        accountant=engine,
        model=model,
        step=step,
        unchecked=unchecked,
    )
    with ExitStack() as failed:
        failed.callback(audit.detach)
        say(
            "For others to check it later, publish this before training: commitment "
            f"{audit.commitment.sha256}"
        )
        if step is None:
            say(
                "Clipping and per-example gradients will not be checked: pass "
                "step=..., what you do with a batch, to check them."
            )
        else:
            found = audit.probe(step, train=train, steps=steps)
            say(f"Probe of the step: {found}")
            besides = [each for each in audit.faults if each not in found.faults]
            for each in besides:
                say(f"Fault found: {sentence(each)}.")
            if audit.faults:
                say("That stands whatever training shows: mend it first.")
        failed.pop_all()
    return audit


def _check_given(
    engine: PrivacyEngine, model: Model, optimizer: DPOptimizer, data_loader: Loader
) -> None:
    """Refuse what is not of a private run, by name, before anything is planned."""
    for name, value, wanted in (
        ("engine", engine, PrivacyEngine),
        ("optimizer", optimizer, DPOptimizer),
        ("data_loader", data_loader, DataLoader),
    ):
        if not isinstance(value, wanted):
            raise InvalidInputError(
                f"{name} must be a {wanted.__name__}, got {type(value).__name__}; "
                "model, optimizer and loader are what engine.make_private(...) returned"
            )
    if model is None:
        raise InvalidInputError(
            "model must be the one that engine.make_private(...) returned, got None"
        )
    check_free(optimizer)
    check_poisson(read_facts(optimizer, data_loader), data_loader)
