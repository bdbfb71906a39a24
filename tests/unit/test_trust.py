"""Folders of another person: what they may do before and after their user has confirmed them."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import pgpaces
from pgpaces.cli import specs
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError, TrustError, WorkloadError
from pgpaces.core.messages import message
from pgpaces.database import programs, psql
from pgpaces.spec import trust, workload
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.trial.request import Request, backgrounds
from pgpaces.trial.request import check as check_request
from tests.errors import raises

TOML = 'description = "d"\ninit = ["init.sql"]\n[[scripts]]\nfile = "s.sql"\n'
USERS = 'description = "d"\ninit = []\nkind = "users"\nusers = "users.py"\n'
MARK = "ran"  # made beside the folder by whatever is executed


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of its own, in which nothing is confirmed."""
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(trust, "_CONFIRMED", set())
    return tmp_path / "home"


def folder(tmp_path: Path, toml: str = TOML, **files: str) -> Path:
    """A workload of another person. files: by name, `_` for the dot."""
    made = tmp_path / "theirs"
    made.mkdir(exist_ok=True)
    texts = {"workload_toml": toml, "init_sql": "SELECT 1;\n", "s_sql": "SELECT 2;\n"} | files
    for name, text in texts.items():
        (made / name.replace("_", ".")).write_text(text)
    return made


def program(run: str) -> str:
    return TOML.replace('"init.sql"', f'"init.sql", {{ run = {run} }}')


def python(tmp_path: Path, more: str = "") -> str:
    """Users that leave a mark where they are executed."""
    mark = f"from pathlib import Path\nPath({str(tmp_path / MARK)!r}).touch()\n"
    return f"{more}{mark}from pgpaces import task\n@task\ndef look(): pass\n"


