"""Shared code of the framework callbacks: attach an audit, save its state, finish it.

A framework runs the loop, so an audit has to be attached when the loop begins, written
with the framework's checkpoints, and finished when the loop ends. The user passes a
function that returns the audit, given optimizer, loader and number of steps; it
replaces the four lines of a plain loop.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias, final

from opacus.optimizers import DPOptimizer

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.result import Result
from dpaudit.training.opacus.audit import OpacusAudit
from dpaudit.training.opacus.setup import Loader

__all__ = ["Attach", "TrainerAudit"]

Attach: TypeAlias = Callable[[DPOptimizer, Loader, int], OpacusAudit]


@final
class TrainerAudit:
    """One audit of one training run by a framework.

    Args:
        attach: Returns the audit, given optimizer, loader and number of steps.
    """

    def __init__(self, attach: Attach) -> None:
        self._attach = attach
        self._audit: OpacusAudit | None = None
        self._result: Result | Exception | None = None

    def begin(
        self,
        optimizer: DPOptimizer,
        loader: Loader,
        *,
        steps: float,
        ranks: int,
        resume: Callable[["TrainerAudit"], None],
    ) -> None:
        """Attach the audit before the loop begins; on failure leave nothing attached.

        Args:
            optimizer: Opacus' optimizer.
            loader: The loader that the framework will iterate over.
            steps: Number of steps of the whole training run.
            ranks: Number of ranks on which the framework trains.
            resume: Called after attaching, to resume from a checkpoint.
        """
        if self._audit is not None:
            raise InvalidRunError(
                "this callback has audited a training run already; a second one needs "
                "a callback and a key of its own"
            )
        if ranks > 1:
            raise InvalidInputError(
                f"the framework trains on {ranks} ranks, and wraps the model itself, "
                "after Opacus; train on one, or write the loop of several ranks "
                "yourself and attach OpacusAudit to it"
            )
        if not steps < float("inf"):
            raise InvalidInputError(
                "the number of steps must be known before training; state the number "
                "of epochs or steps"
            )
        with ExitStack() as failed:
            self._audit = self._attach(optimizer, loader, int(steps))
            failed.callback(self._give_up)
            if self._audit.data_loader is not loader:
                raise InvalidInputError(
                    "canaries that are records need the loop to run on "
                    "audit.data_loader; make the audit before the framework starts, "
                    "hand audit.data_loader to the framework, and pass "
                    "`lambda *_: audit` to this callback"
                )
            resume(self)
            failed.pop_all()

    def _give_up(self) -> None:
        """Restore everything as before ``begin``."""
        assert self._audit is not None
        self._audit.detach()
        self._audit = None

    def end(self) -> None:
        """Finish the audit after the loop has ended.

        The framework has more to do, such as saving the model, so an error is only
        raised when the result is read.
        """
        if self._audit is not None and self._result is None:
            try:
                self._result = self._audit.finish()
            except Exception as error:  # raised by ``result``
                self._audit.detach()
                self._result = error

    @property
    def result(self) -> Result:
        """The result of the audit, once training has ended."""
        if self._result is None:
            raise InvalidRunError("the training has not ended, so nothing was judged")
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def save(self, path: Path) -> None:
        """Write the audit's state; nothing if there is no audit yet."""
        if self._audit is not None:
            self._audit.save(path)

    def resume(self, path: Path, *, done: int) -> None:
        """Continue from what ``save`` wrote, once attached.

        Args:
            path: The file; not needed at the start of a training run.
            done: How many steps were made before.
        """
        assert self._audit is not None
        if path.exists():
            self._audit.resume(path)
        elif done:
            raise InvalidRunError(
                f"training goes on after {done} steps, but the checkpoint holds no "
                "state of the audit; begin both anew, or go on without the audit"
            )

    def saved(self) -> bytes:
        """Return what ``save`` would write; empty if there is no audit yet."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "audit"
            self.save(path)
            return path.read_bytes() if path.exists() else b""

    def restore(self, saved: bytes, *, done: int) -> None:
        """Continue from what ``saved`` returned, once attached; see ``resume``."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "audit"
            if saved:
                path.write_bytes(saved)
            self.resume(path, done=done)
