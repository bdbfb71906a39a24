"""What was seen of servers: a few lines in the answer, tables and a chart in the report."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from pgpaces.analysis.digest import WAITS_MAX, Digest, Track, digest
from pgpaces.answers import over_time, servers
from pgpaces.core.series import Sample
from pgpaces.spec.result import Blocked, Executed, Grown, Moved, Observed, WaitEvent, Waits
from tests.unit import trials
from tests.unit.sensors import collect

WAITS = Waits(
    100,
    (WaitEvent("load", "CPU", "", 30), WaitEvent("load", "Lock", "tuple", 90),
     WaitEvent("others", "IO", "DataFileRead", 5)),
)  # fmt: skip
SEEN = Observed(
    moved=(Moved("wal", "written", 3 * 2**20, "B"), Moved("database", "deadlocks", 0.0)),
    executed=(
        Executed("UPDATE t SET x = $1", True, 100, 900.0, 100, 5, 2, 4096),
        Executed("VACUUM", False, 1, 100.0, 0, 9, 9),
    ),
    grown=(
        Grown("public.t", "table", 8192, 5 * 2**20, 3, 1700),
        Grown("public.t_pkey", "index", 16384, 24576),
        Grown("public.u_pkey", "index", 16384, 16384),
    ),
    blocked=(
        Blocked("load", "Lock:tuple", "ExclusiveLock", "psql", "idle in transaction", "UPDATE t",
                7, 2, 9),
        Blocked("load", "Lock:tuple", "", "load", "", "", 1, 3, 3),
    ),
    waits=WAITS,
)  # fmt: skip


def said(*observed: Observed) -> list[str]:
    return list(servers.lines(replace(trials.trial([]), observed=observed)))


def test_the_answer_has_a_few_lines_of_each_server():
    lines = said(SEEN)
    kinds = ["observed-sessions", "observed-blocked", "observed-growth", "observed-statements"]
    assert [each.name for each in lines] == kinds
    assert lines[0].values["means"]["Lock:tuple"] == "0.9"
    sizes = {"relation": "public.t", "before_bytes": 8192, "after_bytes": 5 << 20}
    assert sizes.items() <= lines[2].values.items()
    lines = said(replace(SEEN, node="primary"), replace(SEEN, node="standby1"))
    assert [each.values["node"] for each in lines] == ["primary"] * 4 + ["standby1"] * 4


def test_where_nothing_was_seen_nothing_is_said():
    assert said() == said(Observed()) == []
    few = Waits(100, (WaitEvent("load", "CPU", "", 1),))
    assert said(Observed(waits=few)) == [], "one session in a hundred looks has no shares"


def test_the_report_has_a_table_for_each_thing_and_none_for_what_was_not_seen():
    found = {table.key: table for table in servers.tables((SEEN,))}
    assert list(found) == ["waits", "blocked", "grown", "executed", "moved"]
    assert all(len(row) == len(table.columns) for table in found.values() for row in table.rows)
    grown = [[cell.text for cell in row] for row in found["grown"].rows]
    assert grown[0] == ["public.t", "table", "8 KiB", "5 MiB", "+4.992 MiB", "3 to 1,700"]
    assert grown[1][4:] == ["+8 KiB", "–"]
    assert len(grown) == 2, "what did not change is left out"
    assert [[cell.text for cell in row] for row in found["moved"].rows] == [
        ["wal written", "3 MiB"]
    ], "what stayed is left out"
    assert found["waits"].rows[2][0].text == "others"
    assert servers.tables((Observed(),)) == ()
    assert servers.tables((replace(SEEN, node="standby1"),))[0].title.endswith("on standby1")


def seen(name: str, values: Sequence[float], source: str = "waits") -> list[Sample]:
    return [Sample(second, source, name, value, "sessions") for second, value in enumerate(values)]


def digested(samples: list[Sample]) -> Digest:
    trial = replace(trials.series([[1.0, 2.0]] * 20), samples=collect(samples))
    return digest(trial)


def tracks(found: Digest, source: str = "waits") -> dict[str, Track]:
    return {track.name: track for track in found.tracks if track.source == source}


def test_a_digest_tells_few_wait_events_apart_and_sums_up_the_rest():
    every = [s for n in range(10) for s in seen(f"LWLock:e{n}", [float(n + 1)] * 20)]
    standby = seen("CPU", [3.0] * 20, "standby1/waits")
    whole = digested([*every, *seen("other", [0.5] * 20), *standby])
    assert tracks(whole, "standby1/waits")["CPU"].values[0] == 3, "its waits are its own"
    found = tracks(whole)
    assert len(found) == WAITS_MAX + 1
    assert found["other"].values[0] == pytest.approx(1 + 2 + 3 + 4 + 0.5)
    assert found["LWLock:e9"].values == (10.0,) * 20
    assert "other" not in tracks(digested(seen("CPU", [1.0] * 20)))


def test_of_sources_with_dozens_of_samples_a_digest_has_what_charts_show():
    lag = [Sample(s, "replication", "standby1 replay_lag", 9.0 + s, "B") for s in range(20)]
    io = [Sample(s, "standby1/io", "client_read", 1.0 + s, "B/s") for s in range(20)]
    own = [Sample(s, "mine", "whatever", 1.0 + s) for s in range(20)]
    found = {(t.source, t.name) for t in digested([*lag, *io, *own]).tracks}
    assert found == {("replication", "standby1 replay_lag"), ("mine", "whatever")}


def test_the_page_of_a_run_shows_what_was_seen_and_stacks_waits():
    samples = [*seen("Lock:tuple", [2.0] * 20), *seen("CPU", [1.0] * 20)]
    hostile = replace(SEEN, grown=(Grown("<b>\x1b[31m", "table", 0, 9),))
    section = over_time.section(digested(samples), (hostile,))
    assert [each.title for each in section.tables].count("What grew") == 1
    latency, figure = section.figures
    assert not [name for name in latency.columns if "waits" in name]
    assert list(figure.columns[1:]) == ["waits Lock:tuple, sessions", "waits CPU, sessions"]
    first = [row for row in figure.data if "amount" in row and row["start"] == 0]
    assert [(row["series"], row["amount"]) for row in first] == [("Lock:tuple", 2), ("CPU", 1)]
    assert len({row["panel"] for row in first}) == 1, "in one chart"
