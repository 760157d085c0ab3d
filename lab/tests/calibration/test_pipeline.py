"""The pipeline: no road to a verdict is wrong too often under any design.

The rows of lists and of tallies whose ids were not checked failed while equal scores
were decided there by lots that the coins had a hand in.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import special, stats
from sweep_tools import InOrder
from typer.testing import CliRunner

from dpaudit.cli import app
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.calibration import pipeline
from dpaudit_lab.calibration.pipeline import (
    AUDITS_PER_TRIAL,
    PipelineCase,
    Way,
    pipeline_cases,
    trial,
)
from dpaudit_lab.calibration.roads import AS_IT_WAS, ROADS
from dpaudit_lab.calibration.table import (
    FALSE_ALARM,
    Part,
    Plan,
    plan,
    sweeps,
    table,
)
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import run

EQUAL = "silent, all equal"
CASES = pipeline_cases()
PLACES, COUNTS = AS_IT_WAS
ONE_RUN = PipelineCase(
    road="one run",
    rules="all",
    null=EQUAL,
    canaries=6,
    alpha=0.05,
    way=Way.COINS,
    trials=1,
)


def rows_of(planned):
    with Store(":memory:") as store:
        for sweep in sweeps(planned):
            run(sweep, engine=InOrder(), store=store)
        return table(planned, store)


def one_row(case, audits=None):
    (row,) = rows_of(Plan(rules=(), whole=(), pipeline=(case,), audits=audits))
    return row


def under(case, seed):
    """What a trial of a case finds under the design with a seed."""
    source = np.random.SeedSequence(1, spawn_key=(seed,))
    return trial(case.setting(), np.random.default_rng(source))


@pytest.fixture(scope="module")
def small():
    """Equal scores on every road that is quick; seeds are fixed by settings."""
    return rows_of(plan(small=True, only=Part.PIPELINE))


@pytest.mark.nightly
def test_no_road_is_wrong_more_often_than_it_promises(small):
    failing = [
        (row.rule, row.canaries, row.rate) for row in small if row.ours and row.fails
    ]
    assert failing == []


@pytest.mark.nightly
def test_both_rules_for_ties_of_an_earlier_day_fail(small):
    failing = {row.rule for row in small if not row.ours and row.fails}
    assert failing == {f"{road}: all" for road in AS_IT_WAS}


@pytest.mark.nightly
def test_most_roads_are_not_idle(small):
    """A road that never refutes, or refuses every audit, is not tested by its rows."""
    tested = {row.rule for row in small if row.ours and row.rate > 0}
    assert len(tested) >= 15


def test_every_road_stands_in_the_table_and_nearly_all_meet_equal_scores():
    assert {case.road for case in CASES} == {*ROADS, *AS_IT_WAS}
    equal = {case.road for case in CASES if case.null == EQUAL}
    assert {*ROADS} - equal == {"local, 3 shards"}
    assert len({tuple(case.setting().items()) for case in CASES}) == len(CASES)


def test_roads_meet_ties_few_canaries_shards_and_many_designs():
    for road in ("scores, sorted by coin", "lists"):
        mine = [case for case in CASES if case.road == road]
        assert {case.canaries for case in mine} >= {2, 3, 4, 5, 6, 1000}
        assert {case.rules for case in mine} >= {"all", "half", "ranked", "classes"}
        assert {case.null for case in mine} == {*pipeline._NULLS, pipeline._WORST} - {
            "Gaussian noise"
        }
        assert max(case.trials for case in mine if case.way is not Way.DRAWN) == 200
    for road in ("tally", "tally, ids unchecked", "tally, key"):
        assert {case.canaries for case in CASES if case.road == road} >= {6, 66_000}
        assert f"{road}, 3 shards" in ROADS


@pytest.mark.parametrize(
    ("null", "canaries", "alpha", "chance"),
    [
        (EQUAL, 6, 0.05, 1 / 64),
        ("silent, two values", 6, 0.05, 1 / 64),
        ("randomised response", 4, 0.3, float(special.expit(1.0)) ** 4),
        ("leak of all coins", 6, 0.05, 0.03 + 0.97 / 64),
    ],
)
def test_sums_over_all_coins_are_what_a_pencil_gives(null, canaries, alpha, chance):
    case = replace(ONE_RUN, null=null, canaries=canaries, alpha=alpha)
    found = under(case, 0)
    assert found["refuted"] == pytest.approx(chance, rel=1e-12)
    assert found["refused"] == 0


@pytest.mark.parametrize("seed", [0, 7, 42])
def test_lots_for_places_are_as_wrong_as_their_formula_says(seed):
    """All of a thousand scores equal and guessed: which places are right is known."""
    (case,) = (
        c
        for c in CASES
        if c.canaries == 1000 and c.road == PLACES and c.way is Way.ONES
    )
    tie_breaks = np.random.default_rng(seed).bit_generator.random_raw(1000)
    order = np.argsort(tie_breaks)
    ones = np.arange(1001)
    right = [np.sum(order[500:] < k) + np.sum(order[:500] >= k) for k in ones]
    enough = stats.binom.isf(0.05, 1000, 0.5) + 1
    chance = stats.binom.pmf(ones, 1000, 0.5) @ (np.array(right) >= enough)
    assert under(case, seed)["refuted"] == pytest.approx(chance, abs=1e-9)
    assert (chance > 0.99) == (seed == 7)


@pytest.mark.parametrize("road", ["lists", "tally, ids unchecked", PLACES, COUNTS])
def test_sums_over_numbers_of_ones_are_sums_over_all_coins(road):
    """Where no ids are seen; so no order of rows decides anything either."""
    case = replace(ONE_RUN, road=road, canaries=4, alpha=0.3)
    for seed in range(3):
        short = under(replace(case, way=Way.ONES), seed)
        assert under(case, seed) == pytest.approx(short, rel=1e-12)


@pytest.mark.parametrize("name", [n for n in pipeline._NULLS if n != "Gaussian noise"])
def test_each_null_is_as_private_as_it_says_and_no_more(name):
    """The hockey-stick divergence of its laws, for each coin and all others."""
    null, n, worst = pipeline._NULLS[name], 3, 0.0
    laws = {
        bits: {tuple(s): p for p, s in null.law(np.array(bits, np.uint8))}
        for bits in product((0, 1), repeat=n)
    }
    for bits, law in laws.items():
        assert sum(law.values()) == pytest.approx(1.0)
        for place in range(n):
            other = (*bits[:place], 1 - bits[place], *bits[place + 1 :])
            factor = np.exp(null.claim.epsilon)
            excess = [p - factor * laws[other].get(s, 0.0) for s, p in law.items()]
            worst = max(worst, sum(max(0.0, each) for each in excess))
    assert worst == pytest.approx(null.claim.delta, abs=1e-12)
    if name == "randomised response":
        ratios = [laws[0, 0, 0][s] / laws[0, 0, 1][s] for s in laws[0, 0, 0]]
        assert max(ratios) == pytest.approx(np.e)


@pytest.mark.parametrize("name", ["randomised response", "leak of a block"])
def test_what_is_drawn_has_the_law_that_is_summed(name):
    """Chi squared, with a false alarm once in a million; the generator is fixed."""
    null, bits = pipeline._NULLS[name], np.array([1, 0, 1], np.uint8)
    rng = np.random.default_rng(5)
    seen = [tuple(null.draw(bits, rng)) for _ in range(4000)]
    law = {tuple(s): p for p, s in null.law(bits)}
    found = stats.chisquare(
        [seen.count(s) for s in law], [4000 * p for p in law.values()]
    )
    assert found.pvalue > 1e-6


def test_real_numbers_are_not_summed():
    with pytest.raises(InvalidInputError, match="no list of outputs"):
        pipeline._NULLS["Gaussian noise"].law(np.zeros(3, np.uint8))


def test_the_row_of_designs_shows_the_worst_of_them():
    case = replace(ONE_RUN, road=PLACES, canaries=3, alpha=0.3, trials=8)
    row = one_row(case)
    chances = [under(case, seed)["refuted"] for seed in range(8)]
    assert (row.rate, row.low, row.high) == (max(chances),) * 3
    assert row.how == "exact, 8 designs"
    assert min(chances) < 0.3 < row.rate
    assert row.fails
    assert row.verdict == "FAILS"


def test_limits_of_what_is_drawn_are_corrected_for_the_pipeline_alone():
    drawn = tuple(case for case in CASES if case.road == "classic")
    rows = rows_of(Plan(rules=(), whole=(), pipeline=(*drawn, ONE_RUN), audits=1))
    level = 2 * FALSE_ALARM / len(drawn)
    for row in rows[:-1]:
        assert row.runs == AUDITS_PER_TRIAL
        hits = round(row.rate * row.runs)
        assert (row.low, row.high) == rate_limits(hits, row.runs, alpha=level)


@pytest.mark.nightly
def test_a_road_is_closed_only_where_a_run_is_combined_with_itself(subtests):
    """A road that came to refuse every audit would seem to be wrong never."""
    for road in ROADS:
        with subtests.test(road=road):
            case = min((c for c in CASES if c.road == road), key=lambda c: c.canaries)
            closed = road == "one run combined with itself"
            assert (under(replace(case, null=EQUAL), 0)["refused"] > 0) == closed


def test_a_road_that_refuses_every_audit_does_not_look_tested(monkeypatch):
    def closed(_given):
        raise InvalidRunError("some scores are equal")

    monkeypatch.setattr(pipeline, "ROADS", {**ROADS, "one run": closed})
    for case in (ONE_RUN, replace(ONE_RUN, way=Way.DRAWN)):
        row = one_row(case)
        assert (row.rate, row.refused, row.verdict) == (0.0, 1.0, "refused")
        assert not row.fails


def test_a_road_that_refuses_some_audits_says_how_many(monkeypatch):
    def choosy(given):
        if given.bits[0]:
            raise InvalidRunError("the first coin is a one")
        return bool(given.bits[1])

    monkeypatch.setattr(pipeline, "ROADS", {**ROADS, "one run": choosy})
    row = one_row(ONE_RUN)
    assert (row.rate, row.refused) == (0.25, 0.5)
    row = one_row(replace(ONE_RUN, alpha=0.3))
    assert row.verdict == "holds, 50 % refused"


def test_other_errors_are_no_refusals(monkeypatch):
    def broken(_given):
        raise InvalidInputError("no such file")

    monkeypatch.setattr(pipeline, "ROADS", {**ROADS, "one run": broken})
    with pytest.raises(InvalidInputError, match="no such file"):
        under(ONE_RUN, 0)


# The commands themselves, in which the roads of files end.

CLAIM = ("--epsilon=0", "--delta=0", "--coins-were-independent")


def refutes(*arguments):
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code == 1


@pytest.mark.parametrize("seed", [7])
def test_audits_of_tables_with_ties_hold_their_level_for_each_seed(tmp_path, seed):
    path, wrong = tmp_path / "scores.csv", 0
    for bits in product((0, 1), repeat=5):
        rows = sorted(enumerate(bits), key=lambda row: row[1])
        lines = [f"{name},{bit},0" for name, bit in rows]
        path.write_text("\n".join(["id,bit,score", *lines]))
        asked = (f"--tie-seed={seed}", "--guesses=5")
        wrong += refutes("audit", path, *CLAIM, *asked)
    assert wrong / 32 <= 0.05


@pytest.mark.parametrize("seed", range(6))
def test_audits_of_lists_with_ties_hold_their_level_for_each_seed(tmp_path, seed):
    path, wrong = tmp_path / "lists.npz", 0.0
    for ones in range(4):
        np.savez(path, in_scores=np.zeros(ones), out_scores=np.zeros(3 - ones))
        asked = (f"--tie-seed={seed}", "--guesses=3", "--alpha=0.3")
        wrong += special.comb(3, ones) / 8 * refutes("audit", path, *CLAIM, *asked)
    assert wrong <= 0.3


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_audits_of_directories_with_ties_hold_their_level_for_each_seed(
    tmp_path, seed, checked
):
    skip = () if checked else ("--skip-id-checks",)
    wrong = 0
    for bits in product((0, 1), repeat=3):
        folder = tmp_path / "".join(map(str, bits))
        folder.mkdir()
        columns = {"id": np.arange(3), "bit": np.array(bits), "score": np.zeros(3)}
        parquet.write_table(pa.table(columns), folder / "rows.parquet")
        asked = (f"--tie-seed={seed}", "--guesses=3", "--alpha=0.3", *skip)
        wrong += refutes("audit", folder, *CLAIM, *asked)
    assert wrong / 8 <= 0.3


def test_claims_tested_from_counts_hold_their_level():
    wrong = 0.0
    for correct in range(11):
        asked = ("--canaries=10", "--guesses=10", f"--correct={correct}")
        wrong += (
            special.comb(10, correct) / 2**10 * refutes("bound", *asked, "--epsilon=0")
        )
    assert wrong == pytest.approx(11 / 1024)
