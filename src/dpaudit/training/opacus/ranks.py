"""What the ranks of a distributed run share: the key, sums, findings and guesses."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from torch import distributed, nn
from torch._C._distributed_c10d import FakeProcessGroup, HashStore
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from dpaudit._canonical import parsed, text
from dpaudit._codec import decode, encode
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.design import Commitment
from dpaudit.game.findings import Finding, Status
from dpaudit.training.opacus.transfers import local, to_devices

__all__ = [
    "Ranks",
    "check_commitments",
    "check_shares",
    "one_rank",
    "rank_and_world",
    "shared_key",
]

_OF_ALL_RANKS: Final = (Status.INSPECTED, Status.TESTED, Status.NOT_APPLICABLE)
# For another rank: longer than a check of the step at a secret step may take.
_LONGEST_WAIT: Final = timedelta(minutes=20)


def rank_and_world(optimizer: DPOptimizer) -> tuple[int, int]:
    """Return this rank's number and the number of ranks: 0 and 1 without others."""
    return int(getattr(optimizer, "rank", 0)), int(getattr(optimizer, "world_size", 1))


def shared_key(device: str | torch.device = "cpu") -> Key:
    """Return a new key, the same on every rank; without ranks, just a new key.

    Args:
        device: A device from which the process group can send: ``"cuda"`` for nccl.
    """
    key = Key.generate()
    if not distributed.is_initialized():
        return key
    sent = torch.frombuffer(bytearray(key.secret), dtype=torch.uint8).to(device)
    distributed.broadcast(sent, src=0)
    return Key(bytes(sent.cpu().tolist()))


