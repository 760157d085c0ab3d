"""Cases from custom training loops: trainers, schedulers, averages, loaders, resuming."""

import io
import math
import random
from itertools import chain, repeat

import numpy as np
import torch
from opacus.grad_sample.linear import compute_linear_norm_sample
from opacus.grad_sample.utils import register_norm_sampler
from opacus.optimizers import DPOptimizer
from opacus.schedulers import ExponentialGradClip, LambdaNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Sampler, Subset, TensorDataset

from dpaudit_lab.held_out.program import RECORDS, Case, private, table

EPOCHS = 10
FEATURES, CLASSES, HIDDEN = 24, 5, 80


def rebuilt(p, cls):
    """Put an optimizer class of ours in the place of Opacus', with the same hook."""
    old = p.optimizer
    p.optimizer = cls(
        old.original_optimizer,
        noise_multiplier=old.noise_multiplier,
        max_grad_norm=old.max_grad_norm,
        expected_batch_size=old.expected_batch_size,
    )
    p.optimizer.attach_step_hook(old.step_hook)
    p.step = plain_step(p)
    return p


def plain_step(p):
    """Return the usual step, with whatever optimizer the program has by now."""

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        value = p.note["loss"](p.model(inputs), labels)
        value.backward()
        p.optimizer.step()
        return value

    return step


def public(records=200, seed=5):
    """Return a public sample from the same population."""
    source = torch.Generator().manual_seed(1)
    torch.randn(RECORDS, FEATURES, generator=source)
    rule = torch.randn(FEATURES, CLASSES, generator=source)
    fresh = torch.Generator().manual_seed(seed)
    features = torch.randn(records, FEATURES, generator=fresh)
    return features, (features @ rule).argmax(1)


def score(net, inputs, labels):
    """Return the mean loss of a network in evaluation mode."""
    net.eval()
    with torch.no_grad():
        value = F.cross_entropy(net(inputs), labels).item()
    net.train()
    return value


def tokens(length=6, vocabulary=200, seed=3):
    """Return sequences of tokens, frequent and rare ones, with labels."""
    source = torch.Generator().manual_seed(seed)
    draws = torch.rand(RECORDS, length, generator=source) ** 3
    words = (draws * vocabulary).long()
    return TensorDataset(words, words.sum(1) % CLASSES)


def weights_of(net):
    """Return a copy of the weights."""
    return {name: value.clone() for name, value in net.state_dict().items()}


# Faults


def curriculum(seed):
    p = private(seed)

    def train():
        for epoch in range(EPOCHS):
            easiest = min(RECORDS, 200 * (epoch // 2 + 1))
            pool = Subset(p.data, range(easiest))  # they come by grade of difficulty
            sampler = UniformWithReplacementSampler(
                num_samples=easiest, sample_rate=100 / easiest, steps=10
            )
            for batch in DataLoader(pool, batch_sampler=sampler):
                p.step(batch)

    p.train = train
    return p


class SeededPoisson(Sampler):
    """Poisson batches that can be drawn again after a restart."""

    def __init__(self, records, rate, steps, seed=0):
        self.records, self.rate, self.steps, self.seed = records, rate, steps, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.steps

    def __iter__(self):
        source = torch.Generator().manual_seed(self.seed + self.epoch)
        for _ in range(self.steps):
            drawn = torch.rand(self.records, generator=source) < self.rate
            yield drawn.nonzero().flatten().tolist()


def same_epoch(seed):
    p = private(seed)

    def train():
        sampler = SeededPoisson(RECORDS, rate=0.1, steps=10)
        loader = DataLoader(p.data, batch_sampler=sampler)
        for _ in range(EPOCHS):
            for batch in loader:
                p.step(batch)

    p.train = train
    return p


def accumulated_draws(seed):
    p = private(seed, optimizer=lambda ws: torch.optim.SGD(ws, lr=0.05))
    one = plain_step(p)
    window, seen = 4, [0]

    def step(batch):
        seen[0] += 1
        p.optimizer.signal_skip_step(seen[0] % window != 0)
        return one(batch)

    def train():
        seen[0] = 0
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)

    p.step, p.train, p.steps = step, train, 25
    return p


def replay_hard(seed):
    p = private(seed)
    kept = p.note["buffer"] = []

    def step(batch):
        inputs, labels = (torch.cat(both) for both in zip(*kept, batch, strict=True))
        p.optimizer.zero_grad()
        losses = F.cross_entropy(p.model(inputs), labels, reduction="none")
        losses.mean().backward()
        p.optimizer.step()
        hardest = losses.detach().topk(min(50, len(losses))).indices
        kept[:] = [(inputs[hardest], labels[hardest])]

    def train():
        kept.clear()
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)

    p.step, p.train = step, train
    return p


def hardest_of_batch(seed):
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        losses = F.cross_entropy(p.model(inputs), labels, reduction="none")
        losses.topk(min(64, len(losses))).values.mean().backward()
        p.optimizer.step()

    p.step = step
    return p


def padded_by_wrapping(seed):
    p = private(seed)
    one = plain_step(p)

    def step(batch):
        inputs, labels = batch
        if len(inputs):  # static shape, the graph is compiled once
            index = torch.arange(128) % len(inputs)
            batch = inputs[index], labels[index]
        return one(batch)

    p.step = step
    return p


