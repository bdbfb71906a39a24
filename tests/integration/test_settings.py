"""Settings on real servers: applied as mildly as they can be, verified, and put back."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace
from tests.errors import raises
from tests.folders import ROOT
from tests.integration.datasets import altered
from tests.servers import access_to, postgres_15

from pgpaces.core.errors import ConsentError, PlanError, ServerError
from pgpaces.core.messages import message
from pgpaces.database import changes, identity, settings
from pgpaces.database.access import Access, common, connect, locked
from pgpaces.database.changes import Journal, Terms
from pgpaces.database.ownership import Ownership, set_ownership
from pgpaces.database.settings import Applied

pytestmark = pytest.mark.postgres
ALLOWED = Terms(alter_system=True)


@pytest.fixture(autouse=True)
def _home(pgpaces_home):
    yield
    assert not list((pgpaces_home / "settings").glob("*")), "everything was put back"


@pytest.fixture(scope="module")
def own(certificates):
    """A server that tests may restart."""
    yield from postgres_15("pgpaces-settings-", certificates, {"maintenance_work_mem": "32MB"})


@contextlib.contextmanager
def applied(
    access: Access, dbname: str, wanted: dict[str, str], *, terms: Terms
) -> Iterator[Applied]:
    """Settings of a trial that applies no others."""
    with (
        changes.journal(access, terms) as journal,
        settings.applied(journal, dbname, wanted) as effect,
    ):
        yield effect


def ask(access: Access, query: str, dbname: str = "postgres") -> Any:
    with connect(access, dbname) as session:
        row = session.execute(query.encode()).fetchone()
        return row[0] if row else None


def auto_conf(access: Access) -> Any:
    query = (
        "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_file_settings"
        " WHERE sourcefile LIKE '%postgresql.auto.conf'"
    )
    return ask(access, query)


def refused(
    access: Access, wanted: dict[str, str], name: str, *, kind: Any = ServerError, **values: Any
) -> dict[str, Any]:
    """The values of the error, these among them, if settings are applied."""
    terms, dbname = values.pop("terms", Terms()), values.pop("dbname", "postgres")
    with raises(kind, name, **values) as raised, applied(access, dbname, wanted, terms=terms):
        pass
    return raised.value.values


@pytest.fixture
def ours(access):
    """A database that pgpaces owns."""
    with connect(access) as admin:
        admin.execute('CREATE DATABASE "pgpaces_ "" x"')
        set_ownership(admin, 'pgpaces_ " x', Ownership("w", "f", "ready"))
        yield 'pgpaces_ " x'
        admin.execute('DROP DATABASE "pgpaces_ "" x" WITH (FORCE)')


@pytest.fixture
def drops_options(monkeypatch):
    """As behind a pooler that lets nobody set anything at the start of a session."""
    connect = settings.connect

    def pooled(access: Access, dbname: str | None = None, **more: bool) -> Any:
        kept = {word: text for word, text in access.keywords.items() if word != "options"}
        return connect(replace(access, keywords=kept), dbname, **more)

    monkeypatch.setattr(settings, "connect", pooled)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("work_mem", "65536", "64MB"),
        ("WORK_MEM", "1024MB", "1GB"),
        ("enable_seqscan", "no", "off"),
        ("max_parallel_workers_per_gather", "0", "0"),
        ("random_page_cost", "1.50", "1.5"),
        ("statement_timeout", "60s", "1min"),
        ("DateStyle", "iso, dmy", "ISO, DMY"),
        ("search_path", 'a, "b c"', 'a, "b c"'),
        ("log_min_duration_statement", "1h", "1h"),
        ("log_disconnections", "true", "on"),
        ("app.user", "a b\\c 'd'", "a b\\c 'd'"),
    ],
)
def test_what_a_session_can_set_travels_with_the_connections(access, name, value, shown):
    with applied(access, "postgres", {name: value}, terms=Terms()) as effect:
        [(spelt, carried)] = effect.options
        assert (spelt.lower(), carried) == (name.lower(), value)
        assert (effect.how, effect.verified) == ({spelt: "connection"}, {spelt: shown})
        options = settings.as_options("", effect.options)
    loaded = Access({**access.keywords, "options": options}, access.psql)
    assert ask(loaded, f"SELECT current_setting('{name}')") == shown


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [
        ("work_mem", "64MB", "1MB"),
        ("search_path", '"two words", public', "mine"),
        ("search_path", "", "mine"),
    ],
)
@pytest.mark.usefixtures("drops_options")
def test_options_that_get_lost_become_settings_of_our_database(access, ours, name, value, other):
    query = f"SELECT current_setting('{name}')"
    before = ask(access, query, ours)
    with applied(access, ours, {name: value}, terms=Terms()) as effect:
        assert (effect.options, effect.how) == ((), {name: "database"})
        assert ask(access, query, ours) == value
    assert ask(access, query, ours) == before
    with connect(access) as admin:
        admin.execute(f'ALTER DATABASE "pgpaces_ "" x" SET {name} = "{other}"'.encode())
    with applied(access, ours, {name: value}, terms=Terms()):
        assert ask(access, query, ours) == value
    assert ask(access, query, ours) == other


@pytest.mark.usefixtures("drops_options")
def test_a_role_that_overrides_an_empty_list_is_named_and_not_the_servers_file(access, ours):
    mine = "ALTER ROLE CURRENT_USER {} search_path"
    with altered(access, f"{mine.format('SET')} = mine", undo=(mine.format("RESET"),)):
        wanted = {"search_path": ""}
        refused(access, wanted, "setting-not-in-effect", dbname=ours, value="", shown="mine")


def test_options_that_get_lost_before_a_database_of_somebodys_change_nothing_there(
    access, drops_options
):
    lost, of = "connection-options-lost", ["work_mem"]
    refused(access, {"work_mem": "64MB"}, lost, kind=ConsentError, settings=of)
    wanted = {"work_mem": "64MB", "log_disconnections": "on"}
    with applied(access, "postgres", wanted, terms=ALLOWED) as effect:
        assert (effect.how, effect.verified) == (dict.fromkeys(wanted, "reload"), wanted)
    assert auto_conf(access) is None


def test_settings_of_the_whole_server_are_put_back_to_what_was_there(access):
    reset = ("ALTER SYSTEM RESET checkpoint_timeout", "SELECT pg_reload_conf()")
    with altered(access, "ALTER SYSTEM SET checkpoint_timeout = '11min'", undo=reset):
        before = auto_conf(access)
        wanted = {"checkpoint_timeout": "720s", "bgwriter_delay": "100ms", "work_mem": "1MB"}
        with applied(access, "postgres", wanted, terms=ALLOWED) as effect:
            assert effect.options == (("work_mem", "1MB"),)
            assert effect.verified == wanted | {"checkpoint_timeout": "12min"}
            assert set(effect.how.values()) == {"connection", "reload"}
        assert auto_conf(access) == before == "checkpoint_timeout=11min"
        assert ask(access, "SHOW checkpoint_timeout") == "11min"
        assert ask(access, "SHOW bgwriter_delay") == "200ms"


def test_they_are_put_back_when_the_load_fails(access):
    with (
        pytest.raises(KeyError, match="the load"),
        applied(access, "postgres", {"bgwriter_delay": "100ms"}, terms=ALLOWED),
    ):
        raise KeyError("the load")
    assert auto_conf(access) is None
    assert ask(access, "SHOW bgwriter_delay") == "200ms"


def test_what_another_session_changed_in_the_meantime_stays(access):
    told: list[str] = []
    terms = Terms(alter_system=True, say=told.append)
    with (
        applied(access, "postgres", {"bgwriter_delay": "100ms"}, terms=terms),
        connect(access) as admin,
    ):
        admin.execute("ALTER SYSTEM SET bgwriter_delay = '150ms'")
    assert auto_conf(access) == "bgwriter_delay=150ms"
    assert told[-1] == message("setting-of-other-session", setting="bgwriter_delay")
    with connect(access) as admin:
        admin.execute("ALTER SYSTEM RESET bgwriter_delay")
        admin.execute("SELECT pg_reload_conf()")


def test_a_refused_value_causes_no_reload_of_what_its_owner_has_not_loaded_yet(access):
    before = ask(access, "SELECT pg_conf_load_time()")
    wanted = {"checkpoint_timeout": "nonsense"}
    refused(access, wanted, "setting-rejected", kind=PlanError, terms=ALLOWED)
    assert ask(access, "SELECT pg_conf_load_time()") == before
    assert not changes.matching(changes._folder(), "*.json"), "nothing is noted as changed"


def test_who_loses_the_lock_to_another_keeps_the_note(access):
    with changes.journal(access, ALLOWED) as journal, within(journal, "bgwriter_delay", "100ms"):
        [note] = changes.matching(changes._folder(), "*.json")
        with common(access) as other:
            journal.close()
            assert locked(other, "settings"), "as after a restart, another was faster"
            with raises(ServerError, "settings-locked"):
                journal.ensure_open()
            with raises(ServerError, "settings-locked"):
                journal.put_back()
        assert note.exists(), "what is to be put back is not forgotten"
    assert auto_conf(access) is None, "the lock was free again"


def test_two_of_us_do_not_change_one_server_at_once(access):
    def other() -> str:
        try:
            with applied(access, "postgres", {"checkpoint_timeout": "6min"}, terms=ALLOWED):
                return "changed"
        except ServerError as error:
            return error.name

    with (
        applied(access, "postgres", {"bgwriter_delay": "100ms"}, terms=ALLOWED),
        ThreadPoolExecutor(1) as pool,
    ):
        assert pool.submit(other).result() == "settings-locked"
        assert ask(access, "SHOW bgwriter_delay") == "100ms"


def within(journal: Journal, name: str, value: str) -> contextlib.AbstractContextManager[Applied]:
    return settings.applied(journal, "postgres", {name: value})


def test_within_its_own_changes_a_run_may_make_more(access):
    with changes.journal(access, ALLOWED) as journal, within(journal, "bgwriter_delay", "100ms"):
        with within(journal, "checkpoint_timeout", "6min"):
            assert ask(access, "SHOW checkpoint_timeout") == "6min"
        assert auto_conf(access) == "bgwriter_delay=100ms"
        assert ask(access, "SHOW checkpoint_timeout") == "5min"
    assert auto_conf(access) is None


@pytest.mark.parametrize(
    ("wanted", "terms", "kind", "name"),
    [
        ("max_paralel_workers = 1", Terms(), PlanError, "unknown-setting"),
        ("work_mem = many", Terms(), PlanError, "setting-rejected"),
        ("work_mem = 1XB", Terms(), PlanError, "setting-rejected"),
        ("log_disconnections = perhaps", Terms(), PlanError, "settings-prevent-login"),
        ("block_size = 4096", Terms(), PlanError, "setting-is-fixed"),
        ("checkpoint_timeout = 1h", Terms(), ConsentError, "alter-system-not-allowed"),
        ("checkpoint_timeout = 2d", ALLOWED, PlanError, "setting-rejected"),
        ("shared_buffers = 1GB", ALLOWED, ServerError, "restart-not-configured"),
        ("transaction_isolation = serializable", Terms(), ServerError, "setting-rejected"),
        ("no name = 1", Terms(), PlanError, "unknown-setting"),
    ],
)
def test_what_cannot_be_set_is_named_with_the_reason(access, wanted, terms, kind, name):
    setting, _, value = wanted.partition(" = ")
    values = refused(access, {setting: value}, name, kind=kind, terms=terms)
    shown = wanted if name in ("setting-rejected", "settings-prevent-login") else setting
    assert shown in (values.get("setting"), *values.get("settings", ()))
    near = "max_parallel_workers" if setting == "max_paralel_workers" else ""
    assert values.get("near", "") == near
    assert auto_conf(access) is None


def test_the_command_line_of_a_server_is_above_alter_system(pg18):
    terms = Terms(managed=True)
    refused(pg18, {"fsync": "on"}, "setting-on-command-line", setting="fsync", terms=terms)


def test_a_role_without_the_right_is_told_of_it(pg15):
    role = access_to(pg15, "u_trust")
    for name in ("log_statement_stats", "bgwriter_delay"):
        refused(role, {name: "1"}, "setting-not-permitted", setting=name, terms=ALLOWED)
    with applied(role, "postgres", {"work_mem": "2MB"}, terms=Terms()) as effect:
        assert effect.verified == {"work_mem": "2MB"}


def test_a_setting_that_needs_one_restarts_the_server_and_again_at_the_end(own):
    access = access_to(own)
    terms = Terms(alter_system=True, restart=own.restart)
    wanted = {
        "max_connections": "50",
        "shared_preload_libraries": "auto_explain, pg_stat_statements",
    }
    with applied(access, "postgres", wanted, terms=terms) as effect:
        assert set(effect.how.values()) == {"restart"}
        assert effect.verified["max_connections"] == "50"
        assert ask(access, "SHOW shared_preload_libraries") == "auto_explain, pg_stat_statements"
    assert ask(access, "SHOW max_connections") == "40"
    assert auto_conf(access) is None


def test_an_empty_list_is_set_where_no_file_sets_another(own):
    access, terms = access_to(own), Terms(alter_system=True, restart=own.restart)
    name, empty = "shared_preload_libraries", {"shared_preload_libraries": ""}
    with changes.journal(access, terms) as journal, within(journal, name, "auto_explain"):
        with within(journal, name, "") as effect:
            assert (effect.how, effect.verified) == ({name: "restart"}, empty)
            assert ask(access, f"SHOW {name}") == ""
        assert ask(access, f"SHOW {name}") == "auto_explain"
    assert auto_conf(access) is None


def test_a_list_that_the_servers_file_sets_is_not_emptied(own):
    access, terms = access_to(own), Terms(alter_system=True, restart=own.restart)
    conf = own.data / "postgresql.conf"
    text = conf.read_text()
    conf.write_text(f"{text}shared_preload_libraries = 'auto_explain'\n")
    try:
        values = {"setting": "shared_preload_libraries", "value": "", "shown": "auto_explain"}
        wanted = {"shared_preload_libraries": ""}
        refused(access, wanted, "list-not-emptied", terms=terms, **values)
    finally:
        conf.write_text(text)
        own.restart()


def test_a_restart_within_is_survived_and_seen(own):
    access = access_to(own)
    before = identity.facts(access, "postgres")
    terms = Terms(alter_system=True, restart=own.restart)
    with (
        changes.journal(access, terms) as journal,
        within(journal, "bgwriter_delay", "100ms"),
        within(journal, "max_connections", "50"),
    ):
        assert ask(access, "SHOW bgwriter_delay") == "100ms"
        assert ask(access, "SHOW max_connections") == "50"
    assert auto_conf(access) is None
    [change] = identity.server_changes(before, identity.facts(access, "postgres"))
    assert change.values["fact"] == "pg_postmaster_start_time"


def test_a_server_that_does_not_start_with_a_setting_is_named_with_it(own):
    access = access_to(own)

    def restart() -> None:
        try:
            own.restart()
        except AssertionError:
            raise ServerError("it does not start") from None

    terms = Terms(alter_system=True, restart=restart)
    wanted, said = {"shared_preload_libraries": "nosuch"}, ["shared_preload_libraries = nosuch"]
    refused(access, wanted, "server-stopped-by-settings", terms=terms, settings=said)
    (own.data / "postgresql.auto.conf").write_text("")
    own.restart()
    with applied(access, "postgres", {}, terms=terms):
        assert auto_conf(access) is None


KILLED = """
import os, signal
from pathlib import Path
from pgpaces.database import changes
from pgpaces.database.access import Access
from pgpaces.database.changes import Terms
from pgpaces.database.settings import applied
where = {where!r}
if where != "inside":
    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(changes.Journal, where, die)
access = Access({keywords!r}, Path("psql"))
with (
    changes.journal(access, Terms(alter_system=True)) as journal,
    applied(journal, "postgres", {{"bgwriter_delay": "100ms"}}),
):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("where", ["set", "reload", "inside"])
def test_what_a_kill_left_changed_is_put_back_by_the_next_run(access, where):
    code = KILLED.format(where=where, keywords=dict(access.keywords))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    died = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL
    assert (auto_conf(access) is None) == (where == "set")
    with applied(access, "postgres", {}, terms=Terms()):
        assert auto_conf(access) is None
        assert ask(access, "SHOW bgwriter_delay") == "200ms"


def test_a_server_that_died_gets_its_settings_back_in_the_next_run(own):
    access = access_to(own)
    with (
        raises(ServerError, "settings-not-restored"),
        applied(access, "postgres", {"bgwriter_delay": "100ms"}, terms=ALLOWED),
    ):
        own.program("pg_ctl", "-m", "immediate", "stop")
    own.program("pg_ctl", "-l", own.folder / "log", "-w", "start")
    assert auto_conf(access) == "bgwriter_delay=100ms"
    with applied(access, "postgres", {}, terms=Terms()):
        assert auto_conf(access) is None
