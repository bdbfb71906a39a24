"""The network between a load and its server: refused, silent, reset, dripping, half open."""

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands import ctrl_c
from tests.faults.breaking import NAME, SECOND_NS, backends, going_on, seconds_until_end, stopped
from tests.faults.network import Proxy
from tests.polls import each_poll
from tests.waiting import until

poll = each_poll
pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
PROTOCOLS = ("simple", "extended", "prepared")
# A run ends when its grace is over. What a busy machine and cancel requests may add:
# docs/explanation/method.md allows nothing, so this is only to tell a late end from none.
GRACE_S, SLACK = 1, 10

Proxies = Callable[[str, int], Proxy]


@pytest.fixture
def way(pg15, proxy):
    """A proxy before PostgreSQL, and the DSN through it."""
    between = proxy("127.0.0.1", pg15.port)
    return between, pg15.tcp(port=between.port, application_name=NAME)


def open_load(start_load: Any, dsn: str, **changes: Any) -> Any:
    ends = {"duration_ns": 2 * SECOND_NS, "grace_ns": GRACE_S * SECOND_NS}
    return going_on(start_load, dsn, **(ends | changes))


@pytest.mark.parametrize("load_model", ["open", pytest.param("closed", marks=pytest.mark.slow)])
def test_refused_connections_are_tried_again_until_they_are_not(way, start_load, load_model):
    between, dsn = way
    load = open_load(start_load, dsn, load=load_model, duration_ns=1000 * SECOND_NS,
                     grace_ns=5 * SECOND_NS)  # fmt: skip
    assert load.next()
    between.refuse()
    between.reset()
    assert load.next()
    assert load.next()  # a whole second without a server: arrivals go on being counted
    before = load.outcome.done
    between.accept()
    until(lambda: load.next() and load.outcome.done > before)
    done = stopped(load)
    assert done.disconnects == done.connects == done.outages == 4
    # A client that was idle at the reset loses its connection, and no transaction.
    assert done.failed.keys() == {"08006"} or (load_model == "open" and not done.failed)
    assert done.failed.get("08006", 0) <= 4
    assert (done.down, done.unfinished) == (0, 0)
    assert done.all_down_ns >= SECOND_NS
    assert done.all_down_ns <= done.some_down_ns <= done.outage_ns_max * 2
    if load_model == "open":
        assert done.late + done.on_time >= 100


@pytest.mark.parametrize("transport", ["tcp", pytest.param("tls", marks=pytest.mark.slow)])
def test_a_reset_connection_is_a_failure_and_an_outage(pg15, proxy, start_load, transport):
    between = proxy("127.0.0.1", pg15.port)
    dsn = getattr(pg15, transport)(port=between.port)
    load = open_load(start_load, dsn, load="closed", duration_ns=1000 * SECOND_NS)
    assert load.next()
    between.reset()
    until(lambda: load.next() and load.outcome.outages >= 4, "four outages")
    done = stopped(load)
    assert (set(done.failed), done.failed["08006"]) == ({"08006"}, 4)
    # The first of four to tell may have met the end before the reset.
    assert re.search("reset|closed the connection", done.messages["08006"])
    assert done.disconnects == done.outages == 4
    assert done.done > 50


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_bytes_that_drip_one_by_one_are_read(pg15, proxy, run_load, protocol, transport):
    between = proxy("127.0.0.1", pg15.port)
    between.drip()
    dsn = getattr(pg15, transport)(port=between.port)
    script = """\\set v random(1, 9)
BEGIN;
SELECT :v AS one, 'two' AS two \\gset x_
DO $$ BEGIN RAISE NOTICE 'n'; END $$;
SELECT :x_one / 0 ;
END;
"""
    done = run_load(dsn, script, clients=2, transactions=3, protocol=protocol)
    assert (done.due, done.failed) == (6, {"22012": 6})
    done = run_load(dsn, "SELECT 1;\nSELECT 2;", clients=2, transactions=3, protocol=protocol)
    assert (done.on_time, done.failed) == (6, {})


def test_what_waits_in_a_silent_network_is_served_late_and_nothing_fails(way, start_load):
    between, dsn = way
    load = open_load(start_load, dsn, limit_ns=SECOND_NS // 5, duration_ns=3 * SECOND_NS,
                     grace_ns=10 * SECOND_NS)  # fmt: skip
    assert load.next()
    between.silence()
    assert load.next()
    assert load.next()
    between.speak()
    done = load.finish()
    assert (done.due, done.unfinished, done.failed) == (150, 0, {})
    assert done.late >= 30
    assert done.disconnects == done.some_down_ns == 0


