"""What is said of how records, or users, are sampled for batches."""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.terms import FaultText, Template

__all__ = ["FAULTS", "SENTENCES", "TOLD_OTHERWISE"]

SENTENCES: Final[Mapping[str, Template]] = {
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
TOLD_OTHERWISE: Final = (
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
            "records": TOLD_OTHERWISE,
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
}
