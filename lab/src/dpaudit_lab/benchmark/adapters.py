"""Training with an audit beside the same training without one, by Opacus.

``digits``: a network of 17,000 parameters on 1,440 records of 64 numbers, batches of
144, per-sample gradients by hooks, 1,000 canaries. ``ghost``: 2.1 million parameters,
2,560 records of 784 numbers, batches of 256, ghost clipping, 100,000 canaries. The data
are noise: nothing here depends on what is learnt. An audited training and a plain one
take turns, so many steps each, on one thread. The guesses, made once when training is
over, are not in the time; they are in the memory.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Final, final

import numpy as np

from dpaudit.errors import MissingExtraError
from dpaudit.game.setting import Setting as DesignSetting
from dpaudit_lab.benchmark.costs import BARE, Costs, not_installed
from dpaudit_lab.benchmark.memory import growth
from dpaudit_lab.benchmark.row import Part
from dpaudit_lab.power.timing import cpu
from dpaudit_lab.sweeps.store import Outcome, Setting

__all__ = ["KINDS", "SMALL_KINDS", "Kind", "Steps", "adapters", "training"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A network, its records, and how many canaries it is audited with.

    Attributes:
        inputs: Numbers in a record.
        hidden: Units of the hidden layers.
        layers: How many hidden layers.
        records: How many records.
        batch: How many of them in a batch, on average.
        mode: Opacus' ``grad_sample_mode``: hooks or ghost.
        coordinates: Coordinates with canaries.
    """

    inputs: int
    hidden: int
    layers: int
    records: int
    batch: int
    mode: str
    coordinates: int

    @property
    def parameters(self) -> int:
        """How many the network has."""
        inner = (self.layers - 1) * (self.hidden + 1) * self.hidden
        return (self.inputs + 1) * self.hidden + inner + (self.hidden + 1) * 10


KINDS: Final = {
    "digits": Kind(
        inputs=64,
        hidden=226,
        layers=1,
        records=1440,
        batch=144,
        mode="hooks",
        coordinates=1000,
    ),
    "ghost": Kind(
        inputs=784,
        hidden=1100,
        layers=2,
        records=2560,
        batch=256,
        mode="ghost",
        coordinates=100_000,
    ),
}
SMALL_KINDS: Final = ("digits",)
_STEPS = 10


@final
@dataclass(frozen=True, slots=True)
class Steps:
    """Makes so many steps of a training when it is called.

    Attributes:
        step: One of them, on a batch.
        batches: Without end.
    """

    step: Callable[[Any], None]
    batches: Iterator[Any]

    def __call__(self, count: int) -> None:
        """Make so many steps."""
        for _ in range(count):
            self.step(next(self.batches))


def training(
    kind: Kind,
    *,
    audited: bool,
    per_coordinate: int = 1,
    knows_real_sums: bool = True,
    checked: bool = False,
) -> tuple[Steps, Any]:
    """Return what makes so many steps of a training, and the audit if there is one.

    Args:
        kind: What is trained.
        audited: Whether it is.
        per_coordinate: Canaries at each coordinate.
        knows_real_sums: Whether the guesser is told what real records put into the
            sums.
        checked: Whether the audit is given the model and the accountant, and looks at
            all stages, as the default audit does.
    """
    torch, opacus = _torch_and_opacus()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = [kind.inputs, *[kind.hidden] * kind.layers]
    inner = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    model = torch.nn.Sequential(
        *(part for layer in inner for part in (layer, torch.nn.ReLU())),
        torch.nn.Linear(kind.hidden, 10),
    )
    data = torch.utils.data.TensorDataset(
        torch.randn(kind.records, kind.inputs), torch.randint(10, (kind.records,))
    )
    engine = opacus.PrivacyEngine()
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        data_loader=torch.utils.data.DataLoader(data, batch_size=kind.batch),
        criterion=torch.nn.CrossEntropyLoss(),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode=kind.mode,
    )
    model, optimizer, *criteria, loader = made
    criterion = criteria[0] if criteria else torch.nn.CrossEntropyLoss()
    audit = None
    if audited:
        audit = _audit(
            optimizer,
            loader,
            kind,
            per_coordinate,
            knows_real_sums=knows_real_sums,
            **({"model": model, "accountant": engine.accountant} if checked else {}),
        )

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    def step(batch: Any) -> None:  # noqa: ANN401 (what a loader yields)
        inputs, labels = batch
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()

    return Steps(step, batches()), audit


