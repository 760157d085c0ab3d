# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, ANN204, ARG001, ARG005, D102
# ruff: noqa: FBT003, N812, PLC0415, PLW2901 (as users write it)
"""Cases that the probe of a training step was not made on: honest ones and faulty ones.

    python lab/measure/probe_cases.py                    # all
    python lab/measure/probe_cases.py --only llama       # those with a word

Each case is a small private training with Opacus, as users write them: other layers,
losses, libraries and batches than those that ``probe_sensitivity`` was developed on.
What is expected is written down here before it is run. An honest case is one whose
clipped sum changes by at most C when a record leaves, whatever the rest; a faulty one
breaks that, or lets a record out on another road. Some faults are *beyond* the probe by
what its own text says; they are shown, and nothing is asked of them. Some steps it must
*refuse* with a sentence. A case that Opacus refuses by itself is dropped, and named.

Most cases are a network, a batch and a loss (``add``, ``trains``); others are a program
made by hand (``case``). Exits with 1 if an honest case has a fault or ends in an error
of the probe, or if a faulty one within reach has none.
"""

import random
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.layers import DPGRU, DPLSTM, DPRNN, DPMultiheadAttention
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from probe_corpus import BEYOND, FAULTY, HONEST, Build, Case, cases_in, judge
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.errors import DpAuditError
from dpaudit.training.opacus.probe import Sensitivity, probe_sensitivity

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

N: Final = 10  # records in a batch
WORDS, LENGTH, CLASSES = 40, 7, 5
REFUSED = "refuse"
CASES: list[Case] = []
case = cases_in(CASES)


@dataclass
class Program:
    """A private training: its step, and a batch of it."""

    step: Callable[[Any], object]
    model: Any
    optimizer: Any
    batch: Any
    criterion: Any = None


def plain(model, batch, criterion):
    """Return the loss of most cases."""
    return criterion(model(batch[0]), batch[1])


def private(
    net,
    batch,
    loss=plain,
    *,
    mode="hooks",
    criterion=None,
    clip=1.0,
    reduction="mean",
    optimizer=None,
    after=None,
    trained=None,
    **options,
):
    """Make a network private, and its step with this loss."""
    criterion = criterion or nn.CrossEntropyLoss(reduction=reduction)
    makes = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    given = [
        p for p in (trained(net) if trained else net.parameters()) if p.requires_grad
    ]
    made = PrivacyEngine().make_private(
        module=net,
        optimizer=makes(given),
        criterion=criterion,
        data_loader=DataLoader(TensorDataset(torch.zeros(20 * N, 1)), batch_size=N),
        noise_multiplier=1.0,
        max_grad_norm=clip,
        loss_reduction=reduction,
        grad_sample_mode=mode,
        **options,
    )
    model, wrapped = made[0], made[1]
    if mode == "ghost":
        criterion = made[2]

    def step(records):
        wrapped.zero_grad()
        loss(model, records, criterion).backward()
        wrapped.step()
        if after is not None:
            after(program, records)

    program = Program(step, model, wrapped, batch, criterion)
    return program


# What records there are.


def labels():
    return torch.randint(0, CLASSES, (N,))


def vectors():
    return torch.randn(N, 12), labels()


def images(*shape):
    return torch.randn(N, *shape), labels()


def pictures():
    return images(3, 6, 6)


def words():
    return torch.randint(1, WORDS, (N, LENGTH)), labels()


def mlp(*more, width=12, out=CLASSES):
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), *more, nn.Linear(16, out))


def head_only(net):
    return net[-1].parameters()


def narrow():
    return mlp(width=8)


def dropping():
    return mlp(nn.Dropout(0.1))


def add(
    expected, label, net=mlp, batch=vectors, loss=plain, *, modes="", **options
) -> None:
    """Add a network with a batch and a loss, in one mode or in several."""
    for mode in modes.split() or [options.pop("mode", "hooks")]:

        def build(mode=mode):
            return private(net(), batch(), loss, mode=mode, **options)

        CASES.append((expected, f"{label}, {mode}" if modes else label, build))


def trains(expected, label, net=mlp, batch=vectors, **options):
    """Add the loss that is decorated, with a network and a batch."""
    return lambda loss: add(expected, label, net, batch, loss, **options)


# Networks.


class Read(nn.Module):
    """Words, a recurrent net, classes."""

    def __init__(self, net, wide, padding=None):
        super().__init__()
        self.words = nn.Embedding(WORDS, 8, padding_idx=padding)
        self.net, self.head = net, nn.Linear(wide, CLASSES)

    def forward(self, x):
        return self.head(self.net(self.words(x))[0].mean(1))


class Residual(nn.Module):
    """A residual block with a norm over groups."""

    def __init__(self, norm, drop=0.0):
        super().__init__()
        self.first, self.a = nn.Conv2d(3, 8, 3, padding=1), norm(8)
        self.second, self.b = nn.Conv2d(8, 8, 3, padding=1, bias=False), norm(8)
        self.head, self.drop = nn.Linear(8, CLASSES), drop

    def forward(self, x):
        h = F.relu(self.a(self.first(x)))
        more = self.b(self.second(h))
        if self.drop:  # stochastic depth, each record by itself
            kept = torch.rand(len(x), 1, 1, 1) > self.drop
            more = more * kept / (1 - self.drop)
        return self.head(F.relu(h + more).mean((2, 3)))


