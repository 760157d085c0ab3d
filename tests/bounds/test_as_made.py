"""As many guesses as made: exact level where the output decides how many, and power.

At delta = 0 the most misleading outputs are searched by enumeration: whatever an output
says, the guesser takes the guesses that refute most often given it. At delta > 0 a
linear program is over all mechanisms and guessers at once.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from dpaudit import (
    ApproxDP,
    Design,
    GaussianDP,
    OneRun,
    PureDP,
    Verdict,
    audit_one_run,
)
from dpaudit.bounds import AsMadeBound, Counts, CountsAsMade, ExactBound, PureBound
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.evidence import evidence_of, seal, verify
from dpaudit.game.coins import Key
from dpaudit.game.guessers import Confident
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result, check_reading, conclude
from dpaudit.mechanisms.local import LocalLaplace
from dpaudit.testing import fixed_key

BOUND = AsMadeBound()


def lower(made, *, delta=0.0, alpha=0.05):
    return BOUND.epsilon_lower(made, delta=delta, alpha=alpha).epsilon_lower


def refutes(n, made, correct, *, epsilon, delta, alpha):
    counts = CountsAsMade(canaries=n, guesses=made, correct=correct)
    return BOUND.log_p_value(counts, epsilon=epsilon, delta=delta) <= math.log(alpha)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0])
def test_no_choice_of_how_many_refutes_too_often_where_coins_stay_independent(
    epsilon, alpha
):
    """Randomised response: any r of 10 coins may be taken for any output."""
    p, worst = special.expit(epsilon), 0.0
    for made in range(1, 11):
        wins = [
            refutes(10, made, v, epsilon=epsilon, delta=0.0, alpha=alpha)
            for v in range(made + 1)
        ]
        worst = max(worst, stats.binom.pmf(np.arange(made + 1), made, p) @ wins)
    assert worst <= alpha


def private_rows(seed, n, epsilon, outputs=4):
    """A mechanism with ratios up to e^epsilon, one row of chances for each data set."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(outputs, 0.3), size=2**n)
    for _ in range(200):  # each chance at most e^epsilon that of every neighbour
        for i in range(n):
            neighbour = rows[np.arange(2**n) ^ (1 << i)]
            rows = np.clip(
                rows, neighbour / np.exp(epsilon), neighbour * np.exp(epsilon)
            )
        rows /= rows.sum(axis=1, keepdims=True)
    ratios = [rows / rows[np.arange(2**n) ^ (1 << i)] for i in range(n)]
    return rows, float(np.log(np.max(ratios)))


@pytest.mark.parametrize(("n", "seeds"), [(2, 40), (3, 30), (5, 4)])
def test_no_guesser_that_chooses_how_many_refutes_a_true_claim_too_often(n, seeds):
    coins = np.array(list(itertools.product([-1, 1], repeat=n)))[:, ::-1]
    guesses = np.array(list(itertools.product([-1, 0, 1], repeat=n)))
    made = (guesses != 0).sum(axis=1)
    correct = (guesses[:, None, :] == coins[None]).sum(axis=2)
    for seed, target in itertools.product(range(seeds), (0.0, 0.7, 2.0)):
        rows, epsilon = private_rows(seed, n, target)
        for alpha in (0.05, 0.3):
            table = np.array(
                [
                    [
                        v <= r
                        and refutes(n, r, v, epsilon=epsilon, delta=0.0, alpha=alpha)
                        for v in range(n + 1)
                    ]
                    for r in range(n + 1)
                ]
            )
            wins = table[made[:, None], correct]
            assert (wins @ rows).max(axis=0).sum() / 2**n <= alpha


@pytest.mark.parametrize(
    ("m", "epsilon", "delta", "alpha"),
    [
        (2, 0.0, 0.05, 0.35),
        (2, 1.0, 0.1, 0.6),
        (3, 0.0, 0.02, 0.2),
        (3, 0.5, 0.05, 0.3),
        (3, 1.0, 0.01, 0.45),
        (3, 2.0, 0.1, 0.75),
    ],
)
def test_no_mechanism_and_guesser_refute_too_often_by_linear_program(
    largest_p_value, m, epsilon, delta, alpha
):
    outputs = list(itertools.product([-1, 0, 1], repeat=m))

    def wins(guess, bits):
        made = sum(g != 0 for g in guess)
        correct = sum(g == (1 if b else -1) for g, b in zip(guess, bits, strict=True))
        return refutes(m, made, correct, epsilon=epsilon, delta=delta, alpha=alpha)

    chance = largest_p_value(
        m=m, outputs=outputs, wins=wins, epsilon=epsilon, delta=delta
    )
    assert chance <= alpha + 1e-9
    assert chance > 0  # something is refuted: the program is not about nothing


def test_the_number_made_in_a_bound_for_a_fixed_number_is_wrong_too_often():
    """The mechanism of the errata: it names 12 of 20,000 coins with chance 1/60."""
    n, delta, alpha = 20_000, 1e-5, 0.05
    named = CountsAsMade(canaries=n, guesses=12, correct=12)
    published = Counts(canaries=n, guesses=12, correct=12)
    log_p = ExactBound().log_p_value(published, epsilon=0.0, delta=delta)
    assert log_p <= math.log(alpha)  # 1/60 of the time, beside 5 % of the rest
    assert BOUND.log_p_value(named, epsilon=0.0, delta=delta) > math.log(alpha)


