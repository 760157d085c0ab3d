"""Canaries that are examples: real inputs with their own gradients.

Where gradients cannot be overwritten, as with ghost clipping, a canary can still be a
record like any other: forward, backward, norm, clipping, accumulation and noise are
Opacus' own. Its secret bit decides whether it counts: if not, its row of the gradients,
or its coefficient in ghost clipping, is 0. It is in the batch either way, so that only
the sum depends on the bits.

The guesser knows the model before each step. So it runs the user's own step on each
canary alone, without noise or side effects, which gives the direction in which that
canary would move the sum. It projects the noisy sum, minus the contribution of the real
records, onto all of these directions. They are not orthogonal, so canaries leak into
each other's projections: ``separated`` disentangles them. That needs no secret bit.

The contribution of the real records is computed by the user's own program, too, from
the same batch with the canaries' rows at 0. If clipping fails, it fails there as well,
and cancels; and the guesser expects a canary at the size that this program gives it,
not at the size that it should have.
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

_MAX_NUMBERS: Final = 1 << 29  # in all directions together: 2 GiB
_STATE: Final = "examples"
_NO_SIGNAL: Final = 1e-6  # of the clipping norm: a canary this small is unusable


def separated(
    cosines: Floats, along: Floats, sizes: Floats, *, rate: float, noise: float
) -> tuple[Floats, Floats]:
    """Return an estimate of each canary's participation, and its standard error.

    A noisy sum is ``sum of sizes[i] j[i] d[i] + noise``, where the ``d[i]`` are unit
    directions and ``j[i]`` is 1 if canary i is included and sampled, which has
    probability ``rate / 2``. The estimates are the linear combinations of the
    projections with the least error from noise and other canaries (least squares),
    scaled so that a canary which participates has the estimate 1.

    Args:
        cosines: Inner products of the directions with each other.
        along: Those of the noisy sum with each direction, over the clipping norm.
        sizes: The size of each canary's contribution, over the clipping norm.
        rate: The probability that a canary is sampled.
        noise: Standard deviation of the noise in any direction.

    Example:
        >>> right = np.eye(2)  # at right angles nothing is to be done
        >>> separated(right, np.array([0.5, 0]), np.ones(2), rate=1.0, noise=0.3)
        (array([0.5, 0. ]), array([0.3, 0.3]))
    """
    probability = rate / 2
    spread = np.square(sizes) * probability * (1 - probability)
    within = cosines * spread + noise**2 * np.eye(len(sizes))
    weights = np.linalg.solve(within.T, np.diag(spread)).T  # a row for each canary
    response = weights @ cosines * sizes  # of each estimate to each participant
    gain = np.diag(response).copy()
    usable = gain > _NO_SIGNAL
    gain[~usable] = 1.0
    others = response / gain[:, np.newaxis]
    np.fill_diagonal(others, 0.0)
    seen = weights @ along / gain - probability * others.sum(axis=1)
    left = np.square(others).sum(axis=1) * probability * (1 - probability)
    noised = noise**2 * np.einsum("ij,jk,ik->i", weights, cosines, weights)
    error = np.sqrt(np.maximum(left + noised / np.square(gain), _NO_SIGNAL**2))
    return np.where(usable, seen, 0.0), np.where(usable, error, 1 / _NO_SIGNAL)


def each_example(loader: Loader) -> list[Batch]:
    """Return the canaries of a loader's data set, each as a batch of its own."""
    data, collate = loader.dataset, loader.collate_fn or default_collate
    assert isinstance(data, CanaryDataset)
    with random_states():  # reading records may draw random numbers (augmentation)
        return [collate([data[data.first + i]]) for i in range(data.canaries)]


