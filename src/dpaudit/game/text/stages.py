"""Names of stages and statuses, and what canaries and forecasts would detect."""

from collections.abc import Mapping
from math import ceil
from typing import Final

from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.terms import Template, Terms, Values, counted, rendered
from dpaudit.game.verdict import POWER

__all__ = [
    "SENTENCES",
    "STATUS",
    "detection_unknown",
    "detects",
    "never_seen",
    "stage_faults",
    "stage_name",
]

_NAMES: Final = {
    Stage.SAMPLING: "sampling of {record}s",
    Stage.GRADIENTS: "{per_record_gradients}",
    Stage.CLIPPING: "clipping",
    Stage.AGGREGATION: "adding up {sums_over}",
    Stage.NOISE_SCALE: "scale of the noise",
    Stage.NOISE_INDEPENDENCE: "independence of the noise",
    Stage.ACCOUNTING: "steps and rate accounted",
    Stage.SIDE_PATHS: "other ways out",
    Stage.RELEASED_MODEL: "released model",
}
_FAULTS: Final = {
    Stage.SAMPLING: "{record}s that come more often than was accounted for, batches of "
    "a fixed size, or a sampler that is seeded anew",
    Stage.GRADIENTS: "a gradient that depends on other {record}s of the batch (mixup, "
    "statistics of a batch, a loss over all)",
    Stage.CLIPPING: "{record}s that are not clipped, or by a norm that leaves out a "
    "layer",
    Stage.AGGREGATION: "micro-batches that are clipped once added up, or a mean told "
    "as a sum",
    Stage.NOISE_SCALE: "noise that is too small, or left out of a parameter",
    Stage.NOISE_INDEPENDENCE: "noise that is repeated on resume, in each epoch, or "
    "over a row",
    Stage.ACCOUNTING: "steps or a rate that the accountant was not told",
    Stage.SIDE_PATHS: "a buffer, a weight or a second optimizer that {record}s change "
    "without noise",
    Stage.RELEASED_MODEL: "a model that is changed by {record}s after the last step",
}
STATUS: Final = {
    Status.TESTED: "audited",
    Status.INSPECTED: "probed",
    Status.NOT_CHECKED: "not looked at",
    Status.ACCEPTED: "not checked, accepted by the user",
}


def stage_name(stage: Stage, terms: Terms) -> str:
    """Return what a stage is called."""
    return _NAMES[stage].format(
        record=terms.record,
        per_record_gradients=terms.per_record_gradients,
        sums_over=terms.sums_over,
    )


def stage_faults(stage: Stage, terms: Terms) -> str:
    """Return what goes wrong at a stage, as people do it."""
    return _FAULTS[stage].format(record=terms.record)


def never_seen(terms: Terms) -> str:
    """Return what looks the same from inside a run, be it right or wrong.

    docs/explanation/tiers-and-threat-models.md says what would see it.
    """
    return (
        f"what is done to the data {terms.elsewhere} (copies, scaling by statistics of "
        f"all {terms.record}s), {terms.accounts}, choices made by looking at the data, "
        f"what is logged, another model being released, {terms.record}s used before "
        "the audit was opened"
    )


def detects(factor: float) -> str:
    """Return the least fault of the noise that would have been detected."""
    smallest = ceil(100 * factor) / 100
    return (
        f"it would have caught noise {smallest:.2f} times too small with chance "
        f"{POWER:g}"
    )


def detection_unknown(reason: str) -> str:
    """Return that it is not known which fault of the noise would be detected."""
    return f"which noise it would have caught is not known: {reason}"


def _not_known(v: Values) -> str:
    return detection_unknown(rendered(SENTENCES[v.why], v))


def _accuracy(v: Values) -> str:
    return (
        f"guesses right {ceil(1000 * v.accuracy) / 10:g} % of the time would have "
        f"refuted it with chance {POWER:g}, as of a program that gives away epsilon = "
        f"{ceil(100 * v.epsilon) / 100:.2f} of every canary; smaller faults may go "
        "unseen"
    )


def _leak(v: Values) -> str:
    return (
        f"a program that gives away epsilon = {ceil(100 * v.epsilon) / 100:.2f} of "
        f"every canary would have been refuted with chance about {POWER:g}; smaller "
        "faults may go unseen"
    )


def _pass_clipping(v: Values) -> str:
    size = f"{v.norm:g}" if v.norm == v.least else f"{v.least:g} to {v.norm:g}"
    return (
        f"canaries are {v.record}s, and pass it as {v.record}s do, at {size} times the "
        "clipping norm"
    )


def _examples(v: Values) -> str:
    return f"{v.count} canaries are examples, and pass it as {v.record}s do"


