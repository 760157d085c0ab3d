"""Correct programs that earlier checks might have mistaken, or did: none is held out.

All of them are Opacus' mechanism with what is unusual done to noisy results, to public
data or to nothing that is released. Unless said otherwise epsilon is what the
accountant says at delta = 1e-5: 2.00 on the table, 2.52 on digits.
"""

import copy
import io
import itertools
import time
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from dpaudit_lab.held_out.alterations import (
    batches_of,
    case,
    clip_by,
    digits,
)
from dpaudit_lab.held_out.program import Case, private, table

CORRECT: list[Case] = []

correct = partial(case, CORRECT)

EPOCHS = 10
FEATURES, CLASSES, HIDDEN = 24, 5, 80


def _network(*between):
    """Return the program's network with other modules between its layers."""
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(), *between, nn.Linear(HIDDEN, CLASSES)
    )


def _public():
    """Return labelled records that no claim is about."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(200, FEATURES, generator=generator)
    return features, torch.randint(CLASSES, (200,), generator=generator)


def _by_epochs(p, after_epoch):
    """Let a program's loop do something after each epoch."""

    def train():
        for _ in range(EPOCHS):
            for batch in p.loader:
                p.step(batch)
            after_epoch()

    p.train = train
    return p


def _after_step(p, do):
    """Let a program's step end with something that is told the loss."""
    plain = p.step

    def step(batch):
        do(plain(batch).detach())

    p.step = step
    return p


# Nothing added


@correct(true_epsilon="2.00: the program as it is.")
def plain(seed):
    """Train as Opacus' guide does."""
    return private(seed)


@correct(true_epsilon="2.63: 60 steps at rate 1/15 with noise 1.2.")
def convolutional_network(seed):
    """Train a convolutional network with group norm on digits by Adam."""
    p = digits(seed)
    pixels, labels = p.data.tensors
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return digits(
        seed,
        data=TensorDataset(pixels.view(-1, 1, 8, 8), labels),
        model=network,
        batch_size=128,
        epochs=4,
        optimizer=lambda weights: torch.optim.Adam(weights, lr=5e-3),
    )


@correct(true_epsilon="2.00: gradients are computed in another way and are the same.")
def ghost_clipping(seed):
    """Clip without per-example gradients."""
    return private(seed, grad_sample_mode="ghost", criterion=nn.CrossEntropyLoss())


@correct(true_epsilon="2.00: four layers of norm 0.5 have norm 1 together.")
def clipping_per_layer(seed):
    """Clip each layer to its own norm."""
    return private(seed, clipping="per_layer", clip=[0.5] * 4)


@correct(true_epsilon="2.00: dropout is drawn for each record by itself.")
def adam_and_dropout_with_ghost_clipping(seed):
    """Train with dropout by Adam, with ghost clipping."""
    return private(
        seed,
        model=_network(nn.Dropout(0.5)),
        grad_sample_mode="ghost",
        criterion=nn.CrossEntropyLoss(),
        optimizer=lambda weights: torch.optim.Adam(weights, lr=0.01),
    )


@correct(true_epsilon="1.26 for 40 steps: weights of other precision, same mechanism.")
def bfloat16_weights(seed):
    """Train weights and inputs in bfloat16."""
    features, labels = table().tensors
    records = TensorDataset(features.bfloat16(), labels)
    return private(seed, model=_network().bfloat16(), data=records, epochs=4)


@correct(true_epsilon="1.26 for 40 steps: weights of other precision, same mechanism.")
def double_precision(seed):
    """Train weights and inputs in float64."""
    features, labels = table().tensors
    records = TensorDataset(features.double(), labels)
    return private(seed, model=_network().double(), data=records, epochs=4)


# Optimizers and schedules


@correct(true_epsilon="2.00: weight decay and a schedule by count read no record.")
def adamw_with_cosine_schedule(seed):
    """Train by AdamW with weight decay and a cosine schedule in the step."""
    p = private(
        seed,
        optimizer=lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1),
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(p.optimizer, p.steps)
    return _after_step(p, lambda _: schedule.step())


