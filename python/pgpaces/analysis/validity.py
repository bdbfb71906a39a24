"""Is a trial valid, and if not, why not? Findings in, a judgment out. It drops nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from pgpaces.analysis import generator, outcome, steady
from pgpaces.analysis.generator import Generator
from pgpaces.analysis.outcome import LoadPart, Silences
from pgpaces.analysis.steady import Flatness
from pgpaces.core.units import SECOND_NS, duration_text, measured_text, ms_text
from pgpaces.spec.result import Counts, Finding, Trial

_CHANGES_SHOWN = 3
_OUTAGE_S = 1.0
# Sources of findings that are invalid because of an outage.
_OUTAGES = ("connections", "silence")
# Findings about transactions that succeeded.
_OF_ANSWERS = ("generator", "warm-up", "flatness")
_CHANGING = Finding(
    "flatness",
    "info",
    "the rate changes over the trial, and the latency with it: whether the latency was steady, and"
    " warm at the start, was not checked",
)


class Validity(Struct, frozen=True):
    """Whether a trial is valid, and all findings, the most severe first."""

    state: Literal["valid", "invalid"]
    findings: tuple[Finding, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(f.text for f in self.findings if f.severity == "invalid")

    @property
    def outage(self) -> bool:
        """Whether it is invalid because the server did not answer for a time."""
        invalid = {finding.source for finding in self.findings if finding.severity == "invalid"}
        return not invalid.isdisjoint(_OUTAGES)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before trusting its numbers."""
        return tuple(f.text for f in self.findings if f.severity == "warning")


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
    silences: Silences = field(default_factory=Silences)


def judge(trial: Trial, evidence: Evidence) -> Validity:
    """The validity of a trial: invalid if one of its findings is.

    Findings of sensors and of the run are in the trial; the others follow from the evidence.
    """
    findings = [
        *generator.findings(trial, evidence.generator),
        *_steadiness(trial, evidence),
        *_run(trial),
        *_outcome(trial, evidence),
        *trial.findings,
    ]
    if not outcome.succeeded(evidence.counts):
        findings = [each for each in findings if each.source not in _OF_ANSWERS]
    findings.sort(key=_weight)
    invalid = any(finding.severity == "invalid" for finding in findings)
    return Validity("invalid" if invalid else "valid", tuple(findings))


def _weight(finding: Finding) -> tuple[int, bool]:
    """Order of findings: a screen may drop the last, so warnings of the server come first."""
    severity = ("invalid", "warning", "info").index(finding.severity)
    return severity, finding.source != "server"


def _steadiness(trial: Trial, evidence: Evidence) -> Iterable[Finding]:
    """Whether the latency was warm and steady; not applicable to a command."""
    if trial.workload.about_command:
        return
    yield from _warm_up(evidence.cut, evidence.flatness)
    yield from (_CHANGING,) if changes(trial) else _flatness(evidence.flatness)


def changes(trial: Trial) -> bool:
    """Whether the planned rate changes, so that a change of latency is expected."""
    return trial.plan.shape != "constant"


def _outcome(trial: Trial, evidence: Evidence) -> Iterable[Finding]:
    """Whether the trial measured anything; unknown while it runs, or if it ended before."""
    if trial.state == "finished" or (trial.state != "running" and evidence.counts.due):
        yield from outcome.findings(
            evidence.counts,
            evidence.error,
            evidence.scripts,
            background=evidence.background,
            silent=evidence.silences,
        )
    if (down_s := evidence.all_down_s) >= _OUTAGE_S:
        text = f"no client was connected for {down_s:.1f} s: the numbers are those of an outage"
        yield Finding("connections", "invalid", text, down_s, "s")


def _run(trial: Trial) -> Iterable[Finding]:
    if trial.state == "running":
        yield Finding("run", "info", "still running: this is what has ended so far")
        return
    if trial.error:
        yield Finding("run", "warning", f"ended early: {trial.error}")
    elif trial.state == "interrupted":
        text = "interrupted: this is what there is"
        if trial.ended_at is None:
            text = (
                "its end is not stored (pgpaces was killed, or the store was full): this is what"
                " was stored before"
            )
        yield Finding("run", "warning", text)
    planned_ns = trial.plan.duration_ns or 0
    measured_ns = planned_ns if trial.measured_ns is None else trial.measured_ns
    unknown = trial.state == "finished" and not outcome.all_gave_up(trial.findings)
    if unknown and planned_ns - measured_ns > SECOND_NS:
        ended, whole = measured_text(measured_ns), duration_text(planned_ns)
        text = f"the load ended after {ended} of {whole}: please report this run"
        yield Finding("run", "invalid", text)


def _warm_up(cut: Cut, flatness: Flatness | None) -> Iterable[Finding]:
    """The part that was cut, or that the trial was too short to cut.

    A steady trial seems too short once in some hundred, so that counts only if the latency is not
    flat either. A latency that rises is no warm-up: an overload never settles, and is a valid
    answer.
    """
    if cut.too_short and flatness is not None and flatness.shape not in ("flat", "slowing down"):
        text = "too short: the latency was still settling for half of the trial; run longer"
        yield Finding("warm-up", "invalid", text)
    if cut.seconds:
        missed, due = cut.left_out.missed, cut.left_out.due
        share = f" ({100 * missed / due:.1f}%)" if due else ""
        text = (
            f"the first {cut.seconds} s are left out, their latency differs from the rest:"
            f" {missed} of {due} due in them missed{share}"
        )
        severity: Literal["info", "warning"] = "warning" if missed else "info"
        yield Finding("warm-up", severity, text, cut.seconds, "s")


def _flatness(flatness: Flatness | None) -> Iterable[Finding]:
    if flatness is None:
        text = (
            "too short to tell whether it was steady:"
            f" that needs {steady.FLATNESS_POINTS_MIN} seconds with answers"
        )
        yield Finding("flatness", "info", text)
    elif flatness.shape != "flat":
        drift, parts = flatness.drift, []
        if flatness.changes:
            first, *others = flatness.levels_ms
            later = zip(flatness.changes, others, strict=True)
            steps = [f"to {ms_text(level)} ms at {second} s" for second, level in later]
            if more := steps[_CHANGES_SHOWN:]:
                steps[_CHANGES_SHOWN:] = [f"{len(more)} times more"]
            parts.append(f"from {ms_text(first)} ms {', '.join(steps)}")
        if steady.drifts(drift):
            low, high = 100 * drift.low, 100 * drift.high
            parts.append(f"drift {100 * drift.value:+.1f}% ({low:+.1f} to {high:+.1f})")
        words = {
            "warming up": "warming up: the latency fell",
            "slowing down": "slowing down: the latency rose, so the numbers hold for this length"
            " only",
        }
        text = f"{words.get(flatness.shape, flatness.shape)} ({'; '.join(parts)})"
        yield Finding("flatness", "warning", text, 100 * drift.value, "%")
