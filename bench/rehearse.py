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
import subprocess
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
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
from pgpaces.trial import rehearse
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
    found = Once(asked, case).run()
    statements_ = found["statements"]
    return {"case": name, "wanted": case["verdict"], "verdict": found["verdict"].upper(),
            "found": [each["name"] for each in found["findings"]],
            "causes": found["causes"], "failed": found["failed"],
            "held_ms": [round(each["held_ns"] / 1e6) for each in statements_],
            "waited_ms": [round(each["waited_ns"] / 1e6) for each in statements_],
            "late": sum(each["late"] for each in statements_),
            "during": found["during"], "before": found["before"]}  # fmt: skip


class Once:
    """One pass of a case: behind the session that it names, if it names one."""

    def __init__(self, asked: rehearse.RehearsalRequest, case: dict[str, Any]) -> None:
        self._asked, self._case = asked, case

    def run(self) -> dict[str, Any]:
        case, asked = self._case, self._asked
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


def section(session: Session) -> Iterator[Finding]:
    """The 38 cases, three times each (resumable), and a planted hold of 500 ms, 20 times."""
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
