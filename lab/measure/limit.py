"""The limit of any audit, what our rules show of it, and a search for one above it.

    python lab/measure/limit.py table     # the paper's settings (8 min)
    python lab/measure/limit.py below     # 21 mechanisms and sizes, exact medians
    python lab/measure/limit.py gap       # against every test and mechanism, tiny games
    python lab/measure/limit.py rounds --games 400     # the best rule, run (10 min)
    python lab/measure/limit.py every     # 20 mechanisms, 7 rules, 2,000 audits each
    python lab/measure/limit.py lost --per-coordinate 4 --games 1000   # to what
    python lab/measure/limit.py turns     # of rules that take coins one after another

``below`` has no randomness: the law of the number of right guesses of a local mechanism
is known, and so is the median bound for every number of guesses.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from sweeping import add_line, lines

from dpaudit.bounds import rounds as rounds_bound
from dpaudit.bounds.readings import Rounds
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.dpsgd.planning import plan_audit
from dpaudit.dpsgd.planning.limit import training_limit
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.game.auditors import play_adaptive, play_one_run
from dpaudit.game.design import Design
from dpaudit.game.guessers import AdaptiveMostLikely, MostLikely
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveCount,
    AdaptiveRounds,
    OneRun,
    Ranking,
    Rules,
)
from dpaudit.mechanisms.exchangeable import log_fair
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.noise import GaussianNoise, GeometricNoise, LaplaceNoise
from dpaudit.mechanisms.noisy_max import NoisyMax
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, PureDP
from dpaudit.stats.binomial import rate_limits
from dpaudit.stats.intervals import standard_error
from dpaudit.testing import fixed_key
from dpaudit.theory.correct_guess_distribution import correct_guess_distribution
from dpaudit.theory.limit import limit, power_at_most
from dpaudit.theory.nearest_mechanism import Nearest
from dpaudit.theory.power import bounds_by_count
from dpaudit_lab.paper import adaptive_steps
from dpaudit_lab.paper.training import EPSILON, MOST, NOISE

ALPHA, DELTA = 0.05, 1e-5
HEADLINE = TrainingSetup(steps=100, rate=0.1, noise=NOISE[EPSILON])
ONE_STEP = TrainingSetup(steps=1, noise=adaptive_steps.NOISE)
# With how many coordinates simulated in each batch; of one step none are.
SETTINGS = [
    *(("headline", HEADLINE, d, s, 160_000) for d, s in MOST),
    *(("headline", HEADLINE, 10_000, s, 20_000) for s in (4, 6, 8)),
    *(("one step", ONE_STEP, 1000, s, None) for s in (1, 12, 20, 40)),
]
MECHANISMS = [
    *(LocalRandomisedResponse(epsilon=each) for each in (0.5, 1.0, 3.0)),
    *(LocalLaplace(epsilon=each) for each in (1.0, 4.0)),
    *(LocalGaussian(sigma=each) for each in (0.5, 1.0)),
]
SIZES = (30, 300, 3000)
CLAIM = PureDP(epsilon=9.0, adjacency=Adjacency.REPLACE_ONE)
Played: TypeAlias = Any  # each has more than any protocol says
PLAYED: list[tuple[Played, int]] = [
    *((LocalRandomisedResponse(epsilon=e), n) for e, n in ((1.0, 100), (3.0, 50))),
    *((LocalRandomisedResponse(epsilon=e), n) for e, n in ((0.5, 400), (1.0, 400))),
    *((LocalLaplace(epsilon=e), n) for e, n in ((1.0, 400), (4.0, 100))),
    *((LocalGaussian(sigma=s), n) for s, n in ((0.5, 50), (1.0, 100), (1.0, 400))),
    (NameAndShame(elements=20), 20),
    (AllOrNothing(elements=100, probability=0.6), 100),
    (Xor(elements=20), 20),
    (XorInPairs(elements=100), 100),
    (XorRandomisedResponse(elements=10, epsilon=2.0), 10),
    (count(30, GaussianNoise(sigma=1.0)), 30),
    (CountInSets(elements=200, set_size=4, noise=GaussianNoise(sigma=1.0)), 200),
    (CountInSets(elements=400, set_size=8, noise=GaussianNoise(sigma=2.0)), 400),
    (CountInSets(elements=200, set_size=4, noise=LaplaceNoise(epsilon=1.0)), 200),
    (CountInSets(elements=200, set_size=2, noise=GeometricNoise(epsilon=2.0)), 200),
    (NoisyMax(elements=30, epsilon=2.0), 30),
]


def table(asked: argparse.Namespace) -> None:
    del asked
    for name, training, coordinates, s, simulated in SETTINGS:
        most = training_limit(
            training,
            coordinates=coordinates,
            per_coordinate=s,
            alpha=ALPHA,
            simulated=simulated,
        )
        print(f"{name}, {coordinates} coordinates of {s}: at most {most}", flush=True)


def below(asked: argparse.Namespace) -> None:
    del asked
    for mechanism in MECHANISMS:
        for elements in SIZES:
            law = mechanism.loss_distribution(elements)
            most = limit(mechanism.output_likelihood(elements), alpha=ALPHA)
            medians = {}
            for guesses in sorted({*np.geomspace(5, elements, 12).astype(int)}):
                right = correct_guess_distribution(law, guesses=int(guesses))
                bounds = bounds_by_count(
                    right,
                    canaries=elements,
                    guesses=int(guesses),
                    delta=0.0,
                    alpha=ALPHA,
                )
                middle = int(np.searchsorted(np.cumsum(right), 0.5))
                medians[int(guesses)] = float(bounds[middle])
            best = max(medians, key=lambda each: medians[each])
            verdict = "below" if medians[best] <= most else "ABOVE"
            print(
                f"{mechanism}, {elements}: limit {most:.4f}; best median "
                f"{medians[best]:.4f} with {best} guesses, "
                f"{medians[best] / max(most, 1e-9):.1%}: {verdict}",
                flush=True,
            )


def gap(asked: argparse.Namespace) -> None:
    """Print both powers for tiny games; the linear program is that of the tests."""
    del asked
    tests = Path(__file__).parents[2] / "tests" / "theory"
    sys.path.insert(0, str(tests))
    from test_limit import against_every_mechanism, said, table  # noqa: PLC0415

    for ones, groups, outputs in (
        (1, 1, 3),
        (1, 2, 3),
        (1, 3, 2),
        (2, 1, 4),
        (2, 2, 2),
    ):
        for epsilon in (0.1, 0.5):
            chances = table(np.random.default_rng([ones, groups]), outputs, ones)
            found, paid = power_at_most([said(chances, groups)], epsilon, alpha=ALPHA)
            least = against_every_mechanism(chances, groups, paid)
            print(
                f"{groups} groups of {ones}, {outputs} outputs, epsilon {epsilon}: "
                f"{found:.4f}, over all mechanisms {least:.4f}"
            )


def every(asked: argparse.Namespace) -> None:
    """Audit 20 mechanisms by every rule; at most half of the audits reject the limit.

    More than half do if the lower 99.9 % limit of their share says so, Bonferroni over
    all rows. Rows are kept in the store, so that a run that was stopped goes on.
    """
    done = {(row["mechanism"], row["rules"]) for row in lines(asked.store)}
    games = [(m, n, rules) for m, n in PLAYED for rules in _rules(m, n)]
    for mechanism, n, rules in games:
        name = f"{mechanism}, {n}"
        if (name, str(rules)) in done:
            continue
        most = limit(mechanism.output_likelihood(n), alpha=ALPHA)
        rejected = sum(
            _rejects(mechanism, n, rules, most, seed) for seed in range(2000)
        )
        low = rate_limits(rejected, 2000, alpha=0.002 / len(games))[0]
        row = {
            "mechanism": name,
            "rules": str(rules),
            "limit": most,
            "rejected": rejected / 2000,
            "at least": low,
        }
        add_line(asked.store, row)
        print(
            f"{name}, {rules}: limit {most:.4f} rejected in {rejected / 2000:.4f}, at "
            f"least {low:.4f}: {'ABOVE' if low > 0.5 else 'below'}",
            flush=True,
        )


def _rules(mechanism: Played, n: int) -> list[Rules]:
    """Return every way to guess; rounds are as many as the posterior has turns."""
    rng = np.random.default_rng(n)
    output = mechanism.run(mechanism.pairs.choose(np.zeros(n, np.uint8)), rng)
    turns = (1.0,) * sum(1 for _ in mechanism.posterior(output).batches())
    return [
        OneRun(guesses=max(1, n // 10)),
        OneRun(guesses=n),
        Ranking(guesses=n),
        AdaptiveCount(guesses=max(1, n // 4)),
        AdaptiveRounds(round_weights=turns),
        AdaptiveRounds(round_weights=turns, max_jump=0.8, randomness_share=0.02),
        AdaptiveBets(),
    ]


def _rejects(
    mechanism: Played, n: int, rules: Rules, epsilon: float, seed: int
) -> bool:
    design = Design(canaries=n, rules=rules, claim=CLAIM, alpha=ALPHA)
    rng = np.random.default_rng([n, seed])
    asked = {"pairs": mechanism.pairs, "design": design, "rng": rng}
    asked["key"] = fixed_key(rng.bytes(32))
    if isinstance(rules, OneRun | Ranking):
        guesser = MostLikely(mechanism=mechanism, guesses=rules.guesses)
        played = play_one_run(mechanism, guesser, **asked)
    else:
        adaptive = AdaptiveMostLikely(mechanism=mechanism, threshold=0.05, rules=rules)
        played = play_adaptive(mechanism, adaptive, **asked)
    log_p = rules.bound().log_p_value(played.reading(), epsilon=epsilon, delta=0.0)
    return log_p <= np.log(ALPHA)


def turns(asked: argparse.Namespace) -> None:
    """Print the limit of rules that hold whatever later coins would have said.

    They ask of a mechanism only that each coin, given the output and the coins before
    it, has odds of at most e^epsilon. Of those mechanisms the nearest is known: the
    odds are cut, coin by coin. Its limit is where it is as far from the training as
    the nearest private mechanism is at the limit of all rules.
    """
    del asked
    for s in (1, 2, 4, 8, 12, 20, 40):
        (said,) = count(s, GaussianNoise(sigma=ONE_STEP.noise)).output_likelihood(s)
        likelihood = np.exp(said.log_likelihood)
        ways = np.exp(log_fair(s))
        joint = likelihood * ways / (likelihood @ ways).sum()
        most = training_limit(
            ONE_STEP, coordinates=1000, per_coordinate=s, alpha=ALPHA
        ).value
        far = special.rel_entr(joint, Nearest(joint).at(most)[0]).sum()
        found = optimize.brentq(
            lambda epsilon: _cut_in_turn(likelihood, epsilon) - far,  # noqa: B023
            0.3,
            1.2,
        )
        print(
            f"one step, 1000 coordinates of {s}: limit {most:.4f}, of rules in turn "
            f"{found:.4f}, {found / most:.1%}",
            flush=True,
        )


def _cut_in_turn(likelihood: NDArray[np.float64], epsilon: float) -> float:
    """Return the divergence from coins whose odds are cut one after the other."""
    size = likelihood.shape[1] - 1
    sums = [likelihood]  # by how many are ones of those known, all known first
    for _ in range(size):
        sums.append(sums[-1][:, :-1] + sums[-1][:, 1:])
    whole = sums[-1].sum()
    far = 0.0
    for known in range(size):
        after, now = sums[size - known - 1], sums[size - known]
        one = after[:, 1:] / now
        cut = special.expit(special.logit(one).clip(-epsilon, epsilon))
        lost = special.rel_entr(one, cut) + special.rel_entr(1 - one, 1 - cut)
        far += float((special.comb(known, np.arange(known + 1)) * now * lost).sum())
    return far / whole


def lost(asked: argparse.Namespace) -> None:
    """Print where limited rounds lose what they lack of the limit, in one step.

    For each way to judge the same games: the epsilon that half of them reject, between
    two of a few.
    """
    s = asked.per_coordinate
    plan = plan_audit(
        ONE_STEP,
        claim=ApproxDP(epsilon=1.9, delta=DELTA),
        coordinates=1000,
        purpose="bound",
        per_coordinate=s,
    )
    assert isinstance(plan.rules, AdaptiveRounds)
    most = plan.limit().value
    tried = most * np.arange(0.88, 1.03, 0.02)
    ways = ("as planned", "delta = 0", "delta = 0, any jump", "the same, 64 weights")
    rejected = {way: np.zeros(len(tried)) for way in ways}
    for game in range(asked.first, asked.first + asked.games):
        played = _played(plan, game)
        for way, sums in rejected.items():
            free = "any jump" in way or "same" in way
            reading = (
                replace(played, max_jump=None, randomness_share=0.0) if free else played
            )
            rounds_bound._LEVELS = 64 if "64" in way else 8
            delta = DELTA if way == "as planned" else 0.0
            sums += [
                RoundsBound().log_p_value(reading, epsilon=e, delta=delta)
                <= np.log(ALPHA)
                for e in tried
            ]
    rounds_bound._LEVELS = 8
    for way, sums in rejected.items():
        share = sums / asked.games
        at = np.interp(-0.5, -np.minimum.accumulate(share), tried)
        slope = np.gradient(share, tried)[np.searchsorted(tried, at) - 1]
        error = np.sqrt(0.25 / asked.games) / abs(slope)
        print(
            f"one step, 1000 coordinates of {s}, {asked.games} games, {way}: half "
            f"reject {at:.4f} ± {error:.4f}, {at / most:.1%} of {most:.4f}",
            flush=True,
        )


def _played(plan: Plan, game: int) -> Rounds:
    """Return what one game of a plan is read as, without judging it."""
    rng = np.random.default_rng([23, game])
    mechanism = plan.training.mechanism(
        coordinates=plan.coordinates, per_coordinate=plan.per_coordinate
    )
    design, key = plan.design(), fixed_key(rng.bytes(32))
    assert isinstance(plan.rules, AdaptiveRounds)
    transcript = play_adaptive(
        mechanism,
        AdaptiveMostLikely(mechanism=mechanism, threshold=0.3, rules=plan.rules),
        pairs=mechanism.pairs,
        design=design,
        rng=rng,
        key=key,
    )
    reading = transcript.reading()
    assert isinstance(reading, Rounds)
    return reading


def rounds(asked: argparse.Namespace) -> None:
    """Run the planned audit many times; print its median with exact limits."""
    plan = plan_audit(
        ONE_STEP if asked.one_step else HEADLINE,
        claim=ApproxDP(epsilon=1.9 if asked.one_step else 1.82, delta=DELTA),
        coordinates=asked.coordinates,
        purpose="bound",
        per_coordinate=asked.per_coordinate,
    )
    most = plan.limit()
    found = np.sort(
        [
            plan.rehearse(rng=np.random.default_rng([7, game])).bound.epsilon_lower
            for game in range(asked.first, asked.first + asked.games)
        ]
    )
    reach = int(np.ceil(0.98 * asked.games**0.5))  # two standard deviations of a rank
    middle = asked.games // 2
    error = standard_error(found)
    print(
        f"{plan.coordinates} coordinates of {plan.per_coordinate}: limit {most}; "
        f"median {np.median(found):.3f} [{found[middle - reach]:.3f}, "
        f"{found[middle + reach]:.3f}], mean {found.mean():.3f} ± {error:.3f} "
        f"(planned {plan.expected.mean:.3f}), {asked.games} games"
    )


COMMANDS = {
    each.__name__: each for each in (table, below, gap, every, turns, lost, rounds)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=tuple(COMMANDS))
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="seed of the first game")
    parser.add_argument("--coordinates", type=int, default=1000)
    parser.add_argument("--per-coordinate", type=int, default=12)
    parser.add_argument("--one-step", action="store_true", help="of the full batch")
    parser.add_argument("--store", type=Path, default=Path("limit-every.jsonl"))
    asked = parser.parse_args()
    COMMANDS[asked.what](asked)


if __name__ == "__main__":
    main()
