"""The section of a model card: honest, complete, and Markdown whatever it is told."""

from functools import cache
from math import inf

import numpy as np
import pytest
from markdown_it import MarkdownIt
from scipy import special, stats

from dpaudit import ApproxDP, Design, GaussianDP, Key, OneRun, Ranking, ThreatModel
from dpaudit.bounds import Counts, Ranked
from dpaudit.errors import InvalidInputError
from dpaudit.game import Commitment
from dpaudit.game.result import judge
from dpaudit.reporting.model_card import model_card_section
from dpaudit.training.any_loop import SumsAudit

PARSER = MarkdownIt("commonmark").enable("table")
section_of = cache(model_card_section)  # a second each
KEY = Key(bytes(range(32)))
# Of 75 of 100 right about 1000 canaries at (0.5, 1e-4), by the exact bound.
LAW = stats.binom(100, special.expit(0.5))
P_VALUE = LAW.sf(74) * (1 + 1000 * 1e-4 * LAW.cdf(74) / (75 * LAW.pmf(75)))


def judged(correct=75, *, epsilon=0.5, not_exercised=(), committed=True, guesses=100):
    design = Design(
        canaries=1000,
        rules=OneRun(guesses=guesses),
        claim=ApproxDP(epsilon=epsilon, delta=1e-4),
        threat_model=ThreatModel.FINAL_MODEL,
    )
    return judge(
        Counts(canaries=1000, guesses=guesses, correct=correct),
        design=design,
        commitment=Commitment.to(KEY, design) if committed else None,
        not_exercised=not_exercised,
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
    assert table["Verdict"] == "refuted"
    claimed = "epsilon = 0.5 at delta = 0.0001: one record more or less"
    assert table["Claimed"] == claimed
    assert table["Shown"] == (
        "epsilon &gt;= 0.695 at delta = 0.0001: wrong with chance at most 0.05, "
        "whatever the program does (method exact, tier A)"
    )
    assert table["Watching"] == "somebody who sees the final model only"
    p_value, _, rest = table["p-value"].partition(": ")
    assert rest.endswith("if the claim is true; 0.05 or less refutes it")
    shown = float(p_value.removeprefix("p = "))
    assert P_VALUE <= shown == pytest.approx(P_VALUE, rel=0.05)  # rounded up
    assert table["Right guesses"] == "75 of 100 (75.0%): with 1,000 canaries in all"
    assert "would have refuted" not in section
    verdict = "**Refuted. Epsilon is at least 0.695, where 0.5 is claimed.**"
    assert section.splitlines()[2].replace("\\", "") == verdict
    assert "Shown at delta = 0.0001 against somebody who sees the final" in section


def test_what_was_not_refuted_says_what_would_have_been():
    section = section_of(judged(correct=60))
    assert cells(section)["Verdict"] == (
        "no violation found, which does not prove the claim"
    )
    assert "would have refuted it with chance 0.9" in section.splitlines()[2]


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
    found = cells(model_card_section(ranked))["Shown"]
    assert "(method ranked, tier A)" in found
    counted = Design(
        canaries=200,
        rules=OneRun(guesses=50),
        claim=GaussianDP(mu=0.5),
        delta=0.0,
    )
    audit = SumsAudit(design=counted, key=KEY, dimension=200, sample_rate=1.0)
    rng = np.random.default_rng(0)
    for _ in range(10):
        audit.observe(audit.joining() + 0.3 * rng.normal(size=200))
    trained = audit.finish(claim=GaussianDP(mu=0.5))
    assert trained.claim_test.claim.epsilon_at(0.0) == inf
    table = cells(model_card_section(trained))
    assert table["Claimed"].startswith(
        "epsilon = inf at delta = 0: one record more or less; what the accountant "
        "proves"
    )
    assert "tier B" in table["If noise is Gaussian"]


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
