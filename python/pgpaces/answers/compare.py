"""B against A: their trials in the store, and the section of a verdict.

A and B are levels of an experiment, tags, runs, or experiments; or the two sides of pairs.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import differences, validity
from pgpaces.analysis.cells import defect, sound
from pgpaces.analysis.compare import (
    BASELINE_MIN,
    PAIRS_MIN,
    ComparisonGoal,
    Secondary,
    Verdict,
    compare_stored,
    compare_trials,
    trial_values,
)
from pgpaces.analysis.differences import Difference
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.sequential import Pairing
from pgpaces.answers import run
from pgpaces.answers.trials import factor_name, levels_listed
from pgpaces.core import metrics
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.findings import Finding, finding, needed
from pgpaces.core.messages import Message, message, said
from pgpaces.core.metrics import axis, is_share, number, title
from pgpaces.show import effect_text
from pgpaces.show.charts import Datum, amounts, names
from pgpaces.show.escape import line as escaped
from pgpaces.show.number_text import NOT_KNOWN, metric_cell
from pgpaces.show.screen import Cells, Screen, table_of
from pgpaces.show.section import (
    Figure,
    Headline,
    Mark,
    Next,
    Number,
    Section,
    Table,
    TableCell,
    Values,
    figure,
)
from pgpaces.store.store import Store
from pgpaces.trial import document
from pgpaces.trial.pairs import levels_in

KEY = "comparison"
# The effect on the metric of the verdict, or on another one.
Effect = Verdict | Secondary
_MARKS: dict[str, Mark] = {"better": "pass", "same": "pass", "worse": "fail", "unknown": "unknown"}
SCREEN = Screen(first=(), details=("trials", "p", "A and A", "differs"))
# The first line, and what a verdict rests on, by its basis.
BASIS = {
    "pairs": ("comparison-pairs", "basis-pairs"),
    "blocks": ("comparison-pairs", "basis-blocks"),
    "trials": ("comparison-trials", "basis-trials"),
    "apart": ("comparison-trials", "basis-apart"),
    "runs": ("comparison-runs", "basis-runs"),
}
# The finding for each reason why a comparison has no verdict.
_REASONS = {
    "few": "too-few-to-compare",
    "nothing new": "new-run-unusable",
    "unbounded": "metric-without-value",
    "noise": "noise-hides-difference",
    "biased": "equal-sides-differ",
    "look": "ended-before-look",
    "apart": "trials-apart-in-time",
}
_NOISE = "A with itself"
# The chart of ratios is linear between these, and leaves out more than that.
_LINEAR, _MOST = (0.5, 2.0), 1e4
_LISTED_MAX = 8
# More pairs than these are no next step.
_PAIRS_MAX = 200


def section(
    verdict: Verdict,
    a: str,
    b: str,
    *,
    ids: Sequence[str],
    found: Sequence[Finding] = (),
    differences: Sequence[Difference] = (),
    running: bool = False,
    steps: Sequence[Next] = (),
) -> Section:
    """The answer. ids, found: of the trials. differences: other than the compared factors.

    running: more trials follow.
    """
    effects: tuple[Effect, ...] = (verdict, *verdict.secondary)
    main, *others = (each.metric for each in effects)
    of_a, of_b = verdict.trials
    values = {"a": a, "b": b, "of_a": of_a, "of_b": of_b, "count": verdict.pairs}
    top = message(BASIS[verdict.basis][0], **values)
    effect = effect_text.with_ends(main, verdict.estimate)
    told = {"outcome": verdict.outcome, "metric": title(main), "effect": effect}
    return replace(SCREEN, first=(main, "", *others)).section(
        Headline(verdict.outcome.upper(), _MARKS[verdict.outcome], top),
        _values(verdict, effects, differences),
        key=KEY,
        title=message("comparison-title", a=a, b=b),
        findings=[*found, *findings(verdict, running=running)],
        steps=steps,
        main=message("comparison", a=a, b=b, **told),
        tables=(_table(effects, (a, b)),) if of_a or of_b else (),
        figures=tuple(_figures(verdict)),
        rows=tuple(_numbers(effects)),
        value=verdict,
        trials=tuple(ids),
    )


def _numbers(effects: Sequence[Effect]) -> Iterator[Number]:
    """Each metric of A and of B, and the effect: B over A, or B less A of shares."""
    for each in effects:
        name = "difference" if metrics.is_share(each.metric) else "ratio"
        of = zip(("a", "b", name), (each.a, each.b, each.estimate), strict=True)
        yield from (Number({"of": key}, each.metric, one) for key, one in of if one is not None)


def _values(
    verdict: Verdict, effects: Sequence[Effect], differences: Sequence[Difference]
) -> Values:
    """Each metric: values of A and B, and the effect, in columns; the first also drawn."""
    rows = []
    for each in effects:
        a, b = each.a, each.b
        of_a, of_b = a and number(each.metric, a.value), b and metrics.shown(each.metric, b.value)
        effect, ends = (
            effect_text.texts(each.metric, each.estimate) if each.estimate else (None, None)
        )
        known = ends if each.estimate and each.estimate.estimable else None
        rows.append((each.metric, message("comparison-sides", a=of_a, b=of_b), effect, known))
    widths = [max(len(row[at] or "") for row in rows) for at in (1, 2)]
    for metric, sides, effect, ends in rows:
        columns = {"sides": sides.ljust(widths[0]), "effect": effect and effect.ljust(widths[1])}
        yield metric, said("comparison-effect", ends=ends, **columns)
    if verdict.estimate is not None and (
        drawn := effect_text.drawn(verdict.metric, verdict.estimate)
    ):
        yield "", said("comparison-drawn", line=drawn)
    yield "trials", said(BASIS[verdict.basis][1], count=verdict.pairs)
    if verdict.p is not None:
        yield "p", said("p-at-look", p=verdict.p, level=verdict.level)
    if (noise := effect_text.with_ends(verdict.metric, verdict.noise)) is not None:
        yield "A and A", said("noise-floor", noise=noise)
    yield from (("differs", each) for each in differing(differences))


def findings(verdict: Verdict, *, running: bool = False) -> Iterator[Finding]:
    """The reason why there is no verdict, what would decide, and what weakens the verdict."""
    metric, least, basis, why = verdict.metric, verdict.needed, verdict.basis, verdict.why
    values: dict[str, Any] = {
        "count": verdict.undefined if why == "unbounded" else verdict.pairs,
        "basis": basis,
        "needed": (least or PAIRS_MIN) if why == "few" else least,
        "metric": title(metric),
        "noise": effect_text.with_ends(metric, verdict.noise),
        "delta": effect_text.without_direction(metric, verdict.delta),
    }
    if name := "next-look" if why == "look" and running else _REASONS.get(why, ""):
        yield Finding(name, needed(name, values))
    wide = why == "wide"
    if wide and basis == "runs":
        yield finding("more-runs-tell-more")
    elif wide and least is None:
        yield finding("too-wide-to-decide")
    elif wide:
        yield finding("more-pairs-decide", needed=max(PAIRS_MIN, least or 0, verdict.pairs + 1))
    if why not in ("few", "nothing new") and verdict.pairs < PAIRS_MIN and basis != "runs":
        yield finding("few-pairs", count=verdict.pairs, least=PAIRS_MIN)
    if wide and verdict.detectable is not None:
        smallest = effect_text.without_direction(metric, verdict.detectable)
        yield finding("detectable-difference", smallest=smallest)


def findings_of_trials(
    metric: str, digests: Sequence[Digest], differences: Sequence[Difference], *, left_out: int
) -> Iterator[Finding]:
    """What weakens a comparison of trials by this metric. left_out: how many do not count."""
    if differences:
        yield finding("sides-differ-otherwise", factors=[each.name for each in differences])
    if metric == "throughput" and is_planned(digests):
        yield finding("throughput-is-planned")
    if left_out:
        yield finding("trials-left-out", count=left_out)


def is_planned(digests: Sequence[Digest]) -> bool:
    """Whether the throughput of all is the plan's: by a rate, or by the pace of each user."""
    return all(each.trial.plan.load.model != "closed" for each in digests)


