"""`pgpaces compare` and `check`: whether B is better than A, from stored trials or new pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import asdict, replace

from pgpaces.cli import experiment_options, gate, options
from pgpaces.cli.output import tell
from pgpaces.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pgpaces.answers.compare import ComparisonGoal
    from pgpaces.questions.compare.lookup import Compared
    from pgpaces.questions.sweep.page import Page
    from pgpaces.section import Section
    from pgpaces.store.store import Store

EXAMPLES = """\b
Examples:
  pgpaces sweep sensor --variant triggers,log --clients 4 -T 15s --trials 8
  pgpaces compare variant=triggers variant=log
  pgpaces compare variant=triggers,clients=4 variant=log,clients=4 --in sensors --metric p95
  pgpaces runs tag before RUN RUN RUN; pgpaces runs tag after RUN RUN RUN
  pgpaces compare before after --factor set.work_mem --also p95,p99
  pgpaces compare set.work_mem=4MB set.work_mem=64MB --run reporting --clients 4 --dry-run
  pgpaces compare server=15 server=18 --run tpcb-like --clients 4 -T 60s --metric p95
"""
_OF_STORED = frozenset(
    ("a", "b", "of", "metric", "also", "delta", "factors", "anyway", "as_json", "output")
) | {"store_path", "verbose", "gate", "junit", "summary"}


GOAL = options.of(
    "metric", "also", "delta", "factor", "anyway", "junit", "summary", *options.ANSWER
)


@options.command(epilog=EXAMPLES)
@options.argument("a")
@options.argument("b")
@options.options(GOAL)
@options.option(
    "--run",
    "what",
    group="Workload",
    metavar="WORKLOAD|FILE.toml",
    help="Run new pairs of A and B, which are levels then; options below are of their trials.",
)
@options.options(
    options.of("in", "pairs", "same", "gate", *options.RUNNING), experiment_options.OF_WHAT
)
def compare(a: str, b: str, **given: Any) -> int:
    """Say whether B is better than A, worse, equivalent, or what it would take to tell.

    A and B are levels of an experiment (FACTOR=LEVEL,...), tags, runs or experiments. Trials of the
    blocks of an experiment are pairs; of others the answer is weaker, and says so. What differs in
    more than what is compared is refused.

    With --run pairs of new trials are run, in random order and with the same arrivals within a
    pair, until they are decided. `pgpaces sweep --resume` goes on with one that was interrupted.
    """
    from pgpaces.questions.compare.lookup import compared

    if given["what"] is not None or given["files"]:
        return _new((a, b), given)
    own = {param.name for param in click.get_current_context().command.params}
    _check(
        own - _OF_STORED,
        "is for new pairs, and stored trials are compared",
        "add --run WORKLOAD, or ",
    )
    store = _open(given)
    found = compared(store, (a, b), _goal(given), given["factors"], given["of"])
    section = _tell(store, found, given)
    return gate.exit_code(section) if given["gate"] else 0


def _new(names: tuple[str, str], given: Mapping[str, Any]) -> int:
    """Runs pairs of A and B."""
    from pgpaces.cli import execute
    from pgpaces.experiment import pairs
    from pgpaces.experiment import sweep as pipeline

    execute.check_output(given)
    gate.check(given)
    _check(frozenset(("of", "factors", "anyway")), "is for stored trials, and new pairs are run")
    draft = experiment_options.draft(given)
    assert draft is not None, "a workload or a script is named"
    counts = {name: given[name] for name in ("pairs", "same", "seed") if given[name] is not None}
    experiment, pairing = pairs.ask(draft, names, replace(_goal(given), **counts))
    planned = pipeline.plan(execute.order(experiment, given, None, pairing))
    execute.preview(planned, given)
    if given["dry_run"]:
        return 0

    def judge(page: Page) -> int:
        section = replace(page.sections[0], sentences=page.answer)
        gate.tell(section, given)
        return gate.exit_code(section) if given["gate"] else 0

    return execute.carry_out(planned, given, judge)


def _check(refused: AbstractSet[str | None], why: str, way_out: str = "") -> None:
    """Raises PlanError for options that do nothing here."""
    context = click.get_current_context()
    for param in context.command.params:
        given = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if given and param.name in refused:
            raise PlanError(f"{param.opts[-1]} {why}", f"{way_out}leave it out")


@options.command(
    epilog="\b\nExample:\n  pgpaces runs tag good RUN RUN RUN RUN\n"
    "  pgpaces run reporting --rate 5 -L 200ms && pgpaces check last --baseline good --metric p95"
)
@options.argument("run", default="last")
@options.option(
    "--baseline",
    group="Goal",
    required=True,
    metavar="NAME",
    help="A baseline, a tag or a run.",
)
@options.options(GOAL)
def check(run: str, **given: Any) -> int:
    """Say whether RUN is worse than the runs of a baseline, with an exit code for CI.

    It is held against how far the runs of the baseline are from each other. There should be four of
    them at least, from different days: a tag has several.
    """
    from pgpaces.questions.compare.lookup import checked

    store, names = _open(given), (given["baseline"], run)
    try:
        store.find_any(names[0])
    except PlanError as error:
        raise PlanError(
            error.message.replace(
                "there is no run", "--baseline: there is no baseline, tag or run"
            ),
            f"{error.hint}; `pgpaces runs baseline NAME RUN` makes one",
        ) from None
    found = checked(store, names, _goal(given), given["factors"])
    return gate.exit_code(_tell(store, found, given))


def _open(given: Mapping[str, Any]) -> Store:
    from pgpaces.store.store import Store

    return Store.existing(given["store_path"])


def _goal(given: Mapping[str, Any]) -> ComparisonGoal:
    from pgpaces.answers.compare import ComparisonGoal
    from pgpaces.draft import share

    delta = None if given["delta"] is None else share(given["delta"], "--delta")
    return ComparisonGoal(
        given["metric"], tuple(filter(None, (given["also"] or "").split(","))), delta
    )


def _tell(store: Store, found: Compared, given: Mapping[str, Any]) -> Section:
    """Prints the comparison. Raises PlanError where more differs than what is compared."""
    from pgpaces.questions.compare.api import answer_of_comparison

    answer = answer_of_comparison(store, found, anyway=given["anyway"])
    tell(answer, given, _document(found))
    gate.tell(answer.section, given)
    return answer.section


def _document(found: Compared) -> dict[str, object]:
    from pgpaces.result import plain

    def group(name: str, ids: list[str]) -> dict[str, object]:
        return {"name": name, "runs": ids}

    return {
        "a": group(found.a.name, [digest.trial.id for digest in found.a.digests]),
        "b": group(found.b.name, [digest.trial.id for digest in found.b.digests]),
        "compared": list(found.factors),
        "differences": [asdict(each) for each in found.other_differences],
        "verdict": plain(found.verdict),
    }
