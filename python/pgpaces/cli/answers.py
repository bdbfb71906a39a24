"""Commands that answer from the store: show, report, why, trend, diff, explain, and serve."""

from __future__ import annotations

import shlex
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import options, output
from pgpaces.cli.output import announce, put
from pgpaces.core.errors import PlanError, extra, similar

if TYPE_CHECKING:
    from pgpaces.show.render import Form
    from pgpaces.show.section import Report
    from pgpaces.store.store import Store

_FORMS = ("html", "md", "text", "csv", "json", "parquet", "svg", "png")


def report_of(store: Store, *names: str) -> Report:
    from pgpaces.answers.sweep.lookup import page_of
    from pgpaces.answers.sweep.report import report

    return report(page_of(store, names))


@options.command(options.of("output", "json", "store"))
@options.argument("name", metavar="[RUN|EXPERIMENT]", default="last")
def show(name: str, **params: Any) -> None:
    """Show the full result of a run or an experiment.

    The default is the newest run or experiment (`last`). RUN or EXPERIMENT is a tag, the name of an
    experiment, an id, or the end of an id.
    """
    store = options.open_store(params["store_path"])
    id_ = store.find_newest(name)
    of_experiment = store.is_experiment(id_)
    report = report_of(store, id_) if of_experiment or params["output"] else None
    if params["output"] and report is not None:
        output.write_report(report, params["output"])
    if of_experiment and report is not None:
        output.put_report(report, "json" if params["as_json"] else "text")
        return
    from pgpaces.answers.run import section

    trial, [digest] = store.load(id_), store.digests([id_])
    answer = section(trial, digest.summary, digest.series, whole=True)
    output.show(answer, as_json=params["as_json"], verbose=True)


@options.command(
    (
        options.option("-o", "--output", group="Output", metavar="FILE|DIR"),
        options.option("--format", "form", group="Output", type=click.Choice(_FORMS)),
    ),
    options.of("store"),
)
@options.argument("names", nargs=-1, metavar="[EXPERIMENT|RUN]...")
def report(names: tuple[str, ...], form: Form | None, **params: Any) -> None:
    """Write a report on an experiment or on runs.

    The default is the newest run or experiment (`last`). If the runs belong to no experiment, the
    settings in which they differ become the factors.
    """
    from pgpaces.show import render

    path = None if params["output"] == "-" else params["output"]
    chosen = form or (render.form_of(path) if path else "text")
    if path is None and chosen in (*render.FOLDERS, "parquet"):
        raise PlanError("binary-form" if chosen == "parquet" else "form-of-folder", form=chosen)
    document = report_of(options.open_store(params["store_path"]), *(names or ("last",)))
    if path is None:
        output.put_report(document, chosen)
    else:
        output.write_report(document, path, chosen)


@options.command(options.of(*options.ANSWER))
@options.argument("name", default="last", metavar="[RUN|EXPERIMENT]")
def why(name: str, **params: Any) -> None:
    """Show which cause coincides with late transactions, and how to confirm it.

    For an experiment, the command analyzes the cell with the largest share of missed transactions.
    For a capacity search, it analyzes the lowest load that failed. The command may also report that
    no cause dominates.
    """
    from pgpaces.answers import why as question

    # An unknown form is an error before anything is read.
    output.check(params)
    name = options.open_store(params["store_path"]).find_newest(name)
    answer = question.why(name, store=params["store_path"])
    output.show((answer.section,), as_json=params["as_json"], verbose=params["verbose"])
    if params["output"]:
        output.write_report(answer.document(), params["output"])


@options.command(options.of("metric", "factor", "anyway", *options.ANSWER))
@options.argument("names", nargs=-1, metavar="[TAG|WORKLOAD|EXPERIMENT|RUN]...")
def trend(names: tuple[str, ...], **params: Any) -> None:
    """Report whether, when, and by how much the results of similar runs changed.

    The command needs at least 8 runs. One RUN (by default the newest) selects all runs that differ
    from it only in time. pgpaces refuses runs that differ in anything else.
    """
    from pgpaces.answers import trend as question

    answer = question.trend(
        *names,
        metric=params["metric"] or "",
        factors=params["factors"],
        anyway=params["anyway"],
        store=params["store_path"],
    )
    output.tell(answer, params)


