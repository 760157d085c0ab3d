"""Training in 16 bits: no correct run is at fault, and nothing passes unmeasured.

Parameters in bfloat16 or float16, alone or beside float32; autocast. Tensor parallelism
is refused.
"""

import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path

import pytest
import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.grad_sample.utils import prepare_module
from opacus.optimizers import FSDPOptimizerFastGradientClipping
from private_runs import UNPROBED, Run, attach, plant_noise, private_run, step_of
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import Key
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import sentence, sentences
from dpaudit.training.opacus import audit_opacus, with_canaries
from dpaudit.training.opacus.noise_reader import NoiseReader

pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Full backward hook is firing:UserWarning",
)

HALF = [torch.bfloat16, torch.float16]
STEPS = 25


class Widened(nn.Module):
    """Passes on what a layer in half precision computed, in single precision."""

    def forward(self, values):
        return values.float()


@dataclass(frozen=True)
class Setup:
    """How a run is made.

    Attributes:
        kind: The type of its parameters; with ``mixed`` those of its first layer.
        alike: Whether all records are the same, so that sums are large.
    """

    kind: torch.dtype = torch.float32
    mixed: bool = False
    alike: bool = False
    records: int = 200
    noise: float = 1.5
    clip: float = 1.0
    mode: str = "hooks"
    canaries: int = 0
    secure: bool = False

    def run(self, seed=0):
        """Return the run, made private."""
        torch.manual_seed(seed)
        pixels = torch.randn(self.records, 30)
        labels = torch.randint(4, (self.records,))
        if self.alike:
            pixels = pixels[:1].expand(pixels.shape)
            labels = labels[:1].expand(self.records)
        data = TensorDataset(pixels.to(self.kind), labels)
        if self.canaries:
            data = with_canaries(data, canaries=self.canaries)
        model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 4))
        model = model.to(self.kind)
        if self.mixed:
            model = nn.Sequential(model[0], Widened(), model[2].float())
        engine = PrivacyEngine()
        made = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.001),
            data_loader=DataLoader(data, batch_size=len(data) // 10),
            criterion=nn.CrossEntropyLoss(),
            noise_multiplier=self.noise,
            max_grad_norm=self.clip,
            grad_sample_mode=self.mode,
        )
        model, optimizer, *criterion, loader = made
        optimizer.secure_mode = self.secure
        criterion = criterion[0] if criterion else nn.CrossEntropyLoss()
        return Run(model, optimizer, loader, criterion, engine)


SMALL = Setup()
LARGE = Setup(noise=0.3, alike=True, records=2000)  # a sum of 18 times the noise


def audited(setup, fault="", seed=0):
    """Train under audit; return its result."""
    run = setup.run(seed)
    plant_noise(run.optimizer, fault)
    options = {"canaries": setup.canaries} if setup.canaries else {}
    # The accountant's curve of so little noise takes long.
    audit = attach(
        run, key=Key.generate(), model=run.model, accountant=None, **UNPROBED, **options
    )
    torch.manual_seed(1000 + seed)
    run.train(audit.data_loader, steps=STEPS)
    return audit.finish()


def checks_of(result):
    return {check.stage: check for check in result.training.coverage.checks}


def noise_status(result):
    return checks_of(result)[Stage.NOISE_INDEPENDENCE].status


def noise_text(result):
    return sentences(checks_of(result)[Stage.NOISE_INDEPENDENCE].findings)


# Parameters in half precision


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("kind", HALF)
def test_noise_in_half_precision_is_checked(kind, mode):
    result = audited(replace(SMALL, kind=kind, mode=mode))
    assert not result.faults
    assert noise_status(result) is Status.INSPECTED
    measured = sentences(checks_of(result)[Stage.NOISE_SCALE].findings)
    assert "times the configured noise in 4 parameters" in measured


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("half", "noise.scale"),
        ("none in a layer", "noise.scale"),
        ("same", "noise.steps_repeated"),
        ("none in a step", "noise.step"),
    ],
)
@pytest.mark.parametrize("kind", HALF)
def test_noise_that_is_wrong_is_found_in_half_precision(kind, fault, code):
    result = audited(replace(SMALL, kind=kind), fault)
    assert code in {each.code for each in result.faults}


