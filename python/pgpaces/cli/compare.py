"""`pgpaces compare`: whether B is better than A, from trials that are stored."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import options
from pgpaces.cli.main import put
from pgpaces.errors import PlanError
from pgpaces.report import escape

if TYPE_CHECKING:
    from pgpaces.experiment.comparing import Compared

EXAMPLES = """\b
Examples:
  pgpaces sweep sensor --variant triggers,log --clients 4 -T 15s --trials 8
  pgpaces compare variant=triggers variant=log
  pgpaces compare variant=triggers,clients=4 variant=log,clients=4 --in sensors --metric p95
  pgpaces runs tag before RUN RUN RUN; pgpaces runs tag after RUN RUN RUN
  pgpaces compare before after --factor set.work_mem --also p95,p99
"""


@click.command(epilog=EXAMPLES)
@click.argument("a")
@click.argument("b")
@click.option(
    "--in",
    "of",
    default="last",
    show_default=True,
    metavar="EXPERIMENT",
    help="Whose levels A and B are, where they are levels.",
)
@click.option(
    "--metric",
    default="rate",
    show_default=True,
    help="What decides: rate, mean, p50, p95, p99, p99.9 or missed.",
)
@click.option("--also", metavar="METRICS", help="Others beside it, separated by commas.")
@click.option(
    "--delta", metavar="SHARE", help="A difference that does not matter. [default: 2%; missed 0.5%]"
)
@click.option(
    "--factor",
    "factors",
    multiple=True,
    metavar="NAME",
    help="What is compared, where A and B are runs: variant, set.work_mem, server, ...",
)
@click.option("--anyway", is_flag=True, help="Also where A and B differ in more than that.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@options.options((options.STORE,))
def compare(a: str, b: str, **given: Any) -> None:
    """Say whether B is better than A, worse, equivalent, or what it would take to tell.

    A and B are levels of an experiment (FACTOR=LEVEL,...), tags, runs or experiments. Trials of the
    blocks of an experiment are pairs; of others the answer is weaker, and says so. What differs in
    more than what is compared is refused.
    """
    from pgpaces.answers.compare import Goal
    from pgpaces.cli.runs import _open
    from pgpaces.draft import share
    from pgpaces.experiment.comparing import compared

    goal = Goal(
        given["metric"],
        tuple(filter(None, (given["also"] or "").split(","))),
        None if given["delta"] is None else share(given["delta"], "--delta"),
    )
    found = compared(_open(given["store_path"]), (a, b), goal, given["factors"], given["of"])
    if found.beside and not given["anyway"]:
        raise _refusal(found)
    if given["as_json"]:
        put(escape.json_text(_document(found)))
    else:
        _print(found)


def _refusal(found: Compared) -> PlanError:
    from pgpaces.report import verdicts

    what = ", ".join(found.factors) or "nothing"
    main, *listed = verdicts.refused(found.beside, what)
    lines = "".join(f"\n  {escape.line(each.text)}" for each in listed)
    return PlanError(
        f"{main.text}{lines}",
        "name what is compared with --factor, or compare with --anyway",
    )


def _print(found: Compared) -> None:
    from rich.console import Console
    from rich.text import Text

    from pgpaces.report import verdicts

    console = Console(highlight=False, markup=False, emoji=False)
    said = list(verdicts.comparison(found.verdict, found.a.name, found.b.name))
    if found.beside:
        said += verdicts.refused(found.beside, ", ".join(found.factors) or "nothing")
    with console.capture() as shown:
        for each in said:
            console.print(Text(escape.line(each.text), "bold" if each.weight == "main" else ""))
    put(shown.get())


def _document(found: Compared) -> dict[str, object]:
    from pgpaces.answers.summary import plain

    def group(name: str, ids: list[str]) -> dict[str, object]:
        return {"name": name, "runs": ids}

    return {
        "a": group(found.a.name, [digest.trial.id for digest in found.a.digests]),
        "b": group(found.b.name, [digest.trial.id for digest in found.b.digests]),
        "compared": list(found.factors),
        "differences": [dataclasses.asdict(each) for each in found.beside],
        "verdict": plain(found.verdict),
    }
