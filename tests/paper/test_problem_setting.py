"""Chapter and appendix "Problem Setting": validity, tightness, efficacy."""

from fractions import Fraction
from itertools import product
from math import comb, inf, log, log1p, sqrt

import numpy as np
import pytest
from scipy import special

from dpaudit import (
    Design,
    OneRun,
    Pairs,
    PureDP,
    SeparateRuns,
    audit_classic,
    audit_one_run,
)
from dpaudit.bounds import Counts
from dpaudit.bounds.exact import PureBound
from dpaudit.bounds.power import estimate
from dpaudit.game import Confident, Everyone, Submission
from dpaudit.game.guessers import Echo
from dpaudit.mechanisms.exposure import AllOrNothing
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.parity import Xor
from dpaudit.mechanisms.table import FiniteTable
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.stats.binomial import log_tails, rate_limits
from dpaudit.testing import fixed_key
from dpaudit.theory import levels_from_loss
from dpaudit.theory.enumeration import Enumeration
from dpaudit.theory.levels import levels
from dpaudit.theory.simulation import efficacy
from dpaudit.theory.tightness import tightness

HALF = Fraction(1, 2)


def p(epsilon):
    return 1 / (1 + np.exp(-epsilon))


def pure_bound(r, v, beta):
    counts = Counts(canaries=r, guesses=r, correct=v)
    return PureBound().epsilon_lower(counts, delta=0.0, alpha=beta).epsilon_lower


def estimated(r, v):
    """p^-1(v / r), 0 if it is negative."""
    return estimate(Counts(canaries=r, guesses=r, correct=v)).epsilon_estimate


def claim(epsilon):
    return PureDP(epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE)


# Validity


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("beta", [0.01, 0.05, 0.4])
def test_def_validity_holds_when_right_guesses_are_binomial(binomial, epsilon, beta):
    for r in (1, 2, 7, 25):
        law = binomial.law(r, p(epsilon))
        wrong = sum(law[v] for v in range(r + 1) if pure_bound(r, v, beta) > epsilon)
        assert wrong <= beta + 1e-9


def test_def_stochastic_dominance_orders_binomials_as_the_package_sees_them(binomial):
    # X is dominated by Y if all its tails are smaller: fewer trials, smaller chances.
    for r, v in product(range(1, 12), range(13)):
        low, high = Fraction(3, 5), Fraction(7, 10)
        tails = [binomial.tail(v, r, low), binomial.tail(v, r, high)]
        assert tails[0] <= tails[1]
        assert tails[0] <= binomial.tail(v, r + 1, low)
        for rate, tail in zip((low, high), tails, strict=True):
            found = log_tails(v, r, log(rate / (1 - rate)))[0]
            assert np.exp(found) == pytest.approx(float(tail), abs=1e-13)


def test_lem_condition_for_validity_given_the_number_of_guesses(binomial):
    # V dominated by Bin(r, p) given R = r, whatever the law of R: the chance to be
    # wrong is an average of chances of at most beta. (The proof's "= 1 - beta" is
    # ">=": one guess never shows anything at beta = 0.05.)
    epsilon, beta = 1.0, 0.05
    wrong = {
        r: sum(
            mass
            for v, mass in enumerate(binomial.law(r, p(epsilon)))
            if pure_bound(r, v, beta) > epsilon
        )
        for r in range(1, 30)
    }
    assert max(wrong.values()) <= beta + 1e-9
    assert wrong[1] == 0


def test_lem_condition_for_validity_fails_with_dominance_on_average_only(binomial):
    # As printed, V need only be dominated by Bin(R, p) with R random. Here R is 5 with
    # chance 0.3 and all right, else 40 and all wrong. At epsilon = 0 the law of V is
    # dominated by that of Bin(R, 1/2), yet the bound is wrong in 30 % of the cases.
    few, many, share = 5, 40, Fraction(3, 10)
    for t in range(many + 1):
        tail = share if t < few else 0
        mixed = share * binomial.tail(t + 1, few, HALF)
        mixed += (1 - share) * binomial.tail(t + 1, many, HALF)
        assert tail <= mixed
    assert pure_bound(few, few, 0.05) > 0
    assert share > 0.05
    # Given R = 5 it is not dominated, and that is what the proof uses.
    assert binomial.tail(few, few, HALF) < 1