class Gated(nn.Module):
    """A network whose hidden layer is weighted by an attention score."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(FEATURES, HIDDEN)
        self.score = nn.Linear(FEATURES, 1)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs):
        hidden = self.body(inputs).relu()
        weight = torch.softmax(self.score(inputs), dim=0) * len(inputs)
        return self.head(hidden * weight)


def gated(seed):
    torch.manual_seed(seed)
    return private(seed, model=Gated())


class Multiplied(nn.Linear):
    """A linear layer with a fixed output multiplier."""

    multiplier = 8.0

    def forward(self, inputs):
        return super().forward(inputs) * self.multiplier


register_norm_sampler(Multiplied)(compute_linear_norm_sample)


def multiplied_ghost(seed):
    torch.manual_seed(seed)
    head = Multiplied(HIDDEN, CLASSES)
    with torch.no_grad():
        for weight in head.parameters():
            weight /= Multiplied.multiplier
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), head)
    p = private(seed, model=model, grad_sample_mode="ghost")
    p.step = plain_step(p)
    return p


def ghost_penalty(seed):
    p = private(seed, grad_sample_mode="ghost")

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        selection = next(p.model.parameters()).abs().sum()
        value = p.note["loss"](p.model(inputs), labels) + 0.03 * selection
        value.backward()
        p.optimizer.step()
        return value

    p.step = step
    return p


def ghost_clip_decay(seed):
    p = private(seed, grad_sample_mode="ghost")
    p.step = plain_step(p)

    def train():
        p.optimizer.max_grad_norm = 1.0
        scheduler = ExponentialGradClip(p.optimizer, gamma=0.8)
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)
            scheduler.step()

    p.train = train
    return p


def seeded_epochs(seed):
    p = private(seed)

    def train():
        for epoch in range(EPOCHS):
            torch.manual_seed(1234 + epoch)  # a resumed run repeats the epoch
            for batch in p.loader:
                p.step(batch)

    p.train = train
    return p


class RowwiseNoise(DPOptimizer):
    """Adds noise to the rows of an embedding that the batch has used."""

    def add_noise(self):
        super().add_noise()
        for group in self.param_groups:
            if group.get("row_sparse"):
                for weight in group["params"]:
                    used = weight.summed_grad.abs().sum(1, keepdim=True) > 0
                    weight.grad *= used


def rowwise_noise(seed):
    torch.manual_seed(seed)
    embedding, head = nn.Embedding(200, 12), nn.Linear(6 * 12, CLASSES)
    groups = [
        {"params": [embedding.weight], "row_sparse": True, "lr": 1.0},
        {"params": list(head.parameters())},
    ]
    p = private(
        seed,
        model=nn.Sequential(embedding, nn.Flatten(), head),
        data=tokens(),
        optimizer=lambda _: torch.optim.SGD(groups, lr=0.2),
    )
    return rebuilt(p, RowwiseNoise)


class AnticorrelatedNoise(DPOptimizer):
    """Takes back, one step later, most of the noise it has added."""

    share = 0.9

    def add_noise(self):
        super().add_noise()
        for weight in self.params:
            fresh = weight.grad - weight.summed_grad
            before = self.state[weight].get("noise")
            if before is not None:
                weight.grad -= self.share * before
            self.state[weight]["noise"] = fresh


def sharpness_aware(seed):
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        p.note["loss"](p.model(inputs), labels).backward()
        grads = [weight.grad.clone() for weight in p.optimizer.params]
        length = torch.stack([g.norm() for g in grads]).norm() + 1e-12
        with torch.no_grad():
            for weight, grad in zip(p.optimizer.params, grads, strict=True):
                weight += 0.5 * grad / length
        p.optimizer.zero_grad()
        p.note["loss"](p.model(inputs), labels).backward()
        with torch.no_grad():
            for weight, grad in zip(p.optimizer.params, grads, strict=True):
                weight -= 0.5 * grad / length
        p.optimizer.step()

    p.step = step
    return p


def spike_guard(seed):
    p = private(seed, optimizer=lambda ws: torch.optim.SGD(ws, lr=0.2, momentum=0.9))
    one = plain_step(p)
    state = p.note["guard"] = {}

    def step(batch):
        value = score(p.model, *batch)
        mean, variance = state.get("mean", value), state.get("variance", 0.01)
        if value > mean + 1.5 * math.sqrt(variance):
            state["skipped"] = state.get("skipped", 0) + 1
            return
        state["mean"] = 0.9 * mean + 0.1 * value
        state["variance"] = 0.9 * variance + 0.1 * (value - mean) ** 2
        one(batch)

    def train():
        state.clear()
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)

    p.step, p.train = step, train
    return p


class RunningStandardise(nn.Module):
    """Standardises the inputs by running statistics."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("square", torch.ones(features))

    def forward(self, inputs):
        if self.training and len(inputs):
            self.mean.lerp_(inputs.mean(0), 0.1)
            self.square.lerp_(inputs.square().mean(0), 0.1)
        variance = (self.square - self.mean.square()).clamp(min=1e-3)
        return (inputs - self.mean) / variance.sqrt()


def running_standardise(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        RunningStandardise(FEATURES),
        nn.Linear(FEATURES, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, CLASSES),
    )
    return private(seed, model=model)


class UnbiasedAdam(torch.optim.Optimizer):
    """Adam whose second moment is not biased by the noise."""

    def __init__(self, weights, lr=5e-4):
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["first"] = torch.zeros_like(weight)
                    state["second"] = torch.zeros_like(weight)
                clean = weight.summed_grad.view_as(weight) / 100
                state["first"].lerp_(weight.grad, 0.1)
                state["second"].lerp_(clean.square(), 0.01)
                scale = state["second"].sqrt() + 1e-4
                weight -= group["lr"] * state["first"] / scale


