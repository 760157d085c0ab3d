"""The map in the docs names every statement of the paper and every test of it.

The tests of a row run the code that the row names, and faults that are put into some of
that code are found by the row's own tests.
"""

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper_map import (
    MAP,
    ROOT,
    failing,
    given,
    links,
    never_run,
    passes,
    returned,
    rows,
    without_label,
)

from dpaudit import OneRun, Pairs
from dpaudit.bounds.bound import PointEstimate
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.theory.adaptive import GuessCounts
from dpaudit.theory.gap_levels import Estimate

HERE = Path(__file__).parent

# The labels of the paper's source, in its order; the paper is not in the repository.
LABELS = [
    "def:differential-privacy",
    "def:ora-asymptotic-tightness",
    "def:ora-efficacy",
    "lem:ora-efficacy-and-tightness",
    "def:local-algorithms",
    "thm:optimal-efficacy-without-abstentions",
    "thm:optimal-efficacy-with-abstentions",
    "thm:condition-for-tightness-of-ora-with-abstentions",
    "theorem:ora-is-tight-for-local-algorithms",
    "def:count-in-sets",
    "alg:one-run-auditing-auditor",
    "alg:classic-auditor",
    "def:validity",
    "def:asymptotic-validity",
    "def:asymptotic-tightness",
    "lem:efficacy-and-tightness",
    "def:clopper-pearson-lower",
    "def:stochastic-dominance",
    "lem:condition-for-validity",
    "prop:classic-auditing-is-valid",
    "prop:one-run-auditing-is-valid",
    "lem:convergence-of-clopper-pearson-lower",
    "lem:convergence-of-clopper-pearson-lower-for-random-variables",
    "lem:privacy-estimations-and-bounds",
    "prop:asymptotic-validity-estimations-and-bounds",
    "prop:validity-implies-asymptotic-validity",
    "prop:characterization-of-asymptotic-tightness-of-valid-auditors",
    "lem:lower-boundedness-sandwich",
    "lem-restated:efficacy-and-tightness",
    "lem:classic-auditing-is-tight",
    "prop:ora-is-tight-for-local-randomized-response",
    "prop:ora-efficacy-for-nas",
    "cor:ora-is-not-tight-for-nas",
    "prop:ora-efficacy-for-aon",
    "cor:ora-is-not-tight-for-aon",
    "prop:ora-efficacy-for-xor",
    "cor:ora-is-not-tight-for-xor",
    "thm-restated:optimal-efficacy-without-abstentions",
    "def:max-divergence-total-variation-distance",
    "lem:log-likelihood-ratio-and-total-variation-distance",
    "prop:optimal-efficacy-and-total-variation-distance",
    "thm-restated:optimal-efficacy-with-abstentions",
    "lem:efficacy-is-mean-of-success-probabilities",
    "lem:perfect-efficacy-iff-lrr",
    "prop:ora-has-perfect-efficacy-iff-local-randomized-response",
    "lem:approaches-perfect-efficacy-iff-mostly-probably-approximately-rr",
    "thm:condition-for-tightness-without-abstentions",
    "thm-restated:condition-for-tightness-of-ora-with-abstentions",
    "prop:local-laplace-efficacy-without-abstentions",
    "lem:bounds-approach-efficacy-for-local-algorithms",
    "alg:dp-sgd",
    "lem:bound-of-the-mad-of-a-binomial",
    "prop:ora-efficacy-for-count-approaches-half",
    "lemma:privacy-loss-of-count",
    "prop:condition-for-tightness-of-ora-for-count-in-sets",
    "def:adaptive-ora",
    "lem:stochastic-dominance-of-sum",
    "prop:adaptive-ora-is-valid",
]

# The places of what the paper defines or states in its text, once for each row.
TEXTS = [
    "sec:efficacy",
    "sec:efficacy",
    "subsec:experiments",
    "subsec:experiments",
    "subsec:adaptive-ora",
    "subsec:symmetric-algorithms-on-01",
    "subsec:aora-count-in-sets",
]

