"""Audit a JAX Privacy training of scikit-learn's digits, from the run itself.

    python examples/jax_digits.py                        # an honest run
    python examples/jax_digits.py --divide-noise-by 4    # the same with a bug
    python examples/jax_digits.py --records              # canaries as records

The second run adds a quarter of the noise that the accountant is told of. With
``--records`` the canaries are rows of the data, which JAX Privacy itself samples and
clips. The exit code is the verdict's: 1 if refuted.
"""

import argparse
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy import batch_selection, clipped_grad, noise_addition
from jax_privacy.experimental.accounting import dpsgd_event
from sklearn.datasets import load_digits

from dpaudit import ApproxDP, Design, Key, OneRun
from dpaudit.accounting import noise_for
from dpaudit.game.result import Result
from dpaudit.training.jax_privacy import JaxAudit, Records, Sums, canary_loss

CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
STEPS, RATE, CLIP = 100, 0.1, 1.0
Parameters: TypeAlias = dict[str, jax.Array]
Tree: TypeAlias = Any


def network(seed: int) -> Parameters:
    """Return the parameters of a small network."""
    one, two = jax.random.split(jax.random.key(seed))
    return {
        "in": jax.random.normal(one, (64, 250)) / 8,
        "out": jax.random.normal(two, (250, 10)) / 16,
        "bias": jnp.zeros(10),
    }


def loss(params: Parameters, pixels: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy."""
    scores = jax.nn.relu(pixels @ params["in"]) @ params["out"] + params["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def train_and_audit(
    *,
    divide_noise_by: float = 1.0,
    as_records: bool = False,
    seed: int = 0,
    key: Key,
    publish: Callable[[str], object] = print,
) -> Result:
    """Return the audit's result."""
    pixels, labels = load_digits(return_X_y=True)
    data: Tree = (np.float32(pixels / 16), labels)
    params, optimizer = network(seed), optax.sgd(2.0)

    # What JAX Privacy is set to, and what the accountant is told.
    noise = noise_for(2.0, 1e-5, sample_rate=RATE, steps=STEPS, method="pld")
    sampling = batch_selection.CyclicPoissonSampling(RATE, STEPS)
    grad_fn = clipped_grad(
        canary_loss(loss) if as_records else loss,
        l2_clip_norm=CLIP,
        normalize_by=RATE * len(labels),
        batch_argnums=(1, 2, 3) if as_records else (1, 2),
    )
    privatizer = noise_addition.gaussian_privatizer(
        stddev=noise * grad_fn.sensitivity() / divide_noise_by, prng_key=seed
    )
    event = dpsgd_event(noise, STEPS, sampling_prob=RATE)

    # The audit.
    audit = JaxAudit(
        params,
        grad_fn,
        sampling,
        event,
        design=Design(canaries=1000, rules=OneRun(guesses=100), claim=CLAIM),
        key=key,
        insertion=Records(norm=CLIP) if as_records else Sums(),
        records=len(labels) + (1000 if as_records else 0),
        unchecked=("gradients", "clipping") if as_records else (),
    )
    publish(f"commitment: {audit.commitment.sha256}")  # before the run
    privatizer = audit.wrap(privatizer)
    if as_records:
        records, canaries = audit.records(data)
        data = (*records, canaries)
    else:

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
    for rows in sampling.batch_iterator(len(data[0]), rng=seed):
        some = batch_selection.pad_to_multiple_of(rows, 256)
        batch = jax.tree.map(lambda part, some=some: part[some], data)
        params, states = step(params, states, batch, some == -1)
        states = audit.observe(states, batch=rows)  # after every step
        audit.after_step(params)
    return audit.finish(released=params)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--records", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training")
    arguments = parser.parse_args()
    result = train_and_audit(
        divide_noise_by=arguments.divide_noise_by,
        as_records=arguments.records,
        seed=arguments.seed,
        key=Key.generate(),
    )
    print(result)
    raise SystemExit(result.verdict.exit_code)


if __name__ == "__main__":
    main()