class OwnNorm(nn.Module):
    """A norm that Opacus has no rule for."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.gain * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Twice(nn.Module):
    """One layer, used twice in a pass."""

    def __init__(self):
        super().__init__()
        self.into, self.mid = nn.Linear(12, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        h = torch.tanh(self.mid(torch.tanh(self.into(x))))
        return self.head(torch.tanh(self.mid(h)))


class Attends(nn.Module):
    """Attention with dropout of its weights; over records instead, if faulty."""

    def __init__(self, drop=0.1, *, over_records=False):
        super().__init__()
        self.words, self.mix = nn.Embedding(WORDS, 8), nn.Linear(8, 24)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, CLASSES)
        self.drop, self.over_records = drop, over_records

    def forward(self, x):
        h = self.words(x)
        parts = self.mix(self.norm(h)).chunk(3, -1)
        if self.over_records:
            parts = tuple(part.transpose(0, 1) for part in parts)
        new = F.scaled_dot_product_attention(
            *parts, dropout_p=self.drop if self.training else 0.0
        )
        if self.over_records:
            new = new.transpose(0, 1)
        return self.head((h + new).mean(1))


class LoRA(nn.Module):
    """A frozen layer beside a trained one of low rank."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.up.weight, std=0.1)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Normed(nn.Module):
    """Statistics of a batch, smuggled in by a function."""

    def __init__(self, kind):
        super().__init__()
        self.into, self.head = nn.Linear(12, 16), nn.Linear(16, CLASSES)
        self.kind = kind
        if kind == "running":
            self.register_buffer("center", torch.zeros(12))

    def forward(self, x):
        if self.kind == "running":
            with torch.no_grad():
                self.center.mul_(0.9).add_(0.1 * x.mean(0))
            x = x - self.center
        h = self.into(x)
        if self.kind == "batch_norm":
            h = F.batch_norm(h, None, None, training=True)
        if self.kind == "softmax":
            h = 16 * torch.softmax(h, 0)  # over records, and meant to be over units
        return self.head(F.relu(h))