def _examples_cut(v: Values) -> str:
    return (
        f"{_examples(v)}, {v.share:.0%} of the time above the norm; alone at most "
        f"{v.largest:.4g} C"
    )


def _places(v: Values) -> str:
    if v.subject:
        return f"canaries in {', '.join(_of_type(v, each) for each in v.subject)}"
    each = " to ".join(dict.fromkeys((f"{v.least:,}", f"{v.most:,}")))
    return f"canaries in {v.parameters} parameters, at {each} coordinates of each"


def _of_type(v: Values, name: str) -> str:
    parameters = counted(v[f"parameters of {name}"], "parameter")
    return f"{name} ({parameters}, {v[f'coordinates of {name}']:,} coordinates)"


SENTENCES: Final[Mapping[str, Template]] = {
    "canaries.places": _places,
    "canaries.examples": _examples,
    "canaries.examples_cut": _examples_cut,
    "canaries.records_would": "canaries that are {record}s would look at it "
    "(with_canaries)",
    "canaries.records_would_on_ranks": "on several ranks, canaries that are {record}s "
    "would",
    "noise.sharded": "parameters are sharded, so that no rank holds the sum",
    "noise.half_precision": "sums are kept in half precision, which noise cannot be "
    "told from",
    "noise.kept_inside": "the strategy keeps what it adds to itself",
    "side_paths.model_only": "an audit sees the model that the strategy returns; "
    "metrics, single replies and secure aggregation, which the server's sum stands in "
    "for, are not among it",
    "side_paths.users_sum_only": "an audit sees the noisy sum, and not metrics of "
    "users, nor what else leaves beside it",
    "stage.never_checked": "nothing in this kind of audit looks at it",
    "stage.not_recorded": "the record does not say",
    "probe.offered": "audit.probe(...) would look at it",
    "call.offered": "{call} would look at it",
    "call.offered_for_sums": "{call} would look at it, if canaries are added to sums",
    "sums.every_step": "canaries join every step, as the claim allows every {record} "
    "to",
    "sums.batches_would": "canaries are added to sums, which are made after it; {call} "
    "would look at it",
    "sums.made_after": "canaries are added to sums, which are made after it",
    "sums.nothing_else": "an audit sees the sums that it is handed, and nothing else "
    "that leaves; {call} would look at it",
    "records.pass": "canaries are {record}s, and pass it as {record}s do",
    "records.pass_clipping": _pass_clipping,
    "records.none_above": "none is above the norm, so that nothing shows whether "
    "{record}s are cut",
    "records.norm_unknown": "the clipping norm could not be read, so that it is not "
    "known whether any canary is above it",
    "canaries": "tested with canaries",
    "canaries.detect": lambda v: detects(v.factor),
    "canaries.hardly": "it would hardly have caught a fault of the noise: not even "
    f"noise 32 times too small would have been refuted with chance {POWER:g}",
    "canaries.not_known": _not_known,
    "detectable.accuracy": _accuracy,
    "detectable.leak": _leak,
    "detectable.hardly": "it would hardly have refuted the claim: not even guesses "
    f"that are all but always right would have done so with chance about {POWER:g}",
    "forecast.hidden": "real gradients hid {hidden:.0%} of the evidence",
    "forecast.not_recorded": "the record does not say how the run was configured",
    "forecast.not_stated": "the record does not say",
    "forecast.no_steps": "no step was made",
    "forecast.noise_not_stated": "the noise multiplier that was configured was not "
    "stated",
    "forecast.not_sampled": "records were not sampled independently of each other",
    "forecast.without_noise": "steps were configured without noise",
    "forecast.too_long": "so many steps, or canaries at a coordinate, take long to "
    "simulate",
    "forecast.strategy_too_large": "so large a strategy takes long to simulate",
    "forecast.rules": "nothing is forecast for a game by {rules}",
    "forecast.too_many_patterns": "who participates when has too many patterns to "
    "simulate",
    "forecast.rounds_too_large": "rounds of so many coordinates take long to simulate",
    "forecast.never_participated": "some canaries never had a turn",
    "forecast.changed": "the noise or the rate changed between steps, in which "
    "canaries take turns or noise is correlated",
    "forecast.strategy_not_recorded": "the strategy is too large to be recorded",
    "forecast.strategy_steps": "the strategy is for {strategy_steps} steps, and "
    "{steps} were made",
    "forecast.examples": "canaries are examples, which have gradients of their own",
    "forecast.spread": "each canary is spread over several parameters",
    "forecast.other_clients": "other clients answered than the noise is scaled for",
    "forecast.small": "canaries are smaller than the clipping norm",
    "forecast.smaller": "canaries may be smaller in the sums than the clipping norm",
}
