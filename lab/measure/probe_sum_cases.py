# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, ARG005, PLW0108 (as users write it)
"""Cases of ``probe_sum`` in numpy, torch, JAX and JAX Privacy: honest ones and faulty.

    python lab/measure/probe_sum_cases.py                # all
    python lab/measure/probe_sum_cases.py --only numpy   # those with a word

Each case is a clipped sum as users write it, with a batch and the norm that it is told
to keep. What is expected was written down before it was run. An honest case changes by
at most that norm when a record leaves; a faulty one breaks that. Some faults are
*beyond* the probe by what its own text says, and some sums it must call *unseen*.

Exits with 1 if an honest case has a fault, or a faulty one within reach has none.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jax_privacy import clipped_grad
from probe_corpus import BEYOND, FAULTY, HONEST, Build, cases_in, judge

from dpaudit.training.probe import Sensitivity, probe_sum

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

N, D, K = 12, 10, 4  # records, features, classes
UNSEEN = "unseen"
C: Final = 1.0


@dataclass
class Case:
    """A clipped sum, a batch, and the norm that it is told to keep."""

    clipped_sum: Callable[..., Any]
    batch: Any
    norm: float = C


CASES: list[tuple[str, str, Build]] = []
case = cases_in(CASES)


def sums(expected, label, batch=None, norm=C):
    """Add the clipped sum that is decorated, with its batch and norm."""

    def add(clipped_sum):
        CASES.append(
            (expected, label, lambda: Case(clipped_sum, batch or data(), norm))
        )
        return clipped_sum

    return add


def data(dtype=np.float64, *, size=1.0):
    """Return records and their classes."""
    rng = np.random.default_rng(0)
    return (size * rng.normal(size=(N, D))).astype(dtype), rng.integers(K, size=N)


# Numpy: softmax regression with a bias.

RNG: Final = np.random.default_rng(1)
W, B = RNG.normal(size=(D, K)) / 3, RNG.normal(size=K) / 3


def gradients(x, y, scale=1.0):
    """Return each record's gradients of weights and bias."""
    scores = x @ W.astype(x.dtype) + B.astype(x.dtype)
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    chances[np.arange(len(y)), y] -= 1
    chances *= np.asarray(scale, x.dtype)
    return x[:, :, None] * chances[:, None, :], chances


def norms(*parts):
    """Return each record's norm."""
    squares = sum(np.square(part).reshape(len(part), -1).sum(1) for part in parts)
    return np.sqrt(squares)


def clipped(parts, lengths, norm=C):
    """Return the sum of what is cut by these lengths."""
    factors = np.minimum(1, norm / np.maximum(lengths, 1e-12)).astype(parts[0].dtype)
    weights, bias = (np.tensordot(factors, part, 1) for part in parts)
    return {"weights": weights, "bias": bias}


def plain(batch, scale=1.0):
    """Return an honest sum."""
    parts = gradients(*batch, scale)
    return clipped(parts, norms(*parts))


sums(HONEST, "numpy")(plain)
sums(HONEST, "numpy, no scale, large records", data(size=9))(lambda batch: plain(batch))
sums(HONEST, "numpy, no scale, small records", data(size=0.01))(
    lambda batch: plain(batch)
)


@case(HONEST, "numpy, one flat array, a dict of records")
def _():
    x, y = data()

    def flat(batch, scale=1.0):
        found = plain((batch["x"], batch["y"]), scale)
        return np.concatenate([found["weights"].ravel(), found["bias"]])

    return Case(flat, {"x": x, "y": y, "more": None})


sums(HONEST, "numpy, float32", data(np.float32))(plain)
sums(HONEST, "numpy, float16", data(np.float16))(plain)
sums(HONEST, "numpy, float16, large records, no scale", data(np.float16, size=20))(
    lambda batch: plain(batch)
)


@sums(HONEST, "numpy, masked rows")
def _(batch, keep, scale=1.0):
    parts = gradients(*batch, scale)
    lengths = np.where(keep, norms(*parts), np.inf)
    return clipped(parts, lengths)


@sums(HONEST, "numpy, divided by a fixed number", data(), C / 64)
def _(batch, scale=1.0):
    return {name: part / 64 for name, part in plain(batch, scale).items()}


