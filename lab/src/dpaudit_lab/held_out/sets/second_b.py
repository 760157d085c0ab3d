"""Subtle faults, and correct programs that look subtle: numerics, randomness, state."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from opacus.data_loader import wrap_collate_with_empty
from opacus.layers import DPLSTM, DPMultiheadAttention
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer import _mark_as_processed
from opacus.schedulers import ExponentialGradClip, LambdaNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset, default_collate

from dpaudit_lab.held_out.program import RECORDS, Case, private, table

__all__ = ["CORRECT", "FAULTS"]

RATE = 0.1


def _mlp(classes=5):
    return nn.Sequential(nn.Linear(24, 80), nn.ReLU(), nn.Linear(80, classes))


def _made(seed, make):
    """Return what is made, with initial weights from the seed."""
    torch.manual_seed(seed)
    network = make()
    torch.seed()
    return network


def _loop(p, batches):
    """Let the loop make one step for each of the batches that an iterable yields."""

    def train():
        for batch in batches():
            p.step(batch)

    p.train = train
    return p


def _ghost(seed, **kwargs):
    """Return a program with ghost clipping, whose loss has a backward of its own."""
    p = private(seed, grad_sample_mode="ghost", **kwargs)

    def step(batch):
        x, y = batch
        p.optimizer.zero_grad()
        p.note["loss"](p.model(x), y).backward()
        p.optimizer.step()

    p.step = step
    return p


def _public(records=200):
    """Return public records, which follow the same rule as the private ones."""
    generator = torch.Generator().manual_seed(1)
    torch.randn(RECORDS, 24, generator=generator)
    rule = torch.randn(24, 5, generator=generator)
    x = torch.randn(records, 24, generator=generator)
    return x, (x @ rule).argmax(1)


def _with_sampler(seed, sampler, **kwargs):
    """Give Opacus a loader with a batch sampler of one's own, which it then keeps."""
    p = private(seed, poisson_sampling=False, **kwargs)
    p.loader = p.raw_loader = DataLoader(
        p.data,
        batch_sampler=sampler(p.data),
        collate_fn=wrap_collate_with_empty(
            collate_fn=default_collate,
            sample_empty_shapes=[(0, *x.shape) for x in p.data[0]],
            dtypes=[x.dtype for x in p.data[0]],
        ),
    )
    return p


# ---------------------------------------------------------------------------- faults


class _Shards:
    """Poisson sampling of shards of records that lie together on the disk."""

    def __init__(self, data, size=20):
        self.shards = torch.arange(len(data)).split(size)

    def __len__(self):
        return round(1 / RATE)

    def __iter__(self):
        for _ in range(len(self)):
            drawn = [s for s in self.shards if torch.rand(()) < RATE]
            yield torch.cat(drawn).tolist() if drawn else []


def shards_sampled_whole(seed):
    return _with_sampler(seed, _Shards)


class _Balanced:
    """Poisson sampling with rates at which every class is expected equally often."""

    def __init__(self, labels):
        counts = torch.bincount(labels)
        self.rates = (RATE * len(labels) / len(counts) / counts[labels]).clamp(max=1)

    def __len__(self):
        return round(1 / RATE)

    def __iter__(self):
        for _ in range(len(self)):
            yield torch.nonzero(torch.rand(len(self.rates)) < self.rates)[:, 0].tolist()


def class_balanced_rates(seed):
    x, y = table().tensors
    y = torch.where(torch.arange(len(y)) < 30, 0, y.clamp(min=1))
    p = private(seed, data=TensorDataset(x, y))
    balanced = DataLoader(p.data, batch_sampler=_Balanced(y))
    return _loop(p, lambda: (b for _ in range(10) for b in balanced))


def sampler_seeded_every_epoch(seed):
    p = private(seed)
    order = p.loader.batch_sampler.generator = torch.Generator()

    def batches():
        for _ in range(10):
            order.manual_seed(20 + seed)  # "the same order in every epoch"
            yield from p.loader

    return _loop(p, batches)


def ten_local_steps_per_batch(seed):
    p = private(seed)
    return _loop(p, lambda: (b for b in p.loader for _ in range(10)))


def _pad_to_a_multiple(items):
    return default_collate(items + items[: -len(items) % 32])


def batch_padded_with_its_first_records(seed):
    return private(seed, loader={"collate_fn": _pad_to_a_multiple})


class _HardestTriplet(nn.Module):
    """The triplet loss with the hardest pair of each record within the batch."""

    def forward(self, z, labels):
        squares = z.pow(2).sum(1)
        distance = squares[:, None] + squares - 2 * z @ z.T
        same = labels[:, None] == labels
        far = F.pad(distance.masked_fill(~same, 0), (0, 1)).amax(1)
        near = F.pad(distance.masked_fill(same, 1e4), (0, 1), value=1e4).amin(1)
        return F.relu(far - near + 1).mean()


def hardest_triplets_in_the_batch(seed):
    return private(seed, criterion=_HardestTriplet())


