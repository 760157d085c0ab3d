"""What is read from JAX Privacy's objects, and what is refused."""

import dataclasses
from functools import wraps

import jax
import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from jax_privacy import clipped_grad
from jax_privacy.batch_selection import CyclicPoissonSampling, FixedBatchSampling
from jax_privacy.experimental import accounting

from dpaudit.errors import InvalidInputError
from dpaudit.training.jax_privacy import Records
from dpaudit.training.jax_privacy.setup import (
    clipping_norm,
    history_of,
    norm_in_sum,
    sampling_of,
)

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
pytestmark = pytest.mark.filterwarnings(
    "ignore:optax.global_norm is deprecated:DeprecationWarning"  # used by JAX Privacy
)


def test_events_of_gaussian_steps_are_counted():
    step = PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0))
    nested = ComposedDpEvent(
        [
            SelfComposedDpEvent(SelfComposedDpEvent(step, 3), 4),
            NoOpDpEvent(),
            GaussianDpEvent(5.0),
            SelfComposedDpEvent(step, 0),
        ]
    )
    assert history_of(nested) == [(2.0, 0.1, 12), (5.0, 1.0, 1)]


@pytest.mark.parametrize(
    "event",
    [
        accounting.fixed_dpsgd_event(1.0, 10, dataset_size=100, batch_size=10),
        accounting.truncated_amplified_bandmf_event(
            1.0,
            10,
            num_bands=1,
            sampling_prob=0.1,
            largest_group_size=100,
            truncated_batch_size=20,
        ),
        PoissonSampledDpEvent(0.1, SelfComposedDpEvent(GaussianDpEvent(1.0), 2)),
        SelfComposedDpEvent(LaplaceDpEvent(1.0), 5),
    ],
    ids=["fixed size", "truncated", "several steps on one sample", "Laplace"],
)
def test_an_event_with_another_curve_is_refused(event):
    with pytest.raises(InvalidInputError, match="Gaussian steps with Poisson sampling"):
        history_of(event)


@pytest.mark.parametrize(
    ("options", "norm"),
    [
        ({"l2_clip_norm": 3.0}, 3.0),
        ({"l2_clip_norm": 3.0, "normalize_by": 12.0}, 0.25),
        ({"l2_clip_norm": 3.0, "rescale_to_unit_norm": True}, 1.0),
        (
            {"l2_clip_norm": 3.0, "rescale_to_unit_norm": True, "normalize_by": 8.0},
            0.125,
        ),
    ],
)
def test_the_norm_of_a_clipped_record_is_as_clipping_makes_it(options, norm):
    grad_fn = clipped_grad(lambda w, x: w @ x[0], **options)
    huge = np.full((1, 4), 1e3, np.float32)
    assert norm_in_sum(grad_fn) == norm
    assert clipping_norm(grad_fn) == 3.0
    clipped = jax.jit(grad_fn)(np.zeros(4, np.float32), huge)
    assert float(np.linalg.norm(clipped)) == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("enclosed", ["l2_clip_norm", "pre_clipping_transform"])
def test_a_clipping_norm_that_cannot_be_read_is_not_guessed(enclosed):
    """Neither of a function of one's own, nor of gradients that are changed before."""
    l2_clip_norm, pre_clipping_transform = 3.0, lambda grads: grads
    grad_fn = clipped_grad(
        lambda w, x: w @ x[0],
        l2_clip_norm=l2_clip_norm,
        pre_clipping_transform=pre_clipping_transform,
    )
    if enclosed == "l2_clip_norm":
        own = wraps(grad_fn.fun)(lambda w, x: l2_clip_norm * (w + x.sum(0)))
        grad_fn = dataclasses.replace(grad_fn, fun=own)
    assert clipping_norm(grad_fn) is None


def test_gradients_without_a_known_bound_are_refused():
    grad_fn = clipped_grad(lambda w, x: w @ x[0], l2_clip_norm=1.0)
    with pytest.raises(InvalidInputError, match="before jax"):
        norm_in_sum(jax.jit(grad_fn))
    for norm in (np.inf, 0.0):
        grad_fn = clipped_grad(lambda w, x: w @ x[0], l2_clip_norm=norm)
        with pytest.raises(InvalidInputError, match="without a finite clipping norm"):
            norm_in_sum(grad_fn)


def test_sampling_that_canaries_cannot_follow_is_refused():
    with pytest.raises(InvalidInputError, match="without truncation"):
        sampling_of(CyclicPoissonSampling(0.1, 10, truncated_batch_size=5))
    with pytest.raises(InvalidInputError, match="got FixedBatchSampling"):
        sampling_of(FixedBatchSampling(10, 10))
    with pytest.raises(InvalidInputError, match="sampling_prob must be in"):
        sampling_of(CyclicPoissonSampling(0.0, 10))


@pytest.mark.parametrize("norm", [0.0, -1.0, np.nan, np.inf])
def test_canaries_without_a_norm_are_refused(norm):
    with pytest.raises(InvalidInputError, match="norm must be finite and > 0"):
        Records(norm=norm)
