"""Changes of settings that outlive a session: recorded in a note before, put back after.

The note is a file in pgpaces' home, one for each server, written before any change. After a kill
the note remains, and the next run puts everything back first. A setting that another session
changed in the meantime stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg import sql

from pgpaces.core.errors import ServerError
from pgpaces.core.home import home, make_folder, matching
from pgpaces.core.messages import message
from pgpaces.core.sessions import Identifier, Session, errors, scalar
from pgpaces.core.texts import Say
from pgpaces.database.access import Access, common, connect, locked, server_id, with_names

# Settings that are lists of names: the server quotes each, so each must be a separate literal.
_LISTS = (
    *("local_preload_libraries", "session_preload_libraries", "shared_preload_libraries"),
    *("search_path", "temp_tablespaces", "unix_socket_directories"),
)
_LOADED_S = 10.0
SYSTEM = ""


class SettingChange(Struct, frozen=True):
    """A setting of the whole server (dbname is SYSTEM) or of one database.

    before: the value in postgresql.auto.conf or the database's settings, None: none. after: the
    value there after the change, None before that is known. restart: it takes effect by a restart.
    """

    name: str
    dbname: str
    before: str | None
    after: str | None = None
    restart: bool = False


class Note:
    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, admin: Session, access: Access) -> Note:
        """The note of a server; a standby has its own, though its `server_id` is its primary's."""
        part = "-standby" if scalar(admin, "SELECT pg_is_in_recovery()") else ""
        return cls(_folder() / f"{server_id(admin, access)}{part}.json")

    def read(self) -> list[SettingChange]:
        """All changes, the oldest first. Raises ServerError."""
        try:
            return msgspec.convert(json.loads(self.path.read_text("utf-8")), list[SettingChange])
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ServerError("settings-note-unreadable", path=self.path, why=str(error)) from None

    def write(self, changes: list[SettingChange]) -> None:
        """Replaces the file, durably; removes it where no change is left."""
        try:
            if not changes:
                self.path.unlink(missing_ok=True)
                return
            make_folder(self.path.parent)
            new = self.path.with_suffix(".new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(msgspec.to_builtins(changes), file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise ServerError("home-unusable", path=self.path, why=error.strerror) from None


def _folder() -> Path:
    return home() / "settings"


# Notes whose lock a thread of this process has: it may make further changes.
_LOCKED: set[tuple[Path, int]] = set()


class SettingChanges:
    """The changes of settings on one server, under a lock of that server.

    A restart of the server ends the session: `reopen` opens a new one.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._stack = contextlib.ExitStack()
        self.admin: Session
        self._note: Note
        self._outer: list[SettingChange] | None = None

    def open(self) -> bool:
        """Connects and takes the lock; false if another pgpaces has it. Raises ServerError."""
        self.close()
        self.admin = self._stack.enter_context(connect(self._access))
        self._note = Note.of(self.admin, self._access)
        key = (self._note.path, threading.get_ident())
        if key not in _LOCKED:
            if not locked(self._stack.enter_context(common(self._access)), "settings"):
                return False
            _LOCKED.add(key)
            self._stack.callback(_LOCKED.discard, key)
            self._outer = self._outer or []
        elif self._outer is None:
            self._outer = self._note.read()
        return True

    def ensure_open(self) -> None:
        """Connects again if the session ended, as by a restart. Raises ServerError."""
        try:
            self.admin.execute("SELECT 1")
        except psycopg.Error:
            self.reopen()

    def reopen(self) -> None:
        """Connects again after a restart. Raises ServerError."""
        if not self.open():
            raise ServerError("settings-locked")

    def close(self) -> None:
        """Releases the lock; ignores errors of dead sessions."""
        with contextlib.suppress(Exception):
            self._stack.close()
        self._stack = contextlib.ExitStack()

    def changes(self) -> list[SettingChange]:
        """The changes to put back: all of the note except the changes of an outer block."""
        return [change for change in self._note.read() if change not in (self._outer or [])]

    def forget(self, done: list[SettingChange]) -> None:
        self._note.write([change for change in self._note.read() if change not in done])

    def change(self, change: SettingChange, value: str) -> None:
        """Records and makes a change. Raises ServerError, psycopg.Error."""
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

    def set(self, change: SettingChange, value: str | None) -> None:
        set_to(self.admin, change, value)

    def current(self, change: SettingChange) -> str | None:
        """The value in postgresql.auto.conf or the database's settings; None: none."""
        if change.dbname == SYSTEM:
            query = (
                "SELECT setting FROM pg_catalog.pg_file_settings"
                " WHERE sourcefile LIKE '%%/postgresql.auto.conf' AND lower(name) = lower(%s)"
                " ORDER BY seqno DESC LIMIT 1"
            )
            current = scalar(self.admin, query, (change.name,))
            return None if current is None else str(current)
        pairs = settings_of(self.admin, change.dbname)
        return next((v for name, v in pairs if name.lower() == change.name.lower()), None)

    def reload(self) -> None:
        """Reloads the configuration and waits for it to take effect. Raises ServerError."""
        before = scalar(
            self.admin, "SELECT pg_conf_load_time()::text FROM (SELECT pg_reload_conf()) r"
        )
        deadline = time.monotonic() + _LOADED_S
        # When the backend of this session has read the files, the postmaster has read them, too.
        while scalar(self.admin, "SELECT pg_conf_load_time()::text") == before:
            if time.monotonic() > deadline:
                raise ServerError("configuration-not-reloaded", wait_s=_LOADED_S)
            self.admin.execute("SELECT pg_sleep(0.01)")

    def awaits_restart(self, names: list[str]) -> bool:
        """Whether one of these differs from the files, after a reload, until a restart."""
        query = (
            "SELECT count(*) FROM pg_catalog.pg_settings"
            " WHERE pending_restart AND lower(name) = ANY(%s)"
        )
        return bool(scalar(self.admin, query, ([name.lower() for name in names],)))


def set_to(admin: Session, change: SettingChange, value: str | None) -> None:
    """Sets it, or for None resets it; ignores `before` and `after`.

    SQL has no literal for an empty list: '' is a list of one empty name. A database gets the
    value of the session; the whole server is left with that of postgresql.conf.
    """
    database = with_names("ALTER DATABASE {}", change.dbname)
    scope = sql.Composed([sql.SQL("ALTER SYSTEM")]) if change.dbname == SYSTEM else database
    name = sql.SQL(".").join(map(Identifier, change.name.split(".")))
    is_empty = value is not None and is_empty_list(change.name, value)
    if is_empty and change.dbname != SYSTEM:
        with admin.transaction():
            admin.execute("SELECT set_config(%s, '', true)", (change.name,))
            admin.execute(sql.SQL("{} SET {} FROM CURRENT").format(scope, name))
    elif value is None or is_empty:
        admin.execute(sql.SQL("{} RESET {}").format(scope, name))
    else:
        names = names_in(value) if change.name.lower() in _LISTS else [value]
        literals = sql.SQL(", ").join(map(sql.Literal, names))
        admin.execute(sql.SQL("{} SET {} = {}").format(scope, name, literals))


def is_empty_list(name: str, value: str) -> bool:
    return name.lower() in _LISTS and not names_in(value)


def settings_of(admin: Session, dbname: str) -> list[tuple[str, str]]:
    """The settings of a database, which CREATE DATABASE does not copy."""
    query = (
        "SELECT split_part(entry, '=', 1), substr(entry, strpos(entry, '=') + 1)"
        " FROM pg_catalog.pg_db_role_setting s"
        " JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, unnest(setconfig) entry"
        " WHERE setrole = 0 AND datname = %s"
    )
    return [(str(name), str(value)) for name, value in admin.execute(query, (dbname,)).fetchall()]


def names_in(text: str) -> list[str]:
    """The names in a list as the server writes it: separated by commas, quoted where necessary."""
    words = re.findall(r'"(?:[^"]|"")*"|[^",\s][^",]*', text)
    return [
        word[1:-1].replace('""', '"') if word.startswith('"') else word.strip() for word in words
    ]


@contextlib.contextmanager
def opened(access: Access) -> Iterator[SettingChanges]:
    """The changes of a server, open for more. Raises ServerError if another pgpaces has them."""
    ledger = SettingChanges(access)
    with contextlib.closing(ledger), errors("cannot-change-settings"):
        if not ledger.open():
            raise ServerError("settings-locked")
        yield ledger


Restart = Callable[[], None]


def put_back(ledger: SettingChanges, restart: Restart | None, say: Say) -> None:
    """Undoes all changes, the last first, and verifies it. Raises ServerError, psycopg.Error."""
    changes = ledger.changes()
    foreign, needs_restart = [], False
    for change in reversed(changes):
        current = ledger.current(change)
        if current == change.before:
            continue
        if change.after is not None and current != change.after:
            say(message("setting-of-other-session", setting=change.name))
            foreign.append(change)
        else:
            ledger.set(change, change.before)
            needs_restart |= change.restart
    undone = [change for change in changes if change not in foreign]
    # Also what a killed run put back in the file: the kill may have come before the reload.
    if of_server := [change.name for change in undone if change.dbname == SYSTEM]:
        ledger.reload()
        if needs_restart or ledger.awaits_restart(of_server):
            if restart is None:
                say(message("settings-await-restart"))
            else:
                restart()
                ledger.reopen()
    oldest = {(change.name.lower(), change.dbname): change for change in reversed(undone)}
    wrong = [change for change in oldest.values() if ledger.current(change) != change.before]
    ledger.forget([change for change in changes if change not in wrong])
    if wrong:
        raise ServerError("settings-not-taken-back", settings=[change.name for change in wrong])


def put_back_leftovers(access: Access, restart: Restart | None, say: Say) -> None:
    """Undoes the changes that a killed pgpaces left on this server. Raises ServerError."""
    if not matching(_folder(), "*.json"):
        return
    with connect(access) as admin:
        if not Note.of(admin, access).path.exists():
            return
    ledger = SettingChanges(access)
    with contextlib.closing(ledger), errors("settings-left-changed"):
        if ledger.open() and (left := ledger.changes()):
            names = [change.name for change in left]
            say(message("settings-of-killed-run", settings=names))
            put_back(ledger, restart, say)


def server_file(admin: Session) -> tuple[Path, bytes] | None:
    """The path and content of postgresql.auto.conf; None if it is not writable from here."""
    path = Path(scalar(admin, "SELECT current_setting('data_directory')")) / "postgresql.auto.conf"
    try:
        return (path, path.read_bytes()) if os.access(path, os.W_OK) else None
    except OSError:
        return None