FIGURES = [
    "fig:effect-of-taken-guesses-number-single-epsilon",
    "fig:effect-of-elements-number-single-epsilon",
    "fig:dp-sgd-ora-vs-aora",
    "fig:results-of-ora-for-local-laplace",
    "fig:effect-of-taken-guesses-number-single-epsilon-efficacy",
    "fig:effect-of-elements-number-single-epsilon-efficacy",
    "fig:effect-of-taken-guesses-number-multiple-epsilons",
    "fig:effect-of-elements-number-multiple-epsilons",
    "fig:ora-and-aora-of-count-in-sets",
]

# What the paper defines or states without a label, as the table calls it.
UNLABELLED = {
    "Local randomized response": "def_local_randomized_response",
    "Name and shame": "def_name_and_shame",
    "All or nothing": "def_all_or_nothing",
    "XOR": "def_xor",
    "Local Laplace": "def_local_laplace",
    "Symmetric algorithms": "cor_symmetric_algorithms",
    "XOR + randomized response": "def_xor_randomized_response",
    "Full knowledge of XRR": "prop_full_knowledge_of_xrr",
    "Xor-in-pairs": "def_xor_in_pairs",
    "AORA is tight for xor-in-pairs": "prop_xor_in_pairs",
}


# The lab's tests see that those of figures run their code: it may not be installed.
ROWS = [row for row in rows() if row.label not in FIGURES]


def written():
    """All test functions of this directory that are about one statement."""
    found = []
    for path in sorted(HERE.glob("test_*.py")):
        if path.name not in ("test_map.py", "test_on_one_page.py"):
            body = ast.parse(path.read_text(encoding="utf-8")).body
            found += [
                f"tests/paper/{path.name}::{node.name}"
                for node in body
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            ]
    return found


def stem_of(row):
    """What the names of a row's tests begin with."""
    return re.sub(r"[:-]", "_", row.label) if row.label else UNLABELLED[row.name]


def is_about(row, stem, where):
    """Whether a row is the one of that name that names that code, or its class."""
    return stem_of(row) == stem and {where, where.rpartition(".")[0]} & {*row.code}


def test_every_statement_is_in_the_tables_once_and_no_other():
    labels = [row.label for row in rows() if row.label]
    assert sorted(labels) == sorted(LABELS + TEXTS + FIGURES)
    names = [row.name for row in rows() if not row.label]
    assert sorted(names) == sorted(UNLABELLED)


def test_objects_and_theorems_are_in_their_tables():
    objects = ("Definition", "Algorithm", "Figure")
    for row in rows():
        kind = row.statement.split()[0]
        table = "Objects implemented" if kind in objects else "Theorems checked"
        assert kind == "Text" or row.table == table, row.statement


def test_every_statement_has_the_number_that_its_place_in_the_paper_gives_it():
    """Theorems and their kin share a counter that starts anew in every section."""
    said = re.compile(
        r"(Definition|Theorem|Lemma|Proposition|Corollary) ([2-6A-E])\.(\d+): "
    )
    place = {
        (match[2], int(match[3])): row.label
        for row in rows()
        if (match := said.match(row.statement))
    }
    assert len(place) == len(ROWS) - 3 - len(TEXTS)  # three algorithms
    for section in "23456ABCDE":
        numbers = sorted(number for each, number in place if each == section)
        assert numbers == list(range(1, len(numbers) + 1)), section
    numbered = [label for label in LABELS if not label.startswith("alg:")]
    assert [label for _, label in sorted(place.items()) if label] == numbered


def test_every_link_to_a_file_leads_to_one_and_is_used():
    text = MAP.read_text(encoding="utf-8")
    for name, file in links().items():
        assert (ROOT / file).is_file(), file
        assert text.count(f"[`{name}`]") > 1, name  # once where it is told


def test_every_test_of_the_paper_is_in_the_tables_once():
    named = [test for row in ROWS for test in row.tests]
    assert sorted(named) == sorted(written())


def test_every_statement_has_a_test_that_bears_its_name():
    for row in ROWS:
        assert row.tests, row
        for test in row.tests:
            assert test.split("::test_")[1].startswith(stem_of(row)), test


