"""Did the canaries arrive? Slopes against an oracle, and what they make of results."""

import json
from functools import cache

import numpy as np
import pytest

from dpaudit import ApproxDP, Coins, Design, OneRun
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Status
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result
from dpaudit.game.text.findings import sentence
from dpaudit.game.text.results import signal_sentence
from dpaudit.game.verdict import SignalRecovery
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.arrival import Arrivals
from dpaudit.training.result import guess_among

KEY = fixed_key(bytes(range(32)))
CLAIM = ApproxDP(epsilon=3.0, delta=1e-5)
N, STEPS, NOISE = 500, 40, 1.5


def audited(
    step, *, seed=0, knows_real_sums=True, canaries=N, claim=CLAIM, steps=STEPS
):
    """The result of a loop in which a step goes as it is told."""
    rules = OneRun(guesses=canaries // 5)
    design = Design(canaries=canaries, rules=rules, claim=claim)
    rng = np.random.default_rng(seed)
    audit = SumsAudit(
        design=design,
        key=fixed_key(rng.bytes(32)),
        dimension=canaries,
        sample_rate=0.2,
        knows_real_sums=knows_real_sums,
        unchecked=("sampling", "gradients", "clipping", "interference"),
    )
    for _ in range(steps):
        real = 0.3 * rng.normal(size=canaries) + 0.1
        noise = NOISE * rng.normal(size=canaries)
        noisy, known = step(audit.contributions(), real, noise)
        audit.observe(noisy, **({"real_sums": known} if knows_real_sums else {}))
    return audit.finish()


def honest(joined, real, noise):
    return real + joined + noise, real


@cache
def honest_run(seed, *, knows_real_sums=True):
    return audited(honest, seed=seed, knows_real_sums=knows_real_sums)


@pytest.mark.parametrize("knows_real_sums", [True, False])
def test_an_honest_loop_is_not_void(knows_real_sums):
    """Five errors of 25 slopes: a false alarm once in 60,000 times."""
    for seed in range(20 if knows_real_sums else 5):
        result = honest_run(seed, knows_real_sums=knows_real_sums)
        signal = result.training.signal
        assert signal.error < 0.08
        assert abs(signal.slope - 1) < 5 * signal.error
        assert result.verdict == "no violation detected"
        assert "canary signal recovered (slope" in result.details()


def test_the_error_is_that_of_slopes_from_run_to_run():
    found = [honest_run(seed).training.signal for seed in range(20)]
    spread = np.std([each.slope for each in found], ddof=1)
    # A standard deviation of 20 draws has an error of 16 %: four of these.
    assert spread == pytest.approx(np.mean([e.error for e in found]), rel=0.65)


def test_the_slope_is_that_of_least_squares():
    """With a constant for each step, as an own regression finds it."""
    rng = np.random.default_rng(5)
    joined = rng.integers(0, 3, (7, 30))
    sums = 0.8 * joined + rng.normal(size=(7, 30)) + rng.normal(size=(7, 1))
    arrivals = Arrivals(30, KEY)
    for s, j in zip(sums, joined, strict=True):
        arrivals.observe(s, j)
    steps = np.repeat(np.eye(7), 30, axis=0)
    design = np.column_stack([joined.ravel(), steps])
    best = np.linalg.lstsq(design, sums.ravel(), rcond=None)[0][0]
    assert arrivals.found().slope == pytest.approx(best, abs=1e-12)


def test_sums_that_are_no_numbers_are_passed_over():
    arrivals = Arrivals(4, KEY)
    joined = np.array([1.0, 0.0, 1.0, 0.0])
    arrivals.observe(np.array([1.0, 0.0, np.nan, np.inf]), joined)
    assert arrivals.found().slope == 1.0


def test_nothing_that_joined_has_no_slope():
    arrivals = Arrivals(4, KEY)
    arrivals.observe(np.ones(4), np.zeros(4))
    assert arrivals.found() is None


@pytest.mark.parametrize(
    ("slope", "error", "said"),
    [
        (1.08, 0.001, "canary signal recovered (slope 1.080 ± 0.001; expected: 1)"),
        (1.2, 0.05, "canary signal recovered (slope 1.200 ± 0.050; expected: 1)"),
        (1.2, 0.03, "canary signal 1.2 times its size"),
        (0.1, 0.03, "canary signal lost"),
        (0.01, 0.001, "canary signal 0.01 times its size"),
        (-1.1, 0.03, "canary signal recovered with the wrong sign"),
        (100.0, 0.03, "canary signal 100 times its size"),
        (100.0, 3.0, "canary signal 100 times its size"),
        (0.9, 0.3, "the canary signal cannot be distinguished from noise"),
        (0.0, np.inf, "the canary signal cannot be distinguished from noise"),
    ],
)
def test_a_slope_is_put_into_words(slope, error, said):
    signal = SignalRecovery(slope=slope, error=error, steps=9)
    assert signal_sentence(signal).startswith(said)


@pytest.mark.parametrize(
    ("slope", "by_program", "refuted", "status"),
    [
        (1.0, False, False, Status.PASSED),
        (1.0, False, True, Status.PASSED),
        # The audit itself put in more than a record may.
        (2.0, False, True, Status.INVALID_RUN),
        # The program did, and shows it.
        (2.0, True, True, Status.PASSED),
        (2.0, True, False, Status.INVALID_RUN),
        # Less than a record may, and the claim is refuted all the same.
        (0.5, False, True, Status.PASSED),
        (-1.0, False, False, Status.INVALID_RUN),
        (0.0, True, False, Status.INVALID_RUN),
    ],
)
def test_a_refutation_stands_if_no_more_went_in_than_a_record_may(
    slope, by_program, refuted, status
):
    signal = SignalRecovery(slope=slope, error=0.01, steps=9, by_program=by_program)
    assert signal.check(refuted=refuted).status is status


def test_few_canaries_cannot_show_that_they_arrived():
    result = audited(honest, canaries=10, claim=ApproxDP(epsilon=0.1, delta=0.0))
    assert result.training.signal.error > 0.2
    assert result.verdict == "inconclusive"


def test_an_audit_that_put_in_too_much_does_not_accuse():
    result = audited(lambda j, real, noise: (real + 100 * j + noise, real))
    assert result.claim_test.refuted
    assert not result.refuted


@pytest.mark.parametrize(("truly", "kept"), [(3.0, True), (0.0, False)])
def test_guesses_far_below_their_own_promise_are_told_of(truly, kept):
    """Stated log-odds of 3, guesses that are right so often, or by chance."""
    rng = np.random.default_rng(11)
    design = Design(canaries=N, rules=OneRun(guesses=100), claim=CLAIM)
    right = rng.random(N) < 1 / (1 + np.exp(-truly))
    included = Coins(key=KEY, count=N).bits() == 1
    odds = np.where(right == included, 3.0, -3.0)
    check = guess_among(Referee(design, KEY), np.arange(N), odds).calibration_check()
    assert check.status is (Status.PASSED if kept else Status.INCONCLUSIVE)
    assert check.numbers["expected"] == pytest.approx(100 / (1 + np.exp(-3)))
    assert "95 predicted" in sentence(check)


def test_honest_guesses_keep_their_promise():
    """The guesser measures its noise; no run in 20 is one in a million by its word."""
    for seed in range(20):
        check = honest_run(seed).sanity_checks[1]
        assert (check.code, check.status) == ("guesses_as_good", Status.PASSED)


def test_the_signal_survives_json():
    result = honest_run(0)
    again = Result.from_json(result.to_json())
    assert again.training.signal == result.training.signal
    assert again == result


@pytest.mark.parametrize(
    "signal",
    [
        {"slope": 1.0, "error": 0.1},
        {"slope": 1.0, "error": -0.1, "steps": 9, "by_program": False},
        {"slope": 1.0, "error": 0.1, "steps": 9, "by_program": 0},
        [],
    ],
)
def test_what_is_no_recovery_of_a_signal_is_refused(signal):
    plain = json.loads(honest_run(0).to_json())
    plain["training"]["signal"] = signal
    with pytest.raises(InvalidInputError):
        Result.from_json(json.dumps(plain))


def test_another_verdict_than_that_of_the_numbers_is_refused():
    plain = json.loads(honest_run(0).to_json()) | {"verdict": "claim refuted"}
    with pytest.raises(InvalidInputError):
        Result.from_json(json.dumps(plain))


def test_a_resumed_audit_has_the_slope_of_one_that_went_through(tmp_path):
    design = Design(canaries=N, rules=OneRun(guesses=100), claim=CLAIM)

    def go(audit, steps, rng):
        for _ in range(steps):
            audit.observe(audit.contributions() + NOISE * rng.normal(size=N))

    def started():
        return SumsAudit(design=design, key=KEY, dimension=N, sample_rate=0.2)

    whole = started()
    go(whole, 40, np.random.default_rng(3))
    rng, first = np.random.default_rng(3), started()
    go(first, 25, rng)
    first.save(tmp_path / "state.npz")
    second = started()
    second.resume(tmp_path / "state.npz")
    go(second, 15, rng)
    assert second.finish().training.signal == whole.finish().training.signal


def test_what_is_saved_tells_the_coins_to_no_one_without_the_key():
    """Sealed twice it looks different each time, and opens with its key only."""
    arrivals = Arrivals(64, KEY)
    arrivals.observe(np.arange(64.0), np.arange(64) % 2)
    one, two = arrivals.saved(), arrivals.saved()
    assert np.mean(one["arrival"] == two["arrival"]) < 0.05
    opened = Arrivals(64, KEY)
    opened.restore(two)
    assert opened.found() == arrivals.found()
    bits = np.unpackbits(one["arrival"])
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))


