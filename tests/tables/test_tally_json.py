"""Tallies as documents: they come back as they were, and nothing odd comes in."""

import json
from importlib import resources

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaudit import Coins, Design, Key, OneRun, PureDP, Ranking, WeightClasses
from dpaudit.errors import DpAuditError, InvalidInputError, InvalidRunError
from dpaudit.game.setting import Setting
from dpaudit.tables.tally import conclude_scores
from dpaudit.tables.tally_json import tally_from_json, tally_to_json

CLAIM = PureDP(epsilon=1.0)
KEY = Key(bytes(range(32)))
N = 30
EXACT = Design(canaries=N, rules=OneRun(guesses=7), claim=CLAIM)
MANY = 70_000  # guesses, more than are kept one by one
CELLS = Design(
    canaries=MANY,
    rules=OneRun(guesses=MANY),
    claim=CLAIM,
    setting=Setting(tie_seed=3),
)


def schema():
    folder = resources.files("dpaudit") / "schemas"
    form = json.loads((folder / "tally.schema.json").read_text("utf-8"))
    return jsonschema.Draft202012Validator(form)


@pytest.fixture
def exact(tally_of):
    rng = np.random.default_rng(0)
    bits = Coins(key=KEY, count=N).bits()
    scores = rng.standard_normal(N).round(1)
    scores[:4] = [np.inf, -np.inf, -0.0, 0.0]
    return tally_of(
        EXACT,
        [i for i in range(N) if i != 5],
        np.delete(bits, 5),
        np.delete(scores, 5),
        key=KEY,
    )


@pytest.fixture
def cells(tally_of):
    rng = np.random.default_rng(1)
    scores = rng.integers(-50, 50, MANY) / 8
    return tally_of(CELLS, range(MANY), rng.integers(0, 2, MANY), scores)


def test_a_tally_comes_back_as_it_was(exact, cells):
    for tally in (exact, cells):
        text = tally_to_json(tally)
        schema().validate(json.loads(text))
        again = tally_from_json(text)
        assert tally_to_json(again) == text
        assert (again.design, again.rows, again.ids) == (
            tally.design,
            tally.rows,
            tally.ids,
        )
    jsonschema.Draft202012Validator.check_schema(schema().schema)


def test_a_result_is_the_same_from_documents(tally_of):
    rng = np.random.default_rng(2)
    bits, scores = rng.integers(0, 2, MANY), rng.integers(-50, 50, MANY) / 8
    halves = [range(0, MANY, 2), range(1, MANY, 2)]
    parts = [tally_of(CELLS, ids, bits[list(ids)], scores[list(ids)]) for ids in halves]
    read = [tally_from_json(tally_to_json(part)) for part in parts]
    whole = tally_of(CELLS, range(MANY), bits, scores)
    assert conclude_scores(read).to_json() == conclude_scores([whole]).to_json()


# What is broken in one place. Each is refused, with a typed error and no warning.

HUGE = 10**400
UNCHECKED = {"ids": [], "found__coins": "0" * 16}
ANYTHING = [
    None,
    True,
    1.5,
    -1,
    2**36 + 1,
    2**63,
    2**64,
    HUGE,
    "x",
    "",
    "nan",
    [],
    [[]],
    {},
    [None],
    [True],
    [1.5],
    [-1],
    [HUGE],
    ["x"],
    [{}],
]


def places(value, path=()):
    """Yield where every part of a document is, objects and lists and all in them."""
    if path:
        yield path
    inside = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))[:2]
    for name, each in inside:
        yield from places(each, (*path, name))


def with_other(plain, path, other):
    changed = json.loads(json.dumps(plain))
    inside = changed
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = other
    return json.dumps(changed)


def read_again(text):
    """Return the tally that a text holds, or None if it is refused as it should be."""
    try:
        return tally_from_json(text)
    except DpAuditError:
        return None


def small(cells):
    """Return the plain document of a tally in cells, with few of them."""
    return json.loads(tally_to_json(cells))


