"""What a rehearsal runs instead of SQL: a program, restart, crash, or failover.

A ledger tells how long nobody could write, and which acknowledged commits were lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Literal

import psycopg
from msgspec.structs import replace

from pgpaces.core import sessions
from pgpaces.core.errors import PlanError
from pgpaces.core.texts import Say, redacted
from pgpaces.database import migration, programs, psql
from pgpaces.database.access import Access
from pgpaces.load.engine import for_driver
from pgpaces.monitor import locks
from pgpaces.server import binaries, managed_server
from pgpaces.server.managed_server import Server, ServerSpec
from pgpaces.spec.migration import Outage, StatementRun
from pgpaces.trial.prepare import ReadyTrial
from pgpaces.trial.request import PRIMARY

Event = Literal["restart", "crash", "failover"]
EVENTS: tuple[Event, ...] = ("restart", "crash", "failover")
_TABLE = "pgpaces_ledger"
# The ledger is written this often.
_TICK_S = 0.005
_PROMOTE_S, _BACK_S, _CANCEL_S = 60, 120.0, 1.0


class Program:
    """A program that migrates, in an environment that names the copy.

    traced: event triggers report the commands that it executes.
    """

    known, pids, outage = False, None, None

    def __init__(
        self,
        command: str,
        ready: ReadyTrial,
        now_ns: Callable[[], int],
        *,
        timeout_s: float,
        say: Say,
    ) -> None:
        self.at: int | None = None
        self.whole, self.timed_out, self._timeout_s = True, False, timeout_s
        self._command, self._now_ns = command, now_ns
        self._stack = ExitStack()
        keywords = {**for_driver(ready.primary()), "application_name": locks.PROGRAM}
        self._looks = sessions.connect(keywords, "pgpaces sensor", prepare_threshold=None)
        self._stack.callback(self._looks.close)
        self.traced = migration.trace(self._looks)
        way = psql.ClientProgram(ready.site.access.psql, keywords, keywords["dbname"])
        workload = replace(ready.request.workload, folder=Path.cwd())
        way_in = programs.program_environment(way, workload, {}, say=say)
        environment = self._stack.enter_context(way_in)
        self._order = environment.order("migration", command)
        self._runner = programs.Runner([environment.scratch], environment.files)
        self._stack.callback(self._runner.close)

    def run(self) -> list[StatementRun]:
        began_ns, self.at = self._now_ns(), 0
        timer = threading.Timer(self._timeout_s, self._time_out)
        timer.daemon = True
        timer.start()
        ended = self._runner.run(self._order, time.monotonic_ns())
        timer.cancel()
        self.at, done_ns = None, self._now_ns()
        failed = ended is None or bool(ended.failed)
        output = "" if ended is None else f"{ended.failed}: {ended.output}".strip(": ")
        whole = StatementRun(
            text=redacted(self._command),
            began_ns=began_ns,
            tried_ns=began_ns,
            done_ns=done_ns,
            released_ns=done_ns,
            error=redacted(output) if failed else None,
        )
        commands = migration.traced(self._looks, self._now_ns) if self.traced else []
        return [*commands, whole]

    def _time_out(self) -> None:
        self.timed_out = True
        self.stop()

    def stop(self) -> None:
        self.whole = False
        self._runner.stop()

    def close(self) -> None:
        self._stack.close()


class ServerEvent:
    """A managed server restarts, crashes, or is replaced by its standby.

    ready: with the servers that the load has to know. outage: afterward. stack: ends the servers
    that this starts, after everything else.
    """

    known, pids, at, whole, timed_out = True, (), None, True, False

    def __init__(
        self, event: Event, ready: ReadyTrial, now_ns: Callable[[], int], *, stack: ExitStack
    ) -> None:
        servers = ready.site.servers
        if not ready.site.managed or servers[0].stays or servers[0].tcp_host is not None:
            raise PlanError("event-needs-managed", event=event)
        self._event, self._now_ns, self._stack = event, now_ns, stack
        self._primary, self._standbys = servers[0], servers[1:]
        data_dir, settings = ready.request.target.data_dir, dict(self._primary.settings)
        if event == "failover" and "synchronous_standby_names" in settings:
            # Nothing could be dropped on the first server, whose standby is gone.
            settings["synchronous_standby_names"] = ""
        self._spec = ServerSpec(
            binaries.inspect(self._primary.bin),
            name=self._primary.name,
            data_dir=Path(data_dir) if data_dir else None,
            settings=settings,
        )
        self.outage: Outage | None = None
        self.ready = ready
        if event == "failover":
            self.ready = replace(ready, nodes={**ready.nodes, PRIMARY: self._both(ready)})
        keywords = {**for_driver(ready.primary()), "connect_timeout": "1"}
        others = self._standbys if event == "failover" else ()
        at = ({"host": str(each.socket_dir), "port": str(each.port)} for each in others)
        self._ledger = Ledger([keywords, *({**keywords, **one} for one in at)], now_ns)

    def _both(self, ready: ReadyTrial) -> Access:
        """Access to the primary, wherever that is."""
        access = ready.nodes[PRIMARY]
        every = (self._primary, *self._standbys)
        hosts = ",".join(str(server.socket_dir) for server in every)
        ports = ",".join(str(server.port) for server in every)
        more = {"host": hosts, "port": ports, "target_session_attrs": "read-write"}
        return replace(access, keywords={**access.keywords, **more})

    def begin(self) -> None:
        self._ledger.begin()

    def run(self) -> list[StatementRun]:
        began_ns = self._now_ns()
        if self._event == "restart":
            self._primary.stop()
        else:
            os.kill(self._primary.pid, signal.SIGKILL)
        if self._event == "failover":
            standby = self._standbys[0].keywords()
            with sessions.connect(standby, "pgpaces admin") as session:
                session.execute(f"SELECT pg_promote(true, {_PROMOTE_S})".encode())
        else:
            self._start()
        self._ledger.wait_for_commit(_BACK_S)
        done_ns = self._now_ns()
        return [
            StatementRun(
                text=self._event,
                began_ns=began_ns,
                tried_ns=began_ns,
                done_ns=done_ns,
                released_ns=done_ns,
            )
        ]

    def _start(self) -> Server:
        self._primary.stop()  # what a crash left of it
        server = managed_server.start(self._spec)
        self._stack.callback(server.stop)
        return server

    def stop(self) -> None:
        """Nothing can be stopped here."""

    def close(self) -> None:
        """Compares the ledger, and starts the first server again, where the copy is dropped."""
        if self._ledger.ended:
            return
        self.outage = self._ledger.end()
        if self._event == "failover" and self.outage is not None:
            self._start()


class Ledger:
    """Commits rows one after the other, and remembers which of them were acknowledged, and when.

    nodes: the keywords of the primary, and of the standbys of which one takes its place. A session
    to a standby is open before that is promoted, so that logging in takes none of the outage.
    """

    def __init__(self, nodes: Sequence[Mapping[str, str]], now_ns: Callable[[], int]) -> None:
        self._nodes, self._now_ns, self._last = nodes, now_ns, 0
        self._sessions: list[sessions.Session | None] = [self._connect(each) for each in nodes]
        if (first := self._sessions[0]) is not None:
            first.execute(f"CREATE TABLE {_TABLE} (n bigint PRIMARY KEY)".encode())
        self._acknowledged: list[tuple[int, int]] = []
        self._stopped, self._since_ns = threading.Event(), 0
        self._again = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pgpaces-ledger", daemon=True)

    @property
    def ended(self) -> bool:
        return self._stopped.is_set()

    def begin(self) -> None:
        self._thread.start()

    def wait_for_commit(self, seconds: float) -> None:
        """Until a row was committed that was not begun before this call."""
        self._since_ns = self._now_ns()
        self._again.clear()
        self._again.wait(seconds)

    def end(self) -> Outage | None:
        """What it saw; None if it never began. Reads the rows that are there."""
        self._stopped.set()
        if not self._thread.is_alive():
            return None
        ended_ns = self._now_ns()
        while self._thread.is_alive():
            # A commit may wait for ever, for a synchronous standby that is gone.
            for session in filter(None, [*self._sessions]):
                with contextlib.suppress(psycopg.Error):
                    session.cancel_safe(timeout=_CANCEL_S)
            self._thread.join(_CANCEL_S)
        there: set[int] = set()
        with contextlib.suppress(psycopg.Error), self._connect(self._nodes[self._last]) as session:
            rows = session.execute(f"SELECT n FROM {_TABLE}".encode()).fetchall()
            there = {n for (n,) in rows}
        times = [at for _, at in self._acknowledged]
        gaps = ((later - earlier, earlier) for earlier, later in pairwise([*times, ended_ns]))
        longest_ns, from_ns = max(gaps, default=(0, 0))
        return Outage(
            began_ns=from_ns,
            length_ns=longest_ns,
            acknowledged=len(times),
            lost=sum(n not in there for n, _ in self._acknowledged),
        )

    def _connect(self, keywords: Mapping[str, str]) -> sessions.Session:
        return sessions.connect(keywords, "pgpaces ledger", prepare_threshold=None)

    def _work(self) -> None:
        number, sql = 0, f"INSERT INTO {_TABLE} VALUES (%s)".encode()
        while not self._stopped.wait(_TICK_S):
            number, began_ns = number + 1, self._now_ns()
            committed = any(self._try(place, sql, number) for place in range(len(self._nodes)))
            if not committed or self._stopped.is_set():  # what was canceled does not count
                continue
            self._acknowledged.append((number, self._now_ns()))
            if began_ns >= self._since_ns:
                self._again.set()
        for session in filter(None, self._sessions):
            session.close()

    def _try(self, place: int, sql: bytes, number: int) -> bool:
        """Whether a node commits a row; a standby refuses it, and its session stays."""
        session = self._sessions[place]
        try:
            session = self._sessions[place] = session or self._connect(self._nodes[place])
            session.execute(sql, (number,))
        except psycopg.Error:
            if session is not None and session.broken:
                self._sessions[place] = None
            return False
        self._last = place
        return True
