"""How much one record changes a clipped sum: the questions, and the report of answers.

``probe_sum`` asks them of a function that computes the sum of chosen records. Whatever
else can compute such sums is a ``StepRunner``, and ``Questions`` asks it.
``probe_update`` asks whether what comes after the noise depends on records besides.
"""

from dpaudit.training.probe.clipped_sum import ClippedSum, probe_sum
from dpaudit.training.probe.engine import Measured, Question, Questions, StepRunner
from dpaudit.training.probe.report import Sensitivity
from dpaudit.training.probe.trees import Tree, mapped, named_leaves
from dpaudit.training.probe.update import (
    Update,
    UpdateReport,
    leaf_digests,
    probe_update,
)

__all__ = [
    "ClippedSum",
    "Measured",
    "Question",
    "Questions",
    "Sensitivity",
    "StepRunner",
    "Tree",
    "Update",
    "UpdateReport",
    "leaf_digests",
    "mapped",
    "named_leaves",
    "probe_sum",
    "probe_update",
]