class OwnHead(nn.Module):
    """A head of a class of its own, that shares the weights of the words."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return F.linear(x, self.weight)


class TiedWords(nn.Module):
    """Words in, words out, one matrix."""

    def __init__(self, *, own):
        super().__init__()
        self.words, self.mid = nn.Embedding(WORDS, 8), nn.Linear(8, 8)
        self.head = OwnHead(self.words.weight) if own else nn.Linear(8, WORDS, False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(torch.tanh(self.mid(self.words(x))))


# Honest: architectures, in the modes that take them.

GROUPS: Final = lambda width: nn.GroupNorm(2, width)  # noqa: E731
NETS = {
    "Conv1d": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, CLASSES)
        ),
        lambda: images(3, 10),
        "hooks functorch ew ghost",
    ),
    "Conv3d": (
        lambda: nn.Sequential(
            nn.Conv3d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(108, CLASSES)
        ),
        lambda: images(1, 4, 4, 4),
        "hooks ghost",
    ),
    "residual block, GroupNorm": (
        lambda: Residual(GROUPS),
        pictures,
        "hooks ew ghost",
    ),
    "residual block, InstanceNorm": (
        lambda: Residual(lambda width: nn.InstanceNorm2d(width, affine=True)),
        pictures,
        "hooks",
    ),
    "stochastic depth": (
        lambda: Residual(GROUPS, 0.4),
        pictures,
        "hooks ghost",
    ),
    "RMSNorm": (lambda: mlp(nn.RMSNorm(16)), vectors, "hooks ghost"),
    "a norm of one's own": (lambda: mlp(OwnNorm(16)), vectors, "hooks ghost"),
    "DPGRU": (lambda: Read(DPGRU(8, 10, batch_first=True), 10), words, "hooks"),
    "DPRNN": (lambda: Read(DPRNN(8, 10, batch_first=True), 10), words, "hooks ghost"),
    "DPLSTM, both ways, two layers": (
        lambda: Read(
            DPLSTM(8, 6, 2, batch_first=True, bidirectional=True, dropout=0.2), 12
        ),
        words,
        "hooks",
    ),
    "padding_idx": (
        lambda: Read(DPGRU(8, 10, batch_first=True), 10, padding=3),
        words,
        "hooks ghost",
    ),
    "a layer used twice": (Twice, vectors, "hooks functorch"),
    "dropout of attention weights": (Attends, words, "hooks functorch ghost"),
    "Dropout2d": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.Dropout2d(0.3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, CLASSES),
        ),
        pictures,
        "hooks ghost",
    ),
    "AlphaDropout": (lambda: mlp(nn.AlphaDropout(0.2)), vectors, "hooks"),
    "RReLU, which draws as often as units are negative": (
        lambda: nn.Sequential(nn.Linear(12, 16), nn.RReLU(), nn.Linear(16, CLASSES)),
        vectors,
        "hooks ghost",
    ),
    "LoRA": (
        lambda: nn.Sequential(
            LoRA(nn.Linear(12, 16)), nn.ReLU(), LoRA(nn.Linear(16, CLASSES))
        ),
        vectors,
        "hooks ew ghost",
    ),
}
for _name, (_net, _data, _modes) in NETS.items():
    add(HONEST, _name, _net, _data, modes=_modes)


# Honest: losses.


def by_record(each):
    return lambda model, batch, _: each(model(batch[0]), batch[1]).mean()


def entropies(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def focal(out, y):
    ce = F.cross_entropy(out, y, reduction="none")
    return (1 - torch.exp(-ce)) ** 2 * ce


WEIGHTS: Final = torch.tensor([1.0, 5.0, 0.2, 3.0, 1.0])
LOSSES = {
    "mean squares": lambda out, y: (out - F.one_hot(y, CLASSES)).square().mean(1),
    "focal": focal,
    "label smoothing": lambda out, y: F.cross_entropy(
        out, y, label_smoothing=0.2, reduction="none"
    ),
    "hinge, some records with no gradient": lambda out, y: F.relu(
        0.3 - out.gather(1, y[:, None])[:, 0]
    ),
    "weights of classes, mean over records": lambda out, y: F.cross_entropy(
        out, y, weight=WEIGHTS, reduction="none"
    ),
}
for _name, _each in LOSSES.items():
    add(HONEST, _name, loss=by_record(_each))


@case(HONEST, "binary, ghost")
def _():
    x, y = torch.randn(N, 12), torch.rand(N, 1).round()

    class Binary(nn.BCEWithLogitsLoss):
        def forward(self, out, wanted):
            return super().forward(out[:, 0], wanted[:, 0])

    return private(mlp(out=1), (x, y), mode="ghost", criterion=Binary())


@case(HONEST, "a frozen teacher")
def _():
    teacher = mlp().requires_grad_(False).eval()

    def loss(model, batch, _):
        wanted = torch.softmax(teacher(batch[0]) / 2, -1)
        out = torch.log_softmax(model(batch[0]) / 2, -1)
        return F.kl_div(out, wanted, reduction="none").sum(1).mean()

    return private(mlp(nn.Dropout(0.2)), vectors(), loss)


@trains(HONEST, "penalty on weights, hooks: Opacus drops it, as no record is in it")
def _(model, batch, criterion):
    norms = sum(p.norm() for p in model.parameters())
    return plain(model, batch, criterion) + 0.1 * norms


def learned(mode):
    net = mlp()
    x, _ = vectors()
    with torch.no_grad():
        net[-1].weight.mul_(60)
        y = net(x).argmax(1)
        y[0] = (y[0] + 1) % CLASSES
    return private(net, (x, y), mode=mode)


CASES += [
    (
        HONEST,
        "records that are learned: gradients of rounding alone",
        lambda: learned("hooks"),
    ),
    (HONEST, "records that are learned, ghost", lambda: learned("ghost")),
]
add(HONEST, "reduction='sum', told so", reduction="sum")
add(HONEST, "reduction='sum', told so, ghost", reduction="sum", mode="ghost")


# Honest: what is random.


@trains(HONEST, "crops by Python's random", narrow, mode="ghost")
def _(model, batch, criterion):
    crops = [x[(k := random.randrange(5)) : k + 8] for x in batch[0]]
    return criterion(model(torch.stack(crops)), batch[1])


def of_lengths():
    return *vectors(), torch.tensor([8, 9, 12, 10, 11, 8, 12, 9, 10, 12])


@trains(
    HONEST,
    "crops within each record's length: it draws more for some records",
    narrow,
    of_lengths,
)
def _(model, batch, criterion):
    x, y, long = batch
    at = [random.randrange(n - 7) for n in long.tolist()]
    cut = [row[k : k + 8] for row, k in zip(x, at, strict=True)]
    return criterion(model(torch.stack(cut)), y)


@case(HONEST, "words dropped at random, as many draws as words")
def _():
    lengths = torch.randint(2, LENGTH + 1, (N,))

    def loss(model, batch, criterion):
        x, y, long = batch
        x = x.clone()
        for row, count in zip(x, long.tolist(), strict=True):
            row[:count][torch.rand(count) < 0.3] = 0
            row[count:] = 0
        return criterion(model(x), y)

    return private(Attends(0.0), (*words(), lengths), loss)


@trains(HONEST, "noise by numpy's generator of old", mode="functorch")
def _(model, batch, criterion):
    x = batch[0] + torch.from_numpy(np.random.normal(size=(len(batch[0]), 12)))  # noqa: NPY002
    return criterion(model(x.float()), batch[1])


def residual():
    return Residual(GROUPS)


@trains(HONEST, "F.dropout in the step, erased squares, flips", residual, pictures)
def _(model, batch, criterion):
    x = F.dropout(batch[0], 0.1)
    rows = torch.rand(len(x)) < 0.5
    x = torch.where(rows[:, None, None, None], x.flip(-1), x)
    at = torch.randint(0, 4, (len(x),))
    mask = (torch.arange(6) - at[:, None]).clamp(-1, 2) == 0
    return criterion(model(x * ~mask[:, None, None, :]), batch[1])


@trains(HONEST, "several views of a record, one gradient")
def _(model, batch, _):
    x = batch[0][:, None] + 0.3 * torch.randn(len(batch[0]), 3, 12)
    y = batch[1][:, None].expand(-1, 3)
    return F.cross_entropy(model(x).mT, y, reduction="none").mean(1).mean()


def tied_words():
    return TiedWords(own=False)


@trains(HONEST, "masked words, drawn anew", tied_words, words)
def _(model, batch, _):
    x = batch[0]
    masked = torch.rand(x.shape) < 0.4
    out = model(torch.where(masked, 0, x))
    each = F.cross_entropy(out.mT, x, reduction="none") * masked
    return (each.sum(1) / masked.sum(1).clamp(min=1)).mean()


# Honest: precision.


@trains(HONEST, "autocast bfloat16", dropping, modes="hooks ghost")
def _(model, batch, criterion):
    with torch.autocast("cpu", torch.bfloat16):
        out = model(batch[0])
    return criterion(out.float(), batch[1])


for _dtype in (torch.bfloat16, torch.float16, torch.float64):
    add(
        HONEST,
        f"all of it {str(_dtype)[6:]}",
        lambda d=_dtype: mlp().to(d),
        lambda d=_dtype: (torch.randn(N, 12).to(d), labels()),
        modes="hooks ghost",
    )


@case(HONEST, "bfloat16 residual block")
def _():
    x, y = pictures()
    return private(residual().bfloat16(), (x.bfloat16(), y))


# Honest: optimizers, schedules, ways of clipping, parts of a batch.

add(HONEST, "Adam with weight decay, momentum of its own", optimizer=torch.optim.AdamW)
add(HONEST, "clipping of each layer", clip=[0.5, 0.1, 1.0, 0.3], clipping="per_layer")
add(
    HONEST,
    "clipping that adapts",
    clipping="adaptive",
    target_unclipped_quantile=0.5,
    clipbound_learning_rate=0.2,
    max_clipbound=10.0,
    min_clipbound=0.1,
    unclipped_num_std=5.0,
)


@case(HONEST, "schedules of rate, noise and norm in the step")
def _():
    program = private(mlp(), vectors())
    rate = torch.optim.lr_scheduler.StepLR(program.optimizer, 1, 0.9)
    noise = ExponentialNoise(program.optimizer, gamma=0.99)
    norm = ExponentialGradClip(program.optimizer, gamma=0.99)
    inner = program.step

    def step(batch):
        inner(batch)
        for each in (rate, noise, norm):
            each.step()

    program.step = step
    return program


@case(HONEST, "a closure")
def _():
    program = private(mlp(), vectors())
    model, optimizer = program.model, program.optimizer

    def step(batch):
        def closure():
            optimizer.zero_grad()
            loss = plain(model, batch, program.criterion)
            loss.backward()
            return loss

        optimizer.step(closure)

    program.step = step
    return program


@case(HONEST, "two backward passes, one step")
def _():
    program = private(mlp(), vectors(), poisson_sampling=False)

    def step(batch):
        program.optimizer.zero_grad()
        for x, y in zip(batch[0].chunk(2), batch[1].chunk(2), strict=True):
            plain(program.model, (x, y), program.criterion).backward()
        program.optimizer.step()

    program.step = step
    return program


for _mode in ("hooks", "ghost"):

    @case(HONEST, f"parts of a batch, steps skipped, {_mode}")
    def _(mode=_mode):
        program = private(mlp(), vectors(), mode=mode)

        def step(batch):
            parts = list(zip(batch[0].split(4), batch[1].split(4), strict=True))
            for k, part in enumerate(parts):
                program.optimizer.zero_grad()
                program.optimizer.signal_skip_step(do_skip=k + 1 < len(parts))
                plain(program.model, part, program.criterion).backward()
                program.optimizer.step()

        program.step = step
        return program


for _mode in ("hooks", "ghost"):

    @case(HONEST, f"{_mode} without a wrapped model")
    def _(mode=_mode):
        net = mlp()
        loss = lambda _, b, c: plain(net, b, c)  # noqa: E731
        return private(net, vectors(), loss, wrap_model=False, mode=mode)


add(
    HONEST,
    "only the head is trained, the rest has gradients",
    trained=head_only,
    mode="ghost",
)


@case(HONEST, "weights pulled back to a ball after each step")
def _():
    def after(program, _):
        for p in program.optimizer.params:
            p.data.mul_(min(1.0, 2.0 / float(p.norm())))

    return private(mlp(), vectors(), after=after)


@case(HONEST, "a mean of weights over steps, and a count, in buffers")
def _():
    net = mlp()
    net.register_buffer("mean", torch.zeros(CLASSES, 16))
    net.register_buffer("count", torch.zeros(()))

    def after(program, _):
        net.mean.lerp_(net[-1].weight.detach(), 0.1)
        net.count += 1

    return private(net, vectors(), after=after)


@case(HONEST, "the norm of the noisy gradient, kept in a buffer")
def _():
    net = mlp()
    net.register_buffer("norm", torch.zeros(()))

    def after(program, _):
        net.norm.copy_(net[-1].weight.grad.norm())

    return private(net, vectors(), after=after)


def generative(*, peeks):
    """A private critic, and a generator that sees records through it alone."""
    maker = nn.Linear(4, 12)
    plainly = torch.optim.Adam(maker.parameters())

    def loss(critic, batch, _):
        x = batch[0]
        fake = maker(torch.randn(len(x), 4)).detach()
        both = torch.stack([x, fake], 1)
        wanted = torch.tensor([1.0, 0.0]).expand(len(x), 2)
        out = critic(both)[..., 0]
        return F.binary_cross_entropy_with_logits(out, wanted)

    def after(program, batch):
        plainly.zero_grad()
        program.model.disable_hooks()
        fake = maker(torch.randn(N, 4))
        lost = F.softplus(-program.model(fake)).mean()
        if peeks:
            lost = lost + (fake.mean(0) - batch[0].mean(0)).square().sum()
        lost.backward()
        program.model.enable_hooks()
        plainly.step()

    return private(mlp(out=1), vectors(), loss, after=after)


case(HONEST, "a generator that learns from a private critic")(
    lambda: generative(peeks=False)
)
case(FAULTY, "a generator that peeks at records")(lambda: generative(peeks=True))


@case(REFUSED, "two private optimizers")
def _():
    other = private(mlp(), vectors())
    return private(mlp(), vectors(), after=lambda _, batch: other.step(batch))


# Honest: batches of other kinds.


class Sums(nn.Module):
    """Takes what it needs of a batch."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 8), nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x, text):
        return self.head(torch.tanh(self.a(x) + self.b(text).mean(1)))


