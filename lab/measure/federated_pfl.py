"""Canary users in pfl: how often an honest training is accused, and faults caught.

    python lab/measure/federated_pfl.py honest     # Gaussian mechanism, 100 runs
    python lab/measure/federated_pfl.py noise      # the same with half of the noise
    python lab/measure/federated_pfl.py sampled    # honest, canaries are sampled
    python lab/measure/federated_pfl.py rate       # users sampled more often than told
    python lab/measure/federated_pfl.py banded     # pfl's banded mechanism as it is
    python lab/measure/federated_pfl.py column     # the same, columns scaled to 1
    python lab/measure/federated_pfl.py restore    # broken off and begun again
    python lab/measure/federated_pfl.py norms      # its strategies, without a run

Runs in an environment with the extra ``pfl``. Each run has a key and a seed of its own,
both from its number, so that all can be repeated. A claim of epsilon = 2 at delta =
1e-5 is tested, as pfl's accountant makes it.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from time import perf_counter
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset, FederatedDatasetBase
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.ftrl_mechanism import (
    BandedMatrixFactorizationMechanism,
    ForwardSubstitution,
)
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

from dpaudit import ApproxDP, Design, GaussianDP, OneRun
from dpaudit.dpsgd.participation import Participation, separated_sensitivity
from dpaudit.dpsgd.planning import Plan, TrainingSetup, plan_audit
from dpaudit.dpsgd.strategy import Matrix
from dpaudit.game.result import Result
from dpaudit.testing import fixed_key
from dpaudit.training.pfl import Added, PflAudit, Sampled
from dpaudit.training.pfl.setup import claim_of

CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
CLIP, USERS, COHORT = 0.5, 400, 5
torch.set_num_threads(1)
warnings.simplefilter("ignore")


class Net(torch.nn.Module):
    """A linear model."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(dimension))

    def loss(self, x: Any, y: Any, eval: bool = False) -> Any:  # noqa: ANN401, ARG002, FBT001, FBT002
        """Return the squared error."""
        return torch.square(x @ self.weights - y).mean()

    def metrics(self, x: Any, y: Any, eval: bool = False) -> dict[str, Any]:  # noqa: ANN401, ARG002, FBT001, FBT002
        """Return nothing."""
        return {}


class PoissonUsers(FederatedDatasetBase):  # type: ignore[misc]
    """Each user joins each cohort with a chance; pfl has no such sampler."""

    def __init__(self, make: Callable[[Any], Any], users: Any, rate: float) -> None:  # noqa: ANN401
        super().__init__()
        self._make, self._users, self._rate = make, np.array(users, object), rate

    def __next__(self) -> Any:  # noqa: ANN401 (pfl's)
        raise NotImplementedError

    def get_cohort(self, cohort_size: int) -> Iterator[Any]:  # noqa: ARG002 (pfl's)
        """Yield who joins."""
        joins = self._random_state.random_sample(len(self._users)) < self._rate
        for user in self._users[joins]:
            yield self._make(user), self._get_seed()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training, and how it is audited.

    Attributes:
        rounds: How many.
        times: Compositions that the accountant is told.
        told: The sampling probability that it is told.
        rate: That at which users are really sampled.
        divide: What the noise is divided by.
        participation: Whose turn it is, if canaries are added to cohorts.
        separation: What a banded mechanism is made for.
        scaled: Whether the columns of its strategy are scaled to length 1.
    """

    rounds: int
    times: int
    told: float = 1.0
    rate: float = 1.0
    divide: float = 1.0
    participation: Participation | None = None
    separation: int | None = None
    scaled: bool = False

    def mechanism(self) -> GaussianMechanism:
        """Return pfl's mechanism, new for each run."""
        accountant = accountant_of(self.times, self.told)
        if self.separation is None:
            return GaussianMechanism(CLIP, accountant.noise_parameter / self.divide)
        banded = BandedMatrixFactorizationMechanism(
            CLIP, self.rounds, self.separation, lambda _: replace(accountant)
        )
        if self.scaled:
            matrix = banded.query_matrix / np.linalg.norm(banded.query_matrix, axis=0)
            banded._C = matrix
            banded._C_inv_noise = ForwardSubstitution(matrix, self.separation - 1)
        return banded

    def plan(self, canaries: int) -> Plan:
        """Return the audit that is made of it."""
        accountant, strategy = accountant_of(self.times, self.told), None
        if self.separation is not None:
            strategy = Matrix(rows=self.mechanism().query_matrix)
        return plan_audit(
            TrainingSetup(
                steps=self.rounds,
                rate=self.told,
                noise=accountant.noise_parameter,
                participation=self.participation,
                strategy=strategy,
            ),
            claim=CLAIM,
            coordinates=canaries,
            per_coordinate=1,
            in_rounds=False,
            guarantee=claim_of(accountant),
        )