def _table(effects: Sequence[Effect], names: tuple[str, str]) -> Table:
    def cells(each: Effect) -> Cells:
        texts = effect_text.texts(each.metric, each.estimate) if each.estimate else (NOT_KNOWN,)
        yield "metric", axis(each.metric)
        yield "A", metric_cell(each.metric, each.a)
        yield "B", metric_cell(each.metric, each.b)
        yield "B against A", TableCell(*texts)
        yield "p", NOT_KNOWN if each.p is None else f"{each.p:.2g}"
        yield "B is", TableCell(each.outcome, "", _MARKS[each.outcome])

    note = message("table-comparison", a=names[0], b=names[1])
    return table_of("title-comparison-metrics", map(cells, effects), note=note, spare=("p", "B is"))


def _figures(verdict: Verdict) -> Iterator[Figure]:
    """The effects on the metric of the verdict and on those of its kind, and the noise.

    In points of shares; else a ratio, of which a chart can show a wide one on its logarithmic axis.
    """
    share, delta = is_share(verdict.metric), verdict.delta
    metric = verdict.metric
    effects = [(title(metric), metric, verdict.estimate), (_NOISE, metric, verdict.noise)]
    effects += [(title(each.metric), each.metric, each.estimate) for each in verdict.secondary]
    rows: list[Datum] = []
    for name, metric, estimate in effects:
        if is_share(metric) == share and estimate and (share or 0 < estimate.value < _MOST):
            text, ends = effect_text.texts(metric, estimate)
            row = {"y": name, "noise": name == _NOISE, "text": text, "texts": (name, text, ends)}
            places = {"value": estimate.value}
            if estimate.estimable and math.isfinite(estimate.high):
                low = estimate.low if share else max(estimate.low, 1 / _MOST)
                places |= {"low": low, "high": estimate.high}
            rows.append(row | {end: at * (100 if share else 1) for end, at in places.items()})
    if all(row["noise"] for row in rows):
        return
    shown = [row[name] for row in rows for name in ("value", "low", "high") if name in row]
    log = not share and (min(shown) < _LINEAR[0] or max(shown) > _LINEAR[1])
    band = (-100 * delta, 100 * delta) if share else (1 / (1 + delta), 1 + delta)
    name = message("title-shares" if share else "title-effect")
    yield figure(
        f"{KEY}-effect",
        name,
        message("chart-effects", delta=effect_text.without_direction(verdict.metric, delta)),
        columns=("metric", "B against A", "95% interval"),
        data=[*rows, {"none": 0.0 if share else 1.0}, {"from": band[0], "to": band[1]}],
        template="difference",
        x=amounts(name, log=log, zero=False, nice=False, padding=14, tickCount=5, grid=True),
        y=names("", [row["y"] for row in rows], down=True),
    )