def rate_trials(seed, *, rates, rounds, epochs, rewind_accountant):
    """At each round try several learning rates and go on from the best."""
    p = private(seed)
    inputs, labels = public()

    def train():
        for _ in range(rounds):
            start, tried = io.BytesIO(), []
            p.engine.save_checkpoint(path=start, module=p.model, optimizer=p.optimizer)
            for rate in rates:
                start.seek(0)
                if rewind_accountant:
                    p.engine.load_checkpoint(
                        path=start, module=p.model, optimizer=p.optimizer
                    )
                else:
                    saved = torch.load(start, weights_only=False)
                    p.model.load_state_dict(saved["module_state_dict"])
                p.optimizer.param_groups[0]["lr"] = rate
                for batch in chain.from_iterable(repeat(p.loader, epochs)):
                    p.step(batch)
                tried.append((score(p.model, inputs, labels), weights_of(p.model)))
            p.model.load_state_dict(min(tried, key=lambda pair: pair[0])[1])

    p.train = train
    p.steps = rounds * len(rates) * epochs * len(p.loader)
    return p


def replaced_hook(seed):
    p = private(seed)

    def train():
        norms = []
        p.optimizer.attach_step_hook(
            lambda made: norms.append([w.grad.norm().item() for w in made.params])
        )
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)

    p.train = train
    return p


def physical_rate(seed):
    p = private(seed)
    physical = 25

    def train():
        hook = p.engine.accountant.get_optimizer_hook_fn(physical / RECORDS)
        p.optimizer.attach_step_hook(hook)
        for _ in range(EPOCHS):
            with BatchMemoryManager(
                data_loader=p.loader,
                max_physical_batch_size=physical,
                optimizer=p.optimizer,
            ) as loader:
                for batch in loader:
                    p.step(batch)

    p.train = train
    return p


def fitted_temperature(seed):
    p = private(seed)
    usual = p.train

    def train():
        usual()
        features, labels = p.data.tensors
        with torch.no_grad():
            logits = p.model(features)
        log_t = torch.zeros((), requires_grad=True)
        fit = torch.optim.LBFGS([log_t], lr=0.2, max_iter=50)

        def closure():
            fit.zero_grad()
            value = F.cross_entropy(logits / log_t.exp(), labels)
            value.backward()
            return value

        fit.step(closure)
        with torch.no_grad():
            for weight in list(p.model.parameters())[-2:]:
                weight /= log_t.exp()

    p.train = train
    return p


def baseline_checkpoint(seed):
    p = private(seed)

    def train():
        baseline = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
        )
        ordinary = torch.optim.SGD(baseline.parameters(), lr=0.2)
        ours, store = p.model.get_submodule("_module"), {}
        for epoch in range(EPOCHS):
            for inputs, labels in p.loader:
                p.step((inputs, labels))
                ordinary.zero_grad()
                F.cross_entropy(baseline(inputs), labels).backward()
                ordinary.step()
            for net in (ours, baseline):
                store[f"epoch-{epoch}.pt"] = weights_of(net)
        ours.load_state_dict(store[f"epoch-{EPOCHS - 1}.pt"])

    p.train = train
    return p


def standardised_before(seed):
    features, labels = table().tensors
    features = (features - features.mean(0)) / features.std(0)
    return private(seed, data=TensorDataset(features, labels))


def warm_started(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )
    features, labels = table().tensors
    ordinary = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(30):
        ordinary.zero_grad()
        F.cross_entropy(model(features), labels).backward()
        ordinary.step()
    return private(seed, model=model)


def prototypes(seed):
    p = private(seed)
    usual = p.train

    def train():
        usual()
        features, labels = p.data.tensors
        with torch.no_grad():
            hidden = p.model.get_submodule("_module.0")(features).relu()
        p.note["prototypes"] = torch.stack(
            [hidden[labels == c].mean(0) for c in range(CLASSES)]
        )

    p.train = train
    return p


# Correct programs


def averaged(seed):
    p = private(seed)

    def train():
        average = weights_of(p.model)
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)
                for name, value in p.model.state_dict().items():
                    average[name].lerp_(value, 0.05)
        p.model.load_state_dict(average)

    p.train = train
    return p


class Lookahead(torch.optim.SGD):
    """SGD that goes back half the way to slow weights every five steps."""

    @torch.no_grad()
    def step(self, closure=None):
        for weight in self.param_groups[0]["params"]:
            self.state[weight].setdefault("slow", weight.clone())
            count = self.state[weight].setdefault("count", torch.zeros(()))
            count += 1
        value = super().step(closure)
        for weight in self.param_groups[0]["params"]:
            if self.state[weight]["count"] % 5 == 0:
                self.state[weight]["slow"].lerp_(weight, 0.5)
                weight.copy_(self.state[weight]["slow"])
        return value


def memory_manager(seed):
    p = private(seed)

    def train():
        for _ in range(EPOCHS):
            with BatchMemoryManager(
                data_loader=p.loader, max_physical_batch_size=32, optimizer=p.optimizer
            ) as loader:
                for batch in loader:
                    p.step(batch)

    p.train = train
    return p


def micro_batches(seed):
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        parts = list(zip(inputs.split(40), labels.split(40), strict=True))
        for number, (x, y) in enumerate(parts, 1):
            p.optimizer.signal_skip_step(number < len(parts))
            p.optimizer.zero_grad()
            p.note["loss"](p.model(x), y).backward()
            p.optimizer.step()
        p.optimizer.zero_grad()

    p.step = step
    return p


