"""Ways in which several cases alter the program, and data they share."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer import _mark_as_processed
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from dpaudit_lab.held_out.program import Case, Hypothesis, Program, private

__all__ = [
    "accounted_as_at_first",
    "after_noise",
    "batches_of",
    "case",
    "clip_by",
    "clip_factors",
    "digits",
    "example_norms",
    "raw_gradients",
    "sample_at",
    "without_clipping",
]

DIGITS: Final = 64, 10  # features and classes


def case(
    cases: list[Case],
    *,
    breaks: Hypothesis | None = None,
    in_scope: bool = True,
    true_epsilon: str,
    undisclosed: bool = False,
) -> Callable[[Callable[[int], Program]], Callable[[int], Program]]:
    """Return a decorator that enters a function that builds a program as a case.

    Its name is the function's, its sentence the function's docstring.
    """

    def entered(build: Callable[[int], Program]) -> Callable[[int], Program]:
        found = Case(
            name=build.__name__.replace("_", "-"),
            what=" ".join((build.__doc__ or "").split()),
            build=build,
            breaks=breaks,
            in_scope=in_scope,
            true_epsilon=true_epsilon,
            undisclosed=undisclosed,
        )
        cases.append(found)
        return build

    return entered


def digits(seed: int, **varied: Any) -> Program:  # noqa: ANN401 (of ``private``)
    """Return a correct program on scikit-learn's digits: epsilon is 2.52.

    20 steps at rate 1/10 with a noise multiplier of 1.2, on 1,797 records.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415 (a second to import)

    pixels, labels = load_digits(return_X_y=True)
    features, classes = DIGITS
    network = nn.Sequential(
        nn.Linear(features, features), nn.ReLU(), nn.Linear(features, classes)
    )
    inputs = torch.tensor(pixels / 16, dtype=torch.float32)
    alike = {
        "data": TensorDataset(inputs, torch.tensor(labels)),
        "model": network,
        "batch_size": 180,
        "noise": 1.2,
        "epochs": 2,
    }
    return private(seed, **{**alike, **varied})


def batches_of(program: Program, epochs: int) -> Iterator[Any]:
    """Yield the batches of so many epochs."""
    for _ in range(epochs):
        yield from program.loader


def example_norms(optimizer: DPOptimizer) -> torch.Tensor:
    """Return the norm of each example's gradient."""
    parts = [each.grad_sample.flatten(1).norm(dim=1) for each in optimizer.params]
    norms: torch.Tensor = torch.linalg.vector_norm(torch.stack(parts, dim=1), dim=1)
    return norms


def clip_factors(optimizer: DPOptimizer, norms: torch.Tensor) -> torch.Tensor:
    """Return what clipping multiplies gradients of these norms by."""
    factors: torch.Tensor = optimizer.max_grad_norm / (norms + 1e-6)
    return factors.clamp(max=1.0)


def clip_by(
    optimizer: DPOptimizer, factors: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Let the optimizer multiply gradients by what a function makes of their norms."""

    def clip() -> None:
        weights = factors(example_norms(optimizer))
        for parameter in optimizer.params:
            total = torch.einsum("i,i...", weights, parameter.grad_sample)
            before = parameter.summed_grad
            parameter.summed_grad = total if before is None else before + total
            _mark_as_processed(parameter.grad_sample)

    optimizer.clip_and_accumulate = clip


def without_clipping(optimizer: DPOptimizer) -> None:
    """Let the optimizer add up gradients as they are."""
    clip_by(optimizer, torch.ones_like)


def after_noise(
    optimizer: DPOptimizer,
    change: Callable[[nn.Parameter, torch.Tensor], torch.Tensor],
) -> None:
    """Let a function change each parameter's noisy sum, which knows the sum itself."""
    add_noise = optimizer.add_noise

    def changed() -> None:
        add_noise()
        for parameter in optimizer.params:
            total = parameter.summed_grad.view_as(parameter)
            parameter.grad = change(parameter, total)

    optimizer.add_noise = changed


def sample_at(program: Program, rates: torch.Tensor) -> None:
    """Let the loader include each record at a rate of its own."""

    class Sampler(UniformWithReplacementSampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[int]]:
            for _ in range(self.steps):
                yield (torch.rand(len(rates)) < rates).nonzero().flatten().tolist()

    given: Any = program.loader.batch_sampler
    sampler = Sampler(
        num_samples=given.num_samples,
        sample_rate=given.sample_rate,
        steps=given.steps,
    )
    # A loader refuses another sampler once it is made.
    object.__setattr__(program.loader, "batch_sampler", sampler)


def accounted_as_at_first(program: Program, noise_of_epochs: Sequence[float]) -> None:
    """Let noise change from epoch to epoch, and account for the first level always."""
    optimizer, engine = program.optimizer, program.engine
    rate = 1 / len(program.loader)

    def told(_: DPOptimizer) -> None:
        engine.accountant.step(noise_multiplier=noise_of_epochs[0], sample_rate=rate)

    optimizer.attach_step_hook(told)

    def train() -> None:
        for noise in noise_of_epochs:
            optimizer.noise_multiplier = noise
            for batch in program.loader:
                program.step(batch)

    program.train = train


def raw_gradients(program: Program, batch: Any) -> list[torch.Tensor]:  # noqa: ANN401
    """Return the mean gradient of a batch, neither clipped nor noisy."""
    inputs, labels = batch
    program.model.disable_hooks()
    network = program.model._module
    loss = functional.cross_entropy(network(inputs), labels)
    found = torch.autograd.grad(loss, list(network.parameters()))
    program.model.enable_hooks()
    return list(found)
