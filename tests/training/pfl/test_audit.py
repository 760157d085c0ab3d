"""Canary users in real trainings of pfl.

Random, with fixed seeds: an honest training is refuted with chance 0.05 and said to
have a fault with chance 2e-4; with these keys and seeds it is not.
"""

import numpy as np
import pytest
import torch
from federated_runs import CLIP, KEY, Federated, Net, accountant, user_data
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.laplace_mechanism import LaplaceMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

from dpaudit.dpsgd.participation import Participation
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentence, sentences
from dpaudit.game.verdict import Verdict
from dpaudit.privacy.guarantees import Adjacency, GaussianDP
from dpaudit.testing import fixed_key
from dpaudit.training.pfl import Added, Sampled
from dpaudit.training.pfl.setup import claim_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:To copy construct from a tensor:UserWarning"  # pfl, where it adds noise
)

ONCE = Added(participation=Participation(every=4, cohorts=4))


@pytest.fixture(scope="module")
def once():
    return accountant(1)


@pytest.fixture(scope="module")
def sampled():
    return accountant(10, rate=0.2)


def check_of(result, stage):
    checks = result.training.coverage.checks
    return next(check for check in checks if check.stage is stage)


def test_an_honest_training_is_not_accused_and_its_coverage_says_what_was_checked(once):
    audit = Federated(told=once, insertion=ONCE).run()
    audit.probe()
    result = audit.finish()
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    assert not result.faults
    for stage in (
        Stage.CLIPPING,
        Stage.AGGREGATION,
        Stage.NOISE_SCALE,
        Stage.ACCOUNTING,
    ):
        assert check_of(result, stage).status is Status.TESTED
    assert check_of(result, Stage.GRADIENTS).status is Status.INSPECTED
    assert check_of(result, Stage.SIDE_PATHS).status is Status.ACCEPTED
    assert abs(result.training.signal.slope - 1) < 4 * result.training.signal.error
    assert "replace one user by one that contributes nothing" in " ".join(
        result.details().split()
    )


def test_half_of_the_noise_is_refuted_and_named(once):
    run = Federated(told=once, insertion=ONCE, divide=2.0, canaries=1000, guesses=100)
    result = run.run().finish()
    assert result.verdict is Verdict.CLAIM_REFUTED
    (fault,) = result.faults
    assert fault.stage is Stage.NOISE_SCALE
    assert fault.numbers["ratio"] == pytest.approx(0.5, rel=0.1)


def test_canaries_may_share_coordinates(once):
    run = Federated(told=once, insertion=ONCE, divide=4.0, per_coordinate=2)
    result = run.run().finish()
    assert result.verdict is Verdict.CLAIM_REFUTED
    assert abs(result.training.signal.slope - 1) < 4 * result.training.signal.error


def test_users_who_are_sampled_more_often_than_told_are_named(sampled):
    honest = Federated(told=sampled, insertion=Sampled(), rate=0.2, rounds=10).run()
    result = honest.finish()
    assert not result.faults
    assert check_of(result, Stage.SAMPLING).status is Status.TESTED
    often = Federated(told=sampled, insertion=Sampled(), rate=0.8, rounds=10).run()
    result = often.finish()
    assert result.verdict is Verdict.CLAIM_REFUTED
    assert [fault.stage for fault in result.faults] == [Stage.SAMPLING]
    assert "0.2" in fault_parts(result.faults[0])[2]


def test_canaries_that_the_audit_draws_come_at_the_accountants_rate(sampled):
    result = Federated(told=sampled, rounds=10, counted=True).run().finish()
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    assert check_of(result, Stage.SAMPLING).status is Status.INSPECTED
    assert result.training.steps == 10


class Twice(Federated):
    """A training whose sampler draws with replacement, from few users."""

    def data(self, audit, dimension):
        real = [f"user {i}" for i in range(3)]
        return FederatedDataset(
            lambda user: user_data(user, dimension), get_user_sampler("random", real)
        )


def test_a_user_who_is_twice_in_a_cohort_is_named(once):
    result = Twice(told=once, insertion=ONCE).run().finish()
    what = fault_parts(result.faults[0], "user")[0]
    assert "a user is several times in one cohort" in what
    assert result.faults[0].probability == 0


def test_users_who_take_part_twice_and_are_accounted_for_once_are_named(once):
    result = Federated(told=once, insertion=ONCE, users=10).run().finish()
    assert result.verdict is Verdict.FAULT_FOUND
    assert [fault.stage for fault in result.faults] == [Stage.ACCOUNTING]
    assert fault_parts(result.faults[0], "user")[1] == "2 times in 4 rounds"