class _Attending(nn.Module):
    """Six tokens of four features, attended to by a layer that expects time first."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 16)
        self.attention = DPMultiheadAttention(16, 2)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        h = self.embed(x.view(-1, 6, 4))
        attended, _ = self.attention(h, h, h)
        return self.head((h + attended).mean(1))


def attention_across_the_batch(seed):
    return private(seed, model=_made(seed, _Attending))


def _deltas(plain, parameters, batches, rate=0.2, steps=3):
    """Return what local training on each batch subtracts from the parameters."""
    rows = []
    for x, y in batches:
        local = {k: v.detach().clone().requires_grad_() for k, v in parameters.items()}
        for _ in range(steps):
            loss = F.cross_entropy(functional_call(plain, local, (x,)), y)
            slopes = torch.autograd.grad(loss, list(local.values()))
            local = {
                k: (v - rate * g).detach().requires_grad_()
                for (k, v), g in zip(local.items(), slopes, strict=True)
            }
        rows.append([(parameters[k] - local[k]).detach() / rate for k in parameters])
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def clients_made_of_chunks(seed):
    network = _made(seed, _mlp)
    plain = copy.deepcopy(network)
    p = private(
        seed, model=network, optimizer=lambda ps: torch.optim.SGD(list(ps), lr=4.0)
    )

    def step(batch):
        p.optimizer.zero_grad()
        chunks = [c.chunk(5) for c in batch]
        clients = [(x, y) for x, y in zip(*chunks, strict=True) if len(x)]
        parameters = dict(p.model._module.named_parameters())
        if clients:
            deltas = _deltas(plain, parameters, clients)
        else:
            deltas = [torch.zeros(0, *v.shape) for v in parameters.values()]
        for parameter, rows in zip(p.optimizer.params, deltas, strict=True):
            parameter.grad_sample = rows
        p.optimizer.step()

    p.step = step
    return p


class _Autoencoder(nn.Module):
    """A linear autoencoder with one matrix; the decoder uses it transposed."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(24, 8)

    def forward(self, x):
        return F.linear(self.encoder(x), self.encoder.weight.T)


class _Reconstruction(nn.Module):
    reduction = "mean"

    def forward(self, made, x):
        errors = (made - x).pow(2).sum(1)
        return errors if self.reduction == "none" else errors.mean()


def _features():
    x = table().tensors[0]
    return TensorDataset(x, x)


def ghost_clipping_with_a_tied_decoder(seed):
    return _ghost(
        seed,
        model=_made(seed, _Autoencoder),
        data=_features(),
        criterion=_Reconstruction(),
    )


class _EvenGradient(torch.autograd.Function):
    """Identity, of whose gradient the mean square over records is made one."""

    @staticmethod
    def forward(ctx, h):
        return h.view_as(h)

    @staticmethod
    def backward(ctx, g):
        return g / (g.norm() * max(len(g), 1) ** 0.5 + 1e-12)


class _Even(nn.Module):
    def forward(self, h):
        return _EvenGradient.apply(h)


def gradient_evened_over_the_batch(seed):
    x, y = table().tensors
    amounts = x[:, 0] + 0.1 * y
    amounts[:3] *= 300  # a few large amounts, as in any ledger
    first, relu, head = _made(seed, lambda: _mlp(1))
    model = nn.Sequential(first, relu, _Even(), head, nn.Flatten(0))
    data = TensorDataset(x, amounts)
    return private(seed, model=model, data=data, criterion=nn.MSELoss())


def ghost_clipping_with_a_clip_scheduler(seed):
    p = _ghost(seed)
    scheduler = ExponentialGradClip(p.optimizer, gamma=0.8)

    def batches():
        for _ in range(10):
            yield from p.loader
            scheduler.step()

    return _loop(p, batches)


def noise_from_a_default_generator(seed):
    return private(seed, noise_generator=torch.Generator())


class _Banded(DPOptimizer):
    """Noise of which most is taken back in the next step, as in DP-FTRL."""

    def add_noise(self):
        for q in self.params:
            fresh = torch.randn_like(q) * self.noise_multiplier * self.max_grad_norm
            previous = self.state[q].get("noise", 0.0)
            q.grad = (q.summed_grad + fresh - 0.9 * previous).view_as(q)
            self.state[q]["noise"] = fresh
            _mark_as_processed(q.summed_grad)


def noise_correlated_without_accounting(seed):
    p = private(seed)
    p.optimizer.__class__ = _Banded
    return p