@case(HONEST, "a dict with None, a string, one tensor for all, and names of records")
def _():
    x, y = vectors()
    batch = {
        "note": "train",
        "more": None,
        "inputs": (x, words()[0]),
        "y": y,
        "weight": WEIGHTS,
        "id": 7,
    }

    def loss(model, given, _):
        out = model(*given["inputs"])
        each = F.cross_entropy(
            out, given["y"], weight=given["weight"], reduction="none"
        )
        return each.mean()

    return private(Sums(), batch, loss)


@case(HONEST, "one tensor for all comes first")
def _():
    x, y = vectors()

    def loss(model, given, _):
        weight, inputs, wanted = given
        return F.cross_entropy(
            model(inputs), wanted, weight=weight, reduction="none"
        ).mean()

    return private(mlp(), (WEIGHTS, x, y), loss)


@case(HONEST, "texts as strings, cut into words in the step")
def _():
    texts = [" ".join(str(w) for w in row) for row in words()[0].tolist()]

    def loss(model, given, criterion):
        x = torch.tensor([[int(w) for w in each.split()] for each in given["text"]])
        return criterion(model(x), given["y"])

    return private(Attends(0.0), {"text": texts, "y": labels()}, loss)


@case(HONEST, "arrays of numpy in the batch")
def _():
    x, y = vectors()

    def loss(model, given, criterion):
        return criterion(model(given[0]), torch.from_numpy(given[1]))

    return private(mlp(), (x, y.numpy()), loss)


