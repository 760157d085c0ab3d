"""The adapter for any loop conforms; those that lose, leak or invent are caught.

Random, with fixed seeds: the check of an adapter that conforms fails with chance 1e-6.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from dpaudit import ApproxDP, Coins, Design, Ranking
from dpaudit.errors import ConformanceError, InvalidInputError
from dpaudit.game.setting import Setting
from dpaudit.testing import fixed_key
from dpaudit.testing.conformance_adapter import Trained, check_adapter
from dpaudit.training.any_loop import SumsAudit

CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
NOISE, STEPS, COORDINATES = 2.26, 20, 300


@dataclass(frozen=True)
class Loop:
    """A loop in plain numpy under SumsAudit, with one thing done wrong if asked."""

    per_coordinate: int = 1
    fault: str = ""
    rate: float = 0.3

    def train(self, *, key, noise, folder):
        design = Design(
            canaries=self.per_coordinate * COORDINATES,
            rules=Ranking(guesses=100),
            claim=CLAIM,
            setting=Setting(per_coordinate=self.per_coordinate),
        )
        played = fixed_key(bytes(32)) if self.fault == "another key" else key
        audit = SumsAudit(
            design=design, key=played, dimension=COORDINATES, sample_rate=self.rate
        )
        rng = np.random.default_rng(int.from_bytes(key.secret[:4]))
        joined, seen = [], []
        for _ in range(STEPS):
            inside = audit.contributions()
            if self.fault == "everybody joins":
                inside = inside + 1
            noisy = inside + noise * rng.normal(size=COORDINATES)
            match self.fault:
                case "clipped twice" | "clipped twice, unrecorded":
                    noisy = 0.5 * inside + noise * rng.normal(size=COORDINATES)
                case "no canaries":
                    noisy = noise * rng.normal(size=COORDINATES)
                case "half the noise":
                    noisy = inside + noise / 2 * rng.normal(size=COORDINATES)
                case "reads before the noise" if noise > 100 * NOISE:
                    noisy = inside
                case "deaf" if noise < NOISE:
                    noisy = NOISE * rng.normal(size=COORDINATES)
            audit.observe(noisy / 2 if self.fault == "read halved" else noisy)
            # Its author may write down what arrived, and what there was to read.
            arrived = 0.5 if self.fault == "clipped twice, unrecorded" else 1.0
            joined.append(arrived * inside * (1 + 1e-12))
            seen.append(noisy)
        audit.save(folder / "state.npz")
        self.leak(key, folder, design.canaries)
        result = audit.finish()
        return Trained(result=result, joined=np.array(joined), seen=np.array(seen))

    def leak(self, key, folder, canaries):
        bits = Coins(key=key, count=canaries).bits()
        match self.fault:
            case "saves the key":
                (folder / "checkpoint.bin").write_bytes(b"x" + key.secret + b"y")
            case "logs the key":
                (folder / "log.txt").write_text(f"key={key.secret.hex()}")
            case "saves the coins":
                np.savez_compressed(folder / "more.npz", mask=bits.astype(bool))
            case "saves signs":
                np.save(folder / "signs.npy", 2.0 * bits - 1)
            case "saves packed coins":
                np.save(folder / "packed.npy", np.packbits(bits))


def check(adapter, folder, *, noise=NOISE, false_alarm=1e-6, seed=0):
    rng = np.random.default_rng(seed)
    return check_adapter(
        adapter, noise=noise, folder=folder, rng=rng, false_alarm=false_alarm
    )


@pytest.mark.parametrize("per_coordinate", [1, 4])
def test_the_adapter_for_any_loop_conforms(per_coordinate, tmp_path):
    found = check(Loop(per_coordinate), tmp_path)
    assert "neither key nor coins are in the 1 files saved" in str(found)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("clipped twice", r"raises what the guesser sees by 0\.\d+ .* should by 1"),
        ("clipped twice, unrecorded", "is invalid: canary signal 0.5"),
        ("read halved", "is invalid: canary signal 0.5"),
        ("no canaries", r"raises what the guesser sees by -?0\.\d+ .* should by 1"),
        ("half the noise", "varies by 1.* less than the noise"),
        ("everybody joins", "where the coins include 0"),
        ("another key", "the commitment does not hold"),
        ("reads before the noise", "knows the coins from elsewhere"),
        ("deaf", r"0\.05 times the claimed noise is not refuted"),
        ("saves the key", r"the key is in the file checkpoint\.bin"),
        ("logs the key", r"in hex digits, in the file log\.txt"),
        ("saves the coins", r"as int8, in the file more\.npz/mask\.npy"),
        ("saves signs", r"signs of float64, in the file signs\.npy"),
        ("saves packed coins", r"packed big end first, in the file packed\.npy"),
    ],
)
def test_a_fault_is_caught_and_named(fault, message, tmp_path):
    with pytest.raises(ConformanceError, match=message):
        check(Loop(fault=fault), tmp_path)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "fault", ["clipped twice", "clipped twice, unrecorded", "read halved"]
)
def test_canaries_at_half_their_size_are_caught_whatever_the_keys(
    fault, seed, tmp_path
):
    """So few join that the claimed noise hides it; a twentieth of it does not."""
    with pytest.raises(
        ConformanceError,
        match=r"claimed noise: canary signal 0\.[45]|is invalid|should by 1",
    ):
        check(Loop(fault=fault, rate=0.12), tmp_path, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_where_few_join_the_adapter_for_any_loop_conforms_too(seed, tmp_path):
    check(Loop(rate=0.12), tmp_path, seed=seed)


@dataclass(frozen=True)
class KnownRecords:
    """A loop that says what real records put in, and reads as it is asked to."""

    real: float = 0.0
    told: bool = True
    before: bool = False

    def train(self, *, key, noise, folder):
        del folder
        design = Design(canaries=COORDINATES, rules=Ranking(guesses=150), claim=CLAIM)
        audit = SumsAudit(
            design=design,
            key=key,
            dimension=COORDINATES,
            sample_rate=0.3,
            knows_real_sums=True,
        )
        rng = np.random.default_rng(int.from_bytes(key.secret[:4]))
        joined, seen = [], []
        for _ in range(STEPS):
            inside = audit.contributions()
            real = self.real * rng.normal(size=COORDINATES)
            noisy = real + inside + noise * rng.normal(size=COORDINATES)
            audit.observe(
                real + inside if self.before else noisy,
                real_sums=self.told * real,
            )
            joined.append(inside)
            seen.append(noisy - self.told * real)
        return Trained(
            result=audit.finish(), joined=np.array(joined), seen=np.array(seen)
        )


def test_a_loop_that_says_what_real_records_put_in_conforms(tmp_path):
    assert "no state was saved" in str(check(KnownRecords(real=3.0), tmp_path))


def test_a_real_part_that_is_left_in_is_asked_for(tmp_path):
    with pytest.raises(ConformanceError, match="Is the real records' part taken off"):
        check(KnownRecords(real=10.0, told=False), tmp_path)


@pytest.mark.parametrize(
    ("false_alarm", "said"),
    [(0.01, "claimed noise is refuted"), (1e-6, "still correct")],
)
def test_an_audit_that_reads_before_the_noise_is_asked_whether_it_does(
    false_alarm, said, tmp_path
):
    asked = f"{said}.* does the audit read before the noise"
    with pytest.raises(ConformanceError, match=asked):
        check(KnownRecords(before=True), tmp_path, false_alarm=false_alarm)


def test_a_claim_that_the_noise_does_not_keep_is_caught(tmp_path):
    with pytest.raises(ConformanceError, match="does the claim hold with that noise"):
        check(Loop(), tmp_path, noise=0.2, false_alarm=0.01)


def test_what_cannot_be_checked_is_refused(tmp_path):
    (tmp_path / "old.txt").write_text("x")
    with pytest.raises(InvalidInputError, match="folder must be empty"):
        check(Loop(), tmp_path)
    with pytest.raises(InvalidInputError, match="noise must be"):
        check(Loop(), tmp_path, noise=0.0)
    with pytest.raises(InvalidInputError, match="two tables of one shape"):
        Trained(result=None, joined=np.zeros(3), seen=np.zeros((3, 1)))
