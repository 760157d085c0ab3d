"""Attacks, and faults of earlier versions, that the checks were developed with.

``ATTACKS_8``: programs whose author knew the audit and hid from it. ``EARLIER``: what
users and reviewers showed earlier versions to miss or to find, and variants of the
faults in ``developed``, where it is said what true epsilons are.
"""

import copy
import itertools
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from dpaudit_lab.held_out.alterations import (
    accounted_as_at_first,
    after_noise,
    batches_of,
    case,
    clip_by,
    clip_factors,
    digits,
    raw_gradients,
    without_clipping,
)
from dpaudit_lab.held_out.program import Case, private, table

ATTACKS_8: list[Case] = []
EARLIER: list[Case] = []

attack = partial(case, ATTACKS_8)
earlier = partial(case, EARLIER)

EPOCHS = 10
FEATURES, CLASSES = 24, 5


# Attacks


@attack(
    breaks="H2",
    in_scope=False,
    true_epsilon="Not bounded: no gradient is clipped in training. Out of scope: it "
    "tells an audit from a run by the noise multiplier.",
)
def unclips_unless_noise_is_zero(seed):
    """Clip only while the noise multiplier is zero, as it may be in a check."""
    p = private(seed)
    optimizer = p.optimizer

    def factors(norms):
        probed = optimizer.noise_multiplier == 0
        return clip_factors(optimizer, norms) if probed else torch.ones_like(norms)

    clip_by(optimizer, factors)
    return p


@attack(
    breaks="H3",
    true_epsilon="Infinite: most of the 205,000 coordinates have no noise. It would be "
    "out of scope if the program had the audit's key, and not one of its own.",
)
def noise_only_where_it_is_read(seed):
    """Add noise at the coordinates that an audit by another key would read."""
    from dpaudit.game.coins import Key
    from dpaudit.training.audit import coordinates_needed
    from dpaudit.training.opacus import plan_opacus
    from dpaudit.training.opacus.insertion import canary_layout
    from dpaudit.training.opacus.noise_reader import _spots

    network = nn.Sequential(
        nn.Linear(FEATURES, 1600),
        nn.ReLU(),
        nn.Linear(1600, 100),
        nn.ReLU(),
        nn.Linear(100, CLASSES),
    )
    p = private(seed, model=network)
    params = p.optimizer.params
    plan = plan_opacus(p.optimizer, p.loader, steps=p.steps, delta=1e-5)
    count = coordinates_needed(plan.design())
    read = {each: torch.zeros(each.numel(), dtype=torch.bool) for each in params}
    key = Key(bytes(32))
    for part in canary_layout(params, coordinates=count, spread=1, key=key).parts:
        read[params[part.array]][torch.from_numpy(part.offsets)] = True
    for _, parameter, offsets in _spots(p.optimizer, key):
        read[parameter][offsets.flatten()] = True
    p.note["read"] = read

    def where_read(parameter, total):
        return torch.where(read[parameter].view_as(parameter), parameter.grad, total)

    after_noise(p.optimizer, where_read)
    return p


@attack(
    breaks="H2",
    true_epsilon="Not bounded: no gradient is clipped in training.",
)
def unclips_once_opened(seed):
    """Replace clipping by a plain sum once the audit is open."""
    p = private(seed)
    p.after_opening = partial(without_clipping, p.optimizer)
    return p


@attack(
    breaks="H4",
    true_epsilon="Infinite: the raw sum of the last step is in the optimizer's state, "
    "and in every checkpoint.",
)
def raw_sum_in_optimizer_state(seed):
    """Keep the raw sum of gradients in the optimizer's state."""
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        F.cross_entropy(p.model(inputs), labels).backward()
        for parameter in p.optimizer.params:
            state = p.optimizer.original_optimizer.state[parameter]
            state["raw"] = parameter.grad_sample.sum(0).clone()
        p.optimizer.step()

    p.step = step
    return p


