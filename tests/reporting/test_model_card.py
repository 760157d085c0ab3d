"""The section of a model card: honest, complete, and Markdown whatever it is told."""

from functools import cache
from math import inf

import numpy as np
import pytest
from markdown_it import MarkdownIt
from scipy import special, stats

from dpaudit import ApproxDP, Design, GaussianDP, OneRun, Ranking, ThreatModel
from dpaudit.bounds import Counts, Ranked
from dpaudit.errors import InvalidInputError
from dpaudit.game import Commitment
from dpaudit.game.findings import invalid
from dpaudit.game.result import judge
from dpaudit.game.verdict import Verdict
from dpaudit.reporting.model_card import model_card_section
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

PARSER = MarkdownIt("commonmark").enable("table")
section_of = cache(model_card_section)  # a second each
KEY = fixed_key(bytes(range(32)))
# Of 75 of 100 right about 1000 canaries at (0.5, 1e-4), by the exact bound.
LAW = stats.binom(100, special.expit(0.5))
P_VALUE = LAW.sf(74) * (1 + 1000 * 1e-4 * LAW.cdf(74) / (75 * LAW.pmf(75)))


def judged(
    correct=75,
    *,
    epsilon=0.5,
    not_exercised=(),
    committed=True,
    guesses=100,
    sees=ThreatModel.FINAL_MODEL,
    sanity_checks=(),
):
    design = Design(
        canaries=1000,
        rules=OneRun(guesses=guesses),
        claim=ApproxDP(epsilon=epsilon, delta=1e-4),
        threat_model=sees,
    )
    return judge(
        Counts(canaries=1000, guesses=guesses, correct=correct),
        design=design,
        commitment=Commitment.to(KEY, design) if committed else None,
        not_exercised=not_exercised,
        sanity_checks=sanity_checks,
    )


def cells(section):
    """Return the table of a section as the parser reads it."""
    texts = [
        token.content
        for before, token in zip(
            PARSER.parse(section), PARSER.parse(section)[1:], strict=False
        )
        if before.type in ("th_open", "td_open")
    ]
    plain = [PARSER.renderInline(text) for text in texts]
    return dict(zip(plain[::2], plain[1::2], strict=True))


def kinds(section):
    return [token.type for token in PARSER.parse(section)]


def test_a_refuted_claim_is_told_with_all_that_the_number_needs():
    section = section_of(judged())
    table = cells(section)
    assert table["Verdict"] == "claim refuted"
    claimed = "epsilon = 0.5 at delta = 0.0001: add or remove one record"
    assert table["Claimed"] == claimed
    assert table["Lower bound"] == (
        "epsilon &gt;= 0.695 at delta = 0.0001: 95 % confidence, for any mechanism "
        "(method exact)"
    )
    assert table["Threat model"] == "sees only the final model"
    p_value, _, rest = table["p-value"].partition(": ")
    assert "if the claim is true; 0.05 or less refutes it" in rest
    shown = float(p_value.removeprefix("p = "))
    assert P_VALUE <= shown == pytest.approx(P_VALUE, rel=0.05)  # rounded up
    assert table["Correct guesses"] == "75 of 100 (75.0%): of 1,000 canaries"
    assert "would refute" not in section
    verdict = (
        "**Claim refuted.** Claimed ε ≤ 0.5 at δ = 0.0001; Lower bound ε ≥ 0.695 (95 % "
        "confidence)."
    )
    assert section.splitlines()[2].replace("\\", "") == verdict
    assert "At delta = 0.0001 against an adversary who sees only the final" in section


def test_what_was_not_refuted_says_what_would_have_been():
    section = section_of(judged(correct=60))
    assert cells(section)["Verdict"] == (
        "no violation detected, which does not prove the claim"
    )
    assert "would refute the claim with probability 0.9" in section.splitlines()[4]


def test_an_audit_that_could_show_nothing_is_called_inconclusive():
    table = cells(section_of(judged(correct=5, guesses=5, epsilon=6.0)))
    assert table["Verdict"].startswith("inconclusive")


def test_whether_the_coins_were_committed_is_said():
    commitment = judged().commitment.sha256
    assert f"`{commitment}`" in section_of(judged())
    said = section_of(judged(committed=False))
    assert "were not committed to" in said
    assert "`dpaudit verify`" not in said


def test_a_ranking_and_a_training_have_sections_too():
    design = Design(
        canaries=200, rules=Ranking(guesses=200), claim=ApproxDP(epsilon=1.0, delta=0.0)
    )
    ranked = judge(
        Ranked(canaries=200, right=np.arange(200) % 10 > 0),
        design=design,
        commitment=None,
    )
    found = cells(model_card_section(ranked))["Lower bound"]
    assert "(method ranked)" in found
    counted = Design(
        canaries=200,
        rules=OneRun(guesses=50),
        claim=GaussianDP(mu=0.5),
        delta=0.0,
    )
    audit = SumsAudit(design=counted, key=KEY, dimension=200, sample_rate=1.0)
    rng = np.random.default_rng(0)
    for _ in range(10):
        audit.observe(audit.contributions() + 0.3 * rng.normal(size=200))
    trained = audit.finish(claim=GaussianDP(mu=0.5))
    assert trained.claim_test.claim.epsilon_at(0.0) == inf
    table = cells(model_card_section(trained))
    assert table["Claimed"].startswith(
        "epsilon = inf at delta = 0: add or remove one record; what the accountant "
        "proves"
    )
    assert "not tested" in table["Model-based bound"]


