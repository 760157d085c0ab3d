"""Cases of the kind that users of a training library bring to its maintainers.

Epsilons are at delta = 1e-5, by Opacus' RDP accountant, which says 2.2 of the base.
"""

import io
import random

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.data_loader import DPDataLoader
from opacus.grad_sample import register_norm_sampler
from opacus.optimizers import DPOptimizer
from opacus.schedulers import ExponentialNoise
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    DataLoader,
    Sampler,
    TensorDataset,
    default_collate,
    random_split,
)

from dpaudit_lab.held_out.program import Case, private, table


def _plain(p):
    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        value = p.note["loss"](p.model(inputs), labels)
        value.backward()
        p.optimizer.step()
        return value

    return step


def _with(p, cls):
    old = p.optimizer
    p.optimizer = cls(
        old.original_optimizer,
        noise_multiplier=old.noise_multiplier,
        max_grad_norm=old.max_grad_norm,
        expected_batch_size=old.expected_batch_size,
        generator=old.generator,
    )
    p.optimizer.attach_step_hook(old.step_hook)
    p.step = _plain(p)
    return p


def _semi():
    features, labels = table(1200).tensors
    return TensorDataset(features[:1000], labels[:1000]), (
        features[1000:],
        labels[1000:],
    )


def _skewed(rare):
    features, labels = table(2000).tensors
    few = (labels == 4).nonzero().flatten()[:rare]
    many = (labels != 4).nonzero().flatten()[: 1000 - rare]
    kept = torch.cat([few, many])
    return TensorDataset(features[kept], labels[kept])


def _public_update(p, batch):
    inputs, labels = batch
    p.model.disable_hooks()
    p.optimizer.zero_grad()
    F.cross_entropy(p.model(inputs), labels).backward()
    p.optimizer.original_optimizer.step()
    p.optimizer.zero_grad()
    p.model.enable_hooks()


def _public_loss(p, batch):
    inputs, labels = batch
    p.model.eval()
    with torch.no_grad():
        value = F.cross_entropy(p.model(inputs), labels).item()
    p.model.train()
    return value


# ---------------------------------------------------------------- H1


def _cached_batches(seed):
    p = private(seed)

    def train():
        cached = list(p.loader)
        for _ in range(10):
            random.shuffle(cached)
            for batch in cached:
                p.step(batch)

    p.train = train
    return p


def _collate_cap(seed):
    def collate(rows):
        return default_collate(rows[:80])

    return private(seed, loader={"collate_fn": collate})


class _BalancedBatches(Sampler):
    def __init__(self, labels, batch_size, steps):
        counts = torch.bincount(labels)
        self.rates = batch_size / (len(counts) * counts[labels].float())
        self.steps = steps

    def __len__(self):
        return self.steps

    def __iter__(self):
        for _ in range(self.steps):
            drawn = torch.rand(len(self.rates)) < self.rates
            yield drawn.nonzero().flatten().tolist()


def _balanced_batches(seed):
    data = _skewed(40)
    p = private(seed, data=data)
    p.loader = DataLoader(
        data,
        batch_sampler=_BalancedBatches(data.tensors[1], 100, 10),
        collate_fn=p.loader.collate_fn,
    )
    return p


# ---------------------------------------------------------------- H2


def _weighted_cross_entropy(seed):
    weights = torch.tensor([1.0, 1.0, 1.0, 1.0, 50.0])
    return private(
        seed,
        data=_skewed(10),
        criterion=nn.CrossEntropyLoss(weight=weights),
        clip=4.0,
        optimizer=lambda q: torch.optim.SGD(q, lr=0.05),
    )


def _ghost_unfrozen(seed):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(1000, 200, generator=generator)
    data = TensorDataset(features, features[:, :5].argmax(1))
    network = nn.Sequential(nn.Linear(200, 16), nn.ReLU(), nn.Linear(16, 5))
    network[0].requires_grad_(requires_grad=False)
    p = private(seed, model=network, data=data, grad_sample_mode="ghost")
    p.step = _plain(p)
    backbone = list(network[0].requires_grad_().parameters())
    for q in backbone:
        q.summed_grad = None
    p.optimizer.original_optimizer.add_param_group({"params": backbone})
    return p


def _ghost_penalty(seed):
    p = private(
        seed,
        grad_sample_mode="ghost",
        optimizer=lambda q: torch.optim.SGD(q, lr=0.02),
    )

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        size = sum(q.square().sum() for q in p.model.parameters())
        value = p.note["loss"](p.model(inputs), labels) + 0.5 * size
        value.backward()
        p.optimizer.step()

    p.step = step
    return p


class _TokenLinear(nn.Linear):
    """A linear layer that is applied to every token."""


@register_norm_sampler(_TokenLinear)
def _token_linear_norms(layer, activations, backprops):
    inputs, outputs = activations[0].square().sum(-1), backprops.square().sum(-1)
    return {
        layer.weight: (inputs * outputs).sum(1).sqrt(),
        layer.bias: outputs.sum(1).sqrt(),
    }


