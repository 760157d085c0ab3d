"""Nothing that is written before the key is revealed tells a coin.

Two kinds of tests. Every byte of real audits is searched for the key and the coins in
many forms, and a search that finds what was planted. And, which no search can show:
what is written is the same whatever the key, apart from the commitment, as long as the
mechanism shows the same.
"""

import copy
import io
import logging
import pickle
import traceback

import numpy as np
import pytest
from key_traces import traces, written
from typer.testing import CliRunner

from dpaudit import (
    AdaptiveCount,
    AdaptiveMostLikely,
    ApproxDP,
    Coins,
    Design,
    Key,
    MostLikely,
    OneRun,
    PureDP,
    audit_adaptive,
    audit_one_run,
)
from dpaudit.cli import app
from dpaudit.errors import InvalidRunError
from dpaudit.evidence import evidence_of, register, seal
from dpaudit.game import Referee
from dpaudit.game.result import conclude
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

KEYS = [fixed_key(np.random.default_rng(seed).bytes(32)) for seed in (1, 2)]
CANARIES = 256
CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)
DESIGN = Design(canaries=CANARIES, rules=OneRun(guesses=40), claim=CLAIM)
RESPONSE = LocalRandomisedResponse(epsilon=1.0)


def masked(text, key, design=DESIGN):
    """Return a text without the commitment, which must be in it."""
    commitment = register(design, key).commitment
    for each in (commitment.sha256, commitment.run_digest):
        assert each in text
        text = text.replace(each, "-" * 64)
    return text


# The search finds what was planted


@pytest.mark.parametrize(
    "plant",
    [
        lambda key, bits: key.secret,
        lambda key, bits: key.secret.hex().encode(),
        lambda key, bits: np.packbits(bits).tobytes(),
        lambda key, bits: bits.tobytes(),
        lambda key, bits: (2.0 * bits - 1).tobytes(),
        lambda key, bits: str(bits.astype(bool).tolist()).encode(),
        lambda key, bits: str(np.flatnonzero(bits).tolist()).encode(),
        lambda key, bits: Coins(key=key, count=CANARIES).to_json().encode(),
        lambda key, bits: seal(revealed(key)).encode(),
        lambda key, bits: zipped(coins=bits),
        lambda key, bits: zipped(part=bits[100:200]),
    ],
)
def test_a_planted_trace_is_found(plant):
    key, other = KEYS
    content = b"before " + plant(key, Coins(key=key, count=CANARIES).bits())
    if content[7:9] == b"PK":
        content = content[7:]
    assert traces(key, CANARIES, content)
    assert not traces(other, CANARIES, content)


def zipped(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def played(key, right=30):
    """Return the transcript of a game with so many right guesses of forty."""
    referee = Referee(DESIGN, key)
    guess = 2 * Coins(key=key, count=CANARIES).bits()[:40].astype(int) - 1
    guess[right:] *= -1
    referee.submit(np.arange(40), guess)
    return referee.close()


def revealed(key):
    transcript = played(key)
    commitment = register(DESIGN, key).commitment
    result = conclude(transcript, commitment=commitment)
    return evidence_of(result, key=key, transcript=transcript)


# What is published before a run


def test_a_registration_is_the_same_for_every_key_but_for_its_commitment():
    texts = [masked(register(DESIGN, key).to_json(), key) for key in KEYS]
    assert texts[0] == texts[1]


def test_commitments_of_all_keys_look_alike():
    """Over keys, each of the 256 bits is a fair coin and unrelated to the first coin.

    Six standard deviations of 512 counts: a false alarm of 1e-6 before keys were fixed.
    """
    rng, bits, coins = np.random.default_rng(3), [], []
    for _ in range(1000):
        key = fixed_key(rng.bytes(32))
        digest = bytes.fromhex(register(DESIGN, key).commitment.sha256)
        bits.append(np.unpackbits(np.frombuffer(digest, np.uint8)).astype(int))
        coins.append(Coins(key=key, count=1).bits())
    for ones in (np.array(bits), np.array(bits) ^ np.array(coins)):
        assert np.abs(ones.sum(axis=0) - 500).max() < 6 * np.sqrt(250)


def test_register_shows_neither_key_nor_coins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app,
        ["register", "--canaries=256", "--epsilon=1", "--delta=0", "--key=secret.key"],
    )
    assert done.exit_code == 0
    key = Key.read("secret.key")
    content = written(tmp_path)
    assert set(content) == {"secret.key", "design.json"}
    assert not traces(key, CANARIES, content["design.json"])
    assert not traces(key, CANARIES, done.output.encode())
    assert traces(key, CANARIES, content["secret.key"])


# What is said and written during a run


class Silent:
    """A mechanism whose output does not depend on its data."""

    def run(self, data, rng):
        logging.getLogger("program").debug("running on %d records", len(data))
        return rng.choice([-1, 1], len(data)).astype(np.int8)


