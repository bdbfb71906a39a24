"""Is a trial valid, and if not, why not? Findings in, a judgment out. It drops nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from pgpaces.analysis import generator, steady
from pgpaces.analysis.generator import Generator
from pgpaces.analysis.outcome import LoadPart, all_gave_up, nothing_measured
from pgpaces.analysis.steady import Flatness
from pgpaces.core.findings import Finding, finding, weight
from pgpaces.core.units import SECOND_NS
from pgpaces.spec.load import CONSTANT
from pgpaces.spec.result import Counts, Trial

_OUTAGE_S = 1.0
_OUTAGES = {"no-connection", "server-gone-silent"}
_SHAPES = {"warming up": "latency-fell", "slowing down": "latency-rose"}


class Validity(Struct, frozen=True):
    """Whether a trial is valid, and all findings, the most severe first."""

    state: Literal["valid", "invalid"]
    findings: tuple[Finding, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The findings that make it invalid, in words."""
        return tuple(str(each) for each in self.findings if each.severity == "invalid")

    @property
    def outage(self) -> bool:
        """Whether it is invalid because the server did not answer for a time."""
        return not _OUTAGES.isdisjoint(each.name for each in self.findings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before trusting its numbers."""
        return tuple(str(each) for each in self.findings if each.severity == "caution")


class Cut(Struct, frozen=True):
    """The part of the warm-up after its minimum, which is left out.

    seconds: its length. points: seconds with a latency that were examined; None where the trial
    ended by count. too_short: at least half of them would be cut. left_out: counts of `seconds`.
    """

    seconds: int = 0
    points: int | None = None
    too_short: bool = False
    left_out: Counts = field(default_factory=Counts)


class Evidence(Struct, frozen=True):
    """The numbers of a trial that its validity depends on.

    counts: of its own workload. all_down_s: time in which no client had a connection. error: the
    message of the first failure; scripts, background: their outcomes, see outcome.py.
    """

    counts: Counts
    generator: Generator
    cut: Cut
    flatness: Flatness | None
    all_down_s: float = 0.0
    error: str = ""
    scripts: tuple[LoadPart, ...] = ()
    background: tuple[LoadPart, ...] = ()
    silences: tuple[Finding, ...] = ()


def judge_trial(trial: Trial, evidence: Evidence) -> Validity:
    """The validity of a trial: invalid if one of its findings is.

    Findings of sensors and of the run are in the trial; the others follow from the evidence.
    """
    findings = [
        *_run(trial),
        *_outcome(trial, evidence),
        *generator.disagreement(trial, evidence.generator),
        *trial.findings,
    ]
    if evidence.counts.on_time + evidence.counts.late:
        findings += generator.lateness(trial, evidence.generator)
        findings += _steadiness(trial, evidence)
    findings.sort(key=weight)
    invalid = any(each.severity == "invalid" for each in findings)
    return Validity("invalid" if invalid else "valid", tuple(findings))


def rate_changes(trial: Trial) -> bool:
    """Whether the planned rate changes, so that a change of latency is expected."""
    return trial.plan.load.shape != CONSTANT


def _outcome(trial: Trial, evidence: Evidence) -> Iterable[Finding]:
    """Whether the trial measured anything; unknown while it runs, or if it ended before."""
    if trial.state == "finished" or (trial.state != "running" and evidence.counts.due):
        if whole := nothing_measured(evidence.counts, evidence.error):
            yield whole
        else:
            yield from _failed("script-failed", evidence.scripts)
            yield from evidence.silences
        yield from _failed("background-failed", evidence.background)
    if (down_s := evidence.all_down_s) >= _OUTAGE_S:
        yield finding("no-connection", down_s=down_s)


def _failed(name: str, parts: Iterable[LoadPart]) -> Iterable[Finding]:
    for part in parts:
        if part.counts.due and (why := nothing_measured(part.counts, part.error)):
            yield finding(name, part.name, why=why.sentence)


def _run(trial: Trial) -> Iterable[Finding]:
    if trial.state == "running":
        yield finding("still-running")
        return
    if trial.error:
        yield finding("ended-early", why=trial.error)
    elif trial.state == "interrupted" and trial.ended_at is None:
        yield finding("end-not-stored")
    elif trial.state == "interrupted":
        yield finding("interrupted")
    planned_ns = trial.plan.duration_ns or 0
    measured_ns = planned_ns if trial.measured_ns is None else trial.measured_ns
    if trial.plan.auto and measured_ns < planned_ns:
        yield finding("maintenance-unseen", ended_s=measured_ns / SECOND_NS)
    fixed = trial.state == "finished" and not trial.plan.auto
    unknown = fixed and not all_gave_up(trial.findings)
    if unknown and planned_ns - measured_ns > SECOND_NS:
        ended_s, planned_s = measured_ns / SECOND_NS, planned_ns / SECOND_NS
        yield finding("load-ended-early", ended_s=ended_s, planned_s=planned_s)


def _steadiness(trial: Trial, evidence: Evidence) -> Iterable[Finding]:
    """Whether the latency was warm and steady; not applicable to a command.

    A steady trial seems too short to cut its warm-up once in some hundred, so that counts only if
    the latency is not flat either. A latency that rises is no warm-up: an overload never settles,
    and is a valid answer.
    """
    if trial.workload.about_command:
        return
    cut, flatness = evidence.cut, evidence.flatness
    if cut.too_short and flatness is not None and flatness.shape not in ("flat", "slowing down"):
        yield finding("never-settled")
    if cut.seconds:
        missed, due = cut.left_out.missed, cut.left_out.due
        name = "warm-up-missed" if missed else "warm-up-cut"
        yield finding(name, seconds=cut.seconds, missed=missed, due=due)
    if rate_changes(trial):
        yield finding("rate-changes")
    elif flatness is None:
        yield finding("too-short-for-steadiness", seconds_min=steady.FLATNESS_POINTS_MIN)
    elif flatness.shape != "flat":
        drift = flatness.drift.times(100)
        yield finding(
            _SHAPES.get(flatness.shape, "latency-unsteady"),
            drift_percent=drift.value,
            low_percent=drift.low,
            high_percent=drift.high,
            levels_ms=[float(f"{level:.3g}") for level in flatness.levels_ms],
            levels_at_s=[0, *flatness.changes],
        )
