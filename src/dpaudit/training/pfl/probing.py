"""How much can one user change the sum that is given noise, with its weight?

Updates that real users sent go once more through all of the training's own
postprocessors, each with its user's number of data points and weight, and are added up
as pfl's backend adds them. There is no noise in it and no canary. How it is examined is
``training.probe``'s: users leave one at a time, updates are made larger, and one user's
part must be the same whoever else is there.

One cause is looked for by itself: updates that are clipped first and weighed after. The
same update, large enough to be clipped, is sent by a user of one data point and by one
of more; if it counts for more, weights multiply what was clipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from pfl.aggregate.base import SumAggregator
from pfl.context import UserContext
from pfl.internal.ops.selector import get_default_framework_module
from pfl.postprocessor.base import Postprocessor
from pfl.stats import MappedVectorStatistics

from dpaudit.game.findings import Finding, Stage, fault
from dpaudit.training.pfl.layout import arrays
from dpaudit.training.probe import probe_sum
from dpaudit.training.probe.report import LEAST, Sensitivity

__all__ = ["Update", "probe_users"]

_MORE: Final = 16  # data points, of a user who has more than one
_ABOVE: Final = 8.0  # clipping bounds, before clipping


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a user sent, before any postprocessor.

    Attributes:
        tensors: Copies, by name.
        weight: Of the statistics.
        context: Of the user.
    """

    tensors: dict[str, NDArray[Any]]
    weight: float
    context: UserContext

    @classmethod
    def of(cls, stats: MappedVectorStatistics, context: UserContext) -> "Update":
        """Return a copy: pfl uses the tensors again for the next user."""
        tensors = {name: part.copy() for name, part in arrays(stats).items()}
        return cls(tensors=tensors, weight=float(stats.weight), context=context)

    def stats(self, scale: float = 1.0) -> MappedVectorStatistics:
        """Return the update as it was sent, times a number."""
        ops = get_default_framework_module()
        tensors = {
            name: ops.to_tensor((scale * part).astype(part.dtype))
            for name, part in self.tensors.items()
        }
        return MappedVectorStatistics(tensors, weight=self.weight)

    def norm(self) -> float:
        """Return the length of the update."""
        return float(
            np.sqrt(
                sum(
                    float(np.square(part, dtype=np.float64).sum())
                    for part in self.tensors.values()
                )
            )
        )


def probe_users(
    postprocessors: Sequence[Postprocessor],
    updates: Sequence[Update],
    *,
    norm: float,
    users: int = 8,
    seed: int = 0,
) -> Sensitivity:
    """Return how much one user changes the sum, and what is wrong.

    Args:
        postprocessors: All of the training's, in their order.
        updates: What some real users sent.
        norm: The clipping bound.
        users: How many of them leave, one at a time.
        seed: Decides which.
    """
    names = list(updates[0].tensors)

    def sum_of_users(
        batch: NDArray[Any], keep: NDArray[Any], scale: float
    ) -> dict[str, NDArray[Any]]:
        some = [updates[int(i)] for i, kept in zip(batch, keep, strict=True) if kept]
        found = _summed(postprocessors, some, scale)
        nothing = {n: np.zeros_like(p) for n, p in updates[0].tensors.items()}
        return nothing if found is None else found

    batch = np.arange(len(updates))
    found = probe_sum(
        sum_of_users, batch, norm=norm, records=min(users, len(updates)), seed=seed
    )
    found = replace(found, ran="postprocessors")
    weighed = _weights_fault(postprocessors, updates, names, norm)
    if weighed is None:
        return found
    # The cause that was found by itself stands for what the probe saw of it.
    others = tuple(fault for fault in found.faults if fault.stage is not Stage.CLIPPING)
    return replace(found, faults=(weighed, *others))


def _summed(
    postprocessors: Sequence[Postprocessor], updates: Sequence[Update], scale: float
) -> dict[str, NDArray[Any]] | None:
    """Return the sum as the server has it before noise; None of nobody."""
    aggregator, total = SumAggregator(), None
    for update in updates:
        stats = update.stats(scale)
        for each in postprocessors:
            stats, _ = each.postprocess_one_user(
                stats=stats, user_context=update.context
            )
        if total is None:
            stats = stats.apply_elementwise(get_default_framework_module().clone)
        total = aggregator.accumulate(accumulated=total, user_stats=stats)
    return None if total is None else arrays(total)


def _weights_fault(
    postprocessors: Sequence[Postprocessor],
    updates: Sequence[Update],
    names: Sequence[str],
    norm: float,
) -> Finding | None:
    """Return that weights multiply what was clipped, if they do."""
    large = max(updates, key=Update.norm)
    if not large.norm() > 0:
        return None
    scale, sizes = _ABOVE * norm / large.norm(), []
    for points in (1, _MORE):
        context = replace(large.context, num_datapoints=points)
        user = replace(large, context=context)
        found = _summed(postprocessors, [user], scale) or {}
        parts = [np.square(found[name], dtype=np.float64).sum() for name in names]
        sizes.append(float(np.sqrt(np.sum(parts))) / norm)
    few, many = sizes
    if many <= 1 + LEAST or many <= few * (1 + LEAST):
        return None
    return fault(
        Stage.CLIPPING, "probe.weighed_after", points=_MORE, many=many, few=few
    )
