"""Canary clients in Flower's older strategies: the same audit, by results of fitting.

Older strategies have ``configure_fit`` and ``aggregate_fit`` in place of messages.
Canary clients are added to the results just before these are aggregated.
"""

from typing import Any, TypeAlias, final

from flwr.common import (
    Code,
    FitIns,
    FitRes,
    Parameters,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.strategy import Strategy

from dpaudit.training.flower.layout import Arrays
from dpaudit.training.flower.messages import Audited, answered
from dpaudit.training.flower.rounds import Round

__all__ = ["OlderAuditedStrategy", "fit_result", "is_older"]

_Client: TypeAlias = Any  # what stands for a client on the server
_NORM_BIT = "norm_bit"  # asked of clients by adaptive clipping on clients


def is_older(strategy: object) -> bool:
    """Return whether a strategy is one of the older kind."""
    return isinstance(strategy, Strategy)


def fit_result(
    arrays: Arrays, examples: int, metrics: dict[str, Any] | None = None
) -> FitRes:
    """Return what a client answers that was asked to fit."""
    return FitRes(
        status=Status(code=Code.OK, message=""),
        parameters=ndarrays_to_parameters(list(arrays)),
        num_examples=examples,
        metrics=metrics or {},
    )


@final
class OlderAuditedStrategy(Strategy):
    """An older strategy with canary clients; ``FlowerAudit.wrap_older`` makes it.

    Args:
        strategy: The one that adds noise.
        audit: What knows the canaries.
    """

    def __init__(self, strategy: Strategy, audit: Audited) -> None:
        self._strategy, self._audit = strategy, audit
        self._sent: Arrays = ()
        self._round: Round | None = None

    def initialize_parameters(
        self,
        client_manager: Any,  # noqa: ANN401
    ) -> "Parameters | None":
        """Pass on."""
        return self._strategy.initialize_parameters(client_manager)

    def configure_fit(
        self,
        server_round: int,
        parameters: Parameters,
        client_manager: Any,  # noqa: ANN401
    ) -> list[tuple[_Client, FitIns]]:
        """Begin a round."""
        self._sent = parameters_to_ndarrays(parameters)
        self._round = self._audit.begin(self._sent)
        asked = self._strategy.configure_fit(server_round, parameters, client_manager)
        return list(asked)

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[_Client, FitRes]],
        failures: list[Any],
    ) -> "tuple[Parameters | None, dict[str, Any]]":
        """Aggregate results, those of canary clients among them."""
        everyone = [*results]
        client, like = results[0] if results else (None, None)
        for answer in self._round.answers if self._round else ():
            arrays = [*self._sent]
            arrays[answer.array] = answered(arrays[answer.array], answer)
            told = dict.fromkeys(like.metrics, 0.0) if like else {}
            if _NORM_BIT in told:
                told[_NORM_BIT] = answer.cut
            everyone.append((client, fit_result(arrays, self._audit.examples, told)))
        model, metrics = self._strategy.aggregate_fit(server_round, everyone, failures)
        self._audit.end(
            None if model is None else parameters_to_ndarrays(model),
            replies=len(everyone),
        )
        self._round = None
        return model, metrics

    def configure_evaluate(
        self,
        server_round: int,
        parameters: Parameters,
        client_manager: Any,  # noqa: ANN401
    ) -> list[tuple[_Client, Any]]:
        """Pass on."""
        return list(
            self._strategy.configure_evaluate(server_round, parameters, client_manager)
        )

    def aggregate_evaluate(
        self, server_round: int, results: list[Any], failures: list[Any]
    ) -> tuple[float | None, dict[str, Any]]:
        """Pass on."""
        found: tuple[float | None, dict[str, Any]] = self._strategy.aggregate_evaluate(
            server_round, results, failures
        )
        return found

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Any]] | None:
        """Pass on."""
        found: tuple[float, dict[str, Any]] | None = self._strategy.evaluate(
            server_round, parameters
        )
        return found
