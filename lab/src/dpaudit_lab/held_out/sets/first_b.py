"""Variants of DP-SGD as papers' code and bug reports of libraries have them."""

import copy

import torch
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.schedulers import ExponentialGradClip
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn
from torch.nn import functional
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Sampler,
    Subset,
    TensorDataset,
)

from dpaudit_lab.held_out.program import Case, private, table

__all__ = ["CORRECT", "FAULTS"]


def _step(p, prepare=lambda batch: batch):
    """Return the usual step of a program, on batches that are prepared first."""

    def step(batch):
        inputs, labels = prepare(batch)
        p.optimizer.zero_grad()
        loss = p.note["loss"](p.model(inputs), labels)
        loss.backward()
        p.optimizer.step()
        return loss

    return step


def _swap(p, kind, **extra):
    """Let an own subclass of DPOptimizer take the place of the program's."""
    old = p.optimizer
    p.optimizer = kind(
        old.original_optimizer,
        noise_multiplier=old.noise_multiplier,
        max_grad_norm=old.max_grad_norm,
        expected_batch_size=old.expected_batch_size,
        **extra,
    )
    rate = 1 / len(p.loader)
    p.optimizer.attach_step_hook(p.engine.accountant.get_optimizer_hook_fn(rate))
    p.step = _step(p)
    return p


def _sampled(p, sampler, epochs=10, before_epoch=None):
    """Let the loop draw its batches with an own sampler."""
    batches = DataLoader(p.data, batch_sampler=sampler, collate_fn=p.loader.collate_fn)

    def train():
        for _ in range(epochs):
            if before_epoch:
                before_epoch()
            for batch in batches:
                p.step(batch)

    p.train = train
    return p


def _norms(optimizer):
    """Return the norm of each record's gradient."""
    flat = [g.flatten(1) for g in optimizer.grad_samples]
    return torch.cat(flat, 1).norm(dim=1)


def _public(records=200):
    """Return public records of the same kind, none of which is in the data."""
    return table(records, seed=9).tensors


def _hidden(p, inputs):
    """Return the hidden layer's activations."""
    with torch.no_grad():
        first, relu, _ = p.model._module  # noqa: SLF001
        return relu(functional.linear(inputs, first.weight, first.bias))


class _Items(nn.Module):
    """Predicts the next item; the items' embedding is also the output layer."""

    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(60, 16)
        self.mix = nn.Linear(16, 16)

    def forward(self, ids):
        state = self.mix(self.items(ids).mean(1)).relu()
        return functional.linear(state, self.items.weight)


def _popular(kinds, length, seed):
    """Return 1,000 sequences of items, the first of which are the most popular."""
    generator = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1, kinds + 1).float()
    drawn = torch.multinomial(
        weights, 1000 * length, replacement=True, generator=generator
    )
    return drawn.view(1000, length)


def _sequences():
    """Return sequences of items, each with the item that follows."""
    ids = _popular(60, 7, seed=5)
    return TensorDataset(ids[:, :-1].contiguous(), ids[:, -1].contiguous())


# Faults: batches


class _Shards(Sampler):
    def __init__(self, records, size, rate):
        self.records, self.size, self.rate = records, size, rate

    def __iter__(self):
        shards = torch.arange(self.records).view(-1, self.size)
        for _ in range(round(1 / self.rate)):
            yield shards[torch.rand(len(shards)) < self.rate].flatten().tolist()


def _shard_poisson(seed):
    p = private(seed)
    return _sampled(p, _Shards(len(p.data), 20, 1 / len(p.loader)))


def _epoch_seed_forgotten(seed):
    p = private(seed)
    generator = torch.Generator()
    sampler = UniformWithReplacementSampler(
        num_samples=len(p.data), sample_rate=0.1, generator=generator
    )
    return _sampled(p, sampler, before_epoch=lambda: generator.manual_seed(42))


class _Capped(UniformWithReplacementSampler):
    def __iter__(self):
        for batch in super().__iter__():
            yield batch[:80]


def _capped_batches(seed):
    p = private(seed)
    return _sampled(p, _Capped(num_samples=len(p.data), sample_rate=0.1))


def _hard_examples_replayed(seed):
    p = private(seed)

    def train():
        hard = None
        for _ in range(10):
            for inputs, labels in p.loader:
                fresh = inputs, labels
                if hard is not None:
                    fresh = tuple(torch.cat(pair) for pair in zip(fresh, hard))
                p.step(fresh)
                with torch.no_grad():
                    losses = functional.cross_entropy(
                        p.model(fresh[0]), fresh[1], reduction="none"
                    )
                worst = losses.topk(min(15, len(losses))).indices
                hard = fresh[0][worst], fresh[1][worst]

    p.train = train
    return p


# Faults: sensitivity


def _class_weights(seed):
    inputs, labels = table().tensors
    rare = labels == 0
    rare[rare.nonzero().flatten()[:12]] = False
    labels = torch.where(rare, labels + 1, labels)
    counts = torch.bincount(labels, minlength=5)
    criterion = nn.CrossEntropyLoss(weight=counts.sum() / (5 * counts))
    return private(
        seed, data=TensorDataset(inputs, labels), criterion=criterion, clip=5.0
    )


