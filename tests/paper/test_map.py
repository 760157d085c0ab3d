"""The table in the docs names every statement of the paper and every test of it.

The tests of a row run the code that the row names: they are called here once more,
under a profile that sees which functions of the package are entered, and that ends
them once all that were named have been. Other tests see that they pass. Faults that
are put into some of that code are found by the row's own tests.
"""

import ast
import re
import sys
from dataclasses import replace
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from itertools import islice, product
from math import inf
from pathlib import Path
from pkgutil import resolve_name

import pytest

import dpaudit
from dpaudit.theory.gap_levels import Estimate

HERE = Path(__file__).parent
MAP = HERE.parents[1] / "docs" / "explanation" / "paper-map.md"
PACKAGE = f"{dpaudit.__path__[0]}/"

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
    "subsec:aora-count-in-sets",
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


def rows():
    """Of each row of the table: its first cell, the code it names, and the tests."""
    found = []
    for line in MAP.read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if len(cells) == 5 and "`" in cells[3]:
            tests = re.findall(r"`(test_\w+\.py::test_\w+)`", cells[3])
            found.append((cells[0], cells[2].strip(), tests))
    return found


def written():
    """All test functions of this directory but those of this file."""
    found = []
    for path in sorted(HERE.glob("test_*.py")):
        if path != Path(__file__):
            body = ast.parse(path.read_text(encoding="utf-8")).body
            found += [
                f"{path.name}::{node.name}"
                for node in body
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            ]
    return found


def stem_of(statement):
    """What the names of a statement's tests begin with."""
    label = re.search(r"`([\w-]+:[\w-]+)`", statement)
    if label:
        return re.sub(r"[:-]", "_", label[1])
    name = re.search(r": (.*) \(no label\)", statement)
    return UNLABELLED[name[1]]


def test_every_statement_is_in_the_table_once_and_no_other():
    labels, names = [], []
    for statement, _, _ in rows():
        label = re.search(r"`([\w-]+:[\w-]+)`", statement)
        name = re.search(r": (.*) \(no label\)", statement)
        (labels if label else names).append((label or name)[1])
    assert sorted(labels) == sorted(LABELS)
    assert sorted(names) == sorted(UNLABELLED)


def test_every_statement_has_the_number_that_its_place_in_the_paper_gives_it():
    """Theorems and their kin share a counter that starts anew in every section."""
    said = re.compile(
        r" (Definition|Theorem|Lemma|Proposition|Corollary) ([2-6A-E])\.(\d+): .*?"
        r"(?:`([\w-]+:[\w-]+)`|\(no label\))"
    )
    found = [match.groups() for each, _, _ in rows() if (match := said.match(each))]
    assert len(found) == len(rows()) - 4  # three algorithms and a text
    place = {(section, int(number)): label for _, section, number, label in found}
    for section in "23456ABCDE":
        numbers = sorted(number for each, number in place if each == section)
        assert numbers == list(range(1, len(numbers) + 1)), section
    numbered = [
        label for label in LABELS if label.split(":")[0] not in ("alg", "subsec")
    ]
    assert [label for _, label in sorted(place.items()) if label] == numbered


def test_every_test_in_the_table_exists():
    named = {test for _, _, tests in rows() for test in tests}
    assert named <= set(written())


def test_every_test_of_the_paper_is_in_the_table_once():
    named = [test for _, _, tests in rows() for test in tests]
    assert sorted(named) == sorted(written())


def test_every_statement_has_a_test_that_bears_its_name():
    for statement, _, tests in rows():
        assert tests, statement
        for test in tests:
            assert test.split("::test_")[1].startswith(stem_of(statement)), test


def test_every_statement_that_needs_a_correction_is_explained():
    errata = MAP.with_name("errata.md").read_text(encoding="utf-8")
    for line in MAP.read_text(encoding="utf-8").splitlines():
        if "(errata.md) |" in line:
            statement = re.split(r"(?<!\\)\|", line)[1]
            label = re.search(r"`([\w-]+:[\w-]+)`", statement)
            name = re.search(r": (.*) \(no label\)", statement)
            assert (label or name)[1] in errata, statement


