"""Words for the unit of privacy, and the format of lists and numbers in sentences."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any, Final, TypeAlias, final

from dpaudit.game.setting import Unit

__all__ = [
    "FaultText",
    "Template",
    "Terms",
    "Values",
    "capital",
    "counted",
    "first_of",
    "listed",
    "parameters",
    "rendered",
    "terms_of",
    "with_error",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The words of sentences for the unit of privacy and what happens to it."""

    unit: str | None
    record: str
    step: str
    batch: str
    batches: str
    per_record_gradients: str
    elsewhere: str
    accounts: str
    sees: str
    steps_seen: str


_TERMS: Final = {
    Unit.RECORD: Terms(
        unit=None,
        record="record",
        step="step",
        batch="batch",
        batches="batches",
        per_record_gradients="per-example gradients",
        elsewhere="before the loader",
        accounts="several records of one person",
        sees="sees every iterate",
        steps_seen="steps",
    ),
    Unit.USER: Terms(
        unit=Unit.USER,
        record="user",
        step="round",
        batch="cohort",
        batches="cohorts",
        per_record_gradients="per-user updates",
        elsewhere="on a user's device",
        accounts="several accounts of one person",
        sees="sees the aggregate of every round",
        steps_seen="rounds",
    ),
}


def terms_of(unit: str | None) -> Terms:
    """Return the terms for a unit of privacy; by default for a record."""
    return _TERMS[Unit.USER if unit == Unit.USER else Unit.RECORD]


@final
class Values(dict[str, Any]):
    """A finding's numbers by name, also as attributes, with the unit's terms.

    Example:
        >>> values = Values({"steps": 3}, subject=("a", "b"), terms=terms_of("user"))
        >>> values.steps, values.record, values.names
        (3, 'user', "'a', 'b'")
    """

    def __init__(
        self, numbers: Mapping[str, Any], *, subject: tuple[str, ...], terms: Terms
    ) -> None:
        super().__init__({name: _restored(value) for name, value in numbers.items()})
        self["record"], self["subject"] = terms.record, subject
        self["names"], self["terms"] = listed(subject), terms
        # A finding may have numbers of these names.
        self["term_step"], self["term_batch"] = terms.step, terms.batch
        self["term_batches"] = terms.batches

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (a number of a finding)
        return self[name]


def _restored(value: object) -> object:
    """Return a value as a number if it is text for a number that is not finite."""
    return float(str(value)) if value in ("inf", "-inf", "nan") else value


Template: TypeAlias = str | Callable[[Values], str]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FaultText:
    """The templates for a fault.

    Attributes:
        what: What is wrong, as a sentence without a full stop.
        measured: What was measured.
        expected: What was expected.
        cause: The most likely cause; if there are several, by the finding's number
            ``cause``.
    """

    what: Template
    measured: Template
    expected: Template
    cause: Template | Mapping[str, Template]


def rendered(template: Template, values: Values) -> str:
    """Return a template filled in with a finding's numbers.

    Example:
        >>> values = Values({"steps": 3}, subject=(), terms=terms_of(None))
        >>> rendered("{steps} steps", values), rendered(lambda v: f"{v.steps}", values)
        ('3 steps', '3')
    """
    return (
        template.format_map(values) if isinstance(template, str) else template(values)
    )


def capital(text: str) -> str:
    """Return a text with its first letter capitalised."""
    return text[:1].upper() + text[1:]


def listed(names: Iterable[str]) -> str:
    """Return names in quotes, with commas."""
    return ", ".join(f"{name!r}" for name in names)


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first few names, and the number of the others.

    Example:
        >>> first_of(("a", "b", "c"), 2)
        'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def parameters(names: Sequence[str]) -> str:
    """Return the names of parameters, at most three of them.

    Example:
        >>> parameters(("a",)), parameters(("a", "b", "c", "d"))
        ("parameter 'a'", "parameters 'a', 'b' and 2 more")
    """
    quoted = [repr(each) for each in names]
    if len(quoted) == 1:
        return f"parameter {quoted[0]}"
    if len(quoted) > 3:
        quoted[2:] = [f"{len(quoted) - 2} more"]
    return f"parameters {', '.join(quoted[:-1])} and {quoted[-1]}"


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    Example:
        >>> counted(1, "step"), counted(2, "step")
        ('1 step', '2 steps')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def with_error(value: float, error: float) -> str:
    """Return a value with as many digits as its error justifies."""
    digits = max(ceil(-log10(error or 1.0)), 0)
    return f"{value:.{digits}f} ± {error:.{digits}f}"
