"""What came of a figure, in words, as JSON, and as a section of a page.

The page is generated, so that it never says anything else than the pictures beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never, final

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError
from dpaudit_lab.paper.figure import Figure, Reproduced
from dpaudit_lab.paper.findings import (
    Comparison,
    Finding,
    Note,
    Observation,
)
from dpaudit_lab.pictures.chart import Chart, csv_text

__all__ = ["Summary", "page"]

_FORMAT = "dpaudit.figure.1"
_ERRATA = "docs/explanation/errata.md"
_HEAD = """\
# The paper's figures, reproduced

Every figure of Keinan, Shenfeld and Ligett, <https://arxiv.org/abs/2503.07199>,
simulated anew. This page is written by

```console
$ cd docs/explanation && dpaudit-lab reproduce all --page figures.md
```

and not by hand; with `--plain` it draws the paper's curves only, without title, caption
or limits, and writes no page. Bands are one standard error; what the paper prints is
compared in standard errors of the difference, its own error counted in (half a unit of
the last digit where none is printed). Curves of rules without a [general
guarantee](errata.md), such as AORA as published, are dashed; [valid
ones](bounds.md#adaptive-rules) stand beside them. Thin lines are the true epsilon
(beside efficacies its share, e^ε / (1 + e^ε)) and [what no audit reliably
exceeds](why-the-bound-is-lower.md#the-ceiling-of-one-run). The paper plots means. What
[no valid audit's median](why-the-bound-is-lower.md#the-limit-for-given-canaries)
exceeds is black, and means may lie above it; so there the medians of the same runs are
drawn too, as bars. "So it is here" means by more than two standard errors, and a course
nowhere goes the other way; "so within error here", that it does somewhere, by two or
less; "not so here", by more than three. Numbers of guesses and elements, and the
epsilons of figures that have several, are ours where the paper does not print them.
Times are on the clock; a figure drawn again from a store names the time of an earlier
run. A mechanism of your own is [put into a
figure](../how-to/extend.md#a-figure-of-the-paper) in 20 lines.

| printed number | figure | printed | measured | apart | remark |
|---|---|---|---|---|---|
"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A figure that was reproduced, and what it took.

    Attributes:
        figure: Which.
        result: What came out.
        repeats: Trials of each setting.
        ran: Trials that were run for it; others were in the store already.
        seconds: How long that took, on the clock.
        redrawn: Whether ``ran`` and ``seconds`` are of an earlier run that came to the
            same points, the store having held all trials this time.
    """

    figure: Figure
    result: Reproduced
    repeats: int
    ran: int
    seconds: float
    redrawn: bool = False

    def __str__(self) -> str:
        head = f"{self.figure.name}: {self.figure.shows} ({self.cost})"
        return "\n".join([head, *(f"  {found}" for found in self.result.findings)])

    @property
    def trials(self) -> int:
        """How many trials the figure is made of."""
        sweeps = self.figure.sweeps(self.repeats)
        return sum(len(sweep.settings) * sweep.trials for sweep in sweeps)

    @property
    def chart(self) -> Chart:
        """The chart as a picture that may stand alone: with its number and source."""
        figure, chart = self.figure, self.result.chart
        source = (
            f"Figure {figure.number} of Keinan, Shenfeld and Ligett, arXiv:2503.07199, "
            "simulated anew."
        )
        return replace(
            chart,
            title=f"Figure {figure.number}: {chart.title}",
            caption=f"{chart.caption}\n{source}",
        )

    @property
    def cost(self) -> str:
        """Repeats, the paper's too, trials and time, in words."""
        return f"{self._repeated}; {self._took}"

    @property
    def _repeated(self) -> str:
        paper = self.figure.paper_repeats
        if paper is None:
            return f"{self.repeats} repeats; the paper's figure has no experiments"
        if paper == self.repeats:
            return f"{paper} repeats, as in the paper"
        return f"{self.repeats} repeats; the paper has {paper}"

    @property
    def _took(self) -> str:
        there = "in the store already"
        whole = self.ran == self.trials
        part = f"{self.ran:,}" if whole else f"{self.ran:,} of its {self.trials:,}"
        took = f"{part} trials took {self.seconds:.0f} s"
        if self.redrawn:
            return f"its trials were {there}; in an earlier run {took}"
        if not self.ran:
            return f"its trials were {there}"
        return took if whole else f"{took}, the others were {there}"

    def with_cost_of(self, earlier: str, points: str) -> "Summary":
        """Return it with the trials and time of an earlier run, if that was its own.

        To draw once more what is in the store takes next to no time; what the figure
        takes is what it took when its trials were run.

        Args:
            earlier: The JSON of the figure as it was drawn before.
            points: The CSV that was written beside; other points are another run.
        """
        try:
            found = _canonical.document(_canonical.parsed(earlier), _FORMAT)
            same = (found["name"], found["repeats"]) == (self.figure.name, self.repeats)
            ran, seconds = int(found["ran"]), float(found["seconds"])
        except (InvalidInputError, KeyError, TypeError, ValueError):
            return self  # not one of ours
        if not same or points != csv_text(self.result.chart):
            return self
        if not 0 < ran <= self.trials:
            return self
        return replace(self, ran=ran, seconds=seconds, redrawn=True)

    def to_json(self) -> str:
        """Return it as canonical JSON."""
        return _canonical.text(
            {
                "format": _FORMAT,
                "name": self.figure.name,
                "label": self.figure.label,
                "shows": self.figure.shows,
                "claim": self.figure.claim,
                "repeats": self.repeats,
                "paper_repeats": self.figure.paper_repeats,
                "trials": self.trials,
                "ran": self.ran,
                "seconds": self.seconds,
                "redrawn": self.redrawn,
                "findings": [_plain(found) for found in self.result.findings],
                "text": str(self),
            }
        )

    def section(self, pictures: str) -> str:
        """Return its section of the page; pictures are in that folder."""
        figure, chart = self.figure, self.result.chart
        return "\n".join(
            [
                f"## {chart.title}: `{figure.name}`",
                "",
                f"Figure {figure.number} of the paper, `{figure.label}`: "
                f"{figure.shows}.",
                "",
                f"![{chart.title}: {figure.shows}]({pictures}/{figure.name}.svg)",
                "",
                *_without_guarantee(chart),
                f"*The paper:* {figure.claim}",
                "",
                "*Measured:*",
                "",
                *(_linked(f"- {found}.") for found in self.result.findings),
                "",
                f"*Took:* {self.cost}. [Points]({pictures}/{figure.name}.csv).",
                "",
            ]
        )


def page(summaries: Sequence[Summary], pictures: str) -> str:
    """Return the page of some figures, as Markdown."""
    table = "".join(
        f"| {found.what} | `{one.figure.name}` | {found.printed:g} "
        f"± {found.printed_error:g} | {found.mean:.4g} ± {found.error:.2g} | "
        f"{abs(found.apart):.1f} errors | {_linked(found.remark)} |\n"
        for one in summaries
        for found in one.result.findings
        if isinstance(found, Comparison)
    )
    sections = [one.section(pictures) for one in summaries]
    return "\n".join([_HEAD + table, *sections]).rstrip() + "\n"


def _without_guarantee(chart: Chart) -> list[str]:
    """Return lines that name the curves whose rules have no general guarantee."""
    names = [curve.name for curve in chart.curves if not curve.guaranteed]
    if not names:
        return []
    return [f"*No [general guarantee](errata.md):* {'; '.join(names)}.", ""]


def _linked(text: str) -> str:
    """Return a text of the page, which lies beside the errata, with a link to them."""
    return text.replace(_ERRATA, "[errata](errata.md)")


def _plain(found: Finding) -> Mapping[str, _canonical.Json]:
    match found:
        case Comparison():
            return {
                "kind": "comparison",
                "what": found.what,
                "printed": found.printed,
                "printed_error": found.printed_error,
                "mean": found.mean,
                "error": found.error,
                "apart": found.apart,
                "remark": found.remark,
            }
        case Observation():
            return {
                "kind": "observation",
                "claim": found.claim,
                "measured": found.measured,
                "verdict": found.verdict.name.lower(),
            }
        case Note():
            return {"kind": "note", "text": found.text}
        case _:
            assert_never(found)
