"""Did a trial measure anything, is it valid, and if not, why not? Findings in, a judgment out.

It drops nothing. A run in which no transaction succeeded is no measurement. A server that stopped
answering shows nothing of its capacity while it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pgpaces.analysis import level_shift
from pgpaces.analysis.accumulator import Accumulator, SecondSums, background_scripts, own_scripts
from pgpaces.analysis.generator import generator_findings
from pgpaces.core.findings import Finding, finding, needed, weight
from pgpaces.core.units import SECOND_NS
from pgpaces.spec.load import CONSTANT
from pgpaces.spec.result import Counts, Trial

if TYPE_CHECKING:
    from pgpaces.analysis.digest import Digest
    from pgpaces.analysis.summary import BackgroundSummary, ScriptSummary, Summary

_OUTAGE_S = 1.0
_OUTAGES = {"no-connection", "server-gone-silent"}
_SHAPES = {"warming up": "latency-fell", "slowing down": "latency-rose"}
# The sample that a sensor yields in every second in which its server answers.
_SOURCE, _ALIVE = "sessions", "connected"
_NO_STANDBYS = ("primary", "pool", "")
_SILENCE_S = 5.0
# The word of pgbench's logs for a failure without details.
_NO_DETAILS = "failed"
# A client waits in vain once it waits this many times the longest time of an answer so far.
_TIMES_USUAL = 3


def first_error(failures: Iterable[str], messages: Mapping[str, str]) -> str:
    """SQLSTATE and message of the first failure that has a message; empty without failures.

    failures: SQLSTATEs. messages: by SQLSTATE, in order of occurrence.
    """
    states = set(failures)
    order = [state for state in messages if state in states] or sorted(states)
    if not order:
        return ""
    state, text = order[0], " ".join(messages.get(order[0], "").split())
    if not text:
        return "" if state == _NO_DETAILS else state
    # The message of a Python exception already begins with its name, which is its state.
    return text if text.startswith(f"{state}:") else f"{state}: {text}"


def nothing_measured(counts: Counts, error: str = "") -> Finding | None:
    """Why a load measured nothing; None if a transaction succeeded. error: its first one."""
    if counts.on_time + counts.late:
        return None
    if not counts.due:
        name = "nothing-due"
    elif counts.failed:
        name = "all-failed" if counts.failed == counts.due else "none-succeeded"
    else:
        name = "no-answer" if counts.unfinished else "all-skipped"
    values = {"failed": counts.failed, "error": error or None, "due": counts.due}
    values |= {"skipped": counts.skipped, "unfinished": counts.unfinished}
    return Finding(name, needed(name, values))


def given_up(aborted: int, clients: int, *, error: str) -> Iterator[Finding]:
    """A finding about clients that an error ended. error: the first one, with its client."""
    text = " ".join(error.split())
    if aborted == clients > 0:
        yield finding("all-clients-gave-up", clients=clients, error=text)
    elif aborted:
        yield finding("clients-gave-up", aborted=aborted, clients=clients, error=text)


def all_gave_up(findings: Iterable[Finding]) -> Finding | None:
    """The finding that errors ended all clients of a load; None for any other load."""
    return next((each for each in findings if each.name == "all-clients-gave-up"), None)


def no_measurement(summary: Summary) -> Finding | None:
    """Why a trial measured nothing; None if it measured something."""
    if not summary.counts.due and (gave_up := all_gave_up(summary.validity.findings)):
        return gave_up
    return nothing_measured(summary.counts, first_error(summary.failures, summary.messages))


def no_trial(digests: Iterable[Digest]) -> Finding | None:
    """Why the first of several trials measured nothing; None if one measured something.

    Those that were interrupted are neither.
    """
    ended = (each for each in digests if each.trial.state != "interrupted")
    reasons = [no_measurement(digest.summary) for digest in ended]
    return reasons[0] if reasons and None not in reasons else None


def silences(
    trial: Trial, accumulator: Accumulator, own: SecondSums, *, unfinished: int
) -> list[Finding]:
    """Findings about a server that stopped answering all clients, or else some of them.

    Where it answered late, that is a warning, and only if another session had no answer either. A
    server that did not answer again is an outage. A statement that takes long is neither.
    own: the trial's own workload. unfinished: of its transactions that the answer counts.
    """
    standbys = {component.node for component in trial.setup.own} - {*_NO_STANDBYS}
    sources = {f"{node}/{_SOURCE}" for node in standbys} or {_SOURCE}
    every = (s.seconds for s in trial.samples if s.source in sources and s.name == _ALIVE)
    alive = {second for seconds in every for second in seconds}
    ended_s, usual_s = accumulator.ended_ns / 1e9, accumulator.service_ns_max / 1e9
    found = list[Finding]()
    for start_s, end_s in accumulator.silences():
        silent_s = end_s - start_s
        # A query sent before the end and answered after it belongs to the last second.
        answered = any(start_s <= second < end_s - 1 for second in alive)
        if silent_s >= _SILENCE_S and not answered:
            if end_s != ended_s:
                values = {"silent_s": silent_s, "start_s": start_s}
                found += [finding("server-silent", **values)] if alive else []
            elif unfinished and silent_s > _TIMES_USUAL * usual_s:
                values = {"silent_s": silent_s, "unfinished": unfinished}
                found.append(finding("server-gone-silent", **values))
        usual_s = max(usual_s, silent_s)
    # A silence of the whole server explains single clients that wait.
    return found or [*_unanswered(accumulator, own)]


def _unanswered(accumulator: Accumulator, own: SecondSums) -> Iterator[Finding]:
    """Clients that get no answer to the end: all figures but one average single ones away."""
    left, ended_s = own.column("unfinished"), accumulator.ended_ns / 1e9
    usual_s = accumulator.latency_ns_max / 1e9
    since = ended_s - max(_SILENCE_S, _TIMES_USUAL * usual_s)
    late = left[: max(0, int(since) - own.first)]
    if late.any():
        waited_s = ended_s - own.first - int(late.argmax())
        yield finding("unanswered", count=int(late.sum()), waited_s=waited_s, usual_s=usual_s)


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


def judge_trial(
    trial: Trial,
    summary: Summary,
    accumulator: Accumulator,
    *,
    own: SecondSums,
    too_short: bool,
) -> Validity:
    """The validity of a trial: invalid if one of its findings is.

    Findings of sensors and of the run are in the trial; the others follow from its summary. own:
    the seconds of its own workload. too_short: at least half of it would be cut as a warm-up.
    """
    measured = bool(summary.counts.on_time + summary.counts.late)
    findings = [
        *_run(trial),
        *_outcome(trial, summary, accumulator, own=own),
        *generator_findings(trial, summary.generator, measured=measured),
        *trial.findings,
        *(_steadiness(trial, summary, too_short=too_short) if measured else ()),
    ]
    findings.sort(key=weight)
    invalid = any(each.severity == "invalid" for each in findings)
    return Validity("invalid" if invalid else "valid", tuple(findings))


def rate_changes(trial: Trial) -> bool:
    """Whether the planned rate changes, so that a change of latency is expected."""
    return trial.plan.load.shape != CONSTANT


def _outcome(
    trial: Trial, summary: Summary, accumulator: Accumulator, *, own: SecondSums
) -> Iterable[Finding]:
    """Whether the trial measured anything; unknown while it runs, or if it ended before."""
    counts = summary.counts

    def failed(
        name: str, part: ScriptSummary | BackgroundSummary, numbers: Sequence[int]
    ) -> Iterable[Finding]:
        error = first_error(accumulator.failures(summary.cut_s, numbers), accumulator.messages)
        if part.counts.due and (why := nothing_measured(part.counts, error)):
            yield finding(name, part.name, why=why.sentence)

    if trial.state == "finished" or (trial.state != "running" and counts.due):
        error = first_error(summary.failures, summary.messages)
        if whole := nothing_measured(counts, error):
            yield whole
        else:
            for number in own_scripts(trial):
                yield from failed("script-failed", summary.scripts[number], (number,))
            yield from silences(trial, accumulator, own, unfinished=counts.unfinished)
        numbers = background_scripts(trial)
        for part in summary.background:
            yield from failed("background-failed", part, numbers[part.name])
    if (down_s := summary.outages.all_down_s) >= _OUTAGE_S:
        yield finding("no-connection", down_s=down_s)


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
    # The load of a rehearsal ends with what is rehearsed.
    fixed = trial.state == "finished" and not trial.plan.auto and trial.rehearsed is None
    unknown = fixed and not all_gave_up(trial.findings)
    if unknown and planned_ns - measured_ns > SECOND_NS:
        ended_s, planned_s = measured_ns / SECOND_NS, planned_ns / SECOND_NS
        yield finding("load-ended-early", ended_s=ended_s, planned_s=planned_s)


def _steadiness(trial: Trial, summary: Summary, *, too_short: bool) -> Iterable[Finding]:
    """Whether the latency was warm and steady; not applicable to a command.

    A steady trial seems too short to cut its warm-up once in some hundred, so that counts only if
    the latency is not flat either. A latency that rises is no warm-up: an overload never settles,
    and is a valid answer.
    """
    if trial.workload.about_command:
        return
    flatness = summary.flatness
    if too_short and flatness is not None and flatness.shape not in ("flat", "slowing down"):
        yield finding("never-settled")
    if summary.cut_s:
        missed, due = summary.left_out.missed, summary.left_out.due
        name = "warm-up-missed" if missed else "warm-up-cut"
        yield finding(name, seconds=summary.cut_s, missed=missed, due=due)
    if rate_changes(trial):
        yield finding("rate-changes")
    elif flatness is None:
        yield finding("too-short-for-steadiness", seconds_min=level_shift.FLATNESS_POINTS_MIN)
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