@case(HONEST, "a list of records, each by itself")
def _():
    x, y = vectors()

    def loss(model, given, criterion):
        inputs = torch.stack([each[0] for each in given])
        return criterion(model(inputs), torch.stack([each[1] for each in given]))

    return private(mlp(), list(zip(x, y, strict=True)), loss)


class Bag(nn.Module):
    """Words of all records in a row, and where each record begins."""

    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 8, mode="sum")
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x, begins):
        return self.head(self.words(x, begins))


@trains(
    HONEST,
    "EmbeddingBag, made ragged in the step",
    Bag,
    lambda: (*words(), torch.randint(2, LENGTH, (N,))),
)
def _(model, batch, criterion):
    x, y, long = batch
    flat = torch.cat([row[:k] for row, k in zip(x, long.tolist(), strict=True)])
    return criterion(model(flat, long.cumsum(0) - long), y)


@case(BEYOND, "EmbeddingBag, ragged in the batch: honest, and its records are no rows")
def _():
    x, y = words()
    begins = torch.arange(N) * LENGTH
    return private(
        Bag(), (x.flatten(), begins, y), lambda m, b, c: c(m(b[0], b[1]), b[2])
    )


@case(REFUSED, "time comes first, records second")
def _():
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6))
    x = torch.randn(LENGTH, N, 4)

    def loss(model, batch, _):
        return (model(batch) - 1).square().mean(2).mean(0).mean()

    return private(net, x, loss, batch_first=False)


class Packed(Read):
    """Reads words up to each record's length."""

    def __init__(self, **options):
        super().__init__(DPLSTM(8, 10, batch_first=True), 10)
        self.options = options

    def forward(self, x, long):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(x), long, batch_first=True, **self.options
        )
        return self.head(self.net(packed)[1][0][-1])


@case(FAULTY, "sequences packed unsorted: Opacus mixes up the rows of its norms")
def _():
    long, net = torch.randint(2, LENGTH + 1, (N,)), Packed(enforce_sorted=False)
    return private(net, (*words(), long), lambda m, b, c: c(m(b[0], b[2]), b[1]))


@case(HONEST, "records sorted by length in the step, and packed")
def _():
    def loss(model, batch, criterion):
        order = batch[2].argsort(descending=True, stable=True)
        return criterion(model(batch[0][order], batch[2][order]), batch[1][order])

    long, net = torch.randint(2, LENGTH + 1, (N,)), Packed()
    return private(net, (*words(), long), loss)


@case(HONEST, "DPMultiheadAttention with dropout")
def _():
    class Heads(Read):
        def forward(self, x):
            h = self.words(x)
            return self.head(self.net(h, h, h, need_weights=False)[0].mean(1))

    return private(
        Heads(DPMultiheadAttention(8, 2, batch_first=True, dropout=0.2), 8), words()
    )


# Honest and faulty: models of transformers, by their configurations.


def positions(x):
    return torch.arange(x.shape[1]).repeat(len(x), 1)


def next_words(model, batch, criterion, *, ghost):
    x = batch["input_ids"]
    out = model(input_ids=x, position_ids=positions(x)).logits[:, :-1]
    wanted = x[:, 1:]
    if ghost:
        flat = out.reshape(-1, out.shape[-1])
        return criterion(flat, wanted.reshape(-1), shape=out.shape)
    each = F.cross_entropy(out.mT, wanted, reduction="none")
    return each.mean(1).mean()


def language(kind, *, tied, mode):
    import transformers as hf

    if kind == "GPT-2":
        config = hf.GPT2Config(
            vocab_size=WORDS,
            n_positions=16,
            n_embd=16,
            n_layer=1,
            n_head=2,
            tie_word_embeddings=tied,
        )
    else:
        made = {"Llama": hf.LlamaConfig, "Qwen": hf.Qwen2Config}[kind]
        config = made(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=16,
            tie_word_embeddings=tied,
            pad_token_id=0,
        )
    net = hf.AutoModelForCausalLM.from_config(config)
    batch = hf.BatchEncoding({"input_ids": words()[0]})
    return private(
        net.train(),
        batch,
        lambda m, b, c: next_words(m, b, c, ghost=mode == "ghost"),
        mode=mode,
    )


for _kind in ("GPT-2", "Llama", "Qwen"):
    for _mode in ("hooks", "ghost"):
        for _tied in (False, True):
            _expected = FAULTY if _tied and _mode == "ghost" else HONEST
            case(_expected, f"{_kind}{', tied' * _tied}, {_mode}")(
                lambda k=_kind, m=_mode, t=_tied: language(k, tied=t, mode=m)
            )


