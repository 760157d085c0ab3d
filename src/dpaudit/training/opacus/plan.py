"""Plans an audit from the configuration of an Opacus run, and opens it."""

from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Final

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
from dpaudit.training.opacus.ranks import rank_and_world, shared_key
from dpaudit.training.opacus.records import CanaryDataset
from dpaudit.training.opacus.rehearsal import Train
from dpaudit.training.opacus.setup import Loader, is_sharded, read_facts
from dpaudit.training.opacus.step_runner import Step, check_step
from dpaudit.training.opacus.transfers import local
from dpaudit.training.process_copy import why_no_copy

__all__ = ["audit_opacus", "plan_opacus"]

_MAX_COORDINATES = 10_000  # unless more are requested
_TRIED: Final = (
    "The step is now called about 170 times, without noise, in copies of this process: "
    "what it prints, writes or sends there is discarded."
)
_TRIED_HERE: Final = (
    "The step is now called about 140 times, without noise, in this process: weights "
    "and random states are restored, but what it prints, writes or logs will remain."
)


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
    """Return a plan for auditing a run, with its expected results.

    The claim is an accountant's privacy curve for the noise, sampling rate and steps.
    All guesses come from one run, one canary per coordinate, so that they can be
    compared with the whole curve.

    Args:
        optimizer: The optimizer that ``make_private`` returned.
        data_loader: The loader that it returned.
        steps: Number of training steps: ``epochs * len(data_loader)``.
        delta: The δ at which the claim and the lower bound are stated.
        coordinates: Number of parameters that can hold a canary; by default all of
            them up to 10,000, or as many as the data set has canaries.
        alpha: Significance level.
        purpose: ``"faults"`` to detect the smallest fault, ``"bound"`` for the largest
            mean bound of a correct training run.
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
    wanted = min(_MAX_COORDINATES, facts.dimension)
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
    announce: Callable[[str], object] = print,
) -> OpacusAudit:
    """Plan an audit of a run, open it and probe the step, all in one call.

    Prints the plan and the commitment, which is to be published before training. Then
    train as before, and ``print(audit.finish())``.

    Args:
        engine: The privacy engine, whose accountant's claim is tested.
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
        data_loader: The loader that it returned.
        delta: The δ at which the claim and the lower bound are stated.
        epochs: Number of training epochs.
        steps: Number of training steps, instead of ``epochs``.
        step: A function that does what your loop does with a batch, from ``zero_grad``
            to ``optimizer.step()``: it is probed (``OpacusAudit.probe``) before
            training begins. Without it clipping and per-record gradients are not
            checked, and the audit is inconclusive unless ``unchecked`` names them.
        train: Your whole loop as a function without arguments: its first steps are run
            in copies of the process, to detect what it does depending on records.
        unchecked: Checks that you waive, among ``"sampling"``, ``"gradients"``,
            ``"clipping"`` and ``"interference"``.
        key: The secret of this run; a new one by default. To be able to resume after a
            crash keep your own (``Key.generate()``, ``key.write(path)``).
        coordinates: Number of parameters that hold a canary; up to 10,000 by default.
        alpha: Significance level.
        announce: Called with the plan and each further message, by the first of several
            ranks.
    """
    _check_given(engine, model, optimizer, data_loader)
    if (epochs is None) == (steps is None):
        raise InvalidInputError(
            "specify how long training will be: epochs=..., or steps=..., and not both"
        )
    if step is not None:
        check_step(step)
        if is_sharded(optimizer):
            raise InvalidInputError(
                "a step on sharded parameters (FSDP) cannot be tried by one rank "
                "alone: leave step out here, name what is then unchecked "
                "(unchecked=...), and probe the same step in one process, with model "
                "and optimizer made private there"
            )
    if rank_and_world(optimizer)[0]:  # the first rank announces for all
        announce = _nothing
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
    announce(str(plan))
    audit = OpacusAudit(
        optimizer,
        data_loader,
        design=plan.design(),
        key=shared_key(local(optimizer.params[0]).device) if key is None else key,
        accountant=engine,
        model=model,
        step=step,
        unchecked=unchecked,
    )
    with ExitStack() as failed:
        failed.callback(audit.detach)
        announce(
            "For others to check it later, publish this before training: commitment "
            f"{audit.commitment.sha256}"
        )
        if step is None:
            announce(
                "Clipping and per-example gradients will not be checked: pass "
                "step=..., what you do with a batch, to check them."
            )
        else:
            announce(_TRIED if why_no_copy() is None else _TRIED_HERE)
            sensitivity = audit.probe(step, train=train, steps=steps)
            announce(f"Probe of the step: {sensitivity}")
            others = [each for each in audit.faults if each not in sensitivity.faults]
            for each in others:
                announce(f"Fault found: {sentence(each)}.")
            if audit.faults:
                announce("This is a fault whatever the audit shows: fix it first.")
        failed.pop_all()
    return audit


def _nothing(_: str) -> None:
    """Announce nothing."""


def _check_given(
    engine: PrivacyEngine, model: Model, optimizer: DPOptimizer, data_loader: Loader
) -> None:
    """Refuse arguments that ``make_private`` did not return, before planning."""
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
