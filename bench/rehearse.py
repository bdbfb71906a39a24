"""What `pgpaces rehearse` says of migrations whose effect is known (bench/migrations/cases.toml).

`make bench ARGS=rehearse` runs all cases three times. On a server that has the database of
bench/migrations/shop.sql, called `shop`:

    python bench/rehearse.py --target 'host=... dbname=postgres' [--times 3] [--only u03,s01]

Each result is a line of JSON in --results; cases with enough lines are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
from figures import Figure, Finding, Goal
from msgspec import to_builtins
from msgspec.structs import replace
from session import Session

from pgpaces.core import sessions
from pgpaces.database import migration
from pgpaces.load.engine import for_driver
from pgpaces.spec import trust
from pgpaces.spec.migration import Statement, split
from pgpaces.trial import events, rehearse
from pgpaces.trial.request import request_of, workload_of

SECTION = "Rehearse"
RESULTS = Path("rehearse.jsonl")
HERE = Path(__file__).with_name("migrations")
MIX = {"read": 5, "update": 3, "insert": 1, "join": 1, "event": 1}
LOAD = {"rate": "100/s", "clients": 16, "latency_limit": "100ms", "warmup": "2s"}
# What another session does, by the name in the cases.
OTHERS = {
    "reader": "SELECT count(*) FROM (SELECT FROM orders LIMIT 1) o",
    "writer": "UPDATE orders SET quantity = 1 WHERE false",
    "snapshot": "SELECT count(*) FROM customers",
}


@contextlib.contextmanager
def other(keywords: Any, what: str, seconds: float) -> Iterator[threading.Thread]:
    """Another session that is in the way for some seconds: a transaction, or a slow VACUUM."""
    own = {**keywords, "application_name": "other"}
    session = psycopg.connect(**own, autocommit=what == "vacuum")
    if what == "vacuum":
        session.execute("SET vacuum_cost_delay = '20ms'")
        session.execute("SET vacuum_cost_limit = 100")
    else:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute(OTHERS[what].encode())

    def work() -> None:
        with contextlib.suppress(psycopg.Error):
            if what == "vacuum":
                session.execute("VACUUM orders")
            else:
                time.sleep(seconds)
                session.rollback()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        with contextlib.suppress(psycopg.Error):
            session.cancel_safe(timeout=5)
        thread.join()
        session.close()


def rehearsed(case: dict[str, Any], target: str) -> dict[str, Any]:
    """The verdict of one case, alone or behind the session that it names."""
    mix = case.get("load", MIX)
    files = tuple(f"{HERE}/load/{name}.sql@{weight}" for name, weight in mix.items())
    spec = {**LOAD, "target": target, "from_database": "shop", "files": files, "duration": "10min"}
    spec |= case.get("options", {})
    workload = workload_of(spec, trust.refuse, typed=True)
    statements = tuple(split(case["sql"]))
    if "lock_timeout" in case:
        statements = (Statement(f"SET lock_timeout = '{case['lock_timeout']}'"), *statements)
    name = case["name"]
    asked = rehearse.RehearsalRequest(
        load=request_of({**spec, "guard": False}, workload),
        name=name,
        text=case["sql"],
        statements=statements,
        open_s=case.get("open_s", 0.0) if case.get("open") else 0.0,
        tries=1 + case.get("retries", 0),
        find_safer=False,
    )
    found = once(asked, case)
    statements_ = found["statements"]
    return {"case": name, "wanted": case["verdict"], "verdict": found["verdict"].upper(),
            "found": [each["name"] for each in found["findings"]],
            "causes": found["causes"], "failed": found["failed"],
            "held_ms": [round(each["held_ns"] / 1e6) for each in statements_],
            "waited_ms": [round(each["waited_ns"] / 1e6) for each in statements_],
            "late": sum(each["late"] for each in statements_),
            "during": found["during"], "before": found["before"]}  # fmt: skip


def once(asked: rehearse.RehearsalRequest, case: dict[str, Any]) -> dict[str, Any]:
    """One pass of a case: behind the session that it names, if it names one."""
    first = rehearse.DuringLoad.open

    def opened(during: Any, ready: Any) -> Any:
        if setup := case.get("setup"):
            keywords = for_driver(ready.primary())
            with sessions.connect(keywords, "setup") as session:
                session.execute(setup.encode())
        return first(during, ready)

    def holding(keywords: Any, _: Any, seconds: float) -> Any:
        return other(keywords, case["open"], seconds)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(rehearse.DuringLoad, "open", opened))
        if case.get("open"):
            stack.enter_context(mock.patch.object(migration, "holding", holding))
            asked = replace(asked, open_s=case.get("open_s") or 12.0)
        found = rehearse.rehearse(asked)
    last = found.of("asked", "open") if case.get("open") else found.of("asked", "alone")
    assert last is not None
    return dict(to_builtins(last))


def results(target: str, path: Path, times: int, only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The results of the cases, so often each; those that the file has are not made again."""
    cases = tomllib.loads((HERE / "cases.toml").read_text("utf-8"))["case"]
    cases = [c for c in cases if not only or any(c["name"].startswith(each) for each in only)]
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    done = Counter(each["case"] for each in found)
    for case in cases:
        for _ in range(times - done[case["name"]]):
            found.append(result := rehearsed(case, target))
            with path.open("a", encoding="utf-8") as out:
                out.write(f"{json.dumps(result)}\n")
            sign = "ok " if result["wanted"] == result["verdict"] else "NOT"
            print(sign, *(f"{key}={value}" for key, value in result.items()), flush=True)
    return found


