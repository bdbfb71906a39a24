"""Is a trial valid, and if not, why not? Findings in, a judgement out. Nothing is dropped by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from pgpaces.answers import generator, outcome, steady
from pgpaces.answers.bulk import about_command
from pgpaces.answers.generator import Generator
from pgpaces.answers.outcome import LoadPart, Silences
from pgpaces.answers.steady import Flatness
from pgpaces.result import Counts, Finding, Trial

_CHANGES_SHOWN = 3
_OUTAGE_S = 1.0
# Findings about transactions that succeeded.
_OF_ANSWERS = ("generator", "warm-up", "flatness")
_CHANGING = Finding(
    "flatness",
    "info",
    "the rate changes over the trial, and the latency with it: whether that was steady, and warm at"
    " the start, was not looked at",
)


class Validity(Struct, frozen=True):
    """Whether a trial is valid, and everything that was found, the heaviest first."""

    state: Literal["valid", "invalid"]
    findings: tuple[Finding, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is invalid."""
        return tuple(f.text for f in self.findings if f.severity == "invalid")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before one believes its numbers."""
        return tuple(f.text for f in self.findings if f.severity == "warning")


class Cut(Struct, frozen=True):
    """What was left out behind the minimum of the warm-up.

    seconds: so many. points: seconds with a latency that were looked at; None where the trial ended
    by count. too_short: half of them or more would have to go. left_out: what was due in `seconds`.
    """

    seconds: int = 0
    points: int | None = None
    too_short: bool = False
    left_out: Counts = field(default_factory=Counts)


class Evidence(Struct, frozen=True):
    """What the numbers of a trial tell of their own worth.

    counts: of its own workload. all_down_s: for how long nobody had a connection. error: what the
    first failure said; scripts, background: the same of each; see outcome.py.
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
    """The judgement of a trial: invalid if one finding says so.

    Sensors and the pipeline have put theirs into the trial; the others come from the evidence.
    """
    found = [
        *generator.findings(trial, evidence.generator),
        *_steadiness(trial, evidence),
        *_run(trial),
        *_outcome(trial, evidence),
        *_outage(evidence.all_down_s),
        *trial.findings,
    ]
    if not outcome.succeeded(evidence.counts):
        # What nothing was measured by was late, warm or steady for nobody.
        found = [each for each in found if each.source not in _OF_ANSWERS]
    found.sort(key=_weight)
    invalid = any(finding.severity == "invalid" for finding in found)
    return Validity("invalid" if invalid else "valid", tuple(found))


def _weight(finding: Finding) -> tuple[int, bool]:
    """What a screen has no room for is the least: of warnings not that the server fell silent."""
    severity = ("invalid", "warning", "info").index(finding.severity)
    return severity, finding.source != "server"


def _steadiness(trial: Trial, evidence: Evidence) -> Iterable[Finding]:
    """Whether it was warm and steady; of a command there is nothing that could be."""
    if about_command(trial):
        return
    yield from _warm_up(evidence.cut, evidence.flatness)
    yield from (_CHANGING,) if changes(trial) else _flatness(evidence.flatness)


def changes(trial: Trial) -> bool:
    """Whether the rate of its load changes, so that its latency is to change as well."""
    return trial.plan.shape != "constant"


def _outage(all_down_s: float) -> Iterable[Finding]:
    """A server that went away tells nothing of what it holds while it is there."""
    if all_down_s >= _OUTAGE_S:
        text = f"no client was connected for {all_down_s:.1f} s: the numbers are those of an outage"
        yield Finding("connections", "invalid", text, all_down_s, "s")


def _outcome(trial: Trial, evidence: Evidence) -> Iterable[Finding]:
    """Whether it measured anything; of one that still runs that is not known."""
    if trial.state != "running":
        parts = (evidence.scripts, evidence.background)
        yield from outcome.findings(evidence.counts, evidence.error, *parts, evidence.silences)


def _run(trial: Trial) -> Iterable[Finding]:
    """How the trial ended."""
    if trial.state == "running":
        yield Finding("run", "info", "still running: this is what has ended so far")
        return
    if trial.error:
        yield Finding("run", "warning", f"ended early: {trial.error}")
    elif trial.state == "interrupted":
        yield Finding("run", "warning", "interrupted: this is what there is")


def _warm_up(cut: Cut, flatness: Flatness | None) -> Iterable[Finding]:
    """What was cut, or could not be.

    MSER-5 says "too short" of every tenth steady trial of a minute; so it counts only where the
    latency is not flat either. One that rises is no warm-up: an overload never settles, and that it
    was too much is a valid answer.
    """
    if cut.too_short and flatness is not None and flatness.shape not in ("flat", "slowing down"):
        text = "too short: the latency was still settling for half of the trial; run longer"
        yield Finding("warm-up", "invalid", text)
    if cut.seconds:
        missed, due = cut.left_out.missed, cut.left_out.due
        share = f" ({100 * missed / due:.1f} %)" if due else ""
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
        yield Finding("flatness", "warning", _described(flatness), 100 * flatness.drift.value, "%")


def _described(flatness: Flatness) -> str:
    """The shape, and what it was told by."""
    drift = flatness.drift
    parts = []
    if flatness.changes:
        levels = [f"{level:.3g}" for level in flatness.levels_ms]
        steps = [
            f"to {level} ms at {second} s"
            for second, level in zip(flatness.changes, levels[1:], strict=True)
        ]
        more = len(steps) - _CHANGES_SHOWN
        rest = [f"{more} times more"] if more > 0 else []
        changes = ", ".join([*steps[:_CHANGES_SHOWN], *rest])
        parts.append(f"from {levels[0]} ms {changes}")
    if steady.drifts(drift):
        low, high = 100 * drift.low, 100 * drift.high
        parts.append(f"drift {100 * drift.value:+.1f} % ({low:+.1f} to {high:+.1f})")
    words = {
        "warming up": "warming up: the latency fell",
        "slowing down": "slowing down: the latency rose, so the numbers hold for this length only",
    }
    return f"{words.get(flatness.shape, flatness.shape)} ({'; '.join(parts)})"