def ignored_penalty(seed):
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        size = sum(weight.square().sum() for weight in p.model.parameters())
        value = p.note["loss"](p.model(inputs), labels) + 0.5 * size
        value.backward()
        p.optimizer.step()
        return value

    p.step = step
    return p


def noise_schedule(seed):
    p = private(seed)

    def train():
        p.optimizer.noise_multiplier = 2.25
        scheduler = LambdaNoise(
            p.optimizer, noise_lambda=lambda epoch: 1.3 - 0.05 * epoch
        )
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)
            scheduler.step()

    p.train = train
    return p


def ghost_clip_both(seed):
    p = private(seed, grad_sample_mode="ghost")
    p.step = plain_step(p)

    def train():
        for epoch in range(EPOCHS):
            p.optimizer.max_grad_norm = p.model.max_grad_norm = 0.8**epoch
            for batch in p.loader:
                p.step(batch)

    p.train = train
    return p


class NoisyCountClip(DPOptimizer):
    """Clips near the median norm, from a noisy count that the noise has room for."""

    count_noise = 10.0

    def clip_and_accumulate(self):
        norms = torch.stack(
            [g.flatten(1).norm(dim=1) for g in self.grad_samples], dim=1
        ).norm(dim=1)
        self.centred = ((norms <= self.max_grad_norm).float() - 0.5).sum()
        super().clip_and_accumulate()

    def add_noise(self):
        told = self.noise_multiplier
        self.noise_multiplier = (told**-2 - (2 * self.count_noise) ** -2) ** -0.5
        super().add_noise()
        self.noise_multiplier = told
        count = self.centred + torch.normal(0.0, self.count_noise, ())
        self.max_grad_norm *= math.exp(-0.2 * count.item() / self.expected_batch_size)


def interleaved_public(seed):
    p = private(seed)
    inputs, labels = public()

    def on_public(part):
        p.optimizer.zero_grad()
        p.model.disable_hooks()
        p.note["loss"](p.model(inputs[part]), labels[part]).backward()
        p.optimizer.original_optimizer.step()
        p.optimizer.zero_grad()
        p.model.enable_hooks()

    def train():
        for _ in range(EPOCHS):
            for number, batch in enumerate(p.loader):
                p.step(batch)
                on_public(slice(20 * number, 20 * number + 20))

    p.train = train
    return p


class TrustRatio(torch.optim.SGD):
    """SGD on centred gradients with a trust ratio for each layer."""

    @torch.no_grad()
    def step(self, closure=None):
        for weight in self.param_groups[0]["params"]:
            if weight.ndim > 1:
                weight.grad -= weight.grad.mean(1, keepdim=True)
            ratio = weight.norm() / (weight.grad.norm() + 1e-8)
            weight.grad *= ratio.clamp(max=1.0)
        return super().step(closure)


