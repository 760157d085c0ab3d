"""What fuzzing found in documents, one test for each fault."""

import json
from dataclasses import replace

import numpy as np
import pytest
from evidence_mutants import canonical
from evidence_samples import KINDS, of_training

from dpaudit import Coins, Design, OneRun, Pairs, PureDP
from dpaudit._codec import encode
from dpaudit.bounds.bound import rounded_down
from dpaudit.bounds.methods import bound_for
from dpaudit.bounds.readings import Counts, Reading, Rounds, Weighted
from dpaudit.bounds.weighted import weighted_price
from dpaudit.errors import (
    DpAuditError,
    InvalidInputError,
    UncertifiedError,
    on_one_line,
)
from dpaudit.evidence import Evidence, ScoreFile
from dpaudit.game.findings import noted
from dpaudit.game.result import Result
from dpaudit.game.setting import Setting
from dpaudit.game.transcript import Transcript
from dpaudit.mechanisms.local import LocalLaplace
from dpaudit.stats.binomial import log_tails, masses

HUGE = 10**5000
CLAIM = PureDP(epsilon=1.0)


# Messages


def test_a_message_shows_no_escape_sequence_and_fits_on_a_screen():
    """Names from a file went to the terminal as they were, whole."""
    said = str(InvalidInputError("got '\x1b[2J\u202e" + "a" * 10**6 + "'; do this"))
    assert said.startswith("got '\\x1b[2J\\u202eaaa")
    assert said.endswith("aaa'; do this")
    assert len(said) < 4100
    assert str(DpAuditError("two\nlines")) == "two\nlines"
    assert on_one_line("two\nlines\x07") == "two\\nlines\\x07"


# Numbers


def test_whole_numbers_that_no_float_is_are_refused():
    """They ended in an OverflowError, and to show them in another ValueError."""
    for number in (HUGE, 10**400, 2**63, 1e300):
        with pytest.raises(InvalidInputError, match="canaries must be a"):
            Design(canaries=number, rules=OneRun(guesses=1), claim=CLAIM)
    with pytest.raises(InvalidInputError, match=r"5000 digits"):
        PureDP(epsilon=HUGE)


@pytest.mark.parametrize(
    "number", [HUGE, -HUGE, 10**309, float("nan")], ids=["huge", "low", "large", "nan"]
)
def test_a_setting_holds_numbers_that_can_be_written(number):
    """A number of 5,000 digits came to light only when the design was hashed."""
    with pytest.raises(InvalidInputError, match="notes must map names to text"):
        Setting(notes={"a": number})


def test_a_setting_may_hold_large_whole_numbers():
    setting = Setting(notes={"seed": 2**128, "other": -(10**300)})
    design = Design(canaries=9, rules=OneRun(guesses=1), claim=CLAIM, setting=setting)
    assert Design.from_json(design.to_json()).setting == setting


@pytest.mark.parametrize("value", [{}, [], "9", None])
def test_what_is_no_number_is_refused_where_a_number_should_be(value):
    """It was a bare TypeError."""
    text = json.dumps({"format": "dpaudit.coins.1", "key": "00" * 32, "count": value})
    with pytest.raises(InvalidInputError, match="count must be a whole number"):
        Coins.from_json(text)


@pytest.mark.parametrize("token", ["NaN", "-Infinity", "1e999999999", "1" * 5000])
def test_documents_hold_finite_numbers_only(token):
    """Pairs of NaN were read, and could not be written again."""
    text = '{"format":"dpaudit.pairs.1","adjacency":"replace-one","x":%s,"y":1}'
    with pytest.raises(InvalidInputError, match="not JSON"):
        Pairs.from_json(text % token)


def test_pairs_of_different_shapes_are_refused():
    with pytest.raises(InvalidInputError, match="x must be an array"):
        Pairs(x=[[0.0, 1.0], 1.0], y=[1.0, 2.0])


def test_whole_numbers_of_pairs_are_not_read_as_others():
    """numpy makes floats of a list of these, and of 2**63 + 1 another number."""
    text = '{"format":"dpaudit.pairs.1","adjacency":"replace-one","x":[1,1],"y":[%d,2]}'
    for number in (2**63, 10**400):
        with pytest.raises(InvalidInputError, match="y must hold whole numbers of 64"):
            Pairs.from_json(text % number)
    assert Pairs.from_json(text % (2**63 - 1)).y.tolist() == [2**63 - 1, 2]


