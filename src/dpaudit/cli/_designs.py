"""Designs as commands take them: from options, or from a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from dpaudit.cli._shared import Observer, read_text
from dpaudit.errors import DpAuditError, InvalidInputError, VoidAuditError

if TYPE_CHECKING:
    from dpaudit.evidence import Registration
    from dpaudit.game.coins import Key
    from dpaudit.game.design import Design
    from dpaudit.game.setting import Setting

__all__ = [
    "design_from_options",
    "read_key",
    "read_registration",
    "registered_design",
]


def design_from_options(
    *,
    canaries: int,
    epsilon: float,
    delta: float,
    alpha: float,
    guesses: int | None,
    observer: Observer,
    tie_seed: int | None = None,
    random_half: bool = False,
    named: "Setting | None" = None,
) -> "Design":
    """Return the design of an audit of scores; ranked if no guesses are given.

    All are ranked, or as many of the surest as a tally can keep in order. Of a random
    half, as many are guessed as were included.
    """
    from dpaudit import _validate  # noqa: PLC0415
    from dpaudit.game.design import Design, ThreatModel  # noqa: PLC0415 (numpy)
    from dpaudit.game.rules import OneRun, RandomHalf, Ranking, Rules  # noqa: PLC0415
    from dpaudit.game.setting import Setting  # noqa: PLC0415
    from dpaudit.privacy.guarantees import ApproxDP  # noqa: PLC0415
    from dpaudit.tables.tally import MOST_RANKED  # noqa: PLC0415

    if tie_seed is not None:
        _validate.whole_number("--tie-seed", tie_seed)
    rules: Rules = Ranking(guesses=min(canaries, MOST_RANKED))
    if random_half:
        rules = RandomHalf(guesses=canaries // 2 if guesses is None else guesses)
    elif guesses is not None:
        rules = OneRun(guesses=guesses)
    return Design(
        canaries=canaries,
        rules=rules,
        claim=ApproxDP(epsilon=epsilon, delta=delta),
        alpha=alpha,
        threat_model=ThreatModel[observer.name],
        setting=Setting(tie_seed=tie_seed).with_entries(named or Setting()),
    )


def read_registration(path: Path) -> "Registration":
    """Return what was registered; a bare design was registered without a key."""
    from dpaudit import _canonical  # noqa: PLC0415
    from dpaudit.evidence import Registration  # noqa: PLC0415
    from dpaudit.evidence.registration import read_design  # noqa: PLC0415

    text = read_text(path)
    try:
        plain = _canonical.parsed(text)
        form = plain.get("format", "") if isinstance(plain, dict) else ""
        if str(form).startswith("dpaudit.design."):
            return Registration(design=read_design(plain), commitment=None)
        return Registration.of_plain(plain)
    except DpAuditError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def read_key(path: Path, registered: "Registration") -> "Key":
    """Return a key, if it is the one that a design was registered with."""
    from dpaudit.game.coins import Key  # noqa: PLC0415

    try:
        key = Key.read(path)
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    commitment = registered.commitment
    if commitment is not None and not commitment.holds_for(key, registered.design):
        raise VoidAuditError(
            f"{path} is not the key that the design was registered with: the "
            "commitment does not hold for it"
        )
    return key


def registered_design(path: Path, key: Path | None) -> "tuple[Design, Key | None]":
    """Return what was registered, and the key if it was registered with one."""
    registered = read_registration(path)
    if key is not None:
        return registered.design, read_key(key, registered)
    if registered.commitment is not None:
        raise InvalidInputError(
            f"{path} was registered with a key, from which the coins are derived: give "
            "it with --key"
        )
    return registered.design, None
