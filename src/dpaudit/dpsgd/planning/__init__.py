"""Plans audits of DP-SGD: chooses their parameters and forecasts their bounds."""

from dpaudit.dpsgd.planning.candidates import Purpose
from dpaudit.dpsgd.planning.choice import plan_audit
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.dpsgd.planning.sizes import canaries_needed
from dpaudit.dpsgd.planning.training import TrainingSetup

__all__ = ["Plan", "Purpose", "TrainingSetup", "canaries_needed", "plan_audit"]
