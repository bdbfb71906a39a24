"""Settings that outlive a session: changed with a note of what was before, put back from the note.

The note is a file in pgpaces' home, one for each server, written before anything is changed. So a
kill leaves it behind, and whoever comes next puts everything back first. What somebody else changed
in the meantime is theirs and stays. Knows nothing of why a setting is wanted.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from pgpaces.database.access import Access, Say, common, connect, locked, server_id
from pgpaces.errors import ServerError
from pgpaces.home import home

if TYPE_CHECKING:
    from psycopg import sql

    from pgpaces.database.access import Session

# Settings that are lists of names: the server quotes each, so each must be a literal of its own.
_LISTS = frozenset(
    (
        "local_preload_libraries",
        "search_path",
        "session_preload_libraries",
        "shared_preload_libraries",
        "temp_tablespaces",
        "unix_socket_directories",
    )
)
_LOADED_S = 10.0
SYSTEM = ""


class SettingChange(Struct, frozen=True):
    """A setting of the whole server (dbname is SYSTEM) or of one database.

    before: what postgresql.auto.conf or the database's own settings held, None: nothing. after:
    what they hold since, None as long as that is not known. restart: it needs one to take effect.
    """

    name: str
    dbname: str
    before: str | None
    after: str | None = None
    restart: bool = False


class Note:
    """What is to be put back on one server, as a file that survives us."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, admin: Session, access: Access) -> Note:
        """The note of a server, by its system identifier, or by its address where it hides that."""
        return cls(_folder() / f"{server_id(admin, access)}.json")

    def read(self) -> list[SettingChange]:
        """Every change, in the order in which they were made. Raises ServerError."""
        try:
            return [SettingChange(**values) for values in json.loads(self.path.read_text("utf-8"))]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            raise ServerError(
                f"{self.path} says which settings of the server to put back, and cannot be read:"
                f" {error}",
                "look into it, put back by hand what it names, and remove it",
            ) from None

    def write(self, changes: list[SettingChange]) -> None:
        """Durable when this returns; no file where nothing is to be put back."""
        try:
            if not changes:
                self.path.unlink(missing_ok=True)
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_suffix(".new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump([asdict(change) for change in changes], file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise ServerError(
                f"what is to be put back on the server cannot be noted in {self.path}: {error}",
                "set PGPACES_HOME to a folder of yours on a disk with room",
            ) from None


def _folder() -> Path:
    return home() / "settings"


# The notes that a thread of ours has the lock of: within that it may change more.
_HELD: set[tuple[Path, int]] = set()


class SettingChanges:
    """The changes that somebody made on one server, under a lock that others see.

    A restart of the server ends its session: `again` makes a new one.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._stack = contextlib.ExitStack()
        self.admin: Session
        self._note: Note
        self._around: list[SettingChange] | None = None

    def open(self) -> bool:
        """Connects and takes the lock; false where another pgpaces has it. Raises ServerError."""
        self.close()
        self.admin = self._stack.enter_context(connect(self._access))
        self._note = Note.of(self.admin, self._access)
        key = (self._note.path, threading.get_ident())
        if key not in _HELD:
            if not self._lock():
                return False
            _HELD.add(key)
            self._stack.callback(_HELD.discard, key)
            self._around = self._around or []
        elif self._around is None:
            self._around = self._note.read()
        return True

    def _lock(self) -> bool:
        # Locks are a database's own: this one is taken where every pgpaces can find it.
        locks = self._stack.enter_context(common(self._access))
        return locked(locks, "settings")

    def alive(self) -> None:
        """Connects anew where the session ended, as by a restart. Raises ServerError."""
        import psycopg

        try:
            self.admin.execute("SELECT 1")
        except psycopg.Error:
            self.again()

    def again(self) -> None:
        """After a restart. Raises ServerError."""
        if not self.open():
            raise ServerError("another pgpaces changes settings of this server", "wait for it")

    def close(self) -> None:
        """Gives the lock back; sessions that are dead already are no matter."""
        with contextlib.suppress(Exception):
            self._stack.close()
        self._stack = contextlib.ExitStack()

    def changes(self) -> list[SettingChange]:
        """What is to be put back: all of the note but what was in effect around this."""
        return [change for change in self._note.read() if change not in (self._around or [])]

    def forget(self, done: list[SettingChange]) -> None:
        """These are put back."""
        self._note.write([change for change in self._note.read() if change not in done])

    def change(self, change: SettingChange, value: str) -> None:
        """Sets it, after a note of what was before. Raises ServerError, psycopg.Error."""
        change = replace(change, before=self.current(change))
        others = self._note.read()
        self._note.write([*others, change])
        try:
            self.set(change, value)
        except BaseException:
            if self.current(change) == change.before:
                self._note.write(others)
            raise
        self._note.write([*others, replace(change, after=self.current(change))])

    def current(self, change: SettingChange) -> str | None:
        """What postgresql.auto.conf or the database's own settings hold of it; None: nothing."""
        if change.dbname == SYSTEM:
            query = (
                "SELECT setting FROM pg_catalog.pg_file_settings"
                " WHERE sourcefile LIKE '%%/postgresql.auto.conf' AND lower(name) = lower(%s)"
                " ORDER BY seqno DESC LIMIT 1"
            )
            row = self.admin.execute(query, (change.name,)).fetchone()
        else:
            query = (
                "SELECT substr(entry, strpos(entry, '=') + 1)"
                " FROM pg_catalog.pg_db_role_setting s"
                " JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, unnest(setconfig) entry"
                " WHERE setrole = 0 AND datname = %s"
                " AND lower(split_part(entry, '=', 1)) = lower(%s)"
            )
            row = self.admin.execute(query, (change.dbname, change.name)).fetchone()
        return None if row is None else str(row[0])

    def set(self, change: SettingChange, value: str | None) -> None:
        """Sets or, for None, resets it."""
        self.admin.execute(statement(change, value))

    def reload(self) -> None:
        """Makes the server read its files, and waits until it has. Raises ServerError."""
        before = self._asked("SELECT pg_conf_load_time()::text FROM (SELECT pg_reload_conf()) r")
        deadline = time.monotonic() + _LOADED_S
        # Whoever answers has read them itself, and the postmaster did so before it told us to.
        while (loaded := self._asked("SELECT pg_conf_load_time()::text") != before) is False:
            if time.monotonic() > deadline:
                break
            self._asked("SELECT pg_sleep(0.01)")
        if not loaded:
            raise ServerError(
                f"the server did not read its configuration within {_LOADED_S:.0f} s",
                "its log says why",
            )

    def _asked(self, query: str) -> Any:
        row = self.admin.execute(query.encode()).fetchone()
        return row and row[0]


