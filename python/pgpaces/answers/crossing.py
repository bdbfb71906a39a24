"""Threshold crossing: up to where a load holds, from where it does not, what moves that. Pure.

Rows of cells in; values out, for which the report has the words. "Held" is claimed where even the
upper end of the interval of what missed is within what may miss, "misses" where its lower end
is above; everything else is not known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.answers import goal
from pgpaces.answers.cells import Row
from pgpaces.answers.goal import Verdict
from pgpaces.design import Cell, Factor

# More of these is more load (or more data), so there is an up-to and a from.
LOADS = ("users", "clients", "rate", "rate_per_client", "pace", "scale")
# Their levels may look like numbers and are names.
NAMES = ("server", "data_seed")
_UNITS = {
    **{"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": 8.64e7},
    **{"B": 1.0, "kB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30, "TB": 2.0**40},
    **{"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600, "/d": 1 / 86400, "": 1.0},
}
_NUMBER = re.compile(r"\s*([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(/?\s*[A-Za-z]*)\s*")


def quantity(level: str) -> float | None:
    """The number in a level, in ms, bytes or a second where it has a unit; None for a name."""
    found = _NUMBER.fullmatch(level)
    unit = found[2].replace(" ", "") if found else ""
    if not found or unit not in _UNITS:
        return None
    value = float(found[1]) * _UNITS[unit]
    return value if math.isfinite(value) else None


def numeric(factor: Factor) -> bool:
    """Whether all its levels are numbers, no two the same."""
    values = [quantity(level) for level in factor.levels]
    return None not in values and len(set(values)) == len(values)


def main_factor(factors: Sequence[Factor]) -> Factor | None:
    """The factor that charts have along their axis: with numbers, a load if there is one.

    Of several the one with the most levels; None where no factor has two numbers.
    """
    able = [f for f in factors if len(f.levels) > 1 and numeric(f) and f.name not in NAMES]
    loads = [factor for factor in able if factor.name in LOADS]
    return max(loads or able, key=lambda factor: len(factor.levels), default=None)


def verdict(row: Row, missed_max: float) -> Verdict:
    """Whether a cell held. Nothing is known of one without sound trials."""
    return goal.verdict(row.missed, missed_max) if row.sound else "unknown"


def likely(row: Row, missed_max: float) -> str:
    """What a cell of which it is unknown indicates, by the share that it saw; empty for others."""
    if row.missed is None or not row.sound or verdict(row, missed_max) != "unknown":
        return ""
    return "likely meets" if row.missed.value <= missed_max else "likely misses"


def depends_on_cut(row: Row, missed_max: float) -> float | None:
    """The share that missed with what was cut as warm-up, where it would contradict the verdict.

    None where nothing is claimed, or where both shares lie on one side of the threshold.
    """
    if verdict(row, missed_max) == "unknown":
        return None
    cut = [digest.summary.left_out for digest in row.trials]
    due = row.counts.due + sum(counts.due for counts in cut)
    share = (row.counts.missed + sum(counts.missed for counts in cut)) / due
    return share if (share > missed_max) != (verdict(row, missed_max) != "meets") else None


def needed_s(row: Row, missed_max: float) -> float | None:
    """How many seconds of trials would decide a cell whose verdict is not known, about.

    None where it is known, or nothing is known of the cell; infinite on the threshold.
    """
    if not row.sound:
        return None
    seconds = sum(digest.summary.seconds for digest in row.trials)
    return goal.needed_s(row.missed, seconds, missed_max)


class Line(Struct, frozen=True):
    """The rows that share all levels but that of the main factor, in its order."""

    levels: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        """What tells it from the others."""
        return str(Cell(self.levels)) if self.levels else ""


def lines(rows: Iterable[Row], main: str) -> tuple[Line, ...]:
    """The lines of a chart over the main factor, in the order of the rows."""
    found: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in rows:
        others = tuple(pair for pair in row.cell.levels if pair[0] != main)
        found.setdefault(others, []).append(row)

    def place(row: Row) -> float:
        return quantity(level_of(row, main)) or 0.0

    return tuple(Line(key, tuple(sorted(part, key=place))) for key, part in found.items())


def level_of(row: Row, factor: str) -> str:
    """A row's level of a factor."""
    return dict(row.cell.levels).get(factor, "")


class ThresholdCrossing(Struct, frozen=True):
    """Where a line crosses its threshold. held: the highest that held below all that did not.

    broke: the lowest that did not hold. unknown: between them, or below what held. irregular: one
    held above one that did not.
    """

    line: Line
    held: Row | None
    broke: Row | None
    unknown: tuple[Row, ...] = ()
    irregular: bool = False

    @property
    def open(self) -> tuple[Row, ...]:
        """What is not known and lies above all that held: there it may cross."""
        rows = self.line.rows
        above = rows[rows.index(self.held) + 1 :] if self.held else rows
        return tuple(row for row in self.unknown if row in above)


def find_crossing(line: Line, missed_max: float) -> ThresholdCrossing:
    """Where a line crosses the threshold."""
    said = [verdict(row, missed_max) for row in line.rows]
    end = said.index("misses") if "misses" in said else len(said)
    held = max((at for at in range(end) if said[at] == "meets"), default=None)
    unknown = tuple(row for at, row in enumerate(line.rows[:end]) if said[at] == "unknown")
    return ThresholdCrossing(
        line,
        None if held is None else line.rows[held],
        None if end == len(said) else line.rows[end],
        unknown,
        "meets" in said[end:],
    )


class Shift(Struct, frozen=True):
    """Whether a factor moves the crossing. better, worse: cells that differ in it alone, of which

    one held and the other did not, as pairs. known: all lines broke, or held to their end, and
    nothing about where they do is not known.
    """

    factor: str
    pairs: tuple[tuple[Row, Row], ...]
    known: bool


def shift(found: Sequence[ThresholdCrossing], factor: str, main: str, missed_max: float) -> Shift:
    """Whether one level of a factor holds where another does not."""
    groups: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for each in found:
        for row in each.line.rows:
            key = tuple(pair for pair in row.cell.levels if pair[0] != factor)
            groups.setdefault(key, []).append(row)
    pairs = []
    for part in groups.values():
        held = [row for row in part if verdict(row, missed_max) == "meets"]
        broke = [row for row in part if verdict(row, missed_max) == "misses"]
        pairs += [(better, worse) for better in held for worse in broke]
    pairs.sort(key=lambda pair: quantity(level_of(pair[0], main)) or 0.0)
    ends = [(each.broke, each.held is each.line.rows[-1]) for each in found]
    known = all(broke for broke, _ in ends) or all(top for _, top in ends)
    known = known and not any(each.open for each in found)
    return Shift(factor, tuple(pairs), known)
