"""How roads from a user to the model are looked at by canary clients."""

from collections.abc import Iterator

from dpaudit.game.findings import Finding, Stage, Status
from dpaudit.training.flower.setup import Nodes, Way
from dpaudit.training.sentences import old_look

__all__ = ["looks_at_users"]


def looks_at_users(
    way: Way, *, on_clients: bool, examples: int, in_turn: bool
) -> Iterator[Finding]:
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
        yield old_look(
            road=Stage.SAMPLING,
            how=Status.TESTED,
            said="canary clients are nodes, and are sampled and asked as nodes are",
        )
    elif in_turn:
        yield old_look(road=Stage.SAMPLING, how=Status.NOT_CHECKED, said=ask)
    else:
        every = "canary clients are in every round, as the claim allows every client to"
        yield old_look(road=Stage.SAMPLING, how=Status.TESTED, said=every)
    yield old_look(
        road=Stage.GRADIENTS,
        how=Status.NOT_CHECKED,
        said="canary clients answer without training; audit.probe() would look whether "
        "what one puts in depends on others",
    )
    yield _clipping(way.norm, nodes=nodes, on_clients=on_clients, ask=ask)
    yield old_look(
        road=Stage.AGGREGATION,
        how=Status.TESTED,
        said="canary clients are weighed and added up as others are, each with "
        f"{examples} example{'s' * (examples != 1)}",
    )
    yield old_look(
        road=Stage.NOISE_INDEPENDENCE,
        how=Status.NOT_CHECKED,
        said="the strategy keeps what it adds to itself",
    )
    yield old_look(
        road=Stage.SIDE_PATHS,
        how=Status.NOT_CHECKED,
        said="an audit sees the model that the strategy returns; metrics, single "
        "replies and secure aggregation, which the server's sum stands in for, are "
        "not among it",
    )


def _clipping(norm: float, *, nodes: bool, on_clients: bool, ask: str) -> Finding:
    if on_clients and not nodes:
        return old_look(road=Stage.CLIPPING, how=Status.NOT_CHECKED, said=ask)
    if norm <= 1:
        return old_look(
            road=Stage.CLIPPING,
            how=Status.NOT_CHECKED,
            said="no canary is above the norm, so that nothing shows whether updates "
            "are cut",
        )
    return old_look(
        road=Stage.CLIPPING,
        how=Status.TESTED,
        said="canary clients pass it as others do, with updates of "
        f"{norm:g} times the clipping norm",
    )
