"""Small audits of real training, in torch and Opacus: for ``soak.py``."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from opacus import PrivacyEngine
from soak_games import CLAIM, Audit, key_of
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

from dpaudit import Design, OneRun
from dpaudit.evidence import evidence_of, seal, verify
from dpaudit.game.result import Result
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.black_box import BlackBoxAudit, mislabelled
from dpaudit.training.opacus import OpacusAudit, with_canaries

__all__ = ["TRAININGS"]

RECORDS: Final = 60
CANARIES: Final = 60
STEPS: Final = 6


def any_loop(rng: np.random.Generator, folder: Path) -> None:
    """A loop in numpy that stops half way, and goes on from its state."""
    design = Design(canaries=CANARIES, rules=OneRun(guesses=20), claim=CLAIM)
    key, path = key_of(rng), folder / "state.npz"

    def opened() -> SumsAudit:
        return SumsAudit(design=design, key=key, dimension=80, sample_rate=0.5)

    audit = opened()
    for step in range(STEPS):
        if step == STEPS // 2:
            audit.save(path)
            audit = opened()
            audit.resume(path)
        total = rng.normal(size=80)
        total[audit.coordinates] += audit.contributions()
        audit.observe(total[audit.coordinates])
    result = audit.finish()
    assert Result.from_json(result.to_json()) == result


def records(rng: np.random.Generator) -> TensorDataset:
    """Return records for a small network."""
    torch.manual_seed(int(rng.integers(1 << 31)))
    return TensorDataset(torch.randn(RECORDS, 10), torch.randint(4, (RECORDS,)))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 4))


def private(data: Any, mode: str) -> tuple[Any, ...]:  # noqa: ANN401 (records or canaries)
    """Return model, optimizer, loss and loader as Opacus makes them, and its engine."""
    model, engine = network(), PrivacyEngine()
    loss: Any = nn.CrossEntropyLoss()
    model, optimizer, *made, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=len(data) // 5),
        criterion=loss,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    return model, optimizer, made[0] if made else loss, loader, engine


def train(audit: OpacusAudit, model: Any, optimizer: Any, loss: Any) -> None:  # noqa: ANN401
    taken = 0
    while taken < STEPS:
        for inputs, labels in audit.data_loader:
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()
            taken += 1


def opacus(mode: str, *, as_records: bool) -> Audit:
    """Opacus' training; the result is logged, and its evidence verified."""

    def audit(rng: np.random.Generator, folder: Path) -> None:
        data: Any = records(rng)
        if as_records:
            data = with_canaries(data, canaries=CANARIES)
        model, optimizer, loss, loader, engine = private(data, mode)
        key = key_of(rng)
        riding = OpacusAudit(
            optimizer,
            loader,
            design=Design(canaries=CANARIES, rules=OneRun(guesses=20), claim=CLAIM),
            key=key,
            accountant=engine.accountant,
        )
        train(riding, model, optimizer, loss)
        riding.save(folder / "state.npz")
        result = riding.finish()
        with SummaryWriter(folder / "runs") as writer:
            for name, value in result.metrics().items():
                if not isinstance(value, str):
                    writer.add_scalar(name, value, STEPS)
        assert verify(seal(evidence_of(result, key=key))).sound

    return audit


def black_box(rng: np.random.Generator, _folder: Path) -> None:
    """A plain training, audited by its final model."""
    data = records(rng)
    canaries = mislabelled(data, count=CANARIES, classes=4, seed=0)
    design = Design(canaries=CANARIES, rules=OneRun(guesses=20), claim=CLAIM)
    audit = BlackBoxAudit(canaries, design=design, key=key_of(rng))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training_set = ConcatDataset([data, audit.included()])
    for inputs, labels in DataLoader(training_set, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    audit.finish(audit.score(model, loss=nn.functional.cross_entropy))


TRAININGS: Final[dict[str, Audit]] = {
    "any loop, resumed": any_loop,
    "Opacus, records": opacus("hooks", as_records=True),
    "Opacus, sums, ghost clipping": opacus("ghost", as_records=False),
    "black box": black_box,
}