# What the tests of a row run

SOON = 20_000  # calls of functions, after which a test is broken off at first


def named_code(cell):
    """Pairs of a file and a function, class or method in it; "" for any."""
    found, file = set(), None
    for token in re.findall(r"`([^`]+)`", cell):
        if token.endswith(".py"):
            file = token
        found.add((file, "" if token == file else token))
    return found


class Enough(BaseException):
    """A call has run what it was made for."""


def not_run(wanted, call, most):
    """Which of the wanted a call does not enter.

    It ends once it entered all, or called so many functions.
    """
    left, met, entered = set(wanted), {}, 0

    def look(frame, event, _):
        nonlocal entered
        if event != "call":
            return
        entered += 1
        code = frame.f_code
        if id(code) not in met:
            met[id(code)] = code
            left.difference_update([each for each in left if is_of(code, *each)])
        if not left or entered > most:
            raise Enough

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        call()
    except Enough:
        pass
    finally:
        sys.setprofile(before)
    return left


def is_of(code, file, name):
    """Whether it is code of a function, or of a class, of a file of the package."""
    within = not name or f"{code.co_qualname}.".startswith(f"{name}.")
    return within and code.co_filename == PACKAGE + file and code.co_name != "<module>"


@cache
def module(file):
    """A file of tests, for itself: what pytest collected stays as it is."""
    spec = spec_from_file_location(f"row_of_{Path(file).stem}", HERE / file)
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def calls(tests, request):
    """Every call that pytest makes of some tests, ready to be made."""
    for test in tests:
        file, name = test.split("::")
        function = getattr(module(file), name)
        choices = []
        for mark in getattr(function, "pytestmark", ()):
            names, values = mark.args
            one = isinstance(names, str)
            choices.append(
                [
                    {names: v} if one else dict(zip(names, v, strict=True))
                    for v in values
                ]
            )
        for chosen in product(*choices):
            given = {name: value for part in chosen for name, value in part.items()}
            fixtures = signature(function).parameters.keys() - given
            given |= {name: request.getfixturevalue(name) for name in fixtures}
            yield partial(function, **given)


@pytest.mark.parametrize(
    ("code", "tests"),
    [pytest.param(*row[1:], id=stem_of(row[0])) for row in rows()],
)
def test_the_tests_of_a_row_run_the_code_that_it_names(request, code, tests):
    left = named_code(code)
    assert bool(left) != code.startswith("none; ")
    for most in (SOON, inf):
        for call in calls(tests, request):
            left = left and not_run(left, call, most)
    assert not left


# Faults that the tests of a row find


def given(**changed):
    """A function that takes something else for what it is given by name."""

    def fault(real):
        def faulty(*arguments, **named):
            wrong = {name: change(named[name]) for name, change in changed.items()}
            return real(*arguments, **named | wrong)

        return faulty

    return fault


def returned(change):
    """A function that returns something else."""
    return lambda real: lambda *given, **named: change(real(*given, **named))


def by_expectation(evidence):
    """As if many elements were there for sure where many are expected."""
    table = [[replace(e, probability=1.0) for e in row] for row in evidence.table]
    return replace(evidence, table=tuple(map(tuple, table)))


def a_little_less(found):
    less = Estimate.exact(found.average_element_accuracy.value - 1e-3)
    return replace(found, average_element_accuracy=less)


BOUND = ("bounds/bound.py", "GameBound.epsilon_lower")
LIMITS = ("stats/binomial.py", "rate_limits")
two_sided = given(alpha=lambda alpha: alpha / 2)
one_percent_more = given(alpha=lambda alpha: 1.01 * alpha)

