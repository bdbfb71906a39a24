"""The charts of single cells: over time and as distributions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from pgpaces.analysis import waits
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Bucket, Digest, Track
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import above, cell_name
from pgpaces.core.messages import message
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import Datum, amounts, seconds, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, milliseconds, ms, or_dash, percent
from pgpaces.show.section import Figure, figure

CELLS_MAX, _LOADS_MAX = 24, 12
_TRACKS_MAX = 8
_ROWS_MAX = 60
_WAITS_TITLE = "sessions of the load and of others, by what they wait for"
_BANDS = ("p50", "p95", "p99")
_KINDS = ("late", "skipped", "failed", "unfinished")
# Percentiles that differ by more than this have a logarithmic axis.
_LOG_FROM = 5


def chosen(page: Page) -> tuple[Row, ...]:
    """The cells shown in detail: all, or those nearest to the threshold; of a search fewer.

    Without a limit the best, the worst, and the first of the table.
    """
    threshold = page.missed_max if page.limits else 0.0

    def distance(row: Row) -> float:
        return abs((row.missed.value if row.missed else 0.0) - threshold)

    able = [row for row in page.rows if row.trials]
    first = sorted(able, key=distance)
    if not page.limits:
        first = [*first[:1], *first[-1:], *able]
    most = _LOADS_MAX if page.searched else CELLS_MAX
    keys = list(dict.fromkeys(row.cell.key for row in first))[:most]
    return tuple(row for row in able if row.cell.key in keys)


def figures(row: Row, number: int) -> Iterator[Figure]:
    """The charts of a cell. number: of the cell in the page."""
    # If a command is the whole load, a single execution has no curve over time.
    by_command = all(digest.trial.workload.command_alone for digest in row.trials)
    digest = middle(row)
    about = trial_name(digest)
    if len(row.trials) > 1:
        about = message("chart-middle-trial", trial=about, count=len(row.trials))
    if digest.series and not by_command:
        yield _latency(digest, about, _of_cell(row), key=f"time-{number}")
    if digest.series and digest.tracks:
        yield from _machine(digest, about, _of_cell(row), key=f"machine-{number}")


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


def _machine(digest: Digest, about: str, of_cell: str, *, key: str) -> Iterator[Figure]:
    waiting = [t for t in digest.tracks if t.source.rpartition("/")[2] == waits.SOURCE]
    others = [track for track in digest.tracks if track not in waiting]
    moving = [track for track in others if len({*track.values} - {None}) > 1]
    tracks = [*moving[:_TRACKS_MAX], *waiting]
    if not tracks:
        return
    if still := [_track_name(track) for track in others if track not in moving]:
        about = message("chart-still", about=about, tracks=still)
    yield figure(
        key,
        message("chart-machine", of=of_cell),
        about,
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


def _latency(digest: Digest, about: str, of_cell: str, *, key: str) -> Figure:
    lost = any(bucket.p99_ms == math.inf for bucket in digest.series)
    cut_s, per = digest.summary.cut_s, digest.series[0].seconds
    left_out = message("chart-latency-cut", cut_s=cut_s) if cut_s else ""
    limit_ns, data = digest.trial.plan.limit_ns, list(_latency_rows(digest))
    limit = {"limit": limit_ns / 1e6} if limit_ns else {}
    places = [row[name] for row in data for name in _BANDS if row[name]] + [*limit.values()]
    cut = [{"cut": 0, "cut_end": cut_s}] if cut_s else []
    log = bool(places) and max(places) > _LOG_FROM * min(places)
    return figure(
        key,
        message("chart-latency", of=of_cell),
        message(
            "chart-latency-lost" if lost else "chart-latency-all",
            trial=about,
            seconds=per,
            cut=left_out,
        ),
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