@pytest.mark.parametrize("kind", ["exact", "cells"])
def test_whatever_stands_in_a_place_of_a_tally_is_taken_or_refused(kind, request):
    """What is taken is a tally: written again it is read again, to the same."""
    plain = small(request.getfixturevalue(kind))
    taken = 0
    for path in places(plain):
        for other in ANYTHING:
            found = read_again(with_other(plain, path, other))
            if found is not None:
                taken += 1
                text = tally_to_json(found)
                assert tally_to_json(tally_from_json(text)) == text
                schema().validate(json.loads(text))
                assert 0 <= found.ones <= found.rows <= found.design.canaries
    # A design or a commitment may be others, and so may a few counts.
    assert taken < 40


@pytest.mark.parametrize("kind", ["exact", "cells"])
def test_no_part_may_be_missing_and_none_more(kind, request):
    plain = small(request.getfixturevalue(kind))
    for path in places(plain):
        inside = plain
        for name in path[:-1]:
            inside = inside[name]
        if path[:2] == ("design", "setting") and len(path) > 2:
            continue  # names that the user chose
        if isinstance(inside, dict):
            less = {name: each for name, each in inside.items() if name != path[-1]}
            for other in (less, {**inside, "more": 1}):
                text = (
                    with_other(plain, path[:-1], other)
                    if path[:-1]
                    else json.dumps(other)
                )
                assert read_again(text) is None
                if len(path) == 1 or path[0] not in ("design", "commitment"):
                    assert not schema().is_valid(json.loads(text))
        else:
            less = inside[: path[-1]] + inside[path[-1] + 1 :]
            assert read_again(with_other(plain, path[:-1], less)) is None


def refusal(plain, message, **changes):
    for path, other in changes.items():
        plain = json.loads(with_other(plain, tuple(path.split("__")), other))
    with pytest.raises((InvalidInputError, InvalidRunError), match=message):
        tally_from_json(json.dumps(plain))


def test_numbers_that_do_not_add_up_are_refused(exact, cells):
    plain = json.loads(tally_to_json(exact))
    refusal(plain, "31 rows are more than canaries=30", rows=31)
    refusal(plain, "30 ones among 29 rows", ones=30)
    refusal(plain, "as many ids as rows", rows=28)
    refusal(plain, "more canaries or coins", ones=0)
    refusal(plain, "not made for its design", found__most_high=3)
    refusal(plain, "not made for its design", found__most_low=4)
    nothing = {"scores": [], "tie_breaks": [], "counts": [], "ones": []}
    refusal(plain, "not made for its design", found__high=nothing)
    refusal(plain, "not made for its design", found__low=nothing)
    plain = json.loads(tally_to_json(cells))
    refusal(plain, "does not hold all rows", ones=plain["ones"] + 1)
    refusal(plain, "does not hold all rows", rows=plain["rows"] - 1, **UNCHECKED)
    refusal(plain, "without ids has no tie-breaks, nor a fingerprint", ids=[])
    changes = {"design": EXACT.to_plain(), "rows": 30, "ones": 9}
    refusal(plain, "not made for its design", **UNCHECKED, **changes)


def test_more_ones_than_canaries_are_refused(exact, cells):
    for tally, tail in ((exact, ("found", "high")), (cells, ("found",))):
        plain = json.loads(tally_to_json(tally))
        ones = plain
        for name in (*tail, "ones"):
            ones = ones[name]
        text = with_other(plain, (*tail, "ones"), [*ones[:-1], 10**6])
        with pytest.raises(InvalidInputError, match="no more ones than canaries"):
            tally_from_json(text)


def test_a_tally_of_more_canaries_than_a_table_may_hold_is_refused(exact):
    design = Design(canaries=2**36 + 1, rules=OneRun(guesses=7), claim=CLAIM)
    plain = json.loads(tally_to_json(exact))
    refusal(plain, "more than a table may hold", design=design.to_plain())


def test_a_tally_for_the_rules_of_other_games_is_refused(exact):
    rules = Ranking(guesses=2**20 + 1)
    design = Design(canaries=2**21, rules=rules, claim=CLAIM)
    plain = json.loads(tally_to_json(exact))
    refusal(plain, "too many to be kept in order", design=design.to_plain())


def test_lists_are_not_longer_than_they_may_be(exact, cells):
    plain = json.loads(tally_to_json(exact))
    many = [0] * (2**16 + 1)
    refusal(plain, "at most 65536 numbers", found__high__scores=many)
    plain = json.loads(tally_to_json(cells))
    many = [0] * (2**19 + 1)
    refusal(plain, "at most 524288 numbers", found__keys=many)


