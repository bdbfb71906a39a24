"""Option values as people write them, turned into the values of plan.py. Prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pgpaces import options as table
from pgpaces.errors import PlanError
from pgpaces.units import COUNT_MAX, digits

if TYPE_CHECKING:
    from pgpaces.workload import WorkloadScript

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Count(click.IntRange):
    """An integer from `least` on, as far as it fits where it is kept."""

    def __init__(self, least: int, most: int = COUNT_MAX) -> None:
        super().__init__(least)
        self._most = most

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The number. Fails for others."""
        number = super().convert(value, param, ctx)
        if number > self._most:
            self.fail(f"{number} is more than {self._most}.", param, ctx)
        return number


STORE = click.option(
    "--store",
    "store_path",
    metavar="FILE|DSN",
    help="The file of results, or a PostgreSQL server: anything libpq reads. [default:"
    " $PGPACES_STORE, else results.db in the data folder]",
)

VERBOSE = click.option(
    "--verbose", "-v", is_flag=True, help="Every sentence and table, not one screen."
)

MACHINE = (
    click.option(
        "--host-file",
        metavar="FILE",
        help="What the server's machine costs: price, watts, a card's endurance. [default, on this"
        " machine: $PGPACES_HOST_FILE, else host.toml in the data folder]",
    ),
)


def _type(kind: table.Kind) -> Any:
    """What click checks of the values of an option."""
    if kind.span is not None:
        return Count(*kind.span)
    if kind is table.SWITCH:
        return click.Choice(["on", "off"])
    if kind.choices:
        return click.Choice(kind.choices)
    return {"int": int, "float": float}.get(kind.python)


def of_run(option: table.Option) -> Decorator:
    """An option of `pgpaces run`."""
    words = [*filter(None, (option.short, option.word)), option.name]
    if option.flag:
        return click.option(*words, is_flag=True, help=option.help)
    text = f"{option.help} {option.run_help}".strip()
    if option.several:
        return click.option(*words, multiple=True, metavar=option.metavar, help=text)
    return click.option(
        *words,
        type=_type(option.kind),
        metavar=option.metavar or None,
        default=option.default,
        show_default=option.default is not None,
        help=text,
    )


def group(*names: str) -> tuple[Decorator, ...]:
    """The options of a run in these groups."""
    return tuple(of_run(option) for name in names for option in table.in_run(name))


def options(*groups: Sequence[Decorator]) -> Decorator:
    """Adds groups of options to a command, in order."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for group in reversed(groups):
            for option in reversed(group):
                function = option(function)
        return function

    return add


def _weighted(value: str, option: str) -> tuple[str, int | None]:
    """NAME or NAME@WEIGHT. Raises PlanError."""
    name, at, weight = value.rpartition("@")
    if not at:
        return value, None
    if (number := digits(weight)) is not None:
        return name, number
    raise PlanError(f"{option} '{value}': the weight '{weight}' is not a number")


def values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run's options by name. Raises PlanError."""
    found = table.defaults() | {name: given[name] for name in table.BY_NAME if name in given}
    found["tls"] = None if given["tls"] is None else given["tls"] == "on"
    return found | {"scripts": scripts(given["scripts"])}


def scripts(values: Sequence[str]) -> tuple[tuple[str, int | None], ...]:
    """NAME or NAME@WEIGHT texts as names and weights. Raises PlanError."""
    return tuple(_weighted(value, "--script") for value in values)


def files(values: Sequence[str]) -> tuple[WorkloadScript, ...]:
    """FILE or FILE@WEIGHT texts as scripts. Raises PlanError, WorkloadError."""
    from pgpaces.workload import read_script

    named = (_weighted(value, "--file") for value in values)
    return tuple(read_script(path, 1 if weight is None else weight) for path, weight in named)
