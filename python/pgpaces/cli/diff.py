"""`pgpaces diff`: in which options, and in what else, two stored runs differ."""

from __future__ import annotations

import shlex
from contextlib import closing
from typing import Any

from pgpaces.cli import options
from pgpaces.cli.output import show
from pgpaces.core.messages import message
from pgpaces.show.section import Column, Headline, Next, Section, table


@options.command()
@options.argument("a", metavar="RUN")
@options.argument("b", metavar="RUN")
@options.options(options.of("json", "store"))
def diff(a: str, b: str, *, as_json: bool, store_path: str | None) -> None:
    """Show the differences between two runs: options, server, data, machine, and version."""
    from pgpaces.analysis import differences
    from pgpaces.store.store import Store

    with closing(Store.existing(store_path)) as store:
        one, other = store.digests([store.find(a), store.find(b)])
    specs = one.trial.spec, other.trial.spec
    names = [name for name in {**specs[0], **specs[1]} if specs[0].get(name) != specs[1].get(name)]
    asked = {name: tuple(spec.get(name) for spec in specs) for name in names}
    found = {each.name: (each.a, each.b) for each in differences.of_setup(one, other)}
    rows = [*asked.items(), *((name, [", ".join(x) for x in both]) for name, both in found.items())]
    columns: list[Column[Any]] = [
        ("", lambda row: row[0]),
        *((trial.id[-8:], lambda row, at=at: _shown(row[1][at]))
          for at, trial in enumerate((one.trial, other.trial))),
    ]  # fmt: skip
    section = Section(
        "diff",
        "",
        headline=Headline("DIFF", "", message("diff-counts", options=len(asked), setup=len(found))),
        tables=(table("diff", "", columns, items=rows, brief=True),),
        next=(Next(f"pgpaces compare {shlex.join((a, b))} --anyway", "next-compare"),),
        trials=(one.trial.id, other.trial.id),
        value={"options": asked, "setup": found},
    )
    show(section, as_json=as_json)


def _shown(value: Any) -> str:
    return "–" if value in (None, "") else str(value)