def test_prop_classic_auditing_is_valid_for_every_guesser(mechanisms):
    # All 3^K guessers of one coin; rounds are independent, so each is right, passed or
    # wrong by one law, and the chance of a bound above epsilon is a finite sum.
    runs, beta = 6, 0.1
    single = [m for m in mechanisms if m.n == 1 and m.is_private]
    assert len(single) > 10
    for mechanism in single:
        top = mechanism.p_worst_case
        epsilon = log(top / (1 - top))
        above = [
            (r, v)
            for r in range(1, runs + 1)
            for v in range(r + 1)
            if pure_bound(r, v, beta) > epsilon
        ]
        for guesser in product((-1, 0, 1), repeat=len(mechanism.outputs)):
            right = wrong = Fraction(0)
            for o, guess in enumerate(guesser):
                if guess:
                    hit = mechanism.posterior(0, guess, o)
                    right += mechanism.chance(o) * hit
                    wrong += mechanism.chance(o) * (1 - hit)
            if right + wrong:
                assert right / (right + wrong) <= top
            chance = sum(
                comb(runs, r)
                * comb(r, v)
                * right**v
                * wrong ** (r - v)
                * (1 - right - wrong) ** (runs - r)
                for r, v in above
            )
            assert chance <= beta


def test_prop_classic_auditing_is_valid_in_whole_audits():
    # Randomised response is audited 300 times under the claim that is true of it. If
    # at most 5 % are refuted, more than 27 of 300 are with chance below 2e-3.
    mechanism = LocalRandomisedResponse(epsilon=1.0)
    refuted = 0
    for number in range(300):
        result = audit_classic(
            mechanism,
            lambda output: int(output[0]),
            base=np.array([-1]),
            place=0,
            pair=mechanism.pairs,
            design=Design(
                canaries=50, rules=SeparateRuns(guesses=50), claim=claim(1.0)
            ),
            rng=np.random.default_rng(number),
            key=fixed_key(number.to_bytes(32, "little")),
        )
        refuted += result.claim_test.refuted
        assert result.claim_test.refuted == (result.bound.epsilon_lower > 1.0)
    assert refuted <= 27


def test_prop_one_run_auditing_is_valid_given_each_output(binomial, mechanisms):
    # For every output and every vector of guesses the law of V, given that output, is
    # dominated by Bin(number of guesses, p(epsilon)); all by enumeration. The package's
    # p-values are the tails of that binomial.
    for mechanism in mechanisms:
        top = mechanism.p_worst_case
        epsilon = log(top / (1 - top)) if top < 1 else 700.0
        for made in range(1, mechanism.n + 1):
            for v in range(made + 1):
                counts = Counts(canaries=made, guesses=made, correct=v)
                found = PureBound().log_p_value(counts, epsilon=epsilon, delta=0.0)
                tail = float(binomial.tail(v, made, top))
                assert np.exp(found) == pytest.approx(tail, abs=1e-13)
        for o in mechanism.outputs:
            weight = sum(row[o] for row in mechanism.rows)
            if not weight:
                continue
            for guess in product((-1, 0, 1), repeat=mechanism.n):
                made = sum(g != 0 for g in guess)
                law = [Fraction(0)] * (made + 1)
                for r, row in enumerate(mechanism.rows):
                    right = sum(
                        guess[i] == mechanism.sign(r, i) for i in mechanism.indexes
                    )
                    law[right] += row[o] / weight
                for v in range(made + 1):
                    assert sum(law[v:]) <= binomial.tail(v, made, top)


def test_prop_one_run_auditing_is_valid_in_whole_audits():
    # As for classic auditing: more than 27 of 300 has chance below 2e-3.
    mechanism = LocalRandomisedResponse(epsilon=1.0)
    refuted = 0
    for number in range(300):
        result = audit_one_run(
            mechanism,
            Echo(),
            pairs=mechanism.pairs,
            design=Design(canaries=50, rules=OneRun(guesses=50), claim=claim(1.0)),
            rng=np.random.default_rng(number),
            key=fixed_key(number.to_bytes(32, "little")),
        )
        refuted += result.claim_test.refuted
    assert refuted <= 27


# Asymptotic validity