CASES = {
    "honest": Case(rounds=8, times=1, participation=Participation(every=8, cohorts=8)),
    "noise": Case(
        rounds=8, times=1, participation=Participation(every=8, cohorts=8), divide=2.0
    ),
    "sampled": Case(rounds=20, times=20, told=0.1, rate=0.1),
    "rate": Case(rounds=20, times=20, told=0.1, rate=0.3),
    "banded": Case(
        rounds=64, times=2, participation=Participation(every=32), separation=32
    ),
    "column": Case(
        rounds=64,
        times=2,
        participation=Participation(every=32),
        separation=32,
        scaled=True,
    ),
}
RUNS = {"honest": 100}  # of the others 20
CANARIES = {"honest": 1000, "noise": 3000, "sampled": 500, "rate": 500}


@cache
def accountant_of(times: int, rate: float) -> PLDPrivacyAccountant:
    """Return pfl's accountant; the search for its noise takes a while."""
    return PLDPrivacyAccountant(
        num_compositions=times,
        sampling_probability=rate,
        mechanism="gaussian",
        epsilon=CLAIM.epsilon,
        delta=CLAIM.delta,
    )


def user_of(name: object, dimension: int) -> Dataset:
    seed = int.from_bytes(sha256(str(name).encode()).digest()[:4])
    rng = torch.Generator().manual_seed(seed)
    inputs = torch.randn(2, dimension, generator=rng)
    return Dataset([inputs, torch.randn(2, generator=rng)], user_id=str(name))


def opened(
    case: Case, design: Design, number: int
) -> tuple[PyTorchModel, PflAudit, SimulatedBackend]:
    """Return a training that is about to begin."""
    np.random.seed(number)  # noqa: NPY002 (what pfl draws from)
    torch.manual_seed(number)
    dimension = design.canaries + 50
    net = Net(dimension)
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
    )
    central = CentrallyAppliedPrivacyMechanism(case.mechanism())
    audit = PflAudit(
        model,
        central,
        accountant_of(case.times, case.told),
        data=user_of("somebody", dimension),
        design=design,
        key=fixed_key(sha256(f"federated_pfl {number}".encode()).digest()),
        insertion=Sampled()
        if case.participation is None
        else Added(participation=case.participation),
    )

    def make(name: object) -> Dataset:
        return user_of(name, dimension)

    real = [f"user {i}" for i in range(USERS)]
    data: FederatedDatasetBase
    if case.participation is None:
        some = [*real[:20], *audit.user_ids]
        data = PoissonUsers(audit.users(make), some, case.rate)
    else:
        data = FederatedDataset(make, get_user_sampler("minimize_reuse", real))
    backend = SimulatedBackend(
        training_data=audit.dataset(data),
        val_data=data,
        postprocessors=audit.around([central]),
    )
    return model, audit, backend


def train(
    model: PyTorchModel, backend: SimulatedBackend, rounds: int, folder: str = ""
) -> None:
    """Train up to so many rounds, from checkpoints in a folder if there are any."""
    algorithm = FederatedAveraging()
    algorithm.run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_batch_size=8, local_num_epochs=1, local_learning_rate=0.01
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=8),
        callbacks=[RestoreTrainingCallback([model, algorithm], folder)]
        if folder
        else [],
        send_metrics_to_platform=False,
    )


