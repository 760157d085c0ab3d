"""What ties broken against the auditor cost: bounds on rounded scores.

Scores are N(shift, 1) of included canaries and N(0, 1) of the others, rounded to some
digits. The bound with ties broken against the auditor, and with a lot for each id, are
compared with that of the scores as they were, on the same runs.

    python lab/measure/ties.py [--repeats 200] [--canaries 10000] [--shift 1]

Fails if six decimals cost .01 or more on average.
"""

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

from dpaudit import ApproxDP, Design, OneRun, Ranking, audit_scores
from dpaudit.game.scores import ties_decided

MOST_LOST = 0.01  # of the mean bound, by six decimals
DIGITS = (6, 4, 3, 2, 1)


def bound(
    design: Design,
    bits: NDArray[np.int64],
    scores: NDArray[np.float64],
    rng: np.random.Generator | None = None,
) -> float:
    """Return the lower bound of one audit."""
    found = audit_scores(
        np.arange(len(bits)),
        bits,
        scores,
        design=design,
        tie_rng=rng,
        coins_were_independent=True,
    )
    return found.bound.epsilon_lower


def main() -> bool:
    """Print a row for each rule and number of digits; return whether it failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--canaries", type=int, default=10_000)
    parser.add_argument("--shift", type=float, default=1.0)
    options = parser.parse_args()
    n, failed = options.canaries, False
    for rules in (Ranking(guesses=n), OneRun(guesses=n // 20)):
        claim = ApproxDP(epsilon=1.0, delta=1e-5)
        design = Design(canaries=n, rules=rules, claim=claim)
        rows = []
        for repeat in range(options.repeats):
            rng = np.random.default_rng(repeat)
            bits = rng.integers(0, 2, n)
            scores = rng.standard_normal(n) + options.shift * bits
            row = [bound(design, bits, scores), 0.0, 0.0]
            for digits in DIGITS:
                tied = scores.round(digits)
                decided = ties_decided(tied, bits == 1, design=design)
                tie_breaks = bound(design, bits, tied, np.random.default_rng(repeat))
                row += [bound(design, bits, tied), tie_breaks, decided / design.guesses]
            rows.append(row)
        found = np.array(rows).reshape(options.repeats, -1, 3)
        exact = found[:, 0, 0]
        print(
            f"{rules}: mean bound {exact.mean():.4f} ± "
            f"{exact.std(ddof=1) / len(exact) ** 0.5:.4f}"
        )
        for place, digits in enumerate(DIGITS, 1):
            lost = exact[:, np.newaxis] - found[:, place, :2]
            mean, error = lost.mean(0), lost.std(0, ddof=1) / len(exact) ** 0.5
            print(
                f"  {digits} decimals: lost {mean[0]:.4f} ± {error[0]:.4f} against the "
                f"auditor, {mean[1]:.4f} ± {error[1]:.4f} by lot; ties decided "
                f"{found[:, place, 2].mean():.2%} of the guesses"
            )
            failed |= digits == 6 and mean[0] >= MOST_LOST
    return failed


if __name__ == "__main__":
    sys.exit(int(main()))