@options.command(options.of("json", "store"))
@options.argument("a", metavar="RUN")
@options.argument("b", metavar="RUN")
def diff(a: str, b: str, *, as_json: bool, store_path: str | None) -> None:
    """Show the differences between two runs: options, server, data, machine, and version."""
    from pgpaces.analysis import differences
    from pgpaces.core.messages import message
    from pgpaces.show.screen import table_of
    from pgpaces.show.section import Headline, Next, Section

    with closing(options.open_store(store_path)) as store:
        one, other = store.digests([store.find(a), store.find(b)])
    # Nobody asked for the options of an imported trial.
    specs = [{} if each.trial.setup.imported else each.trial.spec for each in (one, other)]
    names = [name for name in {**specs[0], **specs[1]} if specs[0].get(name) != specs[1].get(name)]
    asked = {name: tuple(spec.get(name) for spec in specs) for name in names}
    setup = differences.differ([[one], [other]], of=differences.of_setup)
    found = {each.name: each.values for each in setup}
    rows = [*asked.items(), *((name, [", ".join(x) for x in both]) for name, both in found.items())]

    def shown(value: Any) -> str:
        return "–" if value in (None, "") else str(value)

    columns = ("", *(each.trial.id[-8:] for each in (one, other)))
    cells = (zip(columns, (name, *map(shown, both)), strict=True) for name, both in rows)
    section = Section(
        "diff",
        "",
        headline=Headline("DIFF", "", message("diff-counts", options=len(asked), setup=len(found))),
        tables=(table_of("title-diff", cells, brief=True),) if rows else (),
        next=(Next(f"pgpaces compare {shlex.join((a, b))} --anyway", "next-compare"),),
        trials=(one.trial.id, other.trial.id),
        value={"options": asked, "setup": found},
    )
    output.show(section, as_json=as_json)


def _explanations() -> dict[str, dict[str, str]]:
    from pgpaces.core import causes, findings

    every = {name: findings.explanation(name) for name in findings.explained_names()}
    entries = map(causes.explanation, causes.catalog().causes)
    return every | {entry["name"]: entry for entry in entries}


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _explanations() if name.startswith(incomplete)]


@options.command(options.of("json"))
@click.argument("name", required=False, shell_complete=_names)
def explain(name: str | None, as_json: bool) -> None:
    """Explain a finding, an error, a metric, or a cause. Without a name, list all names.

    pgpaces prints findings as `NAME: SENTENCE`. The explanation says what a finding means, how it
    affects the verdict, and what to do. Metrics are the numbers that pgpaces shows.
    """
    from pgpaces.core.findings import explained
    from pgpaces.show import escape

    every = _explanations()
    if name is not None and name not in every:
        raise PlanError("unknown-name", name=name, near=similar(name, every))
    if as_json:
        put(escape.json_text(every[name] if name else [*every.values()]))
    elif name is None:
        width = max(map(len, every))
        put("".join(f"{each:{width}}  {every[each]['severity']}\n" for each in every))
    else:
        put(f"{explained(every[name])}\n")


@options.command(
    (
        options.option(
            "--listen",
            group="Output",
            metavar="[ADDRESS:]PORT",
            default="127.0.0.1:8432",
            show_default=True,
        ),
    ),
    options.of("store"),
)
def serve(listen: str, store_path: str | None) -> None:
    """Serve stored runs, stored experiments, and current runs as web pages.

    The server only reads the store. By default, it listens on this machine only. With another
    address, the printed link contains a token, which every request needs. The connection is not
    encrypted.
    """
    with extra("web", "pages"):
        from pgpaces.cli.progress import address
        from pgpaces.core.locality import is_loopback
        from pgpaces.web import app
        from pgpaces.web import listening as ports

    host, port = address(listen, "--listen")
    site = app.Site(store_path)
    site.store()
    token = None if is_loopback(host) else ports.new_token()
    listening = ports.listen(host, port, token)
    query = f"?token={token}" if token else ""
    click.echo(f"{listening.url}{query}", err=True)
    if token:
        announce("token-readable", url=listening.url)
    announce("stop-with-ctrl-c")
    app.serve(site, listening)