@correct(true_epsilon="2.00: momentum and the average are made of noisy updates.")
def nesterov_with_averaged_model(seed):
    """Train with Nesterov momentum and torch's averaged model beside it."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    p = private(
        seed,
        optimizer=lambda weights: torch.optim.SGD(
            weights, lr=0.1, momentum=0.9, nesterov=True
        ),
    )
    network = p.model._module
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    return _after_step(p, lambda _: average.update_parameters(network))


@correct(true_epsilon="2.00: the average is of noisy weights.")
def average_by_hand(seed):
    """Keep a moving average of the noisy weights by hand."""
    p = private(seed)
    network = p.model._module
    average = p.note["average"] = copy.deepcopy(network.state_dict())

    def update(_):
        for name, parameter in network.named_parameters():
            average[name].mul_(0.9).add_(parameter.detach(), alpha=0.1)

    return _after_step(p, update)


@correct(true_epsilon="2.00: the step is that of the class it extends.")
def optimizer_subclass(seed):
    """Use a subclass of SGD whose step calls that of SGD."""

    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    return private(seed, optimizer=lambda weights: Own(weights, lr=0.2))


@correct(true_epsilon="2.00: the closure is called once.")
def closure(seed):
    """Give the optimizer's step a closure."""
    p = private(seed)

    def step(batch):
        inputs, labels = batch

        def loss():
            p.optimizer.zero_grad()
            value = F.cross_entropy(p.model(inputs), labels)
            value.backward()
            return value

        p.optimizer.step(loss)

    p.step = step
    return p


@correct(true_epsilon="What the accountant says, which reads the noise of each step.")
def noise_schedule_by_epoch(seed):
    """Lower the noise by Opacus' schedule after each epoch."""
    from opacus.schedulers import ExponentialNoise

    p = private(seed)
    return _by_epochs(p, ExponentialNoise(p.optimizer, gamma=0.95).step)


@correct(true_epsilon="What the accountant says, which reads the noise of each step.")
def noise_schedule_by_step(seed):
    """Lower the noise by Opacus' schedule after each step, on digits."""
    from opacus.schedulers import ExponentialNoise

    p = digits(seed)
    schedule = ExponentialNoise(p.optimizer, gamma=0.97)

    def train():
        for batch in batches_of(p, 2):
            p.step(batch)
            schedule.step()

    p.train = train
    return p


@correct(true_epsilon="2.00: the optimizer clips and makes noise by the same norm.")
def norm_schedule(seed):
    """Lower the clipping norm by a schedule after each epoch."""
    from opacus.schedulers import ExponentialGradClip

    p = private(seed)
    return _by_epochs(p, ExponentialGradClip(p.optimizer, gamma=0.8).step)


@correct(true_epsilon="2.00: the schedule reads public records only.")
def plateau_on_public_records(seed):
    """Let ReduceLROnPlateau read a loss on public records."""
    p = private(seed)
    features, labels = _public()
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        p.optimizer.original_optimizer, patience=0
    )

    def after_epoch():
        with torch.no_grad():
            schedule.step(F.cross_entropy(p.model._module(features), labels))

    return _by_epochs(p, after_epoch)


@correct(true_epsilon="2.00: the rate is a function of the number of steps.")
def warm_up_by_count(seed):
    """Count steps in Python and warm up the learning rate by the count."""
    p = private(seed)
    p.note["count"] = 0
    plain_step = p.step

    def step(batch):
        p.note["count"] += 1
        for group in p.optimizer.param_groups:
            group["lr"] = 0.2 * min(1, p.note["count"] / 20)
        plain_step(batch)

    p.step = step
    return p


@correct(true_epsilon="2.00: the noisy sum is scaled by a function of itself.")
def noisy_gradient_normalised(seed):
    """Scale the noisy gradient to a norm of 10."""
    p = private(seed)
    add_noise = p.optimizer.add_noise

    def normalised():
        add_noise()
        norm = torch.stack([each.grad.norm() for each in p.optimizer.params]).norm()
        for each in p.optimizer.params:
            each.grad = each.grad * (10 / norm)

    p.optimizer.add_noise = normalised
    return p


