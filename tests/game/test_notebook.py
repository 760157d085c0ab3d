"""What a notebook shows of a result."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from dpaudit import ApproxDP, Design, GaussianDP, Key, OneRun
from dpaudit.bounds import Counts
from dpaudit.bounds.bound import ClaimTest
from dpaudit.game.findings import passed
from dpaudit.game.result import judge
from dpaudit.game.verdict import Verdict
from dpaudit.training.any_loop import SumsAudit

CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)


def words(fragment):
    found = []
    reader = HTMLParser()
    reader.handle_data = found.append
    reader.feed(fragment)
    return " ".join(" ".join(found).split())


def result(correct):
    design = Design(canaries=2000, rules=OneRun(guesses=1000), claim=CLAIM)
    counts = Counts(canaries=2000, guesses=1000, correct=correct)
    return judge(counts, design=design, commitment=None)


@pytest.mark.parametrize(
    ("correct", "verdict"), [(900, "Claim refuted"), (600, "No violation detected")]
)
def test_a_result_shows_its_verdict_and_seven_rows(correct, verdict):
    fragment = result(correct)._repr_html_()
    assert words(fragment).startswith(verdict)
    assert fragment.count("<tr") == fragment.count('scope="row"') == 7
    assert f"{correct} of 1,000 ({correct / 1000:.1%})" in fragment
    assert fragment.count("<") == fragment.count(">")


def test_nothing_is_rounded_in_favour_of_the_auditor():
    made = result(600)
    fragment = replace(
        made,
        bound=replace(made.bound, epsilon_lower=1.23499),
        design_test=ClaimTest(claim=CLAIM, p_value=0.050001, alpha=0.05),
        ceiling=9.9999,
    )._repr_html_()
    assert "epsilon &gt;= 1.234 at" in fragment
    assert "p = 0.050001" in fragment
    assert "9.999" in fragment


def test_it_keeps_the_colours_of_the_notebook_and_loads_nothing():
    fragment = result(900)._repr_html_()
    assert not re.search(r"(?<!-)color:(?!inherit)|src=|href=|<script|<style", fragment)


def test_what_comes_from_outside_is_escaped():
    made = result(900)
    fragment = replace(
        made,
        bound=replace(made.bound, epsilon_lower=float("inf"), method="<script>"),
        design_test=ClaimTest(claim=CLAIM, p_value=0.0, alpha=0.05),
        ceiling=float("inf"),
        sanity_checks=(passed("custom", text="<b onclick=x>"),),
    )._repr_html_()
    assert "<script" not in fragment
    assert "&lt;script&gt;" in fragment
    assert "<b " not in fragment
    assert "&lt;b onclick=x&gt;" in fragment
    assert "p &lt; 1e-300" in fragment


def test_training_shows_the_verdict_that_counts():
    design = Design(canaries=200, rules=OneRun(guesses=50), claim=CLAIM)
    key = Key(bytes(32))
    audit = SumsAudit(design=design, key=key, dimension=200, sample_rate=1.0)
    noise = np.random.default_rng(0).normal(size=200)
    audit.observe(audit.contributions() + 0.5 * noise)
    trained = audit.finish(claim=GaussianDP(mu=8.0))
    assert trained.design_test.refuted
    assert not trained.refuted
    assert words(trained._repr_html_()).startswith("Inconclusive ")
    assert trained.verdict is Verdict.INCONCLUSIVE  # of a curve that high
    assert "what the accountant proves of the steps made" in words(
        trained._repr_html_()
    )


def test_each_row_says_what_it_is():
    shown = words(result(900)._repr_html_())
    for row in (
        "Claimed epsilon = 1 at delta = 1e-05: add or remove one record Lower bound",
        "Lower bound epsilon >= 2.",
        "; 0.05 or less refutes it",
        "Correct guesses 900 of 1,000 (90.0%): of 2,000 canaries Maximum",
        "Maximum for this design epsilon >= 5.",
        "(method exact) p-value p = ",
        "Threat model sees the output",
    ):
        assert row in shown


def test_the_verdict_has_its_own_colour():
    one, other = (result(n)._repr_html_().partition("<p")[0] for n in (900, 600))
    assert one != other
    assert "None" not in one + other
