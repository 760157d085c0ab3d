"""What canary clients check of the stages between a user and the model."""

from collections.abc import Iterator

from dpaudit.game.findings import Finding, Stage, canary_tested, not_checked
from dpaudit.training.flower.setup import Insertion, Nodes

__all__ = ["checks_of_users"]


def checks_of_users(
    insertion: Insertion, *, on_clients: bool, examples: int, in_turn: bool
) -> Iterator[Finding]:
    """Return how stages are checked, besides by the guesses themselves.

    Args:
        insertion: How canary clients come into the training run.
        on_clients: Whether clipping is left to clients.
        examples: How many examples a canary client reports.
        in_turn: Whether clients take part in some rounds only, and the claim rests on
            that.
    """
    nodes = isinstance(insertion, Nodes)
    if nodes:
        yield canary_tested(Stage.SAMPLING, "clients.nodes")
    elif in_turn:
        yield not_checked(Stage.SAMPLING, "clients.nodes_would")
    else:
        yield canary_tested(Stage.SAMPLING, "clients.every_round")
    yield not_checked(Stage.GRADIENTS, "clients.untrained")
    if on_clients and not nodes:
        yield not_checked(Stage.CLIPPING, "clients.nodes_would")
    elif insertion.norm <= 1:
        yield not_checked(Stage.CLIPPING, "clients.none_above")
    else:
        yield canary_tested(Stage.CLIPPING, "clients.cut", norm=insertion.norm)
    yield canary_tested(Stage.AGGREGATION, "clients.weighed", examples=examples)
    yield not_checked(Stage.NOISE_INDEPENDENCE, "noise.kept_inside")
    yield not_checked(Stage.SIDE_PATHS, "side_paths.model_only")
