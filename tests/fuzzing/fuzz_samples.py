"""Valid inputs of every reader, as bytes: what mutants are made from."""

import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from evidence_mutants import contents
from evidence_samples import KEY, KINDS, of_scores

from dpaudit import (
    ApproxDP,
    Coins,
    Design,
    GaussianDP,
    OneRun,
    Pairs,
    PrivacyCurve,
    PureDP,
)
from dpaudit.bounds.readings import (
    Bets,
    BiasedCoinCounts,
    Counts,
    Ranked,
    Rounds,
    Weighted,
)
from dpaudit.evidence import Evidence, register, seal
from dpaudit.evidence.signing import SigningKey
from dpaudit.game.transcript import Transcript
from dpaudit.training.any_loop import SumsAudit

SIGNER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


@cache
def all_evidence() -> tuple[Evidence, ...]:
    """Return evidence of every kind."""
    with TemporaryDirectory() as folder:
        return (*(make() for make in KINDS.values()), of_scores(Path(folder)))


def designs() -> Iterator[bytes]:
    for evidence in all_evidence():
        yield evidence.registration.design.to_json().encode()
    curve = PrivacyCurve(epsilons=np.array([0.0, 1.0]), deltas=np.array([0.2, 1e-6]))
    for claim in (PureDP(epsilon=1.0), GaussianDP(mu=1.0), curve):
        rules, delta = OneRun(guesses=5), None if claim == PureDP(epsilon=1.0) else 1e-5
        yield (
            Design(canaries=9, rules=rules, claim=claim, delta=delta).to_json().encode()
        )


def registrations() -> Iterator[bytes]:
    for evidence in all_evidence()[:3]:
        yield evidence.registration.to_json().encode()


def commitments() -> Iterator[bytes]:
    design = all_evidence()[0].registration.design
    commitment = register(design, KEY).commitment
    assert commitment is not None
    yield commitment.to_json().encode()


def coins() -> Iterator[bytes]:
    yield Coins(key=KEY, count=10).to_json().encode()


def pairs() -> Iterator[bytes]:
    yield Pairs(x=0, y=1).to_json().encode()
    yield (
        Pairs(x=[[0.0, 1.0], [1.0, 0.0]], y=[[1.0, 1.0], [2.0, 2.0]]).to_json().encode()
    )
    yield Pairs(x=["a", "b"], y=["c", "d"]).to_json().encode()


def readings() -> Iterator[bytes]:
    for evidence in all_evidence():
        yield evidence.result.reading.to_json().encode()
    weighted = Weighted(
        canaries=9, weights=(1.0, 2.0), guesses=(3, 3), correct=(2, 3), committed=False
    )
    for reading in (
        Counts(canaries=100, guesses=50, correct=40),
        BiasedCoinCounts(
            canaries=100,
            inclusion=0.3,
            guesses_in=20,
            guesses_out=20,
            correct=30,
            committed=True,
        ),
        Ranked(canaries=4, right=np.array([True, False, True])),
        weighted,
        Rounds(canaries=9, rounds=(weighted,), round_weights=(1.0,), uniforms=(0.5,)),
        Bets(
            canaries=4,
            right=np.array([True, False]),
            stated_probabilities=np.array([0.7, 0.6]),
        ),
    ):
        yield reading.to_json().encode()


def transcripts() -> Iterator[bytes]:
    for evidence in all_evidence():
        if isinstance(evidence.guesses, Transcript):
            yield evidence.guesses.to_json().encode()


def results() -> Iterator[bytes]:
    for evidence in all_evidence():
        yield evidence.result.to_json().encode()


def statements() -> Iterator[bytes]:
    """Yield what is in the envelope of evidence."""
    for evidence in all_evidence():
        yield contents(seal(evidence))[0]


def envelopes() -> Iterator[bytes]:
    for evidence in all_evidence()[:-1]:  # score files are not beside it
        yield seal(evidence, SIGNER).encode()


def score_files() -> Iterator[bytes]:
    guesses = all_evidence()[-1].guesses
    assert guesses is not None
    yield guesses.to_json().encode()


def tables() -> Iterator[bytes]:
    """Yield tables of scores as CSV."""
    yield b"id,bit,score\n1,1,0.5\n0,0,-2\n2,1,1e-3\n"
    yield b'\xef\xbb\xbfscore,ids,bits\r\n0.5,a,true\r\n-0.0,"b,c",False\r\n'


def lists() -> Iterator[bytes]:
    """Yield lists of scores as CSV."""
    yield b"0.5\n-1\n2e3\n"
    yield b"score\n1\n2\n"


def archives() -> Iterator[bytes]:
    """Yield .npz files with tables, and with lists."""
    ids, bits, scores = np.arange(5), np.array([0, 1, 1, 0, 1]), np.linspace(-1, 1, 5)
    for arrays in (
        {"id": ids, "bit": bits, "score": scores},
        {"ids": ids.astype("U3"), "bits": bits == 1, "scores": scores.astype(">f4")},
        {"id": ids.astype("S3"), "score": scores.astype(np.float16)},
        {"in_scores": scores, "out_scores": scores[:3]},
        {"scores": scores},
    ):
        for save in (np.savez, np.savez_compressed):
            file = io.BytesIO()
            save(file, **arrays)
            yield file.getvalue()


def arrays() -> Iterator[bytes]:
    """Yield .npy files."""
    for array in (np.linspace(-1, 1, 5), np.arange(4, dtype=">i2"), np.zeros((2, 2))):
        file = io.BytesIO()
        np.save(file, array)
        yield file.getvalue()


@cache
def audit() -> SumsAudit:
    """Return an audit of a training whose state can be saved and resumed."""
    design = Design(
        canaries=12, rules=OneRun(guesses=4), claim=ApproxDP(epsilon=1.0, delta=1e-6)
    )
    return SumsAudit(design=design, key=KEY, dimension=20, sample_rate=0.5)


def states() -> Iterator[bytes]:
    """Yield states of that audit after none, one and three steps."""
    design = audit().design
    seen = SumsAudit(design=design, key=KEY, dimension=20, sample_rate=0.5)
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        for step in range(4):
            if step != 2:
                seen.save(path)
                yield path.read_bytes()
            seen.observe(seen.contributions() + rng.normal(size=len(seen.coordinates)))


def keys() -> Iterator[bytes]:
    yield KEY.secret.hex().encode()


def public_keys() -> Iterator[bytes]:
    with TemporaryDirectory() as folder:
        SIGNER.public_key.write(path := Path(folder) / "signer.pub")
        yield path.read_bytes()