@attack(
    breaks="H4",
    true_epsilon="Infinite: the gradients that the model's parameters hold are raw.",
)
def raw_gradient_left_in_grad(seed):
    """Leave the raw sum in the parameters' grad after each step."""
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        F.cross_entropy(p.model(inputs), labels).backward()
        raw = [each.grad_sample.sum(0).clone() for each in p.optimizer.params]
        p.optimizer.step()
        for parameter, gradient in zip(p.optimizer.params, raw, strict=True):
            parameter.grad = gradient

    p.step = step
    return p


@attack(
    breaks="H6",
    true_epsilon="Infinite: the released weights hold a raw gradient of all records.",
)
def raw_update_after_the_last_step(seed):
    """Move the weights by the raw gradient of all records after the last step."""
    p = private(seed)
    loop = p.train

    def train():
        loop()
        with torch.no_grad():
            weights = p.model._module.parameters()
            with torch.enable_grad():
                raw = raw_gradients(p, p.data.tensors)
            for weight, gradient in zip(weights, raw, strict=True):
                weight -= 5 * gradient

    p.train = train
    return p


@attack(
    breaks="H4",
    in_scope=False,
    true_epsilon="Infinite: weights are moved by raw gradients between steps. Out of "
    "scope: it spares the steps, powers of two, at which weights are compared.",
)
def writes_between_comparisons(seed):
    """Move the weights' data by raw gradients where nobody compares them."""
    p = private(seed)

    def train():
        for count, batch in enumerate(batches_of(p, EPOCHS), start=1):
            p.step(batch)
            compared = count <= 2 or (count - 1) & (count - 2) == 0
            if compared or not len(batch[0]):
                continue
            raw = raw_gradients(p, batch)
            weights = p.model._module.parameters()
            for weight, gradient in zip(weights, raw, strict=True):
                weight.data.sub_(0.5 * gradient)

    p.train = train
    return p


@attack(
    breaks="H4",
    in_scope=False,
    true_epsilon="Infinite: the learning rate holds a feature of a record. Out of "
    "scope: the record was read before the audit was opened.",
)
def rate_holds_a_record(seed):
    """Set the learning rate to 0.2 plus a small multiple of a record's feature."""
    p = private(seed)
    plain = p.step
    secret = float(p.data.tensors[0][0, 0])

    def step(batch):
        for group in p.optimizer.param_groups:
            group["lr"] = 0.2 + 1e-3 * secret
        return plain(batch)

    p.step = step
    return p


# Earlier: batches


@earlier(
    breaks="H1",
    true_epsilon="13.2: 2 batches at rate 1/10 with noise 1.2 / sqrt(10); 2.52 is "
    "accounted for.",
)
def ten_steps_a_batch(seed):
    """Make ten steps on each of two batches of digits."""
    p = digits(seed)

    def train():
        for batch in itertools.islice(p.loader, 2):
            for _ in range(10):
                p.step(batch)

    p.train = train
    return p


@earlier(
    breaks="H1",
    true_epsilon="At least 9.5 (simulated): every record is in exactly one batch of "
    "known size in each epoch; 2.52 is accounted for.",
)
def digits_loader_before_make_private(seed):
    """Train on the loader of digits that make_private was given."""
    p = digits(seed)

    def train():
        for _ in range(2):
            for batch in p.raw_loader:
                p.step(batch)

    p.train = train
    return p


@earlier(
    breaks="H1",
    true_epsilon="22.2: 20 steps at rate 1 with noise 1.2; 2.52 is accounted for.",
)
def full_batch(seed):
    """Train on all records in every step."""
    p = digits(seed)

    def train():
        for _ in range(p.steps):
            for batch in DataLoader(p.data, batch_size=len(p.data)):
                p.step(batch)

    p.train = train
    return p


@earlier(
    breaks="H1",
    true_epsilon="At least 9.5 (simulated): every record is in exactly one batch of "
    "known size in each epoch; 2.52 is accounted for.",
)
def shuffled_batches(seed):
    """Ask make_private for shuffled batches instead of Poisson sampling."""
    return digits(seed, poisson_sampling=False)