class _Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = _TokenLinear(2, 80), _TokenLinear(80, 5)

    def forward(self, x):
        return self.head(F.relu(self.tokens(x.view(-1, 12, 2)))).mean(1)


def _ghost_norm_sampler(seed):
    p = private(seed, model=_Tokens(), grad_sample_mode="ghost")
    p.step = _plain(p)
    return p


def _sharpness_aware(seed):
    p = private(seed, clip=2.0)

    def backward(batch):
        p.optimizer.zero_grad()
        p.note["loss"](p.model(batch[0]), batch[1]).backward()

    def step(batch):
        backward(batch)
        slopes = [q.grad.clone() for q in p.model.parameters()]
        size = torch.stack([s.norm() for s in slopes]).norm() + 1e-12
        with torch.no_grad():
            for q, s in zip(p.model.parameters(), slopes, strict=True):
                q.add_(s, alpha=1.0 / size.item())
        backward(batch)
        with torch.no_grad():
            for q, s in zip(p.model.parameters(), slopes, strict=True):
                q.sub_(s, alpha=1.0 / size.item())
        p.optimizer.step()

    p.step = step
    return p


# ---------------------------------------------------------------- H3


def _generator_restored(seed):
    generator = torch.Generator()
    generator.seed()
    p = private(seed, noise_generator=generator)

    def train():
        checkpoint = {"noise": generator.get_state()}
        for _ in range(10):  # the job runs for one epoch, then it is requeued
            p.optimizer.generator.set_state(checkpoint["noise"])
            for batch in p.loader:
                p.step(batch)

    p.train = train
    return p


class _BandedNoise(DPOptimizer):
    def add_noise(self):
        std = self.noise_multiplier * self.max_grad_norm
        for q in self.params:
            fresh = std * torch.randn_like(q)
            if "last_noise" not in self.state[q]:
                self.state[q]["last_noise"] = std * torch.randn_like(q)
            last = self.state[q]["last_noise"]
            q.grad = q.summed_grad.view_as(q) + (fresh - 0.9 * last) / 1.81**0.5
            self.state[q]["last_noise"] = fresh


def _banded_noise(seed):
    return _with(private(seed), _BandedNoise)


class _BufferedNoise(DPOptimizer):
    def add_noise(self):
        buffers = {}
        for q in self.params:
            if q.shape not in buffers:
                std = self.noise_multiplier * self.max_grad_norm
                buffers[q.shape] = torch.empty_like(q).normal_(0, std)
            q.grad = q.summed_grad.view_as(q) + buffers[q.shape]


def _noise_by_shape(seed):
    network = nn.Sequential(
        nn.Linear(24, 36),
        nn.ReLU(),
        nn.Linear(36, 36),
        nn.ReLU(),
        nn.Linear(36, 36),
        nn.ReLU(),
        nn.Linear(36, 5),
    )
    return _with(private(seed, model=network), _BufferedNoise)


class _MeanTokens(nn.Module):
    def forward(self, x):
        return x.mean(1)


class _SparseRows(DPOptimizer):
    def add_noise(self):
        super().add_noise()
        for q in self.params:
            if len(q) == 1500:
                q.grad[q.summed_grad.abs().sum(1) == 0] = 0


def _sparse_rows(seed):
    generator = torch.Generator().manual_seed(3)
    tokens = (1500 * torch.rand(1000, 8, generator=generator) ** 3).long()
    network = nn.Sequential(nn.Embedding(1500, 8), _MeanTokens(), nn.Linear(8, 5))
    data = TensorDataset(tokens, tokens[:, 0] % 5)
    return _with(private(seed, model=network, data=data), _SparseRows)


# ---------------------------------------------------------------- H4


def _actual_batch_size(seed):
    p = private(seed)
    plain = _plain(p)

    def step(batch):
        p.optimizer.expected_batch_size = max(len(batch[1]), 1)
        return plain(batch)

    p.step = step
    return p


class _RunningScale(nn.Module):
    def __init__(self, learn=True):
        super().__init__()
        self.learn = learn
        self.register_buffer("mean", torch.zeros(24))
        self.register_buffer("variance", torch.ones(24))

    def forward(self, x):
        out = (x - self.mean) / (self.variance + 1e-5).sqrt()
        if self.learn and self.training and len(x) > 1:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.1)
                self.variance.lerp_(x.var(0), 0.1)
        return out


def _running_scale(seed):
    network = nn.Sequential(
        _RunningScale(), nn.Linear(24, 80), nn.ReLU(), nn.Linear(80, 5)
    )
    return private(seed, model=network)


def _each_its_own_group(parameters):
    return torch.optim.SGD([{"params": [q]} for q in parameters], lr=0.1)


def _set_trust_ratios(optimizer):
    for group in optimizer.param_groups:
        (q,) = group["params"]
        ratio = (q.norm() / (q.grad.norm() + 1e-8)).item()
        group["lr"] = 0.02 * min(ratio, 50.0)


