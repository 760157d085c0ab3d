"""Keeps an audit's own failures out of the training run that it is hooked into.

Whatever an audit's hooks raise, a misuse that voids the audit or a defect of the audit
itself, is recorded here and reported when the audit is finished. The training run goes
on undisturbed. From then on no hook does anything, so that no canary enters a training
run that nobody audits. What ends a program, such as Ctrl-C, passes.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import DpAuditError, VoidAuditError, on_one_line
from dpaudit.game.verdict import Control, Verdict

__all__ = ["Guard"]

_STATE: Final = "failure"
_LONGEST: Final = 300  # characters of an error that is not ours
_LOG = logging.getLogger("dpaudit")

P = ParamSpec("P")
T = TypeVar("T")


@final
class Guard:
    """Runs an audit's hooks until one of them fails; raises nothing that they raise.

    Attributes:
        failure: Why the audit stopped, and what that makes of its verdict; None while
            it has not.

    Example:
        >>> guard = Guard()
        >>> guard.run(int, "7")
        7
        >>> logging.getLogger("dpaudit").setLevel("CRITICAL")
        >>> guard.run(int, "seven")
        >>> guard.run(int, "7")
        >>> print(guard.failure.said)
        the audit stopped, as it failed itself (ValueError: invalid literal for int() \
with base 10: 'seven'); training went on without canaries
    """

    def __init__(self) -> None:
        # Words only: the exception would keep its frames alive, and what they hold.
        self.failure: Control | None = None

    def run(
        self, hook: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T | None:
        """Return what a hook returns; None if it fails, or one has failed before."""
        if self.failure is not None:
            return None
        try:
            return hook(*arguments, **named)
        except Exception as error:  # whatever it is, training goes on
            self.failure = _failure(error)
            _LOG.warning("dpaudit: %s", self.failure.said)
            return None

    def hook(self, own: Callable[P, T]) -> Callable[P, T | None]:
        """Return a hook that is run so."""

        def guarded(*arguments: P.args, **named: P.kwargs) -> T | None:
            return self.run(own, *arguments, **named)

        return guarded

    def controls(self) -> tuple[Control, ...]:
        """Return why the audit stopped, if it did."""
        return () if self.failure is None else (self.failure,)

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return why the audit stopped, as arrays that ``restore`` takes."""
        if self.failure is None:
            return {}
        return {_STATE: np.array([self.failure.said, str(self.failure.spoils)])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Stay stopped, if the audit was when it was saved."""
        if _STATE in state:
            said, spoils = map(str, state[_STATE])
            void = spoils == Verdict.VOID
            self.failure = Control(
                said=on_one_line(said),
                spoils=Verdict.VOID if void else Verdict.INCONCLUSIVE,
            )


def _failure(error: Exception) -> Control:
    """Return what an exception in a hook makes of the audit.

    What voids an audit still does. Of anything else, only that part of the training
    run was not observed: what was seen before it stands.
    """
    went_on = "training went on without canaries"
    if isinstance(error, DpAuditError):
        said = f"the audit stopped: {error}; {went_on}"
    else:
        what = f"{type(error).__name__}: {str(error)[:_LONGEST]}"
        said = f"the audit stopped, as it failed itself ({what}); {went_on}"
    void = isinstance(error, VoidAuditError)
    return Control(
        said=on_one_line(said),
        spoils=Verdict.VOID if void else Verdict.INCONCLUSIVE,
    )