def held(target: str, times: int) -> list[float]:
    """What is measured of a lock that is held for 500 ms, in ms, so often."""
    sql = "BEGIN; LOCK TABLE orders IN SHARE MODE; SELECT pg_sleep(0.5); COMMIT"
    case = {"name": "planted", "verdict": "BLOCKS", "sql": sql}
    return [float(max(rehearsed(case, target)["held_ms"])) for _ in range(times)]


def probe(keywords: Any, committed: list[float], ended: threading.Event) -> None:
    """Commits a row every ms, wherever it can, and notes when it was acknowledged."""
    session: psycopg.Connection | None = None
    while not ended.wait(0.001):
        try:
            if session is None:
                session = psycopg.connect(**keywords, autocommit=True)
                session.execute("CREATE TABLE IF NOT EXISTS bench_probe (n int)")
            session.execute("INSERT INTO bench_probe VALUES (1)")
            committed.append(time.monotonic())
        except psycopg.Error:
            session = None


def failover(source: str, folder: Path, *, synchronous: bool, loss_s: float) -> dict[str, float]:
    """One failover: the outage and the lost commits by the answer, and by what the servers have.

    A session of its own that commits a row every ms tells when nobody could write. loss_s: the
    standby receives nothing for so long before the failover.
    """
    seen: dict[str, float] = {}
    committed, prober, ended = list[float](), list[threading.Thread](), threading.Event()
    begin, close, run = (getattr(events.ServerEvent, name) for name in ("begin", "close", "run"))

    def stopped(event: Any) -> Any:
        if loss_s:
            with sessions.connect(event._standbys[0].keywords(), "bench") as standby:
                row = standby.execute("SELECT pid FROM pg_stat_wal_receiver").fetchone()
            assert row is not None
            os.kill(row[0], signal.SIGSTOP)
            threading.Timer(loss_s + 1, os.kill, (row[0], signal.SIGCONT)).start()
            time.sleep(loss_s)
        return run(event)

    def begun(event: Any) -> None:
        """Only the first server waits for a standby: the promoted one has none."""
        if synchronous:
            with sessions.connect(event._primary.keywords(), "bench") as primary:
                primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                primary.execute("SELECT pg_reload_conf()")
        begin(event)
        keywords = for_driver(event.ready.primary())
        prober.append(threading.Thread(target=probe, args=[keywords, committed, ended]))
        prober[0].start()

    def closed(event: Any) -> None:
        again = not event._ledger.ended
        close(event)
        if not again:
            return
        ended.set()
        prober[0].join()
        with sessions.connect(event._primary.keywords(), "bench") as primary:
            primary.execute("ALTER SYSTEM RESET synchronous_standby_names")
            primary.execute("SELECT pg_reload_conf()")
        found = list[set[int]]()
        for server in (event._primary, event._standbys[0]):
            dbname = event._ledger._nodes[0]["dbname"]
            with sessions.connect({**server.keywords(), "dbname": dbname}, "bench") as own:
                found.append({n for (n,) in own.execute("SELECT n FROM pgpaces_ledger")})
        acknowledged = {n for n, _ in event._ledger._acknowledged}
        seen["outage_ms"] = 1e3 * max(b - a for a, b in pairwise(committed))
        seen["lost"] = len(acknowledged & found[0] - found[1])

    script = folder / "one.sql"
    script.write_text("SELECT 1;\n")
    spec = {
        **LOAD, "server": "15", "standbys": 1, "from_database": source,
        "files": (str(script),),
    }  # fmt: skip
    workload = workload_of(spec, trust.refuse, typed=True)
    terms = rehearse.Terms(event="failover")
    asked = rehearse.ask(spec, workload, terms, consent=trust.refuse, store=folder / "r.db")
    with (
        mock.patch.object(events.ServerEvent, "begin", begun),
        mock.patch.object(events.ServerEvent, "close", closed),
        mock.patch.object(events.ServerEvent, "run", stopped),
    ):
        [only] = rehearse.rehearse(asked).passes
    assert only.outage is not None
    return {"outage_ms": only.outage.length_ns / 1e6, "by_probe_ms": seen["outage_ms"],
            "lost": only.outage.lost, "by_servers": seen["lost"]}  # fmt: skip


