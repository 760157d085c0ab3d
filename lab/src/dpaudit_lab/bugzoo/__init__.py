"""Bugs of DP-SGD, planted in real Opacus; needs the extra ``opacus``."""

from dpaudit_lab.bugzoo.auditing import CAUGHT, Outcome, audit_bug, default_audit
from dpaudit_lab.bugzoo.bug import Bug
from dpaudit_lab.bugzoo.zoo import BUGS

__all__ = ["BUGS", "CAUGHT", "Bug", "Outcome", "audit_bug", "default_audit"]
