"""Options and arguments of commands, their groups in the help, and the parsing of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli.main import HELP, Suggesting, describe
from pgpaces.core.errors import PlanError
from pgpaces.core.units import COUNT_MAX, digits
from pgpaces.spec import options as table

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


_WHOLE = f"{__name__}.help-all"


class _Completed(click.Parameter):
    """A parameter whose completions follow from its metavar."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from pgpaces.cli import completion

        return completion.items(self, ctx, incomplete) or super().shell_complete(ctx, incomplete)


class Option(_Completed, click.Option):
    def __init__(self, *args: Any, group: str, rare: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self.place = table.GROUPS.index(group)
        self.usual = group in table.USUAL and not rare

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter:
            from pgpaces.cli import usage

            raise usage.bad_value(self, value) from None


class Argument(_Completed, click.Argument):
    """An argument with completions."""


def argument(name: str, **more: Any) -> Decorator:
    return click.argument(name, cls=Argument, **more)


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
        """As click does it; each error has the context of its command."""
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        if rest and not isinstance(self, click.Group) and not ctx.resilient_parsing:
            from pgpaces.cli import usage

            raise usage.extra(ctx, rest)
        return rest

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


def command(name: str | None = None, **more: Any) -> Callable[..., Command]:
    """Declares a command; more: as for click.command."""
    return click.command(name, cls=Command, **more)


class Group(Suggesting, Command):
    """A command of commands: its own options and theirs in groups."""

    command_class = Command

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        super().add_command(cmd, name)
        describe(cmd, f"{self.name} {name or cmd.name}")


class Count(click.IntRange):
    """An integer from `least` to `most`, by default the largest that the store can hold."""

    def __init__(self, least: int, most: int = COUNT_MAX) -> None:
        super().__init__(least)
        self._most = most

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        number = digits(str(value).strip())
        if number is None or not (self.min or 0) <= number <= self._most:
            from pgpaces.cli.usage import word

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
    """Options of commands."""
    each = (table.OF_COMMANDS[name] for name in names)
    return tuple(_declared(o, o.keyword or o.name) for o in each)


# The options of every command that answers.
ANSWER = ("output", "json", "verbose", "store")
# The options of every command that runs trials.
RUNNING = ("dry_run", "progress", "live", "metrics", "on_store_error", "host_file", "trust")


def options(*groups: Sequence[Decorator]) -> Decorator:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for group in reversed(groups):
            for each in reversed(group):
                function = each(function)
        return function

    return add


def spec(params: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a run that a command line asks for: what was typed. Raises PlanError."""
    from pgpaces.spec import spec as specs

    context = click.get_current_context(silent=True)
    usual = click.core.ParameterSource.DEFAULT
    names = (name for name in (*table.BY_NAME, *specs.WHAT) if name in params)
    typed = (n for n in names if not context or context.get_parameter_source(n) is not usual)
    return specs.named({name: params[name] for name in typed})