def cpl(r, v, beta):
    """CPL(r, v, beta) by the package, whose two limits share their alpha."""
    return rate_limits(v, r, alpha=2 * beta)[0]


def cpls(r, beta):
    """The same for every v."""
    return np.array([cpl(r, v, beta) for v in range(r + 1)])


@pytest.mark.parametrize("beta", [1e-6, 0.01, 0.05, 0.3, 0.5])
def test_lem_convergence_of_clopper_pearson_lower_up_to_one_half(binomial, beta):
    # Hoeffding needs v / r >= CPL, which holds for beta <= 1/2: the median of
    # Bin(r, v / r) is v.
    for r in range(1, 80):
        v = np.arange(r + 1)
        lower = cpls(r, beta)
        assert lower[0] == 0
        for hits in (1, r // 2 + 1, r):  # as many or more have the chance beta there
            assert binomial.tail(hits, r, lower[hits]) == pytest.approx(beta)
        assert np.all(lower <= v / r + 1e-12)
        assert np.all(v / r - lower <= sqrt(-log(beta) / (2 * r)) + 1e-12)


def test_lem_convergence_of_clopper_pearson_lower_fails_for_large_beta(binomial):
    # Printed for every beta in (0, 1). With r = 2, v = 1, beta = 0.99 the limit is
    # 1 - sqrt(0.01) = 0.9, above v / r by 0.4; the printed bound is 0.0501.
    lower = cpl(2, 1, 0.99)
    assert lower == pytest.approx(0.9)
    assert lower == pytest.approx(binomial.cpl(2, 1, 0.99))
    assert abs(1 / 2 - lower) > 7 * sqrt(-log(0.99) / 4)
    # Correct for every beta: the smaller of beta and 1 - beta in its place.
    for beta in (0.01, 0.5, 0.7, 0.9, 0.99, 0.999):
        for r in range(1, 80):
            apart = np.abs(np.arange(r + 1) / r - cpls(r, beta))
            assert np.all(apart <= sqrt(-log(min(beta, 1 - beta)) / (2 * r)) + 1e-12)


@pytest.mark.parametrize("beta", [0.05, 0.9])
def test_lem_convergence_of_clopper_pearson_lower_for_random_variables(binomial, beta):
    # R_c ~ Bin(c, 1/4) grows without limit and V is anything: its worst value is taken.
    far = []
    for c in (20, 200, 2000):
        law = binomial.float_law(c, 0.25)[1:]
        chance = 0.0
        for r, mass in enumerate(law, start=1):
            if mass < 1e-13:
                continue
            v = np.arange(r + 1)
            printed = binomial.fast_cpl(r, v, beta)
            worst = int(np.abs(v / r - printed).argmax())
            lower = cpl(r, worst, beta)
            assert lower == pytest.approx(printed[worst])
            chance += mass * (abs(worst / r - lower) > 0.1)
        far.append(chance)
    assert far[0] > 0.9
    assert far[-1] < 1e-6


def test_lem_privacy_estimations_and_bounds_where_accuracy_is_inside(binomial):
    # Accuracies between 1/2 and 1 and not at either: the difference vanishes.
    for accuracy in (0.55, 0.7, 0.95):
        r = np.array([10**3, 10**5, 10**7])
        v = np.round(accuracy * r)
        bounds = [pure_bound(*map(int, made), 0.05) for made in zip(r, v, strict=True)]
        assert bounds == pytest.approx(binomial.bound(r, v, 0.05), abs=1e-6)
        apart = special.logit(v / r) - bounds
        assert np.all(np.diff(apart) < 0)
        assert apart[-1] < 5e-3


def test_lem_privacy_estimations_and_bounds_fails_at_the_edges(binomial):
    # (a) Below one half the estimation is negative and the bound is 0: a guesser that
    # names the wrong coin of randomised response on purpose is at -epsilon for ever.
    r = 10**6
    v = round(p(-1.0) * r)
    assert special.logit(v / r) - pure_bound(r, v, 0.05) == pytest.approx(
        -1.0, abs=1e-5
    )
    # (b) Accuracy tending to 1: with one wrong guess of r the difference tends to
    # ln 4.744, where 4.744 solves (1 + x) e^-x = 0.05; with none it is infinite.
    x = special.gammaincinv(2, 0.95)
    assert (1 + x) * np.exp(-x) == pytest.approx(0.05)
    for r in (10**3, 10**5, 10**7):
        apart = special.logit((r - 1) / r) - pure_bound(r, r - 1, 0.05)
        assert apart == pytest.approx(log(x), abs=20 / r + 1e-6)
        assert special.logit(1.0) - pure_bound(r, r, 0.05) == inf
    # What holds at the edges too is the statement before p^-1 is applied.
    for r, v in [(10**7, 10**7), (10**7, 10**7 - 1), (10**7, 3 * 10**6)]:
        assert abs(v / r - binomial.fast_cpl(r, v, 0.05)) < 1e-3


def test_def_asymptotic_validity_needs_unlimited_guesses(binomial):
    # Printed for every strategy. A strategy that guesses one coin of randomised
    # response, whatever n is, has an infinite estimation with chance p(epsilon).
    epsilon, a = 1.0, 0.5
    assert [estimated(1, v) for v in (0, 1)] == [0, inf]
    # (The bound of such a guess is 0 at 5 %, so it is no fault of validity.)
    assert pure_bound(1, 1, 0.05) == 0
    # With more and more guesses it does hold.
    chances = []
    for n in (1, 10, 100, 1000):
        estimations = np.array([estimated(n, v) for v in range(n + 1)])
        printed = np.maximum(0, special.logit(np.arange(n + 1) / n))
        np.testing.assert_allclose(estimations, printed, atol=1e-12)
        law = binomial.float_law(n, p(epsilon))
        chances.append(law[estimations > epsilon + a].sum())
    assert chances[0] == pytest.approx(p(epsilon))
    assert chances[1] > 0.05
    assert chances[3] < 1e-6


def above_estimation(binomial, n, epsilon, a):
    """P[p^-1(V / n) > epsilon + a] for V ~ Bin(n, p(epsilon))."""
    law = binomial.float_law(n, p(epsilon))
    return law[np.arange(n + 1) / n > p(epsilon + a)].sum()


def test_prop_validity_implies_asymptotic_validity_with_unlimited_guesses(binomial):
    # From the proof: if estimations exceed epsilon + a with chance d, then for large r
    # the bound at beta = d / 2 exceeds epsilon with chance d > beta, so that no valid
    # auditor does so for ever. All guesses right with chance d, else none, is such a
    # law.
    epsilon, d = 1.0, float(p(1.0))
    for r in (20, 200):
        wrong = d if pure_bound(r, r, d / 2) > epsilon else 0.0
        assert wrong > d / 2
    # One guess for all n does not become invalid, and is not asymptotically valid.
    assert pure_bound(1, 1, d / 2) <= epsilon
    # A valid auditor with more and more guesses: the chance falls to 0.
    chances = [above_estimation(binomial, n, epsilon, 0.2) for n in (50, 500, 5000)]
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] < 1e-6