def test_without_delta_it_is_the_pure_bound_at_the_number_made():
    for made, correct in [(1, 1), (9, 9), (100, 75), (1000, 1000), (50, 20), (5, 0)]:
        counts = Counts(canaries=made, guesses=made, correct=correct)
        pure = PureBound().epsilon_lower(counts, delta=0.0, alpha=0.05).epsilon_lower
        found = lower(CountsAsMade(canaries=2000, guesses=made, correct=correct))
        assert found == pure
    assert lower(CountsAsMade(canaries=10, guesses=0, correct=0)) == 0.0


def test_delta_costs_what_the_formula_says():
    made = CountsAsMade(canaries=2000, guesses=100, correct=80)
    for epsilon, delta in [(0.0, 1e-5), (0.7, 1e-5), (1.0, 1e-4)]:
        p = 1 / (1 + math.exp(-epsilon))
        tail = stats.binom.sf(79, 100, p)
        price = 2000 * delta / (1 + math.exp(epsilon))
        found = BOUND.log_p_value(made, epsilon=epsilon, delta=delta)
        assert math.exp(found) == pytest.approx(tail + price, rel=1e-9)
    assert lower(made, delta=1e-5) < lower(made)
    assert lower(made, delta=1e-5) == pytest.approx(round(lower(made, delta=1e-5), 2))


def test_more_correct_guesses_show_more():
    bounds = [
        lower(CountsAsMade(canaries=500, guesses=60, correct=v), delta=1e-5)
        for v in range(61)
    ]
    assert np.all(np.diff(bounds) >= 0)
    assert bounds[30] == 0.0 < bounds[60]


def laplace(epsilon=2.0, canaries=2000, threshold=0.0, claimed=0.5, seed=0):
    mechanism = LocalLaplace(epsilon=epsilon)
    claim = PureDP(epsilon=claimed, adjacency=mechanism.guarantee.adjacency)
    return audit_one_run(
        mechanism,
        Confident(mechanism=mechanism, threshold=threshold, guesses=canaries),
        pairs=mechanism.pairs,
        design=Design(canaries=canaries, rules=OneRun(guesses=None), claim=claim),
        rng=np.random.default_rng(seed),
        key=fixed_key(bytes([seed] * 32)),
    )


def test_a_threshold_is_audited_without_a_number():
    result = laplace(threshold=1.5)
    assert isinstance(result.reading, CountsAsMade)
    assert 500 < result.reading.guesses < 1900
    assert 1.4 < result.bound.epsilon_lower < 2.0
    assert result.verdict is Verdict.CLAIM_REFUTED
    assert result.bound.method == "as made"
    assert "CountsAsMade" not in result.details()
    assert Result.from_json(result.to_json()) == result


def test_who_makes_no_guess_could_not_have_refuted():
    result = laplace(threshold=50.0)
    assert result.reading.guesses == 0
    assert result.verdict is Verdict.INCONCLUSIVE


def test_its_evidence_verifies_and_a_guess_left_out_does_not():
    rules, claim = OneRun(guesses=None), PureDP(epsilon=0.1)
    design = Design(canaries=200, rules=rules, claim=claim)
    key = Key(bytes(range(32)))
    referee = Referee(design, key)
    referee.submit(np.arange(120), np.where(np.arange(120) % 2, 1, -1))
    transcript = referee.close()
    result = conclude(transcript, commitment=referee.commitment)
    assert result.reading.guesses == 120
    text = seal(evidence_of(result, key=key, transcript=transcript))
    assert verify(text).sound


def test_a_design_without_a_number_is_read_back():
    design = Design(
        canaries=10, rules=OneRun(guesses=None), claim=ApproxDP(epsilon=1.0, delta=1e-5)
    )
    assert Design.from_json(design.to_json()) == design
    assert design.guesses == 10
    assert not design.rules.fixed


def test_readings_and_rules_of_the_two_kinds_are_not_taken_for_one_another():
    claim = PureDP(epsilon=1.0)
    fixed = Design(canaries=10, rules=OneRun(guesses=4), claim=claim)
    free = Design(canaries=10, rules=OneRun(guesses=None), claim=claim)
    made = CountsAsMade(canaries=10, guesses=4, correct=3)
    check_reading(made, free)
    with pytest.raises(InvalidRunError):
        check_reading(made, fixed)
    with pytest.raises(InvalidRunError):
        check_reading(Counts(canaries=10, guesses=4, correct=3), free)


def test_a_curve_or_a_delta_that_costs_all_is_refused():
    rules = OneRun(guesses=None)
    with pytest.raises(InvalidInputError, match="one point"):
        Design(canaries=10, rules=rules, claim=GaussianDP(mu=1.0))
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    with pytest.raises(InvalidInputError, match="fix a number"):
        Design(canaries=20_000, rules=rules, claim=claim)
    with pytest.raises(InvalidInputError, match="guesses"):
        OneRun(guesses=0)


@pytest.mark.parametrize("n", range(1, 11))
def test_a_parity_does_not_refute_too_often_however_many_are_guessed(n):
    """Fewer than all coins are fair, given it; all of them share its error."""
    for epsilon, alpha in itertools.product([0.0, 1.0, 2.0], [0.05, 0.3]):
        p = special.expit(epsilon)
        v = np.arange(n + 1)
        whole = stats.binom.pmf(v, n, 0.5) * 2 * np.where((n - v) % 2 == 0, p, 1 - p)
        for made in range(1, n + 1):
            law = whole if made == n else stats.binom.pmf(v[: made + 1], made, 0.5)
            wins = [
                refutes(n, made, k, epsilon=epsilon, delta=0.0, alpha=alpha)
                for k in range(made + 1)
            ]
            assert law @ wins <= alpha
