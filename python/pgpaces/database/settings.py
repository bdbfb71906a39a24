"""Settings for a load, applied as mildly as it can be, verified, and put back at the end.

First as options of its connections; where these get lost on the way, as settings of our database;
then, where that is allowed, as settings of the whole server. Knows nothing of experiments.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.database import changes
from pgpaces.database.access import Access, Say, connect
from pgpaces.database.changes import SYSTEM, SettingChange, SettingChanges
from pgpaces.database.ownership import Ownership, comment_on
from pgpaces.errors import ConsentError, PgpacesError, PlanError, ServerError

if TYPE_CHECKING:
    import psycopg

    from pgpaces.database.access import Session

How = Literal["connection", "database", "reload", "restart"]
_OF_SESSIONS = ("user", "superuser", "backend", "superuser-backend")
_SETTABLE = ("user", "superuser")
# What every server has as its default.
_HARMLESS = (("geqo", "on"),)
_OWN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)+")


def _silent(_: str) -> None:
    """For those who want to hear nothing."""


class Terms(Struct, frozen=True):
    """What may be done to a server for a setting.

    ours: it is a managed server. alter_system: its owner allows settings of the whole server.
    restart: restarts it, and gives when it is back; it ends every session there, also that which
    holds a database prepared. pooled: the load goes there through a pooler that drops options.
    """

    ours: bool = False
    alter_system: bool = False
    restart: Callable[[], None] | None = None
    say: Say = _silent
    pooled: bool = False

    @property
    def whole_server(self) -> bool:
        """Whether settings of the whole server may be changed."""
        return self.ours or self.alter_system


class Applied(Struct, frozen=True):
    """Settings that are in effect. options: what the load's connections must carry.

    how: the way of each. verified: the value of each as a session like the load's shows it.
    """

    options: tuple[tuple[str, str], ...] = ()
    how: Mapping[str, How] = field(default_factory=dict)
    verified: Mapping[str, str] = field(default_factory=dict)


class _Wanted(Struct, frozen=True):
    """A setting, as the server spells it, with the value wanted and where it can be set."""

    name: str
    value: str
    context: str


def as_options(present: str, pairs: Sequence[tuple[str, str]]) -> str:
    """libpq's `options` with these settings behind what is there already."""
    words = [re.sub(r"([\\\s])", r"\\\1", f"{n}={v}", flags=re.ASCII) for n, v in pairs]
    return " ".join([*([present] if present else []), *(f"-c {word}" for word in words)])


@contextlib.contextmanager
def applied(
    access: Access, dbname: str, wanted: Mapping[str, str], terms: Terms
) -> Iterator[Applied]:
    """Settings in effect for a load on `dbname`, as long as this lasts.

    What a run that was killed left changed on the server is put back before. Raises PlanError for
    a setting or value that the server does not know, ConsentError for what nobody allowed us to
    change, ServerError for what cannot be changed or does not take effect.
    """
    changes.put_back_left_behind(access, terms.restart, terms.say)
    found = _look_up(access, dbname, wanted)
    if len(found) < len(wanted):
        terms.say("jit = off is left out: this PostgreSQL is older than jit, and compiles nothing")
    of_sessions = [want for want in found if want.context in _OF_SESSIONS]
    of_server = [want for want in found if want.context not in _OF_SESSIONS]
    lost = of_sessions if terms.pooled else _lost(access, dbname, of_sessions)
    options = tuple((want.name, want.value) for want in of_sessions if want not in lost)
    how: dict[str, How] = {name: "connection" for name, _ in options}
    settable = [want for want in lost if want.context in _SETTABLE]
    by_database = settable if settable and _is_ours(access, dbname) else []
    of_server += [want for want in lost if want not in by_database]
    _check_allowed(access, dbname, of_server, terms)
    if not (by_database or of_server):
        yield _verified(access, dbname, Applied(options, how), found)
        return
    with changes.opened(access) as ledger, _putting_back(ledger, terms):
        for want in by_database:
            _change(ledger, SettingChange(want.name, dbname, None), want.value)
            how[want.name] = "database"
        how |= _of_server(ledger, of_server, terms)
        yield _verified(access, dbname, Applied(options, how), found)


def of_server(access: Access, wanted: Mapping[str, str]) -> dict[str, str]:
    """The context of those that no session can have for itself: sighup, postmaster.

    Raises PlanError, ServerError for settings that the server does not know or cannot set.
    """
    found = _look_up(access, access.dbname, wanted)
    known = {want.name.lower(): want.context for want in found}
    contexts = {name: known.get(name.lower()) for name in wanted}
    return {n: c for n, c in contexts.items() if c is not None and c not in _OF_SESSIONS}