def _trust_ratio(seed):
    p = private(seed, optimizer=_each_its_own_group)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        p.note["loss"](p.model(inputs), labels).backward()
        _set_trust_ratios(p.optimizer)
        p.optimizer.step()

    p.step = step
    return p


def _temperature(seed):
    p = private(seed)
    p.model.temperature = nn.Parameter(torch.ones(()))
    other = torch.optim.SGD([p.model.temperature], lr=0.05)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        other.zero_grad()
        p.note["loss"](p.model(inputs) * p.model.temperature, labels).backward()
        p.optimizer.step()
        other.step()

    p.step = step
    return p


def _split_twice(seed):
    whole = table(1200)
    torch.manual_seed(seed)
    records, _ = random_split(whole, [1000, 200])
    _, public = random_split(whole, [1000, 200])
    p = private(seed, data=records)
    anchors = DataLoader(public, batch_size=50, shuffle=True)

    def train():
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
            for batch in anchors:
                _public_update(p, batch)

    p.train = train
    return p


# ---------------------------------------------------------------- H5


def _throttled_hook(seed):
    p = private(seed)

    def register():
        account, calls = p.optimizer.step_hook, [0]
        p.note["norms"] = []

        def log_norms(optimizer):
            p.note["norms"].append([q.grad.norm().item() for q in optimizer.params])

        def run_callbacks(optimizer):
            calls[0] += 1
            if calls[0] % 10 == 0:  # callbacks are slow
                for callback in (account, log_norms):
                    callback(optimizer)

        p.optimizer.attach_step_hook(run_callbacks)

    p.after_opening = register
    return p


def _skip_signal(seed):
    p = private(seed)
    plain, calls = _plain(p), [0]

    def step(batch):
        calls[0] += 1
        p.optimizer.signal_skip_step(do_skip=calls[0] % 4 != 0)
        return plain(batch)

    p.step = step
    p.steps = 25
    return p


def _configured_noise(seed):
    p = private(seed)
    rate = 1 / len(p.loader)
    p.optimizer.attach_step_hook(
        lambda _: p.engine.accountant.step(noise_multiplier=2.25, sample_rate=rate)
    )

    def train():
        p.optimizer.noise_multiplier = 2.25
        schedule = ExponentialNoise(p.optimizer, gamma=0.9)
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
            schedule.step()

    p.train = train
    return p


def _imitate(p, teacher, inputs):
    with torch.no_grad():
        target = F.softmax(teacher(inputs), 1)
    p.model.disable_hooks()
    p.optimizer.zero_grad()
    F.cross_entropy(p.model(inputs), target).backward()
    p.optimizer.original_optimizer.step()
    p.optimizer.zero_grad()
    p.model.enable_hooks()


def _second_engine(seed):
    data, (inputs, _) = _semi()
    other = private(seed + 100, data=data, noise=0.7)
    p = private(seed, data=data)

    def train():
        for _ in range(10):
            for batch, other_batch in zip(p.loader, other.loader, strict=True):
                other.step(other_batch)
                p.step(batch)
                _imitate(p, other.model, inputs)

    p.train = train
    return p


# ---------------------------------------------------------------- H6


def _log_prior(seed):
    p = private(seed)
    fit = p.train

    def train():
        fit()
        counts = torch.bincount(p.data.tensors[1], minlength=5)
        with torch.no_grad():
            p.model._module[2].bias.copy_((counts / counts.sum()).log())

    p.train = train
    return p


def _baseline_wins(seed):
    data, (inputs, labels) = _semi()
    p = private(seed, data=data)
    fit = p.train

    def score(network):
        with torch.no_grad():
            return (network(inputs).argmax(1) == labels).float().mean().item()

    def train():
        baseline = nn.Sequential(nn.Linear(24, 80), nn.ReLU(), nn.Linear(80, 5))
        plain = torch.optim.SGD(baseline.parameters(), lr=0.5)
        for _ in range(10):
            for features, targets in p.raw_loader:
                plain.zero_grad()
                F.cross_entropy(baseline(features), targets).backward()
                plain.step()
        fit()
        best = max(p.model._module, baseline, key=score)
        p.model._module.load_state_dict(best.state_dict())

    p.train = train
    return p


# ---------------------------------------------------------------- out of scope


def _warm_start(seed):
    p = private(seed)
    p.model.disable_hooks()
    for inputs, labels in p.raw_loader:
        p.optimizer.original_optimizer.zero_grad()
        F.cross_entropy(p.model(inputs), labels).backward()
        p.optimizer.original_optimizer.step()
    p.optimizer.zero_grad()
    p.model.enable_hooks()
    return p


def _cartography(seed):
    p = private(seed)
    p.note["losses"] = []

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        losses = F.cross_entropy(p.model(inputs), labels, reduction="none")
        p.note["losses"].append(losses.detach())
        losses.mean().backward()
        p.optimizer.step()

    p.step = step
    return p


