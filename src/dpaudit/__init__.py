"""Audit differential privacy from one run."""

from dpaudit.bounds.bound import ClaimTest, LowerBound, ParameterBound
from dpaudit.bounds.certificate import CurveCertificate
from dpaudit.bounds.claims import test_claim
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.ranked import RankedLooks
from dpaudit.bounds.reads import Bets, Counts, Ranked, Rounds, Weighted
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design, ThreatModel
from dpaudit.game.referee import Referee
from dpaudit.game.result import AuditResult
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.curve import PrivacyCurve
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP, PureDP

__all__ = [
    "ApproxDP",
    "AuditResult",
    "Bets",
    "ClaimTest",
    "Coins",
    "Commitment",
    "Counts",
    "CurveCertificate",
    "Design",
    "Exact",
    "GaussianDP",
    "Key",
    "LowerBound",
    "ParameterBound",
    "PrivacyCurve",
    "PureDP",
    "Ranked",
    "RankedLooks",
    "Referee",
    "Rounds",
    "ThreatModel",
    "Transcript",
    "Weighted",
    "test_claim",
]
