"""Application users as Python functions: their actions, and the set-up of each user.

    import random
    import psycopg
    from pgpaces import task, user

    @user(pause="1s")
    def gardener(dsn):
        with psycopg.connect(dsn, autocommit=True) as connection:
            yield connection

    @task(weight=3)
    def look(connection):
        connection.execute("SELECT * FROM ui.get_plantings_listing()").fetchall()

Reads and checks them; runs none. The functions themselves are not changed.
"""

from __future__ import annotations

import contextlib
import inspect
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, WorkloadError
from pgpaces.core.hidden_fields import Redacted
from pgpaces.core.units import duration_ns, whole

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__pgpaces__"
# Parameters by name, in addition to the variables of the workload and of the command line.
PARAMETERS: Mapping[str, str] = {
    "dsn": "the connection to the database, as a URI",
    "number": "the number of this user, from 0",
    "rng": "a seeded random.Random for this user alone",
    "loop": "the number of this action of the user, from 1",
}


class Mark(Struct, frozen=True):
    """What @task or @user says of a function."""

    kind: Literal["task", "user"] = "task"
    weight: int = 1
    queries: int = 1
    pause: str | float | None = None


class Task(Redacted, frozen=True):
    """An action of users: its function, and its weight among all tasks.

    queries: the number it sends, as its author specifies. source: its text, if it is known.
    """

    REDACTED: ClassVar = ("function", "source")
    name: str
    function: Callable[..., Any]
    weight: int = 1
    queries: int = 1
    source: str = ""

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine."""
        return inspect.iscoroutinefunction(self.function)


class Users(Redacted, frozen=True):
    """Users: their tasks, and a setup, a generator that yields once what each user has.

    pause: the default one between actions, such as "1s". path: of their file. folder: from which it
    and the modules next to it are read, if that is another one. text: their source, as far as it is
    known.
    """

    REDACTED: ClassVar = ("setup", "text")
    tasks: tuple[Task, ...]
    setup: Callable[..., Any] | None = None
    pause: str | None = None
    path: Path | None = None
    text: str = ""
    folder: Path | None = None

    @property
    def is_async(self) -> bool:
        """Whether they are coroutines: all of them, or none."""
        return self.tasks[0].is_async


@overload
def task(function: Function, /) -> Function: ...
@overload
def task(*, weight: int = 1, queries: int = 1) -> Callable[[Function], Function]: ...
def task(
    function: Function | None = None, /, *, weight: int = 1, queries: int = 1
) -> Function | Callable[[Function], Function]:
    """Marks a function (or coroutine function) as an action of users.

    weight: how often it is chosen, among all tasks. queries: how many it sends, for the numbers of
    queries in the report. Its parameters are passed by name: dsn, number, rng, loop, and variables
    of the workload and of --define; the first other one gets the value that the function marked
    @user yields, by default a psycopg connection with autocommit.
    """
    return _marked(function, Mark("task", weight, queries))


@overload
def user(function: Function, /) -> Function: ...
@overload
def user(*, pause: str | float | None = None) -> Callable[[Function], Function]: ...
def user(
    function: Function | None = None, /, *, pause: str | float | None = None
) -> Function | Callable[[Function], Function]:
    """Marks a generator function as the life of each user: set-up, one yield, tear-down.

    pause: between its actions, such as "1s", or seconds; --think-time overrides it. It may be
    asynchronous, if the tasks are. Parameters as those of a task, without loop.
    """
    return _marked(function, Mark("user", pause=pause))


def _marked(function: Function | None, mark: Mark) -> Function | Callable[[Function], Function]:
    def decorate(marked: Function) -> Function:
        if not callable(marked):
            raise WorkloadError("not-a-function", value=repr(marked)).at(f"@{mark.kind}")
        setattr(marked, _MARK, mark)
        return marked

    return decorate if function is None else decorate(function)


def of_file(path: Path, shown: Path) -> Users:
    """The users in a file, which is executed. shown: in messages. Raises WorkloadError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError("cannot-read", path=shown, why=str(error)) from None
    return of_text(text, shown, path.parent)


def of_text(text: str, path: Path, folder: Path) -> Users:
    """The users in the text of a file, which is executed. It can import modules in `folder`.

    path: for messages. Raises WorkloadError if it cannot be run, or has no tasks.
    """
    namespace = _run(text, path, folder.resolve())
    marked = {id(value): value for value in namespace.values() if _mark(value) is not None}
    try:
        users = _users(list(marked.values()))
    except (PlanError, WorkloadError) as error:
        raise error.at(str(path)) from None
    return replace(users, path=path, text=text, folder=folder.resolve())


def of_functions(functions: Sequence[Callable[..., Any]]) -> Users:
    """Users with these tasks; the function marked @user is their setup. Raises WorkloadError."""
    for each in functions:
        if not callable(each):
            raise WorkloadError("not-a-function", value=repr(each))
    return replace(_users(functions), text="\n".join(map(_source, functions)))