def test_every_statement_that_needs_a_correction_is_explained():
    errata = MAP.with_name("errata.md").read_text(encoding="utf-8")
    for row in rows():
        if row.remark.endswith("(errata.md)"):
            assert (row.label or row.name) in errata, row.statement


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=stem_of(row)) for row in ROWS if row.code]
)
def test_the_tests_of_a_row_run_the_code_that_it_names(request, row):
    assert not never_run(row, request)


def test_docstrings_of_what_a_row_names_have_its_label():
    """All of it where it is an object, and something where it is a theorem."""
    for row in ROWS:
        if row.label and row.code:
            lacking = without_label(row)
            assert lacking != set(row.code), row.statement
            assert not lacking or row.table == "Theorems checked", lacking


def test_docstrings_have_no_label_that_the_paper_has_not():
    label = re.compile(
        r'"((?:def|thm|lem|lemma|prop|cor|theorem|alg|fig)[\w-]*:[\w-]+)"'
    )
    known = {*LABELS, *TEXTS, *FIGURES}
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("lab/src/**/*.py")]:
        assert known.issuperset(label.findall(path.read_text("utf-8"))), path


def test_only_facts_of_mathematics_name_no_code():
    for row in rows():
        assert row.code or row.table == "Theorems checked", row.statement


# Faults that the tests of a row find


def runs_as(**changed):
    """A mechanism that runs as one with other parameters would."""

    def fault(real):
        def run(self, data, rng):
            other = {name: change(self) for name, change in changed.items()}
            return real(replace(self, **other), data, rng)

        return run

    return fault


def swapped(pairs):
    return Pairs(x=pairs.y, y=pairs.x, adjacency=pairs.adjacency)


def opposite(made):
    return replace(made, guess=-made.guess)


def told_lies(play):
    """An adaptive game whose guesser is told the other side of every coin."""

    def playing(self, output):
        real = play(self, output)
        turn = next(real, None)
        while turn is not None:
            truth = yield turn
            try:
                turn = real.send(-truth)
            except StopIteration:
                turn = None

    return playing


def by_expectation(evidence):
    """As if many elements were there for sure where many are expected."""
    table = [[replace(e, probability=1.0) for e in row] for row in evidence.table]
    return replace(evidence, table=tuple(map(tuple, table)))


def a_little_less(found):
    less = Estimate.exact(found.average_element_accuracy.value - 1e-3)
    return replace(found, average_element_accuracy=less)


BOUND = "dpaudit.bounds.bound:GameBound.epsilon_lower"
LIMITS = "dpaudit.stats.binomial:rate_limits"
two_sided = given(alpha=lambda alpha: alpha / 2)
one_percent_more = given(alpha=lambda alpha: 1.01 * alpha)

