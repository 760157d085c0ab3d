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
from dpaudit.testing.neighbours import (
    BitString,
    Booleans,
    Floats,
    Integers,
    Numbers,
    Rows,
    Strings,
    Value,
    neighbouring_pairs,
)
from dpaudit.testing.sequential import Pair, SequentialResult, audit_sequentially

__all__ = [
    "Adapter",
    "BitString",
    "Booleans",
    "Calls",
    "ClassedGame",
    "ClassicGame",
    "Conformance",
    "ConformanceError",
    "CountedGame",
    "Floats",
    "FunctionResult",
    "Game",
    "HasEpsilonLower",
    "Integers",
    "Numbers",
    "OneRecord",
    "OneValue",
    "Pair",
    "RankedGame",
    "Rows",
    "Seconds",
    "SequentialResult",
    "Strings",
    "Trained",
    "Value",
    "audit_function",
    "audit_sequentially",
    "check_adapter",
    "check_bound",
    "check_guesser",
    "fixed_key",
    "neighbouring_pairs",
]