OUTSIDE = {
    "init, absolute": (TOML.replace('"init.sql"', '"/etc/passwd"'), {}),
    "init, above": (TOML.replace('"init.sql"', '"../secret.sql"'), {}),
    "init, up and down": (TOML.replace('"init.sql"', '"x/../../secret.sql"'), {}),
    "script, absolute": (TOML.replace('"s.sql"', '"/etc/passwd"'), {}),
    "script, above": (TOML.replace('"s.sql"', '"../secret.sql"'), {}),
    "users, above": (USERS.replace('"users.py"', '"../secret.py"'), {}),
    "a word of a program": (program('["sh", "../secret.sh"]'), {}),
    "input of a program": (TOML.replace('"init.sql"', '{ run = "x", input = ["../s*"] }'), {}),
    "included": (TOML, {"init_sql": "\\i /etc/passwd\n"}),
    "included, quoted": (TOML, {"init_sql": "\\ir '../secret.sql'\n"}),
    "included by an included one": (TOML, {"init_sql": "\\i a.sql", "a_sql": "\\i ../secret.sql"}),
    "copied": (TOML, {"init_sql": "\\copy t from '/etc/passwd'\n"}),
    "no name": (TOML.replace('"s.sql"', '"s\\u0000.sql"'), {}),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("answer", [trust.refuse, trust.grant])
def test_paths_outside_of_the_folder_are_refused_whoever_trusts_it(tmp_path, name, answer):
    for secret in ("secret.sql", "secret.py", "secret.sh"):
        (tmp_path / secret).write_text("SELECT 3;")
    toml, files = OUTSIDE[name]
    made = folder(tmp_path, toml, **files)
    (made / "x").mkdir()
    with raises(WorkloadError, "cannot-read" if name == "no name" else "outside-folder"):
        trust.find(str(made), answer)


@pytest.mark.parametrize("link", ["s.sql", "workload.toml", "unused", "inner"])
def test_links_that_lead_out_of_the_folder_are_refused(tmp_path, link):
    made = folder(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere"
    if link in ("s.sql", "workload.toml"):
        target = (made / link).rename(tmp_path / "elsewhere" / link)
    (made / link).symlink_to(target)
    with raises(WorkloadError, "outside-folder", to=target):
        trust.find(str(made), trust.grant)


def test_what_is_no_regular_file_holds_nobody(tmp_path):
    made = folder(tmp_path)
    os.mkfifo(made / "pipe")
    (made / "loop").symlink_to("loop")
    with raises(WorkloadError, "outside-folder", file=Path("loop")):
        trust.find(str(made))
    (made / "loop").unlink()
    (made / "s.sql").rename(made / "real.sql")
    (made / "s.sql").symlink_to(made / "real.sql")
    found = trust.find(str(made))
    assert not (found.folder / "pipe").exists()
    assert found.scripts[0].text == "SELECT 2;\n"
    assert (found.folder / "s.sql").resolve() == found.folder / "real.sql", "within the copy"
    (made / "s.sql").unlink()
    os.mkfifo(made / "s.sql")
    with raises(WorkloadError, "not-a-regular-file", file="s.sql"):
        trust.find(str(made))


def test_shipped_workloads_share_files_and_are_not_asked_about():
    for name in (*workload.shipped(), "garden/users", "osm/load"):
        assert trust.find(name).trusted, name


EXECUTES = {
    "program of init": (program('["make-it", "{dsn}"]'), {}, "make-it '{dsn}'"),
    "shell text of init": (program('"curl x | sh"'), {}, "curl x | sh"),
    "command": (
        TOML.split("[[", maxsplit=1)[0] + 'kind = "command"\n[command]\nrun = "x"\nbefore = "y"\n',
        {},
        "y",
    ),
    "shell": (TOML, {"s_sql": "\\shell touch x\nSELECT 1;"}, "\\shell touch x"),
    "setshell": (TOML, {"s_sql": "\\setshell a id -u\nSELECT 1;"}, "\\setshell a id -u"),
    "psql's shell": (TOML, {"init_sql": "SELECT 1; \\! touch x\n"}, "\\! touch x"),
    "psql's pipe": (TOML, {"init_sql": "SELECT 1 \\g |sh\n"}, "\\g |sh"),
    "backticks of psql": (TOML, {"init_sql": "\\set a `id`\n"}, "\\set a `id`"),
    "included": (TOML, {"init_sql": "\\ir a.sql", "a_sql": "\\! id"}, "\\! id"),
    "the server's": (
        TOML,
        {"init_sql": "copy t /* x */ from -- y\n Program 'id';"},
        "copy t from Program 'id'",
    ),
    "the server's, in a script": (TOML, {"s_sql": "COPY t TO PROGRAM 'sh';"}, "COPY t TO PROGRAM"),
    "the server's, in a function": (
        TOML,
        {"init_sql": "do $x$ begin copy t to program 'id'; end $x$;"},
        "copy t to program",
    ),
}


@pytest.mark.parametrize("name", EXECUTES)
def test_whatever_executes_programs_is_listed_and_needs_a_confirmation(tmp_path, name):
    toml, files, text = EXECUTES[name]
    made = folder(tmp_path, toml, **files)
    asked: list[trust.Question] = []
    with raises(TrustError, "workload-unconfirmed", workload="theirs"):
        trust.find(str(made), lambda question: bool(asked.append(question)))
    assert any(each.text.startswith(text) for each in asked[0].actions), asked[0].actions
    assert trust.find(str(made), trust.grant).trusted
    shown = CliRunner().invoke(cli, ["workload", "show", str(made)])
    assert text in " ".join(shown.output.split())


HARMLESS = """
-- \\! a comment
/* \\! another */ CREATE TABLE "a\\b" (x text);
INSERT INTO "a\\b" VALUES ('\\! it''s'), (E'\\'\\\\ \\n'), ($$ \\! $$), ($f$ $$ \\! $f$);
COPY "a\\b" FROM stdin;
\\N
\\\\! data
\\.
SELECT 1 \\; SELECT :'x', '\\d', 'copy t to program x';
"""


def test_sql_without_commands_of_psql_is_not_asked_about(tmp_path):
    found = trust.find(str(folder(tmp_path, init_sql=HARMLESS)))
    assert trust.actions_of(found) == ()


def test_what_a_search_takes_long_for_is_no_text(tmp_path):
    for piece in ("/*", "'", "$$", "$a$", "e'", '"', "\\! ", "copy ", "copy t from stdin;\n"):
        made = folder(tmp_path, init_sql=piece * 50_000)
        assert isinstance(trust.actions_of(workload.read(made)), tuple)  # within the time of a test


def test_scripts_of_the_user_are_the_users_own(tmp_path):
    script = tmp_path / "own.sql"
    script.write_text("\\shell true\nSELECT 1;")
    found = workload.of_scripts("own", [workload.read_script(str(script))])
    trial = TrialPlan(Load("closed"), transactions=1, duration_ns=None)
    check_request(Request(found, trial))
    only_read = workload.read(folder(tmp_path, program('"x"')))
    with pytest.raises(TrustError):
        check_request(Request(only_read, trial))


def test_only_the_variant_that_executes_needs_a_confirmation(tmp_path):
    toml = f'{TOML}[variants.bad]\ninit = [{{ run = "x" }}]\n[variants.good]\nscale = 2\n'
    made = folder(tmp_path, toml)
    base = trust.find(str(made))
    assert not base.trusted
    for refused in (lambda: trust.find(f"{made}/bad"), lambda: trust.variant(base, "bad")):
        with pytest.raises(TrustError):
            refused()
    for variant in (None, "bad", "good"):
        # Whoever confirms one of them confirms them all.
        assert [each.text for each in trust.actions_of_folder(workload.read(made, variant))] == [
            "x"
        ]


@pytest.mark.parametrize("text", ["SELECT 1;", "\\shell true\nSELECT 1;"])
def test_a_workload_beside_another_is_asked_about_as_well(tmp_path, text):
    made = folder(tmp_path, s_sql=text)
    trial = TrialPlan(Load("closed"), transactions=1, duration_ns=None)
    main = Request(workload.find("select-only"), trial)
    given = {"background.b.workload": str(made), "background.b.clients": "1"}
    if "shell" in text:
        with pytest.raises(TrustError):
            backgrounds(main, given)
    assert backgrounds(main, given, trust.grant)[0][1].workload.trusted


@pytest.mark.parametrize(
    "package",
    [
        "--index-url=http://x",
        "./evil",
        "git+https://x/y",
        "a @ http://x",
        "a==1 --pre",
        "-r x",
        "a\n",
    ],
)
def test_a_package_is_a_name_and_a_version_and_no_option_of_pip(tmp_path, package):
    file = f'[files.f]\npackage = {package!r}\npath = "x"\nsha256 = "{"0" * 64}"\n'
    toml = f"{TOML}{file}".replace("'a\\n'", '"a\\n"')
    with raises(WorkloadError, "wrong-value", key="files.f.package"):
        workload.read(folder(tmp_path, toml))


def test_users_are_not_executed_before_they_are_confirmed(tmp_path):
    made = folder(tmp_path, USERS, users_py=python(tmp_path), helper_py="")
    with pytest.raises(TrustError):
        trust.find(str(made))
    shown = CliRunner().invoke(cli, ["workload", "show", str(made)])
    assert "Python users, users.py" in shown.output
    assert "Python module they may import, helper.py" in shown.output
    assert "def look" in shown.output
    assert not (tmp_path / MARK).exists()
    (made / "__pycache__").mkdir()
    (made / "__pycache__" / f"helper.{sys.implementation.cache_tag}.pyc").write_bytes(b"evil")
    found = trust.find(str(made), trust.grant)
    assert (tmp_path / MARK).exists()
    assert not (found.folder / "__pycache__").exists(), "it is compiled by another person"
    assert found.users is not None
    # Messages name the file that its author knows.
    assert found.users.path == made / "users.py"


def test_the_same_content_is_not_asked_about_again_wherever_it_is(tmp_path):
    made = folder(tmp_path, program('"x"'))
    trust.find(str(made), trust.grant)
    made.rename(tmp_path / "moved")
    assert trust.find(str(tmp_path / "moved")).trusted


CHANGES: dict[str, Callable[[Path], object]] = {
    "a script": lambda made: (made / "s.sql").write_text("SELECT 4;"),
    "a module": lambda made: (made / "helper.py").write_text("x = 2"),
    "a new file": lambda made: (made / "psql").write_text(""),
    "a name": lambda made: (made / "helper.py").rename(made / "helper2.py"),
    "a folder": lambda made: (made / "more").mkdir(),
    "what may be executed": lambda made: (made / "helper.py").chmod(0o755),
    "a link": lambda made: (made / "link").symlink_to("s.sql"),
    "one file less": lambda made: (made / "helper.py").unlink(),
    "a name with a line end": lambda made: (made / "helper.py\nx").write_text(""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_any_change_of_the_content_is_a_new_question(tmp_path, name):
    made = folder(tmp_path, program('"x"'), helper_py="x = 1")
    trust.find(str(made), trust.grant)
    assert trust.find(str(made)).trusted
    CHANGES[name](made)
    with pytest.raises(TrustError):
        trust.find(str(made))


def test_what_tools_keep_is_no_change_and_is_not_there_when_it_runs(tmp_path):
    made = folder(tmp_path, program('"x"'))
    trust.find(str(made), trust.grant)
    for name in (".git", "__pycache__"):
        (made / name).mkdir()
        (made / name / "evil").write_text("x")
    found = trust.find(str(made))
    assert found.trusted
    assert not list(found.folder.rglob("evil"))


@pytest.mark.parametrize("kind", ["scripts", "users"])
def test_what_changes_while_it_is_asked_about_is_not_executed(tmp_path, kind):
    mark = python(tmp_path)
    quiet = "import helper\nfrom pgpaces import task\n@task\ndef look(): pass\n"
    toml = USERS if kind == "users" else program('["sh", "make.sh"]')
    made = folder(tmp_path, toml, users_py=quiet, helper_py="x = 1", make_sh="true")

    def changed(question: trust.Question) -> bool:
        for name in ("users.py", "helper.py"):
            (made / name).write_text(mark)
        for name in ("init.sql", "s.sql", "make.sh"):
            (made / name).write_text("\\! evil")
        return True

    found = trust.find(str(made), changed)
    assert not (tmp_path / MARK).exists()
    texts = [path.read_text() for path in found.folder.iterdir() if path.is_file()]
    assert not [text for text in texts if "evil" in text or MARK in text]
    with pytest.raises(TrustError):
        trust.find(str(made))


def test_what_workload_new_makes_is_confirmed_until_it_changes(tmp_path):
    made = tmp_path / "mine"
    assert CliRunner().invoke(cli, ["workload", "new", str(made)]).exit_code == 0
    assert trust.find(str(made)).trusted
    (made / "init.sql").write_text("SELECT 1;")
    assert not trust.find(str(made)).trusted
    theirs = folder(tmp_path, s_sql="\\shell evil\nSELECT 1;")
    trust.confirm_made(theirs)
    with pytest.raises(TrustError):
        trust.find(str(theirs))


def test_copies_go_with_their_process_and_those_of_a_killed_one_with_the_next(tmp_path, home):
    made = folder(tmp_path)
    code = f"from pgpaces.spec import trust; trust.find({str(made)!r}); import os; "
    for last, left in (("os.kill(os.getpid(), 9)", 1), ("", 0)):
        subprocess.run([sys.executable, "-c", code + last], check=False)
        assert len(list((home / "cache" / "folders").iterdir())) == left


def test_a_folder_that_is_too_large_or_too_deep_is_refused(tmp_path, monkeypatch):
    made = folder(tmp_path)
    (made / "data").write_bytes(b"x" * 5000)
    monkeypatch.setattr(trust, "_TOTAL_BYTES", 4000)
    with raises(WorkloadError, "folder-too-large", path=made):
        trust.find(str(made))
    # A long file is linked: it costs no room.
    monkeypatch.setattr(trust, "_COPY_BYTES", 4000)
    assert (trust.find(str(made)).folder / "data").stat().st_nlink == 2
    (made / "/".join("d" * 80)).mkdir(parents=True)
    with raises(WorkloadError, "folder-too-deep", path=made):
        trust.find(str(made))


@pytest.mark.parametrize("where", [".", "home"])
def test_a_home_in_the_folder_is_not_copied_into_itself(tmp_path, monkeypatch, where):
    made = folder(tmp_path)
    monkeypatch.setenv("PGPACES_HOME", str(made / where))
    copy = trust.find(str(made)).folder
    assert copy.is_relative_to(made)
    assert not list(copy.rglob("folders"))


def test_a_home_that_cannot_be_written_keeps_no_workload_from_running(tmp_path, monkeypatch):
    made = folder(tmp_path, program('"x"'))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "file" / "home"))
    assert trust.find(str(made), trust.grant).trusted


def test_what_is_shown_of_a_folder_changes_no_other_line():
    evil = trust.Action("a\nb", "\x1b[2J\nname.sql", "true\r\x1b[1A\u202e; rm -rf ~\n  harmless")
    shown = list(specs.action_lines((evil,)))
    assert len(shown) == 1
    assert shown[0].isprintable()
    assert "rm -rf ~" in shown[0]


def test_no_name_in_a_folder_forges_a_line_of_what_is_shown(tmp_path):
    forged = message("executes-nothing")
    name = f"a.sql\n{forged}"
    toml = TOML.replace('"init.sql"', f'{json.dumps(name)}, {{ run = "evil\\\\n  nothing" }}')
    made = folder(tmp_path, toml.replace('"d"', f'"d\\n{forged}"'))
    (made / name).write_text("SELECT 1;")
    shown = CliRunner().invoke(cli, ["workload", "show", str(made)])
    assert not [text for text in shown.output.splitlines() if text.startswith(forged)]
    assert "  program that makes data, workload.toml: evil" in shown.output


def dry_run(what: Path, *more: str) -> int:
    """The exit code of a sweep that is only planned, without a terminal."""
    done = CliRunner().invoke(cli, ["sweep", str(what), "--dry-run", *more])
    return getattr(done.exception, "exit_code", 0)


def test_without_a_terminal_it_is_refused_unless_it_is_trusted(tmp_path):
    made = folder(tmp_path, program('"x"'))
    assert [dry_run(made), dry_run(made, "--trust"), dry_run(made)] == [6, 0, 0]


def test_an_experiment_file_does_not_trust_the_folder_that_it_names(tmp_path):
    folder(tmp_path, program('"x"'))
    file = tmp_path / "theirs.toml"
    file.write_text('workload = "./theirs"\n[factors]\nclients = [1, 2]\n')
    runner = CliRunner()
    done = runner.invoke(cli, ["sweep", str(file), "--dry-run"])
    assert isinstance(done.exception, TrustError)
    file.write_text(f"trust = true\n{file.read_text()}")
    done = runner.invoke(cli, ["sweep", str(file), "--dry-run"])
    assert isinstance(done.exception, PlanError)


@pytest.mark.parametrize("text", ["{made} clients=1", "b workload={made} clients=1"])
def test_a_folder_that_is_typed_for_the_background_is_asked_about_too(tmp_path, text):
    """By its whole path, as a shell completes it."""
    made = folder(tmp_path, program('"x"')).resolve()
    words = ("--background", text.format(made=made))
    assert dry_run(Path("select-only"), *words) == 6
    assert dry_run(Path("select-only"), *words, "--trust") == 0


class RunError(Exception):
    """It would have been run now."""


CALLS: dict[str, Callable[..., object]] = {
    "run": lambda made, **more: pgpaces.run(made, duration=1, **more),
    "run, a workload beside": lambda made, **more: pgpaces.run(
        "select-only", background={"b": {"workload": made, "clients": 1}}, **more
    ),
    "run, tasks on its data": lambda made, **more: pgpaces.run(made, tasks=[print_it], **more),
    "sweep": lambda made, **more: pgpaces.sweep(made, clients=[1, 2], **more),
    "capacity": lambda made, **more: pgpaces.capacity(made, latency_limit="1s", **more),
    "compare": lambda made, **more: pgpaces.compare("clients=1", "clients=2", run=made, **more),
}


def print_it() -> None:
    """A task of the user's own."""


@pytest.mark.parametrize("name", CALLS)
def test_from_python_nobody_is_asked_and_trust_says_it(tmp_path, monkeypatch, name):
    def run(*_: object) -> None:
        raise RunError

    monkeypatch.setattr("pgpaces.trial.trial.run", run)
    monkeypatch.setattr("pgpaces.trial.sweep.run", run)
    made = str(folder(tmp_path, program('"x"')))
    more = {"store": tmp_path / "results.db"}
    with pytest.raises(TrustError):
        CALLS[name](made, **more)
    with pytest.raises(RunError):
        CALLS[name](made, trust=True, **more)
    with pytest.raises(RunError):
        CALLS[name](made, **more)


SHELL = "\\shell true\nSELECT 1;"
NAMED = {
    "a script": ('files = ["evil.sql@2"]', ()),
    "a script beside": (
        'workload = "select-only"\n[background.b]\nworkload = "evil.sql"\nclients = 1',
        (),
    ),
    "typed": ("", ("-f", "evil.sql@2")),
    "typed beside": ("", ("select-only", "--background", "b workload=evil.sql clients=1")),
}


@pytest.mark.parametrize("name", NAMED)
def test_scripts_that_an_experiment_file_names_are_not_the_users_own(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.sql").write_text(SHELL)
    text, words = NAMED[name]
    (tmp_path / "theirs.toml").write_text(f"duration = '1s'\n{text}\n" if text else "")
    words = words or ("theirs.toml",)

    def code(*more: str) -> int:
        done = CliRunner().invoke(cli, ["sweep", *words, "--dry-run", *more])
        assert done.exit_code == 0 or isinstance(done.exception, TrustError), done.exception
        return getattr(done.exception, "exit_code", 0)

    assert [code(), code("--trust"), code()] == (
        [0, 0, 0] if name.startswith("typed") else [6, 0, 0]
    )
    (tmp_path / "evil.sql").write_text(f"{SHELL}SELECT 2;")
    assert code() == (0 if name.startswith("typed") else 6)


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\n", 6)])
def test_on_a_terminal_it_is_asked_once_with_a_list(tmp_path, typed, code):
    made = folder(tmp_path, program('"touch \\u001b[2Jx"'))
    words = [sys.executable, "-m", "pgpaces", "sweep", str(made), "--dry-run"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        heard = b""
        while b"[y/N]" not in heard:
            heard += os.read(ours, 4096)
        os.write(ours, typed.encode())
        assert process.wait(60) == code
    os.close(ours)
    assert b"program that makes data, workload.toml: touch \\x1b[2Jx" in heard
    assert dry_run(made) == code


def make_data(program: Path, found: workload.Workload, *, trusted: bool) -> None:
    way = psql.ClientProgram(program, {}, "d")
    values = {"scale": "1", "seed": "1"}
    programs.make_data(way, replace(found, trusted=trusted), values, say=print)


def test_a_psql_that_cannot_be_restricted_is_not_given_unconfirmed_sql(tmp_path):
    old = tmp_path / "psql"
    old.write_text("#!/bin/sh\necho '  \\gexec'\n")
    old.chmod(0o755)
    found = trust.find(str(folder(tmp_path)))
    with raises(TrustError, "psql-without-restrict", psql=old):
        make_data(old, found, trusted=False)
    make_data(old, found, trusted=True)


def test_psql_reads_no_file_of_the_users_and_is_restricted_before_it_reads_anything(tmp_path):
    told = tmp_path / "told"
    noting = tmp_path / "psql"
    script = f"#!/bin/sh\nprintf '%s\\n' '\\restrict'\nprintf '%s ' \"$@\" > {told}\n"
    noting.write_text(script)
    noting.chmod(0o755)
    found = trust.find(str(folder(tmp_path)))
    make_data(noting, found, trusted=False)
    words = told.read_text().split()
    assert words[0] == "-X"
    assert words.index("\\restrict") == words.index("-c") + 1 < words.index("-f")
    make_data(noting, found, trusted=True)
    assert "\\restrict" not in (words := told.read_text().split())
    assert words[0] == "-X"
