"""Sensitivity probes: how much does one record change a clipped sum?

``probe_sum`` probes a function that computes the sum of chosen records. Any other
source of such sums implements ``StepRunner`` and is probed by ``Questions``.
``probe_update`` tests whether what comes after the noise depends on records otherwise.
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
