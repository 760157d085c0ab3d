"""What Opacus' accountant claims of a run, and what plainly does not fit it."""

from dpaudit.accounting import accountant_curve
from dpaudit.accounting.curves import HasHistory
from dpaudit.errors import InvalidInputError
from dpaudit.game.verdict import Control, Verdict
from dpaudit.privacy.curve import PrivacyCurve

__all__ = ["claim_and_remarks", "counted_steps", "steps_unseen"]

_CLOSE = 1e-9


def counted_steps(accountant: HasHistory | None) -> int:
    """Return how many steps an accountant has counted; -1 without one."""
    if accountant is None:
        return -1
    return sum(int(each) for _, _, each in accountant.history)


def steps_unseen(accountant: HasHistory | None, *, steps: int) -> tuple[Control, ...]:
    """Return that an accountant counted more steps than the audit saw, if it did.

    Its claim is about all of them; what was done in the others was not looked at.
    """
    counted = counted_steps(accountant)
    if counted <= steps:
        return ()
    return (
        Control(
            said=f"{counted - steps} of {counted} steps were made without the audit, "
            "which must be attached before the first of them",
            spoils=Verdict.INCONCLUSIVE,
        ),
    )


def claim_and_remarks(
    accountant: HasHistory | None, *, rate: float, steps: int
) -> tuple[PrivacyCurve | None, tuple[str, ...]]:
    """Return the accountant's whole curve, and what does not fit the run.

    Args:
        accountant: The privacy engine's; None if it was not given.
        rate: The rate at which the loader samples.
        steps: Steps that the audit saw.
    """
    if accountant is None:
        return None, ()
    history = accountant.history
    counted = counted_steps(accountant)
    found = []
    if counted < steps:
        found.append(
            f"the accountant counted {counted} steps, but {steps} were made under audit"
        )
    rates = sorted(float(each) for _, each, _ in history)
    if rates and rates[0] < rate * (1 - _CLOSE):
        found.append(
            f"the accountant was told of a sample rate of {rates[0]:.6g}, but the "
            f"loader samples at {rate:.6g}"
        )
    if rates and rates[-1] > rate * (1 + 1e-3):
        found.append(
            f"the accountant allows for a sample rate of {rates[-1]:.6g}, but canaries "
            f"join at {rate:.6g}, so that less than the claim was put to the test"
        )
    try:
        return (accountant_curve(history) if history else None), tuple(found)
    except InvalidInputError as error:
        found.append(
            f"the accountant's history is no claim that can be tested: {error}"
        )
        return None, tuple(found)
