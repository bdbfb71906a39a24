"""What of servers and databases needs no server: names, lists, notes, whether one is the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.core.errors import ConsentError, PrepareError, ServerError
from pgpaces.database import (
    access,
    changes,
    creation,
    data,
    identity,
    ownership,
    settings,
    source,
    specification,
)
from pgpaces.database.access import Access
from pgpaces.database.changes import Note, SettingChange, names_in, put_back
from pgpaces.database.ownership import Ownership
from pgpaces.database.specification import DatasetSpec
from pgpaces.spec import workload
from pgpaces.spec.facts import ServerFacts

FACTS = ServerFacts(
    version="18.6",
    system_identifier="7",
    postmaster_started="2026-11-22T06:00:00.000000Z",
    settings={"work_mem": "4MB", "fsync": "off"},
)
changed = FACTS.but


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (changed(), []),
        (changed(version="18.7"), ["its version was 18.6, and is 18.7"]),
        (changed(system_identifier="8"),
         ["it is another server: its system identifier was 7, and is 8"]),
        (changed(postmaster_started="2026-11-22T07:00:00.000000Z"),
         ["it was restarted: before, it ran since 2026-11-22T06:00:00.000000Z, now since"
          " 2026-11-22T07:00:00.000000Z"]),
        (changed(settings={"work_mem": "8MB", "fsync": "off"}),
         ["its setting work_mem was 4MB, and is 8MB"]),
        (changed(settings={"work_mem": "4MB"}), ["its setting fsync was off, and is its default"]),
        (changed(postmaster_started=None, system_identifier=None), []),
    ],
)  # fmt: skip
def test_what_changed_of_a_server_is_said_in_words(after: ServerFacts, said: list[str]) -> None:
    assert identity.server_changes(FACTS, after) == said


@pytest.mark.parametrize(("version", "force"), [(120004, ""), (130001, " WITH (FORCE)")])
def test_a_server_before_13_drops_a_database_in_words_that_it_knows(
    version: int, force: str
) -> None:
    admin: Any = SimpleNamespace(info=SimpleNamespace(server_version=version))
    statement = ownership.forced_drop(admin, "a b", if_exists=True)
    assert statement.as_string(None) == f'DROP DATABASE IF EXISTS "a b"{force}'


@pytest.mark.parametrize(("pid", "free"), [(7, 97), (8, None)])
def test_behind_a_pooler_the_number_of_free_connections_is_not_known(
    pid: int, free: int | None
) -> None:
    row = SimpleNamespace(fetchone=lambda: (pid, 97))
    info = SimpleNamespace(backend_pid=7)
    session: Any = SimpleNamespace(info=info, execute=lambda query: row)
    assert identity.free_without(session) == free


def test_settings_that_were_meant_to_change_are_no_change() -> None:
    after = changed(settings={"work_mem": "8MB", "fsync": "off"})
    assert identity.server_changes(FACTS, after, ["WORK_MEM"]) == []
    assert identity.server_changes(FACTS, after, ["fsync"]) != []


NAMES = st.lists(st.text(min_size=1, max_size=8), max_size=5)


@given(NAMES)
def test_a_list_of_names_is_read_as_the_server_writes_it(names: list[str]) -> None:
    written = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    assert names_in(written) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        (" a,b , c", ["a", "b", "c"]),
        ('"$user", public', ["$user", "public"]),
        ('"a, b",c', ["a, b", "c"]),
    ],
)
def test_names_without_quotes_are_read_too(text: str, names: list[str]) -> None:
    assert names_in(text) == names


def test_a_note_says_what_to_put_back_until_nothing_is(tmp_path: Path) -> None:
    note = Note(tmp_path / "settings" / "1.json")
    changes = [
        SettingChange("work_mem", "", None),
        SettingChange("fsync", "d", "on", "off", restart=True),
    ]
    assert note.read() == []
    note.write(changes)
    assert Note(tmp_path / "settings" / "1.json").read() == changes
    [file] = (tmp_path / "settings").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600, "a value may be a secret"
    note.write([])
    assert list((tmp_path / "settings").iterdir()) == []


@pytest.mark.parametrize("text", ["{", '[{"nonsense": 1}]', "7"])
def test_a_note_that_cannot_be_read_is_not_passed_over(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1.json"
    path.write_text(text)
    with pytest.raises(ServerError, match="lists the settings of the server to put back"):
        Note(path).read()


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
def test_an_original_is_a_name_or_a_connection_string(text: str, dsn: bool, name: str) -> None:
    assert (specification.is_dsn(text), specification.name_of(text)) == (dsn, name)


def test_a_password_is_no_part_of_what_tells_originals_apart() -> None:
    with_password = "host=h dbname=d user=u password='s3:cr'"
    assert specification.identity(with_password) == specification.identity("host=h dbname=d user=u")
    assert specification.identity("host=h dbname=e") != specification.identity("host=h dbname=d")


def test_a_connection_string_that_cannot_be_read_is_not_quoted() -> None:
    with pytest.raises(ServerError) as raised:
        specification.keywords_of("host=h passwort='s3:cr")
    assert "s3" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_settings_become_words_that_the_server_takes_apart_again() -> None:
    assert settings.as_options("", []) == ""
    assert settings.as_options("-c a=1", [("b", "x y\\z")]) == "-c a=1 -c b=x\\ y\\\\z"


@pytest.mark.parametrize(
    ("provider", "version", "end"),
    [
        (("c", None, None), 150_000, " LOCALE_PROVIDER libc"),
        (("c", None, None), 140_000, ""),
        (("i", "de", None), 150_000, " LOCALE_PROVIDER icu ICU_LOCALE 'de'"),
        (("i", "de", "&a < b"), 160_000,
         " LOCALE_PROVIDER icu ICU_LOCALE 'de' ICU_RULES '&a < b'"),
        (("i", "de", "&a < b"), 150_000, None),
        (("i", "de", None), 140_000, None),
        (("b", "C.UTF-8", None), 180_000, " LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'"),
        (("b", "C.UTF-8", None), 160_000, None),
    ],
)  # fmt: skip
def test_a_copy_has_the_locale_provider_of_its_source(
    provider: tuple[str, str | None, str | None], version: int, end: str | None
) -> None:
    words = source.provider(version, *provider[:2], rules=provider[2])
    assert (None if words is None else words.as_string(None)) == end


@dataclass
class Ledger:
    """Changes of a server that is a dictionary: the values in its files, and those in effect."""

    left: list[SettingChange]
    files: dict[str, str | None]
    effect: dict[str, str | None]
    restarted: list[str] = field(default_factory=list)

    def changes(self) -> list[SettingChange]:
        return list(self.left)

    def current(self, change: SettingChange) -> str | None:
        return self.files.get(change.name)

    def set(self, change: SettingChange, value: str | None) -> None:
        self.files[change.name] = value

    def needing(self) -> frozenset[str]:
        return frozenset(change.name for change in self.left if change.restart)

    def reload(self) -> None:
        self.effect |= {n: v for n, v in self.files.items() if n not in self.needing()}

    def awaits_restart(self, names: list[str]) -> bool:
        return any(self.effect[name] != self.files[name] for name in names)

    def reopen(self) -> None:
        self.restarted += sorted(self.needing())
        self.effect |= self.files

    def forget(self, done: list[SettingChange]) -> None:
        self.left = [change for change in self.left if change not in done]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("before", [None, "1"])
def test_what_a_killed_run_put_back_in_the_file_alone_takes_effect_by_the_next(
    restart: bool, before: str | None
) -> None:
    change = SettingChange("a", "", before, "2", restart)
    ledger: Any = Ledger([change], {"a": before}, {"a": "2"})
    put_back(ledger, lambda: None, print)
    assert (ledger.left, ledger.effect, ledger.restarted) == ([], {"a": before}, ["a"] * restart)


def test_a_server_that_has_its_settings_is_not_restarted_for_them() -> None:
    """Its restart with them failed, and its owner removed them before starting it."""
    ledger: Any = Ledger([SettingChange("a", "", None, "2", True)], {"a": None}, {"a": None})
    put_back(ledger, lambda: pytest.fail("a restart"), print)
    assert (ledger.left, ledger.restarted) == ([], [])


@pytest.mark.parametrize("values", [["2", "3"], ["2", "2"]])
def test_a_setting_that_a_killed_run_changed_twice_is_put_back_to_the_first(
    values: list[str],
) -> None:
    left = [SettingChange("a", "", None, "2"), SettingChange("a", "", "2", values[-1])]
    ledger: Any = Ledger(left, {"a": values[-1]}, {"a": values[-1]})
    put_back(ledger, None, print)
    assert (ledger.left, ledger.effect) == ([], {"a": None})


def test_nothing_is_locked_on_a_server_without_leftovers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There are notes, of other servers."""
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    Note(tmp_path / "settings" / "1.json").write([SettingChange("a", "", None)])
    monkeypatch.setattr(changes, "connect", lambda access: contextlib.nullcontext())
    note = Note(tmp_path / "settings" / "2.json")
    monkeypatch.setattr(Note, "of", lambda admin, access: note)
    monkeypatch.setattr(changes, "locked", lambda *_: pytest.fail("a lock"))
    changes.put_back_leftovers(Access({}, Path("psql")), None, print)


