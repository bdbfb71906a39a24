"""Experiments in Python: one call, the same values, tables and charts in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pgpaces.answers.answer import Answer
from pgpaces.answers.sweep.lookup import page_of
from pgpaces.answers.sweep.report import top
from pgpaces.server import profiles
from pgpaces.spec import costs, experiment_file
from pgpaces.spec import spec as kinds
from pgpaces.spec.design import Levels
from pgpaces.spec.target import Target
from pgpaces.spec.trust import answer
from pgpaces.store.store import Store
from pgpaces.trial import sweep as pipeline
from pgpaces.trial.listener import SweepListener

if TYPE_CHECKING:
    from pgpaces.analysis.cells import Row
    from pgpaces.analysis.digest import Digest


class Sweep(Answer, frozen=True):
    """An experiment that was run, even in part: its cells, trials, words, tables and charts."""

    @property
    def id(self) -> str:
        """The experiment's id in the store."""
        return self.page.about.id

    @property
    def answer(self) -> str:
        """The answer in words."""
        return "\n".join(sentence.text for sentence in self.page.answer)

    @property
    def cells(self) -> tuple[Row, ...]:
        """The numbers of each cell over its trials, each with its interval."""
        return self.page.rows

    @property
    def digests(self) -> tuple[Digest, ...]:
        """Every trial: its answer, its series and its place."""
        return self.page.digests

    @property
    def missing(self) -> int:
        """The number of planned trials that did not run."""
        return self.page.missing


def sweep(  # noqa: PLR0913 - the options of a command, all by keyword
    what: str | Path,
    *,
    trials: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    exclude: Sequence[Mapping[str, Any]] = (),
    targets: Mapping[str, str | Target] | None = None,
    quick: bool = False,
    resume: str | None = None,
    store: str | Path | None = None,
    host_file: str | Path | None = None,
    trust: bool = False,
    listener: SweepListener | None = None,
    **levels: Any,
) -> Sweep:
    """Runs every combination of levels and returns the results; the same as `pgpaces sweep`.

    what: an experiment file (.toml), a shipped workload or a folder. levels: by the name of an
    option, one or a list of them; settings as `set={"work_mem": ["4MB", "64MB"]}`, script variables
    as `define=...`, background workloads as in `pgpaces.run`, each option one level or a list.
    targets: DSNs by the name that the levels of `target` use. resume: the experiment to resume.
    trust: as for `pgpaces.run`. Raises PgpacesError if the experiment cannot begin; trials that
    fail are counted by `missing`.
    """
    draft = experiment_file.drafted(what, levels, targets, quick=quick)
    if trials is not None:
        draft = replace(draft, trials=trials)
    excluded: tuple[Levels, ...] = tuple(
        {key: values[0] for key, values in kinds.of_values(part).items()} for part in exclude
    )
    draft = replace(
        draft,
        name=name or draft.name,
        seed=draft.seed if seed is None else seed,
        exclude=(*draft.exclude, *excluded),
    )
    resumed = None if resume is None else pipeline.find(resume, store)[0]
    experiment = draft.experiment(profiles.ready_made)
    here = costs.find(host_file)
    planned = pipeline.plan(experiment, store, resume=resumed, costs=here, consent=answer(trust))
    swept = pipeline.run(planned, listener)
    return open_sweep(swept.id, store=store)


def open_sweep(name: str = "last", *, store: str | Path | None = None) -> Sweep:
    """A stored experiment: `last`, an id, the end or start of one, or its name."""
    with closing(Store.existing(store)) as opened:
        page = page_of(opened, (opened.find_experiment(name),))
    return Sweep(top(page), lambda: page)
