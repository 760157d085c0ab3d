"""Probe how much one user can change the sum before noise, including its weight.

Updates that real users sent go once more through all postprocessors of the run, each
with its user's number of data points and weight, and are added up as in pfl's backend,
without noise and without canaries. The method is that of ``training.probe``: users are
removed one at a time, updates are enlarged, and one user's contribution must not depend
on the others.

One cause is tested separately: updates that are clipped first and weighted afterwards.
The same update, large enough to be clipped, is sent by a user with one data point and
by one with more; if it then counts for more, weights multiply the clipped update.
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

_MANY_POINTS: Final = 16  # data points of the user with more than one
_ABOVE: Final = 8.0  # norm of an update before clipping, in clipping bounds


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A user's update before any postprocessor.

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
        """Return a copy: pfl reuses the tensors for the next user."""
        tensors = {name: part.copy() for name, part in arrays(stats).items()}
        return cls(tensors=tensors, weight=float(stats.weight), context=context)

    def stats(self, scale: float = 1.0) -> MappedVectorStatistics:
        """Return the update as it was sent, times a factor."""
        ops = get_default_framework_module()
        tensors = {
            name: ops.to_tensor((scale * part).astype(part.dtype))
            for name, part in self.tensors.items()
        }
        return MappedVectorStatistics(tensors, weight=self.weight)

    def norm(self) -> float:
        """Return the norm of the update."""
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
    """Return how much one user changes the sum, with the faults found.

    Args:
        postprocessors: All of the run's, in their order.
        updates: The updates of some real users.
        norm: The clipping bound.
        users: How many of them are removed, one at a time.
        seed: Selects which.
    """
    names = list(updates[0].tensors)

    def sum_of_users(
        batch: NDArray[Any], keep: NDArray[Any], scale: float
    ) -> dict[str, NDArray[Any]]:
        chosen = [updates[int(i)] for i, kept in zip(batch, keep, strict=True) if kept]
        total = _summed(postprocessors, chosen, scale)
        nothing = {n: np.zeros_like(p) for n, p in updates[0].tensors.items()}
        return nothing if total is None else total

    batch = np.arange(len(updates))
    report = probe_sum(
        sum_of_users, batch, norm=norm, records=min(users, len(updates)), seed=seed
    )
    report = replace(report, ran="postprocessors")
    weighed = _weights_fault(postprocessors, updates, names, norm)
    if weighed is None:
        return report
    # The separate test's fault replaces the probe's clipping fault.
    others = tuple(
        fault for fault in report.faults if fault.stage is not Stage.CLIPPING
    )
    return replace(report, faults=(weighed, *others))


def _summed(
    postprocessors: Sequence[Postprocessor], updates: Sequence[Update], scale: float
) -> dict[str, NDArray[Any]] | None:
    """Return the server's sum before noise; None without users."""
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
    """Return the fault that weights multiply clipped updates; None if they do not."""
    large = max(updates, key=Update.norm)
    if not large.norm() > 0:
        return None
    scale, sizes = _ABOVE * norm / large.norm(), []
    for points in (1, _MANY_POINTS):
        context = replace(large.context, num_datapoints=points)
        user = replace(large, context=context)
        total = _summed(postprocessors, [user], scale) or {}
        parts = [np.square(total[name], dtype=np.float64).sum() for name in names]
        sizes.append(float(np.sqrt(np.sum(parts))) / norm)
    few, many = sizes
    if many <= 1 + LEAST or many <= few * (1 + LEAST):
        return None
    return fault(
        Stage.CLIPPING, "probe.weighed_after", points=_MANY_POINTS, many=many, few=few
    )
