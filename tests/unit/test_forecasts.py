"""Forecasts of lines, and how they and trends are drawn; what runs of a series differ in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pgpaces.answers import cells, crossing, differences
from pgpaces.answers.compare import METRICS
from pgpaces.answers.digest import Digest, Track
from pgpaces.answers.forecast import Point, forecast
from pgpaces.answers.forecasts import LineForecast, busy, forecast_lines
from pgpaces.answers.trend import Trend, trend
from pgpaces.design import Design, Factor
from pgpaces.questions import forecast as forecasting
from pgpaces.questions import trend as trending
from pgpaces.report import draw
from pgpaces.report.style import DARK, LIGHT, PAGE
from pgpaces.section import Figure
from tests.unit.experiments import START, made
from tests.unit.test_forecast import points
from tests.unit.test_report_forms import NASTY
from tests.unit.test_trend import runs

PLAN = Design((Factor("clients", ("1", "2")),), trials=2)
DIGESTS = [made(slot, 12) for slot in PLAN.slots()]


def watched(digest: Digest, *tracks: tuple[str, str, float | None]) -> Digest:
    length = len(digest.series)
    made_ = tuple(Track(s, n, "%", (value,) * length) for s, n, value in tracks)
    return replace(digest, tracks=made_)


def test_what_was_in_use_is_read_of_the_processor_and_of_disks() -> None:
    found = watched(
        DIGESTS[0],
        ("host", "cpu_busy", 80.0),
        ("host", "disk_nvme0n1_busy", 130.0),
        ("host", "disk_nvme0n1_written", 5.0),
        ("host", "disk_sda_busy", None),
        ("checkpoints", "cpu_busy", 1.0),
    )
    assert busy(found) == {"the CPU": pytest.approx(0.8), "disk nvme0n1": 1.0}


def test_use_during_the_warm_up_does_not_count() -> None:
    digest = watched(DIGESTS[0], ("host", "cpu_busy", 50.0))
    cut = digest.series[3].start_s
    values = tuple(0.0 if bucket.start_s < cut else 50.0 for bucket in digest.series)
    digest = replace(
        digest,
        tracks=(replace(digest.tracks[0], values=values),),
        summary=replace(digest.summary, cut_s=cut),
    )
    assert busy(digest) == {"the CPU": pytest.approx(0.5)}


def test_a_line_has_a_point_for_each_trial_that_counts() -> None:
    broken = replace(DIGESTS[0], trial=replace(DIGESTS[0].trial, state="interrupted"))
    rows = cells.rows(PLAN.cells(), [broken, *DIGESTS[1:]])
    (found,) = forecast_lines(crossing.lines(rows, "clients"), "clients")
    assert sorted(point.load for point in found.points) in ([1, 1, 2], [1, 2, 2])
    assert found.left_out == 1
    assert found.largest == 2
    assert found.fit.refusal == "few loads"


def of(name: str = "", **more: Any) -> LineForecast:
    every = points(**more)
    levels = (("set.work_mem", name),) if name else ()
    return LineForecast(levels, "clients", tuple(every), forecast(every, bootstraps=200))


def refused() -> LineForecast:
    every = [Point(1, 10.0), Point(2, 19.0, {"the CPU": 0.2})]
    return LineForecast((), "users", tuple(every), forecast(every))


FOUND = {
    "peak": ([of()], None),
    "to": ([of()], 100.0),
    "lines": ([of("4MB"), of(NASTY, seed=2)], 150.0),
    "refused": ([refused()], None),
}


@pytest.mark.skipif(not draw.available(), reason="nothing can draw here")
@pytest.mark.parametrize("name", FOUND)
def test_forecasts_can_be_drawn(name: str) -> None:
    every, to = FOUND[name]
    section = forecasting.section(every, ("01A",), to)
    assert len(section.figures) == len(every)
    for figure in section.figures:
        for look in (LIGHT, DARK, PAGE):
            assert draw.picture(figure, "svg", look).startswith(b"<svg")
        assert "<script>" not in draw.inline(figure)


def test_a_curve_is_whole_where_it_was_tried_and_broken_beyond() -> None:
    (figure,) = forecasting.section([of()], ()).figures
    [whole, broken, *_] = [
        [float(point.x or 0) for point in layer.points]
        for layer in figure.charts[0].layers
        if layer.kind == "line"
    ]
    assert max(whole) == 128 == min(broken)
    assert max(broken) == pytest.approx(192)


def test_of_several_lines_the_most_important_is_said_by_name() -> None:
    section = forecasting.section([of("4MB"), of("64MB", seed=2)], ())
    assert [sentence.text.partition(":")[0] for sentence in section.sentences] == [
        "work_mem = 4MB",
        "work_mem = 64MB",
    ]
    assert [len(table.rows) for table in section.tables] == [2, 2]


def followed(found: Trend, count: int) -> Figure:
    every = runs([0.0] * count if not found.changes else LOGS)
    timed = (trending.Timed(f"R{n}", START + timedelta(days=n), run) for n, run in enumerate(every))
    series = trending.RunSeries(NASTY, METRICS["p95"], tuple(timed), found)
    return trending.section(series).figures[0]


LOGS = [*np.random.default_rng(1).normal(0, 0.01, 10), *np.random.default_rng(2).normal(1, 0.01, 9)]


@pytest.mark.skipif(not draw.available(), reason="nothing can draw here")
@pytest.mark.parametrize("logs", [LOGS, [0.0] * 3, [0.0]])
def test_trends_can_be_drawn(logs: list[float]) -> None:
    figure = followed(trend(runs(logs)), len(logs))
    assert draw.picture(figure, "svg", LIGHT).startswith(b"<svg")
    assert len(figure.rows) == len(logs)


def test_a_change_is_marked_where_its_level_begins() -> None:
    layers = followed(trend(runs(LOGS)), len(LOGS)).charts[0].layers
    (label,) = (each.points[0] for each in layers if each.kind == "text")
    at = START + timedelta(days=10)
    assert label.x == f"{at:%Y-%m-%dT%H:%M:%S}"
    assert label.text.endswith(" times")


def test_what_is_not_the_same_in_all_of_a_series_is_counted() -> None:
    server = DIGESTS[1].trial.server.but(version_text="17.6")
    one = replace(DIGESTS[1], trial=replace(DIGESTS[1].trial, server=server))
    alike = [d for d in DIGESTS if d.trial.plan.clients == one.trial.plan.clients][:1]
    found = {each.name: dict(each.values) for each in differences.among([one, *alike * 3])}
    assert found["PostgreSQL"] == {"17.6": 1, "PostgreSQL 18.6 on aarch64": 3}
    assert differences.among(alike * 3) == ()
    assert "PostgreSQL" not in {d.name for d in differences.among([one, *alike], ("server",))}
