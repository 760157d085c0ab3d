"""Canaries that are examples: real inputs, whose own gradients are read.

Where gradients cannot be overwritten, as with ghost clipping, a canary can still be a
record like any other: forward, backward, norm, clipping, accumulation and noise are
Opacus' own. Its coin decides whether it counts: if not, its row of the gradients, or
its coefficient in ghost clipping, is 0. It is in the batch either way, so that nothing
but the sum depends on the coins.

The guesser knows the model before each step. So it runs the user's own step on each
canary alone, without noise and without a trace, which gives the direction in which that
canary would move the sum; and it reads the noisy sum, less what real records put in,
along all of these directions. They are not at right angles, so that canaries show in
each other's: ``separated`` weighs them such that each shows as itself. It needs no coin
for that.

What real records put in is read of the user's own program, too: the same batch with the
canaries' rows at 0. If clipping fails, it fails there as well, and cancels; and the
guesser looks for a canary at the size that this program gives it, not at the size that
it should have.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf, sqrt
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from torch.utils.data import default_collate

from dpaudit.dpsgd.likelihood import State, saved_rows
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import (
    Finding,
    Stage,
    canary_tested,
    fault,
    not_checked,
)
from dpaudit.training.audit import TrainingAudit
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.isolated_step import (
    Model,
    isolated_step,
    own_attributes,
    patched,
    random_states,
)
from dpaudit.training.opacus.noise_reader import NoiseReader
from dpaudit.training.opacus.records import (
    CanaryDataset,
    RowsOfBatches,
    batch_parts,
    own_memory,
)
from dpaudit.training.opacus.setup import Loader, divisor
from dpaudit.training.opacus.step_runner import Batch, Step
from dpaudit.training.opacus.sums_reader import StepsSeen
from dpaudit.training.probe.report import LEAST

__all__ = ["ExampleInserter", "ExampleReader", "each_example", "separated"]

Floats: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = list[torch.Tensor]  # a part for each parameter

_MOST: Final = 1 << 29  # numbers in all directions together: 2 GiB
_STATE: Final = "examples"
_FAINT: Final = 1e-6  # of the clipping norm: such a canary shows nothing


def separated(
    cosines: Floats, along: Floats, sizes: Floats, *, rate: float, noise: float
) -> tuple[Floats, Floats]:
    """Return what each canary shows by itself, and with what error.

    A noisy sum is ``sum of sizes[i] j[i] d[i] + noise``, with ``j[i]`` 1 if canary i is
    included and joined, which has the chance ``rate / 2``, and unit directions
    ``d[i]``. Of all weights of what is seen along the directions, those are taken that
    leave the least of noise and other canaries (linear least squares). They are scaled
    such that a canary which joined shows as 1.

    Args:
        cosines: Products of the directions with each other.
        along: Of the noisy sum with each direction, over the clipping norm.
        sizes: What each canary puts in, over the clipping norm.
        rate: The chance of a canary to join.
        noise: Standard deviation of the noise in any direction.

    Example:
        >>> right = np.eye(2)  # at right angles nothing is to be done
        >>> separated(right, np.array([0.5, 0]), np.ones(2), rate=1.0, noise=0.3)
        (array([0.5, 0. ]), array([0.3, 0.3]))
    """
    chance = rate / 2
    spread = np.square(sizes) * chance * (1 - chance)
    within = cosines * spread + noise**2 * np.eye(len(sizes))
    weights = np.linalg.solve(within.T, np.diag(spread)).T  # a row for each canary
    answer = weights @ cosines * sizes  # of each to each that joined
    gain = np.diag(answer).copy()
    usable = gain > _FAINT
    gain[~usable] = 1.0
    others = answer / gain[:, np.newaxis]
    np.fill_diagonal(others, 0.0)
    seen = weights @ along / gain - chance * others.sum(axis=1)
    left = np.square(others).sum(axis=1) * chance * (1 - chance)
    noised = noise**2 * np.einsum("ij,jk,ik->i", weights, cosines, weights)
    error = np.sqrt(np.maximum(left + noised / np.square(gain), _FAINT**2))
    return np.where(usable, seen, 0.0), np.where(usable, error, 1 / _FAINT)


def each_example(loader: Loader) -> list[Batch]:
    """Return the canaries of a loader's data set, each as a batch of its own."""
    data, collate = loader.dataset, loader.collate_fn or default_collate
    assert isinstance(data, CanaryDataset)
    with random_states():  # a data set may draw, as augmentations do
        return [collate([data[data.first + i]]) for i in range(data.canaries)]


