"""Names of stages and statuses, and what canaries and forecasts would detect."""

from collections.abc import Mapping
from math import ceil
from typing import Final

from dpaudit.game.findings import Stage
from dpaudit.game.text.terms import Template, Terms, Values, counted, rendered
from dpaudit.game.verdict import POWER

__all__ = [
    "SENTENCES",
    "detection_unknown",
    "detects",
    "never_seen",
    "stage_faults",
    "stage_name",
]

_NAMES: Final = {
    Stage.SAMPLING: "{batch} sampling",
    Stage.GRADIENTS: "{per_record_gradients}",
    Stage.CLIPPING: "clipping",
    Stage.AGGREGATION: "gradient aggregation",
    Stage.NOISE_SCALE: "noise scale",
    Stage.NOISE_INDEPENDENCE: "noise independence",
    Stage.ACCOUNTING: "privacy accounting",
    Stage.SIDE_PATHS: "paths around the noise",
    Stage.RELEASED_MODEL: "released model",
}
_FAULTS: Final = {
    Stage.SAMPLING: "{record}s sampled more often than accounted for, batches of a "
    "fixed size, or a sampler that is re-seeded",
    Stage.GRADIENTS: "gradients that depend on other {record}s of the batch (mixup, "
    "batch statistics, a loss over the batch)",
    Stage.CLIPPING: "{record}s that are not clipped, or clipped by a norm without some "
    "layer",
    Stage.AGGREGATION: "micro-batches that are clipped after they are added up, or "
    'loss_reduction="sum" for a mean loss',
    Stage.NOISE_SCALE: "noise that is too small, or missing from a parameter",
    Stage.NOISE_INDEPENDENCE: "noise that is repeated on resume, in each epoch, or "
    "within a tensor",
    Stage.ACCOUNTING: "steps or a sampling rate missing from the accountant",
    Stage.SIDE_PATHS: "a buffer, a weight or a second optimizer that {record}s change "
    "without noise",
    Stage.RELEASED_MODEL: "a model that {record}s change after the last step",
}


def stage_name(stage: Stage, terms: Terms) -> str:
    """Return the name of a stage."""
    return _NAMES[stage].format(
        batch=terms.batch, per_record_gradients=terms.per_record_gradients
    )


def stage_faults(stage: Stage, terms: Terms) -> str:
    """Return what commonly goes wrong at a stage."""
    return _FAULTS[stage].format(record=terms.record)


def never_seen(terms: Terms) -> str:
    """Return the faults that cannot be detected from inside a run.

    docs/explanation/assumptions.md describes what would detect them.
    """
    return (
        f"preprocessing {terms.elsewhere}, {terms.accounts}, choices made by looking "
        "at the data, logs, release of another model, training before the audit began"
    )


def detects(factor: float) -> str:
    """Return the smallest fault of the noise that would be detected."""
    smallest = ceil(100 * factor) / 100
    return f"{POWER:.0%} power to detect noise {smallest:.2f}x too small".replace(
        "%", " %"
    )


def detection_unknown(reason: str) -> str:
    """Return the statement that the power to detect noise faults is not known."""
    return f"the power to detect noise that is too small is not known: {reason}"


def _not_known(v: Values) -> str:
    return detection_unknown(rendered(SENTENCES[v.why], v))


def _accuracy(v: Values) -> str:
    return (
        f"guesses that are correct {ceil(1000 * v.accuracy) / 10:g} % of the time "
        f"would refute the claim with probability {POWER:g}; a program that leaks "
        f"epsilon = {ceil(100 * v.epsilon) / 100:.2f} of every canary allows such "
        "guesses; smaller faults may go undetected"
    )


def _leak(v: Values) -> str:
    return (
        f"a program that leaks epsilon = {ceil(100 * v.epsilon) / 100:.2f} of every "
        f"canary would be refuted with probability about {POWER:g}; smaller faults may "
        "go undetected"
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
    "canaries.records_would": "canaries that are {record}s check it (with_canaries)",
    "canaries.records_would_on_ranks": "on several ranks, canaries that are {record}s "
    "would",
    "noise.sharded": "parameters are sharded, so that no rank holds the sum",
    "noise.half_precision": "each process rounds its sums to half precision by an "
    "unknown amount, so that noise cannot be distinguished from rounding; keep "
    "parameters in float32 and use autocast",
    "noise.kept_inside": "the strategy keeps what it adds to itself",
    "side_paths.model_only": "an audit sees the model that the strategy returns; "
    "metrics, single replies and secure aggregation, which the server's sum stands in "
    "for, are not among it",
    "side_paths.users_sum_only": "an audit sees the noisy sum, and not metrics of "
    "users, nor what else leaves beside it",
    "aggregation.single": "one process, no accumulation",
    "stage.never_checked": "this kind of audit does not check it",
    "stage.not_recorded": "the record does not state it",
    "probe.offered": "audit.probe(...) checks it",
    "call.offered": "{call} checks it",
    "call.offered_for_sums": "{call} checks it, if canaries are added to sums",
    "sums.every_step": "canaries join every step, as the claim allows every {record} "
    "to",
    "sums.batches_would": "canaries are added to sums, which are made after it; {call} "
    "checks it",
    "sums.made_after": "canaries are added to sums, which are made after it",
    "sums.nothing_else": "the audit sees only the sums that it is given; {call} "
    "checks it",
    "records.pass": "canaries are {record}s, and pass it as {record}s do",
    "records.pass_clipping": _pass_clipping,
    "records.none_above": "none is above the norm, so that nothing shows whether "
    "{record}s are cut",
    "records.norm_unknown": "the clipping norm could not be read, so that it is not "
    "known whether any canary is above it",
    "canaries": "tested with canaries",
    "canaries.detect": lambda v: detects(v.factor),
    "canaries.hardly": "hardly any power: not even noise 32x too small would be "
    f"refuted with probability {POWER:g}",
    "canaries.not_known": _not_known,
    "detectable.accuracy": _accuracy,
    "detectable.leak": _leak,
    "detectable.hardly": "hardly any power: not even guesses that are almost always "
    f"correct would refute the claim with probability {POWER:g}",
    "forecast.hidden": "real gradients hid {hidden:.0%} of the evidence",
    "forecast.not_recorded": "the record does not state how the run was configured",
    "forecast.not_stated": "the record does not state it",
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
