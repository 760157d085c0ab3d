"""What a planned number of adaptive guesses shows, and what other coins hide.

    python lab/measure/in_turn.py planned     # three minutes
    python lab/measure/in_turn.py true        # half a minute
    python lab/measure/in_turn.py hidden      # two minutes

``planned``: count-in-sets in 100 sets, without noise and with. A number is planned on
games of seed 1; then 300 audits of other seeds are played by it, and by other numbers
that one might have named; means of their bounds with standard errors, alpha = 0.05,
delta = 0. Beside it the expected bound of the best fixed number in one run.

``true``: randomised response at its epsilon, and its parity in pairs, a number planned
for each; how often the bound of 2,000 audits exceeds the epsilon.

``hidden``: the levels of as many guesses as there are elements, on average over
outputs, with full knowledge, in turn and in one run, for sets of rising size.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds import Counts, ExactBound
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.game.guessers import MostLikely
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.mechanisms.noise import GaussianNoise, NoNoise
from dpaudit.mechanisms.parity import ParityPosterior
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.stats.binomial import rate_limits
from dpaudit.stats.intervals import standard_error
from dpaudit.theory.correct_guess_distribution import simulated_counts
from dpaudit.theory.gaps import gaps
from dpaudit.theory.posterior import plan_count, play

ALPHA = 0.05
SETS = 100
SIZES = (1, 2, 5, 10, 20)


def mechanisms() -> Iterator[tuple[str, CountInSets]]:
    for size in SIZES:
        for name, noise in (("none", NoNoise()), ("0.5", GaussianNoise(sigma=0.5))):
            n = SETS * size
            yield (
                f"sets of {size:2}, noise {name:4}",
                CountInSets(elements=n, set_size=size, noise=noise),
            )


def shown(
    mechanism: Any,  # noqa: ANN401 (any mechanism with a posterior)
    elements: int,
    number: int,
    threshold: float,
    games: int,
    seed: int,
) -> list[float]:
    """Return the bounds of audits by a committed number."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(games):
        bits = rng.integers(0, 2, elements, dtype=np.uint8)
        output = mechanism.run(mechanism.pairs.choose(bits), rng)
        right = play(mechanism.posterior(output), bits).reaching(threshold)
        counts = Counts(
            canaries=elements,
            guesses=number,
            correct=int(right[:number].sum()),
            adaptive=True,
        )
        bound = AdaptiveBound().epsilon_lower(counts, delta=0.0, alpha=ALPHA)
        found.append(bound.epsilon_lower)
    return found


def at_once(mechanism: CountInSets) -> tuple[float, int]:
    """Return the mean bound of the best fixed number in one run, and the number."""
    n, best = mechanism.elements, (0.0, 0)
    for number in np.unique(np.geomspace(5, n, 16).astype(int)):
        counts = simulated_counts(
            mechanism,
            MostLikely(mechanism=mechanism, guesses=int(number)),
            mechanism.pairs,
            elements=n,
            guesses=int(number),
            runs=200,
            rng=np.random.default_rng(2),
        )
        mean = 0.0
        for right in np.flatnonzero(counts):
            read = Counts(canaries=n, guesses=int(number), correct=int(right))
            bound = ExactBound().epsilon_lower(read, delta=0.0, alpha=ALPHA)
            mean += counts[right] / 200 * bound.epsilon_lower
        best = max(best, (mean, int(number)))
    return best


def told(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {standard_error(values):.3f}"


def planned() -> None:
    for name, mechanism in mechanisms():
        n = mechanism.elements
        plan = plan_count(mechanism, elements=n, rng=np.random.default_rng(1), runs=600)
        number, at = plan.guesses, plan.threshold
        others = {2 * number, 4 * number, n} - {number}
        row = [f"planned {number} of log-odds {at:.3g}"]
        row += [f"forecast {plan.expected.value:.3f}"]
        row += [told(shown(mechanism, n, number, at, 300, 5))]
        row += [
            f"{each}: {told(shown(mechanism, n, each, at, 300, 5))}"
            for each in sorted(others)
            if each <= n
        ]
        one_run, guesses = at_once(mechanism)
        print(f"{name}: {'; '.join(row)}; one run, {guesses}: {one_run:.3f}")


@dataclass(frozen=True)
class PairsByResponse:
    """The parity of each two elements, by randomised response."""

    epsilon: float
    pairs: Pairs = field(default_factory=lambda: Pairs(x=0, y=1))

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        """Return the parities, some of them turned."""
        parity = data[::2] ^ data[1::2]
        turned = rng.random(len(parity)) >= special.expit(self.epsilon)
        return np.asarray(parity ^ turned)

    def posterior(self, output: NDArray[Any]) -> ParityPosterior:
        """Return what an output says: each coin, once its partner is revealed."""
        return ParityPosterior(np.where(output > 0, 1, -1) * self.epsilon, size=2)


def true() -> None:
    for name, mechanism, epsilon in (
        ("randomised response", LocalRandomisedResponse(epsilon=1.0), 1.0),
        ("parities of pairs", PairsByResponse(epsilon=1.0), 1.0),
        ("randomised response", LocalRandomisedResponse(epsilon=0.2), 0.2),
    ):
        plan = plan_count(mechanism, elements=200, rng=np.random.default_rng(1))
        bounds = shown(mechanism, 200, plan.guesses, plan.threshold, 2000, 4)
        wrong = sum(each > epsilon for each in bounds)
        low, high = rate_limits(wrong, 2000, alpha=0.05)
        print(
            f"{name} of {epsilon:g}: {plan.guesses} guesses, wrong in "
            f"{wrong / 2000:.4f} [{low:.4f}, {high:.4f}]"
        )


def hidden() -> None:
    for name, mechanism in mechanisms():
        found = gaps(
            mechanism,
            elements=mechanism.elements,
            rng=np.random.default_rng(1),
            runs=2000,
        )
        levels = ", ".join(f"{each.name} {each.shown}" for each in found.knowledge)
        chain = {level.name: level.epsilon for level in found.levels}["interference"]
        at = "infinity" if chain == inf else f"{chain:.3f}"
        print(f"{name}: {levels}; distributional level {at}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("planned", "true", "hidden"))
    {"planned": planned, "true": true, "hidden": hidden}[parser.parse_args().what]()
