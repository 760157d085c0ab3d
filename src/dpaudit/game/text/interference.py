"""Sentences about what depends on records other than through the noisy sums."""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.terms import FaultText, Template, Values, counted

__all__ = ["FAULTS", "SENTENCES"]

_HOW: Final = {
    "exchanged": "half of the {record}s exchanged",
    "largest": "the {record} with the largest gradient in everybody's place",
    "smallest": "the {record} with the smallest gradient in everybody's place",
    "half largest": "the {record} with the largest gradient in half of the places",
    "half smallest": "the {record} with the smallest gradient in half of the places",
    "others": "other {record}s",
    "mixed": "{record}s put together of two",
    "one": "one {record} in everybody's place",
    "other": "one {record} in everybody's place",
    "fewer": "one {record} fewer",
}
_BACK: Final = {
    "controls": "the next step's learning rate, clipping norm or noise",
    "sum": "the next step's sum before noise",
    "left": "what the next step leaves",
}


def _how(v: Values) -> str:
    return f"with {_HOW[v.kind].format(record=v.record)}, where noisy sums were equal"


def _held_cause(v: Values) -> str:
    if v.kind == "fewer":
        return f"something that is divided by, or counts, the {v.record}s of the batch"
    return (
        f"something that is computed from {v.record}s, their gradients or their loss, "
        "and is not given noise"
    )


def _paths(v: Values) -> str:
    more = f" and {v.more} more" if v.more else ""
    return ", ".join(v.subject) + more


def _back(v: Values) -> str:
    by = f", by {_paths(v)}" if v.subject else ""
    return f"{_BACK[v.by]} depends on the {v.record}s of the step before{by}"


def _loop(v: Values) -> str:
    names = f" ({', '.join(v.subject)})" if v.subject else ""
    return {
        "weights": f"weights{names} at step {v.step} of the loop depend",
        "controls": f"learning rate, clipping norm or noise at step {v.step} of the "
        "loop depends",
        "steps": f"whether the loop makes step {v.step} depends",
        "bare": f"what a step of the wrapped optimizer without noise leaves{names}, "
        f"after step {v.step} of the loop, depends",
        "bare_steps": "whether the loop makes a step of the wrapped optimizer without "
        f"noise after step {v.step} depends",
        "end": f"which weights{names} the loop leaves at its end depends",
    }[v.what] + f" on {v.record}s"


def _rehearsed(v: Values) -> str:
    bare = f", and {counted(v.bare, 'step')} without noise," if v.bare else ""
    end = " to its end" if v.whole else ""
    return (
        f"the loop was played for {v.steps} steps{bare}{end} on other {v.record}s with "
        "noisy sums made equal"
    )


def _past_noise(v: Values) -> str:
    steps = f", though at no step of {v.step}" if v.what == "end" else ""
    return f"{_loop(v)} past the noise{steps}"


def _loop_cause(v: Values) -> str:
    if v.what == "end":
        return (
            f"which of the weights are released goes by {v.record}s or their loss (a "
            "best checkpoint, an early stop that goes back, a chosen average), or "
            "something is written after the last step"
        )
    if v.what == "bare":
        return f"it is made on {v.record}s; such steps may be made on public data alone"
    return (
        f"a loop that reads {v.record}s, their loss or their gradients: a "
        "scheduler, a best checkpoint, an early stop"
    )


