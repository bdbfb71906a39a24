"""Looks at the machine of a server that is not ours: through SQL, or by `pgpaces observe` there.

Through SQL the server reads its own files for us, where our role may have that done. The command
prints a line a second, on whatever machine it runs. Knows nothing of what the files say.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgpaces.errors import PgpacesError, ServerError
from pgpaces.locality import by_socket, is_local
from pgpaces.observe import host
from pgpaces.observe.host import HostSample, HostSource, Polled, Probe
from pgpaces.observe.procfs import Item

if TYPE_CHECKING:
    import psycopg

    Session = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT_S = 3
_PATIENCE_S = 1.0
_BYTES_MAX = 1 << 16
_ITEMS_MAX = 500
_NAME_MAX = 80
_SAID_MAX = 200
# Clocks that differ by less are not spoken of.
_OFFSET_MIN_S = 0.1
_READ = "SELECT pg_catalog.pg_read_file(%s, 0, %s, true)"
_NEEDS = {
    "EXECUTE ON FUNCTION pg_read_file(text, bigint, bigint, boolean)": (
        "SELECT pg_catalog.has_function_privilege("
        "'pg_catalog.pg_read_file(text, bigint, bigint, boolean)', 'EXECUTE')"
    ),
    "pg_read_server_files": "SELECT pg_catalog.pg_has_role('pg_read_server_files', 'USAGE')",
}
_SUPERUSER = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"


class Files:
    """The files of a server's machine, read by the server. ahead_s: its clock before ours.

    What the last look asked for, the next one gets in one go: it is one way there and back.
    """

    def __init__(self, keywords: Mapping[str, str]) -> None:
        self._keywords = {
            **keywords,
            "connect_timeout": str(_CONNECT_TIMEOUT_S),
        }
        self._session: Session | None = None
        self._asked: dict[str, None] = {}
        self._absent: set[str] = set()
        self._texts: dict[str, str | None] = {}
        self.ahead_s: float | None = None
        self._way_s = math.inf

    def session(self) -> Session:
        """Made anew where it broke. Raises ServerError."""
        import psycopg

        from pgpaces import sessions

        if self._session is None or self._session.closed:
            try:
                self._session = sessions.connect(
                    self._keywords, "pgpaces host sensor", prepare_threshold=None
                )
            except psycopg.Error as error:
                raise ServerError(f"the server was silent: {_said(error)}") from None
        return self._session

    def refresh(self) -> None:
        """Reads again what was asked for since the last time. Raises ServerError."""
        import psycopg

        session, paths = self.session(), list(self._asked)
        self._asked = {}
        values = "".join(", pg_catalog.pg_read_file(%s, 0, %s, true)" for _ in paths)
        query = f"SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8{values}"
        before_s = time.time()
        try:
            row = session.execute(query.encode(), [w for p in paths for w in (p, _BYTES_MAX)])
            found = row.fetchone() or (0.0,)
        except psycopg.OperationalError as error:
            if session.closed:
                raise ServerError(f"the server was silent: {_said(error)}") from None
            found = None
        except psycopg.Error:
            found = None
        if found is None:  # one of them cannot be read this time, such as a sensor that sleeps
            self._texts = {path: self._one(path) for path in paths}
            return
        self._heed(before_s, found[0])
        self._texts = dict(zip(paths, found[1:], strict=True))

    def _heed(self, before_s: float, there_s: float) -> None:
        """The server's clock, by the quickest way there and back so far."""
        way_s = time.time() - before_s
        if 0 <= way_s < self._way_s:
            self._way_s, self.ahead_s = way_s, there_s - (before_s + way_s / 2)

    def read(self, path: str) -> str | None:
        """The text of a file; None where it cannot be read. Raises ServerError without a server."""
        if path == host.KERNEL_LOG:  # the server would wait for its next line
            return None
        if path not in self._absent:
            self._asked[path] = None
            if path not in self._texts:
                self._texts[path] = self._one(path)
                # What was not there when it was first asked for is not asked for again.
                self._absent |= {path} if self._texts[path] is None else set()
        return self._texts.get(path)

    def _one(self, path: str) -> str | None:
        import psycopg

        session = self.session()
        try:
            row = session.execute(_READ, (path, _BYTES_MAX)).fetchone()
        except psycopg.Error as error:
            if session.closed:
                raise ServerError(f"the server was silent: {_said(error)}") from None
            return None
        return row[0] if row else None

    def missing(self) -> list[str]:
        """What has to be granted to our role before the server reads files for it."""
        session = self.session()
        import psycopg

        try:
            row = session.execute(_SUPERUSER).fetchone()
            if row and row[0]:
                return []
            found = []
            for name, query in _NEEDS.items():
                row = session.execute(query.encode()).fetchone()
                if not (row and row[0]):
                    found.append(name)
        except psycopg.Error as error:
            raise ServerError(f"it cannot be asked what we may read: {_said(error)}") from None
        return found

    def close(self) -> None:
        """Ends the session."""
        if self._session is not None:
            self._session.close()


