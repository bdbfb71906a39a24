"""Whether a trial measured anything: transactions that succeeded, answers that arrived. Pure.

A run in which no transaction succeeded is no measurement. A server that stopped answering shows
nothing of its capacity while it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.core.findings import Finding, finding
from pgpaces.spec.result import Counts, Trial

if TYPE_CHECKING:
    from pgpaces.analysis.accumulator import Accumulator, ScriptSeconds
    from pgpaces.analysis.digest import Digest
    from pgpaces.analysis.summary import Summary

# The sample that a sensor yields in every second in which its server answers.
_SOURCE, _ALIVE = "sessions", "connected"
_NO_STANDBYS = ("primary", "pool", "")
_SILENCE_S = 5.0
# The word of pgbench's logs for a failure without details.
_NO_DETAILS = "failed"
# A client waits in vain once it waits this many times the longest time of an answer so far.
_TIMES_USUAL = 3


class LoadPart(Struct, frozen=True):
    """The outcomes of a part of a load: a script, or a background workload.

    error: the message of its first failure, see `first_error`.
    """

    name: str
    counts: Counts
    error: str = ""


def succeeded(counts: Counts) -> int:
    return counts.on_time + counts.late


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


def nothing(counts: Counts, error: str = "") -> Finding | None:
    """Why a load measured nothing; None if a transaction succeeded. error: its first one."""
    if succeeded(counts):
        return None
    if not counts.due:
        return finding("nothing-due")
    values = {"due": counts.due, "skipped": counts.skipped, "unfinished": counts.unfinished}
    if counts.failed == counts.due:
        return finding("all-failed", failed=counts.failed, error=error or None)
    if counts.failed:
        return finding("none-succeeded", failed=counts.failed, error=error or None, **values)
    if counts.unfinished:
        return finding("no-answer", **values)
    return finding("all-skipped", due=counts.due, skipped=counts.skipped)


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
    return nothing(summary.counts, first_error(summary.failures, summary.messages))


def no_trial(digests: Iterable[Digest]) -> Finding | None:
    """Why the first of several trials measured nothing; None if one measured something.

    Those that were interrupted are neither.
    """
    ended = (each for each in digests if each.trial.state != "interrupted")
    reasons = [no_measurement(digest.summary) for digest in ended]
    return reasons[0] if reasons and None not in reasons else None


class Silence(Struct, frozen=True):
    """A time in which transactions were in flight and none ended, in s of the measured part.

    last: it lasted until the trial's end. elsewhere: the server answered another session in that
    time; None where no other session sent a query. usual_s: the longest service time of the trial,
    or the longest silence before the last one.
    """

    start_s: float
    end_s: float
    last: bool = False
    elsewhere: bool | None = None
    usual_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def silences(trial: Trial, accumulator: Accumulator, own: ScriptSeconds) -> Silences:
    spans = accumulator.silences()
    standbys = {component.node for component in trial.plan.own} - {*_NO_STANDBYS}
    sources = {f"{node}/{_SOURCE}" for node in standbys} or {_SOURCE}
    every = (s.seconds for s in trial.samples if s.source in sources and s.name == _ALIVE)
    alive = {second for seconds in every for second in seconds}
    usual_s = max([accumulator.service_ns_max / 1e9, *(end - start for start, end in spans[:-1])])

    def silence(start: float, end: float) -> Silence:
        # A query sent before the end and answered after it belongs to the last second.
        elsewhere = any(start <= second < end - 1 for second in alive) if alive else None
        return Silence(start, end, end == accumulator.ended_ns / 1e9, elsewhere, usual_s)

    times = tuple(silence(*span) for span in spans)
    return Silences(times, _unanswered(trial, accumulator, own))


class Silences(Struct, frozen=True):
    """Clients that waited in vain: all, in these times; or some, while others were answered."""

    times: tuple[Silence, ...] = ()
    waiting: Unanswered | None = None


class Unanswered(Struct, frozen=True):
    """Transactions that wait in vain while others are answered.

    count: transactions of the trial's own workload. seconds: from the due time of the first of them
    to the trial's end. usual_s: the longest latency of the trial.
    """

    count: int
    seconds: float
    usual_s: float


def _unanswered(trial: Trial, accumulator: Accumulator, own: ScriptSeconds) -> Unanswered | None:
    """Unanswered transactions; None where no other was answered, or others waited about as long."""
    left, ended_s = own.column("unfinished"), accumulator.ended_ns / 1e9
    usual_s = accumulator.latency_ns_max / 1e9
    since = ended_s - max(_SILENCE_S, _TIMES_USUAL * usual_s)
    late = left[: max(0, int(since) - own.first)]
    answered = accumulator.succeeded(int(since), int(ended_s) + 1, own_scripts(trial))
    if not late.any() or not answered.any():
        return None
    return Unanswered(int(late.sum()), ended_s - own.first - int(late.argmax()), usual_s)


def findings(
    counts: Counts,
    error: str,
    parts: Iterable[LoadPart] = (),
    *,
    background: Iterable[LoadPart] = (),
    silent: Silences | None = None,
) -> Iterator[Finding]:
    """Findings about a trial whose own workload has these counts and this first error.

    parts: its scripts. background: its background workloads.
    """
    if whole := nothing(counts, error):
        yield whole
    else:
        for part in parts:
            if part.counts.due and (why := nothing(part.counts, part.error)):
                yield finding("script-failed", part.name, why=why.sentence)
        if silent:  # A silence of the whole server explains single clients that wait.
            yield from list(_silent(silent.times, counts.unfinished)) or _waiting(silent.waiting)
    for part in background:
        if part.counts.due and (why := nothing(part.counts, part.error)):
            yield finding("background-failed", part.name, why=why.sentence)


def _waiting(waiting: Unanswered | None) -> Iterator[Finding]:
    """Single clients that get no answer: all figures but one average them away."""
    if waiting is not None:
        count, waited_s = waiting.count, waiting.seconds
        yield finding("unanswered", count=count, waited_s=waited_s, usual_s=waiting.usual_s)


def _silent(silent: Iterable[Silence], unfinished: int) -> Iterator[Finding]:
    """A server that stopped answering all clients.

    Where it answered late, that is a warning, and only if another session had no answer either. A
    server that did not answer again is an outage. A statement that takes long is neither.
    """
    for each in silent:
        if each.seconds < _SILENCE_S:
            continue
        if not each.last:
            if each.elsewhere is False:
                yield finding("server-silent", silent_s=each.seconds, start_s=each.start_s)
        elif unfinished and each.seconds > _TIMES_USUAL * each.usual_s:
            if each.elsewhere:
                yield finding("waiting-at-the-end", silent_s=each.seconds)
            else:
                yield finding("server-gone-silent", silent_s=each.seconds, unfinished=unfinished)
