"""What a bug of the zoo is: a fault to plant, and what is known about it.

Every bug is a small patch around real Opacus: it changes methods of the optimizer that
``make_private`` returned, the loader, the accountant, or the user's step, as the faulty
code would. The value says what the accountant goes on to claim, what is spent in truth,
and at which stage between a record and the model the fault lies. Some have an audit
made for them: then it says by which canary, insertion and number of guesses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

from dpaudit import _validate
from dpaudit.game.findings import Stage
from dpaudit.training.opacus import Canary
from dpaudit_lab.bugzoo.honest import Run, Setting, private_run
from dpaudit_lab.bugzoo.truth import Truth

__all__ = [
    "Bug",
    "Examples",
    "Insertion",
    "PairedHalves",
    "Ranks",
    "Records",
    "Sums",
    "insertion_name",
    "on_ranks",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Canaries are records whose gradients are overwritten before the clipping."""

    canary: Canary


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Canaries are added to the clipped sum, before the noise."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Canaries are examples, each with a token of its own."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Canaries are added to the sums of two processes, and each reads its own."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PairedHalves:
    """Two processes; each coordinate is read less its double in the other half."""


Insertion: TypeAlias = Records | Sums | Examples | Ranks | PairedHalves


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A fault, how to plant it, and what is known about it.

    Attributes:
        name: A short name.
        title: What is wrong, in a few words.
        story: How it comes about, with where it was seen.
        setting: The training that it is planted in.
        plant: Plants it in a run that ``make_private`` has set up.
        truth: What is claimed and what is spent.
        stage: The pipeline stage at which the fault lies.
        seen_by: Which canary, insertion, clipping norm and guesser, or which look of
            the default audit, can see it.
        make: Sets up the training for the default audit.
        insertion: How canaries of an audit made for it get in, and what they look like;
            None if there is none but the default audit.
        canaries: How many canaries it has.
        guesses: How many of them are guessed, the surest ones.
        visible: Whether we know canaries in one run that could see it.
        remark: Why an audit misses it, if it does; what else is to be known.
    """

    name: str
    title: str
    story: str
    setting: Setting
    plant: Callable[[Run], None]
    truth: Truth
    stage: Stage
    seen_by: str
    make: Callable[[Setting], Run] = private_run
    insertion: Insertion | None = None
    canaries: int = 0
    guesses: int = 0
    remark: str = ""
    visible: bool = True

    def __post_init__(self) -> None:
        least = 0 if self.insertion is None else 1
        _validate.whole_number("canaries", self.canaries, least=least)
        _validate.whole_number("guesses", self.guesses, least=least)


def on_ranks(bug: Bug) -> bool:
    """Return whether a bug needs two processes."""
    return isinstance(bug.insertion, Ranks | PairedHalves)


def insertion_name(insertion: Insertion | None) -> str:
    """Return canary and insertion in words, for a table."""
    match insertion:
        case None:
            return ""
        case Records(canary=canary):
            size = "Dirac" if canary.spread == 1 else f"over {canary.spread} layers"
            over = "" if canary.norm <= 1 else f", {canary.norm:g} C"
            return f"{size}{over}; records"
        case Sums():
            return "Dirac; sums"
        case Examples():
            return "own token; example records"
        case Ranks():
            return "Dirac; sums, each rank reads"
        case PairedHalves():
            return "Dirac; sums, halves compared"