SENTENCES: Final[Mapping[str, Template]] = {
    "interference.compared": "the step was run on {batches} batches with noisy sums "
    "made equal: {compared} reachable values were compared, and a second step",
    "interference.again": "compared again at {checks} secret steps, the last after "
    "{last}",
    "interference.update_compared": lambda v: (
        f"{v.ran} was run on {v.batches} batches of other {v.record}s, one of them "
        f"with one {v.record} fewer, and one noisy sum: {counted(v.compared, 'value')} "
        "that it left were compared"
    ),
    "interference.update_varies": lambda v: (
        f"{v.ran} leaves other values for the same {v.record}s and noisy sum "
        f"({_paths(v)}); let it begin from the same state and draw the same random "
        "numbers in each call"
    ),
    "interference.update_ignores": "what {ran} returned does not depend on the noisy "
    "sum, so that it is not what the step leaves",
    "interference.update_not_reached": "{ran} did not call the update of the wrapped "
    "privatizer",
    "interference.kept": lambda v: (
        f"{_paths(v)} keeps what depends on {v.record}s without noise; it does not "
        "come back into training, and must not be released"
    ),
    "interference.drawn": lambda v: (
        f"how many random numbers the step draws depends on its {v.record}s"
    ),
    "interference.noised": lambda v: (
        f"{_paths(v)} depends on {v.record}s, and on random numbers besides: whether "
        "they are noise enough, and accounted for, was not checked"
    ),
    "interference.noised_back": lambda v: (
        f"{_back(v)}, and on random numbers besides: whether they are noise enough, "
        "and accounted for, was not checked"
    ),
    "interference.failed": "the step could not be compared on batches of other "
    "{record}s ({error})",
    "interference.no_update": "the step made no update of the private optimizer",
    "interference.few": "batches of other {record}s need 6 {record}s or more, and "
    "there are {count}",
    "interference.platform": "comparing the step on other {record}s copies the "
    "process, which only Linux can do here",
    "interference.accelerator": "comparing the step on other {record}s copies the "
    "process, which cannot be done once an accelerator is in use",
    "interference.jax": "comparing the step on other {record}s copies the process, "
    "which cannot be done once JAX is in use",
    "interference.not_again": "a check of the step after step {step} could not be made",
    "rehearsal.compared": _rehearsed,
    "rehearsal.bare": lambda v: (
        f"{counted(v.steps, 'step')} of the wrapped optimizer without noise were "
        "passed over: a rehearsal of the loop compared what such steps leave"
    ),
    "rehearsal.noised": lambda v: (
        f"{_loop(v)}, and on random numbers besides: whether they are noise enough, "
        "and accounted for, was not checked"
    ),
    "rehearsal.failed": "the loop could not be played on other {record}s ({error})",
    "rehearsal.differs_by_itself": "the loop does not repeat itself with the same "
    "random seeds, so it was not compared on other {record}s",
    "released.as_left": "as the last of {steps} steps left it",
    "released.would": "audit.after_step(parameters) after each step and "
    "finish(released=parameters) compare it with what the last step left",
    "released.differs": lambda v: (
        f"it differs from what the last step left, in {_paths(v)}"
    ),
    "released.not_as_left": lambda v: (
        f"the released model differs from what the last step left, in {_paths(v)}, and "
        f"whether {v.record}s decide it was not checked; release what the last step "
        "left, or hand over after each step what is to be released, such as a mean"
    ),
    "released.alike": lambda v: (
        f"{', '.join(v.subject[:4])} changed after the last step, alike whatever the "
        f"{v.record}s in a rehearsal of the loop"
    ),
    "released.changed": lambda v: (
        f"{', '.join(v.subject[:4])} changed after the last step: "
        "audit_opacus(..., train=train) checks it"
    ),
}
FAULTS: Final[Mapping[str, FaultText]] = {
    "interference.held": FaultText(
        what=lambda v: f"{_paths(v)} depends on {v.record}s past the noise",
        measured=lambda v: f"another value {_how(v)}",
        expected="the same value",
        cause=_held_cause,
    ),
    "interference.back": FaultText(
        what=_back,
        measured=lambda v: f"another value {_how(v)}",
        expected="the same value",
        cause="what a step keeps of its {record}s, and a later one uses",
    ),
    "interference.coupled": FaultText(
        what="the gradient of a {record} depends on other {record}s of its batch, so "
        "that the proof of privacy does not hold",
        measured="other gradients of {lost} of {kept} {record}s once others of the "
        "batch were exchanged or left out",
        expected="the same gradients",
        cause="{record}s of a batch meet: its statistics, {record}s that are mixed, "
        "weights or a loss over all of them",
    ),
    "interference.steps": FaultText(
        what="whether a step is made depends on its {record}s",
        measured=lambda v: f"another number of updates {_how(v)}",
        expected="the same number",
        cause="a step that is skipped for its loss, its gradients or their number",
    ),
    "interference.fails": FaultText(
        what="whether the next step fails depends on {record}s",
        measured=lambda v: f"it fails or not {_how(v)}",
        expected="the same",
        cause="what a step keeps of its {record}s, and a later one uses",
    ),
    "rehearsal.decided": FaultText(
        what=_past_noise,
        measured=lambda v: f"another value {_how(v)}",
        expected="the same value",
        cause=_loop_cause,
    ),
}
