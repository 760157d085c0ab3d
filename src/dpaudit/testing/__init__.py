"""Test other people's code: audits of functions, and conformance checks."""

from dpaudit.errors import ConformanceError
from dpaudit.testing.conformance_adapter import Adapter, Trained, check_adapter
from dpaudit.testing.conformance_bound import HasEpsilonLower, check_bound
from dpaudit.testing.conformance_games import (
    ClassedGame,
    ClassicGame,
    Conformance,
    CountedGame,
    Game,
    RankedGame,
)
from dpaudit.testing.conformance_guesser import check_guesser
from dpaudit.testing.functions import (
    Calls,
    FunctionResult,
    OneRecord,
    OneValue,
    Seconds,
    audit_function,
)
from dpaudit.testing.keys import fixed_key

__all__ = [
    "Adapter",
    "Calls",
    "ClassedGame",
    "ClassicGame",
    "Conformance",
    "ConformanceError",
    "CountedGame",
    "FunctionResult",
    "Game",
    "HasEpsilonLower",
    "OneRecord",
    "OneValue",
    "RankedGame",
    "Seconds",
    "Trained",
    "audit_function",
    "check_adapter",
    "check_bound",
    "check_guesser",
    "fixed_key",
]