def test_noise_beside_large_sums_is_not_checked_and_the_reason_given():
    result = audited(replace(LARGE, kind=torch.bfloat16))
    assert not result.faults
    assert noise_status(result) is Status.NOT_CHECKED
    assert "precision too low: rounding" in noise_text(result)
    assert "keep parameters, sums and noise in float32" in noise_text(result)


def test_a_type_is_measured_by_its_own_numbers():
    """As finely as the float32 layer's, the bfloat16 layer's sums would pass."""
    result = audited(replace(LARGE, kind=torch.bfloat16, mixed=True))
    assert not result.faults
    assert noise_status(result) is Status.NOT_CHECKED
    text = noise_text(result)
    assert "0.weight" in text
    assert "2.weight" not in text


@pytest.mark.parametrize("kind", HALF)
def test_sums_near_the_smallest_numbers_are_no_fault(kind):
    """A batch's mean of 5e-8 has two values in float16, and 8 bits in bfloat16."""
    result = audited(replace(SMALL, kind=kind, clip=1e-6))
    assert not result.faults
    checked = Status.INSPECTED if kind is torch.bfloat16 else Status.NOT_CHECKED
    assert noise_status(result) is checked


def test_processes_that_add_up_in_half_precision_are_not_checked():
    optimizer = replace(SMALL, kind=torch.bfloat16).run().optimizer
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert NoiseReader(optimizer, names, Key.generate()).why_not == ""
    optimizer.world_size = 2
    reader = NoiseReader(optimizer, names, Key.generate())
    assert reader.why_not == "noise.half_precision"
    assert not reader.watched


@pytest.mark.nightly
@pytest.mark.parametrize("kind", HALF)
@pytest.mark.parametrize(
    "setup",
    [
        SMALL,
        LARGE,
        replace(LARGE, noise=1.5),
        replace(LARGE, noise=0.1, records=200),
        replace(SMALL, canaries=400),
        replace(SMALL, secure=True),
        replace(SMALL, mixed=True),
        replace(LARGE, mixed=True),
        replace(SMALL, clip=1e-4),
    ],
)
def test_no_correct_run_in_half_precision_is_at_fault(setup, kind):
    for seed, mode in enumerate(["hooks", "ghost"] * 4):
        mode = "hooks" if setup.canaries else mode  # noqa: PLW2901
        result = audited(replace(setup, kind=kind, mode=mode), seed=seed)
        assert not result.faults, [sentence(each) for each in result.faults]


# Autocast


def autocast_step(run, kind=torch.bfloat16):
    """What a loop does with a batch: forward in half precision, the rest in single."""

    def step(batch):
        pixels, labels = batch
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=kind):
            loss = run.criterion(run.model(pixels), labels)
        loss.backward()
        run.optimizer.step()

    return step


def clip_at(run, factor):
    """Make a run clip at a multiple of the norm that its noise is scaled by."""
    if hasattr(run.model, "get_clipping_coef"):  # ghost clipping
        coefficients = run.model.get_clipping_coef
        run.model.get_clipping_coef = lambda: factor * coefficients()
        return
    optimizer, clip = run.optimizer, run.optimizer.clip_and_accumulate

    def wrong():
        norm = optimizer.max_grad_norm
        optimizer.max_grad_norm = factor * norm
        clip()
        optimizer.max_grad_norm = norm

    optimizer.clip_and_accumulate = wrong


