"""Keys for tests and studies: fixed, public and reusable."""

from dpaudit.game.coins import Key

__all__ = ["fixed_key"]


def fixed_key(secret: bytes = bytes(32)) -> Key:
    """Return a key that may be used for several outputs.

    Its coins are those of ``Key(secret)``. Any other key is for one output, and a
    second run with it is refused (``dpaudit.game.key_use``). An audit with a fixed key
    is no evidence about a program: its coins were known before the run.

    Args:
        secret: 32 bytes.

    Example:
        >>> from dpaudit import Design, OneRun, PureDP
        >>> from dpaudit.training.any_loop import SumsAudit
        >>> rules, claim = OneRun(guesses=5), PureDP(epsilon=1.0)
        >>> design = Design(canaries=9, rules=rules, claim=claim)
        >>> for _ in range(2):
        ...     audit = SumsAudit(design=design, key=fixed_key(), dimension=9)
        ...     audit.observe(audit.contributions())
    """
    return Key(secret, reusable=True)
