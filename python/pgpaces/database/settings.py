"""Settings for a load, applied with the smallest scope possible, verified, and put back.

First as options of its connections; if these do not reach the server, as settings of a managed
database; then, if allowed, as settings of the whole server.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import psycopg
from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.core.errors import ConsentError, PgpacesError, PlanError, ServerError, similar
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session, scalar
from pgpaces.core.texts import Say, Warned
from pgpaces.database import changes
from pgpaces.database.access import Access, connect
from pgpaces.database.changes import SYSTEM, SettingChange, SettingChanges
from pgpaces.database.ownership import Ownership, comment_on

How = Literal["connection", "database", "reload", "restart"]
_OF_SESSIONS = ("user", "superuser", "backend", "superuser-backend")
_SETTABLE = ("user", "superuser")
# A default of every server.
_HARMLESS = (("geqo", "on"),)
_CUSTOM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)+")


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


class Applied(Struct, frozen=True):
    """Settings in effect. options: those that the load's connections must set.

    how: the scope of each. verified: the value of each in a session like the load's.
    """

    options: tuple[tuple[str, str], ...] = ()
    how: Mapping[str, How] = field(default_factory=dict)
    verified: Mapping[str, str] = field(default_factory=dict)


class _Setting(Struct, frozen=True):
    """A requested setting: its name in the server's spelling, value and context."""

    name: str
    value: str
    context: str


def as_options(present: str, pairs: Sequence[tuple[str, str]]) -> str:
    """libpq's `options` with these settings after the present ones."""
    words = [re.sub(r"([\\\s])", r"\\\1", f"{n}={v}", flags=re.ASCII) for n, v in pairs]
    return " ".join([*([present] if present else []), *(f"-c {word}" for word in words)])


@contextlib.contextmanager
def applied(
    access: Access, dbname: str, requested: Mapping[str, str], *, terms: Terms
) -> Iterator[Applied]:
    """Settings in effect for a load on `dbname`.

    First puts back settings that a killed run left changed. Raises PlanError for a setting or
    value that the server does not know, ConsentError for a change that the user did not allow,
    ServerError for a setting that cannot be changed or does not take effect.
    """
    changes.put_back_leftovers(access, terms.restart, terms.say)
    settings = _look_up(access, dbname, requested)
    of_sessions = [setting for setting in settings if setting.context in _OF_SESSIONS]
    of_server = [setting for setting in settings if setting.context not in _OF_SESSIONS]
    lost = of_sessions if terms.pooled else _lost(access, dbname, of_sessions)
    options = tuple((setting.name, setting.value) for setting in of_sessions if setting not in lost)
    how: dict[str, How] = {name: "connection" for name, _ in options}
    settable = [setting for setting in lost if setting.context in _SETTABLE]
    by_database = []
    if settable:
        with connect(access) as admin:
            if Ownership.read(comment_on(admin, dbname)[1]) is not None:
                by_database = settable
    of_server += [setting for setting in lost if setting not in by_database]
    _check_allowed(access, dbname, of_server, terms=terms)
    if not (by_database or of_server):
        yield _verified(access, dbname, Applied(options, how), settings=settings)
        return
    with changes.opened(access) as ledger, _putting_back(ledger, terms):
        for setting in by_database:
            with _setting_errors(setting):
                ledger.change(SettingChange(setting.name, dbname, None), setting.value)
            how[setting.name] = "database"
        how |= _alter_system(ledger, of_server, terms)
        yield _verified(access, dbname, Applied(options, how), settings=settings)


def server_contexts(access: Access, requested: Mapping[str, str]) -> dict[str, str]:
    """The context of those that cannot be set for one session: sighup, postmaster.

    Raises PlanError, ServerError for settings that the server does not know or cannot set.
    """
    settings = _look_up(access, access.dbname, requested)
    contexts = {each.name.lower(): each.context for each in settings}
    pairs = ((name, contexts.get(name.lower())) for name in requested)
    return {n: context for n, context in pairs if context and context not in _OF_SESSIONS}


@contextlib.contextmanager
def _putting_back(ledger: SettingChanges, terms: Terms) -> Iterator[None]:
    """Puts everything back at the end. An error in that hides no earlier error."""

    def put_back() -> None:
        ledger.ensure_open()
        changes.put_back(ledger, terms.restart, terms.say)

    try:
        yield
    except BaseException as error:
        try:
            put_back()
        except (psycopg.Error, PgpacesError) as second:
            text = Warned(message("settings-not-put-back", error=str(second)))
            terms.say(text)
            error.add_note(text)
        raise
    try:
        put_back()
    except (psycopg.Error, ServerError) as error:
        raise ServerError("settings-not-restored", why=str(error).strip()) from None


def _look_up(access: Access, dbname: str, requested: Mapping[str, str]) -> list[_Setting]:
    """The settings as the server has them. Raises PlanError, ServerError."""
    if not requested:
        return []
    with connect(access, dbname) as session:
        rows = session.execute(
            "SELECT name, context, source FROM pg_catalog.pg_settings"
        ).fetchall()
        catalog = {row[0].lower(): row for row in rows}
        settings = []
        for name, value in requested.items():
            known = name.lower() in catalog
            # A server without jit need not know that it is off.
            if not known and (name.lower(), value.lower()) == ("jit", "off"):
                continue
            if not known and not _CUSTOM_NAME.fullmatch(name):
                version = session.info.parameter_status("server_version")
                near = similar(name.lower(), [row[0] for row in rows])
                raise PlanError("unknown-setting", setting=name, version=version, near=near)
            spelling, context, source = catalog.get(name.lower(), (name, "user", ""))
            setting = _Setting(spelling, value, context)
            if context == "internal":
                raise PlanError("setting-is-fixed", setting=spelling)
            if context in _SETTABLE:
                with _setting_errors(setting):
                    _values(session, setting)
            elif context not in _OF_SESSIONS and source == "command line":
                raise ServerError("setting-on-command-line", setting=spelling)
            settings.append(setting)
    return settings


