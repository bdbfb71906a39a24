"""A run over time: its latency, its misses, and what the server and its machine did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pgpaces.analysis import waits
from pgpaces.analysis.digest import Digest, Track
from pgpaces.answers import servers
from pgpaces.answers.trials import above
from pgpaces.core.messages import message
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import Datum, amounts, seconds, series
from pgpaces.show.escape import line as shown
from pgpaces.show.number_text import NOT_KNOWN, milliseconds, or_dash, percent
from pgpaces.show.section import Figure, Section, figure
from pgpaces.spec.result import Observed

_TRACKS_MAX = 8
_ROWS_MAX = 60
_WAITS_TITLE = "sessions of the load and of others, by what they wait for"
_BANDS = ("p50", "p95", "p99")
_KINDS = ("late", "skipped", "failed", "unfinished")
# Percentiles that differ by more than this have a logarithmic axis.
_LOG_FROM = 5


def section(digest: Digest, observed: Sequence[Observed]) -> Section:
    figures: list[Figure] = []
    if digest.series:
        # If a command is the whole load, a single execution has no curve over time.
        figures = [] if digest.trial.workload.command_alone else [_latency(digest)]
        figures += _machine(digest)
    title, tables = message("title-over-time"), servers.tables(observed)
    return Section("details", title, figures=tuple(figures), tables=tables, rank="page")


def _latency(digest: Digest) -> Figure:
    """An infinite time ends a line; in the table it is above the limit."""
    cut_s, limit_ns, beyond = digest.summary.cut_s, digest.trial.plan.limit_ns, above(digest.trial)
    limit = {"limit": limit_ns / 1e6} if limit_ns else {}
    data = []
    for row, bucket in zip(_moments(digest), digest.series, strict=True):
        counts, due = bucket.counts, bucket.counts.due
        times = (bucket.p50_ms, bucket.p95_ms, bucket.p99_ms)
        lines = zip((*_BANDS, "lag"), (*times, bucket.lag_p99_ms), strict=True)
        row.update({name: None if value == math.inf else value for name, value in lines})
        row.update({kind: 100 * getattr(counts, kind) / (due or 1) for kind in _KINDS}, **limit)
        if "texts" in row:
            texts = (NOT_KNOWN if each is None else milliseconds(each, beyond) for each in times)
            missed = percent(counts.missed / due) if due else NOT_KNOWN
            row["texts"] += (str(due), *texts, missed, milliseconds(bucket.lag_p99_ms))
        data.append(row)
    places = [row[name] for row in data for name in (*_BANDS, *limit) if row[name]]
    cut = message("chart-latency-cut", cut_s=cut_s) if cut_s else ""
    return figure(
        "latency",
        message("chart-latency"),
        message("chart-latency-by", seconds=digest.series[0].seconds, cut=cut),
        columns=("second", "due", *map(header, (*_BANDS, "missed", "lag_p99"))),
        data=[*data, *([{"cut": 0, "cut_end": cut_s}] if cut_s else [])],
        template="latency",
        latency=axis("latency"),
        missed_title=axis("missed"),
        lag=axis("lag_p99"),
        x=seconds(data[-1]["end"]),
        y=amounts("", log=bool(places) and max(places) > _LOG_FROM * min(places), tickCount=4),
        lines=[*_BANDS, *limit],
        missed=[kind for kind in _KINDS if any(row[kind] for row in data)],
        **series(_BANDS, limit="limit" if limit else "", colors=["line0"] * len(_BANDS)),
    )


def _machine(digest: Digest) -> Iterator[Figure]:
    """A line for each series that moved; waits are stacked."""
    waiting = [t for t in digest.tracks if t.source.rpartition("/")[2] == waits.SOURCE]
    moving = [t for t in digest.tracks if t not in waiting and len({*t.values} - {None}) > 1]
    tracks = [*moving[:_TRACKS_MAX], *waiting]
    if not tracks:
        return
    data = []
    for at, row in enumerate(_moments(digest)):
        if "texts" in row:
            texts = (or_dash(track.values[at], "{:.4g}".format) for track in tracks)
            data.append({"texts": (*row.pop("texts"), *texts)})
        for order, track in enumerate(tracks):
            data.append(row | _value(track, track.values[at]) | {"order": order})
    yield figure(
        "machine",
        message("chart-machine"),
        message("chart-machine-moving"),
        columns=("second", *map(_track_name, tracks)),
        data=data,
        template="strips",
        height=44,
        x=seconds(digest.series[-1].start_s + digest.series[-1].seconds),
        y=amounts("", short=True, tickCount=2),
        **series(list(dict.fromkeys(shown(track.name) for track in waiting))),
    )


def _value(track: Track, value: float | None) -> Datum:
    node, _, source = track.source.rpartition("/")
    if source != waits.SOURCE:
        return {"panel": _track_name(track), "value": value}
    panel = f"{shown(node)}: {_WAITS_TITLE}" if node else _WAITS_TITLE
    return {"panel": panel, "series": shown(track.name), "amount": value or 0.0}


def _track_name(track: Track) -> str:
    unit = f", {track.unit}" if track.unit else ""
    return shown(f"{track.source} {track.name}{unit}")


def _moments(digest: Digest) -> Iterator[dict[str, Any]]:
    """The place of each bucket; every n-th begins a row of the table, of at most _ROWS_MAX."""
    step = -(-len(digest.series) // _ROWS_MAX)
    for at, bucket in enumerate(digest.series):
        start, length = bucket.start_s, bucket.seconds
        texts = {} if at % step else {"texts": (str(start),)}
        yield {"start": start, "at": start + length / 2, "end": start + length, **texts}
