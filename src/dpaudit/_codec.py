"""Frozen dataclasses as JSON and back, by the types of their fields.

What a class declares of its fields is all there is: nobody writes a second list of
them. Values of one kind among several name it (``kind``), whole documents name their
format, documents in documents are objects. A field that takes no part in comparisons is
not part of the record. What is read must have exactly the fields that are written;
whether values make sense is the constructors' business.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import lru_cache, partial
from math import inf
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError

__all__ = [
    "Document",
    "PossiblyInfinite",
    "PrintableText",
    "decode",
    "decoded_fields",
    "encode",
]

_INFINITE = "inf"
PossiblyInfinite: TypeAlias = Annotated[
    float, "may be infinite, for which JSON has no number"
]
PrintableText: TypeAlias = Annotated[str, "can be printed as it is"]


class Document:
    """A dataclass that is written to files and read from them.

    Attributes:
        form: Its format, with a version. After a release it never changes its meaning.
        derived: Properties that are written too, for those who read the text; a text
            in which they are not what the rest implies is refused.
    """

    __slots__ = ()
    form: ClassVar[str]
    derived: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *given: object, **named: object) -> Self:
        """Refuse fields without their names, and name those there are."""
        del named  # the dataclass reads them
        if given:
            kind: Any = cls
            names = ", ".join(f"{name}=..." for name in _types(kind))
            raise InvalidInputError(
                f"{cls.__name__} takes its fields by name: {cls.__name__}({names}); "
                f"got {len(given)} without a name"
            )
        return super().__new__(cls)

    def to_json(self) -> str:
        """Return the canonical JSON: equal values, equal bytes."""
        return _canonical.text(encode(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what a JSON document holds; nothing in it is re-derived.

        Raises:
            InvalidInputError: It is no such document; the message names what is wrong.
        """
        return cls.of_plain(_canonical.parsed(text))

    def to_plain(self) -> dict[str, Any]:
        """Return it as parsed JSON."""
        return {"format": self.form, **_encoded_fields(self)}

    @classmethod
    def of_plain(cls, plain: object) -> Self:
        """Return what parsed JSON holds."""
        values = _canonical.document(plain, cls.form)
        found: Self = _value(cls, values, cls.form)
        return found


def encode(value: Any) -> Any:  # noqa: ANN401 (any field; JSON)
    """Return a value as JSON can hold it.

    Example:
        >>> from dpaudit import PureDP
        >>> encode(PureDP(epsilon=1.0))
        {'kind': 'pure', 'epsilon': 1.0, 'adjacency': 'add-remove'}
    """
    match value:
        case StrEnum():
            plain: Any = str(value)
        case np.ndarray() | np.generic():
            plain = value.tolist()
        case tuple() | list():
            plain = [encode(each) for each in value]
        case Mapping():
            plain = {name: encode(each) for name, each in value.items()}
        case _ if hasattr(value, "to_plain"):
            plain = value.to_plain()
        case _ if is_dataclass(value):
            plain = _encoded_fields(value)
        case _:  # what JSON has no word for is refused where the text is written
            plain = value
    return plain


def _encoded_fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 (a dataclass)
    """Return the fields of a dataclass as JSON can hold them, its kind first."""
    found = {"kind": value.kind} if hasattr(value, "kind") else {}
    standing = _standing(value.__class__)
    for name, form in _types(value.__class__).items():
        held = getattr(value, name)
        if name not in standing or held != standing[name]:
            found[name] = _field(form, held)
    for name in getattr(value, "derived", ()):
        found[name] = encode(getattr(value, name))
    return found


@lru_cache(maxsize=1024)
def _standing(cls: Any) -> dict[str, Any]:  # noqa: ANN401 (a dataclass)
    """Return the defaults of fields that are not written where they hold them."""
    optional = getattr(cls, "optional", ())
    return {
        each.name: each.default if each.default is not MISSING else {}
        for each in fields(cls)
        if each.name in optional
    }


