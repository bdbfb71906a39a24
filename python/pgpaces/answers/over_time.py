"""A run over time: its latency, its misses, and what the server and its machine did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from pgpaces.analysis import waits
from pgpaces.analysis.digest import Bucket, Digest, Track
from pgpaces.answers import servers
from pgpaces.answers.trials import above
from pgpaces.core.messages import message
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import Datum, amounts, seconds, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, milliseconds, ms, or_dash, percent
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
    # If a command is the whole load, a single execution has no curve over time.
    drawn = digest.series and not digest.trial.workload.command_alone
    figures = (*([_latency(digest)] if drawn else []), *(_machine(digest) if digest.series else ()))
    title, tables = message("title-over-time"), servers.tables(observed)
    return Section("details", title, figures=figures, tables=tables, rank="page")


def _latency(digest: Digest) -> Figure:
    cut_s, data = digest.summary.cut_s, list(_latency_rows(digest))
    left_out = message("chart-latency-cut", cut_s=cut_s) if cut_s else ""
    limit_ns = digest.trial.plan.limit_ns
    limit = {"limit": limit_ns / 1e6} if limit_ns else {}
    places = [row[name] for row in data for name in _BANDS if row[name]] + [*limit.values()]
    cut = [{"cut": 0, "cut_end": cut_s}] if cut_s else []
    return figure(
        "latency",
        message("chart-latency"),
        message("chart-latency-by", seconds=digest.series[0].seconds, cut=left_out),
        columns=("second", "due", *map(header, (*_BANDS, "missed", "lag_p99"))),
        data=[*({**row, **limit} for row in data), *cut],
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


def _machine(digest: Digest) -> Iterator[Figure]:
    waiting = [t for t in digest.tracks if t.source.rpartition("/")[2] == waits.SOURCE]
    moving = [t for t in digest.tracks if t not in waiting and len({*t.values} - {None}) > 1]
    tracks = [*moving[:_TRACKS_MAX], *waiting]
    if not tracks:
        return
    yield figure(
        "machine",
        message("chart-machine"),
        message("chart-machine-moving"),
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
            own: Datum = {"panel": _track_name(track), "value": value}
            if source == waits.SOURCE:
                panel = f"{shown(node)}: {_WAITS_TITLE}" if node else _WAITS_TITLE
                own = {"panel": panel, "series": shown(track.name), "amount": value or 0.0}
            yield {"order": order, **_span(bucket), **own}


def _span(bucket: Bucket) -> Datum:
    start, length = bucket.start_s, bucket.seconds
    return {"start": start, "at": start + length / 2, "end": start + length}


def _track_name(track: Track) -> str:
    unit = f", {track.unit}" if track.unit else ""
    return shown(f"{track.source} {track.name}{unit}")


def _rows_at(digest: Digest) -> range:
    """The indexes of every n-th bucket, at most _ROWS_MAX."""
    return range(0, len(digest.series), -(-len(digest.series) // _ROWS_MAX))