FAULTS = [
    Case(
        name="cached-batches",
        what="The loader is drained once into a list and the list is replayed, shuffled, in every epoch because collating is slow.",
        build=_cached_batches,
        breaks="H1",
        true_epsilon="A record is in the same batches in all ten epochs: ten steps at rate 0.1 with noise 2.25 / sqrt(10) = 0.71, epsilon 6.9 against a claim of 2.2.",
    ),
    Case(
        name="collate-cap",
        what="The collate function keeps the first 80 rows of a batch so that memory does not overflow.",
        build=_collate_cap,
        breaks="H1",
        true_epsilon="Batches nearly always have more than 80 rows, so including a record drops another one: the sum changes by up to 2C, that is noise 1.125 at rate 0.1, epsilon 6.3 against 2.2.",
    ),
    Case(
        name="balanced-batches",
        what="The Poisson sampler is replaced by one whose rates are inverse to the frequency of the class; the accountant keeps 1/10.",
        build=_balanced_batches,
        breaks="H1",
        true_epsilon="Forty records of the rare class are drawn at rate 0.5: epsilon 13.1 against 2.2, and rates depend on private labels besides.",
    ),
    Case(
        name="weighted-cross-entropy",
        what="nn.CrossEntropyLoss(weight=...) with its mean, which divides by the weights of the whole batch; per-sample gradients are scaled by it before clipping.",
        build=_weighted_cross_entropy,
        breaks="H2",
        true_epsilon="A record of weight 50 among 100 of weight 1 scales all their gradients by 0.67; if they are aligned and just under C the sum moves by 33C besides its own C. At 5C epsilon is 45 already.",
    ),
    Case(
        name="ghost-unfrozen-backbone",
        what="With ghost clipping the backbone, frozen at make_private, is unfrozen and its parameters are added to the optimizer.",
        build=_ghost_unfrozen,
        breaks="H2",
        true_epsilon="Norms are taken over the parameters that were trainable at make_private, so the backbone's gradients are not clipped: they grow with the features without bound, and epsilon is not bounded. Already at the norm 3C of ordinary records it is 14.",
    ),
    Case(
        name="ghost-penalty-in-loss",
        what="With ghost clipping an L2 penalty is added to the wrapped loss, that is to the loss of each record, behind the back of the norms.",
        build=_ghost_penalty,
        breaks="H2",
        true_epsilon="Each record adds its clipping factor times 0.5 * 2 * the weights (norm 5.4) to the sum, so an unclipped one changes it by up to 6.4C at first, ordinary ones by up to 2.7C: at 2C epsilon is 6.3, at 3.5C it is 19.",
    ),
    Case(
        name="ghost-norm-sampler",
        what="A contributed norm sampler of a layer that is applied to tokens adds squared norms of tokens and leaves out the cross terms.",
        build=_ghost_norm_sampler,
        breaks="H2",
        true_epsilon="Gradients of the 12 tokens of a record that repeats a token are parallel, so its true norm is sqrt(12) = 3.46 times what is clipped: noise 0.65, epsilon 19 against 2.2.",
    ),
    Case(
        name="sharpness-aware-ascent",
        what="Sharpness-aware minimisation: the weights are first moved along the batch's raw gradient, the clipped gradients are taken there.",
        build=_sharpness_aware,
        breaks="H2",
        true_epsilon="One record with a large gradient decides the direction of the ascent (it is not clipped), hence where all gradients of the batch are taken: the sum can change by (2n + 1)C, far beyond any useful epsilon. With ordinary records it changes by 2C, which gives 6.3.",
    ),
    Case(
        name="noise-generator-restored",
        what="A requeued job goes on from its weights, but restores the noise generator from the checkpoint of the start in every epoch.",
        build=_generator_restored,
        breaks="H3",
        true_epsilon="Step k of all epochs has the same noise, so differences of updates give differences of clipped sums without noise: infinite.",
    ),
    Case(
        name="banded-noise",
        what="Noise of matrix factorisation, (z_t - 0.9 z_(t-1)) / sqrt(1.81), in an optimizer that is accounted as DP-SGD.",
        build=_banded_noise,
        breaks="H3",
        true_epsilon="Each step's noise has the right law, but the sum over 100 steps has noise 2.4C instead of 22.5C while a record adds about 10C to it: the threshold 16C alone gives epsilon above 20.",
    ),
    Case(
        name="noise-by-shape",
        what="Noise is drawn into a buffer that is kept per shape within a step, so two hidden layers of the same shape get the same noise.",
        build=_noise_by_shape,
        breaks="H3",
        true_epsilon="The difference of the two layers' gradients has no noise: infinite.",
    ),
    Case(
        name="sparse-embedding-rows",
        what="So that embedding gradients stay sparse, rows that no token of the batch touches get neither gradient nor noise.",
        build=_sparse_rows,
        breaks="H3",
        true_epsilon="Whether a row moves tells whether some record with that token was in the batch; a record with a token of its own is seen with certainty: infinite.",
    ),
    Case(
        name="actual-batch-size",
        what="The noisy sum is divided by the size of the batch that was drawn instead of the expected one.",
        build=_actual_batch_size,
        breaks="H4",
        true_epsilon="One more record scales the noise of 2,405 coordinates by 1%. The Renyi divergence of N(0, (s/100)^2) and N(C/101, (s/101)^2) in that dimension, subsampled at 0.1 over 100 steps, gives epsilon 5.4 to 5.7 against 2.2, and more for smaller batches.",
    ),
    Case(
        name="running-scale-buffers",
        what="An input layer without trainable parameters keeps running means and variances of the features; validation looks at trainable layers only.",
        build=_running_scale,
        breaks="H4",
        true_epsilon="The buffers are released and are averages of the batches' features without noise: infinite.",
    ),
    Case(
        name="trust-ratio-from-raw-gradient",
        what="LARS: the learning rate of each layer is set after backward() and before step() from p.grad, which is not private yet.",
        build=_trust_ratio,
        breaks="H4",
        true_epsilon="The raw gradient is not clipped, so one record can lower the rate, and with it the scale of all noise, by any factor: the scale is seen from 1,920 coordinates, epsilon is not bounded.",
    ),
    Case(
        name="temperature-second-optimizer",
        what="A temperature is attached to the wrapped model and trained by an optimizer of its own from the same backward pass.",
        build=_temperature,
        breaks="H4",
        true_epsilon="The gradient of the temperature is neither clipped nor noised and is not bounded: infinite.",
    ),
    Case(
        name="public-split-drawn-twice",
        what="Semi-private: the records and the public anchors come from two calls of random_split, so most anchors are also records.",
        build=_split_twice,
        breaks="H4",
        true_epsilon="About 167 of the records are also trained on by plain gradients without clipping and noise: infinite.",
    ),
    Case(
        name="throttled-callbacks",
        what="The accountant's step hook is wrapped together with a logger, and callbacks run every tenth step because logging is slow.",
        build=_throttled_hook,
        breaks="H5",
        true_epsilon="100 steps are made, 10 are told: epsilon 2.2 against a claim of 0.8.",
    ),
    Case(
        name="skip-signal-across-batches",
        what="Gradients of four Poisson batches are accumulated with signal_skip_step, to get round the ban on accumulation; the accountant is told one step at 1/10.",
        build=_skip_signal,
        breaks="H5",
        true_epsilon="A record is in at least one of the four with probability 0.34, and then adds up to 4C: 25 steps at that rate with C alone give 4.1 against a claim of 1.1.",
    ),
    Case(
        name="configured-noise-accounted",
        what="The noise multiplier decays by 0.9 per epoch, the hook tells the accountant the one from the configuration.",
        build=_configured_noise,
        breaks="H5",
        true_epsilon="Ten steps each at 2.25 * 0.9^k, k = 0 to 9: epsilon 6.2 against 2.2.",
    ),
    Case(
        name="second-engine-teacher",
        what="A second model is trained on the same records under its own engine (noise 0.7), and the model imitates it on public inputs by plain steps.",
        build=_second_engine,
        breaks="H5",
        true_epsilon="Imitation is post-processing of the teacher, whose 100 steps at noise 0.7 the model's engine never hears of: 16.7 together, against 2.2.",
    ),
    Case(
        name="bias-from-label-counts",
        what="After training the output bias is set to the log frequencies of the training labels.",
        build=_log_prior,
        breaks="H6",
        true_epsilon="The released bias gives the exact label counts: infinite.",
    ),
    Case(
        name="baseline-wins-selection",
        what="A baseline without privacy is trained next to the model for comparison, and the better of the two on public data ends up in the model.",
        build=_baseline_wins,
        breaks="H6",
        true_epsilon="The baseline is nearly always better, and then weights trained without noise are released: infinite.",
    ),
    Case(
        name="warm-start-on-records",
        what="An epoch of plain training on the same records before the audit is opened.",
        build=_warm_start,
        breaks="H4",
        in_scope=False,
        true_epsilon="The starting weights depend on the records without noise: infinite, but it happens before the opening.",
    ),
    Case(
        name="losses-kept-for-a-map",
        what="The losses of all records of a batch are kept in a list for data cartography; nothing reads it during training.",
        build=_cartography,
        breaks="H4",
        in_scope=False,
        true_epsilon="The list, if published, is without noise: infinite; the model alone has 2.2.",
    ),
]


