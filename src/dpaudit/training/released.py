"""Check that the released model is the one after the last step.

An audit of sums never sees the model. So the loop passes its parameters after each
step, and at the end those that are released, and they are compared bit for bit.
Parameters that differ may still be private, such as a mean of several steps', or not,
such as those that do best on the training data: which is unknown, and the result
reports that.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final, final

from dpaudit import _canonical
from dpaudit.game.findings import Finding, Stage, inconclusive, inspected, not_checked
from dpaudit.training.probe import Tree, leaf_digests

__all__ = ["ReleasedModel", "digest_of_leaves", "weights_digest"]

_MAX_NAMED: Final = 4  # differing arrays that a finding names
_WRAPPERS: Final = ("_module.", "module.")  # of Opacus, and of DDP


def weights_digest(weights: Tree) -> str:
    """Return the SHA-256 by which a report identifies the audited weights.

    It covers the names, types, shapes and bits of all arrays, in any order. Names are
    read without what Opacus and DDP put before all of them.

    Args:
        weights: A tree of arrays, such as ``model.state_dict()`` of torch or the
            parameters of JAX.

    Example:
        >>> import numpy as np
        >>> weights_digest({"layer.weight": np.ones((2, 3), np.float32)})[:16]
        '95caae6a88378e6d'
        >>> weights_digest({"_module.layer.weight": np.ones((2, 3), np.float32)})[:16]
        '95caae6a88378e6d'
    """
    return digest_of_leaves(leaf_digests(weights, "weights"))


def digest_of_leaves(digests: Mapping[str, str]) -> str:
    """Return one digest of all arrays, given the digest of each by its name."""
    for prefix in _WRAPPERS:
        if digests and all(name.startswith(prefix) for name in digests):
            bare = {name.removeprefix(prefix): digests[name] for name in digests}
            return digest_of_leaves(bare)
    return sha256(_canonical.text(dict(digests)).encode()).hexdigest()


@final
class ReleasedModel:
    """The parameters after the last step, to be compared with the released ones.

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
        """Record the parameters after a step.

        Args:
            parameters: A tree of arrays.
            steps: Number of steps made.
        """
        self._left, self._steps = leaf_digests(parameters, "after_step"), steps

    def findings(self, released: Tree, *, steps: int) -> Iterator[Finding]:
        """Yield whether the released parameters are those after the last step.

        Args:
            released: A tree of arrays; None if it was not passed.
            steps: Number of steps made.
        """
        if released is None or not self._left or self._steps != steps:
            yield not_checked(Stage.RELEASED_MODEL, "released.would")
            return
        digests = leaf_digests(released, "released")
        names = self._left.keys() | digests.keys()
        differ = sorted(n for n in names if self._left.get(n) != digests.get(n))
        if not differ:
            whole = digest_of_leaves(digests)
            yield inspected(
                Stage.RELEASED_MODEL, "released.as_left", steps=steps, sha256=whole
            )
            return
        named, more = differ[:_MAX_NAMED], max(0, len(differ) - _MAX_NAMED)
        yield not_checked(Stage.RELEASED_MODEL, "released.differs", named, more=more)
        yield inconclusive("released.not_as_left", named, more=more)
