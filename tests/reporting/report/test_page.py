"""The page: whole, safe, self-contained, and readable by anyone."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from dpaudit import ApproxDP, PrivacyCurve, PureDP
from dpaudit.errors import InvalidInputError
from dpaudit.explanation import Advice, Explanation, Step, explain
from dpaudit.game.findings import noted, passed
from dpaudit.game.setting import Setting
from dpaudit.game.text.screen import Screen
from dpaudit.game.verdict import Verdict
from dpaudit.reporting.report import report, report_html

VOID = {"meta", "br", "img", "link", "input", "hr"}
ALONE = {"line", "rect", "circle", "polyline", "polygon", "path"}


class Page(HTMLParser):
    """What a browser would find: tags closed in order, attributes, words."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words, self.tables = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in ALONE
        self.tags.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        said = re.sub(r"\s+", " ", "".join(self.words).replace("\xa0", " "))
        return said.strip()

    def of(self, tag):
        return [attrs for name, attrs, _ in self.tags if name == tag]


def screen(*sentences):
    return Screen(
        verdict=Verdict.NO_VIOLATION_DETECTED,
        claim="Claimed ε ≤ 2",
        bound="Lower bound ε ≥ 0.95",
        setting="Adversary: sees the output.",
        sentences=sentences or ("This does not prove the claim.",),
    )


def explanation(**changed):
    step = Step(
        name="statistics",
        takes=1.0,
        leaves=1.0,
        low=0.9,
        high=1.1,
        sentence="It takes.",
        advice=Advice(text="use more canaries", expected=1.5, spread=0.25),
    )
    parts = {
        "outcome": Verdict.NO_VIOLATION_DETECTED,
        "reason": "",
        "screen": screen(),
        "numbers": "Epsilon is at least 0.95, where 2 is claimed.",
        "advice": (),
        "checks": (),
        "confidence_sentence": "That does not prove the claim.",
        "sanity_checks": (),
        "claimed": 2.0,
        "found": 0.95,
        "delta": 1e-5,
        "alpha": 0.05,
        "model": "only the guesses are known",
        "steps": (step,),
        "remainder": -0.05,
        "power": "90 % power to detect something.",
        "assumptions": ("fair coins",),
        "not_exercised": (),
        "remarks": (),
    }
    return Explanation(**{**parts, **changed})


@pytest.fixture(
    scope="session",
    params=[
        "honest",
        "refuted",
        "too_weak",
        "ranked",
        "bets",
        "rounds",
        "counts",
        "training",
        "classic",
    ],
)
def any_page(request):
    made = request.getfixturevalue(request.param)
    result, transcript = made if isinstance(made, tuple) else (made, None)
    return report_html(result, transcript=transcript, explanation=explanation())


def test_every_page_is_whole_and_has_one_heading_of_the_first_rank(any_page):
    page = Page(any_page)
    assert len(page.of("h1")) == 1
    assert page.of("html")[0]["lang"] == "en-GB"
    assert len(page.of("main")) == 1


def test_every_page_is_small(any_page):
    assert len(any_page.encode()) < 150_000


def test_a_page_asks_for_nothing_else(any_page):
    page = Page(any_page)
    loads = {"script", "link", "img", "iframe", "object", "embed", "image", "use"}
    assert not loads & {tag for tag, _, _ in page.tags}
    for tag, attrs, _ in page.tags:
        assert not {"src", "srcset", "style", "xlink:href", "background"} & set(attrs)
        assert "href" not in attrs or tag == "a"
        assert not any(name.startswith("on") for name in attrs)
    assert all(each["href"].startswith("https://arxiv.org/") for each in page.of("a"))
    assert "@import" not in any_page
    assert "url(" not in any_page
    policy = next(each["content"] for each in page.of("meta") if "http-equiv" in each)
    assert policy.startswith("default-src 'none'")


def test_every_picture_has_a_name_and_every_figure_its_numbers(any_page):
    page = Page(any_page)
    named = any_page.count('<svg role="img"')
    pictures = [each for each in page.of("svg") if each.get("role") == "img"]
    assert len(pictures) == named
    assert all(each["aria-label"].strip() for each in pictures)
    assert len(page.of("title")) == named + 1  # and that of the page itself
    figures = [name for name, _, _ in page.tags if name == "figure"]
    tables = [inside for name, _, inside in page.tags if name == "table"]
    assert sum("figure" in inside for inside in tables) == len(figures)
    for each in page.of("svg"):
        assert (
            each.get("role") == "img"
            or each.get("aria-hidden") == "true"
            or each.get("class") == "cut"
        )


def test_addresses_within_a_page_are_unique_and_lead_somewhere(any_page):
    page = Page(any_page)
    names = [attrs["id"] for _, attrs, _ in page.tags if "id" in attrs]
    assert len(names) == len(set(names))
    for _, attrs, _ in page.tags:
        if "aria-labelledby" in attrs:
            assert attrs["aria-labelledby"] in names


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("refuted", "Claim refuted"),
        ("honest", "No violation detected"),
        ("too_weak", "Inconclusive"),
    ],
)
def test_the_outcome_is_told_in_words(kind, said, request):
    result, _ = request.getfixturevalue(kind)
    text = Page(report_html(result)).text
    assert said in text
    assert "sees the output" in text
    said = {"refuted": "does not hold", "honest": "would refute"}
    assert said.get(kind, "had no power") in text


def test_what_cannot_be_shown_is_left_out_with_a_reason(honest, training):
    result, transcript = honest
    said = explanation()
    without = report_html(result, explanation=said)
    with_it = report_html(result, transcript=transcript, explanation=said)
    assert "no transcript was handed over" in without
    assert "no transcript was handed over" not in with_it
    assert 'id="by-k"' not in without
    assert 'id="by-k"' in with_it
    for name in ("curve", "scores", "roc", "by-k"):
        assert f'<figure id="{name}"' in report_html(training, explanation=said)


