"""The adapter for JAX Privacy conforms, with more or less noise in its privatizer.

Random, with fixed seeds: the check of an adapter that conforms fails with chance 1e-6.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax_privacy import clipped_grad, noise_addition
from jax_privacy.batch_selection import CyclicPoissonSampling
from jax_privacy.experimental.accounting import dpsgd_event

from dpaudit import ApproxDP, Coins, Design, OneRun
from dpaudit.errors import ConformanceError
from dpaudit.testing.conformance_adapter import Trained, check_adapter
from dpaudit.training.jax_privacy import JaxAudit
from dpaudit.training.layout import scattered
from dpaudit.training.participation_draws import drawn

CLIP, CANARIES, DIMENSION = 2.0, 300, 620
NOISE, STEPS, RATE = 2.26, 20, 0.3
PARAMS = {"b": np.zeros(20, np.float32), "w": np.zeros((30, 20), np.float32)}


@dataclass(frozen=True)
class JaxPrivacyTraining:
    """Sums of real records and a privatizer; the event has the claimed noise."""

    scale: float = 1.0  # of sums, before the noise

    def train(self, *, key, noise, folder):
        audit = JaxAudit(
            PARAMS,
            clipped_grad(lambda params, row: params["b"] @ row, l2_clip_norm=CLIP),
            CyclicPoissonSampling(RATE, STEPS),
            dpsgd_event(NOISE, STEPS, sampling_prob=RATE),
            design=Design(
                canaries=CANARIES,
                rules=OneRun(guesses=100),
                claim=ApproxDP(epsilon=2.0, delta=1e-5),
            ),
            key=key,
        )
        privatizer = audit.wrap(self.privatizer(noise, key))
        state, update = privatizer.init(PARAMS), jax.jit(privatizer.update)
        rng, seen = np.random.default_rng(3), []
        for _ in range(STEPS):
            real = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape)), PARAMS)
            noisy, state = update(real, state)
            state = audit.observe(state)
            seen.append(self.flat(noisy) - self.flat(real))
        audit.save(folder / "state.npz")
        places = scattered(DIMENSION, CANARIES, key=key)
        return Trained(
            result=audit.finish(),
            joined=self.joined(key),
            seen=np.array(seen)[:, places] / CLIP,
        )

    def privatizer(self, noise, key):
        plain = noise_addition.gaussian_privatizer(
            stddev=CLIP * noise, prng_key=int.from_bytes(key.secret[:3])
        )

        def update(sums, state, params=None):
            scaled = jax.tree.map(lambda part: self.scale * part, sums)
            return plain.update(scaled, state, params)

        return optax.GradientTransformation(plain.init, update)

    def flat(self, tree):
        return np.concatenate([np.ravel(tree[name]) for name in "bw"]).astype(float)

    def joined(self, key):
        inside = np.zeros((STEPS, CANARIES), int)
        for step in range(STEPS):
            inside[step, drawn(key, step, canaries=CANARIES, sample_rate=RATE)] = 1
        return inside * Coins(key=key, count=CANARIES).bits()


def check(adapter, folder):
    rng = np.random.default_rng(0)
    return check_adapter(adapter, noise=NOISE, folder=folder, rng=rng)


@pytest.mark.nightly
def test_the_adapter_for_jax_privacy_conforms(tmp_path):
    found = str(check(JaxPrivacyTraining(), tmp_path))
    assert "0.05 times the noise is refuted" in found
    assert "neither key nor coins" in found


def test_sums_that_are_scaled_on_the_way_are_caught(tmp_path):
    with pytest.raises(ConformanceError, match="should by 1"):
        check(JaxPrivacyTraining(scale=0.5), tmp_path)