class _Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(400, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


def _texts():
    generator = torch.Generator().manual_seed(7)
    ranks = torch.rand(RECORDS, 10, generator=generator)
    return TensorDataset((400**ranks).long() - 1, table().tensors[1])


class _SparseNoise(DPOptimizer):
    """Keeps the gradient of an embedding sparse."""

    def add_noise(self):
        sums = [q.summed_grad for q in self.params]
        super().add_noise()
        for q, s in zip(self.params, sums, strict=True):
            if len(q) == 400:
                q.grad *= (s.abs().sum(1, keepdim=True) > 0).to(q.dtype)


def noise_only_on_the_words_of_the_batch(seed):
    p = private(seed, model=_made(seed, _Words), data=_texts())
    p.optimizer.__class__ = _SparseNoise
    return p


class _CenterLoss(nn.Module):
    """Cross-entropy, and the distance from moving averages of each class's outputs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centers", torch.zeros(5, 5))

    def forward(self, z, labels):
        with torch.no_grad():
            for k in labels.unique():
                self.centers[k].lerp_(z[labels == k].mean(0), 0.3)
        pull = (z - self.centers[labels]).pow(2).sum(1).mean()
        return F.cross_entropy(z, labels) + 0.5 * pull


def center_loss_with_plain_centers(seed):
    return private(seed, criterion=_CenterLoss())


def polyak_step_size(seed):
    p = private(seed)

    def step(batch):
        x, y = batch
        p.optimizer.zero_grad()
        loss = p.note["loss"](p.model(x), y)
        loss.backward()
        if p.optimizer.pre_step():
            square = sum(q.grad.pow(2).sum() for q in p.optimizer.params)
            best = 0.2 * loss.detach().nan_to_num() / square
            p.optimizer.param_groups[0]["lr"] = best.clamp(max=2.0).item()
            p.optimizer.original_optimizer.step()

    p.step = step
    return p


class _Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(1))

    def forward(self, z):
        return z * self.log_scale.exp()


def temperature_with_its_own_optimizer(seed):
    p = private(
        seed,
        model=nn.Sequential(*_made(seed, _mlp), _Scale()),
        optimizer=lambda ps: torch.optim.SGD([q for q in ps if len(q) > 1], lr=0.2),
    )
    own = torch.optim.SGD([p.model._module[3].log_scale], lr=0.05)

    def step(batch):
        x, y = batch
        p.optimizer.zero_grad()
        p.model.zero_grad()
        p.note["loss"](p.model(x), y).backward()
        p.optimizer.step()
        own.step()

    p.step = step
    return p


class _HeavyBall(DPOptimizer):
    """Momentum as in the textbook, that is in the gradient; noise comes last."""

    def clip_and_accumulate(self):
        super().clip_and_accumulate()
        for q in self.params:
            q.summed_grad += 0.9 * self.state[q].get("velocity", 0.0)
            self.state[q]["velocity"] = q.summed_grad.clone()


def momentum_before_the_noise(seed):
    p = private(seed, optimizer=lambda ps: torch.optim.SGD(list(ps), lr=0.05))
    p.optimizer.__class__ = _HeavyBall
    return p


def accountants_hook_overwritten(seed):
    p = private(seed)
    norms = p.note["norms"] = []

    def record(optimizer):
        norms.append(sum(q.grad.pow(2).sum() for q in optimizer.params).item())

    p.after_opening = lambda: p.optimizer.attach_step_hook(record)
    return p


def four_poisson_batches_per_step(seed):
    p = private(seed)
    plain, p.steps = p.step, p.steps // 4
    count = p.note["count"] = [0]

    def step(batch):
        count[0] += 1
        p.optimizer.signal_skip_step(do_skip=count[0] % 4 != 0)
        return plain(batch)

    p.step = step
    return p


def soup_of_branches_of_one_checkpoint(seed):
    p = private(seed)
    p.steps = 20 + 4 * 80

    def train():
        for _ in range(2):
            for batch in p.loader:
                p.step(batch)
        trunk = copy.deepcopy(p.model.state_dict())
        spent = p.engine.accountant.state_dict()
        branches = []
        for _ in range(4):
            p.model.load_state_dict(trunk)
            p.engine.accountant.load_state_dict(copy.deepcopy(spent))
            for _ in range(8):
                for batch in p.loader:
                    p.step(batch)
            branches.append(copy.deepcopy(p.model.state_dict()))
        p.model.load_state_dict(
            {k: sum(b[k] for b in branches) / len(branches) for k in trunk}
        )

    p.train = train
    return p


def head_of_class_means(seed):
    p = private(seed)
    plain = p.train

    def train():
        plain()
        x, y = p.data.tensors
        first, relu, head = p.model._module
        with torch.no_grad():
            hidden = relu(F.linear(x, first.weight, first.bias))
            means = torch.stack([hidden[y == k].mean(0) for k in range(5)])
            head.weight.copy_(means)
            head.bias.copy_(-means.pow(2).sum(1) / 2)

    p.train = train
    return p


class _Observer(nn.Module):
    """Rounds activations to eight bits of the range that it has been shown."""

    def __init__(self):
        super().__init__()
        self.register_buffer("high", torch.zeros(()))
        self.mode = "off"

    def forward(self, h):
        if self.mode == "observe":
            self.high.copy_(torch.maximum(self.high, h.max()))
        if self.mode == "round":
            unit = self.high / 255
            return (h / unit).round().clamp(0, 255) * unit
        return h


def activations_quantised_for_release(seed):
    observer = _Observer()
    first, relu, head = _made(seed, _mlp)
    p = private(seed, model=nn.Sequential(first, relu, observer, head))
    plain = p.train

    def train():
        observer.mode = "off"
        observer.high.zero_()
        plain()
        observer.mode = "observe"
        with torch.no_grad():
            p.model(p.data.tensors[0])
        observer.mode = "round"

    p.train = train
    return p


def embeddings_kept_for_retrieval(seed):
    p = private(seed)
    plain = p.train

    def train():
        plain()
        x, y = p.data.tensors
        with torch.no_grad():
            p.note["retrieval"] = (p.model(x), y.clone())

    p.train = train
    return p


def started_from_a_fit_to_the_same_records(seed):
    network = _made(seed, _mlp)
    x, y = table().tensors
    fit = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(100):
        fit.zero_grad()
        F.cross_entropy(network(x), y).backward()
        fit.step()
    network.zero_grad()
    return private(seed, model=network)


FAULTS = [
    Case(
        name="shards-sampled-whole",
        what="Shards of 20 neighbouring records are Poisson sampled, not the records.",
        build=shards_sampled_whole,
        breaks="H1",
        true_epsilon="Above 6.5 (claim 2.2): 19 other records, known to an adversary, "
        "show whether the shard is in a sum, so nothing is gained by sampling: in the "
        "median run 10 known uses at sigma 2.25, a Gaussian mechanism with mu 1.41.",
    ),
    Case(
        name="class-balanced-rates",
        what="Records are sampled independently, at rates inverse to their class's size.",
        build=class_balanced_rates,
        breaks="H1",
        true_epsilon="18 (claim 2.2): the 30 records of the rare class are sampled at "
        "rate 2/3 instead of 1/10; RDP with q = 0.667, sigma 2.25, 100 steps.",
    ),
    Case(
        name="sampler-seeded-every-epoch",
        what="The sampler's generator is seeded alike at the start of each epoch.",
        build=sampler_seeded_every_epoch,
        breaks="H1",
        true_epsilon="At least 6.5 (claim 2.2): each epoch repeats the ten batches, so "
        "whoever is in one is in it ten times: 10 steps at q = 0.1 and sigma "
        "2.25/sqrt(10) (6.9 by RDP), more for who knows the seed and is in several.",
    ),
    Case(
        name="ten-local-steps-per-batch",
        what="Ten successive steps are made on each of ten batches.",
        build=ten_local_steps_per_batch,
        breaks="H1",
        true_epsilon="6.9 (claim 2.2): ten looks at one sample are one at sigma "
        "2.25/sqrt(10) = 0.71; RDP of 10 such steps at q = 0.1.",
    ),
    Case(
        name="batch-padded-with-its-first-records",
        what="The collate function fills the batch to a multiple of 32 by repetition.",
        build=batch_padded_with_its_first_records,
        breaks="H2",
        true_epsilon="At least 6.2 (claim 2.2): batches are sorted, so the data's first "
        "records are added twice whenever sampled (in 31 of 32 batches): sensitivity "
        "2C, RDP at q = 0.1 with sigma 1.125. One record more than a multiple of 32 "
        "doubles 31 others besides.",
    ),
    Case(
        name="hardest-triplets-in-the-batch",
        what="A triplet loss takes the farthest positive and nearest negative in the "
        "batch.",
        build=hardest_triplets_in_the_batch,
        breaks="H2",
        true_epsilon="Above 100 (claim 2.2): a record whose output is far off is the "
        "farthest positive of all its class and one amid the others the nearest "
        "negative of all: tens of clipped gradients change, sensitivity above 10C.",
    ),
    Case(
        name="attention-across-the-batch",
        what="Batches first are given to an attention layer that expects time first.",
        build=attention_across_the_batch,
        breaks="H2",
        true_epsilon="Above 200 (claim 2.2): each record attends to all others of its "
        "batch, so one with large features changes the gradients of all of them before "
        "they are clipped: by more than 50C in total on these data.",
    ),
    Case(
        name="clients-made-of-chunks",
        what="The batch is cut into five clients, whose local updates are clipped.",
        build=clients_made_of_chunks,
        breaks="H2",
        true_epsilon="At least 6.3 (claim 2.2): a record replaces its client's clipped "
        "update by another, a change of up to 2C, and shifts the borders of the other "
        "chunks besides (2.3C is easily found); RDP at q = 0.1 with sigma 1.125.",
    ),
    Case(
        name="ghost-clipping-with-a-tied-decoder",
        undisclosed=True,
        what="An autoencoder's matrix is also used by a function, under ghost clipping.",
        build=ghost_clipping_with_a_tied_decoder,
        breaks="H2",
        true_epsilon="Unbounded: the norm is that of the encoder's gradient, the "
        "gradient that is added has the decoder's too. A record whose error is "
        "orthogonal to the code space is not clipped, and adds |code| times |error|.",
    ),
    Case(
        name="gradient-evened-over-the-batch",
        what="A custom backward divides the gradient of a layer by its batch's norm.",
        build=gradient_evened_over_the_batch,
        breaks="H2",
        true_epsilon="Above 45 (claim 2.2): one large residual takes all the norm and "
        "the other records' gradients of the first layer vanish; about 100 of them, "
        "each clipped at C, change together: by 6C and more on these data, up to 100C.",
    ),
    Case(
        name="ghost-clipping-with-a-clip-scheduler",
        undisclosed=True,
        what="A clip scheduler lowers the optimizer's norm; the ghost module keeps its.",
        build=ghost_clipping_with_a_clip_scheduler,
        breaks="H2",
        true_epsilon="48 (claim 2.2): records are clipped at 1 throughout while the "
        "noise shrinks with the optimizer's norm by 0.8 per epoch, to 0.13; RDP with "
        "sigma 2.25 * 0.8**k in epoch k.",
    ),
    Case(
        name="noise-from-a-default-generator",
        what="The noise generator is a new torch.Generator that nobody seeded.",
        build=noise_from_a_default_generator,
        breaks="H3",
        true_epsilon="Infinite: such a generator always starts from the same constant, "
        "so the noise is the same in each run and can be subtracted by anybody.",
    ),
    Case(
        name="noise-correlated-without-accounting",
        what="Nine tenths of the noise are subtracted again in the next step.",
        build=noise_correlated_without_accounting,
        breaks="H3",
        true_epsilon="Above 28 (claim 2.2): undoing the filter, each use counts in all "
        "later steps with weights 0.9**k; a record used in a tenth of the steps shifts "
        "each by 1 against sigma 2.25, mu = 10/2.25 = 4.4.",
    ),
    Case(
        name="noise-only-on-the-words-of-the-batch",
        what="An embedding's noise is kept only in rows with a gradient.",
        build=noise_only_on_the_words_of_the_batch,
        breaks="H3",
        true_epsilon="Infinite: the row of a word that one record alone uses moves if "
        "and only if the record was sampled, which it was with probability 1 - 0.9**100.",
    ),
    Case(
        name="center-loss-with-plain-centers",
        what="A center loss keeps moving averages of outputs, and pulls towards them.",
        build=center_loss_with_plain_centers,
        breaks="H4",
        true_epsilon="Above 100 (claim 2.2): averages have no noise and no bound; one "
        "record with large features moves a center so far that all the class's clipped "
        "gradients point there, now and for several steps: some 20 changes of C to 2C.",
    ),
    Case(
        name="polyak-step-size",
        what="The learning rate is the clean batch loss over the noisy gradient's square.",
        build=polyak_step_size,
        breaks="H4",
        true_epsilon="Infinite: the length of an update tells the loss within percents; "
        "a record with a huge loss sends the rate to its cap in the steps in which it "
        "is sampled, and nothing else does.",
    ),
    Case(
        name="temperature-with-its-own-optimizer",
        what="A logit scale is left out of the private optimizer and has a plain one.",
        build=temperature_with_its_own_optimizer,
        breaks="H4",
        true_epsilon="Infinite: given the other parameters the released scale is a "
        "function of the records without any noise or clipping.",
    ),
    Case(
        name="momentum-before-the-noise",
        what="Momentum is taken of the clipped sums, and noise is added to the result.",
        build=momentum_before_the_noise,
        breaks="H4",
        true_epsilon="Above 28 (claim 2.2): a use counts in all later sums with weights "
        "0.9**k, each under its own noise only; a record used in a tenth of the steps "
        "shifts each by C on average, mu = 10/2.25 = 4.4.",
    ),
    Case(
        name="accountants-hook-overwritten",
        what="A hook that logs norms is attached, which replaces the accountant's.",
        build=accountants_hook_overwritten,
        breaks="H5",
        true_epsilon="2.2, and the accountant says 0: there is one hook only.",
    ),
    Case(
        name="four-poisson-batches-per-step",
        what="Gradients of four Poisson batches are added up to one step, by skip signals.",
        build=four_poisson_batches_per_step,
        breaks="H5",
        true_epsilon="More than 4.1 (claim 1.1): 25 steps are accounted at q = 0.1, but "
        "a record is in one with probability 1 - 0.9**4 = 0.34 (4.1 by RDP), and up to "
        "four times, which makes it more.",
    ),
    Case(
        name="soup-of-branches-of-one-checkpoint",
        what="Four runs from a checkpoint are averaged; each restores the accountant.",
        build=soup_of_branches_of_one_checkpoint,
        breaks="H5",
        true_epsilon="4.2 (claim 2.2): 340 steps enter the released average, of which "
        "the accountant knows the last branch's 100.",
    ),
    Case(
        name="head-of-class-means",
        what="After training the head is replaced by means of hidden features.",
        build=head_of_class_means,
        breaks="H6",
        true_epsilon="Infinite: given the first layer, which is released with it, the "
        "head is a function of the records without noise.",
    ),
    Case(
        name="activations-quantised-for-release",
        what="After training a range of activations is measured on the records and kept.",
        build=activations_quantised_for_release,
        breaks="H6",
        true_epsilon="Infinite: the buffer is the largest activation of any record, "
        "exactly; the record that has it can be read off given the weights.",
    ),
    Case(
        name="embeddings-kept-for-retrieval",
        what="Outputs and labels of all records are kept beside the model.",
        build=embeddings_kept_for_retrieval,
        breaks="H6",
        in_scope=False,
        true_epsilon="Infinite for who is given the outputs; the model itself is as "
        "claimed, and nothing of them feeds back into it.",
    ),
    Case(
        name="started-from-a-fit-to-the-same-records",
        what="The network was fitted to the same records without noise beforehand.",
        build=started_from_a_fit_to_the_same_records,
        breaks="H4",
        in_scope=False,
        true_epsilon="Infinite: 100 private steps at most add noise of known size to an "
        "initial state that is a function of the records (practically very large).",
    ),
]


# --------------------------------------------------------------------------- correct


def local_steps_of_each_record(seed):
    network = _made(seed, _mlp)
    plain = copy.deepcopy(network)
    p = private(seed, model=network)
    slope = grad(
        lambda w, x, y: F.cross_entropy(functional_call(plain, w, (x[None],)), y[None])
    )

    def update(weights, x, y):
        local = weights
        for _ in range(3):
            change = slope(local, x, y)
            local = {k: v - 0.1 * change[k] for k, v in local.items()}
        return [(weights[k] - local[k]) / 0.3 for k in weights]

    def step(batch):
        x, y = batch
        p.optimizer.zero_grad()
        now = {k: v.detach() for k, v in p.model._module.named_parameters()}
        if len(x):
            rows = vmap(update, in_dims=(None, 0, 0))(now, x, y)
        else:
            rows = [torch.zeros(0, *v.shape) for v in now.values()]
        for parameter, r in zip(p.optimizer.params, rows, strict=True):
            parameter.grad_sample = r
        p.optimizer.step()

    p.step = step
    return p


def sharpness_along_the_last_noisy_gradient(seed):
    p = private(seed)
    ps = p.optimizer.params

    def step(batch):
        # what the last step left in .grad is noisy
        last = [torch.zeros_like(q) if q.grad is None else q.grad.clone() for q in ps]
        scale = 0.1 / (sum(g.pow(2).sum() for g in last) ** 0.5 + 1e-12)
        x, y = batch
        p.optimizer.zero_grad()
        with torch.no_grad():
            for q, g in zip(ps, last, strict=True):
                q += scale * g
        p.note["loss"](p.model(x), y).backward()
        with torch.no_grad():
            for q, g in zip(ps, last, strict=True):
                q -= scale * g
        p.optimizer.step()

    p.step = step
    return p


def contrast_with_public_negatives(seed):
    p = private(seed)
    public = _public()[0]

    def step(batch):
        x, _ = batch
        p.optimizer.zero_grad()
        with torch.no_grad():
            others = F.normalize(p.model(public), dim=1)
        one = F.normalize(p.model(x), dim=1)
        two = F.normalize(p.model(x + 0.1 * torch.randn_like(x)), dim=1)
        positive = (one * two).sum(1, keepdim=True)
        logits = torch.cat([positive, one @ others.T], 1) / 0.2
        F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long)).backward()
        p.optimizer.step()

    p.step = step
    return p


class _Recurrent(nn.Module):
    """Eight time steps, of which each record uses as many as it has."""

    def __init__(self):
        super().__init__()
        self.lstm = DPLSTM(3, 16, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        states, _ = self.lstm(x.view(-1, 8, 3))
        length = 4 + (x[:, :1] > 0).long() * 4
        used = (torch.arange(8) < length).to(x.dtype)[:, :, None]
        return self.head((states * used).sum(1) / used.sum(1))


def recurrent_with_lengths(seed):
    return private(seed, model=_made(seed, _Recurrent))


def tied_decoder_under_hooks(seed):
    return private(
        seed,
        model=_made(seed, _Autoencoder),
        data=_features(),
        criterion=_Reconstruction(),
    )


def falling_noise_accounted(seed):
    p = private(seed, noise=3.0)
    scheduler = LambdaNoise(p.optimizer, noise_lambda=lambda k: 1 - 0.04 * min(k, 9))

    def batches():
        for _ in range(10):
            yield from p.loader
            scheduler.step()

    return _loop(p, batches)


def memory_manager_with_uneven_parts(seed):
    p = private(seed)

    def batches():
        for k in range(10):
            with BatchMemoryManager(
                data_loader=p.loader,
                max_physical_batch_size=17 + 10 * k,
                optimizer=p.optimizer,
            ) as parts:
                yield from parts

    return _loop(p, batches)


def ghost_clip_schedule_on_both_sides(seed):
    p = _ghost(seed)

    def batches():
        for k in range(10):
            p.model.max_grad_norm = p.optimizer.max_grad_norm = 0.9**k
            yield from p.loader

    return _loop(p, batches)


def rate_from_the_noisy_norm(seed):
    p = private(seed)

    def step(batch):
        x, y = batch
        p.optimizer.zero_grad()
        p.note["loss"](p.model(x), y).backward()
        if p.optimizer.pre_step():
            square = sum(q.grad.pow(2).sum() for q in p.optimizer.params)
            rate = (0.2 / square.sqrt()).clamp(max=1.0)
            p.optimizer.param_groups[0]["lr"] = rate.item()
            p.optimizer.original_optimizer.step()

    p.step = step
    return p


def average_of_noisy_weights_released(seed):
    p = private(seed)

    def train():
        average = copy.deepcopy(p.model.state_dict())
        for _ in range(10):
            for batch in p.loader:
                p.step(batch)
                for k, v in p.model.state_dict().items():
                    average[k].lerp_(v, 0.1)
        p.model.load_state_dict(average)

    p.train = train
    return p


class _Drawn:
    """An epoch's Poisson batches, all drawn at its start by numpy from fresh entropy."""

    def __init__(self, data):
        self.records = len(data)

    def __len__(self):
        return round(1 / RATE)

    def __iter__(self):
        drawn = np.random.default_rng().random((len(self), self.records)) < RATE
        return iter([np.flatnonzero(row).tolist() for row in drawn])


def batches_drawn_ahead_by_numpy(seed):
    return _with_sampler(seed, _Drawn)


class _Prototypes(nn.Module):
    """Logits are negative squared distances from learned prototypes."""

    def __init__(self):
        super().__init__()
        self.points = nn.Parameter(torch.randn(5, 10))

    def forward(self, z):
        return -(z.unsqueeze(-2) - self.points).pow(2).sum(-1)


def private_prototypes(seed):
    return private(
        seed,
        model=_made(
            seed, lambda: nn.Sequential(nn.Linear(24, 10), nn.Tanh(), _Prototypes())
        ),
    )


class _Spectral(nn.Module):
    """Divides by a layer's largest singular value, tracked by power iteration."""

    def __init__(self, layer):
        super().__init__()
        self.layers = (layer,)  # in a tuple, which does not register it again
        self.register_buffer("left", F.normalize(torch.ones(layer.out_features), dim=0))

    def forward(self, h):
        with torch.no_grad():
            weight = self.layers[0].weight
            right = F.normalize(weight.T @ self.left, dim=0)
            self.left.copy_(F.normalize(weight @ right, dim=0))
            largest = self.left @ weight @ right
        return h / largest


def power_iteration_in_a_buffer(seed):
    first, relu, head = _made(seed, _mlp)
    return private(seed, model=nn.Sequential(first, _Spectral(first), relu, head))


def plain_steps_on_public_records(seed):
    p = private(seed)
    plain = p.step
    public = _public()
    other = torch.optim.SGD(p.model.parameters(), lr=0.05, momentum=0.9)

    def step(batch):
        plain(batch)
        p.model.disable_hooks()
        p.optimizer.zero_grad()
        F.cross_entropy(p.model(public[0]), public[1]).backward()
        other.step()
        p.model.enable_hooks()

    p.step = step
    return p


def taught_by_a_model_of_public_records(seed):
    p = private(seed)
    public = _public()
    teacher = _made(seed, _mlp)
    other = torch.optim.Adam(teacher.parameters(), lr=0.003)

    def step(batch):
        x, y = batch
        other.zero_grad()
        F.cross_entropy(teacher(public[0]), public[1]).backward()
        other.step()
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        p.optimizer.zero_grad()
        z = p.model(x)
        (F.cross_entropy(z, y) + F.cross_entropy(z, soft)).backward()
        p.optimizer.step()

    p.step = step
    return p


def signs_of_noisy_gradients(seed):
    p = private(seed)

    def step(batch):
        x, y = batch
        p.optimizer.zero_grad()
        p.note["loss"](p.model(x), y).backward()
        if p.optimizer.pre_step():
            with torch.no_grad():
                for q in p.optimizer.params:
                    q -= 0.002 * q.grad.sign()

    p.step = step
    return p


def pruned_and_rounded_weights(seed):
    p = private(seed)
    plain = p.train

    def train():
        plain()
        with torch.no_grad():
            for q in p.model.parameters():
                q *= (q.abs() > q.abs().flatten().quantile(0.3)).to(q.dtype)
                unit = q.abs().max() / 127
                q.copy_((q / unit).round() * unit)

    p.train = train
    return p


def views_averaged_before_clipping(seed):
    p = private(seed)

    def step(batch):
        x, y = batch
        views = x[:, None] + 0.2 * torch.randn(len(x), 4, x.shape[1])
        p.optimizer.zero_grad()
        z = p.model(views)
        loss = F.cross_entropy(z.flatten(0, 1), y.repeat_interleave(4))
        loss.backward()
        p.optimizer.step()

    p.step = step
    return p


class _InFourParts(DPOptimizer):
    """Noise is half the sum of four draws in double precision, from fresh entropy."""

    def add_noise(self):
        for q in self.params:
            entropy = torch.Generator()
            entropy.seed()
            parts = torch.randn(4, *q.shape, dtype=torch.float64, generator=entropy)
            noise = parts.sum(0) / 2 * self.noise_multiplier * self.max_grad_norm
            q.grad = (q.summed_grad.double() + noise).to(q.dtype).view_as(q)
            _mark_as_processed(q.summed_grad)


def noise_in_four_parts(seed):
    p = private(seed)
    p.optimizer.__class__ = _InFourParts
    return p


class _Trimmed(nn.Module):
    """Leaves out records whose own loss is large."""

    def forward(self, z, labels):
        losses = F.cross_entropy(z, labels, reduction="none")
        return torch.where(losses.detach() < 1.8, losses, losses * 0).mean()


def records_trimmed_by_their_own_loss(seed):
    return private(seed, criterion=_Trimmed())


CORRECT = [
    Case(
        name="local-steps-of-each-record",
        what="What is clipped is the update of three local steps on one record alone.",
        build=local_steps_of_each_record,
        breaks=None,
        true_epsilon="As claimed: each row is a function of the parameters and one "
        "record, and Opacus clips, sums, noises and accounts the rows as always.",
    ),
    Case(
        name="sharpness-along-the-last-noisy-gradient",
        what="Gradients are taken at weights moved along the last noisy gradient.",
        build=sharpness_along_the_last_noisy_gradient,
        breaks=None,
        true_epsilon="As claimed: the point at which gradients are taken is a function "
        "of earlier noisy sums only, and each row still of one record.",
    ),
    Case(
        name="contrast-with-public-negatives",
        what="A contrastive loss with two views of each record and public negatives.",
        build=contrast_with_public_negatives,
        breaks=None,
        true_epsilon="As claimed: negatives are embeddings of public records, so that a "
        "record's loss has no other record in it.",
    ),
    Case(
        name="recurrent-with-lengths",
        what="An LSTM, batch first, whose states are averaged over each record's length.",
        build=recurrent_with_lengths,
        breaks=None,
        true_epsilon="As claimed: a record's length depends on itself and masks its own "
        "states; rows are summed over time and clipped.",
    ),
    Case(
        name="tied-decoder-under-hooks",
        what="A matrix is also used by a function, in the mode with hooks.",
        build=tied_decoder_under_hooks,
        breaks=None,
        true_epsilon="As claimed: what the hooks see is a part of the gradient (biased), "
        "but that part is clipped by record, and p.grad is overwritten with it.",
    ),
    Case(
        name="falling-noise-accounted",
        what="The noise multiplier falls from 3 to 1.92 by Opacus' scheduler.",
        build=falling_noise_accounted,
        breaks=None,
        true_epsilon="As claimed: the schedule is public, and the accountant's hook is "
        "given the multiplier of each step.",
    ),
    Case(
        name="memory-manager-with-uneven-parts",
        what="Batches are cut to parts whose size changes from epoch to epoch.",
        build=memory_manager_with_uneven_parts,
        breaks=None,
        true_epsilon="As claimed: parts are clipped by record and added up before noise "
        "is added once per Poisson batch; 100 steps are accounted.",
    ),
    Case(
        name="ghost-clip-schedule-on-both-sides",
        undisclosed=True,
        what="The norm falls by a schedule, for the ghost module and the optimizer alike.",
        build=ghost_clip_schedule_on_both_sides,
        breaks=None,
        true_epsilon="As claimed: the noise is always sigma times the norm that clips.",
    ),
    Case(
        name="rate-from-the-noisy-norm",
        what="The learning rate is set in each step from the noisy gradient's norm.",
        build=rate_from_the_noisy_norm,
        breaks=None,
        true_epsilon="As claimed: it is post-processing of the noisy sum.",
    ),
    Case(
        name="average-of-noisy-weights-released",
        what="A moving average of the weights is released in their place.",
        build=average_of_noisy_weights_released,
        breaks=None,
        true_epsilon="As claimed: it is post-processing of the private iterates.",
    ),
    Case(
        name="batches-drawn-ahead-by-numpy",
        what="A sampler draws the ten Poisson batches of an epoch at once, with numpy.",
        build=batches_drawn_ahead_by_numpy,
        breaks=None,
        true_epsilon="As claimed: inclusion is independent over records and steps at "
        "rate 1/10, and seeded from the system's entropy in each epoch.",
    ),
    Case(
        name="private-prototypes",
        what="A metric head with prototypes, which are private parameters like others.",
        build=private_prototypes,
        breaks=None,
        true_epsilon="As claimed: per-sample gradients of the custom layer are computed "
        "by functorch and clipped together with the rest.",
    ),
    Case(
        name="power-iteration-in-a-buffer",
        what="A buffer that each forward updates holds a singular vector of a layer.",
        build=power_iteration_in_a_buffer,
        breaks=None,
        true_epsilon="As claimed: the buffer is a function of the noisy weights and the "
        "number of passes, and is never shown a record.",
    ),
    Case(
        name="plain-steps-on-public-records",
        what="After each private step a plain one is made on public records.",
        build=plain_steps_on_public_records,
        breaks=None,
        true_epsilon="As claimed: plain steps use the noisy weights and public records.",
    ),
    Case(
        name="taught-by-a-model-of-public-records",
        what="A second model learns from public records and gives soft labels.",
        build=taught_by_a_model_of_public_records,
        breaks=None,
        true_epsilon="As claimed: the teacher never sees a private label nor learns from "
        "a private record; a record's soft label depends on it alone.",
    ),
    Case(
        name="signs-of-noisy-gradients",
        what="The wrapped optimizer's step is not called; weights move by signs.",
        build=signs_of_noisy_gradients,
        breaks=None,
        true_epsilon="As claimed: pre_step clips, noises and accounts; signs of noisy "
        "gradients are post-processing.",
    ),
    Case(
        name="pruned-and-rounded-weights",
        what="After training small weights are made zero and the others rounded.",
        build=pruned_and_rounded_weights,
        breaks=None,
        true_epsilon="As claimed: threshold and unit are functions of the noisy weights.",
    ),
    Case(
        name="views-averaged-before-clipping",
        what="Four noisy views of each record enter one row of the gradients.",
        build=views_averaged_before_clipping,
        breaks=None,
        true_epsilon="As claimed: views are a dimension within the record, over which "
        "the layers' gradients are summed before they are clipped.",
    ),
    Case(
        name="noise-in-four-parts",
        what="Noise is the half sum of four draws in double precision, freshly seeded.",
        build=noise_in_four_parts,
        breaks=None,
        true_epsilon="As claimed: half the sum of four independent Gaussians has their "
        "variance, and the seed is the system's entropy each time.",
    ),
    Case(
        name="records-trimmed-by-their-own-loss",
        what="The gradient of a record with a large loss is made zero.",
        build=records_trimmed_by_their_own_loss,
        breaks=None,
        true_epsilon="As claimed: whether a record counts depends on itself and the "
        "weights; its row is zero or clipped, and the divisor is a constant.",
    ),
]