def _ghost_clip_schedule(seed):
    p = private(seed, grad_sample_mode="ghost")
    p.step = _step(p)

    def train():
        p.optimizer.max_grad_norm = 1.0
        schedule = ExponentialGradClip(p.optimizer, gamma=0.85)
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
            schedule.step()

    p.train = train
    return p


def _views_as_rows(seed):
    def views(batch):
        inputs, labels = batch
        noisy = [inputs + 0.05 * torch.randn_like(inputs) for _ in range(4)]
        return torch.cat(noisy), labels.repeat(4)

    p = private(seed)
    p.step = _step(p, views)
    return p


def _sharpness_aware(seed):
    p = private(seed)
    parameters = p.optimizer.params

    def backward(batch):
        p.optimizer.zero_grad()
        loss = p.note["loss"](p.model(batch[0]), batch[1])
        loss.backward()
        return loss

    def step(batch):
        backward(batch)
        gradients = [q.grad.clone() for q in parameters]
        norm = torch.stack([g.norm() for g in gradients]).norm() + 1e-12
        ascent = [0.5 * g / norm for g in gradients]
        with torch.no_grad():
            torch._foreach_add_(parameters, ascent)
        loss = backward(batch)
        with torch.no_grad():
            torch._foreach_sub_(parameters, ascent)
        p.optimizer.step()
        return loss

    p.step = step
    return p


def _tagging():
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(1000, 8, 24, generator=generator)
    rule = torch.randn(24, 5, generator=generator)
    return TensorDataset(inputs, (inputs.cumsum(1) @ rule).argmax(-1))


def _sequence_first(seed):
    p = private(seed, data=_tagging())

    def step(batch):
        inputs, tags = batch
        p.optimizer.zero_grad()
        scores = p.model(inputs.transpose(0, 1))
        loss = functional.cross_entropy(scores.flatten(0, 1), tags.t().flatten())
        loss.backward()
        p.optimizer.step()
        return loss

    p.step = step
    return p


# Faults: noise


class _Workers(DPOptimizer):
    """Adds what four workers would have added, each its share."""

    def __init__(self, *args, share=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.share = share

    def add_noise(self):
        deviation = self.noise_multiplier * self.max_grad_norm * self.share
        for q in self.params:
            shares = deviation * torch.randn(4, *q.shape)
            q.grad = (q.summed_grad + shares.sum(0)).view_as(q)


def _noise_over_workers(seed):
    return _swap(private(seed), _Workers, share=1 / 4)


class _Correlated(DPOptimizer):
    """Takes back most of the step before's noise, as matrix mechanisms do."""

    def add_noise(self):
        deviation = self.noise_multiplier * self.max_grad_norm
        for q in self.params:
            fresh = deviation * torch.randn_like(q)
            q.grad = q.summed_grad + fresh - 0.95 * self.state[q].get("noise", 0)
            self.state[q]["noise"] = fresh


def _correlated_noise(seed):
    return _swap(private(seed), _Correlated)


class _LazyRows(DPOptimizer):
    """Leaves rows of embeddings alone that no record of the batch has looked up."""

    def add_noise(self):
        super().add_noise()
        for q in self.params:
            if len(q) == 500:
                q.grad[q.summed_grad.abs().sum(1) == 0] = 0


class _Bag(nn.Module):
    def __init__(self, words=500, **embedding):
        super().__init__()
        self.words = nn.Embedding(words, 8, **embedding)
        self.head = nn.Linear(8, 4)

    def forward(self, ids):
        return self.head(self.words(ids).mean(1))


def _texts():
    ids = _popular(500, 10, seed=6)
    return TensorDataset(ids, ids.sum(1) % 4)


def _lazy_embedding_noise(seed):
    torch.manual_seed(seed)
    return _swap(private(seed, model=_Bag(), data=_texts()), _LazyRows)


# Faults: other ways from records to the model


def _embedding_max_norm(seed):
    torch.manual_seed(seed)
    return private(seed, model=_Bag(max_norm=1.0), data=_texts())


class _Codebook(nn.Module):
    """Quantises; codes are moving averages of what was assigned to them."""

    def __init__(self, codes=12, width=10):
        super().__init__()
        self.register_buffer("codes", torch.randn(codes, width))

    def forward(self, values):
        nearest = torch.cdist(values, self.codes).argmin(1)
        if self.training and torch.is_grad_enabled() and len(values):
            with torch.no_grad():
                members = functional.one_hot(nearest, len(self.codes)).float()
                counts = members.sum(0).unsqueeze(1)
                means = members.t() @ values / counts.clamp(min=1)
                moved = self.codes.lerp(means, 0.05)
                self.codes.copy_(torch.where(counts > 0, moved, self.codes))
        return values + (self.codes[nearest] - values).detach()


def _moving_codebook(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(24, 10), _Codebook(), nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 5)
    )
    return private(seed, model=model)