@pytest.mark.parametrize("sealed", [np.zeros(3, np.uint8), np.zeros(1024), None])
def test_a_state_that_holds_something_else_is_refused(sealed):
    arrivals = Arrivals(64, KEY)
    state = {k: v for k, v in arrivals.saved().items() if k != "arrival"}
    if sealed is not None:
        state["arrival"] = sealed
    with pytest.raises(InvalidInputError):
        arrivals.restore(state)


def test_what_tells_the_coins_cannot_be_pickled():
    with pytest.raises(InvalidRunError):
        Arrivals(4, KEY).__reduce__()


# Loops that lose their canaries, which an audit must not call fine.


# What a step shows, and what it says that real records put there.
FAULTS = {
    "never arrived": lambda j, real, noise: (real + noise, real),
    "negated": lambda j, real, noise: (real - j + noise, real),
    "scaled by 100": lambda j, real, noise: (real + 100 * j + noise, real),
    "scaled by 0.01": lambda j, real, noise: (real + 0.01 * (j + noise), real),
    "halved": lambda j, real, noise: (real + 0.5 * j + noise, real),
    "the real part holds them": lambda j, real, noise: (real + j + noise, real + j),
    "another model": lambda j, real, noise: (noise, real),
    "no noise and no canary": lambda j, real, noise: (0 * noise, 0 * real),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_loop_that_loses_its_canaries_is_not_reassured(fault):
    """Errors are about 0.035: each fault lies 14 or more from a slope of 1."""
    text = str(audited(FAULTS[fault]))
    assert text.startswith("INVALID RUN\n")
    assert "Nothing follows about the claim." in " ".join(text.split())


def test_a_loop_of_no_steps_is_void():
    with pytest.raises(InvalidRunError, match="no training step has run"):
        audited(FAULTS["halved"], steps=0)
