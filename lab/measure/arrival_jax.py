"""The JAX Privacy runs of ``arrival.py``."""

import warnings
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy import clipped_grad, noise_addition
from jax_privacy.batch_selection import CyclicPoissonSampling

from dpaudit import ApproxDP, Design, OneRun
from dpaudit.game.result import Result
from dpaudit.testing import fixed_key
from dpaudit.training.jax_privacy import JaxPrivacyAudit, Records, Sums, canary_loss

jax.config.update("jax_disable_most_optimizations", True)  # noqa: FBT003 (sooner)
warnings.simplefilter("ignore")

STEPS, RATE, NOISE, ROWS = 15, 0.2, 1.0, 100
CLAIM = ApproxDP(epsilon=3.0, delta=1e-5)


def loss(params: Any, pixels: Any, labels: Any) -> Any:  # noqa: ANN401 (jax)
    scores = jnp.tanh(pixels @ params["in"]) @ params["out"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


@cache
def gradients(*, records: bool) -> tuple[Any, Any]:
    """Return what clips and sums, and the same compiled."""
    grad_fn = clipped_grad(
        canary_loss(loss) if records else loss,
        l2_clip_norm=1.0,
        batch_argnums=(1, 2, 3) if records else (1, 2),
    )

    @jax.jit
    def summed(params: Any, batch: Any, padding: Any) -> Any:  # noqa: ANN401 (jax)
        return grad_fn(params, *batch, is_padding_example=padding)

    return grad_fn, summed


def scaled(privatizer: Any, factor: float) -> Any:  # noqa: ANN401 (optax)
    """A privatizer that multiplies its sums before it adds noise."""

    def update(sums: Any, state: Any, params: Any = None) -> Any:  # noqa: ANN401
        return privatizer.update(
            jax.tree.map(lambda part: factor * part, sums), state, params
        )

    return optax.GradientTransformation(privatizer.init, update)


def audited(
    other_model: bool,  # noqa: FBT001
    factor: float,
    seed: int,
    *,
    records: bool,
) -> Result:
    """Train under audit, and judge."""
    rng = np.random.default_rng(seed)
    canaries = 2000 if records else 1000
    params = {
        "in": jnp.asarray(rng.normal(size=(20, 100)) / 5, jnp.float32),
        "out": jnp.asarray(rng.normal(size=(100, 4)) / 8, jnp.float32),
    }
    sampling = CyclicPoissonSampling(RATE, STEPS)
    grad_fn, summed = gradients(records=records)
    audit = JaxPrivacyAudit(
        params,
        grad_fn,
        sampling,
        design=Design(canaries=canaries, rules=OneRun(guesses=100), claim=CLAIM),
        key=fixed_key(rng.bytes(32)),
        insertion=Records(norm=2.0) if records else Sums(),
    )
    plain = noise_addition.gaussian_privatizer(stddev=NOISE, prng_key=seed)
    privatizer = audit.wrap(scaled(plain, factor))
    if other_model:  # the state of another run is handed over
        audit.observe(plain.init(params))
    data: Any = (
        rng.normal(size=(ROWS, 20)).astype(np.float32),
        rng.integers(4, size=ROWS),
    )
    if records:
        longer, rows_of = audit.records(data)
        data = (*longer, rows_of)
    most = int(len(data[0]) * RATE * 1.4) + 20
    state = privatizer.init(params)
    for rows in sampling.batch_iterator(len(data[0]), rng=seed):
        some = np.full(most, -1)
        some[: len(rows)] = rows
        batch = jax.tree.map(lambda part: part[some], data)  # noqa: B023
        noisy, state = privatizer.update(summed(params, batch, some == -1), state)
        state = audit.observe(state)
        params = jax.tree.map(lambda p, g: p - 0.01 * g, params, noisy)
    return audit.finish()
