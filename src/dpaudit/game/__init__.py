"""The game of an audit: coins, designs, rules, guessers, results."""

from dpaudit import _lazy

__getattr__, __dir__, __all__ = _lazy.names_of(__name__, __file__)
