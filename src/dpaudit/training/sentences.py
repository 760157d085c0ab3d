"""Findings that still hold finished sentences, until each of them has a code."""

from dpaudit.errors import on_one_line
from dpaudit.game.findings import Finding, Stage, Status

__all__ = ["old_control", "old_fault", "old_look"]


def old_look(*, road: Stage, how: Status, said: str) -> Finding:
    """Return what is said of a stage."""
    text = on_one_line(said)
    return Finding(code="own", status=how, stage=road, numbers={"text": text})


def old_fault(
    *,
    road: Stage,
    said: str,
    measured: str,
    claimed: str,
    cause: str,
    chance: float = 0.0,
) -> Finding:
    """Return a fault."""
    texts = {"what": said, "measured": measured, "expected": claimed, "cause_is": cause}
    return Finding(
        code="own.fault",
        status=Status.FAULT,
        stage=road,
        numbers={name: on_one_line(text) for name, text in texts.items()},
        probability=chance,
    )


def old_control(*, said: str, status: Status = Status.PASSED) -> Finding:
    """Return a sanity check."""
    return Finding(code="own", status=status, numbers={"text": on_one_line(said)})