def _mark(value: Any) -> Mark | None:
    """The mark of a function; None for everything else, even objects with any attribute."""
    mark = getattr(value, _MARK, None) if callable(value) else None
    return mark if isinstance(mark, Mark) else None


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _run(text: str, path: Path, folder: Path) -> dict[str, Any]:
    """The namespace of an executed file. It can import modules in its folder, as a program does."""
    import linecache
    import sys

    module = ModuleType(f"users of {path.parent.name}")
    namespace = vars(module)
    namespace["__file__"] = str(folder / path.name)
    sys.path.insert(0, str(folder))
    # Data classes look their module up.
    sys.modules[module.__name__] = module
    # For tracebacks with the executed lines, even if the file changes meanwhile.
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    try:
        # Its prints must not mix with the output of pgpaces.
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(text, str(path), "exec"), namespace)
    except SyntaxError as error:
        line, at = (error.text or "").rstrip("\n"), max(0, (error.offset or 1) - 1)
        code, file = f"  {line}\n  {' ' * at}^", error.filename or path
        raise WorkloadError(
            "python-syntax", file=file, line=error.lineno, why=error.msg, code=code
        ) from None
    except ModuleNotFoundError as error:
        raise WorkloadError("import-missing", path=path, module=error.name) from None
    except WorkloadError as error:
        raise error.at(str(path)) from None
    except (Exception, SystemExit) as error:
        why = describe(error, path)
        raise WorkloadError("program-failed", program=path, why=why) from None
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        sys.modules.pop(module.__name__, None)
    return namespace


def describe(error: BaseException, path: Path | None = None) -> str:
    """An exception in a line: its class, its message, and its last line in this file."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # its class may be foreign code
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path is not None and frame.filename == str(path)]
    return f"{text} ({own[-1].filename}:{own[-1].lineno})" if own else text


def _users(marked: Sequence[Any]) -> Users:
    marks = [(each, _mark(each) or Mark()) for each in marked]
    setups = [(each, mark.pause) for each, mark in marks if mark.kind == "user"]
    tasks = tuple(_task(each, mark) for each, mark in marks if mark.kind == "task")
    if not tasks:
        raise WorkloadError("no-tasks")
    if len(setups) > 1:
        functions = [_name(each) for each, _ in setups]
        raise WorkloadError("several-user-functions", functions=functions)
    names = [each.name for each in tasks]
    for name in names:
        if names.count(name) > 1:
            raise WorkloadError("task-twice", task=name)
    setup, pause = setups[0] if setups else (None, None)
    kinds = {each.is_async for each in tasks}
    if setup is not None:
        if not (inspect.isgeneratorfunction(setup) or inspect.isasyncgenfunction(setup)):
            raise WorkloadError("user-without-yield", function=_name(setup))
        kinds.add(inspect.isasyncgenfunction(setup))
    if len(kinds) > 1:
        raise WorkloadError("some-coroutines")
    if pause is not None:
        pause = pause if isinstance(pause, str) else f"{pause}s"
        duration_ns(pause, "pause of @user", zero=True)
    return Users(tasks, setup, pause)


def _task(function: Any, mark: Mark) -> Task:
    name = _name(function)
    try:
        for what in ("weight", "queries"):
            whole(getattr(mark, what), what, 0)
    except PlanError as error:
        raise WorkloadError(error.name, **error.values).at(f"task {name}") from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise WorkloadError("task-yields", task=name)
    return Task(name, function, mark.weight, mark.queries, _source(function))


def _source(function: Any) -> str:
    """A function's text; empty if it is not available."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


class Call(Redacted, frozen=True):
    """A function, and the source of each argument: a name of PARAMETERS, a variable, "setup"."""

    REDACTED: ClassVar = ("function",)
    function: Callable[..., Any]
    sources: Mapping[str, str]
    fixed: Mapping[str, Any]

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Its arguments, with these values for the sources that are not fixed."""
        return {**self.fixed, **{name: values[source] for name, source in self.sources.items()}}


def call(function: Callable[..., Any], variables: Mapping[str, str], *, task: bool) -> Call:
    """The call of a function. Raises WorkloadError for a parameter without a source.

    variables: as texts; a parameter's annotation or default specifies the type.
    """
    name = _name(function)
    try:
        every = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        raise WorkloadError("no-signature", function=name) from None
    sources, fixed = dict[str, str](), dict[str, Any]()
    for parameter in every:
        own, needed = parameter.name, parameter.default is parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY and needed:
            raise WorkloadError("positional-parameter", function=name, parameter=own)
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        if own in variables:
            fixed[own] = _value(name, parameter, variables[own])
        elif own in PARAMETERS and (task or own != "loop"):
            sources[own] = own
        elif needed and task and "setup" not in sources.values():
            sources[own] = "setup"
        elif needed:
            known = [*PARAMETERS, *variables]
            raise WorkloadError("unknown-parameter", function=name, parameter=own, known=known)
    return Call(function, sources, fixed)


def _value(function: str, parameter: inspect.Parameter, text: str) -> Any:
    """A variable's text, converted by the parameter's annotation, else by its default's type."""
    kind: Any = parameter.annotation
    if kind is parameter.empty and parameter.default is not parameter.empty:
        kind = type(parameter.default)
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    kinds: Mapping[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": _switch}
    try:
        return kinds.get(name, str)(text)
    except ValueError:
        raise WorkloadError(
            "variable-type", function=function, variable=parameter.name, value=text, type=name
        ) from None


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false", "on", "off", "1", "0"):
        raise ValueError(text)
    return text.lower() in ("true", "on", "1")