def differing(differences: Sequence[Difference]) -> list[Message]:
    """In what A and B differ other than the compared factors."""
    return [
        said("difference-of-sides", name=each.name, a=a or ["-"], b=b or ["-"])
        for each in differences
        for a, b in (each.values,)
    ]


def listed(differences: Sequence[Message]) -> str:
    """The first of the differences, each in a line, for an error."""
    left = len(differences) - _LISTED_MAX
    more = [said("more-not-shown", count=left)] if left > 0 else []
    return "".join(f"\n  {escaped(str(each))}" for each in (*differences[:_LISTED_MAX], *more))


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
    other_differences: tuple[Difference, ...]
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
    others = differences.differ([a.digests, b.digests], chosen)
    goal = goal.of(planned=is_planned((*a.digests, *b.digests)))
    before, now = ([trial_values(digest.summary) for digest in each.valid] for each in (a, b))
    if of_baseline and len(before) >= BASELINE_MIN and not a.levels:
        verdict = compare_trials(before, now, goal, basis="runs")
    else:
        verdict = compare_stored(a.digests, b.digests, goal)
    return Compared(a, b, chosen, others, verdict)


def section_of(comparison: Compared) -> Section:
    a, b, verdict = comparison.a, comparison.b, comparison.verdict
    every, others = (*a.digests, *b.digests), comparison.other_differences
    valid = (*a.valid, *b.valid)
    found, left_out = [], 0
    for group in (a, b):
        if group.valid:
            left_out += len(group.digests) - len(group.valid)
            continue
        failure, first = validity.no_trial(group.digests), group.digests[0]
        reasons = first.summary.validity.reasons or (defect(first),)
        why = "; ".join(reasons) if failure is None else failure.sentence
        count = len(group.digests)
        found.append(finding("side-without-valid-trial", group.name, count=count, why=why))
    found += findings_of_trials(verdict.metric, every, others, left_out=left_out)
    alone = len(valid) - sum(verdict.trials)
    if verdict.basis == "blocks" and alone:
        found.append(finding("trials-without-partner", count=alone))
    steps = [*decisive(a.sweep, verdict)] if a.sweep == b.sweep else []
    if not steps:
        newest = max(b.digests, key=lambda digest: digest.trial.started_at)
        questions = [each.question for each in run.next_steps(newest.trial, newest.summary)]
        what, why = ("why", "next-why") if "next-why" in questions else ("show", "next-values")
        steps = [Next(f"pgpaces {what} {newest.trial.id[-8:]}", why)]
    ids = [digest.trial.id for digest in valid or every]
    return section(verdict, a.name, b.name, ids=ids, found=found, differences=others, steps=steps)


def decisive(experiment: str, verdict: Verdict, names: Sequence[str] = ()) -> Iterator[Next]:
    """An experiment (its id) once more, with as many pairs as give a verdict, if it has none.

    names: A and B, if the experiment consists of pairs.
    """
    if not experiment or verdict.why != "wide" or not 0 < (verdict.needed or 0) <= _PAIRS_MAX:
        return
    count = max(PAIRS_MIN, verdict.needed or 0, verdict.pairs + 1)
    like = f"--like {experiment[-8:]}"
    if names:
        yield Next(f"pgpaces compare {shlex.join(names)} {like} --pairs {count}", "next-pairs")
    elif verdict.basis in ("blocks", "trials"):
        yield Next(f"pgpaces sweep {like} --trials {count}", "next-pairs")


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
    ids = [row.id for row in store.trials(tag=name)]
    if not ids:
        id_ = store.find_any(name)
        ids = [row.id for row in store.trials(experiment=id_)] or [id_]
    return Group(name, tuple(store.digests(ids)), {})


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
