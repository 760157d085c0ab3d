"""Pictures of plans, gaps and audits: complete, to scale, legible, repeatable, safe.

What stands where is held against the picture's own ticks, read as a reader would: the
names on an axis and their places give the scale, and every mark must obey it.
"""

import math
import re
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from dpaudit import (
    AdaptiveRounds,
    ApproxDP,
    Design,
    OneRun,
    Ranking,
    audit_scores,
)
from dpaudit.cli import app
from dpaudit.dpsgd.planning.candidates import Candidate, Purpose
from dpaudit.dpsgd.planning.expected_one_run import Expected
from dpaudit.dpsgd.planning.plan import Plan
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exposure import AllOrNothing
from dpaudit.mechanisms.local import LocalGaussian, LocalLaplace
from dpaudit.mechanisms.parity import Xor
from dpaudit.reporting.figure import Figure
from dpaudit.reporting.plan_figure import plan_figure
from dpaudit.reporting.report.bound_by_guesses import by_k_figure
from dpaudit.reporting.report.scores import histogram_figure, roc_figure
from dpaudit.reporting.report.subject import Subject
from dpaudit.reporting.waterfall import gaps_figure
from dpaudit.theory.gap_levels import Estimate, GapLevel, Gaps
from dpaudit.theory.gaps import gaps

SVG = "{http://www.w3.org/2000/svg}"
ROUNDS = AdaptiveRounds(round_weights=(1.0,), max_jump=0.5)
PLAN = Plan(
    training=TrainingSetup(steps=100, rate=0.1, noise=2.42),
    claim=ApproxDP(epsilon=2.0, delta=1e-5),
    purpose=Purpose.BOUND,
    available=1000,
    coordinates=1000,
    alpha=0.05,
    per_coordinate=6,
    rules=OneRun(guesses=100),
    expected=Expected(mean=0.7, spread=0.1),
    true_epsilon=1.8,
    ceiling=1.4,
    all_right=7.0,
    fault=3.0,
    candidates=tuple(
        Candidate(
            per_coordinate=s,
            coordinates=1000,
            rules=rules,
            bound=bound - s / 100,
            fault=fault + s / 10,
        )
        for s in (1, 2, 3, 4, 6, 8, 16, 32)
        for rules, bound, fault in (
            (OneRun(guesses=9), 0.7, 2.0),
            (ROUNDS, 0.8, 1.5),
        )
    ),
)
PLANS = {
    "all": PLAN,
    "no delta": replace(PLAN, ceiling=math.inf, true_epsilon=math.inf),
    "no accountant": replace(PLAN, ceiling=None, true_epsilon=None),
    "large": replace(
        PLAN,
        coordinates=1_000_000,
        training=TrainingSetup(steps=1_000_000, rate=0.000123, noise=123.456),
        true_epsilon=123.456,
    ),
    "one size": replace(PLAN, candidates=PLAN.candidates[:1], per_coordinate=1),
    "faults": replace(PLAN, purpose=Purpose.FAULTS),
    "nothing caught": replace(
        PLAN,
        purpose=Purpose.FAULTS,
        fault=None,
        candidates=tuple(replace(each, fault=None) for each in PLAN.candidates),
    ),
}


def level(name, epsilon, low, high, meaning="what is left of it after this step"):
    return GapLevel(name=name, epsilon=epsilon, low=low, high=high, meaning=meaning)


def measured():
    """All oddities: infinities, intervals, a rise, large numbers, long words."""
    long = "the level at delta = 0.0002, the most that a valid test can ever certify"
    return Gaps(
        levels=(
            level("claim", 123.456, 123.456, 123.456),
            level("confidence", math.inf, math.inf, math.inf, meaning=long),
            level("interference", 99.0, 99.0, math.inf),
            level("outputs", 50.0, 48.123, 52.456, meaning=long),
            level("elements", 60.0, 55.0, 65.0),
            level("guessing", 0.0, 0.0, 0.0),
            level("statistics", 0.001, 0.0, 0.002),
        ),
        spread=12.345,
        remainder=100.0,
        delta=1e-5,
        alpha=0.05,
        elements=1_000_000,
        guesses=100_000,
    )