@sums(HONEST, "numpy, the mean of clipped gradients, told to keep C: it does")
def _(batch, scale=1.0):
    count = len(batch[0])
    return {name: part / count for name, part in plain(batch, scale).items()}


@sums(HONEST, "numpy, micro-batches of four")
def _(batch, scale=1.0):
    x, y = batch
    found = [plain((x[k : k + 4], y[k : k + 4]), scale) for k in range(0, len(x), 4)]
    return {name: sum(each[name] for each in found) for name in found[0]}


@sums(HONEST, "numpy, each layer cut to its share of C")
def _(batch, scale=1.0):
    parts, share = gradients(*batch, scale), C / np.sqrt(2)
    return [
        np.tensordot(np.minimum(1, share / np.maximum(norms(part), 1e-12)), part, 1)
        for part in parts
    ]


@sums(HONEST, "numpy, smooth clipping: g / (|g| + 0.01)")
def _(batch, scale=1.0):
    parts = gradients(*batch, scale)
    factors = 1 / (norms(*parts) + 0.01)
    return [np.tensordot(factors, part, 1) for part in parts]


@sums(HONEST, "numpy, records that are learned, and a few without a gradient")
def _(batch, scale=1.0):
    x, y = batch
    margin = 1 - x @ W[:, 0] * np.where(y > 1, 1, -1)
    each = (margin > 0)[:, None] * x * np.where(y > 1, -scale, scale)[:, None]
    lengths = norms(each)
    return np.tensordot(np.minimum(1, C / np.maximum(lengths, 1e-12)), each, 1)


@case(HONEST, "numpy, a large batch of 300")
def _():
    rng = np.random.default_rng(2)
    return Case(plain, (rng.normal(size=(300, D)), rng.integers(K, size=300)))


@sums(HONEST, "numpy, dropout from a fixed seed, masked rows")
def _(batch, keep, scale=1.0):
    x, y = batch
    x = x * (np.random.default_rng(3).random(x.shape) < 0.8)
    parts = gradients(x, y, scale)
    return clipped(parts, np.where(keep, norms(*parts), np.inf))


@sums(UNSEEN, "numpy, dropout from a fixed seed, rows taken out")
def _(batch, scale=1.0):
    x, y = batch
    return plain((x * (np.random.default_rng(3).random(x.shape) < 0.8), y), scale)


@case(UNSEEN, "numpy, dropout from a generator that goes on")
def _():
    rng = np.random.default_rng(3)
    return Case(lambda batch: plain((batch[0] * rng.random(D), batch[1])), data())


sums(UNSEEN, "numpy, sums that are not finite, whoever leaves")(
    lambda batch: plain((batch[0] * np.nan, batch[1]))
)


@sums(FAULTY, "numpy, no clipping")
def _(batch, scale=1.0):
    return [part.sum(0) for part in gradients(*batch, scale)]


sums(FAULTY, "numpy, no clipping, no scale")(
    lambda batch: [p.sum(0) for p in gradients(*batch)]
)


@sums(FAULTY, "numpy, norms without the bias")
def _(batch, scale=1.0):
    parts = gradients(*batch, scale)
    return clipped(parts, norms(parts[0]))


@sums(FAULTY, "numpy, norms without the bias, no scale, large records", data(size=2))
def _(batch):
    parts = gradients(*batch)
    return clipped(parts, norms(parts[0]))


@sums(FAULTY, "numpy, the batch clipped as one")
def _(batch, scale=1.0):
    sums = [part.sum(0) for part in gradients(*batch, scale)]
    length = np.sqrt(sum(float(np.square(part).sum()) for part in sums))
    return [part * min(1, C / length) for part in sums]


@sums(FAULTY, "numpy, the batch clipped as one, no scale", data(size=3))
def _(batch):
    sums = [part.sum(0) for part in gradients(*batch)]
    length = np.sqrt(sum(float(np.square(part).sum()) for part in sums))
    return [part * min(1, C / length) for part in sums]


@sums(FAULTY, "numpy, micro-batches of four, each clipped as one")
def _(batch, scale=1.0):
    each = gradients(*batch, scale)[0]
    sums = [each[k : k + 4].sum(0) for k in range(0, len(each), 4)]
    return sum(part * min(1, C / np.linalg.norm(part)) for part in sums)


