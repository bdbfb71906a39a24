"""The answer of an experiment in words: what meets the limit, what moves that, what to mistrust.

Values in, sentences out. "Meets" and "misses" are claimed where an interval says so and
nowhere else; the word for all the rest is "unknown".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.answers import cells, crossing, outcome
from pgpaces.answers.cells import Row
from pgpaces.answers.crossing import Line, Shift, ThresholdCrossing
from pgpaces.answers.replicates import Apart
from pgpaces.design import Factor
from pgpaces.questions.bulk import words as bulk
from pgpaces.questions.sweep import facts
from pgpaces.questions.trials import cell_name, factor_name
from pgpaces.report.numbers import clock, in_words, interval, milliseconds, percent, rate
from pgpaces.result import Estimate
from pgpaces.section import Sentence

_SHOWN = 3
_WHY_MAX = 2
_LINES_SHOWN = 12
# Shorter trials than this are the reason; longer times than this are no advice.
_SHORT_S, _LONG_S = 60, 24 * 3600


class ReportMaterial(Struct, frozen=True):
    """What the words are about."""

    factors: tuple[Factor, ...]
    main: Factor | None
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]
    missed_max: float
    apart: tuple[Apart, ...]
    missing: int
    failures: tuple[tuple[str, str], ...] = ()


def amount(factor: str, level: str) -> str:
    """A level of the main factor in a sentence: `4 clients`, `10/s`."""
    if factor in ("clients", "users"):
        return f"{level} {factor.removesuffix('s') if level == '1' else factor}"
    if factor in ("rate", "rate_per_client", "pace"):
        each = {"rate": "", "rate_per_client": " per client", "pace": " per user"}[factor]
        return f"{level if '/' in level else level + '/s'}{each}"
    return f"{factor_name(factor)} {level}"


def amounts(factor: str, levels: Sequence[str]) -> str:
    """Some levels of the main factor: `1, 2 and 4 clients`."""
    if factor in ("clients", "users") and len(levels) > 1:
        return f"{_listed(levels)} {factor}"
    return _listed([amount(factor, level) for level in levels])


def line_name(line: Line) -> str:
    """What tells a line from the others, in a sentence."""
    return " and ".join(f"{factor_name(name)} = {level}" for name, level in line.levels)


def share(estimate: Estimate) -> str:
    """A share with its interval."""
    ends = f"{percent(estimate.low)} to {percent(estimate.high)}"
    return f"{percent(estimate.value)} % ({ends})"


def answer(material: ReportMaterial) -> tuple[Sentence, ...]:
    """The answer, the most important sentence first."""
    ran = [row for row in material.rows if row.trials]
    if not ran:
        return (
            Sentence("Nothing was run yet, so nothing is known.", "main"),
            *_never_began(material),
        )
    every = [digest.summary for row in ran for digest in row.every]
    if (failed := outcome.no_trial(every)) is not None:
        return (Sentence(f"FAIL: {failed[0]}.", "main"), *_never_began(material))
    said: list[Sentence] = []
    by_command = bulk.about_commands(ran)
    if by_command:
        said += [Sentence(text, "main" if main else "plain") for text, main in _of_commands(ran)]
    if not facts.limits(ran):
        said += () if by_command else _without_limit(material, ran)
    elif material.main is not None and material.main.name in crossing.LOADS:
        said += _by_load(material, material.main)
    elif len(ran) == 1:
        said += _one(material, ran[0])
    else:
        said += _by_cell(material, ran)
    said += () if by_command else _extremes(material, ran)
    said += _doubts(material, ran)
    return tuple(said)


def spent(rows: Sequence[Row], budget_s: float, took_s: float) -> Sentence:
    """What became of a budget of time: how long it took, and how many trials each cell got."""
    counts = sorted(len(row.every) for row in rows)
    least, most = counts[0], counts[-1]
    of_each = f"{least}" if least == most else f"{least} to {most}"
    text = f"It took {clock(took_s)} of the {clock(budget_s)} it was given:"
    text += f" {_count(sum(counts), 'trial')}, {of_each} of each cell"
    if least < most:
        many = [row for row in rows if len(row.every) == most]
        where = f" ({cell_name(many[0].cell)})" if len(many) == 1 else ""
        text += (
            f", more where that decides{where}. Who looks after each trial is wrong about a cell"
            " near the threshold more often than its interval says"
        )
    return Sentence(f"{text}.", "note")


def _of_commands(rows: Sequence[Row]) -> Iterable[tuple[str, bool]]:
    return bulk.sentences(rows)


def _within(rows: Sequence[Row]) -> str:
    limit = facts.one_limit(rows)
    return f" within {limit}" if limit else " within its latency limit"


def _rule(material: ReportMaterial, rows: Sequence[Row]) -> Sentence:
    policies = {d.trial.plan.policy for row in rows for d in row.trials}
    policy = f", policy {policies.pop()}" if len(policies) == 1 else ""
    return Sentence(
        f"A cell meets the limit if at most {100 * material.missed_max:g} % of what was due was not"
        f" answered{_within(rows)}{policy}; that is claimed where the whole 95 % interval says so."
    )


def _one(material: ReportMaterial, row: Row) -> Iterable[Sentence]:
    missed = row.missed
    if missed is None:
        yield Sentence("Nothing was due: the trial was too short for its rate.", "main")
        return
    said = {
        "meets": "It meets the limit",
        "misses": "It misses the limit",
        "unknown": "Whether it meets the limit is unknown",
    }[crossing.verdict(row, material.missed_max)]
    yield Sentence(
        f"{said}: missed {share(missed)} of {row.counts.due:,} due{_within([row])}.", "main"
    )
    yield from _hanging(material, [row])
    yield from _undecided(material, [row])
    yield _rule(material, [row])


def _by_load(material: ReportMaterial, main: Factor) -> Iterable[Sentence]:
    found = [crossing.find_crossing(line, material.missed_max) for line in material.lines]
    several = len(found) > 1
    most = material.missed_max
    texts = [_failed(f.line) or _words(f, main) + _likely(f, main, most) for f in found]
    if several and len(set(texts)) == 1:
        yield Sentence(f"{_everywhere(material, main)} {texts[0]}.", "main")
    else:
        groups = _alike(material.lines, texts)
        for name, text in groups[:_LINES_SHOWN]:
            yield Sentence(f"With {name} {text}." if several else f"{_capital(text)}.", "main")
        if len(groups) > _LINES_SHOWN:
            yield Sentence(f"{len(groups) - _LINES_SHOWN} more combinations are in the table.")
    for each in found:
        yield from _irregular(each, main, several)
    if several:
        yield from _moves(found, material, main)
    yield from _undecided(material, material.rows)
    yield _rule(material, material.rows)


def _failed(line: Line) -> str:
    """Why a line measured nothing; empty where it did."""
    found = outcome.no_trial(digest.summary for row in line.rows for digest in row.every)
    return "" if found is None else found[0]


def _alike(lines: Sequence[Line], texts: Sequence[str]) -> list[tuple[str, str]]:
    """Names and texts of lines; those that say the same by what they have in common alone."""
    groups: dict[str, list[Line]] = {}
    for each, text in zip(lines, texts, strict=True):
        groups.setdefault(text, []).append(each)
    found: list[tuple[int, str, str]] = []
    for text, group in groups.items():
        first = lines.index(group[0])
        common = set.intersection(*(set(each.levels) for each in group))
        whole = [each for each in lines if common <= set(each.levels)]
        if len(group) > 1 and common and len(whole) == len(group):
            kept = tuple(pair for pair in group[0].levels if pair in common)
            others = [factor_name(pair[0]) for pair in group[0].levels if pair not in common]
            name = f"{line_name(Line(kept, ()))}, whichever {' and '.join(others)},"
            found.append((first, name, text))
        else:
            found += [(lines.index(each), line_name(each), text) for each in group]
    return [(name, text) for _, name, text in sorted(found)]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _everywhere(material: ReportMaterial, main: Factor) -> str:
    """`With each protocol (simple, prepared)`, `In all 6 combinations`."""
    others = [factor for factor in material.factors if factor.name != main.name]
    if len(others) == 1:
        levels = others[0].levels
        if len(levels) == 2:
            return f"With either {factor_name(others[0].name)} ({' or '.join(levels)})"
        return f"With each {factor_name(others[0].name)} ({_listed(levels)})"
    count = len(material.lines)
    return "In both combinations" if count == 2 else f"In all {count} combinations"


def _level(row: Row | None, main: Factor) -> str | None:
    return None if row is None else crossing.level_of(row, main.name)


def _words(found: ThresholdCrossing, main: Factor) -> str:
    """`it meets the limit up to 4 clients and misses it from 6 clients; unknown at 5 clients`."""

    def at(row: Row) -> str:
        return amount(main.name, crossing.level_of(row, main.name))

    rows = found.line.rows
    more = [crossing.level_of(row, main.name) for row in found.open]
    less = [crossing.level_of(r, main.name) for r in found.unknown if r not in found.open]
    not_known = f"; unknown at {amounts(main.name, more)}" if more else ""
    if less:
        not_known += f"; at less ({amounts(main.name, less)}) the trials do not tell"
    if found.held and found.broke:
        between = not_known if more else f"; unknown in between{not_known}"
        ends = f"up to {at(found.held)} and misses it from {at(found.broke)}"
        return f"it meets the limit {ends}{between}"
    if found.held:
        reach = ", the most that was tried" if found.held is rows[-1] else ""
        return f"it meets the limit up to {at(found.held)}{reach}{not_known}"
    if found.broke is rows[0]:
        return f"it misses the limit at {at(rows[0])} already, the least that was tried"
    if found.broke:
        return f"it misses the limit from {at(found.broke)}{not_known}"
    if len(rows) == 1:
        return f"whether it meets the limit at {at(rows[0])} is unknown"
    return f"whether it meets the limit is unknown from {at(rows[0])} to {at(rows[-1])}"


def _likely(found: ThresholdCrossing, main: Factor, missed_max: float) -> str:
    """What the cells of which it is unknown indicate, where they agree on an order."""
    able = [row for row in found.open if crossing.likely(row, missed_max)]
    meets = [row for row in able if crossing.likely(row, missed_max) == "likely meets"]
    misses = able[len(meets) :]
    if not able or meets != able[: len(meets)]:
        return ""
    if not misses or not meets:
        return f"; most likely it is {'met' if meets else 'missed'} there"
    low, high = ([crossing.level_of(row, main.name) for row in rows] for rows in (meets, misses))
    return (
        f"; most likely met at {amounts(main.name, low)} and missed at {amounts(main.name, high)}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_SHOWN])
    if len(names) > _SHOWN:
        shown.append(f"{len(names) - _SHOWN} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _irregular(found: ThresholdCrossing, main: Factor, several: bool) -> Iterable[Sentence]:
    if found.irregular and found.broke:
        where = f" with {line_name(found.line)}" if several else ""
        yield Sentence(
            f"Irregular{where}: more than {amount(main.name, _level(found.broke, main) or '')}"
            " met the limit again. Something else than the load decides there; run more trials.",
            "warning",
        )


def _moves(
    found: Sequence[ThresholdCrossing], material: ReportMaterial, main: Factor
) -> Iterable[Sentence]:
    """What moves the crossing, factor by factor; those of which nothing is seen together."""
    still: list[str] = []
    open_: list[str] = []
    for factor in material.factors:
        if factor.name == main.name:
            continue
        moved = crossing.shift(found, factor.name, main.name, material.missed_max)
        if moved.pairs:
            yield _moved(factor, moved, main)
        else:
            (still if moved.known else open_).append(factor_name(factor.name))
    if still and any(each.broke for each in found):
        yield Sentence(
            f"{_listed(still)} {_is(still)} not seen to move the threshold: no level met the limit"
            " where another did not. A shift smaller than the steps of this grid would not show."
        )
    elif still:
        yield Sentence(
            f"No level of {_listed(still)} missed the limit, so whether that moves the threshold"
            " takes more load to see."
        )
    if open_:
        names = " or ".join(open_)
        yield Sentence(f"Whether {names} moves the threshold is unknown.")


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _moved(factor: Factor, moved: Shift, main: Factor) -> Sentence:
    better, worse = moved.pairs[0]
    at = amount(main.name, crossing.level_of(better, main.name))
    rest = len(moved.pairs) - 1
    more = f"; {_count(rest, 'more such pair')}" if rest else ""
    good, bad = (crossing.level_of(row, factor.name) for row in (better, worse))
    return Sentence(
        f"{factor_name(factor.name)} moves the threshold: at {at} it is met with {good}, missed"
        f" {_missed(better)}, and not with {bad}, missed {_missed(worse)}{more}.",
        "main",
    )


def _undecided(material: ReportMaterial, rows: Sequence[Row]) -> Iterable[Sentence]:
    """What would make known what is not."""
    every = [(row, crossing.needed_s(row, material.missed_max)) for row in rows]
    known = [(row, need) for row, need in every if need is not None]
    if not known:
        return
    longest = max(d.summary.seconds for row, _ in known for d in row.trials)
    short = f"Trials of {longest:g} s are too short to tell: " if longest < _SHORT_S else ""
    needs = sorted(need for _, need in known if need <= _LONG_S)
    cells_ = "that cell" if len(needs) == 1 else f"each of {len(needs)} cells not known"
    if len(rows) == 1:
        cells_ = "it"
    if needs:
        so_far = sorted(sum(d.summary.seconds for d in row.trials) for row, _ in known)
        least, most = _long(needs[0]), _long(needs[-1])
        same = least.split()[1] == most.split()[1]
        span = most if least == most else f"{least.split()[0] if same else least} to {most}"
        had = _long(so_far[len(so_far) // 2])
        yield Sentence(
            _capital(
                f"{short}about {span} of trials of {cells_} would decide, if shares stay as they"
                f" are (so far {had})."
            )
        )
    if close := len(known) - len(needs):
        which = "It" if len(rows) == 1 else _capital(_count(close, "cell"))
        verb = "lies" if close == 1 else "lie"
        yield Sentence(
            f"{which} {verb} so close to {100 * material.missed_max:g} % that no reasonable time"
            " would decide; another load, or another limit, would."
        )


def _long(seconds: float) -> str:
    """A time to spend, in steps that mean something."""
    if seconds < 90:
        return f"{10 * round(seconds / 10) if seconds > 20 else max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{float(f'{seconds / 60:.2g}'):g} min"
    return f"{float(f'{seconds / 3600:.2g}'):g} h"


def _missed(row: Row) -> str:
    return share(row.missed) if row.missed else "-"


def _by_cell(material: ReportMaterial, rows: Sequence[Row]) -> Iterable[Sentence]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(crossing.verdict(row, material.missed_max), []).append(row)
    for verdict in ("meets", "misses", "unknown"):
        if found := groups.get(verdict):
            yield Sentence(_group(verdict, found, len(rows)), "main")
    yield from _hanging(material, rows)
    yield from _undecided(material, rows)
    yield _rule(material, rows)


def _hanging(material: ReportMaterial, rows: Sequence[Row]) -> Iterable[Sentence]:
    """What would be said otherwise if no warm-up had been cut."""
    for row in rows:
        if (with_it := crossing.hangs_on_the_cut(row, material.missed_max)) is not None:
            missed = f"with the warm-up that was cut {100 * with_it:.2g} % missed"
            text = f"{cell_name(row.cell)}: {missed}, so the verdict hangs on the cut."
            yield Sentence(text, "warning")


def _group(verdict: str, found: Sequence[Row], total: int) -> str:
    """`2 of 4 cells meet the limit (a; b)`."""
    one = len(found) == 1
    if len(found) == total:
        which, names = ("Both cells" if total == 2 else f"All {total} cells"), ""
    else:
        named = "; ".join(cell_name(row.cell) for row in found[:_SHOWN])
        more = f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        which, names = f"{len(found)} of {total} cells", f" ({named}{more})"
    if verdict == "meets":
        return f"{which} {'meets' if one else 'meet'} the limit{names}."
    if verdict == "misses":
        return f"{which} {'misses' if one else 'miss'} the limit{names}."
    if not names:
        return f"Whether any of the {total} cells meets the limit is unknown."
    return f"Whether {which} {'meets' if one else 'meet'} the limit is unknown{names}."


def _without_limit(material: ReportMaterial, rows: Sequence[Row]) -> Iterable[Sentence]:
    named = len(rows) > 1
    best = max(rows, key=lambda row: row.rate.value if row.rate else 0.0)
    if best.rate:
        where = f"Most transactions succeeded with {cell_name(best.cell)}: " if named else ""
        yield Sentence(f"{where}{in_words(best.rate, rate, '/s')}.", "main")
        low = best.rate.low
        alike = sum(
            row is not best and row.rate is not None and row.rate.high >= low for row in rows
        )
        if alike:
            yield Sentence(
                f"Its interval overlaps {_count(alike, 'other')}, so by themselves they do not say"
                " that it is the fastest.",
                "note",
            )
    yield Sentence(
        "There was no latency limit, so nothing was too late, and whether a cell is quick enough"
        " cannot be said; a limit (--latency-limit) makes it a question with an answer."
    )


def _extremes(material: ReportMaterial, rows: Sequence[Row]) -> Iterable[Sentence]:
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
        f"Least missed: {cell_name(best.cell)} with {share(best.missed)}, p95 {_time(best.p95)}."
        f" Most missed: {cell_name(worst.cell)} with {share(worst.missed)}, p95 {_time(worst.p95)}."
    )


def _why(rows: Sequence[Row]) -> str:
    """Why their trials are not valid: the first reasons, and how many there are more."""
    found = list(
        dict.fromkeys(
            reason for row in rows for d in row.every for reason in d.summary.validity.reasons
        )
    )
    more = f"; {len(found) - _WHY_MAX} more reasons" if len(found) > _WHY_MAX else ""
    return f" Why: {'; '.join(found[:_WHY_MAX])}{more}." if found else ""


def _p95(row: Row) -> float:
    return row.p95.value if row.p95 else 0.0


def _time(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    value = milliseconds(estimate.value, "above every time that was seen")
    return f"{value} ms" if value[0].isdigit() else value


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _doubts(material: ReportMaterial, rows: Sequence[Row]) -> Iterable[Sentence]:
    """What one must know before believing it."""
    yield from (_apart(each) for each in _named(material.apart))
    if mixed := facts.builds(rows):
        listed = "; ".join(f"{build}: {', '.join(had)}" for build, had in mixed)
        yield Sentence(
            f"The versions of PostgreSQL are of different builds ({listed}), which differ in more"
            " than the version: compiler, TLS, compression, JIT.",
            "warning",
        )
    unsound = [row for row in rows if not row.sound]
    if unsound:
        names = "; ".join(cell_name(row.cell) for row in unsound[:_SHOWN])
        more = f"; {len(unsound) - _SHOWN} more" if len(unsound) > _SHOWN else ""
        only = "" if len(rows) == 1 else f" in {len(unsound)} of {len(rows)} cells ({names}{more})"
        yield Sentence(
            f"No valid trial{only}: the numbers are shown, marked, and nothing is concluded from"
            f" them.{_why(unsound)}",
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
    yield from _never_began(material)
    alone = [row for row in rows if len(row.trials) == 1]
    if alone and facts.limits(rows):
        every = "Every cell" if len(rows) > 1 else "It"
        ran = (
            f"{every} ran" if len(alone) == len(rows) else f"{len(alone)} of {len(rows)} cells ran"
        )
        yield Sentence(
            f"{ran} only once: one trial cannot say how much the next would differ, so its"
            " interval holds for that trial alone.",
            "warning" if len(rows) > 1 else "plain",
        )


def _never_began(material: ReportMaterial) -> Iterable[Sentence]:
    if material.failures:
        where, why = material.failures[0]
        times = f"{_count(len(material.failures), 'time')}, first for {where}"
        yield Sentence(f"A trial could not begin ({times}): {why}", "warning")


def _named(apart: Sequence[Apart]) -> Iterable[Apart]:
    """Those that stand apart; of two that are apart from each other the slower one."""
    found = [each for each in apart if each.apart]
    for each in found:
        kin = [other for other in apart if other.kind == each.kind]
        if len(kin) > 2 or each.ratio.value >= 1:
            yield each


def _apart(each: Apart) -> Sentence:
    def percentage(ratio: float) -> str:
        return f"{100 * (ratio - 1):+.0f} %"

    ends = interval(each.ratio, percentage, " to ")
    return Sentence(
        f"{each.name} stands apart from the rest of its kind ({each.kind}): its mean service time"
        f" differs from theirs by {percentage(each.ratio.value)} ({ends}).",
        "warning",
    )
