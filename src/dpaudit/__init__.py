"""Audit differential privacy from one run."""

from dpaudit.bounds.bound import ClaimTest, LowerBound, ParameterBound
from dpaudit.bounds.certificate import CurveCertificate
from dpaudit.bounds.claims import test_claim
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.ranked import RankedLooks
from dpaudit.bounds.reads import Bets, Counts, Ranked, Rounds, Weighted
from dpaudit.game.adaptive import audit_adaptive
from dpaudit.game.adaptive_guesser import AdaptiveMostLikely
from dpaudit.game.classic import audit_classic
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design, ThreatModel
from dpaudit.game.guessers import (
    Confident,
    Everyone,
    Extremes,
    MostLikely,
    Submission,
)
from dpaudit.game.one_run import audit_one_run
from dpaudit.game.pairs import Pairs
from dpaudit.game.referee import Referee
from dpaudit.game.result import AuditResult
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    Classes,
    OneRun,
    Ranking,
)
from dpaudit.game.scores import audit_scores
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.curve import PrivacyCurve
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP, PureDP

__all__ = [
    "AdaptiveBets",
    "AdaptiveClasses",
    "AdaptiveCount",
    "AdaptiveMostLikely",
    "AdaptiveRounds",
    "ApproxDP",
    "AuditResult",
    "Bets",
    "ClaimTest",
    "Classes",
    "Coins",
    "Commitment",
    "Confident",
    "Counts",
    "CurveCertificate",
    "Design",
    "Everyone",
    "Exact",
    "Extremes",
    "GaussianDP",
    "Key",
    "LowerBound",
    "MostLikely",
    "OneRun",
    "Pairs",
    "ParameterBound",
    "PrivacyCurve",
    "PureDP",
    "Ranked",
    "RankedLooks",
    "Ranking",
    "Referee",
    "Rounds",
    "Submission",
    "ThreatModel",
    "Transcript",
    "Weighted",
    "audit_adaptive",
    "audit_classic",
    "audit_one_run",
    "audit_scores",
    "test_claim",
]
