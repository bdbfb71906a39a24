"""Samples the machine of an external server: through SQL, or by `pgpaces observe` there.

Through SQL the server reads its files, if the role may do that. The command prints a line a second
about the machine on which it runs. Knows nothing of the content of the files.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from pgpaces.errors import PgpacesError, ServerError
from pgpaces.locality import by_socket, is_local
from pgpaces.observe import host
from pgpaces.observe.host import HostSample, HostSource, Polled, Probe
from pgpaces.observe.procfs import Item, postgres_process
from pgpaces.observe.session import Reopened, first_line
from pgpaces.sessions import Session, scalar

_PATIENCE_S = 1.0
_BYTES_MAX = 1 << 16
# Smaller differences of clocks are not reported.
_OFFSET_MIN_S = 0.1
_READ = "pg_catalog.pg_read_file(%s, 0, %s, true)"
_NEEDS = {
    "EXECUTE ON FUNCTION pg_read_file(text, bigint, bigint, boolean)": (
        "SELECT pg_catalog.has_function_privilege("
        "'pg_catalog.pg_read_file(text, bigint, bigint, boolean)', 'EXECUTE')"
    ),
    "pg_read_server_files": "SELECT pg_catalog.pg_has_role('pg_read_server_files', 'USAGE')",
}
_SUPERUSER = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"


class Files:
    """The files of a server's machine, read by the server. ahead_s: its clock minus this one.

    A query reads all paths of the previous sample at once, to need only one round trip.
    """

    def __init__(self, keywords: Mapping[str, str]) -> None:
        self._session = Reopened(keywords, "pgpaces host sensor", prepare_threshold=None)
        self._paths: dict[str, None] = {}
        self._absent: set[str] = set()
        self._texts: dict[str, str | None] = {}
        self.ahead_s: float | None = None
        self._round_trip_s = math.inf

    def session(self) -> Session:
        """The session, opened if there is none. Raises ServerError."""
        try:
            return self._session.session()
        except psycopg.Error as error:
            raise ServerError(f"the server was silent: {first_line(error)}") from None

    def refresh(self) -> None:
        """Reads again all paths since the last refresh. Raises ServerError."""
        self.session()
        paths = list(self._paths)
        self._paths = {}
        values = f", {_READ}" * len(paths)
        query = f"SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8{values}"
        before_s = time.time()
        texts = self._row(query, [word for path in paths for word in (path, _BYTES_MAX)])
        if texts is None:  # one of them cannot be read this time, such as a sleeping sensor
            self._texts = {path: self._one(path) for path in paths}
            return
        self._compare_clocks(before_s, texts[0])
        self._texts = dict(zip(paths, texts[1:], strict=True))

    def _compare_clocks(self, before_s: float, server_s: float) -> None:
        """Set `ahead_s` by the fastest round trip so far."""
        elapsed_s = time.time() - before_s
        if 0 <= elapsed_s < self._round_trip_s:
            self._round_trip_s = elapsed_s
            self.ahead_s = server_s - (before_s + elapsed_s / 2)

    def read(self, path: str) -> str | None:
        """The text of a file; None if it cannot be read. Raises ServerError without a server."""
        if path == host.KERNEL_LOG:  # the server would wait for its next line
            return None
        if path not in self._absent:
            self._paths[path] = None
            if path not in self._texts:
                self._texts[path] = self._one(path)
                # A path that is absent at first is not read again.
                self._absent |= {path} if self._texts[path] is None else set()
        return self._texts.get(path)

    def _one(self, path: str) -> str | None:
        row = self._row(f"SELECT {_READ}", (path, _BYTES_MAX))
        return row[0] if row else None

    def _row(self, query: str, parameters: Sequence[object]) -> tuple[Any, ...] | None:
        """The row of a query; None if the server refuses it. Raises ServerError if it is gone."""
        session = self.session()
        try:
            return session.execute(query.encode(), parameters).fetchone()
        except psycopg.Error as error:
            if session.closed:
                raise ServerError(f"the server was silent: {first_line(error)}") from None
            return None

    def missing(self) -> list[str]:
        """The privileges that the role lacks to read files of the server."""
        session = self.session()

        def holds(query: str) -> bool:
            return bool(scalar(session, query.encode()))

        try:
            if holds(_SUPERUSER):
                return []
            return [name for name, query in _NEEDS.items() if not holds(query)]
        except psycopg.Error as error:
            message = f"the privileges of the role cannot be read: {first_line(error)}"
            raise ServerError(message) from None

    def close(self) -> None:
        """Ends the session."""
        self._session.close()


class ThroughSql(Polled):
    """Samples of the files that a server reads."""

    def __init__(self, files: Files) -> None:
        super().__init__(lambda: _Refreshed(files))
        self._files = files

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource. The thread that uses the session also closes it."""
        try:
            yield from super().observe(ended, start_s)
        finally:
            self._files.close()
            if self._files.ahead_s is not None:
                self.notes |= _clock(self._files.ahead_s)


