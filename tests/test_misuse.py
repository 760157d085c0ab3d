"""What people get wrong: each is refused when it is passed, with what to do instead.

No misuse ends in an error of Python's own about our insides.
"""

from pathlib import Path

import numpy as np
import pytest

from dpaudit import (
    AdaptiveCount,
    Adjacency,
    ApproxDP,
    Coins,
    Design,
    Extremes,
    GaussianDP,
    Key,
    OneRun,
    Pairs,
    PureDP,
    Ranking,
    Result,
    SumsAudit,
    TrainingSetup,
    audit_one_run,
    audit_opacus,
    audit_scores,
    combine_runs,
    evidence_of,
    explain,
    load,
    plan_audit,
    register,
    report,
    seal,
    verify,
)
from dpaudit.errors import DpAuditError

KEY = Key(bytes(32))
CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)
DESIGN = Design(canaries=100, rules=OneRun(guesses=10), claim=CLAIM)
REPLACED = Design(
    canaries=100,
    rules=OneRun(guesses=10),
    claim=PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE),
)
IDS, COINS = np.arange(100), Coins(key=KEY, count=100)
SETUP = TrainingSetup(steps=10, rate=0.1, noise=1.0)
SCORES = np.random.default_rng(0).normal(size=100)
RESULT = audit_scores(IDS, COINS, SCORES, design=DESIGN)


class Echo:
    def run(self, data, rng):
        return data


def designed(**changed):
    given = {"canaries": 5, "rules": OneRun(guesses=1), "claim": CLAIM}
    return Design(**given | changed)


def ran(*, mechanism=None, rng=None):
    guesser = Extremes(score=np.asarray, top=5, bottom=5)
    rng = rng or np.random.default_rng(0)
    told = {"pairs": Pairs(x=0, y=1), "design": REPLACED, "rng": rng}
    return audit_one_run(mechanism or Echo(), guesser, **told)


def opened(**changed):
    given = {"design": DESIGN, "key": KEY, "dimension": 200, "sample_rate": 0.1}
    return SumsAudit(**{**given, **changed})


def after_a_step(sums, **more):
    audit = opened()
    audit.contributions()
    audit.observe(sums)
    return audit.finish(**more)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_text(RESULT.to_json())
    Path("d.json").write_text(DESIGN.to_json())
    Path("x.json").write_text('{"a": 1}')
    Path("n.txt").write_text("hello")
    Path("b.bin").write_bytes(b"\xff\xfe\x00")


