"""Bets against claims: fair under the claim, quick against faults, kept over nights."""

import json
import math
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dpaudit import (
    Adjacency,
    ApproxDP,
    GaussianDP,
    Key,
    PureDP,
    Verdict,
    ZeroConcentratedDP,
)
from dpaudit.bounds.whole_claim import event_limit
from dpaudit.errors import InvalidInputError
from dpaudit.testing import Calls, OneValue
from dpaudit.testing.betting import Bet, Bettor
from dpaudit.testing.calling import Calling
from dpaudit.testing.nightly import epochs, reset
from dpaudit.testing.sequential import Pair, audit_sequentially

REPLACE = Adjacency.REPLACE_ONE
PURE = PureDP(epsilon=1.0, adjacency=REPLACE)
APPROX = ApproxDP(epsilon=1.0, delta=0.02, adjacency=REPLACE)
BITS = [Pair("0 and 1", OneValue(x=0, y=1))]


def response(epsilon):
    kept = 1 / (1 + math.exp(-epsilon))

    def response(bit, rng):
        return bit if rng.random() < kept else 1 - bit

    return response


def sequential(function, claim=PURE, *, calls=4000, number=0, alpha=1e-3, **options):
    return audit_sequentially(
        function,
        **{"pairs": BITS, **options},
        claim=claim,
        alpha=alpha,
        budget=Calls(calls=calls),
        key=Key(number.to_bytes(32, "big")),
    )


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize(
    "claim", [PURE, APPROX, GaussianDP(mu=1.0), ZeroConcentratedDP(rho=0.5)]
)
def test_no_bet_is_favourable_under_the_claim(claim, one_sided):
    """Exactly: its expected factor at every pair of frequencies that is allowed."""
    limit = event_limit(claim, one_sided=one_sided)
    for correct, wrong in product((0.05, 0.3, 0.7, 0.99), (0.0, 0.01, 0.2)):
        lines = limit.lines
        for k in range(0, len(lines.slope), max(1, len(lines.slope) // 12)):
            bet = Bet.on(lines.number(k), correct=correct, wrong=wrong)
            for b in np.linspace(0, limit.last, 30):
                a = min(float(limit(b)), 1 - b)
                expected = sum(
                    probability * math.exp(bet.log_factor(**outcome))
                    for probability, outcome in (
                        (a, {"correct": 1, "wrong": 0, "silent": 0}),
                        (b, {"correct": 0, "wrong": 1, "silent": 0}),
                        (1 - a - b, {"correct": 0, "wrong": 0, "silent": 1}),
                    )
                )
                assert expected <= 1 + 1e-9


def test_a_bet_against_a_smaller_claim_is_favourable():
    """The oracle can fail."""
    line = event_limit(PureDP(epsilon=0.8), one_sided=False).tangent(0.2)
    bet = Bet.on(line, correct=0.7, wrong=0.2)
    wrong = 1 / (1 + math.e)  # at epsilon = 1
    won, lost = (
        math.exp(bet.log_factor(correct=c, wrong=1 - c, silent=0)) for c in (1, 0)
    )
    assert (1 - wrong) * won + wrong * lost > 1.01


@pytest.mark.parametrize(
    ("function", "claim", "most"),
    [
        (response(2.0), PURE, 800),
        (response(1.4), PURE, 3500),
        (lambda bit, rng: int(bit == 0 and rng.random() < 0.08), APPROX, 2500),
        (lambda v, rng: round(64 * (v + rng.normal() / 2)), GaussianDP(mu=1.0), 1200),
        (lambda v, rng: v + rng.laplace(), PURE, 2500),
    ],
    ids=["2x", "40 %", "delta", "gaussian", "low bits"],
)
def test_faults_are_found_in_few_calls(function, claim, most):
    found = [sequential(function, claim, number=i, calls=10_000) for i in range(3)]
    assert all(result.verdict is Verdict.CLAIM_REFUTED for result in found)
    assert np.median([result.calls for result in found]) < most


@pytest.mark.parametrize(
    ("claim", "audits"),
    [
        (APPROX, 25),
        pytest.param(PURE, 200, marks=pytest.mark.nightly),
        pytest.param(APPROX, 200, marks=pytest.mark.nightly),
    ],
)
def test_mechanisms_at_their_limit_are_seldom_refuted(claim, audits):
    """At alpha = 0.2; ``library_audits.py null`` of the lab makes 10,000."""

    def limit(bit, rng):
        told = isinstance(claim, ApproxDP) and rng.random() < claim.delta
        return ("told", bit) if told else response(1.0)(bit, rng)

    refuted = sum(
        sequential(limit, claim, number=i, calls=500, alpha=0.2).refuted
        for i in range(audits)
    )
    assert refuted <= stats.binom.isf(1e-3, audits, 0.2)


def test_the_faulty_one_of_many_pairs_is_found():
    def function(value, rng):
        return int(value == 7) if rng.random() < 0.2 else response(1.0)(value % 2, rng)

    pairs = [Pair(f"{i} and {i + 1}", OneValue(x=i, y=i + 1)) for i in range(0, 24, 3)]
    result = sequential(function, pairs=pairs, calls=20_000)
    assert result.refuted
    assert result.pairs[0].label == "6 and 7"
    assert len(result.pairs) == 8
    assert "over 8 pairs" in str(result)


def test_without_power_it_is_inconclusive():
    result = sequential(response(1.0), calls=60)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "allow more calls" in str(result)


@pytest.mark.parametrize("calls", [1500, pytest.param(6000, marks=pytest.mark.nightly)])
def test_what_would_be_detected_is(calls):
    """The stated leak of 90 %: found in most of 12 audits."""
    sound = sequential(response(1.0), calls=calls)
    assert sound.verdict is Verdict.NO_VIOLATION_DETECTED
    leak = response(sound.detectable_epsilon)
    found = [sequential(leak, calls=calls, number=i + 1) for i in range(12)]
    assert sum(result.refuted for result in found) >= 9


def nights(folder, function, count, *, claim=PURE, calls=600, start=0):
    return [
        sequential(function, claim, calls=calls, number=start + i, state=folder)
        for i in range(count)
    ]


def test_evidence_of_many_nights_adds_up(tmp_path):
    small = response(1.35)
    assert not sequential(small, calls=600).refuted
    found = nights(tmp_path, small, 12)
    assert not found[0].refuted
    assert found[-1].refuted
    runs = [result.epoch.runs for result in found]
    first = [result.refuted for result in found].index(True)
    assert runs[: first + 1] == list(range(1, first + 2))
    last = found[-1]
    assert last.calls == 0  # refuted before: nothing more is called
    assert last.epoch.alpha == pytest.approx(1e-3 * 6 / math.pi**2)
    assert "Evidence of" in str(last)


def test_a_reset_begins_an_epoch_at_a_smaller_level(tmp_path):
    nights(tmp_path, response(3.0), 2)
    reset(tmp_path, why="fixed in 1.2")
    after = nights(tmp_path, response(1.0), 1)[0]
    assert not after.refuted
    assert after.epoch.number == 2
    assert after.alpha == pytest.approx(1e-3 * 6 / (2 * math.pi) ** 2)
    assert "fixed in 1.2" in str(after)
    assert "refuted in epoch 1" in str(after)
    levels = [each.alpha for each in epochs(tmp_path)]
    assert sum(levels) < 1e-3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"claim": PureDP(epsilon=1.1, adjacency=REPLACE)}, "the claim changed"),
        ({"pairs": [Pair("0 and 1", OneValue(x=1, y=0))]}, "the inputs changed"),
        ({"alpha": 0.01}, "the significance level changed"),
    ],
)
def test_a_change_begins_an_epoch(tmp_path, change, why):
    nights(tmp_path, response(1.0), 1)
    result = sequential(response(1.0), **{"state": tmp_path, "calls": 200, **change})
    assert result.epoch.number == 2
    assert result.epoch.why == why
    assert result.epoch.runs == 1


