"""A step tried by one rank alone, and exchanges in which a rank does not answer."""

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from dpaudit.game.findings import Stage, fault, inconclusive, inspected, not_checked
from dpaudit.training.opacus import ranks
from dpaudit.training.opacus.ranks import Ranks, one_rank

PARAMETERS = [nn.Parameter(torch.zeros(2))]


@pytest.fixture
def group(tmp_path):
    """A process group of which this is the only process, though it may not say so."""
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield distributed.group.WORLD
    distributed.destroy_process_group()


def of_two(rank=1):
    """What an optimizer on one of two ranks tells of them."""
    return SimpleNamespace(rank=rank, world_size=2, params=PARAMETERS)


def exchanged():
    total, parts, objects = torch.ones(3), [torch.zeros(3)], [None]
    distributed.all_reduce(total)
    distributed.all_gather(parts, total)
    distributed.all_gather_object(objects, "mine")
    distributed.broadcast(total, 0)
    distributed.barrier()
    return total.tolist(), parts[0].tolist(), objects


def test_exchanges_return_what_this_rank_has(group):
    world, optimizer = distributed.distributed_c10d._world, of_two()
    before = [*world.pg_map], [*world.pg_names], [*world.pg_group_ranks]
    with one_rank(nn.Linear(2, 2), optimizer):
        assert distributed.group.WORLD is not group
        assert (distributed.get_rank(), distributed.get_world_size()) == (0, 1)
        assert (optimizer.rank, optimizer.world_size) == (0, 1)
        assert exchanged() == ([1, 1, 1], [1, 1, 1], ["mine"])
    assert distributed.group.WORLD is group
    assert before == ([*world.pg_map], [*world.pg_names], [*world.pg_group_ranks])
    assert (optimizer.rank, optimizer.world_size) == (1, 2)


def test_everything_is_restored_after_an_error(group):
    optimizer, model = of_two(), nn.Sequential(DistributedDataParallel(nn.Linear(2, 2)))
    with suppress(ZeroDivisionError), one_rank(model, optimizer):
        assert not model[0].require_backward_grad_sync
        raise ZeroDivisionError
    assert distributed.group.WORLD is group
    assert optimizer.world_size == 2
    assert model[0].require_backward_grad_sync
    assert model[0].require_forward_param_sync


def test_without_other_ranks_nothing_is_replaced():
    optimizer = SimpleNamespace(params=PARAMETERS)
    with one_rank(nn.Linear(2, 2), optimizer):
        assert not distributed.is_initialized()
    found = Ranks(optimizer)
    assert found.alone
    assert found.gather(np.arange(3)).tolist() == [0, 1, 2]
    assert found.agreed([]) == []


class NoAnswer:
    """An exchange that another rank does not take part in."""

    def wait(self, timeout):
        raise RuntimeError(f"timed out after {timeout}")


def test_a_rank_that_does_not_answer_is_waited_for_once(monkeypatch):
    asked = []

    def never(*_, **__):
        asked.append(1)
        return NoAnswer()

    monkeypatch.setattr(distributed, "all_reduce", never)
    monkeypatch.setattr(distributed, "all_gather", never)
    found = Ranks(of_two())
    assert not found.lost
    assert found.gather(np.arange(3)).tolist() == [0, 1, 2]
    assert found.lost
    (same,) = found.add_up([torch.ones(2)])
    assert (same.tolist(), len(asked)) == ([1, 1], 1)


def test_a_check_counts_if_all_ranks_made_it_and_a_fault_if_any_found_it(monkeypatch):
    clipped = inspected(Stage.CLIPPING, "probe.again", change=1.0, checks=1, last=3)
    compared = inspected(Stage.SIDE_PATHS, "interference.again", checks=1, last=3)
    open_question = not_checked(Stage.SIDE_PATHS, "probe.would_step")
    wrong = fault(Stage.NOISE_INDEPENDENCE, "noise.default_seed")
    changed, also = (
        inconclusive("side_paths.not_probed", (name,), times=1) for name in "ab"
    )
    others: list = [clipped, open_question, wrong, changed, also]
    texts = [
        ranks.text(ranks.encode(each)) for each in ([clipped, compared, also], others)
    ]
    found = Ranks(of_two(rank=0))
    monkeypatch.setattr(found, "_texts", lambda _: texts)
    assert found.agreed([]) == [clipped, also, open_question, wrong, changed]
