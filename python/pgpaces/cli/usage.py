"""Errors of a command line in the form of all errors: a message and a hint."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

import click

from pgpaces.core.errors import PlanError, nearest
from pgpaces.core.units import SEVERAL

_UNITS = frozenset(("us", "ms", "s", "sec", "min", "h", "d", "%"))
# What pgbench, psql and other load generators call an option.
_ELSEWHERE = {
    "-R": "--rate", "-U": "--target", "-p": "--target", "--time": "--duration",
    "--jobs": "--threads", "--connections": "--clients", "--concurrency": "--clients",
    **dict.fromkeys(("--host", "--port", "--username", "--dbname", "--dsn", "--url"), "--target"),
}  # fmt: skip
_CHOICE = re.compile(r"'(.*)' is not one of .*", re.DOTALL)


def no_command(name: str, commands: Iterable[str], path: str) -> PlanError:
    """The error for a command that does not exist; path: of the command before it."""
    from pgpaces.spec.workload import shipped

    if path == "pgpaces" and name in shipped():
        return PlanError(f"no such command '{name}'", f"write: pgpaces run {name}")
    return PlanError(f"no such command '{name}'", nearest(name, commands, most=2) or _help(path))


def explained(error: click.UsageError) -> PlanError:
    message = error.format_message().rstrip(".")
    hint: str | None = None
    if isinstance(error, click.NoSuchOption):
        return _no_option(error)
    if isinstance(error, click.MissingParameter):
        if isinstance(error.param, click.Option):
            return PlanError(f"missing option {_name(error.param)}", _about(error.param))
        name = error.param.make_metavar(error.ctx) if error.param and error.ctx else "an argument"
        return PlanError(f"missing {name.strip('[]')}", _usage(error))
    if isinstance(error, click.BadParameter):
        return _bad_value(error)
    if (extra := re.search(r"extra arguments? \((.*)\)", message)) is not None:
        return _extra(error, extra[1].split())
    if isinstance(error, click.BadOptionUsage):
        params = error.ctx.command.params if error.ctx else ()
        hint = next((_about(each) for each in params if error.option_name in each.opts), None)
    return PlanError(f"{message[:1].lower()}{message[1:]}", hint or _help(_path(error)))


def _path(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx else "pgpaces"


def _help(path: str) -> str:
    return f"`{path} --help` says what there is"


def _usage(error: click.UsageError) -> str:
    if error.ctx is None:
        return _help("pgpaces")
    words = error.ctx.command.collect_usage_pieces(error.ctx)
    return f"write: {' '.join((_path(error), *words))}"


def _no_option(error: click.NoSuchOption) -> PlanError:
    name, params = error.option_name, error.ctx.command.get_params(error.ctx) if error.ctx else []
    message, own = f"no such option '{name}'", name.removeprefix("--")
    if own in (each.name for each in params if isinstance(each, click.Argument)):
        return PlanError(message, _usage(error))
    options = (each for each in params if isinstance(each, click.Option))
    words = [word for each in options for word in each.opts]
    long = [word.removeprefix("--") for word in words if word.startswith("--")]
    begun = [each for each in long if each.startswith(own) and name.startswith("--")]
    near = begun or [each for each in long if own in each.split("-")]
    if (elsewhere := _ELSEWHERE.get(name)) in words:
        guess = f"did you mean {elsewhere}?"
    elif near:
        guess = f"did you mean {' or '.join(f'--{each}' for each in near[:2])}?"
    else:
        guess = nearest(own, long).replace("mean ", "mean --")
    whole = "--help-all" if "--help-all" in words else "--help"
    return PlanError(message, guess or f"`{_path(error)} {whole}` says what there is")


def _bad_value(error: click.BadParameter) -> PlanError:
    name = "a value" if error.param is None else _name(error.param)
    kind = getattr(error.param, "type", None)
    wrong = _CHOICE.fullmatch(error.message.rstrip("."))
    if wrong is not None and isinstance(kind, click.Choice):
        choices = ", ".join(map(str, kind.choices))
        guess = nearest(wrong[1], map(str, kind.choices))
        return PlanError(f"{name} '{wrong[1]}' is none of {choices}", guess or _about(error.param))
    message = error.message.rstrip(".").replace("is not a valid float", "is not a number")
    if isinstance(kind, click.IntRange) and isinstance(error.param, click.Option):
        several = SEVERAL if re.match(r"'\d+,", message) else ""
        return PlanError(f"{name} {message}", f"such as {name} {kind.min or 1}{several}")
    return PlanError(f"{name} {message}", _about(error.param))


def _name(param: click.Parameter) -> str:
    return max(param.opts, key=len)


def _about(param: click.Parameter | None) -> str | None:
    if not isinstance(param, click.Option):
        return None
    return f"{' '.join(filter(None, (_name(param), param.metavar)))}: {param.help}"


def _extra(error: click.UsageError, words: Sequence[str]) -> PlanError:
    message = f"'{words[0] if words else ''}' is one word too many"
    if words and words[0] in _UNITS:
        before = sys.argv[sys.argv.index(words[0]) - 1] if words[0] in sys.argv else ""
        number = before if before.isdecimal() else "500"
        return PlanError(message, f"a number and its unit are one word: {number}{words[0]}")
    return PlanError(message, _usage(error))