# The row, what of its code has a fault, and the fault.
FAULTS = [
    (
        "def_differential_privacy",
        "dpaudit.theory.enumeration:Enumeration.worst_case",
        lambda _: lambda self, **named: self.distributional(**named),
    ),
    ("def_ora_asymptotic_tightness", BOUND, two_sided),
    (
        "def_ora_efficacy",  # coins that were passed, one of three, count as wrong
        "dpaudit.theory.simulation:efficacy",
        returned(lambda found: Estimate.exact(found.value * 2 / 3)),
    ),
    ("def_validity", BOUND, given(alpha=lambda alpha: 2 * alpha)),
    (
        "def_asymptotic_tightness",
        "dpaudit.theory.tightness:tightness",
        returned(by_expectation),
    ),
    (
        "def_clopper_pearson_lower",
        "dpaudit.stats.binomial:log_odds_limit",
        given(log_alpha=lambda log_alpha: log_alpha - 0.01),
    ),
    (
        "def_stochastic_dominance",
        "dpaudit.stats.binomial:log_tails",
        lambda real: lambda v, r, log_odds: real(v + 1, r, log_odds),
    ),
    (
        "prop_one_run_auditing_is_valid",
        "dpaudit.bounds.exact:PureBound.log_p_value",
        given(epsilon=lambda epsilon: 1.001 * epsilon),
    ),
    ("lem_convergence_of_clopper_pearson_lower", LIMITS, one_percent_more),
    (
        "lem_convergence_of_clopper_pearson_lower_for_random_variables",
        LIMITS,
        one_percent_more,
    ),
    ("lem_privacy_estimations_and_bounds", BOUND, two_sided),
    ("prop_asymptotic_validity_estimations_and_bounds", BOUND, two_sided),
    (
        "prop_characterization_of_asymptotic_tightness_of_valid_auditors",
        BOUND,
        two_sided,
    ),
    (
        "lem_restated_efficacy_and_tightness",
        "dpaudit.theory.levels:levels",
        returned(a_little_less),
    ),
    (
        "lem_log_likelihood_ratio_and_total_variation_distance",
        "dpaudit.theory.enumeration:Enumeration.accuracy",
        lambda _: property(lambda self: self.posterior),
    ),
    (
        "lem_efficacy_is_mean_of_success_probabilities",
        "dpaudit.theory.enumeration:Enumeration.efficacy_of",
        returned(lambda efficacy: 1 - efficacy),
    ),
    (
        "prop_local_laplace_efficacy_without_abstentions",
        "dpaudit.mechanisms.local:LocalLaplace.loss_distribution",
        lambda real: lambda self, n: real(type(self)(epsilon=self.epsilon / 2), n),
    ),
    ("lem_bounds_approach_efficacy_for_local_algorithms", BOUND, two_sided),
    (
        "alg_dp_sgd",
        "dpaudit.dpsgd.likelihood:CountLikelihood.observe",
        lambda real: lambda self, sums, scale: real(self, sums, 1.001 * scale),
    ),
    (
        "prop_condition_for_tightness_of_ora_for_count_in_sets",
        "dpaudit.theory.tightness:SetSize.is_tight",
        lambda _: property(lambda self: self.per_log2 < 1),
    ),
    (
        "def_adaptive_ora",
        "dpaudit.game.referee:Referee.submit",
        returned(lambda truth: -truth),
    ),
    (
        "prop_adaptive_ora_is_valid",
        "dpaudit.bounds.adaptive:AdaptiveBound.log_p_value",
        returned(lambda log_p: log_p - 1e-3),
    ),
    (
        "subsec_aora_count_in_sets",
        "dpaudit.theory.posterior:adaptive_guessing",
        given(threshold=lambda threshold: min(threshold, 1.0)),
    ),
    # Mechanisms that run otherwise than their definitions say.
    (
        "def_local_algorithms",  # one coin for all elements
        "dpaudit.mechanisms.local:LocalRandomisedResponse.run",
        lambda real: lambda self, data, rng: data * real(self, np.ones(1), rng),
    ),
    (
        "def_local_randomized_response",
        "dpaudit.mechanisms.local:LocalRandomisedResponse.run",
        runs_as(epsilon=lambda self: 1.2 * self.epsilon),
    ),
    (
        "def_name_and_shame",  # always the first element
        "dpaudit.mechanisms.exposure:NameAndShame.run",
        lambda _: lambda self, data, rng: data[0],
    ),
    (
        "def_all_or_nothing",
        "dpaudit.mechanisms.exposure:AllOrNothing.run",
        runs_as(probability=lambda self: 0.8 * self.probability),
    ),
    (
        "def_xor",
        "dpaudit.mechanisms.parity:Xor.run",
        lambda real: (
            lambda self, data, rng: real(
                replace(self, elements=self.elements - 1), data[1:], rng
            )
        ),
    ),
    (
        "def_xor_randomized_response",
        "dpaudit.mechanisms.parity:XorRandomisedResponse.run",
        runs_as(epsilon=lambda self: 2 * self.epsilon),
    ),
    (
        "def_xor_in_pairs",  # the first with the last, and so on
        "dpaudit.mechanisms.parity:XorInPairs.run",
        lambda real: (
            lambda self, data, rng: (
                data[: len(data) // 2] ^ data[::-1][: len(data) // 2]
            )
        ),
    ),
    (
        "def_local_laplace",  # as if neighbours were 1 apart, not 2
        "dpaudit.mechanisms.local:LocalLaplace.run",
        runs_as(epsilon=lambda self: 2 * self.epsilon),
    ),
    (
        "def_count_in_sets",
        "dpaudit.mechanisms.sets:CountInSets.run",
        returned(lambda counts: counts[::-1]),
    ),
    (
        "subsec_symmetric_algorithms_on_01",  # of half of the elements each
        "dpaudit.mechanisms.sets:count",
        lambda real: (
            lambda elements: CountInSets(elements=elements, set_size=-(-elements // 2))
        ),
    ),
    (
        "subsec_experiments",  # half the noise
        "dpaudit.dpsgd.sums:DiracSums.run",
        runs_as(sigma=lambda self: self.sigma / 2),
    ),
    (
        "subsec_experiments",  # of as many steps
        "dpaudit.dpsgd.sums:DiracSums.log_odds",
        returned(lambda log_odds: 2 * log_odds),
    ),
    # Guessers and auditors
    (
        "subsec_experiments",
        "dpaudit.game.guessers:Extremes.guess",
        returned(opposite),
    ),
    ("sec_efficacy", "dpaudit.game.guessers:Everyone.guess", returned(opposite)),
    (
        "sec_efficacy",
        "dpaudit.game.guessers:Confident.guess",
        lambda real: (
            lambda self, output: real(
                replace(self, threshold=self.threshold / 2), output
            )
        ),
    ),
    ("subsec_adaptive_ora", "dpaudit.game.guessers:AdaptiveMostLikely.play", told_lies),
    (
        "alg_one_run_auditing_auditor",
        "dpaudit.game.auditors:play_one_run",
        given(pairs=swapped),
    ),
    (
        "alg_one_run_auditing_auditor",  # guesses not made count as wrong
        "dpaudit.game.rules.equal:OneRun.read",
        lambda real: (
            lambda self, played, *, canaries: real(
                OneRun(guesses=canaries), played, canaries=canaries
            )
        ),
    ),
    (
        "alg_classic_auditor",
        "dpaudit.game.auditors:audit_classic",
        given(pair=swapped),
    ),
    # Levels
    (
        "sec_efficacy",
        "dpaudit.theory.enumeration:Enumeration.best",
        lambda real: lambda self, guesses: real(self, max(1, guesses - 1)),
    ),
    (
        "def_max_divergence_total_variation_distance",  # not halved
        "dpaudit.theory.enumeration:Enumeration.total_variation",
        lambda real: property(lambda self: 2 * real.fget(self)),
    ),
    (
        "def_asymptotic_validity",
        "dpaudit.bounds.power:estimate",
        returned(
            lambda found: PointEstimate(epsilon_estimate=0.9 * found.epsilon_estimate)
        ),
    ),
    (
        "lemma_privacy_loss_of_count",
        "dpaudit.mechanisms.exchangeable:ExchangeablePosterior.log_odds",
        returned(lambda log_odds: 1.001 * log_odds),
    ),
    (
        "subsec_aora_count_in_sets",  # as printed: the chance of any guess
        "dpaudit.theory.adaptive:one_run_guesses",
        returned(
            lambda law: GuessCounts(
                guesses=np.array([law.guesses[0], 1 - law.guesses[0]]), right=law.right
            )
        ),
    ),
]


def test_every_object_has_a_fault_that_is_put_into_it():
    for row in ROWS:
        if row.table == "Objects implemented":
            assert any(is_about(row, stem, where) for stem, where, _ in FAULTS), row


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("stem", "where", "fault"),
    [pytest.param(*each, id=f"{each[0]}-{each[1].split(':')[1]}") for each in FAULTS],
)
def test_the_tests_of_a_row_find_a_fault(request, stem, where, fault):
    (row,) = (row for row in ROWS if is_about(row, stem, where))
    number = failing(row, request, where, fault)
    assert number is not None
    assert passes(row, request, number)