@sums(
    FAULTY,
    "numpy, divided by the number of records, told C over the usual number",
    data(),
    C / N,
)
def _(batch, scale=1.0):
    count = len(batch[0])
    return {name: part / count for name, part in plain(batch, scale).items()}


@sums(
    FAULTY,
    "numpy, divided by the number of kept rows, told C over the usual one",
    data(),
    C / N,
)
def _(batch, keep, scale=1.0):
    parts = gradients(*batch, scale)
    found = clipped(parts, np.where(keep, norms(*parts), np.inf))
    return {name: part / keep.sum() for name, part in found.items()}


@sums(FAULTY, "numpy, records scaled by statistics of their batch")
def _(batch, scale=1.0):
    x, y = batch
    return plain(((x - x.mean(0)) / (x.std(0) + 1e-5), y), scale)


@sums(FAULTY, "numpy, records scaled by statistics of their batch, no scale")
def _(batch):
    x, y = batch
    return plain(((x - x.mean(0)) / (x.std(0) + 1e-5), y))


@sums(FAULTY, "numpy, statistics of the batch, masked rows")
def _(batch, keep, scale=1.0):
    x, y = batch
    parts = gradients((x - x.mean(0)) / (x.std(0) + 1e-5), y, scale)
    return clipped(parts, np.where(keep, norms(*parts), np.inf))


@sums(FAULTY, "numpy, mixed with the neighbour")
def _(batch, scale=1.0):
    x, y = batch
    return plain((0.7 * x + 0.3 * np.roll(x, 1, axis=0), y), scale)


@sums(FAULTY, "numpy, clipped to twice the norm")
def _(batch, scale=1.0):
    parts = gradients(*batch, scale)
    return clipped(parts, norms(*parts), 2 * C)


@sums(FAULTY, "numpy, each layer cut to C")
def _(batch, scale=1.0):
    return [
        np.tensordot(np.minimum(1, C / np.maximum(norms(part), 1e-12)), part, 1)
        for part in gradients(*batch, scale)
    ]


@case(FAULTY, "numpy, one record whose gradient is no number")
def _():
    x, y = data()
    x[5, 2] = np.nan
    return Case(plain, (x, y))


@sums(FAULTY, "numpy, norms in half precision", data(np.float32))
def _(batch, scale=1.0):
    parts = gradients(*batch, scale)
    squares = sum(np.square(p.astype(np.float16)).sum((1, 2)) for p in parts[:1])
    factors = np.minimum(1, C / np.sqrt(squares.astype(np.float64)))
    factors = np.where(np.isfinite(squares), factors, np.nan)
    return np.tensordot(factors, parts[0], 1)


@sums(FAULTY, "numpy, a norm that is cut where it is large: 1 / |g| only below 10")
def _(batch, scale=1.0):
    parts = gradients(*batch, scale)
    lengths = norms(*parts)
    return clipped(parts, np.where(lengths < 10, lengths, 10.0))


sums(BEYOND, "numpy, no clipping of small records, no scale", data(size=0.01))(
    lambda batch: [p.sum(0) for p in gradients(*batch)]
)


# Torch: per-record gradients by torch.func.