def audited(case: Case, design: Design, number: int) -> Result:
    """Train once, and return what the audit found."""
    model, audit, backend = opened(case, design, number)
    train(model, backend, case.rounds)
    return audit.finish()


def restore() -> None:
    """Break a training off after 4 of 8 rounds, start it again, and print faults.

    Both times everything is seeded with the same number, as scripts do, and pfl's own
    callback restores model and algorithm.
    """
    participation = Participation(every=16, cohorts=16)
    case, folder = (
        Case(rounds=8, times=1, participation=participation),
        tempfile.mkdtemp(),
    )
    design = case.plan(500).design()
    model, audit, backend = opened(case, design, 0)
    train(model, backend, 4, folder)
    audit.save(f"{folder}/audit.npz")
    model, audit, backend = opened(case, design, 0)
    audit.resume(f"{folder}/audit.npz")
    train(model, backend, case.rounds, folder)
    print(audit.rounds, "rounds;", *audit.finish().faults)


def norms() -> None:
    """Print what pfl's strategies need, beside what their noise is made for."""
    print("| rounds | separation | longest column | joins | factor | true epsilon |")
    print("|---|---|---|---|---|---|")
    for rounds, apart in ((16, 4), (32, 8), (32, 16), (64, 32), (128, 32)):
        times = -(-rounds // apart)
        case = Case(rounds=rounds, times=times, separation=apart)
        matrix = case.mechanism().query_matrix
        found = separated_sensitivity(
            Matrix(rows=matrix), steps=rounds, separation=apart
        )
        true = GaussianDP(mu=found / accountant_of(times, 1.0).noise_parameter)
        # With C the gram matrix is C^T C; numpy's factor L has L L^T.
        gram = matrix @ matrix.T
        other = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
        assert np.allclose(np.linalg.norm(other, axis=0), 1, atol=1e-3)
        longest = np.linalg.norm(matrix, axis=0).max()
        print(
            f"| {rounds} | {apart} | {longest:.3f} | {times} | "
            f"{found / np.sqrt(times):.3f} | {true.epsilon_at(CLAIM.delta):.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case", choices=[*CASES, "restore", "norms"])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--canaries", type=int)
    parser.add_argument("--guesses", type=int, help="as planned if left out")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    given = parser.parse_args()
    os.chdir(tempfile.mkdtemp())  # the banded mechanism writes its matrix beside it
    if given.case == "restore":
        restore()
        return
    if given.case == "norms":
        net = Net(1)  # from which pfl learns that torch is used
        PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
        norms()
        return
    case, runs = CASES[given.case], given.runs or RUNS.get(given.case, 20)
    plan = case.plan(given.canaries or CANARIES.get(given.case, 2000))
    print(plan, file=sys.stderr)
    design = plan.design()
    if given.guesses:
        design = replace(design, rules=OneRun(guesses=given.guesses))
    repeat(given.case, case, design, range(given.first, given.first + runs))


def repeat(name: str, case: Case, design: Design, numbers: range) -> None:
    """Make the runs, and print what came of each and of all."""
    found, named, start = [], 0, perf_counter()
    for number in numbers:
        result = audited(case, design, number)
        found.append((result.claim_test.p_value, result.bound.epsilon_lower))
        named += bool(result.faults)
        said = result.faults[0] if result.faults else "no fault found"
        print(f"{number}: p = {found[-1][0]:.3g}, {found[-1][1]:.3f}; {said}")
        sys.stdout.flush()
    p, epsilon = np.array(found).T
    print(
        f"{name}: {len(p)} runs of {design.canaries} canaries, {design.guesses} "
        f"guesses; p <= 0.05 in {np.sum(p <= 0.05)}, p < 0.001 in {np.sum(p < 0.001)}, "
        f"smallest p {p.min():.2g}, median {np.median(p):.2g}, largest {p.max():.2g}; "
        f"mean bound {epsilon.mean():.3f} (standard deviation {epsilon.std():.3f}); "
        f"faults named in {named}; {(perf_counter() - start) / len(p):.1f} s a run"
    )


if __name__ == "__main__":
    main()
