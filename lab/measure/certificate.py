"""Draw the whole-curve certificate against an accountant's curve.

    pip install '.[all]' ./lab
    python lab/measure/certificate.py docs/explanation/certificate.svg

The claim is the pessimistic PLD curve of one Gaussian release with noise 1. One
mechanism keeps it; the other adds half the noise. 100,000 canaries each, the 1,500
surest coins guessed, alpha = 0.05. Below a certificate's line no curve of its mechanism
can lie, at all epsilons at once; the claim is refuted where its curve does.
"""

import sys
from collections.abc import Iterable

import numpy as np

from dpaudit.accounting import accountant_curve
from dpaudit.bounds import Counts, CurveCertificate
from dpaudit.privacy.guarantees import GaussianDP
from dpaudit_lab.pictures.chart import Chart, Curve, Look, Point
from dpaudit_lab.pictures.curves import draw_chart

CANARIES, GUESSES, ALPHA = 100_000, 1_500, 0.05
EPSILONS, LEAST = np.linspace(0, 7, 300), 1e-9


def audit(noise: float, rng: np.random.Generator) -> CurveCertificate:
    """Audit a local Gaussian mechanism with the best guesser."""
    bits = rng.integers(0, 2, CANARIES)
    seen = bits + noise * rng.normal(size=CANARIES)
    surest = np.argsort(-np.abs(seen - 0.5))[:GUESSES]
    right = int(np.sum((seen[surest] > 0.5) == (bits[surest] == 1)))
    counts = Counts(canaries=CANARIES, guesses=GUESSES, correct=right)
    return CurveCertificate(counts=counts, alpha=ALPHA)


def points(name: str, deltas: Iterable[float]) -> list[Point]:
    """Return a curve where it can be seen."""
    pairs = zip(EPSILONS, deltas, strict=True)
    return [Point(curve=name, x=float(e), mean=d) for e, d in pairs if d >= LEAST]


def main() -> None:
    claim = accountant_curve([(1.0, 1.0, 1)])
    rng = np.random.default_rng(0)
    claimed, true = "claimed: accountant, noise 1", "true curve of noise 1/2"
    shown = {
        name: points(name, [curve.delta_at(float(e)) for e in EPSILONS])
        for name, curve in ((claimed, claim), (true, GaussianDP(mu=2.0)))
    }
    for name, noise in (("noise 1, as claimed", 1.0), ("noise 1/2", 0.5)):
        certificate = audit(noise, rng)
        verdict = "refuted" if certificate.refutes(claim) else "not refuted"
        label = f"audit, {name}: claim {verdict}"
        shown[label] = points(label, map(float, certificate.delta_lower(EPSILONS)))
        print(f"{label}, {certificate.counts.correct} of {GUESSES} right")
    chart = Chart(
        title="Lower bounds on the whole privacy curve",
        caption=f"{CANARIES:,} canaries, the {GUESSES:,} surest coins guessed, alpha = "
        f"{ALPHA:g}.\nNo curve of an audited mechanism lies below its line; the claim "
        "is refuted where its curve does.",
        x_label="epsilon",
        y_label="delta",
        curves=tuple(
            Curve(
                name=name,
                colour=colour,
                look=Look.LIMIT if name == true else Look.COMPUTED,
            )
            for name, colour in zip(shown, (6, 6, 2, 1), strict=True)
        ),
        points=tuple(point for each in shown.values() for point in each),
        y_ticks=(1e-8, 1e-6, 1e-4, 1e-2, 1.0),
    )
    draw_chart(chart, sys.argv[1])


if __name__ == "__main__":
    main()