def _said(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class ThroughSql(Polled):
    """Looks by a server's own eyes."""

    def __init__(self, files: Files) -> None:
        super().__init__(self._probe)
        self._files = files

    def _probe(self) -> Probe:
        return _Refreshed(self._files)

    def looks(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource. The session is ended by the thread that has it."""
        try:
            yield from super().looks(ended, start_s)
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
    """What is to be said of the clock of another machine."""
    if abs(ahead_s) < _OFFSET_MIN_S:
        return {}
    way = "ahead of" if ahead_s > 0 else "behind"
    text = (
        f"host: the clock of the server's machine is {abs(ahead_s):.1f} s {way} ours; what was seen"
        " there is placed by our clock"
    )
    return {text: None}


class RemoteCommand:
    """Looks by a command that prints what `pgpaces observe` does: `ssh pi4 pgpaces observe`.

    Its lines bring their own clock. What lies between that and ours is taken from the line that was
    quickest to arrive, so a network that stutters moves nothing.
    """

    def __init__(self, command: str) -> None:
        self.notes: dict[str, None] = {}
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._behind_s = math.inf
        self._ahead_s = -math.inf

    def looks(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource. It has its own full seconds."""
        # A session of its own: no terminal to ask for a password on, and one group to end. What
        # begins with PG may hold a password, and is about another way to the server.
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
                yield from self._heard(child, ended)
            finally:
                self.close()
        self.notes |= _clock(self._ahead_s) if math.isfinite(self._ahead_s) else {}

    def _heard(
        self, child: subprocess.Popen[bytes], ended: threading.Event
    ) -> Iterator[HostSample]:
        assert child.stdout is not None
        while not ended.is_set() and (line := child.stdout.readline(_BYTES_MAX)):
            if (found := self._look(line)) is not None:
                yield found
        if not ended.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(_PATIENCE_S)
                said = f"host: the observe command ended by itself, with exit code {code}"
                self.notes[said] = None

    def _look(self, line: bytes) -> HostSample | None:
        arrived_s, wall_s = time.monotonic(), time.time()
        try:
            at_s, there_s, items, notes = parsed(line)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
            said = line.decode(errors="replace").strip()[:_SAID_MAX]
            if said and len(self.notes) < 3:
                self.notes[f"host: the observe command said: {said}"] = None
            return None
        self._behind_s = min(self._behind_s, arrived_s - at_s)
        self._ahead_s = max(self._ahead_s, there_s - wall_s)
        self.notes |= dict.fromkeys(notes)
        return HostSample(at_s, items) if items else None

    def behind_s(self) -> float:
        """See HostSource."""
        return self._behind_s if math.isfinite(self._behind_s) else 0.0

    def close(self) -> None:
        """Ends the command and all that it started."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE_S)
                return


def line(look: HostSample, notes: tuple[str, ...] = ()) -> str:
    """A look as `pgpaces observe` prints it. notes: what cannot be seen there."""
    values = {i.name: [float(f"{i.value:.5g}"), i.unit] for i in look.items}
    found: dict[str, Any] = {
        "time": round(time.time() - (time.monotonic() - look.at_s), 3),
        "monotonic": round(look.at_s, 4),
        "values": values,
    }
    return json.dumps(found | ({"notes": notes} if notes else {}), ensure_ascii=True)


def parsed(text: bytes) -> tuple[float, float, tuple[Item, ...], list[str]]:
    """A line of `pgpaces observe`: monotonic and wall clock in s, items, notes.

    It comes from another machine, and is believed as little as anything from there. Raises
    ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError.
    """
    found = json.loads(text)
    items = []
    for name, (value, unit) in list(found["values"].items())[:_ITEMS_MAX]:
        number = float(value)
        if math.isfinite(number):
            items.append(Item(str(name)[:_NAME_MAX], number, str(unit)[:_NAME_MAX]))
    notes = [str(note)[:_SAID_MAX] for note in found.get("notes", [])][:5]
    at_s, there_s = float(found["monotonic"]), float(found["time"])
    if not (math.isfinite(at_s) and math.isfinite(there_s)):
        raise ValueError(text)
    return at_s, there_s, tuple(items), notes


class BestSource:
    """The best look that there is, looked for when it begins.

    Before that the load has not got its connections yet, and might want the one that this takes.
    """

    def __init__(self, find: Callable[[], HostSource]) -> None:
        self._find = find
        self._source: HostSource | None = None

    @property
    def notes(self) -> dict[str, None]:
        """See HostSource."""
        return {} if self._source is None else self._source.notes

    def looks(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource."""
        self._source = self._find()
        yield from self._source.looks(ended, start_s)

    def behind_s(self) -> float:
        """See HostSource."""
        return 0.0 if self._source is None else self._source.behind_s()

    def close(self) -> None:
        """See HostSource."""
        if self._source is not None:
            self._source.close()


def watched(keywords: Mapping[str, str], dbname: str, command: str | None) -> HostSource:
    """What looks at a server's machine. keywords: libpq's. command: observes it.

    Raises nothing; a source that sees nothing says in its notes what would make it see.
    """
    if command is not None:
        return RemoteCommand(command)
    return BestSource(lambda: _found(keywords, dbname))


def _found(keywords: Mapping[str, str], dbname: str) -> HostSource:
    files = Files({**keywords, "dbname": dbname})
    try:
        if is_local(keywords) and (pids := _seen_here(files)):
            files.close()
            return host.here(pids)
        if by_socket(keywords):
            # Whoever has the socket is on this machine, if not among the processes that we see.
            files.close()
            return host.here(())
        missing = files.missing()
    except PgpacesError as error:
        files.close()
        return _Blind(f"host: {error.message}")
    if not missing:
        return ThroughSql(files)
    files.close()
    grants = " and ".join(missing)
    return _Blind(
        f"host: nothing is seen of the server's machine: grant this role {grants}, or name a"
        " command that runs `pgpaces observe` there (--observe-command)"
    )


class _Blind:
    """Sees nothing, and says why."""

    def __init__(self, why: str) -> None:
        self.notes: dict[str, None] = {why: None}

    def looks(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        yield from ()

    def behind_s(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


def _seen_here(files: Files) -> list[int]:
    """The server's first process, if it is one of this machine's. Raises ServerError."""
    pid = files.session().info.backend_pid
    try:
        before, _, behind = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        ours = before.split("(", 1)[1] in ("postgres", "postmaster")
        return [int(behind.split()[1])] if ours else []
    except (OSError, ValueError, IndexError):
        return []
