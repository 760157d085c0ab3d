"""What several mechanisms share: a guarantee of nothing, and a check."""

from typing import Final

from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Records
from dpaudit.privacy.guarantees import Adjacency, ApproxDP

__all__ = ["NOTHING", "one_each"]

# What holds of every mechanism. A mechanism that says so has no privacy to lose; of one
# that has no guarantee at all nothing is known.
NOTHING: Final = ApproxDP(epsilon=0.0, delta=1.0, adjacency=Adjacency.REPLACE_ONE)


def one_each(data: Records, elements: int) -> None:
    """Check that the data hold one row per element."""
    if len(data) != elements:
        raise InvalidInputError(
            f"the mechanism was built for elements={elements}, got data of "
            f"{len(data)}; give one row per element"
        )