@final
class ExampleReader:
    """Projects noisy sums onto the canaries' own gradients; knows no secret bit.

    Args:
        step: The user's own step on a batch.
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
        examples: Each canary as a batch of its own.
        rate: The sampling rate.

    Attributes:
        last: Each canary's signal in the last noisy sum, over its contribution alone:
            about 1 if it participated.
        scale: The standard error of each of these.
        steps: Which steps were read.
        largest: The largest contribution of one canary to a sum, over the clipping
            norm.
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
        if dimension * len(examples) > _MAX_NUMBERS:
            raise InvalidInputError(
                f"{len(examples)} directions of {dimension:,} parameters take too much "
                f"memory; use at most canaries={_MAX_NUMBERS // dimension}"
            )
        self._step, self._model, self._optimizer = step, model, optimizer
        self._examples, self._rate = examples, rate
        self._real: Vector = []
        self.steps, self.largest, self._above = StepsSeen(optimizer), 0.0, 0
        self.last = self.scale = np.zeros(len(examples))

    def begin_real(self, real: Vector) -> None:
        """Record the real records' contribution, from a part of the batch."""
        self._forget_failed()
        if self._real:
            self._real = [a + b for a, b in zip(self._real, real, strict=True)]
        else:
            self._real = real

    def begin(self) -> None:
        """Record that noise is about to be added to a step."""
        self._forget_failed()
        self.steps.begin()

    def saved(self) -> State:
        """Return the remaining state, as arrays that ``restore`` takes."""
        return {_STATE: np.array([self.largest, self._above], np.float64)}

    def restore(self, state: State) -> None:
        """Continue from the state that ``saved`` returned."""
        self.largest, above = map(float, saved_rows(state, _STATE, (2,)))
        self._above = int(above)

    def findings(self) -> Iterator[Finding]:
        """Return checks of pipeline stages, and faults that hold for any claim."""
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
        """Discard a step that began and was never completed."""
        if self.steps.forget_failed():
            self._real = []

    def read(self) -> None:
        """Read the noisy sum of a step that is about to be made.

        This runs the user's step, which checks of the training run must not see.
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
        directions /= sizes.clamp(min=_NO_SIGNAL)[:, None]
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
        """Return each canary's own contribution to the sum, by the user's step."""
        optimizer = self._optimizer
        with isolated_step(self._model, optimizer, seed=self.steps.read) as recorded:
            for example in self._examples:
                self._step(example)
        if len(recorded.sums) != len(self._examples):
            raise InvalidInputError(
                f"step(batch) made {len(recorded.sums)} steps of the private optimizer "
                f"on {len(self._examples)} batches; it must be the whole step of one "
                "batch, and no more"
            )
        return torch.stack(
            [torch.cat([p.reshape(-1).float() for p in each]) for each in recorded.sums]
        )


@final
class ExampleInserter:
    """Leaves out the excluded canaries; knows the secret bits.

    Args:
        model: The model that ``make_private`` returned.
        optimizer: Its optimizer; with ghost clipping the model's coefficients are
            wrapped.
        audit: Holds the inclusion of each canary, and receives what was read.
        rows: Maps the rows of a batch to records.
        first: Number of the first canary among the records.
        reader: Receives the contribution of the real records to each sum.
        noise: Receives each step's sum before and after its noise.
        paused: A context in which no change is recorded.
        attachment: Removes everything again.

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
        """Return the rows of canaries, and the rows of excluded ones."""
        rows = np.flatnonzero(records >= self._first)
        canaries = records[rows] - self._first
        inside = self._included[canaries]
        self._joined += np.bincount(canaries[inside], minlength=len(self._joined))
        return torch.from_numpy(rows), torch.from_numpy(rows[~inside])

    def _leave_out(self) -> None:
        """Clip the real records alone and read them, before all included records."""
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
        """Return ghost clipping's backward pass, wrapped to record the losses."""

        def backward(loss: Any) -> None:  # noqa: ANN401 (Opacus')
            if loss.module is self._model:
                self._losses = loss.loss_per_sample
            try:
                self._backward(loss)
            finally:
                self._losses = None

        return backward

    def _left_out(self) -> torch.Tensor:
        """Return the clipping coefficients, with 0 for excluded canaries."""
        coefficients: torch.Tensor = self._coefficients()
        if not self._attachment.inserting:
            return coefficients
        changed = self._attachment.guard.run(self._leave_out_of, coefficients)
        return coefficients if changed is None else changed

    def _leave_out_of(self, coefficients: torch.Tensor) -> torch.Tensor:
        if self._losses is None:
            raise InvalidInputError(
                "canaries that are examples need the criterion that make_private "
                "returned: its loss.backward() takes both passes of ghost clipping"
            )
        rows, out = self._gone(self._rows.next(len(coefficients)))
        real = coefficients.clone()
        real[rows.to(coefficients.device)] = 0.0
        self._reader.begin_real(self._gradient(real))
        coefficients = coefficients.clone()
        coefficients[out.to(coefficients.device)] = 0.0
        return coefficients

    def _gradient(self, coefficients: torch.Tensor) -> Vector:
        """Return the sum of the records' gradients weighted by ``coefficients``."""
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
        self._noise.after(self._audit, self._attachment.to_host)
        self._joined.fill(0.0)


def _noise(cosines: Floats, along: Floats, whole: torch.Tensor) -> float:
    """Return the noise per coordinate, from the sum's part outside all directions.

    It is measured, not taken from the configuration: with less noise, the guesser is
    more confident.
    """
    inside = float(along @ np.linalg.lstsq(cosines, along, rcond=_NO_SIGNAL)[0])
    outside = float(whole.double().square().sum()) - inside
    return sqrt(max(outside, 0.0) / max(len(whole) - len(along), 1)) + _NO_SIGNAL


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
    """Return the same gradients without Opacus' mark that they were used."""
    if isinstance(grads, list):
        return [each.detach() for each in grads]
    return grads.detach()


def _copy(value: torch.Tensor | None) -> torch.Tensor | None:
    return None if value is None else value.clone()


def _array(values: torch.Tensor) -> Floats:
    return np.asarray(values.detach().cpu().double().numpy())
