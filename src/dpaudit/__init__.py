"""Audit differential privacy from one run.

Names are fetched from their modules when they are first used: a command that prints
its help, or a worker that runs a sweep's trials, does not wait for all of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpaudit.bounds.bound import ClaimTest, LowerBound, ParameterBound
    from dpaudit.bounds.curve import CurveCertificate
    from dpaudit.bounds.exact import Exact
    from dpaudit.bounds.methods import test_claim
    from dpaudit.bounds.ranked import RankedLooks
    from dpaudit.bounds.readings import Bets, Counts, Ranked, Rounds, Weighted
    from dpaudit.explanation.explain import explain
    from dpaudit.game.auditors import audit_adaptive, audit_classic, audit_one_run
    from dpaudit.game.coins import Coins, Key
    from dpaudit.game.design import Commitment, Design, ThreatModel
    from dpaudit.game.guessers import (
        AdaptiveMostLikely,
        Confident,
        Everyone,
        Extremes,
        MostLikely,
        Submission,
    )
    from dpaudit.game.pairs import Pairs
    from dpaudit.game.referee import Referee
    from dpaudit.game.result import Result
    from dpaudit.game.rules import (
        AdaptiveBets,
        AdaptiveClasses,
        AdaptiveCount,
        AdaptiveRounds,
        Classes,
        OneRun,
        Ranking,
        SeparateRuns,
    )
    from dpaudit.game.scores import audit_scores
    from dpaudit.game.transcript import Transcript
    from dpaudit.privacy.guarantees import ApproxDP, GaussianDP, PrivacyCurve, PureDP
    from dpaudit.reporting.report.page import report

__all__ = [
    "AdaptiveBets",
    "AdaptiveClasses",
    "AdaptiveCount",
    "AdaptiveMostLikely",
    "AdaptiveRounds",
    "ApproxDP",
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
    "Result",
    "Rounds",
    "SeparateRuns",
    "Submission",
    "ThreatModel",
    "Transcript",
    "Weighted",
    "audit_adaptive",
    "audit_classic",
    "audit_one_run",
    "audit_scores",
    "explain",
    "report",
    "test_claim",
]

# Where each name lives, as above.
_HOMES = {
    "AdaptiveBets": "dpaudit.game.rules",
    "AdaptiveClasses": "dpaudit.game.rules",
    "AdaptiveCount": "dpaudit.game.rules",
    "AdaptiveMostLikely": "dpaudit.game.guessers",
    "AdaptiveRounds": "dpaudit.game.rules",
    "ApproxDP": "dpaudit.privacy.guarantees",
    "Result": "dpaudit.game.result",
    "Bets": "dpaudit.bounds.readings",
    "ClaimTest": "dpaudit.bounds.bound",
    "Classes": "dpaudit.game.rules",
    "Coins": "dpaudit.game.coins",
    "Commitment": "dpaudit.game.design",
    "Confident": "dpaudit.game.guessers",
    "Counts": "dpaudit.bounds.readings",
    "CurveCertificate": "dpaudit.bounds.curve",
    "Design": "dpaudit.game.design",
    "Everyone": "dpaudit.game.guessers",
    "Exact": "dpaudit.bounds.exact",
    "Extremes": "dpaudit.game.guessers",
    "GaussianDP": "dpaudit.privacy.guarantees",
    "Key": "dpaudit.game.coins",
    "LowerBound": "dpaudit.bounds.bound",
    "MostLikely": "dpaudit.game.guessers",
    "OneRun": "dpaudit.game.rules",
    "Pairs": "dpaudit.game.pairs",
    "ParameterBound": "dpaudit.bounds.bound",
    "PrivacyCurve": "dpaudit.privacy.guarantees",
    "PureDP": "dpaudit.privacy.guarantees",
    "Ranked": "dpaudit.bounds.readings",
    "RankedLooks": "dpaudit.bounds.ranked",
    "Ranking": "dpaudit.game.rules",
    "Referee": "dpaudit.game.referee",
    "Rounds": "dpaudit.bounds.readings",
    "SeparateRuns": "dpaudit.game.rules",
    "Submission": "dpaudit.game.guessers",
    "ThreatModel": "dpaudit.game.design",
    "Transcript": "dpaudit.game.transcript",
    "Weighted": "dpaudit.bounds.readings",
    "audit_adaptive": "dpaudit.game.auditors",
    "audit_classic": "dpaudit.game.auditors",
    "audit_one_run": "dpaudit.game.auditors",
    "audit_scores": "dpaudit.game.scores",
    "explain": "dpaudit.explanation.explain",
    "report": "dpaudit.reporting.report.page",
    "test_claim": "dpaudit.bounds.methods",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