def test_prop_asymptotic_validity_estimations_and_bounds_go_together(
    binomial, fewest_right
):
    # For randomised response both chances tend to 1; for an auditor that is right
    # about all or none (full knowledge), neither does.
    epsilon, a, beta = 1.0, 0.2, 0.05
    for n, least in ((50, 0.6), (500, 0.9), (20_000, 1 - 1e-8)):
        law = binomial.float_law(n, p(epsilon))
        v = np.arange(n + 1)
        estimation_high = v / n > p(epsilon + a)
        bound_high = v >= fewest_right(n, epsilon + a, beta)
        assert not np.any(bound_high & ~estimation_high)
        assert 1 - law[estimation_high].sum() >= least
    for n in (50, 500, 20_000):
        both = [special.logit(1.0), pure_bound(n, n, beta)]
        assert all(value > epsilon + a for value in both)


# Tightness and efficacy


def test_def_ora_efficacy_is_the_mean_share_of_right_guesses(mechanisms):
    rng = np.random.default_rng(1)
    for mechanism in mechanisms:
        shape = (len(mechanism.outputs), mechanism.n)
        guesser = rng.integers(-1, 2, shape)
        guesser[(guesser == 0).all(axis=1)] = 1
        found = Enumeration(table=np.array(mechanism.rows, float)).efficacy_of(guesser)
        assert found == pytest.approx(float(mechanism.efficacy(guesser)))


