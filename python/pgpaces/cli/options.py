"""Options and arguments of commands: their help in groups, values, completions, and errors.

Completion runs this at every key, so it imports nothing large.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pgpaces.cli.main import HELP, Suggesting, describe
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.units import COUNT_MAX, digits
from pgpaces.spec import options as table

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pgpaces.store.store import Store

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_WHOLE = f"{__name__}.help-all"
_UNITS = frozenset(("us", "ms", "s", "sec", "min", "h", "d", "%"))
# What pgbench, psql and other load generators call an option.
_ELSEWHERE = {
    "-R": "--rate", "-U": "--target", "-p": "--target", "--time": "--duration",
    "--jobs": "--threads", "--connections": "--clients", "--concurrency": "--clients",
    **dict.fromkeys(("--host", "--port", "--username", "--dbname", "--dsn", "--url"), "--target"),
}  # fmt: skip
# Workloads may be directories.
_FILES = {"FILE", "PATH", "DIR", "WORKLOAD"}


class Option(click.Option):
    """An option of a group. once: the reference does not call it repeatable."""

    def __init__(
        self, *args: Any, group: str, rare: bool = False, once: bool = False, **more: Any
    ) -> None:
        super().__init__(*args, shell_complete=_completions, **more)
        self.once = once
        self.place = table.GROUPS.index(group)
        self.usual = group in table.USUAL and not rare

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter:
            values = {"what": word(self), "value": value, "about": _about(self)}
            if not isinstance(self.type, click.Choice):
                raise PlanError("not-a-number", **values) from None
            values["choices"] = [*map(str, self.type.choices)]
            near = similar(value, values["choices"])
            raise PlanError("not-a-choice", near=near, **values) from None


def argument(name: str, **more: Any) -> Decorator:
    return click.argument(name, shell_complete=_completions, **more)


def option(*words: str, group: str, **more: Any) -> Decorator:
    """Declares an option that is not in the table; more: as for click.option, and `rare`."""
    return click.option(*words, **{"cls": Option, "group": group, **more})


def _show_all(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[_WHOLE] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all
)


class Command(click.Command):
    """A command whose options stand in the groups of the table; `--help-all` shows every one."""

    allow_extra_args = True  # lest click refuses them in its own words

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params.sort(key=lambda each: getattr(each, "place", -1))

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), _HELP_ALL]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        if not rest or isinstance(self, click.Group) or ctx.resilient_parsing:
            return rest
        if (first := rest[0]) not in _UNITS:
            raise PlanError("extra-argument", argument=first, usage=_usage(ctx))
        before = sys.argv[sys.argv.index(first) - 1] if first in sys.argv else ""
        number = before if before.isdecimal() else "500"
        raise PlanError("unit-apart", unit=first, number=number)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The groups: all options of a short command, else the usual ones and the number left."""
        every = [each for each in self.params if isinstance(each, Option)]
        whole = ctx.meta.get(_WHOLE, False) or len(every) <= table.SHORT
        shown = [each for each in every if whole or each.usual]
        rows = [(each.place, *(each.get_help_record(ctx) or ("", ""))) for each in shown]
        width = min(30, max((len(names) for _, names, _ in rows), default=0))
        for place, title in enumerate(table.GROUPS):
            if own := [(names.ljust(width), text) for at, names, text in rows if at == place]:
                with formatter.section(title):
                    formatter.write_dl(own)
        if more := len(every) - len(shown):
            formatter.write_paragraph()
            formatter.write_text(
                HELP["pgpaces"]["more"].format(command=ctx.command_path, count=more)
            )


class Group(Suggesting, Command):
    def subcommand(
        self, *options: Sequence[Decorator], name: str | None = None
    ) -> Callable[..., Command]:
        def declare(function: Callable[..., Any]) -> Command:
            made = command(*options, name=name)(function)
            self.add_command(made)
            describe(made, f"{self.name} {made.name}")
            return made

        return declare

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its first sentence, which click would cut off instead of wrapping it."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, self.commands[name].get_short_help_str(COUNT_MAX).rstrip("."))
                    for name in self.list_commands(ctx)
                ]
            )


