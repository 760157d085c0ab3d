"""Sentences about sensitivity probes, and about paths around the noisy sum."""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.terms import FaultText, Template, Values, first_of, rendered

__all__ = ["FAULTS", "SENTENCES"]

_NAMED: Final = 6  # parameters in one sentence
_ROUNDING: Final = 1e-3  # of the clipping norm


def _clipped(v: Values) -> str:
    large = "made large enough" if v.enlarged else "large enough"
    return (
        f"{v.records} {v.record}s through the user's own {v.ran} without noise: one "
        f"changes the sum by at most {v.change:.4g} C (C is the clipping norm); "
        f"{v.clipped:.0%} of them {large} to be clipped"
    )


def _exchanged(v: Values) -> str:
    if v.coupling <= _ROUNDING:
        return f"swapping one {v.record} leaves the others' clipped gradients unchanged"
    return (
        f"swapping one {v.record} changes the others' clipped gradients by "
        f"{v.coupling:.2g} C"
    )


def _unseen(v: Values) -> str:
    return f"the sensitivity probe could not run: {rendered(SENTENCES[v.why], v)}"


def _size_measured(v: Values) -> str:
    match v.cause:
        case "loss_reduction" if v.removal:
            return f"a change of {v.removal:.4g} C when a {v.record} is taken out"
        case "loss_reduction":
            return f"norms that differ with the number of {v.record}s beside them"
    return (
        f"a change of {v.together:.3g} C once another is left out, and of "
        f"{v.change:.3g} C when a {v.record} leaves"
    )


def _together(v: Values) -> str:
    one_norm = ", and sums of one norm" if v.one_norm else ""
    return f"a change of {v.together:.3g} C once another is left out{one_norm}"


def _coupling(v: Values) -> str:
    norm = "" if v.cause == "meet" else ", the clipping norm,"
    return f"a change of {v.coupling:.3g} C{norm} when another {v.record} was exchanged"


def _side_paths(v: Values) -> str:
    changes = "nothing but the private optimizer changed"
    if v.changed:
        changes = f"these changed as well: {', '.join(v.subject[: v.changed])}"
    if late := v.subject[v.changed :]:
        changes += f"; after the last step: {first_of(late, _NAMED)}"
    if v.private_steps:
        changes += (
            f"; another private optimizer made {v.private_steps} steps, which this "
            "audit does not cover"
        )
    rest = f" ({v.not_trained:,} numbers of which are not trained)"
    return (
        f"parameters{rest if v.not_trained else ''}, buffers and other optimizers, "
        f"over {v.steps} steps: {changes}; what is logged or printed is not seen"
    )


