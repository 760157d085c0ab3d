"""What tests of the paper's figures share: trials run right here, stores in memory."""

from dataclasses import replace

import pytest

from dpaudit.engines.store import Store
from dpaudit.engines.sweep import run


class Inline:
    """An engine of this process alone."""

    def map(self, function, tasks):
        yield from map(function, tasks)


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
            assert run(sweep, engine=Inline(), store=store).failed == 0
        return figure.read(store, sweeps)

    return reproduced


@pytest.fixture
def few(store):
    """Run some settings of a sweep only, and return their outcomes."""

    def few(sweep, settings):
        part = replace(sweep, settings=settings)
        assert run(part, engine=Inline(), store=store).failed == 0
        return [list(store.outcomes(part.cell(setting))) for setting in settings]

    return few
