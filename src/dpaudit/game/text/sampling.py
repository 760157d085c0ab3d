"""Sentences about how records or users are sampled for batches."""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.terms import FaultText, Template, Values, counted

__all__ = ["CONFIGURED_OTHERWISE", "FAULTS", "SENTENCES"]


def _turns(v: Values) -> str:
    back = "none came back"
    if v.apart:
        back = f"the soonest came back {counted(v.apart, v.term_step)} later"
    if v.separation > 1:
        back += f", where {v.separation} are counted on"
    times = f"no {v.record} twice in one" if v.times <= 1 else "some twice in one"
    return (
        f"{v.batches} {v.term_batches} as they come: {times}, none in more than "
        f"{v.most} of them; {back}"
    )


SENTENCES: Final[Mapping[str, Template]] = {
    "sampling.no_batch": "no batch came from the loader that the audit was given: "
    "train on it",
    "sampling.batches": "{batches} {term_batches} as they come: {record}s are in "
    "them at a rate of {rate:.4g}, where {accounted:.4g} is accounted for, none in "
    "more than {most} of them; sizes vary by {spread:.3g}, where "
    "{expected_spread:.3g} is expected",
    "sampling.turns": _turns,
    "sampling.more_rows": "{more} of {steps} steps clipped more rows than the loader "
    "had handed over {record}s for them (step {step}: {rows} rows, {records} "
    "{record}s); rows from elsewhere may be among them, such as public data or earlier "
    "batches",
    "sampling.fewer_rows": "{fewer} of {steps} steps clipped fewer rows than the "
    "loader had handed over {record}s for them (step {step}: {rows} rows, {records} "
    "{record}s): if a batch is cut to a size, its other {record}s decide which are "
    "left out",
    "sampling.other_loader": "it is not known which batch {unknown} of {steps} steps "
    "used; train on the loader that make_private returned, or draw your samples with a "
    "DataLoader of its data set (batch_sampler=...)",
    "sampling.own_loader": "{needed} steps were made on batches of another DataLoader "
    "of these {record}s",
    "sampling.sizes_vary": "{term_batch} sizes vary by {spread:.3g}, where "
    "{expected_spread:.3g} is expected at one rate: {record}s are sampled in groups, "
    "or at a rate that changes; a sampler at one rate states it in its sample_rate",
    "sampling.rank_lost": "another rank was lost, and what it drew with it",
    "sampling.ranks_differ": "ranks drew different numbers of batches, or from "
    "different data sets, so that it is not known which batches belong together",
    "sampling.own_shards": "how ranks share the {record}s is known only if the loader "
    "is one that make_private made for several ranks",
    "sampling.handed": "{handed} of them were handed to the training loop, which made "
    "{steps} steps",
}
CONFIGURED_OTHERWISE: Final = (
    "an accountant configured with another {term_batch} size or number of {record}s "
    "than the run has"
)
_SHUFFLING: Final = "a loader that shuffles: each {record} comes once an epoch"
_IN_COMMON: Final = "{common} in common"
FAULTS: Final[Mapping[str, FaultText]] = {
    "sampling.several_times": FaultText(
        what="a {record} is several times in one {term_batch}, and clipped each time",
        measured="{times} times",
        expected="at most once",
        cause="several views of each {record} as rows of their own (augmentations), or "
        "a sampler that draws with replacement",
    ),
    "sampling.too_often": FaultText(
        what="{record}s are sampled more often than is accounted for",
        measured="a rate of {rate:.4g}",
        expected="{accounted:.4g}",
        cause=CONFIGURED_OTHERWISE,
    ),
    "sampling.not_poisson": FaultText(
        what="{term_batches} are not Poisson samples",
        measured="sizes that vary by {spread:.3g}",
        expected="{expected_spread:.3g}",
        cause="{term_batches} of a fixed size, as of a loader that shuffles",
    ),
    "sampling.batch_repeated": FaultText(
        what="{term_batch} {later} holds the same {record}s as {term_batch} {earlier}",
        measured="the same {record}s",
        expected="a new sample in every {term_step}",
        cause="a sampler that is seeded anew, or a {term_batch} that is used again",
    ),
    "sampling.favoured": FaultText(
        what="some {record}s are sampled more often than is accounted for",
        measured="{many} {record}s in {times} or more of {batches} {term_batches}",
        expected="{expected:.3g}",
        cause="a sampler with weights, such as by class, length or loss",
    ),
    "sampling.groups": FaultText(
        what="{term_batch} sizes vary more than those of Poisson samples",
        measured="sizes that vary by {spread:.3g}",
        expected="{expected_spread:.3g}",
        cause="{record}s that are sampled in groups, such as shards or clusters, or a "
        "rate that changes from {term_step} to {term_step}",
    ),
    "sampling.sticky": FaultText(
        what="consecutive {term_batches} have too many {record}s in common",
        measured=_IN_COMMON,
        expected="{expected:.4g}",
        cause="a sampler that keeps {record}s for several {term_step}s, or prefers "
        "some of them",
    ),
    "sampling.in_turns": FaultText(
        what="{record}s come in turns, and are not sampled independently in each "
        "{term_step}",
        measured="{many} {record}s in {times} or {more} of {batches} {term_batches}",
        expected="at most about {expected:.4g}",
        cause=_SHUFFLING,
    ),
    "sampling.apart": FaultText(
        what="consecutive {term_batches} have too few {record}s in common",
        measured=_IN_COMMON,
        expected="{expected:.4g}",
        cause=_SHUFFLING,
    ),
    "sampling.too_soon": FaultText(
        what="a {record} comes back sooner than is accounted for",
        measured="after {apart} {term_step}s",
        expected="at least {separation}",
        cause="fewer {record}s than {term_step}s between visits times the "
        "{term_batch} size, or a {term_batch} that is drawn out of turn",
    ),
    "accounting.participations": FaultText(
        what="a {record} takes part more often than is accounted for",
        measured="{times} times in {batches} {term_step}s",
        expected="at most {accounted}",
        cause="an accountant with fewer compositions than a {record} has {term_step}s",
    ),
    "sampling.several_batches": FaultText(
        what="a step adds up several batches, in each of which a {record} may be",
        measured="so in {several} of {steps} steps",
        expected="one batch a step",
        cause="gradients that are accumulated over batches of the loader; give it the "
        "whole batch, and split that (BatchMemoryManager)",
    ),
    "sampling.without_batch": FaultText(
        what="steps were made without a new batch of the private loader",
        measured="{without} of {steps} steps",
        expected="one batch of it for each step",
        cause="several steps on one batch, or batches that are kept and used again "
        "(itertools.cycle or list of a loader)",
    ),
}