GAPS = {
    "xor": lambda: gaps(Xor(elements=100), elements=100),
    "laplace": lambda: gaps(LocalLaplace(epsilon=1.0), elements=100),
    "gaussian": lambda: gaps(
        LocalGaussian(sigma=1.0), elements=1000, guesses=30, delta=1e-5, observed=1.9
    ),
    "all or nothing": lambda: gaps(
        AllOrNothing(elements=9, probability=0.3), elements=9
    ),
    "all oddities": measured,
}


def audited():
    """Return an audit of scores: ranked ones, with what explains it."""
    bits = np.random.default_rng(0).integers(0, 2, 300)
    scores = bits + np.random.default_rng(1).normal(size=300)
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    design = Design(canaries=300, rules=Ranking(guesses=300), claim=claim)
    return audit_scores(np.arange(300), bits, scores, design=design)


AUDITS = {
    "scores": lambda: histogram_figure(Subject.of(audited(), None)),
    "roc": lambda: roc_figure(Subject.of(audited(), None)),
    "by number of guesses": lambda: by_k_figure(Subject.of(audited(), None)),
}


def figure_of(value, **options):
    if isinstance(value, Figure):
        return value
    draw = plan_figure if isinstance(value, Plan) else gaps_figure
    return draw(value, **options)


def drawn(folder, value, **options):
    path = Path(folder, "drawn.svg")
    figure_of(value, **options).write(path)
    return ElementTree.fromstring(path.read_bytes())


def words(root):
    return [label_of(each) for each in root.iter(f"{SVG}text")]


def label_of(text):
    return text.text.replace("\u00a0", " ")


def of_look(root, tag, look):
    found = root.iter(SVG + tag)
    return [each for each in found if look in each.get("class", "").split()]


def points(element):
    pairs = element.get("points").split()
    return [tuple(map(float, pair.split(","))) for pair in pairs]


def middle(polygon):
    xs, ys = zip(*points(polygon), strict=True)
    return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


def centre(mark):
    if mark.tag == f"{SVG}circle":
        return float(mark.get("cx")), float(mark.get("cy"))
    left, top, wide, high = (float(mark.get(k)) for k in ("x", "y", "width", "height"))
    return left + wide / 2, top + high / 2


def numbered(root, *, anchor):
    """Return the ticks of an axis: what is a number and set as its names are."""
    return {
        float(each.text): (float(each.get("x")), float(each.get("y")))
        for each in root.iter(f"{SVG}text")
        if each.get("text-anchor") == anchor
        and each.get("class") is None
        and re.fullmatch(r"[\d.]+", each.text)
    }


def line_through(one, other):
    """Return the straight line through two pairs."""
    (a, at), (b, to) = one, other
    return lambda value: at + (value - a) / (b - a) * (to - at)


def near(value):
    return pytest.approx(value, abs=0.02)  # of a pixel; places have two decimals


# What both must do.

EVERY = {f"plan, {name}": plan for name, plan in PLANS.items()} | {
    f"gaps, {name}": make for name, make in GAPS.items()
}
EVERY |= {f"audit, {name}": make for name, make in AUDITS.items()}


def made(case):
    return EVERY[case] if isinstance(EVERY[case], Plan) else EVERY[case]()


def box(text, sizes):
    """Return about where a text stands, in a wide font."""
    look = text.get("class")
    size, wide = sizes.get(look, 13.5), 0.69 if look in BOLD else 0.6
    length = wide * size * len(text.text)
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor")]
    x, y = float(text.get("x")), float(text.get("y"))
    if text.get("transform"):
        return x - 0.75 * size, y - length / 2, x + 0.25 * size, y + length / 2
    left = x - before * length
    return left, y - 0.75 * size, left + length, y + 0.25 * size


BOLD = ("heading", "name", "number")