@contextlib.contextmanager
def _putting_back(ledger: SettingChanges, terms: Terms) -> Iterator[None]:
    """Puts everything back at the end. What fails in that hides no other error."""
    import psycopg

    try:
        yield
    except BaseException as error:
        try:
            _put_back(ledger, terms)
        except (psycopg.Error, PgpacesError) as second:
            terms.say(f"warning: settings of the server are not put back: {second}")
            error.add_note(f"settings of the server are not put back: {second}")
        raise
    try:
        _put_back(ledger, terms)
    except (psycopg.Error, ServerError) as error:
        raise ServerError(
            f"settings of the server are not put back: {str(error).strip()}",
            "the next run on this server does it",
        ) from None


def _put_back(ledger: SettingChanges, terms: Terms) -> None:
    ledger.alive()
    changes.put_back(ledger, terms.restart, terms.say)


def _look_up(access: Access, dbname: str, wanted: Mapping[str, str]) -> list[_Wanted]:
    """What the server knows of the settings. Raises PlanError, ServerError."""
    if not wanted:
        return []
    with connect(access, dbname) as session:
        rows = session.execute(
            "SELECT name, context, source FROM pg_catalog.pg_settings"
        ).fetchall()
        known = {name.lower(): (name, context, source) for name, context, source in rows}
        found = []
        for name, value in wanted.items():
            if name.lower() not in known and _is_without_jit(name, value):
                continue
            if name.lower() not in known and not _OWN_NAME.fullmatch(name):
                raise _unknown(name, [row[0] for row in rows], session)
            spelt, context, source = known.get(name.lower(), (name, "user", ""))
            want = _Wanted(spelt, value, context)
            _check_possible(session, want, source)
            found.append(want)
    return found


def _is_without_jit(name: str, value: str) -> bool:
    """Whether a server that does not know the setting does what it says all the same."""
    return name.lower() == "jit" and value.lower() in ("off", "false", "no", "0")


def _unknown(name: str, names: list[str], session: Session) -> PlanError:
    near = difflib.get_close_matches(name.lower(), names, n=1)
    version = session.info.parameter_status("server_version")
    return PlanError(
        f"PostgreSQL {version} at the target has no setting '{name}'",
        f"did you mean {near[0]}?" if near else "its settings are in the view pg_settings",
    )


def _check_possible(session: Session, want: _Wanted, source: str) -> None:
    """Raises PlanError, ServerError for what cannot be set here, whoever allows it."""
    if want.context == "internal":
        raise PlanError(
            f"{want.name} cannot be changed: it was fixed when the server was built, or its data"
            " directory made",
            "use another server for each of its levels",
        )
    if want.context in _SETTABLE:
        with _named(want):
            _as_wanted(session, want)
    elif want.context not in _OF_SESSIONS and source == "command line":
        raise ServerError(
            f"{want.name} stands on the command line of the server, which nothing overrides",
            "start the server without it; a managed server takes it from --server-set or a profile",
        )


def _as_wanted(session: Session, want: _Wanted) -> tuple[str, str]:
    """The value in a session, and how it shows the wanted one. Raises psycopg.Error."""
    with session.transaction(force_rollback=True):
        row = session.execute("SELECT current_setting(%s, true)", (want.name,)).fetchone()
        now = str(row[0]) if row and row[0] is not None else ""
        row = session.execute("SELECT set_config(%s, %s, true)", (want.name, want.value)).fetchone()
        return now, str(row[0]) if row else ""


@contextlib.contextmanager
def _named(want: _Wanted) -> Iterator[None]:
    """Why the server does not take a setting, with its name and the way out."""
    import psycopg

    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise ServerError(
            f"the role may not set {want.name}: {_primary(error)}",
            "let a superuser run it, or GRANT SET, ALTER SYSTEM ON PARAMETER"
            f" {want.name} to the role (PostgreSQL 15 and later)",
        ) from None
    except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
        detail = error.diag.message_hint or error.diag.message_detail
        raise PlanError(
            f"the server does not take {want.name} = {want.value}: {_primary(error)}", detail
        ) from None
    except psycopg.Error as error:
        if error.sqlstate is None:  # the session is gone
            raise
        raise ServerError(
            f"{want.name} cannot be set to {want.value} here: {_primary(error)}",
            error.diag.message_hint,
        ) from None


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip()


def _like_the_load(access: Access, options: Sequence[tuple[str, str]]) -> Access:
    """The way there with settings as options of the connection."""
    given = as_options(access.keywords.get("options", ""), options)
    return replace(access, keywords=dict(access.keywords) | ({"options": given} if given else {}))