SENTENCES: Final[Mapping[str, Template]] = {
    "probe.exchanged": _exchanged,
    "probe.clipped": _clipped,
    "probe.taken_out": "each of {records} {record}s was removed from the batch: the "
    "sum changes by at most {change:.4g} C (the {ran} makes more or fewer gradients "
    "than there are {record}s)",
    "probe.none_reached": "none of {records} {record}s reached the clipping norm, "
    "however large the loss (at most {change:.4g} C): {record}s are clipped to less, "
    "or lost before the sum",
    "probe.none_large": "none of {records} probed {record}s was large enough to be "
    "clipped; use {ran}(batch, scale=...) or larger {record}s",
    "probe.reworked": "the step changes noisy sums before it applies them; they were "
    "read as they were when Opacus had added the noise",
    "probe.again": "repeated at {checks} secret steps, the last after step {last}: one "
    "{record} changes the sum by at most {change:.4g} C",
    "probe.of_many": "after clipping, each of {records} {record}s with large gradients "
    "has a norm of at most {change:.4g} C",
    "probe.unseen": _unseen,
    "probe.would_step": "audit_opacus(..., step=step) or audit.probe(step) checks it",
    "probe.would_with_model": "OpacusAudit(..., model=model) with audit.probe(step) "
    "checks it",
    "probe.would_users": "audit.probe() checks it",
    "probe.not_repeated": "it does not repeat itself with the same random seeds",
    "probe.sum_not_repeated": "it does not repeat itself; let it draw the same random "
    "numbers in each call",
    "probe.no_gradients": "gradients of these {record}s are zero or not finite",
    "probe.rows_not_records": "it makes more or fewer gradients than there are "
    "{record}s, and draws random numbers for them",
    "probe.skipped": "it makes a step for some {record}s and none for others",
    "probe.no_step": "a call of it makes no step of the private optimizer",
    "probe.rows_moved": "it puts the {record}s of a batch in another order",
    "probe.nothing_put_in": "these {record}s put nothing into the sum",
    "probe.not_finite": "the sum of these {record}s is not finite",
    "probe.order_matters": "the sum depends on the order of its {record}s, as where "
    "random numbers go by row; let clipped_sum take keep, which marks the rows that "
    "count",
    "probe.not_aggregated": "a copy of the strategy did not aggregate ({error})",
    "side_paths.would": "OpacusAudit(..., model=model) checks it",
    "side_paths.watched": _side_paths,
    "side_paths.not_finite": lambda v: (
        f"{first_of(v.subject, _NAMED)} hold NaN or infinity at the end of training, "
        f"which has diverged: lower the learning rate, or search for {v.record}s that "
        "are not finite, and train again"
    ),
    "side_paths.late": lambda v: (
        f"{first_of(v.subject, _NAMED)} changed after the last step of the private "
        f"optimizer, and whether {v.record}s decide it was not checked; call finish() "
        "before anything changes the model, and release that model"
    ),
    "side_paths.not_probed": lambda v: (
        f"{v.subject[0]} changed {v.times} times beside the private optimizer, and "
        f"whether {v.record}s decide it was not checked (use audit.probe(step) with a "
        "step that does it)"
    ),
}
_NO_NORM: Final = "norms that are not those of the gradients"
FAULTS: Final[Mapping[str, FaultText]] = {
    "probe.too_large": FaultText(
        what="one {record} changes the sum by more than the clipping norm C",
        measured="up to {change:.3g} C",
        expected="at most C",
        cause={
            "not_finite": "gradients that are not finite once they are large",
            "other_norm": "clipping to {norm:.4g} C instead of C",
            "not_clipped": "no clipping of {record}s",
            "one_factor": "one factor for all {record}s: the batch is clipped, and not "
            "each {record}",
            "clipped_or_divided": "the batch is clipped, or divided by its size, and "
            "not each {record}",
            "norm_without": "norms that are computed without {names}",
            "part_not_clipped": "{names} is not clipped",
            "other_norms": f"{_NO_NORM}, most of all in {{names}}",
            "shared_layer": f"{_NO_NORM}, most of all in {{names}}: a layer that is "
            "used twice or shares its weights, under ghost clipping?",
            "no_clipping_or_norms": f"no clipping of {{record}}s, or {_NO_NORM}",
        },
    ),
    "probe.depends_on_others": FaultText(
        what="what a {record} puts into the sum depends on the others in it, so that "
        "one may change it by more than the clipping norm C",
        measured=_together,
        expected="none",
        cause={
            "clipped": "the batch is clipped, and not each {record}",
            "clipped_or_divided": "the batch is clipped, or divided by its size, and "
            "not each {record}",
        },
    ),
    "probe.skips": FaultText(
        what="whether a step is made depends on its {record}s",
        measured="a step for some {record}s, and none for others or larger gradients",
        expected="a step whatever the {record}s",
        cause="a step that is skipped for its loss, its gradients or their number",
    ),
    "probe.leaving": FaultText(
        what="one {record} changes the sum by more than the clipping norm C",
        measured="up to {change:.3g} C when a {record} is taken out of the batch, of "
        "whose {records} {record}s the step makes {rows} gradients",
        expected="at most C",
        cause="views, copies or parts of a {record} that are clipped one by one",
    ),
    "probe.overflow": FaultText(
        what="{record}s with a large gradient leave a sum that is no number",
        measured=lambda v: (
            "a sum that is not finite, of gradients that are"
            if v.cause == "step"
            else "a sum that is not finite once the loss is multiplied"
        ),
        expected="at most C",
        cause={
            "step": "clipping in half precision, in which a large gradient is infinite",
            "sum": "norms or gradients in half precision, in which a large one is "
            "infinite",
        },
    ),
    "probe.no_number": FaultText(
        what="one {record} leaves a sum that is no number",
        measured="a sum that is not finite, and finite without row {row} of the batch",
        expected="at most C",
        cause="gradients that are not finite are passed on; they must be set to zero "
        "before they are clipped",
    ),
    "probe.coupled": FaultText(
        what="what a {record} puts into the sum depends on other {record}s, so that "
        "the proof of privacy does not hold",
        measured=_coupling,
        expected="none",
        cause={
            "meet": "{record}s of a batch meet: its statistics, {record}s that are "
            "mixed, a loss or a norm over all of them",
            "collated": "what the collator makes of a batch, such as padding to its "
            "longest {record}, which the loss or the model counts",
            "before": "what happens to a batch before {names}, such as mixing its "
            "{record}s, or scaling them by a mean or spread of the batch",
            "inside": "{names}, in which {record}s of a batch meet",
            "loss": "the loss, in which {record}s of a batch meet (a mean over all "
            "their tokens?)",
        },
    ),
    "probe.size": FaultText(
        what="what a {record} puts into the sum depends on the size of the batch",
        measured=_size_measured,
        expected="the same beside any number of {record}s",
        cause={
            "loss_reduction": "a mean loss for which Opacus was configured with a sum, "
            "or the reverse (loss_reduction)",
            "divided": "a sum that is divided by the number of {record}s in its batch, "
            "and not by a fixed number",
            "counted": "something that is computed from how many {record}s there are, "
            "or a batch that is clipped as one",
        },
    ),
    "probe.not_noised": FaultText(
        what="{names} depends on the {record}s and is given no noise",
        measured="another value once one {record} was exchanged",
        expected="the same value",
        cause="a statistic of {record}s that is kept in a buffer, or a parameter that "
        "is changed beside the private optimizer",
    ),
    "side_paths.optimizer": FaultText(
        what=lambda v: (
            f"another optimizer ({v.subject[0]}) steps beside the private one"
            + (f", {v.steps} times" if v.steps else "")
        ),
        measured="parameters that {record}s decide without noise",
        expected="none",
        cause="a second optimizer on gradients of the same {record}s",
    ),
    "probe.many": FaultText(
        what="clipping leaves more than the clipping norm C of a {record}",
        measured="up to {change:.4g} C of one of {records} {record}s",
        expected="at most C",
        cause="weights or exceptions that are applied once {record}s are clipped",
    ),
    "probe.example": FaultText(
        what="one {record} puts more than the clipping norm into the sum",
        measured="{change:.4g} C by an example alone",
        expected="at most C",
        cause="gradients are clipped by other norms than their own, or not at all",
    ),
    "probe.weighed_by_examples": FaultText(
        what="a client of many examples changes the mean by more than noise is for",
        measured="one of {many} examples among {others} of {few}: {times:.3g} times "
        "the clipping norm over the number of clients",
        expected="1 time at most",
        cause="clients are weighed by their number of examples, noise is for equal "
        "weights",
    ),
    "probe.weighed_after": FaultText(
        what="a user's weight multiplies its update after it was clipped",
        measured="a user of {points} data points changes the sum by {many:.4g} "
        "clipping bounds, one of 1 by {few:.4g}",
        expected="at most 1 of either",
        cause="a weighting postprocessor that stands after the privacy mechanism",
    ),
}
