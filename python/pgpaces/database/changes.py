"""Changes of settings that outlive a session: recorded in a note before, put back after.

The note is a file in pgpaces' home, one for each server, written before any change. After a kill
the note remains, and the next run puts everything back first. A setting that another session
changed in the meantime stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg import sql

from pgpaces.core.errors import PgpacesError, ServerError
from pgpaces.core.home import home, make_folder, matching
from pgpaces.core.messages import message
from pgpaces.core.sessions import Identifier, Session, errors, scalar
from pgpaces.core.texts import Say, Warned
from pgpaces.database.access import Access, common, connect, locked, with_names

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
    value there after the change, None before that is known.
    """

    name: str
    dbname: str
    before: str | None = None
    after: str | None = None


class Terms(Struct, frozen=True):
    """The permitted ways to change settings of a server.

    managed: it is a managed server. alter_system: the user allows settings of the whole server.
    restart: restarts it and returns when it is ready; it ends all sessions, also the one that
    locks the prepared database. pooled: the load uses a pooler that drops options.
    """

    managed: bool = False
    alter_system: bool = False
    restart: Callable[[], None] | None = None
    say: Say = lambda _: None
    pooled: bool = False


class Journal:
    """The changes of settings on one server, the oldest first, under a lock of that server.

    It connects and takes the lock before the first change, and again after a restart.
    """

    def __init__(self, access: Access, terms: Terms) -> None:
        self.access, self.terms = access, terms
        self.changes: list[SettingChange] = []
        self._stack = contextlib.ExitStack()
        self._admin: Session | None = None
        self._note = Path()

    def _open(self) -> bool:
        """Connects, takes the lock, and reads the note; false, without a session, if another
        pgpaces has the lock. Raises ServerError.
        """
        self.close()
        self._admin = self._stack.enter_context(common(self.access))
        self._note = note_of(self._admin, self.access)
        if not locked(self._admin, "settings"):
            self.close()  # what is known stays for a later attempt, and the note is not ours
            return False
        self.changes = read_note(self._note)
        return True

    def ensure_open(self) -> None:
        """Connects if there is no session, as after a restart. Raises ServerError."""
        with contextlib.suppress(psycopg.Error):
            if self._admin is not None:
                self._admin.execute("SELECT 1")
                return
        with errors("cannot-change-settings"):
            if not self._open():
                raise ServerError("settings-locked")

    def close(self) -> None:
        """Releases the lock; ignores errors of dead sessions."""
        with contextlib.suppress(Exception):
            self._stack.close()
        self._stack, self._admin = contextlib.ExitStack(), None

    @property
    def admin(self) -> Session:
        assert self._admin is not None
        return self._admin

    @contextlib.contextmanager
    def putting_back(self) -> Iterator[None]:
        """Puts back what was changed within it. An error in that hides no earlier error."""
        first = len(self.changes)
        self.ensure_open()
        try:
            yield
        except BaseException as error:
            try:
                self.put_back(first)
            except (psycopg.Error, PgpacesError) as second:
                text = Warned(message("settings-not-put-back", error=str(second)))
                self.terms.say(text)
                error.add_note(text)
            raise
        try:
            self.put_back(first)
        except (psycopg.Error, ServerError) as error:
            raise ServerError("settings-not-restored", why=str(error).strip()) from None

    def record(self, changes: list[SettingChange]) -> None:
        """Makes these the changes, in the note first. Raises ServerError."""
        write_note(self._note, changes)
        self.changes = changes

    def change(self, change: SettingChange, value: str) -> None:
        """Records and makes a change. Raises ServerError, psycopg.Error."""
        change = replace(change, before=self.current(change))
        others = self.changes
        self.record([*others, change])
        try:
            self.set(change, value)
        except psycopg.Error:
            # A refused value has changed nothing, so nothing is put back, reloaded, or restarted.
            with contextlib.suppress(psycopg.Error):
                if self.current(change) == change.before:
                    self.record(others)
            raise
        self.record([*others, replace(change, after=self.current(change))])

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

    def put_back(self, first: int = 0) -> None:
        """Undoes the changes from `first` on, the last first, and verifies it.

        Raises ServerError, psycopg.Error.
        """
        self.ensure_open()
        changes, terms = self.changes[first:], self.terms
        foreign = []
        for change in reversed(changes):
            current = self.current(change)
            if current == change.before:
                continue
            if change.after is not None and current != change.after:
                terms.say(message("setting-of-other-session", setting=change.name))
                foreign.append(change)
            else:
                self.set(change, change.before)
        undone = [change for change in changes if change not in foreign]
        # Also what a killed run put back in the file: the kill may have come before the reload.
        if of_server := [change.name for change in undone if change.dbname == SYSTEM]:
            self.reload()
            if self.awaits_restart(of_server):
                if terms.restart is None:
                    terms.say(message("settings-await-restart"))
                else:
                    terms.restart()
                    self.ensure_open()
        oldest = {(change.name.lower(), change.dbname): change for change in reversed(undone)}
        wrong = [change for change in oldest.values() if self.current(change) != change.before]
        self.record([*self.changes[:first], *wrong])
        if wrong:
            raise ServerError("settings-not-taken-back", settings=[change.name for change in wrong])

    def put_back_leftovers(self) -> None:
        """Undoes the changes that a killed pgpaces left on this server. Raises ServerError."""
        if not matching(_folder(), "*.json"):
            return
        with connect(self.access) as admin:
            if not note_of(admin, self.access).exists():
                return
        with contextlib.closing(self), errors("settings-left-changed"):
            if self._open() and self.changes:
                names = [change.name for change in self.changes]
                self.terms.say(message("settings-of-killed-run", settings=names))
                self.put_back()


@contextlib.contextmanager
def journal(access: Access, terms: Terms) -> Iterator[Journal]:
    """The journal of a server, after what a killed run left changed is put back.

    Raises ServerError.
    """
    with contextlib.closing(Journal(access, terms)) as made:
        made.put_back_leftovers()
        yield made


def _folder() -> Path:
    return home() / "settings"


def note_of(admin: Session, access: Access) -> Path:
    """The note of a server, by its system identifier, or its address if the role may not read that.

    A standby, whose identifier is its primary's, has its own note.
    """
    part = "-standby" if scalar(admin, "SELECT pg_is_in_recovery()") else ""
    try:
        name = str(scalar(admin, "SELECT system_identifier::text FROM pg_control_system()"))
    except psycopg.errors.InsufficientPrivilege:
        address = [access.keywords.get(word, "") for word in ("host", "hostaddr", "port")]
        name = hashlib.sha256("\0".join(address).encode()).hexdigest()[:16]
    return _folder() / f"{name}{part}.json"


def read_note(path: Path) -> list[SettingChange]:
    """All changes, the oldest first. Raises ServerError."""
    try:
        return msgspec.convert(json.loads(path.read_text("utf-8")), list[SettingChange])
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ServerError("settings-note-unreadable", path=path, why=str(error)) from None


def write_note(path: Path, changes: Sequence[SettingChange]) -> None:
    """Replaces the file, durably; removes it if no change is left. Raises ServerError."""
    try:
        if not changes:
            path.unlink(missing_ok=True)
            return
        make_folder(path.parent)
        new = path.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(msgspec.to_builtins(changes), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise ServerError("home-unusable", path=path, why=error.strerror) from None


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