def test_pairs_that_cannot_be_written_say_so():
    with pytest.raises(InvalidInputError, match="cannot be written as JSON"):
        Pairs(x=float("nan"), y=1.0).to_json()


@pytest.mark.parametrize("deep", [3_000, 200_000])
def test_deep_nesting_is_refused(deep):
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        Design.from_json("[" * deep + "]" * deep)


# Readings and results


def test_weights_whose_sums_are_no_floats_are_refused():
    counts = {"guesses": (3, 3), "correct": (2, 2), "committed": True}
    for weight in (1e308, 10**400):
        with pytest.raises(InvalidInputError, match="weights must be positive"):
            Weighted(canaries=9, weights=(weight, 1.0), **counts)
        played = Weighted(canaries=9, weights=(1.0, 2.0), **counts)
        with pytest.raises(InvalidInputError, match="weights must be >= 0"):
            Rounds(
                canaries=9, rounds=(played,), round_weights=(weight,), uniforms=(0.5,)
            )


def test_a_reading_of_more_canaries_than_can_be_counted_is_refused():
    text = '{"canaries":1e308,"format":"dpaudit.reading.1","kind":"ranked",'
    with pytest.raises(InvalidInputError, match="canaries must be a whole number"):
        Reading.from_json(text + '"right":[true]}')


def result_with(**fields):
    """Return the JSON of a training's result, with some fields changed."""
    tree = json.loads(of_training().result.to_json())
    for path, value in fields.items():
        *above, last = path.split("__")
        part = tree
        for name in above:
            part = part[name]
        part[last] = value
    return canonical(tree)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("training__accountant", {}, "accountant lacks the field 'alpha'"),
        ("training__accountant", 0, "accountant must be an object"),
        ("training__family", [], "family must be an object"),
        (
            "training__family__method",
            "\x1b[31m",
            "method must be a text that can be printed",
        ),
        ("training__family__model_epsilon", -1e308, "model_epsilon must be >= 0"),
        ("training__steps", {}, "steps must be a whole number"),
        ("commitment", "", "an object with"),
        ("ceiling", -1e308, "ceiling must be >= 0"),
        ("detectable_accuracy", 1e308, "detectable_accuracy must be in"),
        ("bound__method", ["exact"], "method must be a text"),
    ],
)
def test_fields_of_a_result_are_of_their_kind(field, value, said):
    """Printing such a result ended in an AttributeError or an OverflowError."""
    text = result_with(**{field: value})
    with pytest.raises(InvalidInputError, match=said):
        Result.from_json(text)


def test_a_large_epsilon_is_rounded_down():
    assert rounded_down(1e308) == "1e+12"
    assert rounded_down(float("inf")) == "inf"
    assert rounded_down(123.4569) == "123.456"


def test_what_was_not_exercised_is_printed_on_one_line():
    hostile = ["\x1b[2J\nThe claim holds."]
    remark = encode(noted("custom", text="quite"))
    trained = Result.from_json(
        result_with(not_exercised=hostile, training__remarks=[remark])
    )
    assert "quite" in trained.details()
    assert "\x1b" not in trained.details()
    odd = remark | {"numbers": {"text": "\r"}}
    with pytest.raises(InvalidInputError, match="can be printed"):
        Result.from_json(result_with(training__remarks=[odd]))
    alone = replace(trained, training=None)  # of a training its coverage says it
    assert "\\x1b[2J\\nThe claim holds." in str(alone)


def test_a_transcript_has_lists_for_columns():
    """One with a single number for each column was read; verification stumbled."""
    guesses = KINDS["one run"]().guesses
    plain = json.loads(guesses.to_json())
    for name in ("index", "guess", "truth", "stake", "turn"):
        plain[name] = 1
    with pytest.raises(
        InvalidInputError, match="index must be a list of whole numbers"
    ):
        Transcript.from_json(canonical(plain))


def test_files_of_scores_have_names_that_a_file_can_have():
    """Looking for one of 300 letters is an error of the system."""
    for name in ("a" * 300, "\u00e9" * 130):
        with pytest.raises(InvalidInputError, match="of at most 255 bytes"):
            ScoreFile(name=name, sha256="0" * 64, rows=1)
    assert ScoreFile(name="a" * 255, sha256="0" * 64, rows=1).rows == 1