def _audit(
    optimizer: Any,  # noqa: ANN401 (Opacus')
    loader: Any,  # noqa: ANN401 (torch's)
    kind: Kind,
    per_coordinate: int,
    *,
    knows_real_sums: bool,
    **more: Any,  # noqa: ANN401 (arguments of the audit)
) -> Any:  # noqa: ANN401 (of an extra)
    from dpaudit.game.coins import Key  # noqa: PLC0415
    from dpaudit.game.design import Design  # noqa: PLC0415
    from dpaudit.game.rules import OneRun  # noqa: PLC0415
    from dpaudit.privacy.guarantees import ApproxDP  # noqa: PLC0415
    from dpaudit.training.opacus import OpacusAudit  # noqa: PLC0415 (an extra)

    design = Design(
        canaries=kind.coordinates * per_coordinate,
        rules=OneRun(guesses=min(1000, kind.coordinates)),
        claim=ApproxDP(epsilon=2.0, delta=1e-5),
        setting=DesignSetting(per_coordinate=per_coordinate),
    )
    return OpacusAudit(
        optimizer,
        loader,
        design=design,
        key=Key.generate(),
        knows_real_sums=knows_real_sums,
        **more,
    )


def _torch_and_opacus() -> tuple[Any, Any]:
    try:
        import opacus  # noqa: PLC0415 (an extra)
        import torch  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise MissingExtraError.of("training by Opacus needs it", "opacus") from error
    return torch, opacus


@cache
def _trained(name: str) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """Return an audited training and a plain one, both under way."""
    with_audit, _ = training(KINDS[name], audited=True)
    plain, _ = training(KINDS[name], audited=False)
    with_audit(5)
    plain(5)
    return with_audit, plain


def pair_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Time some steps with an audit and without one in turn, in CPU seconds."""
    del rng
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus' and torch's, about hooks
        with_audit, plain = _trained(str(setting["kind"]))
        steps = int(setting["steps"] or 0)
        return {"ours": cpu(with_audit, steps), BARE: cpu(plain, steps)}


def memory_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Measure the memory of a training with an audit, and of one without."""
    del rng
    name, steps = str(setting["kind"]), int(setting["steps"] or 0)
    return {
        key: growth(_imported, partial(_whole, name, steps, audited=audited))
        for key, audited in (("ours", True), (BARE, False))
    }


def _imported() -> None:
    import dpaudit.training.opacus  # noqa: F401, PLC0415 (an extra)


def _whole(name: str, count: int, _ready: None, *, audited: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps, audit = training(KINDS[name], audited=audited)
        steps(count)
        if audit is not None:
            audit.finish()


def adapters(*, pairs: int = 20, kinds: tuple[str, ...] = tuple(KINDS)) -> Costs:
    """Return the comparison of audited with plain training.

    Args:
        pairs: How often each is timed.
        kinds: Names of what is trained.
    """
    there = find_spec("opacus") is not None
    return Costs(
        part=Part.ADAPTERS,
        settings=[
            {"kind": name, "version": version("opacus"), "steps": _STEPS}
            for name in (kinds if there else ())
        ],
        times=pair_trial,
        memory=memory_trial,
        size=_size,
        names=_names,
        missing=() if there else (not_installed("opacus", "opacus"),),
        pairs=pairs,
    )


def _size(setting: Setting) -> str:
    kind = KINDS[str(setting["kind"])]
    return (
        f"{kind.parameters:,} parameters, {kind.mode}, batches of {kind.batch}, "
        f"{kind.coordinates:,} canaries, {setting['steps']} steps"
    )


def _names(setting: Setting) -> dict[str, str]:
    opacus = f"opacus {setting['version']}"
    return {"ours": f"{opacus} with an audit", BARE: f"{opacus}, bare"}