# The row, what of its code has a fault, and the fault.
FAULTS = [
    (
        "def_differential_privacy",
        ("theory/enumeration.py", "Enumeration.worst_case"),
        lambda _: lambda self, **named: self.distributional(**named),
    ),
    ("def_ora_asymptotic_tightness", BOUND, two_sided),
    (
        "def_ora_efficacy",  # coins that were passed, one of three, count as wrong
        ("theory/simulation.py", "efficacy"),
        returned(lambda found: Estimate.exact(found.value * 2 / 3)),
    ),
    ("def_validity", BOUND, given(alpha=lambda alpha: 2 * alpha)),
    (
        "def_asymptotic_tightness",
        ("theory/tightness.py", "tightness"),
        returned(by_expectation),
    ),
    (
        "def_clopper_pearson_lower",
        ("stats/binomial.py", "log_odds_limit"),
        given(log_alpha=lambda log_alpha: log_alpha - 0.01),
    ),
    (
        "def_stochastic_dominance",
        ("stats/binomial.py", "log_tails"),
        lambda real: lambda v, r, log_odds: real(v + 1, r, log_odds),
    ),
    (
        "prop_one_run_auditing_is_valid",
        ("bounds/exact.py", "Pure.log_p_value"),
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
        ("theory/levels.py", "levels"),
        returned(a_little_less),
    ),
    (
        "lem_log_likelihood_ratio_and_total_variation_distance",
        ("theory/enumeration.py", "Enumeration.accuracy"),
        lambda _: property(lambda self: self.posterior),
    ),
    (
        "lem_efficacy_is_mean_of_success_probabilities",
        ("theory/enumeration.py", "Enumeration.efficacy_of"),
        returned(lambda efficacy: 1 - efficacy),
    ),
    (
        "prop_local_laplace_efficacy_without_abstentions",
        ("mechanisms/local.py", "LocalLaplace.loss_distribution"),
        lambda real: lambda self, n: real(type(self)(epsilon=self.epsilon / 2), n),
    ),
    ("lem_bounds_approach_efficacy_for_local_algorithms", BOUND, two_sided),
    (
        "alg_dp_sgd",
        ("dpsgd/likelihood.py", "CountLikelihood.observe"),
        lambda real: lambda self, sums, scale: real(self, sums, 1.001 * scale),
    ),
    (
        "prop_condition_for_tightness_of_ora_for_count_in_sets",
        ("theory/tightness.py", "SetSize.is_tight"),
        lambda _: property(lambda self: self.per_log2 < 1),
    ),
    (
        "def_adaptive_ora",
        ("game/referee.py", "Referee.submit"),
        returned(lambda truth: -truth),
    ),
    (
        "prop_adaptive_ora_is_valid",
        ("bounds/adaptive.py", "Adaptive.log_p_value"),
        returned(lambda log_p: log_p - 1e-3),
    ),
    (
        "subsec_aora_count_in_sets",
        ("theory/posterior.py", "adaptive_guessing"),
        given(threshold=lambda threshold: min(threshold, 1.0)),
    ),
]


@pytest.fixture
def forget():
    """Nothing that was computed or imported without a fault is used with it."""

    def everything():
        module.cache_clear()
        for name, each in list(sys.modules.items()):
            if name.startswith("dpaudit."):
                for value in list(vars(each).values()):
                    if hasattr(value, "cache_clear"):
                        value.cache_clear()

    yield everything
    everything()


def fails(call):
    try:
        call()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(
    ("row", "where", "fault"), [pytest.param(*each, id=each[0]) for each in FAULTS]
)
def test_the_tests_of_a_row_find_a_fault(
    request, monkeypatch, forget, row, where, fault
):
    ((code, tests),) = [each[1:] for each in rows() if stem_of(each[0]) == row]
    file, name = where
    assert {where, (file, name.split(".")[0])} & named_code(code)
    path = f"dpaudit.{file.removesuffix('.py').replace('/', '.')}"
    monkeypatch.setattr(f"{path}.{name}", fault(resolve_name(f"{path}:{name}")))
    forget()
    failing = (n for n, call in enumerate(calls(tests, request)) if fails(call))
    number = next(failing, None)
    assert number is not None
    monkeypatch.undo()
    forget()
    assert not fails(next(islice(calls(tests, request), number, None)))
