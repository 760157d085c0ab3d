"""All that an audit has put on an Opacus run, in one place: hooks, and methods.

Whatever is hooked in is taken off again by ``close``, in reverse order: at the end of
the audit, or where its opening fails half-way. Nothing that the audit's hooks raise
reaches the training run (``guard``).

A step is counted once. torch runs an optimizer's hooks in every ``step`` that it knows,
so that a subclass whose ``step`` calls ``super().step`` runs them twice, one inside the
other; what is done before a step is then done in the outermost. What is done after it
is done as soon as torch's own update is over: whatever the subclass changes later is a
change beside it.

Sums are read just before the step, as they are released. Where a probe saw a program
*rework* noisy sums, to rescale them for instance, they are read as they were when
Opacus had added its noise: the rest depends on nothing else, or it is the comparison of
steps on other records that tells.

A step of the wrapped optimizer that was given no noise is *bare*. Where a rehearsal of
the loop saw that no record decides what such a step leaves, as on public data, it is no
private step, and is passed over if it is made at the same place of the code.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias, final

import torch
from opacus.optimizers import DPOptimizer

from dpaudit.training.guard import Guard
from dpaudit.training.opacus.isolated_step import (
    noise_modules,
    patched,
    put,
    taken,
)
from dpaudit.training.opacus.setup import divisor

__all__ = ["Attachment", "BareSteps", "WrappedSteps"]

Action: TypeAlias = Callable[[], object]

_NOT_THE_USERS: Final = {"torch", "opacus", "dpaudit"}


@final
@dataclass(slots=True)
class BareSteps:
    """Bare steps that are passed over.

    Attributes:
        places: Where they are made.
        passed: How many were.
    """

    places: set[str] = field(default_factory=set)
    passed: int = 0


@final
class WrappedSteps:
    """Calls once for each step of a wrapped optimizer, before it and after it.

    Args:
        optimizer: The one that Opacus wraps.
        before: Is told, just before a step, where it is made if it is bare; else "".
        after: Likewise, just after it.

    Attributes:
        remove: Take the hooks off again.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        before: Callable[[str], object],
        after: Callable[[str], object],
    ) -> None:
        self._before, self._after = before, after
        self._depth, self._updated = 0, True
        self._noised, self._bare = False, ""
        self.remove: tuple[Action, Action] = (
            optimizer.register_step_pre_hook(self._pre).remove,
            optimizer.register_step_post_hook(self._post).remove,
        )

    @property
    def inside(self) -> bool:
        """Whether a step is being made."""
        return self._depth > 0

    def give_noise(self) -> None:
        """Take note that the next step is given its noise."""
        self._depth = 0  # a step that broke off is over
        self._noised = True

    def _pre(self, *_: object) -> None:
        self._depth += 1
        if self._depth == 1:
            self._updated = False
            self._bare, self._noised = "" if self._noised else _caller(), False
            self._before(self._bare)

    def _post(self, *_: object) -> None:
        self._depth = max(self._depth - 1, 0)
        if not self._updated:
            self._updated = True
            self._after(self._bare)


@final
class Attachment:
    """What is attached to one run, until ``close``.

    Args:
        optimizer: Opacus' optimizer.
        guard: Runs what is hooked in.

    Attributes:
        guard: As given.
        inserting: Whether canaries are put in: not in a probe, nor after ``close``.
        reworked: Whether noisy sums are changed before the step.
        skips_bare: Which bare steps are passed over.
    """

    def __init__(self, optimizer: DPOptimizer, guard: Guard) -> None:
        self.guard, self.inserting = guard, True
        self.reworked: Callable[[], bool] = lambda: False
        self._noisy: dict[Any, torch.Tensor] = {}
        self._optimizer = optimizer
        self.skips_bare = BareSteps()
        self._before: list[Action] = []
        self._after: list[Action] = []
        self._undo = ExitStack()
        inner = optimizer.original_optimizer
        self._steps = WrappedSteps(inner, self._begin_step, self._end_step)
        for remove in self._steps.remove:
            self.on_close(remove)

    @property
    def inside(self) -> bool:
        """Whether a step of the wrapped optimizer is being made."""
        return self._steps.inside

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
            self._steps.give_noise()
            guarded()

        self._before_method(self._optimizer, "add_noise", begin, self._noise_noted)

    def before_summing(self, action: Action) -> None:
        """Do something just before a batch's gradients are clipped and added up.

        With ghost clipping they are clipped before.
        """
        ghost = hasattr(self._optimizer, "accumulate")
        name = "accumulate" if ghost else "clip_and_accumulate"
        self._before_method(self._optimizer, name, self.guard.hook(action))

    def _before_method(
        self,
        owner: object,
        name: str,
        action: Action,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        method = getattr(owner, name)

        def with_action() -> None:
            if not self.inserting:  # a wrapper that came later still holds this
                method()
                return
            action()
            with around():
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

    def _begin_step(self, bare: str) -> None:
        if bare in self.skips_bare.places:
            self.skips_bare.passed += 1
            return
        with self._as_noised():
            for action in self._before:
                action()

    @contextmanager
    def _noise_noted(self) -> Iterator[None]:
        """Keep the sums that Opacus adds noise to, with their noise."""
        self._noisy = {}
        if not self.reworked():
            yield
            return
        owner = {id(p.summed_grad): p for p in self._optimizer.params}

        def noted(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            def drawn(
                std: float,
                reference: torch.Tensor,
                *more: Any,  # noqa: ANN401 (as of Opacus)
                **named: Any,  # noqa: ANN401
            ) -> torch.Tensor:
                noise = draw(std, reference, *more, **named)
                if id(reference) in owner:
                    self._noisy[owner[id(reference)]] = reference.detach() + noise
                return noise

            return drawn

        with ExitStack() as stack:
            for module in noise_modules():
                draw = noted(module._generate_noise)
                stack.enter_context(patched(module, "_generate_noise", draw))
            yield

    @contextmanager
    def _as_noised(self) -> Iterator[None]:
        """Show gradients as they were when noise had been added, where that is kept."""
        kept = [(parameter, parameter.grad) for parameter in self._noisy]
        times = divisor(self._optimizer) if kept else 1.0
        for parameter, own in kept:
            parameter.grad = self._noisy[parameter].view_as(own) / times
        self._noisy = {}
        try:
            yield
        finally:
            for parameter, own in kept:
                parameter.grad = own

    def _end_step(self, bare: str) -> None:
        if bare not in self.skips_bare.places:
            for action in self._after:
                action()


def _caller() -> str:
    """Return a digest of where the user's code, or another library's, called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_THE_USERS
    ):
        frame = frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return blake2b(place.encode(), digest_size=8).hexdigest()


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    old = taken(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if vars(owner).get(name) == value:  # or a wrapper that came later holds it
            put(owner, name, old)