def _field(form: Any, value: Any) -> Any:  # noqa: ANN401 (type, value, JSON)
    if form is float and type(value) is int:
        return float(value)  # equal values, equal texts
    if form == PossiblyInfinite and value == inf:
        return _INFINITE
    return encode(value)


def decode(form: Any, plain: Any, name: str) -> Any:  # noqa: ANN401 (type, JSON, value)
    """Return the value of a type that parsed JSON holds.

    Args:
        form: The type, as a field of a dataclass is annotated.
        plain: The parsed JSON.
        name: What to call it in a message.

    Raises:
        InvalidInputError: It holds none; the message names what is wrong.
    """
    return _reader(form)(plain, name)


_Reader: TypeAlias = Callable[[Any, str], Any]


@lru_cache(maxsize=1024)
def _reader(form: Any) -> _Reader:  # noqa: ANN401 (a type)
    """Return what reads values of a type."""
    origin, inside = get_origin(form), get_args(form)
    if form in _PLAIN:
        read = _PLAIN[form]
    elif origin in (Union, UnionType):
        read = _union(inside)
    elif origin is Literal:
        read = partial(_literal, inside)
    elif origin is tuple:
        read = partial(_tuple, _reader(inside[0]))  # of which there are any number
    elif origin is np.ndarray:
        read = partial(_array, get_args(inside[1])[0])
    elif origin is NDArray:  # an alias that keeps its name, from numpy 2.5 on
        read = partial(_array, inside[0])
    elif origin is not None:
        read = partial(_mapping, _reader(inside[1]))
    elif issubclass(form, StrEnum):
        read = partial(_canonical.member, form)
    elif hasattr(form, "of_plain"):
        read = partial(_document, form)
    else:
        read = partial(_value, form)
    return read


def _union(forms: tuple[Any, ...]) -> _Reader:
    """Return what reads one of several types, or null if that is one of them."""
    some = tuple(each for each in forms if each is not NoneType)
    if len(some) == 1:
        read = _reader(some[0])
    elif all(each in _PLAIN for each in some):
        read = _scalar
    else:
        whole = hasattr(some[0], "form")
        known = {each.form if whole else each.kind: each for each in some}
        read = partial(_marked, "format" if whole else "kind", known)
    if len(some) == len(forms):
        return read
    return lambda plain, name: None if plain is None else read(plain, name)


def _marked(mark: str, known: Mapping[str, Any], plain: Any, name: str) -> Any:  # noqa: ANN401 (types, JSON, value)
    """Return one of several classes, which a field tells apart."""
    kind = plain.get(mark) if isinstance(plain, dict) else plain
    if not isinstance(kind, str) or kind not in known:
        raise InvalidInputError(
            f"{name} must have a {mark}, one of {', '.join(known)}, got {kind!r:.60}"
        )
    return _reader(known[kind])(plain, name)


def _document(cls: Any, plain: object, name: str) -> Any:  # noqa: ANN401, ARG001 (of the class)
    return cls.of_plain(plain)


def _value(cls: Any, plain: object, name: str) -> Any:  # noqa: ANN401 (class, value)
    """Return a dataclass, or whichever of its subclasses the ``kind`` names."""
    if not isinstance(plain, dict):
        raise InvalidInputError(f"{name} must be an object, got {plain!r:.60}")
    values, made = dict(plain), cls
    if hasattr(cls, "kinds"):
        made = cls.kinds[values.pop("kind", None)]
        if not issubclass(made, cls):
            raise InvalidInputError(f"{name} must be of kind {cls.kind}")
    elif hasattr(cls, "kind"):
        del values["kind"]  # by which the class was found
    derived = getattr(made, "derived", ())
    try:
        found = made(**decoded_fields(made, values, name))
    except (AttributeError, LookupError, OverflowError, TypeError) as error:
        raise InvalidInputError(f"{name}: {error}") from error
    for each in derived:
        derived_value = encode(getattr(found, each))
        if values[each] != derived_value:
            raise InvalidInputError(
                f"{each} is stated as {values[each]!r:.60}, and the rest implies "
                f"{derived_value!r:.60}"
            )
    return found