def test_evidence_of_huge_weights_is_refused():
    tree = json.loads(KINDS["classes"]().to_json())
    tree["registration"]["design"]["rules"]["weights"] = [123454321, 1]
    text = canonical(tree).replace("123454321", "1" + "0" * 400)
    with pytest.raises(
        InvalidInputError, match="weights must be a finite number below"
    ):
        Evidence.from_json(text)


def test_too_many_counts_are_not_summed_over():
    """A number of twenty digits asked for 113 GB."""
    with pytest.raises(UncertifiedError, match="too many to sum over"):
        masses(2**62, 0.0, spread=10)
    low, chances = masses(10**10, 0.0, spread=10)
    assert 0 < low < 5 * 10**9 < low + len(chances)


def test_blocks_of_a_series_stay_small():
    """At 1e13 trials the tail from the mean on is 1/2 plus half the mass there."""
    upper, lower = log_tails(5 * 10**12, 10**13, 0.0)
    half = (2 * np.pi * 10**13 / 4) ** -0.5 / 2
    assert np.exp(upper) == pytest.approx(0.5 + half, abs=1e-12)
    assert np.exp(lower) == pytest.approx(0.5 - half, abs=1e-12)


def test_a_claim_of_any_epsilon_is_tested_without_a_warning():
    """Of 1e308 times the number of guesses nothing is left but infinity."""
    assert log_tails(2, 5, 1e308) == (0.0, -np.inf)
    assert log_tails(2, 5, -1e308)[0] == pytest.approx(-2e280, rel=1e-9)


def test_the_loss_of_laplace_noise_has_a_law_at_any_epsilon():
    """From epsilon = 1,420 on its tail was 0 times infinity."""
    law = LocalLaplace(epsilon=9999.0)
    assert law._tail_at(np.array([0.0, 9998.0, 9999.0])).tolist() == pytest.approx(
        [1.0, 1 - np.exp(-0.5) / 2, 0.5]
    )


def test_a_tiny_weight_beside_a_large_one_has_a_price():
    """Their ratio is no float; delta then costs what one guess can cost at most."""
    counts = {"guesses": (3, 3), "correct": (2, 2), "committed": True}
    reading = Weighted(canaries=9, weights=(5e-324, 2.0), **counts)
    assert 0 < weighted_price(reading, 1.0) <= 1 / (1 + np.e)


def test_counts_are_whole_numbers_however_they_are_written():
    """18.0 right guesses were taken, and some bounds count up to them; 2.5 too."""
    counts = Counts(canaries=60.0, guesses=20.0, correct=18.0)
    assert [type(each) for each in (counts.canaries, counts.correct)] == [int, int]
    weights = {"canaries": 9, "weights": (1.0, 2.0), "committed": True}
    reading = Weighted(guesses=(3.0, 3), correct=(2, 2.0), **weights)
    assert repr(reading.guesses + reading.correct) == "(3, 3, 2, 2)"
    with pytest.raises(InvalidInputError, match="guesses must be a whole number"):
        Weighted(guesses=(3.5, 3), correct=(2, 2), **weights)


def test_weights_are_floats_however_they_are_written():
    """One of 31 digits made an array of Python objects, of which there is no root."""
    counts = {"guesses": (3, 3), "correct": (2, 2), "committed": False}
    played = Weighted(canaries=9, weights=(1, 10**30), **counts)
    assert repr(played.weights) == "(1.0, 1e+30)"
    rounds = Rounds(canaries=9, rounds=(played,), round_weights=(1,), uniforms=(0.5,))
    assert (
        bound_for(rounds).epsilon_lower(rounds, delta=0.0, alpha=0.05).epsilon_lower
        >= 0
    )


def test_a_weight_far_above_another_gives_a_bound_without_a_warning():
    reading = Weighted(
        canaries=9,
        weights=(1.0, 2.0**32),
        guesses=(3, 3),
        correct=(2, 3),
        committed=False,
    )
    assert (
        bound_for(reading).epsilon_lower(reading, delta=0.0, alpha=0.05).epsilon_lower
        >= 0
    )