def test_a_game_says_nothing_to_any_log(caplog, capfd):
    """At the lowest level; also in what Python prints of the parts, and of an error."""
    caplog.set_level(logging.DEBUG)
    claim = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
    rules, key = AdaptiveCount(guesses=100), KEYS[0]
    one_run = Design(canaries=CANARIES, rules=OneRun(guesses=40), claim=claim)
    adaptive = Design(canaries=CANARIES, rules=rules, claim=claim)
    game = {"pairs": RESPONSE.pairs, "rng": np.random.default_rng(0), "key": key}
    guesser = MostLikely(mechanism=RESPONSE, guesses=40)
    audit_one_run(Silent(), guesser, design=one_run, **game)
    player = AdaptiveMostLikely(mechanism=RESPONSE, threshold=0.5, rules=rules)
    audit_adaptive(Silent(), player, design=adaptive, **game)
    referee = Referee(one_run, key)
    parts = [key, Coins(key=key, count=CANARIES), referee, vars(referee).keys()]
    said = [f"{part} {part!r}" for part in parts]
    try:
        referee.submit([0, 0], [1, 1])
    except InvalidRunError:
        said.append(traceback.format_exc())
    out, err = capfd.readouterr()
    said += [out, err, caplog.text]
    assert "running on 256 records" in caplog.text
    assert not traces(key, CANARIES, "\n".join(said).encode())


def arrays_of(path, commitment):
    """Return what a state holds but its commitment, which must be this, and the seals.

    What the sums showed, and how they answered to the coins, is sealed with the key.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name].tobytes() for name in file.files}
        assert str(file["commitment"]) == commitment.sha256
    for name in ("commitment", "arrival", "arrival.steps", "seen number"):
        del arrays[name]
    return {
        name: len(array) if name.startswith("seen.") else array
        for name, array in arrays.items()
    }


def test_states_are_the_same_for_every_key_if_the_sums_are(tmp_path):
    """So nothing in them was made of coins or draws, but through the noisy sums."""
    path, states = tmp_path / "state.npz", []
    for key in KEYS:
        audit, rng = opened(key), np.random.default_rng(0)
        for _ in range(4):
            audit.contributions()
            audit.observe(rng.normal(size=CANARIES))  # whatever joins
            audit.save(path)
            assert not traces(key, CANARIES, path.read_bytes())
            opened_by_key = audit._audit.likelihood.saved()
            plain = {name: array.tobytes() for name, array in opened_by_key.items()}
            states.append((arrays_of(path, audit.commitment), plain))
    assert states[:4] == states[4:]
    assert states[0] != states[1]


def opened(key):
    return SumsAudit(design=DESIGN, key=key, dimension=300, sample_rate=1.0)


@pytest.mark.parametrize("noise", [0.5, 0.0])
def test_states_of_a_loop_hold_no_trace_even_if_the_sums_do(noise, tmp_path):
    audit, rng = opened(KEYS[0]), np.random.default_rng(0)
    for step in range(3):
        audit.observe(audit.contributions() + noise * rng.normal(size=CANARIES))
        audit.save(tmp_path / f"state-{step}.npz")
    states = written(tmp_path).values()
    assert len(states) == 3
    assert not any(traces(KEYS[0], CANARIES, state) for state in states)
    plain = zipped(**audit._audit.likelihood.saved())
    assert bool(traces(KEYS[0], CANARIES, plain)) is (noise == 0)


def test_no_number_that_was_read_is_in_a_state(tmp_path):
    """Whoever made the noise could look up where: eight bytes of it are enough."""
    audit, rng = opened(KEYS[0]), np.random.default_rng(0)
    noise = rng.normal(size=300)
    total = noise.copy()
    total[audit.coordinates] += audit.contributions()
    audit.observe(total[audit.coordinates])
    audit.save(tmp_path / "state.npz")
    state = (tmp_path / "state.npz").read_bytes()
    plain = zipped_plainly(**audit._audit.likelihood.saved())
    found = [number.tobytes() in plain for number in total]
    assert np.flatnonzero(found).tolist() == audit.coordinates.tolist()
    assert not any(number.tobytes() in state for number in (*noise, *total))


def zipped_plainly(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


# What is published after a run by who keeps the key


def test_redacted_evidence_is_the_same_for_every_key_with_the_same_count():
    texts = []
    for key in KEYS:
        evidence = revealed(key)
        assert traces(key, CANARIES, seal(evidence).encode())
        redacted = evidence.redact()
        assert not traces(key, CANARIES, seal(redacted).encode())
        texts.append(masked(redacted.to_json(), key))
    assert texts[0] == texts[1]


def test_metrics_are_the_same_for_every_key_with_the_same_count():
    found = []
    for key in KEYS:
        metrics = revealed(key).result.metrics()
        committed = metrics.pop("dpaudit/commitment")
        assert committed == register(DESIGN, key).commitment.sha256
        found.append(metrics)
    assert found[0] == found[1]


# Pickle


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_key_is_not_pickled_with_whatever_holds_it(protocol):
    for holder in (KEYS[0], Coins(key=KEYS[0], count=9), {"key": KEYS[0]}):
        with pytest.raises(InvalidRunError, match=r"keep it with key\.write"):
            pickle.dumps(holder, protocol=protocol)
    with pytest.raises(InvalidRunError, match="cannot be pickled"):
        pickle.dumps(opened(KEYS[0]), protocol=protocol)


def test_a_copy_of_a_key_is_the_key():
    assert copy.copy(KEYS[0]) is KEYS[0]
    assert copy.deepcopy({"key": KEYS[0]})["key"] is KEYS[0]