@correct(true_epsilon="2.00: every gradient has a norm below the clipping norm.")
def automatic_clipping(seed):
    """Divide each gradient by its norm and a constant instead of clipping (AUTO-S)."""
    p = private(seed)
    clip_by(p.optimizer, lambda norms: p.optimizer.max_grad_norm / (norms + 0.01))
    return p


# Losses and networks


@correct(true_epsilon="2.00: gradients are clipped in whatever precision they come.")
def bfloat16_autocast(seed):
    """Compute the loss under bfloat16 autocast."""
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(p.model(inputs), labels)
        loss.backward()
        p.optimizer.step()

    p.step = step
    return p


class _Checkpointed(nn.Module):
    """The program's network with its first layer checkpointed."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.last = nn.Linear(HIDDEN, CLASSES)

    def forward(self, inputs):
        from torch.utils.checkpoint import checkpoint

        def hidden(values):
            return torch.relu(self.first(values))

        inputs = inputs.clone().requires_grad_()
        return self.last(checkpoint(hidden, inputs, use_reentrant=True))


@correct(true_epsilon="2.00: activations are computed twice and are the same.")
def checkpointed_activations(seed):
    """Checkpoint activations, by the reentrant implementation."""
    return private(seed, model=_Checkpointed())


@correct(true_epsilon="2.00: the penalty reads weights only, and Opacus leaves it out.")
def weight_penalty_in_the_loss(seed):
    """Add a penalty on the weights to the loss."""
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        penalty = sum(each.square().sum() for each in p.model.parameters())
        (F.cross_entropy(p.model(inputs), labels) + 1e-3 * penalty).backward()
        p.optimizer.step()

    p.step = step
    return p


@correct(true_epsilon="2.00: noise on inputs is drawn for each record by itself.")
def noise_on_inputs(seed):
    """Add random noise to the inputs in the step."""
    p = private(seed)

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        augmented = inputs + 0.1 * torch.randn_like(inputs)
        F.cross_entropy(p.model(augmented), labels).backward()
        p.optimizer.step()

    p.step = step
    return p


@correct(true_epsilon="2.00: the compiled model computes the same.")
def compiled_model(seed):
    """Call the model through torch.compile."""
    p = private(seed)
    compiled = torch.compile(p.model, backend="eager")

    def step(batch):
        inputs, labels = batch
        p.optimizer.zero_grad()
        F.cross_entropy(compiled(inputs), labels).backward()
        p.optimizer.step()

    p.step = step
    return p


@correct(true_epsilon="2.00: that step 12 is not finite depends on no record.")
def weights_become_nan(seed):
    """Divide by zero in step 12, whatever its records, so that weights become NaN."""
    p = private(seed)

    def train():
        for count, (inputs, labels) in enumerate(batches_of(p, EPOCHS), start=1):
            p.step((inputs * float("nan") if count == 12 else inputs, labels))

    p.train = train
    return p


# Loops


@correct(true_epsilon="2.00: parts of a batch are added up before noise.")
def batch_memory_manager(seed):
    """Split batches by Opacus' memory manager."""
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    p = private(seed)

    def train():
        for _ in range(EPOCHS):
            with BatchMemoryManager(
                data_loader=p.loader, max_physical_batch_size=30, optimizer=p.optimizer
            ) as parts:
                for part in parts:
                    p.step(part)

    p.train = train
    return p


@correct(true_epsilon="2.00: dropout is drawn for each record by itself.")
def dropout_workers_and_progress(seed):
    """Train with dropout, a loader with a worker process and a progress bar."""
    from tqdm import tqdm

    p = private(seed, model=_network(nn.Dropout(0.3)), loader={"num_workers": 1})

    def train():
        for _ in range(EPOCHS):
            for batch in tqdm(p.loader, disable=True):
                p.step(batch)

    p.train = train
    return p


@correct(true_epsilon="1.21 for 37 steps, which the accountant was told of.")
def stops_early_by_count(seed):
    """Stop after 37 steps of the 100 that were announced."""
    p = private(seed)

    def train():
        for batch in itertools.islice(batches_of(p, EPOCHS), 37):
            p.step(batch)

    p.train = train
    return p


