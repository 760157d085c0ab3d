"""Where noise of an Opacus run is watched: drawn from the key, in every parameter."""

import numpy as np
import pytest
import torch
from private_runs import attach, private_run
from torch import nn

from dpaudit import Key
from dpaudit.game.findings import Stage
from dpaudit.training.opacus.insertion import canary_layout
from dpaudit.training.opacus.noise_reader import _parts

SHAPES = [(40, 30), (40,), (5, 40), (2, 3, 4), (1,)]


class Parameters:
    """As many as an optimizer has."""

    def __init__(self, shapes):
        self.params = [nn.Parameter(torch.empty(shape)) for shape in shapes]


def keys(count):
    rng = np.random.default_rng(0)
    return [Key(rng.bytes(32)) for _ in range(count)]


def test_each_parameter_has_its_share_whatever_the_key():
    found = [_parts(Parameters(SHAPES), key) for key in keys(60)]
    for parts in found:
        assert [part.array for part in parts] == list(range(len(SHAPES)))
        assert [len(part.offsets) for part in parts] == [48, 40, 45, 24, 1]
    for i, shape in enumerate(SHAPES):
        size = int(np.prod(shape))
        read = [parts[i].offsets for parts in found]
        assert all(len({*at}) == len(at) for at in read)
        columns = size // shape[0]
        every = np.concatenate(read)
        assert {*(every // columns)} == {*range(shape[0])}
        assert {*(every % columns)} == {*range(columns)}
        for at in read:  # rows and columns that meet
            rows, across = np.unique(at // columns), np.unique(at % columns)
            assert len(rows) * len(across) == len(at)
    assert len({tuple(parts[0].offsets.tolist()) for parts in found}) == 60


def test_of_many_parameters_any_may_be_watched():
    seen = set()
    for key in keys(12):
        parts = _parts(Parameters([(3,)] * 300), key)
        assert len(parts) == 240
        seen |= {part.array for part in parts}
    assert seen == set(range(300))


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.parametrize("known", [True, False])
def test_noise_where_a_program_expects_to_be_read_is_not_enough(known):
    """Without it elsewhere, a program that cannot know the coordinates is named."""
    mine, guessed = keys(2)
    run = private_run()
    params, count = run.optimizer.params, 400
    expected = mine if known else guessed
    read = [torch.zeros(each.numel(), dtype=torch.bool) for each in params]
    layout = canary_layout(params, coordinates=count, spread=1, key=expected)
    for part in layout.parts:
        read[part.array][torch.from_numpy(part.offsets)] = True
    for part in _parts(run.optimizer, expected):
        read[part.array][torch.from_numpy(part.offsets)] = True
    own = run.optimizer.add_noise

    def only_there():
        own()
        for parameter, here in zip(params, read, strict=True):
            total = parameter.summed_grad.view_as(parameter)
            here = here.view_as(parameter)  # noqa: PLW2901
            parameter.grad = torch.where(here, parameter.grad, total)

    run.optimizer.add_noise = only_there
    audit = attach(run, key=mine)
    run.train(steps=10)
    stages = {fault.stage for fault in audit.finish().faults}
    assert (Stage.NOISE_SCALE in stages) is not known