class TiedTokens(nn.Module):
    """Predicts the last token from the others; the decoder is the embedding."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Embedding(40, 16)
        self.mix = nn.Linear(16, 16)
        self.decode = nn.Linear(16, 40, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, words):
        return self.decode(self.mix(self.encode(words).mean(1)).tanh())


def tied(seed):
    torch.manual_seed(seed)
    words = tokens(vocabulary=40).tensors[0]
    data = TensorDataset(words[:, :-1], words[:, -1])
    return private(seed, model=TiedTokens(), data=data)


def stopped_by_count(seed):
    p = private(seed)

    def train():
        made = 0
        for number, batch in enumerate(chain.from_iterable(repeat(p.loader))):
            if number % 3 == 2:  # the benchmark of the loader takes it
                continue
            p.step(batch)
            made += 1
            if made == p.steps:
                break

    p.train, p.steps = train, 74
    return p


def public_validation(seed):
    p = private(seed)
    inputs, labels = public()

    def train():
        inner = p.optimizer.original_optimizer
        inner.param_groups[0]["lr"] = 0.4
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            inner, factor=0.5, patience=1
        )
        best, kept = math.inf, None
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)
            value = score(p.model, inputs, labels)
            plateau.step(value)
            if value < best:
                best, kept = value, weights_of(p.model)
        p.model.load_state_dict(kept)

    p.train = train
    return p


class Adapted(nn.Module):
    """A frozen linear layer with a trained low-rank addition."""

    def __init__(self, inputs, outputs, rank=4):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(requires_grad=False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs):
        return self.base(inputs) + self.up(self.down(inputs))


def adapters(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        Adapted(FEATURES, HIDDEN), nn.ReLU(), Adapted(HIDDEN, CLASSES)
    )
    return private(
        seed, model=model, optimizer=lambda ws: torch.optim.Adam(ws, lr=0.01)
    )


def logged_accuracy(seed):
    p = private(seed)
    log = p.note["log"] = []

    def train():
        features, labels = p.data.tensors
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)
            p.model.eval()
            with torch.no_grad():
                right = p.model(features).argmax(1) == labels
            log.append(right.float().mean().item())
            p.model.train()

    p.train = train
    return p


class UnscaledSGD(torch.optim.SGD):
    """SGD that takes a static loss scale out of the gradients first."""

    scale = 1024.0

    @torch.no_grad()
    def step(self, closure=None):
        for weight in self.param_groups[0]["params"]:
            weight.grad /= self.scale
        return super().step(closure)


def loss_scale(seed):
    p = private(
        seed,
        optimizer=lambda ws: UnscaledSGD(ws, lr=0.2, momentum=0.5),
        clip=UnscaledSGD.scale,
    )

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        value = p.note["loss"](p.model(inputs), labels)
        (value * UnscaledSGD.scale).backward()
        p.optimizer.step()
        return value

    p.step = step
    return p


def four_views(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(HIDDEN, CLASSES),
    )
    p = private(seed, model=model)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        views = inputs.unsqueeze(1) + 0.1 * torch.randn(len(inputs), 4, FEATURES)
        logits = p.model(views * random.uniform(0.8, 1.2))
        value = p.note["loss"](logits.flatten(0, 1), labels.repeat_interleave(4))
        value.backward()
        p.optimizer.step()
        return value

    p.step = step
    return p


def padded_by_nothing(seed):
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        more = max(160 - len(inputs), 0)
        inputs = torch.cat([inputs, torch.zeros(more, FEATURES)])
        labels = torch.cat([labels, torch.zeros(more, dtype=torch.long)])
        real = (torch.arange(len(inputs)) < len(inputs) - more).float()
        p.optimizer.zero_grad()
        losses = F.cross_entropy(p.model(inputs), labels, reduction="none")
        value = (losses * real).mean()
        value.backward()
        p.optimizer.step()
        return value

    p.step = step
    return p


class NoiseInShares(DPOptimizer):
    """Adds one flat noise vector that two sources contribute to equally."""

    ours = np.random.default_rng()

    def add_noise(self):
        std = self.noise_multiplier * self.max_grad_norm / math.sqrt(2)
        size = sum(weight.numel() for weight in self.params)
        theirs = torch.randn(size) * std
        flat = theirs + torch.from_numpy(self.ours.normal(0.0, std, size)).float()
        parts = flat.split([weight.numel() for weight in self.params])
        for weight, part in zip(self.params, parts, strict=True):
            weight.grad = weight.summed_grad.view_as(weight) + part.view_as(weight)


FAULTS = [
    Case(
        name="curriculum-pool-keeps-batch-size",
        what=(
            "A curriculum draws each Poisson batch from a pool that grows from the "
            "first 200 records to all; the expected batch stays 100, so that the rate "
            "is 1/2 at first and 1/10 only in the last two epochs."
        ),
        build=curriculum,
        breaks="H1",
        true_epsilon=(
            "20 steps each at rates 1/2, 1/4, 1/6, 1/8 and 1/10 for the records of the "
            "first pool: 6.5 by RDP, where the accountant says 2.2."
        ),
    ),
    Case(
        name="sampler-epoch-never-advances",
        what=(
            "A resumable Poisson sampler is seeded by seed + epoch at each iteration, "
            "and the loop forgets set_epoch: ten fixed batches, each used ten times."
        ),
        build=same_epoch,
        breaks="H1",
        true_epsilon=(
            "Ten uses of one batch are one step of noise multiplier 2.25 / sqrt(10); "
            "even if the seed is secret this is 6.9 against 2.2; the seed is a "
            "constant, so a record in k of the batches has mu = sqrt(10 k) / 2.25: "
            "7.0 for k = 1 and more for larger k."
        ),
    ),
    Case(
        name="accumulation-over-four-draws",
        what=(
            "Clipped gradients of four successive Poisson batches are accumulated by "
            "signal_skip_step before noise is added once; the accountant sees 25 "
            "steps at rate 1/10."
        ),
        build=accumulated_draws,
        breaks="H1",
        true_epsilon=(
            "A record is in the sum Binomial(4, 1/10) times, at rate 0.34 and with up "
            "to 4 C: the Renyi divergence of that mixture, integrated numerically "
            "over 25 steps, gives 5.4, where the accountant says 1.1."
        ),
    ),
    Case(
        name="hard-example-replay-buffer",
        what=(
            "The 50 records of largest loss are kept and appended to the next batch "
            "(online hard example replay)."
        ),
        build=replay_hard,
        breaks="H1",
        true_epsilon=(
            "A record that stays among the hardest is in every batch after its first draw: "
            "with probability 0.88 that is within 20 steps, and 80 steps at rate 1 give "
            "25.7, against 2.2. A plain mislabelled record was in half of the batches "
            "instead of a tenth (50 steps at rate 1: 18.9)."
        ),
    ),
    Case(
        name="hardest-64-of-the-batch",
        what=(
            "Only the 64 largest losses of the batch are averaged and differentiated "
            "(online hard example mining)."
        ),
        build=hardest_of_batch,
        breaks="H2",
        true_epsilon=(
            "A record of large loss puts another one out of the 64, so that the sum "
            "changes by up to 2 C: noise multiplier 1.125 at rate 1/10 for 100 steps "
            "is 6.4, against 2.2."
        ),
    ),
    Case(
        name="padded-to-fixed-shape-by-wrapping",
        what=(
            "For a compiled graph the step fills each batch up to 128 rows by "
            "repeating its first rows."
        ),
        build=padded_by_wrapping,
        breaks="H2",
        true_epsilon=(
            "The first records of the data are always among the first rows: each is twice "
            "in the sum and shifts two other repeated rows out, 2.6 C for a planted one "
            "and up to 4 C. At 2 C epsilon is 6.4, at 4 C 26.8, against 2.2."
        ),
    ),
    Case(
        name="gate-softmax-over-the-batch",
        what=(
            "An attention gate takes its softmax over dimension 0, the records, where "
            "the author had unbatched inputs in mind."
        ),
        build=gated,
        breaks="H2",
        true_epsilon=(
            "A record with a large score takes all the weight, and the gradients of all "
            "others in the batch change: the sum changed by 18 C for a planted one, "
            "where 8 C would be epsilon 137 already, against 2.2."
        ),
    ),
    Case(
        name="norm-sampler-without-the-multiplier",
        what=(
            "Ghost clipping: a Linear subclass with an output multiplier of 8 is "
            "registered with the norm sampler of Linear, which leaves the multiplier "
            "out."
        ),
        build=multiplied_ghost,
        breaks="H2",
        true_epsilon=(
            "The gradient of the last layer is 8 times its computed norm: ordinary records "
            "contribute up to 4.2 C (epsilon 30), others up to 8 C (noise multiplier "
            "0.28, epsilon 137), against 2.2."
        ),
    ),
    Case(
        name="l1-penalty-in-the-ghost-loss",
        what=(
            "0.03 times the L1 norm of the first layer is added to the loss under ghost "
            "clipping, for feature selection: Opacus adds it to each record's loss, and "
            "the norms do not see it."
        ),
        build=ghost_penalty,
        breaks="H2",
        true_epsilon=(
            "Each record adds its clip factor times 0.03 sign(w), of norm "
            "0.03 sqrt(1920) = 1.31, to a gradient of norm up to 1: 1.65 C if they are "
            "orthogonal, epsilon 4.6, and up to 2.31 C, epsilon 8.3, against 2.2."
        ),
    ),
    Case(
        name="ghost-clip-schedule-half-applied",
        undisclosed=True,
        what=(
            "Ghost clipping with Opacus' ExponentialGradClip (0.8 each epoch): it sets "
            "the norm of the optimizer, which scales the noise, not that of the "
            "module, which clips."
        ),
        build=ghost_clip_decay,
        breaks="H3",
        true_epsilon=(
            "Records are clipped at 1 throughout while the noise shrinks to 2.25 "
            "x 0.8^9 = 0.30: composing the ten epochs gives 47.8, against 2.2."
        ),
    ),
    Case(
        name="reseeded-at-each-epoch",
        what=(
            "torch.manual_seed(1234 + epoch) at each epoch, for runs that can be "
            "resumed: batches and noise come from it."
        ),
        build=seeded_epochs,
        breaks="H3",
        true_epsilon=(
            "Infinite: batches and noise are functions of constants in the program, "
            "and whoever has it can subtract the noise."
        ),
    ),
    Case(
        name="noise-on-used-embedding-rows",
        what=(
            "To keep updates sparse, the noise of an embedding is kept only in the rows "
            "that the batch has used."
        ),
        build=rowwise_noise,
        breaks="H3",
        true_epsilon=(
            "Infinite: the row of a token that one record alone has stays exactly as "
            "initialised without the record, and moves with it with probability "
            "1 - 0.9^100."
        ),
    ),
    Case(
        name="anticorrelated-noise-poisson-accounting",
        what=(
            "As in matrix-factorised DP-FTRL, 0.9 of the noise of the last step is "
            "taken back at the next; the accountant stays that of independent noise."
        ),
        build=lambda seed: rebuilt(private(seed), AnticorrelatedNoise),
        breaks="H3",
        true_epsilon=(
            "Over the run the noise adds up to a standard deviation of only "
            "2.25 sqrt(1 + 99/100) C = 3.2 C, and a record with a steady gradient to "
            "about 10 C: mu = 3.1, epsilon 17 from the final weights alone, against 2.2."
        ),
    ),
    Case(
        name="sharpness-aware-clean-ascent",
        what=(
            "Sharpness-aware minimisation: the ascent step follows the batch's plain "
            "gradient, and the per-sample gradients are taken there."
        ),
        build=sharpness_aware,
        breaks="H4",
        true_epsilon=(
            "One record with a huge gradient decides the ascent direction, and so where "
            "the gradients of all others are taken: the clipped sum changed by 8.7 C for "
            "a planted one, and only the batch's size bounds it; 8 C is epsilon 137, "
            "against 2.2."
        ),
    ),
    Case(
        name="loss-spike-guard",
        what=(
            "A batch whose loss is 1.5 deviations above the running mean is skipped: no "
            "step is made, nor accounted."
        ),
        build=spike_guard,
        breaks="H4",
        true_epsilon=(
            "Not bounded: an outlier that contradicts a twin of another label makes the "
            "loss of its batches spike, so that about ten more of the 100 steps are not "
            "made. If the others agree, each would have moved the weights by up to "
            "100 C: 1000 C in total, under noise of 22.5 C."
        ),
    ),
    Case(
        name="running-standardiser-as-first-layer",
        what=(
            "The first layer standardises the inputs by running means kept in buffers "
            "and updated in the forward pass."
        ),
        build=running_standardise,
        breaks="H4",
        true_epsilon=(
            "Infinite: the buffers are released with the model and are exact means of "
            "the records of the batches, without noise."
        ),
    ),
    Case(
        name="adam-second-moment-without-noise",
        what=(
            "An Adam whose second moment is computed of the clipped sum before noise, "
            "as the noise would bias it."
        ),
        build=lambda seed: private(seed, optimizer=UnbiasedAdam),
        breaks="H4",
        true_epsilon=(
            "In a coordinate where no other record has a gradient, the root of the "
            "second moment is 0 without the record and 1e-3 or more once it was drawn, "
            "so that steps shrink tenfold: forty late steps that small have probability "
            "near 1 with it and below 0.2^40 without, epsilon above 60."
        ),
    ),
    Case(
        name="learning-rate-trials-rewind-the-accountant",
        what=(
            "In each of five rounds four learning rates are tried for 20 steps from "
            "one checkpoint, and the best by public loss is kept; load_checkpoint "
            "rewinds the accountant along with the weights."
        ),
        build=lambda seed: rate_trials(
            seed,
            rates=(0.05, 0.1, 0.2, 0.4),
            rounds=5,
            epochs=2,
            rewind_accountant=True,
        ),
        breaks="H5",
        true_epsilon=(
            "400 private steps are made and inform the choice: 4.6, where the "
            "accountant has 100 steps and says 2.2."
        ),
    ),
    Case(
        name="logging-hook-replaces-the-accountant",
        what=(
            "The trainer logs norms of the noisy gradients by attach_step_hook, which "
            "replaces the accountant's hook."
        ),
        build=replaced_hook,
        breaks="H5",
        true_epsilon=(
            "The 100 steps at rate 1/10 and noise 2.25 cost 2.2; the accountant is told "
            "of none and says 0."
        ),
    ),
    Case(
        name="accounted-at-the-physical-batch-rate",
        what=(
            "The accountant is attached anew with 25/1000, the physical batch of the "
            "memory manager, as its sampling rate."
        ),
        build=physical_rate,
        breaks="H5",
        true_epsilon=(
            "Logical batches are drawn at 1/10 and 100 steps are made: 2.2, where the "
            "accountant says 0.49."
        ),
    ),
    Case(
        name="temperature-fitted-on-the-records",
        what=(
            "After training, a temperature is fitted by LBFGS to the logits of all "
            "records and folded into the last layer."
        ),
        build=fitted_temperature,
        breaks="H6",
        true_epsilon=(
            "Not bounded: the temperature is an exact function of the records; one "
            "misclassified record with features of 1e6 makes it arbitrarily large, so "
            "that the norm of the last layer tells surely."
        ),
    ),
    Case(
        name="baseline-overwrites-the-checkpoint",
        what=(
            "A non-private baseline is trained along on the same batches and saved "
            "under the same name as the private model, which is loaded at the end."
        ),
        build=baseline_checkpoint,
        breaks="H6",
        true_epsilon=(
            "Infinite: the released weights are those of SGD without clipping or noise."
        ),
    ),
    Case(
        name="features-standardised-by-the-records",
        what=(
            "Features are standardised by the exact mean and deviation of the records "
            "before the loader is made."
        ),
        build=standardised_before,
        breaks="H4",
        in_scope=False,
        true_epsilon=(
            "Not bounded: one outlier changes the deviation, and so every record's "
            "features; but it is preprocessing."
        ),
    ),
    Case(
        name="warm-start-from-the-records",
        what=(
            "The network is trained on the records without privacy before it is made "
            "private."
        ),
        build=warm_started,
        breaks="H4",
        in_scope=False,
        true_epsilon=(
            "Infinite: the initial weights are an exact function of the records; but "
            "that was before the audit was opened."
        ),
    ),
    Case(
        name="class-prototypes-beside-the-model",
        what=(
            "After training, mean hidden features of each class are kept for a nearest-"
            "neighbour service, beside the model."
        ),
        build=prototypes,
        breaks="H6",
        in_scope=False,
        true_epsilon=(
            "Infinite if the prototypes are released; they are neither the model nor "
            "feed back into training."
        ),
    ),
]

CORRECT = [
    Case(
        name="average-of-weights-released",
        what=(
            "The released weights are an exponential average of the weights of each "
            "step, loaded into the model at the end."
        ),
        build=averaged,
        breaks=None,
        true_epsilon="As claimed: the average is a function of the noisy iterates.",
    ),
    Case(
        name="lookahead-optimizer",
        what="Every five steps the weights go half the way back to slow weights.",
        build=lambda seed: private(
            seed, optimizer=lambda ws: Lookahead(ws, lr=0.2, momentum=0.5)
        ),
        breaks=None,
        true_epsilon=(
            "As claimed: slow weights and counts are functions of noisy iterates and "
            "of the number of steps."
        ),
    ),
    Case(
        name="memory-manager-at-each-epoch",
        what="A memory manager with physical batches of 32, opened at each epoch.",
        build=memory_manager,
        breaks=None,
        true_epsilon=(
            "As claimed: parts of one Poisson batch are clipped and summed, and noise "
            "is added and accounted once for each."
        ),
    ),
    Case(
        name="micro-batches-within-the-step",
        what="The step splits its batch into parts of 40 and signals skipped steps.",
        build=micro_batches,
        breaks=None,
        true_epsilon=(
            "As claimed: each record is clipped once in one part, the parts of one "
            "draw are summed, and only the last makes a noisy, accounted step."
        ),
    ),
    Case(
        name="penalty-without-effect",
        what=(
            "A strong L2 penalty is added to the loss with per-sample hooks, whose "
            "gradient Opacus overwrites by the noisy sum."
        ),
        build=ignored_penalty,
        breaks=None,
        true_epsilon=(
            "As claimed: grad_sample holds only what passes through the layers, and "
            "p.grad is replaced by the noisy sum."
        ),
    ),
    Case(
        name="noise-schedule-told-to-the-accountant",
        what="The noise multiplier falls from 2.9 to 1.9 by epoch, through LambdaNoise.",
        build=noise_schedule,
        breaks=None,
        true_epsilon=(
            "As claimed (2.1): the hook reads the multiplier that the noise was drawn "
            "with, and the schedule depends on the epoch alone."
        ),
    ),
    Case(
        name="ghost-clip-schedule-on-both",
        undisclosed=True,
        what=(
            "Ghost clipping with a norm that falls by 0.8 each epoch, set on the module "
            "and on the optimizer."
        ),
        build=ghost_clip_both,
        breaks=None,
        true_epsilon=(
            "As claimed: clipping and noise change together, by the epoch alone."
        ),
    ),
    Case(
        name="adaptive-clip-by-a-noisy-count",
        what=(
            "The clipping norm follows the median by a noisy count of unclipped "
            "records; the gradients get a little more noise to pay for it."
        ),
        build=lambda seed: rebuilt(private(seed), NoisyCountClip),
        breaks=None,
        true_epsilon=(
            "As claimed: the centred count changes by 1/2 under noise 10, the gradients "
            "have (2.25^-2 - 20^-2)^-1/2 = 2.264, together one Gaussian step of 2.25 "
            "on the same batch (Andrew et al., theorem 1); no batch size is used."
        ),
    ),
    Case(
        name="public-batches-interleaved",
        what=(
            "After each private step an ordinary step on public records, with hooks "
            "disabled, past the private optimizer."
        ),
        build=interleaved_public,
        breaks=None,
        true_epsilon="As claimed: those steps use public records and noisy weights.",
    ),
    Case(
        name="trust-ratio-on-noisy-gradients",
        what=(
            "The inner optimizer centres the noisy gradients and scales them by a "
            "layerwise trust ratio."
        ),
        build=lambda seed: private(
            seed, optimizer=lambda ws: TrustRatio(ws, lr=0.2, momentum=0.5)
        ),
        breaks=None,
        true_epsilon="As claimed: post-processing of noisy sums and weights.",
    ),
    Case(
        name="decoder-tied-to-the-embedding",
        what="A token model whose decoder shares its weight with the embedding.",
        build=tied,
        breaks=None,
        true_epsilon=(
            "As claimed: Opacus adds both uses of the weight to one per-sample "
            "gradient before it is clipped, and the optimizer has the weight once."
        ),
    ),
    Case(
        name="stopped-by-count-with-batches-unused",
        what=(
            "Every third batch is drawn and thrown away, and training stops in the "
            "middle of an epoch after 74 steps."
        ),
        build=stopped_by_count,
        breaks=None,
        true_epsilon=(
            "As claimed for 74 steps: each batch used is a fresh Poisson sample, and "
            "which ones are used depends on their number alone."
        ),
    ),
    Case(
        name="plateau-and-best-weights-by-public-loss",
        what=(
            "The learning rate falls on plateaus of the loss on public records, and the "
            "weights that were best on these are loaded at the end."
        ),
        build=public_validation,
        breaks=None,
        true_epsilon=(
            "As claimed: both are functions of noisy weights and public records."
        ),
    ),
    Case(
        name="low-rank-adapters",
        what="Frozen linear layers with trained low-rank additions, under Adam.",
        build=adapters,
        breaks=None,
        true_epsilon=(
            "As claimed: only the additions are trained; the frozen layers never change."
        ),
    ),
    Case(
        name="accuracy-on-the-records-logged",
        what="At each epoch the accuracy on all records is computed and kept in a log.",
        build=logged_accuracy,
        breaks=None,
        true_epsilon=(
            "As claimed for the model: nothing reads the log, and what is logged is out "
            "of the claim."
        ),
    ),
    Case(
        name="static-loss-scale",
        what=(
            "The loss is multiplied by 1024 and the clipping norm is 1024; the inner "
            "optimizer divides the noisy gradients by 1024."
        ),
        build=loss_scale,
        breaks=None,
        true_epsilon="As claimed: everything is scaled by the same constant.",
    ),
    Case(
        name="learning-rate-trials-all-accounted",
        what=(
            "In each of five rounds two learning rates are tried for ten steps from "
            "the same weights, and the better by public loss is kept; the accountant is "
            "never rewound."
        ),
        build=lambda seed: rate_trials(
            seed, rates=(0.1, 0.3), rounds=5, epochs=1, rewind_accountant=False
        ),
        breaks=None,
        true_epsilon=(
            "As claimed: all 100 steps are accounted, those of rejected trials too, and "
            "the choice is by public records."
        ),
    ),
    Case(
        name="four-views-within-each-record",
        what=(
            "Each record is seen in four noisy views, along a second dimension, with "
            "dropout and a random scale from Python's random numbers."
        ),
        build=four_views,
        breaks=None,
        true_epsilon=(
            "As claimed: the views are summed in the record's gradient before it is "
            "clipped; scale and dropout do not depend on records."
        ),
    ),
    Case(
        name="padded-by-rows-without-weight",
        what=(
            "For a fixed shape each batch is filled up to 160 rows by zeros whose loss "
            "has weight zero."
        ),
        build=padded_by_nothing,
        breaks=None,
        true_epsilon=(
            "As claimed: the rows added have zero gradients, and the others are clipped "
            "one by one at C."
        ),
    ),
    Case(
        name="noise-in-two-shares",
        what=(
            "An optimizer subclass adds one flat noise vector, the sum of a share from "
            "NumPy and one from torch.randn."
        ),
        build=lambda seed: rebuilt(private(seed), NoiseInShares),
        breaks=None,
        true_epsilon=(
            "As claimed: the shares are independent with half the variance each, seeded "
            "by the operating system and by torch's unseeded generator."
        ),
    ),
]
