"""Tables beside bare pyarrow: both count what sorting all rows counts."""

import numpy as np
import pytest
from pyarrow import parquet

from dpaudit_lab.benchmark.tables import (
    bare,
    counted,
    tables,
    time_trial,
    write_table,
)
from dpaudit_lab.sweeps.store import Store


@pytest.mark.parametrize("rows", [1500, 30_000])
def test_both_ways_count_what_sorting_counts(tmp_path, rows):
    paths = write_table(tmp_path, rows, files=3)
    read = [parquet.read_table(path) for path in paths]
    ids, bits, scores = (
        np.concatenate([each.column(name).to_numpy() for each in read])
        for name in ("id", "bit", "score")
    )
    assert ids.tolist() == list(range(rows))
    order = np.argsort(scores)
    known = int(bits[order[-500:]].sum() + (1 - bits[order[:500]]).sum())
    assert bare(paths) == known
    for check_ids in (False, True):
        assert counted(paths, rows, check_ids=check_ids) == known


def test_every_way_is_timed():
    taken = time_trial({"rows": 2000}, None)
    assert taken.keys() == {"checked", "unchecked", "bare"}
    assert all(seconds > 0 for seconds in taken.values())


def test_rows_are_compared_with_pyarrow():
    part = tables(pairs=2, rows=2000)
    times, memory = part.sweeps()
    (setting,) = times.settings
    taken = {"checked": 4.0, "unchecked": 3.0, "bare": 2.0}
    with Store(":memory:") as store:
        store.add(times.cell(setting), [(0, taken), (1, taken)])
        store.add(memory.cell(setting), [(0, taken)])
        rows = part.rows(store)
    ratios = [row.cost.ratio and row.cost.ratio.middle for row in rows]
    assert ratios == [2.0, 1.5, None]
    assert [row.ours for row in rows] == [True, True, False]
    assert {row.size for row in rows} == {"2,000 rows in 4 Parquet files"}
