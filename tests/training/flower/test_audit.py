"""Canary clients in Flower's own strategies, in one process.

Random, with fixed seeds: four standard errors are passed by all but 1 in 16,000.
"""

import numpy as np
import pytest
from federation import CLIP, KEY, LocalGrid, client_app, design, model, opened, train
from flwr.app import ArrayRecord
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.server import strategy as older
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.supercore.privacy_accounting import (
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from dpaudit import Coins, GaussianDP
from dpaudit.dpsgd.participation import Participation
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentences
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.training.flower import FlowerAudit, Nodes, Replies, canary_mod
from dpaudit.training.layout import scattered

KINDS = [
    DifferentialPrivacyServerSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
]
MODS = [[], [], [fixedclipping_mod], [adaptiveclipping_mod]]
NODES = range(1, 211)  # 200 canaries and ten others


def coins(canaries=200):
    return Coins(key=KEY, count=canaries).bits()


def by_hand(models, canaries=200):
    """What rounds changed at the canaries' coordinates, floats laid end to end."""
    flat = [np.concatenate([m[0].ravel(), m[1]]).astype(float) for m in models]
    places = scattered(660, canaries, key=KEY)
    return np.diff(np.array(flat)[:, places], axis=0)


@pytest.mark.parametrize(("kind", "mods"), [*zip(KINDS, MODS, strict=True)])
@pytest.mark.parametrize("way", [Replies(), Nodes()])
def test_a_canary_moves_the_mean_by_the_norm_over_the_clients(kind, mods, way):
    audit, strategy = opened(kind=kind, insertion=way, noise=0.05)
    strategy.clip_norm_lr = 1e-9  # so that the norm, and with it the scale, stays
    nodes = NODES if isinstance(way, Nodes) else range(1, 11)
    last = [canary_mod] if isinstance(way, Nodes) else []
    models, _ = train(audit, nodes=nodes, app=client_app(*mods, *last))
    seen = by_hand(models) * 210 / CLIP
    with_one, without = seen[:, coins() == 1], seen[:, coins() == 0]
    apart = with_one.mean() - without.mean()
    error = np.hypot(
        with_one.std() / with_one.size**0.5, without.std() / without.size**0.5
    )
    assert abs(apart - 1) < 4 * error < 0.1
    signal = audit.finish().training.signal
    assert signal.steps == 3
    assert signal.slope == pytest.approx(apart, abs=0.01)


def checks_of(result):
    return {check.stage: check for check in result.training.coverage.checks}


@pytest.mark.parametrize("way", [Replies(), Nodes()])
def test_the_coverage_says_what_each_way_runs_through(way):
    audit, _ = opened(insertion=way)
    nodes = NODES if isinstance(way, Nodes) else range(1, 11)
    train(audit, nodes=nodes, app=client_app(canary_mod), rounds=1)
    result = audit.finish()
    checks = checks_of(result)
    assert checks[Stage.SAMPLING].status is Status.TESTED
    assert checks[Stage.CLIPPING].status is Status.TESTED
    assert checks[Stage.AGGREGATION].status is Status.TESTED
    assert "secure aggregation" in sentences(checks[Stage.SIDE_PATHS].findings)
    said = result.details()
    assert "sees the aggregate of every round" in said
    assert "replace one user by one" in said
    assert "record" not in said


class TakingTurns(LocalGrid):
    """One half of the nodes is there in each round."""

    def get_node_ids(self):
        return list(self.nodes)[sum(map(bool, self.sent)) % 2 :: 2]


def test_clients_are_held_against_the_turns_that_the_claim_rests_on():
    turns = Participation(every=2, cohorts=2)
    audit, _ = opened(participation=turns, real=5)
    train(audit, rounds=2, kind=TakingTurns)
    result = audit.finish()
    assert not result.faults
    assert checks_of(result)[Stage.SAMPLING].status is Status.INSPECTED
    audit, _ = opened(participation=turns)
    train(audit, rounds=2)
    result = audit.finish()
    (fault,) = result.faults
    assert fault.stage is Stage.ACCOUNTING
    assert fault_parts(fault, "user")[1:3] == ("2 times in 2 rounds", "at most 1")
    assert "a user takes part more often than is accounted for" in result.details()


def test_clients_who_are_sampled_are_held_against_the_rate():
    """All of ten clients in each of 30 rounds, where half of them is accounted for."""
    way = Nodes(sample_rate=0.5)
    audit, _ = opened(plan=design(20), insertion=way, users=10)
    train(audit, nodes=range(1, 31), rounds=30, app=client_app(canary_mod))
    codes = {fault.code for fault in audit.finish().faults}
    assert "sampling.too_often" in codes


def test_visits_outlive_a_restart(tmp_path):
    turns = Participation(every=2, cohorts=2)
    first, _ = opened(participation=turns)
    train(first, rounds=1)
    first.save(tmp_path / "state.npz")
    again, _ = opened(participation=turns)
    again.resume(tmp_path / "state.npz")
    train(again, rounds=1)
    assert [f.code for f in again.finish().faults] == ["accounting.participations"]


def test_clipping_on_clients_is_looked_at_by_nodes_alone():
    kind = DifferentialPrivacyClientSideFixedClipping
    for way, status in ((Replies(), Status.NOT_CHECKED), (Nodes(), Status.TESTED)):
        audit, _ = opened(kind=kind, insertion=way)
        nodes = NODES if isinstance(way, Nodes) else range(1, 11)
        train(audit, nodes=nodes, app=client_app(fixedclipping_mod, canary_mod))
        checks = checks_of(audit.finish())
        assert checks[Stage.CLIPPING].status is status


def test_replies_keep_coins_on_the_server_and_nodes_are_told_their_own():
    for way, nodes in ((Replies(), range(1, 11)), (Nodes(), NODES)):
        audit, _ = opened(insertion=way)
        _, grid = train(audit, nodes=nodes, app=client_app(canary_mod), rounds=1)
        told = {
            message.metadata.dst_node_id: message.content["config"]["dpaudit-value"]
            for message in grid.sent[0]
            if "dpaudit-value" in message.content["config"]
        }
        assert sorted(told) == (list(range(1, 201)) if isinstance(way, Nodes) else [])


def test_what_is_sent_and_weighed_does_not_depend_on_coins():
    audit, _ = opened(examples=7, participation=Participation(every=4, cohorts=3))
    arrays = model()
    for _ in range(5):
        begun = audit.begin(arrays)
        assert len(begun.answers) == 67  # 200 in three cohorts, the fourth round empty
        moved = np.array([answer.value for answer in begun.answers])
        before = np.array([arrays[a.array].reshape(-1)[a.place] for a in begun.answers])
        assert (moved != before).all()
        audit.end(arrays, replies=77)


def test_canaries_take_turns():
    participation = Participation(every=4, cohorts=4)
    audit, _ = opened(participation=participation, noise=1e-3)
    models, _ = train(audit, rounds=4, app=client_app(size=1e-4))
    seen = by_hand(models) * 60 / CLIP
    cohort = np.arange(200) % 4
    for step in range(4):
        joined = (coins() == 1) & (cohort == step)
        assert seen[step, joined] == pytest.approx(1.0, abs=0.02)
        assert seen[step, ~joined] == pytest.approx(0.0, abs=0.02)
    assert audit.claim() == GaussianDP(mu=1e3, adjacency=Adjacency.ZERO_OUT)


def test_the_claim_is_what_stated_noise_comes_to():
    audit, _ = opened(noise=4.0)
    train(audit, rounds=9)
    assert audit.claim().mu == pytest.approx(3 / 4)
    adaptive, _ = opened(noise=4.0, kind=KINDS[1])
    train(adaptive, rounds=4)
    assert adaptive.claim().mu == pytest.approx(2 / 4)


def test_an_eighth_of_the_noise_is_refuted_and_honest_noise_is_not():
    plan = design(600, mu=0.25, guesses=120)
    participation = Participation(every=2, cohorts=2)
    honest, _ = opened(plan=plan, participation=participation, noise=4.0)
    train(honest, rounds=2)
    assert honest.finish().p_value > 1e-3  # fails with that chance at most
    faulty, _ = opened(
        plan=plan, participation=participation, noise=4.0, divide_noise_by=8.0
    )
    train(faulty, rounds=2)
    assert faulty.finish().p_value < 1e-3


def test_a_round_that_fails_is_not_counted_and_said():
    audit, _ = opened(participation=Participation(every=2, cohorts=2))
    train(audit, rounds=1, failing=[103])
    assert audit.rounds == 0
    train(audit, rounds=2)
    assert audit.rounds == 2
    said = " ".join(audit.finish().details().split())
    assert "1 round gave no model" in said


def test_nodes_that_do_not_answer_put_in_nothing_and_are_said():
    audit, _ = opened(insertion=Nodes(), noise=1e-3)
    app = client_app(canary_mod, size=1e-4)
    models, _ = train(audit, rounds=1, nodes=NODES, app=app, silent=range(1, 51))
    seen = by_hand(models)[0] * 160 / CLIP
    joined = coins() == 1
    joined[:50] = False
    assert seen[joined] == pytest.approx(1.0, abs=0.02)
    assert seen[~joined] == pytest.approx(0.0, abs=0.02)
    result = audit.finish()
    assert "50 answers of canary clients did not come" in result.details()
    (fault,) = result.faults
    assert fault.stage is Stage.AGGREGATION  # noise is for 210 clients, 160 answered
    assert "160 answers" in fault_parts(fault)[1]


def test_more_clients_than_noise_is_for_are_remarked():
    audit, _ = opened(real=5)
    train(audit, real=10)
    result = audit.finish()
    assert not result.faults
    said = " ".join(result.details().split())
    assert "more clients than num_sampled_clients answered in 3 rounds" in said


def test_a_saved_audit_goes_on_where_it_was(tmp_path):
    whole, _ = opened()
    models, _ = train(whole, rounds=1, seed=3)
    rest = ArrayRecord(models[-1])
    grid = LocalGrid(range(100, 110), client_app())
    whole.probe()
    whole.save(tmp_path / "audit.npz")
    resumed, _ = opened()
    resumed.resume(tmp_path / "audit.npz")
    for audit in (whole, resumed):
        np.random.seed(4)  # noqa: NPY002
        audit.wrap().start(grid, rest, num_rounds=2)
    assert resumed.rounds == 3
    first, second = whole.finish(), resumed.finish()
    assert first.training.transcript == second.training.transcript
    assert first.faults == second.faults != ()


def test_a_norm_that_was_lost_is_refused(tmp_path):
    audit, _ = opened(kind=KINDS[1])
    train(audit)
    audit.save(tmp_path / "audit.npz")
    fresh, _ = opened(kind=KINDS[1])
    with pytest.raises(InvalidRunError, match="set strategy"):
        fresh.resume(tmp_path / "audit.npz")


def test_several_canaries_share_a_coordinate():
    plan = design(400, per_coordinate=2)
    audit, _ = opened(plan=plan, noise=1e-3)
    models, _ = train(audit, rounds=1, app=client_app(size=1e-4))
    seen = by_hand(models, 200)[0] * 410 / CLIP
    inside = coins(400).reshape(200, 2).sum(axis=1)
    assert seen == pytest.approx(inside.astype(float), abs=0.05)


def test_an_accountant_needs_nodes():
    config = PrivacyConfig(
        1e-5,
        210,
        NeighboringRelation.ADD_OR_REMOVE_ONE,
        SamplingMethod.NO_AMPLIFICATION,
    )
    base = FedAvg(fraction_evaluate=0.0)
    strategy = DifferentialPrivacyServerSideFixedClipping(
        base, 2.0, CLIP, 210, accountant=RdpAccountant(config)
    )
    with pytest.raises(InvalidInputError, match="insertion=Nodes"):
        FlowerAudit(strategy, model(), design=design(), key=KEY)
    audit = FlowerAudit(strategy, model(), design=design(), key=KEY, insertion=Nodes())
    train(audit, nodes=NODES, app=client_app(canary_mod))
    assert audit.rounds == 3
    assert strategy.privacy_spent().num_releases == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"insertion": "replies"}, "insertion must be Replies"),
        ({"examples": 0}, "examples"),
        ({"model": [np.arange(5)]}, "floats"),
        ({"model": np.zeros(5)}, "ArrayRecord"),
        ({"strategy": FedAvg()}, "the one that adds noise"),
    ],
)
def test_what_cannot_be_audited_is_refused(arguments, said):
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, CLIP, 210)
    given = {"strategy": strategy, "model": model(), **arguments}
    with pytest.raises(InvalidInputError, match=said):
        FlowerAudit(given.pop("strategy"), given.pop("model"), design=design(),
                    key=KEY, **given)  # fmt: skip