@pytest.mark.parametrize("factor", [1.0, 1.2])
@pytest.mark.parametrize(
    "mode", ["hooks", pytest.param("ghost", marks=pytest.mark.nightly)]
)
def test_a_probe_under_autocast_finds_what_is_clipped_wrongly_and_nothing_else(
    mode, factor
):
    run = private_run(mode=mode)
    clip_at(run, factor)
    audit = attach(run, key=Key.generate(), model=run.model)
    sensitivity = audit.probe(autocast_step(run), records=3)
    audit.detach()
    assert {each.stage for each in sensitivity.faults} == (
        {Stage.CLIPPING} if factor > 1 else set()
    )


def whole_audit(run, step):
    audit = audit_opacus(
        run.engine,
        run.model,
        run.optimizer,
        run.loader,
        delta=1e-5,
        steps=20,
        step=step,
        coordinates=200,
        announce=lambda _: None,
    )
    for batch in islice(chain.from_iterable(repeat(audit.data_loader)), 20):
        step(batch)
    return audit.finish()


MADE = {Stage.CLIPPING, Stage.GRADIENTS, Stage.NOISE_INDEPENDENCE, Stage.SIDE_PATHS}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", HALF)
@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_a_correct_run_under_autocast_is_wholly_checked(mode, kind):
    run = private_run(mode=mode)
    result = whole_audit(run, autocast_step(run, kind))
    assert not result.faults, [sentence(each) for each in result.faults]
    checks = checks_of(result)
    assert {checks[stage].status for stage in MADE} == {Status.INSPECTED}


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["clipping", "half", "none in a layer", "coupled"])
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_fault_under_autocast_is_found(mode, fault):
    run = private_run(mode=mode)
    plant_noise(run.optimizer, fault if fault in ("half", "none in a layer") else "")
    clip_at(run, 1.5 if fault == "clipping" else 1.0)
    step = made = autocast_step(run)
    if fault == "coupled":

        def step(batch):
            made((batch[0] - batch[0].mean(0), batch[1]))

    stages = {each.stage for each in whole_audit(run, step).faults}
    expected = {"clipping": Stage.CLIPPING, "coupled": Stage.GRADIENTS}
    assert expected.get(fault, Stage.NOISE_SCALE) in stages


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_a_correct_run_in_bfloat16_is_probed_without_a_fault(mode):
    run = replace(SMALL, kind=torch.bfloat16, mode=mode).run()
    result = whole_audit(run, step_of(run))
    assert not result.faults, [sentence(each) for each in result.faults]


# Tensor parallelism


def split_run(mode):
    """A model whose layers are split over two ranks, made private."""
    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(
        nn.Linear(30, 40, bias=False), nn.ReLU(), nn.Linear(40, 4, bias=False)
    )
    # Rows are split, as by fully_shard.
    by_rows = ColwiseParallel(output_layouts=Replicate())
    model = parallelize_module(model, mesh, {"0": by_rows, "2": by_rows})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(200, 30), torch.randint(4, (200,)))
    loader, engine = DataLoader(data, batch_size=20), PrivacyEngine()
    if mode == "by hand":
        prepare_module(model, "ghost_tp", wrap_model=False)
        optimizer = FSDPOptimizerFastGradientClipping(
            optimizer, noise_multiplier=1.5, max_grad_norm=1.0, expected_batch_size=20
        )
        loader = DPDataLoader.from_data_loader(loader)
        return Run(model, optimizer, loader, None, engine)
    made = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=1.5,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
        wrap_model=mode != "ghost_tp",
    )
    return Run(made[0], made[1], made[-1], None, engine)


def open_split(rank, init):
    distributed.init_process_group(
        "gloo", init_method=f"file://{init}", rank=int(rank), world_size=2
    )
    for mode in ("hooks", "ghost", "ghost_tp", "by hand"):
        run = split_run(mode)
        with pytest.raises(InvalidInputError, match="tensor parallel"):
            attach(run, key=Key.generate(), accountant=None)
    distributed.destroy_process_group()


@pytest.mark.nightly
def test_a_tensor_parallel_run_is_refused_before_training(tmp_path):
    running = [
        subprocess.Popen(
            [sys.executable, Path(__file__), str(rank), tmp_path / "init"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in running:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    open_split(*sys.argv[1:])