class FromTable:
    """A guesser that looks up its guesses, some of them 0, by the output."""

    def __init__(self, guesses):
        self.guesses = np.array(guesses, np.int8)

    def guess(self, output):
        made = self.guesses[output]
        return Submission(index=np.arange(len(made)), guess=made)


def test_def_ora_efficacy_is_what_played_games_measure(mechanisms):
    # E[V / R] lies in the intervals of 99 % that games give: two guesses of three.
    for number, mechanism in enumerate([m for m in mechanisms if m.n == 3][:2]):
        guesser = mechanism.most_likely(2)
        found = efficacy(
            mechanism.table,
            FromTable(guesser),
            mechanism.table.pairs,
            elements=3,
            runs=4000,
            rng=np.random.default_rng(number),
        )
        mean = float(mechanism.efficacy(guesser))
        assert found.low <= mean <= found.high
        # Four deviations: a false alarm has chance below 1e-4.
        assert abs(found.value - mean) < 4 * 0.5 / 4000**0.5


def chance_of_reaching(binomial, n, accuracy, epsilon, a, beta=0.05):
    """P[epsilon'_beta(V, n) >= epsilon - a] for V ~ Bin(n, accuracy)."""
    law = binomial.float_law(n, accuracy)
    return law[binomial.reaches(n, np.arange(n + 1), epsilon - a, beta)].sum()


SIZES = (100, 3000, 30_000)


def test_def_ora_asymptotic_tightness_of_two_mechanisms(binomial, fewest_right):
    # Randomised response: bounds reach epsilon. Local Laplace noise, all coins
    # guessed: they stay at ln(2 e^(epsilon / 2) - 1).
    epsilon, a = 2.0, 0.1
    fewest = [fewest_right(n, epsilon - a, 0.05) for n in SIZES]
    tight = [
        binomial.float_law(n, p(epsilon))[v:].sum()
        for n, v in zip(SIZES, fewest, strict=True)
    ]
    assert tight == sorted(tight)
    assert tight[-1] > 1 - 1e-3
    loose = 1 - np.exp(-epsilon / 2) / 2
    assert binomial.float_law(SIZES[-1], loose)[fewest[-1] :].sum() < 1e-9


@pytest.mark.parametrize(
    ("mechanism_at", "known", "right", "tight"),
    [
        (lambda n: LocalRandomisedResponse(epsilon=2.0), 0.0, p(2.0), True),
        (lambda n: AllOrNothing(elements=n, probability=0.3), 0.3, 0.5, False),
    ],
)
def test_def_asymptotic_tightness_by_estimations(
    binomial, mechanism_at, known, right, tight
):
    # All coins are guessed: with some chance all are known, else each is right with
    # another. Estimations reach a level below epsilon in the end exactly where the
    # package sees ever more elements whose loss reaches it.
    level, reached = 1.9, []
    for n in SIZES:
        law = (1 - known) * binomial.float_law(n, right)
        law[-1] += known
        reached.append(law[np.arange(n + 1) / n >= p(level)].sum())
    assert (reached[-1] > 1 - 1e-3) == tight
    assert tight or reached[-1] == pytest.approx(known)
    evidence = tightness(
        lambda n: mechanism_at(n).loss_distribution(n), thresholds=[level], sizes=SIZES
    )
    assert evidence.verdict is tight


def test_prop_characterization_of_asymptotic_tightness_of_valid_auditors(
    binomial, fewest_right
):
    # At finite epsilon, bounds and estimations reach it together, at every level.
    epsilon, a, n = 2.0, 0.1, 50_000
    law = binomial.float_law(n, p(epsilon))
    estimation = law[np.arange(n + 1) / n >= p(epsilon - a)].sum()
    for beta in (0.001, 0.05, 0.4):
        bound = law[fewest_right(n, epsilon - a, beta) :].sum()
        assert min(bound, estimation) > 1 - 1e-4


