"""Threshold crossing: up to which load cells of a sweep pass, and from which they fail. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.analysis import goal
from pgpaces.analysis.cells import Row
from pgpaces.analysis.goal import Verdict
from pgpaces.spec.design import Cell, Factor, level_text

# Factors of which more is more load (or more data), so there may be a crossing.
LOADS = ("users", "clients", "rate", "rate_per_client", "pace", "scale")
# Factors whose levels are names even if they look like numbers.
NAMES = ("server", "data_seed")
_UNITS = {
    **{"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": 8.64e7},
    **{"B": 1.0, "kB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30, "TB": 2.0**40},
    **{"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600, "/d": 1 / 86400, "": 1.0},
}
_NUMBER = re.compile(r"\s*([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(/?\s*[A-Za-z]*)\s*")


def quantity(level: str) -> float | None:
    """The number in a level, in ms, bytes or a second where it has a unit; None for a name."""
    match = _NUMBER.fullmatch(level)
    unit = match[2].replace(" ", "") if match else ""
    if not match or unit not in _UNITS:
        return None
    value = float(match[1]) * _UNITS[unit]
    return value if math.isfinite(value) else None


def numeric(factor: Factor) -> bool:
    """Whether all its levels are numbers, no two the same."""
    values = [quantity(level) for level in factor.levels]
    return None not in values and len(set(values)) == len(values)


def main_factor(factors: Sequence[Factor]) -> Factor | None:
    """The factor for the axis of charts: a numeric one, a load if there is one.

    Of several the one with the most levels; None where no factor has two numbers.
    """
    able = [f for f in factors if len(f.levels) > 1 and numeric(f) and f.name not in NAMES]
    loads = [factor for factor in able if factor.name in LOADS]
    return max(loads or able, key=lambda factor: len(factor.levels), default=None)


def verdict(row: Row, missed_max: float) -> Verdict:
    return goal.verdict(row.missed, missed_max) if row.sound else "unknown"


def needed_s(row: Row, missed_max: float) -> float | None:
    """The approximate seconds of trials that would decide a cell whose verdict is unknown.

    None where it is known, or the cell has no valid trials; infinite on the threshold.
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
        return str(Cell(self.levels)) if self.levels else ""


def lines(rows: Iterable[Row], main: str) -> tuple[Line, ...]:
    """The lines of a chart over the main factor, in the order of the rows."""

    def place(row: Row) -> float:
        return quantity(level_of(row, main)) or 0.0

    groups: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in rows:
        others = tuple(pair for pair in row.cell.levels if pair[0] != main)
        groups.setdefault(others, []).append(row)
    return tuple(Line(key, tuple(sorted(part, key=place))) for key, part in groups.items())


def level_of(row: Row, factor: str) -> str:
    return dict(row.cell.levels).get(factor, "")


def shown_level(row: Row, factor: str) -> str:
    """The same as it is shown; empty where the row has none."""
    own = dict(row.cell.levels)
    return level_text(own[factor]) if factor in own else ""


def irregular(line: Line, missed_max: float) -> bool:
    """Whether a row passes above one that fails."""
    verdicts = [verdict(row, missed_max) for row in line.rows]
    return "fail" in verdicts and "pass" in verdicts[verdicts.index("fail") :]
