"""The ledger: one look at each road, the stronger of two, faults by their chance."""

import pytest

from dpaudit._codec import decode, encode
from dpaudit.errors import InvalidInputError
from dpaudit.game.ledger import Fault, How, Ledger, Look, Road


def look(road, how, said="seen"):
    return Look(road=road, how=how, said=said)


def fault(chance):
    return Fault(
        road=Road.NOISE,
        said=f"wrong by {chance}",
        measured="0",
        claimed="1",
        cause="none",
        chance=chance,
    )


def test_a_road_that_nobody_looked_at_is_entered_as_such():
    ledger = Ledger.of([look(Road.CLIPPING, How.PROBED)], instead="nobody")
    assert [each.road for each in ledger.looks] == list(Road)
    assert {each.said for each in ledger.looks if each.road != "clipping"} == {"nobody"}
    assert ledger.roads(How.PROBED) == ("clipping",)
    assert len(ledger.roads(How.NOT_LOOKED_AT)) == len(Road) - 1


@pytest.mark.parametrize(
    ("first", "second", "how", "said"),
    [
        (How.NOT_LOOKED_AT, How.NOT_LOOKED_AT, How.NOT_LOOKED_AT, "b"),
        (How.NOT_LOOKED_AT, How.PROBED, How.PROBED, "b"),
        (How.PROBED, How.NOT_LOOKED_AT, How.PROBED, "a"),
        (How.PROBED, How.AUDITED, How.AUDITED, "b; a"),
        (How.AUDITED, How.PROBED, How.AUDITED, "a; b"),
        (How.PROBED, How.PROBED, How.PROBED, "a; b"),
    ],
)
def test_of_two_looks_the_stronger_counts_and_both_are_told(first, second, how, said):
    ledger = Ledger.of([look(Road.NOISE, first, "a"), look(Road.NOISE, second, "b")])
    (found,) = (each for each in ledger.looks if each.road is Road.NOISE)
    assert (found.how, found.said) == (how, said)


def test_the_surest_fault_comes_first():
    ledger = Ledger.of((), [fault(1e-5), fault(0.0), fault(1e-9)])
    assert [each.chance for each in ledger.faults] == [0.0, 1e-9, 1e-5]


@pytest.mark.parametrize("roads", [list(Road)[:-1], [*Road, Road.NOISE], [*Road][::-1]])
def test_a_ledger_with_other_roads_is_refused(roads):
    with pytest.raises(InvalidInputError, match="one look at each road"):
        Ledger(looks=tuple(look(road, How.PROBED) for road in roads))


def test_a_chance_is_a_probability():
    with pytest.raises(InvalidInputError, match="chance"):
        fault(1.5)


def test_it_is_written_and_read_like_any_record():
    ledger = Ledger.of([look(Road.SAMPLING, How.AUDITED)], [fault(1e-6)])
    assert decode(Ledger, encode(ledger), "ledger") == ledger