def test_sums_of_the_largest_numbers_do_not_overflow(exact, cells):
    most = 2**36
    assert 2**19 * most < 2**63
    plain = json.loads(tally_to_json(exact))
    tail = {"scores": list(range(99)), "counts": [most] * 99, "ones": [most] * 99}
    tail["tie_breaks"] = ["0" * 16] * 99
    refusal(plain, "more canaries or coins", found__high=tail, found__low=tail)
    plain = json.loads(tally_to_json(cells))
    found = {
        "mantissa_bits": 18,
        "keys": list(range(-99, 99)),
        "counts": [most] * 198,
        "ones": [most] * 198,
        "coins": "0" * 16,
    }
    refusal(plain, "does not hold all rows", found=found)


def test_minus_zero_is_zero(exact):
    plain = json.loads(tally_to_json(exact))
    place = plain["found"]["high"]["scores"]
    text = with_other(plain, ("found", "high", "scores"), [-0.0, *place[1:]])
    found = read_again(text)
    assert found is None or "-0.0" not in tally_to_json(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"format":"dpaudit.tally.9"}',
        '{"format":"dpaudit.tally.1"}',
        '{"format":"dpaudit.tally.1","rows":NaN}',
        '{"format":"dpaudit.tally.1","rows":1e999}',
        "[" * 100_000,
        '{"format":"dpaudit.tally.1","rows":' + "9" * 5000 + "}",
    ],
)
def test_what_is_no_tally_is_refused(text):
    with pytest.raises(InvalidInputError):
        tally_from_json(text)


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_byte_that_is_another_makes_no_other_error(place, byte):
    text = bytearray(TEXT)
    text[place % len(text)] = byte
    read_again(text.decode("latin-1"))


DESIGN = Design(
    canaries=9, rules=WeightClasses(weights=(2.0, 1.0), guesses=(2, 2)), claim=CLAIM
)
TEXT = json.dumps(
    {
        "format": "dpaudit.tally.1",
        "design": DESIGN.to_plain(),
        "commitment": None,
        "salt": "0" * 64,
        "rows": 9,
        "ones": 4,
        "ids": [{"first": 0, "last": 8, "count": 9, "fingerprint": None}],
        "found": {
            "most_high": 2,
            "most_low": 2,
            "high": {
                "scores": [1.5, "inf"],
                "tie_breaks": ["0" * 16, "f" * 16],
                "counts": [1, 1],
                "ones": [1, 0],
            },
            "low": {
                "scores": ["-inf", -2],
                "tie_breaks": ["0123456789abcdef", "0" * 16],
                "counts": [1, 1],
                "ones": [0, 1],
            },
        },
    }
).encode()


def test_a_document_written_by_hand_is_read():
    found = tally_from_json(TEXT.decode())
    assert found.found.high.scores.tolist() == [1.5, np.inf]
    reading = conclude_scores([found], coins_were_independent=True).reading
    # The surest are inf (an error) and -inf (right), then 1.5 (right), -2 (an error).
    assert reading.correct == (1, 1)


# Tallies of other audits.


def test_tallies_of_other_audits_do_not_merge(tally_of):
    bits, scores = [0, 1, 1, 0, 1], range(5)
    one = tally_of(EXACT, range(5), bits, scores)
    others = [
        Design(canaries=N, rules=OneRun(guesses=7), claim=PureDP(epsilon=1.5)),
        Design(canaries=N, rules=OneRun(guesses=8), claim=CLAIM),
        Design(canaries=N, rules=Ranking(guesses=7), claim=CLAIM),
        Design(canaries=N + 1, rules=OneRun(guesses=7), claim=CLAIM),
        Design(canaries=N, rules=OneRun(guesses=7), claim=CLAIM, alpha=0.01),
    ]
    tallies = [tally_of(design, range(5, 10), bits, scores) for design in others]
    tallies += [
        tally_of(EXACT, range(5, 10), bits, scores, salt="f" * 64),
        tally_of(EXACT, range(5, 10), bits, scores, key=KEY),
    ]
    for other in tallies:
        with pytest.raises(InvalidRunError, match="belong to different audits"):
            one.merged(other)


def test_no_tally_is_no_result():
    with pytest.raises(InvalidInputError, match="no tally"):
        conclude_scores([])