def test_another_function_begins_an_epoch_and_another_version_does_not(tmp_path):
    nights(tmp_path, response(1.0), 1)
    assert nights(tmp_path, response(1.01), 1)[0].epoch.number == 1
    other = sequential(lambda bit: 0, state=tmp_path, calls=200)
    assert other.epoch.why == "the function changed"


@pytest.mark.parametrize("damage", ["edit", "cut", "empty", "other"])
def test_an_edited_file_begins_an_epoch(tmp_path, damage):
    nights(tmp_path, response(1.0), 1)
    file = tmp_path / "epoch-0001.json"
    text = file.read_text()
    plain = json.loads(text)
    plain["log_e_value"] = 3.0
    damaged = {
        "edit": json.dumps(plain),
        "cut": text[:200],
        "empty": "",
        "other": json.dumps({"format": "other"}),
    }
    file.write_text(damaged[damage])
    result = nights(tmp_path, response(1.0), 1)[0]
    assert result.epoch.number == 2
    assert "damaged or was edited" in str(result)


def test_a_missing_file_begins_an_epoch_of_a_new_number(tmp_path):
    nights(tmp_path, response(1.0), 1)
    reset(tmp_path, why="a fix")
    (tmp_path / "epoch-0002.json").unlink()
    again = nights(tmp_path, response(1.0), 1)[0]
    assert again.epoch.number == 3
    assert "missing" in again.epoch.why


