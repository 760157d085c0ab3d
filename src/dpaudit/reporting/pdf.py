"""Figures as PDF: the marks of ``svg.py`` as PDF operators, without a library.

It reads the elements that ``svg.py`` writes and the rules of ``style.css`` for light
paper, and no others. Text stays text, in the fonts that every reader of PDF has:
Helvetica, and Symbol for Greek letters. The same figure gives the same bytes.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final
from xml.etree import ElementTree as ET

__all__ = ["pdf"]

Style: TypeAlias = dict[str, str]
Element: TypeAlias = ET.Element

_NAMESPACE: Final = re.compile(r"^\{.*\}")
_RULE: Final = re.compile(r"([^{}]+)\{([^{}]*)\}")
_INHERITED: Final = ("fill", "stroke", "font-size", "font-weight")
_JOINS: Final = {"miter": 0, "round": 1}
_CAPS: Final = {"butt": 0, "round": 1}
_CIRCLE: Final = 0.5523  # how far Bezier handles reach, in radii
_SYMBOLS: Final = {
    **dict(zip("αβγδεμπσ", "abgdemps", strict=True)),
    "∞": "\xa5",
    "≤": "\xa3",
    "≥": "\xb3",
    "∈": "\xce",
}
_RAISED: Final = dict(zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True))
_RAISED_SIZE, _RAISED_BY = 0.65, 0.35
_PLAIN: Final = str.maketrans({"\N{MINUS SIGN}": "–", "\xa0": " "})  # noqa: RUF001
# Widths of Helvetica from space to tilde, in thousandths (Adobe's font metrics).
_WIDTHS: Final = (
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *(556,) * 10,
    *(278, 278, 584, 584, 584, 556, 1015),
    *(667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667),
    *(778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333),
    *(556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556),
    *(556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
)
_OTHER_WIDTH, _BOLD = 556, 1.06


def pdf(document: str) -> bytes:
    """Return an SVG document of ``svg.document`` as a PDF of one page.

    Example:
        >>> from dpaudit.reporting import svg
        >>> picture = svg.Picture(width=100, height=50, title="A line",
        ...     description="From left to right.", content="")
        >>> line = svg.line(0, 0, 100, 0, "axis")
        >>> found = pdf(svg.document(picture, above=0, height=50,
        ...     style=".axis { stroke: #000000; }", content=line))
        >>> found[:8], b"/MediaBox [0 0 100 50]" in found
        (b'%PDF-1.4', True)
    """
    root = ET.fromstring(document)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    left, top = map(float, root.attrib["viewBox"].split()[:2])
    page = _Page(rules=_rules(root))
    page.write(f"1 0 0 -1 {0 - left:g} {height + top:g} cm")
    for each in root:
        page.draw(each, {})
    title = next((e.text or "" for e in root if _name(e) == "title"), "")
    return _file(page, width, height, title)


@final
@dataclass(slots=True, kw_only=True)
class _Page:
    """Operators of a page, and the opacities that they use."""

    rules: list[tuple[str, frozenset[str], Style]]
    operators: list[str] = field(default_factory=list)
    opacities: dict[tuple[float, float], str] = field(default_factory=dict)

    def write(self, *operators: str) -> None:
        self.operators.extend(operators)

    def draw(self, element: Element, above: Style) -> None:
        """Draw an element, within the style that it inherits."""
        kind = _name(element)
        style = above | self._style(kind, element)
        match kind:
            case "svg" | "g":
                self._nested(element, style)
            case "text":
                self._text(element, style)
            case "rect" | "line" | "polyline" | "polygon" | "circle":
                self._shape(kind, element, style)

    def _style(self, kind: str, element: Element) -> Style:
        names = {*element.get("class", "").split()}
        found: Style = {}
        for tag, classes, style in self.rules:
            if tag in ("", kind) and classes <= names:
                found |= style
        return found

    def _nested(self, element: Element, style: Style) -> None:
        self.write("q")
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        if box := element.get("viewBox"):
            left, top, width, height = map(float, box.split())
            self.write(f"1 0 0 1 {x - left:g} {y - top:g} cm")
            self.write(f"{left:g} {top:g} {width:g} {height:g} re W n")
        else:
            self.write(f"1 0 0 1 {x:g} {y:g} cm")
        inherited: Style = {each: style[each] for each in _INHERITED if each in style}
        for each in element:
            self.draw(each, inherited)
        self.write("Q")

    def _shape(self, kind: str, element: Element, style: Style) -> None:
        filled = None if kind in ("line", "polyline") else _colour(style, "fill")
        stroked = _colour(style, "stroke")
        if kind not in ("line", "polyline") and "fill" not in style and not stroked:
            filled = (0.0, 0.0, 0.0, 1.0)
        if not filled and not stroked:
            return
        self.write("q", *self._pens(filled, stroked, style), *_outline(kind, element))
        paint = "B" if filled and stroked else "f" if filled else "S"
        self.write("S" if kind in ("line", "polyline") else paint, "Q")

    def _pens(
        self,
        filled: tuple[float, ...] | None,
        stroked: tuple[float, ...] | None,
        style: Style,
    ) -> Iterator[str]:
        """Yield colours, opacities, and how lines are drawn."""
        opacity = float(style.get("fill-opacity", 1))
        alphas = (filled[3] * opacity if filled else 1.0, stroked[3] if stroked else 1)
        if alphas != (1.0, 1.0):
            name = self.opacities.setdefault(alphas, f"G{len(self.opacities)}")
            yield f"/{name} gs"
        if filled:
            yield "{:.3f} {:.3f} {:.3f} rg".format(*filled[:3])
        if stroked:
            yield "{:.3f} {:.3f} {:.3f} RG".format(*stroked[:3])
            yield f"{style.get('stroke-width', '1').removesuffix('px')} w"
            yield f"{_JOINS[style.get('stroke-linejoin', 'miter')]} j"
            yield f"{_CAPS[style.get('stroke-linecap', 'butt')]} J"
            yield f"[{style.get('stroke-dasharray', '')}] 0 d"

    def _text(self, element: Element, style: Style) -> None:
        size = float(style.get("font-size", "13.5px").removesuffix("px"))
        bold = style.get("font-weight") == "bold"
        runs = list(_runs((element.text or "").translate(_PLAIN), size, bold=bold))
        length = sum(run.width for run in runs)
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        self.write("q")
        turn = re.match(r"rotate\((-?\d+)", element.get("transform", ""))
        up = turn is not None and int(turn[1]) == -90
        self.write(f"{'0 -1 -1 0' if up else '1 0 0 -1'} {x:g} {y:g} cm")
        begin = -length * share[element.get("text-anchor", "start")]
        halo = _colour(style, "stroke")
        fill = _colour(style, "fill") or (0.0, 0.0, 0.0, 1.0)
        if halo:
            self.write(*self._pens(None, halo, style), "1 Tr", *_shown(runs, begin))
        self.write(*self._pens(fill, None, style), "0 Tr", *_shown(runs, begin), "Q")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Letters of one font.

    Attributes:
        font: Its name on the page.
        size: Of the letters.
        rise: Above the line.
        letters: As the font encodes them.
        width: Of all of them.
    """

    font: str
    size: float
    rise: float
    letters: bytes
    width: float