@earlier(
    breaks="H3",
    true_epsilon="Infinite: both epochs have the same batches and the same noise, which "
    "cancels in the difference of two steps. Batches repeat as well (H1).",
)
def seeded_before_each_epoch(seed):
    """Seed torch with the same number before each epoch."""
    p = digits(seed)

    def train():
        for _ in range(2):
            torch.manual_seed(1234)
            for batch in p.loader:
                p.step(batch)

    p.train = train
    return p


# Earlier: what a record puts into the sum


@earlier(breaks="H2", true_epsilon="Not bounded: no gradient is clipped.")
def no_clipping(seed):
    """Add up gradients as they are."""
    p = private(seed)
    without_clipping(p.optimizer)
    return p


@earlier(
    breaks="H2",
    true_epsilon="Not bounded: the head's gradient is not part of the norm.",
)
def norm_without_the_head(seed):
    """Clip by a norm that leaves out the last layer."""
    p = private(seed)

    def factors(norms):
        body = [each.grad_sample.flatten(1) for each in p.optimizer.params[:-2]]
        return clip_factors(p.optimizer, torch.cat(body, 1).norm(dim=1))

    clip_by(p.optimizer, factors)
    return p


@earlier(
    breaks="H2",
    true_epsilon="Not bounded: gradients of one layer are added up as they are.",
)
def layer_without_clipping(seed):
    """Add up the gradients of one layer as they are."""
    p = digits(seed)
    weight = p.model._module[2].weight
    clip = p.optimizer.clip_and_accumulate

    def unclipped():
        clip()
        weight.summed_grad = weight.grad_sample.sum(0)

    p.optimizer.clip_and_accumulate = unclipped
    return p


@earlier(
    breaks="H2",
    true_epsilon="12.6 of a record of the last class: 100 steps with a third of the "
    "noise multiplier.",
)
def class_weights_after_clipping(seed):
    """Weight clipped gradients by class, from 0.5 to 3."""
    p = private(seed)
    by_class = torch.tensor([0.5, 1.0, 1.0, 2.0, 3.0])
    weights = {"of": torch.ones(0)}
    plain = p.step

    def step(batch):
        weights["of"] = by_class[batch[1]]
        return plain(batch)

    def factors(norms):
        return clip_factors(p.optimizer, norms) * weights["of"][: len(norms)]

    clip_by(p.optimizer, factors)
    p.step = step
    return p


def _by_loss(p, loss):
    """Let a program step by another loss of its model, inputs and labels."""

    def step(batch):
        p.optimizer.zero_grad()
        loss(*batch).backward()
        p.optimizer.step()

    p.step = step
    return p


@earlier(
    breaks="H2",
    true_epsilon="Not bounded by the claim: a record is in its own loss and in that of "
    "another, each clipped by itself.",
)
def mixup(seed):
    """Train on the mean of each record and another of its batch."""
    p = private(seed)

    def loss(inputs, labels):
        other = torch.randperm(len(inputs))
        scores = p.model(0.5 * inputs + 0.5 * inputs[other])
        own = F.cross_entropy(scores, labels)
        return 0.5 * own + 0.5 * F.cross_entropy(scores, labels[other])

    return _by_loss(p, loss)


@earlier(
    breaks="H2",
    true_epsilon="Not bounded by the claim: a record changes the inputs, and so the "
    "gradients, of all others of its batch.",
)
def inputs_normalised_by_batch(seed):
    """Give inputs mean 0 and deviation 1 in each batch."""
    p = private(seed)

    def loss(inputs, labels):
        normal = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-5)
        return F.cross_entropy(p.model(normal), labels)

    return _by_loss(p, loss)