def _actual_batch_size(seed):
    p = private(seed)
    usual = p.step

    def step(batch):
        p.optimizer.expected_batch_size = max(len(batch[0]), 1)
        return usual(batch)

    p.step = step
    return p


class _ErrorFeedback(DPOptimizer):
    """Adds, clipped, what clipping has cut off so far."""

    def clip_and_accumulate(self):
        size, bound = self.expected_batch_size, self.max_grad_norm
        means = [g.sum(0) / size for g in self.grad_samples]
        super().clip_and_accumulate()
        errors = [self.state[q].get("error", 0 * q.detach()) for q in self.params]
        norm = torch.stack([e.norm() for e in errors]).norm()
        for q, error, mean in zip(self.params, errors, means):
            fed = error * (bound / (norm + 1e-6)).clamp(max=1)
            q.summed_grad = q.summed_grad + size * fed
            self.state[q]["error"] = error + mean - q.summed_grad / size


def _error_feedback(seed):
    return _swap(private(seed), _ErrorFeedback)


def _loss_scaler(seed):
    p = private(seed)
    scaler = {"scale": 2.0**13, "good": 0}

    def step(batch):
        p.optimizer.zero_grad()
        loss = p.note["loss"](p.model(batch[0]), batch[1])
        (loss * scaler["scale"]).backward()
        finite = all(q.grad_sample.half().isfinite().all() for q in p.optimizer.params)
        if not finite:
            scaler.update(scale=scaler["scale"] / 2, good=0)
            return loss
        for q in p.optimizer.params:
            q.grad_sample = q.grad_sample.half().float() / scaler["scale"]
        p.optimizer.step()
        scaler["good"] += 1
        if scaler["good"] == 8:
            scaler.update(scale=scaler["scale"] * 2, good=0)
        return loss

    p.step = step
    return p


# Faults: what the accountant is told


def _logging_hook(seed):
    p = private(seed)
    norms = p.note["norms"] = []

    def log(optimizer):
        norms.append(max(float(q.grad.norm()) for q in optimizer.params))

    p.after_opening = lambda: p.optimizer.attach_step_hook(log)
    return p


def _resumed_accountant(seed):
    p = private(seed)

    def train():
        checkpoint = None
        for _ in range(5):  # jobs with a limit of time
            if checkpoint:
                p.model.load_state_dict(checkpoint["model"])
                p.optimizer.load_state_dict(checkpoint["optimizer"])
                p.engine.accountant.history = list(checkpoint["spent"])
            spent = list(p.engine.accountant.history)
            for _ in range(2):
                for batch in p.loader:
                    p.step(batch)
            checkpoint = {
                "model": copy.deepcopy(p.model.state_dict()),
                "optimizer": copy.deepcopy(p.optimizer.state_dict()),
                "spent": spent,
            }

    p.train = train
    return p


def _growing_batches(seed):
    p = private(seed)

    def train():
        for size, epochs in (100, 3), (200, 3), (400, 4):
            batches = DPDataLoader(p.data, sample_rate=size / len(p.data))
            for _ in range(epochs):
                for batch in batches:
                    p.step(batch)

    p.steps = 3 * 10 + 3 * 5 + 4 * 2
    p.train = train
    return p


class _Quantile(DPOptimizer):
    """Moves the clipping norm to the median norm, by a noisy count."""

    def __init__(self, *args, deviation, centre, theorem, **kwargs):
        super().__init__(*args, **kwargs)
        self.deviation, self.centre, self.theorem = deviation, centre, theorem
        self.within = 0.0

    def clip_and_accumulate(self):
        within = (_norms(self) <= self.max_grad_norm).float() - self.centre
        self.within = float(within.sum())
        super().clip_and_accumulate()

    def add_noise(self):
        told = self.noise_multiplier
        if self.theorem:  # the gradients pay for the count
            self.noise_multiplier = (told**-2 - (2 * self.deviation) ** -2) ** -0.5
        super().add_noise()
        self.noise_multiplier = told

    def pre_step(self, closure=None):
        done = super().pre_step(closure)
        count = self.within + self.deviation * float(torch.randn(()))
        fraction = count / self.expected_batch_size + self.centre
        factor = torch.tensor(-0.2 * (fraction - 0.5)).exp()
        self.max_grad_norm = min(max(self.max_grad_norm * float(factor), 0.1), 10)
        return done


def _count_not_accounted(seed):
    return _swap(private(seed), _Quantile, deviation=1.0, centre=0.0, theorem=False)


# Faults: what is released


def _head_refitted(seed):
    p = private(seed)
    usual = p.train

    def train():
        usual()
        inputs, labels = p.data.tensors
        states = functional.pad(_hidden(p, inputs), (0, 1), value=1.0)
        gram = states.t() @ states + torch.eye(states.shape[1])
        solution = torch.linalg.solve(
            gram, states.t() @ functional.one_hot(labels, 5).float()
        )
        head = list(p.model.children())[0][2]
        with torch.no_grad():
            head.weight.copy_(solution[:-1].t())
            head.bias.copy_(solution[-1])

    p.train = train
    return p


