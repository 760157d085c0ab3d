"""Bugs in the noise: its scale, where it is added, and whether it is fresh.

All of them replace ``add_noise`` of one optimizer by something that calls the real one
under a wrong belief, or undoes part of it.
"""

from math import sqrt
from typing import Any

import torch

from dpaudit_lab.bugzoo.honest import Run

__all__ = [
    "divide_noise_twice",
    "forget_clip_in_noise",
    "leave_last_layer_without_noise",
    "repeat_noise",
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
    add_noise, head = optimizer.add_noise, _last_layer(run)

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


def _last_layer(run: Run) -> list[Any]:
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
