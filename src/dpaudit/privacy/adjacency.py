"""Which two data sets count as neighbours.

A guarantee limits what one record can change, and "change" is one of three things.
The same mechanism has another epsilon under each of them, so a guarantee carries its
adjacency and an audit must play the game that belongs to it.
"""

from enum import StrEnum

__all__ = ["Adjacency"]


class Adjacency(StrEnum):
    """What may be done to one record to get from a data set to its neighbour.

    Attributes:
        ADD_REMOVE: The record is there or it is not.
        REPLACE_ONE: The record is replaced by any other.
        ZERO_OUT: The record is replaced by a null record that adds nothing, so the
            size of the data does not change.

    Example:
        >>> Adjacency("add-remove") is Adjacency.ADD_REMOVE
        True
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"
