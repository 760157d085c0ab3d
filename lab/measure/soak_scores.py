"""Small audits of scores in memory and in files, and by commands: for ``soak.py``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from soak_games import CLAIM, Audit, key_of
from soak_trial import scored, trial
from typer.testing import CliRunner

from dpaudit import Coins, Design, Key, OneRun, Ranking, Result, audit_scores, report
from dpaudit.cli import app
from dpaudit.engines.local import LocalEngine
from dpaudit.errors import DpAuditError
from dpaudit.evidence import (
    evidence_of,
    open_envelope,
    score_files,
    seal,
    tie_rng,
    verify,
)
from dpaudit.evidence.signing import generate_signing_key
from dpaudit.game import Referee
from dpaudit.game.combining import combine_runs
from dpaudit.reporting.model_card import model_card_section
from dpaudit.tables.sources import read_score_table
from dpaudit.tables.tally import Shard, conclude_scores, tally_scores
from dpaudit.tables.tally_json import tally_from_json, tally_to_json
from dpaudit_lab.sweeps.store import Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep, run

__all__ = ["SCORES"]


def ranking(rng: np.random.Generator, folder: Path) -> None:
    result = scored(rng, Ranking(guesses=300))
    report(result, folder / "audit.html")
    assert "Privacy audit" in model_card_section(result)


def write_csv(path: Path, columns: dict[str, Any]) -> None:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    lines = [",".join(map(repr, row)) for row in rows]
    path.write_text("\n".join([",".join(columns), *lines]) + "\n", encoding="utf-8")


def write_npz(path: Path, columns: dict[str, Any]) -> None:
    np.savez(path, **columns)


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), path)


WRITERS: Final = {".csv": write_csv, ".npz": write_npz, ".parquet": write_parquet}


def score_file(suffix: str) -> Audit:
    """Scores with ties in a file; the evidence names it, is signed and verified."""

    def audit(rng: np.random.Generator, folder: Path) -> None:
        key, path = key_of(rng), folder / f"scores{suffix}"
        ids = rng.permutation(300)
        bits = Coins(key=key, count=300).bits()[ids]
        scores = np.round(bits + rng.normal(size=300), 2)
        WRITERS[suffix](path, {"id": ids, "score": scores})
        table = read_score_table(path)
        design = Design(canaries=300, rules=Ranking(guesses=100), claim=CLAIM)
        result = audit_scores(
            table.ids,
            Coins(key=key, count=300),
            table.scores,
            design=design,
            tie_rng=tie_rng(design, key),
        )
        evidence = evidence_of(result, key=key, files=score_files([path]))
        signer = generate_signing_key()
        sealed = seal(evidence, signer)
        found = verify(sealed, public_key=signer.public_key, files=folder)
        assert found.sound
        assert open_envelope(sealed)[0] == evidence

    return audit


def tallies(rng: np.random.Generator, folder: Path) -> None:
    """Two Parquet files, tallied apart; the tallies are written, read and merged."""
    key = key_of(rng)
    bits = Coins(key=key, count=2000).bits()
    design = Design(canaries=2000, rules=Ranking(guesses=500), claim=CLAIM)
    found = []
    for part in range(2):
        ids = np.arange(2000)[part::2]
        path = folder / f"scores-{part}.parquet"
        scores = bits[ids] + rng.normal(size=1000)
        write_parquet(path, {"id": ids, "score": scores})
        tally = tally_scores(Shard(files=(path,), design=design, key=key))
        found.append(tally_from_json(tally_to_json(tally)))
    assert conclude_scores(found).commitment is not None


def combined(rng: np.random.Generator, _folder: Path) -> None:
    two = [scored(rng, OneRun(guesses=60)) for _ in range(2)]
    assert len(combine_runs(two).p_values) == 2


def sweep(_rng: np.random.Generator, folder: Path) -> None:
    """Twelve audits on two workers, and their store."""
    settings: list[Setting] = [{"guesses": 40}, {"guesses": 80}]
    plan = Sweep(name="soak", revision=1, function=trial, settings=settings, trials=6)
    with Store(folder / "sweep.sqlite") as store:
        found = run(plan, engine=LocalEngine(workers=2), store=store)
    assert not found.failed


def commands(rng: np.random.Generator, folder: Path) -> None:
    """From register to verify by the commands, in this process."""

    def dpaudit(*arguments: object, codes: tuple[int, ...] = (0, 1)) -> str:
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        assert done.exit_code in codes, (arguments, done.output, done.exception)
        return done.stdout

    key, design, result = folder / "key", folder / "design.json", folder / "result.json"
    evidence, scores = folder / "evidence.json", folder / "scores.csv"
    claim = ["--epsilon=1", "--delta=1e-5"]
    dpaudit(
        *("register", "--canaries=300", *claim, "--guesses=100"),
        *(f"--key={key}", f"--design={design}"),
        codes=(0,),
    )
    bits = Coins(key=Key.read(key), count=300).bits()
    write_csv(
        scores, {"id": np.arange(300), "score": 0.2 * bits + rng.normal(size=300)}
    )
    dpaudit(
        *("audit", scores, f"--design={design}", f"--key={key}", f"--save={result}"),
        f"--evidence={evidence}",
    )
    said = dpaudit("verify", evidence, f"--registration={design}", f"--files={folder}")
    assert "No check failed" in said
    dpaudit("explain", result)
    dpaudit("report", result, f"--output={folder / 'audit.html'}")
    dpaudit("bound", "--canaries=300", "--guesses=100", "--correct=60", "--compare")
    dpaudit("audit", folder / "missing.csv", *claim, codes=(2,))


def refused(rng: np.random.Generator, folder: Path) -> None:
    """Designs, games, tables and documents that must be refused."""
    (folder / "bad.csv").write_text("id,score\n1,x\n", encoding="utf-8")
    key, rules = key_of(rng), OneRun(guesses=10)
    design = Design(canaries=100, rules=rules, claim=CLAIM)
    referee = Referee(design, key)
    referee.submit(np.arange(10), np.ones(10))
    attempts: list[Callable[[], object]] = [
        lambda: Design(canaries=0, rules=rules, claim=CLAIM),
        lambda: Design(canaries=5, rules=rules, claim=CLAIM),
        lambda: Design(canaries=100, rules=rules, claim=CLAIM, alpha=0.95),
        lambda: referee.submit([0], [1]),
        lambda: read_score_table(folder / "bad.csv"),
        lambda: audit_scores(
            np.arange(100), np.arange(100) < 90, rng.normal(size=100), design=design
        ),
        lambda: Result.from_json('{"format": "dpaudit.result.1"}'),
        lambda: Key(b"short"),
        lambda: combine_runs([]),
        lambda: open_envelope("{" * 100_000),
    ]
    for number, attempt in enumerate(attempts):
        try:
            attempt()
        except DpAuditError:
            continue
        raise AssertionError(f"attempt {number} was not refused")
    assert not verify(b"\xff" * 1000).sound


SCORES: Final[dict[str, Audit]] = {
    "combined": combined,
    "ranking, reported": ranking,
    "scores in CSV, signed": score_file(".csv"),
    "scores in npz, signed": score_file(".npz"),
    "scores in Parquet, signed": score_file(".parquet"),
    "tallies of Parquet files": tallies,
    "sweep": sweep,
    "commands": commands,
    "refused": refused,
}
