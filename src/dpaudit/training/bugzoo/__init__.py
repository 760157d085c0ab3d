"""Eighteen bugs of DP-SGD, planted in real Opacus; needs the extra ``opacus``."""

from dpaudit.training.bugzoo.auditing import CAUGHT, Outcome, audit_bug
from dpaudit.training.bugzoo.bug import Bug
from dpaudit.training.bugzoo.zoo import BUGS

__all__ = ["BUGS", "CAUGHT", "Bug", "Outcome", "audit_bug"]
