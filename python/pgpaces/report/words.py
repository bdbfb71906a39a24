"""The answer of an experiment in words: what holds, what breaks, what moves it, what to mistrust.

Values in, sentences out. "Held" and "did not hold" are claimed where an interval says so and
nowhere else; the word for all the rest is "not known".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pgpaces.answers import breaks, cells
from pgpaces.answers.breaks import Break, Line
from pgpaces.answers.cells import Row
from pgpaces.answers.replicates import Apart
from pgpaces.design import Factor
from pgpaces.report import facts
from pgpaces.report.text import interval, milliseconds, percent, rate
from pgpaces.result import Estimate

_SHOWN = 3
_LINES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the answer; main: what one tells the boss."""

    text: str
    weight: Literal["main", "plain", "warning"] = "plain"


@dataclass(frozen=True, slots=True)
class Material:
    """What the words are about."""

    factors: tuple[Factor, ...]
    main: Factor | None
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]
    missed_max: float
    apart: tuple[Apart, ...]
    missing: int
    failures: tuple[tuple[str, str], ...] = ()


def factor_name(name: str) -> str:
    """A factor as the page calls it: settings and variables without their family."""
    family, _, rest = name.partition(".")
    return rest if family in ("set", "define") and rest else name.replace("_", " ")


def amount(factor: str, level: str) -> str:
    """A level of the main factor in a sentence: `4 clients`, `10/s`."""
    if factor in ("clients", "users"):
        return f"{level} {factor.removesuffix('s') if level == '1' else factor}"
    if factor in ("rate", "rate_per_client", "pace"):
        each = {"rate": "", "rate_per_client": " per client", "pace": " per user"}[factor]
        return f"{level if '/' in level else level + '/s'}{each}"
    return f"{factor_name(factor)} {level}"


def line_name(line: Line) -> str:
    """What tells a line from the others, in a sentence."""
    return ", ".join(f"{factor_name(name)} = {level}" for name, level in line.levels)


def cell_name(row: Row) -> str:
    """A cell in a sentence."""
    pairs = row.cell.levels
    return ", ".join(f"{factor_name(name)} = {level}" for name, level in pairs) or "the one cell"


def share(estimate: Estimate) -> str:
    """A share with its interval."""
    ends = f"{percent(estimate.low)} to {percent(estimate.high)}"
    return f"{percent(estimate.value)} % ({ends})"


def answer(material: Material) -> tuple[Sentence, ...]:
    """The answer, the most important sentence first."""
    ran = [row for row in material.rows if row.trials]
    if not ran:
        return (Sentence("Nothing was run yet, so nothing is known.", "main"),)
    said: list[Sentence] = []
    if not facts.limits(ran):
        said += _without_limit(material, ran)
    elif len(ran) == 1:
        said += _one(material, ran[0])
    elif material.main is not None and material.main.name in breaks.LOADS:
        said += _by_load(material, material.main)
    else:
        said += _by_cell(material, ran)
    said += _extremes(material, ran)
    said += _doubts(material, ran)
    return tuple(said)


def _within(rows: Sequence[Row]) -> str:
    limit = facts.one_limit(rows)
    return f" within {limit}" if limit else " within its latency limit"


def _rule(material: Material, rows: Sequence[Row]) -> Sentence:
    policies = {str(d.trial.plan.get("policy")) for row in rows for d in row.trials}
    policy = f", policy {policies.pop()}" if len(policies) == 1 else ""
    return Sentence(
        f"A cell holds if at most {percent(material.missed_max)} % of what was due was not"
        f" answered{_within(rows)}{policy}; that is claimed where the whole 95 % interval says so."
    )


def _one(material: Material, row: Row) -> Iterable[Sentence]:
    missed = row.missed
    if missed is None:
        yield Sentence("Nothing was due: the trial was too short for its rate.", "main")
        return
    said = {
        "held": "It holds",
        "did not hold": "It does not hold",
        "not known": "Whether it holds is not known",
    }[breaks.verdict(row, material.missed_max)]
    yield Sentence(
        f"{said}: missed {share(missed)} of {row.counts.due:,} due{_within([row])}.", "main"
    )
    yield _rule(material, [row])