OWNED = Ownership("w", "f", "ready", own=True)


@pytest.mark.parametrize("may_mark", [False, True])
def test_a_database_of_ones_own_is_marked_before_it_is_emptied(
    monkeypatch: pytest.MonkeyPatch, may_mark: bool
) -> None:
    """A kill between leaves no mark that its data is ready; without the right nothing is lost."""
    done: list[str] = []

    def execute(query: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(None)
        if not text.startswith("SELECT"):
            done.append(text)
        return SimpleNamespace(fetchall=lambda: [("public", 3)])

    def mark(admin: Any, dbname: str, owned: Ownership) -> None:
        if not may_mark:
            raise ConsentError("not its owner")
        done.append(owned.state)

    session: Any = SimpleNamespace(execute=execute)
    monkeypatch.setattr(data, "connect", lambda *_: contextlib.nullcontext(session))
    monkeypatch.setattr(ownership, "set_ownership", mark)
    spec = DatasetSpec(workload.find("tpcb-like"), 1, 1, own="mine", fresh=True)
    target = data.DatabaseTarget("mine", "f", spec)
    with contextlib.nullcontext() if may_mark else pytest.raises(ConsentError):
        data._empty_own(Access({}, Path("psql")), session, target, exists=True, owned=OWNED)
    dropped = ['DROP SCHEMA "public" CASCADE', "CREATE SCHEMA IF NOT EXISTS public"]
    assert done == (["preparing", *dropped] if may_mark else [])


def test_clean_leaves_the_copy_of_a_trial_that_has_no_session_in_it_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trial locks the database of which it is a copy."""
    copy = Ownership("w", "f", ownership.COPY)
    dropped: list[str] = []

    @contextlib.contextmanager
    def session(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(execute=lambda statement: dropped.append(statement.as_string(None)))

    monkeypatch.setattr(creation, "connect", session)
    monkeypatch.setattr(creation, "common", session)
    monkeypatch.setattr(creation, "drop_leftovers", lambda *_, say: 0)
    monkeypatch.setattr(creation, "locked", lambda locks, name: name != "pgpaces_a")
    owned = {"pgpaces_a_run": (copy, 1), "pgpaces_b_run": (copy, 1)}
    monkeypatch.setattr(ownership, "owned_databases", lambda access: owned)
    with pytest.raises(PrepareError, match="in use: pgpaces_a_run; all others are dropped"):
        creation.clean(Access({}, Path("psql")))
    assert dropped == ['DROP DATABASE "pgpaces_b_run"']


@pytest.mark.parametrize(
    ("version", "done"), [(130_020, []), (140_000, ["SET idle_session_timeout = 0"])]
)
def test_locks_do_not_end_in_a_load_because_their_session_is_idle(
    version: int, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []
    info = SimpleNamespace(server_version=version)
    session = SimpleNamespace(info=info, execute=executed.append)
    monkeypatch.setattr(access, "connect", lambda *_: contextlib.nullcontext(session))
    with access.common(Access({}, Path("psql"))):
        assert executed == done
