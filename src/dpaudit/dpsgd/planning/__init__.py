"""Audits of DP-SGD before they are made: what to fix, and what to expect."""

from dpaudit.dpsgd.planning.candidates import Purpose
from dpaudit.dpsgd.planning.choice import plan_audit
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.dpsgd.planning.sizes import canaries_needed
from dpaudit.dpsgd.planning.training import TrainingSetup

__all__ = ["Plan", "Purpose", "TrainingSetup", "canaries_needed", "plan_audit"]
