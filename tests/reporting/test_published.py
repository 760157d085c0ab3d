"""Which secret may be in which document: every other one is searched for it.

Small audits are run with secrets that can be recognised, and all that is written of
them is searched, also within base64 and archives. The noise seed is nobody's business:
with it the noise can be subtracted from the released model. Key, coins and the truth of
each guess are secret until the run is judged; afterwards they are told to whoever shall
check it, and to nobody else where canaries are real records.
"""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from key_traces import coin_forms, found_in, key_forms
from private_runs import attach, private_run
from pyarrow import parquet
from torch.utils.data import TensorDataset

from dpaudit import ApproxDP, Coins, Design, Key, OneRun, audit_scores, explain
from dpaudit.evidence import (
    evidence_of,
    register,
    score_files,
    seal,
    tie_rng,
    verify,
)
from dpaudit.game import Referee
from dpaudit.game.result import conclude
from dpaudit.reporting.model_card import model_card_section
from dpaudit.reporting.report import report_html
from dpaudit.tables.tally import Shard, conclude_scores, tally_scores
from dpaudit.tables.tally_json import tally_to_json
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.black_box import BlackBoxAudit, CanaryScores

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")

KEY = fixed_key(np.random.default_rng(5).bytes(32))
NOISE_SEED = 918273645
CANARIES = 400
DESIGN = Design(
    canaries=CANARIES,
    rules=OneRun(guesses=100),
    claim=ApproxDP(epsilon=2.0, delta=1e-5),
)

# What a document may hold, and why. Whatever is not listed may hold nothing.
MAY = {
    # For whoever checks the audit: they derive the coins, and count the guesses.
    "evidence": {"key", "coins", "truths"},
    # For the auditor: the result of a training run keeps its guesses, for evidence.
    "result": {"truths"},
    # To be merged and judged: scores at both ends, each with the coins of its canaries.
    "tally": {"truths"},
}


