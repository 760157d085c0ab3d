"""Canary clients in Flower's message API: a wrapper strategy and a client mod.

The wrapper forwards everything to the strategy that it wraps. Canary clients inserted
as *replies* are appended to the clients' replies just before aggregation. Inserted as
*nodes*, they receive the same message as other nodes with an instruction of their own
in its configuration, which ``canary_mod`` on the client follows instead of training.
The mod comes last among a client's mods, so that a clipping mod clips its answer.

Flower aggregates only replies whose records have the same names. Those of canaries take
the names that others use; metrics other than the number of examples are 0.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from time import time
from typing import Any, Final, Protocol, final

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.training.flower.rounds import Answer, Round
from dpaudit.training.flower.setup import Insertion, Nodes, one_of, weighted_by
from dpaudit.training.layout import Arrays

__all__ = [
    "Audited",
    "AuditedStrategy",
    "answered",
    "by_nobody",
    "canary_mod",
    "client_reply",
    "is_newer",
]

_TRAIN: Final = "train"
_TTL: Final = 43_200.0  # seconds
_ARRAYS, _METRICS, _CONFIG = "arrays", "metrics", "config"
# The instruction of a canary node, in the one configuration record that mods allow.
_ARRAY, _PLACE, _VALUE = "dpaudit-array", "dpaudit-place", "dpaudit-value"
_EXAMPLES, _WEIGHT = "dpaudit-examples", "dpaudit-weighted-by"
_NORM_BIT: Final = "norm_bit"  # asked of clients by adaptive clipping on clients


class Audited(Protocol):
    """The interface of the audit that a wrapper strategy uses."""

    examples: int
    in_order: bool

    @property
    def insertion(self) -> Insertion:
        """How canary clients are inserted."""
        ...

    def begin(self, arrays: Arrays) -> Round | None:
        """Return the canary clients' answers in the round that begins, if they can."""
        ...

    def end(
        self,
        arrays: Arrays | None,
        *,
        replies: int,
        asked: Collection[int] | None = None,
        heard: Collection[int] | None = None,
        clients: Collection[object] = (),
    ) -> None:
        """Record the outcome of a round."""
        ...


def is_newer(strategy: object) -> bool:
    """Return whether a strategy belongs to the message API."""
    return isinstance(strategy, Strategy)