@earlier(
    breaks="H2",
    true_epsilon="Not bounded by the claim: a record changes the inputs, and so the "
    "gradients, of all others of its batch.",
)
def digits_normalised_by_batch(seed):
    """Give pixels of digits mean 0 and deviation 1 in each batch."""
    p = digits(seed)

    def loss(inputs, labels):
        normal = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-3)
        return F.cross_entropy(p.model(normal), labels)

    return _by_loss(p, loss)


@earlier(
    breaks="H2",
    true_epsilon="Not bounded by the claim: the sum of losses is divided by the batch's "
    "number of items, which a record changes for all others.",
)
def mean_over_items_of_the_batch(seed):
    """Divide the weighted sum of losses by the weight of the whole batch."""
    p = private(seed)

    def loss(inputs, labels):
        items = (inputs[:, 0] > 0).float()
        losses = F.cross_entropy(p.model(inputs), labels, reduction="none")
        return (losses * items).sum() / items.sum().clamp(min=1)

    return _by_loss(p, loss)


# Earlier: noise


@earlier(
    breaks="H3",
    true_epsilon="Infinite: steps 51 to 100 have the noise of steps 1 to 50, which "
    "cancels in differences.",
)
def noise_repeats_after_a_resume(seed):
    """Put the noise generator back to its first state half-way, as a resume may."""
    p = private(seed)
    p.optimizer.generator = torch.Generator()
    p.optimizer.generator.seed()

    def train():
        first = p.optimizer.generator.get_state()
        for count, batch in enumerate(batches_of(p, EPOCHS)):
            if count == 50:
                p.optimizer.generator.set_state(first)
            p.step(batch)

    p.train = train
    return p


@earlier(
    breaks="H3",
    true_epsilon="Infinite: differences within a row have no noise.",
)
def noise_spread_over_rows(seed):
    """Draw one noise for each row of a weight and spread it over the row."""
    p = private(seed)
    optimizer = p.optimizer

    def add_noise():
        scale = float(optimizer.noise_multiplier * optimizer.max_grad_norm)
        for parameter in optimizer.params:
            total = parameter.summed_grad
            rows = total.shape[:1] + (1,) * (total.dim() - 1)
            parameter.grad = (total + torch.normal(0, scale, rows)).view_as(parameter)
            total._processed = True

    optimizer.add_noise = add_noise
    return p


@earlier(breaks="H3", true_epsilon="2.97: 100 steps with 0.75 of the noise.")
def three_quarters_of_the_noise(seed):
    """Add noise by three quarters of the multiplier that the accountant is told."""
    p = private(seed)
    optimizer = p.optimizer
    add_noise = optimizer.add_noise

    def less():
        told = optimizer.noise_multiplier
        optimizer.noise_multiplier = 0.75 * told
        add_noise()
        optimizer.noise_multiplier = told

    optimizer.add_noise = less
    return p


# Earlier: ways around the noisy sum


@earlier(
    breaks="H4",
    true_epsilon="Infinite: a bias is trained without clipping or noise.",
)
def bias_with_its_own_optimizer(seed):
    """Train a bias of the classes beside the model by a plain optimizer."""
    p = private(seed)
    bias = p.note["bias"] = nn.Parameter(torch.zeros(CLASSES))
    plain = torch.optim.SGD([bias], lr=0.1)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        plain.zero_grad()
        F.cross_entropy(p.model(inputs) + bias, labels).backward()
        p.optimizer.step()
        plain.step()

    p.step = step
    return p


@earlier(
    breaks="H4",
    true_epsilon="Infinite: the head is trained without clipping or noise.",
)
def head_with_a_plain_optimizer(seed):
    """Train the head by a plain optimizer, the body by the private one."""
    p = digits(
        seed, optimizer=lambda weights: torch.optim.Adam([*weights][:2], lr=5e-3)
    )
    head = p.model._module[2]
    plain = torch.optim.SGD(head.parameters(), lr=0.1)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        plain.zero_grad()
        F.cross_entropy(p.model(inputs), labels).backward()
        p.optimizer.step()
        plain.step()
        for parameter in head.parameters():
            parameter.grad_sample = None

    p.step = step
    return p


