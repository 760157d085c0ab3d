"""What is shown while a sweep runs."""

import io

import pytest
from rich.console import Console

from dpaudit.reporting import live
from dpaudit.reporting.live import Speed
from dpaudit_lab.sweeps.progress import Progress, line, watched

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
    line("drawing", progress(200), speed)
    now[0] = 10.0
    assert line("drawing", progress(300, failed=2), speed) == (
        "drawing: 300 of 1,200 trials, 1 of 3 settings, 10.2 trials/s, "
        "1 min 28 s left, 2 failed; n = 100, rule = best; "
        "means so far: bound 0.5123, refuted 0.25"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_a_sweep_is_shown_on_a_terminal_and_elsewhere(monkeypatch, terminal):
    monkeypatch.setattr(live, "LINE_SECONDS", 0.0)
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=terminal)
    with watched("drawing", console) as show:
        show(progress(300))
    assert "drawing: 300 of 1,200 trials" in out.getvalue()
    assert ("━" in out.getvalue()) is terminal
