"""What holds for any value or table, not for mutants of samples only."""

import csv
import io
import json
from contextlib import nullcontext, suppress
from math import inf, isnan, nan

import hypothesis.strategies as st
import numpy as np
import pytest
from evidence_samples import KEY
from fuzz_mutants import NUMBERS, TEXTS
from hypothesis import given, settings

from dpaudit import ApproxDP, Coins, Design, OneRun, Pairs, audit_scores
from dpaudit.bounds.readings import Reading
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.evidence import Registration, ScoreFiles, verify
from dpaudit.game.design import Commitment
from dpaudit.game.result import Result
from dpaudit.game.transcript import Transcript
from dpaudit.tables.sources import read_score_table

READERS = {
    "design": (Design.from_json, "dpaudit.design.1"),
    "commitment": (Commitment.from_json, "dpaudit.commitment.1"),
    "coins": (Coins.from_json, "dpaudit.coins.1"),
    "pairs": (Pairs.from_json, "dpaudit.pairs.1"),
    "registration": (Registration.from_json, "dpaudit.registration.1"),
    "score files": (ScoreFiles.from_json, "dpaudit.score-files.1"),
    "transcript": (Transcript.from_json, "dpaudit.transcript.1"),
    "reading": (Reading.from_json, "dpaudit.reading.1"),
    "result": (Result.from_json, "dpaudit.result.1"),
}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from([text for text in TEXTS if len(text) < 400]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = sorted(
    {"adjacency", "alpha", "audit", "bound", "canaries", "claim", "claim_test", "kind"}
    | {"commitment", "correct", "count", "delta", "design", "files", "guesses", "key"}
    | {
        "reading",
        "right",
        "rules",
        "setting",
        "sha256",
        "stated_probabilities",
        "weights",
        "x",
        "y",
    }
)


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=25)
@given(fields=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_any_fields_give_a_value_or_an_error_that_helps(kind, fields):
    read, form = READERS[kind]
    with suppress(InvalidInputError):
        read(json.dumps({**fields, "format": form}))


@settings(max_examples=50)
@given(text=st.text(max_size=30) | st.binary(max_size=30))
def test_verification_answers_whatever_it_is_given(text):
    assert not verify(text).sound


SCORES = st.floats(allow_nan=False) | st.sampled_from([-0.0, 0.0, 5e-324, 1e308])
ROWS = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1]), SCORES),
    min_size=1,
    max_size=6,
)


def written(rows, folder, suffix, order):
    """Return a table written by numpy or by Python's csv, in either byte order."""
    path = folder / f"table{suffix}"
    ids, bits, scores = zip(*rows, strict=True)
    if suffix == ".npz":
        np.savez(
            path,
            id=np.array(ids, f"{order}i8"),
            bit=np.array(bits, f"{order}u2"),
            score=np.array(scores, f"{order}f8"),
        )
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerows([("id", "bit", "score"), *rows])
    return path


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
@settings(max_examples=40)
@given(rows=ROWS, order=st.sampled_from("<>"))
def test_a_table_is_read_as_it_was_written(tmp_path_factory, suffix, rows, order):
    """Negative zeros, infinities, ties, duplicates and either byte order included."""
    folder = tmp_path_factory.mktemp("tables", numbered=True)
    table = read_score_table(written(rows, folder, suffix, order))
    assert table.bits is not None
    read = zip(
        table.ids.tolist(), table.bits.tolist(), table.scores.tolist(), strict=True
    )
    assert [repr(row) for row in read] == [repr((i, b, float(s))) for i, b, s in rows]


@settings(max_examples=40)
@given(rows=ROWS, cell=st.sampled_from([*NUMBERS, *TEXTS]), place=st.integers(0, 2))
def test_one_odd_cell_is_refused_with_its_row_or_read_as_python_reads_it(
    tmp_path_factory, rows, cell, place
):
    path = tmp_path_factory.mktemp("tables", numbered=True) / "table.csv"
    file = io.StringIO()
    odd = list(rows[-1])
    odd[place] = cell
    csv.writer(file).writerows([("id", "bit", "score"), *rows[:-1], odd])
    path.write_bytes(file.getvalue().encode("utf-8", "surrogatepass"))
    try:
        table = read_score_table(path)
    except InvalidInputError as error:
        said = str(error)
    else:
        said = str(path)
        _check_cell(table, cell, place)
    assert str(path) in said


def _check_cell(table, cell, place):
    if place == 0:
        assert str(table.ids[-1]) == cell.strip()
    elif place == 1:
        assert cell.strip().lower() in ("0", "1", "true", "0.0", "1.0", "false")
    else:
        assert repr(float(table.scores[-1])) == repr(float(cell))


IDS = st.permutations(range(5)) | st.lists(st.integers(-1, 5), min_size=5, max_size=5)
ODD = st.sampled_from([0.0, -0.0, 1.0, inf, -inf, nan])


@settings(max_examples=60)
@given(ids=IDS, scores=st.lists(ODD, min_size=5, max_size=5))
def test_an_audit_needs_every_canary_once_and_a_score_for_each(ids, scores):
    """Ties, negative zeros and infinities are fine."""
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    design = Design(canaries=5, rules=OneRun(guesses=2), claim=claim)
    fine = sorted(ids) == [0, 1, 2, 3, 4] and not any(map(isnan, scores))
    with nullcontext() if fine else pytest.raises((InvalidInputError, InvalidRunError)):
        audit_scores(
            np.array(ids),
            Coins(key=KEY, count=5),
            np.array(scores),
            design=design,
            tie_rng=np.random.default_rng(0),
        )