def test_users_of_an_unknown_number_leave_sampling_unchecked(sampled):
    result = Federated(told=sampled, rounds=3).run().finish()
    check = check_of(result, Stage.SAMPLING)
    assert check.status is Status.NOT_CHECKED
    assert "users=..." in sentences(check.findings)
    assert result.verdict is Verdict.INCONCLUSIVE


def test_users_of_a_known_number_are_held_against_the_sampling(sampled):
    """Five of ten users in each round, where a fifth of them is accounted for."""
    often = Federated(told=sampled, rounds=10, users=10, counted=True).run().finish()
    assert often.verdict is Verdict.FAULT_FOUND
    assert "sampling.too_often" in {fault.code for fault in often.faults}
    right = Federated(told=sampled, rounds=10, users=25, counted=True).run().finish()
    assert not right.faults
    said = sentences(check_of(right, Stage.SAMPLING).findings, "user")
    assert "users are in them at a rate of 0.2, where 0.2 is accounted for" in said


def test_more_rounds_than_were_accounted_for_are_named(sampled):
    result = Federated(told=sampled, rounds=12).run().finish()
    assert [fault.stage for fault in result.faults] == [Stage.ACCOUNTING]
    assert fault_parts(result.faults[0])[1] == "12 rounds"


def test_canaries_do_not_take_part_more_often_than_is_claimed(once):
    run = Federated(told=once)  # in every round, where once is accounted for
    model, audit, backend = run.open()
    run.train(model, backend)  # to its end
    assert audit.rounds == 1
    result = audit.finish()
    assert result.verdict is Verdict.INVALID_RUN
    assert any("num_compositions=1" in sentence(c) for c in result.sanity_checks)


@pytest.fixture(scope="module")
def twice_told():
    return accountant(2)


def banded(told, *, canaries=300, **other):
    participation = Added(participation=Participation(every=16, cohorts=1))
    return Federated(
        told=told,
        banded=16,
        rounds=32,
        insertion=participation,
        canaries=canaries,
        **other,
    )


