"""The charts of single cells and of statements: over time, as distributions, across cells.

Vega-Lite specifications as data, as in sweep/charts.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pgpaces.answers import bulk, crossing, waits
from pgpaces.answers.cells import Row
from pgpaces.answers.digest import Bucket, Digest, Track
from pgpaces.answers.statements import StatementRow
from pgpaces.questions.sweep import words
from pgpaces.questions.sweep.axes import (
    LINES_MAX,
    Axis,
    axis_of,
    legend_columns,
    legend_height,
    panels,
)
from pgpaces.questions.sweep.page import Page
from pgpaces.report.escape import line as shown
from pgpaces.report.look import DASHES, NUMBER, ONCE, SHAPES, WIDTH, Look
from pgpaces.report.numbers import interval, milliseconds, percent
from pgpaces.section import Figure

CELLS_MAX = 24
_TRIALS_MAX = 7
_TRACKS_MAX = 8
_STATEMENT_PANELS_MAX = 4
_PLOT = WIDTH - 70
_ROWS_MAX = 60
_WAITED = "sessions of the load and of others, by what they wait for"
_BANDS = ("median", "95 %", "99 %")
# Up to 99.99 %, in decades of what is left.
_TICKS = (0, 0.30103, 1, 2, 3, 4)
_TICK_TEXT = (
    "datum.value < 0.1 ? '0' : datum.value < 0.5 ? '50' : datum.value < 1.5 ? '90' :"
    " datum.value < 2.5 ? '99' : datum.value < 3.5 ? '99.9' : '99.99'"
)


@dataclass(frozen=True, slots=True)
class Closeup:
    """One cell in detail: its charts."""

    row: Row
    figures: tuple[Figure, ...]


def chosen(page: Page) -> tuple[Row, ...]:
    """The cells that are shown in detail: all, or where they are many those about the crossing.

    Then the best and the worst, then as many as there is room for, in the order of the table.
    """
    able = [row for row in page.rows if row.trials]
    if len(able) <= CELLS_MAX:
        return tuple(able)
    wanted: list[Row | None] = []
    for line in page.lines:
        found = crossing.find_crossing(line, page.missed_max)
        wanted += [found.broke, found.held, *found.unknown[:1]]
    by_missed = sorted(able, key=lambda row: row.missed.value if row.missed else 0.0)
    wanted += [by_missed[0], by_missed[-1], *able]
    keys = dict.fromkeys(row.cell.key for row in wanted if row is not None and row.trials)
    kept = set(list(keys)[:CELLS_MAX])
    return tuple(row for row in able if row.cell.key in kept)


def closeups(page: Page) -> Iterator[Closeup]:
    """The charts of the cells that are shown in detail."""
    places = {row.cell.key: number for number, row in enumerate(page.rows, 1)}
    for row in chosen(page):
        number = places[row.cell.key]
        found = [_over_time(row, number), None if _by_command(row) else _distribution(row, number)]
        yield Closeup(row, tuple(figure for figure in found if figure))


def _by_command(row: Row) -> bool:
    """Whether its trials are of nothing but a command: of one execution there is no curve."""
    return all(bulk.alone(digest.trial) for digest in row.trials)


def middle(row: Row) -> Digest:
    """The trial that stands for a cell: the middle one by its p95, the earlier of two."""
    able = [digest for digest in row.trials if digest.series] or list(row.trials)

    def p95(digest: Digest) -> float:
        found = digest.summary.latency.p95
        return found.value if found else 0.0

    ranked = sorted(able, key=p95)
    return ranked[(len(ranked) - 1) // 2]


def trial_name(digest: Digest) -> str:
    """A trial in a legend: its block, and its machine if there is one."""
    place = digest.trial.place
    if place is None:
        return digest.trial.id[-6:]
    target = place.levels.get("target")
    again = f", attempt {place.attempt}" if place.attempt > 1 else ""
    return shown(f"trial {place.block}{again}" + (f" on {target}" if target else ""))


def _over_time(row: Row, number: int) -> Figure | None:
    digest = middle(row)
    if not digest.series:
        return None
    several = f" of {len(row.trials)}, the middle one by p95" if len(row.trials) > 1 else ""
    seconds = digest.series[0].seconds
    about = (
        f"{trial_name(digest)}{several}; percentiles of what succeeded, per {seconds} s of due time"
    )
    if digest.summary.cut_s:
        about += f"; the first {digest.summary.cut_s} s are left out of the answer as warm-up"
    tracks = [*_moving(digest)[:_TRACKS_MAX], *(t for ts in _waits(digest).values() for t in ts)]
    moving = _moving(digest)
    still = [_track_name(t) for t in digest.tracks if t not in moving and not _waited(t)]
    if still:
        about += f"; the same all the time: {', '.join(still)}"
    of_load = ("due", *(f"{name}, ms" for name in _BANDS), "missed %", "p99 lag, ms")
    columns = ("second", *of_load, *(_track_name(track) for track in tracks))
    table, what = tuple(_time_rows(digest, tracks)), "Latency over time"
    if _by_command(row):
        if not tracks:
            return None
        columns = (columns[0], *columns[1 + len(of_load) :])
        table = tuple((cells[0], *cells[1 + len(of_load) :]) for cells in table)
        what, about = "Server and machine over time", f"{trial_name(digest)}{several}"
    return Figure(
        f"time-{number}",
        f"{what}, {shown(words.cell_name(row))}",
        about,
        columns,
        table,
        lambda look: _time_marks(digest, look),
    )


def _moving(digest: Digest) -> list[Track]:
    """What sensors read, but for what stayed the same."""
    return [t for t in digest.tracks if len({*t.values} - {None}) > 1 and not _waited(t)]


def _waited(track: Track) -> bool:
    """Whether it is of wait events: those have a chart of their own."""
    return track.source.rpartition("/")[2] == waits.SOURCE


def _waits(digest: Digest) -> dict[str, list[Track]]:
    """Wait events of each server, by its source."""
    found: dict[str, list[Track]] = {}
    for track in digest.tracks:
        if _waited(track):
            found.setdefault(track.source, []).append(track)
    return found


def _track_name(track: Track) -> str:
    unit = f", {track.unit}" if track.unit else ""
    return shown(f"{track.source} {track.name}{unit}")


def _time_rows(digest: Digest, tracks: Sequence[Track]) -> Iterator[tuple[str, ...]]:
    """At most so many rows that one can go through them: every n-th bucket."""
    step = -(-len(digest.series) // _ROWS_MAX)
    for at in range(0, len(digest.series), step):
        bucket = digest.series[at]
        due = bucket.counts.due
        yield (
            str(bucket.start_s),
            str(due),
            *(milliseconds(v, "-") for v in (bucket.p50_ms, bucket.p95_ms, bucket.p99_ms)),
            percent(bucket.counts.missed / due) if due else "-",
            milliseconds(bucket.lag_p99_ms, "-"),
            *(_number(track.values[at]) for track in tracks),
        )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _time_marks(digest: Digest, look: Look) -> dict[str, Any]:
    series = digest.series
    end = series[-1].start_s + series[-1].seconds
    x = {
        "field": "s",
        "type": "quantitative",
        "scale": {"domain": [0, end], "nice": False},
        "axis": {"title": None, "labels": False, "ticks": False, "grid": True, "tickCount": 6},
    }
    middles = [bucket.start_s + bucket.seconds / 2 for bucket in series]
    parts = [] if bulk.alone(digest.trial) else [_latency_part(digest, x, look)]
    if parts and any(bucket.counts.missed for bucket in series):
        parts.append(_missed_part(series, x, look))
    if parts:
        lag = list(zip(middles, (bucket.lag_p99_ms for bucket in series), strict=True))
        parts.append(_strip("p99 schedule lag, ms", lag, x, look.lines[6]))
    for number, track in enumerate(_moving(digest)[:_TRACKS_MAX]):
        pairs = list(zip(middles, track.values, strict=True))
        parts.append(_strip(_track_name(track), pairs, x, look.lines[2 + number % 4]))
    parts += [_waits_part(digest, source, x, look) for source in _waits(digest)]
    last = parts[-1]
    for layer in last.get("layer", [last]):
        if "x" in layer.get("encoding", {}):
            axis = {"title": "seconds from the start", "tickCount": 6, "grid": True}
            layer["encoding"]["x"] = {**x, "axis": axis}
    return {"vconcat": parts, "spacing": 12, "resolve": {"scale": {"color": "independent"}}}


def _latency_part(digest: Digest, x: dict[str, Any], look: Look) -> dict[str, Any]:
    names = ("p50_ms", "p95_ms", "p99_ms")
    found = [getattr(b, name) for b in digest.series for name in names]
    values = [value for value in found if value]
    limit_ns = digest.trial.plan.get("limit_ns")
    limit = limit_ns / 1e6 if limit_ns else None
    reach = [*values, *([limit] if limit else [])]
    log = bool(reach) and max(reach) / min(reach) > 5
    scale: dict[str, Any] = {"type": "log" if log else "linear", "nice": False}
    if reach:
        scale["domain"] = [min(reach) * 0.85 if log else 0, max(reach) * (1.6 if log else 1.18)]
    axis = {"title": None, "format": "~s" if max(reach, default=0) >= 1e4 else NUMBER}
    y = {"type": "quantitative", "scale": scale, "axis": {**axis, "tickCount": 4}}
    bands = [
        {"s": b.start_s + b.seconds / 2, "p50": b.p50_ms, "p95": b.p95_ms, "p99": b.p99_ms}
        for b in digest.series
    ]
    lines = [
        {"s": b.start_s + b.seconds / 2, "y": getattr(b, field), "band": name}
        for field, name in zip(names, _BANDS, strict=True)
        for b in digest.series
    ]
    layers: list[dict[str, Any]] = []
    if digest.summary.cut_s:
        ends = {"x": {**x, "datum": 0}, "x2": {"datum": digest.summary.cut_s}}
        ends["x"].pop("field")
        mark = {"type": "rect", "color": look.muted, "opacity": 0.15}
        layers.append({"data": ONCE, "mark": mark, "encoding": ends})
    for low, high, opacity in (("p50", "p95", 0.28), ("p95", "p99", 0.14)):
        mark = {"type": "area", "color": look.lines[0], "opacity": opacity}
        ends = {"y": {**y, "field": low}, "y2": {"field": high}}
        layers.append({"data": {"values": bands}, "mark": mark, "encoding": {"x": x, **ends}})
    legend = {"title": None, "orient": "top", "columns": 3, "offset": 2, "symbolSize": 420}
    dash = {"domain": list(_BANDS), "range": list(DASHES[:3])}
    layers.append(
        {
            "data": {"values": lines},
            "mark": {"type": "line", "strokeWidth": 1.3, "color": look.lines[0]},
            "encoding": {
                "x": x,
                "y": {**y, "field": "y"},
                "strokeDash": {"field": "band", "scale": dash, "legend": legend},
            },
        }
    )
    if limit:
        rule = {"type": "rule", "color": look.alarm, "strokeDash": [5, 4]}
        layers.append({"data": ONCE, "mark": rule, "encoding": {"y": {**y, "datum": limit}}})
        text = {"type": "text", "text": "limit", "align": "left", "dx": 3, "dy": -6}
        at = {"y": {**y, "datum": limit}, "x": {"value": 0}}
        mark = {**text, "color": look.alarm, "fontSize": 11}
        layers.append({"data": ONCE, "mark": mark, "encoding": at})
    return {"title": "latency, ms", "width": _PLOT, "height": 150, "layer": layers}


def _missed_part(series: Sequence[Bucket], x: dict[str, Any], look: Look) -> dict[str, Any]:
    kinds = {"late": 1, "skipped": 4, "failed": 3, "unfinished": 6}
    values = []
    for bucket in series:
        height = 0.0
        for kind in kinds if bucket.counts.due else ():
            share = 100 * getattr(bucket.counts, kind) / bucket.counts.due
            ends = {"s": bucket.start_s, "e": bucket.start_s + bucket.seconds}
            if share:
                values.append({**ends, "kind": kind, "y": height, "y2": height + share})
            height += share
    top = max((100 * b.counts.missed / b.counts.due for b in series if b.counts.due), default=0.0)
    had = [kind for kind in kinds if any(value["kind"] == kind for value in values)] or ["late"]
    colours = [look.lines[kinds[kind]] for kind in had]
    legend = {"title": None, "orient": "top", "columns": 4, "offset": 2, "symbolType": "square"}
    return {
        "title": "missed, % of due",
        "width": _PLOT,
        "height": 46,
        "data": {"values": values},
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            "x": x,
            "x2": {"field": "e"},
            "y": {
                "field": "y",
                "type": "quantitative",
                "scale": {"domain": [0, max(1.0, top)], "nice": False},
                "axis": {"title": None, "tickCount": 2, "format": NUMBER},
            },
            "y2": {"field": "y2"},
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": had, "range": colours},
                "legend": legend if values else None,
            },
        },
    }


def _strip(
    title: str, pairs: Sequence[tuple[float, float | None]], x: dict[str, Any], colour: str
) -> dict[str, Any]:
    values = [{"s": second, "y": value} for second, value in pairs]
    axis = {"title": None, "tickCount": 2, "format": "~s"}
    return {
        "title": title,
        "width": _PLOT,
        "height": 40,
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 1.2, "color": colour},
        "encoding": {"x": x, "y": {"field": "y", "type": "quantitative", "axis": axis}},
    }


def _waits_part(digest: Digest, source: str, x: dict[str, Any], look: Look) -> dict[str, Any]:
    """Sessions in each wait event, one upon the other."""
    node, _, _ = source.rpartition("/")
    tracks = _waits(digest)[source]
    names = [shown(track.name) for track in tracks]
    values = []
    for at, bucket in enumerate(digest.series):
        height = 0.0
        for track, name in zip(tracks, names, strict=True):
            sessions = track.values[at]
            if sessions:
                ends = {"s": bucket.start_s, "e": bucket.start_s + bucket.seconds}
                values.append({**ends, "event": name, "y": height, "y2": height + sessions})
            height += sessions or 0.0
    colours = [look.lines[n % len(look.lines)] for n in range(len(names))]
    legend = {"title": None, "orient": "top", "columns": 3, "offset": 2, "symbolType": "square"}
    y_axis = {"title": None, "tickCount": 3, "format": NUMBER}
    color = {
        "field": "event",
        "type": "nominal",
        "scale": {"domain": names, "range": colours},
        "legend": legend,
    }
    return {
        "title": f"{shown(node)}: {_WAITED}" if node else _WAITED,
        "width": _PLOT,
        "height": 80,
        "data": {"values": values},
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            "x": x,
            "x2": {"field": "e"},
            "y": {"field": "y", "type": "quantitative", "axis": y_axis},
            "y2": {"field": "y2"},
            "color": color,
        },
    }


def _distribution(row: Row, number: int) -> Figure | None:
    able = [digest for digest in row.trials if digest.latency][:_TRIALS_MAX]
    if not able:
        return None
    more = len(row.trials) - len(able)
    left = f" (the first {len(able)} of {len(row.trials)} trials)" if more else ""
    at = [0.5, 0.9, 0.99, 0.999, 0.9999]
    table = tuple(
        (trial_name(digest), kind, *(_at(curve, share) for share in at))
        for digest in able
        for kind, curve in (("latency", digest.latency), ("lag", digest.lag))
    )
    columns = ("trial", "time", *(f"{100 * share:g} % within, ms" for share in at))
    about = (
        "share of what was due that was answered within a time (latency), or sent (lag); a line"
        f" ends where the rest was not answered{left}"
    )
    return Figure(
        f"distribution-{number}",
        f"Distribution of latency and lag, {shown(words.cell_name(row))}",
        about,
        columns,
        table,
        lambda look: _distribution_marks(able, look),
    )


def _at(curve: Sequence[tuple[float, float | None]], share: float) -> str:
    found = [ms for at, ms in curve if at >= share - 1e-9]
    return milliseconds(found[0], "-") if found else "-"


def _distribution_marks(digests: Sequence[Digest], look: Look) -> dict[str, Any]:
    names = [trial_name(digest) for digest in digests]
    values = [
        {"x": -math.log10(1 - share), "y": ms, "line": name, "kind": kind}
        for digest, name in zip(digests, names, strict=True)
        for kind, curve in (("latency", digest.latency), ("lag", digest.lag))
        for share, ms in curve
        if share < 1 and ms
    ]
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": {"type": "log", "nice": True},
        "axis": {"title": "ms", "format": NUMBER, "tickCount": 5},
    }
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"domain": [0, 4], "nice": False},
        "axis": {
            "title": "% of what was due",
            "values": list(_TICKS),
            "labelExpr": _TICK_TEXT,
            "labelOverlap": False,
            "grid": True,
        },
    }
    kinds = {"domain": ["latency", "lag"], "range": [[1, 0], [3, 3]]}
    color = {"domain": names, "range": list(look.lines[: len(names)])}
    legend = {"title": None, "columns": legend_columns(names)} if len(names) > 1 else None
    return {
        "width": WIDTH - 8,
        "height": 230 + legend_height(names) + 24,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 1.6},
        "encoding": {
            "x": x,
            "y": y,
            "color": {"field": "line", "type": "nominal", "scale": color, "legend": legend},
            "strokeDash": {
                "field": "kind",
                "scale": kinds,
                "legend": {"title": None, "symbolSize": 420, "orient": "top", "offset": 2},
            },
        },
    }


def statements(page: Page) -> Iterator[Figure]:
    """Mean times of each statement over the main factor: a chart for each line of cells."""
    if len(page.rows) < 2 or not page.statements:
        return
    axis = axis_of(page)
    lines = [line for panel in panels(page)[0] for line in panel.lines]
    for number, line in enumerate(lines[:_STATEMENT_PANELS_MAX]):
        keys = {row.cell.key for row in line.rows}
        found = [each for each in page.statements if each.row.cell.key in keys and each.mean]
        busiest = _busiest(found)
        used = [each for each in found if each.name in busiest]
        if used:
            yield _statement_figure(axis, used, words.line_name(line), number)


def _busiest(found: Sequence[StatementRow]) -> list[str]:
    """The statements that take the most time in all, as many as lines can be told apart."""
    spent: dict[str, float] = {}
    for each in found:
        spent[each.name] = spent.get(each.name, 0.0) + (each.mean.value if each.mean else 0)
    return sorted(spent, key=lambda name: -spent[name])[:LINES_MAX]


def _statement_figure(axis: Axis, used: Sequence[StatementRow], name: str, number: int) -> Figure:
    suffix = f"-{number + 1}" if number else ""
    where = f", {shown(name)}" if name else ""
    table = tuple(
        (
            shown(crossing.level_of(each.row, axis.factor.name)) if axis.factor else "all",
            shown(each.name),
            milliseconds(each.mean.value, "-") if each.mean else "-",
            interval(each.mean, lambda ms: milliseconds(ms, "-")) if each.mean else "-",
        )
        for each in used
    )
    return Figure(
        f"statements{suffix}",
        f"Mean time of each statement{where}",
        "by script and line; bars are 95 % intervals",
        (shown(axis.title), "statement", "mean, ms", "95 % interval"),
        table,
        lambda look: _statement_marks(axis, used, look),
    )


def _statement_marks(axis: Axis, used: Sequence[StatementRow], look: Look) -> dict[str, Any]:
    names = list(dict.fromkeys(shown(each.name) for each in used))
    values: list[dict[str, Any]] = [
        {
            "x": axis.place(each.row),
            "line": shown(each.name),
            "y": each.mean.value,
            "low": each.mean.low if each.mean.estimable else each.mean.value,
            "high": each.mean.high if each.mean.estimable else each.mean.value,
            "sound": each.row.sound,
        }
        for each in used
        if each.mean
    ]
    means = [each.mean.value for each in used if each.mean and each.mean.value > 0]
    log = bool(means) and max(means) / min(means) > 20
    floor = min(means) * 0.5 if log else 0.0
    for value in values:
        value["low"] = max(value["low"], floor)
    x = axis.encoding(each.row for each in used)
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": {"type": "log", "domainMin": floor} if log else {"type": "linear", "zero": True},
        "axis": {"title": "mean, ms", "format": NUMBER},
    }
    legend = {"title": None, "columns": legend_columns(names)} if len(names) > 1 else None
    color = {"domain": names, "range": list(look.lines[: len(names)])}
    shape = {"domain": names, "range": list(SHAPES[: len(names)])}
    base = {
        "x": x,
        "y": y,
        "color": {"field": "line", "type": "nominal", "scale": color, "legend": legend},
    }
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    fill = {"condition": {"test": "datum.sound", "value": 1}, "value": 0}
    points = {
        **base,
        "shape": {"field": "line", "scale": shape, "legend": legend},
        "fill": {**base["color"], "legend": None},
        "fillOpacity": fill,
    }
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 1.6, "opacity": 0.75},
            "encoding": {**base, **ends},
        },
        {"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": base},
        {"mark": {"type": "point", "size": 55, "opacity": 1}, "encoding": points},
    ]
    return {
        "width": WIDTH - 8,
        "height": 200 + legend_height(names),
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": values},
        "layer": layers if axis.step else [layers[0], layers[2]],
    }
