"""Tallies on the workers of an engine; needs ``tables`` and ``sweep``."""

import divided_tallies
import pytest
from divided_tallies import CLAIM, N

from dpaudit import Design, OneRun
from dpaudit.engines.local import LocalEngine
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.tables.tally import conclude_scores, tally_files


@pytest.fixture
def files(tmp_path):
    return divided_tallies.write_files(tmp_path)


@pytest.mark.nightly
def test_workers_leave_what_one_pass_leaves(files):
    """Those of Ray do, too: test_cluster.py."""
    divided_tallies.check(LocalEngine(workers=2), files)


def test_what_voids_a_table_is_raised_here(files):
    engine = LocalEngine(workers=1)
    design = Design(canaries=N, rules=OneRun(guesses=200), claim=CLAIM)
    key_file = files[0].parent / "audit.key"
    options = {"design": design, "engine": engine, "key_file": key_file}
    # The same rows under another name: every file by itself is right.
    twice = [*files[:3], files[0].with_name("copy.parquet")]
    twice[-1].write_bytes(files[2].read_bytes())
    with pytest.raises(InvalidRunError):
        conclude_scores([tally_files(twice, **options)])
    with pytest.raises(InvalidInputError, match="there is no column 'bit'"):
        tally_files(files, design=design, engine=engine)
    with pytest.raises(InvalidInputError, match="no row in any file"):
        tally_files(files[-1:], **options)
