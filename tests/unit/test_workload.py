"""Workload folders: what is read from them, and what is wrong with bad ones."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pgpaces.cli import pgbench
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError, WorkloadError
from pgpaces.spec import workload
from pgpaces.spec.workload import commands_in
from pgpaces.trial.request import choose
from tests.errors import raises

GOOD = 'description = "d"\ninit = ["i.sql"]\n[[scripts]]\nfile = "s.sql"\n'


def folder(tmp_path: Path, toml: str) -> Path:
    made = tmp_path / "mine"
    made.mkdir(parents=True)
    (made / "workload.toml").write_text(toml)
    (made / "i.sql").write_text("CREATE TABLE t (x int);")
    (made / "s.sql").write_text("SELECT 1;")
    return made


@pytest.mark.parametrize("name", workload.shipped())
def test_a_shipped_workload_reads_and_its_scripts_parse(name):
    found = workload.find(name)
    assert found.description
    for script in found.scripts if found.command is None else ():
        assert any(c.is_sql for c in commands_in(script.name, script.text))


def test_the_builtins_of_pgbench_share_their_data():
    hashes = {workload.find(n).data_hash for n in ("tpcb-like", "simple-update", "select-only")}
    assert len(hashes) == 1


def test_a_new_workload_can_be_read_at_once(tmp_path):
    made = workload.create(tmp_path / "mine")
    found = workload.find(str(made))
    assert [s.name for s in found.scripts] == ["read", "write"]
    with raises(WorkloadError, "folder-not-empty", path=made):
        workload.create(made)


COMMAND = (
    'description = "d"\nkind = "command"\ninit = ["i.sql"]\n[command]\nrun = ["load", "{dsn}"]\n'
    'input = ["*.csv"]\ntimeout = "5min"\nsucceeds = [0, 3]\n'
)
VARIANT = f"{GOOD}[variants.v]\n"
RUN = 'command = { run = "true" }\n'


@pytest.mark.parametrize(
    ("toml", "name", "values"),
    [
        ("", "wrong-value", {"key": "description"}),
        (GOOD.replace('d"', 'd"\nscale = 0'), "wrong-value", {"key": "scale"}),
        (GOOD + "weihgt = 3\n", "unknown-key", {"key": "scripts.0.weihgt"}),
        (GOOD.replace("s.sql", "absent.sql"), "cannot-read", {"path": "absent.sql"}),
        (GOOD + "weight = -1\n", "wrong-value", {"key": "scripts.0.weight"}),
        ('description = "d"\ninit = []\nscripts = []\n', "kind-missing", {"own": "scripts"}),
        (COMMAND + '[[scripts]]\nfile = "s.sql"\n', "two-kinds", {"other": "scripts"}),
        (COMMAND.replace('kind = "command"\n', ""), "kind-missing", {"own": "scripts"}),
        (COMMAND.partition("[command]")[0], "kind-missing", {"own": "command"}),
        (COMMAND.replace('"command"', '"program"'), "wrong-value", {"key": "kind"}),
        (COMMAND + '[load]\nrate = "1/s"\n', "command-with-load", {"key": "rate"}),
        (COMMAND.replace('["load", "{dsn}"]', "[]"), "wrong-value", {"key": "command.run"}),
        (COMMAND.replace("[0, 3]", "[256]"), "wrong-value", {"key": "command.succeeds.0"}),
        (COMMAND.replace("run =", "runs ="), "unknown-key", {"key": "command.runs"}),
        (f'{VARIANT}kind = "command"\n', "kind-missing", {"own": "command"}),
        (f"{VARIANT}{RUN}", "two-kinds", {"other": "command"}),
        (f'{VARIANT}kind = "command"\ncommand = {{ rows = "SELECT 1" }}\n', "wrong-value",
         {"key": "variants.v.command.run"}),
        (f'{VARIANT}variants = {{}}\n', "unknown-key", {"key": "variants.v.variants"}),
        (f'{VARIANT}command = 3\n', "wrong-value", {"key": "variants.v.command"}),
        (f"{GOOD}[variants]\nv = 3\n", "wrong-value", {"key": "variants.v"}),
        (f"{GOOD}[variants.w]\nscripts = []\n", "kind-missing", {"own": "scripts"}),
        (f'{VARIANT}kind = "command"\n{RUN}load = {{ rate = "1/s" }}\n', "command-with-load",
         {"key": "rate"}),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_right_is_refused_with_the_key(tmp_path, toml, name, values):
    with raises(WorkloadError, name, **values):
        workload.read(folder(tmp_path, toml), "v" if toml.startswith(VARIANT) else None)


@pytest.mark.parametrize(
    "text",
    [
        "x = [",
        COMMAND.replace("5min", "5 minutes"),
        f'{COMMAND}[variants.slow.command]\ntimeout = "5 minutes"\n',
    ],
)
def test_what_is_not_toml_or_has_no_duration_is_refused(tmp_path, text):
    place = r"variants\.slow: timeout '5 minutes'" if "slow" in text else "timeout '5 minutes'"
    with pytest.raises(WorkloadError, match=rf"TOML|{place}"):
        workload.read(folder(tmp_path, text))


def test_an_unknown_workload_names_the_nearest():
    with raises(WorkloadError, "unknown-workload", workload="reprting", near="reporting"):
        workload.find("reprting")


def test_a_byte_order_mark_is_skipped_as_psql_does_and_kept_as_pgbench_does(tmp_path):
    where = folder(tmp_path, GOOD)
    for name in ("i.sql", "s.sql"):
        (where / name).write_bytes(b"\xef\xbb\xbfSELECT '\xef\xbb\xbf\xff';")
    whole = workload.find(str(where))
    texts = [whole.scripts[0].text, whole.init[0].text]
    texts.append(workload.read_script(str(where / "s.sql")).text)
    assert texts == ["SELECT '\ufeff\udcff';"] * 3
    assert pgbench._read(str(where / "s.sql")) == f"\ufeff{texts[0]}"


def test_what_the_data_depends_on_changes_its_hash(tmp_path):
    made = folder(tmp_path, GOOD)
    before = workload.read(made)
    (made / "s.sql").write_text("SELECT 2;")
    scripts_changed = workload.read(made)
    assert (before.data_hash, before.hash != scripts_changed.hash) == (
        scripts_changed.data_hash,
        True,
    )
    (made / "i.sql").write_text("CREATE TABLE t (y int);")
    assert workload.read(made).data_hash != before.data_hash


def test_scripts_are_chosen_by_name_and_weight():
    found = workload.find("reporting")
    chosen = choose(found, (("one_fk1", 3), ("by_fk1", None)))
    assert [(s.name, s.weight) for s in chosen] == [("one_fk1", 3), ("by_fk1", 1)]
    with raises(PlanError, "unknown-script", workload="reporting", script="x"):
        choose(found, (("x", None),))


def test_a_workload_may_be_a_command(tmp_path):
    found = workload.read(folder(tmp_path, COMMAND))
    assert found.command == workload.Command(
        ("load", "{dsn}"), None, ("*.csv",), None, "5min", (0, 3)
    )
    assert [(script.name, script.text) for script in found.scripts] == [("load", "load '{dsn}'")]
    assert found.writes
    assert found.load == {"transactions": "1", "warmup": "0s"}


def test_a_variant_of_a_command_changes_what_it_names(tmp_path):
    more = '[variants.other]\n[variants.other.command]\nrun = "load --fast | cat"\n'
    made = folder(tmp_path, COMMAND + more)
    base, other = workload.read(made), workload.read(made, "other")
    assert other.command is not None
    assert (other.command.run, other.command.succeeds) == ("load --fast | cat", (0, 3))
    assert base.hash != other.hash
    assert base.data_hash == other.data_hash


def test_a_variant_may_be_of_another_kind_than_the_workload(tmp_path):
    more = (
        '[load]\nrate = "4/s"\nclients = 4\nlatency_limit = "250ms"\n[variables]\nhot = 5\n'
        '[variants.load]\nkind = "command"\ncommand = { run = ["load", "{hot}"] }\n'
    )
    made = folder(tmp_path, GOOD + more)
    base, load = workload.read(made), workload.read(made, "load")
    assert (base.command, [script.name for script in base.scripts]) == (None, ["s"])
    assert load.command == workload.Command(("load", "{hot}"))
    assert [script.name for script in load.scripts] == ["load"]
    assert load.load == {"transactions": "1", "warmup": "0s"}
    assert (load.variables, load.data_hash) == ({"hot": "5"}, base.data_hash)


def test_a_variant_of_scripts_may_stand_beside_a_command(tmp_path):
    more = '[variants.read]\nkind = "scripts"\nscripts = [{ file = "s.sql" }]\n'
    found = workload.read(folder(tmp_path, COMMAND + more), "read")
    assert (found.command, found.load) == (None, {})
    assert [script.name for script in found.scripts] == ["s"]


def test_a_program_may_make_data(tmp_path):
    toml = GOOD.replace(
        '["i.sql"]',
        '["i.sql", { run = ["{python}", "make.py", "{scale}"] }, { run = "gen | load" }]',
    )
    found = workload.read(folder(tmp_path, toml))
    steps = [(step.name, step.run) for step in found.init]
    assert steps == [
        ("i.sql", None),
        ("make.py", ("{python}", "make.py", "{scale}")),
        ("gen", "gen | load"),
    ]
    assert found.data_hash != workload.read(folder(tmp_path / "other", GOOD)).data_hash


def test_users_are_shown_with_what_each_of_them_has():
    shown = CliRunner().invoke(cli, ["workload", "show", "garden/users"]).output
    for part in ("import psycopg", '@user(pause="1s")', "yield connection", "@task(queries=3)"):
        assert shown.count(part) == 1
    assert 'users = "users.py"' in shown


@pytest.mark.parametrize(
    ("name", "variable", "used"),
    [
        ("sensor", "hot", True),
        ("sensor", "hto", False),
        ("sensor", "ho", False),
        ("bulk-load", "seed", True),  # in the words of a program, as $PGPACES_SEED
        ("garden/users", "scale", True),
        ("garden/users", "pause_s", False),
        ("osm", "radius", True),
        ("osm", "file", True),
    ],
)
def test_what_a_workload_does_not_use_is_known(name, variable, used):
    assert workload.find(name).uses(variable) is used