class _Refreshed(Probe):
    def __init__(self, files: Files) -> None:
        self._files = files
        super().__init__(files.read, ("/proc/self/cgroup",))

    def items(self) -> list[Item]:
        self._files.refresh()
        return super().items()


def _clock(ahead_s: float) -> dict[str, None]:
    """A note about the clock of another machine, if it differs."""
    if abs(ahead_s) < _OFFSET_MIN_S:
        return {}
    direction = "fast" if ahead_s > 0 else "slow"
    text = (
        f"host: the clock of the server's machine is {abs(ahead_s):.1f} s {direction} compared with"
        " this one; its samples are placed by this one"
    )
    return {text: None}


class RemoteCommand(HostSource):
    """Samples by a command with the output of `pgpaces observe`, such as `ssh pi4 pgpaces observe`.

    Its lines contain its clock. The lag of that is taken from the line with the shortest transfer,
    so a network with varying latency shifts nothing.
    """

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._clock_lag_s = math.inf
        self._ahead_s = -math.inf

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource. The command has its own full seconds."""
        # Its own session: no terminal for a password prompt, and one process group to end. Without
        # PG* variables, which may hold a password, and are about other connections.
        with subprocess.Popen(
            self._command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={name: text for name, text in os.environ.items() if not name.startswith("PG")},
        ) as child:
            self._child = child
            try:
                yield from self._lines(child, ended)
            finally:
                self.close()
        self.notes |= _clock(self._ahead_s) if math.isfinite(self._ahead_s) else {}

    def _lines(
        self, child: subprocess.Popen[bytes], ended: threading.Event
    ) -> Iterator[HostSample]:
        assert child.stdout is not None
        while not ended.is_set() and (line := child.stdout.readline(_BYTES_MAX)):
            if (sample := self._sample(line)) is not None:
                yield sample
        if not ended.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(_PATIENCE_S)
                note = f"host: the observe command ended by itself, with exit code {code}"
                self.notes[note] = None

    def _sample(self, line: bytes) -> HostSample | None:
        arrived_s, wall_s = time.monotonic(), time.time()
        try:
            at_s, remote_s, items, notes = host.parsed(line)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
            text = line.decode(errors="replace").strip()[: host.TEXT_MAX]
            if text and len(self.notes) < 3:
                self.notes[f"host: the observe command printed: {text}"] = None
            return None
        self._clock_lag_s = min(self._clock_lag_s, arrived_s - at_s)
        self._ahead_s = max(self._ahead_s, remote_s - wall_s)
        self.notes |= dict.fromkeys(notes)
        return HostSample(at_s, items) if items else None

    def clock_lag_s(self) -> float:
        """See HostSource."""
        return self._clock_lag_s if math.isfinite(self._clock_lag_s) else 0.0

    def close(self) -> None:
        """Ends the command and its child processes."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE_S)
                return


class BestSource(HostSource):
    """The best available source, chosen at its beginning.

    Before that, the load has not opened its connections, and may need the one for this.
    """

    def __init__(self, find: Callable[[], HostSource]) -> None:
        super().__init__()
        self._find = find
        self._source = HostSource()

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource."""
        self._source = self._find()
        self.notes = self._source.notes
        yield from self._source.observe(ended, start_s)

    def clock_lag_s(self) -> float:
        """See HostSource."""
        return self._source.clock_lag_s()

    def close(self) -> None:
        """See HostSource."""
        self._source.close()


def watched(keywords: Mapping[str, str], dbname: str, command: str | None) -> HostSource:
    """A source for a server's machine. keywords: libpq's. command: observes it.

    Raises nothing; the notes of a source without samples say what it needs.
    """
    if command is not None:
        return RemoteCommand(command)
    return BestSource(lambda: _best(keywords, dbname))


def _best(keywords: Mapping[str, str], dbname: str) -> HostSource:
    files = Files({**keywords, "dbname": dbname})
    try:
        if is_local(keywords) and (pids := _local_postmaster(files)):
            files.close()
            return host.here(pids)
        if by_socket(keywords):
            # A server with a socket is on this machine, even if its processes are not visible.
            files.close()
            return host.here(())
        missing = files.missing()
    except PgpacesError as error:
        files.close()
        return HostSource({f"host: {error.message}": None})
    if not missing:
        return ThroughSql(files)
    files.close()
    grants = " and ".join(missing)
    reason = (
        f"host: the server's machine cannot be observed: grant this role {grants}, or name a"
        " command that runs `pgpaces observe` there (--observe-command)"
    )
    return HostSource({reason: None})


def _local_postmaster(files: Files) -> list[int]:
    """The process id of the postmaster, if it is on this machine. Raises ServerError."""
    pid = files.session().info.backend_pid
    try:
        return [int(postgres_process(Path(f"/proc/{pid}/stat").read_text())[1])]
    except (OSError, ValueError, IndexError):
        return []
