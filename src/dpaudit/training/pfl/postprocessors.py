"""The audit's postprocessors, around the privacy mechanism in pfl's list.

pfl runs its list of postprocessors forwards on each user's update and backwards on the
sum. The audit adds four of its own::

    first         a canary user's update becomes the canary's, before everything else
    ...
    after noise   on the server: the sum
    mechanism     clips users; adds noise on the server
    before noise  on the server: the sum
    ...
    last          a real user's contribution to the sum, after everything else

Only the first uses coins. The contributions of real users are what an adversary who
knows all users but the canaries could compute.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, final

from pfl.context import CentralContext, UserContext
from pfl.metrics import Metrics
from pfl.postprocessor.base import Postprocessor
from pfl.stats import MappedVectorStatistics

__all__ = ["OnServer", "OnUser"]

Sent: TypeAlias = tuple[MappedVectorStatistics, Metrics]


@final
class OnUser(Postprocessor[Any]):
    """Passes each user's update to a function, which may change it.

    Args:
        show: Called with the update and its user's context.
    """

    def __init__(
        self, show: Callable[[MappedVectorStatistics, UserContext], None]
    ) -> None:
        self._show = show

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> Sent:
        """Call the function, and return the update."""
        self._show(stats, user_context)
        return stats, Metrics()


@final
class OnServer(Postprocessor[Any]):
    """Passes the sum on the server to a function.

    Args:
        show: Called with the sum.
    """

    def __init__(self, show: Callable[[MappedVectorStatistics], None]) -> None:
        self._show = show

    def postprocess_server(
        self,
        *,
        stats: MappedVectorStatistics,
        central_context: CentralContext,  # noqa: ARG002 (pfl's)
        aggregate_metrics: Metrics,  # noqa: ARG002 (pfl's)
    ) -> Sent:
        """Call the function, and return the sum."""
        self._show(stats)
        return stats, Metrics()