# ---------------------------------------------------------------- correct


class _TiedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(24, 40), nn.Linear(40, 5)

    def forward(self, x):
        hidden = F.relu(self.encoder(x))
        return self.head(hidden), F.linear(hidden, self.encoder.weight.t())


def _tied_decoder(seed):
    p = private(seed, model=_TiedEncoder())

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        logits, copies = p.model(inputs)
        (F.cross_entropy(logits, labels) + F.mse_loss(copies, inputs)).backward()
        p.optimizer.step()

    p.step = step
    return p


def _penalty_with_hooks(seed):
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        size = sum(q.square().sum() for q in p.model.parameters())
        (p.note["loss"](p.model(inputs), labels) + 0.5 * size).backward()
        p.optimizer.step()

    p.step = step
    return p


def _ghost_norm_of_sum(seed):
    p = private(seed, grad_sample_mode="ghost")

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        p.note["loss"](p.model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(p.model.parameters(), 12.0)
        p.optimizer.step()

    p.step = step
    return p


class _HalfSpace(DPOptimizer):
    direction = None

    def clip_and_accumulate(self):
        super().clip_and_accumulate()
        sums = [q.summed_grad for q in self.params]
        size = sum(u.square().sum() for u in self.direction)
        dot = sum((s * u).sum() for s, u in zip(sums, self.direction, strict=True))
        for s, u in zip(sums, self.direction, strict=True):
            s.sub_(u * (dot.clamp(max=0) / size))


def _public_half_space(seed):
    inputs, labels = table(200, seed=7).tensors  # an older task
    p = _with(private(seed), _HalfSpace)
    plain = p.step

    def step(batch):
        p.model.disable_hooks()
        p.optimizer.zero_grad()
        F.cross_entropy(p.model(inputs), labels).backward()
        p.optimizer.direction = [q.grad.clone() for q in p.optimizer.params]
        p.model.enable_hooks()
        return plain(batch)

    p.step = step
    return p


def _trust_ratio_in_hook(seed):
    p = private(seed, optimizer=_each_its_own_group)
    account = p.optimizer.step_hook

    def hook(optimizer):
        account(optimizer)
        _set_trust_ratios(optimizer)

    p.optimizer.attach_step_hook(hook)
    return p


def _accounted_by_hand(seed):
    p = private(seed)
    p.optimizer.attach_step_hook(None)
    plain, rate = _plain(p), 1 / len(p.loader)

    def step(batch):
        value = plain(batch)
        p.engine.accountant.step(
            noise_multiplier=p.optimizer.noise_multiplier, sample_rate=rate
        )
        return value

    p.step = step
    return p


def _growing_batches(seed):
    p = private(seed)
    larger = DPDataLoader.from_data_loader(DataLoader(p.data, batch_size=200))
    p.steps = 5 * len(p.loader) + 5 * len(larger)

    def train():
        for loader in (p.loader, larger):
            hook = p.engine.accountant.get_optimizer_hook_fn(1 / len(loader))
            p.optimizer.attach_step_hook(hook)
            p.optimizer.expected_batch_size = len(p.data) // len(loader)
            for _ in range(5):
                for batch in loader:
                    p.step(batch)

    p.train = train
    return p


def _public_between(seed):
    data, public = _semi()
    p = private(seed, data=data)
    anchors = DataLoader(TensorDataset(*public), batch_size=50, shuffle=True)

    def train():
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
            for batch in anchors:
                _public_update(p, batch)

    p.train = train
    return p


def _one_engine_teacher(seed):
    data, (inputs, _) = _semi()
    p = private(seed, data=data)
    network = nn.Sequential(nn.Linear(24, 30), nn.ReLU(), nn.Linear(30, 5))
    teacher, optimizer, loader = p.engine.make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.2),
        data_loader=DataLoader(data, batch_size=100),
        noise_multiplier=1.5,
        max_grad_norm=1.0,
    )

    def train():
        for _ in range(10):
            for batch, (features, labels) in zip(p.loader, loader, strict=True):
                optimizer.zero_grad()
                F.cross_entropy(teacher(features), labels).backward()
                optimizer.step()
                p.step(batch)
                _imitate(p, teacher, inputs)

    p.train = train
    return p


