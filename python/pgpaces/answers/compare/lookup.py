"""A and B from the store: the trials that names refer to, and whether they can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from pgpaces.analysis import differences, validity
from pgpaces.analysis.cells import defect, sound
from pgpaces.analysis.compare import (
    BASELINE_MIN,
    ComparisonGoal,
    Verdict,
    compare_stored,
    compare_trials,
    pairs_of_blocks,
    trial_values,
)
from pgpaces.analysis.differences import Between
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.sequential import Pairing
from pgpaces.answers import run
from pgpaces.answers.again import decisive
from pgpaces.answers.compare import section as shown
from pgpaces.answers.trials import factor_name, levels_listed
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.findings import finding
from pgpaces.show.section import Next, Section
from pgpaces.store.store import Store
from pgpaces.trial import document
from pgpaces.trial.pairs import levels_in


class Group(Struct, frozen=True):
    """The trials that a name refers to. levels: the levels of an experiment in the name.

    sweep: the id of this experiment, unless it is a capacity search.
    """

    name: str
    digests: tuple[Digest, ...]
    levels: Mapping[str, str]
    sweep: str = ""

    @property
    def valid(self) -> list[Digest]:
        return [digest for digest in self.digests if sound(digest)]


class Compared(Struct, frozen=True):
    a: Group
    b: Group
    factors: tuple[str, ...]
    other_differences: tuple[Between, ...]
    verdict: Verdict


def compared(
    store: Store,
    names: tuple[str, str],
    goal: ComparisonGoal,
    *,
    factors: Sequence[str],
    of: str = "last",
    of_baseline: bool = False,
) -> Compared:
    """The verdict on B against A, both of the store. Raises PlanError.

    names: of A and B: levels of the experiment `of` (`variant=log`), a tag, a run or an experiment.
    factors: the compared factors; those in which levels of A and B differ are added. of_baseline: A
    is a baseline, and each of its runs is one observation, if it has at least BASELINE_MIN.
    """
    for name in factors:
        differences.check_factor(name)
    a, b = (_group(store, name, of) for name in names)
    if {d.trial.id for d in a.digests} & {d.trial.id for d in b.digests}:
        raise PlanError("trials-in-common", a=a.name, b=b.name)
    own = {name for name, level in a.levels.items() if b.levels.get(name, level) != level}
    chosen = tuple(dict.fromkeys((*factors, *sorted(own))))
    others = differences.between(a.digests, b.digests, chosen)
    goal = goal.of(planned=shown.is_planned((*a.digests, *b.digests)))
    before, now = ([trial_values(digest.summary) for digest in each.valid] for each in (a, b))
    if of_baseline and len(before) >= BASELINE_MIN and not a.levels:
        verdict = compare_trials(before, now, goal, basis="runs")
    else:
        verdict = compare_stored(a.digests, b.digests, goal)
    return Compared(a, b, chosen, others, verdict)


def section(comparison: Compared) -> Section:
    a, b, verdict = comparison.a, comparison.b, comparison.verdict
    every, others = (*a.digests, *b.digests), comparison.other_differences
    both = [(is_b, each) for is_b, group in enumerate((a, b)) for each in group.valid]
    both.sort(key=lambda pair: pair[1].trial.started_at)
    paired = verdict.basis == "blocks"
    pairs = tuple(pairs_of_blocks(a.valid, b.valid)) if paired else ()
    found, left_out = [], 0
    for group in (a, b):
        if group.valid:
            left_out += len(group.digests) - len(group.valid)
            continue
        failure, first = validity.no_trial(group.digests), group.digests[0]
        reasons = first.summary.validity.reasons or (defect(first.trial, first.summary),)
        why = "; ".join(reasons) if failure is None else failure.sentence
        count = len(group.digests)
        found.append(finding("side-without-valid-trial", group.name, count=count, why=why))
    found += shown.findings_of_trials(verdict.metric, every, others, left_out=left_out)
    if pairs and len(both) > 2 * len(pairs):
        found.append(finding("trials-without-partner", count=len(both) - 2 * len(pairs)))
    basis = shown.VerdictBasis(
        pairs=pairs,
        trials=() if paired else tuple((bool(is_b), trial_values(d.summary)) for is_b, d in both),
        ids=tuple(d.trial.id for d in ((*a.valid, *b.valid) or every)),
        findings=tuple(found),
        differences=others,
    )
    more = decisive(a.sweep, verdict) if a.sweep == b.sweep else ()
    steps = [Next(each, "next-pairs") for each in more]
    if not steps:
        newest = max(b.digests, key=lambda digest: digest.trial.started_at)
        questions = [each.question for each in run.next_steps(newest.trial, newest.summary)]
        what, why = ("why", "next-why") if "next-why" in questions else ("show", "next-values")
        steps = [Next(f"pgpaces {what} {newest.trial.id[-8:]}", why)]
    return shown.section(verdict, a.name, b.name, basis=basis, steps=steps)


def unmeasured(comparison: Compared) -> RunError | None:
    """The error that no trial of B, or none of A, is a measurement; None where both have one."""
    for group in (comparison.b, comparison.a):
        failure = validity.no_trial(group.digests)
        if failure is not None:
            why, advice = failure.sentence, failure.advice
            return RunError("no-measurement", group=group.name, why=why, advice=advice)
    return None


def _group(store: Store, name: str, of: str) -> Group:
    if "=" in name:
        return _of_levels(store, name, of)
    tagged = [row.id for row in store.trials(tag=name)]
    if tagged:
        return Group(name, tuple(store.digests(tagged)), {})
    id_ = store.find_any(name)
    placed = [row.id for row in store.trials(experiment=id_)]
    return Group(name, tuple(store.digests(placed or [id_])), {})


def _of_levels(store: Store, name: str, of: str) -> Group:
    row = store.experiment(store.find_experiment(of))
    goal = document.goal(row.document)
    if isinstance(goal, Pairing):
        raise PlanError("run-as-pairs", experiment=row.name)
    digests = store.digests([trial.id for trial in store.trials(experiment=row.id)])
    placed = [(d.trial.place.levels if d.trial.place else {}, d) for d in digests]
    present: dict[str, dict[str, None]] = {}
    for own, _ in placed:
        for factor, level in own.items():
            present.setdefault(factor, {})[level] = None
    levels = {}
    for factor, level in levels_in(name).items():
        # The factor that pages show by this name; the name itself if none is, or several are.
        matches = [each for each in present if factor in (each, factor_name(each))]
        levels[matches[0] if len(matches) == 1 else factor] = level
    matching = tuple(digest for own, digest in placed if levels.items() <= own.items())
    if not matching:
        listed = levels_listed(present)
        raise PlanError("no-trial-with", experiment=row.name, levels=name, present=listed)
    return Group(name, matching, levels, "" if goal else row.id)