@correct(true_epsilon="2.00: each batch of the list is used once.")
def batches_of_an_epoch_in_a_list(seed):
    """Load the batches of each epoch into a list before they are used, once each."""
    p = private(seed)

    def train():
        for _ in range(EPOCHS):
            for batch in list(p.loader):
                p.step(batch)

    p.train = train
    return p


@correct(true_epsilon="2.00 for this model: the other is private by itself.")
def two_private_models(seed):
    """Train two private models side by side."""
    p, other = private(seed), private(seed + 1)

    def train():
        for _ in range(EPOCHS):
            for own, theirs in zip(p.loader, other.loader, strict=True):
                p.step(own)
                other.step(theirs)

    p.train = train
    return p


# Evaluation and logs


@correct(true_epsilon="2.00: the accuracy is printed at most, never read.")
def accuracy_on_training_records(seed):
    """Measure the accuracy on training records by torchmetrics after each epoch."""
    from torchmetrics import Accuracy

    p = private(seed)
    accuracy = Accuracy("multiclass", num_classes=CLASSES)
    features, labels = (each[:100] for each in p.data.tensors)

    def after_epoch():
        p.model.eval()
        with torch.no_grad():
            accuracy(p.model(features).argmax(1), labels)
        p.model.train()

    return _by_epochs(p, after_epoch)


@correct(true_epsilon="2.00: the accuracy is on public records.")
def accuracy_on_public_records(seed):
    """Measure the accuracy on public records after each epoch."""
    p = private(seed)
    features, labels = _public()
    accuracies = p.note["accuracies"] = []

    def after_epoch():
        p.model.eval()
        with torch.no_grad():
            right = p.model(features).argmax(1) == labels
        accuracies.append(float(right.float().mean()))
        p.model.train()

    return _by_epochs(p, after_epoch)


@correct(true_epsilon="2.00: losses are logged, never read.")
def losses_in_a_list(seed):
    """Append each raw loss to a list."""
    p = private(seed)
    losses = p.note["losses"] = []
    return _after_step(p, lambda loss: losses.append(float(loss)))


@correct(true_epsilon="2.00: losses and norms are logged, never read.")
def metrics_in_a_dictionary(seed):
    """Log losses, their total and the norms of noisy gradients."""
    p = private(seed)
    log = p.note["log"] = {"loss": [], "norms": [], "total": 0.0}

    def logged(loss):
        log["loss"].append(loss)
        log["total"] += loss.item()
        log["norms"].append([each.grad.norm() for each in p.optimizer.params])

    return _after_step(p, logged)


@correct(true_epsilon="2.00: losses are shown, never read.")
def progress_bar(seed):
    """Show each loss in a progress bar."""
    from tqdm import tqdm

    p = private(seed)
    bar = tqdm(total=p.steps, file=io.StringIO())

    def shown(loss):
        bar.update(1)
        bar.set_postfix(loss=float(loss))

    return _after_step(p, shown)


@correct(true_epsilon="2.00: times are noted, never read.")
def timer_in_the_step(seed):
    """Note how long each step takes."""
    p = private(seed)
    times = p.note["times"] = []
    plain_step = p.step

    def step(batch):
        begun = time.perf_counter()
        plain_step(batch)
        times.append(time.perf_counter() - begun)

    p.step = step
    return p


@correct(true_epsilon="2.00: what the class keeps is logged, never read by training.")
def trainer_class(seed):
    """Train by a class that keeps a history and the best loss."""

    class Trainer:
        def __init__(self, program):
            self.program, self.count = program, 0
            self.history, self.best = [], 1e9

        def step(self, batch):
            inputs, labels = batch
            optimizer = self.program.optimizer
            optimizer.zero_grad()
            loss = F.cross_entropy(self.program.model(inputs), labels)
            loss.backward()
            optimizer.step()
            self.count += 1
            rate = optimizer.param_groups[0]["lr"]
            row = {"step": self.count, "loss": loss.item(), "rate": rate}
            self.history.append(row)
            self.best = min(self.best, loss.item())

    p = private(seed)
    p.step = Trainer(p).step
    return p