def test_a_strategy_with_long_columns_is_named(twice_told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the mechanism writes its matrix there
    result = banded(twice_told, users=400).run().finish()
    (fault,) = result.faults
    assert fault.stage is Stage.NOISE_SCALE
    assert "too small for its strategy" in fault_parts(fault)[0]
    assert "columns were not scaled to length 1" in fault_parts(fault)[3]


def test_a_strategy_of_unit_columns_is_not_accused(twice_told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = banded(twice_told, scaled=True, users=400, canaries=1000).run().finish()
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    assert not result.faults
    assert "recomputed" in sentences(check_of(result, Stage.NOISE_SCALE).findings)


def test_users_who_come_back_too_soon_are_named(twice_told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = banded(twice_told, scaled=True, users=20).run().finish()
    often, soon = result.faults  # 20 users, 5 in a cohort
    assert (often.stage, soon.stage) == (Stage.ACCOUNTING, Stage.SAMPLING)
    assert fault_parts(often, "user")[2] == "at most 2"
    assert fault_parts(soon, "user")[1] == "after 4 rounds"


class SentWeights(Postprocessor):
    """Writes down who sends how much."""

    def __init__(self):
        self.sent, self.weights = [], []

    def postprocess_one_user(self, *, stats, user_context):
        self.sent.append((user_context.user_id, stats.weight))
        return stats, Metrics()

    def postprocess_server(self, *, stats, central_context, aggregate_metrics):
        self.weights.append(stats.weight)
        return stats, Metrics()


def test_cohorts_and_weights_do_not_depend_on_coins(once):
    found = []
    for key in (KEY, fixed_key(bytes(32))):
        book = SentWeights()
        Federated(told=once, insertion=ONCE, after=(book,), key=key).run()
        found.append((book.sent, book.weights))
    assert found[0] == found[1]
    assert len(found[0][0]) == 4 * 5 + 200


def test_a_run_in_two_parts_says_what_one_in_a_piece_says(once, tmp_path):
    def trained(*, broken):
        run = Federated(told=once, insertion=ONCE)
        model, audit, backend = run.open()
        algorithm = FederatedAveraging()
        run.train(model, backend, algorithm, rounds=2)
        if broken:
            audit.probe()
            audit.save(tmp_path / "audit.npz")
            second = run.audit(model, audit._mechanism)
            second.resume(tmp_path / "audit.npz")
            backend._training_dataset._rounds._audit = second
            backend._postprocessors = second.around([audit._mechanism])
            audit = second
        run.train(model, backend, algorithm, rounds=4)
        assert audit.rounds == 4
        return audit.finish()

    whole, parts = trained(broken=False), trained(broken=True)
    assert np.array_equal(
        whole.training.transcript.guess, parts.training.transcript.guess
    )
    assert whole.claim_test == parts.claim_test
    assert check_of(parts, Stage.GRADIENTS).status is Status.INSPECTED


def test_noise_that_comes_again_after_a_resume_is_named(tmp_path):
    run = Federated(told=accountant(8), rounds=4)
    model, audit, backend = run.open()
    run.train(model, backend)
    audit.save(tmp_path / "audit.npz")
    model, audit, backend = run.open()  # seeds everything as at the start
    audit.resume(tmp_path / "audit.npz")
    run.train(model, backend)
    fault, *_ = audit.finish().faults
    assert "the noise of step 5 is that of step 1" in fault_parts(fault)[0]


def test_the_claim_is_the_accountants():
    def told(**given):
        return PLDPrivacyAccountant(mechanism="gaussian", delta=1e-5, **given)

    plain = told(num_compositions=9, sampling_probability=1.0, noise_parameter=6.0)
    expected = GaussianDP(mu=0.5, adjacency=Adjacency.ZERO_OUT)
    assert claim_of(plain) == expected
    rare = told(num_compositions=9, sampling_probability=0.2, noise_parameter=1.5)
    assert claim_of(rare).epsilon_at(1e-5) == pytest.approx(rare.epsilon, rel=0.01)


def central(mechanism):
    return CentrallyAppliedPrivacyMechanism(mechanism)


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (lambda: GaussianMechanism(CLIP, 1.0), "CentrallyAppliedPrivacyMechanism"),
        (lambda: central(LaplaceMechanism(CLIP, 1.0)), "GaussianMechanism"),
        (
            lambda: AdaptiveClippingGaussianMechanism(
                lambda bound: GaussianMechanism(bound, 1.0), CLIP, 5.0, 0.5
            ),
            "users do not decide on",
        ),
    ],
    ids=["not central", "Laplace", "adaptive"],
)
def test_other_mechanisms_are_refused(once, mechanism, said):
    model, _, _ = Federated(told=once).open()
    with pytest.raises(InvalidInputError, match=said):
        Federated(told=once).audit(model, mechanism())


def test_accountants_of_something_else_are_refused():
    for wrong, said in (
        ("pld", "one of pfl's"),
        (
            PLDPrivacyAccountant(
                num_compositions=1,
                sampling_probability=1.0,
                mechanism="laplace",
                noise_parameter=2.0,
                delta=1e-5,
            ),
            "Gaussian mechanism",
        ),
        (
            PLDPrivacyAccountant(
                num_compositions=1,
                sampling_probability=1.0,
                mechanism="gaussian",
                noise_parameter=2.0,
                noise_scale=0.1,
                delta=1e-5,
            ),
            "noise_scale=0.1 stands for a larger cohort",
        ),
    ):
        net = Net(220)
        model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1))
        with pytest.raises(InvalidInputError, match=said):
            Federated(told=wrong).audit(model, central(GaussianMechanism(CLIP, 1.0)))


def test_correlated_noise_needs_turns_that_were_accounted_for(
    twice_told, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for insertion, said in (
        (Added(), "min_separation"),
        (Sampled(), "min_separation"),
        (Added(participation=Participation(every=4)), "takes part 8 times in 32"),
    ):
        run = Federated(told=twice_told, banded=16, rounds=32, insertion=insertion)
        with pytest.raises(InvalidInputError, match=said):
            run.open()


def test_a_backend_that_is_wired_wrongly_is_refused(once):
    run = Federated(told=once)
    model, audit, backend = run.open()
    with pytest.raises(InvalidInputError, match="Sampled"):
        audit.users(lambda user: user)
    with pytest.raises(InvalidInputError, match="must hold the mechanism"):
        audit.around([])
    with pytest.raises(InvalidRunError, match="no user to probe with"):
        audit.probe()
    backend._training_dataset = run.data(audit, 220)
    run.train(model, backend)
    with pytest.raises(InvalidRunError, match=r"audit\.dataset"):
        audit.finish()
    model, audit, backend = run.open()
    backend._postprocessors = backend._postprocessors[1:]
    run.train(model, backend)
    with pytest.raises(InvalidRunError, match="200 canary users were added"):
        audit.finish()
