"""What is shown while a sweep runs."""

import io

import pytest
from rich.console import Console

from dpaudit.engines.progress import Progress
from dpaudit.reporting import live
from dpaudit.reporting.live import ROWS, TRIALS, Speed, Words, line, watched

SETTING = '{"n":100,"rule":"best"}'


def progress(done, failed=0):
    return Progress(
        done=done,
        failed=failed,
        total=1200,
        cells_done=1,
        cells=3,
        setting=SETTING,
        means={"bound": 0.51234, "refuted": 0.25},
    )


def test_a_line_tells_speed_time_left_and_means():
    now = [0.0]
    speed = Speed(clock=lambda: now[0])
    speed.per_second(progress(200))
    now[0] = 10.0
    assert line("drawing", progress(300, failed=2), speed) == (
        "drawing: 300 of 1,200 trials, 1 of 3 settings, 10.2 trials/s, "
        "1 min 28 s left, 2 failed; n = 100, rule = best; "
        "means so far: bound 0.5123, refuted 0.25"
    )


def test_rows_are_counted_in_their_own_words():
    now = [0.0]
    speed = Speed(clock=lambda: now[0])
    halfway = [
        Progress(done=done, failed=0, total=2_000_000_000, cells_done=0, cells=0)
        for done in (0, 1_000_000_000)
    ]
    assert line("reading", halfway[0], speed, ROWS) == (
        "reading: 0 of 2,000,000,000 rows"
    )
    now[0] = 100.0
    assert line("reading", halfway[1], speed, ROWS) == (
        "reading: 1,000,000,000 of 2,000,000,000 rows, 1e+07 rows/s, 1 min 40 s left"
    )


def test_words_name_what_is_counted_and_trials_are_the_default():
    said = Words(ones="audits", groups="kinds")
    assert line("x", progress(3), Speed(), said).startswith(
        "x: 3 of 1,200 audits, 1 of 3 kinds"
    )
    assert line("x", progress(3), Speed()) == line("x", progress(3), Speed(), TRIALS)


@pytest.mark.parametrize("terminal", [True, False])
def test_words_are_shown_on_a_terminal_and_elsewhere(monkeypatch, terminal):
    monkeypatch.setattr(live, "LINE_SECONDS", 0.0)
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=terminal)
    with watched("reading", console, words=ROWS) as show:
        show(progress(300))
    assert "reading: 300 of 1,200 rows" in out.getvalue()
    assert "settings" not in out.getvalue()


def test_what_was_stored_before_does_not_count_as_speed():
    speed = Speed(clock=iter([0.0, 0.0, 5.0, 5.0]).__next__)
    assert speed.per_second(progress(1000)) is None
    assert speed.per_second(progress(1050)) == 10.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.4, "59 s"), (61, "1 min 1 s"), (7320, "2 h 2 min")]
)
def test_durations_are_short(seconds, text):
    assert live._duration(seconds) == text


def test_plain_lines_come_at_intervals(monkeypatch):
    monkeypatch.setattr(live, "LINE_SECONDS", 0.0)
    out = io.StringIO()
    with watched("drawing", Console(file=out, width=60)) as show:
        show(progress(300))
        show(progress(400))
    lines = out.getvalue().splitlines()
    assert len(lines) == 2  # not wrapped, however long
    assert lines[1].startswith("drawing: 400 of 1,200 trials")


def test_a_terminal_gets_a_bar():
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True)
    with watched("drawing", console) as show:
        show(progress(300))
    assert "300 of 1,200 trials" in out.getvalue()
    assert "━" in out.getvalue()