def test_prop_characterization_of_asymptotic_tightness_of_valid_auditors_at_infinity(
    binomial, fewest_right
):
    # epsilon(M) = infinity, every coin guessed and wrong with chance 1 / sqrt(n).
    # Bounds grow beyond every level, so definition def:ora-asymptotic-tightness and the
    # efficacy (which tends to 1) say "tight". Definition def:asymptotic-tightness, read
    # literally, asks for estimations of at least infinity - a, which is infinity: all
    # guesses right, and that has chance (1 - 1 / sqrt n)^n, which vanishes. It is meant
    # as "every level below epsilon(M)", as in the theorems.
    all_right, above_three = [], []
    for n in (100, 10_000, 1_000_000):
        miss = 1 / sqrt(n)
        all_right.append(np.exp(n * log1p(-miss)))
        law = binomial.float_law(n, 1 - miss)
        above_three.append(law[fewest_right(n, 3.0, 0.05) :].sum())
    assert all_right[-1] < 1e-300
    assert above_three[0] < 0.2
    assert above_three[-1] > 1 - 1e-9


def test_lem_lower_boundedness_sandwich_by_its_inequality():
    # From the proof, for any law on [a, b]: with L = P[X < l - x], H = P[X > l + y],
    # x L <= y + l - E[X] + (b - l) H. Two thousand random laws, in fractions.
    rng = np.random.default_rng(5)
    for _ in range(2000):
        values = [Fraction(int(v), 12) for v in rng.integers(0, 13, 4)]
        weights = [Fraction(int(w)) for w in rng.integers(1, 9, 4)]
        chances = [w / sum(weights) for w in weights]
        l, x, y = (Fraction(int(k), 12) for k in (rng.integers(0, 13), 1, 2))  # noqa: E741
        mean = sum(v * c for v, c in zip(values, chances, strict=True))
        low = sum(c for v, c in zip(values, chances, strict=True) if v < l - x)
        high = sum(c for v, c in zip(values, chances, strict=True) if v > l + y)
        assert x * low <= y + l - mean + (1 - l) * high


def test_lem_lower_boundedness_sandwich_needs_the_bound_from_above(binomial):
    # The accuracy of all-or-nothing has the mean l = (1 + w) / 2 for every n. It is
    # above l with chance w, so that the lemma does not apply, and near l never: the
    # chance of l - e or more stays at w.
    w, e = 0.3, 0.05
    for n in (1000, 4000):
        law = (1 - w) * binomial.float_law(n, 0.5)
        law[-1] += w
        share = np.arange(n + 1) / n
        limit = (1 + w) / 2
        assert law @ share == pytest.approx(limit)
        assert law[share >= limit - e].sum() == pytest.approx(w, abs=1e-9)


def examples():
    return [
        (LocalRandomisedResponse(epsilon=1.0), 1.0, True),
        (LocalLaplace(epsilon=1.0), 1.0, False),
        (AllOrNothing(elements=4000, probability=0.3), inf, False),
        (Xor(elements=4000), inf, False),
    ]


@pytest.mark.parametrize(("mechanism", "epsilon", "tight"), examples())
def test_lem_efficacy_and_tightness_agree_on_examples(mechanism, epsilon, tight):
    # Without abstention: the efficacy tends to p(epsilon) exactly where bounds do.
    n = 4000
    efficacy = levels(mechanism, elements=n).average_element_accuracy.value
    assert (abs(efficacy - p(epsilon)) < 1e-9) == tight
    design = Design(canaries=n, rules=OneRun(guesses=n), claim=claim(1.0))
    bounds = [
        audit_one_run(
            mechanism,
            Everyone(mechanism=mechanism),
            pairs=mechanism.pairs,
            design=design,
            rng=np.random.default_rng(number),
            key=fixed_key(number.to_bytes(32, "little")),
        ).bound.epsilon_lower
        for number in range(20)
    ]
    # A bound at 5 % lies 0.06 or so below; each by 0.2 with chance under 1e-4.
    reached = np.mean([bound >= min(epsilon, 6.0) - 0.2 for bound in bounds])
    assert (reached == 1.0) == tight


