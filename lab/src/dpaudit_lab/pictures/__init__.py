"""Charts of the studies, drawn by matplotlib: a ``Chart`` is a value, drawn to a file.

``Point``, ``mean_point`` and ``median_point`` are what its curves go through, ``Look``
how they are drawn; ``Limit`` and ``Mark`` are what they are held against.
"""

from dpaudit import _lazy

__getattr__, __dir__, __all__ = _lazy.names_of(__name__, __file__)
