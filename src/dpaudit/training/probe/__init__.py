"""How much one record changes a clipped sum: the questions, and the report of answers.

``probe_sum`` asks them of a function that computes the sum of chosen records. Whatever
else can compute such sums is a ``StepRunner``, and ``Questions`` asks it.
"""

from dpaudit.training.probe.clipped_sum import ClippedSum, probe_sum
from dpaudit.training.probe.engine import Measured, Question, Questions, StepRunner
from dpaudit.training.probe.report import Sensitivity
from dpaudit.training.probe.trees import Tree, named_leaves

__all__ = [
    "ClippedSum",
    "Measured",
    "Question",
    "Questions",
    "Sensitivity",
    "StepRunner",
    "Tree",
    "named_leaves",
    "probe_sum",
]