def test_lem_restated_efficacy_and_tightness_in_one_inequality(binomial):
    # Markov's inequality, both ways, for accuracies that do not exceed p(epsilon) by
    # more than h: (1 - q) x <= p(epsilon) + h - E <= x + (1 - q) + h, where q is the
    # chance of an accuracy of at least p(epsilon) - x. All coins are guessed: with
    # chance w all are known, else each is right with chance c; E is the package's.
    for n in (50, 500):
        for mechanism, top, w, c in (
            (LocalRandomisedResponse(epsilon=1.0), p(1.0), 0.0, p(1.0)),
            (LocalLaplace(epsilon=1.0), p(1.0), 0.0, 1 - np.exp(-0.5) / 2),
            (AllOrNothing(elements=n, probability=0.3), 1.0, 0.3, 0.5),
        ):
            law = (1 - w) * binomial.float_law(n, c)
            law[-1] += w
            share = np.arange(n + 1) / n
            mean = levels(mechanism, elements=n).average_element_accuracy.value
            assert mean == pytest.approx(law @ share)
            excess = law @ np.maximum(0.0, share - top)
            for x in (0.02, 0.1):
                missed = law[share < top - x].sum()
                gap = top - mean
                assert missed * x <= gap + excess + 1e-9
                assert gap <= x + missed + 1e-9


def test_lem_ora_efficacy_and_tightness_with_abstentions():
    # Local Laplace noise again, now guessed only where the loss is the largest: every
    # guess is right with chance p(epsilon), and bounds reach epsilon.
    n, epsilon = 30_000, 2.0
    mechanism = LocalLaplace(epsilon=epsilon)
    guesser = Confident(mechanism=mechanism, threshold=epsilon, guesses=n)

    class OnlyWorst:
        """The same guesses, with their number fixed below what is expected."""

        def guess(self, output):
            made = guesser.guess(output)
            return Submission(index=made.index[:10_000], guess=made.guess[:10_000])

    result = audit_one_run(
        mechanism,
        OnlyWorst(),
        pairs=mechanism.pairs,
        design=Design(canaries=n, rules=OneRun(guesses=10_000), claim=claim(epsilon)),
        rng=np.random.default_rng(7),
        key=fixed_key(bytes(range(32))),
    )
    # The bound lies within 0.15 of epsilon but with chance below 1e-3.
    assert epsilon - 0.15 < result.bound.epsilon_lower
    assert levels(
        mechanism, elements=n, guesses=10_000
    ).best_accuracy.value == pytest.approx(p(epsilon), abs=1e-4)


# Classic auditing


LEAKY = [
    [Fraction(2, 100), Fraction(18, 100), Fraction(80, 100)],
    [Fraction(18, 100), Fraction(2, 100), Fraction(80, 100)],
]


def test_lem_classic_auditing_is_tight_for_a_loss_that_is_rare(binomial):
    # One run in ten shows output 0, whose loss is ln 9. The guesser names its coin and
    # passes in all other runs. A guess is right with chance p(epsilon) = 0.9; the
    # printed proof says epsilon, and names x where y is the likelier.
    told = Enumeration(table=np.array(LEAKY, float))
    epsilon = log(9)
    assert told.worst_case() == pytest.approx(epsilon)
    guessed = (LEAKY[0][0] + LEAKY[1][0]) / 2
    right = LEAKY[1][0] / 2
    assert right / guessed == Fraction(9, 10)
    assert p(epsilon) == pytest.approx(0.9)
    reached = []
    for runs in (100, 2000, 20_000):
        taken = binomial.float_law(runs, float(guessed))
        likely = [int(r) for r in np.flatnonzero(taken > 1e-8) if r]
        reached.append(
            sum(
                taken[r] * chance_of_reaching(binomial, r, 0.9, epsilon, 0.4)
                for r in likely
            )
        )
    assert reached == sorted(reached)
    assert reached[-1] > 1 - 1e-3


GOLDEN = (1 + sqrt(5)) / 2


class Cauchy:
    """Adds Cauchy noise of scale 1 to 0 or 1; 2 ln of the golden ratio is its level."""

    def run(self, data, rng):
        return float(data[0] + rng.standard_cauchy())

    @staticmethod
    def loss(o):
        """ln P[o | 1] / P[o | 0]; largest at the golden ratio, and nowhere else."""
        return np.log1p(o**2) - np.log1p((o - 1) ** 2)


def where_the_loss_reaches(least):
    """The interval of outputs where Cauchy noise has a loss of so much."""
    t = np.exp(least)
    root = sqrt(3 * t - t**2 - 1)
    return (t - root) / (t - 1), (t + root) / (t - 1)