def secrets(truths):
    """Return every secret in all forms that we thought of."""
    truths = np.asarray(truths, int)[:24]
    coins = 2 * Coins(key=KEY, count=CANARIES).bits().astype(int) - 1
    return {
        "noise seed": {
            "in digits": str(NOISE_SEED).encode(),
            "in hex": f"{NOISE_SEED:x}".encode(),
            "in bytes": NOISE_SEED.to_bytes(4, "little"),
        },
        "key": key_forms(KEY),
        "coins": coin_forms(KEY, CANARIES),
        "truths": {
            f"{name} by {between!r}": between.join(map(str, values)).encode()
            for name, values in (
                ("signs", truths),
                ("bits", (truths + 1) // 2),
                ("in the order of canaries", coins[:24]),
            )
            for between in (",", ", ", "\n")
        },
    }


def _shown(result):
    return {
        "explanation": f"{explain(result)}",
        "report": report_html(result),
        "model card": model_card_section(result),
        **_brief(result),
    }


def _brief(result):
    return {
        "print": f"{result}",
        "notebook": result._repr_html_(),
        "metrics": json.dumps(result.metrics()),
        "result": result.to_json(),
    }


def documents(result, shown=_shown, **of_evidence):
    """Return all that is written of a result, by its name."""
    evidence = evidence_of(result, key=KEY, **of_evidence)
    redacted = evidence.redact()
    found = {
        **shown(result),
        **{f"redacted {name}": text for name, text in shown(redacted.result).items()},
        "registration": register(result.design, KEY).to_json(),
        "evidence": seal(evidence),
        "redacted evidence": seal(redacted),
    }
    for name in ("evidence", "redacted evidence"):
        checked = verify(found[name], accept_unchecked_counts=True)
        found[f"verification of {name}"] = f"{checked}{checked!r}{checked.to_json()}"
    return found


def check(found, sought):
    """Search documents; in evidence that reveals it, what is sought must be found."""
    for name, text in found.items():
        content = text if isinstance(text, bytes) else text.encode()
        for secret, forms in sought.items():
            if secret not in MAY.get(name, ()):
                assert not found_in(content, forms), (name, secret)
    if "evidence" in found:
        assert found_in(found["evidence"].encode(), sought["key"])


def test_documents_of_a_training_run_with_a_fixed_noise_seed(tmp_path, capfd):
    run = private_run()
    run.optimizer.generator = torch.Generator().manual_seed(NOISE_SEED)
    audit = attach(run, canaries=CANARIES, guesses=100, key=KEY, accountant=None)
    run.train(steps=4)
    audit.save(tmp_path / "state.npz")
    with pytest.raises(Exception, match="an audit attached") as refused:
        attach(run, key=KEY)
    result = audit.finish()
    assert any(each.code == "noise.fixed_seed" for each in result.training.remarks)
    # To explain a run of Opacus takes seconds; what is explained is in the report.
    found = documents(result, _brief) | {"report": report_html(result)}
    printed = "".join(capfd.readouterr())
    found |= {
        "state": (tmp_path / "state.npz").read_bytes(),
        "error": f"{refused.getrepr(showlocals=False)}",
        "printed": printed,
        "audit": f"{audit!r} {audit}",
    }
    sought = secrets(result.transcript.truth)
    assert found_in(found["evidence"].encode(), sought["truths"])
    check(found, sought)


def test_documents_of_any_loop(tmp_path):
    audit = SumsAudit(
        design=DESIGN, key=KEY, dimension=500, knows_real_sums=True, noise=1.0
    )
    rng = np.random.default_rng(NOISE_SEED)
    for _ in range(4):
        noise = rng.normal(size=CANARIES)
        audit.observe(audit.contributions() + noise, real_sums=np.zeros(CANARIES))
    audit.save(tmp_path / "state.npz")
    result = audit.finish()
    found = documents(result) | {"state": (tmp_path / "state.npz").read_bytes()}
    check(found, secrets(result.transcript.truth))


def test_documents_of_a_game():
    referee = Referee(DESIGN, KEY)
    rng = np.random.default_rng(NOISE_SEED)
    referee.submit(np.arange(100), rng.choice([-1, 1], 100))
    transcript = referee.close()
    result = conclude(transcript, commitment=referee.commitment)
    found, sought = documents(result, transcript=transcript), secrets(transcript.truth)
    check(found, sought)
    # Of a game the result holds counts, and the evidence the guesses.
    assert not found_in(found["result"].encode(), sought["truths"])
    assert found_in(found["evidence"].encode(), sought["truths"])


def scored():
    coins = Coins(key=KEY, count=CANARIES)
    noise = np.random.default_rng(NOISE_SEED).normal(size=CANARIES)
    return coins, 2.0 * coins.bits() + noise


def test_documents_of_scores(tmp_path):
    coins, scores = scored()
    path, ids = tmp_path / "scores.csv", np.arange(CANARIES)
    rows = [f"{i},{score!r}" for i, score in enumerate(scores.tolist())]
    path.write_text("\n".join(["id,score", *rows]))
    result = audit_scores(
        ids, coins, scores, design=DESIGN, tie_rng=tie_rng(DESIGN, KEY)
    )
    truths = 2 * coins.bits()[np.argsort(scores)[::-1]].astype(int) - 1
    check(documents(result, files=score_files([path])), secrets(truths))


def test_documents_of_a_tally(tmp_path):
    coins, scores = scored()
    path = tmp_path / "scores.parquet"
    parquet.write_table(pa.table({"id": np.arange(CANARIES), "score": scores}), path)
    tally = tally_scores(Shard(files=(path,), design=DESIGN, key=KEY))
    found = documents(conclude_scores([tally])) | {"tally": tally_to_json(tally)}
    truths = 2 * coins.bits()[np.argsort(scores)[::-1]].astype(int) - 1
    check(found, secrets(truths))


def test_documents_of_a_final_model():
    canaries = TensorDataset(torch.randn(CANARIES, 3), torch.zeros(CANARIES))
    audit = BlackBoxAudit(canaries, design=DESIGN, key=KEY)
    values = scored()[1]
    scores = CanaryScores(
        ids=np.arange(CANARIES), values=values, commitment=audit.commitment
    )
    result = audit.finish(scores)
    truths = 2 * scored()[0].bits()[np.argsort(values)[::-1]].astype(int) - 1
    check(documents(result) | {"scores": f"{scores!r}"}, secrets(truths))


@pytest.mark.parametrize("given", [KEY.secret.hex(), KEY.secret])
def test_a_key_is_not_shown_where_its_file_was_wanted(given):
    with pytest.raises(ValueError, match="path must be") as refused:
        Key.read(given)
    assert not found_in(str(refused.value).encode(), key_forms(KEY))
