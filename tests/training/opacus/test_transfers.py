"""Copies between device and host in each step of an audited run.

They are counted as on an accelerator: a tensor counts as on the device unless it was
copied to the host, made from an array there, or computed from such tensors.
"""

from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
import torch
from private_runs import CANARIES, attach, private_run
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dpaudit.training.opacus import transfers
from dpaudit.training.opacus.transfers import ToHost

slowest = pytest.mark.nightly
pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")

READS = {
    "__array__",
    "__bool__",
    "__float__",
    "__index__",
    "__int__",
    "cpu",
    "item",
    "numpy",
    "tolist",
}
WAITS = {"_local_scalar_dense", "equal", "is_nonzero", "masked_select", "nonzero"}


def tensors(values):
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


class Waits(TorchDispatchMode):
    """Counts operations whose result the host waits for."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masked = name == "index" and torch.bool in {t.dtype for t in tensors(args[1])}
        self.count += name in WAITS or masked
        return func(*args, **(kwargs or {}))


class Transfers(TorchFunctionMode):
    """Counts copies from the device, or waits for it, and copies to it."""

    def __init__(self):
        super().__init__()
        self.read = self.sent = 0
        self._waits, self._undo = Waits(), pytest.MonkeyPatch()
        self._on_host = {}  # by id; kept, so that no id is used twice

    def __enter__(self):
        make = torch.from_numpy

        def made(array):  # which no mode sees
            tensor = make(array)
            self._on_host[id(tensor)] = tensor
            return tensor

        self._undo.setattr(torch, "from_numpy", made)
        self._waits.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._waits.__exit__(*error)
        self._undo.undo()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        given = tensors([args, kwargs])
        on_host = bool(given) and all(id(each) in self._on_host for each in given)
        to_device = name in ("to", "cuda") and any(
            isinstance(each, str | torch.device)
            for each in tree_leaves([args[1:], kwargs])
        )
        waited = self._waits.count
        found = func(*args, **kwargs)
        if to_device and on_host:
            self.sent += 1
            on_host = False
            for each in tensors(found):  # which may be the one given
                self._on_host.pop(id(each), None)
        elif to_device or name in READS or self._waits.count > waited:
            self.read += not on_host
            on_host = True
        if on_host:
            self._on_host |= {id(each): each for each in tensors(found)}
        return found


def chain(layers):
    """A network of so many layers, each with a weight and a bias."""

    def made(_):
        pairs = pairwise([30, *[16] * (layers - 1), 4])
        return nn.Sequential(*(nn.Linear(*pair) for pair in pairs))

    return made


def counted(run, loader):
    """Numbers of copies in some steps: from the device and to it.

    Places are sent once, in the first step. In the eighth, tensors are listed again.
    """
    read, sent, batches = [], [], iter(loader)
    for step in range(9):
        pixels, labels = next(batches)
        with Transfers() if step in {1, 7, 8} else nullcontext() as seen:
            run.optimizer.zero_grad()
            run.criterion(run.model(pixels), labels).backward()
            run.optimizer.step()
        if seen is not None:
            read.append(seen.read)
            sent.append(seen.sent)
    return np.array(read), np.array(sent)


def numbers():
    return torch.arange(4.0)


PLANTED = {
    "cpu": lambda: numbers().cpu(),
    "to": lambda: numbers().to("cpu"),
    "numpy": lambda: numbers().numpy(),
    "tolist": lambda: numbers().tolist(),
    "item": lambda: numbers().sum().item(),
    "bool": lambda: bool(numbers().sum() > 0),
    "float": lambda: float(numbers().sum()),
    "int": lambda: int(numbers().sum()),
    "array": lambda: np.asarray(numbers()),
    "equal": lambda: torch.equal(numbers(), numbers()),
    "mask": lambda: numbers()[numbers() > 1],
    "places": lambda: numbers().nonzero(),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_each_way_to_read_is_counted(planted):
    with Transfers() as seen:
        numbers().add(1).exp()
        assert (seen.read, seen.sent) == (0, 0)
        PLANTED[planted]()
    assert (seen.read, seen.sent) == (1, 0)


def test_what_is_sent_is_counted_and_host_arithmetic_is_not():
    with Transfers() as seen:
        sent = torch.from_numpy(np.ones(3)).to("cpu")
        copied = (sent + 1).cpu()
        copied[1:].double().numpy()
        float(copied.sum())
    assert (seen.read, seen.sent) == (1, 1)


@pytest.mark.parametrize("canaries", [0, CANARIES], ids=["sums", "records"])
@pytest.mark.parametrize("layers", [2, 65, pytest.param(200, marks=slowest)])
def test_a_step_reads_at_most_twice_and_sends_once(layers, canaries):
    found = []
    for audited in (False, True):
        run = private_run(wrap=chain(layers), canaries=canaries)
        assert len(run.optimizer.params) == 2 * layers
        torch.manual_seed(1)
        audit = attach(run, model=run.model, accountant=None) if audited else None
        found.append(counted(run, audit.data_loader if audit else run.loader))
        if audit:
            assert not audit.finish().faults
    read, sent = (audited - plain for plain, audited in zip(*found, strict=True))
    assert read.max() <= 2
    assert sent.max() <= 1


@pytest.mark.parametrize("canaries", [0, CANARIES], ids=["sums", "records"])
def test_copies_made_while_the_device_computes_change_nothing(
    canaries, monkeypatch, tmp_path
):
    """What a step read is used a step later; saving and finishing wait for it."""
    found, saved = [], tmp_path / "audit"
    for overlaps in (False, True):
        monkeypatch.setattr(transfers, "_overlaps", lambda _, own=overlaps: own)
        run = private_run(canaries=canaries)
        torch.manual_seed(1)
        audit = attach(run, model=run.model, accountant=None)
        run.train(audit.data_loader, steps=6)
        audit.save(saved)
        audit.detach()
        audit = attach(run, model=run.model, accountant=None)
        audit.resume(saved)
        run.train(audit.data_loader, steps=6)
        with torch.no_grad():
            run.optimizer.params[0] += 1
        found.append(audit.finish().to_json())
    assert found[0] == found[1]
    assert '"side_paths.late"' in found[0]


def test_numbers_of_several_types_arrive_as_they_were():
    received = []
    halves, whole = torch.arange(3).bfloat16() / 3, torch.arange(5) - (1 << 60)
    to_host = ToHost()
    to_host.add(
        lambda *arrays: received.extend(arrays),
        [halves, torch.tensor(1 / 3, dtype=torch.float64)],
        [whole],
        [torch.ones(2, 2)[:, 0]],
        [],
    )
    to_host.start()
    np.testing.assert_array_equal(received[0], [*halves.double().tolist(), 1 / 3])
    np.testing.assert_array_equal(received[1], whole.numpy())
    assert [received[2].tolist(), received[3].tolist()] == [[1, 1], []]
