"""Audit differential privacy from one run."""

from dpaudit.bounds.bound import Bound, ClaimTest, LowerBound
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.reads import Counts
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design, ThreatModel
from dpaudit.game.referee import Referee
from dpaudit.game.result import AuditResult
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.guarantees import ApproxDP

__all__ = [
    "ApproxDP",
    "AuditResult",
    "Bound",
    "ClaimTest",
    "Coins",
    "Commitment",
    "Counts",
    "Design",
    "Exact",
    "Key",
    "LowerBound",
    "Referee",
    "ThreatModel",
    "Transcript",
]
