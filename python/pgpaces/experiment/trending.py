"""Runs over time from the store: which are meant, whether they are of one kind, what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pgpaces.answers import differences
from pgpaces.answers.cells import sound
from pgpaces.answers.compare import METRICS, Metric
from pgpaces.answers.differences import Between, Varied
from pgpaces.answers.digest import Digest
from pgpaces.answers.trend import Run, Trend, trend
from pgpaces.errors import PlanError
from pgpaces.report import trending as shown
from pgpaces.report import verdicts
from pgpaces.report.comparing import differing
from pgpaces.report.escape import line
from pgpaces.report.section import Section
from pgpaces.report.words import Sentence
from pgpaces.result import Estimate
from pgpaces.store import Store

_WATCHED = tuple(name for name, metric in METRICS.items() if metric.scale == "ratio")


@dataclass(frozen=True, slots=True)
class Trended:
    """A series of runs and what it shows. unlike: in what they differ beside time.

    left_out: how many did not end or are not valid.
    """

    name: str
    metric: Metric
    digests: tuple[Digest, ...]
    unlike: tuple[Varied, ...]
    left_out: int
    trend: Trend


def trended(store: Store, names: Sequence[str], metric: str, factors: Sequence[str]) -> Trended:
    """The trend of stored runs in the order of time. Raises PlanError.

    names: tags, workloads, experiments and runs; of one run, or of none, which is the newest one,
    those that differ from it in nothing but time. factors: what may differ too.
    """
    for name in factors:
        differences.check_factor(name)
    if metric not in _WATCHED:
        raise PlanError(
            f"{metric} has no trend: changes are ratios", f"one of {', '.join(_WATCHED)}"
        )
    ids = list(dict.fromkeys(id_ for name in names or ("last",) for id_ in _ids(store, name)))
    digests = _like(store, ids[0], factors) if len(ids) == 1 else store.digests(ids)
    digests.sort(key=lambda digest: digest.trial.started_at)
    kept = tuple(digest for digest in digests if sound(digest))
    newest = (kept or digests)[-1]
    called = ", ".join(names) or str(newest.trial.workload.get("name", ""))
    return Trended(
        called,
        METRICS[metric],
        kept,
        differences.among(kept, factors),
        len(digests) - len(kept),
        trend([_run(digest, metric) for digest in kept]),
    )


def _ids(store: Store, name: str) -> list[str]:
    """The runs that a name means."""
    tagged = store.trials(tag=name)
    found = tagged or [row for row in store.trials() if row.workload == name]
    if found:
        return [row.id for row in found if row.damage is None]
    id_ = store.find_any(name)
    return [row.id for row in store.trials(experiment=id_)] or [id_]


def _like(store: Store, id_: str, factors: Sequence[str]) -> list[Digest]:
    """The runs that differ from one in nothing but time; itself too."""
    (model,) = store.digests([id_])
    workload = model.trial.workload.get("name")
    able = [row.id for row in store.trials() if row.damage is None and row.workload == workload]
    alike = (each for each in store.digests(able) if each.trial.id != id_)
    return [model, *(each for each in alike if not differences.between([model], [each], factors))]


def _run(digest: Digest, metric: str) -> Run:
    summary = digest.summary
    found = summary.rate if metric == "rate" else summary.latency.estimate(metric)
    name = shown.called(digest.trial.id, digest.trial.started_at)
    return Run(name, Estimate.alone(float("inf"), 0) if found is None else found)


def section(found: Trended) -> Section:
    """The trend as a section."""
    metric = found.metric.name
    runs = tuple(
        shown.Timed(d.trial.id, d.trial.started_at, _run(d, metric)) for d in found.digests
    )
    notes = differing(verdicts.unlike(found.unlike))
    if found.left_out:
        text = f"Left out: {found.left_out} not brought to an end, or not valid."
        notes = (Sentence(text, "warning"), *notes)
    series = shown.Series(found.name, runs, tuple(_beside(found, runs)), notes)
    return shown.section(found.trend, found.metric, series)


def _beside(
    found: Trended, runs: Sequence[shown.Timed]
) -> Iterator[tuple[str, tuple[Between, ...]]]:
    """What else was another one on the two sides of each change."""
    places = {each.run.name: place for place, each in enumerate(runs)}
    starts = [0, *(places[change.first] for change in found.trend.changes), len(runs)]
    parts = [found.digests[low:high] for low, high in pairwise(starts)]
    for change, (old, new) in zip(found.trend.changes, pairwise(parts), strict=True):
        if beside := differences.between(old, new):
            yield change.first, beside


def refusal(found: Trended) -> PlanError:
    """That there is no telling, as they differ in more than time."""
    main, *listed = verdicts.unlike(found.unlike)
    lines = "".join(f"\n  {line(each.text)}" for each in listed)
    return PlanError(
        f"{main.text}{lines}",
        "name fewer runs, what may differ with --factor, or tell it with --anyway",
    )
