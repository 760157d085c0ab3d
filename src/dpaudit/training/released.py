"""Is the released model the one that the last step left? A loop hands over both.

An audit of sums never sees the model. So the loop hands over its parameters after each
step, and at the end those that are released, and they are compared bit for bit. Others
than the last step left may still be private, such as a mean of several, or not, such as
those that do best on the training data: it is not known which, and that is said.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final, final

from dpaudit import _canonical
from dpaudit.game.findings import Finding, Stage, inconclusive, inspected, not_checked
from dpaudit.training.probe import Tree, leaf_digests

__all__ = ["ReleasedModel", "digest_of_leaves", "weights_digest"]

_NAMED: Final = 4  # of what differs


def weights_digest(weights: Tree) -> str:
    """Return the SHA-256 by which a report names the audited weights.

    It is of the names, types, shapes and bits of all arrays, in any order.

    Args:
        weights: A tree of arrays, such as ``model.state_dict()`` of torch or the
            parameters of JAX.

    Example:
        >>> import numpy as np
        >>> weights_digest({"layer.weight": np.ones((2, 3), np.float32)})[:16]
        '95caae6a88378e6d'
    """
    return digest_of_leaves(leaf_digests(weights, "weights"))


def digest_of_leaves(digests: Mapping[str, str]) -> str:
    """Return the digest of arrays of which each has been digested."""
    return sha256(_canonical.text(dict(digests)).encode()).hexdigest()


@final
class ReleasedModel:
    """What the last step left, to be compared with what is released.

    Example:
        >>> import numpy as np
        >>> model = ReleasedModel()
        >>> model.after_step({"weights": np.ones(2)}, steps=1)
        >>> [each.code for each in model.findings({"weights": np.ones(2)}, steps=1)]
        ['released.as_left']
        >>> [each.code for each in model.findings({"weights": np.zeros(2)}, steps=1)]
        ['released.differs', 'released.not_as_left']
    """

    def __init__(self) -> None:
        self._left: dict[str, str] = {}
        self._steps = 0

    def after_step(self, parameters: Tree, *, steps: int) -> None:
        """Take note of what a step left.

        Args:
            parameters: A tree of arrays.
            steps: How many steps were made.
        """
        self._left, self._steps = leaf_digests(parameters, "after_step"), steps

    def findings(self, released: Tree, *, steps: int) -> Iterator[Finding]:
        """Yield whether the released parameters are those that the last step left.

        Args:
            released: A tree of arrays; None if it was not handed over.
            steps: How many steps were made.
        """
        if released is None or not self._left or self._steps != steps:
            yield not_checked(Stage.RELEASED_MODEL, "released.would")
            return
        found = leaf_digests(released, "released")
        names = self._left.keys() | found.keys()
        differ = sorted(n for n in names if self._left.get(n) != found.get(n))
        if not differ:
            whole = digest_of_leaves(found)
            yield inspected(
                Stage.RELEASED_MODEL, "released.as_left", steps=steps, sha256=whole
            )
            return
        named, more = differ[:_NAMED], max(0, len(differ) - _NAMED)
        yield not_checked(Stage.RELEASED_MODEL, "released.differs", named, more=more)
        yield inconclusive("released.not_as_left", named, more=more)