def _runs(words: str, size: float, *, bold: bool) -> Iterator[_Run]:
    """Yield a text divided by font."""
    kinds = re.findall(
        f"[{''.join(_SYMBOLS)}]+|[{''.join(_RAISED)}]+"
        f"|[^{''.join(_SYMBOLS)}{''.join(_RAISED)}]+",
        words,
    )
    plain = "F1" if bold else "F0"
    for part in kinds:
        font, own, rise, letters = plain, size, 0.0, part
        if part[0] in _SYMBOLS:
            font, letters = "F2", "".join(_SYMBOLS[each] for each in part)
        elif part[0] in _RAISED:
            own, rise = _RAISED_SIZE * size, _RAISED_BY * size
            letters = "".join(_RAISED[each] for each in part)
        encoding = "latin-1" if font == "F2" else "cp1252"
        encoded = letters.encode(encoding, "replace")
        width = sum(map(_width, letters)) * own / 1000 * (_BOLD if bold else 1)
        yield _Run(font=font, size=own, rise=rise, letters=encoded, width=width)


def _width(letter: str) -> int:
    place = ord(letter) - 32
    return _WIDTHS[place] if 0 <= place < len(_WIDTHS) else _OTHER_WIDTH


def _shown(runs: list[_Run], begin: float) -> Iterator[str]:
    yield "BT"
    yield f"{begin:.2f} 0 Td"
    for run in runs:
        yield f"/{run.font} {run.size:g} Tf {run.rise:g} Ts <{run.letters.hex()}> Tj"
    yield "ET"


