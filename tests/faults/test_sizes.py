"""Answers of every size, and notices without end: read in bounded memory, and no run outlasts its
grace period because of them.
"""

import shutil
from typing import Any

import pytest
from tests.faults.breaking import SECOND_NS, measured_in_child, seconds_until_end
from tests.polls import each_poll

poll = each_poll
pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
GROWTH_MAX_KIB = 50 * 1024
GIB = 1 << 30

# The peak of memory that a run takes above that of a small one. How it ended comes behind it.
PEAK = """
import sys
from msgspec.structs import replace
sys.path.insert(0, {tests!r})
from conftest import PLAN, Load
from memory import peak_bytes
plan = replace(PLAN, clients=1, protocol={protocol!r})
assert Load({dsn!r}, [("t", 1, "SELECT 1")], plan).finish().on_time == 1
before = peak_bytes()
done = Load({dsn!r}, [("t", 1, {sql!r})], replace(plan, **{changes!r})).finish()
print((peak_bytes() - before) // 1024, done.on_time, done.unfinished, *done.failed)
"""


def grown(dsn: str, sql: str, protocol: str = "simple", **changes: Any) -> str:
    """On time, unfinished, SQLSTATEs of a run that takes no more memory than it may."""
    dsn = f"{dsn} options='-c client_min_messages=notice'"
    said = measured_in_child(PEAK, dsn=dsn, sql=sql, protocol=protocol, changes=changes)
    kib, _, ended = said.strip().partition(" ")
    assert int(kib) < GROWTH_MAX_KIB
    return ended


def rows(mib: int) -> str:
    """A result of so many rows of a MiB."""
    return f"SELECT repeat('x', 1048576) FROM generate_series(1, {mib})"


SLOW = [pytest.mark.slow, pytest.mark.timeout(900)]
LARGE, WIDE = "SELECT repeat('x', 1000) FROM generate_series(1, 100000)", "SELECT repeat('x', {})"
# Each way to wait meets each protocol, each transport and each kind of answer, the slow tests
# every combination of the last three.
ANSWERS = [
    ("epoll", "simple", "dsn", LARGE, WIDE),
    ("io_uring", "simple", "tls", WIDE, LARGE),
    ("epoll", "extended", "dsn", WIDE, LARGE),
    ("io_uring", "extended", "tls", LARGE, WIDE),
    ("io_uring", "prepared", "dsn", LARGE, WIDE),
    ("epoll", "prepared", "tls", WIDE, LARGE),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("poll", "protocol", "transport", "sql"),
    [
        *((way, "simple", "dsn", rows(300)) for way in ("epoll", "io_uring")),
        pytest.param("epoll", "simple", "dsn", rows(10_240), marks=SLOW),
        *((*way, quick.format(10**8)) for *way, quick, _ in ANSWERS),
        *(pytest.param(*way, more.format(10**9), marks=SLOW) for *way, _, more in ANSWERS),
    ],
    indirect=["poll"],
)
def test_a_large_answer_is_read_in_bounded_memory(pg15, poll, protocol, transport, sql):
    assert shutil.disk_usage("/").free > GIB  # nothing of it is written, or this ends badly
    assert grown(getattr(pg15, transport)(), sql, protocol, poll=poll) == "1 0"


def test_a_huge_row_that_a_script_wants_to_keep_is_refused_in_bounded_memory(pg15):
    assert grown(pg15.dsn(), "SELECT repeat('x', 200000000) AS much \\gset") == "0 0 08P01"


ENDLESS = {
    "notices": "DO $$ BEGIN LOOP RAISE NOTICE 'on and on'; END LOOP; END $$",
    "long notices": "DO $$ BEGIN LOOP RAISE NOTICE '%', repeat('x', 100000); END LOOP; END $$",
    "rows": "SELECT repeat('x', 1000) FROM generate_series(1, 1000000000000)",
}


@pytest.mark.parametrize(
    "what",
    ["notices", *(pytest.param(w, marks=pytest.mark.slow) for w in ("long notices", "rows"))],
)
def test_an_answer_without_end_ends_with_the_grace_period_in_bounded_memory(pg15, what):
    short = {"transactions": None, "duration_ns": SECOND_NS, "grace_ns": SECOND_NS // 2}
    assert grown(pg15.dsn(), ENDLESS[what], **short) == "0 1"
    pg15.wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ '^(DO|SELECT rep)'"
                    " AND state = 'active' AND pid <> pg_backend_pid()")  # fmt: skip


@pytest.mark.slow
def test_an_answer_without_end_leaves_the_other_clients_their_turn(pg15, start_load):
    scripts = [("flood", 1, ENDLESS["notices"]), ("small", 9, "SELECT pg_sleep(0.001)")]
    load = start_load(pg15.dsn(), scripts, clients=4, load="open", rate=20.0, transactions=None,
                      duration_ns=2 * SECOND_NS, grace_ns=SECOND_NS, seed=3)  # fmt: skip
    done, seconds = seconds_until_end(load)
    assert done.due == 40
    assert done.failed == {}
    assert done.unfinished >= 1
    assert done.done >= 1
    assert seconds < 30
