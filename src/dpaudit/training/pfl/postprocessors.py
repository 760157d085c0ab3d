"""What the audit does where pfl postprocesses, around the privacy mechanism.

pfl runs its list of postprocessors forwards on each user's update and backwards on the
sum. The audit stands in four places of it::

    first         a canary user's update becomes the canary's, before everything else
    ...
    after noise   on the server: the sum
    mechanism     clips users; adds noise on the server
    before noise  on the server: the sum
    ...
    last          what a real user puts into the sum, after everything else

Only the first acts on coins. What real users put in is what somebody who knows all
users but the canaries would work out for himself.
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
    """Shows a user's update on its way; who is shown it may change it.

    Args:
        show: Is handed the update, and whose it is.
    """

    def __init__(
        self, show: Callable[[MappedVectorStatistics, UserContext], None]
    ) -> None:
        self._show = show

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> Sent:
        """Show it, and pass it on."""
        self._show(stats, user_context)
        return stats, Metrics()


@final
class OnServer(Postprocessor[Any]):
    """Shows the sum on its way.

    Args:
        show: Is handed the sum.
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
        """Show it, and pass it on."""
        self._show(stats)
        return stats, Metrics()
