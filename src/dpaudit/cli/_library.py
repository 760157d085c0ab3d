"""What commands call: names of the library, fetched when they are first used.

A command's help waits for none of it.
"""

from dpaudit._lazy import names_of

__getattr__, __dir__, __all__ = names_of(__name__, __file__)