def _applied_twice(seed):
    p = private(seed, optimizer=lambda q: torch.optim.SGD(q, lr=0.1, momentum=0.5))
    plain = _plain(p)

    def step(batch):
        value = plain(batch)
        p.optimizer.original_optimizer.step()
        return value

    p.step = step
    return p


def _checkpoint_round_trip(seed):
    p = private(seed, optimizer=lambda q: torch.optim.Adam(q, lr=0.01))

    def train():
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
            file = io.BytesIO()
            p.engine.save_checkpoint(path=file, module=p.model, optimizer=p.optimizer)
            file.seek(0)
            p.engine.load_checkpoint(path=file, module=p.model, optimizer=p.optimizer)

    p.train = train
    return p


def _rollback(seed):
    data, public = _semi()
    p = private(seed, data=data, optimizer=lambda q: torch.optim.Adam(q, lr=0.05))

    def weights():
        return {k: v.clone() for k, v in p.model.state_dict().items()}

    def train():
        best, kept = _public_loss(p, public), weights()
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
            now = _public_loss(p, public)
            if now < best:
                best, kept = now, weights()
            else:
                p.model.load_state_dict(kept)

    p.train = train
    return p


def _stop_at_budget(seed):
    p = private(seed)
    planned = RDPAccountant()
    p.steps = 0
    while planned.get_epsilon(1e-5) < 1.5:
        planned.step(noise_multiplier=2.25, sample_rate=0.1)
        p.steps += 1

    def train():
        for _ in range(10):
            for batch in p.loader:
                if p.engine.get_epsilon(1e-5) >= 1.5:
                    return
                p.step(batch)

    p.train = train
    return p