def _values(session: Session, setting: _Setting) -> tuple[str, str]:
    """The current value in a session, and the requested one as it shows it; psycopg.Error."""
    with session.transaction(force_rollback=True):
        current = scalar(session, "SELECT current_setting(%s, true)", (setting.name,))
        query = "SELECT set_config(%s, %s, true)"
        requested = scalar(session, query, (setting.name, setting.value))
        return "" if current is None else str(current), str(requested)


@contextlib.contextmanager
def _setting_errors(setting: _Setting) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        why = _primary(error)
        raise ServerError("setting-not-permitted", setting=setting.name, why=why) from None
    except psycopg.Error as error:
        if error.sqlstate is None:  # the session is gone
            raise
        pair, why = f"{setting.name} = {setting.value}", _primary(error)
        detail = error.diag.message_hint or error.diag.message_detail
        if isinstance(error, psycopg.errors.InvalidParameterValue | psycopg.errors.UndefinedObject):
            raise PlanError("setting-rejected", setting=pair, why=why, detail=detail) from None
        raise ServerError("setting-rejected", setting=pair, why=why, detail=detail) from None


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip()


def _like_the_load(access: Access, options: Sequence[tuple[str, str]]) -> Access:
    text = as_options(access.keywords.get("options", ""), options)
    return replace(access, keywords=dict(access.keywords) | ({"options": text} if text else {}))


def _lost(access: Access, dbname: str, settings: list[_Setting]) -> list[_Setting]:
    """Settings that have no effect as options of a connection, as with some poolers."""
    if not settings:
        return []
    pairs = [(setting.name, setting.value) for setting in settings]
    connected = False
    try:
        with connect(_like_the_load(access, pairs), dbname, as_the_load=True) as session:
            connected = True
            return [each for each in settings if not _is_in_effect(session, each, "connection")[1]]
    except ServerError as error:
        # Connecting without options worked. If it works with others, the values are wrong.
        if connected:
            raise
        with contextlib.suppress(ServerError), connect(_like_the_load(access, _HARMLESS), dbname):
            values = [f"{name} = {value}" for name, value in pairs]
            raise PlanError("settings-prevent-login", settings=values, why=error.message) from None
        return settings


def _is_in_effect(session: Session, setting: _Setting, how: How) -> tuple[str, bool]:
    """The value in a session, and whether it is the requested one to the server."""
    if setting.context in _SETTABLE:
        current, requested = _values(session, setting)
        return current, current == requested
    row: Any = session.execute(
        "SELECT current_setting(name), source, sourcefile, pending_restart"
        " FROM pg_catalog.pg_settings WHERE name = %s",
        (setting.name,),
    ).fetchone()
    current, source, file, pending = row
    if how == "connection":
        return current, source == "client"
    if changes.is_empty_list(setting.name, setting.value):
        return current, not current and not pending
    altered = source == "configuration file" and str(file).endswith("/postgresql.auto.conf")
    return current, altered and not pending


def _check_allowed(access: Access, dbname: str, settings: list[_Setting], *, terms: Terms) -> None:
    """Raises ConsentError, ServerError for settings of the whole server that are not allowed."""
    if settings and not (terms.managed or terms.alter_system):
        names = [setting.name for setting in settings]
        if settings[0].context in _OF_SESSIONS:
            raise ConsentError("connection-options-lost", settings=names, dbname=dbname)
        raise ConsentError("alter-system-not-allowed", settings=names)
    needy = [setting.name for setting in settings if setting.context == "postmaster"]
    if needy and terms.restart is None:
        raise ServerError("restart-not-configured", settings=needy)


def _alter_system(ledger: SettingChanges, settings: list[_Setting], terms: Terms) -> dict[str, How]:
    """Sets by ALTER SYSTEM and reloads or restarts the server; returns the way of each."""
    if not settings:
        return {}
    file = changes.server_file(ledger.admin) if terms.managed else None
    how: dict[str, How] = {}
    for setting in settings:
        needs_restart = setting.context == "postmaster"
        change = SettingChange(setting.name, SYSTEM, None, restart=needs_restart)
        with _setting_errors(setting):
            ledger.change(change, setting.value)
        how[setting.name] = "restart" if needs_restart else "reload"
    if terms.restart is None or "restart" not in how.values():
        ledger.reload()
        return how
    try:
        terms.restart()
    except PgpacesError as error:
        values = [f"{setting.name} = {setting.value}" for setting in settings]
        name = "server-stopped-by-settings"
        if file is not None:
            path, before = file
            path.write_bytes(before)
            terms.restart()
            ledger.reopen()
            name = "server-started-without-settings"
        raise ServerError(name, settings=values, why=error.message) from None
    ledger.reopen()
    return how


def _verified(access: Access, dbname: str, effect: Applied, *, settings: list[_Setting]) -> Applied:
    """Adds the values in a session like the load's. Raises ServerError for any other value."""
    if not settings:
        return effect
    shown = {}
    with connect(_like_the_load(access, effect.options), dbname, as_the_load=True) as session:
        for setting in settings:
            how = effect.how[setting.name]
            shown[setting.name], matches = _is_in_effect(session, setting, how)
            if not matches:
                is_empty = changes.is_empty_list(setting.name, setting.value)
                by_file = is_empty and how in ("reload", "restart")
                name = "list-not-emptied" if by_file else "setting-not-in-effect"
                values = {"value": setting.value, "shown": shown[setting.name]}
                raise ServerError(name, setting=setting.name, **values)
    return replace(effect, verified=shown)