def torch_case(wrong="", dtype=torch.float32):
    """Return a network whose gradients are taken record by record."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(D, 8), torch.nn.Tanh(), torch.nn.Linear(8, K)
    ).to(dtype)
    params = {name: p.detach() for name, p in net.named_parameters()}

    def loss(params, x, y, scale):
        out = torch.func.functional_call(net, params, (x[None],))
        return scale * torch.nn.functional.cross_entropy(out, y[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, None))

    def clipped_sum(batch, scale=1.0):
        x, y = batch
        if wrong == "statistics":
            x = torch.nn.functional.batch_norm(x, None, None, training=True)
        grads = each(params, x, y, scale)
        counted = [g for name, g in grads.items() if name != wrong]
        lengths = torch.stack([g.reshape(len(g), -1).norm(dim=1) for g in counted], 1)
        factors = (C / lengths.norm(dim=1).clamp(min=1e-12)).clamp(max=1)
        if wrong == "none":
            factors = torch.ones_like(factors)
        return {name: torch.tensordot(factors, g, 1) for name, g in grads.items()}

    x, y = data()
    return Case(clipped_sum, (torch.tensor(x, dtype=dtype), torch.tensor(y)))


CASES += [
    (HONEST, "torch.func", torch_case),
    (HONEST, "torch.func, float64", lambda: torch_case(dtype=torch.float64)),
    (HONEST, "torch.func, float16", lambda: torch_case(dtype=torch.float16)),
    (FAULTY, "torch.func, no clipping", lambda: torch_case("none")),
    (FAULTY, "torch.func, norms without a layer", lambda: torch_case("2.weight")),
    (FAULTY, "torch.func, batch norm", lambda: torch_case("statistics")),
]


# JAX and JAX Privacy.


def network(dtype=jnp.float32):
    one, two = jax.random.split(jax.random.key(0))
    return {
        "in": (jax.random.normal(one, (D, 16)) / 3).astype(dtype),
        "out": (jax.random.normal(two, (16, K)) / 4).astype(dtype),
    }


def jax_loss(params, x, y, scale=1.0):
    scores = jnp.tanh(x @ params["in"]) @ params["out"]
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, y)
    return (scale * losses.mean()).astype(scores.dtype)


def private(
    loss: Callable[..., Any] = jax_loss,
    before: Callable[[Any, Any], Any] = lambda x, keep: x,
    after: Callable[[Any, Any], Any] = lambda grads, keep: grads,
    *,
    dtype=jnp.float32,
    told: float | None = None,
    size=1.0,
    summed=None,
    **options,
):
    """Return a sum of JAX Privacy, compiled, with padding."""
    grad_fn = clipped_grad(
        loss, **{"l2_clip_norm": C, "batch_argnums": (1, 2), "dtype": summed, **options}
    )
    params = network(dtype)

    @jax.jit
    def clipped_sum(batch, keep, scale=1.0):
        x, y = batch
        grads = grad_fn(
            params, before(x, keep), y, scale, is_padding_example=jnp.logical_not(keep)
        )
        return after(grads, keep)

    x, y = data(np.float32, size=size)
    return Case(clipped_sum, (jnp.asarray(x, dtype), y), told or grad_fn.sensitivity())


def each_grad(params, x, y, scale):
    grads = jax.vmap(jax.grad(jax_loss), (None, 0, 0, None))
    return grads(params, x[:, None], y[:, None], scale)


def own_jax(clip: Callable[[Any, Any], Any]):
    """Return a sum in plain JAX, without padding: compiled for each size."""
    params = network()

    @jax.jit
    def clipped_sum(batch, scale=1.0):
        grads = each_grad(params, *batch, scale)
        lengths = jax.vmap(optax.global_norm)(grads)
        factors = clip(grads, lengths)
        return jax.tree.map(lambda g: jnp.tensordot(factors, g, 1), grads)

    return Case(clipped_sum, data(np.float32))


def cut(_, lengths):
    return jnp.minimum(1, C / jnp.maximum(lengths, 1e-12))


def dropout_loss(params, x, y, scale, key):
    x = x * jax.random.bernoulli(key, 0.8, x.shape)
    return jax_loss(params, x, y, scale)


def dropout_case(*, keyed_rows=False):
    params, key = network(), jax.random.key(5)
    x, y = data(np.float32)
    if keyed_rows:
        grad_fn = clipped_grad(
            lambda p, x, y, keys, scale: dropout_loss(p, x, y, scale, keys[0]),
            l2_clip_norm=C,
            batch_argnums=(1, 2, 3),
        )

        def of_rows(batch, scale=1.0):
            return grad_fn(params, *batch, scale)

        return Case(of_rows, (x, y, jax.random.split(key, N)))
    grad_fn = clipped_grad(
        dropout_loss, l2_clip_norm=C, batch_argnums=(1, 2), prng_argnum=4
    )

    def clipped_sum(batch, keep, scale=1.0):
        return grad_fn(params, *batch, scale, key, is_padding_example=~keep)

    return Case(clipped_sum, (x, y))


def nan_case(*, safe):
    found = private(nan_safe=safe)
    x, y = found.batch
    found.batch = x.at[3, 0].set(jnp.nan), y
    return found


def unpadded():
    grad_fn, params = (
        clipped_grad(jax_loss, l2_clip_norm=C, batch_argnums=(1, 2)),
        network(),
    )
    return Case(lambda batch: grad_fn(params, *batch), data(np.float32, size=5))


def standardise(x, _):
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


def by_count(grads, keep):
    return jax.tree.map(lambda g: g / keep.sum(), grads)


CASES += [
    (HONEST, "JAX Privacy", private),
    (HONEST, "JAX Privacy, no padding, no scale", unpadded),
    (HONEST, "JAX Privacy, micro-batches", lambda: private(microbatch_size=4)),
    (HONEST, "JAX Privacy, normalize_by", lambda: private(normalize_by=64.0)),
    (
        HONEST,
        "JAX Privacy, unit norm",
        lambda: private(rescale_to_unit_norm=True, l2_clip_norm=0.1),
    ),
    (HONEST, "JAX Privacy, bfloat16", lambda: private(dtype=jnp.bfloat16)),
    (
        HONEST,
        "JAX Privacy, bfloat16 summed in float32",
        lambda: private(dtype=jnp.bfloat16, summed=jnp.float32),
    ),
    (HONEST, "JAX Privacy, float16", lambda: private(dtype=jnp.float16)),
    (HONEST, "JAX Privacy, dropout by row, padded", dropout_case),
    (
        HONEST,
        "JAX Privacy, a key in each record",
        lambda: dropout_case(keyed_rows=True),
    ),
    (HONEST, "JAX Privacy, a record that is no number", lambda: nan_case(safe=True)),
    (HONEST, "JAX by hand", lambda: own_jax(cut)),
    (
        HONEST,
        "JAX Privacy, statistics of public data",
        lambda: private(before=lambda x, _: (x - 0.1) / 1.1),
    ),
    (
        FAULTY,
        "JAX Privacy, a clipping norm without end",
        lambda: private(l2_clip_norm=float("inf"), told=C),
    ),
    (
        FAULTY,
        "JAX Privacy, records scaled by their batch",
        lambda: private(before=standardise),
    ),
    (
        FAULTY,
        "JAX Privacy, mixed with the neighbour",
        lambda: private(before=lambda x, _: 0.7 * x + 0.3 * jnp.roll(x, 1, axis=0)),
    ),
    (
        FAULTY,
        "JAX Privacy, divided by the records of the batch",
        lambda: private(after=by_count, told=C / N),
    ),
    (
        FAULTY,
        "JAX Privacy, multiplied after clipping",
        lambda: private(after=lambda grads, _: jax.tree.map(lambda g: 1.5 * g, grads)),
    ),
    (
        FAULTY,
        "JAX Privacy, not safe of what is no number",
        lambda: nan_case(safe=False),
    ),
    (
        FAULTY,
        "JAX by hand, no clipping",
        lambda: own_jax(lambda _, lengths: jnp.ones_like(lengths)),
    ),
    (
        FAULTY,
        "JAX by hand, norms without a leaf",
        lambda: own_jax(
            lambda grads, _: cut(_, jax.vmap(jnp.linalg.norm)(grads["in"]))
        ),
    ),
    (
        FAULTY,
        "JAX by hand, one factor for the batch",
        lambda: own_jax(
            lambda _, lengths: jnp.full_like(
                lengths, jnp.minimum(1, C / lengths.mean())
            )
        ),
    ),
    (
        FAULTY,
        "JAX by hand, the largest norm decides for all",
        lambda: own_jax(
            lambda _, lengths: jnp.full_like(lengths, jnp.minimum(1, C / lengths.max()))
        ),
    ),
]


def examined(build: Build) -> tuple[Sensitivity, str, float]:
    """Probe a case; return what was found, and the seconds of CPU it took."""
    given, start = build(), time.process_time()
    found = probe_sum(given.clipped_sum, given.batch, norm=given.norm)
    return found, "", time.process_time() - start


if __name__ == "__main__":
    judge(CASES, examined, {HONEST: {"quiet"}, FAULTY: {"fault"}, UNSEEN: {"unseen"}})