@pytest.mark.parametrize("case", EVERY)
def test_no_text_overlaps_another_or_leaves_the_picture(case, tmp_path):
    root = drawn(tmp_path, made(case))
    style = root.find(f"{SVG}style").text
    sizes = {
        look: float(size)
        for look, size in re.findall(r"\.([\w-]+) \{ font-size: ([\d.]+)px", style)
    }
    assert sizes == {"heading": 18, "small": 11, "caption": 12}
    shown = [(each.text, box(each, sizes)) for each in root.iter(f"{SVG}text")]
    assert len(shown) > 10
    for (one, a), (two, b) in combinations(shown, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (one, two)
    first, above, wide, high = map(float, root.get("viewBox").split())
    for one, (left, top, right, bottom) in shown:
        assert left >= first, one
        assert top >= above, one
        assert right <= first + wide, one
        assert bottom <= above + high, one


@pytest.mark.parametrize("case", ["plan, all", "gaps, all oddities"])
def test_the_same_values_give_the_same_bytes(case, tmp_path):
    drawn(tmp_path, made(case))
    one = (tmp_path / "drawn.svg").read_bytes()
    drawn(tmp_path, made(case))
    assert (tmp_path / "drawn.svg").read_bytes() == one
    assert one.startswith(b"<?xml")
    assert [each.name for each in tmp_path.iterdir()] == ["drawn.svg"]


@pytest.mark.parametrize("case", EVERY)
def test_a_picture_stands_alone_and_is_read_out(case, tmp_path):
    root = drawn(tmp_path, made(case))
    text = (tmp_path / "drawn.svg").read_text("utf-8")
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    ids = {each.get("id"): each for each in root if each.get("id")}
    assert [ids[each].tag for each in root.get("aria-labelledby").split()] == [
        f"{SVG}title",
        f"{SVG}desc",
    ]
    assert len(root.find(f"{SVG}title").text) > 20
    assert len(root.find(f"{SVG}desc").text) > 100
    assert (
        re.findall(r"href|url\(|@import|<script|http(?!://www.w3.org/2000)", text) == []
    )
    looks = {
        each
        for element in root.iter()
        for each in element.get("class", "").split()
        if each != "cut"  # which is no look, but where marks end
    }
    style = root.find(f"{SVG}style").text
    assert [each for each in looks if f".{each} " not in style.replace(",", " ")] == []


@pytest.mark.parametrize("case", EVERY)
def test_letters_stand_for_words(case, tmp_path):
    said = " ".join(words(drawn(tmp_path, made(case))))
    assert re.findall("epsilon|delta|alpha|sigma", said) == []
    assert "ε" in said or "δ" in said or case in ("audit, scores", "audit, roc")


@pytest.mark.parametrize("suffix", ["png", "gif", "html"])
@pytest.mark.parametrize("case", ["plan, all", "gaps, all oddities"])
def test_other_formats_are_refused_with_advice(case, suffix, tmp_path):
    figure = figure_of(made(case))
    with pytest.raises(
        InvalidInputError, match=r"must end in \.svg or \.pdf, got path=.*conv"
    ):
        figure.write(tmp_path / f"a.{suffix}")
    assert list(tmp_path.iterdir()) == []
    figure.write(str(tmp_path / "a.SVG"))
    assert (tmp_path / "a.SVG").exists()


def test_no_key_is_replaced_by_a_picture(tmp_path):
    key = tmp_path / "key.svg"
    key.write_text("00" * 32)
    with pytest.raises(InvalidInputError, match="holds a key"):
        gaps_figure(measured()).write(key)
    assert key.read_text() == "00" * 32


# The waterfall.


@pytest.mark.parametrize("case", GAPS)
def test_every_rung_and_its_numbers_are_written(case, tmp_path):
    found = GAPS[case]()
    said = words(drawn(tmp_path, found))
    for before, each in zip((None, *found.levels), found.levels, strict=False):
        assert each.name in said
        number = "\u221e" if each.epsilon == math.inf else f"{each.epsilon:.3f}"
        assert number in said
        lost = 0.0 if before is None else before.epsilon - each.epsilon
        if math.isfinite(lost) and abs(lost) > 0.001:
            assert f"{lost:.3f}".replace("-", "\u2212") in said
    assert ("observed" in said) is (found.remainder is not None)
    assert ("\u221e" in said) is any(r.high == math.inf for r in found.levels)


def test_all_else_of_the_gaps_is_written(tmp_path):
    said = words(drawn(tmp_path, measured(), title="what was audited"))
    caption = (
        "1,000,000 canaries, 100,000 guesses, δ = 10⁻⁵, \N{GREEK SMALL LETTER ALPHA} = "
        "0.05; the bound varies by 12.345 from run to run (standard deviation)"
    )
    for each in (
        "Where the ε of a claim is lost: what was audited",
        "[48.123, 52.456]",
        "[99.000, \u221e]",
        "[0.000, 0.002]",
        "\u2212\u221e",  # what confidence takes, as it adds without end
        "all but",
        "\u221210.000",
        "100.001",  # observed
        *("takes", "leaves", "left", "taken", "added", "known within", "ε"),
        caption,
    ):
        assert each in said, each
    meaning = "the level at δ = 0.0002, the most that a valid test can ever certify"
    assert meaning in " ".join(said)


def of_gaps(root, found):
    """Return where a level stands, by the names on the axis, and the rows' heights."""
    ticks = {value: x for value, (x, _) in numbered(root, anchor="middle").items()}
    assert len(ticks) >= 4
    at = line_through((0.0, ticks[0.0]), (max(ticks), ticks[max(ticks)]))
    assert list(ticks.values()) == [near(at(each)) for each in ticks]
    infinity = [
        float(each.get("x"))
        for each in root.iter(f"{SVG}text")
        if (each.text, each.get("text-anchor")) == ("\u221e", "middle")
    ]
    levels = [each.epsilon for each in found.levels]
    finite = [each for each in levels if each < math.inf]
    assert all(each > at(max(finite)) + 50 for each in infinity)
    numbers = of_look(root, "text", "number")
    assert [each.text for each in numbers] == [
        f"{each:.3f}" if each < math.inf else "\u221e" for each in levels
    ]
    rows = [float(each.get("y")) - 5 for each in numbers]
    return lambda value: infinity[0] if value == math.inf else at(value), rows


VISIBLE = 0.05  # of a pixel


@pytest.mark.parametrize("case", GAPS)
def test_bars_are_as_long_as_what_is_left_taken_or_added(case, tmp_path):
    found = GAPS[case]()
    root = drawn(tmp_path, found)
    at, rows = of_gaps(root, found)
    bars = [
        (centre(bar)[1], look, float(bar.get("x")), float(bar.get("width")))
        for look in ("left", "taken", "added")
        for bar in of_look(root, "rect", look)
        if centre(bar)[1] > min(rows) - 10  # the legend is above
        and float(bar.get("width")) > VISIBLE
    ]
    expected = []
    levels = [each.epsilon for each in found.levels]
    for row, before, level in zip(rows, (levels[0], *levels), levels, strict=False):
        low, high = at(min(before, level)), at(max(before, level))
        change = "taken" if level < before else "added"
        for look, start, end in (("left", at(0.0), low), (change, low, high)):
            if end - start > VISIBLE:
                expected.append((row, look, start, end - start))
    assert sorted(bars) == [
        (near(row), look, near(x), near(wide))
        for row, look, x, wide in sorted(expected)
    ]


@pytest.mark.parametrize("case", GAPS)
def test_intervals_and_the_bound_observed_stand_where_their_values_say(case, tmp_path):
    found = GAPS[case]()
    root = drawn(tmp_path, found)
    at, rows = of_gaps(root, found)
    level = [
        tuple(float(line.get(key)) for key in ("y1", "x1", "x2"))
        for line in of_look(root, "line", "whisker")
        if line.get("y1") == line.get("y2")
    ]
    for row, each in zip(rows, found.levels, strict=True):
        interval = (near(row), near(at(each.low)), near(at(each.high)))
        if at(each.high) - at(each.low) > VISIBLE:
            assert interval in level
    solid = [p for p in of_look(root, "polygon", "ink") if len(points(p)) == 4]
    if found.remainder is None:
        assert solid == []
    else:
        bound = found.levels[-1].epsilon + found.remainder
        below = rows[-1] + (rows[-1] - rows[-2])
        assert [middle(each) for each in solid] == [(near(at(bound)), near(below))]


@pytest.mark.parametrize("case", GAPS)
def test_what_is_infinite_is_broken_and_ends_in_an_arrow(case, tmp_path):
    found = GAPS[case]()
    root = drawn(tmp_path, found)
    levels = [each.epsilon for each in found.levels]
    touched = [
        math.inf in pair for pair in zip((levels[0], *levels), levels, strict=False)
    ]
    assert len(of_look(root, "line", "break")) == 2 * sum(touched)
    heads = [p for p in of_look(root, "polygon", "ink") if len(points(p)) == 3]
    unbounded = [
        infinite or each.high == math.inf
        for infinite, each in zip(touched, found.levels, strict=True)
    ]
    assert len({middle(each)[1] for each in heads}) == sum(unbounded)


def test_hostile_text_is_text(tmp_path):
    hostile = '<script>alert("&")</script>\x00\x1b[31m\ud800 ]]> &lt;'
    bad = replace(measured().levels[1], meaning=hostile)
    found = replace(measured(), levels=(measured().levels[0], bad))
    root = drawn(tmp_path, found, title=hostile)
    tags = {each.tag.removeprefix(SVG) for each in root.iter()}
    assert tags <= {
        *("svg", "title", "desc", "style", "rect", "text", "line", "polygon"),
    }
    said = words(root)
    shown = '<script>alert("&")</script>\\x00\\x1b[31m\\ud800 ]]> &lt;'
    assert shown in said
    assert shown in " ".join(said).replace(shown, "", 1)
    assert shown in root.find(f"{SVG}title").text


# The picture of a plan.


def of_plan(root):
    """Return where a size and a level stand, by the names on the axes."""
    across = {size: x for size, (x, _) in numbered(root, anchor="middle").items()}
    up = {level: y - 4 for level, (_, y) in numbered(root, anchor="end").items()}
    grid = [float(each.get("y1")) for each in of_look(root, "line", "grid")]
    assert list(up.values()) == [near(each) for each in grid]
    least, most = min(up), max(up)
    y = line_through((least, up[least]), (most, up[most]))
    assert list(up.values()) == [near(y(each)) for each in up]
    ends = [(math.log2(s), across[s]) for s in (min(across), max(across))]
    x = line_through(*ends)
    return across, lambda size: x(math.log2(size)), y


@pytest.mark.parametrize("case", PLANS)
def test_what_was_tried_and_what_is_chosen_stand_where_their_values_say(case, tmp_path):
    plan = PLANS[case]
    root = drawn(tmp_path, plan)
    across, x, y = of_plan(root)
    tried = {plan.per_coordinate, *(each.per_coordinate for each in plan.candidates)}
    assert set(across) == (tried if len(tried) > 1 else {*tried, 2 * min(tried)})
    assert list(across.values()) == [near(x(each)) for each in across]
    faults = plan.purpose is Purpose.FAULTS
    for kind, look, shape in (
        (AdaptiveRounds, "rounds", "circle"),
        (OneRun, "once", "rect"),
    ):
        levels = [
            (each.per_coordinate, each.fault if faults else each.bound)
            for each in plan.candidates
            if isinstance(each.rules, kind)
        ]
        wanted = [(near(x(s)), near(y(at))) for s, at in levels if at is not None]
        lines = of_look(root, "polyline", look)
        marks = of_look(root, shape, f"{look}-mark")
        assert len(lines) == (2 if wanted else 0)  # it, and its sample in the legend
        if wanted:
            assert points(lines[0]) == wanted
            assert [centre(each) for each in marks[:-1]] == wanted
    chosen = plan.fault if faults else plan.expected.mean
    diamonds = of_look(root, "polygon", "chosen")
    if chosen is None:
        assert diamonds == []
        return
    assert middle(diamonds[0]) == (near(x(plan.per_coordinate)), near(y(chosen)))
    upright = [
        (float(line.get("x1")), *sorted(float(line.get(k)) for k in ("y1", "y2")))
        for line in of_look(root, "line", "whisker")
        if line.get("x1") == line.get("x2")
    ]
    spread = plan.expected.spread
    top, bottom = y(chosen + spread), y(chosen - spread)
    whisker = (near(x(plan.per_coordinate)), near(top), near(bottom))
    assert (whisker in upright) is not faults


@pytest.mark.parametrize("case", PLANS)
def test_limits_are_lines_with_their_values_where_they_are_known(case, tmp_path):
    plan = PLANS[case]
    root = drawn(tmp_path, plan)
    _, _, y = of_plan(root)
    said = words(root)
    limits = (("no audit reliably shows more than", plan.ceiling, "ceiling"),)
    limits += (("true ε", plan.true_epsilon, "true-epsilon"),)
    for name, limit, look in limits:
        known = limit is not None and math.isfinite(limit)
        known = known and plan.purpose is Purpose.BOUND
        lines = of_look(root, "polyline", look)
        assert any(each.startswith(f"{name} ") for each in said) is known
        assert len(lines) == known
        if known:
            assert f"{name} {limit:.3f}" in said
            (label,) = (
                each for each in root.iter(f"{SVG}text") if name in label_of(each)
            )
            assert float(label.get("y")) == near(y(limit) - 6)  # right above it
            assert [at for _, at in points(lines[0])] == [near(y(limit))] * 2


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        (
            "all",
            [
                *("What to expect of an audit of 1,000 coordinates", "in rounds"),
                *("at once (exact)", "canaries per coordinate"),
                "mean lower bound on ε",
                "this plan, give or take its spread",
                "100 steps, sampling rate 0.1, noise 2.42; δ = 10⁻⁵, "
                "\N{GREEK SMALL LETTER ALPHA} = 0.05, tier A.",
                "The plan: 6 per coordinate, method exact, mean bound 0.700, spread "
                "0.100; detects noise / 3.00.",
            ],
        ),
        ("faults", ["detectable factor on the noise", "this plan"]),
        ("nothing caught", ["this plan detects nothing"]),
    ],
)
def test_all_else_of_a_plan_is_written(case, texts, tmp_path):
    said = " ".join(words(drawn(tmp_path, PLANS[case])))
    for each in texts:
        assert each in said


