"""Draw the whole-curve certificate against an accountant's curve.

    pip install '.[accounting]' matplotlib
    python lab/measure/certificate.py docs/explanation/certificate.svg

The claim is the pessimistic PLD curve of one Gaussian release with noise 1. One
mechanism keeps it; the other adds half the noise. 100,000 canaries each, the 1,500
surest coins guessed, alpha = 0.05. Below a certificate's line no curve of its mechanism
can lie, at all epsilons at once; the claim is refuted where its curve does.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from dpaudit.accounting import accountant_curve
from dpaudit.bounds import Counts, CurveCertificate

CANARIES, GUESSES, ALPHA = 100_000, 1_500, 0.05


def audit(noise: float, rng: np.random.Generator) -> CurveCertificate:
    """Audit a local Gaussian mechanism with the best guesser."""
    bits = rng.integers(0, 2, CANARIES)
    seen = bits + noise * rng.normal(size=CANARIES)
    surest = np.argsort(-np.abs(seen - 0.5))[:GUESSES]
    right = int(np.sum((seen[surest] > 0.5) == (bits[surest] == 1)))
    counts = Counts(canaries=CANARIES, guesses=GUESSES, correct=right)
    return CurveCertificate(counts=counts, alpha=ALPHA)


def main() -> None:
    claim = accountant_curve([(1.0, 1.0, 1)])
    rng = np.random.default_rng(0)
    epsilons = np.linspace(0, 7, 300)
    figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    accounted = [claim.delta_at(float(e)) for e in epsilons]
    axes.semilogy(
        epsilons, accounted, "k", lw=1.8, label="claimed: accountant, noise 1"
    )
    for name, noise, colour in (
        ("noise 1, as claimed", 1.0, "tab:green"),
        ("noise 1/2", 0.5, "tab:red"),
    ):
        certificate = audit(noise, rng)
        verdict = "refuted" if certificate.refutes(claim) else "not refuted"
        deltas = certificate.delta_lower(epsilons)
        label = f"audit, {name}: claim {verdict}"
        axes.semilogy(
            epsilons, np.where(deltas > 0, deltas, np.nan), colour, label=label
        )
        print(f"{label}, {certificate.counts.correct} of {GUESSES} right")
    axes.set(
        xlabel="epsilon",
        ylabel="delta",
        ylim=(1e-9, 1),
        title="Lower bounds on the whole privacy curve, alpha = 0.05",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", frameon=False)
    figure.savefig(sys.argv[1])


if __name__ == "__main__":
    main()
