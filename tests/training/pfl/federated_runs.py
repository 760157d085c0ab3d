"""Small real trainings in pfl, with a linear model."""

from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
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

from dpaudit import ApproxDP, Design, Key, OneRun
from dpaudit.game.setting import Setting
from dpaudit.testing import fixed_key
from dpaudit.training.pfl import Added, PflAudit, Sampled

torch.set_num_threads(1)

KEY = fixed_key(bytes(range(32)))
EPSILON, DELTA, CLIP = 2.0, 1e-5, 0.5


class Net(torch.nn.Module):
    """A linear model, in two tensors."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        half = dimension // 2
        self.left = torch.nn.Parameter(torch.zeros(half))
        self.right = torch.nn.Parameter(torch.zeros(1, dimension - half))

    def loss(self, x, y, eval=False):  # noqa: FBT002 (pfl's)
        weights = torch.cat([self.left, self.right[0]])
        return torch.square(x @ weights - y).mean()

    def metrics(self, x, y, eval=False):  # noqa: FBT002 (pfl's)
        return {}


def user_data(user: Any, dimension: int, points: int = 2) -> Dataset:
    """Return a user's data; the same for the same user."""
    rng = torch.Generator().manual_seed(crc32(str(user).encode()))
    inputs = torch.randn(points, dimension, generator=rng)
    return Dataset([inputs, torch.randn(points, generator=rng)], user_id=user)


class PoissonUsers(FederatedDatasetBase):
    """Each user joins each cohort with a chance; pfl has no such sampler."""

    def __init__(self, make, users, rate: float, seed: int) -> None:
        super().__init__()
        self._make, self._users, self._rate = make, users, rate
        self._rng = np.random.default_rng(seed)

    def __next__(self):
        raise NotImplementedError

    def get_cohort(self, cohort_size: int):
        for user in np.array(self._users, object)[
            self._rng.random(len(self._users)) < self._rate
        ]:
            yield self._make(user), self._get_seed()


def accountant(times: int, *, rate: float = 1.0, epsilon: float = EPSILON):
    """Return pfl's accountant of so many compositions."""
    return PLDPrivacyAccountant(
        num_compositions=times,
        sampling_probability=rate,
        mechanism="gaussian",
        epsilon=epsilon,
        delta=DELTA,
        value_discretization_interval=1e-3,
    )


@dataclass(frozen=True, kw_only=True)
class Federated:
    """A training, and how it is audited.

    Attributes:
        told: The accountant.
        divide: What the noise is divided by.
        before: Postprocessors before the mechanism.
        after: Those after it.
        banded: The separation that a banded mechanism is made for.
        scaled: Whether the columns of its strategy are scaled to length 1.
        rate: At which users are really sampled, if the sampler picks canaries.
        points: Data points of a canary user.
        counted: Whether the audit is told how many users there are.
    """

    told: Any
    canaries: int = 200
    rounds: int = 4
    guesses: int = 60
    users: int = 30
    cohort: int = 5
    divide: float = 1.0
    insertion: Any = field(default_factory=Added)
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()
    banded: int | None = None
    scaled: bool = False
    rate: float = 1.0
    points: int = 2
    counted: bool = False
    per_coordinate: int = 1
    key: Key = KEY
    seed: int = 0

    def open(self):
        """Return model, audit and backend of a training that is about to begin."""
        np.random.seed(self.seed)  # noqa: NPY002 (what pfl draws from)
        torch.manual_seed(self.seed)
        dimension = self.canaries // self.per_coordinate + 20
        net = Net(dimension)
        model = PyTorchModel(
            net,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
        )
        central = CentrallyAppliedPrivacyMechanism(self.mechanism())
        audit = self.audit(model, central)
        data = self.data(audit, dimension)
        backend = SimulatedBackend(
            training_data=audit.dataset(data),
            val_data=data,
            postprocessors=audit.around([*self.before, central, *self.after]),
        )
        return model, audit, backend

    def audit(self, model, central):
        """Return the audit of a training."""
        dimension = model.get_parameters().num_parameters
        return PflAudit(
            model,
            central,
            self.told,
            data=user_data("somebody", dimension, self.points),
            design=Design(
                canaries=self.canaries,
                rules=OneRun(guesses=self.guesses),
                claim=ApproxDP(epsilon=EPSILON, delta=DELTA),
                setting=Setting(per_coordinate=self.per_coordinate),
            ),
            key=self.key,
            insertion=self.insertion,
            users=self.users if self.counted else None,
            unchecked=("gradients", "interference"),
        )

    def mechanism(self):
        """Return what clips and adds noise."""
        if self.banded is None:
            return GaussianMechanism(CLIP, self.told.noise_parameter / self.divide)
        mechanism = BandedMatrixFactorizationMechanism(
            CLIP, self.rounds, self.banded, lambda times: replace(self.told)
        )
        if self.scaled:
            matrix = mechanism.query_matrix
            mechanism._C = matrix / np.linalg.norm(matrix, axis=0)
            mechanism._C_inv_noise = ForwardSubstitution(mechanism._C, self.banded - 1)
        return mechanism

    def data(self, audit, dimension):
        """Return users, canaries among them if they are sampled."""

        def make(user):
            return user_data(user, dimension)

        real = [f"user {i}" for i in range(self.users)]
        if isinstance(self.insertion, Sampled):
            users = [*real, *audit.user_ids]
            return PoissonUsers(audit.users(make), users, self.rate, self.seed)
        return FederatedDataset(make, get_user_sampler("minimize_reuse", real))

    def train(self, model, backend, algorithm=None, rounds: int | None = None):
        """Train as anybody would, up to so many rounds."""
        rounds = rounds or self.rounds
        (algorithm or FederatedAveraging()).run(
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=rounds,
                evaluation_frequency=rounds + 1,
                train_cohort_size=self.cohort,
                val_cohort_size=0,
            ),
            backend=backend,
            model=model,
            model_train_params=NNTrainHyperParams(
                local_batch_size=8, local_num_epochs=1, local_learning_rate=0.01
            ),
            model_eval_params=NNEvalHyperParams(local_batch_size=8),
            send_metrics_to_platform=False,
        )

    def run(self):
        """Return the audit of a whole training."""
        model, audit, backend = self.open()
        self.train(model, backend)
        return audit
