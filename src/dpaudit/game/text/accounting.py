"""Sentences about steps, rates and noise compared with the accountant's history."""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.sampling import CONFIGURED_OTHERWISE
from dpaudit.game.text.terms import FaultText, Template, Values

__all__ = ["FAULTS", "SENTENCES"]


def _strategy(v: Values) -> str:
    return (
        f"the strategy's sensitivity is {_least(v)}{v.sensitivity:.4g} clipping norms, "
        f"recomputed for joins {v.separation} steps apart; noise was scaled for "
        f"{v.claimed:.4g}"
    )


def _least(v: Values) -> str:
    return "" if v.exact else "at least "


def _strategy_fault(v: Values) -> str:
    if v.by_column:
        return (
            f"noise is too small by the strategy's largest column norm, {v.factor:.3g}"
        )
    return (
        f"noise is too small for its strategy by a factor of {_least(v)}{v.factor:.3g}"
    )


SENTENCES: Final[Mapping[str, Template]] = {
    "accounting.curve_tested": "the accountant's curve was tested on {steps} steps; a "
    "count or rate that is wrong shows as noise too small would",
    "accounting.no_accountant": "no accountant was given, so only the design's claim "
    "was tested",
    "accounting.compared": "number, noise multiplier and rate of {steps} steps were "
    "compared with the accountant's history",
    "accounting.curve_not_tested": "the accountant's whole curve was not tested, as "
    "that needs guesses that are counted: OneRun(guesses=...)",
    "accounting.higher_rate": "the accountant allows for a sample rate of "
    "{accounted:.6g}, but canaries join at {rate:.6g}, so that less than the claim was "
    "put to the test",
    "accounting.not_a_claim": "the accountant's history is no claim that can be "
    "tested: {error}",
    "steps_unseen": "{unseen} of {counted} steps were made without the audit, which "
    "must be attached before the first of them",
    "strategy.sensitivity": _strategy,
}
FAULTS: Final[Mapping[str, FaultText]] = {
    "clipping.norms_differ": FaultText(
        what="noise is scaled by a clipping norm of {noise_norm:.4g} at step {step}, "
        "and {record}s are clipped to {clip:.4g}",
        measured="so in {differing} of {steps} steps",
        expected="one clipping norm",
        cause="a norm that was changed in the optimizer, and not in the model, which "
        "clips where no per-{record} gradients are kept",
    ),
    "accounting.steps_missing": FaultText(
        what="not every step was accounted for",
        measured="{made} steps",
        expected="{accounted}",
        cause="steps of an optimizer that the accountant is not attached to, or an "
        "accountant that was set back",
    ),
    "accounting.noise_differs": FaultText(
        what="noise multiplier differs from the accountant's at step {step}",
        measured="{noise:.4g}, and less than was accounted for in {less} of {steps} "
        "steps",
        expected="{accounted:.4g}",
        cause="a noise schedule that is missing from the accounting",
    ),
    "accounting.rate_differs": FaultText(
        what="sampling rate differs from the accountant's at step {step}",
        measured="{rate:.6g}, and more than was accounted for in {more} of {steps} "
        "steps",
        expected="{accounted:.6g}",
        cause=CONFIGURED_OTHERWISE,
    ),
    "accounting.not_together": FaultText(
        what="noise multiplier and sampling rate of a step were not accounted for "
        "together",
        measured="steps with less noise are those with the higher rate",
        expected="an entry of the accountant's history for each step",
        cause="schedules of noise and of batch size that the accountant was given "
        "one by one",
    ),
    "strategy.noise_too_small": FaultText(
        what=_strategy_fault,
        measured=lambda v: (
            f"a sensitivity of {_least(v)}{v.sensitivity:.4g} clipping norms"
        ),
        expected="{claimed:.4g}",
        cause={
            "other_participation": "a sensitivity that was computed for other joins, "
            "or of another matrix",
            "columns": "a strategy whose columns were not scaled to length 1",
            "columns_longest": "a strategy whose columns were not scaled to length 1 "
            "(the longest is {longest:.3g})",
        },
    ),
}
