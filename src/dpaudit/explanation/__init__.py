"""Explanations of an audit's result, in words and numbers."""

from dpaudit.explanation.explain import explain
from dpaudit.explanation.values import Advice, Explanation, Step
from dpaudit.game.text.results import verdict

__all__ = ["Advice", "Explanation", "Step", "explain", "verdict"]
