"""What is said of steps, rates and noise beside the accountant's history."""

from collections.abc import Mapping
from typing import Final

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
    "sampling.no_batch": "no batch came from the loader that the audit was given: "
    "train on it",
    "sampling.batches": "{batches} batches as the loader yields them: {record}s come "
    "at {rate:.4g}, where {accounted:.4g} is accounted for, none in more than {most} "
    "batches; sizes vary by {spread:.3g}, where {expected_spread:.3g} is expected",
    "sampling.more_rows": "{more} of {steps} steps clipped more rows than the loader "
    "had handed over {record}s for them (step {step}: {rows} rows, {records} "
    "{record}s); rows from elsewhere may be among them, such as public data or earlier "
    "batches",
    "sampling.handed": "{handed} of them were handed to the training loop, which made "
    "{steps} steps",
}
_TOLD_OTHERWISE: Final = (
    "an accountant that was told another batch size or number of {record}s than the "
    "loader has"
)
_SHUFFLING: Final = "a loader that shuffles: each {record} comes once an epoch"
_IN_COMMON: Final = "{common} in common"
_ONE_BATCH: Final = "one batch of it for each step"
FAULTS: Final[Mapping[str, FaultText]] = {
    "sampling.several_times": FaultText(
        what="a {record} is several times in one batch, and clipped each time",
        measured="{times} times",
        expected="at most once",
        cause="several views of each {record} as rows of their own (augmentations), or "
        "a sampler that draws with replacement",
    ),
    "sampling.too_often": FaultText(
        what="{record}s are sampled more often than is accounted for",
        measured="a rate of {rate:.4g}",
        expected="{accounted:.4g}",
        cause={
            "records": _TOLD_OTHERWISE,
            "users": "an accountant that was told another cohort size or number of "
            "users than the training has",
        },
    ),
    "sampling.not_poisson": FaultText(
        what="batches are not Poisson samples",
        measured="sizes that vary by {spread:.3g}",
        expected="{expected_spread:.3g}",
        cause="a loader that shuffles, with batches of a fixed size",
    ),
    "sampling.batch_repeated": FaultText(
        what="batch {later} holds the same {record}s as batch {earlier}",
        measured="the same {record}s",
        expected="a new sample in every step",
        cause="a sampler that is seeded anew",
    ),
    "sampling.favoured": FaultText(
        what="some {record}s are sampled more often than is accounted for",
        measured="{many} {record}s in {times} or more of {batches} batches",
        expected="{expected:.3g}",
        cause="a sampler with weights, such as by class, length or loss",
    ),
    "sampling.groups": FaultText(
        what="batch sizes vary more than those of Poisson samples",
        measured="sizes that vary by {spread:.3g}",
        expected="{expected_spread:.3g}",
        cause="{record}s that are sampled in groups, such as shards or clusters, or a "
        "rate that changes from step to step",
    ),
    "sampling.sticky": FaultText(
        what="consecutive batches have too many {record}s in common",
        measured=_IN_COMMON,
        expected="{expected:.4g}",
        cause="a sampler that keeps {record}s for several steps, or prefers some of "
        "them",
    ),
    "sampling.in_turns": FaultText(
        what="{record}s come in turns, and are not sampled independently in each step",
        measured="{many} {record}s in {times} or {more} of {batches} batches",
        expected="at most about {expected:.4g}",
        cause=_SHUFFLING,
    ),
    "sampling.apart": FaultText(
        what="consecutive batches have too few {record}s in common",
        measured=_IN_COMMON,
        expected="{expected:.4g}",
        cause=_SHUFFLING,
    ),
    "sampling.several_batches": FaultText(
        what="a step adds up several batches, in each of which a {record} may be",
        measured="so in {several} of {steps} steps",
        expected="one batch a step",
        cause="gradients that are accumulated over batches of the loader; give it the "
        "whole batch, and split that (BatchMemoryManager)",
    ),
    "sampling.other_loader": FaultText(
        what="no step was made on a batch of the private loader",
        measured="{steps} steps and no batch",
        expected=_ONE_BATCH,
        cause="training on another loader than make_private returned, such as the one "
        "that was given to it, or on batches drawn before the audit was opened",
    ),
    "sampling.without_batch": FaultText(
        what="steps were made without a new batch of the private loader",
        measured="{without} of {steps} steps",
        expected=_ONE_BATCH,
        cause="several steps on one batch, batches that are kept and used again "
        "(itertools.cycle or list of a loader), or batches of another loader",
    ),
    "clipping.norms_differ": FaultText(
        what="noise is scaled by a clipping norm of {noise_norm:.4g} at step {step}, "
        "and {record}s are clipped to {clip:.4g}",
        measured="so in {differing} of {steps} steps",
        expected="one clipping norm",
        cause="a norm that was changed in the optimizer, and not in the model, which "
        "clips where no per-{record} gradients are kept",
    ),
    "accounting.steps_missing": FaultText(
        what="the accountant was not told of every step",
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
        cause="a noise schedule that the accountant was not told of",
    ),
    "accounting.rate_differs": FaultText(
        what="sampling rate differs from the accountant's at step {step}",
        measured="{rate:.6g}, and more than was accounted for in {more} of {steps} "
        "steps",
        expected="{accounted:.6g}",
        cause=_TOLD_OTHERWISE,
    ),
    "accounting.not_together": FaultText(
        what="noise multiplier and sampling rate of a step were not accounted for "
        "together",
        measured="steps with less noise are those with the higher rate",
        expected="an entry of the accountant's history for each step",
        cause="schedules of noise and of batch size that the accountant was told of "
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
