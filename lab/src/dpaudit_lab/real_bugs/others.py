"""Public bugs of further libraries: NVFlare, pure-LDP, dp-accounting, Opacus."""

import logging
from importlib import import_module

import numpy as np

from dpaudit import Adjacency, GaussianDP, PrivacyCurve
from dpaudit_lab.real_bugs.cases import Bug, Case, pure
from dpaudit_lab.real_bugs.loading import part_of

__all__ = ["BUGS"]


def _unnoised_weight() -> Case:
    logging.disable(logging.CRITICAL)
    vars(np)["float"] = float  # a name that numpy 2 dropped
    svt = import_module("nvflare.app_common.filters.svt_privacy")
    exchange = import_module("nvflare.apis.dxo")
    context = import_module("nvflare.apis.fl_context").FLContext
    epsilon, weights = 0.1, 2
    privacy = svt.SVTPrivacy(
        fraction=1.0, epsilon=epsilon, noise_var=epsilon, gamma=1.0, tau=0.1
    )

    def release(values: list[float]) -> list[float]:
        update = exchange.DXO(
            data_kind=exchange.DataKind.WEIGHT_DIFF, data={"w": np.array(values)}
        )
        shared = privacy.process(update.to_shareable(), context())
        noisy = exchange.from_shareable(shared).data["w"]
        return [float(value) for value in noisy]

    # For the threshold, for the comparisons, for the released weight.
    claim = epsilon + epsilon * (2 * weights) ** (2 / 3) + epsilon
    return Case(function=release, x=[0.9, 0.8], y=[0.95, 0.8], claim=pure(claim))


def _true_bit_kept() -> Case:
    unary = part_of("pure_ldp", "frequency_oracles.unary_encoding.ue_client")
    client = unary.UEClient(epsilon=0.5, d=2)
    return Case(
        function=lambda item: [int(bit) for bit in client.privatise(item)],
        x=1,
        y=2,
        claim=pure(0.5),
    )


def _half_the_sensitivity() -> Case:
    accounting = import_module("dp_accounting")
    multiplier = 2.0
    accountant = accounting.rdp.RdpAccountant(
        neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE
    )
    accountant.compose(accounting.GaussianDpEvent(multiplier))
    deltas = np.geomspace(0.5, 1e-8, 40)
    epsilons = np.array([accountant.get_epsilon(delta) for delta in deltas])
    epsilons, kept = np.unique(epsilons, return_index=True)

    rng = np.random.default_rng()

    def release(values: list[float]) -> float:
        return round(sum(values) + multiplier * float(rng.normal()), 3)

    return Case(
        function=release,
        x=[-1.0],
        y=[1.0],
        claim=PrivacyCurve(
            epsilons=epsilons,
            deltas=np.minimum.accumulate(deltas[kept]),
            adjacency=Adjacency.REPLACE_ONE,
        ),
    )


def _secure_mode() -> Case:
    torch = import_module("torch")
    optimizers = import_module("opacus.optimizers")
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = optimizers.DPOptimizer(
        torch.optim.SGD([parameter], lr=1.0),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=1,
        secure_mode=True,
    )

    def release(gradient: float) -> float:
        parameter.summed_grad = torch.tensor([gradient])
        optimizer.add_noise()
        return float(parameter.grad[0])

    return Case(
        function=release,
        x=0.0,
        y=1.0,
        claim=GaussianDP(mu=1.0, adjacency=Adjacency.REPLACE_ONE),
    )


BUGS = (
    Bug(
        name="nvflare-343",
        library="nvflare",
        version="2.0.16",
        url="https://github.com/NVIDIA/NVFlare/issues/343",
        summary=(
            "Weights are drawn with replacement; those not drawn are shared "
            "without noise."
        ),
        fixed="2.0.18",
        disclosed=True,
        requires=("numpy",),
        alone=("nvflare==2.0.16",),
        observed=(
            "0.95 itself is shared in about a quarter of calls; the claim "
            "adds the budgets of threshold, comparisons and release; "
            "refuted with 2,000 calls in 1.6 s of CPU"
        ),
        make=_unnoised_weight,
    ),
    Bug(
        name="pure-ldp-11",
        library="pure-ldp",
        version="1.1.2",
        url="https://github.com/Samuel-Maddock/pure-LDP/issues/11",
        summary="The true bit is drawn with the others, then only ever set to 1.",
        fixed="1.2.0",
        disclosed=True,
        requires=("numpy", "bitarray", "scikit-learn", "statsmodels", "xxhash"),
        alone=("pure-ldp==1.1.2",),
        observed=(
            "the true bit is 1 in 0.75 of calls where 0.56 is claimed; "
            "refuted with 2,000 calls in 0.3 s of CPU"
        ),
        make=_true_bit_kept,
    ),
    Bug(
        name="dp-accounting-378",
        library="dp-accounting",
        version="0.6.0",
        url="https://github.com/google/differential-privacy/issues/378",
        summary=(
            "The RDP accountant takes the noise over the clipping norm for "
            "that over the sensitivity, which is twice the norm if a record "
            "is replaced."
        ),
        fixed=None,
        disclosed=True,
        requires=("dp-accounting==0.6.0",),
        observed=(
            "sums of -1 and 1 with noise of scale 2: mu is 1 where the "
            "curve is that of 0.5; refuted with 2,000 calls in 0.3 s of CPU"
        ),
        make=_half_the_sensitivity,
    ),
    Bug(
        name="opacus-616",
        library="opacus",
        version="1.6.0",
        url="https://github.com/meta-pytorch/opacus/issues/616",
        summary=(
            "The noise of secure mode is still added in floating point: low "
            "bits tell the sum."
        ),
        fixed=None,
        disclosed=True,
        requires=("opacus==1.6.0",),
        observed=(
            "outputs of 0.0 and 1.0 are told apart by low bits; the report "
            "is closed, the code unchanged; refuted with 2,000 calls in 3.3 "
            "s of CPU"
        ),
        make=_secure_mode,
    ),
)
