"""What runs the tasks of a command: processes of this machine, or a Ray cluster."""

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from dpaudit.cli import _library as lib
from dpaudit.errors import InvalidInputError

__all__ = [
    "AddressOption",
    "EngineName",
    "EngineOption",
    "WorkersOption",
    "chosen_engine",
]


class EngineName(StrEnum):
    """What runs the trials."""

    LOCAL = "local"
    RAY = "ray"


EngineOption: TypeAlias = Annotated[
    EngineName,
    typer.Option("--engine", help="Processes of this machine, or a Ray cluster."),
]
AddressOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Of a Ray cluster that exists; one of this machine's own if not given.",
    ),
]
WorkersOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Trials that run at once; 1, or as many as the cluster has CPUs.",
    ),
]


def chosen_engine(
    engine: EngineName, *, address: str | None, workers: int | None
) -> "lib.Engine":
    """Return what runs tasks, by the options."""
    match engine:
        case EngineName.LOCAL:
            if address is not None:
                raise InvalidInputError("--address is for --engine ray")
            return lib.LocalEngine(workers=1 if workers is None else workers)
        case EngineName.RAY:
            from dpaudit.engines.cluster import RayEngine  # noqa: PLC0415

            return RayEngine(workers=workers, address=address)
