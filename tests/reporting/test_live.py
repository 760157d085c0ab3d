"""What is shown of a long run while it goes."""

import io

import pytest
from rich.console import Console

from dpaudit.reporting import live
from dpaudit.reporting.live import Speed, watched


def test_a_speed_tells_the_time_left():
    now = [0.0]
    speed = Speed(clock=lambda: now[0])
    assert speed.parts(0, 2_000_000_000, "rows") == []
    now[0] = 100.0
    assert speed.parts(1_000_000_000, 2_000_000_000, "rows") == [
        "1e+07 rows/s",
        "1 min 40 s left",
    ]


def test_what_was_done_before_does_not_count_as_speed():
    speed = Speed(clock=iter([0.0, 0.0, 5.0]).__next__)
    assert speed.parts(1000, 2000, "rows") == []
    assert speed.parts(1050, 2000, "rows")[0] == "10 rows/s"


@pytest.mark.parametrize("terminal", [True, False])
def test_rows_are_shown_on_a_terminal_and_elsewhere(monkeypatch, terminal):
    monkeypatch.setattr(live, "LINE_SECONDS", 0.0)
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=terminal)
    with watched("reading", 1200, console=console) as tell:
        tell(300)
    assert "reading: 300 of 1,200 rows" in out.getvalue()
    assert ("━" in out.getvalue()) is terminal


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.4, "59 s"), (61, "1 min 1 s"), (7320, "2 h 2 min")]
)
def test_durations_are_short(seconds, text):
    assert live._duration(seconds) == text


def test_plain_lines_come_at_intervals(monkeypatch):
    monkeypatch.setattr(live, "LINE_SECONDS", 0.0)
    out = io.StringIO()
    with watched("reading", 1200, console=Console(file=out, width=30)) as tell:
        tell(300)
        tell(100)
    lines = out.getvalue().splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "reading: 0 of 1",
        "reading: 300 of 1",
        "reading: 400 of 1",
    ]  # not wrapped, however long