def _by_load(material: Material, main: Factor) -> Iterable[Sentence]:
    found = [breaks.find_break(line, material.missed_max) for line in material.lines]
    several = len(found) > 1
    same = {(_level(each.held, main), _level(each.broke, main)) for each in found}
    if several and len(same) == 1 and len(found) > 2:
        yield Sentence(f"In all {len(found)} combinations: {_words(found[0], main)}.", "main")
    else:
        for each in found[:_LINES_SHOWN]:
            text = _words(each, main)
            about = f"With {line_name(each.line)} it {text}." if several else f"It {text}."
            yield Sentence(about, "main")
        if len(found) > _LINES_SHOWN:
            yield Sentence(f"{len(found) - _LINES_SHOWN} more combinations are in the table.")
    for each in found:
        yield from _irregular(each, main, several)
    if several:
        for factor in material.factors:
            if factor.name != main.name:
                yield _moves(factor, found, material, main)
    yield _rule(material, material.rows)


def _level(row: Row | None, main: Factor) -> str | None:
    return None if row is None else breaks.level_of(row, main.name)


def _words(found: Break, main: Factor) -> str:
    """`holds up to 4 clients, breaks from 6 clients on; between them not known`."""

    def at(row: Row) -> str:
        return amount(main.name, breaks.level_of(row, main.name))

    last = found.line.rows[-1]
    unknown = [at(row) for row in found.unknown]
    not_known = f"; not known at {_listed(unknown)}" if unknown else ""
    if found.held and found.broke:
        between = "" if unknown else "; between them not known"
        return f"holds up to {at(found.held)}, breaks from {at(found.broke)} on{between}{not_known}"
    if found.held:
        top = found.held is last
        reach = ", the most that was tried" if top else ""
        return f"holds up to {at(found.held)}{reach}{not_known}"
    if found.broke:
        first = found.broke is found.line.rows[0]
        least = ", the least that was tried" if first else ""
        return f"breaks from {at(found.broke)} on{least}{not_known}"
    return f"is not known to hold or to break anywhere{not_known}"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_SHOWN])
    if len(names) > _SHOWN:
        shown.append(f"{len(names) - _SHOWN} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _irregular(found: Break, main: Factor, several: bool) -> Iterable[Sentence]:
    if found.irregular and found.broke:
        where = f" with {line_name(found.line)}" if several else ""
        yield Sentence(
            f"Irregular{where}: more than {amount(main.name, _level(found.broke, main) or '')}"
            " held again. Something else than the load decides there; run more trials.",
            "warning",
        )


def _moves(factor: Factor, found: Sequence[Break], material: Material, main: Factor) -> Sentence:
    moved = breaks.shift(found, factor.name, main.name, material.missed_max)
    name = factor_name(factor.name)
    if moved.pairs:
        better, worse = moved.pairs[0]
        at = amount(main.name, breaks.level_of(better, main.name))
        rest = len(moved.pairs) - 1
        more = f"; {_count(rest, 'more such pair')}" if rest else ""
        good, bad = (breaks.level_of(row, factor.name) for row in (better, worse))
        return Sentence(
            f"{name} moves the break: at {at} it held with {good}, missed {_missed(better)}, and"
            f" did not with {bad}, missed {_missed(worse)}{more}.",
            "main",
        )
    if moved.known:
        return Sentence(
            f"{name} is not seen to move the break: no level held where another did not. A shift"
            " smaller than the steps of this grid would not show."
        )
    return Sentence(f"Whether {name} moves the break is not known.")


def _missed(row: Row) -> str:
    return share(row.missed) if row.missed else "-"


def _by_cell(material: Material, rows: Sequence[Row]) -> Iterable[Sentence]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(breaks.verdict(row, material.missed_max), []).append(row)
    for verdict in ("held", "did not hold", "not known"):
        if found := groups.get(verdict):
            if len(found) == len(rows):
                text = f"All {len(rows)} cells: {verdict}."
            else:
                names = "; ".join(cell_name(row) for row in found[:_SHOWN])
                more = f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
                text = f"{len(found)} of {len(rows)} cells: {verdict} ({names}{more})."
            yield Sentence(text, "main")
    yield _rule(material, rows)


def _without_limit(material: Material, rows: Sequence[Row]) -> Iterable[Sentence]:
    named = len(rows) > 1
    best = max(rows, key=lambda row: row.rate.value if row.rate else 0.0)
    if best.rate:
        where = f"Most transactions succeeded with {cell_name(best)}: " if named else ""
        ends = interval(best.rate, rate, " to ")
        yield Sentence(f"{where}{rate(best.rate.value)}/s ({ends}).", "main")
    yield Sentence(
        "There was no latency limit, so nothing was too late, and whether a cell holds cannot be"
        " said; a limit (--latency-limit) makes it a question with an answer."
    )


def _extremes(material: Material, rows: Sequence[Row]) -> Iterable[Sentence]:
    """The best and the worst cell, where they can be told apart."""
    able = [row for row in rows if row.sound and row.missed]
    if len(able) < 2:
        return
    best = min(able, key=lambda row: (row.missed.value if row.missed else 0, _p95(row)))
    worst = max(able, key=lambda row: (row.missed.value if row.missed else 0, _p95(row)))
    if not best.missed or not worst.missed:
        return
    if best.missed.high >= worst.missed.low:
        if facts.limits(rows):
            yield Sentence(
                "Best and worst cell cannot be told apart by what they missed:"
                " their intervals overlap."
            )
        return
    yield Sentence(
        f"Least missed: {cell_name(best)} with {share(best.missed)}, p95 {_time(best.p95)}."
        f" Most missed: {cell_name(worst)} with {share(worst.missed)}, p95 {_time(worst.p95)}."
    )


def _p95(row: Row) -> float:
    return row.p95.value if row.p95 else 0.0


def _time(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    value = milliseconds(estimate.value, "above every time that was seen")
    return f"{value} ms" if value[0].isdigit() else value


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _doubts(material: Material, rows: Sequence[Row]) -> Iterable[Sentence]:
    """What one must know before believing it."""
    for each in material.apart:
        if each.apart:
            ends = interval(each.ratio, lambda value: f"{100 * (value - 1):+.0f} %", " to ")
            yield Sentence(
                f"{each.name} stands apart from the others of its kind ({each.kind}): its mean"
                f" service time differs from theirs by"
                f" {100 * (each.ratio.value - 1):+.0f} % ({ends}).",
                "warning",
            )
    unsound = [row for row in rows if not row.sound]
    if unsound:
        names = "; ".join(cell_name(row) for row in unsound[:_SHOWN])
        more = f"; {len(unsound) - _SHOWN} more" if len(unsound) > _SHOWN else ""
        only = "" if len(rows) == 1 else f" in {len(unsound)} of {len(rows)} cells ({names}{more})"
        yield Sentence(
            f"No valid trial{only}: the numbers are shown, marked, and nothing is concluded from"
            " them.",
            "warning",
        )
    invalid = [d for row in rows if row.sound for d in row.left_out if not cells.sound(d)]
    if invalid:
        yield Sentence(
            f"Not valid, or without an end: {_count(len(invalid), 'trial')}, shown and marked, but"
            " left out of the numbers of cells that have valid ones.",
            "warning",
        )
    if material.missing:
        yield Sentence(
            f"Asked for and not run: {_count(material.missing, 'trial')}. This is what there is.",
            "warning",
        )
    if material.failures:
        where, why = material.failures[0]
        times = f"{_count(len(material.failures), 'time')}, first for {where}"
        yield Sentence(f"A trial could not begin ({times}): {why}", "warning")
    alone = [row for row in rows if len(row.trials) == 1]
    if alone and len(rows) > 1:
        yield Sentence(
            f"One trial alone counts in {len(alone)} of {len(rows)} cells: their intervals do not"
            " know how much the next trial would differ."
        )
