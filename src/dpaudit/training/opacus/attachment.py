"""Manages everything that an audit attaches to an Opacus run: hooks and methods.

``close`` removes all of it in reverse order: at the end of the audit, or when opening
it fails half-way. Exceptions in the audit's hooks do not reach the training run
(``guard``).

A step is counted once. torch runs an optimizer's hooks in every ``step`` that it knows,
so a subclass whose ``step`` calls ``super().step`` runs them twice, nested. Actions
before a step then run in the outermost call. Actions after it run as soon as torch's
own update is over: whatever the subclass changes later is a change outside the step.

Sums are read just before the step, as they are released. Where a probe saw a program
*rework* noisy sums, for instance rescale them, they are read right after Opacus added
its noise. Whether the rework depends on anything else is shown by the comparison of
steps on other records.

A step of the wrapped optimizer without noise is *bare*. Where a rehearsal of the loop
showed that the result of such a step does not depend on records, as on public data, it
is not a private step, and is skipped when made at the same place in the code.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, Final, TypeAlias, final

import torch
from opacus.optimizers import DPOptimizer

from dpaudit.game.findings import inconclusive
from dpaudit.training.guard import Guard
from dpaudit.training.opacus.isolated_step import (
    noise_modules,
    patched,
    put,
    taken,
)
from dpaudit.training.opacus.ranks import Ranks
from dpaudit.training.opacus.setup import divisor
from dpaudit.training.opacus.transfers import ToHost, Values

__all__ = ["Attachment", "BareSteps", "WrappedSteps"]

Action: TypeAlias = Callable[[], object]

_NOT_THE_USERS: Final = {"torch", "opacus", "dpaudit"}


@final
@dataclass(slots=True)
class BareSteps:
    """Bare steps that are skipped.

    Attributes:
        places: Digests of the places in the code where they are made.
        passed: How many were skipped.
    """

    places: set[str] = field(default_factory=set)
    passed: int = 0


@final
@dataclass(frozen=True, slots=True)
class _Shared:
    """Tensors that are added up over ranks.

    Attributes:
        own: Returns this rank's; None after a failure.
        use: Called with the sums.
        blank: Zeros of the same shapes, which this rank adds after a failure.
    """

    own: Callable[[], Values | None]
    use: Callable[[Values], None]
    blank: Values


@final
class WrappedSteps:
    """Calls two functions once for each step of a wrapped optimizer: before and after.

    Args:
        optimizer: The optimizer that Opacus wraps.
        before: Called just before a step, with the place of a bare step; else with "".
        after: Likewise, just after it.

    Attributes:
        remove: Functions that remove the hooks.
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
        """Record that noise is added to the next step."""
        self._depth = 0  # an interrupted step is over
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
    """Attaches actions to one run, until ``close``.

    Args:
        optimizer: Opacus' optimizer.
        guard: Runs the actions.
        ranks: The ranks of the run.

    Attributes:
        guard: The guard passed.
        inserting: Whether canaries are inserted: not in a probe, nor after ``close``.
        to_host: What actions before a step collect is copied to the host after them.
        reworked: Returns whether the program changes noisy sums before the step.
        skips_bare: Which bare steps are skipped.
    """

    def __init__(self, optimizer: DPOptimizer, guard: Guard, ranks: Ranks) -> None:
        self.guard, self.inserting, self._ranks = guard, True, ranks
        self._shared: list[_Shared] = []
        self.to_host = ToHost()
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
        """Run an action just before each step of the wrapped optimizer."""
        self._before.append(self.guard.hook(action))

    def add_up(self, own: Callable[[], Values], use: Callable[[Values], None]) -> None:
        """Add up tensors of all ranks before each step, before all actions.

        This is done even after a failure, as a rank that omitted it would keep the
        others waiting. A single rank has nothing to add.

        Args:
            own: Returns this rank's tensors, always of the same shapes.
            use: Called with their sums.
        """
        if self._ranks.alone:
            return
        blank = [torch.zeros_like(each) for each in own()]
        self._shared.append(_Shared(self.guard.hook(own), self.guard.hook(use), blank))

    def after(self, action: Action) -> None:
        """Run an action just after each step of the wrapped optimizer."""
        self._after.append(self.guard.hook(action))

    def before_noise(self, action: Action) -> None:
        """Run an action just before noise is added to each private step."""
        guarded = self.guard.hook(action)

        def begin() -> None:
            self._steps.give_noise()
            guarded()

        self._before_method(self._optimizer, "add_noise", begin, self._noise_noted)

    def before_summing(self, action: Action) -> None:
        """Run an action just before a batch's gradients are clipped and summed.

        With ghost clipping they are already clipped.
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
            if not self.inserting:  # a wrapper that was added later still calls this
                method()
                return
            action()
            with around():
                method()

        self.replace(owner, name, with_action)

    def replace(self, owner: object, name: str, value: object) -> None:
        """Replace an attribute until ``close``, unless another wrapper replaces it."""
        self._undo.enter_context(_replaced(owner, name, value))

    def on_close(self, undo: Action) -> None:
        """Run an action when the audit is detached."""
        self._undo.callback(undo)

    def settle(self) -> None:
        """Wait for what is being copied to the host, and have it used."""
        if self.guard.failure is None:
            self.guard.run(self.to_host.settle)
            return
        with suppress(Exception):  # a whole step that was read before the failure
            self.to_host.settle()

    def close(self) -> None:
        """Remove everything and restore the run."""
        self.inserting = False
        self._undo.close()

    def _begin_step(self, bare: str) -> None:
        if bare in self.skips_bare.places:
            self.skips_bare.passed += 1
            return
        self._add_up()
        with self._as_noised():
            for action in self._before:
                action()
        self.guard.run(self.to_host.start)

    def _add_up(self) -> None:
        if self._ranks.alone:
            return
        own = [each.own() or each.blank for each in self._shared]
        noisy = [*self._noisy.values()]
        sums = iter(self._ranks.add_up([*chain.from_iterable(own), *noisy]))
        if self._ranks.lost:
            self.guard.stop(inconclusive("ranks.lost"))
            return
        for each, values in zip(self._shared, own, strict=True):
            each.use([*islice(sums, len(values))])
        if noisy:
            self._noisy = dict(zip(self._noisy, sums, strict=True))

    @contextmanager
    def _noise_noted(self) -> Iterator[None]:
        """Store the sums with the noise that Opacus adds to them."""
        self._noisy = {}
        if not self.reworked():
            yield
            return
        parameters = self._optimizer.params
        owner = {id(p.summed_grad): p for p in parameters}
        if not self._ranks.alone:  # one of which draws the noise
            self._noisy = {p: p.summed_grad.detach().clone() for p in parameters}

        def noted(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
            def drawn(
                std: float,
                reference: torch.Tensor,
                *more: Any,  # noqa: ANN401 (Opacus')
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
        """Show gradients as they were after noise was added, where stored."""
        kept = [(parameter, parameter.grad) for parameter in self._noisy]
        times = divisor(self._optimizer) if kept else 1.0
        for parameter, own in kept:
            noisy = self._noisy[parameter].view_as(own) / times
            parameter.grad = noisy.to(own.dtype)
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
    """Return a digest of the calling place in the user's code or another library's."""
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
        if vars(owner).get(name) == value:  # unless wrapped again later
            put(owner, name, old)