@final
class Ranks:
    """The ranks of a run, which add up and exchange numbers.

    A rank that was lost, or does not answer, is waited for once. From then on there is
    no exchange: each rank has only its own numbers.

    Args:
        optimizer: Opacus' optimizer.

    Attributes:
        rank: This rank's number.
        world: The number of ranks.
        lost: Whether an exchange failed.
    """

    def __init__(self, optimizer: DPOptimizer) -> None:
        self.rank, self.world = rank_and_world(optimizer)
        self._device = local(optimizer.params[0]).device
        self.lost = False

    @property
    def alone(self) -> bool:
        """Whether there is one rank only."""
        return self.world == 1

    def add_up(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the sums of all ranks' tensors, in double precision.

        Every rank must call this, with tensors of the same shapes.
        """
        if not values or self.alone or self.lost:
            return [*values]
        try:
            flat = [each.reshape(-1).to(self._device, torch.float64) for each in values]
            whole = torch.cat(flat)
            # With nccl a time limit would keep the host waiting in every step.
            limit = None if self._device.type == "cuda" else _LONGEST_WAIT
            self._made(lambda: distributed.all_reduce(whole, async_op=True), limit)
            parts = torch.split(whole, [each.numel() for each in values])
            return [
                part.reshape(each.shape).to(each.device)
                for part, each in zip(parts, values, strict=True)
            ]
        except RuntimeError:  # there is no memory left
            self.lost = True
            return [*values]

    def gather(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of all ranks, one rank after the other.

        Every rank must call this; the first dimension may differ.
        """
        if self.alone or self.lost:
            return values
        size = torch.tensor([len(values)], device=self._device)
        sizes = [torch.zeros_like(size) for _ in range(self.world)]
        self._made(lambda: distributed.all_gather(sizes, size, async_op=True))
        most = max(len(values), *(int(each) for each in sizes))
        padded = np.zeros((most, *values.shape[1:]), values.dtype)
        padded[: len(values)] = values
        mine = torch.from_numpy(padded).to(self._device)
        parts = [torch.zeros_like(mine) for _ in range(self.world)]
        self._made(lambda: distributed.all_gather(parts, mine, async_op=True))
        if self.lost:
            return values
        return np.concatenate(
            [part.cpu().numpy()[: int(n)] for part, n in zip(parts, sizes, strict=True)]
        )

    def counted(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of all ranks' counts."""
        (whole,) = self.add_up(to_devices([(values, self._device)]))
        return np.asarray(whole.cpu().numpy(), np.int64)

    def agreed(self, own: Sequence[Finding]) -> list[Finding]:
        """Return the findings of all ranks; a check counts if all ranks made it."""
        if self.alone:
            return [*own]
        found = [
            decode(tuple[Finding, ...], parsed(each), "findings")
            for each in self._texts(text(encode([*own])))
        ]
        everywhere = set.intersection(*({*map(_kind, each)} for each in found))
        agreed: list[Finding] = []
        for findings in found:
            known = {(_kind(each), each.subject) for each in agreed}
            agreed += (
                each
                for each in findings
                if (_kind(each), each.subject) not in known
                and (each.status not in _OF_ALL_RANKS or _kind(each) in everywhere)
            )
        return agreed

    def _texts(self, own: str) -> list[str]:
        """Return the texts of all ranks, each without zero bytes."""
        ended = np.frombuffer(own.encode() + b"\0", np.uint8)
        return self.gather(ended).tobytes().decode().split("\0")[:-1]

    def _made(
        self, exchange: Callable[[], Any], limit: timedelta | None = _LONGEST_WAIT
    ) -> None:
        """Wait for an exchange with all ranks, for so long."""
        if self.lost:
            return
        try:
            exchange().wait(*([] if limit is None else [limit]))
        except (RuntimeError, ValueError):  # a lost connection, or a group that is gone
            self.lost = True


def check_shares(coordinates: int, ranks: Ranks) -> None:
    """Raise if some rank has no coordinate to read.

    All ranks raise together, so that none waits for another.

    Args:
        coordinates: How many coordinates this rank reads.
        ranks: The ranks of the run.
    """
    least = ranks.gather(np.array([coordinates])).min()
    if ranks.lost:
        raise InvalidRunError(
            "a rank did not answer when the audit was opened; open it on all ranks, "
            "with the same arguments"
        )
    if least == 0:
        raise InvalidInputError(
            "some rank would have no canary coordinate to read; use more canaries"
        )


def check_commitments(commitment: Commitment, ranks: Ranks) -> None:
    """Raise on all ranks if their keys or designs differ."""
    own = np.frombuffer(bytes.fromhex(commitment.sha256), np.uint8)
    if len(np.unique(ranks.gather(own[None]), axis=0)) > 1:
        raise InvalidRunError(
            "ranks have different keys or designs; make one key for all of them with "
            "shared_key()"
        )


def _kind(finding: Finding) -> object:
    return finding.stage, finding.status, finding.code


@contextmanager
def one_rank(model: Any, optimizer: DPOptimizer) -> Iterator[None]:  # noqa: ANN401
    """Run as the only rank: exchanges within return this rank's own values.

    The other ranks take no part, so this rank can probe a step by itself, also in a
    copy of the process, which shares its connections.

    Args:
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
    """
    if rank_and_world(optimizer)[1] == 1 or not distributed.is_initialized():
        yield
        return
    modules = model.modules() if isinstance(model, nn.Module) else ()
    wrappers = [each for each in modules if isinstance(each, DistributedDataParallel)]
    with ExitStack() as stack:
        stack.enter_context(_own_group())
        for owner, name, value in (
            (optimizer, "rank", 0),
            (optimizer, "world_size", 1),
            *((each, "require_backward_grad_sync", False) for each in wrappers),
            *((each, "require_forward_param_sync", False) for each in wrappers),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


@contextmanager
def _own_group() -> Iterator[None]:
    """Replace the default process group by one of this process alone."""
    world, store = distributed_c10d._world, HashStore()
    make: Any = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)
    group = distributed.ProcessGroup(store, 0, 1)
    backend, kind = make(0, 1), distributed.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    for device in ("cpu", "cuda", "mps", "xpu"):
        group._register_backend(torch.device(device), kind, backend)
    before = world.default_pg
    entries: list[tuple[Any, Any]] = [
        (world.pg_map, ("fake", store)),
        (world.pg_names, "dpaudit"),
        (world.pg_group_ranks, {0: 0}),
        (world.pg_backend_config, "cpu:fake"),
    ]
    for held, value in entries:
        held[group] = value
    world.default_pg = group
    try:
        yield
    finally:
        world.default_pg = before
        for held, _ in entries:
            del held[group]
