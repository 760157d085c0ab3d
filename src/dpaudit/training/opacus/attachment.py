"""All that an audit has put on an Opacus run, in one place: hooks, and methods.

Whatever is hooked in is taken off again by ``close``, in reverse order: at the end of
the audit, or where its opening fails half-way. Nothing that the audit's hooks raise
reaches the training run (``guard``).

A step is counted once. torch runs an optimizer's hooks in every ``step`` that it knows,
so that a subclass whose ``step`` calls ``super().step`` runs them twice, one inside the
other; what is done before a step is then done in the outermost. What is done after it
is done as soon as torch's own update is over: whatever the subclass changes later is a
change beside it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias, final

from opacus.optimizers import DPOptimizer

from dpaudit.training.guard import Guard
from dpaudit.training.opacus.isolated_step import put, taken

__all__ = ["Attachment"]

Action: TypeAlias = Callable[[], object]


@final
class Attachment:
    """What is attached to one run, until ``close``.

    Args:
        optimizer: Opacus' optimizer.
        guard: Runs what is hooked in.

    Attributes:
        guard: As given.
        inserting: Whether canaries are put in: not in a probe, nor after ``close``.
    """

    def __init__(self, optimizer: DPOptimizer, guard: Guard) -> None:
        self.guard, self.inserting = guard, True
        self._optimizer = optimizer
        self._depth, self._updated = 0, True
        self._before: list[Action] = []
        self._after: list[Action] = []
        self._undo = ExitStack()
        inner = optimizer.original_optimizer
        self.on_close(inner.register_step_pre_hook(self._pre).remove)
        self.on_close(inner.register_step_post_hook(self._post).remove)

    @property
    def inside(self) -> bool:
        """Whether a step of the wrapped optimizer is being made."""
        return self._depth > 0

    def before(self, action: Action) -> None:
        """Do something just before each step of the wrapped optimizer."""
        self._before.append(self.guard.hook(action))

    def together(self, action: Action) -> None:
        """Do something before each step that all ranks must do, also one that failed.

        A rank that left it out would keep the others waiting.
        """
        self._before.append(action)

    def after(self, action: Action) -> None:
        """Do something just after each step of the wrapped optimizer."""
        self._after.append(self.guard.hook(action))

    def before_noise(self, action: Action) -> None:
        """Do something just before each private step is given its noise."""
        guarded = self.guard.hook(action)

        def begin() -> None:
            self._depth = 0  # a step that broke off is over
            guarded()

        self._before_method(self._optimizer, "add_noise", begin)

    def before_summing(self, action: Action) -> None:
        """Do something just before a batch's gradients are clipped and added up.

        With ghost clipping they are clipped before.
        """
        ghost = hasattr(self._optimizer, "accumulate")
        name = "accumulate" if ghost else "clip_and_accumulate"
        self._before_method(self._optimizer, name, self.guard.hook(action))

    def _before_method(self, owner: object, name: str, action: Action) -> None:
        method = getattr(owner, name)

        def with_action() -> None:
            if self.inserting:  # if not, a wrapper that came later still holds this
                action()
            method()

        self.replace(owner, name, with_action)

    def replace(self, owner: object, name: str, value: object) -> None:
        """Give an attribute another value, until ``close`` or somebody else does."""
        self._undo.enter_context(_replaced(owner, name, value))

    def on_close(self, undo: Action) -> None:
        """Do something when the audit is taken off."""
        self._undo.callback(undo)

    def close(self) -> None:
        """Leave everything as it was."""
        self.inserting = False
        self._undo.close()

    def _pre(self, *_: object) -> None:
        self._depth += 1
        if self._depth == 1:
            self._updated = False
            for action in self._before:
                action()

    def _post(self, *_: object) -> None:
        self._depth = max(self._depth - 1, 0)
        if not self._updated:
            self._updated = True
            for action in self._after:
                action()


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    old = taken(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if vars(owner).get(name) == value:  # or a wrapper that came later holds it
            put(owner, name, old)