def command(*options: Sequence[Decorator], name: str | None = None) -> Callable[..., Command]:
    return lambda function: click.command(name, cls=Command)(_with(options, function))


def group(*options: Sequence[Decorator], **more: Any) -> Callable[..., Group]:
    return lambda function: click.command(cls=Group, **more)(_with(options, function))


def _with(options: Sequence[Sequence[Decorator]], function: Callable[..., Any]) -> Any:
    for each in (each for part in reversed(options) for each in reversed(part)):
        function = each(function)
    return function


class Count(click.IntRange):
    """An integer from `least` to `most`, by default the largest that the store can hold."""

    def __init__(self, least: int, most: int = COUNT_MAX) -> None:
        super().__init__(least)
        self._most = most

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        number = digits(str(value).strip())
        if number is None or not (self.min or 0) <= number <= self._most:
            raise PlanError(
                "not-an-integer", what=word(param), value=value, low=self.min, high=self._most,
                several=value if "," in str(value) else None, example=self.min or 1,
            )  # fmt: skip
        return number


def _type(kind: table.Kind) -> Any:
    if kind.span is not None:
        return Count(*kind.span)
    if kind is table.SWITCH:
        return click.Choice(["on", "off"])
    if kind.choices:
        return click.Choice(kind.choices)
    return {"int": Count(0, 2**64 - 1), "float": float}.get(kind.python)


def _declared(each: table.Option, name: str) -> Decorator:
    more: dict[str, Any] = {"is_flag": True, "default": bool(each.default)}
    if each.several:
        more = {"multiple": True}
    elif not each.flag:
        more = {"type": _type(each.kind), "default": each.default}
        more["show_default"] = each.default is not None
    on = each.flag and each.default
    word = f"{each.word}/{each.word.replace('--', '--no-', 1)}" if on else each.word
    return option(
        *filter(None, (each.short, word)),
        name,
        group=each.group,
        rare=each.rare,
        metavar=each.metavar or None,
        help=f"{each.help} {table.texts()[each.name].get('run_help', '')}".strip(),
        **more,
    )


def of_trial(*names: str) -> tuple[Decorator, ...]:
    """Options of a trial, as in `pgpaces run`; by default all."""
    each = [table.BY_NAME[name] for name in names] or [o for o in table.OPTIONS if o.run]
    return tuple(_declared(o, o.name) for o in each)


def of(*names: str) -> tuple[Decorator, ...]:
    each = (table.OF_COMMANDS[name] for name in names)
    return tuple(_declared(o, o.keyword or o.name) for o in each)


# The options of every command that answers.
ANSWER = ("output", "json", "verbose", "store")
# The options of every command that runs trials.
RUNNING = ("dry_run", "progress", "live", "metrics", "on_store_error", "host_file", "trust")


def typed() -> dict[str, str]:
    """The parameters that the command line has, in the order of the command, as it names them."""
    context = click.get_current_context()
    return {
        param.name: param.opts[-1]
        for param in context.command.params
        if param.name and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }


def open_store(path: str | None) -> Store:
    """The store of a path or DSN, by default the user's. Raises StoreError if there is none."""
    from pgpaces.store.store import Store

    return Store.existing(path)


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


def word(param: click.Parameter) -> str:
    return max(param.opts, key=len)


def _about(param: click.Parameter) -> str | None:
    if not isinstance(param, click.Option):
        return None
    return f"{' '.join(filter(None, (word(param), param.metavar)))}: {param.help}"


def _completions(
    context: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The values for a parameter that begin with `incomplete`; its metavar says what they are."""
    from click.shell_completion import CompletionItem

    kinds = set(re.findall(r"[A-Z]+", param.make_metavar(context)))
    names: Iterable[str] = ()
    if "WORKLOAD" in kinds:
        from pgpaces.spec import workload

        names = workload.shipped()
    # Files first, because bash offers only the items after them as well.
    files = [CompletionItem(incomplete, type="file")] if _FILES & kinds else []
    items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*files, *items] or param.type.shell_complete(context, param, incomplete)
