"""How roads from a user to the model are looked at by canary clients."""

from collections.abc import Iterator

from dpaudit.game.ledger import How, Look, Road
from dpaudit.training.flower.setup import Nodes, Way

__all__ = ["looks_at_users"]


def looks_at_users(
    way: Way, *, on_clients: bool, examples: int, in_turn: bool
) -> Iterator[Look]:
    """Return how roads are looked at, besides by the guesses themselves.

    Args:
        way: How canary clients come into the training.
        on_clients: Whether clipping is left to clients.
        examples: How many examples a canary client reports.
        in_turn: Whether clients take part in some rounds only, and the claim rests on
            that.
    """
    nodes = isinstance(way, Nodes)
    later = "canary clients are replies that the server adds, which are made after it"
    ask = f"{later}; FlowerAudit(..., way=Nodes()) would look at it"
    if nodes:
        yield Look(
            road=Road.SAMPLING,
            how=How.AUDITED,
            said="canary clients are nodes, and are sampled and asked as nodes are",
        )
    elif in_turn:
        yield Look(road=Road.SAMPLING, how=How.NOT_LOOKED_AT, said=ask)
    else:
        every = "canary clients are in every round, as the claim allows every client to"
        yield Look(road=Road.SAMPLING, how=How.AUDITED, said=every)
    yield Look(
        road=Road.GRADIENTS,
        how=How.NOT_LOOKED_AT,
        said="canary clients answer without training; audit.probe() would look whether "
        "what one puts in depends on others",
    )
    yield _clipping(way.norm, nodes=nodes, on_clients=on_clients, ask=ask)
    yield Look(
        road=Road.ADDING,
        how=How.AUDITED,
        said="canary clients are weighed and added up as others are, each with "
        f"{examples} example{'s' * (examples != 1)}",
    )
    yield Look(
        road=Road.INDEPENDENCE,
        how=How.NOT_LOOKED_AT,
        said="the strategy keeps what it adds to itself",
    )
    yield Look(
        road=Road.OTHER_WAYS,
        how=How.NOT_LOOKED_AT,
        said="an audit sees the model that the strategy returns; metrics, single "
        "replies and secure aggregation, which the server's sum stands in for, are "
        "not among it",
    )


def _clipping(norm: float, *, nodes: bool, on_clients: bool, ask: str) -> Look:
    if on_clients and not nodes:
        return Look(road=Road.CLIPPING, how=How.NOT_LOOKED_AT, said=ask)
    if norm <= 1:
        return Look(
            road=Road.CLIPPING,
            how=How.NOT_LOOKED_AT,
            said="no canary is above the norm, so that nothing shows whether updates "
            "are cut",
        )
    return Look(
        road=Road.CLIPPING,
        how=How.AUDITED,
        said="canary clients pass it as others do, with updates of "
        f"{norm:g} times the clipping norm",
    )
