"""Threshold crossing: up to which load cells of a sweep pass, and from which they fail. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from pgpaces.analysis import goal
from pgpaces.analysis.cells import Row
from pgpaces.analysis.goal import Verdict
from pgpaces.spec.design import Factor, level_text

# Factors of which more is more load (or more data), so there may be a crossing.
LOADS = ("users", "clients", "rate", "rate_per_client", "pace", "scale")
Levels = tuple[tuple[str, str], ...]
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


def main_factor(factors: Sequence[Factor]) -> Factor | None:
    """The factor for the axis of charts: a numeric one, a load if there is one.

    Of several the one with the most levels; None where no factor has two numbers.
    """
    others = (factor for factor in factors if factor.name not in NAMES)
    numbers = ((each, {quantity(level) for level in each.levels}) for each in others)
    able = [f for f, n in numbers if len(n) == len(f.levels) > 1 and None not in n]
    loads = [factor for factor in able if factor.name in LOADS]
    return max(loads or able, key=lambda factor: len(factor.levels), default=None)


def verdict(row: Row, missed_max: float) -> Verdict:
    return goal.verdict(row.estimate("missed"), missed_max) if row.sound else "unknown"


def level_of(row: Row, factor: str) -> str:
    return dict(row.cell.levels).get(factor, "")


def shown_level(row: Row, factor: str) -> str:
    """The same as it is shown; empty where the row has none."""
    own = dict(row.cell.levels)
    return level_text(own[factor]) if factor in own else ""


def out_of_order(rows: Iterable[Row], load: str, missed_max: float) -> Iterator[Levels]:
    """The other levels of rows of which one passes at a higher load than one that fails."""
    lines: dict[Levels, list[Row]] = {}
    for row in rows:
        others = tuple(pair for pair in row.cell.levels if pair[0] != load)
        lines.setdefault(others, []).append(row)
    for others, line in lines.items():
        line.sort(key=lambda row: quantity(level_of(row, load)) or 0.0)
        if goal.out_of_order([verdict(row, missed_max) for row in line]):
            yield others