def test_lem_classic_auditing_is_tight_where_no_output_has_the_worst_loss():
    # The proof takes P[L = epsilon] > 0. Cauchy noise has its worst loss at one point,
    # which has chance 0, and Gaussian noise, whose level is infinite, nowhere.
    epsilon = 2 * log(GOLDEN)
    assert Cauchy.loss(GOLDEN) == pytest.approx(epsilon)
    o = np.random.default_rng(0).standard_cauchy(10**5)
    assert np.all(np.abs(Cauchy.loss(o)) < epsilon)
    gaussian = LocalGaussian(sigma=1.0).loss_distribution(1)
    assert levels_from_loss.exposed(gaussian, inf) == 0.0
    assert levels_from_loss.exposed(gaussian, 5.0) > 0.0
    # What is above epsilon - a has some chance for every a > 0, and is guessed right
    # with chance p(epsilon - a) or more. Let a fall slowly as the runs grow.
    for a in (0.1, 1e-3, 1e-5):
        low, high = where_the_loss_reaches(epsilon - a)
        one, other = (np.arctan(high - x) - np.arctan(low - x) for x in (1, 0))
        assert one + other > sqrt(a) / 2
        assert p(epsilon - a) <= one / (one + other) <= p(epsilon)


def test_lem_classic_auditing_is_tight_in_an_audit_of_cauchy_noise():
    # The printed guesser waits for a loss of epsilon and never guesses. The one that
    # takes epsilon - 0.05 for it guesses in 2,133 of 10,000 runs, give or take 41.
    epsilon, runs, guesses = 2 * log(GOLDEN), 10_000, 1_700

    def audited(least):
        made = []

        def guess(output):
            loss = Cauchy.loss(output)
            if abs(loss) < least or len(made) == guesses:
                return 0
            made.append(output)
            return 1 if loss > 0 else -1

        result = audit_classic(
            Cauchy(),
            guess,
            base=np.array([0]),
            place=0,
            pair=Pairs(x=0, y=1),
            design=Design(
                canaries=runs, rules=SeparateRuns(guesses=guesses), claim=claim(0.5)
            ),
            rng=np.random.default_rng(7),
            key=fixed_key(bytes(range(32))),
        )
        return len(made), result.bound.epsilon_lower

    assert audited(epsilon) == (0, 0.0)
    made, bound = audited(epsilon - 0.05)
    assert made == guesses
    assert epsilon - 0.3 < bound < epsilon


def test_lem_classic_auditing_is_tight_for_xor_where_one_run_sees_nothing():
    # Knowing the other elements, each run gives its coin away.
    base = np.array([1, 0, 1, 1, 0])
    bounds = []
    for runs in (50, 5000):
        result = audit_classic(
            Xor(elements=5),
            lambda output: 1 if output == 0 else -1,  # the others have parity 1
            base=base,
            place=1,
            pair=Pairs(x=0, y=1),
            design=Design(
                canaries=runs, rules=SeparateRuns(guesses=runs), claim=claim(1.0)
            ),
            rng=np.random.default_rng(0),
            key=fixed_key(bytes(32)),
        )
        assert result.reading.correct == runs
        bounds.append(result.bound.epsilon_lower)
    # alpha^(1 / r) as log-odds: about ln(r / 3), which grows without limit.
    expected = [special.logit(0.05 ** (1 / r)) for r in (50, 5000)]
    assert bounds == pytest.approx(expected, abs=1e-6)


def test_lem_classic_auditing_is_tight_in_a_whole_audit():
    # 8,000 of 40,000 runs show output 0 or 1, give or take 80; the first 7,500 of them
    # are guessed. The bound is within 0.2 of ln 9 but with chance below 1e-3.
    runs, guesses = 40_000, 7_500
    made = []

    def guess(output):
        if output == 2 or len(made) == guesses:
            return 0
        made.append(output)
        return (1, -1)[output]

    result = audit_classic(
        FiniteTable(rows=np.array(LEAKY, float)),
        guess,
        base=np.array([0]),
        place=0,
        pair=Pairs(x=0, y=1),
        design=Design(
            canaries=runs, rules=SeparateRuns(guesses=guesses), claim=claim(1.0)
        ),
        rng=np.random.default_rng(4),
        key=fixed_key(bytes(range(32))),
    )
    assert len(made) == guesses
    assert log(9) - 0.2 < result.bound.epsilon_lower < log(9) + 0.06
    assert result.claim_test.refuted
