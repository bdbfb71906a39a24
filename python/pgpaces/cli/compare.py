"""`pgpaces compare` and `check`: whether B is better than A, from stored trials or new pairs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from pgpaces.cli import options, output, specs
from pgpaces.core.errors import PlanError
from pgpaces.spec import options as table

if TYPE_CHECKING:
    from pgpaces.analysis.compare import ComparisonGoal
    from pgpaces.answers.compare import Compared, Group
    from pgpaces.answers.sweep.page import Page
    from pgpaces.show.section import Section
    from pgpaces.store.store import Store

_OF_STORED = frozenset(
    ("a", "b", "of", "metric", "also", "delta", "factors", "anyway", "as_json", "output")
) | {"store_path", "verbose", "gate", "junit", "summary"}
# Exit codes of a verdict.
EXITS = {"better": 0, "same": 0, "worse": output.FAIL_EXIT, "unknown": output.UNKNOWN_EXIT}
_GOAL = options.of(
    "metric", "also", "delta", "factor", "anyway", "junit", "summary", *options.ANSWER
)


@options.command(
    _GOAL,
    (options.option("--run", "what", group="Workload", metavar="WORKLOAD|FILE.toml"),),
    options.of("in", "pairs", "same", "gate", *options.RUNNING),
    specs.EXPERIMENT,
)
@options.argument("a")
@options.argument("b")
def compare(a: str, b: str, **params: Any) -> int:
    """Report whether B is better than A, worse, or the same.

    If the verdict is unknown, the report says how many pairs would decide it.

    A and B are levels of an experiment (FACTOR=LEVEL,...), tags, runs, or experiments. Trials in
    the same block of an experiment form pairs. Without pairs, the result is less certain, and the
    report says so. pgpaces refuses to compare trials that also differ in other factors.

    With --run, pgpaces runs pairs of new trials until the verdict is certain, or until --pairs is
    reached. Both trials of a pair have the same arrivals and run in random order. To resume an
    interrupted comparison, run `pgpaces sweep --resume`.
    """
    from pgpaces.answers.compare import compared

    if params["what"] is not None or params["files"] or params["like"] is not None:
        return _new((a, b), params)
    for name, option in options.typed().items():
        if name not in _OF_STORED:
            raise PlanError("only-of-new-pairs", option=option)
    store, factors, of = options.open_store(params["store_path"]), params["factors"], params["of"]
    comparison = compared(store, (a, b), _goal(params), factors=factors, of=of)
    section = _tell(store, comparison, params)
    return _exit_code(comparison, section) if params["gate"] else 0


def _new(names: tuple[str, str], params: Mapping[str, Any]) -> int:
    from pgpaces.cli.sweep import carry_out
    from pgpaces.trial.pairs import experiment_of_pairs

    output.check(params)
    for name, option in options.typed().items():
        if name in ("of", "factors"):
            raise PlanError("only-of-stored-trials", option=option)
    base = specs.experiment(params)
    assert base is not None, "a workload or a script is named"
    counts = {name: params[name] for name in ("pairs", "same") if params[name] is not None}
    goal = replace(_goal(params), seed=base.design.seed, **counts)
    experiment, pairing = experiment_of_pairs(base, names, goal)

    def judge(page: Page) -> int:
        section = page.first
        assert section is not None, "a comparison answers it"
        write_ci_files(section, params)
        return EXITS[section.value.outcome] if params["gate"] else 0

    return carry_out(experiment, params, goal=pairing, judge=judge)


@options.command(
    (options.option("--baseline", group="Goal", required=True, metavar="NAME"),), _GOAL
)
@options.argument("run", default="last")
def check(run: str, **params: Any) -> int:
    """Check whether RUN is worse than a baseline, and set the exit code for CI.

    The variation among the baseline runs determines how large a difference must be to count. Use at
    least four runs from different days, and give them all the same tag.
    """
    from pgpaces.answers.compare import compared

    store, names = options.open_store(params["store_path"]), (params["baseline"], run)
    try:
        store.find_any(names[0])
    except PlanError as error:
        raise PlanError("unusable-baseline", why=error.message, hint=error.hint) from None
    goal, factors = _goal(params), params["factors"]
    comparison = compared(store, names, goal, factors=factors, of_baseline=True)
    return _exit_code(comparison, _tell(store, comparison, params))


def _exit_code(comparison: Compared, section: Section) -> int:
    from pgpaces.answers.compare import unmeasured

    if (error := unmeasured(comparison)) is not None:
        output.fail(error)
        return error.exit_code
    return EXITS[section.value.outcome]


def _goal(params: Mapping[str, Any]) -> ComparisonGoal:
    from pgpaces.analysis.compare import ComparisonGoal

    delta = params["delta"]
    delta = None if delta is None else table.SHARE.read(delta, "--delta")
    return ComparisonGoal(
        params["metric"] or "", tuple(filter(None, (params["also"] or "").split(","))), delta
    )


def _tell(store: Store, comparison: Compared, params: Mapping[str, Any]) -> Section:
    """Prints the comparison. Raises PlanError where more differs than the compared factors."""
    from pgpaces.answers.calls import answer_of_comparison
    from pgpaces.spec.result import plain

    def group(side: Group) -> dict[str, object]:
        return {"name": side.name, "runs": [digest.trial.id for digest in side.digests]}

    answer = answer_of_comparison(store, comparison, anyway=params["anyway"])
    document = {
        "a": group(comparison.a),
        "b": group(comparison.b),
        "compared": list(comparison.factors),
        "differences": [
            {"name": each.name, "a": each.values[0], "b": each.values[1]}
            for each in comparison.other_differences
        ],
        "verdict": plain(comparison.verdict),
    }
    section = replace(answer.section, document=lambda: document)
    output.tell(replace(answer, section=section), params)
    write_ci_files(section, params)
    return section


def write_ci_files(section: Section, params: Mapping[str, Any]) -> None:
    """Writes the requested files. Raises RunError where a file cannot be written.

    The annotation goes to stderr, which GitHub reads too, so that stdout stays the answer.
    """
    from pgpaces.show import ci, markdown

    if params["junit"]:
        text = output.text([section], verbose=False, plain=True)
        output.save(ci.junit(section, text), Path(params["junit"]))
    if params["summary"]:
        path = Path(params["summary"])
        with output.writing(path), path.open("ab") as file:
            file.write(markdown.summary(section).encode("utf-8", "replace"))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        click.echo(ci.annotation(section), err=True)