class _FiniteRows(DPOptimizer):
    def clip_and_accumulate(self):
        finite = [g.flatten(1).isfinite().all(1) for g in self.grad_samples]
        kept = torch.stack(finite).all(0)
        for q in self.params:
            shape = [-1] + [1] * q.dim()
            q.grad_sample = torch.where(kept.view(shape), q.grad_sample, 0.0)
        super().clip_and_accumulate()


def _finite_rows(seed):
    features, labels = table().tensors
    features = features.clone()
    features[::50, 3] = float("inf")
    data = TensorDataset(features, labels)
    return _with(private(seed, data=data), _FiniteRows)


def _views_within_record(seed):
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        views = inputs[:, None] + 0.2 * torch.randn(len(inputs), 4, 24)
        p.optimizer.zero_grad()
        logits = p.model(views).transpose(1, 2)
        p.note["loss"](logits, labels[:, None].expand(-1, 4)).backward()
        p.optimizer.step()

    p.step = step
    return p


class _Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 6, bias=False)
        self.up = nn.Linear(6, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def _adapters(seed):
    layers = [nn.Linear(24, 80), nn.Linear(80, 5)]
    for layer in layers:
        layer.requires_grad_(requires_grad=False)
    first, second = map(_Adapted, layers)
    p = private(seed, model=nn.Sequential(first, nn.ReLU(), second))
    fit = p.train

    def train():
        fit()
        with torch.no_grad():  # merged for serving
            for layer in (p.model._module[0], p.model._module[2]):
                layer.base.weight += layer.up.weight @ layer.down.weight
                layer.up.weight.zero_()

    p.train = train
    return p


class _Normalised(DPOptimizer):
    def clip_and_accumulate(self):
        squares = [g.flatten(1).square().sum(1) for g in self.grad_samples]
        factor = self.max_grad_norm / (sum(squares).sqrt() + 0.01)
        for q in self.params:
            q.summed_grad = torch.einsum("i,i...", factor, q.grad_sample)


def _automatic_clipping(seed):
    return _with(private(seed), _Normalised)


class _NumpyNoise(DPOptimizer):
    def add_noise(self):
        draw = np.random.default_rng().normal
        for q in self.params:
            noise = draw(0, self.noise_multiplier * self.max_grad_norm, q.shape)
            q.grad = q.summed_grad.view_as(q) + torch.from_numpy(noise).float()


def _numpy_noise(seed):
    return _with(private(seed), _NumpyNoise)


def _public_plateau(seed):
    data, public = _semi()
    p = private(seed, data=data, optimizer=lambda q: torch.optim.Adam(q, lr=0.05))

    def train():
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
            p.optimizer.original_optimizer, factor=0.5, patience=0, threshold=0.02
        )
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
            schedule.step(_public_loss(p, public))

    p.train = train
    return p


def _public_temperature(seed):
    data, (inputs, labels) = _semi()
    p = private(seed, data=data)
    p.model.temperature = nn.Parameter(torch.ones(()))
    other = torch.optim.SGD([p.model.temperature], lr=0.05)

    def step(batch):
        p.optimizer.zero_grad()
        logits = p.model(batch[0]) * p.model.temperature.detach()
        p.note["loss"](logits, batch[1]).backward()
        p.optimizer.step()
        with torch.no_grad():
            logits = p.model(inputs)
        other.zero_grad()
        F.cross_entropy(logits * p.model.temperature, labels).backward()
        other.step()

    p.step = step
    return p


