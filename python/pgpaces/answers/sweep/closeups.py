"""The charts of single cells and of statements: over time, as distributions, across cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from pgpaces.analysis import crossing, waits
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Bucket, Digest, Track
from pgpaces.analysis.parts import StatementRow
from pgpaces.answers.measure import Measure
from pgpaces.answers.sweep import words
from pgpaces.answers.sweep.axes import MainAxis, axis_of, panels, upright
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import above, cell_name
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import SERIES_MAX, Datum, amounts, seconds, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, estimate_texts, milliseconds, ms, or_dash, percent
from pgpaces.show.section import Figure, figure

CELLS_MAX, _LOADS_MAX = 24, 12
_TRIALS_MAX = 7
_TRACKS_MAX = 8
_STATEMENT_PANELS_MAX = 4
_ROWS_MAX = 60
_WAITS_TITLE = "sessions of the load and of others, by what they wait for"
_BANDS = ("p50", "p95", "p99")
_KINDS = ("late", "skipped", "failed", "unfinished")
_SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999)
# Percentiles that differ by more than this have a logarithmic axis.
_LOG_FROM = 5


def chosen(page: Page) -> tuple[Row, ...]:
    """The cells shown in detail: all, or CELLS_MAX of them, first those near the threshold.

    Then the best and the worst, then the others in the order of the table. Of a search fewer.
    """
    able = [row for row in page.rows if row.trials]
    most = _LOADS_MAX if page.searched else CELLS_MAX
    if len(able) <= most:
        return tuple(able)
    ranked: list[Row | None] = []
    for line in page.lines:
        threshold = crossing.find_crossing(line, page.missed_max)
        ranked += [threshold.fails, threshold.passes, *threshold.unknown[:1]]
    by_missed = sorted(able, key=lambda row: row.missed.value if row.missed else 0.0)
    ranked += [by_missed[0], by_missed[-1], *able]
    keys = dict.fromkeys(row.cell.key for row in ranked if row is not None and row.trials)
    first = list(keys)[:most]
    return tuple(row for row in able if row.cell.key in first)


def closeups(page: Page) -> Iterator[tuple[Row, tuple[Figure, ...]]]:
    places = {row.cell.key: number for number, row in enumerate(page.rows, 1)}
    for row in chosen(page):
        number = places[row.cell.key]
        figures = list(_over_time(row, number))
        if not _by_command(row):
            figures[1:1] = _distribution(row, number)
        yield row, tuple(figures)


def _by_command(row: Row) -> bool:
    """Whether a command is the whole load: a single execution has no curve over time."""
    return all(digest.trial.workload.command_alone for digest in row.trials)


def middle(row: Row) -> Digest:
    """The trial that represents a cell: the median by p95, the earlier of two."""
    able = [digest for digest in row.trials if digest.series] or list(row.trials)

    def p95(digest: Digest) -> float:
        estimate = digest.summary.latency.p95
        return estimate.value if estimate else 0.0

    ranked = sorted(able, key=p95)
    return ranked[(len(ranked) - 1) // 2]


def trial_name(digest: Digest) -> str:
    place = digest.trial.place
    if place is None:
        return digest.trial.id[-6:]
    target = place.levels.get("target")
    again = f", attempt {place.attempt}" if place.attempt > 1 else ""
    return shown(f"trial {place.block}{again}" + (f" on {target}" if target else ""))


def _over_time(row: Row, number: int) -> Iterator[Figure]:
    digest = middle(row)
    if not digest.series:
        return
    cell = _of_cell(row)
    several = f" of {len(row.trials)}, the middle one by p95" if len(row.trials) > 1 else ""
    name = f"{trial_name(digest)}{several}"
    if not _by_command(row):
        about = f"{name}; percentiles of what was due, per {digest.series[0].seconds} s of due time"
        if any(bucket.p99_ms == math.inf for bucket in digest.series):
            about += "; a line ends where its percentile falls among what did not succeed"
        if digest.summary.cut_s:
            about += f"; the first {digest.summary.cut_s} s are left out of the answer as warm-up"
        yield _latency(digest, f"Latency over time{cell}", about, key=f"time-{number}")
    waiting = [t for t in digest.tracks if t.source.rpartition("/")[2] == waits.SOURCE]
    others = [track for track in digest.tracks if track not in waiting]
    moving = [track for track in others if len({*track.values} - {None}) > 1]
    tracks = [*moving[:_TRACKS_MAX], *waiting]
    if not tracks:
        return
    still = [_track_name(track) for track in others if track not in moving]
    yield figure(
        f"machine-{number}",
        f"Server and machine over time{cell}",
        name + (f"; the same all the time: {', '.join(still)}" if still else ""),
        columns=("second", *map(_track_name, tracks)),
        data=_machine_rows(digest, tracks),
        template="strips",
        height=44,
        x=seconds(digest.series[-1].start_s + digest.series[-1].seconds),
        y=amounts("", short=True, tickCount=2),
        **series(list(dict.fromkeys(shown(track.name) for track in waiting))),
    )


def _machine_rows(digest: Digest, tracks: Sequence[Track]) -> Iterator[Datum]:
    """The rows of the table, and one for each track and moment. amount: of what is stacked."""
    for at in _rows_at(digest):
        texts = (or_dash(track.values[at], "{:.4g}".format) for track in tracks)
        yield {"texts": (str(digest.series[at].start_s), *texts)}
    for order, track in enumerate(tracks):
        node, _, source = track.source.rpartition("/")
        for bucket, value in zip(digest.series, track.values, strict=True):
            if source == waits.SOURCE:
                panel = f"{shown(node)}: {_WAITS_TITLE}" if node else _WAITS_TITLE
                amount = {"series": shown(track.name), "amount": value or 0.0}
                yield {"panel": panel, "order": order, **_span(bucket), **amount}
            else:
                panel = _track_name(track)
                yield {"panel": panel, "order": order, **_span(bucket), "value": value}


def _span(bucket: Bucket) -> Datum:
    start, length = bucket.start_s, bucket.seconds
    return {"start": start, "at": start + length / 2, "end": start + length}


def _latency(digest: Digest, title: str, about: str, *, key: str) -> Figure:
    limit_ns, data = digest.trial.plan.limit_ns, list(_latency_rows(digest))
    limit = {"limit": limit_ns / 1e6} if limit_ns else {}
    places = [row[name] for row in data for name in _BANDS if row[name]] + [*limit.values()]
    cut = [{"cut": 0, "cut_end": digest.summary.cut_s}] if digest.summary.cut_s else []
    log = bool(places) and max(places) > _LOG_FROM * min(places)
    return figure(
        key,
        title,
        about,
        columns=("second", "due", *map(header, (*_BANDS, "missed", "lag_p99"))),
        data=[*({**row, **limit} for row in data), *cut],
        template="latency",
        latency=axis("latency"),
        missed_title=axis("missed"),
        lag=axis("lag_p99"),
        x=seconds(data[-1]["end"]),
        y=amounts("", log=log, tickCount=4),
        lines=[*_BANDS, *limit],
        missed=[kind for kind in _KINDS if any(row[kind] for row in data)],
        **series(_BANDS, limit="limit" if limit else "", colors=["line0"] * len(_BANDS)),
    )


def _latency_rows(digest: Digest) -> Iterator[Datum]:
    """A row for each bucket, with texts for those of the table. An infinite time ends a line."""
    beyond = partial(milliseconds, above=above(digest.trial))
    for at, bucket in enumerate(digest.series):
        due = bucket.counts.due
        times = (bucket.p50_ms, bucket.p95_ms, bucket.p99_ms, bucket.lag_p99_ms)
        lines = zip((*_BANDS, "lag"), times, strict=True)
        row: Datum = {name: None if value == math.inf else value for name, value in lines}
        row |= {kind: 100 * getattr(bucket.counts, kind) / (due or 1) for kind in _KINDS}
        if at in _rows_at(digest):
            missed = percent(bucket.counts.missed / due) if due else NOT_KNOWN
            texts = *(or_dash(value, beyond) for value in times[:3]), missed, ms(bucket.lag_p99_ms)
            row["texts"] = (str(bucket.start_s), str(due), *texts)
        yield row | _span(bucket)


def _of_cell(row: Row) -> str:
    return f", {shown(cell_name(row.cell))}" if row.cell.levels else ""


def _track_name(track: Track) -> str:
    unit = f", {track.unit}" if track.unit else ""
    return shown(f"{track.source} {track.name}{unit}")


def _rows_at(digest: Digest) -> range:
    """The indexes of every n-th bucket, at most _ROWS_MAX."""
    return range(0, len(digest.series), -(-len(digest.series) // _ROWS_MAX))


def _distribution(row: Row, number: int) -> Iterator[Figure]:
    def answered(digest: Digest) -> bool:
        counts = digest.summary.counts
        return 2 * (counts.on_time + counts.late) >= counts.due

    able = [digest for digest in row.trials if digest.latency and answered(digest)][:_TRIALS_MAX]
    if not able:
        return
    more = len(row.trials) - len(able)
    left = f" ({len(able)} of {len(row.trials)} trials)" if more else ""
    yield figure(
        f"distribution-{number}",
        f"Distribution of latency and lag{_of_cell(row)}",
        "share of what was due that was answered within a time (latency), or sent (lag); a line"
        f" ends where the rest was not answered{left}",
        columns=("trial", "time", *(f"{100 * share:g}% within, ms" for share in _SHARES)),
        data=_curves(able),
        template="distribution",
        y=amounts("ms", log=True, nice=True, padding=0),
        **series([trial_name(digest) for digest in able]),
    )


def _curves(digests: Sequence[Digest]) -> Iterator[Datum]:
    """The rows of the table, and those of the lines."""
    for digest in digests:
        for kind, curve in (("latency", digest.latency), ("lag", digest.lag)):
            name = trial_name(digest)
            texts = (
                next((ms(value) for at, value in curve if at >= share - 1e-9), NOT_KNOWN)
                for share in _SHARES
            )
            yield {"texts": (name, kind, *texts)}
            for at, value in curve:
                if value:
                    yield {"series": name, "kind": kind, "share": at, "ms": value}


def statements(page: Page) -> Iterator[Figure]:
    if len(page.rows) < 2 or not page.statements:
        return
    lines = [line for panel in panels(page)[0] for line in panel.lines][:_STATEMENT_PANELS_MAX]
    every = []
    for line in lines:
        keys = {row.cell.key for row in line.rows}
        able = [each for each in page.statements if each.row.cell.key in keys and each.mean]
        # Shown are those with the largest sums of mean times over the cells.
        spent: dict[str, float] = {}
        for each in able:
            spent[each.name] = spent.get(each.name, 0.0) + (each.mean.value if each.mean else 0)
        busiest = sorted(spent, key=lambda name: -spent[name])[:SERIES_MAX]
        every.append([each for each in able if each.name in busiest])
    main, measure = axis_of(page), Measure("mean", lambda _: None)
    y, contents = upright("mean", [[_statement(main, e, measure) for e in used] for used in every])
    for number, (line, used, data) in enumerate(zip(lines, every, contents, strict=True)):
        if not used:
            continue
        name = words.line_name(line)
        yield figure(
            f"statements-{number + 1}" if number else "statements",
            f"Mean time of each statement{f', {shown(name)}' if name else ''}",
            "by script and line; bars are 95% intervals",
            columns=(shown(main.title), "statement", header("mean"), "95% interval"),
            data=data,
            template="factor",
            x=main.encoding(each.row for each in used),
            y=y,
            **series(list(dict.fromkeys(row["series"] for row in data))),
            joined=bool(main.unit),
        )


def _statement(main: MainAxis, each: StatementRow, measure: Measure) -> Datum:
    name = shown(each.name)
    place = {"x": main.place(each.row), "series": name, "valid": each.row.sound}
    texts = (main.label(each.row), name, *estimate_texts(each.mean, ms))
    return {**place, **measure.numbers(each.mean), "texts": texts}