@pytest.mark.parametrize("cut", ["silence", pytest.param("half_open", marks=pytest.mark.slow)])
def test_a_network_that_swallows_everything_ends_with_the_grace_period(way, start_load, cut):
    between, dsn = way
    load = open_load(start_load, dsn, duration_ns=4 * SECOND_NS)
    assert load.next()
    getattr(between, cut)()
    done, seconds = seconds_until_end(load)
    assert (done.due, done.failed) == (200, {})
    assert done.unfinished >= 40
    assert seconds < SLACK * (3 + GRACE_S)
    between.speak()


@pytest.mark.slow
def test_a_network_that_swallows_everything_is_an_outage(way, tmp_path, pgpaces_home):
    """The sensor's sessions wait as well, so it is not the transactions that take long."""
    import pgpaces
    from pgpaces.core.record import Interval
    from pgpaces.trial.listener import Listener

    between, dsn = way

    class Ear(Listener):
        def interval(self, interval: Interval) -> None:
            if interval.second == 1:
                between.silence()

    script = tmp_path / "quick.sql"
    script.write_text("SELECT 1;")
    try:
        result = pgpaces.run(
            files=[script], target=dsn, rate="50/s", clients=4, latency_limit="100ms",
            duration=4, warmup=0, store=tmp_path / "results.db", listener=Ear(),
        )  # fmt: skip
    finally:
        between.speak()
    assert result.counts.unfinished >= 50
    assert result.counts.on_time >= 50
    names = [each.name for each in result.validity.findings if "silent" in each.name]
    assert names == ["server-gone-silent"]
    assert result.validity.state == "invalid"


@pytest.mark.slow
def test_a_login_that_stalls_is_given_up_and_tried_again(way, start_load):
    """The server takes the connection and says nothing: that must not hold the client for ever."""
    between, dsn = way
    load = open_load(start_load, f"{dsn} connect_timeout=2", duration_ns=1000 * SECOND_NS,
                     grace_ns=10 * SECOND_NS)  # fmt: skip
    assert load.next()
    between.silence()
    between.reset()
    accepted = between.accepted
    until(lambda: load.next() and between.accepted >= accepted + 5, "a second attempt")
    between.speak()
    before = load.outcome.done
    until(lambda: load.next() and load.outcome.done > before)
    done = stopped(load)
    assert (done.unfinished, done.down) == (0, 0)
    assert done.outage_ns_max >= 2 * SECOND_NS


@pytest.mark.parametrize(
    ("more", "watched"),
    [("", True), ("keepalives_idle=77 keepalives_interval=5", True), ("keepalives=0", False)],
)
def test_the_system_is_asked_to_find_out_that_the_other_side_is_gone(
    pg15, start_load, more, watched
):
    """A host that lost its power sends no RST: keepalives are all that finds out, as in libpq."""
    sockets = Path("/proc/net/tcp")
    load = open_load(start_load, f"{pg15.tcp(application_name=NAME)} {more}", rate=1.0,
                     duration_ns=1000 * SECOND_NS)  # fmt: skip
    until(lambda: len(backends(pg15)) == 4)

    def timers() -> list[str]:
        """Of each established connection (state 01) to the server; 02 is the keepalive's."""
        rows = [row.split() for row in sockets.read_text().splitlines()[1:]]
        ours = [row for row in rows if row[2].endswith(f":{pg15.port:04X}") and row[3] == "01"]
        return [row[5][:2] for row in ours]

    # A connection on which something is on its way has another timer for that long.
    until(lambda: timers().count("02" if watched else "00") >= 4, "a quiet moment")
    assert watched or "02" not in timers()
    load.run.abort()
    load.finish()


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_ctrl_c_ends_the_wait_for_a_server_that_does_not_answer(pgpaces, tmp_path, times):
    """Without that it would wait for half a minute, and so again with TLS."""
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for _ in range(times):
            target = ("--target", f"host=127.0.0.1 port={port} user=u dbname=d")
            process = pgpaces.start("run", "-f", script, "-T", "1s", *target)
            connection, _ = silent.accept()
            with connection:
                ctrl_c(process)