NASTY = (
    "a | b",
    "<script>alert(1)</script>",
    "# heading",
    "1. one",
    "- dash",
    "+ plus",
    "line\n\n## another section\n\n- x",
    "`code` *bold* _under_ [link](http://x) ![image](http://x)",
    "    indented",
    "```\nfence",
    "&lt; &amp; $x$ ~~gone~~",
    "back\\slash",
    "===",
    "---",
)


def test_what_a_user_wrote_stays_text():
    """The same tokens as for harmless words, and each word unchanged but for space."""
    harmless = section_of(judged(not_exercised=("word",) * len(NASTY)))
    section = section_of(judged(not_exercised=NASTY))
    assert kinds(section) == kinds(harmless)
    said = [
        "".join(child.content for child in token.children)
        for token in PARSER.parse(section)
        if token.type == "inline"
        and {child.type for child in token.children} <= {"text", "text_special"}
    ]
    for nasty in NASTY:
        assert " ".join(nasty.split()) in said


def test_the_heading_has_the_level_asked_for():
    tags = [
        token.tag
        for token in PARSER.parse(model_card_section(judged(), level=5))
        if token.type == "heading_open"
    ]
    assert tags == ["h5", "h6"]


@pytest.mark.parametrize("level", [0, 6])
def test_a_level_that_has_no_heading_is_refused(level):
    with pytest.raises(InvalidInputError, match="level"):
        model_card_section(judged(), level=level)


def first_table(section):
    """Return the rows of a section's first table, without markup."""
    rows, row = [], None
    for token in PARSER.parse(section):
        if token.type == "tr_open":
            row = []
            rows.append(row)
        elif token.type == "inline" and row is not None:
            row.append("".join(child.content for child in token.children))
        elif token.type == "table_close":
            return rows
    raise AssertionError("no table")


def test_several_observers_have_a_row_each_and_then_a_part_each():
    every_step = judged(75, sees=ThreatModel.ALL_ITERATES)
    final = judged(60)
    section = model_card_section(every_step, final)
    assert first_table(section) == [
        ["Adversary", "Claimed", "Lower bound", "p-value", "Verdict", "Canaries"],
        [
            "1. sees every iterate",
            "epsilon = 0.5",
            "epsilon >= 0.695",
            cells(section_of(every_step))["p-value"].partition(":")[0],
            "claim refuted",
            "1,000",
        ],
        [
            "2. sees only the final model",
            "epsilon = 0.5",
            "epsilon >= 0.042",
            cells(section_of(final))["p-value"].partition(":")[0],
            "no violation detected",
            "1,000",
        ],
    ]
    assert section.splitlines()[2] == (
        "**Claim refuted for 1 of 2 adversaries of one training run. A claim that is "
        "refuted for one does not hold.**"
    )
    assert "epsilon &gt;= 0.042 at" in cells(section_of(final))["Lower bound"]
    for result in (every_step, final):  # all that is said of one alone, a level down
        alone = section_of(result).partition("\n\n")[2].replace("### How", "#### How")
        assert alone.strip() in section


def test_parts_of_several_observers_are_one_level_down():
    section = model_card_section(judged(), judged(60), level=4)
    tags = [each.tag for each in PARSER.parse(section) if each.type == "heading_open"]
    assert tags == ["h4", "h5", "h6", "h5", "h6"]
    with pytest.raises(InvalidInputError, match="at most 4, got level=5"):
        model_card_section(judged(), judged(60), level=5)


@pytest.mark.parametrize(
    ("correct", "sees", "said"),
    [
        (60, ThreatModel.FINAL_MODEL, True),
        (75, ThreatModel.FINAL_MODEL, False),  # refuted, so not far below
        (60, ThreatModel.ALL_ITERATES, False),
    ],
)
def test_that_a_final_model_shows_little_is_said_where_it_did(correct, sees, said):
    other = judged(60, sees=ThreatModel.ALL_ITERATES)
    section = model_card_section(other, judged(correct, sees=sees))
    assert ("far below the claim is normal" in section) == said


def test_no_observer_proves_a_claim_and_errors_of_all_add_up():
    section = model_card_section(judged(60), judged(61), judged(62))
    assert "refuted for none of them, which does not prove it." in section
    assert "The probability that a row is wrong is at most 0.05" in section
    assert "any of them is, at most 0.15." in section


def test_of_a_void_audit_no_number_stands_in_the_table():
    broken = invalid("custom", text="canaries did not arrive")
    spent = judged(75, sanity_checks=(broken,))
    assert spent.verdict is Verdict.INVALID_RUN
    section = model_card_section(judged(60), spent)
    assert first_table(section)[2][2:5] == ["nothing", "none", "invalid run"]
    assert "any of them is, at most 0.05." in section
    assert "Claim refuted" not in section


def test_a_result_given_twice_is_refused():
    result = judged()
    with pytest.raises(InvalidInputError, match=r"results\[1\] was given before"):
        model_card_section(result, result)
