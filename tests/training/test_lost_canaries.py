"""Loops that lose their canaries, which an audit must not call fine.

Nothing here asks for more of a result than its text.
"""

import numpy as np
import pytest

from dpaudit import ApproxDP, Design, OneRun
from dpaudit.errors import VoidAuditError
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

N, STEPS, NOISE = 500, 40, 1.5
DESIGN = Design(
    canaries=N, rules=OneRun(guesses=100), claim=ApproxDP(epsilon=3.0, delta=1e-5)
)
# What a step shows, and what it says that real records put there.
FAULTS = {
    "never arrived": lambda j, real, noise: (real + noise, real),
    "negated": lambda j, real, noise: (real - j + noise, real),
    "scaled by 100": lambda j, real, noise: (real + 100 * j + noise, real),
    "scaled by 0.01": lambda j, real, noise: (real + 0.01 * (j + noise), real),
    "halved": lambda j, real, noise: (real + 0.5 * j + noise, real),
    "the real part holds them": lambda j, real, noise: (real + j + noise, real + j),
    "another model": lambda j, real, noise: (noise, real),
    "no noise and no canary": lambda j, real, noise: (0 * noise, 0 * real),
}


def result_of(step, *, steps=STEPS):
    rng = np.random.default_rng(0)
    audit = SumsAudit(
        design=DESIGN,
        key=fixed_key(rng.bytes(32)),
        dimension=N,
        sample_rate=0.2,
        real_sums=True,
        unchecked=("sampling", "gradients", "clipping"),
    )
    for _ in range(steps):
        real = 0.3 * rng.normal(size=N) + 0.1
        noise = NOISE * rng.normal(size=N)
        noisy, known = step(audit.contributions(), real, noise)
        audit.observe(noisy, real_sums=known)
    return audit.finish()


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_loop_that_loses_its_canaries_is_not_reassured(fault):
    """Errors are about 0.035: each fault lies 14 or more from a slope of 1."""
    text = str(result_of(FAULTS[fault]))
    assert text.startswith("Invalid run: ")
    assert "Nothing is said about the claim." in text


def test_an_honest_loop_is_told_that_its_canaries_arrived():
    text = str(result_of(lambda j, real, noise: (real + j + noise, real)))
    assert text.startswith("No violation detected.")
    assert "canaries arrived: slope" in text


def test_a_loop_of_no_steps_is_void():
    with pytest.raises(VoidAuditError, match="no training step has run"):
        result_of(FAULTS["halved"], steps=0)
