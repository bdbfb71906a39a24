"""Settings for a load, applied with the smallest scope possible, verified, and put back.

First as options of its connections; if these do not reach the server, as settings of a managed
database; then, if allowed, as settings of the whole server.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import psycopg
from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.core.errors import ConsentError, PgpacesError, PlanError, ServerError, similar
from pgpaces.core.sessions import Session, errors, scalar
from pgpaces.database import ownership
from pgpaces.database.access import Access, connect
from pgpaces.database.changes import SYSTEM, Journal, SettingChange, is_empty_list
from pgpaces.server import profiles

How = Literal["connection", "database", "reload", "restart"]
_OF_SESSIONS = ("user", "superuser", "backend", "superuser-backend")
_SETTABLE = ("user", "superuser")
# A default of every server.
_HARMLESS = (("geqo", "on"),)
_CUSTOM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)+")


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

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


def as_options(present: str, pairs: Sequence[tuple[str, str]]) -> str:
    """libpq's `options` with these settings after the present ones."""
    words = [re.sub(r"([\\\s])", r"\\\1", f"{n}={v}", flags=re.ASCII) for n, v in pairs]
    return " ".join([*([present] if present else []), *(f"-c {word}" for word in words)])


@contextlib.contextmanager
def applied(journal: Journal, dbname: str, requested: Mapping[str, str]) -> Iterator[Applied]:
    """Settings in effect for a load on `dbname`.

    Raises PlanError for a setting or value that the server does not know, ConsentError for a
    change that the user did not allow, ServerError for a setting that cannot be changed or does
    not take effect.
    """
    settings = _look_up(journal.access, dbname, requested)
    how = _scopes(journal, dbname, settings)
    options = tuple((each.name, each.value) for each in settings if how[each.name] == "connection")
    changing = [each for each in settings if how[each.name] != "connection"]
    with journal.putting_back() if changing else contextlib.nullcontext():
        with errors("cannot-change-settings"):
            _change(journal, dbname, changing, how=how)
        effect = Applied(options, how)
        seen = _seen(journal.access, effect, settings, dbname=dbname) if settings else []
        for each, shown, is_set in seen:
            if not is_set:
                is_empty = is_empty_list(each.name, each.value)
                by_file = is_empty and how[each.name] in ("reload", "restart")
                name = "list-not-emptied" if by_file else "setting-not-in-effect"
                raise ServerError(name, setting=each.name, value=each.value, shown=shown)
        yield replace(effect, verified={each.name: shown for each, shown, _ in seen})


def server_contexts(access: Access, requested: Mapping[str, str]) -> dict[str, str]:
    """The context of those that cannot be set for one session: sighup, postmaster.

    Raises PlanError, ServerError for settings that the server does not know or cannot set.
    """
    settings = _look_up(access, access.dbname, requested)
    contexts = {each.name.lower(): each.context for each in settings}
    pairs = ((name, contexts.get(name.lower())) for name in requested)
    return {n: context for n, context in pairs if context and context not in _OF_SESSIONS}


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
        major = session.info.server_version // 10_000
        for name, value in profiles.known(requested, major).items():
            if name.lower() not in catalog and not _CUSTOM_NAME.fullmatch(name):
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


def _scopes(journal: Journal, dbname: str, settings: list[_Setting]) -> dict[str, How]:
    """The scope of each setting, by name. Raises ConsentError, ServerError."""
    access, terms = journal.access, journal.terms
    of_sessions = [each for each in settings if each.context in _OF_SESSIONS]
    lost = of_sessions if terms.pooled else _lost(access, dbname, of_sessions)
    managed = False
    if any(each.context in _SETTABLE for each in lost):
        with connect(access) as admin:
            found = ownership.find(admin, dbname)
            managed = found is not None and found.owned is not None
    how: dict[str, How] = {}
    for each in settings:
        if each in of_sessions and each not in lost:
            how[each.name] = "connection"
        elif managed and each.context in _SETTABLE:
            how[each.name] = "database"
        else:
            how[each.name] = "restart" if each.context == "postmaster" else "reload"
    of_server = [name for name, way in how.items() if way in ("reload", "restart")]
    if of_server and not (terms.managed or terms.alter_system):
        if set(of_server) & {each.name for each in lost}:
            raise ConsentError("connection-options-lost", settings=of_server, dbname=dbname)
        raise ConsentError("alter-system-not-allowed", settings=of_server)
    needy = [name for name, way in how.items() if way == "restart"]
    if needy and terms.restart is None:
        raise ServerError("restart-not-configured", settings=needy)
    return how


def _change(
    journal: Journal, dbname: str, settings: list[_Setting], *, how: Mapping[str, How]
) -> None:
    """Sets them, and reloads or restarts the server if necessary. Raises PgpacesError."""
    for each in settings:
        where = dbname if how[each.name] == "database" else SYSTEM
        with _setting_errors(each):
            journal.change(SettingChange(each.name, where), each.value)
    ways = {how[each.name] for each in settings}
    if "restart" in ways and journal.terms.restart is not None:
        try:
            journal.terms.restart()
        except PgpacesError as error:
            values = [str(each) for each in settings]
            name = "server-stopped-by-settings"
            raise ServerError(name, settings=values, why=error.message) from None
        journal.ensure_open()
    elif "reload" in ways:
        journal.reload()


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
    except psycopg.Error as error:
        if error.sqlstate is None:  # the session is gone
            raise
        why = error.diag.message_primary or str(error).strip()
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            raise ServerError("setting-not-permitted", setting=setting.name, why=why) from None
        wrong = psycopg.errors.InvalidParameterValue | psycopg.errors.UndefinedObject
        kind = PlanError if isinstance(error, wrong) else ServerError
        detail = error.diag.message_hint or error.diag.message_detail
        raise kind("setting-rejected", setting=str(setting), why=why, detail=detail) from None


def _like_the_load(access: Access, options: Sequence[tuple[str, str]]) -> Access:
    text = as_options(access.keywords.get("options", ""), options)
    return replace(access, keywords=dict(access.keywords) | ({"options": text} if text else {}))


def _lost(access: Access, dbname: str, settings: list[_Setting]) -> list[_Setting]:
    """Settings that have no effect as options of a connection, as with some poolers."""
    if not settings:
        return []
    options = tuple((each.name, each.value) for each in settings)
    has_connected = False
    try:
        with connect(_like_the_load(access, options), dbname, as_the_load=True) as session:
            has_connected = True
            return [each for each in settings if not _is_in_effect(session, each, "connection")[1]]
    except ServerError as error:
        if has_connected:
            raise
        # Connecting without options worked. If it works with others, the values are wrong.
        with contextlib.suppress(ServerError), connect(_like_the_load(access, _HARMLESS), dbname):
            values = [str(each) for each in settings]
            raise PlanError("settings-prevent-login", settings=values, why=error.message) from None
        return settings


def _seen(
    access: Access, effect: Applied, settings: list[_Setting], *, dbname: str
) -> list[tuple[_Setting, str, bool]]:
    """Each with its value in a session like the load's, and whether that is the requested one."""
    with connect(_like_the_load(access, effect.options), dbname, as_the_load=True) as session:
        return [(each, *_is_in_effect(session, each, effect.how[each.name])) for each in settings]


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
    if is_empty_list(setting.name, setting.value):
        return current, not current and not pending
    altered = source == "configuration file" and str(file).endswith("/postgresql.auto.conf")
    return current, altered and not pending