def statement(change: SettingChange, value: str | None) -> sql.Composed:
    """What sets it, or for None resets it; `before` and `after` do not matter."""
    from psycopg import sql

    from pgpaces.sessions import Identifier

    what = (
        sql.SQL("ALTER SYSTEM")
        if change.dbname == SYSTEM
        else sql.SQL("ALTER DATABASE {}").format(Identifier(change.dbname))
    )
    name = sql.SQL(".").join(map(Identifier, change.name.split(".")))
    if change.name.lower() in _LISTS and value is not None:
        literals = sql.SQL(", ").join(map(sql.Literal, names_in(value)))
    else:
        literals = sql.Composed([sql.Literal(value)])
    if value is None or not literals._obj:
        return sql.SQL("{} RESET {}").format(what, name)
    return sql.SQL("{} SET {} = {}").format(what, name, literals)


def names_in(text: str) -> list[str]:
    """The names of a list as the server writes it: apart by commas, quoted where they must be."""
    found, word, quoted = [], "", False
    for sign in text + ",":
        if sign == '"':
            quoted = not quoted
            # A second one, directly behind the first, is one that the name has.
            word += sign
        elif sign == "," and not quoted:
            found.append(word.strip())
            word = ""
        else:
            word += sign
    return [_unquoted(word) for word in found if word]


def _unquoted(word: str) -> str:
    if len(word) >= 2 and word[0] == word[-1] == '"':
        return word[1:-1].replace('""', '"')
    return word


@contextlib.contextmanager
def opened(access: Access) -> Iterator[SettingChanges]:
    """The changes of a server, for one who makes some. Raises ServerError where another does."""
    import psycopg

    made = SettingChanges(access)
    try:
        if not made.open():
            raise ServerError(
                "another pgpaces has changed settings of this server",
                "wait until it is done: each would measure what the other set",
            )
        yield made
    except psycopg.Error as error:
        raise ServerError(f"settings cannot be changed: {str(error).strip()}") from None
    finally:
        made.close()


Restart = Callable[[], None]


def put_back(made: SettingChanges, restart: Restart | None, say: Say) -> None:
    """Undoes every change, the last first, and verifies that. Raises ServerError, psycopg.Error."""
    changes = made.changes()
    done = []
    for change in reversed(changes):
        current = made.current(change)
        if current == change.before:
            done.append(change)
        elif change.after is not None and current != change.after:
            say(f"{change.name} was changed by somebody else in the meantime, and stays so")
            done.append(change)
        else:
            made.set(change, change.before)
    undone = [change for change in changes if change not in done]
    if any(change.dbname == SYSTEM for change in undone):
        _take_effect(made, any(change.restart for change in undone), restart, say)
    wrong = [change for change in undone if made.current(change) != change.before]
    made.forget([change for change in changes if change not in wrong])
    if wrong:
        names = ", ".join(change.name for change in wrong)
        raise ServerError(
            f"the server did not take back {names}", "look at postgresql.auto.conf and its log"
        )


def _take_effect(
    made: SettingChanges, needs_restart: bool, restart: Restart | None, say: Say
) -> None:
    if needs_restart and restart is not None:
        restart()
        made.again()
        return
    made.reload()
    if needs_restart:
        say("settings of the server are put back; some take effect when it is restarted")


def put_back_left_behind(access: Access, restart: Restart | None, say: Say) -> None:
    """Undoes what a pgpaces that was killed left changed on this server. Raises ServerError."""
    import psycopg

    if not any(_folder().glob("*.json")):
        return
    made = SettingChanges(access)
    try:
        if made.open() and (left := made.changes()):
            names = ", ".join(change.name for change in left)
            say(f"putting back what a run that was killed left changed: {names}")
            put_back(made, restart, say)
    except psycopg.Error as error:
        raise ServerError(
            f"settings that a killed run left changed cannot be put back: {str(error).strip()}",
            "the role must be able to change them",
        ) from None
    finally:
        made.close()


def server_file(admin: Session) -> tuple[Path, bytes] | None:
    """postgresql.auto.conf and what is in it, where that is a file which we may write."""
    row: Any = admin.execute("SELECT current_setting('data_directory')").fetchone()
    path = Path(row[0]) / "postgresql.auto.conf"
    try:
        return (path, path.read_bytes()) if os.access(path, os.W_OK) else None
    except OSError:
        return None