def _lost(access: Access, dbname: str, wanted: list[_Wanted]) -> list[_Wanted]:
    """Those that options of a connection do not bring to the server, as behind some poolers."""
    if not wanted:
        return []
    pairs = [(want.name, want.value) for want in wanted]
    entered = False
    try:
        with connect(_like_the_load(access, pairs), dbname, as_the_load=True) as session:
            entered = True
            return [want for want in wanted if not _is_in_effect(session, want, "connection")[1]]
    except ServerError as error:
        # Without options a session could be had. If it can be had with others, it is the values.
        if entered:
            raise
        if _takes_options(access, dbname):
            names = ", ".join(f"{name} = {value}" for name, value in pairs)
            raise PlanError(f"no session can be had with {names}: {error.message}") from None
        return wanted


def _takes_options(access: Access, dbname: str) -> bool:
    """Whether a session with an option that changes nothing can be had."""
    with contextlib.suppress(ServerError), connect(_like_the_load(access, _HARMLESS), dbname):
        return True
    return False


def _is_in_effect(session: Session, want: _Wanted, how: How) -> tuple[str, bool]:
    """The value that a session shows, and whether it is the one wanted, as the server sees it."""
    if want.context in _SETTABLE:
        now, as_wanted = _as_wanted(session, want)
        return now, now == as_wanted
    row: Any = session.execute(
        "SELECT current_setting(name), source, sourcefile, pending_restart"
        " FROM pg_catalog.pg_settings WHERE name = %s",
        (want.name,),
    ).fetchone()
    now, source, file, pending = row
    if how == "connection":
        return now, source == "client"
    from_ours = source == "configuration file" and str(file).endswith("/postgresql.auto.conf")
    return now, from_ours and not pending


def _is_ours(access: Access, dbname: str) -> bool:
    with connect(access) as admin:
        return Ownership.read(comment_on(admin, dbname)[1]) is not None


def _check_allowed(access: Access, dbname: str, wanted: list[_Wanted], terms: Terms) -> None:
    """Raises ConsentError, ServerError for settings of the whole server that must not be."""
    if wanted and not terms.whole_server:
        names = ", ".join(want.name for want in wanted)
        lost = wanted[0].context in _OF_SESSIONS
        why = (
            f"the way to database {dbname} drops options of connections (a pooler?), and the"
            " database is not ours: only a change of the whole server would set"
            if lost
            else "changing settings of the whole server was not allowed, as these are:"
        )
        raise ConsentError(
            f"{why} {names}",
            "with --allow-alter-system, or `alter_system = true` below the target in the file, they"
            " are set by ALTER SYSTEM, and put back",
        )
    needy = [want.name for want in wanted if want.context == "postmaster"]
    if needy and terms.restart is None:
        raise ServerError(
            f"a restart of the server is needed to change {', '.join(needy)}",
            "say how it is restarted (`restart` at the target); a managed server takes them from"
            " --server-set or a profile",
        )


def _change(ledger: SettingChanges, change: SettingChange, value: str) -> None:
    with _named(_Wanted(change.name, value, "")):
        ledger.change(change, value)


def _of_server(ledger: SettingChanges, wanted: list[_Wanted], terms: Terms) -> dict[str, How]:
    """Sets by ALTER SYSTEM and makes that take effect; how each was."""
    if not wanted:
        return {}
    file = changes.server_file(ledger.admin) if terms.ours else None
    how: dict[str, How] = {}
    for want in wanted:
        needs_restart = want.context == "postmaster"
        _change(ledger, SettingChange(want.name, SYSTEM, None, restart=needs_restart), want.value)
        how[want.name] = "restart" if needs_restart else "reload"
    if terms.restart is None or "restart" not in how.values():
        ledger.reload()
        return how
    try:
        terms.restart()
    except PgpacesError as error:
        names = ", ".join(f"{want.name} = {want.value}" for want in wanted)
        said = f"the server does not start with {names}: {error.message}"
        if file is None:
            lines = "take what is set there out of postgresql.auto.conf, and start the server"
            raise ServerError(said, lines) from None
        path, before = file
        path.write_bytes(before)
        terms.restart()
        ledger.again()
        raise ServerError(said, "it was started again without") from None
    ledger.again()
    return how


def _verified(access: Access, dbname: str, effect: Applied, wanted: list[_Wanted]) -> Applied:
    """With what a session like the load's shows. Raises ServerError for what is not in effect."""
    if not wanted:
        return effect
    shown = {}
    with connect(_like_the_load(access, effect.options), dbname, as_the_load=True) as session:
        for want in wanted:
            shown[want.name], good = _is_in_effect(session, want, effect.how[want.name])
            if not good:
                raise ServerError(
                    f"{want.name} = {want.value} is not in effect: a session of the load shows"
                    f" {shown[want.name]}",
                    "a setting of the role or the database may override it, and a pooler keep"
                    " sessions that are older: have it connect anew",
                )
    return replace(effect, verified=shown)