def sizes(**more):
    return {
        "vocab_size": WORDS,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "num_labels": CLASSES,
        **more,
    }


for _mode in ("hooks", "functorch", "ghost"):

    @case(HONEST, f"BERT, {_mode}")
    def _(mode=_mode):
        import transformers as hf

        net = hf.BertForSequenceClassification(
            hf.BertConfig(**sizes(max_position_embeddings=16))
        )
        x, y = words()

        def loss(model, batch, criterion):
            out = model(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                token_type_ids=torch.zeros_like(batch["input_ids"]),
                position_ids=positions(batch["input_ids"]),
            )
            return criterion(out.logits, batch["labels"])

        batch = {"input_ids": x, "attention_mask": torch.ones_like(x), "labels": y}
        return private(net.train(), batch, loss, mode=mode)


for _mode in ("hooks", "ghost"):

    @case(HONEST, f"ViT, embeddings frozen, {_mode}")
    def _(mode=_mode):
        import transformers as hf

        config = hf.ViTConfig(**sizes(image_size=8, patch_size=4))
        net = hf.ViTForImageClassification(config).train()
        net.vit.embeddings.requires_grad_(False)
        return private(
            net,
            images(3, 8, 8),
            lambda m, b, c: c(m(pixel_values=b[0]).logits, b[1]),
            mode=mode,
        )


@case(HONEST, "T5, hooks")
def _():
    import transformers as hf

    config = hf.T5Config(
        vocab_size=WORDS,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
        tie_word_embeddings=False,
    )
    net = hf.T5ForConditionalGeneration(config).train()
    for name, p in net.named_parameters():
        p.requires_grad_("relative_attention_bias" not in name)

    def loss(model, batch, _):
        x, y = batch
        out = model(input_ids=x, decoder_input_ids=y).logits
        return F.cross_entropy(out.mT, y, reduction="none").mean(1).mean()

    return private(net, (words()[0], words()[0]), loss)


@case(HONEST, "LoRA in a frozen Llama, ghost")
def _():
    import transformers as hf

    config = hf.LlamaConfig(
        **{k: v for k, v in sizes().items() if k != "num_labels"}, pad_token_id=0
    )
    net = hf.LlamaForCausalLM(config).requires_grad_(False)
    for layer in net.model.layers:
        layer.self_attn.q_proj = LoRA(layer.self_attn.q_proj)
        layer.self_attn.v_proj = LoRA(layer.self_attn.v_proj)
    return private(
        net.train(),
        hf.BatchEncoding({"input_ids": words()[0]}),
        lambda m, b, c: next_words(m, b, c, ghost=True),
        mode="ghost",
    )


# Faulty: records that meet.

for _kind in ("batch_norm", "softmax", "running"):
    add(
        FAULTY,
        f"statistics of a batch: {_kind}",
        lambda k=_kind: Normed(k),
        modes="hooks ghost",
    )
add(
    FAULTY,
    "attention over records",
    lambda: Attends(0.1, over_records=True),
    words,
    modes="hooks ghost",
)


@trains(FAULTY, "cutmix", residual, pictures)
def _(model, batch, criterion):
    x, y = batch
    order, cut = torch.randperm(len(x)), int(torch.randint(1, 5, ()))
    x = torch.cat([x[..., :cut], x[order][..., cut:]], -1)
    out, share = model(x), cut / 6
    return share * criterion(out, y) + (1 - share) * criterion(out, y[order])


@trains(FAULTY, "triplets of records")
def _(model, batch, _):
    out = model(batch[0])
    near, far = out.roll(1, 0), out.roll(2, 0)
    return F.triplet_margin_loss(out, near, far, margin=2.0)


add(
    FAULTY,
    "weights of classes, divided by those of the batch",
    criterion=nn.CrossEntropyLoss(weight=WEIGHTS),
)


@trains(FAULTY, "classes balanced by their shares of the batch")
def _(model, batch, _):
    _, y = batch
    share = torch.bincount(y, minlength=CLASSES).float() / len(y)
    return (entropies(model, batch) / share[y]).mean()