@earlier(
    breaks="H4",
    true_epsilon="Infinite: a buffer of the model holds a mean of raw inputs.",
)
def running_mean_in_a_buffer(seed):
    """Keep a running mean of raw inputs in a buffer of the model."""
    p = private(seed)
    plain = p.step
    network = p.model._module
    network.register_buffer("mean", torch.zeros(FEATURES))

    def step(batch):
        network.mean.mul_(0.9).add_(0.1 * batch[0].mean(0))
        return plain(batch)

    p.step = step
    return p


@earlier(
    breaks="H4",
    true_epsilon="Infinite: the bias is moved by exact counts of labels.",
)
def bias_moved_in_the_loop(seed):
    """Move a bias by the batch's labels in the loop, beside the step."""
    p = digits(seed)
    head = p.model._module[2]

    def train():
        for batch in batches_of(p, 2):
            p.step(batch)
            counts = torch.bincount(batch[1], minlength=10).float()
            with torch.no_grad():
                head.bias += 0.01 * counts / 180

    p.train = train
    return p


@earlier(
    breaks="H4",
    true_epsilon="Infinite: each update has half a raw mean gradient in it.",
)
def optimizer_that_adds_raw_gradients(seed):
    """Let the inner optimizer's step add the raw gradient that a hook stored."""
    raw = {}

    class Leaky(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            with torch.no_grad():
                for weight, gradient in raw.items():
                    weight -= 0.5 * gradient

    p = private(seed, optimizer=lambda weights: Leaky(weights, lr=0.2))

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        F.cross_entropy(p.model(inputs), labels).backward()
        for each in p.optimizer.params:
            zeros = torch.zeros_like(each)
            raw[each] = each.grad_sample.mean(0).clone() if len(inputs) else zeros
        p.optimizer.step()

    p.step = step
    return p


@earlier(
    breaks="H4",
    true_epsilon="Infinite: an exact function of all records decides which weights are "
    "kept.",
)
def best_checkpoint_by_training_loss(seed):
    """Go back to the weights with the best raw training loss after each epoch."""
    p = private(seed)
    network = p.model._module
    features, labels = p.data.tensors

    def train():
        best, kept = 1e9, None
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)
            with torch.no_grad():
                loss = float(F.cross_entropy(network(features), labels))
            if loss < best:
                best, kept = loss, copy.deepcopy(network.state_dict())
            else:
                network.load_state_dict(kept)

    p.train = train
    return p


@earlier(
    breaks="H4",
    true_epsilon="At least 0.200, where 0.158 is accounted for (95 steps of 100, all "
    "others' gradients opposite, computed by convolution): whether a batch is empty "
    "decides whether a step is made and accounted for.",
)
def skips_empty_batches(seed):
    """Make no step on an empty batch, one in twenty here."""
    p = private(seed, data=table(300), batch_size=3, epochs=1)

    def train():
        for batch in p.loader:
            if len(batch[0]):
                p.step(batch)

    p.train = train
    return p


# Earlier: accounting


@earlier(
    breaks="H5",
    true_epsilon="2.52, where 0.53 is accounted for: 20 steps at rate 1/10, told 1/50.",
)
def accountant_is_told_a_fifth_of_the_rate(seed):
    """Tell the accountant a fifth of the sampling rate."""
    p = digits(seed)
    account = p.engine.accountant.step

    def told(*, noise_multiplier, sample_rate):
        account(noise_multiplier=noise_multiplier, sample_rate=sample_rate / 5)

    p.engine.accountant.step = told
    return p


@earlier(
    breaks="H5",
    true_epsilon="4.77: 80 steps with noise 2.25 and 20 with 0.9.",
)
def noise_falls_late_unaccounted(seed):
    """Lower the noise in the last two epochs; the accountant is not told."""
    p = private(seed)
    accounted_as_at_first(p, [2.25] * 8 + [0.9] * 2)
    return p
