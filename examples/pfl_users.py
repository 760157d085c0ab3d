"""Audit federated training in pfl, from the run itself: canaries are users.

    python examples/pfl_users.py                        # an honest run
    python examples/pfl_users.py --divide-noise-by 4    # the same with a bug
    python examples/pfl_users.py --weigh-after          # users weighed once clipped

A linear model is trained on users of their own data, with a central Gaussian mechanism
that pfl's accountant calibrates for users who take part once. The third run multiplies
clipped updates by the number of a user's data points. The exit code is the verdict's: 1
if refuted.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

from dpaudit import ApproxDP, Design, Key, OneRun
from dpaudit.dpsgd.participation import Participation
from dpaudit.game.result import Result
from dpaudit.training.pfl import Added, PflAudit

CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
ROUNDS, USERS, COHORT, DIMENSION, CLIP = 10, 200, 20, 1200, 0.5


class Linear(torch.nn.Module):
    """What users train."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(DIMENSION))

    def loss(self, x: Any, y: Any, eval: bool = False) -> Any:  # noqa: ANN401, ARG002, FBT001, FBT002
        """Return the squared error, as pfl asks for it."""
        return torch.square(x @ self.weights - y).mean()

    def metrics(self, x: Any, y: Any, eval: bool = False) -> dict[str, Any]:  # noqa: ANN401, ARG002, FBT001, FBT002
        """Return no metrics: what users' metrics tell is not protected by noise."""
        return {}


def user(number: int) -> Dataset:
    """Return the data of a user."""
    rng = torch.Generator().manual_seed(number)
    inputs = torch.randn(4, DIMENSION, generator=rng)
    labels = inputs[:, 0] + torch.randn(4, generator=rng)
    return Dataset([inputs, labels], user_id=f"user {number}")


def train_and_audit(
    *,
    divide_noise_by: float = 1.0,
    weigh_after: bool = False,
    seed: int | None = None,
    key: Key,
    publish: Callable[[str], object] = print,
) -> Result:
    """Return the audit's result."""
    np.random.seed(seed)  # noqa: NPY002 (what pfl draws its seeds from)
    net = Linear()
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
    )

    # What pfl is set to: each user takes part once.
    accountant = PLDPrivacyAccountant(
        num_compositions=1,
        sampling_probability=1.0,
        mechanism="gaussian",
        epsilon=CLAIM.epsilon,
        delta=CLAIM.delta,
        value_discretization_interval=1e-3,  # rounds up a little more, in less time
    )
    noise = accountant.noise_parameter / divide_noise_by
    mechanism = CentrallyAppliedPrivacyMechanism(GaussianMechanism(CLIP, noise))
    users = FederatedDataset(user, get_user_sampler("minimize_reuse", range(USERS)))
    postprocessors = [mechanism, *([WeightByDatapoints()] if weigh_after else [])]

    # The audit: 1,000 canary users, a tenth of them in each round.
    audit = PflAudit(
        model,
        mechanism,
        accountant,
        data=user(USERS),
        design=Design(canaries=1000, rules=OneRun(guesses=150), claim=CLAIM),
        key=key,
        insertion=Added(participation=Participation(every=ROUNDS, cohorts=ROUNDS)),
        unchecked=("interference",),  # what comes after the noise is not seen
    )
    publish(f"commitment: {audit.commitment.sha256}")  # before the run
    backend = SimulatedBackend(
        training_data=audit.dataset(users),
        val_data=users,
        postprocessors=audit.around(postprocessors),
    )

    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=ROUNDS + 1,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_batch_size=4, local_num_epochs=1, local_learning_rate=0.01
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=4),
        send_metrics_to_platform=False,
    )
    audit.probe()
    return audit.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--weigh-after", action="store_true")
    arguments = parser.parse_args()
    result = train_and_audit(
        divide_noise_by=arguments.divide_noise_by,
        weigh_after=arguments.weigh_after,
        key=Key.generate(),
    )
    print(result)
    raise SystemExit(result.verdict.exit_code)


if __name__ == "__main__":
    main()