@final
class ExampleReader:
    """Reads noisy sums along the canaries' own gradients; knows no coin.

    Args:
        step: The user's own, on a batch.
        model: As ``make_private`` returned it.
        optimizer: Likewise.
        examples: Each canary as a batch of its own.
        rate: The chance of a record to join a step.

    Attributes:
        last: What the last noisy sum showed of each canary, over what it alone puts
            in: about 1 if it joined.
        scale: The error of each of these.
        steps: Which steps were read.
        largest: The most that any canary alone put into a sum, over the clipping norm.
    """

    def __init__(
        self,
        step: Step,
        model: Model,
        optimizer: DPOptimizer,
        examples: Sequence[Batch],
        *,
        rate: float,
    ) -> None:
        dimension = sum(parameter.numel() for parameter in optimizer.params)
        if dimension * len(examples) > _MOST:
            raise InvalidInputError(
                f"{len(examples)} directions of {dimension:,} parameters take too much "
                f"memory; use at most canaries={_MOST // dimension}"
            )
        self._step, self._model, self._optimizer = step, model, optimizer
        self._examples, self._rate = examples, rate
        self._real: Vector = []
        self.steps, self.largest, self._above = StepsSeen(optimizer), 0.0, 0
        self.last = self.scale = np.zeros(len(examples))

    def begin_real(self, real: Vector) -> None:
        """Take note of what real records of a part of the batch put into the sum."""
        self._forget_failed()
        if self._real:
            self._real = [a + b for a, b in zip(self._real, real, strict=True)]
        else:
            self._real = real

    def begin(self) -> None:
        """Take note of a step that is about to be given its noise."""
        self._forget_failed()
        self.steps.begin()

    def saved(self) -> State:
        """Return what else was seen, as arrays that ``restore`` takes."""
        return {_STATE: np.array([self.largest, self._above], np.float64)}

    def restore(self, state: State) -> None:
        """Go on from what ``saved`` returned."""
        self.largest, above = map(float, saved_rows(state, _STATE, (2,)))
        self._above = int(above)

    def findings(self) -> Iterator[Finding]:
        """Return how stages were checked, and what is wrong whatever the claim."""
        count = len(self._examples)
        for stage in (Stage.SAMPLING, Stage.GRADIENTS, Stage.AGGREGATION):
            yield canary_tested(stage, "canaries.examples", count=count)
        made = canary_tested if self._above else not_checked
        yield made(
            Stage.CLIPPING,
            "canaries.examples_cut",
            count=count,
            share=self._above / max(1, count * self.steps.read),
            largest=self.largest,
        )
        eps = max(torch.finfo(p.dtype).eps for p in self._optimizer.params)
        if self.largest > 1 + LEAST + 10 * eps:
            yield fault(Stage.CLIPPING, "probe.example", change=self.largest)

    def _forget_failed(self) -> None:
        """Forget a step that began and never came to its end."""
        if self.steps.forget_failed():
            self._real = []

    def read(self) -> None:
        """Read the noisy sum of a step that is about to be made.

        The user's step is run: whoever looks at the training must not look at that.
        """
        self.steps.check_begun()
        optimizer = self._optimizer
        times = divisor(optimizer)
        seen = [p.grad.detach() * times for p in optimizer.params]
        if self._real:
            seen = [a - b.to(a.dtype) for a, b in zip(seen, self._real, strict=True)]
        self._real = []
        directions = self._directions()
        sizes = directions.norm(dim=1)
        if not bool(torch.isfinite(sizes).all()):
            self.largest = inf
            sizes[~torch.isfinite(sizes)] = 0.0
            directions[sizes == 0] = 0.0
        directions /= sizes.clamp(min=_FAINT)[:, None]
        whole = torch.cat([part.reshape(-1).float() for part in seen]) / self.steps.clip
        cosines, along = _array(directions @ directions.T), _array(directions @ whole)
        lengths = _array(sizes) / self.steps.clip
        self.largest = max(self.largest, float(lengths.max()))
        self._above += int((lengths > 1 - LEAST).sum())
        self.last, self.scale = separated(
            cosines,
            along,
            lengths,
            rate=self._rate,
            noise=_noise(cosines, along, whole),
        )
        self.steps.end()

    def _directions(self) -> torch.Tensor:
        """Return what each canary alone puts into the sum, by the user's own step."""
        optimizer = self._optimizer
        with isolated_step(self._model, optimizer, seed=self.steps.read) as found:
            for example in self._examples:
                self._step(example)
        if len(found.sums) != len(self._examples):
            raise InvalidInputError(
                f"step(batch) made {len(found.sums)} steps of the private optimizer "
                f"on {len(self._examples)} batches; it must be the whole step of one "
                "batch, and no more"
            )
        return torch.stack(
            [torch.cat([p.reshape(-1).float() for p in each]) for each in found.sums]
        )