def test_the_levels_of_a_plan_are_read_out(tmp_path):
    heard = drawn(tmp_path, PLAN).find(f"{SVG}desc").text
    assert "in rounds, 1: 0.790, 2: 0.780, 3: 0.770" in heard
    assert "at once (exact), 1: 0.690, 2: 0.680" in heard
    assert "Limit: no audit reliably shows more than 1.400." in heard


@pytest.mark.parametrize("case", PLANS)
def test_the_legend_of_a_plan_leaves_the_axes_their_width(case, tmp_path):
    root = drawn(tmp_path, PLANS[case])
    _, _, wide, _ = map(float, root.get("viewBox").split())
    (axis,) = (
        each
        for each in of_look(root, "line", "axis")
        if each.get("y1") == each.get("y2")
    )
    assert float(axis.get("x2")) - float(axis.get("x1")) > 2 / 3 * wide
    entries = [e for e in root.iter(f"{SVG}text") if e.get("class") == "ink"]
    assert entries
    assert all(float(each.get("y")) > float(axis.get("y1")) for each in entries)


# The commands.


@pytest.fixture
def core_alone(monkeypatch):
    """Only the core is installed, and its accountant is asked nothing."""
    for name in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)
    accounting = ModuleType("dpaudit.accounting")
    accounting.accountant_curve = lambda history: None
    monkeypatch.setitem(sys.modules, "dpaudit.accounting", accounting)


