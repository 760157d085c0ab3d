"""The default audit with a probe: what it says of faults that it was not made for.

Trainings are smaller than in the zoo, and seeds are fixed. That the audit finds a fault
where there is none has a chance of one in ten thousand.
"""

from dataclasses import replace

import pytest
import torch

from dpaudit.errors import InvalidInputError
from dpaudit.game.design import Design
from dpaudit.game.findings import Stage
from dpaudit.game.rules import OneRun
from dpaudit.game.text.findings import fault_parts
from dpaudit.game.verdict import Verdict
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit_lab.bugzoo import BUGS, default_audit
from dpaudit_lab.bugzoo.newcomers import NEWCOMERS

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning"),
]

DESIGN = Design(  # which takes no time to plan
    canaries=500,
    rules=OneRun(guesses=100),
    claim=ApproxDP(epsilon=2.0, delta=1e-5),
)
SEEN = {
    "no-clipping": (Stage.CLIPPING, "no clipping"),
    "norm-without-layer": (Stage.CLIPPING, "without '2'"),
    "clipped-to-larger-norm": (Stage.CLIPPING, "clipping to 2 C"),
    "layer-after-clipping": (Stage.CLIPPING, "without '2'"),
    "tied-head-ghost": (Stage.CLIPPING, "shares its weights"),
    "mixup": (Stage.GRADIENTS, "mixing"),
    "batch-statistics": (Stage.GRADIENTS, "statistics"),
    "loss-over-tokens": (Stage.GRADIENTS, "tokens"),
    "mean-told-as-sum": (Stage.AGGREGATION, "loss_reduction"),
    "second-optimizer": (Stage.SIDE_PATHS, "second optimizer"),
    "statistic-in-buffer": (Stage.SIDE_PATHS, "statistic"),
    "update-beside-optimizer": (Stage.SIDE_PATHS, "beside"),
    "noise-again-on-resume": (Stage.NOISE_INDEPENDENCE, "resume"),
    "noise-again-each-epoch": (Stage.NOISE_INDEPENDENCE, "epoch"),
    "noise-broadcast": (Stage.NOISE_INDEPENDENCE, "broadcast"),
    "noise-same-for-parameters": (Stage.NOISE_INDEPENDENCE, "several parameters"),
    "noise-uniform": (Stage.NOISE_SCALE, "lighter tails"),
    "noise-laplace": (Stage.NOISE_SCALE, "heavier tails"),
    "same-batches-each-epoch": (Stage.SAMPLING, "seeded anew"),
    "fixed-size-in-poisson": (Stage.SAMPLING, "fixed size"),
}


# One of each stage and mode; all of them: lab/measure/bugzoo.py --default.
SMALL = (
    "no-clipping",
    "tied-head-ghost",
    "mixup",
    "mean-told-as-sum",
    "second-optimizer",
    "noise-again-on-resume",
    "noise-laplace",
    "same-batches-each-epoch",
)


def small(bug):
    """The bug in a training of 60 steps, and so small as it can be seen in."""
    setting = replace(bug.setting, steps=60, records=200)
    if len(setting.widths) == 2:
        setting = replace(setting, widths=(20, 30))
    return replace(bug, setting=setting)


def test_there_is_a_case_for_each_of_them():
    assert list(SEEN) == [bug.name for bug in NEWCOMERS]


@pytest.mark.parametrize("name", SMALL)
def test_a_fault_is_found_on_its_road_and_its_cause_is_named(name):
    stage, word = SEEN[name]
    found = default_audit(small(BUGS[name]), 7, DESIGN)
    assert found.verdict is Verdict.FAULT_FOUND
    causes = {fault.stage: fault_parts(fault)[3] for fault in found.faults}
    assert word in causes[stage]
    assert BUGS[name].stage is stage


def test_the_honest_training_has_no_fault():
    honest = replace(small(BUGS["no-clipping"]), plant=lambda run: None)
    found = default_audit(honest, 1, DESIGN)
    assert found.faults == ()
    assert found.verdict is Verdict.NO_VIOLATION_DETECTED


def test_a_loader_that_shuffles_is_refused():
    with pytest.raises(InvalidInputError, match="must be the Poisson loader"):
        default_audit(BUGS["shuffled-as-poisson"], 7, DESIGN)


def test_bugs_of_two_ranks_are_none_of_its_business():
    with pytest.raises(InvalidInputError, match="needs two ranks"):
        default_audit(BUGS["noise-after-reduce"], seed=7)
