"""What the audit does where pfl postprocesses, around the privacy mechanism.

pfl runs its list of postprocessors forwards on each user's update and backwards on the
sum. The audit stands in four places of it::

    first       a canary user's update becomes the canary's, before everything else
    ...
    noisy       on the server: the sum, just after the noise
    mechanism   clips users; adds noise on the server
    quiet       on the server: the sum, just before the noise
    ...
    last        what a real user puts into the sum, after everything else

Only the first acts on coins. What real users put in is what somebody who knows all
users but the canaries would work out for himself.
"""

from typing import Any, Protocol, TypeAlias, final

from pfl.context import CentralContext, UserContext
from pfl.metrics import Metrics
from pfl.postprocessor.base import Postprocessor
from pfl.stats import MappedVectorStatistics

__all__ = ["First", "Last", "Noisy", "Quiet", "Watcher"]

Sent: TypeAlias = tuple[MappedVectorStatistics, Metrics]


class Watcher(Protocol):
    """What is told of updates and sums on their way."""

    def sent(self, stats: MappedVectorStatistics, user: UserContext) -> None:
        """A user's update as it is sent; a canary's is put into its place."""
        ...

    def adds(self, stats: MappedVectorStatistics, user: UserContext) -> None:
        """What a user puts into the sum."""
        ...

    def quiet(self, stats: MappedVectorStatistics) -> None:
        """The sum before noise."""
        ...

    def noisy(self, stats: MappedVectorStatistics) -> None:
        """The sum after noise; this ends the round."""
        ...


@final
class First(Postprocessor[Any]):
    """Stands before everything else that is done with a user's update."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> Sent:
        """Put a canary's update in."""
        self._watcher.sent(stats, user_context)
        return stats, Metrics()


@final
class Last(Postprocessor[Any]):
    """Stands after everything else that is done with a user's update."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> Sent:
        """Take note of what a user puts into the sum."""
        self._watcher.adds(stats, user_context)
        return stats, Metrics()


@final
class Quiet(Postprocessor[Any]):
    """Sees the sum just before the noise."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def postprocess_server(
        self,
        *,
        stats: MappedVectorStatistics,
        central_context: CentralContext,  # noqa: ARG002 (pfl's)
        aggregate_metrics: Metrics,  # noqa: ARG002 (pfl's)
    ) -> Sent:
        """Take note of the sum."""
        self._watcher.quiet(stats)
        return stats, Metrics()


@final
class Noisy(Postprocessor[Any]):
    """Sees the sum just after the noise."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def postprocess_server(
        self,
        *,
        stats: MappedVectorStatistics,
        central_context: CentralContext,  # noqa: ARG002 (pfl's)
        aggregate_metrics: Metrics,  # noqa: ARG002 (pfl's)
    ) -> Sent:
        """Read the noisy sum."""
        self._watcher.noisy(stats)
        return stats, Metrics()
