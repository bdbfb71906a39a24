"""Figures: what was measured of us and of another program, their ratio, and whether it is the goal.

Pure: texts and numbers in, texts and numbers out. Runs and reads nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

HEAD = ("figure", "beside", "ours", "ratio", "quartiles", "goal", "met")
# Of a page: ratio and quartiles share a column, and so do the goal and whether it is met.
PAGE_HEAD = ("", "pgbench", "pgpaces", "ratio (quartiles)", "goal")
PAGE_WIDTHS = (62, 15, 8, 17, 18)
TOLERANCE = 0.1


@dataclass(frozen=True)
class Goal:
    """A bound on the ratio (ours to theirs), or on our own figure."""

    of: Literal["ratio", "ours"]
    bound: Literal["at most", "at least"]
    value: float

    def __str__(self) -> str:
        sign = {"at most": "≤", "at least": "≥"}[self.bound]
        return f"{'' if self.of == 'ratio' else 'ours '}{sign} {self.value:g}"

    def holds(self, value: float) -> bool:
        """Whether a value is within the bound, in the two digits that goals are given in."""
        value = round(value, 2)
        return value <= self.value if self.bound == "at most" else value >= self.value


@dataclass(frozen=True)
class Figure:
    """One row: the same thing of us and of the program beside us, from runs that alternated.

    ours, theirs: one value for each pair, in `unit`; theirs is empty where there is nothing like
    it. gate: it depends on no clock, so that `make bench-check` may hold it against the baseline.
    paged: it is on the page of the documentation too, not on the terminal alone.
    """

    section: str
    name: str
    unit: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...] = ()
    goal: Goal | None = None
    beside: str = "pgbench"
    gate: bool = False
    paged: bool = True

    def __post_init__(self) -> None:
        if not self.ours or (self.theirs and len(self.theirs) != len(self.ours)):
            raise ValueError(f"{self.name}: {len(self.ours)} of ours, {len(self.theirs)} of theirs")

    @property
    def key(self) -> str:
        """What the baseline calls it."""
        return f"{self.section}: {self.name}"

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours to theirs, of each pair."""
        if not self.theirs or not all(self.theirs):
            return ()
        return tuple(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def ratio(self) -> float | None:
        """The median of the ratios: the pairs' own noise is common to both and cancels."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none, or nothing to hold against it."""
        value = (
            self.ratio if self.goal and self.goal.of == "ratio" else statistics.median(self.ours)
        )
        return None if self.goal is None or value is None else self.goal.holds(value)


@dataclass(frozen=True)
class Note:
    """What could not be measured, and why; or what must be known to read the figures."""

    section: str
    text: str


Finding = Figure | Note


def quartiles(values: Sequence[float]) -> tuple[float, float] | None:
    """The lower and the upper quartile; None of fewer than 3 values."""
    if len(values) < 3:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def number(value: float) -> str:
    """At least three digits that count, and no more of a small number."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(places, 4)}f}"


def row(figure: Figure) -> tuple[str, ...]:
    """The cells of a figure, under HEAD."""
    theirs = number(statistics.median(figure.theirs)) if figure.theirs else "-"
    beside = theirs if figure.beside == "pgbench" else f"{figure.beside} {theirs}"
    between = quartiles(figure.ratios)
    return (
        f"{figure.name}, {figure.unit}",
        beside,
        number(statistics.median(figure.ours)),
        "-" if figure.ratio is None else f"{figure.ratio:.2f}",
        "-" if between is None else f"{between[0]:.2f} to {between[1]:.2f}",
        "-" if figure.goal is None else str(figure.goal),
        {True: "yes", False: "NO", None: "-"}[figure.met],
    )


def line(cells: Sequence[str], widths: Sequence[int] = (66, 15, 9, 7, 13, 11, 3)) -> str:
    """A line for a terminal: the first cell to the left, numbers to the right."""
    first, *others = (
        f"{cell:{'<' if place == 0 else '>'}{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return " ".join([first, *others]).rstrip()


def markdown(findings: Iterable[Finding]) -> str:
    """All of it as a page has it: aligned columns below the name of each section; the notes."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    notes: list[str] = []
    for finding in findings:
        if isinstance(finding, Note):
            notes.append(f"- {finding.section}: {finding.text}")
        elif finding.paged:
            rows.setdefault(finding.section, []).append(_page_row(finding))
    lines = [line(PAGE_HEAD, PAGE_WIDTHS)]
    for title, cells in rows.items():
        lines += ["", title, *(line((f"  {name}", *rest), PAGE_WIDTHS) for name, *rest in cells)]
    return "\n".join(["```text", *lines, "```", "", *notes, ""])


def _page_row(figure: Figure) -> tuple[str, ...]:
    name, beside, ours, ratio, between, goal, met = (c if c != "-" else "" for c in row(figure))
    name = figure.name if figure.unit == figure.section.lower() else name
    if between not in ("", f"{ratio} to {ratio}"):
        ratio += f" ({between.replace(' to ', '–')})"
    return name, beside, ours, ratio, goal.replace("ours", "pgpaces") + (f", {met}" if met else "")


def document(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """All raw values, as JSON has them."""
    return [_plain(finding) for finding in findings]


def _plain(finding: Finding) -> dict[str, Any]:
    if isinstance(finding, Note):
        return {"section": finding.section, "note": finding.text}
    return {
        "section": finding.section,
        "figure": finding.name,
        "unit": finding.unit,
        "beside": finding.beside,
        "theirs": finding.theirs,
        "ours": finding.ours,
        "ratio": finding.ratio,
        "goal": None if finding.goal is None else str(finding.goal),
        "met": finding.met,
    }


def baseline(findings: Iterable[Finding]) -> dict[str, float]:
    """Our gated figures, by key."""
    gated = (f for f in findings if isinstance(f, Figure) and f.gate)
    return {f.key: round(statistics.median(f.ours), 3) for f in gated}


@dataclass(frozen=True)
class Verdict:
    """What the gate says of one figure."""

    ok: bool
    text: str


def verdicts(found: Mapping[str, float], kept: Mapping[str, float]) -> list[Verdict]:
    """Figures beside a baseline: one that is missing, or more by over the tolerance, is red.

    One that is less by over the tolerance is green and told: until it is written into the
    baseline, as much can be lost again unseen.
    """
    return [_verdict(key, found.get(key), kept.get(key)) for key in sorted({*found, *kept})]


def _verdict(key: str, now: float | None, before: float | None) -> Verdict:
    if now is None:
        return Verdict(False, f"{key}: not measured")
    if before is None:
        return Verdict(False, f"{key}: not in the baseline")
    change = now / before - 1
    said = f"{key}: {number(now)}, baseline {number(before)} ({change:+.1%})"
    if change < -TOLERANCE:
        return Verdict(True, f"{said}: better, write the baseline anew")
    return Verdict(change <= TOLERANCE, said)
