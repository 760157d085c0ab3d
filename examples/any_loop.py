"""Audit a training loop that uses no DP library at all: DP-SGD in plain numpy.

    python examples/any_loop.py                        # an honest run
    python examples/any_loop.py --divide-noise-by 4    # the same with a bug

Logistic regression on scikit-learn's digits. The loop samples, clips, sums and adds
noise by itself; the audit asks for two lines in it: what joins a step's sum before
noise, and what the noisy sum shows. The exit code is the verdict's: 1 if refuted.
"""

import argparse

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from dpaudit import ApproxDP, Key, SumsAudit
from dpaudit.accounting import accountant_curve, noise_for
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.game.result import Result

EPSILON, DELTA = 2.0, 1e-5
STEPS, RATE, CLIP = 200, 0.05, 1.0


def clipped_sum(
    weights: NDArray[np.float64],
    pixels: NDArray[np.float64],
    labels: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the sum of the records' gradients, each clipped to the norm CLIP."""
    scores = pixels @ weights
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    # A record's gradient is an outer product, so its norm is a product of norms.
    norms = np.linalg.norm(pixels, axis=1) * np.linalg.norm(chances, axis=1)
    chances *= np.minimum(1, CLIP / np.maximum(norms, 1e-12))[:, np.newaxis]
    return np.asarray(pixels.T @ chances)


def train_and_audit(
    *, divide_noise_by: float = 1.0, key: Key, rng: np.random.Generator
) -> tuple[Result, float]:
    """Return the audit's result and the accuracy on the training set."""
    images, labels = load_digits(return_X_y=True)
    pixels = images / 16.0
    noise = noise_for(EPSILON, DELTA, sample_rate=RATE, steps=STEPS, method="pld")
    curve = accountant_curve([(noise, RATE, STEPS)])
    weights = np.zeros((64, 10))

    plan = plan_audit(
        TrainingSetup(steps=STEPS, rate=RATE, noise=noise),
        claim=ApproxDP(epsilon=EPSILON, delta=DELTA),
        coordinates=weights.size,
        per_coordinate=1,
        in_rounds=False,
        guarantee=curve,
    )
    audit = SumsAudit(
        design=plan.design(),
        key=key,
        dimension=weights.size,
        sample_rate=RATE,
        noise=noise,
        knows_real_sums=True,
        records=len(pixels),
    )
    print(f"commitment: {audit.commitment.sha256}")  # before the run

    def update(_: object, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the next weights, which depend on records by the noisy sum alone."""
        return weights - 0.5 / (RATE * len(pixels)) * noisy.reshape(weights.shape)

    some = pixels[:12], labels[:12]
    audit.probe(lambda batch: clipped_sum(weights, *batch), some, norm=CLIP)
    audit.probe_update(update, some)
    for _ in range(STEPS):
        batch = np.flatnonzero(rng.random(len(pixels)) < RATE)
        real = clipped_sum(weights, pixels[batch], labels[batch]).ravel()
        total = real.copy()
        total[audit.coordinates] += CLIP * audit.contributions()  # canaries in
        noisy = total + rng.normal(scale=noise / divide_noise_by * CLIP, size=640)
        audit.observe(  # noisy sums out
            noisy[audit.coordinates] / CLIP,
            real_sums=real[audit.coordinates] / CLIP,
            batch=batch,
        )
        weights = update(batch, noisy)
        audit.after_step(weights)

    accuracy = float(np.mean((pixels @ weights).argmax(axis=1) == labels))
    result = audit.finish(accounted=[(noise, RATE, STEPS)], released=weights)
    return result, accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="seed of the training")
    arguments = parser.parse_args()
    result, accuracy = train_and_audit(
        divide_noise_by=arguments.divide_noise_by,
        key=Key.generate(),
        rng=np.random.default_rng(arguments.seed),
    )
    print(f"accuracy: {accuracy:.2f}")
    print(result)
    raise SystemExit(result.verdict.exit_code)


if __name__ == "__main__":
    main()