@trains(FAULTY, "only the hardest records of a batch")
def _(model, batch, _):
    each = entropies(model, batch)
    hard = each.detach() >= each.detach().topk(max(1, len(each) // 2)).values[-1]
    return (each * hard).mean()


@trains(FAULTY, "losses divided by the largest of the batch", dropping)
def _(model, batch, _):
    each = entropies(model, batch)
    return (each / each.detach().max()).mean()


@trains(REFUSED, "several views of a record, each a row")
def _(model, batch, criterion):
    x, y = (part.repeat_interleave(2, 0) for part in batch)
    return criterion(model(x), y)


# Faulty: clipping.


def clips(program, factors, after=None):
    """Let a program clip by factors of its own."""
    optimizer = program.optimizer

    def own():
        grads = [p.grad_sample for p in optimizer.params]
        found = factors(grads, float(optimizer.max_grad_norm))
        for k, p in enumerate(optimizer.params):
            each = found[k] if isinstance(found, list) else found
            p.summed_grad = torch.einsum("i,i...", each, p.grad_sample)
            p.grad_sample._processed = True
        if after is not None:
            sums = after(grads)
            for p, more in zip(optimizer.params, sums, strict=True):
                p.summed_grad = p.summed_grad + more

    optimizer.clip_and_accumulate = own
    return program


def flat(grads):
    return torch.cat([g.reshape(len(g), -1) for g in grads], 1)


def capped(norms, clip):
    return (clip / (norms + 1e-6)).clamp(max=1.0)


WRONG = {
    "each layer clipped to C, told as flat": lambda g, c: [
        capped(flat([each]).norm(dim=1), c) for each in g
    ],
    "the largest coordinate instead of the norm": lambda g, c: capped(
        flat(g).abs().amax(1), c
    ),
    "norms without biases": lambda g, c: capped(
        flat(x for x in g if x.dim() > 2).norm(dim=1), c
    ),
    "norms divided by the root of the dimension": lambda g, c: capped(
        flat(g).square().mean(1).sqrt(), c
    ),
    "a factor that is not capped by 1": lambda g, c: c / flat(g).norm(dim=1),
    "the median norm for all": lambda g, c: capped(
        flat(g).norm(dim=1).median().expand(len(g[0])), c
    ),
    "norms in half precision, and infinite ones left alone": lambda g, c: torch.where(
        (n := flat(g).half().norm(dim=1).float()).isinf(),
        1.0,
        capped(n, c),
    ),
    "norms that see the first rows of each matrix": lambda g, c: capped(
        flat(x[:, : (x.shape[1] + 1) // 2] for x in g).norm(dim=1), c
    ),
    "pairs of records, clipped together": lambda g, c: (
        capped(
            flat(g)[: len(g[0]) // 2 * 2]
            .unflatten(0, (-1, 2))
            .sum(1)
            .norm(dim=1)
            .repeat_interleave(2),
            2 * c,
        )
        if len(g[0]) % 2 == 0
        else capped(flat(g).norm(dim=1), c)
    ),
}
WRONG["the sum of sizes (L1) instead of the norm: clips too much"] = lambda g, c: (
    capped(flat(g).abs().sum(1), c)
)
WRONG["the whole batch's mean clipped"] = lambda g, c: capped(
    flat(g).mean(0).norm().expand(len(g[0])), c
)
for _name, _factors in WRONG.items():
    _expected = HONEST if "not capped" in _name or "L1" in _name else FAULTY
    if "half" in _name:  # it takes gradients of 256 C; the probe makes 10 C
        _expected = BEYOND
    case(_expected, _name)(lambda f=_factors: clips(private(mlp(), vectors()), f))


@case(FAULTY, "norms without the words' embedding")
def _():
    program = private(Attends(0.1), words())
    return clips(program, lambda g, c: capped(flat(g[1:]).norm(dim=1), c))


@case(FAULTY, "gradients cut at C in each coordinate")
def _():
    program = private(mlp(), vectors())
    optimizer = program.optimizer

    def own():
        for p in optimizer.params:
            p.summed_grad = p.grad_sample.clamp(-1, 1).sum(0)
            p.grad_sample._processed = True

    optimizer.clip_and_accumulate = own
    return program


@case(FAULTY, "no clipping, records with no gradient among them")
def _():
    each = LOSSES["hinge, some records with no gradient"]
    program = private(mlp(), vectors(), by_record(each))
    return clips(program, lambda g, _: torch.ones(len(g[0])))


@case(FAULTY, "no clipping, in half precision")
def _():
    x, y = vectors()
    program = private(mlp().half(), (x.half(), y))
    return clips(program, lambda g, _: torch.ones(len(g[0]), dtype=torch.half))


@case(FAULTY, "the head's gradient added once more after clipping")
def _():
    return clips(
        private(mlp(), vectors()),
        lambda g, c: capped(flat(g).norm(dim=1), c),
        lambda g: [0 * g[0].sum(0), 0 * g[1].sum(0), g[2].sum(0), g[3].sum(0)],
    )


@case(BEYOND, "factors of the batch before")
def _():
    kept = []

    def factors(grads, clip):
        now = capped(flat(grads).norm(dim=1), clip)
        kept.append(now)
        before = kept[-2] if len(kept) > 1 else now
        return before[:1].expand(len(now))

    return clips(private(mlp(), vectors()), factors)


@case(FAULTY, "the norm of the module twice that of the optimizer, ghost")
def _():
    program = private(mlp(), vectors(), mode="ghost")
    program.model.max_grad_norm = 2.0
    return program


@trains(
    FAULTY,
    "words tied to a head of one's own class, ghost",
    lambda: TiedWords(own=True),
    words,
    mode="ghost",
)
def _(model, batch, criterion):
    out = model(batch[0])
    wanted = batch[0].roll(1, 1).reshape(-1)
    return criterion(out.reshape(-1, WORDS), wanted, shape=out.shape)


add(FAULTY, "a layer used twice, ghost", Twice, mode="ghost")


@trains(
    FAULTY,
    "penalty on weights, ghost: it is in the sum and not in the norms",
    mode="ghost",
)
def _(model, batch, criterion):
    out = plain(model, batch, criterion)
    return out + 0.5 * sum(p.square().sum() for p in model.parameters())


@case(FAULTY, "a weight that is read by a function beside its layer, ghost")
def _():
    net = mlp()

    def loss(model, batch, criterion):
        x = batch[0] + batch[0] @ net[0].weight.T @ net[0].weight
        return criterion(model(x), batch[1])

    return private(net, vectors(), loss, mode="ghost")


@trains(HONEST, "records shuffled in the step", dropping)
def _(model, batch, criterion):
    order = torch.randperm(len(batch[0]))
    return criterion(model(batch[0][order]), batch[1][order])


def padded(*, places, drop):
    """Words padded to the longest of the batch."""
    lengths = torch.tensor([3, 4, 7, 3, 5, 6, 4, 3, 5, 4])

    def loss(model, batch, _):
        x, _, long = batch
        most = int(long.max())
        x = x[:, :most]
        seen = torch.arange(most) < long[:, None]
        each = F.cross_entropy(model(x).mT, x, reduction="none") * seen
        return each.mean() if places else (each.sum(1) / long).mean()

    net = TiedWords(own=False)
    if drop:
        net.mid = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2))
    return private(net, (*words(), lengths), loss)


for _expected, _label, _places, _drop in (
    (FAULTY, "mean over all places of the batch", True, False),
    (HONEST, "of the batch, with dropout", False, True),
    (FAULTY, "mean over all places, with dropout", True, True),
):
    _comma = "," * _places
    case(_expected, f"padded to the longest{_comma} {_label}")(
        lambda p=_places, d=_drop: padded(places=p, drop=d)
    )


def spotty():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(128, CLASSES)
    )


@trains(HONEST, "hinge, most records with no gradient, Dropout2d", spotty, pictures)
def _(model, batch, _):
    out = model(batch[0]).gather(1, batch[1][:, None])[:, 0]
    rare = batch[0][:, 0, 0, 0] > 1  # a thing of records, and few have it
    return (F.relu(9 - out) * rare).mean()


# Faulty: how losses are added up.


def summed(model, batch, _):
    return entropies(model, batch).sum()


add(FAULTY, "a sum told as a mean", loss=summed)
add(FAULTY, "a sum told as a mean, Dropout2d", spotty, pictures, summed)


@trains(FAULTY, "a mean told as a sum, with noise on the records", reduction="sum")
def _(model, batch, _):
    x = batch[0] + 0.1 * torch.randn_like(batch[0])
    return F.cross_entropy(model(x), batch[1])


# Faulty: other ways out.


@case(FAULTY, "a mean of losses in a buffer, that weighs the loss")
def _():
    net = mlp()
    net.register_buffer("usual", torch.ones(()))

    def loss(model, batch, _):
        each = entropies(model, batch)
        found = (each / net.usual.clone()).mean()
        with torch.no_grad():
            net.usual.lerp_(each.mean(), 0.1)
        return found

    return private(net, vectors(), loss)


@case(FAULTY, "centers of classes, moved by records through .data")
def _():
    net = mlp()
    net.register_buffer("centers", torch.zeros(CLASSES, 12))

    def loss(model, batch, criterion):
        x, y = batch
        net.centers.data.index_add_(0, y, 0.1 * (x - net.centers[y]))
        return criterion(model(x - net.centers[y]), y)

    return private(net, vectors(), loss)


def by_hand(program, *, name):
    parameter = dict(program.model._module.named_parameters())[name]
    each = parameter.grad_sample
    with torch.no_grad():
        parameter -= 0.1 * each.mean(0)


add(
    FAULTY,
    "a parameter outside the optimizer, stepped by hand",
    trained=head_only,
    after=lambda p, b: by_hand(p, name="0.weight"),
)


@case(FAULTY, "the same through .data")
def _():
    net = mlp()

    def after(_, __):
        net[0].weight.data -= 0.1 * net[0].weight.grad_sample.mean(0)

    return private(net, vectors(), trained=head_only, after=after)


add(
    FAULTY,
    "a trained parameter, stepped by hand once more without noise",
    after=lambda p, b: by_hand(p, name="2.weight"),
)


@case(FAULTY, "a second optimizer on a head without noise")
def _():
    net, head = mlp(), nn.Linear(12, CLASSES)
    plainly = torch.optim.Adam(head.parameters())

    def after(_, batch):
        plainly.zero_grad()
        F.cross_entropy(head(batch[0]), batch[1]).backward()
        plainly.step()

    return private(net, vectors(), after=after)


@case(BEYOND, "a head outside model and optimizer, stepped by hand")
def _():
    net, head = mlp(), nn.Linear(12, CLASSES)

    def after(_, batch):
        loss = F.cross_entropy(head(batch[0]), batch[1])
        with torch.no_grad():
            grads = torch.autograd.grad(loss, head.parameters())
            for p, grad in zip(head.parameters(), grads, strict=True):
                p -= 0.1 * grad

    return private(net, vectors(), after=after)


@case(BEYOND, "gradients kept in a list, and added to the sum of later steps")
def _():
    kept = []

    def after(grads):
        kept.append([g.sum(0) for g in grads])
        return [0.5 * part for part in kept[-2 if len(kept) > 1 else -1]]

    return clips(
        private(mlp(), vectors()), lambda g, c: capped(flat(g).norm(dim=1), c), after
    )


@case(BEYOND, "no noise")
def _():
    program = private(mlp(), vectors())
    program.optimizer.noise_multiplier = 0.0
    return program


@trains(BEYOND, "a loss that is not finite for rare records only")
def _(model, batch, _):
    each = entropies(model, batch)
    strange = batch[0].amax(1) > 5  # no record of this batch
    return torch.where(strange, 0 * each + each.sum(), each).mean()


def examined(build: Build) -> tuple[Sensitivity | None, str, float]:
    """Probe a case; return what was found, or why not, and the seconds it took."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    try:
        program = build()
        torch.manual_seed(1)
        program.step(program.batch)  # as a training does before it is probed
    except Exception as error:
        return None, f"dropped: {type(error).__name__} {str(error)[:90]}", 0.0
    start = time.perf_counter()
    found, why = None, ""
    try:
        found = probe_sensitivity(
            program.step, program.model, program.optimizer, program.batch
        )
    except DpAuditError as error:
        why = f"refused: {error}"
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)
        where = " < ".join(f"{f.name}:{f.lineno}" for f in reversed(at[-3:]))
        why = f"error: {type(error).__name__} {str(error)[:90]} [{where}]"
    return found, why, time.perf_counter() - start


if __name__ == "__main__":
    judge(
        CASES,
        examined,
        {
            HONEST: {"quiet", "unseen", "dropped"},
            FAULTY: {"fault", "dropped"},
            REFUSED: {"refused"},
        },
    )
