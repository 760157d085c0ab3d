"""What tests of the paper's figures share: trials run right here, stores in memory."""

from dataclasses import replace

import pytest
from sweep_tools import InOrder

from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import run


@pytest.fixture
def store():
    with Store(":memory:") as opened:
        yield opened


@pytest.fixture
def reproduced(store):
    """Run a figure's trials, and read it."""

    def reproduced(figure, repeats):
        sweeps = figure.sweeps(repeats)
        for sweep in sweeps:
            assert run(sweep, engine=InOrder(), store=store).failed == 0
        return figure.read(store, sweeps)

    return reproduced


@pytest.fixture
def few(store):
    """Run some settings of a sweep only, and return their outcomes."""

    def few(sweep, settings):
        part = replace(sweep, settings=settings)
        assert run(part, engine=InOrder(), store=store).failed == 0
        return [list(store.outcomes(part.cell(setting))) for setting in settings]

    return few
