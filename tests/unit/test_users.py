"""Users in Python as they are read: marks, parameters, and a sentence for whatever is wrong."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces import task, user
from pgpaces.analysis.summary import summarize
from pgpaces.core.errors import PlanError, WorkloadError
from pgpaces.load.python_users.load import uri
from pgpaces.load.python_users.order import hidden
from pgpaces.spec import workload
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.users import Users, call, of_file, of_functions
from pgpaces.trial.request import check_users
from tests.errors import raises
from tests.unit.trials import series, times

HEAD = "from pgpaces import task, user\n"
GOOD = HEAD + "@task\ndef act(connection):\n    pass\n"


def users_file(folder: Path, text: str) -> Path:
    path = folder / "users.py"
    path.write_text(text)
    return path


def read(path: Path) -> Users:
    return of_file(path, path)


def act(connection: Any) -> None:
    pass


def of(*functions: Callable[..., Any]) -> workload.Workload:
    return workload.of_tasks(functions)


def test_marks_say_weight_queries_and_pause_and_leave_functions_as_they_are(tmp_path):
    text = (
        HEAD
        + '@user(pause="250ms")\ndef own():\n    yield 1\n'
        + "@task(weight=3, queries=2)\ndef look(own): return 7\n"
        + "@task\ndef buy(own): pass\n"
        + "def helper(): pass\n"
    )
    found = read(users_file(tmp_path, text))
    assert [(t.name, t.weight, t.queries) for t in found.tasks] == [("look", 3, 2), ("buy", 1, 1)]
    assert found.pause == "250ms"
    assert found.setup is not None
    assert found.setup.__name__ == "own"
    assert found.tasks[0].function(None) == 7
    assert found.tasks[0].source == "@task(weight=3, queries=2)\ndef look(own): return 7\n"
    assert found.text == text


def test_functions_of_another_file_are_tasks_where_they_are_imported_once_each(tmp_path):
    (tmp_path / "beside_users_of_this_test.py").write_text(GOOD)
    text = "from beside_users_of_this_test import act\nalias = act\n"
    assert [t.name for t in read(users_file(tmp_path, text)).tasks] == ["act"]


@pytest.mark.parametrize(("pause", "text"), [("1s", "1s"), (2, "2s"), (0.5, "0.5s"), (0, "0s")])
def test_a_pause_is_a_duration_or_seconds(pause, text):
    @user(pause=pause)
    def own() -> Any:
        yield 1

    assert of_functions([own, act]).pause == text
    with pytest.raises(PlanError, match="'soon'"):
        of_functions([user(pause="soon")(own), act])


WRONG = {
    "syntax error": (
        HEAD + "def act(:\n    pass\n",
        "python-syntax",
        "users.py:2: invalid syntax\n  def act\\(:\n          \\^",
    ),
    "missing driver": (HEAD + "import no_such_driver.pool\n", "import-missing", "no_such_driver,"),
    "no task": (HEAD + "def act(): pass\n", "no-tasks", "users.py: "),
    "two @user": (
        GOOD + "@user\ndef a():\n    yield\n@user\ndef b():\n    yield\n",
        "several-user-functions",
        "users.py: .*: a, b",
    ),
    "mixed": (GOOD + "@task\nasync def other(connection): pass\n", "some-coroutines", "users.py: "),
    "mixed set-up": (
        GOOD + "@user\nasync def own():\n    yield\n",
        "some-coroutines",
        "users.py: ",
    ),
    "set-up without yield": (GOOD + "@user\ndef own(): pass\n", "user-without-yield", "py: own"),
    "weight": (HEAD + "@task(weight=-1)\ndef act(): pass\n", "not-an-integer", "act: weight '-1'"),
    "a bool": (HEAD + "@task(weight=True)\ndef act(): pass\n", "not-an-integer", "act: weight 'T"),
    "text": (HEAD + "@task(queries='3')\ndef act(): pass\n", "not-an-integer", "act: queries '3'"),
    "marks a value": (HEAD + "task(3)\n", "not-a-function", "users.py: @task: 3 "),
    "raises": (HEAD + "\n1 / 0\n", "program-failed", r"ZeroDivisionError: d.* \(.*users.py:3\)"),
    "task that yields": (HEAD + "@task\ndef act():\n    yield\n", "task-yields", "py: task 'act' "),
    "coroutine": (HEAD + "@task\nasync def act():\n    yield\n", "task-yields", "py: task 'act' "),
    "exits": (HEAD + "raise SystemExit(3)\n", "program-failed", "users.py.*: SystemExit: 3"),
}


@pytest.mark.parametrize(("text", "name", "values"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_with_a_file_is_a_sentence(tmp_path, text, name, values):
    with pytest.raises(WorkloadError, match=values) as caught:
        read(users_file(tmp_path, text))
    assert caught.value.name == name


def test_a_syntax_error_beside_it_is_told_with_the_file_that_has_it(tmp_path):
    (tmp_path / "broken_beside_users.py").write_text("x = = 1\n")
    with pytest.raises(WorkloadError, match=r"broken_beside_users.py:1: invalid syntax"):
        read(users_file(tmp_path, "import broken_beside_users\n"))


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with raises(WorkloadError, "cannot-read", path=tmp_path / "users.py"):
        read(tmp_path / "users.py")
    (tmp_path / "users.py").write_bytes(b"\xff\xfe\xff")
    with raises(WorkloadError, "cannot-read", path=tmp_path / "users.py"):
        read(tmp_path / "users.py")


def test_what_a_file_prints_when_it_is_read_is_no_output_of_ours(tmp_path, capsys):
    read(users_file(tmp_path, "print('hello')\n" + GOOD))
    assert capsys.readouterr() == ("", "hello\n")


def test_of_functions_those_without_a_mark_are_tasks():
    marked = task(weight=2)(lambda: None)
    found = of_functions([act, marked])
    assert [(t.name, t.weight) for t in found.tasks] == [("act", 1), ("<lambda>", 2)]
    assert not hasattr(act, "__pgpaces__")
    with raises(WorkloadError, "not-a-function", value="3"):
        of_functions([3])  # type: ignore[list-item]
    with raises(WorkloadError, "task-twice", task="<lambda>"):
        of_functions([lambda: 1, lambda: 2])
    assert of_functions([partial(act, connection=3)]).tasks[0].name == "partial"


GIVEN = {"dsn": "D", "number": 3, "rng": "R", "loop": 5, "setup": "S"}
VARIABLES = {"scale": "2", "share": "0.5", "loud": "on", "town": "Ulm"}


def everything(connection, rng, scale: int, *, share=1.0, loud: bool = False, town="", loop):  # type: ignore[no-untyped-def]
    return connection, rng, scale, share, loud, town, loop


def nothing() -> tuple[()]:
    return ()


def only_known(number: int, dsn: str) -> tuple[int, str]:
    return number, dsn


def defaults(connection=None, limit=4):  # type: ignore[no-untyped-def]
    return connection, limit


def swallows(session, *rest, **more):  # type: ignore[no-untyped-def]
    return session, rest, more


def quoted(scale: int, share: float, town: str) -> tuple[int, float, str]:
    return scale, share, town


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (everything, ("S", "R", 2, 0.5, True, "Ulm", 5)),
        (nothing, ()),
        (only_known, (3, "D")),
        (defaults, (None, 4)),
        (swallows, ("S", (), {})),
        (quoted, (2, 0.5, "Ulm")),
    ],
)
def test_parameters_are_given_by_name_and_the_first_other_one_is_what_set_up_gave(function, result):
    for on in ("on", "true", "ON", "1"):
        given = call(function, {**VARIABLES, "loud": on}, task=True).arguments(GIVEN)
        assert function(**given) == result


def unknown(connection: Any, greenhouse: int) -> None:
    pass


def placed(connection: Any, /) -> None:
    pass


def number_of(town: int) -> None:
    pass


def switch_of(town: bool) -> None:
    pass


@pytest.mark.parametrize(
    ("function", "is_task", "name", "values"),
    [
        (unknown, True, "unknown-parameter", {"parameter": "greenhouse"}),
        (act, False, "unknown-parameter", {"parameter": "connection"}),
        (placed, True, "positional-parameter", {"parameter": "connection"}),
        (number_of, True, "variable-type", {"variable": "town", "value": "Ulm", "type": "int"}),
        (switch_of, True, "variable-type", {"variable": "town", "value": "Ulm", "type": "bool"}),
        (dict, True, "no-signature", {}),
    ],
)
def test_a_parameter_that_cannot_be_given_is_a_sentence(function, is_task, name, values):
    with raises(WorkloadError, name, function=function.__name__, **values):
        call(function, VARIABLES, task=is_task)


def test_variables_are_looked_at_before_anything_is_started():
    plan = TrialPlan(Load("closed"))
    with raises(WorkloadError, "unknown-parameter", parameter="greenhouse"):
        check_users(of(unknown), plan)
    check_users(of(unknown), replace(plan, variables=(("greenhouse", "3"),)))


def test_a_workload_of_users_has_a_script_for_each_task_and_their_pause(tmp_path):
    users_file(
        tmp_path, HEAD + "@user(pause='3s')\ndef u():\n    yield\n@task(weight=4)\ndef a(u): 1\n"
    )
    toml = 'description = "d"\ninit = []\nkind = "users"\nusers = "users.py"\n'
    (tmp_path / "workload.toml").write_text(toml)
    found = workload.performed(workload.read(tmp_path))
    assert [(s.name, s.weight, s.queries) for s in found.scripts] == [("a", 4, 1)]
    assert found.load == {"think_time": "3s", "think": "fixed"}
    users_file(tmp_path, (tmp_path / "users.py").read_text() + "LIMIT = 3\n")
    assert workload.performed(workload.read(tmp_path)).hash != found.hash
    users_file(tmp_path, f"\ufeff{GOOD}")  # as some editors begin a file
    assert [s.name for s in workload.performed(workload.read(tmp_path)).scripts] == ["act"]


URIS = [
    ({"dbname": "a b", "host": "/tmp/x y", "port": "5432"}, "/a%20b?host=%2Ftmp%2Fx%20y&port=5432"),
    ({"dbname": "d", "user": "ü", "password": "a&b=c"}, "/d?user=%C3%BC&password=a%26b%3Dc"),
    ({"dbname": "d", "sslmode": "prefer", "port": ""}, "/d?"),
    ({"dbname": "d", "sslmode": "require"}, "/d?sslmode=require"),
    ({"dbname": "d", "password": "x", "passfile": "/f"}, "/d?password=x"),
]


@pytest.mark.parametrize(("keywords", "text"), URIS)
def test_the_way_is_a_uri_without_what_is_usual(keywords, text):
    assert uri(keywords) == f"postgresql://{text}"


SECRET = "s3:cr\\t@/%27' ü"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        "s3%3Acr%5Ct%40%2F%2527%27%20%C3%BC",
        "s3%3Acr%5Ct%40%2F%2527%27+%C3%BC",
        repr(SECRET),
        ascii(SECRET),
        "password='s3:cr\\\\t@/%27\\' ü'",
        "s3:cr\\t@/%27'\n ü",
    ],
)
def test_a_secret_is_hidden_however_it_is_written(form):
    shown = hidden(f"before {form} behind", ("other", SECRET))
    assert "***" in shown
    assert "s3" not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" behind")
    assert hidden("text", ()) == "text"


def of_trial(**plan: Any) -> Any:
    scripts = [{"name": "a", "weight": 1, "commands": [], "kind": "users", "queries": 1}]
    asked = {"limit_ns": None, "policy": "run", **plan}
    return series([[5.0] * 10] * 4, workload={"scripts": scripts}, plan=asked)


@pytest.mark.parametrize(
    ("model", "late_ms", "expected"),
    [
        ("open", 0.5, ""),
        ("open", 5, "generator-late"),
        ("closed", 5, ""),
        ("closed", 80, "generator-late-users"),
    ],
)
def test_users_of_a_process_that_is_late_itself_are_told(model, late_ms, expected):
    """In an open load all were on time in spite of it; a closed one is less of a load then."""
    trial = of_trial(model=model, protocol="simple", seed=1, clients=2)
    late = times([late_ms] * 400)
    intervals = tuple(replace(each, dispatch=late) for each in trial.intervals)
    summary = summarize(replace(trial, intervals=intervals))
    found = {each.name for each in summary.validity.findings} - {"too-short-for-steadiness"}
    assert found == ({expected} if expected else set())
    assert summary.generator.limited == (expected == "generator-late-users")