def test_a_canary_below_the_norm_is_refused():
    with pytest.raises(InvalidInputError, match="1 or more"):
        Replies(norm=0.5)


def test_too_few_nodes_are_refused():
    audit, _ = opened(insertion=Nodes())
    with pytest.raises(InvalidInputError, match="as many nodes"):
        train(audit, nodes=range(50), app=client_app(canary_mod))


def test_a_model_of_other_shapes_is_refused():
    audit, _ = opened()
    assert audit.begin([np.zeros(3, np.float32)]) is None
    with pytest.raises(InvalidRunError, match="shapes"):
        audit.finish()


def test_a_round_that_was_not_begun_stops_the_audit_and_not_the_training():
    audit, _ = opened()
    audit.end(model(), replies=1)
    # As many clients answer as before, and none of them puts anything in.
    assert len(opened()[0].begin(model()).answers) == len(audit.begin(model()).answers)
    assert np.all(audit.begin(model()).put < 1e-3)
    with pytest.raises(InvalidRunError, match="not configured"):
        audit.finish()


def test_nodes_that_are_not_sampled_put_in_nothing():
    audit, strategy = opened(insertion=Nodes(sample_rate=0.5), noise=1e-3)
    strategy.strategy.fraction_train = 0.5
    strategy.num_sampled_clients = 105
    app = client_app(canary_mod, size=1e-4)
    models, grid = train(audit, rounds=3, nodes=NODES, app=app)
    seen = by_hand(models) * 105 / CLIP
    for moved, messages in zip(seen, grid.sent[::2], strict=True):  # and to evaluate
        asked = {message.metadata.dst_node_id - 1 for message in messages}
        joined = (coins() == 1) & np.isin(np.arange(200), [*asked])
        assert moved[joined] == pytest.approx(1.0, abs=0.02)
        assert moved[~joined] == pytest.approx(0.0, abs=0.02)
    result = audit.finish()
    assert result.training.signal.slope == pytest.approx(1.0, abs=0.02)
    assert "did not come" not in result.details()


def test_in_order_the_order_of_answers_changes_nothing():
    """Sums of floats depend on it otherwise, in the last bits."""
    nodes = [*range(100, 140)]
    models = {}
    for in_order in (False, True):
        for turned in (1, -1):
            audit, _ = opened(real=len(nodes), in_order=in_order)
            found, _ = train(audit, nodes=nodes[::turned], rounds=2)
            models[in_order, turned] = by_hand(found)
    assert np.array_equal(models[True, 1], models[True, -1])
    assert not np.array_equal(models[False, 1], models[False, -1])
    assert np.allclose(models[True, 1], models[False, 1], atol=1e-5)


def test_a_strategy_without_messages_is_refused():
    strategy = older.DifferentialPrivacyServerSideFixedClipping(
        older.FedAvg(), 1.0, CLIP, 50
    )
    audit = FlowerAudit(strategy, model(), design=design(), key=KEY)
    with pytest.raises(InvalidInputError, match=r"^wrap\(\) is for strategies of flwr"):
        audit.wrap()
