"""A small private training program, and cases that are variations of it.

A case is a program with one fault, or a correct one that an audit might mistake for a
faulty one. Its author states beforehand whether the fault is in the published scope,
what it makes of the true epsilon and why. Cases are frozen before they are run.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from dpaudit.game.findings import Hypothesis as Hypotheses
from dpaudit.game.findings import Stage

__all__ = ["HYPOTHESIS_OF", "RECORDS", "Case", "Program", "private", "table"]

RECORDS: Final = 1000
_FEATURES, _CLASSES, _HIDDEN = 24, 5, 80

Step: TypeAlias = Callable[[Any], object]
Hypothesis: TypeAlias = Literal["H1", "H2", "H3", "H4", "H5", "H6"]

# Which hypothesis a stage of the training is a part of.
HYPOTHESIS_OF: Final[Mapping[Stage, str]] = {
    stage: f"H{1 + [*Hypotheses].index(stage.hypothesis)}" for stage in Stage
}


@dataclass(kw_only=True)
class Program:
    """A private training program, ready to be audited and run.

    Attributes:
        engine: The privacy engine, whose accountant states the claim.
        model: As ``make_private`` returned it, and so the next two.
        optimizer: See there.
        loader: What ``make_private`` returned; the loop may use another.
        raw_loader: What was given to ``make_private``.
        data: The records.
        steps: How many steps the loop is going to make.
        step: What happens to one batch.
        train: The whole loop, without arguments, in which ``step`` is called.
        after_opening: What the program does between opening the audit and training.
        note: Whatever a case needs to keep.
    """

    engine: PrivacyEngine
    model: Any
    optimizer: DPOptimizer
    loader: DataLoader[Any]
    raw_loader: DataLoader[Any]
    data: Dataset[Any]
    steps: int
    step: Step
    train: Callable[[], object]
    after_opening: Callable[[], object] | None = None
    note: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A variation of the program, with what its author says of it.

    Attributes:
        name: In lower case, with hyphens; unique.
        what: What is done, in a sentence.
        build: Makes the program from a seed.
        breaks: The hypothesis that it breaks, as its author sees it; None if the
            program is correct.
        in_scope: Whether the fault is in the published scope.
        true_epsilon: What is spent at delta = 1e-5, with the argument; of a correct
            program why it spends no more than it claims.
        undisclosed: Whether it may show a fault of another project that is not public
            yet, so that its results stay in ``lab/findings``. Not the author's: it does
            not change the program.
    """

    name: str
    what: str
    build: Callable[[int], Program]
    breaks: Hypothesis | None
    in_scope: bool = True
    true_epsilon: str
    undisclosed: bool = False


def table(records: int = RECORDS, seed: int = 1) -> TensorDataset:
    """Return labelled records: Gaussian features, labels by a linear rule."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(records, _FEATURES, generator=generator)
    rule = torch.randn(_FEATURES, _CLASSES, generator=generator)
    return TensorDataset(features, (features @ rule).argmax(1))


def private(  # noqa: PLR0913 (each is something that cases vary)
    seed: int,
    *,
    model: nn.Module | None = None,
    data: Dataset[Any] | None = None,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None,
    batch_size: int = 100,
    noise: float = 2.25,
    clip: float | list[float] = 1.0,
    epochs: int = 10,
    loader: Mapping[str, Any] | None = None,
    criterion: Callable[..., torch.Tensor] | None = None,
    **make_private: Any,  # noqa: ANN401 (Opacus')
) -> Program:
    """Return a correct program: epsilon is 2 at delta = 1e-5 unless it is varied.

    100 steps of SGD at rate 1/10 with a noise multiplier of 2.25, on 1,000 records, of
    a network with 2,405 parameters. With ``grad_sample_mode="ghost"`` the criterion is
    wrapped by Opacus as it must be.
    """
    torch.manual_seed(seed)
    data = table() if data is None else data
    network = model or nn.Sequential(
        nn.Linear(_FEATURES, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, _CLASSES)
    )
    torch.seed()  # noise is never seeded
    make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.2))
    engine = PrivacyEngine(accountant=make_private.pop("accountant", "rdp"))
    raw = DataLoader(data, batch_size=batch_size, shuffle=True, **(loader or {}))
    loss: Any = criterion or nn.CrossEntropyLoss()
    if make_private.get("grad_sample_mode") == "ghost":
        make_private["criterion"] = loss
    made = engine.make_private(
        module=network,
        optimizer=make(p for p in network.parameters() if p.requires_grad),
        data_loader=raw,
        noise_multiplier=noise,
        max_grad_norm=clip,
        **make_private,
    )
    if "criterion" in make_private:
        wrapped, private_optimizer, loss, private_loader = made
    else:
        wrapped, private_optimizer, private_loader = made

    def step(batch: Any) -> Any:  # noqa: ANN401
        inputs, labels = batch
        private_optimizer.zero_grad()
        value = loss(wrapped(inputs), labels)
        value.backward()
        private_optimizer.step()
        return value

    program = Program(
        engine=engine,
        model=wrapped,
        optimizer=private_optimizer,
        loader=private_loader,
        raw_loader=raw,
        data=data,
        steps=epochs * len(private_loader),
        step=step,
        train=lambda: None,
    )
    program.note["loss"] = loss

    def train() -> None:
        for _ in range(epochs):
            for batch in program.loader:
                program.step(batch)

    program.train = train
    return program