def decoded_fields(cls: Any, values: Mapping[str, Any], name: str) -> dict[str, Any]:  # noqa: ANN401 (a dataclass)
    """Return the fields of a dataclass; parsed JSON must hold these and no others.

    Those that a class names as ``optional`` are not written where they hold their
    default, and where one of them is missing its default is meant.
    """
    forms, derived = _types(cls), getattr(cls, "derived", ())
    absent = {n for n in getattr(cls, "optional", ()) if n not in values}
    _canonical.object_of(values, name, {*forms, *derived} - absent)
    return {n: decode(f, values[n], n) for n, f in forms.items() if n not in absent}


@lru_cache(maxsize=256)
def _types(cls: type) -> dict[str, Any]:
    """Return the fields of a dataclass that are recorded, and their types."""
    forms = get_type_hints(cls, include_extras=True)
    return {
        each.name: forms[each.name] for each in fields(cls) if each.compare is not False
    }


def _possibly_infinite(plain: object, name: str) -> float:
    return inf if plain == _INFINITE else _number(plain, name)


def _number(plain: object, name: str) -> float:
    return float(_canonical.number(name, plain))


def _whole(plain: object, name: str) -> int:
    if isinstance(plain, int | float) and not isinstance(plain, bool):
        whole = int(plain)
        if whole == plain:
            return whole
    raise InvalidInputError(f"{name} must be a whole number, got {plain!r:.60}")


def _flag(plain: object, name: str) -> bool:
    if not isinstance(plain, bool):
        raise InvalidInputError(f"{name} must be true or false, got {plain!r:.60}")
    return plain


def _text(plain: object, name: str) -> str:
    if not isinstance(plain, str):
        raise InvalidInputError(f"{name} must be a text, got {plain!r:.60}")
    return plain


def _printable_text(plain: object, name: str) -> str:
    if not isinstance(plain, str) or not plain.isprintable():
        raise InvalidInputError(
            f"{name} must be a text that can be printed, got {plain!r:.60}"
        )
    return plain


def _scalar(plain: object, name: str) -> _canonical.Scalar:
    if not isinstance(plain, str | int | float | None):
        raise InvalidInputError(
            f"{name} must be a text, a number, true, false or null, got {plain!r:.60}"
        )
    return plain


_PLAIN: Mapping[Any, _Reader] = {
    bool: _flag,
    float: _number,
    PossiblyInfinite: _possibly_infinite,
    int: _whole,
    str: _text,
    PrintableText: _printable_text,
}


def _literal(known: tuple[Any, ...], plain: object, name: str) -> Any:  # noqa: ANN401 (one of them)
    for each in known:
        if plain == encode(each):
            return each
    choices = ", ".join(repr(encode(each)) for each in known)
    raise InvalidInputError(f"{name} must be one of {choices}, got {plain!r:.60}")


def _tuple(read: _Reader, plain: object, name: str) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise InvalidInputError(f"{name} must be a list, got {plain!r:.60}")
    return tuple(read(each, name) for each in plain)


def _array(kind: type[np.generic], plain: object, name: str) -> Any:  # noqa: ANN401 (an array)
    """Return a row of true and false, of whole numbers, or of numbers."""
    allowed: tuple[set[type], str] = ({int, float}, "numbers")
    if issubclass(kind, np.bool_):
        allowed = {bool}, "true and false"
    elif issubclass(kind, np.integer):
        allowed = {int}, "whole numbers"
    if not isinstance(plain, list) or not {*map(type, plain)} <= allowed[0]:
        raise InvalidInputError(f"{name} must be a list of {allowed[1]} only")
    try:
        return np.array(plain, kind)
    except OverflowError as error:
        raise InvalidInputError(f"{name} must be a list of {kind.__name__}") from error


def _mapping(read: _Reader, plain: object, name: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise InvalidInputError(f"{name} must be an object, got {plain!r:.60}")
    return {each: read(held, f"{name}.{each}") for each, held in plain.items()}
