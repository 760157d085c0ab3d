"""The parameters of a Flower strategy, and how canary clients are inserted.

Flower's wrappers for central privacy clip each client's update to a norm C, on the
server or by a mod on the client, pass the replies to another strategy that takes their
mean, and add noise of standard deviation ``z C / N``, with the stated multiplier ``z``
and the stated number ``N`` of sampled clients. So one client must move the mean by at
most ``C / N``. Adaptive clipping spends a part of ``z`` on counting how many updates
were clipped; the stated multiplier covers both together.

Canary clients are *replies* that the audit adds at aggregation, or *nodes* that are
sampled, instructed and aggregated like others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, TypeAlias, final

from dpaudit import _validate
from dpaudit.dpsgd.participation import Participation
from dpaudit.errors import InvalidInputError
from dpaudit.game.design import Design
from dpaudit.game.findings import Finding, Stage, canary_tested, not_checked
from dpaudit.game.setting import CanaryInsertion, InsertionPoint
from dpaudit.training.audit import coordinates_needed, per_coordinate

__all__ = [
    "Insertion",
    "Nodes",
    "Replies",
    "Stated",
    "canary_clients",
    "checks_of_users",
    "clips_on_clients",
    "insertion_setting",
    "one_of",
    "takes_mean",
    "weighted_by",
    "within",
]

_READ: Final = ("noise_multiplier", "clipping_norm", "num_sampled_clients")
_WEIGHT: Final = "num-examples"


def _check_norm(norm: float) -> None:
    if not (isfinite(norm) and norm >= 1):
        raise InvalidInputError(
            f"norm is of a canary's update over the clipping norm, and must be 1 or "
            f"more, so that it puts in all that a client may; got norm={norm!r}"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """Canary clients are replies that the server adds before it aggregates.

    Coins never leave the server. The clients' own code is not exercised, so if a
    strategy clips on clients, canaries are added as if they were clipped.

    Attributes:
        norm: Norm of an included canary's update, before it is clipped on the server,
            over the clipping norm.
    """

    norm: float = 2.0

    def __post_init__(self) -> None:
        _check_norm(self.norm)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Canary clients are nodes of the federation, with ``canary_mod`` among their mods.

    They pass through the same stages as any client. Each receives its own instruction,
    and so knows its own coin.

    Attributes:
        norm: Norm of an included canary's update, before it is clipped, over the
            clipping norm.
        sample_rate: Probability that a node is sampled for a round.
        nodes: Their node ids; if left out, the smallest that the grid knows.
    """

    norm: float = 2.0
    sample_rate: float = 1.0
    nodes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _check_norm(self.norm)
        _validate.rate("sample_rate", self.sample_rate)


Insertion: TypeAlias = Replies | Nodes


def insertion_setting(insertion: Insertion, *, examples: int) -> CanaryInsertion:
    """Return how canary clients are inserted, as a design records it."""
    return CanaryInsertion(
        point=InsertionPoint.USER,
        norm=insertion.norm,
        sampled=isinstance(insertion, Nodes),
        users=(insertion.nodes or ()) if isinstance(insertion, Nodes) else (),
        examples=examples,
    )


def canary_clients(design: Design, participation: Participation | None = None) -> int:
    """Return the number of canary clients in each round, if they are replies.

    They count among the sampled clients: ``num_sampled_clients`` must include them.

    Example:
        >>> from dpaudit import ApproxDP, OneRun
        >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
        >>> design = Design(canaries=500, rules=OneRun(guesses=100), claim=claim)
        >>> once = Participation(every=50, cohorts=50)
        >>> canary_clients(design), canary_clients(design, once)
        (500, 10)
    """
    cohorts = 1 if participation is None else participation.cohorts
    return -(-coordinates_needed(design) // cohorts) * per_coordinate(design)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A strategy's current parameters, as it states them.

    Attributes:
        noise: The noise multiplier, over the clipping norm.
        norm: The clipping norm; different in every round if it adapts.
        clients: The stated number of sampled clients.
    """

    noise: float
    norm: float
    clients: int

    @classmethod
    def by(cls, strategy: Any) -> "Stated":  # noqa: ANN401 (a strategy, or like one)
        """Read the parameters of a strategy that adds noise."""
        lacking = [name for name in _READ if not hasattr(strategy, name)]
        if lacking:
            raise InvalidInputError(
                "strategy must be the one that adds noise, such as "
                "DifferentialPrivacyServerSideFixedClipping(FedAvg(), ...), or state "
                f"{', '.join(_READ)} as it does; {type(strategy).__name__} does not "
                f"state {', '.join(lacking)}"
            )
        stated = cls(
            noise=float(strategy.noise_multiplier),
            norm=float(strategy.clipping_norm),
            clients=int(strategy.num_sampled_clients),
        )
        _validate.positive("clipping_norm", stated.norm)
        return stated

    @staticmethod
    def multiplier(strategy: Any) -> float:  # noqa: ANN401
        """Return the combined multiplier of all that it releases: update and count."""
        noise = float(strategy.noise_multiplier)
        counted = float(getattr(strategy, "clipped_count_stddev", 0.0) or 0.0)
        if not (noise and counted):
            return noise
        return float((noise**-2 + (2 * counted) ** -2) ** -0.5)


def within(strategy: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield a strategy and those that it wraps, the outermost first."""
    seen: list[Any] = []
    while strategy is not None and all(strategy is not each for each in seen):
        seen.append(strategy)
        yield strategy
        strategy = getattr(strategy, "strategy", None)


def weighted_by(strategy: Any) -> str:  # noqa: ANN401
    """Return the name of the metric by which clients' replies are weighted."""
    for each in within(strategy):
        if name := getattr(each, "weighted_by_key", None):
            return str(name)
    return _WEIGHT


def clips_on_clients(strategy: Any) -> bool:  # noqa: ANN401
    """Return whether a strategy leaves clipping to its clients."""
    names = [kind.__name__ for each in within(strategy) for kind in type(each).__mro__]
    return any("ClientSide" in name for name in names)


def takes_mean(strategy: Any) -> bool:  # noqa: ANN401
    """Return whether replies are averaged by Flower's own FedAvg."""
    *_, last = within(strategy)
    function = getattr(type(last), "aggregate_train", None)
    return str(getattr(function, "__module__", "")).endswith("strategy.fedavg")


def one_of(records: Mapping[str, Any], otherwise: str) -> str:
    """Return the name of the first record; ``otherwise`` if there is none."""
    return next(iter(records), otherwise)


def checks_of_users(
    insertion: Insertion, *, on_clients: bool, examples: int, in_turn: bool
) -> Iterator[Finding]:
    """Yield how stages are checked, besides by the guesses themselves.

    Args:
        insertion: How canary clients are inserted into the training run.
        on_clients: Whether clipping is left to clients.
        examples: Number of examples that a canary client reports.
        in_turn: Whether clients participate in some rounds only, and the claim relies
            on that.
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
