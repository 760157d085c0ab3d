"""Charts of curves: the CSV is what the picture shows, invalid rules are marked."""

import csv
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from dpaudit.errors import InvalidInputError
from dpaudit_lab import pictures
from dpaudit_lab.pictures.chart import (
    Chart,
    Curve,
    Look,
    Mark,
    Point,
    csv_text,
    mean_point,
    true_and_shown,
)
from dpaudit_lab.pictures.curves import chart_figure, draw_chart, panels_figure
from dpaudit_lab.pictures.style import STYLE

CURVES = (
    Curve(name="measured", colour=0),
    Curve(
        name="a rule with a long name, as many guesses as made",
        colour=1,
        look=Look.UNGUARANTEED,
    ),
    Curve(name="beside", colour=0, look=Look.BESIDE),
    Curve(name="computed", colour=6, look=Look.COMPUTED),
    Curve(name="epsilon itself", colour=6, look=Look.LIMIT),
    *(Curve(name=f"more of them, number {i}", colour=i) for i in range(2, 6)),
)
CHART = Chart(
    title="A title as long as titles of charts ever are: two dozen words or fewer",
    caption="1000 coordinates, 100 steps, rate 0.1, \nalpha = 0.05, delta = 1e-5",
    x_label="elements per coordinate",
    y_label="lower bound on epsilon",
    curves=CURVES,
    points=tuple(
        Point(curve=c.name, x=x, mean=0.1 * i + 1 / x, error=0.01 * (1 + x), repeats=7)
        for i, c in enumerate(CURVES)
        for x in (0.2, 1.0, 8.0, 32.0)
    ),
    marks=(Mark(x=1.0, value=0.49, error=0.01), Mark(x=8.0, value=0.62, error=0.01)),
    limits=true_and_shown(truth=7.5, ceiling=6.7),
    ticks=(0.2, 1.0, 8.0, 32.0),
)
IN_LEGEND = [curve for curve in CURVES if curve.look is not Look.LIMIT]


def figure_of(chart, **options):
    with mpl.rc_context(STYLE):
        figure = chart_figure(chart, **options)
        FigureCanvasAgg(figure).draw()
    return figure


@pytest.fixture
def drawn():
    return figure_of(CHART)