def _pruned_by_activation(seed):
    p = private(seed)
    usual = p.train

    def train():
        usual()
        idle = _hidden(p, p.data.tensors[0]).mean(0).argsort()[:20]
        first, _, last = list(p.model.children())[0]
        with torch.no_grad():
            first.weight[idle] = 0
            first.bias[idle] = 0
            last.weight[:, idle] = 0

    p.train = train
    return p


# Faults: outside the scope


def _oversampled(seed):
    inputs, labels = table().tensors
    few = (labels == labels.bincount().argmin()).nonzero().flatten()
    rows = TensorDataset(inputs, labels)
    return private(seed, data=ConcatDataset([rows] + 2 * [Subset(rows, few)]))


def _prototypes(seed):
    p = private(seed)
    usual = p.train

    def train():
        usual()
        inputs, labels = p.data.tensors
        states = _hidden(p, inputs)
        p.note["prototypes"] = torch.stack(
            [states[labels == label].mean(0) for label in range(5)]
        )

    p.train = train
    return p


# Correct: what a record adds


class _MeanOfViews(DPOptimizer):
    """Clips the mean over the views of each record, as De et al. (2022) do."""

    def clip_and_accumulate(self):
        for q in self.params:
            g = q.grad_sample
            q.grad_sample = g.reshape(4, len(g) // 4, *g.shape[1:]).mean(0)
        super().clip_and_accumulate()


def _views_averaged(seed):
    def views(batch):
        inputs, labels = batch
        noisy = [inputs + 0.05 * torch.randn_like(inputs) for _ in range(4)]
        return torch.cat(noisy), labels.repeat(4)

    p = _swap(private(seed), _MeanOfViews)
    p.step = _step(p, views)
    return p


class _Normalized(DPOptimizer):
    """Normalises each record's gradient in place of clipping it (AUTO-S)."""

    def clip_and_accumulate(self):
        factors = self.max_grad_norm / (_norms(self) + 0.01)
        for q, g in zip(self.params, self.grad_samples):
            added = torch.einsum("n,n...->...", factors, g)
            q.summed_grad = added if q.summed_grad is None else q.summed_grad + added


def _automatic_clipping(seed):
    return _swap(private(seed), _Normalized)


def _tied_output_with_hooks(seed):
    torch.manual_seed(seed)
    return private(seed, model=_Items(), data=_sequences())


def _padded_batches(seed):
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        missing = 64 - len(inputs) % 64
        mask = functional.pad(torch.ones(len(inputs)), (0, missing))
        inputs = functional.pad(inputs, (0, 0, 0, missing))
        labels = functional.pad(labels, (0, missing))
        p.optimizer.zero_grad()
        losses = functional.cross_entropy(p.model(inputs), labels, reduction="none")
        loss = (losses * mask).mean()
        loss.backward()
        p.optimizer.step()
        return loss

    p.step = step
    return p


def _public_rows_in_batches(seed):
    p = private(seed)
    rows = _public(24)

    def with_rows(batch):
        return torch.cat([batch[0], rows[0]]), torch.cat([batch[1], rows[1]])

    p.step = _step(p, with_rows)
    return p


def _temporal_ensembling(seed):
    inputs, labels = table().tensors
    data = TensorDataset(inputs, labels, torch.arange(len(labels)))
    p = private(seed, data=data)
    beliefs = p.note["beliefs"] = functional.one_hot(labels, 5).float()

    def step(batch):
        inputs, labels, which = batch
        which = which.long()
        targets = 0.5 * functional.one_hot(labels.long(), 5) + 0.5 * beliefs[which]
        p.optimizer.zero_grad()
        scores = p.model(inputs)
        loss = functional.cross_entropy(scores, targets)
        loss.backward()
        p.optimizer.step()
        beliefs[which] = beliefs[which].lerp(scores.detach().softmax(1), 0.4)
        return loss

    p.step = step
    return p


# Correct: batches


class _Gaps(Sampler):
    """Draws the gaps between the records of a batch, not each record."""

    def __init__(self, records, rate):
        self.records, self.rate = records, rate

    def __iter__(self):
        for _ in range(round(1 / self.rate)):
            gaps = torch.empty(2 * self.records).geometric_(self.rate)
            chosen = gaps.cumsum(0).long() - 1
            yield chosen[chosen < self.records].tolist()


def _geometric_gaps(seed):
    p = private(seed)
    return _sampled(p, _Gaps(len(p.data), 1 / len(p.loader)))


class _Thinned(Sampler):
    """Takes records of a common class at half the rate."""

    def __init__(self, labels, rate):
        self.rates = torch.where(labels == labels.mode().values, rate / 2, rate)
        self.batches = round(1 / rate)

    def __iter__(self):
        for _ in range(self.batches):
            taken = torch.rand(len(self.rates)) < self.rates
            yield taken.nonzero().flatten().tolist()


def _common_class_thinned(seed):
    p = private(seed)
    return _sampled(p, _Thinned(p.data.tensors[1], 1 / len(p.loader)))


def _class_after_class(seed):
    p = private(seed)
    labels = p.data.tensors[1]

    def train():
        for label in range(5):
            own = Subset(p.data, (labels == label).nonzero().flatten().tolist())
            batches = DPDataLoader(own, sample_rate=0.1)
            for _ in range(2):
                for batch in batches:
                    p.step(batch)

    p.train = train
    return p


def _ghost_in_chunks(seed):
    p = private(seed, grad_sample_mode="ghost")
    p.step = _step(p)

    def train():
        with BatchMemoryManager(
            data_loader=p.loader, max_physical_batch_size=32, optimizer=p.optimizer
        ) as chunks:
            for _ in range(10):
                for chunk in chunks:
                    p.step(chunk)

    p.train = train
    return p


# Correct: noise and clipping norm


def _noise_shares(seed):
    return _swap(private(seed), _Workers, share=1 / 2)


def _count_paid_by_gradients(seed):
    return _swap(private(seed), _Quantile, deviation=5.0, centre=0.5, theorem=True)


def _clip_follows_noisy_norm(seed):
    p = private(seed)
    usual = p.step

    def step(batch):
        value = usual(batch)
        size, bound = p.optimizer.expected_batch_size, p.optimizer.max_grad_norm
        square = sum(float(q.grad.square().sum()) for q in p.optimizer.params)
        entries = sum(q.numel() for q in p.optimizer.params)
        noise = entries * (p.optimizer.noise_multiplier * bound / size) ** 2
        signal = max(square - noise, 0) ** 0.5
        p.optimizer.max_grad_norm = 0.9 * bound + 0.1 * (0.3 + signal)
        return value

    p.step = step
    return p


# Correct: what is made of the noisy sums


def _ascent_by_last_noisy(seed):
    p = private(seed)
    parameters = p.optimizer.params
    ascent = [torch.zeros_like(q) for q in parameters]

    def step(batch):
        with torch.no_grad():
            torch._foreach_add_(parameters, ascent)
        p.optimizer.zero_grad()
        loss = p.note["loss"](p.model(batch[0]), batch[1])
        loss.backward()
        with torch.no_grad():
            torch._foreach_sub_(parameters, ascent)
        p.optimizer.step()
        norm = torch.stack([q.grad.norm() for q in parameters]).norm()
        ascent[:] = [0.1 * q.grad / norm for q in parameters]
        return loss

    p.step = step
    return p


class _NoiseAwareAdam(torch.optim.Optimizer):
    """Adam whose second moments are freed of the noise's variance."""

    def __init__(self, parameters, lr, variance):
        super().__init__(parameters, {"lr": lr, "variance": variance})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for q in group["params"]:
                state = self.state[q]
                state["steps"] = steps = state.get("steps", 0) + 1
                first = state.setdefault("first", torch.zeros_like(q))
                second = state.setdefault("second", torch.zeros_like(q))
                first.lerp_(q.grad, 0.1)
                second.lerp_(q.grad.square(), 0.01)
                free = second / (1 - 0.99**steps) - group["variance"]
                scale = free.clamp(min=1e-5).sqrt()
                q.sub_(group["lr"] * first / (1 - 0.9**steps) / scale)


def _adam_without_noise_bias(seed):
    variance = (2.25 / 100) ** 2
    return private(
        seed, optimizer=lambda q: _NoiseAwareAdam(q, lr=0.003, variance=variance)
    )


class _TopEntries(torch.optim.Optimizer):
    """Applies the largest entries; the rest waits for later steps."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for q in group["params"]:
                waiting = self.state[q].get("waiting", 0) + q.grad
                least = waiting.abs().flatten().quantile(0.8)
                sent = torch.where(waiting.abs() >= least, waiting, 0)
                q.sub_(group["lr"] * sent)
                self.state[q]["waiting"] = waiting - sent


def _sparse_updates_with_memory(seed):
    return private(seed, optimizer=lambda q: _TopEntries(q, lr=0.2))


def _rows_projected(seed):
    torch.manual_seed(seed)
    p = private(seed, model=_Bag(), data=_texts())
    usual = p.step
    rows = next(q for q in p.optimizer.params if len(q) == 500)

    def step(batch):
        value = usual(batch)
        with torch.no_grad():
            rows.div_(rows.norm(dim=1, keepdim=True).clamp(min=1))
        return value

    p.step = step
    return p


def _public_steps_between(seed):
    p = private(seed)
    inputs, labels = _public()

    def public_step():
        p.model.disable_hooks()
        p.optimizer.zero_grad()
        functional.cross_entropy(p.model(inputs), labels).backward()
        p.optimizer.original_optimizer.step()
        p.model.enable_hooks()

    def train():
        for _ in range(10):
            for i, batch in enumerate(p.loader):
                p.step(batch)
                if i % 5 == 4:
                    public_step()

    p.train = train
    return p


def _average_of_late_weights(seed):
    p = private(seed)

    def train():
        average = torch.optim.swa_utils.AveragedModel(p.model._module)  # noqa: SLF001
        for epoch in range(10):
            for batch in p.loader:
                p.step(batch)
                if epoch >= 5:
                    average.update_parameters(p.model._module)  # noqa: SLF001
        p.model._module.load_state_dict(average.module.state_dict())  # noqa: SLF001

    p.train = train
    return p


def _back_to_best_by_public(seed):
    p = private(seed)
    inputs, labels = _public()

    def train():
        best, kept = float("inf"), None
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
            with torch.no_grad():
                loss = float(functional.cross_entropy(p.model(inputs), labels))
            if loss < best:
                best, kept = loss, copy.deepcopy(p.model.state_dict())
            else:
                p.model.load_state_dict(kept)

    p.train = train
    return p


def _fault(name, build, breaks, what, true_epsilon, in_scope=True, undisclosed=False):
    return Case(
        name=name,
        what=what,
        build=build,
        breaks=breaks,
        in_scope=in_scope,
        true_epsilon=true_epsilon,
        undisclosed=undisclosed,
    )


def _correct(name, build, what, true_epsilon):
    return Case(
        name=name, what=what, build=build, breaks=None, true_epsilon=true_epsilon
    )


FAULTS = [
    _fault(
        "shards-sampled-not-records",
        _shard_poisson,
        "H1",
        "Shards of 20 neighbouring records are sampled at the accounted rate, whole.",
        "About 7.8 instead of 2.2: the other 19 records (sum up to 19 C, noise 2.25 C) "
        "tell whether a shard is in the batch, so that nothing is amplified; a "
        "mixture of Gaussian mechanisms with Binomial(100, 1/10) participations.",
    ),
    _fault(
        "epoch-seed-forgotten",
        _epoch_seed_forgotten,
        "H1",
        "The sampler's generator is seeded for resumability, but alike in each epoch.",
        "At least 6.5 instead of 2.2: the same ten batches come back in ten epochs by a "
        "seed that stands in the code, so a record in one of them takes part in ten "
        "known steps (Gaussian mechanism with 2.25 / sqrt(10)); more for a record in "
        "several.",
    ),
    _fault(
        "batches-cut-to-memory",
        _capped_batches,
        "H1",
        "Poisson batches, of 100 on average, are cut to their first 80 records.",
        "About 6 instead of 2.2: of 98 batches in 100 a record with a low index pushes "
        "out another one, which changes the sum by up to 2 C: RDP with half the noise "
        "multiplier gives 6.35.",
    ),
    _fault(
        "hardest-records-replayed",
        _hard_examples_replayed,
        "H1",
        "The 15 records with the highest loss of each batch are added to the next one.",
        "About 26 instead of 2.2: a mislabelled outlier stays once it was drawn, so "
        "some 90 steps contain it for certain (Gaussian mechanism with "
        "2.25 / sqrt(90)), and others are pushed out in its favour.",
    ),
    _fault(
        "class-weights-averaged-over-batch",
        _class_weights,
        "H2",
        "Cross entropy with class weights, whose mean is over the weights in the batch.",
        "About 8 instead of 2.2: a record of the rare class (weight 17), where the "
        "batch has no other, raises the denominator of all others, whose gradients "
        "are hardly clipped at C = 5; measured, the sum moves by 2.3 to 2.7 C; RDP "
        "with 2.25 / 2.3 gives 8.2.",
    ),
    _fault(
        "ghost-clipping-ignores-schedule",
        _ghost_clip_schedule,
        "H2",
        "Opacus' clipping schedule is used with ghost clipping, whose module keeps "
        "the first C while the noise follows the optimizer's.",
        "About 16 instead of 2.2: records go on adding up to 1 while the noise is "
        "2.25 times 0.85 to the power of the epoch (RDP of these ten multipliers).",
        undisclosed=True,
    ),
    _fault(
        "augmented-views-as-rows",
        _views_as_rows,
        "H2",
        "Four augmented views of each record are rows of the batch, each clipped.",
        "About 27 instead of 2.2: a record adds up to 4 C (measured 3.996 C), so the "
        "noise multiplier is 2.25 / 4.",
    ),
    _fault(
        "sharpness-aware-on-the-batch",
        _sharpness_aware,
        "H2",
        "Gradients are taken at the point that the batch's own raw gradient leads to.",
        "Not bounded by the claim: a record moves the point at which all others are "
        "differentiated; measured, the sum moves by 1.5 C for usual records (already "
        "3.9) and by 8 C for one with large features, in theory by (2 n + 1) C.",
    ),
    _fault(
        "time-in-place-of-batch",
        _sequence_first,
        "H2",
        "Sequences are fed time first to a model that was wrapped batch first, so "
        "time steps are clipped and not records.",
        "Above 100: each of 8 clipped rows is a sum over all records, and a record "
        "with large features turns them all; measured, the sum moves by 9.8 C where 1 C "
        "is accounted; RDP with 2.25 / 8 gives 137.",
    ),
    _fault(
        "noise-over-workers-not-root",
        _noise_over_workers,
        "H3",
        "Each of four workers adds a quarter of the deviation, where half is due.",
        "6.35 instead of 2.2: the sum has the deviation of half the multiplier (RDP "
        "with 1.125).",
    ),
    _fault(
        "noise-taken-back",
        _correlated_noise,
        "H3",
        "As in matrix mechanisms 0.95 of the last step's noise is subtracted, but "
        "accounted as if noise were independent.",
        "Above 50 instead of 2.2: undoing the correlation leaves independent noise and "
        "records that stay on with 0.95 per step; the expected shift of 100 steps "
        "alone is 7.5 deviations, which is epsilon 59 of a Gaussian mechanism.",
    ),
    _fault(
        "no-noise-on-unused-rows",
        _lazy_embedding_noise,
        "H3",
        "Rows of an embedding that the batch has not looked up get no noise.",
        "Infinite: a row that moves tells with certainty that a record with this word "
        "is in the batch; for a record with the only occurrence of a word delta is "
        "1 - 0.9^100.",
    ),
    _fault(
        "embedding-with-max-norm",
        _embedding_max_norm,
        "H4",
        "nn.Embedding(max_norm=1): the forward pass rescales the rows looked up.",
        "Infinite: rows start with norm 2.8 and drop to 1 without noise when a record "
        "with the word is first drawn, 400 deviations of a step's noise.",
    ),
    _fault(
        "codebook-by-moving-average",
        _moving_codebook,
        "H4",
        "A vector quantiser's codes, buffers of the model, follow raw activations.",
        "Infinite: the codes are released, and are averages over records without noise.",
    ),
    _fault(
        "divided-by-actual-batch-size",
        _actual_batch_size,
        "H4",
        "The noisy sum is divided by the size of the batch drawn, not by the expected.",
        "About 5.6 instead of 2.2: the deviation of 2,405 noise entries tells the size "
        "up to a standard error of 1.44, which is as good as a count with this noise, "
        "and joint RDP has the multiplier 1.21.",
    ),
    _fault(
        "error-feedback-without-its-accounting",
        _error_feedback,
        "H4",
        "What clipping cuts off is kept and added, clipped as a whole, to later sums.",
        "Above 1,000: the memory holds raw gradients, and one outlier turns what is fed "
        "back, up to 2 C per average and so 200 C per sum, in all later steps "
        "(measured: 96 to 100 C in the next step).",
    ),
    _fault(
        "steps-skipped-on-overflow",
        _loss_scaler,
        "H4",
        "A loss scaler leaves a step out when a gradient overflows in half precision.",
        "Infinite: an outlier with a large enough gradient stops each step that draws "
        "it, and an unchanged model has probability zero otherwise, so delta is about "
        "1 - 0.9^100; some 8 steps are left out without an outlier.",
    ),
    _fault(
        "logging-hook-replaces-accountant",
        _logging_hook,
        "H5",
        "A step hook for logging is attached; an optimizer has one, the accountant's.",
        "2.2 is spent and 0 claimed: noise and clipping are right, but no step is told.",
    ),
    _fault(
        "accountant-resumed-from-start-of-job",
        _resumed_accountant,
        "H5",
        "Each of five jobs saves the model at its end but the accountant as it began.",
        "2.2 is spent in 100 steps; 20 steps are claimed, which is 1.03.",
    ),
    _fault(
        "batches-grow-accountant-not-told",
        _growing_batches,
        "H5",
        "The batch grows to 200 and 400 in place of a smaller learning rate.",
        "3.5 instead of 1.6: RDP of 30 steps at rate 0.1, 15 at 0.2 and 8 at 0.4, "
        "where 53 at 0.1 are told.",
    ),
    _fault(
        "count-for-quantile-not-accounted",
        _count_not_accounted,
        "H5",
        "Adaptive clipping by a count with noise of deviation 1 that nobody accounts.",
        "About 9.4 instead of 2.2: each step releases a sum with multiplier 2.25 and a "
        "count with 1, together a multiplier of 0.91.",
    ),
    _fault(
        "head-refitted-by-least-squares",
        _head_refitted,
        "H6",
        "After training, the last layer is solved for on the training records.",
        "Infinite: ridge regression on raw features without noise is a deterministic "
        "function of the records.",
    ),
    _fault(
        "pruned-by-activation-on-records",
        _pruned_by_activation,
        "H6",
        "After training, the units with the lowest mean activation on the training "
        "records are removed.",
        "Infinite: which units are zero is a deterministic function of the records, and "
        "one with large features decides it.",
    ),
    _fault(
        "small-class-oversampled",
        _oversampled,
        "H2",
        "The dataset given to the loader has each record of the smallest class thrice.",
        "At least 5.6 instead of 1.8: a record of this class is in a batch with "
        "probability 0.2 and not 0.07, at times twice or thrice.",
        in_scope=False,
    ),
    _fault(
        "class-prototypes-kept",
        _prototypes,
        "H6",
        "Mean hidden states of each class are kept for retrieval, next to the model.",
        "Infinite for whoever gets the prototypes; the model itself keeps the claim.",
        in_scope=False,
    ),
]

CORRECT = [
    _correct(
        "views-averaged-per-record",
        _views_averaged,
        "Four augmented views of each record are averaged before clipping.",
        "As claimed: a record has one gradient, the mean over its views, clipped to C.",
    ),
    _correct(
        "gradients-normalised",
        _automatic_clipping,
        "Each record's gradient is scaled to C |g| / (|g| + 0.01), in place of clipped.",
        "As claimed: its norm is below C whatever the record.",
    ),
    _correct(
        "tied-output-by-functional-call",
        _tied_output_with_hooks,
        "The output layer uses the embedding's weights outside of its module, which "
        "Opacus' hooks do not see.",
        "As claimed: what the hooks miss is overwritten and not applied; what they see "
        "is clipped and noised.",
    ),
    _correct(
        "batches-padded",
        _padded_batches,
        "Batches are padded with zero rows, masked in the loss, to multiples of 64.",
        "As claimed: padding has gradient zero and the mean's denominator cancels.",
    ),
    _correct(
        "public-rows-in-each-batch",
        _public_rows_in_batches,
        "24 public records are added to each batch, clipped and noised with it.",
        "As claimed: they add the same whatever the private records are.",
    ),
    _correct(
        "targets-from-own-past-predictions",
        _temporal_ensembling,
        "Each record's target is mixed with a memory of its own predictions.",
        "As claimed: the memory of a record follows from its own past and from noisy "
        "models and changes only its own gradient, which is clipped; inclusion "
        "stays fresh, and divergences are convex in the mixture over its past.",
    ),
    _correct(
        "batches-by-geometric-gaps",
        _geometric_gaps,
        "The sampler draws geometric gaps between the records of a batch.",
        "As claimed: gaps between successes of independent trials are geometric, so "
        "this is Poisson sampling.",
    ),
    _correct(
        "common-class-at-half-the-rate",
        _common_class_thinned,
        "Records of the commonest class are drawn independently at half the rate.",
        "At most as claimed: the rate depends on the record alone and is never above "
        "the accounted one, and epsilon increases with the rate.",
    ),
    _correct(
        "class-after-class",
        _class_after_class,
        "Classes are trained one after the other, each by Poisson batches at the "
        "accounted rate within the class.",
        "Less than claimed: a record takes part in 20 of 100 steps, at the accounted "
        "rate (1.03 of 2.2).",
    ),
    _correct(
        "ghost-clipping-in-chunks",
        _ghost_in_chunks,
        "Ghost clipping with chunks of 32 by BatchMemoryManager.",
        "As claimed: chunks are clipped per record and summed, noise comes once.",
    ),
    _correct(
        "noise-in-four-shares",
        _noise_shares,
        "The noise is the sum of four draws, each with half the deviation.",
        "As claimed: variances add up to the accounted one.",
    ),
    _correct(
        "count-paid-by-the-gradients",
        _count_paid_by_gradients,
        "Adaptive clipping by a noisy count; the gradients get more noise for it.",
        "As claimed: the count is centred (sensitivity 1/2) with deviation 5, the "
        "gradients have multiplier 2.309, together 2.25 (Andrew et al., Theorem 1); "
        "the fraction is by the expected batch size.",
    ),
    _correct(
        "clipping-norm-follows-noisy-norm",
        _clip_follows_noisy_norm,
        "C follows the norm of the noisy gradient, less what the noise adds to it.",
        "As claimed: C depends on noisy sums, and noise is scaled by the same C.",
    ),
    _correct(
        "ascent-by-last-noisy-gradient",
        _ascent_by_last_noisy,
        "Sharpness-aware steps whose ascent is the last step's noisy gradient.",
        "As claimed: the point of differentiation is a function of noisy sums.",
    ),
    _correct(
        "adam-freed-of-noise-variance",
        _adam_without_noise_bias,
        "An own Adam subtracts the noise's variance from its second moments.",
        "As claimed: this is made of noisy gradients and of public constants.",
    ),
    _correct(
        "sparse-updates-with-memory",
        _sparse_updates_with_memory,
        "The largest fifth of the entries is applied, the rest is kept for later.",
        "As claimed: choice and memory are functions of noisy gradients.",
    ),
    _correct(
        "embedding-rows-projected",
        _rows_projected,
        "After each step all rows of the embedding are scaled down to norm 1.",
        "As claimed: all rows are projected, looked up or not, by their values alone.",
    ),
    _correct(
        "public-steps-between",
        _public_steps_between,
        "After each fifth step, a plain step is made on public records.",
        "As claimed: these gradients are of public records, with hooks disabled.",
    ),
    _correct(
        "late-weights-averaged",
        _average_of_late_weights,
        "The model released is the mean of the weights of the last five epochs.",
        "As claimed: an average of noisy iterates.",
    ),
    _correct(
        "back-to-best-by-public-loss",
        _back_to_best_by_public,
        "After each epoch the weights go back to the best ones by a public loss; the "
        "accountant does not.",
        "As claimed: all 100 steps are told, the choice is by public records.",
    ),
]