def test_a_hostile_design_stays_text(scored):
    attack = "</td></table><script>alert(1)</script><img src=x onerror=alert(1)>"
    result = scored(
        claim=PureDP(epsilon=1.0),
        canaries=50,
        setting=Setting(notes={attack: attack, "&amp;": "{{ 1 }}"}),
    )
    hostile = (attack, '"><svg onload=alert(1)>')
    page = report_html(result, explanation=explanation(not_exercised=hostile))
    read = Page(page)
    assert "<script" not in page
    assert "<img" not in page
    assert "<svg onload" not in page
    assert read.text.count("alert(1)") == 7
    assert "{{ 1 }}" in read.text
    assert "&amp;amp;" in page


def test_a_hostile_explanation_stays_text(honest):
    attack = "<script>alert(1)</script>"
    step = replace(
        explanation().steps[0],
        name=f'"{attack}',
        sentence=attack,
        advice=Advice(text=attack),
    )
    said = explanation(
        screen=screen(attack, attack),
        numbers=attack + attack,
        confidence_sentence=attack,
        sanity_checks=(passed("custom", text=attack),),
        power=attack * 2,
        steps=(step,),
        remarks=(noted("custom", text=attack),),
        model=attack,
    )
    page = report_html(honest[0], explanation=said)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 13  # the name also twice in its bar
    Page(page)


def test_the_waterfall_tells_every_number_of_an_explanation(honest):
    text = Page(report_html(honest[0], explanation=explanation())).text
    assert "loss −1.000" in text  # noqa: RUF001 (as it is read)
    assert "remaining 1.000" in text
    assert "Within 0.900 to 1.100 (95 %)" in text
    assert "−0.050" in text  # noqa: RUF001 (as it is read)
    assert "90 % power to detect something." in text
    assert "Use more canaries; expect a bound of 1.50 on average" in text


def test_infinite_and_huge_levels_are_shown_as_such(honest):
    step = replace(
        explanation().steps[0], takes=float("inf"), low=0.0, high=float("inf")
    )
    said = explanation(
        claimed=float("inf"), steps=(step,), found=123456.0, remainder=float("nan")
    )
    text = Page(report_html(honest[0], explanation=said)).text
    assert "−∞" in text  # noqa: RUF001 (as it is read)
    assert "1.23 × 10⁵" in text  # noqa: RUF001 (as it is read)
    assert not re.search(r"\b(nan|inf)\b", text)


@pytest.mark.parametrize(
    "claim",
    [
        PureDP(epsilon=0.0),
        PureDP(epsilon=500.0),
        ApproxDP(epsilon=1.0, delta=1e-300),
        ApproxDP(epsilon=0.1, delta=0.2),
    ],
)
@pytest.mark.parametrize(("canaries", "scale"), [(1, 1.0), (40, 1e-9), (40, 1e9)])
def test_extreme_claims_and_scores_still_give_a_page(claim, canaries, scale, scored):
    result = scored(claim=claim, canaries=canaries, scale=scale)
    page = Page(report_html(result, explanation=explanation()))
    assert not re.search(r"\b(nan|inf)\b", page.text)
    numbers = [
        float(value)
        for _, attrs, _ in page.tags
        for value in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", attrs.get("points", ""))
    ]
    assert np.isfinite(numbers).all()


def test_a_claim_without_an_epsilon_at_this_delta_still_gives_a_page(training):
    short = PrivacyCurve(epsilons=np.array([0.0, 1.0]), deltas=np.array([0.5, 0.1]))
    test = replace(training.training.accountant, claim=short)
    result = replace(training, training=replace(training.training, accountant=test))
    text = Page(report_html(result, explanation=explanation())).text
    assert "ε = ∞" in text


def test_the_same_result_gives_the_same_bytes(too_weak):
    result, transcript = too_weak
    said = explain(result)
    assert report_html(result) == report_html(result, explanation=said)
    assert report_html(result) != report_html(result, transcript=transcript)


def test_a_report_is_written_at_once_or_not_at_all(tmp_path, too_weak, counts):
    path = tmp_path / "audit.HTML"
    report(too_weak[0], path)
    first = path.read_text(encoding="utf-8")
    assert first == report_html(too_weak[0])
    with pytest.raises(InvalidInputError, match="under another design"):
        report(too_weak[0], path, transcript=counts[1])
    assert path.read_text(encoding="utf-8") == first
    assert [each.name for each in tmp_path.iterdir()] == ["audit.HTML"]


@pytest.mark.parametrize("name", ["audit.pdf", "audit", "audit.html.txt"])
def test_other_formats_are_refused_with_advice(tmp_path, name, honest):
    with pytest.raises(InvalidInputError, match=r"must end in \.html.*from a browser"):
        report(honest[0], tmp_path / name)
    assert not list(tmp_path.iterdir())


def luminance(colour):
    """As WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out_in_light_and_in_dark(scheme, honest):
    page = report_html(honest[0], explanation=explanation())
    css = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
    block = light if scheme == "light" else dark
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    grounds = [colours[name] for name in ("paper", "panel")]
    for ground in grounds:
        for name in ("ink", "soft", "link"):
            assert contrast(colours[name], ground) >= 4.5, name
        for name in ("found", "claim", "aside", "excluded"):
            assert contrast(colours[name], ground) >= 3, name
    for name in (
        "invalid-run",
        "claim-refuted",
        "inconclusive",
        "no-violation-detected",
    ):
        wash = colours[f"{name}-wash"]
        assert contrast(colours[name], wash) >= 4.5, name
        assert contrast(colours["soft"], wash) >= 4.5, name