COMMANDS = {
    "gaps": ["gaps", "xor", "--n=9"],
    "plan": [
        *("plan", "--epsilon=2", "--delta=1e-5", "--steps=1", "--rate=1"),
        *("--noise=2", "--coordinates=50", "--per-coordinate=1"),
    ],
}


@pytest.mark.usefixtures("core_alone")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_draws_without_extras_and_says_what_it_says_without(
    command, tmp_path
):
    path = tmp_path / "drawn.svg"
    done = CliRunner().invoke(app, [*COMMANDS[command], f"--picture={path}"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == CliRunner().invoke(app, COMMANDS[command]).stdout
    assert ElementTree.fromstring(path.read_bytes()).tag == f"{SVG}svg"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("picture", "advice"),
    [
        ("x.gif", "must end in .svg, got"),
        ("x.png", "must end in .svg, got"),
        ("taken/x.svg", "cannot be written ("),
    ],
)
def test_a_picture_that_cannot_be_written_exits_with_2(
    command, picture, advice, tmp_path
):
    (tmp_path / "taken").write_text("a file")
    picture = f"--picture={tmp_path / picture}"
    done = CliRunner().invoke(app, [*COMMANDS[command], picture])
    assert done.exit_code == 2
    assert advice in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("purpose", [Purpose.BOUND, Purpose.FAULTS])
def test_the_limit_of_a_plan_is_a_bar_over_it(purpose):
    plan = replace(PLAN, purpose=purpose)
    drawn = []
    for most in (None, Estimate.exact(0.93)):
        drawn.append(plan_figure(plan, most=most).document())
    without, with_it = drawn
    bound = purpose is Purpose.BOUND
    assert "any valid audit" not in without
    assert ("any valid audit" in with_it) is bound
    assert with_it.count("<line") - without.count("<line") == bound
