"""Keeps an audit's own failures out of the training run that it is hooked into.

Whatever an audit's hooks raise, a misuse that makes the run invalid or a defect of the
audit itself, is recorded here and reported when the audit is finished. The training run
continues undisturbed. From then on no hook does anything, so that no canary enters a
training run that is not audited. Exceptions that end a program, such as Ctrl-C, pass.
"""

import logging
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar, final

import numpy as np

from dpaudit._canonical import parsed, text
from dpaudit._codec import decode, encode
from dpaudit.dpsgd.likelihood import State
from dpaudit.errors import DpAuditError, InvalidRunError, on_one_line
from dpaudit.game.findings import Finding, inconclusive, invalid
from dpaudit.game.text.findings import sentence

__all__ = ["Guard"]

_STATE: Final = "failure"
_LONGEST: Final = 300  # characters kept of an error that is not ours
_LOG = logging.getLogger("dpaudit")

P = ParamSpec("P")
T = TypeVar("T")


@final
class Guard:
    """Runs an audit's hooks until one of them fails; raises nothing that they raise.

    Attributes:
        failure: Why the audit stopped, as an inconclusive or invalid-run finding; None
            if it has not.

    Example:
        >>> guard = Guard()
        >>> guard.run(int, "7")
        7
        >>> logging.getLogger("dpaudit").setLevel("CRITICAL")
        >>> guard.run(int, "seven")
        >>> guard.run(int, "7")
        >>> guard.failure.code, guard.failure.numbers["kind"]
        ('failed_itself', 'ValueError')
    """

    def __init__(self) -> None:
        # Text only: the exception would keep its frames and their objects alive.
        self.failure: Finding | None = None

    def run(
        self, hook: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T | None:
        """Return what a hook returns; None if it fails, or one has failed before."""
        if self.failure is not None:
            return None
        try:
            return hook(*arguments, **named)
        except Exception as error:  # whatever it is, training goes on
            self.stop(_failure(error))
            return None

    def stop(self, why: Finding) -> None:
        """Run no hook any more, unless one has failed before."""
        if self.failure is None:
            self.failure = why
            _LOG.warning("dpaudit: %s", sentence(why))

    def hook(self, own: Callable[P, T]) -> Callable[P, T | None]:
        """Return a hook that is run by this guard."""

        def guarded(*arguments: P.args, **named: P.kwargs) -> T | None:
            return self.run(own, *arguments, **named)

        return guarded

    def checks(self) -> tuple[Finding, ...]:
        """Return why the audit stopped, if it did."""
        return () if self.failure is None else (self.failure,)

    def saved(self) -> State:
        """Return why the audit stopped, as arrays that ``restore`` takes."""
        if self.failure is None:
            return {}
        kept = text(encode(self.failure)).encode()
        return {_STATE: np.frombuffer(kept, np.uint8)}

    def restore(self, state: State) -> None:
        """Stay stopped, if the audit was when it was saved."""
        if _STATE in state:
            kept = state[_STATE].astype(np.uint8).tobytes()
            self.failure = decode(Finding, parsed(kept.decode()), _STATE)


def _failure(error: Exception) -> Finding:
    """Return the finding for an exception in a hook.

    An invalid run stays invalid. After any other error only the rest of the training
    run is unobserved: earlier observations stay valid.
    """
    make = invalid if isinstance(error, InvalidRunError) else inconclusive
    if isinstance(error, DpAuditError):
        return make("stopped", error=str(error))
    what = on_one_line(str(error)[:_LONGEST])
    return make("failed_itself", kind=type(error).__name__, error=what)