MISUSES = {
    "ApproxDP epsilon str": lambda: ApproxDP(epsilon="1", delta=1e-5),
    "ApproxDP epsilon neg": lambda: ApproxDP(epsilon=-1, delta=1e-5),
    "ApproxDP delta 2": lambda: ApproxDP(epsilon=1, delta=2),
    "ApproxDP delta None": lambda: ApproxDP(epsilon=1, delta=None),
    "ApproxDP nan": lambda: ApproxDP(epsilon=float("nan"), delta=0),
    "PureDP None": lambda: PureDP(epsilon=None),
    "GaussianDP str": lambda: GaussianDP(mu="a"),
    "adjacency str": lambda: PureDP(epsilon=1, adjacency="whatever"),
    "Design canaries float": lambda: designed(canaries=10.5),
    "Design canaries str": lambda: designed(canaries="10"),
    "Design canaries 0": lambda: designed(canaries=0),
    "Design guesses>canaries": lambda: designed(rules=OneRun(guesses=10)),
    "Design rules int": lambda: designed(rules=10),
    "Design rules class": lambda: designed(rules=OneRun),
    "Design claim float": lambda: designed(claim=1.0),
    "Design claim tuple": lambda: designed(claim=(1.0, 1e-5)),
    "Design alpha 0": lambda: designed(alpha=0),
    "Design alpha 5": lambda: designed(alpha=5),
    "Design alpha str": lambda: designed(alpha="0.05"),
    "Design threat str": lambda: designed(threat_model="me"),
    "Design setting list": lambda: designed(setting=[1]),
    "Design delta other": lambda: designed(delta=1e-3),
    "OneRun guesses str": lambda: OneRun(guesses="3"),
    "OneRun guesses neg": lambda: OneRun(guesses=-3),
    "Ranking 0": lambda: Ranking(guesses=0),
    "Key short": lambda: Key(b"abc"),
    "Key str": lambda: Key("secret"),
    "Key.read missing": lambda: Key.read("nokey"),
    "Key.read wrong": lambda: Key.read("n.txt"),
    "Coins key bytes": lambda: Coins(key=bytes(32), count=10),
    "Coins count str": lambda: Coins(key=KEY, count="10"),
    "scores lengths": lambda: audit_scores(IDS, COINS, SCORES[:50], design=DESIGN),
    "scores nan": lambda: audit_scores(IDS, COINS, np.full(100, np.nan), design=DESIGN),
    "scores str": lambda: audit_scores(IDS, COINS, ["a"] * 100, design=DESIGN),
    "scores 2d": lambda: audit_scores(IDS, COINS, np.zeros((100, 2)), design=DESIGN),
    "scores None": lambda: audit_scores(IDS, COINS, None, design=DESIGN),
    "IDS dup": lambda: audit_scores(np.zeros(100, int), COINS, SCORES, design=DESIGN),
    "bits not 0/1": lambda: audit_scores(IDS, np.full(100, 2), SCORES, design=DESIGN),
    "bits from score": lambda: audit_scores(IDS, SCORES, SCORES, design=DESIGN),
    "design dict": lambda: audit_scores(IDS, COINS, SCORES, design={"canaries": 100}),
    "design path": lambda: audit_scores(IDS, COINS, SCORES, design="d.json"),
    "design None": lambda: audit_scores(IDS, COINS, SCORES, design=None),
    "other number": lambda: audit_scores(
        IDS[:50], Coins(key=KEY, count=50), SCORES[:50], design=DESIGN
    ),
    "adaptive design for scores": lambda: audit_scores(
        IDS,
        COINS,
        SCORES,
        design=designed(canaries=100, rules=AdaptiveCount(guesses=5)),
    ),
    "tie rng int": lambda: audit_scores(
        IDS, COINS, np.zeros(100), design=DESIGN, tie_rng=5
    ),
    "sums dim small": lambda: opened(dimension=10),
    "sums rate 0": lambda: opened(sample_rate=0),
    "sums rate str": lambda: opened(sample_rate="x"),
    "sums key bytes": lambda: opened(key=bytes(32)),
    "sums key str": lambda: opened(key="audit.key"),
    "sums design str": lambda: opened(design="d.json"),
    "sums observe before joining": lambda: opened().observe(np.zeros(100)),
    "sums observe shape": lambda: after_a_step(np.zeros(3)),
    "sums observe None": lambda: after_a_step(None),
    "sums finish early": lambda: opened().finish(),
    "sums finish claim float": lambda: after_a_step(np.zeros(100), claim=2.0),
    "load missing": lambda: load("no.json"),
    "load dir": lambda: load("."),
    "load other json": lambda: load("x.json"),
    "load text": lambda: load("n.txt"),
    "load bytes": lambda: load("b.bin"),
    "load int": lambda: load(5),
    "load result obj": lambda: load(RESULT),
    "explain path": lambda: explain("r.json"),
    "explain dict": lambda: explain({}),
    "report path": lambda: report("r.json", "a.html"),
    "report no folder": lambda: report(RESULT, "no/such/a.html"),
    "report int": lambda: report(RESULT, 5),
    "verify None": lambda: verify(None),
    "seal result": lambda: seal(RESULT),
    "evidence key str": lambda: evidence_of(RESULT, key="audit.key"),
    "evidence other key": lambda: evidence_of(RESULT, key=Key(bytes([1] * 32))),
    "register design str": lambda: register("d.json", KEY),
    "register key str": lambda: register(DESIGN, "audit.key"),
    "combine one": lambda: combine_runs([RESULT]),
    "combine strs": lambda: combine_runs(["r.json", "r.json"]),
    "combine same": lambda: combine_runs([RESULT, RESULT]),
    "combine result": lambda: combine_runs(RESULT),
    "Result.from_json path": lambda: Result.from_json("r.json"),
    "Result.from_json design": lambda: Result.from_json(DESIGN.to_json()),
    "Design.from_json None": lambda: Design.from_json(None),
    "plan claim pure float": lambda: plan_audit(SETUP, claim=1.0, coordinates=10),
    "plan training tuple": lambda: plan_audit(
        (10, 0.1, 1.0), claim=CLAIM, coordinates=10
    ),
    "plan coords 0": lambda: plan_audit(SETUP, claim=CLAIM, coordinates=0),
    "Training rate 2": lambda: TrainingSetup(steps=10, rate=2, noise=1),
    "Training steps str": lambda: TrainingSetup(steps="10", rate=0.1, noise=1),
    "one_run mech no run": lambda: ran(mechanism=5),
    "one_run rng int": lambda: ran(rng=5),
    "Extremes score none": lambda: Extremes(score=None, top=1, bottom=1),
    "audit_opacus Nones": lambda: audit_opacus(
        None, None, None, None, epochs=1, delta=1e-5
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_misuse_is_refused_with_a_way_out(misuse):
    with pytest.raises(DpAuditError) as refused:
        MISUSES[misuse]()
    said = str(refused.value)
    assert len(said) > 20
    assert "object has no attribute" not in said


def test_a_secret_that_is_passed_as_bytes_is_not_shown():
    with pytest.raises(DpAuditError) as refused:
        Coins(key=b"a secret of thirty-two bytes ....", count=10)
    assert "key must be a Key, got key of type bytes; Key.read(path)" in str(
        refused.value
    )
