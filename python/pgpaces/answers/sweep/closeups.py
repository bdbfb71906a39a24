"""The charts of single cells and of statements: over time, as distributions, across cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from pgpaces.analysis import crossing, waits
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Bucket, Digest, Track
from pgpaces.analysis.parts import StatementRow
from pgpaces.answers.sweep import words
from pgpaces.answers.sweep.axes import LOG_FROM, MainAxis, axis_of, panels
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import above, cell_name
from pgpaces.core.metrics import axis, header
from pgpaces.show.chart import SERIES_MAX, Axis, Chart, Layer, Point, Series, bound, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, estimate_texts, milliseconds, ms, or_dash, percent
from pgpaces.show.section import Figure
from pgpaces.spec.result import Estimate

CELLS_MAX = 24
_TRIALS_MAX = 7
_TRACKS_MAX = 8
_STATEMENT_PANELS_MAX = 4
_ROWS_MAX = 60
# From here on numbers at an axis are shortened: 20k, 10G.
_LARGE = 10_000
_WAITS_TITLE = "sessions of the load and of others, by what they wait for"
_BANDS = ("p50", "p95", "p99")
# Up to 99.99%, in decades of the remaining share.
_TICKS = (0.0, 0.30103, 1.0, 2.0, 3.0, 4.0)
_TICK_TEXTS = ("0", "50", "90", "99", "99.9", "99.99")


def chosen(page: Page) -> tuple[Row, ...]:
    """The cells shown in detail: all, or CELLS_MAX of them, first those near the threshold.

    Then the best and the worst, then the others in the order of the table.
    """
    able = [row for row in page.rows if row.trials]
    if len(able) <= CELLS_MAX:
        return tuple(able)
    ranked: list[Row | None] = []
    for line in page.lines:
        threshold = crossing.find_crossing(line, page.missed_max)
        ranked += [threshold.fails, threshold.passes, *threshold.unknown[:1]]
    by_missed = sorted(able, key=lambda row: row.missed.value if row.missed else 0.0)
    ranked += [by_missed[0], by_missed[-1], *able]
    keys = dict.fromkeys(row.cell.key for row in ranked if row is not None and row.trials)
    first = list(keys)[:CELLS_MAX]
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
    name, seconds = f"{trial_name(digest)}{several}", digest.series[0].seconds
    if not _by_command(row):
        about = f"{name}; percentiles of what was due, per {seconds} s of due time"
        if any(bucket.p99_ms == math.inf for bucket in digest.series):
            about += "; a line ends where its percentile falls among what did not succeed"
        if digest.summary.cut_s:
            about += f"; the first {digest.summary.cut_s} s are left out of the answer as warm-up"
        yield Figure(
            f"time-{number}",
            f"Latency over time{cell}",
            about,
            ("second", "due", *map(header, (*_BANDS, "missed", "lag_p99"))),
            tuple(_time_rows(digest)),
            tuple(_latency_charts(digest)),
        )
    moving = _moving(digest)
    tracks = [*moving[:_TRACKS_MAX], *(t for ts in _waits(digest).values() for t in ts)]
    if not tracks:
        return
    still = [_track_name(t) for t in digest.tracks if t not in moving and not _is_wait_event(t)]
    yield Figure(
        f"machine-{number}",
        f"Server and machine over time{cell}",
        name + (f"; the same all the time: {', '.join(still)}" if still else ""),
        ("second", *(_track_name(track) for track in tracks)),
        tuple((str(digest.series[at].start_s),
               *(or_dash(track.values[at], "{:.4g}".format) for track in tracks))
              for at in _rows_at(digest)),
        tuple(_machine_charts(digest)),
    )  # fmt: skip


def _of_cell(row: Row) -> str:
    return f", {shown(cell_name(row.cell))}" if row.cell.levels else ""


def _moving(digest: Digest) -> list[Track]:
    return [t for t in digest.tracks if len({*t.values} - {None}) > 1 and not _is_wait_event(t)]


def _is_wait_event(track: Track) -> bool:
    return track.source.rpartition("/")[2] == waits.SOURCE


def _waits(digest: Digest) -> dict[str, list[Track]]:
    tracks: dict[str, list[Track]] = {}
    for track in digest.tracks:
        if _is_wait_event(track):
            tracks.setdefault(track.source, []).append(track)
    return tracks


def _track_name(track: Track) -> str:
    unit = f", {track.unit}" if track.unit else ""
    return shown(f"{track.source} {track.name}{unit}")


def _rows_at(digest: Digest) -> range:
    """The indexes of every n-th bucket, at most _ROWS_MAX."""
    return range(0, len(digest.series), -(-len(digest.series) // _ROWS_MAX))


def _time_rows(digest: Digest) -> Iterator[tuple[str, ...]]:
    beyond = above(digest.trial.plan)
    for at in _rows_at(digest):
        bucket = digest.series[at]
        due = bucket.counts.due
        quantiles = (bucket.p50_ms, bucket.p95_ms, bucket.p99_ms)
        yield (
            str(bucket.start_s),
            str(due),
            *(or_dash(value, partial(milliseconds, above=beyond)) for value in quantiles),
            percent(bucket.counts.missed / due) if due else NOT_KNOWN,
            ms(bucket.lag_p99_ms),
        )


def _seconds(digest: Digest) -> Axis:
    return Axis("seconds from the start", ends=(0.0, _end(digest.series[-1])), ticks=6, grid=True)


def _middles(digest: Digest) -> list[float]:
    return [bucket.start_s + bucket.seconds / 2 for bucket in digest.series]


def _finite(values: Iterable[float | None]) -> Iterator[float | None]:
    """The values, None for infinity, where a line ends."""
    return (None if value == math.inf else value for value in values)


def _latency_charts(digest: Digest) -> Iterator[Chart]:
    series, x = digest.series, _seconds(digest)
    yield _latency_chart(digest, x)
    if any(bucket.counts.missed for bucket in series):
        colors = {"late": "line1", "skipped": "line4", "failed": "line3", "unfinished": "line6"}
        amounts = {
            kind: [100 * getattr(b.counts, kind) / (b.counts.due or 1) for b in series]
            for kind in colors
        }
        kinds = [Series(kind, color, "") for kind, color in colors.items() if any(amounts[kind])]
        points = tuple(_stacked(series, {each.name: amounts[each.name] for each in kinds}))
        y = Axis(ends=(0.0, max([1.0, *(point.high or 0.0 for point in points)])), ticks=2)
        title = (axis("missed"),)
        yield Chart(x, y, (Layer("rect", points),), tuple(kinds), height=46, title=title)
    lag = zip(_middles(digest), _finite(bucket.lag_p99_ms for bucket in series), strict=True)
    yield _strip(axis("lag_p99"), lag, x, color="line6")


def _machine_charts(digest: Digest) -> Iterator[Chart]:
    x = _seconds(digest)
    for number, track in enumerate(_moving(digest)[:_TRACKS_MAX]):
        pairs = zip(_middles(digest), track.values, strict=True)
        yield _strip(_track_name(track), pairs, x, color=f"line{2 + number % 4}")
    for source, tracks in _waits(digest).items():
        node, _, _ = source.rpartition("/")
        amounts = {shown(track.name): track.values for track in tracks}
        names = tuple(
            Series(name, f"line{number % SERIES_MAX}", "") for number, name in enumerate(amounts)
        )
        points = tuple(_stacked(digest.series, amounts))
        title = (f"{shown(node)}: {_WAITS_TITLE}" if node else _WAITS_TITLE,)
        y = Axis(ends=(0.0, None), ticks=3, zero=True, nice=True)
        yield Chart(x, y, (Layer("rect", points),), names, height=80, title=title)


def _end(bucket: Bucket) -> float:
    return float(bucket.start_s + bucket.seconds)


def _latency_chart(digest: Digest, x: Axis) -> Chart:
    series = digest.series
    bands = [
        list(zip(_middles(digest), _finite(values), strict=True))
        for values in zip(*((b.p50_ms, b.p95_ms, b.p99_ms) for b in series), strict=True)
    ]
    values = [value for band in bands for _, value in band if value]
    limit_ns = digest.trial.plan.limit_ns
    limit = limit_ns / 1e6 if limit_ns else None
    places = [*values, *([limit] if limit else [])] or [1.0]
    least, most = min(places), max(places)
    log = most / least > 5
    ends = (least * 0.85, most * 1.6) if log else (0.0, most * 1.18)
    form = "~s" if most >= 1e4 else ""
    y = Axis("", scale="log" if log else "linear", ends=ends, ticks=4, format=form)
    layers: list[Layer] = []
    if digest.summary.cut_s:
        cut = (Point(0.0, end=float(digest.summary.cut_s)),)
        layers.append(Layer("rect", cut, "muted", opacity=0.15))
    for lower, upper, opacity in ((bands[0], bands[1], 0.28), (bands[1], bands[2], 0.14)):
        points = tuple(
            Point(at, low=None if high is None else low, high=high)
            for (at, low), (_, high) in zip(lower, upper, strict=True)
        )
        layers.append(Layer("area", points, "line0", opacity=opacity))
    lines = tuple(
        Point(at, value, dash=name)
        for name, band in zip(_BANDS, bands, strict=True)
        for at, value in band
    )
    layers.append(Layer("line", lines, "line0", size=1.3))
    if limit:
        layers += bound(limit, "limit")
    return Chart(x, y, tuple(layers), dashes=_BANDS, height=150, title=(axis("latency"),))


def _stacked(
    series: Sequence[Bucket], amounts: Mapping[str, Sequence[float | None]]
) -> Iterator[Point]:
    for at, bucket in enumerate(series):
        low, start = 0.0, float(bucket.start_s)
        for name, values in amounts.items():
            if amount := values[at] or 0.0:
                yield Point(start, end=_end(bucket), low=low, high=low + amount, series=name)
            low += amount


def _strip(
    title: str, pairs: Iterable[tuple[float, float | None]], x: Axis, *, color: str
) -> Chart:
    points = tuple(Point(second, value) for second, value in pairs)
    large = any(point.y is not None and float(point.y) >= _LARGE for point in points)
    y = Axis(ticks=2, format="~s" if large else "", zero=True, nice=True)
    return Chart(x, y, (Layer("line", points, color, size=1.2),), height=40, title=(title,))


def _distribution(row: Row, number: int) -> Iterator[Figure]:
    def answered(digest: Digest) -> bool:
        counts = digest.summary.counts
        return 2 * (counts.on_time + counts.late) >= counts.due

    able = [digest for digest in row.trials if digest.latency and answered(digest)][:_TRIALS_MAX]
    if not able:
        return
    more = len(row.trials) - len(able)
    left = f" ({len(able)} of {len(row.trials)} trials)" if more else ""
    shares = [0.5, 0.9, 0.99, 0.999, 0.9999]
    curves = [
        (trial_name(digest), kind, curve)
        for digest in able
        for kind, curve in (("latency", digest.latency), ("lag", digest.lag))
    ]
    table = tuple(
        (
            name,
            kind,
            *(
                next((ms(value) for at, value in curve if at >= share - 1e-9), NOT_KNOWN)
                for share in shares
            ),
        )
        for name, kind, curve in curves
    )
    points = tuple(
        Point(-math.log10(1 - share), value, series=name, dash=kind)
        for name, kind, curve in curves
        for share, value in curve
        if share < 1 and value
    )
    chart = Chart(
        Axis("% of what was due", ends=(0.0, 4.0), ticks=_TICKS, labels=_TICK_TEXTS, grid=True),
        Axis("ms", scale="log", nice=True),
        (Layer("line", points, size=1.6),),
        series([trial_name(digest) for digest in able]),
        dashes=("latency", "lag"),
        height=230,
    )
    yield Figure(
        f"distribution-{number}",
        f"Distribution of latency and lag{_of_cell(row)}",
        "share of what was due that was answered within a time (latency), or sent (lag); a line"
        f" ends where the rest was not answered{left}",
        ("trial", "time", *(f"{100 * share:g}% within, ms" for share in shares)),
        table,
        (chart,),
    )


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
    means = [each.mean for used in every for each in used if each.mean]
    values = [mean.value for mean in means if mean.value > 0]
    log = bool(values) and max(values) / min(values) > LOG_FROM
    top = max((each.high if each.estimable else each.value for each in means), default=0.0) or 1.0
    vertical = Axis(
        axis("mean"),
        scale="log" if log else "linear",
        ends=(min(values) * 0.5 if log else 0.0, top),
        zero=True,
        nice=not log,
    )
    main = axis_of(page)
    for number, (line, used) in enumerate(zip(lines, every, strict=True)):
        if used:
            name = words.line_name(line)
            yield _statement_figure(main, vertical, used, name=name, number=number)


def _statement_figure(
    main: MainAxis, vertical: Axis, used: Sequence[StatementRow], *, name: str, number: int
) -> Figure:
    floor = vertical.ends[0] or 0.0

    def point(each: StatementRow, mean: Estimate) -> Point:
        low, high = (mean.low, mean.high) if mean.estimable else (mean.value, mean.value)
        return Point(
            main.place(each.row),
            mean.value,
            low=max(low, floor),
            high=high,
            series=shown(each.name),
            filled=each.row.sound,
        )

    points = tuple(point(each, each.mean) for each in used if each.mean)
    chart = Chart(
        main.axis(each.row for each in used),
        vertical,
        (
            Layer("rule", points, opacity=0.75),
            *((Layer("line", points),) if main.step else ()),
            Layer("point", points, size=55),
        ),
        series(list(dict.fromkeys(shown(each.name) for each in used))),
        height=200,
    )
    table = tuple(
        (
            shown(crossing.shown_level(each.row, main.factor.name)) if main.factor else "all",
            shown(each.name),
            *estimate_texts(each.mean, ms),
        )
        for each in used
    )
    return Figure(
        f"statements-{number + 1}" if number else "statements",
        f"Mean time of each statement{f', {shown(name)}' if name else ''}",
        "by script and line; bars are 95% intervals",
        (shown(main.title), "statement", header("mean"), "95% interval"),
        table,
        (chart,),
    )
