"""Values that documents name by their kind.

A class joins by being defined. Whoever writes a game in a package of its own lists the
module under the entry point ``dpaudit.games``; a document of a kind that is not known
yet has those modules imported, so that commands know the game too.
"""

from importlib.metadata import entry_points
from typing import Generic, TypeVar, final

from dpaudit.errors import InvalidInputError

__all__ = ["GROUP", "Registry"]

GROUP = "dpaudit.games"
T = TypeVar("T")


@final
class Registry(Generic[T]):
    """Classes by the name that they have in documents.

    Args:
        requirement: What a document must have, as worded in an error.
    """

    def __init__(self, requirement: str) -> None:
        self._requirement = requirement
        self._known: dict[str, type[T]] = {}

    def add(self, cls: type[T]) -> None:
        """Let a class join, if it has a kind of its own.

        A class that is defined anew takes its place: dataclasses with slots are.
        """
        kind = cls.__dict__.get("kind")
        if not isinstance(kind, str):
            return
        held = self._known.setdefault(kind, cls)
        if (held.__module__, held.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidInputError(
                f"kind={kind!r} of {cls.__name__} is that of {held.__name__}; give it "
                "another"
            )
        self._known[kind] = cls

    def known(self) -> dict[str, type[T]]:
        """Return those that have joined so far."""
        return dict(self._known)

    def __getitem__(self, kind: object) -> type[T]:
        if isinstance(kind, str) and kind not in self._known:
            for each in entry_points(group=GROUP):
                each.load()
        if not isinstance(kind, str) or kind not in self._known:
            raise InvalidInputError(
                f"{self._requirement} one of {', '.join(self._known)}, got {kind!r}"
            )
        return self._known[kind]