def lines(figure):
    """The curves' lines by what the legend says, put on one line."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    said = [" ".join(label.split()) for label in labels]
    return dict(zip(said, handles, strict=True))


def test_the_csv_holds_what_the_picture_shows(drawn):
    rows = list(csv.DictReader(StringIO(csv_text(CHART))))
    found = lines(drawn)
    for curve in CURVES:
        mine = [row for row in rows if row["curve"] == curve.name]
        written = [(float(row["x"]), float(row["mean"])) for row in mine]
        line = found.get(curve.legend) or drawn.axes[0].lines[CURVES.index(curve)]
        shown = np.column_stack(line.get_data())
        assert shown.tolist() == [list(pair) for pair in written]
        assert {row["general guarantee"] for row in mine} == {
            "no" if curve.look is Look.UNGUARANTEED else "yes"
        }
        assert [float(row["standard error"]) for row in mine] == [
            0.01 * (1 + x) for x in (0.2, 1.0, 8.0, 32.0)
        ]
        assert {row["repeats"] for row in mine} == {"7"}


def test_bands_are_one_standard_error_up_and_down(drawn):
    (band, *_) = drawn.axes[0].collections
    corners = {tuple(v) for v in band.get_paths()[0].vertices.round(9).tolist()}
    for point in CHART.of("measured"):
        assert (point.x, round(point.mean - point.error, 9)) in corners
        assert (point.x, round(point.mean + point.error, 9)) in corners


def test_what_has_no_general_guarantee_is_dashed_and_the_legend_says_so(drawn):
    for curve in IN_LEGEND:
        line = lines(drawn)[curve.legend]
        without = curve.look is Look.UNGUARANTEED
        assert (line.get_linestyle() == "--") is without
        assert curve.legend.endswith("(no general guarantee)") is without


LIMITED = replace(
    CHART,
    curves=(
        Curve(name="measured", colour=0, published=True),
        Curve(name="no median above", colour=6, look=Look.MEDIAN_LIMIT),
    ),
    points=(
        mean_point("measured", 1.0, [0.1, 0.2, 0.9]),
        mean_point("measured", 8.0, [0.2, 0.3, 1.0]),
        Point(curve="no median above", x=1.0, mean=0.3),
        Point(curve="no median above", x=8.0, mean=0.35),
    ),
)


def test_where_there_is_a_limit_on_medians_they_are_drawn_beside_the_means():
    drawn = figure_of(LIMITED)
    ys = [list(line.get_ydata()) for line in drawn.axes[0].lines]
    assert [0.2, 0.3] in ys  # medians, whereas means are 0.4 and 0.5
    assert any(y == pytest.approx([0.4, 0.5]) for y in ys)
    assert "medians of the same runs" in lines(drawn)
    check_words(drawn)
    rows = list(csv.DictReader(StringIO(csv_text(LIMITED))))
    assert [row["median"] for row in rows] == ["0.2", "0.3", "", ""]
    assert "median" not in csv_text(CHART).splitlines()[0]
    assert "medians of the same runs" not in lines(figure_of(CHART))


def test_a_limit_on_medians_beside_means_alone_is_refused():
    alone = [replace(point, median=None) for point in LIMITED.points]
    with pytest.raises(InvalidInputError, match=r"got median=None at x=1\.0 of 'measu"):
        replace(LIMITED, points=tuple(alone))


def test_a_plain_chart_has_the_published_curves_alone():
    plain = LIMITED.plain
    drawn = figure_of(plain)
    assert list(lines(drawn)) == ["measured"]
    (line,) = drawn.axes[0].lines
    assert list(line.get_ydata()) == pytest.approx([0.4, 0.5])
    words = {text.get_text() for text in drawn.findobj(Text)}
    assert words >= {"elements per coordinate", "lower bound on ε"}
    for text in (CHART.title, CHART.caption, "printed", "true", "no median"):
        assert not any(text in word for word in words if word)
    check_words(drawn)


def test_printed_numbers_are_written_beside_their_marks(drawn):
    words = [text.get_text() for text in drawn.findobj(Text)]
    assert "printed 0.49 ± 0.01" in words
    assert "printed 0.62 ± 0.01" in words
    assert "printed in the paper" in lines(drawn)


@pytest.mark.parametrize("width", [5.5, 9.0, 12.0])
def test_no_text_overlaps_another_or_leaves_the_picture(width):
    # The title and the caption are made for the usual width; papers have their own.
    chart = CHART if width >= 9 else replace(CHART, title="", caption="")
    check_words(figure_of(chart, width=width))


def check_words(drawn):
    """No text overlaps another or leaves the picture."""
    renderer, beyond = FigureCanvasAgg(drawn).get_renderer(), set()  # not drawn
    for axes in drawn.axes:
        low, high = axes.get_ylim()
        ticks = axes.yaxis.get_major_ticks()
        beyond |= {t.label1 for t in ticks if not low <= t.get_loc() <= high}
    visible = [t for t in drawn.findobj(Text) if t.get_visible() and t not in beyond]
    shown = [t for t in visible if t.get_text().strip()]
    # Of the words alone, without the line that leads to a mark.
    boxes = [Text.get_window_extent(t, renderer) for t in shown]
    for (one, a), (two, b) in combinations(zip(shown, boxes, strict=True), 2):
        assert not a.overlaps(b), (one.get_text(), two.get_text())
    for one, box in zip(shown, boxes, strict=True):
        assert box.x0 >= 0, one.get_text()
        assert box.y0 >= 0, one.get_text()
        assert box.x1 <= drawn.bbox.x1, one.get_text()
        assert box.y1 <= drawn.bbox.y1, one.get_text()


def test_panels_of_several_quantities_name_each_and_share_a_legend():
    bounds = replace(CHART, title="", caption="", marks=())
    seconds = replace(bounds, y_label="seconds", limits=(), y_ticks=(0.1, 1.0, 10.0))
    with mpl.rc_context(STYLE):
        drawn = panels_figure([bounds, seconds], 12.0, "A title", "delta = 1e-5")
        FigureCanvasAgg(drawn).draw()
    check_words(drawn)
    assert [axes.get_ylabel() for axes in drawn.axes] == [
        "lower bound on ε",
        "seconds",
    ]
    assert len(drawn.legends) == 1


def test_letters_stand_for_words(drawn):
    said = " ".join(text.get_text() for text in drawn.findobj(Text))
    assert re.findall("epsilon|delta|alpha|sigma|1e-", said) == []
    assert "lower bound on ε" in said
    assert "δ\u00a0=\u00a010⁻⁵" in said


def test_limits_are_thin_lines_named_at_their_right_ends(drawn):
    (axes,) = drawn.axes
    words = {text.get_text(): text for text in axes.texts}
    thick = {
        line.get_linewidth() for line in lines(drawn).values() if line in axes.lines
    }
    for text, level in (
        ("true ε 7.500", 7.5),
        ("no audit reliably shows more than 6.700", 6.7),
        ("ε itself", CHART.of("epsilon itself")[-1].mean),
    ):
        assert words[text].xy[1] == level
        (line,) = (one for one in axes.lines if one.get_ydata()[-1] == level)
        assert line.get_linewidth() < min(thick)
        assert text not in lines(drawn)


def test_title_legend_and_caption_leave_the_axes_their_width(drawn):
    (axes,) = drawn.axes
    (legend,) = drawn.legends
    frame = axes.get_window_extent()
    assert frame.width > 2 / 3 * drawn.bbox.width
    assert legend.get_window_extent().y1 < frame.y0
    said = {text.get_text(): text.get_window_extent() for text in drawn.texts}
    title, caption = (
        said[next(t for t in said if t[:4] == s)] for s in ("A ti", "1000")
    )
    assert title.y0 > frame.y1
    assert caption.y1 < legend.get_window_extent().y0


def test_for_a_paper_letters_keep_their_size_and_words_above_and_below_take_no_room():
    usual, narrow = figure_of(CHART), figure_of(CHART, width=5.5)
    bare = figure_of(replace(CHART, title="", caption=""), width=5.5)
    assert (usual.get_figwidth(), narrow.get_figwidth()) == (9.0, 5.5)
    sizes = [{t.get_fontsize() for t in f.findobj(Text)} for f in (usual, narrow)]
    assert sizes[0] == sizes[1]
    assert usual.axes[0].bbox.height == pytest.approx(narrow.axes[0].bbox.height)
    (head, foot), (bare_head, bare_foot) = map(room, (narrow, bare))
    assert bare_head < head - 0.3
    assert 0 <= bare_foot < foot - 0.3


def room(figure):
    """The inches above the axes, and those below the legend."""
    (axes,), (legend,) = figure.axes, figure.legends
    head = figure.bbox.y1 - axes.bbox.y1
    return head / figure.dpi, legend.get_window_extent().y0 / figure.dpi


@pytest.mark.parametrize("width", [2.9, float("nan"), float("inf"), -5.0])
def test_a_width_that_is_none_is_refused(width):
    with pytest.raises(InvalidInputError, match="width is in inches and must be"):
        chart_figure(CHART, width=width)


@pytest.mark.parametrize("of", ["ticks", "y_ticks"])
def test_logarithmic_axes_name_their_ticks(of):
    figure = figure_of(replace(CHART, **{of: (1e-4, 0.1, 1.0, 32_000.0)}))
    (axes,) = figure.axes
    axis = axes.xaxis if of == "ticks" else axes.yaxis
    assert axis.get_scale() == "log"
    names = [tick.get_text() for tick in axis.get_ticklabels()]
    assert names == ["10⁻⁴", "0.1", "1", "32,000"]


@pytest.mark.nightly
def test_a_pdf_embeds_its_letters_and_names_no_date(tmp_path):
    draw_chart(CHART, tmp_path / "a.pdf")
    written = (tmp_path / "a.pdf").read_bytes()
    assert written.startswith(b"%PDF")
    assert b"/FontFile2" in written  # TrueType, within
    assert b"/Type3" not in written
    assert b"CreationDate" not in written


@pytest.mark.parametrize(
    "suffix",
    ["svg", *(pytest.param(s, marks=pytest.mark.nightly) for s in ("png", "pdf"))],
)
def test_the_same_chart_gives_the_same_bytes(tmp_path, suffix):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    before = dict(mpl.rcParams)
    for path in paths:
        draw_chart(CHART, path)
    one, two = (path.read_bytes() for path in paths)
    assert one == two
    assert dict(mpl.rcParams) == before


def test_charts_are_on_the_face_and_matplotlib_waits_until_one_is_drawn():
    code = (
        "import sys; from dpaudit_lab.pictures import Chart, mean_point\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from dpaudit_lab.pictures import *\n"
        "assert 'matplotlib' in sys.modules, draw_chart"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert pictures.draw_chart is draw_chart
    assert pictures.Chart is Chart
    for name in pictures.__all__:
        assert getattr(pictures, name).__doc__


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"as \.svg, \.png or \.pdf, got path="):
        draw_chart(CHART, tmp_path / "a.gif")


def test_points_must_be_finite_and_belong_to_a_curve():
    with pytest.raises(InvalidInputError, match="must be finite, got mean=inf"):
        Point(curve="a", x=1, mean=float("inf"))
    with pytest.raises(InvalidInputError, match="got curve='b'"):
        Chart(
            title="",
            caption="",
            x_label="",
            y_label="",
            curves=(Curve(name="a", colour=0),),
            points=(Point(curve="b", x=1, mean=0.0),),
        )


def test_the_error_is_the_standard_error_of_the_mean():
    values = [1.0, 2.0, 4.0, 9.0]
    point = mean_point("a", 3, values)
    variance = sum((v - 4) ** 2 for v in values) / 3
    assert point.mean == 4
    assert point.error == pytest.approx((variance / 4) ** 0.5)
    with pytest.raises(InvalidInputError, match="two repeats or more, got 1"):
        mean_point("a", 3, [1.0])