def _outline(kind: str, element: Element) -> Iterator[str]:
    """Yield the outline of a shape as operators."""

    def number(name: str) -> float:
        return float(element.get(name, 0))

    match kind:
        case "rect":
            numbers = map(number, ("x", "y", "width", "height"))
            yield "{:g} {:g} {:g} {:g} re".format(*numbers)
        case "line":
            yield "{:g} {:g} m {:g} {:g} l".format(
                *map(number, ("x1", "y1", "x2", "y2"))
            )
        case "circle":
            x, y, r = map(number, ("cx", "cy", "r"))
            k = _CIRCLE * r
            yield f"{x + r:g} {y:g} m"
            for p in (
                (x + r, y + k, x + k, y + r, x, y + r),
                (x - k, y + r, x - r, y + k, x - r, y),
                (x - r, y - k, x - k, y - r, x, y - r),
                (x + k, y - r, x + r, y - k, x + r, y),
            ):
                yield "{:g} {:g} {:g} {:g} {:g} {:g} c".format(*p)
        case _:
            first, *rest = (
                each.replace(",", " ") for each in element.get("points", "0,0").split()
            )
            yield f"{first} m"
            yield from (f"{each} l" for each in rest)
            if kind == "polygon":
                yield "h"


def _colour(style: Style, name: str) -> tuple[float, ...] | None:
    """Return red, green, blue and opacity; None for none."""
    value = style.get(name, "none")
    if not value.startswith("#"):
        return None
    digits = value[1:] + "f" * (9 - len(value))
    return tuple(int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4, 6))


def _rules(root: Element) -> list[tuple[str, frozenset[str], Style]]:
    """Return the rules for light paper, the most specific last."""
    sheets = [each.text or "" for each in root if _name(each) == "style"]
    found = []
    for selectors, body in _RULE.findall("".join(sheets).partition("@media")[0]):
        parts = (each.split(":", 1) for each in body.split(";") if ":" in each)
        style = {name.strip(): value.strip() for name, value in parts}
        for selector in selectors.split(","):
            tag, *classes = selector.strip().split(".")
            found.append((tag, frozenset(classes), style))
    return sorted(found, key=lambda rule: (len(rule[1]), bool(rule[0])))


def _name(element: Element) -> str:
    return _NAMESPACE.sub("", element.tag)


def _file(page: _Page, width: float, height: float, title: str) -> bytes:
    """Return a file of one page."""
    content = zlib.compress("\n".join(page.operators).encode("ascii"), 9)
    fonts = ("Helvetica", "Helvetica-Bold", "Symbol")
    encoding = "/Encoding /WinAnsiEncoding"
    resources = " ".join(
        f"/F{i} << /Type /Font /Subtype /Type1 /BaseFont /{name} "
        f"{encoding if name != 'Symbol' else ''} >>"
        for i, name in enumerate(fonts)
    )
    opacities = " ".join(
        f"/{name} << /ca {fill:.3f} /CA {stroke:.3f} >>"
        for (fill, stroke), name in page.opacities.items()
    )
    heading = (b"\xfe\xff" + title.encode("utf-16-be")).hex()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:g} {height:g}] "
            f"/Contents 4 0 R /Resources << /Font << {resources} >> /ExtGState << "
            f"{opacities} >> >> >>"
        ).encode("ascii"),
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream"
        % (len(content), content),
        f"<< /Title <{heading}> >>".encode("ascii"),
    ]
    text, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(text))
        text += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    return text + (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
        f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 5 0 R >>\n"
        f"startxref\n{len(text)}\n%%EOF\n"
    ).encode("ascii")
