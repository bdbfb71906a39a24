"""What of servers and databases needs no server: names, lists, notes, whether one is the same."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.core.errors import ConsentError, PrepareError, ServerError
from pgpaces.database import access, changes, data, identity, ownership, settings
from pgpaces.database.access import Access
from pgpaces.database.changes import (
    Journal,
    SettingChange,
    Terms,
    names_in,
    read_note,
    write_note,
)
from pgpaces.database.data import DatasetSpec
from pgpaces.database.ownership import Database, Ownership
from pgpaces.spec import workload
from pgpaces.spec.setup import ServerFacts
from tests.errors import raises

FACTS = ServerFacts(
    version="18.6",
    system_identifier="7",
    postmaster_started="2026-11-22T06:00:00.000000Z",
    settings={"work_mem": "4MB", "fsync": "off"},
)


@pytest.mark.parametrize(
    ("after", "meant", "change"),
    [
        ({}, [], None),
        ({"version": "18.7"}, [], ("server_version", "18.6", "18.7")),
        ({"system_identifier": "8"}, [], ("system_identifier", "7", "8")),
        ({"postmaster_started": "2026-11-22T07:00:00.000000Z"}, [],
         ("pg_postmaster_start_time", FACTS.postmaster_started, "2026-11-22T07:00:00.000000Z")),
        ({"settings": {"work_mem": "8MB", "fsync": "off"}}, [], ("work_mem", "4MB", "8MB")),
        ({"settings": {"work_mem": "8MB", "fsync": "off"}}, ["fsync"], ("work_mem", "4MB", "8MB")),
        ({"settings": {"work_mem": "8MB", "fsync": "off"}}, ["WORK_MEM"], None),
        ({"settings": {"work_mem": "4MB"}}, [], ("fsync", "off", "DEFAULT")),
        ({"postmaster_started": None, "system_identifier": None}, [], None),
    ],
)  # fmt: skip
def test_a_change_of_a_server_is_found_unless_pgpaces_made_it(after, meant, change):
    changes = identity.server_changes(FACTS, FACTS.but(**after), meant)
    assert [tuple(each.values.values()) for each in changes] == ([change] if change else [])


NAMES = st.lists(st.text(min_size=1, max_size=8), max_size=5)


@given(NAMES)
def test_a_list_of_names_is_read_as_the_server_writes_it(names):
    written = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    assert names_in(written) == names
    assert names_in(' a,b , "$user", "a, b",c') == ["a", "b", "$user", "a, b", "c"]


@pytest.mark.parametrize(
    ("text", "dsn", "name"),
    [
        ("sensors", False, "sensors"),
        ("postgresql://u:p@h/sensors", True, "sensors"),
        ("postgres://h/a%20b", True, "a b"),
        ("host=h dbname=sensors", True, "sensors"),
        ("/sensors", False, "/sensors"),
    ],
)
def test_an_original_is_a_name_or_a_connection_string(text, dsn, name):
    assert (access.is_dsn(text), access.source_name(text)) == (dsn, name)


def test_a_password_tells_no_originals_apart_and_is_not_quoted():
    with_password = "host=h dbname=d user=u password='s3:cr'"
    assert access.source_identity(with_password) == access.source_identity("host=h dbname=d user=u")
    assert access.source_identity("host=h dbname=e") != access.source_identity("host=h dbname=d")
    with raises(ServerError, "from-database-malformed") as raised:
        access.keywords_of("host=h passwort='s3:cr")
    assert "s3" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_settings_become_words_that_the_server_takes_apart_again():
    assert settings.as_options("", []) == ""
    assert settings.as_options("-c a=1", [("b", "x y\\z")]) == "-c a=1 -c b=x\\ y\\\\z"


@pytest.mark.parametrize(("version", "force"), [(120004, ""), (130001, " WITH (FORCE)")])
def test_a_server_before_13_drops_a_database_in_words_that_it_knows(version, force):
    admin = SimpleNamespace(info=SimpleNamespace(server_version=version))
    statement = ownership.forced_drop(admin, "a b", if_exists=True)
    assert statement.as_string(None) == f'DROP DATABASE IF EXISTS "a b"{force}'


@pytest.mark.parametrize(
    ("row", "guest", "free"),
    [
        ((7, True, 100, 3, 20, None, None), False, 80),
        ((7, True, 100, 3, 20, None, None), True, 77),
        ((7, False, 100, 3, 20, None, None), False, 77),
        ((7, False, 100, 3, 20, 5, None), True, 5),
        ((7, False, 100, 3, 20, 5, 4), True, 4),
        ((8, True, 100, 3, 20, None, None), True, None),
        (None, True, None),
    ],
    ids=["ours", "of others", "no superuser", "a role's limit", "a database's", "pooled", "no row"],
)
def test_free_connections_are_those_of_the_role_and_unknown_behind_a_pooler(row, guest, free):
    answer = SimpleNamespace(fetchone=lambda: row)
    session = SimpleNamespace(info=SimpleNamespace(backend_pid=7), execute=lambda query: answer)
    room = identity.room_of(session, guest=guest)
    assert (room and room.free) == free


def test_behind_a_pgbouncer_that_shows_them_the_limits_are_the_poolers(monkeypatch):
    rows = {"SHOW CONFIG": [("max_client_conn", "100")], "SHOW LISTS": [("used_clients", 8)]}
    session = SimpleNamespace(execute=rows.get)
    monkeypatch.setattr(identity, "connect", lambda *_: contextlib.nullcontext(session))
    monkeypatch.setattr(identity, "room_of", lambda *_, **__: None)
    assert identity.room(Access({}, Path("psql")), guest=True) == identity.Room(100, 7, 93)
    del rows["SHOW LISTS"]
    assert identity.room(Access({}, Path("psql")), guest=True) is None


def test_a_note_says_what_to_put_back_until_nothing_is(tmp_path):
    note = tmp_path / "settings" / "1.json"
    changes = [SettingChange("work_mem", "", None), SettingChange("fsync", "d", "on", "off")]
    assert read_note(note) == []
    write_note(note, changes)
    assert read_note(note) == changes
    [file] = (tmp_path / "settings").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600, "a value may be a secret"
    write_note(note, [])
    assert list((tmp_path / "settings").iterdir()) == []


@pytest.mark.parametrize("text", ["{", '[{"nonsense": 1}]', "7"])
def test_a_note_that_cannot_be_read_is_not_passed_over(tmp_path, text):
    path = tmp_path / "1.json"
    path.write_text(text)
    with raises(ServerError, "settings-note-unreadable", path=path):
        read_note(path)


class JournalOf(Journal):
    """The journal of a server that is a dictionary: values in its files, and those in effect.

    restart: whether its settings take effect by a restart.
    """

    def __init__(self, changes, files, effect, *, restart):
        super().__init__(Access({}, Path("psql")), Terms(restart=self.restart, say=print))
        self.changes, self.files, self.effect = changes, files, effect
        self.needs_restart, self.restarts = restart, 0

    def ensure_open(self):
        pass

    def record(self, changes):
        self.changes = changes

    def current(self, change):
        return self.files.get(change.name)

    def set(self, change, value):
        self.files[change.name] = value

    def reload(self):
        if not self.needs_restart:
            self.effect |= self.files

    def awaits_restart(self, names):
        return any(self.effect[name] != self.files[name] for name in names)

    def restart(self):
        self.restarts += 1
        self.effect |= self.files


ONE = SettingChange("a", "", None, "2")


@pytest.mark.parametrize(
    ("left", "file", "effect", "restart", "restarts"),
    [
        # What a killed run put back in the file alone takes effect by the next one.
        *(([replace(ONE, before=before)], before, "2", restart, int(restart))
          for restart in (False, True) for before in (None, "1")),
        # Its restart failed, and its owner removed the settings before starting it.
        ([ONE], None, None, True, 0),
        # It was changed twice.
        ([ONE, SettingChange("a", "", "2", "3")], "3", "3", False, 0),
        ([ONE, SettingChange("a", "", "2", "2")], "2", "2", False, 0),
        ([ONE, SettingChange("a", "", "2", "3")], "3", "3", True, 1),
    ],
)  # fmt: skip
def test_what_a_killed_run_changed_is_put_back_with_no_restart_too_many(
    left, file, effect, restart, restarts
):
    journal = JournalOf(list(left), {"a": file}, {"a": effect}, restart=restart)
    journal.put_back()
    assert (journal.changes, journal.effect) == ([], {"a": left[0].before})
    assert journal.restarts == restarts


def test_nothing_is_locked_on_a_server_without_leftovers(monkeypatch, tmp_path):
    """There are notes, of other servers."""
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    write_note(tmp_path / "settings" / "1.json", [SettingChange("a", "", None)])
    monkeypatch.setattr(changes, "connect", lambda access: contextlib.nullcontext())
    note = tmp_path / "settings" / "2.json"
    monkeypatch.setattr(changes, "note_of", lambda admin, access: note)
    monkeypatch.setattr(changes, "locked", lambda *_: pytest.fail("a lock"))
    with changes.journal(Access({}, Path("psql")), Terms()) as journal:
        assert journal.changes == []


FOUND = Database("mine", Ownership("w", "f", "ready", own=True), -1, "me", "me", droppable=True)


@pytest.mark.parametrize("may_mark", [False, True])
def test_a_database_of_ones_own_is_marked_before_it_is_emptied(monkeypatch, may_mark):
    """A kill between leaves no mark that its data is ready; without the right nothing is lost."""
    done = []

    def execute(query):
        text = query if isinstance(query, str) else query.as_string(None)
        if not text.startswith("SELECT"):
            done.append(text)
        return SimpleNamespace(fetchall=lambda: [("public", 3)])

    def mark(admin, dbname, owned):
        if not may_mark:
            raise ConsentError("not its owner")
        done.append(owned.state)

    session = SimpleNamespace(execute=execute)
    monkeypatch.setattr(data, "connect", lambda *_: contextlib.nullcontext(session))
    monkeypatch.setattr(ownership, "set_ownership", mark)
    spec = DatasetSpec(workload.find("tpcb-like"), 1, 1, own="mine", fresh=True)
    target = data.DatabaseTarget("mine", "f", spec)
    with contextlib.nullcontext() if may_mark else pytest.raises(ConsentError):
        data._empty_own(Access({}, Path("psql")), session, target, found=FOUND)
    dropped = ['DROP SCHEMA "public" CASCADE', "CREATE SCHEMA IF NOT EXISTS public"]
    assert done == (["preparing", *dropped] if may_mark else [])


def test_clean_leaves_the_copy_of_a_trial_that_has_no_session_in_it_yet(monkeypatch):
    """The trial locks the database of which it is a copy."""
    copy = Ownership("not UTF-8: \udce9", "f", ownership.COPY)
    names, dropped = ("pgpaces_a_run", "pgpaces_b_run"), []
    owned = [(name, copy.text(), -1, "me", "me", True) for name in names]

    def execute(statement, _=()):
        if isinstance(statement, str):
            return SimpleNamespace(fetchall=lambda: owned)
        return dropped.append(statement.as_string(None))

    @contextlib.contextmanager
    def session(*_):
        yield SimpleNamespace(execute=execute)

    monkeypatch.setattr(ownership, "connect", session)
    monkeypatch.setattr(ownership, "common", session)
    monkeypatch.setattr(ownership, "size", lambda *_: 1)
    monkeypatch.setattr(ownership, "drop_leftovers", lambda *_, say: 0)
    monkeypatch.setattr(ownership, "locked", lambda locks, name: name != "pgpaces_a")
    with raises(PrepareError, "databases-in-use", databases=["pgpaces_a_run"], freed_bytes=1):
        ownership.clean(Access({}, Path("psql")))
    assert dropped == ['DROP DATABASE "pgpaces_b_run"']


@pytest.mark.parametrize(
    ("version", "done"), [(130_020, []), (140_000, ["SET idle_session_timeout = 0"])]
)
def test_locks_do_not_end_in_a_load_because_their_session_is_idle(version, done, monkeypatch):
    executed = []
    info = SimpleNamespace(server_version=version)
    session = SimpleNamespace(info=info, execute=executed.append)
    monkeypatch.setattr(access, "connect", lambda *_: contextlib.nullcontext(session))
    with access.common(Access({}, Path("psql"))):
        assert executed == done
