"""The answer of an experiment in words: what passes, what moves the threshold, caveats.

Values in, sentences out. A sentence says pass or fail only if the interval lies on one
side of the threshold; everything else is "unknown".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pgpaces.analysis import cells, crossing, goal, outcome
from pgpaces.analysis.cells import Row
from pgpaces.analysis.crossing import Line, ThresholdCrossing
from pgpaces.analysis.replicates import Apart
from pgpaces.answers.again import length
from pgpaces.answers.sweep import facts
from pgpaces.answers.trials import cell_name, factor_name, levels_text
from pgpaces.core.findings import finding
from pgpaces.core.metrics import shown
from pgpaces.show.numbers import (
    NOT_KNOWN,
    capital,
    in_words,
    interval,
    plural,
    rate,
    share_in_words,
)
from pgpaces.show.section import Sentence
from pgpaces.spec.design import Factor, level_text

if TYPE_CHECKING:
    from pgpaces.answers.sweep.page import Page

_NAMES_MAX = 3
_REASONS_MAX = 2
_LINES_MAX = 12
# Trials below the first are called too short; times above the second are not recommended.
_SHORT_S, LONG_S = 60, 24 * 3600


def amount(factor: str, level: str) -> str:
    """A level of the main factor in a sentence: `4 clients`, `10/s`."""
    if factor in ("clients", "users"):
        return f"{level} {factor.removesuffix('s') if level == '1' else factor}"
    if factor in ("rate", "rate_per_client", "pace"):
        unit = {"rate": "", "rate_per_client": " per client", "pace": " per user"}[factor]
        return f"{level if '/' in level else level + '/s'}{unit}"
    return f"{factor_name(factor)} {level}"


def amounts(factor: str, levels: Sequence[str]) -> str:
    """Several levels of the main factor: `1, 2 and 4 clients`."""
    if factor in ("clients", "users") and len(levels) > 1:
        return f"{_listed(levels)} {factor}"
    return _listed([amount(factor, level) for level in levels])


def line_name(line: Line) -> str:
    return levels_text(line.levels, " and ")


def answer(page: Page) -> tuple[Sentence, ...]:
    ran = [row for row in page.rows if row.trials]
    if not ran:
        return (
            Sentence("Nothing was run yet, so nothing is known.", "main"),
            *_not_started(page),
        )
    if (failure := outcome.no_trial(each for row in ran for each in row.every)) is not None:
        return (Sentence(f"FAIL: {failure.sentence}.", "main"), *_not_started(page))
    work = page.work
    sentences = [] if work is None else [*work.answer]
    if not facts.limits(ran):
        sentences += () if work else _without_limit(ran)
    elif page.main is not None and page.main.name in crossing.LOADS:
        sentences += _by_load(page, page.main)
    elif len(ran) == 1:
        sentences += _single_cell(page, ran[0])
    else:
        sentences += _by_cell(page, ran)
    sentences += () if work else _extremes(ran)
    return (*sentences, *_caveats(page, ran))


def unmeasured(page: Page) -> tuple[str, str] | None:
    """Why no trial, or none of a cell, is a measurement, and what to do; None where each cell is.

    A load of a search is no cell: that nothing succeeds there is a result.
    """
    failure = outcome.no_trial(page.digests)
    if failure is not None or page.searched:
        return (failure.sentence, failure.advice) if failure else None
    each = ((row, outcome.no_trial(row.every)) for row in page.rows)
    failed = [(row, failure) for row, failure in each if failure is not None]
    if not failed:
        return None
    where = f"{len(failed)} of {len(page.rows)} cells ({_names([row for row, _ in failed])})"
    first = failed[0][1]
    return f"no measurement in {where}: {first.sentence}", first.advice


def _within(rows: Sequence[Row]) -> str:
    limit = facts.one_limit(rows)
    return f" within {limit}" if limit else " within its latency limit"


def _rule(page: Page, rows: Sequence[Row]) -> Sentence:
    several = {goal.allowed(d.trial) for row in rows for d in row.trials}
    least = ""
    if len(several) > 1 and page.missed_max == min(several):
        each = " and ".join(f"{100 * share:g}%" for share in sorted(several))
        least = f" The runs allow {each}: all are judged by the least."
    policies = {d.trial.plan.policy for row in rows for d in row.trials}
    policy = f", policy {policies.pop()}" if len(policies) == 1 else ""
    return Sentence(
        f"A cell passes if at most {100 * page.missed_max:g}% of the due requests were not"
        f" answered{_within(rows)}{policy}. The whole 95% interval decides.{least}"
    )


def _single_cell(page: Page, row: Row) -> Iterable[Sentence]:
    missed = row.missed
    if missed is None:
        yield Sentence("Nothing was due: the trial was too short for its rate.", "main")
        return
    verdict = capital(crossing.verdict(row, page.missed_max))
    text = f"{verdict}: missed {share_in_words(missed)} of {row.counts.due:,} due{_within([row])}."
    yield Sentence(text, "main")
    yield from _warmup_dependence(page, [row])
    yield from _unknown(page, [row])
    yield _rule(page, [row])


def _by_load(page: Page, main: Factor) -> Iterable[Sentence]:
    thresholds = [crossing.find_crossing(line, page.missed_max) for line in page.lines]
    several = len(thresholds) > 1
    texts = [_failure(each.line) or _threshold(each, main) for each in thresholds]
    if several and len(set(texts)) == 1:
        yield Sentence(f"{_all_combinations(page, main)}: {texts[0]}.", "main")
    else:
        groups = _grouped(page.lines, texts)
        for name, text in groups[:_LINES_MAX]:
            yield Sentence(f"{name}: {text}." if several else f"{capital(text)}.", "main")
        if len(groups) > _LINES_MAX:
            yield Sentence(f"{len(groups) - _LINES_MAX} more combinations are in the table.")
    for each in thresholds:
        if each.irregular and each.fails:
            where = line_name(each.line) if several else ""
            yield Sentence(str(finding("not-monotonic", where)), "warning")
    if several:
        yield from _shifts(thresholds, page, main)
    yield from _warmup_dependence(page, page.rows)
    yield from _unknown(page, page.rows)
    yield _rule(page, page.rows)


def _failure(line: Line) -> str:
    """Why a line has no measurement; empty if it has one."""
    failure = outcome.no_trial(digest for row in line.rows for digest in row.every)
    return "" if failure is None else failure.sentence


def _grouped(lines: Sequence[Line], texts: Sequence[str]) -> list[tuple[str, str]]:
    """Names and texts of lines; lines of one text are named once, by their common levels."""
    groups: dict[str, list[Line]] = {}
    for each, text in zip(lines, texts, strict=True):
        groups.setdefault(text, []).append(each)
    named: list[tuple[int, str, str]] = []
    for text, group in groups.items():
        first = lines.index(group[0])
        common = set.intersection(*(set(each.levels) for each in group))
        whole = [each for each in lines if common <= set(each.levels)]
        if len(group) > 1 and common and len(whole) == len(group):
            shared = tuple(pair for pair in group[0].levels if pair in common)
            others = [factor_name(pair[0]) for pair in group[0].levels if pair not in common]
            name = f"{line_name(Line(shared, ()))}, any {' and '.join(others)}"
            named.append((first, name, text))
        else:
            named += [(lines.index(each), line_name(each), text) for each in group]
    return [(name, text) for _, name, text in sorted(named)]


def _all_combinations(page: Page, main: Factor) -> str:
    """`each protocol (simple and prepared)`, `all 6 combinations`."""
    others = [factor for factor in page.factors if factor.name != main.name]
    if len(others) == 1:
        levels = [level_text(level) for level in others[0].levels]
        return f"each {factor_name(others[0].name)} ({_listed(levels)})"
    return f"all {len(page.lines)} combinations"


def _threshold(threshold: ThresholdCrossing, main: Factor) -> str:
    """`pass up to 4 clients; fail from 6 clients; unknown: 5 clients`."""
    rows = threshold.line.rows
    parts = [
        f"{what} {amount(main.name, crossing.level_of(row, main.name))}"
        f"{f' ({tested} tested)' if row is end else ''}"
        for what, row, tested, end in (
            ("pass up to", threshold.passes, "highest", rows[-1]),
            ("fail from", threshold.fails, "lowest", rows[0]),
        )
        if row is not None
    ]
    if threshold.unknown:
        levels = [crossing.level_of(row, main.name) for row in threshold.unknown]
        parts.append(f"unknown: {amounts(main.name, levels)}")
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_NAMES_MAX])
    if len(names) > _NAMES_MAX:
        shown.append(f"{len(names) - _NAMES_MAX} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _shifts(
    thresholds: Sequence[ThresholdCrossing], page: Page, main: Factor
) -> Iterable[Sentence]:
    unmoved: list[str] = []
    unknown: list[str] = []
    for factor in page.factors:
        if factor.name == main.name:
            continue
        shift = crossing.shift(thresholds, factor.name, main.name, missed_max=page.missed_max)
        name = factor_name(factor.name)
        if shift.pairs:
            better, worse = shift.pairs[0]
            at = amount(main.name, crossing.level_of(better, main.name))
            rest = len(shift.pairs) - 1
            more = f"; {plural(rest, 'more such pair')}" if rest else ""
            good, bad = (crossing.shown_level(row, factor.name) for row in (better, worse))
            yield Sentence(
                f"{name} moves the threshold: at {at}, {good} passes, missed {_missed(better)};"
                f" {bad} fails, missed {_missed(worse)}{more}.",
                "main",
            )
        else:
            (unmoved if shift.decided else unknown).append(name)
    if unmoved and any(each.fails for each in thresholds):
        yield Sentence(
            f"Does not move the threshold: {_listed(unmoved)}. No level passed at a load at which"
            " another failed. This grid cannot show a shift that is smaller than its steps."
        )
    elif unmoved:
        yield Sentence(
            f"No level of {_listed(unmoved)} failed. A higher load would show whether that moves"
            " the threshold."
        )
    if unknown:
        yield Sentence(f"Unknown whether it moves the threshold: {_listed(unknown)}.")


def _unknown(page: Page, rows: Sequence[Row]) -> Iterable[Sentence]:
    every = [(row, crossing.needed_s(row, page.missed_max)) for row in rows]
    unknown = [(row, need) for row, need in every if need is not None]
    if not unknown:
        return
    longest = max(d.summary.seconds for row, _ in unknown for d in row.trials)
    short = f"Trials of {longest:g} s are too short. " if longest < _SHORT_S else ""
    needs = sorted(need for _, need in unknown if need <= LONG_S)
    if needs:
        so_far = sorted(sum(d.summary.seconds for d in row.trials) for row, _ in unknown)
        (least, smaller), (most, unit) = length(needs[0]), length(needs[-1])
        first = str(least) if smaller == unit else f"{least} {smaller}"
        span = f"{most} {unit}" if first == str(most) else f"{first} to {most} {unit}"
        median = _rounded(so_far[len(so_far) // 2])
        yield Sentence(
            f"{short}Time that would decide: about {span} a cell, if the shares stay as they are"
            f" (so far {median}; unknown cells: {len(needs)}).",
            "note",
        )
    if near := len(unknown) - len(needs):
        yield Sentence(
            f"Cells very near {100 * page.missed_max:g}% missed: {near}. No reasonable time would"
            " decide them. Try another load or another limit."
        )


def _rounded(seconds: float) -> str:
    if seconds < 90:
        return f"{10 * round(seconds / 10) if seconds > 20 else max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{float(f'{seconds / 60:.2g}'):g} min"
    return f"{float(f'{seconds / 3600:.2g}'):g} h"


def _missed(row: Row) -> str:
    return share_in_words(row.missed) if row.missed else NOT_KNOWN


def _by_cell(page: Page, rows: Sequence[Row]) -> Iterable[Sentence]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(crossing.verdict(row, page.missed_max), []).append(row)
    for verdict in ("pass", "fail", "unknown"):
        if group := groups.get(verdict):
            yield Sentence(_group(verdict, group, len(rows)), "main")
    yield from _warmup_dependence(page, rows)
    yield from _unknown(page, rows)
    yield _rule(page, rows)


def _warmup_dependence(page: Page, rows: Sequence[Row]) -> Iterable[Sentence]:
    for row in rows:
        if (uncut := crossing.depends_on_cut(row, page.missed_max)) is not None:
            missed = f"with the warm-up that was cut {100 * uncut:.2g}% missed"
            text = f"{cell_name(row.cell)}: {missed}, so the verdict hangs on the cut."
            yield Sentence(text, "warning")


def _group(verdict: str, rows: Sequence[Row], total: int) -> str:
    """`Pass: 2 of 4 cells (a; b).`"""
    names = "" if len(rows) == total else f" ({_names(rows)})"
    return f"{capital(verdict)}: {len(rows)} of {total} cells{names}."


def _names(rows: Sequence[Row]) -> str:
    names = "; ".join(cell_name(row.cell) for row in rows[:_NAMES_MAX])
    return names + (f"; {len(rows) - _NAMES_MAX} more" if len(rows) > _NAMES_MAX else "")


def _without_limit(ran: Sequence[Row]) -> Iterable[Sentence]:
    rows = [row for row in ran if row.sound or len(ran) == 1]
    if not rows:
        yield Sentence("Which has the highest throughput is unknown: no trial is valid.", "main")
    best = max(rows, key=lambda row: row.throughput.value if row.throughput else 0.0, default=None)
    if best is not None and best.throughput:
        where = f"Highest throughput with {cell_name(best.cell)}: "
        where = where if len(ran) > 1 else ""
        yield Sentence(f"{where}{in_words(best.throughput, rate, '/s')}.", "main")
        low = best.throughput.low
        overlapping = sum(
            row is not best and row.throughput is not None and row.throughput.high >= low
            for row in rows
        )
        if overlapping:
            yield Sentence(
                f"Its interval overlaps {plural(overlapping, 'other')}, so by themselves they do"
                " not say that it is the fastest.",
                "note",
            )
    yield Sentence(
        "There was no latency limit, so no transaction was late, and no cell has a verdict;"
        " set a limit with --latency-limit."
    )


def _extremes(rows: Sequence[Row]) -> Iterable[Sentence]:
    """The best and the worst cell, if their intervals do not overlap."""
    ranked = sorted(
        ((row.missed, row.p95.value if row.p95 else 0.0, row)
         for row in rows if row.sound and row.missed),
        key=lambda each: (each[0].value, each[1]),
    )  # fmt: skip
    if len(ranked) < 2:
        return
    (least, _, best), (most, _, worst) = ranked[0], ranked[-1]
    if least.high >= most.low:
        if facts.limits(rows):
            yield Sentence(
                "Which cell missed least and which most is unknown: the intervals of their missed"
                " shares overlap."
            )
        return
    yield Sentence(f"Least missed: {_measured(best)}. Most missed: {_measured(worst)}.")


def _measured(row: Row) -> str:
    above = "above every time that was seen"
    p95 = NOT_KNOWN if row.p95 is None else shown("p95", row.p95.value, above)
    return f"{cell_name(row.cell)} with {_missed(row)}, p95 {p95}"


def _reasons(rows: Sequence[Row]) -> str:
    found: dict[str, None] = {}
    for digest in (digest for row in rows for digest in row.every):
        trial = digest.trial
        ended = () if trial.state == "finished" else (trial.error or trial.state,)
        found |= dict.fromkeys((*digest.summary.validity.reasons, *ended))
    reasons, left = list(found), len(found) - _REASONS_MAX
    more = f"; {left} more reasons" if left > 0 else ""
    return f" Why: {'; '.join(reasons[:_REASONS_MAX])}{more}." if reasons else ""


def _caveats(page: Page, rows: Sequence[Row]) -> Iterable[Sentence]:
    yield from _outliers(page.apart)
    if mixed := facts.builds(rows):
        listed = "; ".join(f"{build}: {', '.join(versions)}" for build, versions in mixed)
        yield Sentence(
            f"The versions of PostgreSQL are of different builds ({listed}), which differ in more"
            " than the version: compiler, TLS, compression, JIT.",
            "warning",
        )
    unsound = [row for row in rows if not row.sound]
    if unsound:
        where = f" in {len(unsound)} of {len(rows)} cells ({_names(unsound)})"
        where = "" if len(rows) == 1 else where
        kind = "valid" if any(row.defect == "invalid" for row in unsound) else "complete"
        yield Sentence(
            f"No {kind} trial{where}: the numbers are shown, marked, and nothing is concluded from"
            f" them.{_reasons(unsound)}",
            "warning",
        )
    invalid = [d for row in rows if row.sound for d in row.left_out if not cells.sound(d)]
    if invalid:
        yield Sentence(
            f"Invalid or unfinished trials: {len(invalid)}. They are shown and marked, but left out"
            " of the numbers of cells that have valid trials.",
            "warning",
        )
    not_started = tuple(_not_started(page))
    if page.missing and page.about.state == "running":
        yield Sentence(f"Still to run: {plural(page.missing, 'trial')}.", "note")
    elif page.missing:
        why = " ".join(each.text for each in not_started) or "This is what there is."
        text = f"Asked for and not run: {plural(page.missing, 'trial')}. {why}"
        not_started = (Sentence(text, "warning"),)
    yield from not_started
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


def _not_started(page: Page) -> Iterable[Sentence]:
    if page.failures:
        where, why = page.failures[0]
        times = f"{plural(len(page.failures), 'time')}, first for {where}"
        yield Sentence(f"A trial could not begin ({times}): {why}", "warning")


def _outliers(machines: Sequence[Apart]) -> Iterable[Sentence]:
    """Machines that stand apart from their kind; of a kind of two only the slower one."""

    def percentage(ratio: float) -> str:
        return f"{100 * (ratio - 1):+.0f}%"

    for each in machines:
        peers = sum(other.kind == each.kind for other in machines)
        if each.apart and (peers > 2 or each.ratio.value >= 1):
            ends = interval(each.ratio, percentage, " to ")
            yield Sentence(
                f"{each.name} stands apart from the rest of its kind ({each.kind}): its mean"
                f" service time differs from theirs by {percentage(each.ratio.value)} ({ends}).",
                "warning",
            )
