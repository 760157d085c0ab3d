"""Bugs in the noise: its scale, where it is added, and whether it is fresh.

Most of them replace ``add_noise`` of one optimizer by something that calls the real one
under a wrong belief, undoes part of it, or draws other noise.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from opacus.optimizers.optimizer import _generate_noise

from dpaudit_lab.bugzoo.honest import Run

__all__ = [
    "add_laplace_noise",
    "add_uniform_noise",
    "begin_noise_anew",
    "broadcast_noise",
    "divide_noise_twice",
    "forget_clip_in_noise",
    "last_layer",
    "leave_last_layer_without_noise",
    "repeat_noise",
    "same_noise_for_parameters",
    "take_variance_for_deviation",
]


def forget_clip_in_noise(run: Run) -> None:
    """Add noise of standard deviation sigma instead of sigma C."""
    _noise_deviation(run, float(run.optimizer.noise_multiplier))


def take_variance_for_deviation(run: Run) -> None:
    """Hand sigma C to a sampler that takes a variance: its root is the deviation."""
    told = float(run.optimizer.noise_multiplier * run.optimizer.max_grad_norm)
    _noise_deviation(run, sqrt(told))


def divide_noise_twice(run: Run) -> None:
    """Divide the noise by the batch size, and then the noisy sum once more."""
    told = float(run.optimizer.noise_multiplier * run.optimizer.max_grad_norm)
    _noise_deviation(run, told / run.optimizer.expected_batch_size)


def leave_last_layer_without_noise(run: Run) -> None:
    """Add noise to all parameters but those of the last layer."""
    optimizer: Any = run.optimizer
    add_noise, head = optimizer.add_noise, last_layer(run)

    def add_noise_to_the_others() -> None:
        add_noise()
        for parameter in head:
            parameter.grad = parameter.summed_grad.view_as(parameter).clone()

    optimizer.add_noise = add_noise_to_the_others


def repeat_noise(run: Run) -> None:
    """Seed the noise at every step, and always the same way."""
    optimizer: Any = run.optimizer
    add_noise, seed = optimizer.add_noise, torch.initial_seed()

    def add_the_same_noise() -> None:
        optimizer.generator = torch.Generator().manual_seed(seed)
        add_noise()

    optimizer.add_noise = add_the_same_noise


def begin_noise_anew(run: Run, *, every: int) -> None:
    """Put the noise's generator back to where it began, after every so many steps."""
    optimizer: Any = run.optimizer
    generator = torch.Generator().manual_seed(torch.initial_seed() + 1)
    optimizer.generator, start = generator, generator.get_state()
    count, taken = optimizer.step_hook, 0

    def count_then_go_back(optimizer: Any) -> None:  # noqa: ANN401 (untyped)
        nonlocal taken
        count(optimizer)
        taken += 1
        if taken % every == 0:
            generator.set_state(start)

    optimizer.attach_step_hook(count_then_go_back)


def broadcast_noise(run: Run) -> None:
    """Draw one number for each row of a parameter, and add it all along the row."""
    _draw_noise(run, lambda total, deviation: deviation * torch.randn_like(_row(total)))


def same_noise_for_parameters(run: Run) -> None:
    """Use the random key of a step for every parameter, instead of one for each."""
    optimizer: Any = run.optimizer

    def add_the_same_noise() -> None:
        seed = int(torch.randint(2**31, ()))
        for parameter in optimizer.params:
            noise = _generate_noise(
                std=optimizer.noise_multiplier * optimizer.max_grad_norm,
                reference=parameter.summed_grad,
                generator=torch.Generator().manual_seed(seed),
            )
            parameter.grad = (parameter.summed_grad + noise).view_as(parameter)

    optimizer.add_noise = add_the_same_noise


def add_uniform_noise(run: Run) -> None:
    """Add uniform noise of the same variance."""
    _draw_noise(
        run,
        lambda total, deviation: sqrt(3) * deviation * (2 * torch.rand_like(total) - 1),
    )


def add_laplace_noise(run: Run) -> None:
    """Add Laplace noise of the same variance."""

    def draw(total: torch.Tensor, deviation: float) -> torch.Tensor:
        size = torch.empty_like(total).exponential_(sqrt(2))
        return deviation * size * torch.randn_like(total).sign()

    _draw_noise(run, draw)


def _row(total: torch.Tensor) -> torch.Tensor:
    """Return the first column, as a matrix of one column has it."""
    return total[(slice(None), *(slice(1) for _ in total.shape[1:]))]


def _draw_noise(run: Run, draw: Callable[[torch.Tensor, float], torch.Tensor]) -> None:
    """Add noise that is drawn otherwise, given a sum and a standard deviation."""
    optimizer: Any = run.optimizer

    def add_other_noise() -> None:
        deviation = float(optimizer.noise_multiplier * optimizer.max_grad_norm)
        for parameter in optimizer.params:
            total = parameter.summed_grad
            parameter.grad = (total + draw(total, deviation)).view_as(parameter)

    optimizer.add_noise = add_other_noise


def last_layer(run: Run) -> list[Any]:
    """Return the parameters of the last layer."""
    return list(run.model.parameters())[-2 if run.setting.bias else -1 :]


def _noise_deviation(run: Run, deviation: float) -> None:
    """Let the real ``add_noise`` add noise of another standard deviation."""
    optimizer: Any = run.optimizer
    add_noise = optimizer.add_noise

    def add_other_noise() -> None:
        told = optimizer.noise_multiplier
        optimizer.noise_multiplier = deviation / optimizer.max_grad_norm
        add_noise()
        optimizer.noise_multiplier = told  # which is what the accountant looks at

    optimizer.add_noise = add_other_noise