@final
class ExampleInserter:
    """Leaves out canaries that are excluded; knows the coins.

    Args:
        model: As ``make_private`` returned it.
        optimizer: Likewise; with ghost clipping the model's coefficients are wrapped.
        audit: Says who is included, and is shown what was read.
        rows: Whose gradients the rows of a batch are.
        first: Number of the first canary among the records.
        reader: Is told what real records put into each sum.
        noise: Is told of each step's sum before and after its noise.
        paused: While it is entered, nothing that changes is noticed.
        attachment: Takes everything off again.

    Attributes:
        step: How many steps began.
    """

    def __init__(  # noqa: PLR0913 (its parts)
        self,
        model: Model,
        optimizer: DPOptimizer,
        audit: TrainingAudit,
        *,
        rows: RowsOfBatches,
        first: int,
        reader: ExampleReader,
        noise: NoiseReader,
        paused: Callable[[], AbstractContextManager[None]],
        attachment: Attachment,
    ) -> None:
        self._model, self._optimizer, self._audit = model, optimizer, audit
        self._included, self._rows, self._first = audit.draws.included, rows, first
        self._reader, self._noise, self._paused = reader, noise, paused
        self._joined = np.zeros(len(self._included))
        self.step = 0
        self._losses: torch.Tensor | None = None
        self._attachment = attachment
        attachment.before_noise(self._begin)
        if hasattr(model, "get_clipping_coef"):
            self._coefficients = model.get_clipping_coef
            self._backward = DPTensorFastGradientClipping.backward
            attachment.replace(model, "get_clipping_coef", self._left_out)
            attachment.replace(
                DPTensorFastGradientClipping, "backward", self._noting_losses()
            )
        else:
            self._clip = optimizer.clip_and_accumulate
            attachment.before_summing(self._leave_out)
        attachment.before(self._observe)

    def _gone(self, records: NDArray[np.int64]) -> tuple[Any, Any]:
        """Return the rows of canaries, and those of them that are left out."""
        rows = np.flatnonzero(records >= self._first)
        canaries = records[rows] - self._first
        inside = self._included[canaries]
        self._joined += np.bincount(canaries[inside], minlength=len(self._joined))
        return torch.from_numpy(rows), torch.from_numpy(rows[~inside])

    def _leave_out(self) -> None:
        """Clip real records alone, which are read, before all who count are clipped."""
        parameters: Sequence[Any] = self._optimizer.params
        before = [_copy(p.summed_grad) for p in parameters]
        kept = []
        try:
            for part in range(batch_parts(parameters[0])):
                grads = own_memory(parameters, part)
                rows, out = self._gone(self._rows.next(len(grads[parameters[0]])))
                for grad in grads.values():
                    grad[out.to(grad.device)] = 0.0
                    at = rows.to(grad.device)
                    kept.append((grad, at, grad[at].clone()))
                    grad[at] = 0.0
            with own_attributes(self._model, self._optimizer):
                self._clip()
            self._reader.begin_real(
                [
                    p.summed_grad.clone() if old is None else p.summed_grad - old
                    for p, old in zip(parameters, before, strict=True)
                ]
            )
        finally:
            for parameter, old in zip(parameters, before, strict=True):
                parameter.summed_grad = old
                parameter.grad_sample = _unmarked(parameter.grad_sample)
            for grad, at, values in kept:
                grad[at] = values

    def _noting_losses(self) -> Callable[[Any], None]:
        """Return the backward pass of ghost clipping, with its losses noted."""

        def backward(loss: Any) -> None:  # noqa: ANN401 (Opacus')
            if loss.module is self._model:
                self._losses = loss.loss_per_sample
            try:
                self._backward(loss)
            finally:
                self._losses = None

        return backward

    def _left_out(self) -> torch.Tensor:
        """Return the clipping coefficients, 0 for canaries that are left out."""
        found: torch.Tensor = self._coefficients()
        if not self._attachment.inserting:
            return found
        left = self._attachment.guard.run(self._leave_out_of, found)
        return found if left is None else left

    def _leave_out_of(self, found: torch.Tensor) -> torch.Tensor:
        if self._losses is None:
            raise InvalidInputError(
                "canaries that are examples need the criterion that make_private "
                "returned: its loss.backward() takes both passes of ghost clipping"
            )
        rows, out = self._gone(self._rows.next(len(found)))
        real = found.clone()
        real[rows.to(found.device)] = 0.0
        self._reader.begin_real(self._gradient(real))
        found = found.clone()
        found[out.to(found.device)] = 0.0
        return found

    def _gradient(self, coefficients: torch.Tensor) -> Vector:
        """Return the sum of the records' gradients with other coefficients."""
        losses, parameters = self._losses, self._optimizer.params
        assert losses is not None
        with _without_hooks(self._model):
            parts = torch.autograd.grad(
                (coefficients.to(losses.device) * losses).sum(),
                parameters,
                retain_graph=True,
                allow_unused=True,
            )
        return [
            torch.zeros_like(p) if part is None else part
            for p, part in zip(parameters, parts, strict=True)
        ]

    def _begin(self) -> None:
        self._rows.end()
        self._reader.begin()
        self.step += 1
        self._noise.before()

    def _observe(self) -> None:
        reader = self._reader
        with patched(self._attachment, "inserting", value=False), self._paused():
            reader.read()
        self._audit.observe(
            reader.last,
            self._joined,
            reader.scale,
            noise=reader.steps.noise,
            clip=reader.steps.clip,
        )
        self._noise.after(self._audit)
        self._joined.fill(0.0)


def _noise(cosines: Floats, along: Floats, whole: torch.Tensor) -> float:
    """Return the noise of a coordinate: what is left beside all directions.

    It is measured, not believed: the less there is, the surer is the guesser.
    """
    inside = float(along @ np.linalg.lstsq(cosines, along, rcond=_FAINT)[0])
    left = float(whole.double().square().sum()) - inside
    return sqrt(max(left, 0.0) / max(len(whole) - len(along), 1)) + _FAINT


@contextmanager
def _without_hooks(model: Model) -> Iterator[None]:
    enabled = model.hooks_enabled
    model.disable_hooks()
    try:
        yield
    finally:
        if enabled:
            model.enable_hooks()


def _unmarked(grads: Any) -> Any:  # noqa: ANN401 (Opacus' attributes)
    """Return the same gradients, without Opacus' mark that they were used."""
    if isinstance(grads, list):
        return [each.detach() for each in grads]
    return grads.detach()


def _copy(value: torch.Tensor | None) -> torch.Tensor | None:
    return None if value is None else value.clone()


def _array(values: torch.Tensor) -> Floats:
    return np.asarray(values.detach().cpu().double().numpy())
