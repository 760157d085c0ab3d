"""A plan for the audit of an Opacus run, from what Opacus was set up to do."""

from opacus.optimizers import DPOptimizer

from dpaudit.accounting import accountant_curve
from dpaudit.dpsgd.planning import Plan, Purpose, Training, plan_audit
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.training.opacus.setup import Loader, read_facts

__all__ = ["plan_opacus"]

_MOST = 10_000  # coordinates, unless more are asked for


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
            and not more than 10,000.
        alpha: Chance of being wrong.
        purpose: ``"faults"`` to catch the smallest fault, ``"bound"`` for the largest
            mean bound of a training without fault.
    """
    facts = read_facts(optimizer, data_loader)
    curve = accountant_curve([(facts.noise, facts.accounted_rate, steps)])
    wanted = min(_MOST, facts.dimension)
    return plan_audit(
        Training(steps=steps, rate=facts.rate, noise=facts.noise),
        claim=ApproxDP(epsilon=curve.epsilon_at(delta), delta=delta),
        coordinates=wanted if coordinates is None else coordinates,
        alpha=alpha,
        per_coordinate=1,
        guarantee=curve,
        in_rounds=False,
        purpose=purpose,
    )