def failovers(source: str, times: int) -> list[dict[str, float]]:
    """So many, synchronous and asynchronous in turn, and of the latter every other with a loss."""
    found = []
    for number in range(times):
        with tempfile.TemporaryDirectory() as folder:
            loss_s = 0.3 if number % 4 == 1 else 0.0
            one = failover(source, Path(folder), synchronous=number % 2 == 0, loss_s=loss_s)
        print(f"failover {number + 1}:", one, flush=True)
        found.append(one)
    return found


def section(session: Session) -> Iterator[Finding]:
    """The 38 cases, three times each (resumable), a planted hold of 500 ms, and failovers."""
    server = session.place.server
    os.environ |= session.place.environment()
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        if not admin.execute("SELECT FROM pg_database WHERE datname = 'shop'").fetchone():
            admin.execute("CREATE DATABASE shop")
            psql, script = str(server.bin / "psql"), str(HERE / "shop.sql")
            command = [psql, "-Xqf", script, server.dsn("shop")]
            subprocess.run(command, check=True)
    every = results(server.dsn(), RESULTS, 1 if session.quick else 3)
    unsafe = [each for each in every if each["wanted"] != "SAFE"]
    safe = [each for each in every if each["wanted"] == "SAFE"]
    right = sum(each["verdict"] == each["wanted"] for each in unsafe)
    late = Counter({"migration": 0})
    for each in unsafe:
        late.update(each["causes"])
    blamed = 100 * late["migration"] / max(1, late.total())
    never, one = Goal("ours", "at most", 0), Goal("ours", "at most", 1)
    share, most = Goal("ours", "at least", 95), Goal("ours", "at least", 18 / 19 * 100)
    called = sum(each["verdict"] == "SAFE" for each in unsafe)
    accused = sum(each["verdict"] != "SAFE" for each in safe)
    yield Figure(SECTION, f"unsafe called SAFE, of {len(unsafe)}", "", (called,), goal=never)
    yield Figure(
        SECTION, "unsafe with the right class", "%", (100 * right / len(unsafe),), goal=most
    )
    yield Figure(SECTION, f"safe accused, of {len(safe)}", "", (accused,), goal=one)
    yield Figure(SECTION, "late requests blamed on the migration", "%", (blamed,), goal=share)
    measured = tuple(held(server.dsn(), 3 if session.quick else 20))
    far = max(abs(each - 500) for each in measured)
    within = Goal("ours", "at most", 30)
    yield Figure(SECTION, "a hold of 500 ms, farthest from it", "ms", (far,), goal=within)
    outages = failovers(server.dsn("postgres"), 4 if session.quick else 20)
    off = max(abs(each["outage_ms"] - each["by_probe_ms"]) for each in outages)
    wrong = sum(each["lost"] != each["by_servers"] for each in outages)
    within = Goal("ours", "at most", 10)
    yield Figure(SECTION, "a failover's outage, farthest from a probe's", "ms", (off,), goal=within)
    yield Figure(SECTION, f"lost commits miscounted, of {len(outages)}", "", (wrong,), goal=never)


def main() -> None:
    """Runs cases against a server that has the database `shop`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    only = [each for each in asked.only.split(",") if each]
    results(asked.target, asked.results, asked.times, only)


if __name__ == "__main__":
    main()
