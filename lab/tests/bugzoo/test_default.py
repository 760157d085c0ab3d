"""The default audit with a probe: what it says of faults that it was not made for.

Trainings are smaller than in the zoo, and seeds are fixed. That the audit finds a fault
where there is none has a chance of one in ten thousand.
"""

from dataclasses import replace

import pytest
import torch

from dpaudit.errors import InvalidInputError
from dpaudit.game.design import Design
from dpaudit.game.ledger import Road
from dpaudit.game.rules import OneRun
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
    "no-clipping": (Road.CLIPPING, "no clipping"),
    "norm-without-layer": (Road.CLIPPING, "without '2'"),
    "clipped-to-larger-norm": (Road.CLIPPING, "clipping to 2 C"),
    "layer-after-clipping": (Road.CLIPPING, "without '2'"),
    "tied-head-ghost": (Road.CLIPPING, "shares its weights"),
    "mixup": (Road.GRADIENTS, "mixing"),
    "batch-statistics": (Road.GRADIENTS, "statistics"),
    "loss-over-tokens": (Road.GRADIENTS, "tokens"),
    "mean-told-as-sum": (Road.ADDING, "loss_reduction"),
    "second-optimizer": (Road.OTHER_WAYS, "second optimizer"),
    "statistic-in-buffer": (Road.OTHER_WAYS, "statistic"),
    "update-beside-optimizer": (Road.OTHER_WAYS, "beside"),
    "noise-again-on-resume": (Road.INDEPENDENCE, "resume"),
    "noise-again-each-epoch": (Road.INDEPENDENCE, "epoch"),
    "noise-broadcast": (Road.INDEPENDENCE, "broadcast"),
    "noise-same-for-parameters": (Road.INDEPENDENCE, "several parameters"),
    "noise-uniform": (Road.NOISE, "lighter tails"),
    "noise-laplace": (Road.NOISE, "heavier tails"),
    "same-batches-each-epoch": (Road.SAMPLING, "seeded anew"),
    "fixed-size-in-poisson": (Road.SAMPLING, "fixed size"),
}


# One of each road and mode; all of them: lab/measure/bugzoo.py --default.
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
    road, word = SEEN[name]
    found = default_audit(small(BUGS[name]), 7, DESIGN)
    assert found.verdict is Verdict.FAULT_FOUND
    causes = {fault.road: fault.cause for fault in found.faults}
    assert word in causes[road]
    assert BUGS[name].road is road


def test_the_honest_training_has_no_fault():
    honest = replace(small(BUGS["no-clipping"]), plant=lambda run: None)
    found = default_audit(honest, 1, DESIGN)
    assert found.faults == ()
    assert found.verdict is Verdict.NO_VIOLATION_FOUND


def test_a_loader_that_shuffles_is_refused():
    with pytest.raises(InvalidInputError, match="must be the Poisson loader"):
        default_audit(BUGS["shuffled-as-poisson"], 7, DESIGN)


def test_bugs_of_two_ranks_are_none_of_its_business():
    with pytest.raises(InvalidInputError, match="needs two ranks"):
        default_audit(BUGS["noise-after-reduce"], seed=7)
