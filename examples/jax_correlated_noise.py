"""Audit a BandMF training (correlated noise) of digits in JAX Privacy.

    python examples/jax_correlated_noise.py                        # an honest run
    python examples/jax_correlated_noise.py --divide-noise-by 2    # the same with a bug

Each record joins every eighth of 64 steps, and the noise of a step is partly taken back
in the seven that follow. The second run adds half of the noise that its plan states.
The exit code is the verdict's: 1 if refuted.
"""

import argparse
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy import batch_selection, noise_addition
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
from jax_privacy.matrix_factorization import toeplitz
from sklearn.datasets import load_digits

from dpaudit import ApproxDP, Design, JaxAudit, Key, OneRun
from dpaudit.game.result import Result

CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
STEPS, BANDS = 64, 8
Parameters: TypeAlias = dict[str, jax.Array]
Tree: TypeAlias = Any


def network(seed: int, width: int) -> Parameters:
    """Return the parameters of a small network."""
    one, two = jax.random.split(jax.random.key(seed))
    return {
        "in": jax.random.normal(one, (64, width)) / 8,
        "out": jax.random.normal(two, (width, 10)) / 16,
        "bias": jnp.zeros(10),
    }


def loss(params: Parameters, pixels: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy."""
    scores = jax.nn.relu(pixels @ params["in"]) @ params["out"] + params["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def train_and_audit(
    *, divide_noise_by: float = 1.0, seed: int = 0, width: int = 250, key: Key
) -> Result:
    """Return the audit's result."""
    pixels, labels = load_digits(return_X_y=True)
    data: Tree = (np.float32(pixels / 16), labels)
    params, optimizer = network(seed, width), optax.sgd(0.5)

    # What JAX Privacy is set to.
    config = BandMFExecutionPlanConfig.default(
        num_bands=BANDS,
        iterations=STEPS,
        epsilon=CLAIM.epsilon,
        delta=CLAIM.delta,
        normalize_by=len(labels) / BANDS,
        noise_seed=seed,
    )
    plan, privatizer = config.plan, config.plan.noise_addition_transform
    grad_fn = plan.clipped_grad(loss, batch_argnums=(1, 2))
    if divide_noise_by != 1:  # a bug: the plan does not know of it
        multiplier = plan.dp_event.event.event.noise_multiplier
        privatizer = noise_addition.matrix_factorization_privatizer(
            toeplitz.inverse_as_streaming_matrix(config.strategy),
            stddev=float(
                multiplier
                * grad_fn.sensitivity()
                * np.linalg.norm(config.strategy)
                / divide_noise_by
            ),
            prng_key=seed,
        )

    # The audit.
    audit = JaxAudit.of_plan(
        config,
        params,
        grad_fn,
        design=Design(canaries=10_000, rules=OneRun(guesses=185), claim=CLAIM),
        key=key,
        unchecked=("sampling",),  # canaries are added to sums, after it
    )
    print(f"commitment: {audit.commitment.sha256}")  # before the run
    privatizer = audit.wrap(privatizer)

    @jax.jit
    def clipped_sum(batch: Tree, keep: Tree) -> Tree:
        return grad_fn(params, *batch, is_padding_example=~keep)

    audit.probe(clipped_sum, jax.tree.map(lambda part: part[:12], data))

    @jax.jit
    def step(params: Tree, states: Tree, batch: Tree, padding: Tree) -> Tree:
        grads = grad_fn(params, *batch, is_padding_example=padding)
        noisy, noise_state = privatizer.update(grads, states[0])
        updates, optimizer_state = optimizer.update(noisy, states[1])
        return optax.apply_updates(params, updates), (noise_state, optimizer_state)

    states = privatizer.init(params), optimizer.init(params)
    audit.probe_step(
        lambda some, keep: step(params, states, some, ~keep),
        jax.tree.map(lambda part: part[:12], data),
    )
    sampling = plan.batch_selection_strategy
    for rows in sampling.batch_iterator(len(labels), rng=seed):
        some = batch_selection.pad_to_multiple_of(rows, 256)
        batch = jax.tree.map(lambda part, some=some: part[some], data)
        params, states = step(params, states, batch, some == -1)
        states = audit.observe(states)  # after every step
        audit.after_step(params)
    return audit.finish(released=params)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    arguments = parser.parse_args()
    result = train_and_audit(
        divide_noise_by=arguments.divide_noise_by, key=Key.generate()
    )
    print(result)
    raise SystemExit(result.verdict.exit_code)


if __name__ == "__main__":
    main()
