"""One small table that every format must tell alike."""

import pytest

ROWS = [(7, 1, 0.5), (3, 0, -2.0), (12, 1, 3.25), (0, 0, 0.125)]


@pytest.fixture
def rows():
    return ROWS