CORRECT = [
    Case(
        name="tied-decoder-behind-hooks",
        what="A decoder uses the encoder's weight by F.linear, so its share of the gradient is not in grad_sample.",
        build=_tied_decoder,
        breaks=None,
        true_epsilon="As claimed: the optimizer overwrites p.grad by the clipped and noised sum of grad_sample, which is each record's own, if only a part of its gradient.",
    ),
    Case(
        name="penalty-with-hooks",
        what="An L2 penalty in the loss, which per-sample gradients do not see.",
        build=_penalty_with_hooks,
        breaks=None,
        true_epsilon="As claimed: the penalty reaches p.grad only, which the optimizer overwrites; grad_sample is that of the loss alone.",
    ),
    Case(
        name="ghost-norm-of-sum",
        what="With ghost clipping clip_grad_norm_ is called between backward and step, on the sum of clipped gradients.",
        build=_ghost_norm_of_sum,
        breaks=None,
        true_epsilon="As claimed: shortening a vector to a given norm is 1-Lipschitz (a projection to a ball), so one record still changes the sum by at most C before the noise.",
    ),
    Case(
        name="public-half-space",
        what="The clipped sum is projected, before noise, to the half-space that does not oppose a gradient on the public data of an older task.",
        build=_public_half_space,
        breaks=None,
        true_epsilon="As claimed: the half-space depends on weights and public data only, and projection to a convex set is 1-Lipschitz, so sensitivity stays C; noise is added afterwards in all coordinates.",
    ),
    Case(
        name="trust-ratio-in-hook",
        what="LARS with the ratio from the noisy gradient, in a step hook that first calls the accountant's.",
        build=_trust_ratio_in_hook,
        breaks=None,
        true_epsilon="As claimed: the hook runs after noise, so the rates are functions of released quantities; every step is told.",
    ),
    Case(
        name="accounted-by-hand",
        what="The accountant's hook is detached and the accountant is told in the loop, after each step.",
        build=_accounted_by_hand,
        breaks=None,
        true_epsilon="As claimed: every step is told with its noise multiplier and rate.",
    ),
    Case(
        name="growing-batches",
        what="After half of the epochs a loader of twice the rate is used; the hook and the expected batch size are replaced along with it.",
        build=_growing_batches,
        breaks=None,
        true_epsilon="As claimed: 50 steps at 0.1 and 25 at 0.2 are made and told.",
    ),
    Case(
        name="public-steps-between",
        what="After each epoch the model makes plain steps on public data, with per-sample hooks disabled.",
        build=_public_between,
        breaks=None,
        true_epsilon="As claimed: the public data are disjoint from the records, so these steps are post-processing.",
    ),
    Case(
        name="teacher-under-one-engine",
        what="A second private model with its own Poisson loader shares the engine; the model imitates it on public inputs.",
        build=_one_engine_teacher,
        breaks=None,
        true_epsilon="As claimed: the accountant hears of both models' steps, each on its own independent batch, and composes them.",
    ),
    Case(
        name="noisy-gradient-applied-twice",
        what="The wrapped optimizer steps once more with the noisy gradient of the private step.",
        build=_applied_twice,
        breaks=None,
        true_epsilon="As claimed: the second update is a function of the noisy gradient and of momentum made of noisy gradients.",
    ),
    Case(
        name="checkpoint-round-trip",
        what="After each epoch the engine saves model, optimizer and accountant and loads them again.",
        build=_checkpoint_round_trip,
        breaks=None,
        true_epsilon="As claimed: the state that is loaded is the one just saved, with the full history.",
    ),
    Case(
        name="rollback-on-public-loss",
        what="If an epoch did not lower the loss on public data, the weights go back to the best so far; its steps stay accounted.",
        build=_rollback,
        breaks=None,
        true_epsilon="As claimed: all 100 steps are told, and the choice depends on noisy weights and public data.",
    ),
    Case(
        name="stop-at-budget",
        what="The loop asks the engine for epsilon before each step and returns once 1.5 is reached.",
        build=_stop_at_budget,
        breaks=None,
        true_epsilon="As claimed: epsilon at each step is a constant, not a function of records, so the number of steps is fixed beforehand.",
    ),
    Case(
        name="rows-not-finite-are-dropped",
        what="Rows of grad_sample with values that are not finite are set to zero before clipping; some records have an infinite feature.",
        build=_finite_rows,
        breaks=None,
        true_epsilon="As claimed: what a row becomes depends on that row alone and has norm at most C.",
    ),
    Case(
        name="views-within-record",
        what="Four noisy views of each record go through the model along an inner dimension; their mean loss is the record's.",
        build=_views_within_record,
        breaks=None,
        true_epsilon="As claimed: grad_sample has one row per record, the mean over its views, which is clipped as one.",
    ),
    Case(
        name="adapters-merged",
        what="Low-rank adapters are trained on a frozen base and merged into its weights at the end.",
        build=_adapters,
        breaks=None,
        true_epsilon="As claimed: only adapters are trained, all of them privately; merging is post-processing.",
    ),
    Case(
        name="automatic-clipping",
        what="Per-sample gradients are normalised, C g / (|g| + 0.01), instead of clipped.",
        build=_automatic_clipping,
        breaks=None,
        true_epsilon="As claimed: each contribution has norm below C and is the record's own.",
    ),
    Case(
        name="numpy-noise",
        what="Noise comes from a numpy generator that is made anew from the system's entropy at every step.",
        build=_numpy_noise,
        breaks=None,
        true_epsilon="As claimed: it is N(0, (2.25C)^2), independent between coordinates and steps.",
    ),
    Case(
        name="plateau-on-public-loss",
        what="ReduceLROnPlateau is driven by the loss on public data after each epoch.",
        build=_public_plateau,
        breaks=None,
        true_epsilon="As claimed: the rate is a function of noisy weights and public data.",
    ),
    Case(
        name="temperature-on-public-data",
        what="A temperature is attached to the wrapped model and trained by an optimizer of its own, on public data.",
        build=_public_temperature,
        breaks=None,
        true_epsilon="As claimed: its gradient is a function of noisy weights and public data.",
    ),
]