def test_a_lost_folder_is_named(tmp_path):
    first = nights(tmp_path / "new", response(1.0), 2)
    assert "No earlier state was found" in str(first[0])
    assert "No earlier state was found" not in str(first[1])


def test_what_was_learned_holds_in_another_process(tmp_path):
    """Outputs are texts, whose hashes in Python differ from process to process."""
    code = """
import sys
from dpaudit import Key, PureDP
from dpaudit.testing import Calls, OneValue
from dpaudit.testing.sequential import Pair, audit_sequentially

def words(bit, rng):
    bit = bit if rng.random() < 0.9 else 1 - bit
    return ["no", "yes"][bit]

result = audit_sequentially(
    words, pairs=[Pair("bits", OneValue(x=0, y=1))], claim=PureDP(epsilon=1.0),
    alpha=1e-15, budget=Calls(calls=200), state=sys.argv[1],
    key=Key(sys.argv[2].encode() * 32),
)
print(result.log_e_value)
"""
    logs = []
    for seed in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(seed)],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        )
        logs.append(float(done.stdout))
    assert logs[1] > logs[0] + 6  # bets began at once, with what was learned before


def test_a_run_that_breaks_off_is_counted(tmp_path):
    calls = []

    def breaks(bit, rng):
        calls.append(bit)
        if len(calls) > 900:
            raise RuntimeError("broken")
        return response(1.2)(bit, rng)

    with pytest.raises(RuntimeError, match="broken"):
        sequential(breaks, alpha=1e-9, calls=5000, state=tmp_path)
    (epoch,) = epochs(tmp_path)
    assert epoch.runs == 1
    assert epoch.calls > 500


@pytest.mark.parametrize(
    ("pairs", "message"),
    [([], "at least one pair"), ([*BITS, *BITS], "labels must differ")],
)
def test_pairs_that_are_none_are_refused(pairs, message):
    with pytest.raises(InvalidInputError, match=message):
        sequential(response(1.0), pairs=pairs)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(InvalidInputError, match="must be a folder"):
        sequential(response(1.0), state=tmp_path / "state")


def test_the_same_key_on_kept_evidence_makes_other_coins(tmp_path):
    """Otherwise noise seeded from it would come again, and be known."""
    found = [
        sequential(
            lambda value: np.random.normal(),  # noqa: NPY002 (as the function may)
            calls=600,
            state=tmp_path,
        )
        for _ in range(3)
    ]
    assert not any(result.refuted for result in found)
    assert found[-1].log_e_value < 3


def test_two_processes_do_not_use_the_same_evidence_at_once(tmp_path):
    inside = []

    def function(bit, rng):
        if not inside:
            inside.append(bit)
            with pytest.raises(InvalidInputError, match="another process uses"):
                nights(tmp_path, response(1.0), 1)
        return response(1.0)(bit, rng)

    nights(tmp_path, function, 1)
    assert inside


def test_a_batch_that_breaks_off_loses_what_it_could_have_lost():
    calls = []

    def breaks(bit, rng):
        calls.append(bit)
        if len(calls) > 700:
            raise RuntimeError("broken")
        return response(2.5)(bit, rng)

    bettor = Bettor(
        Calling(function=breaks, neighbours=BITS[0].neighbours, raising=()), PURE
    )
    batches = bettor.run(5000, np.random.default_rng(0), np.random.default_rng(1))
    before = 0.0
    with pytest.raises(RuntimeError, match="broken"):  # noqa: PT012 (batch by batch)
        for _ in batches:
            before = bettor.log_wealth
    assert bettor.log_wealth < before - 1