@final
class AuditedStrategy(Strategy):
    """A strategy with canary clients among its own; ``FlowerAudit.wrap`` makes it.

    Args:
        strategy: The one that adds noise.
        audit: Supplies the canaries.
    """

    def __init__(self, strategy: Strategy, audit: Audited) -> None:
        self._flwr_strategy, self._audit = strategy, audit
        self._weight = weighted_by(strategy)
        self._sent = ArrayRecord()
        self._round: Round | None = None
        self._nodes: dict[int, int] = {}  # canary by node
        self._asked: set[int] = set()

    def configure_train(
        self,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Any,  # noqa: ANN401
    ) -> Iterable[Message]:
        """Begin a round, with instructions for canary nodes."""
        self._sent, self._round = arrays, self._audit.begin(arrays.to_numpy_ndarrays())
        messages: Iterable[Message] = self._flwr_strategy.configure_train(
            server_round, arrays, config, grid
        )
        if not isinstance(self._audit.insertion, Nodes):
            return messages
        if self._round is None:
            return [m for m in messages if m.metadata.dst_node_id not in self._nodes]
        if not self._nodes:
            self._nodes = self._choose(self._audit.insertion, grid)
        answers = {answer.canary: answer for answer in self._round.answers}
        self._asked, out = set(), []
        for message in messages:
            canary = self._nodes.get(message.metadata.dst_node_id)
            if canary is None:
                out.append(message)
            else:
                self._asked.add(canary)
                out.append(self._instructed(message, answers[canary]))
        return out

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> "tuple[ArrayRecord | None, MetricRecord | None]":
        """Aggregate replies, including those of canary clients."""
        came = list(replies)
        if self._audit.in_order:
            came.sort(key=_digest)
        answered = [m.metadata.src_node_id for m in came if m.has_content()]
        by_node = {m.metadata.src_node_id: m for m in came if m.has_content()}
        real = [m for node, m in by_node.items() if node not in self._nodes]
        like = real[0].content if real else None
        heard: set[int] | None = None
        if isinstance(self._audit.insertion, Nodes):
            heard = set()
            for node, canary in self._nodes.items():
                if node in by_node:
                    heard.add(canary)
                    self._rename(by_node[node].content, like)
        elif self._round is not None:
            came += self._replies(self._round.answers, like)
        arrays, metrics = self._flwr_strategy.aggregate_train(server_round, came)
        self._audit.end(
            None if arrays is None else arrays.to_numpy_ndarrays(),
            replies=sum(message.has_content() for message in came),
            asked=None if heard is None else self._asked,
            heard=heard,
            # Node 0 is no client: a simulation uses it for replies of its own.
            clients=[node or None for node in answered if node not in self._nodes],
        )
        self._round = None
        return arrays, metrics

    def configure_evaluate(
        self,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Any,  # noqa: ANN401
    ) -> Iterable[Message]:
        """Forward, leaving out canary nodes, which have no data."""
        asked = self._flwr_strategy.configure_evaluate(
            server_round, arrays, config, grid
        )
        return [m for m in asked if m.metadata.dst_node_id not in self._nodes]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> "MetricRecord | None":
        """Forward to the wrapped strategy."""
        return self._flwr_strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Forward to the wrapped strategy."""
        self._flwr_strategy.summary()

    def _choose(self, insertion: Nodes, grid: Any) -> dict[int, int]:  # noqa: ANN401
        """Return the canary of each canary node."""
        assert self._round is not None
        wanted = len(self._round.answers)
        nodes = insertion.nodes or tuple(sorted(grid.get_node_ids())[:wanted])
        if len(set(nodes)) != wanted:
            raise InvalidInputError(
                f"{wanted} canaries need as many nodes of their own, and there are "
                f"{len(set(nodes))}; start more, or pass nodes=... to Nodes"
            )
        return {node: canary for canary, node in enumerate(nodes)}

    def _instructed(self, message: Message, answer: Answer) -> Message:
        """Return a message with an instruction, in a copy of the shared content."""
        content, config = RecordDict(dict(message.content.items())), ConfigRecord()
        name = one_of(content.config_records, _CONFIG)
        for key, value in content.config_records.get(name, {}).items():
            config[key] = value
        config[_ARRAY], config[_PLACE] = answer.array, answer.place
        config[_VALUE] = answer.value
        config[_EXAMPLES], config[_WEIGHT] = self._audit.examples, self._weight
        content[name] = config
        message.content = content
        return message

    def _replies(
        self, answers: Sequence[Answer], like: "RecordDict | None"
    ) -> Iterable[Message]:
        model, arrays = self._sent.to_numpy_ndarrays(), [*self._sent.values()]
        names = [*self._sent.keys()]
        for answer in answers:
            changed = [*arrays]
            changed[answer.array] = Array(answered(model[answer.array], answer))
            yield client_reply(
                ArrayRecord(dict(zip(names, changed, strict=True))),
                {self._weight: self._audit.examples},
                like=like,
                cut=answer.cut,
            )

    def _rename(self, content: RecordDict, like: "RecordDict | None") -> None:
        """Give the records of a canary node the names that others use."""
        if like is None or not content.array_records or not content.metric_records:
            return
        for records, theirs, name in (
            (content.array_records, like.array_records, _ARRAYS),
            (content.metric_records, like.metric_records, _METRICS),
        ):
            own, other = one_of(records, name), one_of(theirs, name)
            if own != other:
                content[other] = content.pop(own)
        metrics = content[one_of(like.metric_records, _METRICS)]
        for key, value in _first(like).items():
            if key not in metrics:
                metrics[key] = _zero(value)


def client_reply(
    arrays: ArrayRecord,
    metrics: dict[str, int | float],
    *,
    like: "RecordDict | None" = None,
    cut: bool = False,
) -> Message:
    """Return a reply as a client would send it, in a message that no node sent.

    Args:
        arrays: The client's model.
        metrics: The metrics that it reports.
        like: Content of another client's reply, whose names are used.
        cut: Whether its update was above the norm, where clients report that.
    """
    reported = MetricRecord({**metrics})
    if like is not None:
        for key, value in _first(like).items():
            if key not in reported:
                reported[key] = int(cut) if key == _NORM_BIT else _zero(value)
    content = RecordDict()
    content[one_of(like.array_records if like else {}, _ARRAYS)] = arrays
    content[one_of(like.metric_records if like else {}, _METRICS)] = reported
    return by_nobody(content)


def by_nobody(content: RecordDict) -> Message:
    """Return a message that no node of the federation sent."""
    return Message(
        content=content,
        metadata=Metadata(
            run_id=0,
            message_id="",
            src_node_id=0,
            dst_node_id=0,
            reply_to_message_id="",
            group_id="",
            created_at=time(),
            ttl=_TTL,
            message_type=_TRAIN,
        ),
    )


def canary_mod(message: Message, context: Any, call_next: Any) -> Message:  # noqa: ANN401
    """Answer on a canary node; on others, pass the message on.

    List it last: ``ClientApp(mods=[fixedclipping_mod, canary_mod])``.
    """
    for config in message.content.config_records.values():
        if _VALUE in config:
            break
    else:
        return call_next(message, context)
    (sent,) = message.content.array_records.values()
    arrays, number = [*sent.values()], int(config[_ARRAY])
    answer = Answer(
        canary=0,
        array=number,
        place=int(config[_PLACE]),
        value=config[_VALUE],
        cut=True,
    )
    arrays[number] = Array(answered(arrays[number].numpy(), answer))
    content = RecordDict(
        {
            _ARRAYS: ArrayRecord(dict(zip(sent.keys(), arrays, strict=True))),
            _METRICS: MetricRecord({str(config[_WEIGHT]): int(config[_EXAMPLES])}),
        }
    )
    return Message(content, reply_to=message)


def answered(array: NDArray[Any], answer: Answer) -> NDArray[Any]:
    """Return a copy of an array with the entry that a canary client changes."""
    changed = np.array(array)
    changed.reshape(-1)[answer.place] = answer.value
    return changed


def _digest(message: Message) -> bytes:
    """Return a reply's sort key: a digest of its arrays, whoever sent them."""
    digest = hashlib.blake2b(digest_size=16)
    if message.has_content():
        for arrays in message.content.array_records.values():
            for array in arrays.values():
                digest.update(array.data)
    return digest.digest()


def _first(content: RecordDict) -> MetricRecord:
    return next(iter(content.metric_records.values()), MetricRecord())


def _zero(value: Any) -> Any:  # noqa: ANN401 (a number, or a list of numbers)
    return [type(each)(0) for each in value] if isinstance(value, list) else 0.0
