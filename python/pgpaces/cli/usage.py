"""Errors of a command line in the form of all errors: a name and values."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from pgpaces.core.errors import PlanError, similar

_UNITS = frozenset(("us", "ms", "s", "sec", "min", "h", "d", "%"))
# What pgbench, psql and other load generators call an option.
_ELSEWHERE = {
    "-R": "--rate", "-U": "--target", "-p": "--target", "--time": "--duration",
    "--jobs": "--threads", "--connections": "--clients", "--concurrency": "--clients",
    **dict.fromkeys(("--host", "--port", "--username", "--dbname", "--dsn", "--url"), "--target"),
}  # fmt: skip


def no_command(name: str, commands: Iterable[str], path: str) -> PlanError:
    """The error for a command that does not exist; path: of the command before it."""
    from pgpaces.spec.workload import shipped

    workload = name if path == "pgpaces" and name in shipped() else None
    near = similar(name, commands, most=2)
    return PlanError("unknown-command", command=name, workload=workload, near=near, path=path)


def explained(error: click.UsageError) -> PlanError:
    context = error.ctx or click.Context(click.Command("pgpaces"), info_name="pgpaces")
    message, about = error.format_message().rstrip("."), None
    if isinstance(error, click.NoSuchOption):
        return _no_option(error.option_name, context)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        if isinstance(error.param, click.Option):
            return PlanError("missing-option", option=word(error.param), about=_about(error.param))
        name = error.param.make_metavar(context).strip("[]")
        return PlanError("missing-argument", argument=name, usage=_usage(context))
    if isinstance(error, click.BadOptionUsage):
        params = context.command.params
        about = next((_about(each) for each in params if error.option_name in each.opts), None)
    text = f"{message[:1].lower()}{message[1:]}"
    return PlanError("usage", text=text, about=about, path=context.command_path)


def _usage(context: click.Context) -> str:
    return " ".join((context.command_path, *context.command.collect_usage_pieces(context)))


def _no_option(name: str, context: click.Context) -> PlanError:
    params, own = context.command.get_params(context), name.removeprefix("--")
    arguments = [each.name for each in params if isinstance(each, click.Argument)]
    words = [text for each in params if isinstance(each, click.Option) for text in each.opts]
    long = [text.removeprefix("--") for text in words if text.startswith("--")]
    near = [each for each in long if each.startswith(own) and name.startswith("--")]
    near = near or [each for each in long if own in each.split("-")] or [similar(own, long)]
    guess = " or ".join(f"--{each}" for each in near[:2] if each)
    return PlanError(
        "unknown-option",
        option=name,
        usage=_usage(context) if own in arguments else None,
        near=_ELSEWHERE[name] if _ELSEWHERE.get(name) in words else guess,
        help=f"{context.command_path} {'--help-all' if '--help-all' in words else '--help'}",
    )


def bad_value(param: click.Parameter, value: Any) -> PlanError:
    """The error for a value that is not of the type of its parameter."""
    values = {"what": word(param), "value": value, "about": _about(param)}
    if isinstance(param.type, click.Choice):
        choices = [*map(str, param.type.choices)]
        near = similar(value, choices)
        return PlanError("not-a-choice", choices=choices, near=near, **values)
    return PlanError("not-a-number", **values)


def word(param: click.Parameter) -> str:
    return max(param.opts, key=len)


def _about(param: click.Parameter) -> str | None:
    if not isinstance(param, click.Option):
        return None
    return f"{' '.join(filter(None, (word(param), param.metavar)))}: {param.help}"


def extra(context: click.Context, words: Sequence[str]) -> PlanError:
    """The error for arguments that a command does not have."""
    [first, *_] = words
    if first not in _UNITS:
        return PlanError("extra-argument", argument=first, usage=_usage(context))
    before = sys.argv[sys.argv.index(first) - 1] if first in sys.argv else ""
    return PlanError("unit-apart", unit=first, number=before if before.isdecimal() else "500")
